//! The reservation table against a slow reference model.

mod mechanisms;
mod twin;

use proptest::prelude::*;
use superpage_mm_sim::memory::Frame;
use superpage_mm_sim::reservation::{Config, Flags, Key, Reservations};

use twin::Twin;

const REGIONS: u32 = 6;
const TICK: u64 = 10;

/// A step. Numbers are taken modulo the number of reservations, pages and so on that exist.
#[derive(Debug, Clone)]
enum Do {
    Create { page: u32, frame: u32, order: u8, queue: u8 },
    Populate { which: usize, slot: u32, pages: u32 },
    Fill { which: usize },
    Depopulate { which: usize, slot: u32, pages: u32 },
    Wait(u64),
    BreakOldest(u8),
    Break(usize),
    Run { pages: u16, align: u32, queue: u8 },
    Rename { which: usize, page: u32 },
    Mark { which: usize, bad: bool },
    Daemons { after: u64, at_least: u16, queue: u8 },
    Preempt(u8),
    Remove(usize),
}

fn operation() -> impl Strategy<Value = Do> {
    let which = any::<usize>();
    let run = (any::<usize>(), 0..2048u32, prop_oneof![Just(1u32), 1..512u32]);
    let order =
        prop_oneof![4 => Just(9u8), 1 => 10..12u8, 1 => Just(4u8), 1 => Just(7u8), 1 => 1..9u8];
    let pages = 0..REGIONS * 512;
    prop_oneof![
        4 => (pages.clone(), pages.clone(), order, 0..2u8)
            .prop_map(|(page, frame, order, queue)| Do::Create { page, frame, order, queue }),
        8 => run.clone().prop_map(|(which, slot, pages)| Do::Populate { which, slot, pages }),
        2 => which.prop_map(|which| Do::Fill { which }),
        6 => run.prop_map(|(which, slot, pages)| Do::Depopulate { which, slot, pages }),
        4 => (0..3 * TICK).prop_map(Do::Wait),
        1 => (0..2u8).prop_map(Do::BreakOldest),
        1 => which.prop_map(Do::Break),
        1 => (1..512u16, 0..9u32, 0..2u8)
            .prop_map(|(pages, align, queue)| Do::Run { pages, align, queue }),
        1 => (which, pages).prop_map(|(which, page)| Do::Rename { which, page }),
        1 => (which, any::<bool>()).prop_map(|(which, bad)| Do::Mark { which, bad }),
        1 => (0..6 * TICK, 0..512u16, 0..2u8)
            .prop_map(|(after, at_least, queue)| Do::Daemons { after, at_least, queue }),
        2 => (0..8u8).prop_map(Do::Preempt),
        1 => which.prop_map(Do::Remove),
    ]
}

struct Both {
    table: Reservations,
    twin: Twin,
    now: u64,
    preempts: bool,
}

impl Both {
    /// Returns the longest run of pages from `slot` on that are all populated (or all not), up to `pages`, within one
    /// superpage.
    fn run(&self, which: usize, slot: u32, pages: u32, populated: bool) -> Option<(u32, u32)> {
        let one = &self.twin.all[which];
        let slots = 0..one.capacity();
        let start = slots.clone().cycle().skip(slot as usize).take(one.capacity() as usize);
        let start = { start }.find(|slot| one.pages.contains(slot) == populated)?;
        let fits = (start..slots.end.min((start | 511) + 1)).take(pages as usize);
        Some((start, fits.take_while(|slot| one.pages.contains(slot) == populated).count() as u32))
    }

