//! Resolves the inputs of an experiment: turns names and files on the command line into their contents. No other file
//! of `lab` reads designs, machines, traces and this machine's free lists.
//! See docs/decisions/lab.md#6.

use std::path::{Path, PathBuf};

use host::{MemInfo, Root};
use lab::sweep::{Hash, NamedInput};
use machine::Machine;
use mm_sim::Nodes;
use mm_sim::fragment::{FragmentError, Fragmentation, FreeLists};
use trace::Reader;
use units::ByteSize;
use workload_streams::{Setup, WorkloadError, catalog};

use super::compare;
use cli::files;
use operations::Failure;
use operations::design::Named;
use operations::this_machine;

/// Workload, machine and parameters of an experiment.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Experiment")]
pub struct ExperimentArgs {
    /// The workload, with its options (`gups:size=8G`), or a recorded trace (FILE.spt). See `superpage
    /// lab workloads`.
    #[arg(long, short, value_name = "WORKLOAD")]
    pub workload: Option<String>,

    /// The machine: a name (see `superpage lab machines`), a file, or `this` for the result of `superpage tlb --save`.
    #[arg(long, short, value_name = "MACHINE", default_value = MACHINE)]
    pub machine: String,

    /// The machine's memory [default: the sum of --nodes, else 32G].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,

    /// NUMA nodes that memory is divided into: how many (2), or the memory of each (8G,8G). Programs run on node 0 and
    /// get memory of the next node if theirs is full; all memory has the same access time.
    #[arg(long, value_name = "N|SIZE,...", default_value = "1")]
    pub nodes: Nodes,

    /// How much of memory takes movable pages only, as the kernel's movablecore=: pages of programs, page cache, and a
    /// pool's superpages (up to the largest free block). Spread evenly over the nodes.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub movable: ByteSize,

    /// How memory is fragmented beforehand: none, frag-L (L per cent of the superpages that the workload needs are not
    /// free), pinned-L (L per cent of all superpages hold a page that cannot be moved), ingens-normal, ingens-severe,
    /// from-machine (as this machine's free lists are now; a report keeps them), FILE.json (the free lists kept in that
    /// report).
    #[arg(long, short, value_name = "HOW", default_value = FRAGMENTATION)]
    pub fragmentation: String,

    /// Where the program misses the TLB, for designs that use it (cbmm): a file with `spans = ["0 512M 40000"]`, each
    /// from, to, and the misses of each 2M between them in 10 s; see docs/facts.md.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<String>,

    /// Swap space.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub swap: ByteSize,

    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = SEED, value_parser = seed)]
    pub seed: u64,

    /// Do not count the pages that are touched: faster; bloat and utilisation are unknown.
    #[arg(long)]
    pub no_utilisation: bool,

    /// Print what would be run; run nothing.
    #[arg(long, conflicts_with = "json")]
    pub dry_run: bool,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

/// The machine of the ATC'20 evaluation (Zhu, Cox, Rixner), which most designs were compared on.
pub const MACHINE: &str = "e3-1245v6";
/// Memory of [`MACHINE`]; --help states the same.
pub const MEMORY: ByteSize = ByteSize::gib(32);
/// The fragmentation of a machine that was just booted: none.
pub const FRAGMENTATION: &str = "none";
/// Default RNG seed.
pub const SEED: u64 = 1;

/// Returns the memory size: the given one, or the sum of the nodes, or the default.
pub fn memory<'a>(asked: Option<ByteSize>, mut nodes: impl Iterator<Item = &'a Nodes>) -> ByteSize {
    asked.or_else(|| nodes.find_map(Nodes::memory)).unwrap_or(MEMORY)
}

/// Finds a design and its contents. A design from a file has the name that the file gives it. If a preset has the same
/// name, the file's path is appended to tell them apart.
pub fn design(word: &str) -> Result<NamedInput, Failure> {
    let named = operations::design::load(word)?;
    cli::design::warn(&named);
    if let Some(lab::NotSimulated { key, why }) = lab::not_simulated(&named.design) {
        return Err(refused(&named, key, &why));
    }
    let Named { file, design, .. } = named;
    let taken = design::designs::preset(&design.name).is_ok();
    let name = called(&design.name, file.as_deref(), taken);
    Ok(NamedInput { name, content: design.to_toml() })
}

