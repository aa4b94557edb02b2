//! Counts of events, from wherever they come: the live counters and every reader of files make
//! them, [`crate::interpret`] turns them into an estimate.

use crate::events;

/// How often an event happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The event's name as it was printed or asked for, modifiers included.
    pub event: String,
    /// How often, corrected for the time it was not counted; `None` where the processor does not
    /// have the event or no counter was free.
    pub value: Option<f64>,
    /// The share of the time it was really counted, where that is known.
    pub counted: Option<f64>,
    /// Counts of one group are of the same intervals of time. Files do not tell: all are of
    /// group 0 there.
    pub group: u32,
    /// Where it comes from, in words.
    pub source: String,
}

/// What a miss costs on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MissCost {
    /// Cycles of a miss that walks the page table.
    pub walk: f64,
    /// Cycles of a miss of the first level that hits the second, if that is known.
    pub second_level_hit: Option<f64>,
    /// Whether that is of page tables in the caches, as a calibration measures it.
    pub is_of_cached_tables: bool,
    /// Who says so.
    pub source: String,
}

impl Count {
    /// The name by which tables know the event.
    pub fn name(&self) -> String {
        events::normal(&self.event)
    }

    /// Whether it counts the processor's cycles.
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

    /// In which mode it was counted: by the modifiers `u` and `k`.
    pub fn mode(&self) -> Mode {
        let modifiers = events::modifiers(&self.event);
        match (modifiers.contains('u'), modifiers.contains('k')) {
            (true, false) => Mode::User,
            (false, true) => Mode::Kernel,
            (true, true) | (false, false) => Mode::Both,
        }
    }
}

/// In which mode of the processor something was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// User mode.
    User,
    /// The kernel's.
    Kernel,
    /// Either.
    Both,
}

impl Mode {
    /// In the order in which they are preferred: what is of all the time first.
    pub const ALL: [Self; 3] = [Self::Both, Self::User, Self::Kernel];

    /// In words after "in".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::User => "user mode",
            Self::Kernel => "kernel mode",
            Self::Both => "user and kernel mode",
        }
    }
}
