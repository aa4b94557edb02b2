//! Formats actions as text.

use core::fmt;

use units::ByteSize;

use crate::action::{
    Candidates, Compaction, DaemonAction, FaultAction, How, ScanAction, UpkeepAction, Wait,
    WatchAction,
};
use crate::expression::Kind;
use crate::rules::{Effort, Estimate};
use crate::{Action, Condition, Facts, Policy, Scale};

/// Formats an action as text.
#[derive(Debug, Clone, Copy)]
pub struct ActionDisplay<'a> {
    action: &'a Action,
    scale: &'a Scale,
}

impl Scale {
    /// Formats a time in ticks as text.
    pub fn display(&self, ticks: u64) -> impl fmt::Display + use<> {
        Time { nanos: u128::from(ticks) * 1000 / u128::from(self.ticks.max(1)) }
    }
}

impl Action {
    /// Formats the action; `scale` gives its page sizes and ticks.
    pub fn display<'a>(&'a self, scale: &'a Scale) -> ActionDisplay<'a> {
        ActionDisplay { action: self, scale }
    }
}

impl fmt::Display for ActionDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self.action {
            Action::Fault(action) => return self.fault(f, action),
            Action::Daemon(action) => return self.daemon(f, action),
            Action::MakeSuperpage { how: How::InPlace { writable }, .. } => in_place(writable),
            Action::MakeSuperpage { order, how: How::Copy { exclusive }, effort } => {
                let waits = if exclusive { "; faults wait meanwhile" } else { "" };
                let (size, effort) = (self.size(order), effort_for(effort));
                return write!(f, "copy the pages into a superpage of {size}, {effort}{waits}");
            }
            Action::Populate => "prepare the rest of the reservation",
            Action::Compact { mode, .. } => compaction(mode),
            Action::Reclaim { pages, lumpy, .. } => return reclaim(f, pages, lumpy),
            Action::Consider { order } => {
                return write!(f, "look at its parts of {} instead", self.size(order));
            }
            Action::Nothing => "nothing",
            Action::Exclude => "never fill this reservation",
            Action::WriteProtect => "write-protect the clean pages",
            Action::List => "put the region on the list of candidates",
            Action::Demote => SPLIT,
            Action::Keep => "leave it as it is",
            Action::Release => "give the memory back",
            Action::Hold => {
                "hold the frames until memory is short, or all of the superpage is unused"
            }
            Action::Inspect => "look into its page table",
            Action::Refuse => "refuse the mapping",
            Action::GiveUp => "do without",
            Action::Wake => "wake compaction and do without",
            Action::BreakReservation { .. } => "break the reservation that changed least lately",
            Action::ReleaseHeld { .. } => RELEASE_HELD,
            Action::Recover => "split it and give back its pages of zeros",
        })
    }
}

