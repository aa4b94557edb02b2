//! `superpage pool mounts`: lists, makes and removes hugetlbfs mounts.

use std::path::PathBuf;

use host::Root;
use host::pool::mounts::{self, Limits, Mount, MountOutcome, MountPlan, Owner};
use host::pool::{PoolName, SpecError};
use serde_json::json;
use units::{ByteSize, ParseSizeError};

use super::{ChangeArgs, show};
use crate::exit::{self, Done, Failure};

/// List, create and remove hugetlbfs mounts.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    list: ListArgs,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(ListArgs),
    Create(CreateArgs),
    Remove(RemoveArgs),
}

/// List hugetlbfs mounts.
#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Mount hugetlbfs below /var/lib/hugetlbfs; existing mounts are not changed.
#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// Page sizes: 2M, 1G, default [default: those of all pools].
    #[arg(value_name = "SIZE", value_parser = super::pool_name)]
    sizes: Vec<PoolName>,

    /// Owner, a name or number; nobody else has access.
    #[arg(long, conflicts_with_all = ["group", "root_only"])]
    user: Option<String>,

    /// Group, a name or number; nobody else has access.
    #[arg(long, conflicts_with = "root_only")]
    group: Option<String>,

    /// Only root has access. Without --user, --group and --root-only, everybody has access.
    #[arg(long)]
    root_only: bool,

    /// Maximum size, rounded down to whole pages.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_size: Option<ByteSize>,

    /// Pages that the pool reserves for this mount, rounded up to whole pages. Mounting fails if the pool has fewer.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    min_size: Option<ByteSize>,

    /// Maximum number of files.
    #[arg(long, value_name = "N")]
    max_inodes: Option<u64>,

    /// Only print the lines that mount hugetlbfs at boot; mount nothing.
    #[arg(long, value_enum, value_name = "KIND")]
    persist: Option<Persist>,

    #[command(flatten)]
    how: ChangeArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Persist {
    /// Lines for /etc/fstab.
    Fstab,
    /// Mount units.
    Systemd,
}

/// Unmount a hugetlbfs mount.
#[derive(Debug, clap::Args)]
struct RemoveArgs {
    /// Mount point.
    point: PathBuf,

    /// Print what would be done; change nothing.
    #[arg(long)]
    dry_run: bool,
}

fn bytes(text: &str) -> Result<ByteSize, ParseSizeError> {
    text.parse()
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match args.command {
        None => list(args.list),
        Some(Command::List(args)) => list(args),
        Some(Command::Create(args)) => create(args),
        Some(Command::Remove(args)) => remove(args),
    }
}

fn list(args: ListArgs) -> Result<Done, Failure> {
    let mounts = mounts::mounts(&Root::real())?;
    if args.json {
        super::print_json("superpage.pool-mounts/1", json!({ "mounts": mounts }))?;
    } else if mounts.is_empty() {
        exit::print("no hugetlbfs is mounted; mount it with: superpage pool mounts create\n")?;
    } else {
        exit::print(&table(&mounts))?;
    }
    Ok(Done::Fine)
}

fn table(mounts: &[Mount]) -> String {
    let limit = |size: Option<ByteSize>| size.map_or("no limit".to_string(), |b| b.to_string());
    let rows = mounts.iter().map(|mount| {
        vec![
            report::format::clipped(&mount.point.display().to_string(), 80),
            mount.page_size.map_or("unknown".to_string(), |size| size.to_string()),
            limit(mount.size),
            mount.min_size.map_or("none".to_string(), |bytes| bytes.to_string()),
            mount.inodes.map_or("no limit".to_string(), |inodes| inodes.to_string()),
            mount.uid.unwrap_or(0).to_string(),
            mount.gid.unwrap_or(0).to_string(),
            format!("{:04o}", mount.mode.unwrap_or(0o755)),
        ]
    });
    let header = ["mount", "pages", "size", "reserved", "files", "uid", "gid", "mode"];
    show::table(&header, rows.collect(), &[0])
}

fn create(args: CreateArgs) -> Result<Done, Failure> {
    let status = super::status()?;
    let owner = match (&args.user, &args.group, args.root_only) {
        (Some(user), ..) => Owner::User(user.clone()),
        (None, Some(group), _) => Owner::Group(group.clone()),
        (None, None, true) => Owner::Root,
        (None, None, false) => Owner::Everybody,
    };
    let mut sizes = Vec::new();
    for name in &args.sizes {
        let size = status.size(*name)?;
        if sizes.contains(&size) {
            return Err(host::pool::PoolError::from(SpecError::Twice(size)).into());
        }
        sizes.push(size);
    }
    if sizes.is_empty() {
        sizes = status.pools.sizes.keys().copied().collect();
    }
    let limits = Limits { size: args.max_size, min_size: args.min_size, inodes: args.max_inodes };
    // Check all mounts before creating any.
    let plans = sizes
        .iter()
        .map(|size| mounts::plan(&Root::real(), &owner, *size, limits))
        .collect::<Result<Vec<MountPlan>, _>>()?;
    if let Some(kind) = args.persist {
        return persist(&plans, kind);
    }
    let there = mounts::mounts(&Root::real())?;
    let mut done =
        plans.iter().map(|plan| plan.check(&there)).collect::<Result<Vec<MountOutcome>, _>>()?;
    if !args.how.dry_run {
        done = plans.iter().map(mounts::make).collect::<Result<Vec<MountOutcome>, _>>()?;
    }
    if args.how.json {
        let made: Vec<_> = plans
            .iter()
            .zip(&done)
            .map(|(plan, made)| json!({ "plan": plan, "made": made }))
            .collect();
        let body = json!({ "dry_run": args.how.dry_run, "mounts": made });
        super::print_json("superpage.pool-mounts-made/1", body)?;
        return Ok(Done::Fine);
    }
    for (plan, made) in plans.iter().zip(&done) {
        let point = plan.point.display();
        let line = match (made, args.how.dry_run) {
            (MountOutcome::AlreadyThere, _) => format!("{point} exists already\n"),
            (MountOutcome::New, true) => format!("would mount {point} with {}\n", plan.options()),
            (MountOutcome::New, false) => format!("mounted {point} with {}\n", plan.options()),
        };
        exit::print(&line)?;
    }
    Ok(Done::Fine)
}

fn persist(plans: &[MountPlan], kind: Persist) -> Result<Done, Failure> {
    for plan in plans {
        match kind {
            Persist::Fstab => exit::print(&mounts::fstab_line(plan))?,
            Persist::Systemd => {
                let (name, text) = mounts::systemd_mount(plan);
                exit::print(&format!("# /etc/systemd/system/{name}\n{text}\n"))?;
            }
        }
    }
    Ok(Done::Fine)
}

fn remove(args: RemoveArgs) -> Result<Done, Failure> {
    let point = args.point.display();
    if args.dry_run {
        let there = mounts::mounts(&Root::real())?;
        let is_there = there.iter().any(|mount| mount.point == args.point);
        let would = if is_there { "would unmount" } else { "no hugetlbfs mount at" };
        exit::print(&format!("{would} {point}\n"))?;
        return Ok(if is_there { Done::Fine } else { Done::Negative });
    }
    mounts::remove(&args.point)?;
    exit::print(&format!("unmounted {point}\n"))?;
    Ok(Done::Fine)
}
