//! Writes programs as traces: `cargo run -p superpage-mm-sim --example trace_programs -- DIR SEED...`.
//!
//! The programs exercise what the workloads of the catalogue hardly do, and `scripts/lab-reports` runs them under every
//! design: `random-SEED.spt` is a random program from the tests of `system` (several processes that map, grow, advise,
//! protect, fork and end), `part-used.spt` has partly used superpages when memory becomes short. A seed gives the same
//! program as long as proptest draws the same numbers.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use trace::{Access, Backing, Block, Event, Header, Page, Pages, Process, SLOTS, Writer};

#[path = "../src/system/tests/program.rs"]
mod program;

use program::{Op, Program, ops};

/// Maximum number of operations; the minimum is a quarter of it. Operations that are invalid at their turn are left
/// out.
const OPERATIONS: usize = 6000;
/// Accesses after which a block is written.
const BLOCK: usize = 1 << 14;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((directory, seeds)) = arguments.split_first() else {
        eprintln!("usage: trace_programs DIR SEED...");
        return ExitCode::from(2);
    };
    match write(Path::new(directory), seeds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trace_programs: {error}");
            ExitCode::from(2)
        }
    }
}

fn write(directory: &Path, seeds: &[String]) -> Result<(), Box<dyn Error>> {
    for seed in seeds {
        let number = seed.parse().map_err(|error| format!("seed `{seed}`: {error}"))?;
        let name = format!("random-{number}");
        random(&draw(number)?, create(directory, &name)?)?;
    }
    part_used(create(directory, "part-used")?)
}

fn create(directory: &Path, name: &str) -> Result<Writer, trace::TraceError> {
    Writer::create(&directory.join(format!("{name}.spt")), &Header::new(name), true)
}

fn draw(seed: u64) -> Result<Vec<Op>, String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let drawn = ops(OPERATIONS).new_tree(&mut runner).map_err(|reason| reason.to_string())?;
    Ok(drawn.current())
}

fn random(operations: &[Op], mut writer: Writer) -> Result<(), Box<dyn Error>> {
    let mut program = Program::new(0, 0);
    let mut block = Block::default();
    block.event(Event::Phase("run".to_string()));
    for operation in operations {
        let Some((event, accesses)) = program.next(operation) else { continue };
        event.into_iter().for_each(|event| block.event(event));
        block.accesses.extend(accesses);
        // Every eighth kind of operation ends the current request, if there is one.
        if operation.0 % 8 == 0 {
            block.event(Event::RequestEnd);
        }
        if block.accesses.len() >= BLOCK {
            writer.push(&block)?;
            block.clear();
        }
    }
    writer.push(&block)?;
    writer.finish()?;
    Ok(())
}

/// Number of partly used regions, and of pages used in each: fewer than `linux-6-underused` leaves alone.
const REGIONS: u32 = 40;
const PAGES: u32 = 90;
/// Number of superpages that are then filled, one at a time, and of quarters of a second before each: daemons check
/// what was used in the last second, and every two minutes whether memory is short.
const FILLED: u32 = 24;
const QUARTERS: u32 = 120;

fn part_used(mut writer: Writer) -> Result<(), Box<dyn Error>> {
    let map = |first, regions| Event::Map {
        pages: Pages { first: Page(first * SLOTS), count: regions * SLOTS },
        address: u64::from(first * SLOTS),
        backing: Backing::Anonymous,
    };
    let write = |region, slot| Access::write(Page(region * SLOTS + slot));
    let mut block = Block::default();
    block.event(Event::Spawn(Process(0)));
    block.event(map(0, REGIONS));
    block.event(map(REGIONS, FILLED));
    let used = (0..REGIONS).flat_map(|region| (0..PAGES).map(move |slot| write(region, slot)));
    block.accesses.extend(used);
    for filled in REGIONS..REGIONS + FILLED {
        for quarter in 0..QUARTERS {
            block.accesses.extend((0..REGIONS).map(|region| write(region, quarter % PAGES)));
            block.event(Event::Wait(250_000));
        }
        block.accesses.extend((0..SLOTS).map(|slot| write(filled, slot)));
        writer.push(&block)?;
        block.clear();
    }
    writer.finish()?;
    Ok(())
}
