//! `superpage trace`: its files, output and errors.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{refused, run, send, stderr, stdout, superpage, wait_until};

/// A directory for files.
struct Room(tempfile::TempDir);

impl Room {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Returns the fixture of the crate `trace`: /bin/true under lackey.
fn fixture() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/trace/tests/fixtures/true.lackey.xz");
    path.to_str().unwrap().to_string()
}

fn trace(room: &Room, name: &str) -> String {
    let path = room.path(name);
    let output = run(&["trace", "import", "--from", "lackey", &fixture(), &path]);
    assert!(output.status.success(), "{}", stderr(&output));
    path
}

#[test]
fn import_info_verify_and_cat() {
    let room = Room::new();
    let path = trace(&room, "true.spt");
    assert_eq!(room.names(), ["true.spt"]);

    let text = stdout(&run(&["trace", "info", &path]));
    for part in [
        "workload  true.lackey.xz",
        "trace import --from lackey",
        "same-page: exact for every TLB",
        "inferred from touched pages; a gap of 4 MiB ends one",
        "41239 accesses in 15872 records",
    ] {
        assert!(text.contains(part), "lacks {part}: {text}");
    }
    let document: serde_json::Value =
        serde_json::from_slice(&run(&["trace", "info", "--json", &path]).stdout).unwrap();
    assert_eq!(document["schema"], "superpage.trace/1");
    assert_eq!(document["accesses"], 41_239);
    assert_eq!(document["gap_bytes"], 4 << 20);
    assert_eq!(document["filter"]["base_sets"], serde_json::Value::Null);
    assert_eq!(document["spans"].as_array().unwrap().len(), 4);

    let output = run(&["trace", "verify", &path]);
    assert!(stdout(&output).contains(": ok: 41239 accesses in 15872 records, 5 events"));
    let document: serde_json::Value =
        serde_json::from_slice(&run(&["trace", "verify", "--json", &path]).stdout).unwrap();
    assert_eq!(
        (&document["schema"], &document["sound"]),
        (&"superpage.trace-verify/1".into(), &true.into())
    );

    let text = stdout(&run(&["trace", "cat", &path]));
    assert_eq!(text.lines().count(), 15_872 + 5);
    let first: Vec<&str> = text.lines().take(7).collect();
    assert_eq!(first[0], "spawn 0");
    assert!(first[1].starts_with("map 0:510 +3 at page 0x1ffeffe anonymous"), "{first:?}");
    assert!(["R ", "W "].iter().any(|kind| first[5].starts_with(kind)), "{first:?}");
    for limit in [0, 1, 3, 100] {
        let text = stdout(&run(&["trace", "cat", &path, "--limit", &limit.to_string()]));
        assert_eq!(text.lines().count(), limit);
    }
    refused(&run(&["trace", "cat", &path, "--chunk", "1"]), 2, "are numbered from 0");
}

#[test]
fn a_dash_is_standard_output() {
    let room = Room::new();
    let path = trace(&room, "true.spt");
    let import = ["trace", "import", "--from", "lackey", &fixture(), "-"];
    let output = superpage(&import).current_dir(room.0.path()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("41239 accesses"), "{}", stderr(&output));
    assert_eq!(output.stdout, fs::read(&path).unwrap());
    assert_eq!(room.names(), ["true.spt"]);
}

