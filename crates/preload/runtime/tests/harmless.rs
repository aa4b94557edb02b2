//! A program with the library behaves as without it, except for its speed: each case has the same outcome natively and
//! in each mode (with every change in two of them).
//!
//! An outcome is how the program ended (status, signal, or a hang of three minutes) and what it wrote, without
//! addresses and without the library's own messages. Programs are in `programs/harmless`; a comment in each says what
//! it shows. Modes: T `--heap --mmap --pages thp`, P the same with `--prezero 64M --prefault 64M`, H `--heap --mmap
//! --pages hugetlb`, S the same with `--shm`, K as T with `--stack 4M` and a message at the end. No test asserts a
//! time; `scripts/harmless-times` prints times.
//!
//! `SUPERPAGE_TEST_MODES=TP` selects modes; `SUPERPAGE_TEST_LIBRARY` names another library.
//!
//! Kernel tier: T and P need THP. Privileged tier: H and S raise the pool's limit and hold the machine's lock, once for
//! all cases, so this program runs alone.

mod common;
#[path = "harmless/memory.rs"]
mod memory;
#[path = "harmless/modes.rs"]
mod modes;
#[path = "harmless/outcome.rs"]
mod outcome;
mod programs;
#[path = "harmless/tools.rs"]
mod tools;

/// Each program, its cases, and the modes in which they are compared.
macro_rules! cases {
    ($($program:ident { $($case:ident [$($mode:ident)*])* })*) => {
        $(mod $program {
            $(#[test]
            fn $case() {
                crate::compare_case(
                    stringify!($program), stringify!($case), &[$(crate::modes::Mode::$mode),*]);
            })*
        })*
    };
}

/// Runs one case of a program in all its modes.
fn compare_case(program: &'static str, case: &str, modes: &[modes::Mode]) {
    let path = outcome::built(program);
    testkit::require!(path.is_some(), "no C compiler");
    let path = path.unwrap();
    outcome::compare(&format!("{program}::{case}"), modes, None, || {
        let mut command = modes::natively(&path);
        command.arg(case);
        command
    });
}