impl ActionDisplay<'_> {
    fn size(&self, order: u8) -> ByteSize {
        ByteSize(self.scale.base_page << order)
    }

    fn fault(&self, f: &mut fmt::Formatter<'_>, action: FaultAction) -> fmt::Result {
        f.write_str(match action {
            FaultAction::Nothing => "nothing",
            FaultAction::MapZeros { order: 0 } => "map the shared page of zeros",
            FaultAction::MapZeros { order } if order > self.scale.superpage => {
                return write!(f, "map the shared zeros of {}", self.size(order));
            }
            FaultAction::MapZeros { .. } => "map the shared superpage of zeros",
            FaultAction::MapBase { pages: 0 | 1 } => "map a base page",
            FaultAction::MapBase { pages } => return write!(f, "map {pages} base pages"),
            FaultAction::MapReserved { around: 0 } => "map its page of the reservation",
            FaultAction::MapReserved { around } => {
                return write!(
                    f,
                    "map its page of the reservation, and {around} in memory on each side"
                );
            }
            FaultAction::MapResident { around: 0 } => "map it",
            FaultAction::MapResident { around } => {
                return write!(f, "map it, and {around} in memory on each side");
            }
            FaultAction::Reserve { order, effort, preempt } => {
                let or =
                    if preempt { ", or one that is taken from another reservation" } else { "" };
                return write!(f, "reserve {}, {}{or}", self.size(order), effort_for(effort));
            }
            FaultAction::MakeSuperpage { order, effort } => {
                let (size, effort) = (self.size(order), effort_for(effort));
                return write!(f, "map a superpage of {size}, {effort}");
            }
            FaultAction::MapInPlace { writable } => in_place(writable),
            FaultAction::MapInObject => "map the page that another mapping of the object has",
            FaultAction::MapPooled => "map the pool's superpage",
            FaultAction::MapFile => "map the file's superpage, read-only",
            FaultAction::MakeWritable => "let it be written",
            FaultAction::Reuse => "let it be written: it is the writer's alone",
            FaultAction::CopyPage => "copy the page",
            FaultAction::DemoteAndCopy => "split the superpage and copy the page",
            FaultAction::Demote => SPLIT,
        })
    }

    fn daemon(&self, f: &mut fmt::Formatter<'_>, action: DaemonAction) -> fmt::Result {
        f.write_str(match action {
            DaemonAction::Scan(action) => return scan(f, action),
            DaemonAction::Upkeep(action) => return self.upkeep(f, action),
            DaemonAction::Watch(WatchAction::Begin { most }) => {
                return write!(
                    f,
                    "map the next {most} superpages by base pages, in place, and clear accessed bits"
                );
            }
            DaemonAction::Watch(WatchAction::Visit) => "go to the next superpage that is watched",
            DaemonAction::Wait(Wait::After(ticks) | Wait::Pause(ticks)) => {
                return write!(f, "rest for {}", self.scale.display(ticks));
            }
            DaemonAction::Wait(Wait::Period) => "rest until the next period",
            DaemonAction::Wait(Wait::More) => "go on at once",
        })
    }

    fn upkeep(&self, f: &mut fmt::Formatter<'_>, action: UpkeepAction) -> fmt::Result {
        f.write_str(match action {
            UpkeepAction::Evacuate { after } => {
                let after = self.scale.display(after);
                return write!(f, "empty the oldest reservation that did not change for {after}");
            }
            UpkeepAction::BreakNext => "break the next reservation",
            UpkeepAction::Fill { at } => {
                return write!(
                    f,
                    "go to the reservation that changed last and has {at} pages or more"
                );
            }
            UpkeepAction::Inspect => "go to the next superpage by address",
            UpkeepAction::Zero { order } => {
                return write!(f, "zero a free block of {}", self.size(order));
            }
            UpkeepAction::Compact { mode } => compaction(mode),
            UpkeepAction::ReleaseHeld => RELEASE_HELD,
            UpkeepAction::Reclaim { pages, lumpy } => return reclaim(f, pages, lumpy),
        })
    }
}

const SPLIT: &str = "split the superpage, in place";
const RELEASE_HELD: &str = "give back frames that are held for nothing";

fn in_place(writable: bool) -> &'static str {
    match writable {
        true => "map the pages as one superpage, in place",
        false => "map the pages as one superpage, in place, read-only",
    }
}

fn reclaim(f: &mut fmt::Formatter<'_>, pages: u64, lumpy: bool) -> fmt::Result {
    let lumpy = if lumpy { " of one aligned block" } else { "" };
    write!(f, "reclaim {pages} pages{lumpy}")
}

