//! `superpage lab validate`: runs the same designs live and simulated, and compares the results.

mod csv;
mod measured;
mod programs;
mod words;

use std::path::{Path, PathBuf};

use cli::exit::{self, Done, Failure};
use design::Design;
use experiment::document::Document;
use experiment::fragment::{Extent, Kind};
use host::{MemInfo, Root};
use lab::sweep::NamedInput;
use lab::validation::{AsLive, Compared, Row, SCHEMA, Side, Validation};
use launch::Executor;
use mm_sim::Layout;
use mm_sim::fragment::Fragmentation;
use operations::design::{as_live, load as load_design};
use operations::jobs::JobOutcome;
use operations::live_runs::LiveRuns;
use report::document;
use serde::{Deserialize, Serialize};
use sys::scratch::Scratch;
use units::ByteSize;

use self::programs::Candidate;
use crate::outputs::Outputs;
use crate::simulate::Parts;
use crate::what;

/// Name of the design to which all ratios refer.
const BASE: &str = "base";

/// Run designs live and in the laboratory, and print how far the laboratory is off.
///
/// Each workload runs live under each design, alternating with base pages, as `superpage compare` does; then it is
/// simulated on a machine like this one. superpage applies designs that no kernel has from outside the program, which
/// takes root. The live form of a design may differ from it (a copy where FreeBSD maps in place): the laboratory
/// simulates both.
#[derive(Debug, clap::Args)]
#[command(after_long_help = words::COLUMNS, after_help = words::COLUMNS)]
pub struct Args {
    /// A design: a name (see `superpage design list`) or a file; repeatable. Base pages are always run.
    #[arg(long = "design", short, value_name = "DESIGN", required_unless_present_any = ["from", "suite"])]
    designs: Vec<String>,

    /// A workload with its options (gups:size=1G) that has a live kernel: gups, chase, stream, touch, pagerank, btree,
    /// hashmap; repeatable. Missing options have the live workload's defaults.
    #[arg(long = "workload", short, value_name = "WORKLOAD", required_unless_present_any = ["from", "suite", "programs"])]
    workloads: Vec<String>,

    /// A program with its arguments, as one word; repeatable. It is recorded once (`superpage record`), and the recording
    /// is simulated. Its time is the CPU time of its run.
    #[arg(long = "program", value_name = "COMMAND")]
    programs: Vec<String>,

    /// The kernels and programs of the suite, on fresh memory, frag-100 and pinned-100, under linux-6-always: unless
    /// -d or -f say otherwise. Programs that are not installed are left out, by name.
    #[arg(long, conflicts_with_all = ["workloads", "programs"])]
    suite: bool,

    /// Directory in which recordings are kept, and found again [default: none are kept].
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,

    /// The simulated machine: `this` for the values measured by `superpage tlb --save` and `superpage bench --save`, a
    /// name (see `superpage lab machines`), or a file.
    #[arg(long, short, value_name = "MACHINE", default_value = tlb_probe::THIS)]
    machine: String,

    /// Memory of the simulated machine [default: this machine's without its hugetlb pools].
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,

    /// How free memory is fragmented, live and simulated: none, frag-L (L per cent of the superpages that the workload
    /// needs are not free, by movable pages), pinned-L (L per cent of all superpages hold a page that cannot be moved);
    /// repeatable [default: none].
    #[arg(long = "fragmentation", short, value_name = "HOW")]
    fragmentations: Vec<String>,

    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = what::SEED)]
    seed: u64,

    /// How superpages are made live of reservations, for designs that have them: collapse (copied) or in-place (as
    /// `superpage run --executor`).
    #[arg(long, value_name = "KIND", default_value_t, value_parser = executor)]
    executor: Executor,

    /// Live runs of each design, made in pairs.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..=1000))]
    runs: u32,

    /// Maximum time for the live runs of each workload: 90s, 5m, 1h.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = operations::jobs::arms::seconds)]
    max_time: f64,

    /// Print what would be run; run nothing.
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    dry_run: bool,

    /// Exit with 1: off: a speed-up is off by more than --within, with the program's own work as live; order: two
    /// designs are in the other order live. Compares designs as carried out live. Repeatable.
    #[arg(long, value_enum, value_name = "WHAT")]
    fail_if: Vec<FailIf>,

    /// How far a speed-up may be off, for --fail-if off.
    #[arg(long, value_name = "SHARE", default_value = "25%", value_parser = operations::jobs::arms::share)]
    within: f64,

    /// Print again a validation from a file that --json wrote; nothing is run.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["designs", "workloads", "programs", "suite", "traces", "machine", "memory", "fragmentations", "seed", "executor", "runs", "max_time", "live", "dry_run"])]
    from: Option<PathBuf>,

    /// Simulate again, and compare with the live runs in a file that --json wrote; nothing is run live.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "executor", "runs", "max_time"])]
    live: Option<PathBuf>,

    /// Print CSV: a line for each design live, as written, and as carried out live.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    csv: bool,

    #[command(flatten)]
    outputs: Outputs,
}

