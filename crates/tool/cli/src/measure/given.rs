//! Flags for counts that other tools measured.

use walk_cost::{Given, MissCost};

use crate::exit::Failure;
use operations::this_machine;

/// Misses, their cost, and cycles. Without --from and a program, these numbers are the measurement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Counts from other tools")]
pub struct Flags {
    /// Cycles of a TLB miss that walks the page table; or `this`, the cost that `superpage tlb --save`
    /// measured, which is the default for programs and processes.
    #[arg(long, value_name = "CYCLES", value_parser = cost)]
    cost: Option<Cost>,

    /// Cycles of a first-level miss that hits the second level; without it, counts of walks give no
    /// largest speedup.
    #[arg(long, value_name = "CYCLES", value_parser = number)]
    hit_cost: Option<f64>,

    /// TLB misses, data and code together.
    #[arg(long, value_name = "N", value_parser = number)]
    misses: Option<f64>,

    /// Data TLB misses.
    #[arg(long, value_name = "N", value_parser = number)]
    dtlb_misses: Option<f64>,

    /// Instruction TLB misses.
    #[arg(long, value_name = "N", value_parser = number)]
    itlb_misses: Option<f64>,

    /// Cycles of all page walks, instead of --cost: with the number of misses they give the cost of
    /// one miss.
    #[arg(long, value_name = "N", value_parser = number, conflicts_with = "cost")]
    walk_cycles: Option<f64>,

    /// Cycles of the whole program.
    #[arg(long, value_name = "N", value_parser = number)]
    cycles: Option<f64>,
}

impl Flags {
    /// Returns all numbers given as flags.
    pub fn numbers(&self) -> Result<Given, Failure> {
        let cost = self.cost()?.and_then(|cost| cost.walk);
        Ok(Given { cost, ..self.counted() })
    }

    /// Returns the cost of a miss given by --cost, in cycles.
    pub fn cost(&self) -> Result<Option<MissCost>, Failure> {
        let cost = match self.cost {
            None if self.hit_cost.is_none() => return Ok(None),
            Some(Cost::This) => this_machine::miss_cost()?,
            None => said(None),
            Some(Cost::Cycles(walk)) => said(Some(walk)),
        };
        Ok(Some(self.with_hit_cost(cost)))
    }

    fn with_hit_cost(&self, cost: MissCost) -> MissCost {
        MissCost { second_level_hit: self.hit_cost.or(cost.second_level_hit), ..cost }
    }

    /// Returns the cost of a miss on this machine in cycles, even if --cost was not given. For counts taken on this
    /// machine now.
    pub fn cost_here(&self) -> Result<Option<MissCost>, Failure> {
        match self.cost {
            None => match this_machine::miss_cost_if_kept()? {
                Some(kept) => Ok(Some(self.with_hit_cost(kept))),
                None => self.cost(),
            },
            Some(_) => self.cost(),
        }
    }

    /// Rejects a cost of hits where no hits are counted.
    pub fn without_hit_cost(&self) -> Result<(), Failure> {
        match self.hit_cost {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--hit-cost is for counts of second-level hits; numbers, files of numbers and oprofile's reports have none",
            )),
        }
    }

    fn counted(&self) -> Given {
        let Self { misses, dtlb_misses, itlb_misses, walk_cycles, cycles, .. } = *self;
        Given { misses, dtlb_misses, itlb_misses, walk_cycles, cycles, ..Given::default() }
    }

    /// Rejects numbers that this measurement counts itself.
    pub fn only_cost(&self) -> Result<(), Failure> {
        if self.counted().is_empty() {
            return Ok(());
        }
        Err(Failure::usage(
            "--misses, --dtlb-misses, --itlb-misses, --walk-cycles and --cycles are counts already; leave them \
             out, or leave out the program, --pid or --from",
        ))
    }
}

/// Costs given by flags.
fn said(walk: Option<f64>) -> MissCost {
    MissCost {
        walk,
        second_level_hit: None,
        is_of_cached_tables: false,
        source: "given".to_string(),
    }
}

/// The value of --cost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cost {
    Cycles(f64),
    /// The cost measured on this machine.
    This,
}

fn cost(text: &str) -> Result<Cost, String> {
    match text {
        "this" => Ok(Cost::This),
        _ => number(text).map(Cost::Cycles).map_err(|error| format!("{error}, or `this`")),
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.replace('_', "").parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "expected a number of at least 0".to_string())
}
