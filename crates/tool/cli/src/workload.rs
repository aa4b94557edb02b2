//! `superpage workload`: runs one built-in workload.

use std::io::IsTerminal;
use std::ops::Range;

use host::coverage;
use sys::pagemap::Pagemap;
use units::ByteSize;
use workload::{Details, Outcome, Workload};

use crate::exit::{self, Done, Failure};

/// Run a built-in workload and verify its result.
///
/// Prints one line of JSON; on a terminal, a summary before it. Without a name, lists the workloads.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Workload to run.
    name: Option<Workload>,

    /// Print only JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    workload: operations::workloads::WorkloadArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let Some(workload) = args.name else { return list(args.json) };
    let settings = args.workload.settings(workload)?;
    let outcome =
        workload.run_seen(&settings, &on_superpages).map_err(operations::workloads::failure)?;
    if !args.json && std::io::stdout().is_terminal() {
        exit::print(&summary(&outcome))?;
    }
    exit::print(&format!("{}\n", outcome.to_line()))?;
    Ok(Done::Fine)
}

/// Returns the number of bytes in a range of this process's memory that are on superpages.
fn on_superpages(range: Range<u64>) -> Option<u64> {
    let page = sys::param::page_size();
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let found = coverage::scan(&pagemap, page.floor(range.start), page.ceil(range.end)).ok()?;
    Some(found.huge.bytes().min(range.end - range.start))
}

fn list(json: bool) -> Result<Done, Failure> {
    if json {
        let all: Vec<_> = Workload::ALL
            .iter()
            .map(|one| {
                serde_json::json!({
                    "name": one.name(),
                    "summary": one.summary(),
                    "default_size_bytes": one.default_size().bytes(),
                    "options": one.options(),
                })
            })
            .collect();
        exit::print_json("superpage.workloads/1", serde_json::json!({ "workloads": all }))?;
    } else {
        for one in Workload::ALL {
            exit::print(&format!("{:<10} {}\n", one.name(), one.summary()))?;
        }
    }
    Ok(Done::Fine)
}

fn summary(outcome: &Outcome) -> String {
    let figure = &outcome.figure;
    let mut text = format!(
        "{}: {} {} {} ({}, {} thread(s), seed {}; setup {:.2} s, timed {:.3} s, verified in {:.2} s)\n",
        outcome.workload,
        figure.name,
        report::format::figure(figure.value),
        figure.unit,
        ByteSize(outcome.size_bytes),
        outcome.threads,
        outcome.seed,
        outcome.setup_seconds,
        outcome.seconds,
        outcome.verify_seconds
    );
    if let Details::Touch {
        gib,
        repeat,
        lines,
        user_seconds,
        system_seconds,
        wall_seconds,
        faults_per_cpu_second,
        faults_per_wall_second,
        ..
    } = &outcome.details
    {
        let known = |value: &Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "?".to_string(),
        };
        text += " Gb Rep Threads CLine     User   System     Wall  flt/cpu/s fault/wsec\n";
        text += &format!(
            "{gib:>3} {repeat:>3} {:>7} {lines:>5} {:>8} {:>8} {wall_seconds:>8.3} {:>10} {:>10}\n",
            outcome.threads,
            known(user_seconds, 3),
            known(system_seconds, 3),
            known(faults_per_cpu_second, 0),
            known(faults_per_wall_second, 0)
        );
    }
    text
}