/// Results that make the exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FailIf {
    Off,
    Order,
}

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    validation: &'a Validation,
    /// One document per workload: `superpage.compare/1`.
    live: &'a [Document],
}

pub fn run(args: Args) -> Result<Done, Failure> {
    args.outputs.check()?;
    let (validation, live, signal) = match &args.from {
        Some(path) => {
            let (validation, live) = read(path)?;
            (validation, live, None)
        }
        None => {
            let scratch;
            let traces = match &args.traces {
                Some(directory) => directory.as_path(),
                None => {
                    scratch = Scratch::new(None).map_err(Failure::usage)?;
                    scratch.path()
                }
            };
            let earlier = args.live.as_deref().map(|path| Ok::<_, Failure>((path, read(path)?)));
            let earlier = earlier.transpose()?;
            let experiments = args.experiments(traces)?;
            if args.dry_run {
                experiments.iter().try_for_each(|one| one.describe(args.live.is_none()))?;
                return Ok(Done::Fine);
            }
            let made = args.make(&experiments, earlier.as_ref())?;
            if let (true, Some(signal)) = (made.validation.workloads.is_empty(), made.signal) {
                exit::say("interrupted before every design had two runs: nothing to compare");
                return Ok(Done::Signal(signal));
            }
            (made.validation, made.live, made.signal)
        }
    };
    let text = words::text(&validation);
    let printed = match (args.outputs.is_json() && !args.csv, args.csv) {
        (true, _) => exit::to_json(&Whole { validation: &validation, live: &live })?,
        (_, true) => csv::lines(&validation),
        (false, false) => text.clone(),
    };
    args.outputs.deliver(&printed, |is_page| match is_page {
        true => lab::plot::validation_page(&validation, &text),
        false => lab::plot::validation(&validation),
    })?;
    Ok(match signal {
        Some(signal) => Done::Signal(signal),
        None if args.has_failed(&validation) => Done::Negative,
        None => Done::Fine,
    })
}

/// An earlier result, and its file.
type Earlier<'a> = (&'a Path, (Validation, Vec<Document>));

struct Made {
    validation: Validation,
    live: Vec<Document>,
    signal: Option<i32>,
}

struct One {
    name: String,
    live: LiveRuns,
    parts: Parts,
    /// The designs, each with its live form if that differs.
    designs: Vec<(NamedInput, Option<Design>)>,
}

/// Fragmentations of the suite.
const STATES: [&str; 3] = ["none", "frag-100", "pinned-100"];
/// The design of the suite: the kernel's THP.
const SUITE_DESIGN: &str = "linux-6-always";

