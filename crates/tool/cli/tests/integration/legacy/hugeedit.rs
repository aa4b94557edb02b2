//! hugeedit on real files and on malformed ones.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use super::{refuses, tool};
use crate::common::{stderr, stdout};

#[test]
fn marks_and_unmarks_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    let name = path.to_str().unwrap();
    fs::copy("/bin/ls", &path).unwrap();
    fs::hard_link(&path, dir.path().join("second")).unwrap();
    let before = (fs::read(&path).unwrap(), path.metadata().unwrap());
    let shown = tool("hugeedit", &[name]);
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    assert!(stdout(&shown).lines().all(|line| line.ends_with("default is BASE pages")));

    let marked = stdout(&tool("hugeedit", &["--text", "--data", name]));
    let lines = |kind: &str| -> Vec<&str> { marked.lines().filter(|l| l.contains(kind)).collect() };
    assert_eq!((lines("(TEXT)").len(), lines("(DATA)").len()), (1, 1), "{marked}");
    for line in marked.lines() {
        assert_eq!(line.ends_with("HUGE pages"), !line.contains("()"), "{line}");
    }
    // Only two bits of the file change, and none of its attributes.
    let after = (fs::read(&path).unwrap(), path.metadata().unwrap());
    let changed = before.0.iter().zip(&after.0).filter(|(a, b)| a != b).count();
    assert_eq!((changed, before.0.len()), (2, after.0.len()));
    assert_eq!((before.1.ino(), before.1.mode()), (after.1.ino(), after.1.mode()));
    assert!(Command::new(&path).arg("/").output().unwrap().status.success(), "it still runs");
    assert_eq!(stdout(&tool("hugeedit", &[name])), marked);

    let data = stdout(&tool("hugeedit", &["--dat", name]));
    assert!(data.lines().all(|line| line.ends_with("HUGE pages") == line.contains("(DATA)")));
    // bss follows data in the same segment.
    let bss = tool("hugeedit", &["--bss", name]);
    assert_eq!(bss.status.code(), Some(1));
    assert!(stderr(&bss).contains("no segment of its own"), "{}", stderr(&bss));
    assert_eq!(tool("hugeedit", &["--disable", name]).status.code(), Some(0));
    assert_eq!(fs::read(&path).unwrap(), before.0);
}

#[test]
fn what_is_no_program_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read("/bin/ls").unwrap();
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("empty", Vec::new(), "not an ELF file"),
        ("script", b"#!/bin/sh\nexit 0\n".to_vec(), "script"),
        ("short", whole[..5].to_vec(), "ends within its ELF header"),
        ("header", whole[..64].to_vec(), "cut short"),
        ("table", whole[..200].to_vec(), "cut short"),
        (
            "far",
            patched(&whole, 32, &[0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
            "cut short",
        ),
        ("over", patched(&whole, 32, &[0; 8]), "within its ELF header"),
        ("many", patched(&whole, 56, &[0xff, 0xff]), "more than 65534"),
        ("none", patched(&whole, 56, &[0, 0]), "no program headers"),
        ("entry", patched(&whole, 54, &[8, 0]), "8 bytes long"),
        ("object", patched(&whole, 16, &[1, 0]), "ELF type 1"),
        ("order", patched(&whole, 5, &[7]), "byte order is 7"),
    ];
    for (name, bytes, part) in cases {
        let path = dir.path().join(name);
        fs::write(&path, &bytes).unwrap();
        for words in [&["--text", "--data"][..], &["--disable"], &[]] {
            let output = tool("hugeedit", &[words, &[path.to_str().unwrap()]].concat());
            assert_eq!(output.status.code(), Some(1), "{name} {words:?}");
            let line = stderr(&output);
            assert!(line.contains(part) && line.contains(name), "{name}: {line}");
            assert_eq!(fs::read(&path).unwrap(), bytes, "{name}");
        }
    }
}

fn patched(bytes: &[u8], at: usize, patch: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + patch.len()].copy_from_slice(patch);
    bytes
}

#[test]
fn what_may_not_be_written_says_why() {
    refuses(
        "hugeedit",
        &[
            (&[], &["name one program file"]),
            (&["a", "b"], &["name one program file"]),
            (&["--text", "--disable", "/bin/ls"], &["not compatible"]),
            (&["--txt", "/bin/ls"], &["'--txt'"]),
            (&["/no/such"], &["/no/such", "No such file"]),
            (&["--text", "/dev/null"], &["/dev/null is not a file"]),
            (&["/"], &["is not a file"]),
            (&["--text", "/proc/self/exe"], &["it is running"]),
        ],
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    fs::copy("/bin/ls", &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
    let opened = fs::File::options().write(true).open(&path);
    testkit::require!(opened.is_err(), "this user may write any file");
    let output = tool("hugeedit", &["--text", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("Permission denied") && said.contains("the file's owner"), "{said}");
}