/// Returns the error about a design's rule that the laboratory does not simulate, with its position and the reason.
pub fn refused(named: &Named, key: &str, why: &str) -> Failure {
    let file = named.file.clone().unwrap_or_else(|| format!("designs/{}.toml", named.label));
    let line = design::Design::line_of(&named.text, key);
    Failure::usage(format!("{file}:{line}: {key}: {why}"))
}

/// Reads a profile. Returns name and text of the file.
pub fn profile(file: &str) -> Result<(String, String), Failure> {
    Ok((file.to_string(), files::text(Path::new(file), files::LARGEST, "a profile")?))
}

/// Finds a machine and its contents.
pub fn machine(word: &str) -> Result<NamedInput, Failure> {
    if let Some((path, content)) = file(word, "toml")? {
        let machine = Machine::from_toml(&content, &path).map_err(Failure::usage)?;
        let taken = machine::names().any(|name| name == machine.name);
        return Ok(NamedInput { name: called(&machine.name, Some(&path), taken), content });
    }
    if word == tlb_probe::THIS {
        let (path, content) = this_machine::read()?;
        Machine::from_toml(&content, &path).map_err(Failure::usage)?;
        return Ok(NamedInput { name: word.to_string(), content });
    }
    match machine::preset_text(word) {
        Ok(text) => Ok(NamedInput { name: word.to_string(), content: text.to_string() }),
        Err(error) => Err(unknown(word, machine::names(), error)),
    }
}

/// Returns the name of a design or machine, followed by its file if the name is taken.
pub fn called(name: &str, file: Option<&str>, taken: bool) -> String {
    match file {
        Some(file) if taken => format!("{name} ({file})"),
        _ => name.to_string(),
    }
}

/// Finds a workload. A digest stands for the contents of a trace, so that a changed trace differs.
pub fn workload(word: &str) -> Result<NamedInput, Failure> {
    if is_trace(word) {
        let content = content_of(&trace(word)?);
        return Ok(NamedInput { name: word.to_string(), content });
    }
    match word.parse::<Setup>() {
        Ok(setup) => {
            // Check the options before anything is run.
            setup.describe().map_err(Failure::usage)?;
            Ok(NamedInput { name: word.to_string(), content: String::new() })
        }
        Err(error) => Err(unknown_workload(word, error)),
    }
}

/// Returns the digest that stands for a trace's contents.
pub fn content_of(reader: &Reader) -> String {
    let checksums = reader.info().chunks.iter().map(|chunk| format!("{:016x}", chunk.checksum));
    let chunks: Vec<String> = checksums.collect();
    format!("trace {}", Hash::new(chunks.iter().map(String::as_str)))
}

/// Returns the error about an invalid workload, with the most similar name.
pub fn unknown_workload(word: &str, error: WorkloadError) -> Failure {
    match error {
        WorkloadError::Unknown { .. } => {
            let name = word.split(':').next().unwrap_or(word);
            unknown(name, catalog().map(|entry| entry.name), error)
        }
        error => Failure::usage(error),
    }
}

/// Opens a recorded trace.
pub fn trace(word: &str) -> Result<Reader, Failure> {
    operations::traces::open(Path::new(word)).map_err(Failure::usage)
}

/// Finds a fragmentation. If the fragmentation copies free lists, its contents are these lists: this machine's current
/// ones, or those in a report.
pub fn fragmentation(word: &str) -> Result<NamedInput, Failure> {
    let lists = match word {
        FROM_MACHINE => Some(free_lists()?),
        file if file.ends_with(".json") => Some(kept(file)?),
        _ => None,
    };
    let ingredient = match lists {
        None => NamedInput { name: word.to_string(), content: String::new() },
        Some(lists) => {
            let content = serde_json::to_string(&lists);
            let content = content.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
            // Add the digest to the name, so that other lists have another name in tables.
            let digest = Hash::new([content.as_str()]).to_string();
            NamedInput { name: format!("{FROM_MACHINE}-{}", &digest[..8]), content }
        }
    };
    fragmentation_of(&ingredient)?;
    Ok(ingredient)
}

