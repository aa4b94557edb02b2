//! `superpage lab sweep merge`: merges the results of all shards.

use std::path::{Path, PathBuf};

use lab::sweep::{Merged, Store};

use super::damage::complain;
use cli::exit::{self, Done, Failure};
use cli::files;

/// Merge a sweep into one Parquet file (a row per cell) and one JSON file (with time lines).
///
/// A build without the feature `parquet` (scripts/quickstart's) writes the JSON file only, and says so.
///
/// Directories must hold shards of one plan. Rows are sorted by the cells' hashes: the bytes are the same however the
/// sweep was split and run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directories of the sweep.
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,

    /// Where to: NAME.parquet (see above) and NAME.json are written.
    #[arg(long, short, value_name = "NAME")]
    output: PathBuf,

    /// Merge the existing results, though some cells are missing.
    #[arg(long)]
    partial: bool,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Print what would be written; write nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) struct Target {
    parquet: Option<PathBuf>,
    json: PathBuf,
}

impl Target {
    /// Returns the files with this prefix. Rejects a directory, in which they would be hidden files, and standard
    /// output, which cannot take two files.
    pub fn new(name: &Path) -> Result<Self, Failure> {
        let shown = name.display();
        if name.as_os_str().is_empty() || files::is_stdout(name) {
            return Err(Failure::usage(format!(
                "--output {shown}: two files are written; give their name without an ending: sweep"
            )));
        }
        // `file_name` ignores a trailing slash, and `is_dir` needs an existing directory.
        if name.is_dir() || name.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(Failure::usage(format!(
                "--output {shown}: a directory; name the files in it: {}",
                name.join("sweep").display()
            )));
        }
        let named = |extension: &str| {
            let mut name = name.as_os_str().to_owned();
            name.push(extension);
            PathBuf::from(name)
        };
        let parquet = cfg!(feature = "parquet").then(|| named(".parquet"));
        Ok(Self { parquet, json: named(".json") })
    }

    /// Returns the paths.
    pub fn paths(&self) -> Vec<&Path> {
        self.parquet.iter().chain([&self.json]).map(PathBuf::as_path).collect()
    }

    /// Says what is missing and how to get it, if this build writes no Parquet.
    pub fn without_parquet(&self) -> Option<String> {
        self.parquet.is_none().then(|| {
            format!(
                "no Parquet file beside {}: this build lacks the feature `parquet`; `cargo build -p superpage-lab-cli` \
                 builds a command with it",
                self.json.display()
            )
        })
    }

    /// Formats the paths.
    pub fn names(&self) -> String {
        let names: Vec<_> = self.paths().iter().map(|path| path.display().to_string()).collect();
        names.join(" and ")
    }

    /// Fails if the files may not be written.
    pub fn check_new(&self, force: bool) -> Result<(), Failure> {
        self.paths().into_iter().try_for_each(|path| files::check_new(path, force))
    }

    fn contents<'a>(&'a self, merged: &'a Merged) -> impl Iterator<Item = (&'a Path, &'a [u8])> {
        let parquet = self.parquet.as_deref().zip(merged.parquet.as_deref());
        parquet.into_iter().chain([(self.json.as_path(), merged.json.as_bytes())])
    }

    fn write(&self, merged: &Merged, force: bool) -> Result<(), Failure> {
        self.contents(merged).try_for_each(|(path, bytes)| files::write(path, force, bytes))
    }

    /// Writes the files whose contents would change.
    pub fn write_unless_same(&self, merged: &Merged, force: bool) -> Result<(), Failure> {
        let mut others: Vec<_> = self.contents(merged).collect();
        others.retain(|(path, bytes)| !std::fs::read(path).is_ok_and(|old| old == *bytes));
        others.iter().try_for_each(|(path, _)| files::check_new(path, force))?;
        others.iter().try_for_each(|(path, bytes)| files::write(path, force, bytes))
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let target = Target::new(&args.output)?;
    if !args.dry_run {
        target.check_new(args.force)?;
    }
    let stores: Vec<Store> = args.directories.iter().map(|path| Store::at(path)).collect();
    let merged = lab::sweep::merge(&stores, args.partial).map_err(Failure::usage)?;
    complain(&merged.damaged, "left out");
    let rows = format!("{} of {} cells", merged.rows, merged.planned);
    let names = target.names();
    target.without_parquet().iter().for_each(|line| exit::say(line));
    if args.dry_run {
        exit::print(&format!("would write {rows} to {names}\n"))?;
        return Ok(Done::Fine);
    }
    target.write(&merged, args.force)?;
    exit::print(&format!("{rows} written to {names}\n"))?;
    Ok(Done::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_parquet_says_so() {
        let target = Target { parquet: None, json: "sweep.json".into() };
        let line = target.without_parquet().unwrap();
        assert!(line.contains("beside sweep.json") && line.contains("feature `parquet`"), "{line}");
        let both = Target { parquet: Some("sweep.parquet".into()), json: "sweep.json".into() };
        assert_eq!(both.without_parquet(), None);
    }
}
