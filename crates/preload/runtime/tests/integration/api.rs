//! The functions of superpage.h in a real process. This test starts itself again with the library preloaded, so that
//! each case has its own process, environment and pool.
//!
//! Kernel tier and privileged tier: pools are grown by a few pages and restored.

use crate::api_calls;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::api_calls::child::{child, child_by, passed, succeeds};
use crate::api_calls::memory::{is_mapped, map_anonymous, map_at, map_file, write_all};
use crate::api_calls::{Library, SUPERPAGE, reasons};
use testkit::PoolsAsFound;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn number(file: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{POOL}/{file}")).expect("a pool of 2 MiB");
    text.trim().parse().expect("a number")
}

/// Runs `work` with a pool of exactly `pages` free superpages, and restores the pool afterwards.
fn with_pool(pages: u64, work: impl FnOnce()) {
    testkit::require!(testkit::is_root(), "pools are root's to change");
    let has_pool = std::path::Path::new(POOL).exists();
    testkit::require!(has_pool, "no 2 MiB pages on this machine");
    testkit::lock_machine!();
    testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
    let found = PoolsAsFound::note();
    let in_use = number("nr_hugepages") - number("free_hugepages") + number("resv_hugepages");
    std::fs::write(format!("{POOL}/nr_overcommit_hugepages"), "0").expect("written");
    std::fs::write(format!("{POOL}/nr_hugepages"), (pages + in_use).to_string()).expect("written");
    let got = number("free_hugepages") - number("resv_hugepages");
    if got == pages {
        work();
        let left = number("free_hugepages") - number("resv_hugepages");
        // Other processes may have freed superpages meanwhile.
        assert!(left >= pages, "superpages leaked: {left} of {pages} are free");
    } else {
        testkit::skipped!("this machine has no {pages} free superpages");
    }
    drop(found);
}

mod exclusive {
    use super::*;

    #[test]
    fn an_empty_pool_is_an_error_or_a_fallback_everywhere() {
        with_pool(0, || {
            let warnings = succeeds(child("api::child_empty_pool"));
            let expected = "superpage: WARNING: get_huge_pages: nothing for 2097152 bytes: \
                            the pool has too few free superpages (Cannot allocate memory)";
            assert!(warnings.contains(expected), "{warnings}");
            let mut quiet = child("api::child_empty_pool");
            quiet.env("HUGETLB_VERBOSE", "0");
            assert!(!succeeds(quiet).contains("WARNING"));
        });
    }

    #[test]
    fn what_is_handed_out_is_there_to_the_last_page() {
        with_pool(4, || {
            succeeds(child("api::child_all_of_the_pool"));
        });
    }

    #[test]
    fn a_request_that_means_nothing_is_refused() {
        with_pool(1, || {
            succeeds(child("api::child_bad_requests"));
        });
    }

    #[test]
    fn nobody_elses_memory_is_unmapped() {
        with_pool(4, || {
            let errors = succeeds(child("api::child_foreign"));
            assert!(errors.contains("was not handed out here"), "{errors}");
        });
    }

    #[test]
    fn ten_thousand_rounds_and_eight_threads_leak_nothing() {
        with_pool(8, || {
            succeeds(child("api::child_rounds"));
        });
    }

    #[test]
    fn two_programs_race_for_the_last_superpages() {
        with_pool(4, || {
            let race = || {
                let mut child = child("api::child_race");
                child.env("HUGETLB_VERBOSE", "0");
                child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts")
            };
            for child in [race(), race()] {
                passed(&child.wait_with_output().expect("our own child"), "a race");
            }
        });
    }

    #[test]
    fn a_pool_shrunk_by_somebody_else_keeps_what_is_reserved() {
        with_pool(4, || {
            succeeds(child("api::child_shrunk"));
        });
    }

    #[test]
    fn colours_differ_and_stay_inside() {
        with_pool(16, || {
            succeeds(child("api::child_colours"));
        });
    }

    #[test]
    fn without_reservation_the_pages_are_taken_or_refused_at_once() {
        with_pool(2, || {
            let mut command = child("api::child_no_reserve");
            command.env("HUGETLB_NO_RESERVE", "yes");
            succeeds(command);
        });
    }

