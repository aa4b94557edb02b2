//! `superpage lab machines` and `superpage lab workloads`: what there is to choose from.

use hardware::Machine;
use lab::workloads::catalog;
use serde_json::json;

use super::outputs;
use super::what;
use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// List the machines, or show one.
#[derive(Debug, clap::Args)]
pub struct MachinesArgs {
    /// Print this machine's file, with the sources of its numbers.
    #[arg(value_name = "MACHINE")]
    name: Option<String>,

    /// Print JSON.
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

/// List the workloads and their options.
#[derive(Debug, clap::Args)]
pub struct WorkloadsArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn machines(args: MachinesArgs) -> Result<Done, Failure> {
    if let Some(name) = &args.name {
        exit::print(&what::machine(name)?.content)?;
        return Ok(Done::Fine);
    }
    let mut all: Vec<Machine> = Vec::new();
    for name in hardware::names() {
        all.push(hardware::preset(name).map_err(Failure::usage)?);
    }
    let text = if args.json {
        let machines: Vec<_> = all
            .iter()
            .map(|machine| {
                json!({ "name": machine.name, "summary": machine.summary, "mhz": machine.mhz,
                        "base_page_bytes": machine.base_page.bytes() })
            })
            .collect();
        outputs::json(&json!({ "schema": "superpage.lab.machines/1", "machines": machines }))?
    } else {
        let row = |machine: &Machine| {
            let mhz = machine.mhz.to_string();
            vec![machine.name.clone(), mhz, machine.base_page.to_string(), machine.summary.clone()]
        };
        table(&["machine", "MHz", "pages", ""], all.iter().map(row).collect(), &[0, 3])
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}

pub fn workloads(args: WorkloadsArgs) -> Result<Done, Failure> {
    let text = if args.json {
        let workloads: Vec<_> = catalog()
            .map(|one| json!({ "name": one.name, "summary": one.summary, "options": one.options }))
            .collect();
        outputs::json(&json!({ "schema": "superpage.lab.workloads/1", "workloads": workloads }))?
    } else {
        let row = |one: &lab::workloads::Entry| {
            vec![one.name.to_string(), one.options.join(","), one.summary.to_string()]
        };
        table(&["workload", "options", ""], catalog().map(row).collect(), &[0, 1, 2])
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}
