//! Changes settings: THP, khugepaged, the shared-memory group, shmmax, min_free_kbytes, zone-movable.

use host::journal::{Journal, KhugepagedKnob, Knob};
use host::pool::{self, mounts};
use host::{HugetlbPools, Root};

use super::lists::Bounds;
use super::options::Request;
use super::{Completion, Context, refused};
use crate::exit::{self, Failure};
use operations::pool_guard;

/// A setting to write, and how its shell command quotes the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    knob: Knob,
    value: String,
    quote: &'static str,
}

/// Returns the settings to write for a request, in order. Writes nothing; rejects invalid values.
pub fn changes(context: &Context, request: &Request) -> Result<Vec<SettingChange>, Failure> {
    let mut changes = Vec::new();
    let mut change =
        |knob: Knob, value: String, quote| changes.push(SettingChange { knob, value, quote });
    if let Some(mode) = request.thp {
        change(Knob::thp_enabled(), mode.to_string(), "'");
    }
    let order = [
        KhugepagedKnob::PagesToScan,
        KhugepagedKnob::AllocSleepMillisecs,
        KhugepagedKnob::ScanSleepMillisecs,
    ];
    for knob in order {
        // The last occurrence of an option wins.
        let given = request.khugepaged.iter().rev().find(|(given, _)| *given == knob);
        if let Some((_, value)) = given {
            change(Knob::khugepaged(knob), value.to_string(), "'");
        }
    }
    if request.min_free
        && let Some(kbytes) = recommended_min_free(context)?
    {
        change(Knob::min_free_kbytes(), kbytes.to_string(), "\"");
    }
    if request.shmmax
        && let Some(bytes) = recommended_shmmax(context)?
    {
        change(Knob::shmmax(), bytes.to_string(), "\"");
    }
    if let Some(group) = &request.shm_group {
        let gid = mounts::group_id(context.root, group).map_err(refused)?;
        if group_name(context.root, gid).is_none() {
            context.voice.warn(format!("no group in /etc/group has the number {gid}"));
        }
        change(Knob::hugetlb_shm_group(), gid.to_string(), "\"");
    }
    Ok(changes)
}

impl SettingChange {
    /// Writes the setting, or prints the command in a dry run.
    pub fn grant(&self, context: &Context) -> Result<Completion, Failure> {
        let Self { knob, value, quote } = self;
        if context.dry_run {
            exit::print(&format!("echo {quote}{value}{quote} > {knob}\n"))?;
            return Ok(Completion::Full);
        }
        let mut journal = Journal::open(&pool_guard::journal_dir(), context.root)?;
        context.complain(journal.inherited());
        let written = journal.set(knob, value)?;
        journal.keep()?;
        context.voice.inform(format!("{knob} is {}", written.got));
        if !written.is_full() {
            context.voice.warn(format!("{knob} became {}, not {value}", written.got));
            return Ok(Completion::Part);
        }
        if let Some(name) = knob.path().strip_prefix("/proc/sys/") {
            let name = name.replace('/', ".");
            context.voice.inform(format!(
                "to make it stay, add this line to /etc/sysctl.conf: {name} = {value}"
            ));
        }
        Ok(Completion::Full)
    }
}

/// Returns the recommended min_free_kbytes in KiB; `None` if the current value is no smaller.
fn recommended_min_free(context: &Context) -> Result<Option<u64>, Failure> {
    let advised =
        pool::recommended_min_free(context.root).map_err(|error| refused(error.into()))?;
    let advised = advised.ok_or_else(|| {
        Failure::cannot("min_free_kbytes: this machine does not say how many zones it has")
    })?;
    Ok(above(context, &Knob::min_free_kbytes(), "min_free_kbytes", advised)?.then_some(advised))
}

/// Returns the recommended shmmax in bytes, which is what all pools may hold; `None` if the current value is no
/// smaller, as with the kernel's default.
fn recommended_shmmax(context: &Context) -> Result<Option<u64>, Failure> {
    let advised = pool_bytes(context.root);
    Ok(above(context, &Knob::shmmax(), "shmmax", advised)?.then_some(advised))
}

/// Returns the number of bytes that all pools may hold.
pub fn pool_bytes(root: &Root) -> u64 {
    let pools = HugetlbPools::read_sizes(root).into_iter();
    let bytes = pools.filter_map(|(size, pool)| Some((size, Bounds::from_pool(&pool)?.max)));
    bytes.fold(0, |sum, (size, max)| sum.saturating_add(max.saturating_mul(size.bytes())))
}

/// Returns whether `advised` exceeds the current value. A setting is never lowered, because others rely on it.
fn above(context: &Context, knob: &Knob, what: &str, advised: u64) -> Result<bool, Failure> {
    let now = knob.read(context.root)?;
    // A shmmax that does not fit into u64 counts as larger than `advised`.
    let is_below = now.parse::<u64>().is_ok_and(|now| now < advised);
    if !is_below {
        context
            .voice
            .warn(format!("{what} is {now}, no less than recommended ({advised}); left alone"));
    }
    Ok(is_below)
}

/// Returns the name of a group.
pub fn group_name(root: &Root, gid: u32) -> Option<String> {
    let text = root.read("/etc/group").ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split(':');
        let name = words.next()?;
        (words.nth(1)?.parse() == Ok(gid)).then(|| name.to_string())
    })
}

const TREAT_AS_MOVABLE: &str = "hugepages_treat_as_movable";

/// Sets whether pools use ZONE_MOVABLE: a setting before Linux 4.16, always on since.
pub fn zone_movable(context: &Context, able: bool) -> Result<Completion, Failure> {
    let knob = Knob::vm(TREAT_AS_MOVABLE).map_err(Failure::usage)?;
    if context.root.path(knob.path()).exists() {
        return SettingChange { knob, value: u8::from(able).to_string(), quote: "" }.grant(context);
    }
    let why = format!("{knob} is gone since Linux 4.16");
    if able {
        context.voice.warn(format!(
            "{why}: pages that the kernel can migrate come from ZONE_MOVABLE without it"
        ));
        return Ok(Completion::Full);
    }
    Err(Failure::cannot(format!(
        "{why}, and nothing keeps superpages out of ZONE_MOVABLE; boot without movablecore= and \
         kernelcore= to have no such zone"
    )))
}