#[test]
fn filters_and_formats() {
    let room = Room::new();
    let from = |arguments: &[&str]| {
        let out = room.path("out.spt");
        let all = [&["trace", "import", "--force", "--json"], arguments, &[&out]].concat();
        let output = run(&all);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let lackey = fixture();
    let made = from(&["--from", "lackey", "--filter", "set-mru", &lackey]);
    assert_eq!(
        (&made["schema"], &made["records"]),
        (&"superpage.trace-import/1".into(), &7368.into())
    );
    let made = from(&["--from", "lackey", "--filter", "set-mru:1,1", &lackey]);
    assert!(made["records"].as_u64().unwrap() >= 7368);
    let made = from(&["--from", "lackey", "--filter", "none", "--instructions", &lackey]);
    assert_eq!(made["records"], made["accesses"]);

    let text = room.file("addresses.txt", b"0x1000\nW 0x2000\n12288\n");
    assert_eq!(from(&["--from", "text", &text])["accesses"], 3);
    let raw = room.file(
        "raw",
        &(0..100u64).flat_map(|n| (n << 63 | n << 12).to_le_bytes()).collect::<Vec<u8>>(),
    );
    let made = from(&["--from", "raw", "--write-bit", "63", &raw]);
    assert_eq!(
        (&made["accesses"], &made["accesses_of_records_that_write"]),
        (&100.into(), &50.into())
    );
    let mut record = [0u8; 64];
    record[34] = 9;
    record[18] = 9;
    let champsim = room.file("c.trace", &record.repeat(5));
    let made = from(&["--from", "champsim", &champsim]);
    assert_eq!((&made["accesses"], &made["records"]), (&10.into(), &2.into()));
}

#[test]
fn bad_files() {
    let room = Room::new();
    let path = trace(&room, "a.spt");
    let bytes = fs::read(&path).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let mut version = bytes.clone();
    version[8] = 9;
    let huge = room.path("huge.spt");
    // A file with a hole of 1 TiB after a valid beginning, and one that also has a valid end.
    fs::write(&huge, &bytes[..300]).unwrap();
    fs::File::options().write(true).open(&huge).unwrap().set_len(1 << 40).unwrap();
    let mut tail = fs::File::options().append(true).open(&huge).unwrap();
    tail.write_all(&bytes[bytes.len() - 32..]).unwrap();
    let hole = room.path("hole.spt");
    fs::File::create(&hole).unwrap().set_len(1 << 40).unwrap();
    let pipe = room.path("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let directory = room.0.path().to_str().unwrap().to_string();

    let cases = [
        (room.file("begun.spt", &bytes[..9]), "it ends in its header"),
        (room.file("empty.spt", b""), "an empty file"),
        (room.file("text.spt", b"0x1000\n"), "not a superpage trace"),
        (room.file("version.spt", &version), "format version 9"),
        (huge, "the end does not say where the footer is"),
        (hole, "not a superpage trace"),
        (pipe, "a pipe or a device"),
        (directory, "a directory"),
        (room.path("none"), "No such file"),
    ];
    for (path, part) in &cases {
        let output = run(&["trace", "info", path]);
        refused(&output, 2, part);
        assert!(stderr(&output).contains(path.as_str()));
        refused(&run(&["trace", "cat", path]), 2, part);
    }
    // A trace without its end: complete chunks are read, with a warning, and `verify` reports the damage.
    for (name, some) in [
        ("truncated.spt", &bytes[..bytes.len() - 1]),
        ("half.spt", &bytes[..bytes.len() / 2]),
        ("more.spt", &[&bytes[..], b"x"].concat()),
    ] {
        let path = room.file(name, some);
        for subcommand in ["info", "cat"] {
            let output = run(&["trace", subcommand, &path]);
            let said = stderr(&output);
            assert!(output.status.success(), "{said}");
            assert!(said.contains("truncated at byte ") && said.lines().count() == 1, "{said}");
        }
        let verified = run(&["trace", "verify", &path]);
        assert_eq!(verified.status.code(), Some(1), "{verified:?}");
        assert!(stdout(&verified).contains("truncated: "), "{verified:?}");
    }
    // Header and footer are valid; only cat and verify read the damaged part.
    let flipped = room.file("flipped.spt", &flipped);
    assert!(run(&["trace", "info", &flipped]).status.success());
    refused(&run(&["trace", "cat", &flipped]), 2, "(chunk 0): corrupt: its checksum is wrong");
    let output = run(&["trace", "verify", &flipped]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("(chunk 0): corrupt"), "{}", stdout(&output));
    assert_eq!(run(&["trace", "verify", &cases[0].0]).status.code(), Some(1));
}

#[test]
fn bad_imports_and_outputs() {
    let room = Room::new();
    let lackey = fixture();
    let text = room.file("a.txt", b"0x1000\nnonsense\n\n");
    let out = room.path("out.spt");
    let directory = room.0.path().to_str().unwrap().to_string();
    let nowhere = room.path("no/where.spt");
    let import = |arguments: &[&str]| run(&[&["trace", "import"], arguments].concat());
    for (arguments, part) in [
        (&["--from", "text", &text, &out][..], "a.txt: line 2: `nonsense` is no address"),
        (&["--from", "raw", &text, &out], "is truncated, or --from is wrong"),
        (&["--from", "champsim", &lackey, &out], "ChampSim"),
        (&["--from", "lackey", "/dev/null", &out], "holds no access"),
        (&["--from", "lackey", &directory, &out], "a directory"),
        (&["--from", "lackey", &lackey, &directory], "a directory"),
        (&["--from", "lackey", &lackey, &nowhere], "cannot be written: No such file"),
        (&["--from", "lackey", &room.path("none"), &out], "No such file"),
        (&["--from", "pin", &lackey, &out], "possible values"),
        (&["--from", "lackey", "--filter", "set-mru:3,8", &lackey, &out], "powers of two"),
        (&["--from", "lackey", "--filter", "all", &lackey, &out], "invalid filter"),
        (&["--from", "lackey", "--base-page", "5000", &lackey, &out], "a power of two"),
        (&["--from", "lackey", "--base-page", "8G", &lackey, &out], "a power of two"),
        (&["--from", "lackey", "--write-bit", "3", &lackey, &out], "needs --from raw"),
        (&["--from", "raw", "--write-bit", "64", &lackey, &out], "64"),
        (&["--from", "text", "--instructions", &text, &out], "only champsim and lackey"),
    ] {
        refused(&import(arguments), 2, part);
        assert_eq!(room.names(), ["a.txt"], "{arguments:?}");
    }
    // An existing file is kept, unless --force is given and the import succeeds.
    fs::write(&out, b"precious").unwrap();
    refused(&import(&["--from", "lackey", &lackey, &out]), 2, "--force");
    refused(&import(&["--from", "text", "--force", &text, &out]), 2, "line 2");
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    let link = room.path("link.spt");
    std::os::unix::fs::symlink("out.spt", &link).unwrap();
    assert!(import(&["--from", "lackey", "--force", &lackey, &link]).status.success());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(run(&["trace", "verify", &out]).status.success());
    assert!(import(&["--from", "lackey", &lackey, "/dev/null"]).status.success());
    assert_eq!(room.names(), ["a.txt", "link.spt", "out.spt"]);
}

#[test]
fn an_unreadable_file() {
    use std::os::unix::fs::PermissionsExt;
    let room = Room::new();
    let path = room.file("a.spt", b"x");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    testkit::require!(fs::File::open(&path).is_err(), "this user reads everything");
    refused(&run(&["trace", "info", &path]), 2, "Permission denied");
}

/// An import that waits for more input leaves nothing if it is stopped, and no file of the final name if it is killed.
#[test]
fn stopped_and_killed_half_way() {
    let room = Room::new();
    let out = room.path("out.spt");
    for (signal, left) in [(libc::SIGINT, 0), (libc::SIGKILL, 1)] {
        let mut child = superpage(&["trace", "import", "--from", "text", "-", &out])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&b"0x1000\n0x200000\n".repeat(200_000)).unwrap();
        // When the output file exists (under another name), signals are already handled.
        wait_until("the output is begun", || !room.names().is_empty());
        assert_eq!(room.names().len(), 1);
        send(&child, signal);
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal));
        assert_eq!(room.names().len(), left, "{:?}", room.names());
        assert!(!Path::new(&out).exists());
    }
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let room = Room::new();
    let path = trace(&room, "a.spt");
    let mut child = superpage(&["trace", "cat", &path])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stderr(&output), "");
}