fn scan(f: &mut fmt::Formatter<'_>, action: ScanAction) -> fmt::Result {
    f.write_str(match action {
        ScanAction::Visit(Candidates::Next) => "go to the next region by address",
        ScanAction::Visit(Candidates::Listed) => {
            "go to the first region of the list, else the next by address"
        }
        ScanAction::Visit(Candidates::Best) => "go to the best region of the ranking",
        ScanAction::Rewind => "begin again at the beginning of memory",
        ScanAction::Rank { most, one_process } => {
            let of = if one_process { "the process that walks most" } else { "all processes" };
            write!(f, "rank regions of {of} by recent access or misses")?;
            return if most > 0 { write!(f, ", {most} at most") } else { Ok(()) };
        }
        ScanAction::ClearAccessed => "clear accessed bits",
        ScanAction::CountAccessed { newest_percent } => {
            return write!(f, "count accessed bits: {newest_percent} % of the moving average");
        }
    })
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

/// Formats a time in the largest unit that divides it.
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

// The facts that conditions may name, each with its unit and the rules whose conditions may name
// it.

/// A rule that has a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `allocation.when`: evaluated at a first fault, for each size that fits, largest first.
    Fault,
    /// `mapping.scan.when`: evaluated for a candidate of the scan, for each size, largest first.
    Scan,
    /// `unmapping.when`: evaluated for a superpage whose accesses were watched.
    Split,
}

impl Rule {
    /// The key that sets the rule's condition.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Fault => "allocation.when",
            Self::Scan => "mapping.scan.when",
            Self::Split => "unmapping.when",
        }
    }

    /// The rule whose condition this key sets.
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

            /// The fact's name in conditions.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$fact => $name),+ }
            }

            /// The fact's type.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$fact => Kind::$kind),+ }
            }

            /// The fact's unit.
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$fact => $unit),+ }
            }

            /// Description of the fact.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$fact => $says),+ }
            }

            /// The rules whose conditions may name the fact.
            pub const fn rules(self) -> &'static [Rule] {
                match self { $(Self::$fact => &[$(Rule::$rule),+]),+ }
            }
        }
    };
}

facts! {
    Pages "pages" Number "base pages" [Fault Scan Split] "Number of base pages of the size in question: 16 for 64K, 512 for 2M.",
    Populated "populated" Number "base pages" [Fault Scan Split] "Pages of the extent that are in memory.",
    Accessed "accessed" Truth "" [Scan] "A page of its region was walked to since the scan's last visit.",
    Coverage "coverage" Number "base pages" [Scan Split] "Pages of the extent that were accessed in the sampling window; in a scan, a moving average.",
    Skew "skew" Number "per cent" [Scan Split] "Share of the extent's pages in memory that were not accessed in the window.",
    Misses "misses" Number "walks" [Scan] "Page walks to the extent in the sampling window (TLB misses); a moving average.",
    Profiled "profiled" Number "walks per unit of time" [Fault Scan Split] "TLB misses that a superpage of this size would avoid, according to the profile.",
    Benefit "benefit" Number "cycles per unit of time" [Fault Scan Split] "profiled times estimate.miss-cycles.",
    Cost "cost" Number "cycles" [Fault Scan] "estimate.prepare-cycles unless prezeroed, plus estimate.shortage-cycles if no superpage is free.",
    Prezeroed "prezeroed" Truth "" [Fault Scan] "The next free superpage is zeroed.",
    FreeSuperpages "free_superpages" Number "superpages" [Fault Scan Split] "Free superpages of the machine.",
    FreePercent "free_percent" Number "per cent" [Fault Scan Split] "Free memory as a share of all memory.",
    Advised "advised" Truth "" [Fault Scan Split] "The program advised superpages for this memory (MADV_HUGEPAGE).",
}

impl Policy {
    /// Whether a condition holds for a page of this size. `None` always holds.
    pub(crate) fn holds(&self, condition: Option<&Condition>, order: u8, facts: &Facts) -> bool {
        condition.is_none_or(|condition| condition.holds(|fact| self.value(fact, order, facts)))
    }

    fn value(&self, fact: Fact, order: u8, facts: &Facts) -> i64 {
        let Estimate { miss_cycles, prepare_cycles, shortage_cycles } =
            self.rules.estimate.unwrap_or_default();
        let (extent, machine) = (&facts.extent, &facts.machine);
        // Scale a number for one superpage to a page of this size.
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

/// Percentage of populated pages that were not accessed.
fn skew(coverage: i64, populated: i64) -> i64 {
    if populated == 0 { 0 } else { 100 - 100 * coverage.min(populated) / populated }
}
