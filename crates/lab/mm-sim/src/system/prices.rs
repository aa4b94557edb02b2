//! What things cost on this machine under this design, in cycles.
//! See docs/decisions/lab-model.md#8 and #10.

use machine::{Machine, Stores};
use policy::Zeroing;
use trace::SLOTS;
use units::ByteSize;

/// Costs in cycles, and those that follow from the design's choices.
#[derive(Debug)]
pub(crate) struct Prices {
    /// The trap, the kernel's path, one entry made.
    pub fault: u64,
    /// What a superpage's fault takes beyond `fault`, without zeroing.
    pub superpage_fault: u64,
    /// One more entry made by a fault.
    pub map_page: u64,
    pub zero_page: u64,
    /// All of a superpage of one region in a fault, in the design's way.
    pub zero_large: u64,
    /// The same of the largest superpages that the design has.
    pub zero_larger: u64,
    /// The same ahead of need.
    pub zero_ahead: u64,
    pub copy_page: u64,
    pub migrate_page: u64,
    pub collapse: u64,
    pub promote: u64,
    pub split: u64,
    /// Making a reservation.
    pub reserve: u64,
    /// Taking one page of a reservation, or giving it back, beside its zeroing and its mapping.
    pub reserved_page: u64,
    pub shootdown: u64,
    /// What each further thread that faults at the same time adds to a fault: the address space's lock and
    /// counters come from its cache.
    pub beside: u64,
    pub unmap_page: u64,
    pub unmap_superpage: u64,
    pub scan_page: u64,
    /// A page written out by reclaim, and one read back or from a file.
    pub write_page: u64,
    pub read_page: u64,
    pub system_call: u64,
    /// Zeroing runs of 1 to 512 pages in one call each.
    zero_runs: Vec<u64>,
}

/// Cache lines that a fault writes and others' faults write too: the lock of the address space, taken and
/// released, and its counters (inferred; the issue of fault scaling has the model of it).
const LINES_PER_FAULT: f64 = 2.0;

/// Cache misses that a page of a reservation takes when it is prepared with others in one go, and again when all
/// of them are freed. FreeBSD keeps a structure, a place in the object and a place on a queue for each base page,
/// mapped large or not; Linux has one for the whole. (inferred) its own structure and a neighbour's on the
/// queue. 512 pages there and back are 123 us on the machine of ATC 2020, with the zeroing 194:
/// docs/sources/policies.md 2.4 derives 208 from slide 24.
const RESERVED_PAGE_MISSES: f64 = 2.0;

/// A base page to or from a disk or SSD: the reference SSD of the ATC'20 machine is not known; an NVMe
/// drive of its time takes about 80 us (inferred).
const DISK_MICROSECONDS: f64 = 80.0;

impl Prices {
    /// The largest superpages have 2^`group` regions.
    pub(crate) fn new(machine: &Machine, zeroing: Zeroing, is_ideal: bool, group: u32) -> Self {
        let cycles =
            |nanoseconds: f64| (nanoseconds * f64::from(machine.mhz) / 1000.0).round() as u64;
        let costs = &machine.costs;
        let base = machine.base_page.bytes();
        let zero_by = |non_temporal: bool, pages: u64| {
            let stores = if non_temporal { Stores::NonTemporal } else { Stores::Temporal };
            let size = ByteSize(base * pages);
            cycles(costs.zero.time(stores, ByteSize(zeroing.bulk.bytes().min(size.bytes())), size))
        };
        let zero = |pages| zero_by(zeroing.non_temporal, pages);
        // A single page is zeroed through the caches, whatever the design does in bulk: it is about to be used.
        let zero_page = cycles(costs.zero.time(Stores::Temporal, ByteSize(base), ByteSize(base)));
        Self {
            fault: cycles(costs.fault_base),
            superpage_fault: cycles((costs.fault_superpage - costs.fault_base).max(0.0)),
            map_page: cycles(costs.fault_around_page),
            zero_page,
            zero_large: zero(SLOTS.into()),
            zero_larger: zero(u64::from(SLOTS) << group),
            zero_ahead: zero_by(zeroing.ahead_non_temporal.unwrap_or(false), SLOTS.into()),
            copy_page: cycles(costs.copy_page),
            migrate_page: cycles(costs.migrate_page),
            collapse: cycles(costs.collapse),
            promote: cycles(costs.promote),
            split: cycles(costs.promote),
            reserve: cycles(costs.lock + costs.table_page),
            reserved_page: if is_ideal {
                0
            } else {
                cycles(RESERVED_PAGE_MISSES * costs.scan_page)
            },
            shootdown: cycles(costs.shootdown),
            beside: cycles(LINES_PER_FAULT * costs.line_transfer),
            unmap_page: cycles(costs.unmap_page),
            unmap_superpage: cycles(costs.unmap_superpage),
            scan_page: cycles(costs.scan_page),
            write_page: cycles(DISK_MICROSECONDS * 1000.0),
            read_page: cycles(DISK_MICROSECONDS * 1000.0),
            system_call: cycles(costs.system_call),
            zero_runs: (0..=SLOTS.into())
                .map(|pages| if pages == 0 { 0 } else { zero(pages) })
                .collect(),
        }
    }

    /// Zeroing `pages` pages that lie together, in the design's way.
    pub(crate) fn zero_run(&self, pages: u64) -> u64 {
        self.zero_runs[pages as usize]
    }
}
