//! One program with many names.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::{command, refuses, tool};
use crate::common::{run, stderr, stdout};

#[test]
fn links_and_subcommands_are_the_same() {
    for words in [&["-a"][..], &["--huge-only"], &["--help"]] {
        let by_link = tool("pagesize", words);
        assert_eq!(by_link.status.code(), Some(0));
        let by_subcommand = run(&[&["pagesize"], words].concat());
        assert_eq!(by_link, by_subcommand, "{words:?}");
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let hard = dir.path().join("pagesize");
    std::fs::hard_link(env!("CARGO_BIN_EXE_superpage"), &hard).unwrap();
    assert_eq!(Command::new(&hard).arg("-a").output().unwrap(), tool("pagesize", &["-a"]));
    // The name in argv[0] counts, not the file's.
    let other = Command::new(env!("CARGO_BIN_EXE_superpage")).arg0("/x/hugeedit").output().unwrap();
    assert!(stderr(&other).starts_with("hugeedit: "), "{other:?}");
    let other = Command::new(env!("CARGO_BIN_EXE_superpage")).arg0("hugeedits").output().unwrap();
    assert!(stderr(&other).contains("superpage"), "{other:?}");
}

#[test]
fn every_command_helps() {
    for name in ["hugeadm", "hugectl", "hugeedit", "pagesize"] {
        for word in ["--help", "-h", "--hel"] {
            let output = tool(name, &[word]);
            assert_eq!(output.status.code(), Some(0), "{name} {word}");
            assert!(stderr(&output).starts_with(&format!("{name} [options]")), "{name} {word}");
            assert_eq!(stdout(&output), "");
        }
        assert!(stdout(&run(&["--help"])).contains(name));
    }
}

#[test]
fn pagesize_prints_what_the_kernel_has() {
    let base = stdout(&Command::new("getconf").arg("PAGESIZE").output().unwrap());
    assert_eq!(stdout(&tool("pagesize", &[])), base);
    let all = stdout(&tool("pagesize", &["-a"]));
    let huge = stdout(&tool("pagesize", &["-aH"]));
    assert_eq!(all, format!("{base}{huge}"));
    let pools = std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().count();
    assert_eq!(huge.lines().count(), pools);
    refuses(
        "pagesize",
        &[
            (&["--banana"], &["unrecognized option '--banana'"]),
            (&["-x"], &["invalid option -- 'x'"]),
            (&["x"], &["\"x\" is not an option"]),
        ],
    );
}

#[test]
fn an_odd_level_in_the_environment_is_said_and_quiet_is_quiet() {
    let output = command("pagesize").env("HUGETLB_VERBOSE", "loud").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("`loud`"));
    let quiet = |words: &[&str]| {
        let output = command("pagesize").args(words).env("HUGETLB_VERBOSE", "0").output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let (code, text) = quiet(&["-x"]);
    assert!(code == Some(1) && text.starts_with("pagesize [options]"), "the usage alone: {text}");
    assert_eq!(quiet(&["-a"]), (Some(0), String::new()));
}
