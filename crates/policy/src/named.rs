//! The facts that conditions may name: each with its unit, and the rules that know it.

use crate::expression::Kind;
use crate::rules::Estimate;
use crate::{Condition, Facts, Policy};

/// A rule that a condition belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `allocation.when`: a first fault, for each size that fits, from the largest on.
    Fault,
    /// `mapping.scan.when`: a candidate of the scan, for each size, from the largest on.
    Scan,
    /// `unmapping.when`: a superpage whose accesses were watched.
    Split,
}

impl Rule {
    /// The key whose value is its condition.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Fault => "allocation.when",
            Self::Scan => "mapping.scan.when",
            Self::Split => "unmapping.when",
        }
    }

    /// The rule whose condition is the value of this key.
    pub fn from_key(key: &str) -> Option<Self> {
        [Self::Fault, Self::Scan, Self::Split].into_iter().find(|rule| rule.key() == key)
    }
}

macro_rules! facts {
    ($($fact:ident $name:literal $kind:ident $unit:literal [$($rule:ident)+] $says:literal,)+) => {
        /// A fact that a condition may name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fact {
            $(#[doc = $says] $fact,)+
        }

        impl Fact {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$fact),+];

            /// How a condition names it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fact => $name),+ }
            }

            /// Whether it is a number or a truth.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$fact => Kind::$kind),+ }
            }

            /// Its unit.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$fact => $unit),+ }
            }

            /// What it is.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$fact => $says),+ }
            }

            /// The rules that know it.
            pub const fn rules(self) -> &'static [Rule] {
                match self { $(Self::$fact => &[$(Rule::$rule),+]),+ }
            }
        }
    };
}

facts! {
    Pages "pages" Number "base pages" [Fault Scan Split] "What the size at hand holds: 16 for 64K, 512 for 2M.",
    Populated "populated" Number "base pages" [Fault Scan Split] "Pages of it that are in memory.",
    Accessed "accessed" Truth "" [Scan] "A page of its superpage's worth was walked to since the scan last came by.",
    Coverage "coverage" Number "base pages" [Scan Split] "Pages of it that were accessed in the sampling window; in a scan a moving average.",
    Skew "skew" Number "per cent" [Scan Split] "Pages in memory that were not accessed in the window, of all that are.",
    Misses "misses" Number "walks" [Scan] "Walks of the page table to it in the sampling window: TLB misses. A moving average.",
    Profiled "profiled" Number "walks per unit of time" [Fault Scan Split] "TLB misses that a superpage of this size would spare, by the profile.",
    Benefit "benefit" Number "cycles per unit of time" [Fault Scan Split] "profiled times estimate.miss-cycles.",
    Cost "cost" Number "cycles" [Fault Scan] "estimate.prepare-cycles unless prezeroed, and estimate.shortage-cycles where no superpage is free.",
    Prezeroed "prezeroed" Truth "" [Fault Scan] "The next free superpage is zeroed.",
    FreeSuperpages "free_superpages" Number "superpages" [Fault Scan Split] "Free superpages of the machine.",
    FreePercent "free_percent" Number "per cent" [Fault Scan Split] "Free memory of all memory.",
    Advised "advised" Truth "" [Fault Scan Split] "The program advised superpages for it (MADV_HUGEPAGE).",
}

impl Policy {
    /// Whether a condition holds for a page of this size. Without one: it does.
    pub(crate) fn holds(&self, condition: Option<&Condition>, order: u8, facts: &Facts) -> bool {
        condition.is_none_or(|condition| condition.holds(|fact| self.value(fact, order, facts)))
    }

    fn value(&self, fact: Fact, order: u8, facts: &Facts) -> i64 {
        let Estimate { miss_cycles, prepare_cycles, shortage_cycles } =
            self.rules.estimate.unwrap_or_default();
        let (extent, machine) = (&facts.extent, &facts.machine);
        // What is known of a superpage, for a page of this size.
        let scaled = |number: u64| {
            let scaled = u128::from(number) << order >> self.scale.superpage;
            i64::try_from(scaled).unwrap_or(i64::MAX)
        };
        match fact {
            Fact::Pages => 1 << order,
            Fact::Populated => extent.populated.into(),
            Fact::Accessed => facts.region.accessed.into(),
            Fact::Coverage => extent.coverage.into(),
            Fact::Skew => skew(extent.coverage.into(), extent.populated.into()),
            Fact::Misses => extent.misses.into(),
            Fact::Profiled => scaled(extent.profiled),
            Fact::Benefit => scaled(extent.profiled.saturating_mul(miss_cycles)),
            Fact::Cost => {
                let shortage = if machine.free_superpages == 0 { shortage_cycles } else { 0 };
                let prepare = if machine.is_prezeroed { 0 } else { scaled(prepare_cycles) };
                i64::try_from(shortage).unwrap_or(i64::MAX).saturating_add(prepare)
            }
            Fact::Prezeroed => machine.is_prezeroed.into(),
            Fact::FreeSuperpages => machine.free_superpages.into(),
            Fact::FreePercent => (machine.free * 100 / machine.pages.max(1)) as i64,
            Fact::Advised => (facts.mapping.advised == Some(true)).into(),
        }
    }
}

/// The share of what is populated that was not accessed.
fn skew(coverage: i64, populated: i64) -> i64 {
    if populated == 0 { 0 } else { 100 - 100 * coverage.min(populated) / populated }
}