    #[test]
    fn a_cgroup_limit_is_an_error_and_no_signal() {
        with_pool(8, || {
            let Some(group) = LimitedGroup::new(2 * SUPERPAGE) else {
                testkit::skipped!("the hugetlb controller cannot be mounted here");
                return;
            };
            let join = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
            succeeds(child_by(&["sh", "-c", &join, "sh"], "api::child_in_a_group"));
            let mut shm =
                child_by(&["sh", "-c", &join, "sh"], "api::child_in_a_group_with_segments");
            shm.env("HUGETLB_SHM", "yes");
            succeeds(shm);
        });
    }
}

#[test]
#[ignore = "started by an_empty_pool_is_an_error_or_a_fallback_everywhere"]
fn child_empty_pool() {
    let library = Library::loaded();
    assert!(library.get_huge_pages(SUPERPAGE, 1).is_none());
    assert_eq!((errno(), library.last_reason()), (libc::ENOMEM, reasons::POOL_SHORT));
    assert!(library.get_region(1000, api_calls::STRICT).is_none());
    assert_eq!((errno(), library.last_reason()), (libc::ENOMEM, reasons::POOL_SHORT));
    assert!(library.map(SUPERPAGE, 0, 0, -1).is_none());
    assert_eq!((errno(), library.last_reason()), (libc::ENOMEM, reasons::POOL_SHORT));
    for flags in [api_calls::FALLBACK, api_calls::FALLBACK | api_calls::COLOR] {
        set_errno(77);
        let region = library.get_region(3 << 20, flags).expect("base pages");
        assert_eq!((errno(), library.last_reason()), (77, reasons::POOL_SHORT));
        write_all(region, 3 << 20);
        library.free_region(region);
        assert!(!is_mapped(region));
    }
    for flags in [api_calls::OR_BASE, api_calls::OR_THP, api_calls::OR_THP | api_calls::POPULATE] {
        let memory = library.map((3 << 20) + 1, 0, flags, -1).expect("ordinary pages");
        let reason = library.last_reason();
        assert!(reason == reasons::POOL_SHORT || reason == reasons::THP_OFF, "{reason}");
        if flags & api_calls::OR_THP != 0 {
            assert_eq!(memory % SUPERPAGE, 0, "not aligned: {memory:#x}");
        }
        write_all(memory, (3 << 20) + 1);
        assert_eq!(library.unmap(memory, (3 << 20) + 1), 0);
    }
    let fd = library.unlinked_fd();
    testkit::require!(fd >= 0, "no mount of hugetlbfs, and a kernel without memfd of superpages");
    assert_eq!(map_file(fd, SUPERPAGE), None, "superpages out of nowhere");
}

#[test]
#[ignore = "started by what_is_handed_out_is_there_to_the_last_page"]
fn child_all_of_the_pool() {
    let library = Library::loaded();
    let all = library.get_huge_pages(4 * SUPERPAGE, 1).expect("the whole pool");
    assert_eq!((all % SUPERPAGE, library.last_reason()), (0, reasons::NONE));
    assert_eq!(library.coverage(all, 4 * SUPERPAGE), 0, "nothing is touched yet");
    assert_eq!((library.node(all), errno()), (-1, libc::ENOENT));
    assert!(library.get_huge_pages(SUPERPAGE, 1).is_none(), "all of it is reserved");
    write_all(all, 3 * SUPERPAGE);
    assert_eq!(library.coverage(all, 4 * SUPERPAGE), 3 * SUPERPAGE as isize);
    assert_eq!(library.coverage(all + 100, SUPERPAGE), SUPERPAGE as isize, "parts are cut out");
    library.free_huge_pages(all);
    assert!(!is_mapped(all));

    // A length that is not a whole number of superpages is rounded up.
    let some = library.get_huge_pages(SUPERPAGE + 1, 1).expect("two superpages");
    write_all(some, 2 * SUPERPAGE);
    library.free_huge_pages(some);

    let full = library.map(4 * SUPERPAGE, 0, api_calls::POPULATE, -1).expect("filled");
    assert_eq!(library.coverage(full, 4 * SUPERPAGE), 4 * SUPERPAGE as isize);
    assert_eq!(library.unmap(full, SUPERPAGE), -1, "only all of it");
    assert_eq!(library.unmap(full + SUPERPAGE, 3 * SUPERPAGE), -1);
    write_all(full, 4 * SUPERPAGE);
    assert_eq!(library.unmap(full, 4 * SUPERPAGE), 0);
    assert_eq!((library.unmap(full, 4 * SUPERPAGE), errno()), (-1, libc::EINVAL));
}

