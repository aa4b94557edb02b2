//! Makes one run of a service, phase by phase. After any outcome [`Session::tear_down`] leaves no running process and
//! no directory.
//! See docs/decisions/compare.md#7.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use host::Root;
use launch::{Plan, Start};
use serde::{Deserialize, Serialize};
use sys::guard::Guarded;
use sys::scratch::Scratch;
use sys::user::User;
use sys::wait;
use sys::wait::Usage;
use units::Pid;

use super::error::{ServiceError, how, said};
use super::phase::{End, PAUSE, Place, Ran, Until};
use super::{DIRECTORY, PORT, Phases, Service, phase};
use crate::execute::{Interrupt, RunError, tail_of};
use crate::process_tree::ProcessTree;

/// A service without a `ready` command and port counts as ready after this time.
const READY_DELAY: Duration = Duration::from_secs(1);
/// If the service's process ended and descendants remain after this time, the service went into the background.
const ORPHAN_DELAY: Duration = Duration::from_millis(200);

pub(crate) struct Loaded {
    pub(crate) status: ExitStatus,
    pub(crate) wall: Duration,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) struct Session<'a> {
    /// The service; its commands contain this run's port and directory.
    service: Service,
    user: Option<User>,
    arm: String,
    interrupt: &'a Interrupt,
    port: Option<u16>,
    directory: Option<Scratch>,
    /// All our descendants that belong to the run.
    all: ProcessTree,
    /// Descendants created since the start of the service.
    started: Option<ProcessTree>,
    since: Instant,
    /// The service, until it is reaped.
    head: Option<Guarded>,
    output: Option<[File; 2]>,
    was_set_up: bool,
    pub(crate) phases: Phases,
}

impl<'a> Session<'a> {
    /// Creates a session with its own port and directory. Starts nothing yet.
    pub(crate) fn new(
        service: &Service,
        user: Option<&User>,
        arm: &str,
        interrupt: &'a Interrupt,
        all: ProcessTree,
    ) -> Result<Self, RunError> {
        let named = |error| RunError::service(arm, error);
        let port = service.uses_port.then(free).transpose();
        let port = port.map_err(|error| named(ServiceError::Port(error)))?;
        let directory = service.uses_directory.then(|| directory(user)).transpose();
        let directory = directory.map_err(named)?;
        let mut session = Self {
            service: service.clone(),
            user: user.cloned(),
            arm: arm.to_string(),
            interrupt,
            port,
            directory,
            all,
            started: None,
            since: Instant::now(),
            head: None,
            output: None,
            was_set_up: false,
            phases: Phases { port, ..Phases::default() },
        };
        for (mark, text) in session.marks() {
            session.service = session.service.replacing(mark, &text);
        }
        Ok(session)
    }

    fn marks(&self) -> Vec<(&'static str, String)> {
        let port = self.port.map(|port| (PORT, port.to_string()));
        let path = self.path().map(|path| (DIRECTORY, path.display().to_string()));
        port.into_iter().chain(path).collect()
    }

    fn path(&self) -> Option<&Path> {
        self.directory.as_ref().map(Scratch::path)
    }

    fn failed(&self, error: ServiceError) -> RunError {
        RunError::service(&self.arm, error)
    }

    fn run(&self, name: &'static str, text: &str, until: &Until) -> Result<Ran, RunError> {
        let place = Place {
            user: self.user.as_ref(),
            directory: self.path().filter(|_| self.user.is_some()),
            cpus: self.service.cpus.as_ref().map_or(&[], |cpus| &cpus.load),
        };
        phase::run(name, text, &place, until).map_err(|error| error.in_arm(&self.arm))
    }

