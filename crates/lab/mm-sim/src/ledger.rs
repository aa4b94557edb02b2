//! CPU cycles of a run by cause.

use std::ops::{AddAssign, Index};

use serde::de::Error;
use serde::{Deserialize, Serialize};

/// Defines the causes, each with a name and a description of the activity.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident $name:literal $activity:literal,)*) => {
        /// Cause of spent cycles.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Cause {
            $($(#[$doc])* #[serde(rename = $name)] $cause,)*
        }

        impl Cause {
            /// All causes, in display order.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$cause),*];

            /// Returns the name in tables and documents.
            pub const fn name(self) -> &'static str {
                [$($name),*][self as usize]
            }

            /// Returns the activity in words, e.g. `page walks for base pages`.
            pub const fn activity(self) -> &'static str {
                [$($activity),*][self as usize]
            }
        }
    };
}

causes! {
    /// The program's own work, including its data cache misses.
    Work "work" "the program's own work",
    /// Waiting for the second-level TLB.
    SecondTlb "second-tlb" "hits in the second TLB",
    /// Waiting for page walks of base pages.
    WalkBase "walk-base" "page walks for base pages",
    /// Waiting for page walks of superpages, of any size.
    WalkLarge "walk-large" "page walks for superpages",
    /// Trap and fault path of the kernel, without the causes below.
    Fault "fault" "fault handling",
    /// Zeroing.
    Zero "zero" "zeroing",
    /// Copying: collapsing base pages into a superpage, copy on write.
    Copy "copy" "copying",
    /// Compaction: scanning and migrating.
    Compact "compact" "compaction",
    /// Reclaim: scanning, writing, reading back.
    Reclaim "reclaim" "reclaim",
    /// Shootdowns of TLB entries.
    Shootdown "shootdown" "TLB shootdowns",
    /// Waiting for locks.
    Lock "lock" "waiting for locks",
    /// Creating, splitting and removing mappings.
    Map "map" "making and removing mappings",
    /// A daemon looking for work: page-table scans, sampling, queues.
    Scan "scan" "scanning",
    /// Reading file pages.
    Read "read" "reading files",
}

/// Cycles by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CycleCounts([u64; Cause::ALL.len()]);

impl CycleCounts {
    /// Charges `cycles` to `cause`.
    #[inline]
    pub fn charge(&mut self, cause: Cause, cycles: u64) {
        self.0[cause as usize] += cycles;
    }
    /// Refunds `cycles` to `cause`.
    pub(crate) fn withdraw(&mut self, cause: Cause, cycles: u64) {
        self.0[cause as usize] -= cycles;
    }
    /// Returns the sum of all cycles.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// Returns the cycles added since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] - earlier.0[at]))
    }
}

impl Index<Cause> for CycleCounts {
    type Output = u64;
    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl AddAssign<&CycleCounts> for CycleCounts {
    fn add_assign(&mut self, other: &Self) {
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own += more;
        }
    }
}

impl Serialize for CycleCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Cause::ALL.iter().map(|&cause| (cause.name(), self[cause])))
    }
}

impl<'de> Deserialize<'de> for CycleCounts {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = std::collections::BTreeMap::<Cause, u64>::deserialize(deserializer)?;
        let missing = Cause::ALL.iter().find(|cause| !map.contains_key(cause));
        if let Some(cause) = missing {
            return Err(D::Error::custom(format!("missing field `{}`", cause.name())));
        }
        if map.values().try_fold(0u64, |sum, cycles| sum.checked_add(*cycles)).is_none() {
            return Err(D::Error::custom("the cycles of all causes are more than 2^64"));
        }
        Ok(Self(Cause::ALL.map(|cause| map[&cause])))
    }
}
