//! Switches the memory of running processes between base pages and superpages, through `manage`.
//!
//! Superpages that are made are recorded where `superpage manage --undo` finds them, before each call: after a kill the
//! record has what is left to split.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use experiment::running::{Coverage, Pages, Switch, SwitchError, Switched};
use host::Root;
use manage::{
    Block, Collapsed, FILL_COMPARED, Forbidden, Limits, ManageError, Memory, Skip, Split, Survey,
};
use services::Process;
use units::ByteSize;

use crate::signals::Interruption;

/// Share of the time that is spent in calls, each of which holds up the process. See docs/decisions/running-services.md#1.
const DUTY: f64 = 0.5;
/// Memory that stays available.
const HEADROOM: ByteSize = ByteSize::mib(256);
/// Longest time of a switch.
const WITHIN: Duration = Duration::from_secs(120);
/// Superpages of the trial that estimates the time of a switch.
const TRIED: usize = 16;
/// The longest calls of the trial that are left out of the mean: on a busy machine one may take seconds.
const OUTLIERS: usize = 2;

/// The memory of all processes of a service.
#[derive(Debug)]
pub struct Memories {
    all: Vec<One>,
    /// Set when the user interrupts.
    interruption: Interruption,
    dir: PathBuf,
}

#[derive(Debug)]
struct One {
    memory: Memory,
    /// Superpages that the process had at the start.
    found: BTreeSet<u64>,
    /// Superpages that were made since.
    made: BTreeSet<u64>,
    /// Superpages that were recorded at the start.
    recorded: Vec<u64>,
}

/// What a comparison would do to a process.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The process.
    pub process: Process,
    /// Coverage now.
    pub coverage: Coverage,
    /// Superpages that would be made for the first switch to superpages.
    pub to_make: u64,
    /// Superpages that would be split for the first switch to base pages.
    pub to_split: u64,
    /// Zeroed bytes that would fill superpages.
    pub fill: ByteSize,
}

impl Plan {
    /// Estimates the seconds of a switch to superpages, and of one to base pages, of all its memory.
    pub fn seconds(&self, price: &Price) -> [f64; 2] {
        let all = (self.to_make + self.to_split) as f64;
        [price.made, price.split].map(|one| all * one / DUTY)
    }
}

/// Mean seconds of the calls that make a superpage, and split one, on this machine now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Seconds of a superpage made of 512 base pages, with the wait for busy CPUs.
    pub made: f64,
    /// Seconds of one split.
    pub split: f64,
}

impl Price {
    /// Tries both on memory of this process; `None`: not possible here. Other processes are not touched.
    pub fn measure(root: &Root) -> Option<Self> {
        let size = host::Thp::pmd_size_of(root).ok()?;
        let mut memory = sys::mem::Mapping::aligned(TRIED * size.bytes() as usize, size).ok()?;
        memory.advise(sys::mem::Advice::NoHugePage).ok()?;
        memory.bytes_mut().fill(1);
        memory.advise(sys::mem::Advice::HugePage).ok()?;
        let mut timed = |length: usize, advice: sys::mem::Advice| {
            let mut times = [0.0; TRIED];
            for (at, time) in times.iter_mut().enumerate() {
                let (start, began) = (at * size.bytes() as usize, Instant::now());
                memory.advise_range(start..start + length, advice).ok()?;
                *time = began.elapsed().as_secs_f64();
            }
            times.sort_unstable_by(f64::total_cmp);
            Some(times[..TRIED - OUTLIERS].iter().sum::<f64>() / (TRIED - OUTLIERS) as f64)
        };
        let made = timed(size.bytes() as usize, sys::mem::Advice::Collapse)?;
        let split = timed(root.page_size().bytes() as usize, sys::mem::Advice::Cold)?;
        Some(Self { made, split })
    }
}

