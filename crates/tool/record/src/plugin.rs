//! QEMU and our plugin: finds QEMU, builds the plugin at first use, and keeps it in the user's cache. Debian's
//! qemu-user supports plugins but lacks the header, so the plugin's source needs no QEMU file to build.
//!
//! A plugin is code that runs as this user. So the plugin's file, and all directories above it, must belong to this
//! user or root and must not be writable by others. See docs/decisions/record.md#1, docs/decisions/security.md#2.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use sys::trust;
use xxhash_rust::xxh3::xxh3_128;

use crate::RecordError;

/// The plugin's source; `plugin.c` includes the others.
const SOURCES: [(&str, &str); 6] = [
    ("qemu.h", include_str!("../plugin/qemu.h")),
    ("wire.h", include_str!("../plugin/wire.h")),
    ("filter.h", include_str!("../plugin/filter.h")),
    ("exec.h", include_str!("../plugin/exec.h")),
    ("calls.h", include_str!("../plugin/calls.h")),
    ("plugin.c", include_str!("../plugin/plugin.c")),
];

const FLAGS: [&str; 4] = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden"];

/// The tools of a recording: QEMU and the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// qemu-x86_64.
    pub qemu: PathBuf,
    /// QEMU's version, as printed.
    pub version: String,
    /// The plugin.
    pub plugin: PathBuf,
}

impl Tools {
    /// Finds QEMU in `search` (like PATH) and the plugin in `cache`. Builds a missing plugin with the `cc` in `search`,
    /// which takes half a second.
    pub fn prepare(search: &str, cache: &Path) -> Result<Self, RecordError> {
        let tools = Self::find(search, cache)?;
        let failed =
            |error| RecordError::io(cache, "the QEMU plugin cannot be written there", error);
        trust::check(cache)?;
        DirBuilder::new().recursive(true).mode(0o700).create(cache).map_err(|source| {
            let remedy = "; set XDG_CACHE_HOME to a directory that you may write to";
            let doing = "the QEMU plugin cannot be written there";
            RecordError::Io { path: cache.to_path_buf(), doing, source, remedy }
        })?;
        // Resolve symbolic links once, so that QEMU gets a path without any.
        let cache = cache.canonicalize().map_err(failed)?;
        trust::check(&cache)?;
        let name = tools.plugin.file_name().unwrap_or_default();
        let tools = Self { plugin: cache.join(name), ..tools };
        if !tools.is_built() {
            build(&tools.plugin, &cache, search)?;
        }
        Ok(tools)
    }

    /// Whether the plugin exists and only this user or root can write to it.
    pub fn is_built(&self) -> bool {
        let metadata = self.plugin.symlink_metadata();
        metadata.is_ok_and(|it| it.is_file() && trust::is_ours(&it))
    }

    /// Like [`Tools::prepare`], but does not build the plugin.
    pub fn find(search: &str, cache: &Path) -> Result<Self, RecordError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(RecordError::ThisMachine);
        }
        let qemu = find("qemu-x86_64", search).ok_or(RecordError::NoQemu)?;
        let version = version(&qemu)?;
        let mut text = version.clone();
        SOURCES.iter().for_each(|(name, source)| text += &format!("\0{name}\0{source}"));
        FLAGS.iter().for_each(|flag| text += flag);
        let name = format!("recorder-{:032x}.so", xxh3_128(text.as_bytes()));
        let plugin = cache.join(name);
        Ok(Self { qemu, version, plugin })
    }

    /// The version number: 7.2.22.
    pub fn number(&self) -> &str {
        let after = self.version.split("version ").nth(1).unwrap_or(&self.version);
        after.split_whitespace().next().unwrap_or_default()
    }
}