#[test]
#[ignore = "started by a_request_that_means_nothing_is_refused"]
fn child_bad_requests() {
    let library = Library::loaded();
    let refusals = [
        ("no length, fallback", library.get_region(0, api_calls::DEFAULT)),
        ("no length, map", library.map(0, 0, api_calls::OR_BASE, -1)),
        ("too much, fallback", library.get_region(usize::MAX - 5, api_calls::DEFAULT)),
        ("no power of two", library.map(1, 3 << 20, 0, -1)),
        ("a size of a few bytes", library.map(1, 8, 0, -1)),
        ("unknown flags", library.map(1, 0, 1 << 30, -1)),
        ("two fallbacks", library.map(1, 0, 3, -1)),
        ("strict about no node", library.map(1, 0, api_calls::NODE_STRICT, -1)),
        ("node -2", library.map(1, 0, 0, -2)),
        ("a node no kernel has", library.map(1, 0, 0, 100_000)),
    ];
    for (what, got) in refusals {
        assert_eq!(got, None, "{what}");
    }
    for (what, expected, call) in [
        ("no length", libc::EINVAL, &(|| library.get_huge_pages(0, 1)) as &dyn Fn() -> _),
        ("too much", libc::ENOMEM, &|| library.get_huge_pages(usize::MAX, 1)),
        ("no such size", libc::EINVAL, &|| library.map(1, 1 << 45, 0, -1)),
    ] {
        set_errno(0);
        assert_eq!((call(), errno()), (None, expected), "{what}");
    }
    assert!(library.map(1, 1 << 45, 0, -1).is_none());
    assert_eq!(library.last_reason(), reasons::NO_POOL);
    assert!(library.map(1, 3 << 20, 0, -1).is_none());
    assert_eq!(library.last_reason(), reasons::NOT_ALIGNED);
    assert!(library.map(1, 0, 0, 900).is_none());
    assert_eq!(library.last_reason(), reasons::NODE);
    for reason in 0..20 {
        assert!(!library.reason_text(reason).is_empty());
    }
    assert_eq!(library.reason_text(19), library.reason_text(12), "unknown");
    // Every machine has node 0.
    let memory = library.map(1, 0, api_calls::NODE_STRICT, 0).expect("on node 0");
    assert_eq!(library.coverage(memory, SUPERPAGE), SUPERPAGE as isize, "taken at once");
    assert_eq!(library.node(memory), 0);
    assert_eq!(library.unmap(memory, 1), 0);
}

#[test]
#[ignore = "started by nobody_elses_memory_is_unmapped"]
fn child_foreign() {
    let library = Library::loaded();
    let foreign = map_anonymous(SUPERPAGE);
    library.free_huge_pages(foreign);
    library.free_region(foreign);
    assert_eq!(library.last_reason(), reasons::NOT_OURS);
    assert_eq!(library.unmap(foreign, SUPERPAGE), -1);
    write_all(foreign, SUPERPAGE);
    library.free_huge_pages(0);

    // The kernel merges neighbours into one mapping; freeing one must leave the other.
    let first = library.get_huge_pages(SUPERPAGE, 1).expect("a superpage");
    let second = library.get_huge_pages(SUPERPAGE, 1).expect("a superpage");
    write_all(first, SUPERPAGE);
    write_all(second, SUPERPAGE);
    let (low, high) = (first.min(second), first.max(second));
    library.free_huge_pages(low + SUPERPAGE / 2);
    library.free_huge_pages(low);
    assert!(!is_mapped(low) && is_mapped(high));
    write_all(high, SUPERPAGE);

    // The memory is freed a second time, when another mapping lies there.
    let again = map_at(low, SUPERPAGE);
    library.free_huge_pages(low);
    write_all(again, SUPERPAGE);
    library.free_huge_pages(high);

    // A child frees its own copy.
    let shared = library.get_huge_pages(SUPERPAGE, 1).expect("a superpage");
    // SAFETY: the child makes system calls only, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        library.free_huge_pages(shared);
        // SAFETY: the call ends the child.
        unsafe { libc::_exit(i32::from(is_mapped(shared))) };
    }
    let mut status = 0;
    // SAFETY: our own child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    write_all(shared, SUPERPAGE);
    library.free_huge_pages(shared);
    assert!(!is_mapped(shared));
}

