//! Daemons that maintain memory in the background: Quicksilver's eviction and background preparation, prezeroing,
//! compaction, reclaim at the watermarks, and bloat recovery (events 2, 4 and 5).

use crate::action::{Compaction, UpkeepAction, Wait};
use crate::daemon::{Daemon, Pass};
use crate::event::Result;
use crate::rules::Release;
use crate::{Action, DaemonAction, Facts, Policy};

/// Number of checks that proactive compaction skips after a run without progress
/// (COMPACT_MAX_DEFER_SHIFT).
const RESTS: u32 = 1 << 6;

/// State of the daemons across passes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    /// Whether zeroing has started (below the start threshold) and not yet reached the stop threshold.
    zeroing: bool,
    /// Whether bloat recovery has started and not yet freed enough memory.
    recovering: bool,
    /// Number of checks that proactive compaction still skips.
    rests: u32,
    /// Fragmentation score before the last proactive compaction.
    fragmentation: u32,
}

impl Policy {
    /// Returns the first action of a piece of a daemon's pass.
    pub(crate) fn upkeep_begins(&mut self, daemon: Daemon, facts: &Facts) -> DaemonAction {
        if !self.passes[daemon as usize].has_begun {
            let budget = self.budget(daemon);
            self.passes[daemon as usize] = Pass { budget, ..Pass::default() };
        }
        let machine = &facts.machine;
        match daemon {
            Daemon::Prezero => {
                let prezero = self.rules.preparation.prezero;
                let start = prezero.map_or(0, |prezero| prezero.start_permille);
                self.upkeep.zeroing |= machine.zeroed_permille < start.into();
            }
            Daemon::Recover => {
                let bloat = self.rules.deallocation.bloat;
                let below = bloat.map_or(0, |bloat| bloat.below_percent);
                self.upkeep.recovering |= free_percent(facts) < below.into();
            }
            Daemon::Compact if self.rules.memory.periodic_compaction.is_none() => {
                let is_wanted =
                    machine.compaction_wanted && self.rules.memory.background_compaction;
                return match is_wanted {
                    true => {
                        DaemonAction::Upkeep(UpkeepAction::Compact { mode: Compaction::SyncLight })
                    }
                    false => self.compact_ahead(facts),
                };
            }
            Daemon::Reclaim => {
                let is_short = machine.free_with_reserved < machine.watermarks.0;
                return match is_short {
                    true => DaemonAction::Upkeep(UpkeepAction::ReleaseHeld),
                    false => DaemonAction::Wait(Wait::Period),
                };
            }
            _ => {}
        }
        self.upkeep_next(daemon, facts)
    }

    fn budget(&self, daemon: Daemon) -> u32 {
        let rules = &self.rules;
        match daemon {
            Daemon::Evacuate => match rules.deallocation.release {
                Release::Inactive { budget_pages, .. } => budget_pages,
                _ => 0,
            },
            Daemon::Fill => rules.preparation.background.map_or(0, |fill| fill.budget_reservations),
            Daemon::Prezero => rules.preparation.prezero.map_or(0, |prezero| prezero.blocks),
            Daemon::Compact => {
                rules.memory.periodic_compaction.map_or(0, |compaction| compaction.blocks)
            }
            _ => u32::MAX,
        }
    }

    fn upkeep_next(&mut self, daemon: Daemon, facts: &Facts) -> DaemonAction {
        let (rules, machine) = (&self.rules, &facts.machine);
        if self.passes[daemon as usize].budget == 0 {
            return DaemonAction::Wait(Wait::Period);
        }
        let zeroing = &mut self.upkeep.zeroing;
        let action = match daemon {
            Daemon::Evacuate => match rules.deallocation.release {
                Release::Inactive { after, .. } => {
                    Some(UpkeepAction::Evacuate { after: self.scale.ticks_of(after) })
                }
                _ => None,
            },
            Daemon::Fill => {
                let fill = rules.preparation.background.filter(|_| machine.waiting > 0);
                fill.map(|fill| UpkeepAction::Fill { at: fill.at })
            }
            Daemon::Prezero => {
                let prezero = rules.preparation.prezero.filter(|prezero| {
                    *zeroing &= machine.zeroed_permille < prezero.stop_permille.into();
                    *zeroing
                });
                prezero.map(|prezero| UpkeepAction::Zero { order: prezero.order })
            }
            Daemon::Compact => Some(UpkeepAction::Compact { mode: Compaction::Sync }),
            Daemon::Recover => {
                let goes_on = self.upkeep.recovering && machine.waiting > 0;
                goes_on.then_some(UpkeepAction::Inspect)
            }
            Daemon::Reclaim | Daemon::Scan | Daemon::Sample | Daemon::Split => None,
        };
        match action {
            // Zeroing does not pause within a pass.
            Some(_) if machine.is_piece_done && daemon != Daemon::Prezero => {
                DaemonAction::Wait(Wait::More)
            }
            Some(action) => DaemonAction::Upkeep(action),
            None => DaemonAction::Wait(Wait::Period),
        }
    }

