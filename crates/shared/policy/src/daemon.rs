//! Daemons, their periods, and the dispatch of their work.

use core::time::Duration;

use crate::action::Wait;
use crate::event::Result;
use crate::rules::Release;
use crate::{DaemonAction, Facts, Policy};

/// A daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Daemon {
    /// Migrates the pages of inactive reservations (Quicksilver).
    Evacuate,
    /// Completes reservations (Quicksilver).
    Fill,
    /// Zeroes free memory (scrubd, HawkEye).
    Prezero,
    /// Clears and counts accessed bits (HawkEye).
    Sample,
    /// Makes superpages out of base pages (khugepaged).
    Scan,
    /// Compacts (kcompactd).
    Compact,
    /// Recovers zero-filled pages from superpages (HawkEye, Linux' underused shrinker).
    Recover,
    /// Reclaims proactively (kswapd).
    Reclaim,
    /// Splits superpages with uneven accesses (HugeScope).
    Split,
}

/// Check interval of proactive compaction (Linux HPAGE_FRAG_CHECK_INTERVAL_MSEC).
const COMPACT_CHECK: Duration = Duration::from_millis(500);
/// Check interval of the watermarks: the kernel wakes kswapd at once; here the next tick does.
const RECLAIM_CHECK: Duration = Duration::from_millis(100);

impl Policy {
    /// The policy's daemons with their periods in ticks (at least 1).
    pub fn daemons(&self) -> impl Iterator<Item = (Daemon, u64)> {
        let rules = &self.rules;
        let evacuate = match rules.deallocation.release {
            Release::Inactive { every, .. } => Some(every),
            _ => None,
        };
        let scan = rules.mapping.scan.as_ref();
        let sampling = rules.mapping.sampling();
        let memory = &rules.memory;
        let checks = memory.background_compaction || memory.proactiveness > 0;
        let compact = match memory.periodic_compaction {
            Some(compaction) => Some(compaction.every),
            None => checks.then_some(COMPACT_CHECK),
        };
        let all = [
            (Daemon::Evacuate, evacuate),
            (Daemon::Fill, rules.preparation.background.map(|fill| fill.every)),
            (Daemon::Prezero, rules.preparation.prezero.map(|prezero| prezero.every)),
            (Daemon::Sample, sampling.map(|sampling| sampling.every)),
            (Daemon::Scan, scan.map(|scan| scan.every)),
            (Daemon::Compact, compact),
            (Daemon::Recover, rules.deallocation.bloat.map(|bloat| bloat.every)),
            (Daemon::Reclaim, Some(RECLAIM_CHECK)),
            (Daemon::Split, rules.unmapping.scan.map(|scan| scan.every)),
        ];
        let scale = self.scale;
        all.into_iter()
            .filter_map(move |(daemon, every)| Some((daemon, scale.ticks_of(every?).max(1))))
    }

    /// Returns the first action when a daemon begins a pass, or the next when it continues one.
    /// Uses only [`Facts::machine`].
    pub fn tick(&mut self, daemon: Daemon, facts: &Facts) -> DaemonAction {
        self.running = Some(daemon);
        let action = match daemon {
            Daemon::Scan => self.scan_begins(facts),
            Daemon::Sample => self.sample(),
            Daemon::Split => self.split_begins(facts),
            _ => self.upkeep_begins(daemon, facts),
        };
        self.ends(daemon, action)
    }

    /// Returns the running daemon's next action after `action` is done. `cost` is the number of mappings that the
    /// action skipped.
    pub fn worked(
        &mut self,
        action: DaemonAction,
        result: Result,
        cost: u32,
        facts: &Facts,
    ) -> DaemonAction {
        let Some(daemon) = self.running else { return DaemonAction::Wait(Wait::Period) };
        let action = match (daemon, action) {
            (Daemon::Sample, _) => self.sampled(facts),
            (_, DaemonAction::Scan(action)) => self.scanned(action, result, cost, facts),
            (_, DaemonAction::Watch(action)) => self.split_goes_on(action, result, facts),
            (daemon, DaemonAction::Upkeep(action)) => self.upkept(daemon, action, result, facts),
            (_, DaemonAction::Wait(_)) => action,
        };
        self.ends(daemon, action)
    }

    fn ends(&mut self, daemon: Daemon, action: DaemonAction) -> DaemonAction {
        if let DaemonAction::Wait(wait) = action {
            self.running = None;
            let pass = &mut self.passes[daemon as usize];
            match wait {
                Wait::Period | Wait::After(_) => *pass = Pass::default(),
                Wait::More | Wait::Pause(_) => pass.has_begun = true,
            }
        }
        action
    }
}

/// State of a daemon's pass.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pass {
    /// Whether the pass has begun.
    pub has_begun: bool,
    /// Remaining budget of the pass.
    pub budget: u32,
    /// Whether the pass reached the end of memory.
    pub wrapped: bool,
    /// Whether an attempt to get a superpage failed.
    pub failed: bool,
}
