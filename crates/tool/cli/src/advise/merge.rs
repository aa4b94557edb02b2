//! `superpage advise merge`: advice of many machines in one table.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use ::advise::{Fleet, Merged, NodeDocument, Refused, SCHEMA, Service, Unusable};
use clap::ValueEnum;
use report::{csv, format};
use serde::Serialize;
use services::Naming;

use super::words;
use crate::exit::{self, Done, Failure};
use crate::files;
use crate::pool::show;
use crate::progress::Progress;

/// Join the JSON documents of many machines into one table by service.
///
/// DIR holds documents of `superpage advise --json`, one per machine. Other files are counted, and the first ones are
/// named. Of several documents of one machine, the newest is used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 success; 2 wrong usage, or no file could be used.")]
pub struct Args {
    /// Directory. Subdirectories and hidden files are not read.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// What a row stands for.
    #[arg(long, value_enum, default_value = "service")]
    by: By,

    /// Rows of the table.
    #[arg(long, default_value_t = 30, value_name = "N", help_heading = "Output")]
    top: usize,

    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,

    /// Print CSV: a line for each service.
    #[arg(long, conflicts_with = "json", help_heading = "Output")]
    csv: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,

    /// Overwrite an existing file.
    #[arg(long, help_heading = "Output")]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// A named container, else the systemd service, else the container's runtime with the program, else the program.
    Service,
    /// The systemd unit.
    Unit,
    /// The program.
    Program,
    /// The cgroup's path, with * in place of ids.
    Cgroup,
}

const MERGED: &str = "superpage.advise-merge/1";
/// Most files that are named with what is wrong.
const NAMED: usize = 10;
/// Most files that a table names.
const SHOWN: usize = 3;

#[derive(Debug, Serialize)]
struct Document<'a> {
    by: By,
    files: &'a Files,
    #[serde(flatten)]
    merged: &'a Merged,
}

/// The files of the directory.
#[derive(Debug, Default, Serialize)]
struct Files {
    /// Files with a document that was used or replaced.
    read: u64,
    /// Number of the other files, by what is wrong.
    unusable: Vec<Count>,
    /// The first of them.
    named: Vec<Named>,
}

#[derive(Debug, Serialize)]
struct Count {
    kind: Unusable,
    files: u64,
}

#[derive(Debug, Serialize)]
struct Named {
    file: String,
    kind: Unusable,
    why: String,
}

impl Files {
    fn refuse(&mut self, file: String, refused: Refused) {
        let kind = refused.kind;
        match self.unusable.iter_mut().find(|count| count.kind == kind) {
            Some(count) => count.files += 1,
            None => self.unusable.push(Count { kind, files: 1 }),
        }
        if self.named.len() < NAMED {
            self.named.push(Named { file, kind, why: refused.why });
        }
    }

    fn refused(&self) -> u64 {
        self.unusable.iter().map(|count| count.files).sum()
    }
}

pub fn run(args: &Args) -> Result<Done, Failure> {
    if let Some(path) = args.output.as_deref().filter(|path| !files::is_stdout(path)) {
        files::check_new(path, args.force)?;
    }
    let (files, merged) = merge(&args.directory, args.by)?;
    let is_json = files::is_json(args.json, args.output.as_deref()) && !args.csv;
    let text = match (is_json, args.csv) {
        (true, _) => {
            let document = Document { by: args.by, files: &files, merged: &merged };
            let body = serde_json::to_value(&document);
            exit::json_text(
                MERGED,
                body.map_err(|error| Failure::usage(format!("JSON: {error}")))?,
            )?
        }
        (false, true) => sheet(&merged),
        (false, false) => table(&args.directory, &files, &merged, args.top),
    };
    files::deliver(args.output.as_deref(), args.force, &text)?;
    Ok(Done::Fine)
}

