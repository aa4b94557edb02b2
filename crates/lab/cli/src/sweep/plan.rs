//! `superpage lab sweep plan`: resolves names, and writes a self-contained directory.

use std::path::PathBuf;

use lab::sweep::{NamedInput, PLAN_SCHEMA, Plan, Wanted, seeds};
use mm_sim::{Nodes, kernel_memory};
use units::ByteSize;

use crate::simulate::Parts;
use crate::what;
use cli::exit::{self, Done, Failure};
use cli::files;

/// Write the plan of a sweep into a directory.
///
/// The experiments come from flags, from a TOML file with the same words as lists (designs, machines, workloads,
/// fragmentations, memory, nodes, movable, seeds), or from both. The plan holds the contents of all designs and
/// machines, so that a shard needs only the directory. Planning more into a directory that has results keeps them
/// (--force).
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A TOML file with lists.
    #[arg(value_name = "PLAN.toml")]
    file: Option<PathBuf>,

    /// The directory; made if it does not exist.
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,

    /// A design; repeatable.
    #[arg(long = "design", short, value_name = "DESIGN")]
    designs: Vec<String>,

    /// A machine; repeatable [default: e3-1245v6].
    #[arg(long = "machine", short, value_name = "MACHINE")]
    machines: Vec<String>,

    /// A workload; repeatable.
    #[arg(long = "workload", short, value_name = "WORKLOAD")]
    workloads: Vec<String>,

    /// A fragmentation; repeatable [default: none].
    #[arg(long = "fragmentation", short, value_name = "HOW")]
    fragmentations: Vec<String>,

    /// A memory size; repeatable [default: the sum of --nodes, else 32G].
    #[arg(long = "memory", value_name = "SIZE")]
    memories: Vec<ByteSize>,

    /// NUMA nodes that memory is divided into: how many, or the memory of each (8G,8G); repeatable [default: 1].
    #[arg(long, value_name = "N|SIZE,...")]
    nodes: Vec<Nodes>,

    /// How much of memory takes movable pages only; repeatable [default: 0].
    #[arg(long = "movable", value_name = "SIZE")]
    movables: Vec<ByteSize>,

    /// Seeds: 1-10,20 [default: 1].
    #[arg(long, value_name = "LIST", value_parser = seed_list)]
    seeds: Option<Seeds>,

    /// Replace the plan that the directory has; results that both plans have are kept.
    #[arg(long)]
    force: bool,

    /// Tell what would be planned, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A list as one value, because clap would treat a `Vec` as a repeatable flag.
#[derive(Debug, Clone)]
struct Seeds(Vec<u64>);

fn seed_list(text: &str) -> Result<Seeds, lab::sweep::SeedsError> {
    seeds(text).map(Seeds)
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if args.output.as_os_str().is_empty() || files::is_stdout(&args.output) {
        return Err(Failure::usage(format!(
            "--output {}: a plan is a directory; name one: results",
            args.output.display()
        )));
    }
    let plan = plan(&args)?;
    let groups = plan.groups();
    let cells: usize = groups.iter().map(|group| group.members.len()).sum();
    let directory = args.output.display();
    let what = format!("{cells} cells in {} passes", groups.len());
    if args.dry_run {
        exit::print(&format!("{directory}: would plan {what}\n{}", notes(&plan)))?;
        return Ok(Done::Fine);
    }
    super::writable(&args.output)?.write_plan(&plan, args.force).map_err(Failure::usage)?;
    let next = format!("next: superpage lab sweep run {directory}");
    exit::print(&format!("{directory}: {what}; {next}\n{}", notes(&plan)))?;
    Ok(Done::Fine)
}

/// Writes the plan. Prints nothing.
pub fn write(args: &Args) -> Result<(), Failure> {
    super::writable(&args.output)?.write_plan(&plan(args)?, args.force).map_err(Failure::usage)
}

fn plan(args: &Args) -> Result<Plan, Failure> {
    let plan = resolve(&wanted(args)?)?;
    // Report impossible machines now, not once per pass.
    plan.groups().iter().try_for_each(|group| {
        let designs: Vec<&NamedInput> = group.members.iter().map(|one| one.design).collect();
        Parts::of(group).can_run(&designs)
    })?;
    Ok(plan)
}

