//! The bound of all designs has its superpages whatever lies in the way, what it reserved itself included.

use super::*;
use trace::{Backing, Pages, Region, SLOTS};

/// Superpages of the program; the fragmenters are told of 8 and leave no more than those free.
const NEEDED: u32 = 40;

/// Frag-L keeps 16 pages of each superpage that it made; the rest of it stays reserved, and no frame is free.
#[test]
fn what_is_reserved_of_spoiled_superpages_is_to_be_had() {
    let design = design::designs::find("ideal").expect("a preset");
    for fragmentation in ["frag-25", "frag-50", "frag-100"] {
        let (memory, swap) = (ByteSize::mib(256), ByteSize(0));
        let ground = Ground { machine: "e3-1245v6", memory, fragmentation, swap };
        let mut run = Run::new(&design, &ground);
        let free = run.engine.system.memory.free_frames();
        assert!(free <= 8 * u64::from(SLOTS), "{fragmentation} left {free} frames free");
        let (region, process) = run.first;
        let pages = Pages { first: Region(region).first(), count: NEEDED * SLOTS };
        let map = Event::Map { pages, address: 1 << 34, backing: Backing::Anonymous };
        run.step(Some(Event::Spawn(Process(process))), &[]).expect("a process");
        run.step(Some(map), &[]).expect("a mapping");
        for region in region..region + NEEDED {
            let touched = run.step(None, &[Access::write(Region(region).first())]);
            assert_eq!(touched, Ok(()), "region {region} after {fragmentation}");
            assert!(run.engine.system.spaces.is_large(region), "{region} after {fragmentation}");
        }
        assert!(run.engine.system.counters.broken > 0);
        run.end();
    }
}