fn merge(directory: &Path, by: By) -> Result<(Files, Merged), Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::usage(format!(
            "{}: {why}; give a directory of files that `superpage advise --json` wrote",
            directory.display()
        ))
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| bad(&error))? {
        let entry = entry.map_err(|error| bad(&error))?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && !entry.path().is_dir() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    let mut fleet = Fleet::new(match by {
        By::Service => Naming::Service,
        By::Unit => Naming::Unit,
        By::Program => Naming::Program,
        By::Cgroup => Naming::Cgroup,
    });
    let mut found = Files::default();
    let mut progress = Progress::new(false, "reading");
    let total = names.len() as u64;
    for (at, name) in names.iter().enumerate() {
        progress.tell(at as u64, Some(total), || "files read".to_string());
        let path = directory.join(name);
        let shown = name.to_string_lossy().into_owned();
        match text(&path).and_then(|text| NodeDocument::read(&text)) {
            Ok(document) => {
                found.read += 1;
                let stem = path.file_stem().unwrap_or(name).to_string_lossy().into_owned();
                fleet.add(&stem, document);
            }
            Err(refused) => found.refuse(shown, refused),
        }
    }
    progress.clear();
    match (found.read, found.named.first()) {
        (0, None) => Err(bad(&"no files")),
        (0, Some(first)) => Err(bad(&format!(
            "none of {} is a document of {SCHEMA}; {}: {}",
            format::counted(total, "file", "files"),
            first.file,
            first.why
        ))),
        _ => Ok((found, fleet.merged())),
    }
}

/// The text of a regular file of bounded size. Pipes and devices are not opened, because reading them may block.
fn text(path: &Path) -> Result<String, Refused> {
    let unreadable =
        |why: &dyn std::fmt::Display| Refused { kind: Unusable::Unreadable, why: why.to_string() };
    let metadata = fs::metadata(path).map_err(|error| unreadable(&error))?;
    if !metadata.is_file() {
        return Err(unreadable(&"no regular file"));
    }
    let file = fs::File::open(path).map_err(|error| unreadable(&error))?;
    let mut bytes = Vec::new();
    file.take(files::LARGEST + 1).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() as u64 > files::LARGEST {
        let why = format!("larger than {}", units::ByteSize(files::LARGEST));
        return Err(Refused { kind: Unusable::TooLarge, why });
    }
    String::from_utf8(bytes)
        .map_err(|_| Refused { kind: Unusable::NotJson, why: "no JSON: not UTF-8".to_string() })
}

/// The table for people.
fn table(directory: &Path, files: &Files, merged: &Merged, top: usize) -> String {
    let count = |number: u64| format::count(number as f64);
    let mut text = format!(
        "{}, {} of {}",
        some(merged.nodes, "node"),
        some(files.read, "file"),
        format::escaped(&directory.display().to_string())
    );
    if merged.replaced > 0 {
        text += &format!("; {} replaced by a newer one of the same node", count(merged.replaced));
    }
    text += "\n";
    if files.refused() > 0 {
        let kinds =
            files.unusable.iter().map(|one| format!("{} {}", count(one.files), kind(one.kind)));
        let kinds: Vec<String> = kinds.collect();
        text += &format!("{} not used: {}\n", some(files.refused(), "file"), kinds.join(", "));
        for one in files.named.iter().take(SHOWN) {
            text += &format!("  {}: {}\n", format::name(&one.file, 60), format::escaped(&one.why));
        }
    }
    let rows = merged.services.iter().take(top).map(row).collect();
    let header = [
        "service",
        "nodes",
        "could be",
        "more memory",
        "gain",
        "saved CPUs",
        "lose",
        "memory only",
        "unknown",
        "why unknown",
    ];
    text += "\n";
    text += &show::table(&header, rows, &[0, 9]);
    if merged.services.len() > top {
        text += &format!("({} more services; --top)\n", merged.services.len() - top);
    }
    for one in merged.services.iter().take(top).filter(|one| !one.losing_nodes.is_empty()) {
        let nodes: Vec<String> =
            one.losing_nodes.iter().map(|node| format::name(node, 40)).collect();
        let more = match one.nodes.lose > nodes.len() as u64 {
            true => ", ...",
            false => "",
        };
        text += &format!("{} would lose on {}{more}\n", service(one), nodes.join(", "));
    }
    if merged.left_out > 0 {
        let left_out = count(merged.left_out);
        text +=
            &format!("{left_out} processes were not sampled: each node samples the largest 16\n");
    }
    text
}

