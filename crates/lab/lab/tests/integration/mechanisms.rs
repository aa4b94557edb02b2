//! Known mechanisms of each system, with exact figures: one mechanism per test.

pub mod script;

use mm_sim::Cause;
use script::{Script, grow_heap, report};
use trace::{Advice, Backing, Event};
use units::ByteSize;

const MEMORY: ByteSize = ByteSize::gib(2);

/// khugepaged has 4096 units per pass, 512 for a region. A pass starts every 10 s (the first after 5 s, half a period).
#[test]
fn khugepaged_makes_eight_superpages_in_ten_seconds() {
    for (seconds, made) in [(4, 0), (6, 8), (14, 8), (16, 16), (56, 48)] {
        let report = report("linux-4.3", MEMORY, |script| {
            grow_heap(script, 0, 100 * 512);
            for _ in 0..seconds {
                script.wait(1);
                // Pages are referenced before each pass.
                script.read((0..100 * 512).step_by(8));
            }
        });
        assert_eq!(report.counters.made_by_copy, made, "after {seconds} s");
    }
}

/// Visiting a region without collapsing it costs as much as visiting one and collapsing it.
#[test]
fn khugepaged_pays_for_regions_that_do_not_qualify() {
    let report = report("linux-4.3", MEMORY, |script| {
        // Twelve regions that are mapped and never touched, then others.
        script.map(0, 12 * 512, Backing::Anonymous);
        grow_heap(script, 20 * 512, 20 * 512);
        for _ in 0..16 {
            script.wait(1);
            script.read((20 * 512..40 * 512).step_by(8));
        }
    });
    // Each of two passes visits eight regions: twelve empty ones and four others in all.
    assert_eq!(report.counters.made_by_copy, 4);
}

/// Ingens promotes at 90 %: floor(0.9 * 512) = 460 pages, when its thread wakes (first after 5 s, half a period).
#[test]
fn ingens_promotes_at_460_pages_and_not_before() {
    for (touched, seconds, made) in [(459, 6, 0), (460, 4, 0), (460, 6, 1), (512, 6, 1)] {
        let report = report("ingens", MEMORY, |script| {
            script.map(0, 512, Backing::Anonymous).write(0..touched).wait(seconds);
        });
        assert_eq!(report.counters.made_by_copy, made, "{touched} pages, {seconds} s");
        assert_eq!(report.counters.made_at_fault, 0);
    }
}

/// Ingens works until no region waits, however many there are, and then sleeps for its whole period.
#[test]
fn ingens_serves_all_that_wait_and_sleeps() {
    for (seconds, made) in [(6, 100), (14, 100), (16, 200)] {
        let report = report("ingens", MEMORY, |script| {
            script.map(0, 200 * 512, Backing::Anonymous).write(0..100 * 512).wait(6);
            script.write(100 * 512..200 * 512).wait(seconds - 6);
        });
        assert_eq!(report.counters.made_by_copy, made, "after {seconds} s");
    }
}

/// Touches the last 16 pages of each of `regions` regions.
fn sixteen_pages_in_each(script: &mut Script, regions: u32) {
    script.map(0, regions * 512, Backing::Anonymous);
    for region in 0..regions {
        script.write(region * 512 + 496..region * 512 + 512);
    }
}

/// A daemon has one CPU. Its work takes time, has an effect only when it is done, and ends with the run.
#[test]
fn a_daemon_is_never_busy_for_longer_than_time_passed() {
    let regions = 17_000;
    // The daemon has 524 ms of work from 5.5 s on. The run ends after about half of it.
    let report = report("quicksilver-sync-64", ByteSize::gib(38), |script| {
        sixteen_pages_in_each(script, regions);
        script.event(Event::Wait(5_450_000));
    });
    let half = u64::from(report.mhz) * 500_000;
    assert!((1..16_384).contains(&report.counters.evacuated), "{}", report.counters.evacuated);
    assert!(report.background.total() <= report.wall_cycles - 11 * half);
    // Ingens needs 0.1 s for 200 superpages, from 5 s on. The run ends 0.07 s later, and Ingens works all that time.
    let report = self::report("ingens", MEMORY, |script| {
        script.map(0, 200 * 512, Backing::Anonymous).write(0..200 * 512);
        script.event(Event::Wait(4_950_000));
    });
    let time = report.wall_cycles - 10 * half;
    assert!(report.background.total() <= time);
    assert!(report.background.total() > time / 10 * 9);
    assert!((1..200).contains(&report.counters.made_by_copy));
}

