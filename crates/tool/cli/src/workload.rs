//! `superpage workload`: one benchmark kernel, alone.

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::ops::Range;

use host::{MemInfo, Root, coverage};
use launch::Word;
use sys::pagemap::Pagemap;
use units::ByteSize;
use workload::{Details, Options, Outcome, Settings, Workload};

use crate::exit::{self, Done, Failure};

/// Run a built-in workload and verify its result.
///
/// Prints one line of JSON; on a terminal, a summary before it. Without a name, lists the workloads.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Workload to run.
    name: Option<Workload>,

    /// Print only JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    workload: WorkloadArgs,
}

/// What a kernel works on; `compare` takes the same flags.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Workload options")]
pub struct WorkloadArgs {
    /// Memory to work on [default: 1G].
    #[arg(long, value_name = "SIZE", allow_negative_numbers = true)]
    size: Option<ByteSize>,

    /// Seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Threads.
    #[arg(long, default_value = "1", value_name = "N", value_parser = threads)]
    threads: NonZeroUsize,

    #[command(flatten)]
    options: Options,
}

/// Reads a number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    text.trim().parse().map_err(|_| "expected a number of threads, at least 1".to_string())
}

impl WorkloadArgs {
    /// The settings of `workload`, checked against this machine's free memory.
    pub fn settings(&self, workload: Workload) -> Result<Settings, Failure> {
        let settings = Settings {
            size: self.size.unwrap_or(workload.default_size()),
            seed: self.seed,
            threads: self.threads,
            options: self.options.clone(),
        };
        check(workload, &settings)?;
        Ok(settings)
    }

    /// The same without the options that `workload` lacks: for flags given to several workloads.
    pub fn for_workload(&self, workload: Workload) -> Self {
        Self { options: self.options.for_workload(workload), ..self.clone() }
    }

    /// The same with an option set to a value, by the option's own parser.
    pub fn with(&self, option: &str, value: &str) -> Result<Self, Failure> {
        #[derive(clap::Parser)]
        #[command(no_binary_name = true, args_override_self = true)]
        struct Only {
            #[command(flatten)]
            args: WorkloadArgs,
        }
        let mut words =
            vec![format!("--seed={}", self.seed), format!("--threads={}", self.threads)];
        words.extend(self.size.map(|size| format!("--size={}", size.to_exact())));
        words.extend(self.options.to_arguments());
        words.push(format!("--{option}={value}"));
        let parsed = <Only as clap::Parser>::try_parse_from(words);
        parsed.map(|only| only.args).map_err(|error| {
            let said = error.to_string();
            let line = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Failure::usage(format!("--vary {option}={value}: {line}"))
        })
    }

    /// Whether any flag was given that only a workload has.
    pub fn is_given(&self) -> bool {
        self.size.is_some() || self.threads.get() > 1 || self.options != Options::default()
    }
}

/// Whether `workload` can run so, with this machine's free memory.
pub fn check(workload: Workload, settings: &Settings) -> Result<(), Failure> {
    let available = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
    workload.check(settings, available).map_err(Failure::usage)
}

/// The words that run `workload` in a process of its own: ourselves, with its settings.
pub fn command(workload: Workload, settings: &Settings) -> Result<Vec<Word>, Failure> {
    let own = crate::lab::superpage()?;
    let mut words = vec![own.display().to_string(), "workload".into(), workload.to_string()];
    words.extend(["--size".into(), settings.size.to_exact()]);
    words.extend(["--seed".into(), settings.seed.to_string()]);
    words.extend(["--threads".into(), settings.threads.to_string()]);
    words.extend(settings.options.to_arguments());
    words.push("--json".to_string());
    Ok(words.into_iter().map(Word::from).collect())
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let Some(workload) = args.name else { return list(args.json) };
    let settings = args.workload.settings(workload)?;
    let outcome = workload.run_seen(&settings, &on_superpages).map_err(Failure::usage)?;
    if !args.json && std::io::stdout().is_terminal() {
        exit::print(&summary(&outcome))?;
    }
    exit::print(&format!("{}\n", outcome.to_line()))?;
    Ok(Done::Fine)
}

/// Bytes of a range of our own memory that are on superpages.
fn on_superpages(range: Range<u64>) -> Option<u64> {
    let page = sys::param::page_size();
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let found = coverage::scan(&pagemap, page.floor(range.start), page.ceil(range.end)).ok()?;
    Some(found.huge.bytes().min(range.end - range.start))
}

fn list(json: bool) -> Result<Done, Failure> {
    if json {
        let all: Vec<_> = Workload::ALL
            .iter()
            .map(|one| {
                serde_json::json!({
                    "name": one.name(),
                    "summary": one.summary(),
                    "default_size_bytes": one.default_size().bytes(),
                    "options": one.options(),
                })
            })
            .collect();
        let document = serde_json::json!({ "schema": "superpage.workloads/1", "workloads": all });
        exit::print(&format!("{document:#}\n"))?;
    } else {
        for one in Workload::ALL {
            exit::print(&format!("{:<10} {}\n", one.name(), one.summary()))?;
        }
    }
    Ok(Done::Fine)
}

fn summary(outcome: &Outcome) -> String {
    let figure = &outcome.figure;
    let mut text = format!(
        "{}: {} {} {} ({}, {} thread(s), seed {}; setup {:.2} s, timed {:.3} s, verified in {:.2} s)\n",
        outcome.workload,
        figure.name,
        report::format::figure(figure.value),
        figure.unit,
        ByteSize(outcome.size_bytes),
        outcome.threads,
        outcome.seed,
        outcome.setup_seconds,
        outcome.seconds,
        outcome.verify_seconds
    );
    if let Details::Touch {
        gib,
        repeat,
        lines,
        user_seconds,
        system_seconds,
        wall_seconds,
        faults_per_cpu_second,
        faults_per_wall_second,
        ..
    } = &outcome.details
    {
        let known = |value: &Option<f64>, digits| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "?".to_string(),
        };
        text += " Gb Rep Threads CLine     User   System     Wall  flt/cpu/s fault/wsec\n";
        text += &format!(
            "{gib:>3} {repeat:>3} {:>7} {lines:>5} {:>8} {:>8} {wall_seconds:>8.3} {:>10} {:>10}\n",
            outcome.threads,
            known(user_seconds, 3),
            known(system_seconds, 3),
            known(faults_per_cpu_second, 0),
            known(faults_per_wall_second, 0)
        );
    }
    text
}
