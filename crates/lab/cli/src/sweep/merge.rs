//! `superpage lab sweep merge`: one result of many shards.

use std::path::{Path, PathBuf};

use lab::sweep::Store;

use super::complain;
use cli::exit::{self, Done, Failure};
use cli::files;

/// Merge a sweep into one Parquet file (a row per cell) and one JSON file (with time lines).
///
/// Directories must hold shards of one plan. Rows are sorted by the cells' hashes: the bytes are the
/// same however the sweep was split and run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directories of the sweep.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Where to: NAME.parquet and NAME.json are written.
    #[arg(long, short, value_name = "NAME")]
    output: PathBuf,

    /// Merge what there is, though some cells are missing.
    #[arg(long)]
    partial: bool,

    /// Write over files that exist.
    #[arg(long)]
    force: bool,

    /// Tell what would be written, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// A prefix of two files' names: a directory would make them hidden files in it, and two files do not
/// go to standard output.
fn check_name(name: &Path) -> Result<(), Failure> {
    let shown = name.display();
    if name.as_os_str().is_empty() || files::is_stdout(name) {
        return Err(Failure::usage(format!(
            "--output {shown}: two files are written; give their name without an ending: sweep"
        )));
    }
    // `file_name` sees through a slash at the end, and `is_dir` asks the disk.
    if name.is_dir() || name.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(Failure::usage(format!(
            "--output {shown}: a directory; name the files in it: {}",
            name.join("sweep").display()
        )));
    }
    Ok(())
}

pub fn run(args: Args) -> Result<Done, Failure> {
    check_name(&args.output)?;
    let named = |extension: &str| {
        let mut name = args.output.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    };
    let json = named(".json");
    let parquet = cfg!(feature = "parquet").then(|| named(".parquet"));
    let both = || parquet.iter().chain([&json]);
    if !args.dry_run {
        both().try_for_each(|path| files::check_new(path, args.force))?;
    }
    let stores: Vec<Store> = args.directories.iter().map(|path| Store::at(path)).collect();
    let merged = lab::sweep::merge(&stores, args.partial).map_err(Failure::usage)?;
    complain(&merged.damaged, "left out");
    let rows = format!("{} of {} cells", merged.rows, merged.planned);
    let names: Vec<String> = both().map(|path| path.display().to_string()).collect();
    let names = names.join(" and ");
    if args.dry_run {
        exit::print(&format!("would write {rows} to {names}\n"))?;
        return Ok(Done::Fine);
    }
    if let (Some(path), Some(bytes)) = (&parquet, &merged.parquet) {
        files::write(path, bytes)?;
    }
    files::write(&json, &merged.json)?;
    exit::print(&format!("{rows} written to {names}\n"))?;
    Ok(Done::Fine)
}