    /// Runs a command that must succeed. Returns its duration in seconds.
    fn must(&mut self, name: &'static str, text: &str, until: &Until) -> Result<f64, RunError> {
        let ran = self.run(name, text, until)?;
        let how = match ran.end {
            End::Done(status) if status.success() => return Ok(ran.wall.as_secs_f64()),
            End::Done(status) => how(status),
            End::TooLong => "did not end in time".to_string(),
            End::ServiceEnded => return Err(self.service_ended("during --prepare")),
        };
        let said = said("the command", &ran.stderr, &ran.stdout);
        let error = ServiceError::Phase { phase: name, how, said, remedy: "" };
        Err(self.failed(error))
    }

    fn until(&self) -> Until<'a> {
        let service = self.head.map(|head| head.guard);
        Until { interrupt: Some(self.interrupt), service, deadline: None }
    }

    pub(crate) fn set_up(&mut self) -> Result<(), RunError> {
        self.was_set_up = true;
        if let Some(command) = self.service.setup.clone() {
            self.phases.setup_seconds = Some(self.must("setup", &command, &self.until())?);
        }
        Ok(())
    }

    /// Starts the service. Returns the pid that the caller waits for, and the service's process tree. `output` holds
    /// the files of the streams in `how`.
    pub(crate) fn start(
        &mut self,
        plan: &Plan,
        how: Start,
        output: [File; 2],
    ) -> Result<(Pid, ProcessTree), RunError> {
        let mut plan = plan.clone();
        for (mark, text) in self.marks() {
            plan.arguments.iter_mut().for_each(|word| *word = word.replaced(mark, &text));
        }
        let mut how = Start {
            die_with_parent: false,
            directory: self.path().filter(|_| self.user.is_some()).map(Path::to_path_buf),
            cpus: self.service.cpus.as_ref().map_or(Vec::new(), |cpus| cpus.service.clone()),
            own_group: true,
            user: self.user.clone(),
            ..how
        };
        how.environment.extend(self.user.iter().flat_map(phase::variables));
        self.started = Some(ProcessTree::below_us(Root::real()));
        self.output = Some(output);
        self.since = Instant::now();
        let head = launch::start_guarded(&plan, how)?;
        self.head = Some(head);
        Ok((head.guard, ProcessTree::below(Root::real(), head.guard)))
    }

    /// Waits until the service is ready, prepares it and runs the load.
    pub(crate) fn drive(&mut self) -> Result<Loaded, RunError> {
        self.wait_until_ready()?;
        if let Some(command) = self.service.prepare.clone() {
            self.phases.prepare_seconds = Some(self.must("prepare", &command, &self.until())?);
        }
        let ran = self.run("load", &self.service.load, &self.until())?;
        let End::Done(status) = ran.end else { return Err(self.service_ended("under load")) };
        // Processes that the load left do not belong to the service: end them.
        self.end_others()?;
        // If the service died, the load fails, and may end before the service does.
        let time = if status.success() { Duration::ZERO } else { ORPHAN_DELAY };
        self.must_run("under load", time)?;
        Ok(Loaded { status, wall: ran.wall, stdout: ran.stdout, stderr: ran.stderr })
    }

    fn wait_until_ready(&mut self) -> Result<(), RunError> {
        let seconds = self.service.ready_seconds;
        let deadline = self.since + Duration::from_secs_f64(seconds);
        let mut asked = String::new();
        loop {
            let is_ready = match (&self.service.ready, self.port) {
                (Some(command), _) => {
                    let until = Until { deadline: Some(deadline), ..self.until() };
                    let ran = self.run("ready", command, &until)?;
                    // A command that was cut off had no time to print a reason: keep the earlier one.
                    if !matches!(ran.end, End::TooLong) || asked.is_empty() {
                        asked = said("--ready", &ran.stderr, &ran.stdout);
                    }
                    match ran.end {
                        End::Done(status) => status.success(),
                        End::TooLong => false,
                        End::ServiceEnded => return Err(self.service_ended("before it was ready")),
                    }
                }
                (None, Some(port)) => accepts(port),
                (None, None) => self.since.elapsed() >= READY_DELAY,
            };
            self.must_run("before it was ready", if is_ready { Duration::ZERO } else { PAUSE })?;
            if is_ready {
                self.phases.ready_seconds = self.since.elapsed().as_secs_f64();
                return Ok(());
            }
            if self.interrupt.is_asked() {
                return Err(RunError::Interrupted);
            }
            if Instant::now() >= deadline {
                let said = self.printed();
                return Err(self.failed(ServiceError::NotReady { seconds, asked, said }));
            }
        }
    }

    /// Fails if the service has ended, or ends within `time`.
    fn must_run(&mut self, when: &'static str, time: Duration) -> Result<(), RunError> {
        let Some(head) = self.head else { return Ok(()) };
        match wait::first_ended(&[head.guard], time)? {
            None => Ok(()),
            Some(_) => Err(self.service_ended(when)),
        }
    }

    /// Returns the error that the service ended by itself.
    fn service_ended(&mut self, when: &'static str) -> RunError {
        let Some(head) = self.head.take() else { return RunError::Interrupted };
        let status = match wait::reap(head.guard) {
            Ok((status, _)) => status,
            Err(error) => return error.into(),
        };
        if status.success() {
            // Give helper processes of an ended service a moment to disappear.
            std::thread::sleep(ORPHAN_DELAY);
            let left = self.started.as_ref().map_or(Vec::new(), ProcessTree::processes);
            let live = left.iter().filter(|(_, stat)| !stat.is_dead()).take(5);
            let live: Vec<String> =
                live.map(|(pid, stat)| format!("{}, pid {pid}", stat.name)).collect();
            if !live.is_empty() {
                return self.failed(ServiceError::Background { processes: live.join("; ") });
            }
        }
        let said = self.printed();
        self.failed(ServiceError::Ended { how: how(status), when, said })
    }

    fn printed(&mut self) -> String {
        let texts = self.output.as_mut().map(|files| files.each_mut().map(tail_of));
        match texts {
            Some([Ok(stdout), Ok(stderr)]) => said("the service", &stderr, &stdout),
            _ => String::new(),
        }
    }

    /// Kills processes that phases left and that do not belong to the service.
    fn end_others(&self) -> Result<(), RunError> {
        let Some(head) = self.head else { return Ok(()) };
        let own = sys::param::own_pid();
        for _ in 0..5_000 {
            // Use one snapshot, parents first: a process created between two snapshots could be misclassified.
            let mut service = BTreeSet::from([head.guard]);
            let mut others = self.all.processes();
            others.retain(|(pid, stat)| {
                let is_service = *pid == head.guard || service.contains(&stat.parent);
                if is_service {
                    service.insert(*pid);
                }
                !is_service
            });
            if others.is_empty() {
                break;
            }
            for (pid, stat) in others {
                match stat.is_dead() && stat.parent == own {
                    true => drop(wait::reap(pid)?),
                    false => drop(sys::signal::send(pid, libc::SIGKILL)),
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Stops the service. The caller must then call [`Session::reap`].
    pub(crate) fn stop(&mut self) -> Result<(), RunError> {
        let Some(head) = self.head else { return Ok(()) };
        let began = Instant::now();
        let time = Duration::from_secs_f64(self.service.stop_seconds);
        let asked = match self.service.stop.clone() {
            Some(command) => {
                let until = Until { interrupt: None, service: None, deadline: Some(began + time) };
                self.must("stop", &command, &until).map(drop)
            }
            None => {
                let _ = sys::signal::send(head.program, libc::SIGTERM); // the service may have just ended
                Ok(())
            }
        };
        let left =
            if asked.is_ok() { time.saturating_sub(began.elapsed()) } else { Duration::ZERO };
        if wait::first_ended(&[head.guard], left)?.is_none() {
            self.phases.was_killed = true;
            if !phase::end_all(head)? {
                // Mostly these are another user's processes. The service cannot be reaped.
                self.head = None;
                let left = ProcessTree::below(Root::real(), head.guard).members();
                let pids: Vec<String> = left.iter().map(Pid::to_string).collect();
                let (arm, pids) = (self.arm.clone(), pids.join(", "));
                return Err(RunError::Stragglers { arm, pids });
            }
        }
        self.phases.stop_seconds = began.elapsed().as_secs_f64();
        asked
    }

    /// Reaps the service. Returns its exit status, and the resources used by it and the children it reaped.
    pub(crate) fn reap(&mut self) -> Result<(ExitStatus, Usage), RunError> {
        let head = self.head.take().expect("a service that was stopped was started");
        Ok(wait::reap(head.guard)?)
    }

    /// Kills the remaining processes, runs the teardown, and removes the directory.
    pub(crate) fn tear_down(mut self) -> Result<(), RunError> {
        let mut done = self.stop();
        if self.head.is_some() {
            done = done.and(self.reap().map(drop));
        }
        self.all.end();
        if let Some(command) = self.service.teardown.clone().filter(|_| self.was_set_up) {
            // A cancelled run still gets its teardown, but with a time limit.
            let time = Duration::from_secs_f64(self.service.stop_seconds);
            let is_asked = self.interrupt.is_asked();
            let until = Until {
                interrupt: (!is_asked).then_some(self.interrupt),
                service: None,
                deadline: is_asked.then(|| Instant::now() + time),
            };
            let mut torn = self.must("teardown", &command, &until);
            if !is_asked && matches!(torn, Err(RunError::Interrupted)) {
                // The teardown was interrupted: run it again to its end.
                let deadline = Some(Instant::now() + time);
                let until = Until { interrupt: None, service: None, deadline };
                torn = self.must("teardown", &command, &until);
            }
            done = done.and(torn.map(drop));
            self.all.end();
        }
        let removed = self.directory.take().map_or(Ok(()), Scratch::close);
        let removed = removed.map_err(|error| self.failed(ServiceError::Left(error)));
        done.and(removed)
    }
}

impl Loaded {
    pub(crate) fn failure(&self, arm: &str) -> RunError {
        let said = said("the command", &self.stderr, &self.stdout);
        let remedy = ", or compare failing loads too with --ignore-failure";
        RunError::service(
            arm,
            ServiceError::Phase { phase: "load", how: how(self.status), said, remedy },
        )
    }
}

fn directory(user: Option<&User>) -> Result<Scratch, ServiceError> {
    let made = Scratch::new(user).map_err(ServiceError::Directory)?;
    let is_plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
    match made.path().to_str().is_some_and(|path| path.chars().all(is_plain)) {
        true => Ok(made),
        false => Err(ServiceError::Path(made.path().to_path_buf())),
    }
}

// Finds free ports: another one for each run.

/// Below the kernel's ephemeral ports (from 32768, ip(7)), so that the kernel gives none of these ports
/// to a connecting client.
const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);

/// Returns a port that is free on every address. Returns no port twice while others are left.
pub(super) fn free() -> std::io::Result<u16> {
    let began = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    let _ = NEXT.compare_exchange(u32::MAX, began % COUNT, Ordering::SeqCst, Ordering::SeqCst);
    let mut last = std::io::Error::other("no port tried");
    for _ in 0..COUNT {
        let port = (FIRST + NEXT.fetch_add(1, Ordering::SeqCst) % COUNT) as u16;
        // Bind every address: binding one does not detect listeners on the others.
        let addresses = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST];
        match addresses
            .into_iter()
            .try_for_each(|address| TcpListener::bind((address, port)).map(drop))
        {
            Ok(()) if !accepts(port) => return Ok(port),
            Ok(()) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn accepts(port: u16) -> bool {
    let connects =
        |address: SocketAddr| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
    connects((Ipv4Addr::LOCALHOST, port).into()) || connects((Ipv6Addr::LOCALHOST, port).into())
}

// Divides CPUs between service and load.

/// Minimum number of CPUs to divide: a service that gets only one CPU behaves differently.
const MIN_CPUS: usize = 4;

/// Disjoint sets of CPUs for service and load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// CPUs of the service.
    pub service: Vec<usize>,
    /// CPUs of the load and the other phases.
    pub load: Vec<usize>,
}

impl Cpus {
    /// Divides the CPUs that this process may use in half; the service gets the larger half. Returns `None` for fewer
    /// than four CPUs.
    pub fn from_root(root: &Root) -> Option<Self> {
        let allowed = sys::affinity::allowed().ok()?;
        Self::divide(&allowed, |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = root.read(&path).unwrap_or_default();
            let first =
                siblings.trim().split([',', '-']).next().and_then(|first| first.parse().ok());
            first.unwrap_or(cpu)
        })
    }

    /// If there are several cores, keeps the threads of one core together; `core` returns the core of a CPU. The load
    /// gets the first CPUs, which handle the machine's interrupts.
    fn divide(allowed: &[usize], core: impl Fn(usize) -> usize) -> Option<Self> {
        if allowed.len() < MIN_CPUS {
            return None;
        }
        let mut sorted: Vec<(usize, usize)> =
            allowed.iter().map(|cpu| (core(*cpu), *cpu)).collect();
        sorted.sort_unstable();
        let half = allowed.len() / 2;
        // If the middle is inside a core, the service gets the whole core.
        let middle =
            sorted.iter().position(|(core, _)| *core == sorted[half].0).filter(|at| *at > 0);
        let (load, service) = sorted.split_at(middle.unwrap_or(half));
        let ascending = |cpus: &[(usize, usize)]| {
            let mut cpus: Vec<usize> = cpus.iter().map(|(_, cpu)| *cpu).collect();
            cpus.sort_unstable();
            cpus
        };
        Some(Self { service: ascending(service), load: ascending(load) })
    }
}

/// Formats CPU numbers as ranges: `0-3,8`.
pub(super) fn ranges(cpus: &[usize]) -> String {
    let mut text = String::new();
    let runs = cpus.chunk_by(|before, after| before + 1 == *after);
    for run in runs {
        let separator = if text.is_empty() { "" } else { "," };
        text += &match run {
            [one] => format!("{separator}{one}"),
            [first, .., last] => format!("{separator}{first}-{last}"),
            [] => unreachable!("a run has a member"),
        };
    }
    text
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "service on CPUs {}, load on CPUs {}", ranges(&self.service), ranges(&self.load))
    }
}