impl Memories {
    /// Opens the processes. Changes nothing.
    ///
    /// # Errors
    /// A process ended, may not be read, or superpages are forbidden in it.
    pub fn open(
        root: &Root,
        processes: &[Process],
        interruption: Interruption,
    ) -> Result<Self, SwitchError> {
        let dir = PathBuf::from(manage::record::DIR);
        let mut all = Vec::new();
        for process in processes {
            let fail = |error: ManageError| failure(process, &error);
            let memory = Memory::open(root, process).map_err(fail)?;
            let survey = memory.survey().map_err(fail)?;
            let forbidden = memory.forbidden().map_err(fail)?;
            if let Some(why) = forbidden.iter().find_map(obstacle) {
                return Err(SwitchError::Cannot(format!("{}: {why}", named(process))));
            }
            let record = memory.record(&dir).map_err(fail)?;
            let found = survey.blocks.iter().filter(|block| block.pages.huge > 0);
            all.push(One {
                found: found.map(|block| block.start).collect(),
                made: BTreeSet::new(),
                recorded: record.starts().collect(),
                memory,
            });
        }
        Ok(Self { all, interruption, dir })
    }

    /// Returns what a comparison would do.
    ///
    /// # Errors
    /// A process ended, or may not be read.
    pub fn plans(&self) -> Result<Vec<Plan>, SwitchError> {
        let plan = |one: &One| {
            let survey = one.survey()?;
            let to_make = survey.blocks.iter().filter(|block| is_wanted(block)).count();
            Ok(Plan {
                process: one.memory.process.clone(),
                coverage: coverage(&survey),
                to_make: to_make as u64,
                to_split: survey.blocks.iter().filter(|block| block.pages.huge > 0).count() as u64,
                fill: one.fill(&survey, &wanted(&survey, &one.found)).0,
            })
        };
        self.all.iter().map(plan).collect()
    }
}

impl Switch for Memories {
    fn switch(&mut self, to: Pages) -> Result<Switched, SwitchError> {
        let began = Instant::now();
        let deadline = began.checked_add(WITHIN);
        let (mut switched, interruption) = (Switched::default(), &self.interruption);
        let goes_on = || interruption.load(std::sync::atomic::Ordering::SeqCst) == 0;
        for one in &mut self.all {
            let survey = one.survey()?;
            match to {
                Pages::Superpages => {
                    let blocks = wanted(&survey, &one.known());
                    one.collapse(&self.dir, &survey, &blocks, deadline, &goes_on, &mut switched)?;
                }
                Pages::Base => {
                    let huge = survey.blocks.iter().filter(|block| block.pages.huge > 0);
                    let starts: Vec<u64> = huge.map(|block| block.start).collect();
                    one.split(&self.dir, &survey, &starts, deadline, &mut switched)?;
                }
            }
        }
        switched.seconds = began.elapsed().as_secs_f64();
        Ok(switched)
    }

    fn coverage(&mut self) -> Result<Coverage, SwitchError> {
        let mut all = Coverage::default();
        for one in &self.all {
            let found = coverage(&one.survey()?);
            all.eligible_bytes += found.eligible_bytes;
            all.superpage_bytes += found.superpage_bytes;
        }
        Ok(all)
    }

    fn restore(&mut self) -> Result<Switched, SwitchError> {
        let began = Instant::now();
        let deadline = began.checked_add(WITHIN);
        let mut switched = Switched::default();
        let mut failed = None;
        for one in &mut self.all {
            match one.restore(&self.dir, deadline, &mut switched) {
                Ok(()) => {}
                // Nothing is left of it to restore.
                Err(SwitchError::Ended(_) | SwitchError::Executed(_)) => {
                    // Its record goes with it.
                    let listed = manage::record::recorded(&Root::real(), &self.dir);
                    failed = failed.or(listed.err().map(SwitchError::Cannot));
                }
                Err(error) => failed = Some(error),
            }
        }
        switched.seconds = began.elapsed().as_secs_f64();
        failed.map_or(Ok(switched), Err)
    }
}

impl One {
    fn survey(&self) -> Result<Survey, SwitchError> {
        self.memory.survey().map_err(|error| failure(&self.memory.process, &error))
    }

    /// Places that were on superpages at some time.
    fn known(&self) -> BTreeSet<u64> {
        self.found.union(&self.made).copied().collect()
    }

