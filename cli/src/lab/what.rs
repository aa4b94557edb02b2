//! What an experiment is made of, from names and files on the command line to their contents. The only
//! file of `lab` that reads designs, machines, traces and this machine's free lists.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use design::Design;
use hardware::Machine;
use lab::fragment::{FragmentError, Fragmentation};
use lab::sweep::{Hash, Ingredient};
use lab::workloads::{Setup, catalog};
use machine::{MemInfo, Root};
use serde::{Deserialize, Serialize};
use trace::Reader;
use units::ByteSize;

use crate::exit::Failure;

/// What runs, on what.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Experiment")]
pub struct Surroundings {
    /// The workload, with its options (`gups:size=8G`), or a recorded trace (FILE.spt). See `superpage
    /// lab workloads`.
    #[arg(long, short, value_name = "WORKLOAD")]
    pub workload: Option<String>,

    /// The machine: a name (see `superpage lab machines`) or a file.
    #[arg(long, short, value_name = "MACHINE", default_value = MACHINE)]
    pub machine: String,

    /// The machine's memory.
    #[arg(long, value_name = "SIZE", default_value_t = MEMORY)]
    pub memory: ByteSize,

    /// What spoils memory beforehand: none, frag-L (L per cent of the superpages that the workload needs
    /// are not free), pinned-L (L per cent of all superpages hold a page that cannot be moved),
    /// ingens-normal, ingens-severe, from-machine (as this machine's free lists are now).
    #[arg(long, short, value_name = "HOW", default_value = FRAGMENTATION)]
    pub fragmentation: String,

    /// Seed of every random choice.
    #[arg(long, value_name = "N", default_value_t = SEED)]
    pub seed: u64,
}

/// The machine of the ATC'20 evaluation (Zhu, Cox, Rixner), which most designs were compared on.
pub const MACHINE: &str = "e3-1245v6";
/// Its memory.
pub const MEMORY: ByteSize = ByteSize::gib(32);
/// A machine just booted.
pub const FRAGMENTATION: &str = "none";
/// Any would do.
pub const SEED: u64 = 1;

/// The most that a file given on the command line may hold: a slip must not fill memory.
const MOST: u64 = 16 << 20;

/// The design that is meant, and its contents.
pub fn design(word: &str) -> Result<Ingredient, Failure> {
    let design = match file(word, "toml")? {
        Some((path, text)) => Design::from_toml(&path, &text),
        None => design::designs::find(word),
    };
    let design = design.map_err(Failure::usage)?;
    Ok(Ingredient { name: design.name.clone(), content: design.to_toml() })
}

/// The machine that is meant, and its contents.
pub fn machine(word: &str) -> Result<Ingredient, Failure> {
    if let Some((path, content)) = file(word, "toml")? {
        let machine = Machine::from_toml(&content, &path).map_err(Failure::usage)?;
        return Ok(Ingredient { name: machine.name, content });
    }
    match hardware::preset_text(word) {
        Ok(text) => Ok(Ingredient { name: word.to_string(), content: text.to_string() }),
        Err(error) => Err(unknown(word, hardware::names(), error)),
    }
}

/// The workload that is meant. A trace's contents are its digest, so that a changed one is another.
pub fn workload(word: &str) -> Result<Ingredient, Failure> {
    if is_trace(word) {
        let reader = Reader::open(Path::new(word)).map_err(Failure::usage)?;
        let info = reader.info();
        let chunks: Vec<String> =
            info.chunks.iter().map(|chunk| format!("{:016x}", chunk.checksum)).collect();
        let digest = Hash::of(chunks.iter().map(String::as_str));
        return Ok(Ingredient { name: word.to_string(), content: format!("trace {digest}") });
    }
    match word.parse::<Setup>() {
        Ok(setup) => {
            // What its options do not allow shows here, before anything is run.
            setup.build().map_err(Failure::usage)?;
            Ok(Ingredient { name: word.to_string(), content: String::new() })
        }
        Err(error) => {
            let name = word.split(':').next().unwrap_or(word);
            match catalog().any(|entry| entry.name == name) {
                true => Err(Failure::usage(error)),
                false => Err(unknown(name, catalog().map(|entry| entry.name), error)),
            }
        }
    }
}