/// HawkEye zeroes 10 blocks of 4 MiB each second: 10,240 pages.
#[test]
fn hawkeye_zeroes_forty_megabytes_a_second() {
    for seconds in [3, 10] {
        let report = report("hawkeye-pmu", MEMORY, |script| {
            script.map(0, 512, Backing::Anonymous);
            for _ in 0..seconds {
                script.wait(1);
            }
        });
        assert_eq!(report.counters.prezeroed, seconds * 10 * 1024);
    }
}

/// FreeBSD promotes in place when the 512th page is written, and never copies.
#[test]
fn freebsd_promotes_when_the_reservation_is_full() {
    for (touched, superpages) in [(511, 0), (512, 1)] {
        let report = report("freebsd", MEMORY, |script| {
            script.map(0, 512, Backing::Anonymous).write(0..touched);
        });
        assert_eq!(report.counters.made_in_place, superpages);
        assert_eq!(report.counters.reserved, 1);
        assert_eq!(report.counters.copied, 0);
    }
}

/// If all pages are dirty, the superpage is writable. If all are clean, it is read-only, and the first write demotes
/// it. If they are mixed, there is no promotion.
#[test]
fn freebsd_asks_for_uniform_pages() {
    let clean = report("freebsd", MEMORY, |script| {
        script.map(0, 512, Backing::Anonymous).read(0..512);
    });
    assert_eq!((clean.counters.made_in_place, clean.counters.demoted), (1, 0));
    let written = report("freebsd", MEMORY, |script| {
        script.map(0, 512, Backing::Anonymous).read(0..512).write([7]);
    });
    assert_eq!((written.counters.made_in_place, written.counters.demoted), (1, 1));
    let mixed = report("freebsd", MEMORY, |script| {
        script.map(0, 512, Backing::Anonymous).write(0..256).read(256..512);
    });
    assert_eq!(mixed.counters.made_in_place, 0);
    // Writing the clean pages completes the superpage, at the last of them.
    let completed = report("freebsd", MEMORY, |script| {
        script.map(0, 512, Backing::Anonymous).write(0..256).read(256..512).write(256..512);
    });
    assert_eq!(completed.counters.made_in_place, 1);
}

/// A fault on a file's page reads and maps 16 pages. FreeBSD 11.2 promotes only if all entries were used when the last
/// page is mapped, and the pages that were read along were not. Quicksilver has no such rule, and promotes the file.
#[test]
fn files_are_promoted_where_unused_entries_do_not_hinder() {
    let file = Backing::File { file: 1, cached: false };
    for (design, superpages) in
        [("base", 0), ("freebsd-11.2", 0), ("freebsd", 1), ("quicksilver-sync-1", 1)]
    {
        let report = report(design, MEMORY, |script| {
            script.map(0, 512, file).read(0..512).read(0..512);
        });
        let made = report.counters.made_in_place;
        assert_eq!((report.counters.faults, report.counters.read, made), (32, 512, superpages));
    }
    // All entries were used before the last fault, which maps only its own page.
    for (used, superpages) in [(512, 1), (511, 0)] {
        let report = report("freebsd-11.2", MEMORY, |script| {
            let one = Event::Advise(script.pages(7, 1), Advice::DontNeed);
            script.map(0, 512, file).read((0..32).map(|at| at * 16));
            script.read(0..used).event(one).read([7]);
        });
        assert_eq!(report.counters.made_in_place, superpages, "{used} of 512 used");
    }
}

/// Sync-1 prepares all of a superpage at its first fault, Sync-64 at its 64th page.
#[test]
fn quicksilver_fills_at_its_threshold() {
    for (design, touched, superpages, faults) in [
        ("quicksilver-sync-1", 1, 1, 1),
        ("quicksilver-sync-64", 63, 0, 63),
        ("quicksilver-sync-64", 64, 1, 64),
    ] {
        let report = report(design, MEMORY, |script| {
            script.map(0, 512, Backing::Anonymous).write((0..touched).map(|at| at * 8));
        });
        assert_eq!(report.counters.made_in_place, superpages, "{design} at {touched}");
        assert_eq!(report.counters.faults, faults, "{design} at {touched}");
    }
}