impl Args {
    fn experiments(&self, traces: &Path) -> Result<Vec<One>, Failure> {
        let designs: Vec<String> = match self.designs.is_empty() {
            true => vec![SUITE_DESIGN.to_string()],
            false => self.designs.clone(),
        };
        let inputs = what::several(&designs, "design", what::design)?;
        if inputs.iter().any(|design| design.name == BASE) {
            return Err(Failure::usage("base pages are always run; leave `base` away"));
        }
        let kernels = self.kernels()?;
        let machine = what::machine(&self.machine)?;
        let memory = match self.memory {
            Some(memory) => memory,
            None => own_memory()?,
        };
        let carried = |(input, word): (&NamedInput, &String)| {
            Ok((input.clone(), as_live(&load_design(word)?.design, self.executor)?))
        };
        let carried: Vec<_> =
            inputs.iter().zip(&designs).map(carried).collect::<Result<_, Failure>>()?;
        let named = |(input, word): (&NamedInput, &String)| (input.name.clone(), word.clone());
        let named: Vec<_> = inputs.iter().zip(&designs).map(named).collect();
        let one = |candidate: Candidate, fragmentation: &NamedInput| {
            let kind = what::fragmentation_of(fragmentation)?;
            let parts = Parts {
                machine: machine.clone(),
                workload: candidate.lab,
                fragmentation: fragmentation.clone(),
                memory,
                layout: Layout::default(),
                seed: self.seed,
                swap: ByteSize(0),
                utilisation: true,
                profile: None,
            };
            parts.check()?;
            let live = LiveRuns {
                subject: candidate.live,
                seed: self.seed,
                designs: named.clone(),
                executor: self.executor,
                fragmented: fragmented(&kind, &fragmentation.name, candidate.superpages)?,
                runs: self.runs,
                max_seconds: self.max_time,
                quiet: self.outputs.quiet,
            };
            if self.live.is_none() {
                live.check()?;
            }
            Ok::<_, Failure>(One { name: candidate.name, live, parts, designs: carried.clone() })
        };
        let candidates = self.candidates(kernels, traces)?;
        let mut all = Vec::new();
        for state in self.states() {
            let fragmentation = what::fragmentation(&state)?;
            for candidate in &candidates {
                all.push(one(candidate.clone(), &fragmentation)?);
            }
        }
        Ok(all)
    }

    fn states(&self) -> Vec<String> {
        match (self.fragmentations.is_empty(), self.suite) {
            (false, _) => self.fragmentations.clone(),
            (true, true) => STATES.map(str::to_string).to_vec(),
            (true, false) => vec![STATES[0].to_string()],
        }
    }

    /// Returns the kernels that run.
    fn kernels(&self) -> Result<Vec<Candidate>, Failure> {
        let kernels: Vec<&str> = match self.suite {
            true => programs::KERNELS.to_vec(),
            false => self.workloads.iter().map(String::as_str).collect(),
        };
        distinct(
            kernels
                .into_iter()
                .map(|word| Candidate::kernel(word, self.seed))
                .collect::<Result<_, _>>()?,
        )
    }

    /// Returns what runs. Programs are recorded unless `traces` has them.
    fn candidates(
        &self,
        kernels: Vec<Candidate>,
        traces: &Path,
    ) -> Result<Vec<Candidate>, Failure> {
        let mut all = kernels;
        let mut program = |name: &str, words: &[String]| {
            if self.dry_run && !Candidate::recording(traces, name).exists() {
                return exit::print(&format!(
                    "would record   {}\n",
                    report::format::command(words)
                ));
            }
            all.push(Candidate::program(name, words, traces, self.outputs.quiet)?);
            Ok(())
        };
        for one in programs::PROGRAMS.iter().filter(|_| self.suite) {
            let words: Vec<String> = one.words.iter().map(ToString::to_string).collect();
            match one.is_installed() {
                true => program(one.name, &words)?,
                false => {
                    exit::say(&format!("left out: {}: {} is not installed", one.name, one.needs))
                }
            }
        }
        for command in &self.programs {
            let words = shlex::split(command).filter(|words| !words.is_empty()).ok_or_else(|| {
                Failure::usage(format!("--program {command}: give a program and its arguments, quoted as for a shell"))
            })?;
            let name = Path::new(&words[0]).file_name().map(|name| name.display().to_string());
            program(&name.unwrap_or_default(), &words)?;
        }
        distinct(all)
    }

    /// Makes the live runs, or takes them from an `earlier` result, and the simulations.
    fn make(&self, experiments: &[One], earlier: Option<&Earlier>) -> Result<Made, Failure> {
        let (mut workloads, mut live, mut ended) = (Vec::new(), Vec::new(), None);
        for one in experiments {
            if !self.outputs.quiet && experiments.len() > 1 {
                let (at, of) = (workloads.len() + 1, experiments.len());
                exit::say(&format!("{at} of {of}: {}, {}", one.name, one.parts.fragmentation.name));
            }
            let made = match earlier {
                Some(earlier) => Some(Box::new(one.earlier(earlier)?)),
                None => match one.live.run()? {
                    JobOutcome::Document(document) => Some(document),
                    JobOutcome::Signal(signal, made) => {
                        ended = Some(signal);
                        made
                    }
                },
            };
            if let Some(document) = made {
                workloads.push(one.compared(&document, self.outputs.quiet)?);
                live.push(*document);
            }
            if ended.is_some() {
                break;
            }
        }
        let first = live.first();
        let validation = Validation {
            schema: SCHEMA.to_string(),
            computer: first.map_or(String::new(), computer),
            machine: self.machine.clone(),
            memory_bytes: experiments.first().map_or(0, |one| one.parts.memory.bytes()),
            fragmentation: self.states().join(", "),
            seed: self.seed,
            confidence: first.map_or(0.0, |document| document.judging.confidence.level()),
            workloads,
        };
        Ok(Made { validation, live, signal: ended })
    }