    /// Bytes of zeroed pages that `blocks` may add: any for places that were on superpages before, whose pages of zeros
    /// the split gave back, and a share of resident memory for others. The second number is the bytes allowed.
    fn fill(&self, survey: &Survey, blocks: &[Block]) -> (ByteSize, ByteSize) {
        let known = self.known();
        let missing = |block: &Block| survey.missing(block).bytes();
        let resident = self.memory.resident().map_or(0, ByteSize::bytes);
        let most = (resident as f64 * FILL_COMPARED) as u64;
        let (again, fresh): (Vec<&Block>, Vec<&Block>) =
            blocks.iter().partition(|block| known.contains(&block.start));
        let again: u64 = again.into_iter().map(missing).sum();
        let mut added = 0;
        for more in fresh.into_iter().map(missing) {
            if added + more <= most {
                added += more;
            }
        }
        (ByteSize(again + added), ByteSize(again + most))
    }

    fn collapse(
        &mut self,
        dir: &std::path::Path,
        survey: &Survey,
        blocks: &[Block],
        deadline: Option<Instant>,
        goes_on: &dyn Fn() -> bool,
        switched: &mut Switched,
    ) -> Result<(), SwitchError> {
        let fail = |error: ManageError| failure(&self.memory.process, &error);
        let (_, fill) = self.fill(survey, blocks);
        let limits = Limits { duty: DUTY, deadline, fill, headroom: HEADROOM };
        let mut record = self.memory.record(dir).map_err(fail)?;
        let made = self.memory.collapse(survey, blocks, &limits, &mut record, |_| goes_on());
        let Collapsed { made, skipped, longest_seconds, starts, .. } = made;
        drop(record);
        if skipped.contains_key(&Skip::Unrecorded) {
            let why = format!(
                "no record can be written to {}, so nothing could be undone",
                dir.display()
            );
            return Err(SwitchError::Cannot(why));
        }
        if skipped.contains_key(&Skip::Denied) {
            return Err(SwitchError::Cannot(DENIED.to_string()));
        }
        // What was on superpages before is not ours to split later.
        let record = self.memory.record(dir).map_err(fail)?;
        let is_ours = |start: &u64| !self.found.contains(start) || self.recorded.contains(start);
        let ours: Vec<u64> = record.starts().filter(is_ours).collect();
        record.keep(&ours).map_err(SwitchError::Cannot)?;
        let found = &self.found;
        self.made.extend(starts.into_iter().filter(|start| !found.contains(start)));
        switched.made += made;
        add_skipped(switched, skipped.iter().map(|(why, bytes)| (why, bytes.bytes())));
        longest(switched, longest_seconds);
        Ok(())
    }

    fn split(
        &mut self,
        dir: &std::path::Path,
        survey: &Survey,
        starts: &[u64],
        deadline: Option<Instant>,
        switched: &mut Switched,
    ) -> Result<(), SwitchError> {
        let fail = |error: ManageError| failure(&self.memory.process, &error);
        let Split { split, kept, longest_seconds, left, .. } =
            self.memory.split(starts, DUTY, deadline);
        if kept.contains_key(&manage::Kept::Denied) {
            return Err(SwitchError::Cannot(DENIED.to_string()));
        }
        let record = self.memory.record(dir).map_err(fail)?;
        let gone: BTreeSet<u64> =
            starts.iter().copied().filter(|start| !left.contains(start)).collect();
        let rest: Vec<u64> = record.starts().filter(|start| !gone.contains(start)).collect();
        record.keep(&rest).map_err(SwitchError::Cannot)?;
        switched.split += split;
        switched.kept += left.len() as u64;
        let size = survey.superpage.bytes();
        add_skipped(switched, kept.iter().map(|(why, count)| (why, count * size)));
        longest(switched, longest_seconds);
        Ok(())
    }