    /// Returns the daemon's next action after `action` is done.
    pub(crate) fn upkept(
        &mut self,
        daemon: Daemon,
        action: UpkeepAction,
        result: Result,
        facts: &Facts,
    ) -> DaemonAction {
        let pages = if let Result::Done { pages } = result { pages } else { 0 };
        let budget = &mut self.passes[daemon as usize].budget;
        match (daemon, action, result) {
            (Daemon::Evacuate, UpkeepAction::Evacuate { .. }, Result::NoMemory) => {
                return DaemonAction::Upkeep(UpkeepAction::BreakNext);
            }
            (Daemon::Evacuate | Daemon::Prezero | Daemon::Recover, _, Result::Nothing) => {
                return DaemonAction::Wait(Wait::Period);
            }
            // Breaking a reservation migrates no pages, so the budget stays.
            (Daemon::Evacuate, UpkeepAction::BreakNext, _) => {}
            (Daemon::Evacuate, ..) => *budget = budget.saturating_sub(pages),
            (Daemon::Prezero, ..) | (Daemon::Fill, _, Result::Done { .. }) => *budget -= 1,
            (Daemon::Recover, _, Result::Done { .. }) => {
                let bloat = self.rules.deallocation.bloat;
                let until = bloat.map_or(0, |bloat| bloat.until_percent);
                self.upkeep.recovering &= free_percent(facts) < until.into();
            }
            (Daemon::Compact, UpkeepAction::Compact { mode: Compaction::Sync }, _) if pages > 0 => {
                *budget -= 1;
            }
            (Daemon::Compact, UpkeepAction::Compact { mode: Compaction::SyncLight }, _) => {
                return self.compact_ahead(facts);
            }
            (Daemon::Compact, UpkeepAction::Compact { mode: Compaction::Proactive }, _) => {
                if facts.machine.fragmentation >= self.upkeep.fragmentation {
                    self.upkeep.rests = RESTS;
                }
                return DaemonAction::Wait(Wait::Period);
            }
            (Daemon::Compact, ..) => return DaemonAction::Wait(Wait::Period),
            (Daemon::Reclaim, UpkeepAction::ReleaseHeld, _) => return self.reclaim_ahead(facts),
            (Daemon::Reclaim, ..) => return DaemonAction::Wait(Wait::Period),
            _ => {}
        }
        self.upkeep_next(daemon, facts)
    }

    /// Compacts proactively, unless this check is skipped after a run without progress.
    fn compact_ahead(&mut self, facts: &Facts) -> DaemonAction {
        if self.upkeep.rests > 0 {
            self.upkeep.rests -= 1;
            return DaemonAction::Wait(Wait::Period);
        }
        if !facts.machine.is_fragmented {
            return DaemonAction::Wait(Wait::Period);
        }
        self.upkeep.fragmentation = facts.machine.fragmentation;
        DaemonAction::Upkeep(UpkeepAction::Compact { mode: Compaction::Proactive })
    }

    /// Reclaims up to the high watermark, like kswapd.
    fn reclaim_ahead(&self, facts: &Facts) -> DaemonAction {
        let free = facts.machine.free_with_reserved;
        match facts.machine.watermarks.1.saturating_sub(free) {
            0 => DaemonAction::Wait(Wait::Period),
            pages => {
                let lumpy = self.is_lumpy(pages);
                DaemonAction::Upkeep(UpkeepAction::Reclaim { pages, lumpy })
            }
        }
    }

    /// Decides what to do with a candidate that a daemon reached.
    pub(crate) fn candidate(&self, facts: &Facts) -> Action {
        match self.running {
            Some(Daemon::Fill) => self.fillable(facts),
            Some(Daemon::Recover) => {
                // Splitting a superpage of a reservation frees no memory, because the reservation
                // keeps the frames.
                let is_plain = facts.region.superpage.is_some_and(|superpage| {
                    !superpage.cow && !superpage.pooled && !superpage.zeros
                }) && facts.region.reservation.is_none();
                if is_plain { Action::Inspect } else { Action::Nothing }
            }
            Some(Daemon::Split) => self.watched(facts),
            _ => self.collapsible(false, facts),
        }
    }

    /// Decides what to do with a candidate whose page table was read.
    pub(crate) fn inspected(&self, requested: bool, facts: &Facts) -> Action {
        match (self.running, self.rules.deallocation.bloat) {
            (Some(Daemon::Recover), Some(bloat)) => {
                let is_bloated = facts.region.zeros > bloat.more_zero_than;
                if is_bloated { Action::Recover } else { Action::Nothing }
            }
            _ => self.collapse(requested, facts),
        }
    }

    /// Decides whether to complete a reservation (Quicksilver, vm_reserv.c: vm_reserv_scan_partpopq). After a fork, a
    /// child's pages may hold a reservation whose region has a superpage by now.
    fn fillable(&self, facts: &Facts) -> Action {
        let region = &facts.region;
        let fits = facts.mapping.backing.is_anonymous()
            && region.inside
            && region.superpage.is_none()
            && !facts.mapping.forked;
        if fits { Action::Populate } else { Action::Exclude }
    }
}

fn free_percent(facts: &Facts) -> u64 {
    facts.machine.free * 100 / facts.machine.pages.max(1)
}
