//! `superpage pool shm` and `min-free`: show and change settings related to the pools.

use host::Root;
use host::journal::{Knob, Written};
use host::pool::{self, PoolError, RelatedSettings, mounts};
use serde_json::json;
use units::{ByteSize, ParseSizeError};

use super::ChangeArgs;
use super::show::known;
use crate::exit::{self, Done, Failure};

/// Show or set the group and the size limit of hugetlb shared memory.
#[derive(Debug, clap::Args)]
pub struct ShmArgs {
    /// Group whose members may use hugetlb shared memory, a name or number; 0 for nobody.
    #[arg(long)]
    group: Option<String>,

    /// Raise the size limit of SysV segments (shmmax); it is never lowered.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    shmmax: Option<ByteSize>,

    #[command(flatten)]
    how: ChangeArgs,
}

/// Show or raise the memory that the kernel keeps free (min_free_kbytes).
///
/// The recommended value is eleven free pageblocks in each zone: two, and three for each of the three migrate types,
/// so that a type finds free blocks before it falls back to those of another, and unmovable pages do not spread over
/// all memory. The setting is never lowered.
#[derive(Debug, clap::Args)]
pub struct MinFreeArgs {
    /// Raise min_free_kbytes to the recommended value.
    #[arg(long, conflicts_with = "set")]
    recommended: bool,

    /// Raise min_free_kbytes to this size.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    set: Option<ByteSize>,

    #[command(flatten)]
    how: ChangeArgs,
}

fn bytes(text: &str) -> Result<ByteSize, ParseSizeError> {
    text.parse()
}

/// A setting, its name and the wanted value.
type Wanted = (Knob, &'static str, u64);

pub fn shm(args: ShmArgs) -> Result<Done, Failure> {
    let root = Root::real();
    let mut wishes: Vec<Wanted> = Vec::new();
    if let Some(group) = &args.group {
        let gid = mounts::group_id(&root, group)?;
        wishes.push((Knob::hugetlb_shm_group(), "hugetlb_shm_group", gid.into()));
    }
    if let Some(size) = args.shmmax {
        pool::check_raise(&root, &Knob::shmmax(), "shmmax", size.bytes())?;
        wishes.push((Knob::shmmax(), "shmmax", size.bytes()));
    }
    if !wishes.is_empty() {
        return change(&wishes, &args.how);
    }
    let around = RelatedSettings::read(&root);
    if args.how.json {
        super::print_json("superpage.pool-settings/1", json!(around))?;
        return Ok(Done::Fine);
    }
    let group = match around.shm_group {
        Some(0) => "0: only root, or with CAP_IPC_LOCK".to_string(),
        group => known(group.map(u64::from)),
    };
    let largest = around
        .shmmax
        .map_or("unknown".to_string(), |max| format!("{max} bytes ({})", ByteSize(max)));
    exit::print(&format!("group that may use hugetlb shared memory  {group}\n"))?;
    exit::print(&format!("largest SysV segment (shmmax)             {largest}\n"))?;
    Ok(Done::Fine)
}

pub fn min_free(args: MinFreeArgs) -> Result<Done, Failure> {
    let root = Root::real();
    let around = RelatedSettings::read(&root);
    let recommended = around.recommended_min_free_kbytes;
    let kbytes = match (args.set, args.recommended) {
        (Some(size), _) => Some(size.bytes() / 1024),
        (None, true) => Some(recommended.ok_or_else(|| {
            Failure::cannot(
                "the recommended value is unknown: /proc/zoneinfo or /proc/meminfo lack \
                what it is computed from",
            )
        })?),
        (None, false) => None,
    };
    if let Some(kbytes) = kbytes {
        // --recommended also succeeds if the current value is higher.
        let kbytes = match around.min_free_kbytes {
            Some(now) if args.recommended && now >= kbytes => now,
            _ => kbytes,
        };
        let knob = Knob::min_free_kbytes();
        pool::check_raise(&root, &knob, "min_free_kbytes", kbytes)?;
        return change(&[(knob, "min_free_kbytes", kbytes)], &args.how);
    }
    if args.how.json {
        super::print_json("superpage.pool-settings/1", json!(around))?;
        return Ok(Done::Fine);
    }
    let words = |kbytes: Option<u64>| {
        kbytes.map_or("unknown".to_string(), |kbytes| {
            format!("{kbytes} kB ({})", ByteSize(kbytes.saturating_mul(1024)))
        })
    };
    exit::print(&format!("min_free_kbytes  {}\n", words(around.min_free_kbytes)))?;
    exit::print(&format!("recommended      {}\n", words(recommended)))?;
    Ok(Done::Fine)
}

fn change(wishes: &[Wanted], how: &ChangeArgs) -> Result<Done, Failure> {
    let root = Root::real();
    let mut changes = Vec::new();
    for (knob, name, asked) in wishes {
        let now = knob.read(&root).map_err(PoolError::from)?;
        changes.push((*name, now, asked.to_string()));
    }
    let differs = changes.iter().any(|(_, now, asked)| now != asked);
    let mut got: Vec<Written> = Vec::new();
    if differs && !how.dry_run {
        got = super::journalled(|journal| {
            let set = |(knob, _, asked): &Wanted| journal.set(knob, &asked.to_string());
            Ok(wishes.iter().map(set).collect::<Result<Vec<_>, _>>()?)
        })?;
    }
    if how.json {
        let list: Vec<_> = changes
            .iter()
            .map(|(name, before, asked)| json!({ "setting": name, "before": before, "asked": asked }))
            .collect();
        let body = json!({ "dry_run": how.dry_run, "changes": list, "written": got });
        super::print_json("superpage.pool-settings-change/1", body)?;
    } else {
        for (name, before, asked) in &changes {
            let line = match (before == asked, how.dry_run) {
                (true, _) => format!("{name} is {before} already\n"),
                (false, true) => format!("would change {name}: {before} -> {asked}\n"),
                (false, false) => format!("{name}: {before} -> {asked}\n"),
            };
            exit::print(&line)?;
        }
    }
    Ok(if got.iter().all(Written::is_full) { Done::Fine } else { Done::Negative })
}