    fn perform(&mut self, what: &Do) -> Result<(), TestCaseError> {
        let (count, now) = (self.twin.all.len(), self.now);
        let id = |both: &Self, which: usize| {
            let one = &both.twin.all[which];
            both.table.at(Frame(one.base)).expect("live")
        };
        match *what {
            Do::Create { page, frame, order, queue } => {
                // Reservations that may be preempted are at most as large as a superpage.
                let order = if self.preempts { order.min(9) } else { order };
                let key = Key { page: page >> order << order, order };
                let base = frame >> order << order;
                prop_assert_eq!(self.table.overlaps(key), self.twin.page_is_taken(key));
                if !self.table.overlaps(key) && !self.twin.frame_is_taken(base, order) {
                    let id = self.table.create(key, Frame(base), queue, now);
                    self.twin.create(id, key, base, queue, now);
                }
            }
            Do::Wait(time) => self.now += time,
            Do::BreakOldest(queue) => {
                let oldest = self.twin.queue(queue).first().map(|one| one.base);
                let broken = self.table.break_oldest(queue);
                prop_assert_eq!(oldest, broken.as_ref().map(|broken| broken.base.0));
                if let Some(broken) = broken {
                    prop_assert!(self.twin.same_broken(broken.base.0, &broken));
                }
            }
            Do::Run { pages, align, queue } => {
                let pages = pages.min(511);
                let found = self.table.oldest_for_run(queue, pages, 1 << align);
                let found = found.map(|(id, start)| (self.table.base(id).0, start));
                prop_assert_eq!(found, self.twin.oldest_for_run(queue, pages, 1 << align));
            }
            Do::Preempt(order) => {
                let preempted = self.table.preempt(order);
                let preempted = preempted.map(|preempted| {
                    let runs = preempted.free_runs.iter();
                    let frames = runs.flat_map(|&(first, pages)| {
                        (0..u32::from(pages)).map(move |page| (Frame(first.0 + page), 1))
                    });
                    let mut frames: Vec<_> = frames.collect();
                    frames.sort();
                    (frames, preempted.broken)
                });
                prop_assert_eq!(preempted, self.twin.preempt(order));
            }
            Do::Daemons { after, at_least, queue } => self.daemons(after, at_least, queue)?,
            _ if count == 0 => {}
            Do::Populate { which, slot, pages } => {
                let which = which % count;
                if let Some((start, pages)) = self.run(which, slot, pages, false) {
                    let id = id(self, which);
                    let done = match pages {
                        1 => self.table.populate(id, start, now),
                        _ => self.table.populate_run(id, start, pages, now),
                    };
                    prop_assert_eq!(done, self.twin.populate(which, start, pages, now));
                }
            }
            Do::Fill { which } => {
                let which = which % count;
                while let Some((start, pages)) = self.run(which, 0, 512, false) {
                    let done = self.table.populate_run(id(self, which), start, pages, now);
                    prop_assert_eq!(done, self.twin.populate(which, start, pages, now));
                }
            }
            Do::Depopulate { which, slot, pages } => {
                let which = which % count;
                if let Some((start, pages)) = self.run(which, slot, pages, true) {
                    let id = id(self, which);
                    let done = match pages {
                        1 => self.table.depopulate(id, start, now),
                        _ => self.table.depopulate_run(id, start, pages, now),
                    };
                    prop_assert_eq!(done, self.twin.depopulate(which, start, pages, now));
                }
            }
            Do::Break(which) => {
                let broken = self.table.break_reservation(id(self, which % count));
                let base = self.twin.all[which % count].base;
                prop_assert!(self.twin.same_broken(base, &broken));
            }
            Do::Rename { which, page } => {
                let which = which % count;
                let order = self.twin.all[which].key.order;
                let page = page >> order << order;
                let done = self.table.rename(id(self, which), page);
                prop_assert_eq!(done, self.twin.rename(which, page));
            }
            Do::Mark { which, bad } => {
                let id = id(self, which % count);
                let one = &mut self.twin.all[which % count];
                self.table.mark(id, if bad { Flags::BAD } else { Flags::NEEDS_MIGRATION });
                one.bad |= bad;
                one.needs_migration |= !bad;
            }
            Do::Remove(which) => {
                self.table.remove(id(self, which % count));
                self.twin.all.remove(which % count);
            }
        }
        Ok(())
    }

