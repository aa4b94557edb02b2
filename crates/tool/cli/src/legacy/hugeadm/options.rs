//! Parses the options of `hugeadm` into a [`Request`], and reports every error that depends only on the options.

use std::ffi::OsString;

use host::journal::KhugepagedKnob;
use host::pool::mounts::Owner;
use host::pool::{Spec, SpecError};
use units::ByteSize;

use crate::exit::Failure;
use crate::legacy::getopt::{self, Opt, Takes};
use crate::legacy::stop::Stop;
use crate::legacy::voice::Voice;

pub const HELP: &str = "\
hugeadm [options]: configure hugetlb pools, their mounts and related settings
options:
 --list-all-mounts          List the hugetlbfs mounts
 --pool-list                List the pools
 --page-sizes               Print the page sizes with a configured pool and a mount
 --page-sizes-all           Print the page sizes of all pools
 --explain                  Print everything, with advice
 --pool-pages-min <size|DEFAULT>:[+|-]<pages|bytes<K|M|G>>
                            Set, grow or shrink the minimum pages of a pool
 --pool-pages-max <size|DEFAULT>:[+|-]<pages|bytes<K|M|G>>
                            Set, grow or shrink the maximum pages of a pool
 --hard                     Retry, for up to 30 seconds without progress
 --obey-mempolicy           Use only the NUMA nodes of the memory policy
 --add-temp-swap[=<pages>]  Add a swap file while the pool grows (5 superpages)
 --add-ramdisk-swap         Add swap on /dev/ram* while the pool grows
 --persist                  Keep that swap
 --thp-always, --thp-madvise, --thp-never
                            Set which memory gets transparent superpages
 --thp-khugepaged-pages <pages>
 --thp-khugepaged-scan-sleep <milliseconds>
 --thp-khugepaged-alloc-sleep <milliseconds>
                            Set the pace of khugepaged
 --set-recommended-min_free_kbytes
                            Raise min_free_kbytes to the recommended value
 --set-recommended-shmmax   Raise shmmax to the size of all pools
 --set-shm-group <gid|groupname>
                            Set the group that may use hugetlb shared memory
 --enable-zone-movable, --disable-zone-movable
                            Only for kernels before 4.16
 --create-mounts            Mount every pool below /var/lib/hugetlbfs for root,
 --create-user-mounts <user>, --create-group-mounts <group>, --create-global-mounts
                            for a user, a group, everybody
 --max-size <bytes<K|M|G>>, --max-inodes <number>
                            Limit new mounts
 --dry-run, -d              Print the shell commands that would do it; do nothing
 --verbose [<level>], -v    Print more, or set the level (0 to 99)
 --help, -h                 Print this
Exit codes: 0 success; 1 failure, or only part was done.
";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    Help,
    Verbose,
    DryRun,
    ListAllMounts,
    PoolList,
    PageSizes,
    PageSizesAll,
    Explain,
    PoolPagesMin,
    PoolPagesMax,
    Hard,
    ObeyMempolicy,
    AddTempSwap,
    AddRamdiskSwap,
    Persist,
    Thp(&'static str),
    Khugepaged(KhugepagedKnob),
    MinFree,
    Shmmax,
    ShmGroup,
    ZoneMovable(bool),
    CreateMounts,
    CreateUserMounts,
    CreateGroupMounts,
    CreateGlobalMounts,
    MaxSize,
    MaxInodes,
}

const OPTIONS: &[Opt<Name>] = &[
    Opt::both("help", 'h', Takes::Nothing, Name::Help),
    Opt::both("verbose", 'v', Takes::PerhapsLevel, Name::Verbose),
    Opt::both("dry-run", 'd', Takes::Nothing, Name::DryRun),
    Opt::long("list-all-mounts", Takes::Nothing, Name::ListAllMounts),
    Opt::long("pool-list", Takes::Nothing, Name::PoolList),
    Opt::long("page-sizes", Takes::Nothing, Name::PageSizes),
    Opt::long("page-sizes-all", Takes::Nothing, Name::PageSizesAll),
    Opt::long("explain", Takes::Nothing, Name::Explain),
    Opt::long("pool-pages-min", Takes::Value, Name::PoolPagesMin),
    Opt::long("pool-pages-max", Takes::Value, Name::PoolPagesMax),
    Opt::long("hard", Takes::Nothing, Name::Hard),
    Opt::long("obey-mempolicy", Takes::Nothing, Name::ObeyMempolicy),
    // libhugetlbfs' manual has this name, but its program never accepted it.
    Opt::long("obey-numa-mempol", Takes::Nothing, Name::ObeyMempolicy),
    Opt::long("add-temp-swap", Takes::Perhaps, Name::AddTempSwap),
    Opt::long("add-ramdisk-swap", Takes::Nothing, Name::AddRamdiskSwap),
    Opt::long("persist", Takes::Nothing, Name::Persist),
    Opt::long("thp-always", Takes::Nothing, Name::Thp("always")),
    Opt::long("thp-madvise", Takes::Nothing, Name::Thp("madvise")),
    Opt::long("thp-never", Takes::Nothing, Name::Thp("never")),
    Opt::long("thp-khugepaged-pages", Takes::Value, Name::Khugepaged(KhugepagedKnob::PagesToScan)),
    Opt::long(
        "thp-khugepaged-scan-sleep",
        Takes::Value,
        Name::Khugepaged(KhugepagedKnob::ScanSleepMillisecs),
    ),
    Opt::long(
        "thp-khugepaged-alloc-sleep",
        Takes::Value,
        Name::Khugepaged(KhugepagedKnob::AllocSleepMillisecs),
    ),
    Opt::long("set-recommended-min_free_kbytes", Takes::Nothing, Name::MinFree),
    Opt::long("set-recommended-shmmax", Takes::Nothing, Name::Shmmax),
    Opt::long("set-shm-group", Takes::Value, Name::ShmGroup),
    Opt::long("enable-zone-movable", Takes::Nothing, Name::ZoneMovable(true)),
    Opt::long("disable-zone-movable", Takes::Nothing, Name::ZoneMovable(false)),
    Opt::long("create-mounts", Takes::Nothing, Name::CreateMounts),
    Opt::long("create-user-mounts", Takes::Value, Name::CreateUserMounts),
    Opt::long("create-group-mounts", Takes::Value, Name::CreateGroupMounts),
    Opt::long("create-global-mounts", Takes::Nothing, Name::CreateGlobalMounts),
    Opt::long("max-size", Takes::Value, Name::MaxSize),
    Opt::long("max-inodes", Takes::Value, Name::MaxInodes),
];