#[cfg(test)]
mod port_tests {
    use super::*;

    #[test]
    fn ports_are_free_and_fresh() {
        let (first, second) = (free().unwrap(), free().unwrap());
        assert_ne!(first, second);
        assert!(!accepts(first));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(accepts(first));
        drop(listener);
    }
}

#[cfg(test)]
mod cpus_tests {
    use super::*;

    fn divided(allowed: &[usize], core: impl Fn(usize) -> usize) -> Option<String> {
        Cpus::divide(allowed, core).map(|cpus| cpus.to_string())
    }

    #[test]
    fn halves_are_apart_and_keep_cores_whole() {
        let own = |cpu| cpu;
        let said = |text: &str| Some(text.to_string());
        assert_eq!(divided(&[0, 1, 2], own), None);
        assert_eq!(divided(&[0, 1, 2, 3], own), said("service on CPUs 2-3, load on CPUs 0-1"));
        assert_eq!(
            divided(&[2, 3, 5, 9, 10], own),
            said("service on CPUs 5,9-10, load on CPUs 2-3")
        );
        // Siblings are n and n + 4, or neighbours.
        let far = divided(&[0, 1, 2, 3, 4, 5, 6, 7], |cpu| cpu % 4);
        assert_eq!(far, said("service on CPUs 2-3,6-7, load on CPUs 0-1,4-5"));
        let near = divided(&[0, 1, 2, 3, 4, 5], |cpu| cpu / 2);
        assert_eq!(near, said("service on CPUs 2-5, load on CPUs 0-1"));
        assert_eq!(divided(&[0, 1, 2, 3], |_| 0), said("service on CPUs 2-3, load on CPUs 0-1"));
    }
}
