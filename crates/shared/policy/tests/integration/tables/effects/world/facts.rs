//! Random facts that are possible under a design.

use super::*;

impl World {
    pub(super) fn facts(&mut self) -> Facts {
        let region = self.region();
        let random = &mut self.random;
        let first = if random.percent(50) { self.ahead } else { random.magnitude(20) };
        let end = match random.percent(60) {
            true => (first | 511) + 1,
            false => first + 1 + random.of(64) as u64,
        };
        let mapping = Mapping {
            backing: match random.of(8) {
                0 => Backing::Heap,
                1 => Backing::File { cached: random.percent(50) },
                2 => Backing::Shared,
                _ => Backing::Anonymous,
            },
            advised: [None, Some(true), Some(false)][random.of(3)],
            writable: random.percent(85),
            forked: random.percent(20),
            was_swapped: random.percent(10),
        };
        let extent = Extent {
            order: [0, 9, 10][random.of(3)],
            populated: random.pages().into(),
            coverage: random.pages().into(),
            misses: random.magnitude(20) as u32,
            profiled: random.magnitude(34),
        };
        let page = self.page();
        Facts { mapping, page, place: (first, end), region, extent, machine: self.machine() }
    }

    fn page(&mut self) -> Page {
        let random = &mut self.random;
        let (cow, shared) = (random.percent(30), random.percent(30));
        match random.of(10) {
            0 | 1 => Page::Resident { cow, shared: cow && shared },
            2 => Page::Mapped { cow, shared: cow && shared },
            3 => Page::InObject,
            4 if self.physical.swaps => Page::Swapped,
            5 if self.physical.pool.is_some() => Page::Pooled,
            _ => Page::Untouched,
        }
    }

    fn region(&mut self) -> Region {
        let (superpage, reservation) = (self.superpage(), self.reservation());
        let random = &mut self.random;
        let populated = random.pages();
        let swapped = if self.physical.swaps { random.pages().min(512 - populated) } else { 0 };
        let dirty = match random.of(3) {
            0 => [!0; 8],
            1 => [0; 8],
            _ => std::array::from_fn(|_| random.next()),
        };
        Region {
            superpage,
            has_table: populated > 0 || random.percent(20),
            populated,
            swapped,
            is_mapped: random.percent(60),
            has_cow: random.percent(15),
            has_unaccessed: random.percent(15),
            inside: random.percent(85),
            begins: random.orders(),
            ends: random.orders(),
            absent: random.orders(),
            unreserved: random.orders(),
            reservation,
            dirty,
            accessed: random.percent(60),
            coverage: random.pages(),
            is_protected: random.percent(10),
            has_writable: random.percent(90),
            has_shared: random.percent(10),
            zeros: random.pages(),
            is_pooled: self.physical.pool.is_some(),
        }
    }

    fn superpage(&mut self) -> Option<Superpage> {
        let seen = &self.seen;
        let pooled = self.physical.pool.is_some();
        let any = seen.fresh || seen.copied || seen.in_place || seen.zeros || pooled;
        let random = &mut self.random;
        if !any || random.percent(60) {
            return None;
        }
        let only_zeros = !(seen.fresh || seen.copied || seen.in_place || pooled);
        let cow = random.percent(30);
        Some(Superpage {
            order: 0,
            zeros: seen.zeros && (only_zeros || random.percent(30)),
            pooled,
            cow,
            shared: cow && random.percent(50),
        })
    }

    fn reservation(&mut self) -> Option<Reservation> {
        let random = &mut self.random;
        if !self.seen.reserved || random.percent(30) {
            return None;
        }
        let sizes: Vec<u8> = self.physical.reserved.iter().collect();
        let order = sizes[random.of(sizes.len())];
        let is_full = order >= 9 && random.percent(30);
        Some(Reservation {
            order,
            populated: if is_full { 512 } else { random.pages().min(1 << order.min(9)).into() },
            is_taken: random.percent(10),
            is_bad: random.percent(10),
            is_full,
        })
    }

    fn machine(&mut self) -> Machine {
        let random = &mut self.random;
        let pages = 1 << 20;
        let percent = if random.percent(50) { random.of(101) as u64 } else { random.magnitude(5) };
        let free = (percent * pages / 100 + random.magnitude(8)).min(pages);
        Machine {
            spent: random.magnitude(36),
            spent_in_piece: random.magnitude(30),
            is_piece_done: random.percent(20),
            waiting: random.of(3) as u32,
            free,
            free_with_reserved: (free + random.magnitude(12)).min(pages),
            pages,
            zeroed_permille: random.magnitude(10).min(1000),
            watermarks: (random.magnitude(20), random.magnitude(20)),
            compaction_wanted: self.seen.woken && random.percent(50),
            is_fragmented: self.physical.proactiveness > 0 && random.percent(50),
            fragmentation: random.of(101) as u32,
            free_superpages: random.magnitude(8) as u32,
            is_prezeroed: self.has_prezeroed && random.percent(50),
        }
    }
}