/// Formats notes on parameters that follow from the flags: kernel memory, nodes, movable memory.
fn notes(plan: &Plan) -> String {
    let memory =
        |memory: &ByteSize| format!("{memory} ({} of it the kernel's)", kernel_memory(*memory));
    let memories: Vec<String> = plan.memories.iter().map(memory).collect();
    let mut text = format!("memory {}\n", memories.join(", "));
    if plan.nodes != [Nodes::default()] || plan.movables != [ByteSize(0)] {
        let nodes: Vec<String> = plan.nodes.iter().map(Nodes::to_string).collect();
        let movables: Vec<String> = plan.movables.iter().map(ByteSize::to_string).collect();
        let (nodes, movables) = (nodes.join(" or "), movables.join(" or "));
        text += &format!("nodes {nodes}, for movable pages only {movables}\n");
    }
    for one in plan.fragmentations.iter().filter(|one| !one.content.is_empty()) {
        text += &format!("fragmentation {}: the free lists are in the plan\n", one.name);
    }
    text
}

/// Rejects duplicates in a list, because they would run only once.
fn once<T: PartialEq + std::fmt::Display>(list: &[T], kind: &str) -> Result<(), Failure> {
    let again = (1..list.len()).find(|&at| list[..at].contains(&list[at]));
    again.map_or(Ok(()), |at| {
        let one = &list[at];
        Err(Failure::usage(format!("{kind} `{one}` is given twice; leave one of them away")))
    })
}

/// Returns the lists of the file, then those of the flags, then defaults.
fn wanted(args: &Args) -> Result<Wanted, Failure> {
    let mut wanted = match &args.file {
        None => Wanted::default(),
        Some(path) => {
            let text = what::text(path, "a TOML file with lists (docs/sweeps.md)")?;
            Wanted::from_toml(&path.display().to_string(), &text).map_err(Failure::usage)?
        }
    };
    wanted.designs.extend(args.designs.iter().cloned());
    wanted.machines.extend(args.machines.iter().cloned());
    wanted.workloads.extend(args.workloads.iter().cloned());
    wanted.fragmentations.extend(args.fragmentations.iter().cloned());
    wanted.memories.extend(&args.memories);
    wanted.nodes.extend(args.nodes.iter().cloned());
    wanted.movables.extend(&args.movables);
    wanted.seeds.extend(args.seeds.iter().flat_map(|seeds| &seeds.0));
    for (list, flag) in [(&wanted.designs, "--design"), (&wanted.workloads, "--workload")] {
        if list.is_empty() {
            return Err(Failure::usage(format!("nothing to sweep over; give at least one {flag}")));
        }
    }
    once(&wanted.memories, "memory")?;
    once(&wanted.nodes, "nodes")?;
    once(&wanted.movables, "movable")?;
    let or = |list: &mut Vec<String>, default: &str| {
        if list.is_empty() {
            list.push(default.to_string());
        }
    };
    or(&mut wanted.machines, what::MACHINE);
    or(&mut wanted.fragmentations, what::FRAGMENTATION);
    if wanted.memories.is_empty() {
        wanted.memories.push(what::memory(None, wanted.nodes.iter()));
    }
    if wanted.nodes.is_empty() {
        wanted.nodes.push(Nodes::default());
    }
    if wanted.movables.is_empty() {
        wanted.movables.push(ByteSize(0));
    }
    if wanted.seeds.is_empty() {
        wanted.seeds.push(what::SEED);
    }
    Ok(wanted)
}

fn resolve(wanted: &Wanted) -> Result<Plan, Failure> {
    Ok(Plan {
        schema: PLAN_SCHEMA.to_string(),
        designs: what::several(&wanted.designs, "design", what::design)?,
        machines: what::several(&wanted.machines, "machine", what::machine)?,
        workloads: what::several(&wanted.workloads, "workload", what::workload)?,
        fragmentations: what::several(
            &wanted.fragmentations,
            "fragmentation",
            what::fragmentation,
        )?,
        memories: wanted.memories.clone(),
        nodes: wanted.nodes.clone(),
        movables: wanted.movables.clone(),
        seeds: wanted.seeds.clone(),
    })
}