    fn has_failed(&self, validation: &Validation) -> bool {
        let is_off = || {
            let mut rows = validation.workloads.iter().flat_map(|one| {
                one.designs.iter().skip(1).map(move |row| one.anchored_error(row, Row::simulated))
            });
            rows.any(|error| {
                // An unknown error is not shown to be within.
                error.is_none_or(|error| (1.0 + error).max(1.0 / (1.0 + error)) > 1.0 + self.within)
            })
        };
        self.fail_if.iter().any(|asked| match asked {
            FailIf::Off => is_off(),
            FailIf::Order => validation.as_live().order.disagree > 0,
        })
    }
}

impl One {
    fn describe(&self, runs_live: bool) -> Result<(), Failure> {
        if runs_live {
            exit::print(&cli::plans_in_words(&self.live.plans()?))?;
        }
        let designs: Vec<&NamedInput> = self.designs.iter().map(|(design, _)| design).collect();
        exit::print(&self.parts.describe(&designs)?)?;
        for (_, as_live) in &self.designs {
            if let Some(as_live) = as_live {
                exit::print(&format!("  {}: {}\n", as_live.name, as_live.summary))?;
            }
        }
        Ok(())
    }

    /// Finds the live runs of the same workload, memory and designs in an earlier result.
    fn earlier(&self, (path, (validation, live)): &Earlier) -> Result<Document, Failure> {
        let designs = || {
            let others = self.designs.iter().map(|(design, _)| design.name.as_str());
            std::iter::once(BASE).chain(others)
        };
        let mut runs = validation.workloads.iter().zip(live);
        let found = runs.find(|(one, _)| {
            one.workload == self.name
                && validation.fragmentation_of(one) == self.parts.fragmentation.name
                && one.designs.iter().map(|row| row.design.as_str()).eq(designs())
        });
        found.map(|(_, document)| document.clone()).ok_or_else(|| {
            let designs: Vec<&str> = designs().collect();
            Failure::usage(format!(
                "{}: it has no live runs of {}, {}, under {}; leave that out, or run it live",
                path.display(),
                self.name,
                self.parts.fragmentation.name,
                designs.join(", ")
            ))
        })
    }

    fn compared(&self, document: &Document, quiet: bool) -> Result<Compared, Failure> {
        let base = what::design(BASE)?;
        let as_live = |(design, as_live): &(NamedInput, Option<Design>)| {
            let as_live = as_live.as_ref()?;
            let name = format!("{}-as-live", design.name);
            Some(NamedInput { name, content: as_live.to_toml() })
        };
        let carried: Vec<Option<NamedInput>> = self.designs.iter().map(as_live).collect();
        let written = self.designs.iter().map(|(design, _)| design);
        let all: Vec<&NamedInput> =
            std::iter::once(&base).chain(written).chain(carried.iter().flatten()).collect();
        let reports = self.parts.run_shown(&all, quiet)?;
        if let Some(end) = reports.iter().find_map(crate::words::end_of) {
            return Err(Failure::usage(format!("{}: simulated: {end}", self.name)));
        }
        let times_mappings = document.metric.is_none();
        let mut lab = reports.iter().map(|report| Side::from_report(report, times_mappings));
        let mut next = || lab.next().expect("a report of each");
        let written: Vec<Side> = (0..=self.designs.len()).map(|_| next()).collect();
        let rows = measured::sides(document).into_iter().zip(written).enumerate();
        let designs = rows.map(|(place, (live, lab))| {
            let design = place.checked_sub(1).map(|place| &self.designs[place]);
            Row {
                design: design.map_or(base.name.clone(), |(design, _)| design.name.clone()),
                live,
                lab,
                as_live: design.and_then(|(_, as_live)| as_live.as_ref()).map(|as_live| AsLive {
                    summary: as_live.summary.clone(),
                    design: as_live.to_toml(),
                    lab: next(),
                }),
                rules: document.arms[place].plan.notes.texts(),
                notes: measured::notes(document, place),
            }
        });
        Ok(Compared {
            workload: self.name.clone(),
            fragmentation: Some(self.parts.fragmentation.name.clone()),
            command: document.command.iter().map(ToString::to_string).collect(),
            designs: designs.collect(),
            pairs: measured::pairs(document),
            runs: measured::runs(document),
        })
    }
}

