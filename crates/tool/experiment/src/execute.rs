//! Executes one run and measures it from outside.
//!
//! The timed region is from just before the fork until the kernel reports the end of the program. Only the watch runs
//! in between, within its budget. After the timed region, output is read, remaining processes are ended, and counters
//! are read again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use host::journal::JournalError;
use host::{Counters, FreeContiguity, Root};
use launch::{LaunchError, Pages, Plan, Start, Streams};
use live::{Fresh, Live};
use policy::Policy;
use sys::user::User;
use units::{ByteSize, PageSize, Pid};

use crate::counters::CounterFile;
use crate::fragment::FragmentError;
use crate::metric::{Metric, MetricError};
use crate::process_tree::ProcessTree;
use crate::sample::{Purpose, Sample};
use crate::schedule::Slot;
use crate::service::{Service, ServiceError, Session};
use crate::supply::Supply;
use crate::warm::{self, Blocks};
use crate::watch::{Depth, Watch};

/// Runs an arm once. The real implementation is [`Launcher`]. Tests use a mock, which tests the experiment without
/// running a program.
pub trait Executor {
    /// Executes `run` and returns its sample.
    fn execute(&mut self, run: Run) -> Result<Sample, RunError>;
}

/// One run to make.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The arm, and the position in the schedule.
    pub at: Slot,
    /// Purpose of the run: warm-up or measured.
    pub purpose: Purpose,
    /// Bytes of environment padding. They shift the stack, whose alignment affects the speed and would otherwise be
    /// equally good or bad in every run (Mytkowicz et al. 2009).
    pub environment_padding: u32,
    /// Seed for choosing the pages that are sampled for waste.
    pub seed: u64,
}

/// Why a run returned no sample.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The program could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The program failed.
    #[error(
        "arm {arm}: the program {how}{said}; fix the command, or compare failing runs too with \
         --ignore-failure"
    )]
    Failed {
        /// The arm's name.
        arm: String,
        /// Exit code or signal, as text.
        how: String,
        /// The last line that the program printed to standard error.
        said: String,
    },
    /// A metric was not found in the output.
    #[error("arm {arm}: {source}")]
    Metric {
        /// The arm's name.
        arm: String,
        /// The reason.
        source: MetricError,
    },
    /// A system call of superpage failed.
    #[error(transparent)]
    System(#[from] sys::SysError),
    /// A file for the program's output could not be created.
    #[error("cannot keep the program's output in a temporary file: {0}; is TMPDIR full?")]
    Output(std::io::Error),
    /// The launcher could not start to supply superpages to the program's library.
    #[error(
        "superpages cannot be made free on request: {0}; is the limit of threads or memory reached?"
    )]
    Supply(std::io::Error),
    /// The program left processes that do not end.
    #[error(
        "arm {arm}: cannot kill the processes it left behind ({pids}); kill them, or run superpage \
         as their user"
    )]
    Stragglers {
        /// The arm's name.
        arm: String,
        /// Pids of these processes.
        pids: String,
    },
    /// A setting of the machine could not be changed for a run.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Memory could not be fragmented for a run.
    #[error("free memory was not fragmented: {0}")]
    Fragment(FragmentError),
    /// A service, or one of its phases, failed.
    #[error("arm {arm}: {source}")]
    Service {
        /// The arm's name.
        arm: String,
        /// The reason.
        source: ServiceError,
    },
    /// The user requested a stop.
    #[error("interrupted")]
    Interrupted,
}

impl From<FragmentError> for RunError {
    fn from(error: FragmentError) -> Self {
        match error {
            FragmentError::Interrupted => Self::Interrupted,
            error => Self::Fragment(error),
        }
    }
}

/// A hook before each run. Its argument tells whether the user requested a stop.
pub type Prepare<'a> = &'a mut dyn FnMut(&Interrupt) -> Result<(), RunError>;

/// Ends the current run from another thread, the signal handler's.
#[derive(Debug, Default)]
pub struct Interrupt {
    asked: AtomicBool,
    running: Mutex<Option<Pid>>,
}

impl Interrupt {
    /// Kills the current program, if any, and prevents further starts.
    pub fn interrupt(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let running = self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(pid) = *running {
            let _ = sys::signal::send(pid, libc::SIGKILL);
        }
    }

    /// Returns whether a stop was requested.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    fn set_running(&self, pid: Option<Pid>) {
        *self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = pid;
    }
}

