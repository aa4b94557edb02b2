//! `Patch`: one change of how a kernel serves faults, by name; `Patches`, several of them at once.

use std::fmt;
use std::str::FromStr;

use policy::rules::ResidentCount;
use units::ByteSize;

use super::{Entries, FaultsError, Kernel, Lock, Machine, MapLock};

/// One change of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Patch {
    /// Entries by compare-and-exchange; resident pages by an atomic (Lameter).
    AtomicPte,
    /// A lock per page-table page.
    SplitPtl,
    /// A lock per mapping instead of the address space's.
    PerVma,
    /// Resident pages by an atomic that all threads share.
    RssAtomic,
    /// Resident pages per thread.
    RssSplit,
    /// Sequential faults map up to 2^this pages.
    Prefault(u32),
    /// Memory is zeroed before it is needed, by the machine's rule.
    Prezero,
    /// A fault maps a superpage: of this size, or the machine's.
    Superpage(Option<ByteSize>),
    /// Spin locks that keep the order of arrival.
    TicketLock,
    /// Spin locks with a queue.
    QueuedLock,
    /// Spin locks that stay on a node.
    NumaLock,
}

/// What a patch changes; two that change the same cannot be applied together.
#[derive(PartialEq, Eq)]
enum Part {
    Entries,
    Map,
    Rss,
    Size,
    Zeroing,
    Locks,
}

/// The limit of prefault that Lameter calls the best for programs with much memory (docs/sources/policies.md 3.8).
const BEST_ORDER: u32 = 4;
/// More pages than a page-table page has entries are never mapped at once.
const LARGEST_ORDER: u32 = 9;

const NAMES: [&str; 11] = [
    "atomic-pte",
    "split-ptl",
    "per-vma",
    "rss-atomic",
    "rss-split",
    "prefault[=ORDER]",
    "prezero",
    "superpage[=SIZE]",
    "ticket-lock",
    "queued-lock",
    "numa-lock",
];

impl FromStr for Patch {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let bad = |wanted| FaultsError::BadValue { patch: text.to_string(), wanted };
        let patch = match name {
            "atomic-pte" => Self::AtomicPte,
            "split-ptl" => Self::SplitPtl,
            "per-vma" => Self::PerVma,
            "rss-atomic" => Self::RssAtomic,
            "rss-split" => Self::RssSplit,
            "prezero" => Self::Prezero,
            "ticket-lock" => Self::TicketLock,
            "queued-lock" => Self::QueuedLock,
            "numa-lock" => Self::NumaLock,
            "prefault" => {
                let order = value.map_or(Ok(BEST_ORDER), str::parse);
                let order = order.ok().filter(|order| (1..=LARGEST_ORDER).contains(order));
                return Ok(Self::Prefault(
                    order.ok_or(bad("an order is 1 to 9 (2 to 512 pages)"))?,
                ));
            }
            "superpage" => {
                let size = value.map(str::parse::<ByteSize>).transpose();
                return Ok(Self::Superpage(
                    size.map_err(|_| bad("a size is 64K, 2M or the like"))?,
                ));
            }
            _ => {
                let known = format!("baseline, {}", NAMES.join(", "));
                return Err(FaultsError::UnknownPatch { name: name.to_string(), known });
            }
        };
        if value.is_some() {
            return Err(bad("this patch takes no value"));
        }
        Ok(patch)
    }
}

impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtomicPte => f.write_str("atomic-pte"),
            Self::SplitPtl => f.write_str("split-ptl"),
            Self::PerVma => f.write_str("per-vma"),
            Self::RssAtomic => f.write_str("rss-atomic"),
            Self::RssSplit => f.write_str("rss-split"),
            Self::Prefault(BEST_ORDER) => f.write_str("prefault"),
            Self::Prefault(order) => write!(f, "prefault={order}"),
            Self::Prezero => f.write_str("prezero"),
            Self::Superpage(None) => f.write_str("superpage"),
            Self::Superpage(Some(size)) => {
                write!(f, "superpage={}", size.to_string().replace(' ', ""))
            }
            Self::TicketLock => f.write_str("ticket-lock"),
            Self::QueuedLock => f.write_str("queued-lock"),
            Self::NumaLock => f.write_str("numa-lock"),
        }
    }
}

impl Patch {
    fn part(self) -> Part {
        match self {
            Self::AtomicPte | Self::SplitPtl => Part::Entries,
            Self::PerVma => Part::Map,
            Self::RssAtomic | Self::RssSplit => Part::Rss,
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
            Self::Prefault(order) => kernel.prefault = order,
            Self::Prezero => kernel.prezero = Some(machine.scrub),
            Self::Superpage(size) => kernel.superpage = Some(size.unwrap_or(machine.superpage)),
            Self::TicketLock => kernel.lock = Lock::Ticket,
            Self::QueuedLock => kernel.lock = Lock::Queued,
            Self::NumaLock => kernel.lock = Lock::Hierarchical,
        }
    }
}

/// Patches that are applied together; none of them is the baseline.
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
    /// Those that were published, each alone, and all together.
    pub fn published() -> Vec<Self> {
        let all = [Patch::AtomicPte, Patch::Prefault(BEST_ORDER), Patch::Prezero];
        let alone = all.iter().map(|patch| Self(vec![*patch]));
        std::iter::once(Self::default()).chain(alone).chain([Self(all.to_vec())]).collect()
    }

    /// The machine's kernel with these patches.
    pub fn kernel(&self, machine: &Machine) -> Kernel {
        let mut kernel = machine.kernel;
        for patch in &self.0 {
            patch.apply(&mut kernel, machine);
        }
        kernel.counted()
    }
}
