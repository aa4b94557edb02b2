//! `superpage pool boot`: prints boot-time configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;

use host::pool::boot::{self, BootPages, BootPool};
use host::pool::{Change, PoolError, PoolName, Spec, SpecError, Status};
use units::{NodeId, PageSize};

use crate::exit::{self, Done, Failure};

/// Print the configuration that creates pools at boot. Pages larger than the buddy allocator's largest block, such as
/// 1G, can be allocated reliably only at boot. Nothing is written. Without a SPEC, prints the configuration of the
/// current pools. For one NUMA node, write SIZE:NODE=PAGES.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pools: 1G:2, 2M:1G, or for nodes 1G:0=1 1G:1=2.
    #[arg(value_name = "SPEC")]
    specs: Vec<String>,

    /// Default page size, for programs that ask for none.
    #[arg(long, value_name = "SIZE", value_parser = super::pool_name)]
    default_size: Option<PoolName>,

    /// Output format.
    #[arg(long, value_enum, default_value = "command-line", value_name = "KIND")]
    format: Kind,

    /// File that the systemd unit passes to `superpage pool ensure`.
    #[arg(long, default_value = "/etc/superpage/pools.toml", value_name = "FILE")]
    file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// Kernel command line.
    CommandLine,
    /// A unit that runs `superpage pool ensure FILE`.
    Systemd,
    /// Lines for /etc/sysctl.d (the default size only).
    Sysctl,
    /// Lines for /etc/tmpfiles.d (every size).
    Tmpfiles,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if args.format == Kind::Systemd {
        let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("superpage"));
        let file = std::path::absolute(&args.file).unwrap_or(args.file);
        exit::print(&boot::systemd_unit(&own, &file))?;
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
    let text = match args.format {
        Kind::CommandLine => format!("{}\n", boot::command_line(&pools, default)),
        Kind::Tmpfiles => boot::tmpfiles(&pools),
        Kind::Sysctl => sysctl(&pools, default.or(status.and_then(|status| status.default)))?,
        Kind::Systemd => String::new(),
    };
    if text.trim().is_empty() {
        exit::say("every pool is empty; name pools, e.g. 1G:2");
        return Ok(Done::Fine);
    }
    exit::print(&text)?;
    Ok(Done::Fine)
}

fn size_of(name: PoolName, status: Option<&Status>) -> Result<PageSize, PoolError> {
    match (name, status) {
        (PoolName::Of(size), _) => Ok(size),
        (PoolName::Default, Some(status)) => status.size(name),
        (PoolName::Default, None) => Err(PoolError::NoHugetlb),
    }
}

fn read(specs: &[String], status: Option<&Status>) -> Result<Vec<BootPool>, Failure> {
    let mut pools: Vec<BootPool> = Vec::new();
    for text in specs {
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

fn sysctl(pools: &[BootPool], default: Option<PageSize>) -> Result<String, Failure> {
    let mut pages = None;
    for pool in pools {
        match &pool.pages {
            BootPages::Anywhere(count) if Some(pool.size) == default => pages = Some(*count),
            _ => {
                return Err(Failure::usage(format!(
                    "sysctl can only size the default pool on the whole machine, not {} pages{}; \
                     use --format tmpfiles",
                    pool.size,
                    if matches!(pool.pages, BootPages::OnNodes(_)) { " by node" } else { "" }
                )));
            }
        }
    }
    Ok(boot::sysctl(pages, &[]))
}
