//! `superpage exporter`: metrics of superpages, for Prometheus and other readers of OpenMetrics.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::Root;
use monitor::serve::{Address, Listener};
use monitor::{Budget, Metrics, Sample, Sampler};
use operations::jobs::arms::seconds;
use operations::signals::{self, Interrupting};

use crate::exit::{self, Done, Failure};
use crate::files::OwnFile;
use crate::progress::Progress;
use crate::targets::{self, TargetArgs};

/// Serve metrics of superpages: by unit and cgroup, and of the machine.
///
/// The metrics are OpenMetrics text, by default at http://127.0.0.1:9917/metrics. Page tables are read within a budget of
/// CPU time; a scrape gets the last sample. An ordinary user can read only their own processes; other processes are
/// counted. ^C and SIGTERM end the exporter.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    targets: TargetArgs,

    /// Address to listen on: IP:PORT, or unix:/PATH for a socket [default: 127.0.0.1:9917]
    #[arg(long, value_name = "ADDRESS", help_heading = "Options")]
    listen: Option<Address>,

    /// Write the metrics to FILE at every interval, for the textfile collector of node_exporter (FILE ends in .prom);
    /// does not listen unless --listen is given
    #[arg(long, value_name = "FILE", help_heading = "Options")]
    textfile: Option<PathBuf>,

    /// Take one sample, print it (or write it to --textfile), and end
    #[arg(long, conflicts_with = "listen", help_heading = "Options")]
    once: bool,

    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval, help_heading = "Options")]
    interval: Duration,

    /// CPU time for reading page tables, in percent of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent, help_heading = "Options")]
    budget: f64,
}

/// Parses the time between samples, 0.1 to 3600 seconds: `2`, `10s`, `1m`.
pub fn interval(text: &str) -> Result<Duration, String> {
    let seconds = seconds(text).ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    let duration = seconds.map(Duration::from_secs_f64);
    duration.ok_or_else(|| "expected a time from 0.1 to 3600 seconds, such as 10 or 1m".to_string())
}

/// Parses a budget in percent of one CPU: 0.01 to 100.
pub fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent| (0.01..=100.0).contains(percent));
    percent.ok_or_else(|| "expected 0.01 to 100 percent".to_string())
}

/// The sample that scrapes get.
type Shared = Arc<Mutex<Option<(Arc<Sample>, Instant, u64)>>>;

pub fn run(args: Args) -> Result<Done, Failure> {
    if let Some(path) = &args.textfile {
        check_name(path)?;
        textfile(path).check()?;
    }
    let root = Root::real();
    let targets = args.targets.targets();
    // A unit may start later than the exporter.
    if args.once {
        targets::check(&root, &targets)?;
    } else if let Err(failure) = targets::check(&root, &targets) {
        failure.lines().for_each(|line| exit::say(&format!("{line}; waiting for it")));
    }
    let listener = match (&args.listen, args.once || args.textfile.is_some()) {
        (Some(address), _) => Some(Listener::bind(address).map_err(Failure::cannot)?),
        (None, true) => None,
        (None, false) => {
            let address = Address::Tcp(([127, 0, 0, 1], 9917).into());
            Some(Listener::bind(&address).map_err(Failure::cannot)?)
        }
    };
    let interrupting = signals::interrupt_experiment(Arc::default())?;
    let mut sampler = Sampler::new(&root, targets);
    if args.once {
        return once(&args, &mut sampler, &interrupting);
    }
    let shared = Shared::default();
    let listener = listener.map(Arc::new);
    if let Some(listener) = &listener {
        serve(listener, &shared)?;
    }
    let result = keep_sampling(&args, &mut sampler, &interrupting, &shared);
    if let Some(listener) = listener {
        listener.remove();
    }
    result.map(|()| Done::Fine)
}

/// Takes and delivers one sample of every process.
fn once(args: &Args, sampler: &mut Sampler, asked: &Interrupting) -> Result<Done, Failure> {
    let sample = whole_sample(sampler, asked)?;
    let metrics = Metrics { sample: Arc::new(sample), age: Duration::ZERO, samples: 1 };
    match &args.textfile {
        Some(path) => textfile(path).write(metrics.prometheus())?,
        None => exit::print_exact(&metrics.open_metrics())?,
    }
    Ok(Done::Fine)
}

/// Takes a sample for which every process is read, with progress on standard error.
pub fn whole_sample(sampler: &mut Sampler, asked: &Interrupting) -> Result<Sample, Failure> {
    let mut progress = Progress::of_pass(false, "reading page tables");
    let mut more = |at: monitor::Progress| {
        progress.tell(at.done, Some(at.total), || "reading page tables".to_string());
        asked.received().is_none()
    };
    let sample = sampler.sample(Budget::All, &mut more).map_err(Failure::cannot);
    progress.clear();
    match asked.received() {
        Some(signal) => Err(Failure::interrupted(signal, "reading page tables")),
        None => sample,
    }
}

/// Answers scrapes in a thread, until the process ends.
fn serve(listener: &Arc<Listener>, shared: &Shared) -> Result<(), Failure> {
    let address = listener.address();
    match address {
        Address::Tcp(address) => exit::say(&format!("metrics at http://{address}/metrics")),
        Address::Unix(_) => exit::say(&format!("metrics at /metrics of {address}")),
    }
    if !address.is_local() {
        exit::say(
            "every client that reaches this address can read the names of units and cgroups, and their memory",
        );
    }
    let shared = Arc::clone(shared);
    let page = move || {
        let shared = shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (sample, at, samples) = shared.as_ref()?;
        let metrics = Metrics { sample: Arc::clone(sample), age: at.elapsed(), samples: *samples };
        drop(shared);
        Some(metrics.open_metrics())
    };
    let listener = Arc::clone(listener);
    let serving = move || listener.serve(Arc::new(page));
    std::thread::Builder::new().spawn(serving).map(drop).map_err(signals::no_thread)
}

fn keep_sampling(
    args: &Args,
    sampler: &mut Sampler,
    asked: &Interrupting,
    shared: &Shared,
) -> Result<(), Failure> {
    let budget = Budget::Cpu(args.interval.mul_f64(args.budget / 100.0));
    let mut is_written = false;
    for samples in 1.. {
        let began = Instant::now();
        let sample = sampler.sample(budget, &mut |_| asked.received().is_none());
        let (sample, taken) = (Arc::new(sample.map_err(Failure::cannot)?), Instant::now());
        *shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some((Arc::clone(&sample), taken, samples));
        if let Some(path) = &args.textfile {
            let metrics = Metrics { sample, age: Duration::ZERO, samples };
            match textfile(path).write(metrics.prometheus()) {
                // A file that could be written once may be so again: a full disk, for example.
                Err(failure) if is_written => {
                    failure.lines().for_each(exit::say);
                }
                result => result?,
            }
            is_written = true;
        }
        if !asked.sleep_until(began + args.interval) {
            return Ok(());
        }
    }
    Ok(())
}

/// Refuses a name that node_exporter ignores.
fn check_name(path: &Path) -> Result<(), Failure> {
    match path.extension().is_some_and(|extension| extension == "prom") {
        true => Ok(()),
        false => Err(Failure::usage(format!(
            "--textfile {}: node_exporter reads only files named NAME.prom; choose such a name",
            path.display()
        ))),
    }
}

/// The file for node_exporter's textfile collector. Only metrics of superpage are ever replaced.
fn textfile(path: &Path) -> OwnFile<'_> {
    OwnFile { path, start: b"# HELP superpage_", holds: "metrics of superpage" }
}
