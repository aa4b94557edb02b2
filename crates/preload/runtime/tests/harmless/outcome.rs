//! The outcome of a program: how it ended and what it printed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::modes::{Mode, preload};
use crate::programs;

/// Exit code of a program that cannot run on this machine; its last line says why.
const SKIPPED: i32 = 77;

/// A program that runs longer counts as hanging, which is a separate outcome.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    pub said: String,
    pub complained: String,
}

#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    Hang,
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, signal) => Self::Signal(signal.unwrap_or(0)),
        }
    }
}

impl Outcome {
    /// Runs a command until it ends or `PATIENCE` is over.
    pub fn of(mut command: Command) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The output goes to files, because a process left behind would keep a pipe open.
        let name = |what| format!("harmless-{}-{number}.{what}", std::process::id());
        let [said, complained] =
            ["out", "err"].map(|what| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name(what)));
        command.stdin(Stdio::null()).process_group(0);
        command.stdout(File::create(&said).expect("a file for the output"));
        command.stderr(File::create(&complained).expect("a file for the output"));
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let begun = Instant::now();
        let end = loop {
            if let Some(status) = child.try_wait().expect("a child of ours") {
                break status.into();
            }
            if begun.elapsed() > PATIENCE {
                // SAFETY: a signal to the group that this child leads.
                unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
                child.wait().expect("a child of ours");
                break End::Hang;
            }
            std::thread::sleep(Duration::from_millis(3));
        };
        let text = |path: PathBuf| {
            let text = std::fs::read(&path).expect("the output");
            std::fs::remove_file(&path).expect("a file of ours");
            String::from_utf8_lossy(&text).into_owned()
        };
        let (said, complained) = (text(said), text(complained));
        // The library reports on stderr what was not available.
        let complaints = complained.lines().filter(|line| !line.starts_with("superpage: "));
        Self { end, said: normalized(said.lines()), complained: normalized(complaints) }
    }
}

/// Without addresses.
fn normalized<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut result = String::new();
    for line in lines {
        let mut rest = line;
        while let Some(at) = rest.find("0x") {
            result.push_str(&rest[..at + 2]);
            rest = rest[at + 2..].trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        }
        let _ = writeln!(result, "{rest}");
    }
    result
}

/// Returns a program of `programs/harmless`, built once for all cases; `None`: there is no compiler.
pub fn built(program: &'static str) -> Option<PathBuf> {
    built_as(program, program, &["-O1", "-pthread"])
}

/// The same, built with other options under another name.
pub fn built_as(program: &str, name: &'static str, flags: &[&str]) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !built.contains_key(name) {
        if !programs::has("cc") {
            return None;
        }
        // The tests are about allocations, so the compiler must not optimise these away.
        let flags = [&["-fno-builtin", "-w"], flags].concat();
        let path = format!("harmless/{program}.c");
        // Rename the finished program: another process of these tests may be running the previous one.
        let new = format!("harmless-{name}.{}", std::process::id());
        let new = programs::build(&path, &new, "cc", &flags);
        let program = new.with_file_name(format!("harmless-{name}"));
        std::fs::rename(new, &program).expect("a directory of ours");
        built.insert(name, program);
    }
    built.get(name).cloned()
}

/// Returns the modes to run: all in the nightly set, otherwise the first and one more, drawn by the name of the case.
fn drawn(case: &str, modes: &[Mode]) -> Vec<Mode> {
    match modes {
        [first, others @ ..] if !others.is_empty() && !testkit::is_nightly() => {
            let sum: usize = case.bytes().map(usize::from).sum();
            vec![*first, others[sum % others.len()]]
        }
        _ => modes.to_vec(),
    }
}

/// Runs a command natively and then in each mode. Fails with the names of the modes whose outcome differs. `also` is
/// preloaded in all modes.
pub fn compare(case: &str, modes: &[Mode], also: Option<&Path>, make: impl Fn() -> Command) {
    let run = |preloaded: String, variables| {
        let mut command = make();
        command.envs::<Vec<(&str, String)>, _, _>(variables);
        if !preloaded.is_empty() {
            command.env("LD_PRELOAD", preloaded);
        }
        Outcome::of(command)
    };
    let native = run(also.map(|path| path.display().to_string()).unwrap_or_default(), Vec::new());
    if native.end == End::Exit(SKIPPED) {
        testkit::skipped!("{}", native.said.lines().last().unwrap_or("no reason"));
        return;
    }
    let mut differences = String::new();
    for mode in drawn(case, modes) {
        if let Err(reason) = mode.prepare() {
            testkit::skipped!("{mode:?}: {reason}");
            continue;
        }
        let under = run(preload(also), mode.variables());
        let same = native == under;
        println!("{case} {mode:?} {}", if same { "same" } else { "differs" });
        if !same {
            let _ = writeln!(differences, "{mode:?}: {under:#?}");
        }
    }
    assert!(differences.is_empty(), "{case}\nnatively: {native:#?}\n{differences}");
}
