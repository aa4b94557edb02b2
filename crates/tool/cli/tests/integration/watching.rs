//! `superpage top` and `superpage exporter`: what they say of a made process, files and sockets, bad input, their end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{comes_true, refused, run, send, stderr, stdout, superpage};

/// A program that ends with the test.
struct Sleeping(Child);

impl Sleeping {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_in_the_table_and_in_the_document() {
    let program = Sleeping::start();
    let words = ["top", "--interval", "0.1", "--pid", &program.pid()];
    let table = run(&words);
    assert_eq!((table.status.code(), stderr(&table).as_str()), (Some(0), ""));
    let text = stdout(&table);
    let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!((row[0], *row.last().unwrap()), (program.pid().as_str(), "sleep"), "{text}");
    // `run` checks the document against its schema.
    let document = run(&[&words[..], &["--json"]].concat());
    let document: Value = serde_json::from_str(&stdout(&document)).unwrap();
    let [process] = document["processes"].as_array().unwrap().as_slice() else {
        panic!("{document}")
    };
    assert_eq!(process["pid"].to_string(), program.pid());
    assert_eq!(process["minor_faults"], 0.0);
    let resident = process["resident"].as_u64().unwrap();
    if process["unread"] == "no-scan" {
        testkit::skipped!("this kernel has no PAGEMAP_SCAN");
        return;
    }
    let mapped = process["memory"]["resident"].as_u64().unwrap();
    // Nothing changes in it; the pages of the vdso are in no page table that is counted.
    assert!(resident >= mapped && resident - mapped <= 1 << 20, "{resident} {mapped}");
}

#[test]
fn a_filter_that_means_nothing_and_bad_values_are_refused_in_a_line() {
    for words in [&["top", "--once"][..], &["exporter", "--once"]] {
        let missing = [words, &["--unit", "no-such-unit"]].concat();
        refused(&run(&missing), 2, "no process belongs to unit \"no-such-unit\"");
        refused(&run(&[words, &["--interval", "0"]].concat()), 2, "from 0.1 to 3600 seconds");
        refused(&run(&[words, &["--budget", "101"]].concat()), 2, "0.01 to 100 percent");
    }
    refused(&run(&["top", "--sort", "x"]), 2, "--sort");
    refused(&run(&["exporter", "--listen", "9917"]), 2, "an IP address and a port");
    refused(&run(&["exporter", "--listen", "127.0.0.1:1", "--once"]), 2, "cannot be used with");
    let directory = tempfile::tempdir().unwrap();
    for name in ["x", ".prom", "x.prom.txt", "x.PROM", ""] {
        let file = directory.path().join(name);
        let words = ["exporter", "--once", "--textfile", file.to_str().unwrap()];
        refused(&run(&words), 2, "node_exporter reads only files named NAME.prom");
    }
    refused(&run(&["exporter", "--textfile", "-"]), 2, "files named NAME.prom");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn metrics_are_printed_and_written_over_metrics_alone() {
    let program = Sleeping::start();
    let once = ["exporter", "--once", "--pid", &program.pid()];
    let printed = run(&once);
    let text = stdout(&printed);
    assert!(text.starts_with("# HELP superpage_") && text.ends_with("# EOF\n"), "{text}");
    let count = text.lines().find(|line| line.starts_with("superpage_processes{")).unwrap();
    assert!(count.ends_with("} 1.0"), "{count}");
    assert!(!text.contains(&format!("=\"{}\"", program.pid())), "a pid is a label");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("superpage.prom");
    let name = file.to_str().unwrap();
    for _ in 0..2 {
        let written = run(&[&once[..], &["--textfile", name]].concat());
        assert_eq!((written.status.code(), stdout(&written).as_str()), (Some(0), ""));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("\nsuperpage_processes{"), "{text}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    std::fs::write(&file, "precious").unwrap();
    let kept = run(&[&once[..], &["--textfile", name]].concat());
    refused(&kept, 2, "exists and holds no metrics of superpage");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

/// A label is the name, byte for byte: the format escapes what it must.
#[test]
fn metrics_on_a_pipe_have_names_as_they_are() {
    let name = "superpage-test-\u{1b}[2J\u{7f}\u{9b}\u{202e}";
    // Where the memory controller is, of version 1 or 2.
    let groups = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    let group = groups.iter().find(|dir| std::path::Path::new(dir).is_dir());
    let group = group.map(|dir| std::path::Path::new(dir).join(name));
    let made = group.filter(|group| std::fs::create_dir(group).is_ok());
    testkit::require!(made.is_some(), "no cgroup can be made");
    let group = made.expect("just asked");
    let program = Sleeping::start();
    let moved = std::fs::write(group.join("cgroup.procs"), program.pid());
    let output = run(&["exporter", "--once", "--pid", &program.pid()]);
    drop(program);
    let removed = comes_true(|| std::fs::remove_dir(&group).is_ok());
    moved.unwrap();
    assert!(removed);
    let text = stdout(&output);
    assert!(text.contains(&format!("cgroup=\"/{name}\"")), "{text:?}");
}

/// While it runs, a file is replaced by a link and by a pipe: neither the link's target nor the exporter suffers.
#[test]
fn a_textfile_that_becomes_a_link_or_a_pipe_is_left_alone() {
    let program = Sleeping::start();
    let directory = tempfile::tempdir().unwrap();
    let (file, victim) = (directory.path().join("x.prom"), directory.path().join("victim"));
    std::fs::write(&victim, "precious").unwrap();
    let name = file.to_str().unwrap();
    let mkfifo = || assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    mkfifo();
    let words = ["exporter", "--pid", &program.pid(), "--textfile", name];
    for more in [&["--once"][..], &[]] {
        refused(&run(&[&words[..], more].concat()), 2, "x.prom: is no regular file");
    }
    std::fs::remove_file(&file).unwrap();

    let mut command = superpage(&[&words[..], &["--interval", "0.1"]].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(comes_true(|| file.exists()));
    // Renaming leaves no moment without a file, in which the exporter would write a new one.
    let swap = directory.path().join("swap");
    std::os::unix::fs::symlink(&victim, &swap).unwrap();
    std::fs::rename(&swap, &file).unwrap();
    let line = said.next().unwrap().unwrap();
    assert!(line.ends_with("x.prom: is a symbolic link; choose another name"), "{line}");
    assert!(Command::new("mkfifo").arg(&swap).status().unwrap().success());
    std::fs::rename(&swap, &file).unwrap();
    let is_refused =
        said.any(|line| line.unwrap().ends_with("x.prom: is no regular file; choose another name"));
    assert!(is_refused);
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
}

/// Starts the exporter; returns it with what its first line names.
fn exporter(words: &[&str]) -> (Child, String) {
    let mut command = superpage(&[&["exporter", "--interval", "0.2"], words].concat());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim_end().to_string())
}

fn ask(mut stream: impl Read + Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_on_a_port_and_a_second_one_is_refused_until_it_ends() {
    let program = Sleeping::start();
    let (mut child, line) = exporter(&["--listen", "127.0.0.1:0", "--pid", &program.pid()]);
    let address = line.strip_prefix("superpage: metrics at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    assert!(comes_true(|| ask(TcpStream::connect(address).unwrap()).starts_with("HTTP/1.1 200 ")));
    refused(&run(&["exporter", "--listen", address]), 3, "another program listens there");
    send(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_socket_goes_with_its_exporter() {
    let program = Sleeping::start();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listen = format!("unix:{}", path.display());
    for signal in [libc::SIGINT, libc::SIGKILL, libc::SIGTERM] {
        // After SIGKILL the socket is still there, and is replaced.
        let (mut child, line) = exporter(&["--listen", &listen, "--pid", &program.pid()]);
        assert_eq!(line, format!("superpage: metrics at /metrics of {listen}"));
        let answers =
            || UnixStream::connect(&path).is_ok_and(|stream| ask(stream).contains("# EOF"));
        assert!(comes_true(answers));
        send(&child, signal);
        child.wait().unwrap();
        assert_eq!(path.exists(), signal == libc::SIGKILL, "{signal}");
    }
}

/// A command as nobody, where /proc hides the processes of others.
fn behind_hidepid(words: &[&str]) -> Command {
    let script = "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 \
                  --clear-groups \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--fork", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_superpage")]);
    command.args(words);
    command
}

#[test]
fn a_process_that_proc_hides_is_not_said_to_be_missing() {
    testkit::require!(testkit::is_root(), "not root: /proc cannot be mounted");
    let can = behind_hidepid(&["--version"]).output();
    testkit::require!(can.is_ok_and(|it| it.status.success()), "no /proc of its own for nobody");
    for words in [
        &["map", "--match", "no-such-name"][..],
        &["map", "--unit", "no-such-unit"],
        &["map", "1"],
        &["top", "--once", "--unit", "no-such-unit"],
        &["exporter", "--once", "--cgroup", "/no-such-group"],
        &["pool", "plan", "--match", "no-such-name"],
    ] {
        refused(&behind_hidepid(words).output().unwrap(), 3, "is hidden: /proc is mounted with");
    }
    let output = behind_hidepid(&["doctor", "--json"]).output().unwrap();
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|it| it["id"] == "program-jvm").unwrap();
    assert_eq!(check["state"], "unknown", "{check}");
}

#[test]
fn another_users_process_is_counted_as_unreadable_and_never_as_zero() {
    testkit::require!(testkit::is_root(), "not root: no process of another user");
    let program = Sleeping::start();
    let words = ["top", "--interval", "0.1", "--json", "--pid", &program.pid()];
    let output = superpage(&words).uid(65534).gid(65534).output();
    testkit::require!(output.is_ok(), "the command lies where nobody may not execute it");
    let output = output.expect("just asked");
    testkit::schemas::check_output(&words, &output);
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let process = &document["processes"][0];
    assert_eq!((&process["unread"], &process["memory"]), (&"denied".into(), &Value::Null));
    assert!(process["resident"].as_u64().unwrap() > 0);
    let group = &document["cgroups"][0];
    assert_eq!((&group["denied"], &group["memory"]), (&1.into(), &Value::Null));
    let words = ["exporter", "--once", "--pid", &program.pid()];
    let output = superpage(&words).uid(65534).gid(65534).output().unwrap();
    let text = stdout(&output);
    let value = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        line.and_then(|line| line.rsplit(' ').next()).map(str::to_string)
    };
    assert_eq!(value("superpage_processes_unreadable").as_deref(), Some("1.0"));
    assert_eq!(value("superpage_mapped_bytes"), None);
}
