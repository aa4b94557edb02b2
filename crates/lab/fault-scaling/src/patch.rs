//! `Patch`: one named change of how a kernel serves faults. `Patches`: several changes at once.

use std::fmt;
use std::str::FromStr;

use policy::rules::ResidentCount;
use units::ByteSize;

use super::{Entries, FaultsError, Kernel, Lock, Machine, MapLock};

/// One change of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Patch {
    /// Page-table entries by compare-and-exchange; resident pages counted with an atomic (Lameter).
    AtomicPte,
    /// A lock per page-table page.
    SplitPtl,
    /// A lock per mapping instead of the address space's.
    PerVma,
    /// Resident pages counted in one atomic that all threads share.
    RssAtomic,
    /// Resident pages counted per thread; readers sum the counters.
    RssSplit,
    /// Resident pages are not counted: readers scan the page tables.
    RssOnDemand,
    /// Sequential faults map up to 2^n pages, where n is the given number.
    Prefault(u32),
    /// The daemon zeroes free memory ahead of need, by the machine's rule.
    Prezero,
    /// A fault maps a superpage of this size; `None`: of the machine's size.
    Superpage(Option<ByteSize>),
    /// Ticket spin locks, in order of arrival.
    TicketLock,
    /// Queued spin locks (MCS).
    QueuedLock,
    /// Hierarchical spin locks, which prefer waiters on the holder's node.
    NumaLock,
}

/// The part of the kernel that a patch changes. Two patches of the same part exclude each other.
#[derive(PartialEq, Eq)]
enum Part {
    Entries,
    Map,
    Rss,
    Size,
    Zeroing,
    Locks,
}

/// The maximum prefault order that Lameter calls best for programs with much memory (docs/sources/policies.md 3.8).
const BEST_ORDER: u32 = 4;
/// Maximum prefault order: 512 pages, the entries of a page-table page.
const MAX_ORDER: u32 = 9;

/// Every patch with its default value, its name, and the form of its value.
const PATCHES: [(Patch, &str, &str); 12] = [
    (Patch::AtomicPte, "atomic-pte", ""),
    (Patch::SplitPtl, "split-ptl", ""),
    (Patch::PerVma, "per-vma", ""),
    (Patch::RssAtomic, "rss-atomic", ""),
    (Patch::RssSplit, "rss-split", ""),
    (Patch::RssOnDemand, "rss-on-demand", ""),
    (Patch::Prefault(BEST_ORDER), "prefault", "[=ORDER]"),
    (Patch::Prezero, "prezero", ""),
    (Patch::Superpage(None), "superpage", "[=SIZE]"),
    (Patch::TicketLock, "ticket-lock", ""),
    (Patch::QueuedLock, "queued-lock", ""),
    (Patch::NumaLock, "numa-lock", ""),
];

impl FromStr for Patch {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let (name, value) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
        let bad = |wanted| FaultsError::BadValue { patch: text.to_string(), wanted };
        let Some((patch, ..)) = PATCHES.iter().find(|(_, known, _)| *known == name) else {
            let known = PATCHES.map(|(_, name, value)| format!("{name}{value}")).join(", ");
            let known = format!("baseline, {known}");
            return Err(FaultsError::UnknownPatch { name: name.to_string(), known });
        };
        match (*patch, value) {
            (patch, None) => Ok(patch),
            (Self::Prefault(_), Some(order)) => {
                let order = order.parse().ok().filter(|order| (1..=MAX_ORDER).contains(order));
                order.map(Self::Prefault).ok_or(bad("expected an order of 1 to 9 (2 to 512 pages)"))
            }
            (Self::Superpage(_), Some(size)) => {
                let size = size.parse().map_err(|_| bad("expected a size, e.g. 64K or 2M"))?;
                Ok(Self::Superpage(Some(size)))
            }
            _ => Err(bad("this patch takes no value")),
        }
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = std::mem::discriminant(self);
        let known = PATCHES.iter().find(|(patch, ..)| std::mem::discriminant(patch) == kind);
        f.write_str(known.map_or("", |(_, name, _)| name))?;
        match self {
            Self::Prefault(order) if *order != BEST_ORDER => write!(f, "={order}"),
            Self::Superpage(Some(size)) => write!(f, "={}", size.to_string().replace(' ', "")),
            _ => Ok(()),
        }
    }
}

impl Patch {
    fn part(self) -> Part {
        match self {
            Self::AtomicPte | Self::SplitPtl => Part::Entries,
            Self::PerVma => Part::Map,
            Self::RssAtomic | Self::RssSplit | Self::RssOnDemand => Part::Rss,
            Self::Prefault(_) | Self::Superpage(_) => Part::Size,
            Self::Prezero => Part::Zeroing,
            Self::TicketLock | Self::QueuedLock | Self::NumaLock => Part::Locks,
        }
    }

    fn apply(self, kernel: &mut Kernel, machine: &Machine) {
        match self {
            Self::AtomicPte => kernel.entries = Entries::Atomic,
            Self::SplitPtl => kernel.entries = Entries::LockPerTable,
            Self::PerVma => kernel.map = MapLock::Mapping,
            Self::RssAtomic => kernel.rss = ResidentCount::Atomic,
            Self::RssSplit => kernel.rss = ResidentCount::Split,
            Self::RssOnDemand => kernel.rss = ResidentCount::OnDemand,
            Self::Prefault(order) => kernel.prefault = order,
            Self::Prezero => kernel.prezero = Some(machine.scrub),
            Self::Superpage(size) => kernel.superpage = Some(size.unwrap_or(machine.superpage)),
            Self::TicketLock => kernel.lock = Lock::Ticket,
            Self::QueuedLock => kernel.lock = Lock::Queued,
            Self::NumaLock => kernel.lock = Lock::Hierarchical,
        }
    }
}

/// Patches that are applied together. An empty list is the baseline.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Patches(pub Vec<Patch>);

impl FromStr for Patches {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        if text == "baseline" {
            return Ok(Self::default());
        }
        let patches = text.split(',').map(str::parse).collect::<Result<Vec<Patch>, _>>()?;
        for (index, one) in patches.iter().enumerate() {
            if let Some(other) = patches[index + 1..].iter().find(|it| it.part() == one.part()) {
                let (one, other) = (one.to_string(), other.to_string());
                return Err(FaultsError::Clash { one, other });
            }
        }
        Ok(Self(patches))
    }
}

impl fmt::Display for Patches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("baseline");
        }
        let names: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&names.join(","))
    }
}

impl Patches {
    /// Returns the baseline, each published patch alone, and all of them together.
    pub fn published() -> Vec<Self> {
        let all = [Patch::AtomicPte, Patch::Prefault(BEST_ORDER), Patch::Prezero];
        let alone = all.iter().map(|patch| Self(vec![*patch]));
        std::iter::once(Self::default()).chain(alone).chain([Self(all.to_vec())]).collect()
    }

    /// Returns the machine's kernel with these patches applied.
    pub fn kernel(&self, machine: &Machine) -> Kernel {
        let mut kernel = machine.kernel;
        for patch in &self.0 {
            patch.apply(&mut kernel, machine);
        }
        kernel.counted()
    }
}
