//! Causes in groups, as tables show them. Every cause is in exactly one.

use serde::Serialize;

use mm_sim::{Cause, CycleCounts};

/// A group of causes. Every cause is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Account {
    /// The program's own work.
    Work,
    /// Address translation: the second TLB and page walks.
    Translation,
    /// Faults, with the preparation and mapping of what they ask for.
    Faults,
    /// What it takes to have free superpages: moving, reclaiming, scanning, and waiting for it.
    Upkeep,
}

impl Account {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Work, Self::Translation, Self::Faults, Self::Upkeep];

    /// The account that a cause belongs to.
    pub const fn from_cause(cause: Cause) -> Self {
        match cause {
            Cause::Work => Self::Work,
            Cause::SecondTlb | Cause::WalkBase | Cause::WalkLarge => Self::Translation,
            Cause::Fault | Cause::Zero | Cause::Map | Cause::Read => Self::Faults,
            Cause::Copy
            | Cause::Compact
            | Cause::Reclaim
            | Cause::Shootdown
            | Cause::Lock
            | Cause::Scan => Self::Upkeep,
        }
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Translation => "translation",
            Self::Faults => "faults",
            Self::Upkeep => "upkeep",
        }
    }

    /// Its cycles in these counts.
    pub fn cycles(self, ledger: &CycleCounts) -> u64 {
        Cause::ALL
            .iter()
            .filter(|one| Self::from_cause(**one) == self)
            .map(|one| ledger[*one])
            .sum()
    }

    /// Its share of these counts; `None` where they are 0.
    pub fn share(self, ledger: &CycleCounts) -> Option<f64> {
        let total = ledger.total();
        (total > 0).then(|| self.cycles(ledger) as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_together_are_the_ledger() {
        let mut ledger = CycleCounts::default();
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            ledger.charge(cause, 1 << index);
        }
        let sum: u64 = Account::ALL.iter().map(|account| account.cycles(&ledger)).sum();
        assert_eq!(sum, ledger.total());
        assert_eq!(Account::Work.share(&CycleCounts::default()), None);
    }
}
