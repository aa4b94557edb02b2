//! `superpage trace import`: imports traces of other tools.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::NonEmptyStringValueParser;
use serde_json::json;
use trace::import::{Format, Import, Input, Progress};
use trace::{Filter, MruSets};
use units::ByteSize;

use super::stdin::Stdin;
use crate::exit::{self, Done, Failure};
use crate::files;
use crate::pool::progress::Watcher;

/// Import a trace of another tool.
///
/// Inputs compressed with gzip, xz or zstd are decompressed. Traces of other tools have no mappings: these are
/// inferred from the touched pages, and the imported trace says so. For lackey: valgrind --tool=lackey
/// --trace-mem=yes --log-fd=9 ./app 9>&1 >/dev/null | superpage trace import --from lackey - app.spt
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Input format.
    #[arg(long, value_enum, value_name = "FORMAT")]
    from: From,

    /// Input file; - is standard input.
    input: PathBuf,

    /// Trace to write; - is standard output, with messages on standard error.
    output: PathBuf,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Accesses to leave out: none, same-page, or set-mru[:BASE,SUPER], which is exact for LRU TLBs
    /// whose number of sets is a multiple of BASE (base pages) and SUPER (superpages) [set-mru: 16,8].
    #[arg(long, value_name = "LEVEL", default_value = "same-page", value_parser = filter)]
    filter: Filter,

    /// Gap of untouched memory that makes the pages before and after it count as two mappings.
    #[arg(long, value_name = "SIZE", default_value = "4M")]
    gap: ByteSize,

    /// Base page size.
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    base_page: ByteSize,

    /// champsim, lackey: include instruction fetches, as reads.
    #[arg(long)]
    instructions: bool,

    /// raw: number of the address bit that marks a write, 0 to 63.
    #[arg(long, value_name = "BIT", value_parser = clap::value_parser!(u8).range(0..64))]
    write_bit: Option<u8>,

    /// Name of the traced program [default: the input's name].
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Input formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum From {
    /// Records of 64 bytes, one per instruction.
    Champsim,
    /// The text of valgrind --tool=lackey --trace-mem=yes.
    Lackey,
    /// 64-bit little-endian addresses.
    Raw,
    /// An address per line, 0x… or decimal; optionally preceded by R or W.
    Text,
}

impl From {
    fn format(self) -> Format {
        match self {
            Self::Champsim => Format::ChampSim,
            Self::Lackey => Format::Lackey,
            Self::Raw => Format::Raw,
            Self::Text => Format::Text,
        }
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let format = args.from.format();
    if args.instructions && !matches!(format, Format::ChampSim | Format::Lackey) {
        let what = "--instructions: only champsim and lackey traces have instruction fetches";
        return Err(Failure::usage(what));
    }
    if args.write_bit.is_some() && format != Format::Raw {
        return Err(Failure::usage("--write-bit: needs --from raw"));
    }
    let printed = files::is_stdout(&args.output);
    if printed && std::io::stdout().is_terminal() {
        return Err(Failure::usage("-: will not write a binary trace to a terminal; name a file"));
    }
    let output = if printed { Path::new("/dev/stdout") } else { &args.output };
    let stdin = args.input.as_os_str() == "-";
    let name = args.input.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.filter(|_| !stdin).unwrap_or_else(|| "standard input".to_string());
    let base_page = u32::try_from(args.base_page.0).unwrap_or(u32::MAX);
    let import = Import {
        filter: args.filter,
        gap: args.gap.0,
        base_page,
        instructions: args.instructions,
        write_bit: args.write_bit,
        replace: args.force || printed,
        scratch: scratch(output),
        ..Import::new(format, args.name.as_ref().unwrap_or(&name))
    };
    let mut watcher = Watcher::new(args.quiet)?;
    let asked = watcher.asked();
    let input = if stdin {
        let stdin = Stdin::new(asked).map_err(operations::signals::no_thread)?;
        Input::new(Box::new(stdin), Path::new("standard input"), format)
    } else {
        Input::open(&args.input, format)
    };
    let mut watch = |progress: Progress| {
        let doing = if progress.writing { "written" } else { "read" };
        watcher.tick(|| format!("{name}: {} accesses {doing}", progress.accesses))
    };
    let made = input
        .and_then(|input| trace::import::import(&import, input, output, &mut watch))
        .map_err(Failure::from);
    let made = match (watcher.end(Done::Fine), made) {
        // A signal is neither a trace nor a failure.
        (done @ Done::Signal(_), Err(_)) => return Ok(done),
        (_, made) => made?,
    };
    let totals = made.totals;
    if printed {
        exit::say(&format!("{} accesses in {} records", totals.accesses, totals.records));
    } else if args.json {
        let body = json!({
            "output": args.output.to_string_lossy(), "records": totals.records,
            "accesses": totals.accesses, "accesses_of_records_that_write": totals.writes,
            "mappings": made.mappings, "touched_regions": made.touched,
        });
        exit::print_json("superpage.trace-import/1", body)?;
    } else {
        exit::print(&format!(
            "{}: {} accesses in {} records; {} mappings inferred from {} touched regions\n",
            args.output.display(),
            totals.accesses,
            totals.records,
            made.mappings,
            made.touched
        ))?;
    }
    Ok(watcher.end(Done::Fine))
}

/// Returns the directory for scratch files: the output's, which must have enough space anyway. For a device it is the
/// temporary directory.
fn scratch(output: &Path) -> PathBuf {
    let device = output.metadata().is_ok_and(|metadata| !metadata.is_file());
    match output.parent() {
        _ if device => std::env::temp_dir(),
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// Parses a filter.
pub fn filter(text: &str) -> Result<Filter, String> {
    let wrong =
        || format!("invalid filter `{text}`: expected none, same-page, set-mru or set-mru:16,8");
    let sets = match text {
        "none" => return Ok(Filter::None),
        "same-page" => return Ok(Filter::SamePage),
        "set-mru" => return Ok(Filter::SetMru(MruSets::INTEL)),
        _ => {
            text.strip_prefix("set-mru:").and_then(|sets| sets.split_once(',')).ok_or_else(wrong)?
        }
    };
    let number = |text| u32::from_str(text).map_err(|_| wrong());
    let sets = MruSets { base: number(sets.0)?, superpage: number(sets.1)? };
    if !sets.is_valid() {
        return Err(format!("invalid filter `{text}`: sets are powers of two up to 4096"));
    }
    Ok(Filter::SetMru(sets))
}
