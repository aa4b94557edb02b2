//! What an experiment is made of, from names and files on the command line to their contents. The only
//! file of `lab` that reads designs, machines, traces and this machine's free lists.
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

/// What runs, on what.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Experiment")]
pub struct ExperimentArgs {
    /// The workload, with its options (`gups:size=8G`), or a recorded trace (FILE.spt). See `superpage
    /// lab workloads`.
    #[arg(long, short, value_name = "WORKLOAD")]
    pub workload: Option<String>,

    /// The machine: a name (see `superpage lab machines`), a file, or `this` for what `superpage tlb --save`
    /// measured.
    #[arg(long, short, value_name = "MACHINE", default_value = MACHINE)]
    pub machine: String,

    /// The machine's memory [default: what --nodes adds up to, else 32G].
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,

    /// NUMA nodes that memory is divided into: how many (2), or the memory of each (8G,8G). Programs run on node 0 and
    /// get memory of the next node where theirs has none; all of it takes the same time to access.
    #[arg(long, value_name = "N|SIZE,...", default_value = "1")]
    pub nodes: Nodes,

    /// How much of memory takes movable pages only, as the kernel's movablecore=: pages of programs, page cache, and a
    /// pool's superpages (up to the largest free block). Spread evenly over the nodes.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub movable: ByteSize,

    /// How memory is fragmented beforehand: none, frag-L (L per cent of the superpages that the workload needs
    /// are not free), pinned-L (L per cent of all superpages hold a page that cannot be moved),
    /// ingens-normal, ingens-severe, from-machine (as this machine's free lists are now; a report keeps
    /// them), FILE.json (as they were for that report).
    #[arg(long, short, value_name = "HOW", default_value = FRAGMENTATION)]
    pub fragmentation: String,

    /// Where the program misses the TLB, for designs that weigh it (cbmm): a file with `spans = ["0 512M 40000"]`,
    /// each from, to, and the misses of each 2M of it in 10 s; see docs/facts.md.
    #[arg(long, value_name = "FILE")]
    pub profile: Option<String>,

    /// Swap space.
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub swap: ByteSize,

    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = SEED, value_parser = seed)]
    pub seed: u64,

    /// Keep no count of the pages that are touched: quicker; bloat and utilisation are unknown.
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
/// Its memory; what --help says of it is the same.
pub const MEMORY: ByteSize = ByteSize::gib(32);
/// A machine just booted.
pub const FRAGMENTATION: &str = "none";
/// Default RNG seed.
pub const SEED: u64 = 1;

/// The memory that is meant.
pub fn memory<'a>(asked: Option<ByteSize>, mut nodes: impl Iterator<Item = &'a Nodes>) -> ByteSize {
    asked.or_else(|| nodes.find_map(Nodes::memory)).unwrap_or(MEMORY)
}

/// The design that is meant, and its contents. One from a file is called by its name; where that is a
/// preset's as well, by its file too, so that nobody takes it for the preset.
pub fn design(word: &str) -> Result<NamedInput, Failure> {
    let named = operations::design::load(word)?;
    if let Some(lab::NotSimulated { key, why }) = lab::not_simulated(&named.design) {
        return Err(refused(&named, key, &why));
    }
    let Named { file, design, .. } = named;
    let taken = design::designs::preset(&design.name).is_ok();
    let name = called(&design.name, file.as_deref(), taken);
    Ok(NamedInput { name, content: design.to_toml() })
}

/// A design's rule that is not carried out: where it is, and why.
pub fn refused(named: &Named, key: &str, why: &str) -> Failure {
    let file = named.file.clone().unwrap_or_else(|| format!("designs/{}.toml", named.label));
    let line = design::Design::line_of(&named.text, key);
    Failure::usage(format!("{file}:{line}: {key}: {why}"))
}

/// A profile: the file, and its text.
pub fn profile(file: &str) -> Result<(String, String), Failure> {
    Ok((file.to_string(), files::text(Path::new(file), files::LARGEST, "a profile")?))
}

/// The machine that is meant, and its contents.
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

/// What a design or a machine is called that may come from a file.
pub fn called(name: &str, file: Option<&str>, taken: bool) -> String {
    match file {
        Some(file) if taken => format!("{name} ({file})"),
        _ => name.to_string(),
    }
}

/// The workload that is meant. A trace's contents are its digest, so that a changed one is another.
pub fn workload(word: &str) -> Result<NamedInput, Failure> {
    if is_trace(word) {
        let content = content_of(&trace(word)?);
        return Ok(NamedInput { name: word.to_string(), content });
    }
    match word.parse::<Setup>() {
        Ok(setup) => {
            // What its options do not allow shows here, before anything is run.
            setup.describe().map_err(Failure::usage)?;
            Ok(NamedInput { name: word.to_string(), content: String::new() })
        }
        Err(error) => Err(unknown_workload(word, error)),
    }
}

