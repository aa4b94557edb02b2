//! `superpage pool boot`: prints boot-time configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use host::pool::boot::{self, Applied, BootPages, BootPool};
use host::pool::mounts::{self, Limits, Owner};
use host::pool::{Amount, Change, PoolError, PoolName, Spec, SpecError, Status, exact};
use units::{ByteSize, NodeId, PageSize};

use crate::exit::{self, Done, Failure};

/// Print the configuration that creates pools at boot. Pages larger than the buddy allocator's largest block, such as
/// 1G, can be allocated reliably only at boot. Nothing is written. Without a SPEC, prints the configuration of the
/// current pools. For one NUMA node, write SIZE:NODE=PAGES.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pools: 1G:2, 2M:1G, or for nodes 1G:0=1,1=2; several as words, or with commas (2M:512,1G:4).
    #[arg(value_name = "SPEC")]
    specs: Vec<String>,

    /// Default page size, for programs that ask for none (kernel command line, sysctl).
    #[arg(long, value_name = "SIZE", value_parser = super::pool_name)]
    default_size: Option<PoolName>,

    /// Output format.
    #[arg(long, value_enum, default_value = "command-line", value_name = "KIND")]
    format: Kind,

    /// File that the systemd unit passes to `superpage pool ensure` if no SPEC is given
    /// [default: /etc/superpage/pools.toml].
    #[arg(long, value_name = "FILE", conflicts_with = "specs")]
    file: Option<PathBuf>,

    /// Reserve all pages of the pool for the mount (min_size=); for the formats fstab and mount.
    #[arg(long)]
    reserve: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Kernel command line.
    #[value(alias = "kernel")]
    CommandLine,
    /// A unit that runs `superpage pool set`, or without a SPEC `superpage pool ensure FILE`.
    Systemd,
    /// Lines for /etc/sysctl.d (the default size only; others as comments).
    Sysctl,
    /// Lines for /etc/tmpfiles.d (every size).
    Tmpfiles,
    /// Lines for /etc/fstab that mount hugetlbfs, as large as each pool.
    Fstab,
    /// systemd mount units of hugetlbfs, as large as each pool.
    Mount,
}

impl Kind {
    fn takes_default_size(self) -> bool {
        matches!(self, Self::CommandLine | Self::Sysctl)
    }

    fn is_mount(self) -> bool {
        matches!(self, Self::Fstab | Self::Mount)
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let kind = args.format;
    if args.default_size.is_some() && !kind.takes_default_size() {
        return Err(Failure::usage(
            "--default-size is set on the kernel command line only; leave it away, or use --format command-line",
        ));
    }
    if args.reserve && !kind.is_mount() {
        return Err(Failure::usage("--reserve is for mounts: use --format fstab or mount"));
    }
    if args.file.is_some() && kind != Kind::Systemd {
        return Err(Failure::usage("--file is for a unit: use --format systemd"));
    }
    let has_control = |path: &PathBuf| path.to_string_lossy().contains(char::is_control);
    if let Some(file) = args.file.as_ref().filter(|file| has_control(file)) {
        let name = report::format::name(&file.to_string_lossy(), 80);
        return Err(Failure::usage(format!(
            "--file {name}: a unit cannot name a file with a control character; rename the file"
        )));
    }
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("superpage"));
    if kind == Kind::Systemd && args.specs.is_empty() {
        let file = args.file.unwrap_or_else(|| PathBuf::from("/etc/superpage/pools.toml"));
        let file = std::path::absolute(&file).unwrap_or(file);
        exit::print(&boot::systemd_unit(&own, &Applied::File(&file)))?;
        return Ok(Done::Fine);
    }
    // The configuration may be for another machine: accept named sizes that this machine lacks.
    let status = Status::read(&host::Root::real()).ok();
    let pools = if args.specs.is_empty() {
        as_now(&super::status()?)
    } else {
        read(&args.specs, status.as_ref())?
    };
    let size = |name: PoolName| size_of(name, status.as_ref());
    let default = args.default_size.map(size).transpose()?;
    if let Some(size) = default {
        check_size(size, status.as_ref()).map_err(|error| error.on("--default-size"))?;
    }
    let mut done = Done::Fine;
    let text = match kind {
        Kind::CommandLine => format!("{}\n", boot::command_line(&pools, default)),
        Kind::Tmpfiles => boot::tmpfiles(&pools),
        Kind::Sysctl => {
            let lines = boot::sysctl(&pools, default.or(status.and_then(|status| status.default)));
            for pool in &lines.missing {
                done = Done::Negative;
                exit::say(&format!(
                    "sysctl sizes only the pool of the default page size on the whole machine; {} pages need \
                     `{}` on the kernel command line, or --format tmpfiles",
                    pool.size,
                    pool.kernel_words()
                ));
            }
            lines.text
        }
        Kind::Systemd if pools.is_empty() => String::new(),
        Kind::Systemd => boot::systemd_unit(&own, &Applied::Pools(&pools)),
        Kind::Fstab | Kind::Mount => mounts_of(&pools, kind, args.reserve)?,
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("every pool is empty; name pools, e.g. 2M:512 or 1G:2"));
    }
    exit::print(&text)?;
    Ok(done)
}

