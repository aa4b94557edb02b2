//! Ray: a Python driver submits each part as a task and copies the results back. The driver reads the request from its
//! standard input. When that input is closed, for example because this process died, the driver cancels its tasks and
//! exits.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use serde::Deserialize;
use serde_json::{Value, json};

use sys::trust;

use super::{Launch, Outcome, Share, Watch, Word, last_line};
use crate::Failure;

pub(super) const DRIVER: &str = include_str!("driver.py");

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Event {
    /// The driver cannot start, for this reason.
    Cannot(String),
    /// The driver has connected to the cluster.
    Cluster { nodes: u64, cpus: f64 },
    /// A part has ended, with the reason if it is incomplete.
    Ended { part: u32, why: Option<String> },
}

fn file(launch: &Launch) -> String {
    format!("{}/logs/driver.py", launch.directory)
}

pub(super) fn command(launch: &Launch) -> Command {
    let mut command = Command::new(&launch.args.python);
    if sys::param::effective_user() == 0 {
        // Isolated mode: import no modules from directories that other users can write to.
        command.arg("-I");
    }
    command.arg(file(launch));
    command
}

pub(super) fn run(launch: &Launch, watch: &mut Watch) -> Result<Outcome, Failure> {
    loop {
        let parts: Vec<u32> = watch.tries.left().collect();
        if parts.is_empty() {
            return Ok(Outcome::default());
        }
        if parts.iter().any(|part| watch.tries.without_progress(*part) > 0) {
            watch.wait(launch.poll());
        }
        round(launch, watch, &parts)?;
        if let Some(signal) = watch.signal() {
            let stopped = "interrupted, and its tasks ended; the same command goes on".to_string();
            return Ok(Outcome {
                signal: Some(signal),
                stopped: Some(stopped),
                ..Outcome::default()
            });
        }
    }
}

/// Submits each of these parts once and waits for them.
fn round(launch: &Launch, watch: &mut Watch, parts: &[u32]) -> Result<(), Failure> {
    let driver = Driver::start(launch, parts)?;
    watch.tries.count_submitted(parts.len());
    let mut waiting: Vec<u32> = parts.to_vec();
    let mut how = "joining the cluster".to_string();
    while watch.signal().is_none() {
        watch.tell(launch, &how)?;
        let line = match driver.lines.recv_timeout(launch.poll().min(POLL)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let event = serde_json::from_str(&line).map_err(|_| {
            Failure::usage(format!("the driver answered `{line}`; see {}", log(launch)))
        })?;
        match event {
            Event::Cannot(why) => return Err(Failure::cannot(why)),
            Event::Cluster { nodes, cpus } => {
                watch.say(&format!("Ray, {nodes} nodes with {cpus} CPUs: {} parts", parts.len()));
            }
            Event::Ended { part, why } => {
                waiting.retain(|one| *one != part);
                let why = || why.unwrap_or("its results are of another version".to_string());
                watch.tries.ended(part, launch.work.left(part)?, why);
            }
        }
        how = format!("{} of {} parts have not ended", waiting.len(), parts.len());
    }
    if watch.signal().is_none() {
        // The driver ended before these parts did.
        let said = fs::read(log(launch)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let why = last_line(&said).unwrap_or("it said nothing").to_string();
        for part in waiting {
            let why = || format!("the driver ended; {} ends with: {why}", log(launch));
            watch.tries.ended(part, launch.work.left(part)?, why);
        }
    }
    Ok(())
}

const POLL: std::time::Duration = std::time::Duration::from_millis(200);

fn log(launch: &Launch) -> String {
    format!("{}/logs/ray.log", launch.directory)
}

struct Driver {
    child: Child,
    lines: Receiver<String>,
}

impl Driver {
    fn start(launch: &Launch, parts: &[u32]) -> Result<Self, Failure> {
        let failed = |path: &str, error: std::io::Error| {
            Failure::usage(format!("{path}: {error}; choose another directory"))
        };
        let (file, log) = (file(launch), log(launch));
        let written = trust::no_links().write(true).create(true).truncate(true).open(&file);
        let written = written.and_then(|mut file| file.write_all(DRIVER.as_bytes()));
        written.map_err(|error| failed(&file, error))?;
        let errors = trust::no_links().create(true).append(true).open(&log);
        let errors = errors.map_err(|error| failed(&log, error))?;
        let mut command = command(launch);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::NotFound => "give a Python that has Ray by --python",
                _ => "give another by --python",
            };
            let python = launch.args.python.display();
            Failure::cannot(format!("{python}: {error}; {remedy}"))
        })?;
        let request = format!("{}\n", request(launch, parts)?);
        // Ignore write errors: a driver that has already ended has printed the reason.
        let _ = child.stdin.as_mut().map(|stdin| stdin.write_all(request.as_bytes()));
        let (sender, lines) = channel();
        let stdout = child.stdout.take().expect("it was asked for");
        let read = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        };
        let driver = Self { child, lines };
        std::thread::Builder::new().spawn(read).map_err(crate::signals::no_thread)?;
        Ok(driver)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Close the driver's input, which makes the driver cancel its tasks and exit.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn request(launch: &Launch, parts: &[u32]) -> Result<Value, Failure> {
    let kind = launch.work.kind();
    let part = |part: &u32| {
        let task = launch.work.task(*part)?;
        let words: Vec<Value> = task.words.iter().map(Word::to_json).collect();
        Ok(json!({ "part": part, "files": task.files, "words": words }))
    };
    let cpus = match launch.share {
        Share::Cpus(cpus) => Some(cpus),
        Share::Node => None,
    };
    Ok(json!({
        "address": launch.args.ray_address,
        "directory": launch.directory,
        "kind": kind.name,
        // Nodes may share a machine, and several works may share a node, so the name must be unique.
        "name": launch.id,
        "program": kind.program,
        "programs": launch.programs,
        "shared": kind.shared,
        "folder": kind.folder,
        "results": kind.results,
        "ends_by": kind.ends_by,
        "of": launch.parts,
        "cpus": cpus,
        "retries": launch.args.retries,
        "parts": parts.iter().map(part).collect::<Result<Vec<_>, Failure>>()?,
    }))
}