/// Parses a fragmentation.
pub fn fragmentation_of(ingredient: &NamedInput) -> Result<Fragmentation, Failure> {
    let name = &ingredient.name;
    if ingredient.content.is_empty() {
        return name.parse().map_err(|error: FragmentError| {
            Failure::usage(match name.starts_with(FROM_MACHINE) {
                true => {
                    format!("`{name}` is in a report; give its file: --fragmentation FILE.json")
                }
                false => format!("{error}; or {FROM_MACHINE}, or the FILE.json of a run with it"),
            })
        });
    }
    let lists: FreeLists = report::document::read(&ingredient.content).map_err(|why| {
        Failure::usage(format!("the free lists of {name}: {why}; make the plan anew"))
    })?;
    Fragmentation::from_machine(&lists).map_err(Failure::usage)
}

/// Name of the fragmentation that copies this machine's.
const FROM_MACHINE: &str = "from-machine";

/// Reads the free lists of this machine, as raw text.
fn free_lists() -> Result<FreeLists, Failure> {
    let root = Root::real();
    let buddyinfo = root.read("/proc/buddyinfo")?;
    // This file needs root. Without it, only the mobility of free blocks is unknown.
    let pagetypeinfo = root.read("/proc/pagetypeinfo").ok();
    let total = MemInfo::read(&root).ok().and_then(|memory| memory.total);
    let frames = total.map(|total| total.bytes() / root.page_size().bytes());
    Ok(FreeLists { buddyinfo, pagetypeinfo, frames })
}

fn kept(file: &str) -> Result<FreeLists, Failure> {
    let reports = compare::read(Path::new(file))?;
    let lists = reports.into_iter().find_map(|report| report.cell.free_lists);
    lists.ok_or_else(|| {
        Failure::usage(format!(
            "{file}: keeps no free lists; give one that was run with --fragmentation {FROM_MACHINE}"
        ))
    })
}

/// Returns whether a workload is a recorded trace.
pub fn is_trace(word: &str) -> bool {
    word.ends_with(".spt")
}

/// Resolves several inputs. Rejects two of the same name, which tables could not distinguish.
pub fn several(
    words: &[String],
    kind: &str,
    read: impl Fn(&str) -> Result<NamedInput, Failure>,
) -> Result<Vec<NamedInput>, Failure> {
    let mut all: Vec<NamedInput> = Vec::new();
    for word in words {
        let one = read(word)?;
        match all.iter().find(|other| other.name == one.name) {
            None => all.push(one),
            Some(other) if *other == one => {
                return Err(Failure::usage(format!(
                    "{kind} `{}` is given twice; leave one of them away",
                    one.name
                )));
            }
            Some(_) => {
                return Err(Failure::usage(format!(
                    "{word}: another {kind} is called `{}` as well; change the `name` in one of the \
                     files",
                    one.name
                )));
            }
        }
    }
    Ok(all)
}

/// Finds a machine of `lab faults`.
pub fn faults_machine(word: &str) -> Result<fault_scaling::Machine, Failure> {
    if let Some((path, content)) = file(word, "toml")? {
        return fault_scaling::Machine::from_toml(&content, &path).map_err(Failure::usage);
    }
    fault_scaling::preset(word).map_err(|error| unknown(word, fault_scaling::names(), error))
}

/// Reads the file that a word names, if the word contains a slash or has the extension.
fn file(word: &str, extension: &str) -> Result<Option<(String, String)>, Failure> {
    let path = PathBuf::from(word);
    if !word.contains('/') && path.extension().is_none_or(|found| found != extension) {
        return Ok(None);
    }
    Ok(Some((word.to_string(), text(&path, "a machine's file (superpage lab machines)")?)))
}

/// Reads the text of a file. Errors name the expected input as `wanted`.
pub fn text(path: &Path, wanted: &str) -> Result<String, Failure> {
    files::text(path, files::LARGEST, wanted)
}

/// Returns the error about an unknown name, with the most similar known one.
fn unknown<'a>(
    word: &str,
    known: impl Iterator<Item = &'a str>,
    error: impl std::fmt::Display,
) -> Failure {
    match design::nearest(word, known) {
        Some(near) => Failure::usage(format!("{error} (did you mean `{near}`?)")),
        None => Failure::usage(error),
    }
}
