//! This machine's own file, which `superpage tlb --save` writes and whatever takes a machine reads under the
//! name `this`. The only file that knows where it lies.

use std::path::PathBuf;

use crate::exit::Failure;
use crate::files;

/// Under `$XDG_DATA_HOME` (an absolute path, else it does not count: XDG Base Directory Specification), which
/// is `~/.local/share` by default.
const FILE: &str = "superpage/machines/this.toml";

/// Where it is.
pub fn path() -> Result<PathBuf, Failure> {
    let of =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = of("XDG_DATA_HOME").or_else(|| Some(of("HOME")?.join(".local/share")));
    data.map(|data| data.join(FILE)).ok_or_else(|| {
        Failure::usage("neither XDG_DATA_HOME nor HOME is set to a directory; set one of them")
    })
}

/// Its name, as errors show it, and its text.
pub fn read() -> Result<(String, String), Failure> {
    let path = path()?;
    let shown = path.display().to_string();
    if !path.exists() {
        return Err(Failure::cannot(format!(
            "this machine was not measured yet ({shown} does not exist); `superpage tlb --save` does it"
        )));
    }
    Ok((shown, crate::lab::what::text(&path, "a machine's file")?))
}

/// Writes it, whole or not at all.
pub fn write(text: &str) -> Result<PathBuf, Failure> {
    let path = path()?;
    let directory = path.parent().expect("a file lies in a directory");
    std::fs::create_dir_all(directory).map_err(|error| files::unwritable(directory, &error))?;
    files::write(&path, text)?;
    Ok(path)
}
