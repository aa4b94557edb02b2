//! Event 5: an allocated physical superpage is freed, whole or in part.

use core::time::Duration;

use crate::rules::table::{
    Key, Keys, Limit, ONE_OR_MORE, PER_CENT, PERIOD, Slot, WAIT, choice, rules,
};

rules! {
    /// The rules of physical deallocation.
    pub struct Deallocation {
        /// When memory goes back. By default as Linux, since its THP have a deferred split queue (4.5).
        release: Release = Release::UnderPressure, "when";
        /// Zero-filled base pages of superpages are given back under pressure.
        bloat: Option<BloatRecovery> = None, "bloat";
    }

    /// A daemon that splits superpages with zero-filled base pages.
    /// By default as HawkEye: every 120 s, from less than 15 % free until 30 % are.
    #[derive(Copy, Eq)]
    pub struct BloatRecovery {
        /// Its period.
        every: Duration = Duration::from_secs(120), "every", PERIOD;
        /// It starts below this per cent of free memory.
        below_percent: u8 = 15, "below-percent", PER_CENT;
        /// It stops at this per cent.
        until_percent: u8 = 30, "until-percent";
        /// Superpages with more zero-filled base pages than this are split.
        more_zero_than: u16 = 0, "more-zero-than";
    }
}

/// When the frames of a superpage of which a part was freed go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Each with its own unmapping.
    AtOnce,
    /// A part only under memory pressure (Linux' deferred split queue); whole at once.
    UnderPressure,
    /// When all of them are free, or the reservation is broken (FreeBSD).
    WhenEmpty,
    /// As `WhenEmpty`, and a reservation that did not change for `after` has its pages moved elsewhere,
    /// by a daemon that runs `every` so often and moves up to `budget_pages` (Quicksilver).
    Inactive {
        /// The age from which a reservation is inactive.
        after: Duration,
        /// The daemon's period.
        every: Duration,
        /// Pages moved per pass, at most.
        budget_pages: u32,
    },
    /// To the pool they came from, never split (hugetlb).
    ToPool,
}

/// The parameters of `when = "inactive"`: Quicksilver's scripts.
const INACTIVE: Release = Release::Inactive {
    after: Duration::from_secs(5),
    every: Duration::from_secs(1),
    budget_pages: 262_144,
};

choice! {
    Release {
        Self::AtOnce => "at-once" = Self::AtOnce,
        Self::UnderPressure => "under-pressure" = Self::UnderPressure,
        Self::WhenEmpty => "when-empty" = Self::WhenEmpty,
        Self::Inactive { .. } => "inactive" = INACTIVE,
        Self::ToPool => "to-pool" = Self::ToPool,
    }
}

impl Key for Release {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        keys.key(name, none, Slot::Word(self));
        match self {
            Self::Inactive { after, every, budget_pages } => {
                after.visit("after", WAIT, keys);
                every.visit("every", PERIOD, keys);
                budget_pages.visit("budget-pages", ONE_OR_MORE, keys);
            }
            _ => keys.only_with(&["after", "every", "budget-pages"], "when = \"inactive\""),
        }
    }
}