/// Which bound of a pool an option sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Minimum: persistent pages.
    Min,
    /// Maximum: persistent pages plus the overcommit limit.
    Max,
}

/// Temporary swap while a pool grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swap {
    /// A swap file with the size of this many superpages.
    File(u64),
    /// RAM disks.
    RamDisks,
}

/// All parsed options.
#[derive(Debug, Default)]
pub struct Request {
    pub dry_run: bool,
    pub list_mounts: bool,
    pub pool_list: bool,
    pub page_sizes: bool,
    pub page_sizes_all: bool,
    pub explain: bool,
    /// Adjustments in the order given, but minima before maxima, as in libhugetlbfs.
    pub adjustments: Vec<(Bound, Spec)>,
    pub hard: bool,
    pub obey_mempolicy: bool,
    pub swap: Option<Swap>,
    pub persist: bool,
    pub thp: Option<&'static str>,
    pub khugepaged: Vec<(KhugepagedKnob, u64)>,
    pub min_free: bool,
    pub shmmax: bool,
    pub shm_group: Option<String>,
    pub zone_movable: Option<bool>,
    pub mounts: Vec<Owner>,
    pub max_size: Option<ByteSize>,
    pub max_inodes: Option<u64>,
}

/// Parses the command line.
pub fn read(voice: &mut Voice, words: Vec<OsString>) -> Result<Request, Stop> {
    let read = getopt::read(OPTIONS, words)?;
    let mut request = Request::default();
    let mut asks = false;
    for (name, value) in read.options {
        let text = value.as_deref().unwrap_or_default();
        asks |= !matches!(name, Name::Verbose | Name::DryRun | Name::Hard);
        match name {
            Name::Help => return Err(Stop::Help),
            Name::Verbose => voice.raise(value.as_deref())?,
            Name::DryRun => request.dry_run = true,
            Name::ListAllMounts => request.list_mounts = true,
            Name::PoolList => request.pool_list = true,
            Name::PageSizes => request.page_sizes = true,
            Name::PageSizesAll => request.page_sizes_all = true,
            Name::Explain => request.explain = true,
            Name::PoolPagesMin => request.adjustments.push((Bound::Min, spec(text)?)),
            Name::PoolPagesMax => request.adjustments.push((Bound::Max, spec(text)?)),
            Name::Hard => request.hard = true,
            Name::ObeyMempolicy => request.obey_mempolicy = true,
            Name::AddTempSwap => {
                let pages = value.as_deref().map_or(Ok(5), |text| number("add-temp-swap", text))?;
                set_swap(&mut request, Swap::File(pages))?;
            }
            Name::AddRamdiskSwap => set_swap(&mut request, Swap::RamDisks)?,
            Name::Persist => request.persist = true,
            Name::Thp(mode) => {
                if let Some(other) = request.thp.filter(|other| *other != mode) {
                    let line = format!("--thp-{other} and --thp-{mode} exclude each other");
                    return Err(Failure::usage(line).into());
                }
                request.thp = Some(mode);
            }
            Name::Khugepaged(knob) => {
                let value = text.parse().map_err(|_| {
                    Failure::usage(format!("khugepaged: `{text}` is no number; write a whole one"))
                })?;
                request.khugepaged.push((knob, value));
            }
            Name::MinFree => request.min_free = true,
            Name::Shmmax => request.shmmax = true,
            Name::ShmGroup => request.shm_group = value,
            Name::ZoneMovable(able) => request.zone_movable = Some(able),
            Name::CreateMounts => request.mounts.push(Owner::Root),
            Name::CreateUserMounts => request.mounts.push(Owner::User(text.to_string())),
            Name::CreateGroupMounts => request.mounts.push(Owner::Group(text.to_string())),
            Name::CreateGlobalMounts => request.mounts.push(Owner::Everybody),
            Name::MaxSize => request.max_size = Some(size(text)?),
            Name::MaxInodes => request.max_inodes = Some(number("max-inodes", text)?),
        }
    }
    request.adjustments.sort_by_key(|(bound, _)| *bound == Bound::Max);
    if let Some(word) = read.rest.first() {
        return Err(Stop::Words(Failure::usage(format!("{word:?} is not an option"))));
    }
    if !asks {
        return Err(Stop::Words(Failure::usage("say what to do, such as --pool-list")));
    }
    request.check().map_err(Failure::usage)?;
    Ok(request)
}

