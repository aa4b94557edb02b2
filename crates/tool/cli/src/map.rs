//! `superpage map`: the address space of running processes, and where superpages are.

use host::Root;
use services::{AddressSpace, Target, select};
use units::{ByteSize, Pid};

use crate::exit::{self, Done, Failure};
use crate::pool::show;
use crate::targets::{self, TargetArgs};

/// Show the memory of running processes, and which of it is on superpages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Processes
    #[arg(value_name = "PID", value_parser = targets::pid)]
    pids: Vec<Pid>,

    #[command(flatten)]
    targets: TargetArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let mut targets = args.targets.targets();
    targets.extend(args.pids.iter().copied().map(Target::Pid));
    if targets.is_empty() {
        return Err(Failure::usage("no process named: give PID, --cgroup, --unit or --match"));
    }
    let root = Root::real();
    let selected = select(&root, &targets).map_err(targets::failure)?;
    for process in &selected.processes {
        let space = AddressSpace::read(&root, process)
            .map_err(|error| Failure::cannot(format!("pid {}: {error}", process.pid)))?;
        let rows = space.extents.iter().map(|extent| {
            vec![
                format!("{:x}", extent.mapping.start),
                ByteSize(extent.mapping.len()).to_string(),
                extent.pages.present.to_string(),
                extent.pages.huge.to_string(),
                report::format::name(&extent.mapping.name, 60),
            ]
        });
        let header = ["address", "size", "resident", "superpages", "name"];
        exit::print(&show::table(&header, rows.collect(), &[4]))?;
    }
    Ok(Done::Fine)
}
