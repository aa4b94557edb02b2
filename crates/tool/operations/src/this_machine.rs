//! Reads and writes this machine's own files: the machine that commands read under the name `this`, and the full
//! calibration next to it. `superpage tlb --save` writes both, and `superpage bench` adds costs to the machine. No
//! other module knows their paths.

use std::path::PathBuf;

use host::{Root, Snapshot};
use machine::{costs_marked, with_costs};
use tlb_probe::Calibration;
use walk_cost::MissCost;

use crate::Failure;
use crate::files;
use crate::json;

/// Path below `$XDG_DATA_HOME` (ignored unless absolute: XDG Base Directory Specification), by default
/// `~/.local/share`.
const FILE: &str = "superpage/machines/this.toml";
/// Extension of the calibration's file (superpage.tlb/1).
const CALIBRATION: &str = "json";

/// Comment on every cost that `superpage bench` measured.
pub const BENCH: &str = "(measured) superpage bench";

/// Returns the path of the machine's file.
pub fn path() -> Result<PathBuf, Failure> {
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = of("XDG_DATA_HOME").or_else(|| Some(of("HOME")?.join(".local/share")));
    data.map(|data| data.join(FILE))
        .ok_or_else(|| Failure::usage("set XDG_DATA_HOME or HOME to a directory"))
}

/// Reads the machine's file. Returns its name for errors, and its text.
pub fn read() -> Result<(String, String), Failure> {
    kept(path()?, "a machine's file")
}

fn kept(path: PathBuf, what: &str) -> Result<(String, String), Failure> {
    let shown = path.display().to_string();
    if !path.exists() {
        return Err(Failure::cannot(format!(
            "this machine has not been measured ({shown} does not exist); run: superpage tlb --save"
        )));
    }
    Ok((shown, files::text(&path, files::LARGEST, what)?))
}

/// Creates the directory of the machine's file, and checks that the file can be written: before a measurement, which
/// takes a minute. Returns the file's path.
///
/// # Errors
/// The directory cannot be created or written, or, for root, belongs to another user.
pub fn check_writable() -> Result<PathBuf, Failure> {
    let path = path()?;
    let directory = path.parent().expect("a file lies in a directory");
    // As root with another user's HOME, refuse directories where that user could redirect the write.
    sys::trust::directory(directory).map_err(|error| files::unwritable(directory, &error))?;
    files::check_new(&path, true)?;
    Ok(path)
}

/// Writes the machine's file atomically.
pub fn write(text: &str) -> Result<PathBuf, Failure> {
    let path = check_writable()?;
    files::write(&path, true, text)?;
    Ok(path)
}

/// Writes the machine of a calibration, and the calibration next to it. Costs measured by `bench` are kept.
pub fn write_calibration(found: &Calibration) -> Result<PathBuf, Failure> {
    let kept = read().map(|(_, text)| costs_marked(&text, BENCH));
    let path = write(&with_costs(&found.to_machine(), &kept.unwrap_or_default()))?;
    files::write(&path.with_extension(CALIBRATION), true, json::to_json(found)?)?;
    Ok(path)
}

/// Returns the processor of a calibration, if it is known to differ from this machine's.
fn of_another(found: &Calibration) -> Option<String> {
    let here = Snapshot::read(&Root::real()).cpu.and_then(|cpu| cpu.model)?;
    found.processor.model.clone().filter(|there| *there != here)
}

/// Returns the saved cost of a TLB miss on base pages of this machine, in cycles.
pub fn miss_cost() -> Result<MissCost, Failure> {
    let (shown, found) = calibration()?;
    priced(&shown, &found)
}

/// Like [`miss_cost`], but returns `None` if nothing was saved, or by another machine: several may share a home
/// directory.
pub fn miss_cost_if_kept() -> Result<Option<MissCost>, Failure> {
    let kept = calibration().ok();
    kept.map(|(shown, found)| priced(&shown, &found)).transpose()
}

/// Reads the calibration of this machine, and returns its path too.
fn calibration() -> Result<(String, Calibration), Failure> {
    let (shown, text) = kept(path()?.with_extension(CALIBRATION), "a calibration")?;
    let found: Calibration = report::document::read(&text).map_err(|why| unusable(&shown, &why))?;
    match of_another(&found) {
        Some(there) => Err(unusable(&shown, &format!("it is of another machine ({there})"))),
        None => Ok((shown, found)),
    }
}

fn unusable(shown: &str, why: &str) -> Failure {
    Failure::usage(format!("{shown}: {why}; write it again with: superpage tlb --save"))
}

fn priced(shown: &str, found: &Calibration) -> Result<MissCost, Failure> {
    let base = found.base().ok_or_else(|| unusable(shown, "it has no base pages"))?;
    let miss = base.miss.as_ref().ok_or_else(|| unusable(shown, "it has no TLB miss"))?;
    let hit = base.levels.get(1).and_then(|level| level.hit.as_ref());
    Ok(MissCost {
        walk: Some(miss.cycles),
        second_level_hit: hit.map(|hit| hit.cycles),
        is_of_cached_tables: true,
        source: format!("superpage tlb, saved in {shown}"),
    })
}