/// What stands for a trace's contents: its digest.
pub fn content_of(reader: &Reader) -> String {
    let checksums = reader.info().chunks.iter().map(|chunk| format!("{:016x}", chunk.checksum));
    let chunks: Vec<String> = checksums.collect();
    format!("trace {}", Hash::new(chunks.iter().map(String::as_str)))
}

/// Why a specification is none, with the name that is spelt most like it.
pub fn unknown_workload(word: &str, error: WorkloadError) -> Failure {
    match error {
        WorkloadError::Unknown { .. } => {
            let name = word.split(':').next().unwrap_or(word);
            unknown(name, catalog().map(|entry| entry.name), error)
        }
        error => Failure::usage(error),
    }
}

/// A recorded trace.
pub fn trace(word: &str) -> Result<Reader, Failure> {
    operations::traces::open(Path::new(word)).map_err(Failure::usage)
}

/// The fragmentation that is meant. A machine's free lists are contents: those of this machine as they
/// are now, or those that a report has kept.
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
            // The lists are in the name: other lists are another fragmentation, also in a table.
            let digest = Hash::new([content.as_str()]).to_string();
            NamedInput { name: format!("{FROM_MACHINE}-{}", &digest[..8]), content }
        }
    };
    fragmentation_of(&ingredient)?;
    Ok(ingredient)
}

/// What an ingredient says.
pub fn fragmentation_of(ingredient: &NamedInput) -> Result<Fragmentation, Failure> {
    let name = &ingredient.name;
    if ingredient.content.is_empty() {
        return name.parse().map_err(|error: FragmentError| {
            Failure::usage(match name.starts_with(FROM_MACHINE) {
                true => {
                    format!("`{name}` is in a report; give its file: --fragmentation FILE.json")
                }
                false => format!("{error}; or {FROM_MACHINE}, or a FILE.json that was run so"),
            })
        });
    }
    let lists: FreeLists = report::document::read(&ingredient.content).map_err(|why| {
        Failure::usage(format!("the free lists of {name}: {why}; make the plan anew"))
    })?;
    Fragmentation::from_machine(&lists).map_err(Failure::usage)
}

/// The fragmentation of the machine that superpage runs on.
const FROM_MACHINE: &str = "from-machine";

/// What this machine says of its free memory; kept as it was said.
fn free_lists() -> Result<FreeLists, Failure> {
    let root = Root::real();
    let buddyinfo = root.read("/proc/buddyinfo")?;
    // Takes root; without it the mobility of free blocks is not known, and that is all.
    let pagetypeinfo = root.read("/proc/pagetypeinfo").ok();
    let total = MemInfo::read(&root).ok().and_then(|memory| memory.total);
    let frames = total.map(|total| total.bytes() / root.page_size().bytes());
    Ok(FreeLists { buddyinfo, pagetypeinfo, frames })
}

/// The free lists that a report was run with.
fn kept(file: &str) -> Result<FreeLists, Failure> {
    let reports = compare::read(Path::new(file))?;
    let lists = reports.into_iter().find_map(|report| report.cell.free_lists);
    lists.ok_or_else(|| {
        Failure::usage(format!(
            "{file}: keeps no free lists; give one that was run with --fragmentation {FROM_MACHINE}"
        ))
    })
}

/// Whether a workload is a recorded trace.
pub fn is_trace(word: &str) -> bool {
    word.ends_with(".spt")
}

/// Several of a kind; two of one name would be one in every table.
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

/// The machine of `lab faults` that is meant.
pub fn faults_machine(word: &str) -> Result<fault_scaling::Machine, Failure> {
    if let Some((path, content)) = file(word, "toml")? {
        return fault_scaling::Machine::from_toml(&content, &path).map_err(Failure::usage);
    }
    fault_scaling::preset(word).map_err(|error| unknown(word, fault_scaling::names(), error))
}

/// A word's file, if it is meant as one: it looks like a path, or ends like such files do.
fn file(word: &str, extension: &str) -> Result<Option<(String, String)>, Failure> {
    let path = PathBuf::from(word);
    if !word.contains('/') && path.extension().is_none_or(|found| found != extension) {
        return Ok(None);
    }
    Ok(Some((word.to_string(), text(&path, "a machine's file (superpage lab machines)")?)))
}

/// The text of a file, which should be `wanted`.
pub fn text(path: &Path, wanted: &str) -> Result<String, Failure> {
    files::text(path, files::LARGEST, wanted)
}

/// That a name is not known, with the one that is spelt most like it.
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