/// The fragmentation that is meant. This machine's is what its free lists say now.
pub fn fragmentation(word: &str) -> Result<Ingredient, Failure> {
    let content =
        if word == FROM_MACHINE { FreeLists::read()?.to_content()? } else { String::new() };
    let ingredient = Ingredient { name: word.to_string(), content };
    fragmentation_of(&ingredient)?;
    Ok(ingredient)
}

/// What an ingredient says.
pub fn fragmentation_of(ingredient: &Ingredient) -> Result<Fragmentation, Failure> {
    if ingredient.name != FROM_MACHINE {
        return ingredient
            .name
            .parse()
            .map_err(|error: FragmentError| Failure::usage(format!("{error}; or {FROM_MACHINE}")));
    }
    let lists: FreeLists = serde_json::from_str(&ingredient.content)
        .map_err(|error| Failure::usage(format!("the machine's free lists: {error}")))?;
    Fragmentation::of_machine(&lists.buddyinfo, lists.pagetypeinfo.as_deref(), lists.frames)
        .map_err(Failure::usage)
}

/// The fragmentation of the machine that superpage runs on.
const FROM_MACHINE: &str = "from-machine";

/// What this machine says of its free memory; kept as it was said.
#[derive(Serialize, Deserialize)]
struct FreeLists {
    buddyinfo: String,
    pagetypeinfo: Option<String>,
    frames: Option<u64>,
}

impl FreeLists {
    fn read() -> Result<Self, Failure> {
        let root = Root::real();
        let buddyinfo = root.read("/proc/buddyinfo")?;
        // Takes root; without it the mobility of free blocks is not known, and that is all.
        let pagetypeinfo = root.read("/proc/pagetypeinfo").ok();
        let total = MemInfo::read(&root).ok().and_then(|memory| memory.total);
        let frames = total.map(|total| total.bytes() / root.page_size().bytes());
        Ok(Self { buddyinfo, pagetypeinfo, frames })
    }

    fn to_content(&self) -> Result<String, Failure> {
        serde_json::to_string(self).map_err(|error| Failure::usage(format!("JSON: {error}")))
    }
}

/// Whether a workload is a recorded trace.
pub fn is_trace(word: &str) -> bool {
    word.ends_with(".spt")
}

/// Several of a kind; two of one name would be one in every table.
pub fn several(
    words: &[String],
    kind: &str,
    read: impl Fn(&str) -> Result<Ingredient, Failure>,
) -> Result<Vec<Ingredient>, Failure> {
    let mut all: Vec<Ingredient> = Vec::new();
    for word in words {
        let one = read(word)?;
        match all.iter().find(|other| other.name == one.name) {
            None => all.push(one),
            Some(other) if *other == one => {
                return Err(Failure::usage(format!("{kind} `{}` is given twice", one.name)));
            }
            Some(_) => {
                return Err(Failure::usage(format!(
                    "two {kind}s are called `{}`; change the `name` in one of the files",
                    one.name
                )));
            }
        }
    }
    Ok(all)
}

/// A word's file, if it is meant as one: it looks like a path, or ends like such files do.
fn file(word: &str, extension: &str) -> Result<Option<(String, String)>, Failure> {
    let path = PathBuf::from(word);
    if !word.contains('/') && path.extension().is_none_or(|found| found != extension) {
        return Ok(None);
    }
    Ok(Some((word.to_string(), text(&path)?)))
}

/// A file's text.
pub fn text(path: &Path) -> Result<String, Failure> {
    let shown = path.display();
    let failed = |error: std::io::Error| Failure::usage(format!("{shown}: {error}"));
    let metadata = fs::metadata(path).map_err(failed)?;
    if metadata.is_file() && metadata.len() > MOST {
        return Err(Failure::usage(format!("{shown}: too large to be read")));
    }
    let mut text = String::new();
    let mut file = fs::File::open(path).map_err(failed)?.take(MOST + 1);
    file.read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MOST {
        return Err(Failure::usage(format!("{shown}: too large to be read")));
    }
    Ok(text)
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