/// Pages of a reservation are kept singly, whether mapped as a superpage or not, so freeing them costs more than
/// freeing Linux' compound page.
#[test]
fn a_reserved_superpage_costs_more_to_free_than_a_compound_page() {
    let freed = |design: &str| {
        let kept = |script: &mut script::Script| {
            script.map(0, 512, Backing::Anonymous).write([0]);
        };
        let without = report(design, MEMORY, kept).ledger[Cause::Map];
        let with = report(design, MEMORY, |script| {
            kept(script);
            let all = script.pages(0, 512);
            script.event(Event::Unmap(all));
        });
        assert_eq!((with.counters.faults, with.counters.superpages), (1, 1));
        with.ledger[Cause::Map] - without
    };
    assert!(freed("quicksilver-sync-1") > 10 * freed("linux-4.3"));
}

/// One pass moves up to 262,144 pages: 16,384 reservations of 16 pages, and none after these.
#[test]
fn quicksilver_empties_16384_reservations_of_16_pages_in_one_pass() {
    let regions = 17_000;
    // The pages are touched within the first half second, and are inactive from 5 s on, so the pass at 5.5 s is the
    // first to find them inactive.
    let report = report("quicksilver-sync-64", ByteSize::gib(38), |script| {
        sixteen_pages_in_each(script, regions);
        script.wait(6);
    });
    assert_eq!(report.counters.evacuated, 16_384);
    assert_eq!(report.counters.migrated, 262_144);
}

/// The heap grows by less than a superpage at a time. Linux' fault path never finds the whole window inside the heap,
/// but FreeBSD's reservation may extend past the heap's end.
#[test]
fn a_growing_heap_gets_superpages_only_where_memory_is_reserved() {
    for (design, superpages) in [
        ("base", 0),
        ("linux-4.3", 0),
        ("linux-6", 0),
        ("freebsd", 64),
        ("quicksilver-sync-1", 64),
        ("quicksilver-sync-64", 64),
        // When a region has 460 pages, the heap does not contain the whole window yet, and khugepaged's pass comes
        // later.
        ("ingens", 0),
        ("hawkeye-pmu", 0),
    ] {
        let report = report(design, MEMORY, |script| {
            grow_heap(script, 0, 64 * 512);
            script.wait(1);
        });
        assert_eq!(report.counters.superpages, superpages, "{design}");
    }
}

/// A part of a superpage is unmapped. Linux 4.3 frees the part at once, Linux 6 keeps it until memory is short, and
/// FreeBSD keeps it reserved.
#[test]
fn a_partly_freed_superpage_is_split_or_kept() {
    // The first touches take one fault for the whole superpage, or one for each page of the reservation. The later
    // touches take eight faults.
    for (design, first) in [("linux-4.3", 1), ("linux-6-always", 1), ("freebsd", 512)] {
        let report = report(design, MEMORY, |script| {
            script.map(0, 512, Backing::Anonymous).write(0..512);
            let part = script.pages(0, 8);
            script.event(Event::Advise(part, Advice::DontNeed)).write(0..8);
        });
        assert_eq!(report.counters.demoted, 1, "{design}");
        assert_eq!(report.counters.faults, first + 8, "{design}");
    }
}

/// No design is faster than the ideal one, also on fragmented memory and with heaps that grow in small steps.
#[test]
fn nothing_beats_the_ideal() {
    let heap = |script: &mut script::Script| {
        grow_heap(script, 0, 64 * 512);
        script.read((0..64 * 512).step_by(7));
    };
    let ideal = report("ideal", MEMORY, heap);
    assert_eq!(ideal.counters.superpages, 64);
    for design in design::designs::list().iter().filter(|preset| preset.name != "trident") {
        let other = report(design.name, MEMORY, heap);
        assert!(ideal.wall_cycles <= other.wall_cycles, "{}", design.name);
    }
}