#[test]
#[ignore = "started by ten_thousand_rounds_and_eight_threads_leak_nothing"]
fn child_rounds() {
    let library = Library::loaded();
    let maps = || std::fs::read_to_string("/proc/self/maps").expect("readable").lines().count();
    let round = |turn: usize| {
        let memory = match turn % 3 {
            0 => library.get_huge_pages(SUPERPAGE, 1),
            1 => library.get_region(1 << 20, api_calls::STRICT | api_calls::COLOR),
            _ => library.map(1, 0, 0, -1),
        };
        let memory = memory.expect("a superpage of eight");
        if turn.is_multiple_of(100) {
            write_all(memory, 1 << 20);
        }
        match turn % 3 {
            0 => library.free_huge_pages(memory),
            1 => library.free_region(memory),
            _ => assert_eq!(library.unmap(memory, 1), 0),
        }
    };
    round(0);
    let before = maps();
    (0..10_000).for_each(round);
    assert!(maps() <= before + 2, "mappings leaked: {before} -> {}", maps());
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || (0..1000).for_each(|turn| round(turn + thread)));
        }
    });
    // More regions at once than fit in one chunk of the table.
    let many: Vec<usize> =
        (0..2500).map(|_| library.map(1, 0, api_calls::OR_BASE, -1).expect("base pages")).collect();
    for memory in many.iter().rev() {
        assert_eq!(library.unmap(*memory, 1), 0);
    }
}

#[test]
#[ignore = "started by two_programs_race_for_the_last_superpages"]
fn child_race() {
    let library = Library::loaded();
    let mut rounds = 0;
    while rounds < 100 {
        match library.get_huge_pages(3 * SUPERPAGE, 1) {
            Some(memory) => {
                write_all(memory, 3 * SUPERPAGE);
                library.free_huge_pages(memory);
                rounds += 1;
            }
            // The counters are read after the refusal. Another process may have freed pages by then, so the reason may
            // differ.
            None => assert_eq!(errno(), libc::ENOMEM),
        }
    }
}

#[test]
#[ignore = "started by a_pool_shrunk_by_somebody_else_keeps_what_is_reserved"]
fn child_shrunk() {
    let library = Library::loaded();
    let memory = library.get_huge_pages(3 * SUPERPAGE, 1).expect("three superpages");
    let pool = format!("{POOL}/nr_hugepages");
    let before = std::fs::read_to_string(&pool).expect("readable");
    std::fs::write(&pool, "0").expect("written");
    assert!(library.get_huge_pages(SUPERPAGE, 1).is_none());
    write_all(memory, 3 * SUPERPAGE);
    library.free_huge_pages(memory);
    std::fs::write(&pool, before).expect("written");
}

#[test]
#[ignore = "started by colours_differ_and_stay_inside"]
fn child_colours() {
    let library = Library::loaded();
    let mut offsets = Vec::new();
    let mut regions = Vec::new();
    for _ in 0..16 {
        let region = library.get_region(1 << 20, api_calls::DEFAULT).expect("a superpage");
        let offset = region % SUPERPAGE;
        assert!(offset <= 1 << 20 && offset.is_multiple_of(64), "{offset}");
        write_all(region, 1 << 20);
        offsets.push(offset);
        regions.push(region);
    }
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), 16, "equal requests get different cache lines");
    for region in regions {
        library.free_region(region);
        assert!(!is_mapped(region));
    }
    // If there are not even base pages, the result is null, not a wild pointer.
    let limit = libc::rlimit { rlim_cur: 0, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a live structure; the limit applies to this process only.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
    for flags in [api_calls::DEFAULT, api_calls::FALLBACK, api_calls::STRICT | api_calls::COLOR] {
        assert_eq!(library.get_region(1 << 20, flags), None);
        assert_eq!(library.last_reason(), reasons::NO_MEMORY);
    }
}

