//! `scripts/quickstart` passes its arguments to `superpage compare`, and asks for the page.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../..");

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_programs_comparison_has_its_page_too() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("scripts")).unwrap();
    for script in ["quickstart", "build-settings"] {
        let name = format!("scripts/{script}");
        fs::copy(Path::new(ROOT).join(&name), dir.path().join(&name)).unwrap();
    }
    executable(&dir.path().join("bin/cargo"), "");
    executable(&dir.path().join("bin/cc"), "cat > /dev/null");
    executable(&dir.path().join("target/debug/superpage"), "echo \"$@\"");
    let path = format!("{}:{}", dir.path().join("bin").display(), std::env::var("PATH").unwrap());
    let compared = |arguments: &[&str]| {
        let mut script = Command::new(dir.path().join("scripts/quickstart"));
        let output = script.args(arguments).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let (_, shell) = said.lines().last().unwrap().split_once(" after: ").unwrap();
        let found = Command::new("sh")
            .args(["-c", &format!("{shell}; command -v superpage")])
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        assert_eq!(
            found.trim_end(),
            dir.path().join("target/debug/superpage").to_str().unwrap(),
            "{said}"
        );
        String::from_utf8(output.stdout).unwrap().trim_end().to_string()
    };
    let page = dir.path().join("target/quickstart.html");
    let page = format!("--html {}", page.canonicalize().unwrap_or(page).display());
    let own = compared(&["--", "./app", "--html", "x"]);
    assert_eq!(own, format!("compare {page} -- ./app --html x"));
    assert!(compared(&[]).starts_with(&format!("compare {page} gups ")));
    for chosen in [&["--html", "mine.html", "--", "./app"][..], &["--dry-run", "--", "./app"]] {
        assert_eq!(compared(chosen), format!("compare {}", chosen.join(" ")));
    }
}
