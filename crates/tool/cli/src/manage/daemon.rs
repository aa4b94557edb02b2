//! `superpage manage` as a service: designs kept in force, and what is in force.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::manage::config::{Config, ConfigError, Mode, Sources};
use ::manage::daemon::status::{Kept, Pause, Status};
use ::manage::daemon::{Control, Daemon};
use ::manage::operation::{LOCK, Notifier, OnlyManager, Watchdog, check_unmanaged};
use ::manage::record;
use host::Root;
use operations::files::OwnFile;
use report::format::{bytes, counted, name, percent, seconds};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{chart, once, words};
use crate::exit::{self, Done, Failure};
use crate::files;

/// The state of the manager, written by it and read by `--status`.
const STATUS: &str = "/run/superpage/manage.json";
const SCHEMA: &str = "superpage.manage-status/1";
/// Time between two writings of the state.
const WRITE: Duration = Duration::from_secs(5);
/// Step in which a sleep looks for signals.
const STEP: Duration = Duration::from_millis(100);

/// Keeps the configuration's designs in force until a signal.
pub fn run(sources: &Sources, speed: u32) -> Result<Done, Failure> {
    let root = Root::real();
    let config = Config::read(&root, sources).map_err(|error| Failure::mistakes(error.lines()))?;
    let enforces = config.rules.iter().any(|rule| rule.mode == Mode::Enforce);
    match enforces {
        true => once::may_collapse(&root)?,
        false => live::check_reading(&root).map_err(Failure::cannot)?,
    }
    let _only = OnlyManager::new(Path::new(LOCK)).map_err(Failure::cannot)?;
    record::forget_ended(&root, Path::new(record::DIR));
    let notifier = Notifier::new(std::env::var_os("NOTIFY_SOCKET").as_deref());
    let watchdog = Watchdog::new(
        std::env::var_os("WATCHDOG_USEC").as_deref(),
        std::env::var_os("WATCHDOG_PID").as_deref(),
        sys::param::own_pid(),
    );
    let flag = |signals: &[i32]| {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in signals {
            signal_hook::flag::register(*signal, Arc::clone(&flag)).map_err(Failure::cannot)?;
        }
        Ok::<_, Failure>(flag)
    };
    let mut service = Service {
        stop: flag(&[SIGTERM, SIGINT])?,
        reload: flag(&[SIGHUP])?,
        notifier: notifier.map_err(Failure::cannot)?,
        alive_every: watchdog.map_err(Failure::usage)?.map(|watchdog| watchdog.every),
        alive_at: Instant::now(),
        write_at: Instant::now(),
        is_ready: false,
        line: String::new(),
    };
    exit::say(&format!(
        "{}{}; ^C ends it, superpages stay",
        counted(config.rules.len() as u64, "rule", "rules"),
        if enforces { "" } else { ", all observe: nothing is changed" }
    ));
    let daemon = Daemon::new(root, Path::new(record::DIR), config).map_err(Failure::cannot)?;
    daemon.sped_up(speed).run(&mut service);
    let _ = service.notifier.stopping();
    let _ = std::fs::remove_file(STATUS);
    Ok(Done::Fine)
}

/// The service manager, signals, and the file of the state.
struct Service {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    notifier: Notifier,
    alive_every: Option<Duration>,
    alive_at: Instant,
    write_at: Instant,
    is_ready: bool,
    /// The last line about the state.
    line: String,
}

impl Service {
    fn be_alive(&mut self) {
        let Some(every) = self.alive_every else { return };
        if Instant::now() >= self.alive_at {
            self.alive_at = Instant::now() + every;
            let _ = self.notifier.alive();
        }
    }
}

impl Control for Service {
    fn sleep(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while !self.stop.load(Ordering::SeqCst) && !self.reload.load(Ordering::SeqCst) {
            self.be_alive();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(STEP));
        }
    }

    fn is_stopped(&mut self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn is_reload_asked(&mut self) -> bool {
        let is_asked = self.reload.swap(false, Ordering::SeqCst);
        if is_asked {
            let _ = self.notifier.reloading();
        }
        is_asked
    }

    fn reloaded(&mut self, result: Result<(), ConfigError>) {
        match result {
            Ok(()) => exit::say("configuration read again"),
            Err(error) => {
                error.lines().for_each(|line| exit::say(&line));
                exit::say("the configuration before stays in force");
            }
        }
        let _ = self.notifier.ready(&self.line);
    }

    fn is_status_due(&mut self) -> bool {
        self.be_alive();
        !self.is_ready || Instant::now() >= self.write_at
    }

    fn status(&mut self, status: &Status) {
        self.write_at = Instant::now() + WRITE;
        let line = line(status);
        if line != self.line {
            exit::say(&line);
            let _ = self.notifier.status(&line);
            self.line = line;
        }
        if !self.is_ready {
            self.is_ready = true;
            let _ = self.notifier.ready(&self.line);
        }
        if let Err(failure) = write(status) {
            failure.lines().for_each(exit::say);
        }
    }
}

fn write(status: &Status) -> Result<(), Failure> {
    let body = serde_json::to_value(status);
    let body = body.map_err(|error| Failure::usage(format!("JSON: {error}")))?;
    state_file().write(exit::json_text(SCHEMA, body)?)
}

fn state_file() -> OwnFile<'static> {
    OwnFile {
        path: Path::new(STATUS),
        start: b"{\n  \"schema\": \"superpage.manage-status/",
        holds: "the state of superpage manage",
    }
}

