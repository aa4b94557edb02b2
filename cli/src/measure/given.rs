//! The flags of numbers that somebody else measured.

use translation::{Given, MissCost};

use crate::exit::Failure;

/// Misses, their cost and the cycles; without --from and a program they are the measurement.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Numbers given")]
pub struct Flags {
    /// Cycles that a miss costs: with counters and files, of one that walks the page table.
    #[arg(long, value_name = "CYCLES", value_parser = number)]
    cost: Option<f64>,

    /// Cycles that a miss of the first level costs which hits the second.
    #[arg(long, value_name = "CYCLES", value_parser = number, requires = "cost")]
    hit_cost: Option<f64>,

    /// TLB misses, of data and code together.
    #[arg(long, value_name = "N", value_parser = number)]
    misses: Option<f64>,

    /// Misses of data.
    #[arg(long, value_name = "N", value_parser = number)]
    dtlb_misses: Option<f64>,

    /// Misses of code.
    #[arg(long, value_name = "N", value_parser = number)]
    itlb_misses: Option<f64>,

    /// Cycles the program took.
    #[arg(long, value_name = "N", value_parser = number)]
    cycles: Option<f64>,
}

impl Flags {
    /// All of them.
    pub fn numbers(&self) -> Given {
        let Self { cost, misses, dtlb_misses, itlb_misses, cycles, .. } = *self;
        Given { cost, misses, dtlb_misses, itlb_misses, cycles, ..Given::default() }
    }

    /// What a miss costs, if it is among them.
    pub fn cost(&self) -> Option<MissCost> {
        let (walk, second_level_hit) = (self.cost?, self.hit_cost);
        Some(MissCost { walk, second_level_hit, source: "--cost".to_string() })
    }

    /// Refuses numbers that something else counts.
    pub fn only_cost(&self) -> Result<(), Failure> {
        let others = Given { cost: None, ..self.numbers() };
        if others.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(
            "--misses, --dtlb-misses, --itlb-misses and --cycles are measurements themselves; \
             leave them out, or leave out what counts",
        ))
    }
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.replace('_', "").parse().ok();
    let number = number.filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| "a number of at least 0".to_string())
}