/// Lines or units that mount hugetlbfs with `size=` of each pool, and with `min_size=` if `reserve`.
fn mounts_of(pools: &[BootPool], kind: Kind, reserve: bool) -> Result<String, Failure> {
    let mut text = String::new();
    for pool in pools.iter().filter(|pool| pool.total() > 0) {
        let bytes = ByteSize(pool.total().saturating_mul(pool.size.bytes()));
        let limits = Limits { size: Some(bytes), min_size: reserve.then_some(bytes), inodes: None };
        let plan = mounts::plan(&host::Root::real(), &Owner::Everybody, pool.size, limits)?;
        if reserve {
            text += &format!(
                "# min_size: the mount needs {} free pages when it is made. Size the pool before: {}\n",
                pool.total(),
                pool.kernel_words()
            );
        }
        match kind {
            Kind::Fstab => text += &mounts::fstab_line(&plan),
            _ => {
                let (name, unit) = mounts::systemd_mount(&plan);
                text += &format!("# /etc/systemd/system/{name}\n{unit}\n");
            }
        }
    }
    Ok(text)
}

fn size_of(name: PoolName, status: Option<&Status>) -> Result<PageSize, PoolError> {
    match (name, status) {
        (PoolName::Of(size), _) => Ok(size),
        (PoolName::Default, Some(status)) => status.size(name),
        (PoolName::Default, None) => Err(PoolError::NoHugetlb),
    }
}

/// Refuses a page size that this machine lacks, and that no machine of its architecture has.
fn check_size(size: PageSize, status: Option<&Status>) -> Result<(), Failure> {
    let possible = boot::sizes_of_architecture();
    let is_here = status.is_some_and(|status| status.pools.sizes.contains_key(&size));
    if possible.is_empty() || possible.contains(&size) || is_here {
        return Ok(());
    }
    let possible: Vec<String> = possible.iter().map(|size| exact(size.bytes())).collect();
    Err(Failure::usage(format!(
        "no {} machine has huge pages of {size}; give one of {}",
        std::env::consts::ARCH,
        possible.join(", ")
    )))
}

/// The specs of all words: commas separate them. A part without a page size names another node: `1G:0=1,1=2`.
fn parts(words: &[String]) -> Vec<String> {
    let mut parts = Vec::new();
    for word in words {
        let mut size = "";
        for part in word.split(',') {
            match part.split_once(':') {
                Some((before, _)) => {
                    size = before;
                    parts.push(part.to_string());
                }
                None if part.contains('=') && !size.is_empty() => {
                    parts.push(format!("{size}:{part}"));
                }
                None => parts.push(part.to_string()),
            }
        }
    }
    parts
}

fn read(words: &[String], status: Option<&Status>) -> Result<Vec<BootPool>, Failure> {
    let mut pools: Vec<BootPool> = Vec::new();
    for text in &parts(words) {
        // In `1G:0=2`, node 0 gets two pages.
        let on_node = text.split_once(':').and_then(|(size, rest)| {
            let (node, pages) = rest.split_once('=')?;
            Some((format!("{size}:{pages}"), node.parse::<u32>().ok().map(NodeId)))
        });
        let bad = || PoolError::from(SpecError::BadAmount(text.clone()));
        let (spec, node) = match on_node {
            None => (text.clone(), None),
            Some((_, None)) => return Err(bad().into()),
            Some((spec, node)) => (spec, node),
        };
        let spec: Spec = spec.parse().map_err(PoolError::from)?;
        let Change::To(amount) = spec.change else { return Err(bad().into()) };
        let size = size_of(spec.pool, status)?;
        check_size(size, status).map_err(|error| error.on(text))?;
        if matches!(amount, Amount::Percent(_)) {
            return Err(Failure::usage(format!(
                "{text}: there is no pool before the boot to take a share of; give pages (512) or bytes (1G)"
            )));
        }
        let pages = amount.pages(size, 0).map_err(PoolError::from)?;
        let there = pools.iter_mut().find(|pool| pool.size == size);
        match (there.map(|pool| &mut pool.pages), node) {
            (Some(BootPages::OnNodes(nodes)), Some(node)) if !nodes.contains_key(&node) => {
                nodes.insert(node, pages);
            }
            (Some(_), _) => return Err(PoolError::from(SpecError::Twice(size)).into()),
            (None, Some(node)) => {
                let pages = BootPages::OnNodes(BTreeMap::from([(node, pages)]));
                pools.push(BootPool { size, pages });
            }
            (None, None) => pools.push(BootPool { size, pages: BootPages::Anywhere(pages) }),
        }
        if let Some(pool) = pools.iter().find(|pool| !pool.is_possible()) {
            return Err(Failure::usage(format!(
                "{text}: the pool of {} pages would have more than {}, which no machine has; give fewer pages",
                pool.size,
                ByteSize(boot::MAX_BYTES)
            )));
        }
    }
    Ok(pools)
}

fn as_now(status: &Status) -> Vec<BootPool> {
    let sizes = status.pools.sizes.iter();
    let pools = sizes.filter_map(|(size, pool)| {
        let pages = pool.persistent().filter(|pages| *pages > 0)?;
        Some(BootPool { size: *size, pages: BootPages::Anywhere(pages) })
    });
    pools.collect()
}
