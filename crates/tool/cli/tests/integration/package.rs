//! Files that `scripts/package` and `install.sh` install from this build: they are installed, used and removed, and
//! nothing is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{has_thp, stderr, stdout};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn has(tool: &str) -> bool {
    let found = |output: Output| output.status.success();
    Command::new("sh").args(["-c", "command -v \"$1\"", "sh", tool]).output().is_ok_and(found)
}

/// Returns every path below a directory.
fn files(directory: &Path) -> BTreeSet<String> {
    let text = ok(Command::new("find").arg(directory).args(["-mindepth", "1", "-printf", "%P\n"]));
    text.lines().map(str::to_string).collect()
}

/// Runs a script with a umask by which only its owner can read new files.
fn for_its_owner_alone(script: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 077; exec \"$0\" \"$@\""]).arg(script);
    command
}

/// Checks that everybody may read all files, and enter all directories, below a directory.
fn is_for_everybody(directory: &Path) {
    for (kind, mode) in [("f", "-004"), ("d", "-005")] {
        let mut find = Command::new("find");
        find.arg(directory).args(["-mindepth", "1", "-type", kind, "!", "-perm", mode]);
        assert_eq!(ok(&mut find), "");
    }
}

/// Returns links of the pages below a directory to files that are not there.
fn dead_links(directory: &Path) -> Vec<String> {
    let all = files(directory);
    let pages: Vec<&String> = all.iter().filter(|name| name.ends_with(".md")).collect();
    assert!(pages.len() > 20, "{pages:?}");
    let mut dead = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(directory.join(page)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            let target = directory.join(page).with_file_name(file);
            if !file.is_empty() && !link.contains("://") && !target.exists() {
                dead.push(format!("{page}: {link}"));
            }
        }
    }
    dead
}

struct Package {
    directory: tempfile::TempDir,
}

impl Package {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let from = Path::new(env!("CARGO_BIN_EXE_superpage")).parent().unwrap();
        let mut script = for_its_owner_alone(&repository().join("scripts/package"));
        script.args(["--only", "tree", "--from"]).arg(from).arg("--output").arg(directory.path());
        // Without this variable `superpage completions` does not build the laboratory first.
        ok(script.env_remove("CARGO_MANIFEST_DIR"));
        Self { directory }
    }

    fn install(&self, words: &[&str], variables: &[(&str, &Path)]) -> Output {
        let mut script = for_its_owner_alone(&self.directory.path().join("tree/install.sh"));
        script.args(words).envs(variables.iter().copied()).output().unwrap()
    }
}

#[test]
fn what_is_installed_works_and_is_removed_without_a_trace() {
    for tool in ["cc", "strip", "objcopy", "gzip"] {
        testkit::require!(has(tool), "no {tool}");
    }
    let package = Package::new();
    let prefix = package.directory.path().join("any where");
    std::fs::create_dir_all(prefix.join("share/man/man1")).unwrap();
    std::fs::write(prefix.join("share/man/man1/other.1"), "").unwrap();
    let before = files(&prefix);
    let installed = package.install(&[], &[("PREFIX", &prefix)]);
    assert!(installed.status.success(), "{}", stderr(&installed));

    is_for_everybody(&prefix);
    let text = |file: &str| std::fs::read_to_string(prefix.join(file)).unwrap();
    for file in [
        "lib/pkgconfig/superpage.pc",
        "lib/systemd/system/superpage-exporter.service",
        "lib/systemd/system/superpage-manage.service",
        "lib/systemd/system/superpage-restore.service",
    ] {
        let text = text(file);
        let is_left = ["@prefix@", "@libdir@", "@includedir@", "@version@"];
        assert!(!is_left.iter().any(|name| text.contains(name)), "{file}: {text}");
        assert!(text.contains(prefix.to_str().unwrap()), "{file}: {text}");
    }
    let page = text("share/man/man1/superpage-run.1");
    for section in
        ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "ENVIRONMENT", "FILES"]
    {
        assert!(page.contains(&format!(".SH {section}\n")), "no {section}");
    }
    let documents = prefix.join("share/doc/superpage");
    assert_eq!(dead_links(&documents), Vec::<String>::new());
    let sizes = ok(&mut Command::new(prefix.join("bin/pagesize")));
    assert!(sizes.trim().parse::<u64>().is_ok(), "{sizes}");

    let mut listing = Command::new(prefix.join("bin/superpage"));
    let listed = ok(listing.args(["evaluate", "--list", "sqlite"]));
    assert!(listed.contains("any where/share/superpage/suites/sqlite.toml"), "{listed}");

    // Existing files are replaced. The tarball may have been unpacked with a restrictive umask.
    ok(Command::new("chmod").args(["-R", "go="]).arg(package.directory.path().join("tree")));
    assert!(package.install(&[], &[("PREFIX", &prefix)]).status.success());
    is_for_everybody(&prefix);
    let removed = package.install(&["uninstall"], &[("PREFIX", &prefix)]);
    assert!(removed.status.success(), "{}", stderr(&removed));
    assert_eq!(files(&prefix), before);
    assert_eq!(package.install(&["uninstall"], &[("PREFIX", &prefix)]).status.code(), Some(1));
}

#[test]
fn a_tree_for_a_package_has_its_own_library_found() {
    for tool in ["cc", "strip", "objcopy", "gzip"] {
        testkit::require!(has(tool), "no {tool}");
    }
    let library = Path::new(env!("CARGO_BIN_EXE_superpage")).with_file_name("libsuperpage.so");
    testkit::require!(library.exists(), "no libsuperpage.so beside superpage (cargo build)");
    let package = Package::new();
    let root = package.directory.path().join("root");
    let libraries = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    let places = [
        ("DESTDIR", root.as_path()),
        ("PREFIX", Path::new("/usr")),
        ("LIBDIR", Path::new(&libraries)),
    ];
    let installed = package.install(&[], &places);
    assert!(installed.status.success(), "{}", stderr(&installed));

    let library = root.join(&libraries[1..]).join("libsuperpage.so.0");
    if has_thp() {
        let mut command = Command::new(root.join("usr/bin/superpage"));
        let shell = "grep -m1 -o '/.*libsuperpage.*' /proc/self/maps";
        let loaded = ok(command.args(["run", "--heap", "-q", "--", "sh", "-c", shell]));
        assert_eq!(loaded.trim(), library.canonicalize().unwrap().to_str().unwrap());
    } else {
        testkit::skipped!("THP are off on this machine");
    }

    let source = package.directory.path().join("a.c");
    let lines = "#include <stdio.h>\n#include <superpage.h>\nint main(void) { puts(superpage_version()); }\n";
    std::fs::write(&source, lines).unwrap();
    let program = package.directory.path().join("a");
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-o").arg(&program).arg("-I").arg(root.join("usr/include"));
    ok(cc.arg("-L").arg(library.parent().unwrap()).arg("-lsuperpage"));
    let version = ok(Command::new(&program).env("LD_LIBRARY_PATH", library.parent().unwrap()));
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    let needed = ok(Command::new("readelf").arg("-d").arg(&program));
    assert!(needed.contains("[libsuperpage.so.0]"), "{needed}");

    assert!(package.install(&["uninstall"], &places).status.success());
    assert_eq!(files(&root), BTreeSet::new());
}