    fn restore(
        &mut self,
        dir: &std::path::Path,
        deadline: Option<Instant>,
        switched: &mut Switched,
    ) -> Result<(), SwitchError> {
        let survey = self.survey()?;
        let huge = survey.blocks.iter().filter(|block| block.pages.huge > 0);
        let to_split: Vec<u64> =
            huge.map(|block| block.start).filter(|start| self.made.contains(start)).collect();
        self.split(dir, &survey, &to_split, deadline, switched)?;
        let lost = survey.blocks.iter().filter(|block| {
            self.found.contains(&block.start) && block.pages.huge == 0 && is_wanted(block)
        });
        let lost: Vec<Block> = lost.copied().collect();
        self.collapse(dir, &survey, &lost, deadline, &|| true, switched)
    }
}

const DENIED: &str = "superpages cannot be made or split in another process: process_madvise needs CAP_SYS_NICE; run \
                      as root";

/// Blocks that are not on superpages: known ones first, then the fullest first.
fn wanted(survey: &Survey, known: &BTreeSet<u64>) -> Vec<Block> {
    let mut blocks: Vec<Block> =
        survey.blocks.iter().filter(|block| is_wanted(block)).copied().collect();
    blocks.sort_by_key(|block| {
        (!known.contains(&block.start), std::cmp::Reverse(block.pages.resident()), block.start)
    });
    blocks
}

fn is_wanted(block: &Block) -> bool {
    !block.is_huge() && block.pages.resident() > 0
}

fn coverage(survey: &Survey) -> Coverage {
    let found = survey.coverage();
    Coverage {
        eligible_bytes: found.eligible.bytes(),
        superpage_bytes: found.on_superpages.bytes(),
    }
}

/// Why a comparison must not touch a process.
fn obstacle(forbidden: &Forbidden) -> Option<&'static str> {
    match forbidden {
        Forbidden::OffForProcess => Some(
            "superpages are turned off in it (prctl PR_SET_THP_DISABLE, or MemoryTHP= of its unit); turn them on there",
        ),
        // MADV_COLLAPSE does not heed this setting.
        Forbidden::OffForMachine => None,
        Forbidden::Userfaultfd => Some(
            "it has a userfaultfd, which would miss pages that a superpage fills; it is left alone",
        ),
        Forbidden::UserfaultfdUnknown => {
            Some("whether it has a userfaultfd cannot be read; run as its owner or root")
        }
    }
}

fn add_skipped<'a, W: serde::Serialize + 'a>(
    switched: &mut Switched,
    skipped: impl Iterator<Item = (&'a W, u64)>,
) {
    for (why, bytes) in skipped.filter(|(_, bytes)| *bytes > 0) {
        let name = serde_json::to_value(why).ok();
        let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or("failed");
        *switched.skipped.entry(name.to_string()).or_default() += bytes;
    }
}

fn longest(switched: &mut Switched, seconds: Option<f64>) {
    switched.longest_call_seconds =
        [switched.longest_call_seconds, seconds].into_iter().flatten().max_by(f64::total_cmp);
}

fn named(process: &Process) -> String {
    format!("pid {} ({})", process.pid, report::format::name(&process.name, 20))
}

fn failure(process: &Process, error: &ManageError) -> SwitchError {
    match error {
        error if error.is_ended() => SwitchError::Ended(named(process)),
        ManageError::Executed => SwitchError::Executed(named(process)),
        error => SwitchError::Cannot(format!("{}: {error}", named(process))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_switch_is_estimated_from_calls_on_own_memory() {
        let root = Root::real();
        let Some(price) = Price::measure(&root) else {
            return testkit::skipped!("no superpage can be made and split here");
        };
        assert!(price.made > 0.0 && price.split > 0.0, "{price:?}");
        let price = Price { made: 0.003, split: 0.001 };
        let process = Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
        let (coverage, fill) = (Coverage::default(), ByteSize(0));
        let plan = Plan { process, coverage, to_make: 90, to_split: 10, fill };
        // A hundred superpages each way, half of the time in calls.
        let [make, split] = plan.seconds(&price);
        assert!((make - 0.6).abs() < 1e-9 && (split - 0.2).abs() < 1e-9, "{make} {split}");
    }
}