    /// The daemons' order: inactive reservations from the head, candidates from the tail.
    fn daemons(&self, after: u64, at_least: u16, queue: u8) -> Result<(), TestCaseError> {
        let now = self.now;
        let mut inactive = Vec::new();
        let mut passed = None;
        while let Some(id) = self.table.oldest_inactive(queue, passed, now, after) {
            inactive.push(self.table.base(id).0);
            passed = Some(id);
        }
        let twins = self.twin.queue(queue);
        let idle = twins.iter().take_while(|one| one.needs_migration || now - one.changed > after);
        prop_assert_eq!(inactive, idle.map(|one| one.base).collect::<Vec<_>>());

        let mut candidates = Vec::new();
        let mut than = None;
        while let Some(id) = self.table.newest_partial(queue, than, at_least) {
            candidates.push(self.table.base(id).0);
            than = Some(id);
        }
        let plain = twins.iter().rev().filter(|one| {
            one.pages.len() >= usize::from(at_least)
                && one.flags() == [true, false, false, false, false]
        });
        prop_assert_eq!(candidates, plain.map(|one| one.base).collect::<Vec<_>>());
        Ok(())
    }

    /// Checks that the table and the model give the same answer to every query.
    fn compare(&self) -> Result<(), TestCaseError> {
        self.table.verify().map_err(TestCaseError::fail)?;
        prop_assert_eq!(self.table.len() as usize, self.twin.all.len());
        let mut clear = 0;
        for one in &self.twin.all {
            let id = self.table.at(Frame(one.base)).expect("found by frame");
            prop_assert!(one.id.is_none_or(|known| known == id));
            prop_assert_eq!(self.table.key(id), one.key);
            prop_assert_eq!(self.table.popcnt(id) as usize, one.pages.len());
            prop_assert_eq!(self.table.last_change(id), one.changed);
            prop_assert_eq!(twin::flags(self.table.flags(id)), one.flags());
            let populated = (0..one.capacity()).filter(|&slot| self.table.is_populated(id, slot));
            prop_assert!(populated.eq(one.pages.iter().copied()));
            clear += u64::from(one.capacity()) - one.pages.len() as u64;
        }
        prop_assert_eq!(self.table.clear_frames(), clear);
        for number in (0..REGIONS * 512 + 20).step_by(7) {
            let found = self.table.find(number).map(|id| self.table.base(id).0);
            prop_assert_eq!(found, self.twin.find(number).map(|one| one.base));
            let found = self.table.at(Frame(number)).map(|id| self.table.base(id).0);
            prop_assert_eq!(found, self.twin.at(number).map(|one| one.base));
        }
        for queue in 0..2 {
            let mut bases = Vec::new();
            let mut at = None;
            while let Some(id) = self.table.newer(queue, at) {
                bases.push(self.table.base(id).0);
                at = Some(id);
            }
            let twins = self.twin.queue(queue).into_iter().map(|one| one.base);
            prop_assert_eq!(bases, twins.collect::<Vec<_>>());
        }
        Ok(())
    }
}

fn differs_never(sizes: Vec<u8>, what: &[Do]) -> Result<(), TestCaseError> {
    let config = Config { tick: TICK, queues: 2, preemption_sizes: sizes };
    let (table, twin) = (Reservations::new(&config), Twin::new(&config));
    let preempts = !config.preemption_sizes.is_empty();
    let mut both = Both { table, twin, now: 0, preempts };
    for what in what {
        if matches!(what, Do::Preempt(_)) && !preempts {
            continue;
        }
        both.perform(what)?;
        both.compare()?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::cases(300) as u32))]

    #[test]
    fn table_and_twin_agree(what in prop::collection::vec(operation(), 1..120)) {
        differs_never(Vec::new(), &what)?;
    }

    #[test]
    fn table_and_twin_agree_on_preemption(what in prop::collection::vec(operation(), 1..120)) {
        differs_never(vec![4, 7, 9], &what)?;
    }
}
