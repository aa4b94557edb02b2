//! `superpage pool set`, `grow`, `shrink`: resize pools.

use host::Root;
use host::pool::{
    self, Amount, Applied, Change, Compaction, HeadroomRule, Options, Request, Shortage, Spec,
};
use serde_json::json;
use units::NodeId;

use super::progress::Watcher;
use super::show;
use crate::exit::{self, Done, Failure};

/// Resize pools: SIZE:AMOUNT sets, SIZE:+AMOUNT grows, SIZE:-AMOUNT shrinks.
///
/// Refuses sizes that cannot fit into memory. Growing compacts memory if needed and continues while it makes progress;
/// the result is read back. A pool that got only part of the pages keeps them, and the exit code is 1.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Pools and amounts: 2M:+512M, 1G:2, default:-25%.
    #[arg(required = true, value_name = "SPEC")]
    specs: Vec<String>,

    #[command(flatten)]
    how: How,
}

/// Help of `grow` for SPEC.
pub const GROW_SPEC: &str = "Pools, and by how much they grow: 2M:512M, 1G:2, default:25%";
/// Help of `shrink` for SPEC.
pub const SHRINK_SPEC: &str = "Pools, and by how much they shrink: 2M:512M, 1G:2, default:25%";

/// Flags of resizing pools; shared with `ensure`.
#[derive(Debug, clap::Args)]
pub struct HowMuch {
    /// All or nothing: if any pool gets only a part, restore every pool.
    #[arg(long)]
    pub or_nothing: bool,

    /// Try even if the pages cannot fit; some memory is still kept free.
    #[arg(long)]
    pub force: bool,

    /// Do not compact memory first.
    #[arg(long)]
    pub no_compact: bool,

    /// Print what would be done; change nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// Do not print progress or a report.
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Debug, clap::Args)]
struct How {
    /// NUMA node to change [default: all].
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    #[command(flatten)]
    much: HowMuch,
}

impl HowMuch {
    pub fn options(&self) -> Options {
        Options {
            headroom: if self.force { HeadroomRule::Force } else { HeadroomRule::Check },
            compaction: if self.no_compact { Compaction::Never } else { Compaction::WhenNeeded },
            shortage: if self.or_nothing { Shortage::GiveBack } else { Shortage::Keep },
        }
    }
}

/// Which of the three commands runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Set,
    Grow,
    Shrink,
}

impl Verb {
    /// Parses a SPEC: `grow 2M:5` means `set 2M:+5`.
    fn read(self, text: &str) -> Result<Spec, Failure> {
        let spec: Spec = text.parse().map_err(pool::PoolError::from)?;
        let amount = |change: Change| -> Result<Amount, Failure> {
            match (self, change) {
                (_, Change::To(amount)) => Ok(amount),
                (Self::Grow, Change::Grow(amount)) => Ok(amount),
                (Self::Shrink, Change::Shrink(amount)) => Ok(amount),
                (Self::Shrink, _) => Err(takes_no_sign(text, "shrink", "grow")),
                _ => Err(takes_no_sign(text, "grow", "shrink")),
            }
        };
        let change = match self {
            Self::Set => spec.change,
            Self::Grow => Change::Grow(amount(spec.change)?),
            Self::Shrink => Change::Shrink(amount(spec.change)?),
        };
        Ok(Spec { change, ..spec })
    }
}

fn takes_no_sign(text: &str, verb: &str, other: &str) -> Failure {
    Failure::usage(format!(
        "invalid change `{text}`: `pool {verb}` takes how much, without + or -, e.g. 2M:512 or 2M:1G; the opposite is \
         `pool {other}`"
    ))
}

pub fn run(args: Args, verb: Verb) -> Result<Done, Failure> {
    let specs = args.specs.iter().map(|text| verb.read(text));
    let specs = specs.collect::<Result<Vec<_>, Failure>>()?;
    let How { node, much } = args.how;
    if !much.dry_run {
        super::restore_orphaned();
    }
    let status = super::status()?;
    let requests = pool::resolve(&status, &specs, node.map(NodeId))?;
    if !much.force {
        pool::check_headroom(&Root::real(), &status, &requests)?;
    }
    if much.dry_run {
        return pretend(&requests, &much);
    }
    let mut watcher = Watcher::new(much.quiet)?;
    let dir = super::journal_dir();
    let done = pool::apply(&Root::real(), dir.as_ref(), &requests, much.options(), &mut |step| {
        watcher.step(step)
    })?;
    report(&done, &much)?;
    Ok(watcher.end(if done.is_full() { Done::Fine } else { Done::Negative }))
}

fn pretend(requests: &[Request], how: &HowMuch) -> Result<Done, Failure> {
    if how.json {
        let body = json!({ "dry_run": true, "requests": requests });
        super::print_json("superpage.pool-change/1", body)?;
    } else {
        for request in requests {
            let would = if request.before == request.target { "" } else { "would change " };
            exit::print(&format!("{would}{}\n", show::intention(request)))?;
        }
    }
    super::say_if_root_is_needed();
    Ok(Done::Fine)
}

fn report(done: &Applied, how: &HowMuch) -> Result<(), Failure> {
    super::complain(&done.inherited);
    if how.json {
        let body = json!({
            "dry_run": false, "complete": done.is_full(), "outcomes": done.outcomes,
            "given_back": done.given_back,
        });
        return super::print_json("superpage.pool-change/1", body);
    }
    if how.quiet && done.is_full() {
        return Ok(());
    }
    for outcome in &done.outcomes {
        exit::print(&format!("{}\n", show::outcome(outcome)))?;
    }
    given_back(done.given_back.as_deref())
}

/// Prints the settings that were restored.
pub fn given_back(restored: Option<&[host::journal::Restoration]>) -> Result<(), Failure> {
    for restoration in restored.unwrap_or_default() {
        exit::print(&format!("restored {restoration}\n"))?;
    }
    Ok(())
}
