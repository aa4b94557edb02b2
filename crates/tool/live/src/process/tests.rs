//! Tests look at the test process itself.

use std::os::fd::AsFd;

use sys::mem::{Advice, Backing as Pages, Mapping as Memory};

use super::*;
use crate::account::Cause;

/// Returns this process, looked at once at tick 10, and unpopulated memory of `extents` whole extents.
fn own(extents: u64) -> Option<(Process, Memory, u64)> {
    let mut memory = Memory::anonymous(((extents + 1) * BYTES) as usize, Pages::Pages).unwrap();
    memory.advise(Advice::NoHugePage).unwrap();
    let first = memory.address().next_multiple_of(BYTES);
    let none = |_| BTreeSet::new();
    let mut process = Process::open(&Root::real(), sys::param::own_pid(), none).unwrap();
    match process.look(&Root::real(), &MemoryMounts::default(), 10) {
        Ok(_) => Some((process, memory, first)),
        Err(why) => {
            testkit::skipped!("page tables cannot be read: {why}");
            None
        }
    }
}

fn touch(memory: &mut Memory, at: u64, pages: u64) {
    let from = (at - memory.address()) as usize;
    memory.bytes_mut()[from..from + (pages * SCALE.base_page) as usize].fill(1);
}

#[test]
fn growth_is_found_where_faults_were_taken() {
    let Some((mut process, mut memory, first)) = own(4) else { return };
    let look_at = |process: &mut Process, address, now| {
        let grown = process.look_at(&Root::real(), &MemoryMounts::default(), &[address], now);
        let counts = grown.unwrap().grown.into_iter().map(|growth| {
            let extent = process.extents[&growth.start];
            ((growth.start - first) / BYTES, growth.before, extent.populated, extent.grew)
        });
        counts.collect::<Vec<_>>()
    };
    touch(&mut memory, first, 3);
    touch(&mut memory, first + 3 * BYTES, 1);
    assert_eq!(look_at(&mut process, first + 4096, 20), [(0, 0, 3, (10, 20))]);
    assert_eq!(look_at(&mut process, first + 4096, 21), []);
    // The look at tick 21 saw the next extent empty.
    touch(&mut memory, first, 5);
    touch(&mut memory, first + BYTES, 7);
    let both = look_at(&mut process, first, 30);
    assert_eq!(both, [(0, 3, 5, (21, 30)), (1, 0, 7, (21, 30))]);
    let last = look_at(&mut process, first + 3 * BYTES, 40);
    assert_eq!(last, [(3, 0, 1, (10, 40))]);
}

#[test]
fn pages_of_zeros_that_were_read_are_not_shared() {
    let Some((process, mut memory, first)) = own(1) else { return };
    let at = (first - memory.address()) as usize;
    assert!(memory.bytes()[at..at + BYTES as usize].iter().all(|byte| *byte == 0));
    touch(&mut memory, first, 3);
    assert!(!process.is_shared(first));
}

#[test]
fn mappings_are_read_again_where_a_fault_is_in_none() {
    let Some((mut process, _, _)) = own(1) else { return };
    let (_, mut memory, first) = own(1).unwrap();
    touch(&mut memory, first, 2);
    let was_known = process.is_mapped(first);
    let grown = process.look_at(&Root::real(), &MemoryMounts::default(), &[first], 20).unwrap();
    let has_grown = grown.grown.iter().any(|growth| growth.start == first);
    assert!(has_grown && grown.is_in_span, "{was_known} {grown:?}");
    let nowhere = process.look_at(&Root::real(), &MemoryMounts::default(), &[0x1000], 30);
    let nowhere = nowhere.unwrap();
    assert!(nowhere.grown.is_empty() && !nowhere.is_in_span);
}

#[test]
fn a_file_is_no_memory_of_ours() {
    let Some((mut process, mut memory, first)) = own(1) else { return };
    let known = process.procmap.as_ref().is_some_and(|maps| maps.at(first).is_ok());
    testkit::require!(known, "the kernel has no PROCMAP_QUERY (Linux 6.11)");
    // Faults in code, whose mapping is not known yet.
    let code = Process::left as fn(&Process) -> Left as usize as u64;
    (process.mapped, process.spans) = (Vec::new(), Vec::new());
    let looked = process.look_at(&Root::real(), &MemoryMounts::default(), &[code], 20);
    let looked = looked.unwrap();
    assert!(looked.grown.is_empty() && !looked.is_in_span && process.is_mapped(code));
    assert!(process.spans.is_empty(), "not all was read again");
    // Map a file page into the memory.
    assert!(process.is_still_anonymous(first));
    let file = std::fs::File::options().read(true).write(true).open("/dev/zero").unwrap();
    let at = (first - memory.address()) as usize + 8192;
    memory.put_file(at, 4096, file.as_fd(), 0).unwrap();
    assert!(!process.is_still_anonymous(first));
}

#[test]
fn what_a_fork_gave_was_not_made_by_others() {
    let Some((mut process, _, first)) = own(1) else { return };
    process.inherited = BTreeSet::from([first]);
    let found =
        Found { populated: PAGES, is_huge: true, ..Found::empty(first, Mapping::default()) };
    process.renew(&[found], 0, 10);
    assert!(process.extents[&first].is_inherited);
    assert!(process.superpages().contains(&first));
    // The superpage is freed, and another party makes it again.
    let empty = Found::empty(first, Mapping::default());
    process.renew(&[empty], 10, 20);
    process.renew(&[found], 20, 30);
    assert!(!process.extents[&first].is_inherited);
}

#[test]
fn what_was_wanted_and_not_made_is_counted_also_of_programs_before() {
    let Some((mut process, _, first)) = own(1) else { return };
    process.extents.clear();
    let wanted = Extent { is_wanted: true, populated: 64, ..Extent::default() };
    process.extents.insert(first, wanted);
    process.extents.insert(first + BYTES, Extent { is_huge: true, ..wanted });
    let cause = Cause::Scan;
    let held = Extent { is_held: true, is_wanted: false, cause, ..wanted };
    process.extents.insert(first + 2 * BYTES, held);
    let left = [(1, 0), (0, 0), (0, 1)];
    assert_eq!(process.left(), left);
    process.image = 1;
    process.stat(&Root::real()).unwrap().unwrap();
    assert!(process.extents.is_empty());
    assert_eq!(process.left(), left);
}

#[test]
fn pages_are_counted_by_extent() {
    let region = |start, end, categories| PageRegion { start, end, categories };
    let (present, huge) = (Categories::PRESENT, Categories::PRESENT | Categories::HUGE);
    let base = 10 * BYTES;
    let regions = [
        region(base + 4096, base + 3 * 4096, present),
        region(base + 8 * 4096, base + 9 * 4096, present | Categories::PFNZERO),
        region(base + BYTES - 4096, base + BYTES + 4096, present),
        region(base + BYTES + 4096, base + BYTES + 8192, Categories::SWAPPED),
        region(base + 2 * BYTES, base + 4 * BYTES, huge),
    ];
    let mut found = Vec::new();
    add(&mut found, &regions, Mapping::default());
    let counts: Vec<_> = found
        .iter()
        .map(|one| (one.start / BYTES, one.populated, one.swapped, one.is_huge))
        .collect();
    assert_eq!(
        counts,
        [(10, 3, 0, false), (11, 1, 1, false), (12, 512, 0, true), (13, 512, 0, true)]
    );
}
