//! `superpage bench zero`: time to zero 2 MiB, by store instruction and bytes per call.

use ::workload::zero::Stores;
use experiment::zeroing::{self, Zeroing, ZeroingError};
use host::{Root, Thp};
use machine::BULKS;
use serde_json::json;
use units::{ByteSize, PageSize};

use operations::bench::costs as save;

use super::Outputs;
use crate::exit::{self, Done, Failure};
use crate::pool::show::table;
use crate::progress::Progress;

/// Time to zero 2 MiB, by instruction and size of a call, and in the kernel.
///
/// Measures temporal and non-temporal stores, in calls of 4K, 32K and 2M, and the kernel's page faults. The
/// memory is on superpages and not cached; `warm` rows were zeroed just before. Takes about ten seconds.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Save the costs of zeroing as part of the machine `this`, for `superpage lab --machine this`.
    #[arg(long)]
    save: bool,

    /// Print what would be measured; do nothing.
    #[arg(long, conflicts_with = "json")]
    dry_run: bool,

    #[command(flatten)]
    outputs: Outputs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.outputs.check(None)?;
    if args.save {
        save::check(false)?;
    }
    if args.dry_run {
        return plan(&args);
    }
    let zeroing = measure(args.outputs.quiet)?;
    let text = if args.outputs.is_json() { document(&zeroing)? } else { words(&zeroing) };
    args.outputs.deliver(&text)?;
    if args.save {
        exit::say(&save::of_zero(&zeroing)?);
    }
    Ok(Done::Fine)
}

/// Measures the zeroing with a progress bar.
pub fn measure(quiet: bool) -> Result<Zeroing, Failure> {
    let mut progress = Progress::new(quiet, "zeroing");
    let superpage = Thp::pmd_size_of(&Root::real()).unwrap_or(two_mib());
    let found = zeroing::measure(superpage, &BULKS, |round, of| {
        progress.tell(round as u64, Some(of as u64), || format!("round {}", round + 1));
        true
    });
    progress.clear();
    found.map_err(|error| match error {
        ZeroingError::Sys(error) => Failure::cannot(error),
        error => Failure::usage(error),
    })
}

fn two_mib() -> PageSize {
    PageSize::new(zeroing::UNIT as u64).expect("a power of two")
}

fn plan(args: &Args) -> Result<Done, Failure> {
    let names: Vec<&str> = ::workload::zero::kernels().iter().map(|kernel| kernel.name).collect();
    let bulks = BULKS.map(|bulk| ByteSize(bulk).to_string()).join(", ");
    let mut out =
        format!("would zero 2 MiB at a time by {}, in calls of {bulks}\n", names.join(", "));
    if args.save {
        out += &format!("would write {}\n", operations::this_machine::path()?.display());
    }
    exit::print(&out)?;
    Ok(Done::Fine)
}

fn kind(stores: Stores) -> &'static str {
    match stores {
        Stores::Temporal => "temporal",
        Stores::NonTemporal => "non-temporal",
        Stores::System => "system",
    }
}

fn words(zeroing: &Zeroing) -> String {
    let mut header = vec!["stores".to_string(), "instruction".to_string()];
    header.extend(BULKS.map(|bulk| ByteSize(bulk).to_string()));
    header.push("warm".to_string());
    let micros = |nanoseconds: &f64| format!("{:.0}", nanoseconds / 1e3);
    let row = |way: &zeroing::Way| {
        let mut row = vec![kind(way.kernel.stores).to_string(), way.kernel.name.to_string()];
        row.extend(way.cold.iter().map(micros));
        row.extend(way.warm.last().map(micros));
        row
    };
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut out = "microseconds to zero 2 MiB, in calls of\n".to_string();
    out += &table(&header, zeroing.ways.iter().map(row).collect(), &[0, 1]);
    let base = zeroing.base_fault * zeroing::UNIT as f64 / page();
    out += &format!(
        "\nthe kernel's faults for 2 MiB, zeroing included: {} on base pages, {} on a superpage\n",
        micros(&base),
        report::format::known(zeroing.superpage_fault, |ns| micros(&ns))
    );
    if zeroing.superpage_fault.is_none() {
        out += "note: no superpage came at faults, or this kernel does not tell\n";
    }
    match zeroing.on_superpages {
        Some(share) if share < zeroing::ALL => {
            let share = report::format::percent(share);
            out += &format!(
                "note: only {share} of the memory was on superpages; times include TLB misses\n"
            );
        }
        None => out += "note: this kernel does not say whether the memory was on superpages\n",
        Some(_) => {}
    }
    if zeroing.best(Stores::NonTemporal).is_none() {
        out += "note: non-temporal stores are measured on x86-64 only\n";
    }
    out
}

fn page() -> f64 {
    sys::param::page_size().bytes() as f64
}

fn document(zeroing: &Zeroing) -> Result<String, Failure> {
    let seconds = |times: &[f64]| times.iter().map(|ns| ns / 1e9).collect::<Vec<_>>();
    let ways: Vec<_> = zeroing
        .ways
        .iter()
        .map(|way| {
            json!({
                "stores": kind(way.kernel.stores),
                "instruction": way.kernel.name,
                "cold_seconds": seconds(&way.cold),
                "warm_seconds": seconds(&way.warm),
            })
        })
        .collect();
    let body = json!({
        "bench": "zero",
        "superpage_version": env!("CARGO_PKG_VERSION"),
        "unit_bytes": zeroing::UNIT,
        "call_bytes": BULKS,
        "on_superpages": zeroing.on_superpages,
        "ways": ways,
        "base_fault_seconds": zeroing.base_fault / 1e9,
        "superpage_fault_seconds": zeroing.superpage_fault.map(|ns| ns / 1e9),
    });
    exit::json_text(experiment::bench::SCHEMA, body)
}
