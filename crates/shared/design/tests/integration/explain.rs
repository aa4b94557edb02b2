//! Descriptions of designs in words.

use std::collections::BTreeMap;

use superpage_design::{Design, designs};

/// Returns the line that says what the design does at an event.
fn at(design: &Design, event: &str) -> String {
    let found = design.explain().into_iter().find(|line| line.event == event);
    let line = found.unwrap_or_else(|| panic!("nothing is said of: {event}"));
    line.actions.join(if line.alternatives { "; else " } else { "; " })
}

fn preset(name: &str) -> Design {
    designs::find(name).unwrap()
}

#[test]
fn what_linux_does() {
    let linux = preset("linux-6");
    assert_eq!(at(&linux, "first read of a region"), "map the shared superpage of zeros");
    assert_eq!(
        at(&linux, "first write, advised"),
        "map a superpage of 2 MiB, if need be compacting and reclaiming at once, then \
         synchronously; else map a base page"
    );
    assert_eq!(
        at(&linux, "no superpage is free for a fault, advised"),
        "compact asynchronously; else reclaim 512 pages; else compact asynchronously; \
         else compact asynchronously; else reclaim 512 pages; else compact synchronously, lightly; \
         else do without"
    );
    let mthp = preset("mthp");
    assert_eq!(
        at(&mthp, "first write"),
        "map a superpage of 2 MiB, if one is free; else map a superpage of 64 KiB, if one is \
         free; else map a base page"
    );
    assert_eq!(
        at(&preset("prezeroed-pool"), "writes in the order of addresses"),
        "map a base page; map 2 base pages; map 4 base pages; map 8 base pages; map 16 base pages"
    );
}

#[test]
fn what_three_sizes_do() {
    let trident = preset("trident");
    let instead = "else map a superpage of 2 MiB, if one is free; else map a base page";
    assert_eq!(at(&trident, "first read of a region"), "map the shared zeros of 1 GiB");
    for event in ["first write", "write to the superpage of zeros"] {
        let giant = "map a superpage of 1 GiB, if one is free";
        assert_eq!(at(&trident, event), format!("{giant}; {instead}"));
    }
    assert_eq!(at(&trident, "write to a page beside others"), "map a base page");
}

#[test]
fn what_reservations_do() {
    let sync = preset("sync-64");
    assert_eq!(at(&sync, "first write"), "reserve 2 MiB, if one is free; else map a base page");
    let filled = "prepare the rest of the reservation";
    assert_eq!(at(&sync, "a region gets its page number 64"), filled);
    assert_eq!(
        at(&sync, "evacuation, every 1 s"),
        "empty the oldest reservation that did not change for 5 s, up to 262144 pages in a pass"
    );
    let earlier = sync.to_toml().replace("fill-at = 64", "fill-at = 32");
    let earlier = Design::from_toml("earlier", &earlier).unwrap();
    assert_eq!(at(&earlier, "a region gets its page number 32"), filled);
}

#[test]
fn what_daemons_do() {
    let hawkeye = preset("hawkeye-star");
    assert_eq!(
        at(&hawkeye, "recovery of zeros, every 120 s"),
        "from less than 15 to 30 % of memory free:; go to the next superpage by address, as long \
         as there is one; of one with 1 page of zeros or more: split it and give back its pages \
         of zeros"
    );
    assert_eq!(
        at(&hawkeye, "sampling, every 5 s"),
        "clear accessed bits; rest for 1 s; count accessed bits: 40 % of the moving average; \
         rest for 5 s"
    );
    assert_eq!(
        at(&preset("hugetlb"), "the pool is too small for a mapping"),
        "compact synchronously; else reclaim 512 pages of one aligned block; else refuse the mapping"
    );
}

#[test]
fn what_a_scan_passes_over() {
    let event = "scan, every 10 s";
    let linux = preset("linux-6");
    let limited = linux.to_toml().replace("most-swapped = 512", "most-swapped = 64");
    let limited = Design::from_toml("limited", &limited).unwrap();
    let but = "; 65 pages swapped out or more: nothing";
    assert_eq!(at(&limited, event), at(&linux, event) + but);
}

#[test]
fn presets_are_told_apart() {
    let mut told = BTreeMap::new();
    for preset in designs::list() {
        let lines = preset.design().unwrap().explain();
        assert!(lines.iter().all(|line| !line.actions.is_empty()), "{}", preset.name);
        assert!(lines.iter().flat_map(|line| &line.actions).all(|words| !words.is_empty()));
        let same = told.insert(format!("{lines:?}"), preset.name);
        assert_eq!(same, None, "{} does the same", preset.name);
    }
}

/// An action that a condition forbids stands behind the condition, and what is done otherwise does not.
#[test]
fn conditions_stand_where_they_hold() {
    let actions = |preset: &str, event: &str| {
        let lines = designs::find(preset).unwrap().explain();
        let of = lines.into_iter().find(|line| line.event.starts_with(event));
        of.unwrap_or_else(|| panic!("{preset}: {event}")).actions
    };
    let large = "where benefit > cost: map a superpage of 2 MiB, if one is free";
    assert_eq!(actions("cbmm", "first write"), [large, "map a base page"]);
    assert_eq!(actions("cbmm", "a part is unmapped"), ["split the superpage, in place"]);
    let scan = actions("elastic", "scan");
    let of_one = scan.last().unwrap();
    assert!(of_one.contains(", where misses > 0 and coverage > max(1, pages / 64): "), "{of_one}");
    let split = actions("hugescope", "splitting");
    assert!(split.last().unwrap().contains(", where coverage > 0 and "), "{split:?}");
    // A design without conditions has none in its words.
    for line in designs::find("linux-6").unwrap().explain() {
        assert!(line.actions.iter().all(|action| !action.contains("where ")), "{line:?}");
    }
}