impl Request {
    /// Returns whether the changes depend on the current pools.
    pub fn depends_on_pools(&self) -> bool {
        !self.adjustments.is_empty() || self.shmmax || self.min_free
    }

    fn check(&self) -> Result<(), &'static str> {
        let has_min = self.adjustments.iter().any(|(bound, _)| *bound == Bound::Min);
        if self.persist && self.swap.is_none() {
            Err(
                "--persist says that swap stays; give --add-temp-swap or --add-ramdisk-swap with it",
            )
        } else if self.swap.is_some() && !has_min {
            Err("swap is added while a pool grows; give --pool-pages-min with it")
        } else if (self.hard || self.obey_mempolicy) && self.adjustments.is_empty() {
            Err(
                "--hard and --obey-mempolicy say how a pool is resized; give --pool-pages-min with them",
            )
        } else if (self.max_size.is_some() || self.max_inodes.is_some()) && self.mounts.is_empty() {
            Err("--max-size and --max-inodes limit new mounts; give --create-mounts or one like it")
        } else {
            Ok(())
        }
    }
}

fn spec(text: &str) -> Result<Spec, Failure> {
    text.parse().map_err(|error| {
        // Keep libhugetlbfs' wording: scripts look for it.
        let old = match error {
            SpecError::NoColon(_) => "invalid resize specification",
            SpecError::BadPool(_) => "unknown page size",
            _ => "invalid adjustment",
        };
        Failure::usage(format!("{text}: {old}: {error}"))
    })
}

fn size(text: &str) -> Result<ByteSize, Failure> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.bytes() > 0 => Ok(size),
        Ok(_) => Err(Failure::usage("--max-size=0: a mount that can hold nothing is of no use")),
        Err(error) => Err(Failure::usage(format!("--max-size: {error}"))),
    }
}

fn number(option: &str, text: &str) -> Result<u64, Failure> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        Failure::usage(format!("--{option}={text}: write a whole number above zero"))
    })
}

fn set_swap(request: &mut Request, swap: Swap) -> Result<(), Failure> {
    if request.swap.is_some_and(|other| other != swap) {
        return Err(Failure::usage("swap is wanted in two ways; choose one"));
    }
    request.swap = Some(swap);
    Ok(())
}

#[cfg(test)]
mod tests {
    use host::pool::{Amount, Change, PoolName};
    use units::PageSize;

    use super::*;

    fn read_line(line: &str) -> Result<Request, Stop> {
        let words = line.split_whitespace().map(OsString::from).collect();
        read(&mut Voice::new("hugeadm"), words)
    }

    #[test]
    fn bounds_are_read_and_minima_come_first() {
        let line = "--pool-pages-max DEFAULT:+1G --pool-pages-min 2M:3 --pool-pages-min=1G:-2";
        let of = |bytes| PoolName::Of(PageSize::new(bytes).unwrap());
        let expected = [
            (Bound::Min, of(2 << 20), Change::To(Amount::Pages(3))),
            (Bound::Min, of(1 << 30), Change::Shrink(Amount::Pages(2))),
            (Bound::Max, PoolName::Default, Change::Grow(Amount::Bytes(ByteSize::gib(1)))),
        ];
        let expected = expected.map(|(bound, pool, change)| (bound, Spec { pool, change }));
        assert_eq!(read_line(line).unwrap().adjustments, expected);
    }

    #[test]
    fn bounds_that_are_none_are_refused_in_the_words_that_scripts_look_for() {
        for (line, part) in [
            ("--pool-pages-min 2M", "2M: invalid resize specification"),
            ("--pool-pages-min banana:1", "banana:1: unknown page size"),
            ("--pool-pages-min 2M:banana", "2M:banana: invalid adjustment"),
            ("--pool-pages-max 2M:", "2M:: invalid adjustment"),
            ("--pool-pages-min 2M:10Q", "2M:10Q: invalid adjustment"),
            ("--pool-pages-min", "requires an argument"),
        ] {
            let why = format!("{:?}", read_line(line).unwrap_err());
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
