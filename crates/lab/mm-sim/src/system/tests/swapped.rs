//! A collapse candidate with swapped-out pages.

use super::super::clock::Payer;
use super::*;
use crate::Cause;
use crate::system::daemons::Collapsed;
use trace::{Advice, Backing, Page, Pages, Region, SLOTS};

/// Creates a region of base pages, some of which a larger, now freed mapping has pushed to swap.
fn swapped_in_part(most_swapped: u32) -> (Run, Region, u32) {
    let text = design::designs::find("linux-6").expect("a preset").to_toml();
    let limited = text.replace("most-swapped = 512", &format!("most-swapped = {most_swapped}"));
    let design = design::Design::from_toml("limited", &limited).expect("a good design");
    let memory = ByteSize::mib(16);
    let conditions = Conditions {
        machine: "e3-1245v6",
        memory,
        fragmentation: "none",
        swap: ByteSize::gib(1),
        layout: Layout::default(),
    };
    let mut run = Run::new(&design, &conditions);
    let (first, process) = run.first;
    let region = Region(first);
    let mut happens = |event| run.step(Some(event), &[]).expect("swap is large");
    happens(Event::Spawn(Process(process)));
    let pages = region.pages();
    let further = Pages { first: region.next().first(), count: (memory.bytes() >> 12) as u32 };
    for (pages, address) in [(pages, 1 << 34), (further, 1 << 36)] {
        happens(Event::Map { pages, address, backing: Backing::Anonymous });
        happens(Event::Advise(pages, Advice::NoHuge));
    }
    let page = |at| Access::write(Page(pages.first.0 + at));
    let is_in_part = |run: &Run| (1..400).contains(&run.engine.system.swapped_of(region));
    run.step(None, &(0..SLOTS).map(page).collect::<Vec<_>>()).expect("memory");
    for at in 0..further.count {
        if is_in_part(&run) {
            break;
        }
        run.step(None, &[Access::write(Page(further.first.0 + at))]).expect("swap is large");
    }
    run.step(Some(Event::Unmap(further)), &[]).expect("nothing to run out of");
    run.step(Some(Event::Advise(pages, Advice::Huge)), &[page(SLOTS - 1)]).expect("memory");
    let swapped = run.engine.system.swapped_of(region);
    (run, region, swapped)
}

impl System {
    fn swapped_of(&self, region: Region) -> u32 {
        region.pages().iter().filter(|&page| self.spaces.entry(page).is_swapped()).count() as u32
    }
}

#[test]
fn pages_that_are_swapped_out_are_read_before_they_are_copied() {
    for payer in [Payer::Daemon, Payer::Program] {
        let (mut run, region, swapped) = swapped_in_part(512);
        let system = &mut run.engine.system;
        let before = (system.counters.read, system.counters.copied, system.counters.zeroed);
        let books = |system: &System| match payer {
            Payer::Daemon => system.clock.background()[Cause::Read],
            Payer::Program => system.clock.ledger()[Cause::Read],
        };
        let read = books(system);
        assert_eq!(system.collapse(region, payer), Collapsed::Yes);
        let each = u64::from(swapped);
        let after = (before.0 + each, before.1 + u64::from(SLOTS), before.2);
        assert_eq!((system.counters.read, system.counters.copied, system.counters.zeroed), after);
        assert_eq!(books(system) - read, each * system.costs.read_page);
        run.end();
    }
}

#[test]
fn a_scan_passes_over_what_has_more_than_the_most_swapped_pages() {
    let (.., swapped) = swapped_in_part(512);
    assert!((1..400).contains(&swapped), "{swapped}");
    for (most, ended) in
        [(512, Collapsed::Yes), (swapped, Collapsed::Yes), (swapped - 1, Collapsed::Unfit)]
    {
        let (mut run, region, now) = swapped_in_part(most);
        assert_eq!(now, swapped, "the same program");
        assert_eq!(run.engine.system.collapse(region, Payer::Daemon), ended, "most {most}");
        run.end();
    }
    let (mut run, region, _) = swapped_in_part(swapped - 1);
    assert_eq!(run.engine.system.collapse(region, Payer::Program), Collapsed::Yes, "asked for");
}