#[test]
#[ignore = "started by without_reservation_the_pages_are_taken_or_refused_at_once"]
fn child_no_reserve() {
    let library = Library::loaded();
    assert!(library.get_huge_pages(4 * SUPERPAGE, 1).is_none(), "a SIGBUS to be");
    assert_eq!((errno(), library.last_reason()), (libc::ENOMEM, reasons::POOL_SHORT));
    let both = library.get_huge_pages(2 * SUPERPAGE, 1).expect("two superpages");
    assert_eq!(library.coverage(both, 2 * SUPERPAGE), 2 * SUPERPAGE as isize);
    library.free_huge_pages(both);
    let region = library.get_region(3 * SUPERPAGE, api_calls::DEFAULT).expect("base pages");
    write_all(region, 3 * SUPERPAGE);
    library.free_region(region);
}

#[test]
#[ignore = "started by a_cgroup_limit_is_an_error_and_no_signal"]
fn child_in_a_group() {
    let library = Library::loaded();
    assert!(library.get_huge_pages(4 * SUPERPAGE, 1).is_none(), "the pool has them, we may not");
    assert_eq!((errno(), library.last_reason()), (libc::ENOMEM, reasons::CGROUP_LIMIT));
    let region = library.get_region(4 * SUPERPAGE, api_calls::DEFAULT).expect("base pages");
    write_all(region, 4 * SUPERPAGE);
    let both = library.get_huge_pages(2 * SUPERPAGE, 1).expect("within the limit");
    write_all(both, 2 * SUPERPAGE);
    library.free_huge_pages(both);
}

#[test]
#[ignore = "started by a_cgroup_limit_is_an_error_and_no_signal"]
fn child_in_a_group_with_segments() {
    // SAFETY: a new segment, attached and touched within its size, removed at the end.
    unsafe {
        for superpages in [2, 4] {
            let id = libc::shmget(libc::IPC_PRIVATE, superpages * SUPERPAGE, 0o600);
            assert!(id >= 0);
            let start = libc::shmat(id, std::ptr::null(), 0);
            write_all(start as usize, superpages * SUPERPAGE);
            libc::shmdt(start);
            assert_eq!(libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()), 0);
        }
    }
}

/// A cgroup with a limit on 2 MiB pages. On drop it is removed, and the controller is unmounted.
struct LimitedGroup(PathBuf, bool);

impl LimitedGroup {
    fn new(bytes: usize) -> Option<Self> {
        let mount = PathBuf::from("/sys/fs/cgroup/hugetlb");
        let mut is_ours = false;
        if !mount.join("cgroup.procs").exists() {
            std::fs::create_dir_all(&mount).ok()?;
            let options = ["-t", "cgroup", "-o", "hugetlb", "superpage-test"];
            let mounted = Command::new("mount").args(options).arg(&mount).status();
            if !mounted.is_ok_and(|status| status.success()) {
                let _ = std::fs::remove_dir(&mount);
                return None;
            }
            is_ours = true;
        }
        let group = Self(mount.join(format!("superpage-test-{}", std::process::id())), is_ours);
        std::fs::create_dir(&group.0).ok()?;
        std::fs::write(group.0.join("hugetlb.2MB.limit_in_bytes"), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
        if self.1 {
            let mount = self.0.parent().expect("a mount");
            let _ = Command::new("umount").arg(mount).status();
            let _ = std::fs::remove_dir(mount);
        }
    }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

fn set_errno(value: i32) {
    // SAFETY: this thread owns the memory.
    unsafe { *libc::__errno_location() = value };
}
