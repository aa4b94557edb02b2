//! Actions in words.

use core::fmt;

use units::ByteSize;

use crate::action::{Candidates, Compaction, How, Wait};
use crate::expression::Kind;
use crate::live::Source;
use crate::rules::{Effort, Estimate};
use crate::{Action, Condition, Facts, Policy, Scale};

/// An action, as text.
#[derive(Debug, Clone, Copy)]
pub struct ActionDisplay<'a> {
    action: &'a Action,
    scale: &'a Scale,
}

impl Scale {
    /// A time in ticks, as text.
    pub fn display(&self, ticks: u64) -> impl fmt::Display + use<> {
        Time { nanos: u128::from(ticks) * 1000 / u128::from(self.ticks.max(1)) }
    }
}

impl Action {
    /// The action in words, with sizes and times in units of this scale.
    pub fn display<'a>(&'a self, scale: &'a Scale) -> ActionDisplay<'a> {
        ActionDisplay { action: self, scale }
    }
}

impl fmt::Display for ActionDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.action {
            Action::MapBase { pages: 2.. }
            | Action::MapReserved { .. }
            | Action::MapResident { .. }
            | Action::Reserve { .. }
            | Action::MakeSuperpage { .. }
            | Action::Populate { .. } => self.mapping(f),
            Action::MapZeros { order } if order > self.scale.superpage => {
                write!(f, "map the shared zeros of {}", self.size(order))
            }
            Action::Compact { mode, .. } => f.write_str(compaction(mode)),
            Action::Reclaim { pages, lumpy, .. } => {
                let lumpy = if lumpy { " of one aligned block" } else { "" };
                write!(f, "reclaim {pages} pages{lumpy}")
            }
            Action::Visit(candidates) => self.visit(f, candidates),
            Action::Rank { most, one_process } => {
                let of = if one_process { "the process that walks most" } else { "all processes" };
                write!(f, "rank regions of {of} by recent access or misses")?;
                if most > 0 { write!(f, ", {most} at most") } else { Ok(()) }
            }
            Action::CountAccessed { newest_percent } => {
                write!(f, "count accessed bits: {newest_percent} % of the moving average")
            }
            Action::Evacuate { after } => {
                write!(
                    f,
                    "empty the oldest reservation that did not change for {}",
                    self.scale.display(after)
                )
            }
            Action::Consider { order } => {
                write!(f, "look at its parts of {} instead", self.size(order))
            }
            Action::Watch { most } => {
                write!(
                    f,
                    "map the next {most} superpages by base pages, in place, and clear accessed bits"
                )
            }
            Action::Zero { order } => write!(f, "zero a free block of {}", self.size(order)),
            Action::Advise { bytes, promised, .. } => {
                write!(
                    f,
                    "advise superpages for the first {}{}",
                    ByteSize(bytes),
                    promise(promised)
                )
            }
            Action::AdviseSmaller { from, promised, .. } => {
                write!(
                    f,
                    "advise all of it, with smaller superpages from {} on{}",
                    ByteSize(from),
                    promise(promised)
                )
            }
            Action::Unadvise { from, promised, .. } => {
                write!(f, "advise none from {} on{}", ByteSize(from), promise(promised))
            }
            Action::Inherit { promised } => {
                write!(f, "leave what was added its advice{}", promise(promised))
            }
            Action::Probe { count, limit } => {
                write!(f, "try whether {count} superpages are to be had, in {limit} us each")
            }
            Action::Obtain { count } => write!(f, "have {count} superpages made free"),
            Action::Wait(Wait::Bytes(bytes)) => {
                write!(f, "advise nothing for the next {}", ByteSize(bytes))
            }
            Action::Wait(Wait::After(ticks) | Wait::Pause(ticks)) => {
                write!(f, "rest for {}", self.scale.display(ticks))
            }
            action => f.write_str(plain(action)),
        }
    }
}