/// Translates the fragmentation to its live form.
fn fragmented(
    kind: &Fragmentation,
    word: &str,
    superpages: u64,
) -> Result<Option<(Kind, u8, Extent)>, Failure> {
    match *kind {
        Fragmentation::None => Ok(None),
        Fragmentation::Level(level) => {
            let needed = ByteSize(superpages << 21);
            Ok(Some((Kind::Movable, level, Extent::Needed(needed))))
        }
        Fragmentation::Pinned(level) => Ok(Some((Kind::Pinned, level, Extent::All))),
        _ => Err(Failure::usage(format!(
            "--fragmentation {word}: live memory cannot be fragmented in this way; give none, frag-L or pinned-L"
        ))),
    }
}

/// Parses an executor that a simulation can be compared with; pages of the hugetlb pool are another design.
fn executor(word: &str) -> Result<Executor, String> {
    match word.parse() {
        Ok(executor @ (Executor::Collapse | Executor::InPlace)) => Ok(executor),
        _ => Err("expected collapse or in-place".to_string()),
    }
}

/// Refuses a workload that is given twice.
fn distinct(all: Vec<Candidate>) -> Result<Vec<Candidate>, Failure> {
    let same = |(at, one): (usize, &Candidate)| all[..at].iter().any(|two| two.name == one.name);
    let Some((_, twice)) = all.iter().enumerate().find(|(at, one)| same((*at, one))) else {
        return Ok(all);
    };
    Err(Failure::usage(format!("workload `{}` is given twice; leave one away", twice.name)))
}

/// Returns this machine's memory without its hugetlb pools, in which nothing moves, rounded down to superpages.
fn own_memory() -> Result<ByteSize, Failure> {
    let memory = MemInfo::read(&Root::real()).ok();
    let total = memory.and_then(|memory| Some((memory.total?, memory.hugetlb)));
    let (total, pools) = total.ok_or_else(|| {
        Failure::cannot("/proc/meminfo does not say how much memory there is; give --memory")
    })?;
    let pools = pools.map_or(0, |pools| pools.bytes());
    Ok(ByteSize(total.bytes().saturating_sub(pools) >> 21 << 21))
}

/// Describes the machine of the live runs.
fn computer(document: &Document) -> String {
    let machine = &document.machine;
    let cpu = machine.cpu.as_ref();
    let model = cpu.and_then(|cpu| cpu.model.clone()).unwrap_or("unknown CPU".to_string());
    let cpus = cpu.and_then(|cpu| cpu.online).map_or("?".to_string(), |count| count.to_string());
    let kernel = machine.kernel.clone().unwrap_or("?".to_string());
    format!("live: {cpus} x {model}, Linux {kernel}")
}

/// Reads a saved validation, and its live runs if it has them.
fn read(path: &Path) -> Result<(Validation, Vec<Document>), Failure> {
    let wanted = "a file that `lab validate --json` wrote";
    let text = what::text(path, wanted)?;
    validation(&text)
        .map_err(|why| Failure::usage(format!("{}: {why}; give {wanted}", path.display())))
}

/// Parses a saved validation, and its live runs if it has them.
///
/// # Errors
/// The invalid field and the reason, in one line.
pub fn validation(text: &str) -> Result<(Validation, Vec<Document>), String> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    // A separate struct, because errors in flattened fields lose the field names.
    #[derive(Deserialize)]
    struct Live {
        #[serde(default)]
        live: Vec<Document>,
    }
    let Head { schema } = document::read(text)?;
    if schema != SCHEMA {
        return Err(format!("`{schema}` is not {SCHEMA}"));
    }
    let validation: Validation = document::read(text)?;
    let Live { live } = document::read(text)?;
    measured::check(&validation, &live)?;
    Ok((validation, live))
}
