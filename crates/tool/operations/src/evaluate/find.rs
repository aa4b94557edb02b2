//! Finds suites: files that the user names, or suites installed with superpage.

use std::path::{Path, PathBuf};

use crate::Failure;
use crate::cluster::text_of;
use crate::compare::suite::{self, Entry};

/// Directory of suites that run only if the user names them.
const OPT_IN_DIR: &str = "published";

/// Returns the entries of these suites, or of all installed suites. An entry given twice is run once. Two different
/// entries of the same name are an error, because they would share a row of the table.
pub fn entries(suites: &[String]) -> Result<Vec<Entry>, Failure> {
    let files: Vec<PathBuf> = match suites.is_empty() {
        true => all(&own_directory().ok_or_else(no_suites)?)?,
        false => suites.iter().map(|suite| find(suite)).collect::<Result<_, _>>()?,
    };
    let mut entries: Vec<Entry> = Vec::new();
    for file in files {
        for entry in Entry::read(&file)? {
            match entries.iter().find(|known| known.name == entry.name) {
                None => entries.push(entry),
                Some(known) if suites.is_empty() || is_same_file(&known.path, &entry.path) => {}
                Some(known) => {
                    return Err(Failure::usage(format!(
                        "{} and {} both have an entry `{}`; rename one, or name fewer entries, as SUITE:NAME",
                        known.path.display(),
                        entry.path.display(),
                        entry.name
                    )));
                }
            }
        }
    }
    match entries.is_empty() {
        true => Err(Failure::usage("the suites have no entry; write one as [[entry]]")),
        false => Ok(entries),
    }
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || real(one).is_some_and(|one| real(other) == Some(one))
}

/// Finds a suite: a file, or the name of an installed suite, optionally with `:ENTRY`. A bare name never means a file
/// in the working directory, because another user who can write there could choose what root runs.
fn find(suite: &str) -> Result<PathBuf, Failure> {
    let names = || suite::splits(suite).chain([(suite, "")]);
    let is_path = |name: &str| name.contains('/') || name.ends_with(".toml");
    if names().any(|(file, _)| is_path(file) && Path::new(file).is_file()) {
        return Ok(suite.into());
    }
    let directory = own_directory().ok_or_else(no_suites)?;
    let published = directory.join(OPT_IN_DIR);
    let file = |name: &str| {
        let mut files =
            [&directory, &published].into_iter().map(|it| it.join(format!("{name}.toml")));
        files.find(|it| it.is_file())
    };
    let found = names().find_map(|(name, entry)| Some((file(name)?, entry)));
    let Some((mut found, entry)) = found else {
        let what = match names().any(|(file, _)| Path::new(file).is_file()) {
            true => "a file is named with a slash, as ./NAME",
            false => "see superpage evaluate --list",
        };
        return Err(Failure::usage(format!(
            "{suite}: neither a file nor a suite in {}; {what}",
            directory.display()
        )));
    };
    if !entry.is_empty() {
        found.as_mut_os_string().push(format!(":{entry}"));
    }
    Ok(found)
}

/// Returns the entry's name on another machine: by its suite's name if the suite is installed, else by the file's full
/// path.
pub fn name_on_node(entry: &Entry) -> Result<String, Failure> {
    let path = std::path::absolute(&entry.path).unwrap_or_else(|_| entry.path.clone());
    let own = own_directory().filter(|own| path.starts_with(own));
    let suite = match own.and(path.file_stem()) {
        Some(stem) => Path::new(stem),
        None => &path,
    };
    Ok(format!("{}:{}", text_of(suite)?, entry.name))
}

fn all(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let read = std::fs::read_dir(directory);
    let read = read.map_err(|error| Failure::usage(format!("{}: {error}", directory.display())))?;
    let paths = read.flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "toml")).collect();
    files.sort();
    Ok(files)
}

/// Returns the `suites` directory next to the program or above it, or in a `share/superpage` there.
fn own_directory() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let mut directories = own
        .ancestors()
        .skip(1)
        .take(4)
        .flat_map(|above| [above.join("suites"), above.join("share/superpage/suites")]);
    // Ignore a directory that other users can write to: root would run its commands.
    directories.find(|directory| directory.is_dir() && sys::trust::check_as_root(directory).is_ok())
}

fn no_suites() -> Failure {
    Failure::cannot(
        "no directory `suites` beside superpage or in share/superpage; name a file: superpage evaluate FILE.toml",
    )
}
