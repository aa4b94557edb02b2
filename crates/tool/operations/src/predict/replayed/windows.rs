//! Records windows of a subject and replays them.

use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::time::Duration;

use experiment::warm::{Blocks, warm};
use host::{Cpu, MemInfo, Root, Snapshot};
use prediction::{Faults, Range, faults_seconds};
use replay::{Image, Passes, Plan, ReplayError, Saving, Times, Window, saving};
use units::{ByteSize, PageSize};

use super::super::Subject;
use super::{BaseRuns, Replayed};
use crate::Failure;
use crate::facts;
use crate::reporter::Progress;
use crate::signals;

/// Instructions of a window.
const INSTRUCTIONS: usize = 15_000;
/// Number of windows, where the program is long enough.
const WINDOWS: f64 = 60.0;
/// Fewest windows that a prediction is made from.
const MIN_WINDOWS: usize = 8;
/// CPU seconds to step through a window, at most (a guest whose debug exceptions its hypervisor handles: 20 to 25 us a
/// step).
const WINDOW_SECONDS: f64 = 0.375;
/// Maximum CPU time of a recording, in multiples of the program's.
const MAX_COST: f64 = 14.0;
/// Number of memories that windows are replayed over: each has other frames, and a host may back them with other pages.
const MEMORIES: usize = 5;
/// Share of available memory that a replay may use.
const MAX_OF_AVAILABLE: f64 = 0.8;

/// Error of the model: points of the time, and a share of the saving. Chosen after nine programs were measured.
/// See docs/decisions/prediction.md#11.
const MODEL_ERROR: (f64, f64) = (0.07, 0.12);

impl Replayed {
    /// Records and replays a subject.
    ///
    /// # Errors
    /// The program cannot be recorded or replayed.
    pub fn new(
        subject: &Subject,
        runs: &BaseRuns,
        price: &Faults,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let machine = Snapshot::read(&Root::real());
        let superpage = facts::superpage(&machine)
            .ok_or_else(|| Failure::cannot("this kernel has no superpages to replay on"))?;
        let (recorded, windows) = windows(subject, runs, superpage, quiet)?;
        if windows.len() < MIN_WINDOWS {
            return Err(failure(ReplayError::TooFew { windows: windows.len() }));
        }
        let cache = Cpu::last_level_cache(&Root::real()).unwrap_or(ByteSize(0));
        let image = Image::new(&recorded, &windows, superpage, cache).map_err(failure)?;
        let free = MemInfo::read(&Root::real()).ok().and_then(|memory| memory.available);
        let free = free.unwrap_or(ByteSize(0)).bytes() as f64 * MAX_OF_AVAILABLE;
        let available = ByteSize(free as u64);
        let needed = image.memory(superpage);
        let mut progress = Progress::of_pass(quiet, "replaying the program's windows");
        let replay = || {
            if needed < available {
                // As before each run, so that frames lie alike.
                warm(&Root::real(), needed.bytes(), superpage, Blocks::Both, || false);
            }
            replay::replay(&image, superpage, Passes::default(), available)
        };
        let memories: Result<Vec<Times>, _> = (0..MEMORIES).map(|_| replay()).collect();
        progress.clear();
        let Saving { low, mid, high } = saving(&memories.map_err(failure)?, 1);
        let (user, system) = runs.part;
        let (all, eligible) = recorded.resident;
        let touched = match all.bytes() {
            0 => 0.0,
            all => runs.faults * eligible.bytes() as f64 / all as f64,
        };
        let pages = superpage.bytes() as f64 / sys::param::page_size().bytes() as f64;
        let (before, after) = faults_seconds(touched, touched / pages, price, system);
        let of = |share: f64| (user * share + before - after) / (user + system);
        let model = MODEL_ERROR.0 + MODEL_ERROR.1 * of(mid).abs();
        let wide = |end: f64| (of(end) - of(mid)).hypot(model);
        let (low, mid, high) = (of(mid) - wide(low), of(mid), of(mid) + wide(high));
        Ok(Self {
            saved: Range { low, mid, high },
            windows: windows.len(),
            instructions: image.instructions.0,
            replaced: image.instructions.1 as f64 / image.instructions.0.max(1) as f64,
        })
    }
}

/// Records windows of the predicted part.
fn windows(
    subject: &Subject,
    runs: &BaseRuns,
    superpage: PageSize,
    quiet: bool,
) -> Result<(replay::Recorded, Vec<Window>), Failure> {
    let command = subject.command()?;
    let program = launch::Program::find(&command[0], &facts::search_path())
        .map_err(|error| Failure::of_launcher(&error))?;
    let timed = matches!(subject, Subject::Workload(..));
    let part = runs.part.0 + runs.part.1;
    let wanted = WINDOWS * runs.whole / part;
    let most = (MAX_COST * runs.whole / WINDOW_SECONDS).max(2.0 * MIN_WINDOWS as f64);
    let number = wanted.min(most);
    let plan = Plan {
        interval: Duration::from_secs_f64(runs.whole / number).max(Duration::from_millis(1)),
        instructions: INSTRUCTIONS,
        windows: 4 * number as usize,
    };
    let said = |error| Failure::usage(format!("a file for the program's output: {error}"));
    let mut output = tempfile::tempfile().map_err(said)?;
    let mut started = Command::new(&program.path);
    started.args(&command[1..]).stdin(Stdio::null()).stdout(output.try_clone().map_err(said)?);
    let interrupting = signals::interrupt_experiment(Default::default())?;
    let mut progress = Progress::new(quiet, "recording windows of the program");
    let recorded = replay::record(&mut started, plan, superpage, |windows| {
        progress.tell(windows as u64, Some(number as u64), || "recording windows".to_string());
        interrupting.received().is_none()
    });
    progress.clear();
    if let Some(signal) = interrupting.received() {
        return Err(Failure::interrupted(signal, "the recording"));
    }
    let (mut recorded, status) = recorded.map_err(failure)?;
    if timed && !status.success() {
        return Err(Failure::usage(format!("failed while windows were recorded: {status}")));
    }
    let mut windows = std::mem::take(&mut recorded.windows);
    if timed {
        let mut text = String::new();
        output.rewind().and_then(|()| output.read_to_string(&mut text)).map_err(said)?;
        let (begin, length) = timed_phase(&text)
            .ok_or_else(|| Failure::usage("the workload's output has no times"))?;
        windows.retain(|window| (begin..begin + length).contains(&window.at.as_secs_f64()));
    }
    Ok((recorded, windows))
}

/// Begin and length of a workload's timed phase, in seconds.
fn timed_phase(output: &str) -> Option<(f64, f64)> {
    let document: serde_json::Value = serde_json::from_str(output).ok()?;
    Some((document["setup_seconds"].as_f64()?, document["seconds"].as_f64()?))
}

fn failure(error: ReplayError) -> Failure {
    match error {
        ReplayError::TooFew { .. } | ReplayError::Start(_) => Failure::usage(error),
        _ => Failure::cannot(error),
    }
}