impl ActionDisplay<'_> {
    fn size(&self, order: u8) -> ByteSize {
        ByteSize(self.scale.base_page << order)
    }

    /// Actions that map or reserve memory.
    fn mapping(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.action {
            Action::MapBase { pages } => write!(f, "map {pages} base pages"),
            Action::MapReserved { around: 0 } => f.write_str("map its page of the reservation"),
            Action::MapReserved { around } => {
                write!(f, "map its page of the reservation, and {around} in memory on each side")
            }
            Action::MapResident { around: 0 } => f.write_str("map it"),
            Action::MapResident { around } => {
                write!(f, "map it, and {around} in memory on each side")
            }
            Action::Reserve { order, effort, preempt } => {
                let or =
                    if preempt { ", or one that is taken from another reservation" } else { "" };
                write!(f, "reserve {}, {}{or}", self.size(order), effort_for(effort))
            }
            Action::MakeSuperpage { order, how: How::Fresh, effort } => {
                write!(f, "map a superpage of {}, {}", self.size(order), effort_for(effort))
            }
            Action::MakeSuperpage { how: How::InPlace { writable }, .. } => {
                let read_only = if writable { "" } else { ", read-only" };
                write!(f, "map the pages as one superpage, in place{read_only}")
            }
            Action::MakeSuperpage { order, how: How::Copy { exclusive }, effort } => {
                let waits = if exclusive { "; faults wait meanwhile" } else { "" };
                let effort = effort_for(effort);
                write!(
                    f,
                    "copy the pages into a superpage of {}, {effort}{waits}",
                    self.size(order)
                )
            }
            Action::MakeSuperpage { order, how: How::Collapse, .. } => {
                write!(f, "have the kernel make superpages of {} there", self.size(order))
            }
            Action::Populate { most: u32::MAX } => {
                f.write_str("prepare the rest of the reservation")
            }
            Action::Populate { most } => write!(f, "prepare up to {most} pages of the reservation"),
            action => f.write_str(plain(action)),
        }
    }

    fn visit(&self, f: &mut fmt::Formatter<'_>, candidates: Candidates) -> fmt::Result {
        match candidates {
            Candidates::Next => f.write_str("go to the next region by address"),
            Candidates::Listed => {
                f.write_str("go to the first region of the list, else the next by address")
            }
            Candidates::Best => f.write_str("go to the best region of the ranking"),
            Candidates::Watched => f.write_str("go to the next superpage that is watched"),
            Candidates::Superpage => f.write_str("go to the next superpage by address"),
            Candidates::Partial { at } => {
                write!(f, "go to the reservation that changed last and has {at} pages or more")
            }
        }
    }
}

fn effort_for(effort: Effort) -> &'static str {
    match effort {
        Effort::None => "if one is free",
        Effort::Wake => "if one is free, else compaction is woken",
        Effort::Direct => "if need be compacting and reclaiming at once",
        Effort::DirectRetry => "if need be compacting and reclaiming at once, then synchronously",
        Effort::Direct43 => "if need be compacting and reclaiming at once, as Linux 4.3",
    }
}

fn compaction(mode: Compaction) -> &'static str {
    match mode {
        Compaction::Async => "compact asynchronously",
        Compaction::SyncLight => "compact synchronously, lightly",
        Compaction::Sync => "compact synchronously",
        Compaction::Proactive => "compact all of memory ahead of need",
    }
}

fn promise(promised: bool) -> &'static str {
    if promised { ", and count them as taken" } else { "" }
}

fn reading(source: Source) -> &'static str {
    match source {
        Source::Losses => "look at what went wrong on the machine",
        Source::Free => "look at free memory by size of blocks",
        Source::Spare => "look at what is promised and what could be free",
        Source::Resident => "look at what the process has",
        Source::Headroom => "look at what its cgroups leave it",
        Source::Whole => "look whether it lies on superpages",
    }
}