/// The state in a line.
fn line(status: &Status) -> String {
    let mut line = format!(
        "{} managed, {} observed; {} made",
        counted(status.members, "process", "processes"),
        status.observed,
        counted(status.made, "superpage", "superpages"),
    );
    if status.given_back > 0 {
        line += &format!(", {} given back", status.given_back);
    }
    if let Some(pause) = status.pause {
        line += &format!("; none is made now: {}", paused(pause));
    }
    if let Some(why) = &status.unrecorded {
        line += &format!("; none is made without a record: {why}");
    }
    line
}

fn paused(pause: Pause) -> &'static str {
    match pause {
        Pause::Memory => "little memory is available",
        Pause::Realtime => "a realtime task is running",
    }
}

/// Prints the state of the manager that runs.
pub fn status(json: bool, svg: Option<&Path>, force: bool) -> Result<Done, Failure> {
    // A manager that was killed leaves its state.
    if check_unmanaged(Path::new(LOCK)).is_ok() {
        exit::say("no manager runs");
        return Ok(Done::Negative);
    }
    let text = match std::fs::read_to_string(STATUS) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            exit::say("no manager runs, or it has not started yet");
            return Ok(Done::Negative);
        }
        Err(error) => return Err(Failure::cannot(format!("{STATUS}: {error}"))),
    };
    if json && svg.is_none() {
        exit::print(&text)?;
        return Ok(Done::Fine);
    }
    let mut value: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::cannot(format!("{STATUS}: {error}")))?;
    if value["schema"] != SCHEMA {
        return Err(Failure::cannot(format!("{STATUS}: written by another version")));
    }
    value.as_object_mut().map(|fields| fields.remove("schema"));
    let status: Status = serde_json::from_value(value)
        .map_err(|error| Failure::cannot(format!("{STATUS}: {error}")))?;
    if let Some(path) = svg {
        if status.history.len() < 2 {
            return Err(Failure::cannot(
                "the manager has run for too short a time to draw; try again in 20 s",
            ));
        }
        files::write(path, force, chart::svg(&status.history))?;
    }
    exit::print(&if json { text } else { table(&status) })?;
    Ok(Done::Fine)
}

fn table(status: &Status) -> String {
    let mut text = manager(status) + &line(status) + "\n";
    if let (Some(p99), Some(longest)) = (status.p99_seconds, status.longest_seconds) {
        text += &format!("calls: p99 {}, longest {}", seconds(p99), seconds(longest));
        if let Some(rate) = status.rate {
            text +=
                &format!("; at most {} superpages a second now", report::format::digits(rate, 2));
        }
        text += "\n";
    }
    text += &format!(
        "memory added to fill superpages {}, given back {}; CPU time {}\n",
        bytes(status.filled.bytes() as f64),
        bytes(status.given_back_bytes.bytes() as f64),
        seconds(status.cpu_seconds)
    );
    for (why, count) in &status.unmade {
        text += &format!("{} without a superpage: {why}\n", counted(*count, "attempt", "attempts"));
    }
    if !status.processes.is_empty() {
        text += &format!(
            "\n{:>8}  {:<16} {:<24} {:<18} {:<8} {:>10} {:>9}\n",
            "PID", "NAME", "UNIT", "DESIGN", "MODE", "COVERAGE", "TO MAKE"
        );
    }
    for kept in &status.processes {
        text += &row(kept);
    }
    for alone in &status.left_alone {
        text += &format!(
            "{:>8}  {:<16} left alone: {}\n",
            alone.pid.0,
            name(&alone.name, 16),
            alone.why
        );
    }
    text
}

/// Who manages, by which files.
fn manager(status: &Status) -> String {
    let Some(pid) = status.pid else { return String::new() };
    let files = status.configuration.iter().map(|file| name(&file.to_string_lossy(), 80));
    let files: Vec<String> = files.collect();
    let by = match files.is_empty() {
        true => "no file".to_string(),
        false => files.join(", "),
    };
    format!("manager {pid}, configured by {by}\n")
}

fn row(kept: &Kept) -> String {
    let mode = match kept.mode {
        Mode::Observe => "observe",
        Mode::Enforce => "enforce",
    };
    let coverage = kept.coverage.map(|coverage| coverage.share().map_or("-".to_string(), percent));
    let mut text = format!(
        "{:>8}  {:<16} {:<24} {:<18} {mode:<8} {:>10} {:>9}\n",
        kept.pid.0,
        name(&kept.name, 16),
        name(kept.unit.as_deref().unwrap_or("-"), 24),
        name(&kept.design, 18),
        coverage.unwrap_or("unknown".to_string()),
        kept.would_make.map_or("unknown".to_string(), |count| count.to_string()),
    );
    for what in &kept.forbidden {
        text += &format!("{:>10}left alone: {}\n", "", words::forbidden(*what));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_the_manager_and_its_files() {
        let configuration = ["/etc/superpage/manage.toml", "/etc/superpage/manage.d/a\n.toml"];
        let configuration = configuration.map(Into::into).to_vec();
        let status = Status { pid: Some(units::Pid(4711)), configuration, ..Status::default() };
        let table = table(&status);
        let first = table.lines().next().unwrap();
        assert!(
            first.contains("4711") && first.contains("/etc/superpage/manage.toml, "),
            "{first}"
        );
        assert!(first.ends_with(".toml"), "{first}");
        // One of an earlier version.
        let old = Status::default();
        assert_eq!(self::table(&old).lines().next(), Some(line(&old).as_str()));
    }
}