/// A number of things.
fn some(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {what}{plural}", format::count(number as f64))
}

fn service(one: &Service) -> String {
    match one.service.is_empty() {
        true => "(none)".to_string(),
        false => format::name(&one.service, 40),
    }
}

fn row(one: &Service) -> Vec<String> {
    let count = |number: u64| format::count(number as f64);
    let unknown = &one.unknown_processes;
    let reasons = [
        (unknown.few_samples, "few samples"),
        (unknown.lost, "addresses lost"),
        (unknown.failed, "failed"),
    ];
    let reasons: Vec<String> = reasons
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, why)| format!("{} {why}", count(u64::from(*number))))
        .collect();
    vec![
        service(one),
        count(one.nodes.all),
        one.memory.on_base_pages.to_string(),
        format!("+{}", one.memory.extra_bytes),
        one.gain.map_or("unknown".to_string(), words::gain),
        one.saved_cpus.map_or("unknown".to_string(), |range| format!("{:.1}", range.mid + 0.0)),
        count(one.nodes.lose),
        count(one.nodes.memory_only),
        count(one.nodes.unknown),
        reasons.join(", "),
    ]
}

fn kind(kind: Unusable) -> &'static str {
    match kind {
        Unusable::Unreadable => "unreadable",
        Unusable::TooLarge => "too large",
        Unusable::Empty => "empty",
        Unusable::Truncated => "truncated",
        Unusable::NotJson => "no JSON",
        Unusable::OtherDocument => "other documents",
        Unusable::OtherVersion => "of another version",
        Unusable::Invalid => "with an invalid field",
    }
}

/// The table for a sheet.
fn sheet(merged: &Merged) -> String {
    let mut text = "service,nodes,nodes_gain,nodes_undecided,nodes_none,nodes_lose,nodes_memory_only,nodes_unknown,\
                    processes,unknown_few_samples,unknown_lost,unknown_failed,cpus,known_share,gain_low,gain,gain_high,\
                    spread_low,spread_high,saved_cpus_low,saved_cpus,saved_cpus_high,on_base_pages_bytes,\
                    on_superpages_bytes,extra_bytes\n"
        .to_string();
    for one in &merged.services {
        let (nodes, unknown) = (&one.nodes, &one.unknown_processes);
        let of = |number: u64| Some(number as f64);
        let numbers = [
            of(nodes.all),
            of(nodes.gain),
            of(nodes.undecided),
            of(nodes.none),
            of(nodes.lose),
            of(nodes.memory_only),
            of(nodes.unknown),
            of(one.processes),
            of(unknown.few_samples.into()),
            of(unknown.lost.into()),
            of(unknown.failed.into()),
            Some(one.cpus),
            one.known_share,
            one.gain.map(|range| range.low),
            one.gain.map(|range| range.mid),
            one.gain.map(|range| range.high),
            one.spread.map(|spread| spread.low),
            one.spread.map(|spread| spread.high),
            one.saved_cpus.map(|range| range.low),
            one.saved_cpus.map(|range| range.mid),
            one.saved_cpus.map(|range| range.high),
            of(one.memory.on_base_pages.bytes()),
            of(one.memory.on_superpages.bytes()),
            of(one.memory.extra_bytes.bytes()),
        ];
        text += &csv::line([one.service.as_str()], numbers);
    }
    text
}