/// Runs plans as child processes.
#[derive(Debug)]
pub struct Launcher<'a> {
    root: Root,
    plans: &'a [Plan],
    /// The policy that superpage applies during the runs of each plan.
    policies: Vec<Option<Policy>>,
    metrics: Vec<Metric>,
    ignore_failure: bool,
    superpage: PageSize,
    warms_memory: bool,
    journal: PathBuf,
    /// The largest peak of all runs so far, in bytes.
    largest_peak: u64,
    tree: ProcessTree,
    interrupt: &'a Interrupt,
    measured: Depth,
    printed: String,
    /// The service and the user who runs it, if the plans are a service's.
    service: Option<(Service, Option<User>)>,
}

/// Options of a [`Launcher`].
#[derive(Debug)]
pub struct Options {
    /// The program's metrics to look for.
    pub metrics: Vec<Metric>,
    /// Whether failed runs count.
    pub ignore_failure: bool,
    /// Size of the superpages in which free memory is counted.
    pub superpage: PageSize,
    /// Whether memory is touched and released before each run.
    pub warms_memory: bool,
    /// Directory of the journal of changed settings.
    pub journal: PathBuf,
}

impl<'a> Launcher<'a> {
    /// Creates a launcher of `plans`, one per arm. Orphans of the programs become our children, so that none outlives
    /// its run.
    pub fn new(
        plans: &'a [Plan],
        options: Options,
        interrupt: &'a Interrupt,
    ) -> Result<Self, RunError> {
        sys::prctl::become_subreaper()?;
        let Options { metrics, ignore_failure, superpage, warms_memory, journal } = options;
        Ok(Self {
            root: Root::real(),
            plans,
            policies: Vec::new(),
            metrics,
            ignore_failure,
            superpage,
            warms_memory,
            journal,
            largest_peak: 0,
            tree: ProcessTree::below_us(Root::real()),
            interrupt,
            measured: Depth::WithinBudget,
            printed: String::new(),
            service: None,
        })
    }

    /// Sets how closely measured runs are watched.
    pub fn watching(self, measured: Depth) -> Self {
        Self { measured, ..self }
    }

    /// Sets the policies that superpage applies during runs of the plans.
    pub fn in_force(self, policies: Vec<Option<Policy>>) -> Self {
        Self { policies, ..self }
    }

    /// Sets a service and the user who runs it: each run is then a session of the service.
    pub fn serving(self, service: Option<(Service, Option<User>)>) -> Self {
        Self { service, ..self }
    }

    /// Returns the standard output of the last run, or the end of it.
    pub fn printed(&self) -> &str {
        &self.printed
    }

    fn free_superpage_bytes(&self) -> Option<u64> {
        let free = FreeContiguity::read(&self.root, self.superpage).ok()?;
        free.in_superpages.map(ByteSize::bytes)
    }

    /// Returns whether the user requested a stop. ^C at the terminal reaches both the program and us. The program may
    /// end before our handler has run, so this waits a moment.
    fn was_interrupted(&self, signal: Option<i32>) -> bool {
        let from_terminal = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];
        if signal.is_some_and(|signal| from_terminal.contains(&signal)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        self.interrupt.is_asked()
    }

    fn failure(&self, plan: &Plan, sample: &Sample, stderr: &str) -> RunError {
        let how = match (sample.signal, sample.exit_code) {
            (Some(libc::SIGBUS), _) if matches!(plan.pages, Pages::Hugetlb(_)) => {
                "was killed by SIGBUS (did the hugetlb pool run out after a fork?)".to_string()
            }
            (Some(signal), _) => format!("was killed by signal {signal}"),
            (None, code) => format!("exited with code {}", code.unwrap_or(-1)),
        };
        let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or(String::new(), |line| {
            format!(" (last line on stderr: {})", line.trim().chars().take(160).collect::<String>())
        });
        RunError::Failed { arm: plan.name.clone(), how, said }
    }
}

/// A launcher with a hook before each run.
pub struct Prepared<'a, 'b> {
    /// Makes the runs.
    pub launcher: Launcher<'a>,
    /// The hook.
    pub prepare: Prepare<'b>,
}

impl Executor for Prepared<'_, '_> {
    fn execute(&mut self, run: Run) -> Result<Sample, RunError> {
        (self.prepare)(self.launcher.interrupt)?;
        self.launcher.execute(run)
    }
}

