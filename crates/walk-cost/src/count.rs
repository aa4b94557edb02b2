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

    /// Whether only the program's own mode was counted: the modifier `u` without `k`.
    pub fn is_user_only(&self) -> bool {
        let modifiers = events::modifiers(&self.event);
        modifiers.contains('u') && !modifiers.contains('k')
    }
}
