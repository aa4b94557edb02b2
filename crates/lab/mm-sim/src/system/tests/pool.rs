//! A pool that grows in used memory: pages are migrated out of the way, then reclaimed. A movable partition helps where
//! unmovable pages are in the way.

use super::*;
use crate::Cause;
use crate::memory::PartUse;
use trace::{Backing, Pages, Region, SLOTS};

const MEMORY: ByteSize = ByteSize::mib(256);
/// 118 of the 128 superpages: the kernel has 10.
const FREE: u32 = 118;

fn conditions(fragmentation: &'static str, swap: ByteSize, layout: Layout) -> Conditions {
    Conditions { machine: "e3-1245v6", memory: MEMORY, fragmentation, swap, layout }
}

/// Creates a machine with a pool, and maps `pages` pool pages. Returns the result of the mapping.
fn mapped(text: &str, conditions: &Conditions, pages: u32) -> (Run, Result<(), Stop>) {
    let design = design::Design::from_toml("pool", text).expect("a design");
    let mut run = Run::new(&design, conditions);
    let (region, process) = run.first;
    let unit = run.engine.system.pool.pages();
    run.step(Some(Event::Spawn(Process(process))), &[]).expect("a process");
    let first = Region(region).first().0.next_multiple_of(unit);
    let pages = Pages { first: trace::Page(first), count: pages * unit };
    let map = Event::Map { pages, address: 1 << 34, backing: Backing::Anonymous };
    let done = run.step(Some(map), &[]);
    (run, done)
}

fn preset() -> &'static str {
    design::designs::preset("hugetlb").expect("a preset").text
}

fn uses(run: &Run) -> Vec<PartUse> {
    run.engine.system.memory.uses()
}

/// Frag-100 leaves 16 movable pages in each superpage, and leaves those free that the workload does not need.
#[test]
fn movable_pages_are_moved_out_of_the_pools_way() {
    let conditions = conditions("frag-100", ByteSize(0), Layout::default());
    let design = design::designs::find("hugetlb").expect("a preset");
    let free = Run::new(&design, &conditions).engine.system.memory.free_superpages();
    assert!(free < 10, "{free}");
    let (mut run, done) = mapped(preset(), &conditions, 100);
    assert_eq!(done, Ok(()));
    let system = &run.engine.system;
    let (moved, reclaimed) = (system.counters.migrated, system.counters.reclaimed);
    assert!(moved >= 16 * (100 - free) && reclaimed == 0, "{moved} moved, {reclaimed} reclaimed");
    assert!(system.clock.ledger()[Cause::Compact] >= moved * system.costs.migrate_page);
    run.end();
}

/// 118 superpages have at least 16 used pages each. These fill 4 superpages, so without swap the pool gets at most 114.
#[test]
fn pages_that_have_nowhere_to_go_are_swapped_out() {
    let swap = |size| conditions("frag-100", size, Layout::default());
    let (run, without) = mapped(preset(), &swap(ByteSize(0)), FREE);
    assert!(matches!(without, Err(Stop::Refused { short_by: 4.. })), "{without:?}");
    assert_eq!(uses(&run)[0].pool_pages, 0, "what was taken for it is free again");
    let conditions = swap(ByteSize::gib(1));
    let design = design::designs::find("hugetlb").expect("a preset");
    let in_the_way = uses(&Run::new(&design, &conditions))[0].movable_pages;
    let (run, with) = mapped(preset(), &conditions, FREE);
    assert_eq!(with, Ok(()));
    let system = &run.engine.system;
    assert_eq!(uses(&run)[0].pool_pages, u64::from(FREE * SLOTS));
    assert!(in_the_way >= u64::from(FREE * 16), "{in_the_way}");
    assert_eq!(system.counters.reclaimed, in_the_way, "all of them");
    let written = system.counters.reclaimed * system.costs.write_page;
    assert!(system.clock.ledger()[Cause::Reclaim] >= written);
}

/// With a kernel page in each superpage, neither compaction nor reclaim helps.
#[test]
fn a_pool_grows_in_the_movable_partition_where_else_it_cannot() {
    let half = Layout { movable: ByteSize::mib(128), ..Layout::default() };
    for (layout, pages, refused) in [
        (Layout::default(), 1, true),
        (half.clone(), 64, false),
        (half.clone(), 65, true),
        (Layout { nodes: "2".parse().expect("nodes"), ..half }, 64, false),
    ] {
        let conditions = conditions("pinned-100", ByteSize::gib(1), layout);
        let (run, done) = mapped(preset(), &conditions, pages);
        assert_eq!(done.is_err(), refused, "{pages} pages of {conditions:?}: {done:?}");
        for part in uses(&run) {
            assert_eq!(part.unmovable_pages == 0, part.movable_only, "{part:?}");
            let pool = part.movable_only && !refused;
            assert_eq!(part.pool_pages, if pool { part.pages } else { 0 }, "{part:?}");
        }
    }
}

/// Superpages of eight regions: pages are migrated out of an aligned run, which is no block of the buddy allocator.
#[test]
fn pages_are_moved_out_of_large_superpages_too() {
    let large = preset().replacen("sizes = [\"2M\"]", "sizes = [\"16M\"]", 1);
    let conditions =
        Conditions { machine: "ppc970", ..conditions("frag-100", ByteSize(0), Layout::default()) };
    let (mut run, done) = mapped(&large, &conditions, 12);
    assert_eq!(done, Ok(()));
    assert!(run.engine.system.counters.migrated > 0);
    run.end();
    // Linux treats allocations larger than any free block as unmovable.
    let partition = Layout { movable: ByteSize::mib(192), ..Layout::default() };
    let (_, done) = mapped(&large, &Conditions { layout: partition, ..conditions }, 4);
    assert!(matches!(done, Err(Stop::Refused { .. })), "{done:?}");
}
