//! Event counts, from live counters or from files. [`crate::interpret`] converts them to an estimate.

use crate::events;

/// The count of one event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Count {
    /// The event's name as printed or requested, with modifiers.
    pub event: String,
    /// The count, scaled up for multiplexing; `None` if the CPU lacks the event or no counter was free.
    pub value: Option<f64>,
    /// Share of the time for which the counter ran, if known.
    pub counted: Option<f64>,
    /// Group number: counts of one group cover the same time intervals. Counts from files are all in group 0.
    pub group: u32,
    /// The part of the run in which the event was not counted, if any. `value` is the rest.
    pub gap: Option<Gap>,
    /// Origin of the count, in words.
    pub source: String,
}

/// The parts of a run (intervals, CPUs, kinds of cores) in which an event was not counted although cycles were.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// Share of the cycles in these parts, above 0 and below 1.
    pub cycles: f64,
    /// Number of these parts, and of all parts.
    pub parts: (usize, usize),
    /// The first of these parts, as perf names it.
    pub first: String,
}

/// Cost of a TLB miss on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MissCost {
    /// Cycles of a miss in all TLB levels: a page walk; `None` if only the cost of a hit is known.
    pub walk: Option<f64>,
    /// Cycles of a first-level TLB miss that hits in the second level, if known.
    pub second_level_hit: Option<f64>,
    /// Whether `walk` was measured with page tables in the data caches.
    pub is_of_cached_tables: bool,
    /// Origin of the costs, in words.
    pub source: String,
}

impl Count {
    /// The normalized event name, as used in the event tables.
    pub fn name(&self) -> String {
        events::normal(&self.event)
    }

    /// Whether the event counts CPU cycles.
    pub fn is_cycles(&self) -> bool {
        const NAMES: [&str; 6] = [
            "cycles",
            "cpu-cycles",
            "cpu_cycles",
            "ls_not_halted_cyc",
            "cpu_clk_unhalted.thread",
            "cpu_clk_unhalted.thread_p",
        ];
        NAMES.contains(&self.name().as_str())
    }

    /// The mode in which the event was counted, according to the modifiers `u` and `k`.
    pub fn mode(&self) -> Mode {
        let modifiers = events::modifiers(&self.event);
        match (modifiers.contains('u'), modifiers.contains('k')) {
            (true, false) => Mode::User,
            (false, true) => Mode::Kernel,
            (true, true) | (false, false) => Mode::Both,
        }
    }
}

/// CPU mode in which events were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// User mode.
    User,
    /// Kernel mode.
    Kernel,
    /// User and kernel mode.
    Both,
}

impl Mode {
    /// All modes in order of preference.
    pub const ALL: [Self; 3] = [Self::Both, Self::User, Self::Kernel];

    /// The mode as a phrase that follows "in".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::User => "user mode",
            Self::Kernel => "kernel mode",
            Self::Both => "user and kernel mode",
        }
    }
}