/// Finds the first executable file of this name in `search`.
fn find(name: &str, search: &str) -> Option<PathBuf> {
    let paths = search.split(':').map(|directory| Path::new(directory).join(name));
    // Use absolute paths, because when the program calls exec, from any directory, QEMU is executed
    // again.
    let paths = paths.filter_map(|path| std::path::absolute(path).ok());
    paths.into_iter().find(|path| {
        path.metadata()
            .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

fn version(qemu: &Path) -> Result<String, RecordError> {
    let bad = |what: String| RecordError::BadQemu { path: qemu.to_path_buf(), what };
    let output = Command::new(qemu).arg("--version").output();
    let output = output.map_err(|error| bad(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default().trim().to_string();
    if line.contains("version ") {
        Ok(line)
    } else {
        Err(bad("it does not print its version".into()))
    }
}

/// Builds the plugin under a temporary name and renames it, so that a concurrent recording sees either the whole file
/// or none.
fn build(plugin: &Path, cache: &Path, search: &str) -> Result<(), RecordError> {
    let cc = find("cc", search).ok_or(RecordError::NoCompiler)?;
    let failed = |source| RecordError::Io {
        path: cache.to_path_buf(),
        doing: "the QEMU plugin cannot be written there",
        source,
        remedy: "; set XDG_CACHE_HOME to a directory that you may write to",
    };
    let room = tempfile::Builder::new()
        .prefix(".recorder")
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(cache)
        .map_err(failed)?;
    for (name, source) in SOURCES {
        std::fs::write(room.path().join(name), source).map_err(failed)?;
    }
    let made = room.path().join("made.so");
    let output = Command::new(&cc)
        .args(FLAGS)
        .arg("-o")
        .arg(&made)
        .arg(room.path().join("plugin.c"))
        .output()
        .map_err(failed)?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = text.lines().find(|line| line.contains("error")).or(text.lines().next());
        let said = line.unwrap_or("it says nothing").trim().to_string();
        return Err(RecordError::Compiler { path: cc, said });
    }
    // Set the mode explicitly, so that it does not depend on the umask.
    std::fs::set_permissions(&made, Permissions::from_mode(0o755)).map_err(failed)?;
    std::fs::rename(&made, plugin).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_command_that_installs_it() {
        let cache = tempfile::tempdir().unwrap();
        let error = Tools::prepare("/no/such", cache.path()).unwrap_err();
        assert!(error.is_cannot() && error.to_string().contains("apt-get install qemu-user"));
        let error = build(&cache.path().join("x.so"), cache.path(), "/no/such").unwrap_err();
        assert!(error.is_cannot() && error.to_string().contains("apt-get install gcc"));
    }

    #[test]
    fn it_is_built_once_and_a_failed_compiler_leaves_nothing() {
        testkit::require!(find("cc", "/usr/bin").is_some(), "no C compiler");
        let cache = tempfile::tempdir().unwrap();
        let plugin = cache.path().join("recorder.so");
        build(&plugin, plugin.parent().unwrap(), "/usr/bin").unwrap();
        assert!(plugin.metadata().unwrap().len() > 1000);
        let tools = tempfile::tempdir().unwrap();
        let cc = tools.path().join("cc");
        let fails = "#!/bin/sh\necho 'x.c:1: error: no such thing' >&2\nexit 1\n";
        testkit::write_script(&cc, fails);
        std::fs::create_dir(cache.path().join("again")).unwrap();
        let again = cache.path().join("again/recorder.so");
        let error = build(&again, again.parent().unwrap(), tools.path().to_str().unwrap());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains("apt-get"), "{error}");
        assert_eq!(std::fs::read_dir(again.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_plugin_that_others_could_have_written_is_none() {
        let cache = tempfile::tempdir().unwrap();
        let plugin = cache.path().join("recorder.so");
        let tools = Tools { qemu: PathBuf::new(), version: String::new(), plugin: plugin.clone() };
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        };
        std::fs::write(&plugin, "code").unwrap();
        for (bits, is_built) in [(0o755, true), (0o775, false), (0o757, false), (0o600, true)] {
            mode(&plugin, bits);
            assert_eq!(tools.is_built(), is_built, "{bits:o}");
        }
        let elsewhere = cache.path().join("elsewhere");
        std::fs::rename(&plugin, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &plugin).unwrap();
        assert!(!tools.is_built());
        assert!(trust::check(&cache.path().join("yet/to/be/made")).is_ok());
        let open = cache.path().join("open");
        std::fs::create_dir_all(open.join("inner")).unwrap();
        for (bits, private) in [(0o755, true), (0o770, false), (0o777, false), (0o1777, true)] {
            mode(&open, bits);
            assert_eq!(trust::check(&open.join("inner")).is_ok(), private, "{bits:o}");
        }
        mode(&open, 0o777);
        let error = RecordError::from(trust::check(&open.join("inner")).unwrap_err());
        assert!(error.is_cannot() && error.to_string().contains("mode 777"), "{error}");
    }

    #[test]
    fn root_does_not_trust_what_is_another_users() {
        testkit::require!(sys::param::effective_user() == 0, "needs root");
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
        assert!(trust::check(&home.path().join(".cache")).is_err());
        let cache = tempfile::tempdir().unwrap();
        let plugin = cache.path().join("recorder.so");
        std::fs::write(&plugin, "code").unwrap();
        let tools = Tools { qemu: PathBuf::new(), version: String::new(), plugin: plugin.clone() };
        assert!(tools.is_built());
        std::os::unix::fs::chown(&plugin, Some(65534), Some(65534)).unwrap();
        assert!(!tools.is_built());
    }
}
