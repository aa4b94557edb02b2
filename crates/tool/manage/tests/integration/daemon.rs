//! The manager on a real process.

use std::io::BufRead;
use std::path::Path;
use std::time::{Duration, Instant};

use host::Root;
use superpage_manage::config::{Config, ConfigError, Sources};
use superpage_manage::daemon::status::Status;
use superpage_manage::daemon::{Control, Daemon};
use superpage_manage::{Memory, once, record};

use crate::child::{Child, Part};
use crate::may_collapse;

/// Ends the daemon when its state is as wanted, or after a minute.
struct Until<F> {
    is_wanted: F,
    end: Instant,
    last: Status,
    is_met: bool,
    reloads: u32,
    mistakes: Vec<String>,
}

impl<F: FnMut(&Status) -> bool> Until<F> {
    fn new(is_wanted: F) -> Self {
        let (last, mistakes) = (Status::default(), Vec::new());
        let end = Instant::now() + Duration::from_secs(60);
        Self { is_wanted, end, last, is_met: false, reloads: 0, mistakes }
    }
}

impl<F: FnMut(&Status) -> bool> Control for Until<F> {
    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time.min(Duration::from_millis(50)));
    }

    fn is_stopped(&mut self) -> bool {
        self.is_met || Instant::now() > self.end
    }

    fn is_reload_asked(&mut self) -> bool {
        self.reloads > 0 && {
            self.reloads -= 1;
            true
        }
    }

    fn reloaded(&mut self, result: Result<(), ConfigError>) {
        self.mistakes
            .extend(result.err().into_iter().flat_map(|error| error.lines().collect::<Vec<_>>()));
    }

    fn is_status_due(&mut self) -> bool {
        true
    }

    fn status(&mut self, status: &Status) {
        self.last = status.clone();
        self.is_met = (self.is_wanted)(status);
    }
}

fn config(dir: &Path, text: &str) -> Config {
    let file = dir.join("manage.toml");
    std::fs::write(&file, text).unwrap();
    Config::read(&Root::real(), &Sources::File(file)).unwrap()
}

fn rule(child: &Child, more: &str) -> String {
    format!("[[rule]]\ncommand = {:?}\n{more}\n", child.tag())
}

fn run(config: Config, dir: &Path, until: &mut Until<impl FnMut(&Status) -> bool>) {
    Daemon::new(Root::real(), dir, config).unwrap().run(until);
}

#[test]
fn a_design_is_kept_in_force_and_what_it_made_can_be_undone() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let dir = tempfile::tempdir().unwrap();
    let mut child = Child::start();
    let process = child.process();
    let text = rule(&child, "design = \"quicksilver-sync-64\"\nmode = \"enforce\"");
    let mut until = Until::new(|status| status.made >= 16);
    run(config(dir.path(), &text), dir.path(), &mut until);
    let status = until.last;
    if status.processes.iter().any(|kept| !kept.forbidden.is_empty()) || status.pause.is_some() {
        testkit::skipped!("superpages are forbidden here: {status:?}");
        return;
    }
    // Full and half-filled memory, not single pages, nor what the program refuses.
    assert!(until.is_met, "{status:?}");
    assert_eq!((status.members, status.observed), (1, 0));
    assert!(status.longest_seconds.unwrap() > 0.0);
    assert!(child.is_whole());
    let record = superpage_manage::Record::open(&Root::real(), dir.path(), &process).unwrap();
    let made: Vec<u64> = record.starts().collect();
    let has = |part| child.starts(part).iter().filter(|start| made.contains(start)).count();
    assert_eq!((has(Part::Full), has(Part::Half)), (8, 8), "{made:x?}");
    assert_eq!((has(Part::Sparse), has(Part::Refused)), (0, 0));
    let memory = Memory::open(&Root::real(), &process).unwrap();
    let undone = once::undo(&memory, dir.path(), 1.0, Duration::from_secs(60)).unwrap();
    assert_eq!(undone.split.split, undone.recorded);
    assert!(child.is_whole());
    assert!(record::recorded(&Root::real(), dir.path()).unwrap().is_empty());
}

#[test]
fn what_is_observed_is_not_changed_and_a_typo_leaves_the_configuration_in_force() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let dir = tempfile::tempdir().unwrap();
    let child = Child::start();
    let text = rule(&child, "design = \"quicksilver-sync-64\"");
    let config = config(dir.path(), &text);
    std::fs::write(dir.path().join("manage.toml"), "[[rule]]\ncom = 1\n").unwrap();
    let mut until = Until::new(|status| !status.processes.is_empty());
    until.reloads = 1;
    run(config, dir.path(), &mut until);
    assert!(until.is_met, "{:?}", until.last);
    assert!(until.mistakes.iter().any(|line| line.contains("manage.toml:2: rule.com")));
    let kept = &until.last.processes[0];
    assert_eq!((until.last.observed, until.last.made), (1, 0));
    assert_eq!(kept.pid, child.process().pid);
    if kept.forbidden.is_empty() {
        // Some of the program's own memory may be wanted too.
        assert!(kept.would_make.unwrap() >= 24, "{kept:?}");
    }
    assert!(record::recorded(&Root::real(), dir.path()).unwrap().is_empty());
}

/// A program of which the first two superpages' memory is locked, and seven more are not; prints the first address.
const LOCKS: &str = "
import ctypes, mmap, sys, time
memory = mmap.mmap(-1, 20 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(b'x' * (20 << 20))
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
start = (start + (2 << 20) - 1) & ~((2 << 20) - 1)
print(start if ctypes.CDLL(None).mlock(ctypes.c_void_p(start), ctypes.c_size_t(4 << 20)) == 0 else 0, flush=True)
time.sleep(600)
";

#[test]
fn locked_memory_is_left_alone_and_the_other_memory_of_the_process_is_not() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let dir = tempfile::tempdir().unwrap();
    let tag = format!("locks-{}", std::process::id());
    let mut command = std::process::Command::new("python3");
    command.args(["-c", LOCKS, &tag]).stdout(std::process::Stdio::piped());
    let Ok(mut child) = command.spawn() else { return testkit::skipped!("no python3") };
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let start: u64 = line.trim().parse().unwrap();
    let text = format!("[[rule]]\ncommand = {tag:?}\ndesign = \"sync-64\"\nmode = \"enforce\"\n");
    let is_met =
        |status: &Status| status.made >= 7 && status.unmade.keys().any(|why| why.contains("mlock"));
    let mut until = Until::new(is_met);
    let process = services::Process::read(&Root::real(), units::Pid(child.id() as i32));
    if start > 0 {
        run(config(dir.path(), &text), dir.path(), &mut until);
    }
    let record =
        superpage_manage::Record::open(&Root::real(), dir.path(), &process.unwrap().unwrap());
    let made: Vec<u64> = record.map(|record| record.starts().collect()).unwrap_or_default();
    let _ = child.kill();
    let _ = child.wait();
    let status = until.last;
    if start == 0
        || status.pause.is_some()
        || !until.is_met && status.unmade.keys().any(|why| why.contains("ENOMEM"))
    {
        testkit::skipped!("memory cannot be locked, or no superpage is made here: {status:?}");
        return;
    }
    assert!(until.is_met, "{status:?}");
    let has = |at: u64| made.contains(&(start + at * (2 << 20)));
    assert_eq!((0..9).map(has).collect::<Vec<_>>(), [&[false; 2][..], &[true; 7]].concat());
}