/// Actions whose text does not depend on their data.
fn plain(action: Action) -> &'static str {
    match action {
        Action::Nothing => "nothing",
        Action::MapZeros { order: 0 } => "map the shared page of zeros",
        Action::MapZeros { .. } => "map the shared superpage of zeros",
        Action::MapBase { .. } => "map a base page",
        Action::MapInObject => "map the page that another mapping of the object has",
        Action::MapPooled => "map the pool's superpage",
        Action::MapFile => "map the file's superpage, read-only",
        Action::MakeWritable => "let it be written",
        Action::Reuse => "let it be written: it is the writer's alone",
        Action::CopyPage => "copy the page",
        Action::DemoteAndCopy => "split the superpage and copy the page",
        Action::Exclude => "never fill this reservation",
        Action::WriteProtect => "write-protect the clean pages",
        Action::List => "put the region on the list of candidates",
        Action::Demote => "split the superpage, in place",
        Action::Keep => "leave it as it is",
        Action::Release => "give the memory back",
        Action::Join => "advise all of it",
        Action::HandOut => "clear what is kept and hand it out",
        Action::Read(source) => reading(source),
        Action::Hold => "hold the frames until memory is short, or all of the superpage is unused",
        Action::Inspect => "look into its page table",
        Action::Refuse => "refuse the mapping",
        Action::GiveUp => "do without",
        Action::Wake => "wake compaction and do without",
        Action::BreakReservation { .. } => "break the reservation that changed least lately",
        Action::BreakNext => "break the next reservation",
        Action::ReleaseHeld { .. } => "give back frames that are held for nothing",
        Action::Rewind => "begin again at the beginning of memory",
        Action::ClearAccessed => "clear accessed bits",
        Action::Recover => "split it and give back its pages of zeros",
        Action::Wait(Wait::Period) => "rest until the next period",
        Action::Wait(Wait::More) => "go on at once",
        Action::MapReserved { .. }
        | Action::MapResident { .. }
        | Action::Reserve { .. }
        | Action::MakeSuperpage { .. }
        | Action::Populate { .. }
        | Action::Compact { .. }
        | Action::Reclaim { .. }
        | Action::Consider { .. }
        | Action::Watch { .. }
        | Action::Visit(_)
        | Action::Rank { .. }
        | Action::CountAccessed { .. }
        | Action::Evacuate { .. }
        | Action::Zero { .. }
        | Action::Advise { .. }
        | Action::AdviseSmaller { .. }
        | Action::Unadvise { .. }
        | Action::Inherit { .. }
        | Action::Probe { .. }
        | Action::Obtain { .. }
        | Action::Wait(_) => "",
    }
}

/// A time in the coarsest unit that divides it.
struct Time {
    nanos: u128,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "us"), (1, "ns")];
        let fits = |(unit, _): &&(u128, &str)| self.nanos.is_multiple_of(*unit);
        let (unit, name) = units.iter().find(fits).unwrap_or(&(1, "ns"));
        write!(f, "{} {name}", self.nanos / unit)
    }
}

// The facts that conditions may name: each with its unit, and the rules that provide it.

/// A rule that has a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `allocation.when`: a first fault, for each size that fits, largest first.
    Fault,
    /// `mapping.scan.when`: a candidate of the scan, for each size, largest first.
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
            /// All facts.
            pub const ALL: &'static [Self] = &[$(Self::$fact),+];

            /// Its name in conditions.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fact => $name),+ }
            }

            /// Its type.
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

            /// The rules that provide it.
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
    /// Whether a condition holds for a page of this size. No condition always holds.
    pub(crate) fn holds(&self, condition: Option<&Condition>, order: u8, facts: &Facts) -> bool {
        condition.is_none_or(|condition| condition.holds(|fact| self.value(fact, order, facts)))
    }

    fn value(&self, fact: Fact, order: u8, facts: &Facts) -> i64 {
        let Estimate { miss_cycles, prepare_cycles, shortage_cycles } =
            self.rules.estimate.unwrap_or_default();
        let (extent, machine) = (&facts.extent, &facts.machine);
        // Scales a superpage's number to a page of this size.
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

/// The share of populated pages that were not accessed.
fn skew(coverage: i64, populated: i64) -> i64 {
    if populated == 0 { 0 } else { 100 - 100 * coverage.min(populated) / populated }
}