cases! {
    protect {
        discard_over_a_guard                    [T P H S]
        discard_from_a_guard                    [T P H S]
        discard_over_a_readonly_page            [T P H S]
        discard_part                            [T P H S]
        every_second_page                       [T P H S]
        executable_part                         [T P H S]
        protection_keys                         [T P H S]
        barriers_on_a_small_stack               [T P H S]
        whole_without_descriptors               [T P H S]
        unmap_part                              [T P H S]
        raw_system_calls                        [T P H S]
        guards_while_others_fork                [T P H S]
        // The kernel refuses this call for part of a page of the pool.
        raw_protection_and_fork                 [T P]
    }
    advice {
        every_advice                            [T P H S]
        wipe_on_fork                            [T P H S]
        memory_policy                           [T P H S]
        do_not_fork                             [T P H S]
        no_superpages                           [T P H S]
        fresh_memory_is_not_resident            [T P H S]
        populates                               [T P H S]
        // Before Linux 5.14 private memory cannot be on the pool.
        populates_without_advice                [T P]
    }
    remap {
        map_again                               [T P H S]
        grow                                    [T P H S]
        grow_from_the_middle                    [T P H S]
        to_a_place                              [T P H S]
        and_keep_the_old                        [T P H S]
        shrink                                  [T P H S]
        over_a_renewed_piece                    [T P H S]
        over_pieces_that_became_alike           [T P H S]
        protected_parts                         [T P H S]
    }
    placement {
        trimmed_to_alignment                    [T P H S]
        the_place_of_what_was_unmapped          [T P H S]
        wrong_arguments                         [T P H S]
        kinds_of_mappings                       [T P H S]
    }
    shared {
        commit_parts                            [T P H S]
        guard_page                              [T P H S]
        unmap_part                              [T P H S]
        map_over_part                           [T P H S]
        remap_file_pages_of_part                [T P H S]
        empty_part                              [T P H S]
        resize                                  [T P H S]
        locking_and_syncing                     [T P H S]
        protected_by_a_child                    [T P H S]
        system_v                                [T P H S]
    }
    userfault {
        fills_a_mapping                         [T P H S]
        fills_memory_of_malloc                  [T P H S]
        fills_what_was_begun                    [T P H S]
        watches_what_may_not_be_read            [T P H S]
        sees_writes                             [T P H S]
    }
    transfers {
        // On the pool the first case fails with ENOMEM, and in the second what a device writes meanwhile is lost;
        // neither can be avoided (docs/decisions/pool.md#8).
        registered_buffer                       [T P]
        reads_in_flight                         [T P]
        system_calls_of_another_thread          [T P H S]
    }
    stdio {
        getline_flush_and_fork                  [T P H S]
        server_of_a_threaded_process            [T P H S]
        fork_handlers_that_allocate             [T P H S]
    }
    processes {
        vforks                                  [T P H S]
        clones_in_the_same_memory               [T P H S]
        raw_clones                              [T P H S]
        forks_without_handlers                  [T P H S]
        forks                                   [T P H S]
        forks_of_forks                          [T P H S]
    }
    threads {
        cancelled_in_ioctl                      [T P H S K]
        cancelled_while_mapping                 [T P H S K]
        alarms_while_mapping                    [T P H S K]
        exit_while_threads_allocate             [T P H S K]
        fork_while_threads_allocate             [T P H S K]
        thousand_threads                        [T P H S K]
        memory_of_finished_threads              [T P H S K]
    }
    ends {
        main_thread_leaves                      [T P H S K]
        raw_exit                                [T P H S K]
        strict_seccomp_and_exit                 [T P H S K]
        strict_seccomp_and_a_forbidden_call     [T P H S K]
        strict_seccomp_and_malloc               [T P H S K]
        aborts                                  [T P H S K]
        segmentation_fault                      [T P H S K]
        leaves_at_once                          [T P H S K]
        leaves_quickly                          [T P H S K]
        leaves_with_handlers                    [T P H S K]
        executes_another                        [T P H S K]
        standard_error_is_a_closed_pipe         [T P H S K]
        files_may_have_no_bytes                 [T P H S K]
        another_file_is_standard_error          [T P H S K]
    }
    sandbox {
        filter_that_kills                       [T P H S K]
        filter_that_refuses                     [T P H S K]
        filter_of_all_threads                   [T P H S K]
        filter_and_parts                        [T P H S K]
        filter_and_fork                         [T P H S K]
        filter_and_threads                      [T P H S K]
        asks_for_filters                        [T P H S K]
        enters_namespaces                       [T P H S K]
        leaves_namespaces                       [T P H S K]
        becomes_nobody                          [T P H S K]
        changes_root                            [T P H S K]
        closes_all_descriptors                  [T P H S K]
    }
    limits {
        address_space                           [T P H S]
        address_space_and_fork                  [T P H S]
        address_space_past_libc_and_fork        [T P H S]
        data                                    [T P H S]
        data_and_fork                           [T P H S]
        data_counts_what_is_mapped              [T P H S]
        descriptors                             [T P H S]
        processes                               [T P H S]
        stack                                   [T P H S]
        lock_everything                         [T P H S]
        lock_everything_as_root                 [T P H S]
        unmap_what_is_locked                    [T P H S]
        unmap_what_root_locked                  [T P H S]
        lock_parts                              [T P H S]
        locks_of_a_child                        [T P H S]
    }
    misuse {
        small_twice                             [T P H S]
        medium_twice                            [T P H S]
        large_twice                             [T P H S]
        of_the_stack                            [T P H S]
        of_the_middle                           [T P H S]
        of_the_middle_of_large_memory           [T P H S]
        resized_after_free                      [T P H S]
        overrun                                 [T P H S]
    }
    malloc {
        resized_to_any_size                     [T P H S]
        resized_in_the_heap                     [T P H S]
        information                             [T P H S]
        information_in_xml                      [T P H S]
        usable_sizes                            [T P H S]
        settings                                [T P H S]
        perturbed                               [T P H S]
        without_mappings                        [T P H S]
        errors                                  [T P H S]
    }
    usage {
        peaks_of_children                       [T P]
    }
}