impl Executor for Launcher<'_> {
    fn execute(&mut self, run: Run) -> Result<Sample, RunError> {
        let Some((service, user)) = &self.service else { return self.run_once(run, None) };
        let arm = &self.plans[run.at.arm as usize].name;
        let (user, tree) = (user.as_ref(), self.tree.clone());
        let mut session = Session::new(service, user, arm, self.interrupt, tree)?;
        let made = self.run_once(run, Some(&mut session));
        let ended = session.tear_down();
        // A program that was killed early may fail in any way.
        match made.and_then(|sample| ended.map(|()| sample)) {
            Err(_) if self.interrupt.is_asked() => Err(RunError::Interrupted),
            made => made,
        }
    }
}

impl Launcher<'_> {
    fn run_once(
        &mut self,
        run: Run,
        mut session: Option<&mut Session>,
    ) -> Result<Sample, RunError> {
        let plan = &self.plans[run.at.arm as usize];
        let mut stdout = tempfile::tempfile().map_err(RunError::Output)?;
        let mut stderr = tempfile::tempfile().map_err(RunError::Output)?;
        let counts = plan.uses_library().then(CounterFile::create).and_then(Result::ok);
        let mut environment = padding(run.environment_padding);
        environment.extend(counts.as_ref().map(CounterFile::variable));
        let start = Start {
            streams: Streams::Into {
                stdout: stdout.try_clone().map_err(RunError::Output)?,
                stderr: stderr.try_clone().map_err(RunError::Output)?,
            },
            die_with_parent: true,
            environment,
            ..Start::default()
        };
        let depth = match run.purpose {
            Purpose::WarmUp => Depth::Thorough,
            Purpose::Measured => self.measured,
        };
        if let Some(session) = &mut session {
            session.set_up()?;
        }
        let mut warmed_bytes = 0;
        if self.warms_memory {
            let stop = || self.interrupt.is_asked();
            let blocks = blocks_of(plan.pages);
            warmed_bytes = warm::warm(&self.root, self.largest_peak, self.superpage, blocks, stop);
        }
        let free_before = self.free_superpage_bytes();
        let counters = Counters::read(&self.root).ok();
        if self.interrupt.is_asked() {
            return Err(RunError::Interrupted);
        }

        let supply = Supply::for_plan(plan, counts.as_ref(), &self.root, &self.journal);
        let supply = supply.map_err(RunError::Supply)?;
        let began = Instant::now();
        let (pid, tree) = match &mut session {
            None => (launch::start(plan, start)?, self.tree.clone()),
            Some(session) => {
                let copy = |file: &File| file.try_clone().map_err(RunError::Output);
                session.start(plan, start, [copy(&stdout)?, copy(&stderr)?])?
            }
        };
        if session.is_none() {
            self.interrupt.set_running(Some(pid));
            if self.interrupt.is_asked() {
                self.interrupt.interrupt(); // the stop was requested between the check and the start
            }
        }
        let policy = self.policies.get(run.at.arm as usize).cloned().flatten();
        let in_force = policy.map(|policy| {
            let tree = tree.clone();
            Live::start(policy, fresh_of(plan), self.root.clone(), move || tree.members())
        });
        let watch = Watch::start(self.root.clone(), tree, began, depth, run.seed, counts.as_ref());
        let loaded = match &mut session {
            None => sys::wait::until_exit(pid).map(|()| None).map_err(RunError::from),
            Some(session) => session.drive().map(Some),
        };
        let wall = began.elapsed();

        let mut memory = watch.stop();
        let design = in_force.map(Live::stop);
        let supplied = supply.map(Supply::stop);
        self.interrupt.set_running(None);
        let loaded = loaded?;
        let (status, usage) = match &mut session {
            None => sys::wait::reap(pid)?,
            Some(session) => {
                session.stop()?;
                session.reap()?
            }
        };
        let stragglers = self.tree.end();
        let is_interrupted = match &loaded {
            None => self.was_interrupted(status.signal()),
            Some(_) => self.interrupt.is_asked(),
        };
        if is_interrupted {
            return Err(RunError::Interrupted);
        }
        let (status, wall) =
            loaded.as_ref().map_or((status, wall), |load| (load.status, load.wall));
        if !stragglers.remaining.is_empty() {
            let pids: Vec<String> = stragglers.remaining.iter().map(Pid::to_string).collect();
            return Err(RunError::Stragglers { arm: plan.name.clone(), pids: pids.join(", ") });
        }
        let used = || std::iter::once(&usage).chain(&stragglers.usage);
        let largest = used().map(|usage| usage.max_rss).max().unwrap_or_default();
        let uses_pool = matches!(plan.pages, Pages::Hugetlb(_));
        memory.conclude(&self.root, largest, uses_pool);
        memory.forget_partial_look();
        let deltas = counters
            .and_then(|before| Counters::read(&self.root).ok().map(|after| after.since(&before)));
        let totals = counts.and_then(|file| file.totals());
        let answered = totals.as_ref().map(|totals| totals.processes() > 0);
        // If some processes could not count, a total without requests says nothing. That no process counted does say
        // something: the first process can always count.
        let totals = totals.filter(|totals| totals.asked() > 0 || memory.uncounted == 0);
        let mut sample = Sample {
            arm: run.at.arm,
            purpose: run.purpose,
            block: run.at.block,
            slot: run.at.slot,
            wall_seconds: wall.as_secs_f64(),
            user_seconds: used().map(|usage| usage.user.as_secs_f64()).sum(),
            system_seconds: used().map(|usage| usage.system.as_secs_f64()).sum(),
            minor_faults: used().map(|usage| usage.minor_faults).sum(),
            major_faults: used().map(|usage| usage.major_faults).sum(),
            max_rss_bytes: largest.bytes(),
            memory,
            thp_fault_fallbacks: deltas.as_ref().and_then(|d| d.thp_fault_fallback()),
            compaction_stalls: deltas.as_ref().and_then(|d| d.compact_stall()),
            reclaim_stalls: deltas.as_ref().and_then(|d| d.allocstall()),
            free_superpage_bytes_before: free_before,
            free_superpage_bytes_after: self.free_superpage_bytes(),
            metric: None,
            more_metrics: Vec::new(),
            exit_code: status.code(),
            signal: status.signal(),
            warmed_bytes,
            environment_padding: run.environment_padding,
            library_answered: answered,
            library_asked_bytes: totals.as_ref().map(|it| it.asked()),
            library_forks: totals.as_ref().map(|it| it.forks()),
            design,
            supplied: supplied.filter(|it| it.requests > 0),
            stragglers: stragglers.ended,
            service: session.map(|session| session.phases),
        };
        self.largest_peak = self.largest_peak.max(sample.memory.least_peak().unwrap_or(0));
        // A signal ended the run early, so its time is meaningless, even if failures are ignored.
        if !sample.succeeded() && (!self.ignore_failure || sample.signal.is_some()) {
            return Err(match &loaded {
                None => self.failure(plan, &sample, &tail_of(&mut stderr)?),
                Some(load) => load.failure(&plan.name),
            });
        }
        let is_service = loaded.is_some();
        let (printed, said) = match loaded {
            None => (tail_of(&mut stdout)?, tail_of(&mut stderr)?),
            Some(load) => (load.stdout, load.stderr),
        };
        self.printed = printed;
        if sample.succeeded() && !self.metrics.is_empty() {
            let printed = format!("{}\n{said}", self.printed);
            let of = if is_service { ": --load" } else { "" };
            let named = |source| RunError::Metric { arm: format!("{}{of}", plan.name), source };
            let found: Result<Vec<f64>, _> =
                self.metrics.iter().map(|metric| metric.find(&printed)).collect();
            let mut found = found.map_err(named)?.into_iter();
            (sample.metric, sample.more_metrics) = (found.next(), found.collect());
        }
        Ok(sample)
    }
}

/// Returns the kind of pages that first touches of a program get under a design in force.
pub fn fresh_of(plan: &Plan) -> Fresh {
    match plan.pages {
        _ if plan.in_place => Fresh::Frames,
        Pages::Thp => Fresh::Superpages,
        _ => Fresh::BasePages,
    }
}

/// Returns the kind of free blocks from which a program with these pages takes its memory.
fn blocks_of(pages: Pages) -> Blocks {
    match pages {
        Pages::Base => Blocks::Small,
        Pages::Thp | Pages::ThpOf(_) | Pages::Hugetlb(_) => Blocks::Whole,
        Pages::System | Pages::Auto | Pages::Collapsed => Blocks::Both,
    }
}

fn padding(bytes: u32) -> Vec<(String, String)> {
    vec![("SUPERPAGE_PADDING".to_string(), "x".repeat(bytes as usize))]
}

/// Returns the last megabyte of the output, because metrics come at the end.
pub(crate) fn tail_of(file: &mut File) -> Result<String, RunError> {
    const MAX_OUTPUT: u64 = 1 << 20;
    let read = |file: &mut File| -> std::io::Result<Vec<u8>> {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(MAX_OUTPUT)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read(file).map_err(RunError::Output)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
