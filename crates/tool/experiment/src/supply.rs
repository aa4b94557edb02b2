//! Frees superpages in bulk for a program that is about to use them. The library in the program makes requests through
//! the run's counters; a thread of superpage (root) frees the superpages.
//!
//! The kernel compacts for one superpage at a time when it is touched, which costs a program several times as much as
//! growing the hugetlb pool by the same number. So the thread grows the pool in steps, until a step gains too few, and
//! shrinks it at once: the compacted memory stays free. If that is not enough, the thread enables smaller THP sizes
//! that are off, for advised memory, until the program ends.
//! See docs/decisions/contiguity.md#6.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use abi::supply::{GOT, SERVED, SERVES, WANTED};
use host::journal::{JournalError, SharedKnob};
use host::{FreeContiguity, Root, Thp, cgroup};
use launch::Plan;
use sys::pagemap::Pagemap;
use sys::shared::SharedWords;
use units::PageSize;

use crate::contiguous::{self, Cache, Limits, STEP};
use crate::counters::CounterFile;
use crate::fragment::{self, FragmentError};

/// Number of superpages that a probe takes in addition to the free ones.
const EXTRA_TRIED: u64 = 4;
/// A probe takes at most 1/TRIED_SHARE of the control group's headroom.
const TRIED_SHARE: u64 = 4;
/// The library in the program waits a little longer (`EACH_WAIT` in crates/preload/runtime/src/counters.rs).
const MAX_TIME: MaxTime =
    MaxTime { superpage: Duration::from_millis(2), request: Duration::from_millis(1000) };
/// Interval at which the thread checks whether to end.
const LOOK: Duration = Duration::from_millis(200);

/// Maximum times of a request.
#[derive(Debug, Clone, Copy)]
struct MaxTime {
    /// For each superpage.
    superpage: Duration,
    /// For all of them.
    request: Duration,
}

/// The thread that serves a run.
#[derive(Debug)]
pub struct Supply {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Supplied>>,
}

/// Results for a run.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Supplied {
    /// Number of requests of the run's processes.
    #[serde(deserialize_with = "units::count")]
    pub requests: u64,
    /// Number of superpages requested.
    #[serde(deserialize_with = "units::count")]
    pub wanted: u64,
    /// Number of superpages freed.
    #[serde(deserialize_with = "units::count")]
    pub got: u64,
    /// Seconds spent on all requests.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// Time of each request, in microseconds.
    #[serde(skip)]
    pub took: Vec<u64>,
    /// The smaller THP sizes that were enabled.
    pub sizes: Vec<PageSize>,
    /// Why the supply failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

#[derive(Debug)]
struct Shared {
    words: SharedWords,
    ends: AtomicBool,
}

struct Work {
    root: Root,
    journal: PathBuf,
    superpage: PageSize,
    sizes: Vec<PageSize>,
    max_time: MaxTime,
    /// Sizes that stay enabled until the end.
    on: Vec<SharedKnob>,
    supplied: Supplied,
}

impl Supply {
    /// Serves the processes of a plan's run; `None` if the plan does not ask for it, or the machine has no superpages.
    ///
    /// # Errors
    /// The counters cannot be mapped, or no thread started.
    pub fn for_plan(
        plan: &Plan,
        counters: Option<&CounterFile>,
        root: &Root,
        journal: &Path,
    ) -> std::io::Result<Option<Self>> {
        let (Some(sizes), Some(counters)) = (&plan.supply, counters) else { return Ok(None) };
        let Ok(superpage) = Thp::pmd_size_of(root) else { return Ok(None) };
        Self::start(counters, root.clone(), journal, superpage, sizes, MAX_TIME).map(Some)
    }

    /// Starts serving; `sizes` may be enabled.
    fn start(
        counters: &CounterFile,
        root: Root,
        journal: &Path,
        superpage: PageSize,
        sizes: &[PageSize],
        max_time: MaxTime,
    ) -> std::io::Result<Self> {
        let words = counters.words().map_err(std::io::Error::other)?;
        let shared = Arc::new(Shared { words, ends: AtomicBool::new(false) });
        let mut work = Work {
            root,
            journal: journal.to_path_buf(),
            superpage,
            sizes: sizes.to_vec(),
            max_time,
            on: Vec::new(),
            supplied: Supplied::default(),
        };
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("supply".to_string());
        let thread = thread.spawn(move || {
            theirs.serve(&mut work);
            work.supplied
        })?;
        shared.words.word(SERVES).store(1, Ordering::SeqCst);
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Stops the thread, and disables the sizes that it enabled.
    pub fn stop(mut self) -> Supplied {
        self.end()
    }

    fn end(&mut self) -> Supplied {
        let Some(thread) = self.thread.take() else { return Supplied::default() };
        self.shared.words.word(SERVES).store(0, Ordering::SeqCst);
        self.shared.ends.store(true, Ordering::SeqCst);
        self.shared.words.wake(WANTED);
        let supplied = thread.join().unwrap_or_default();
        self.shared.words.word(SERVED).fetch_add(1, Ordering::SeqCst);
        self.shared.words.wake(SERVED);
        supplied
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn serve(&self, work: &mut Work) {
        while !self.ends.load(Ordering::SeqCst) {
            let wanted = self.words.word(WANTED).load(Ordering::SeqCst);
            if wanted == 0 {
                self.words.wait(WANTED, 0, LOOK);
                continue;
            }
            let got = work.supply(wanted.into());
            self.words.word(GOT).store(got.min(u32::MAX.into()) as u32, Ordering::SeqCst);
            self.words.word(WANTED).store(0, Ordering::SeqCst);
            self.words.word(SERVED).fetch_add(1, Ordering::SeqCst);
            self.words.wake(SERVED);
        }
    }
}

impl Work {
    /// Frees up to `wanted` superpages. Returns the number freed.
    fn supply(&mut self, wanted: u64) -> u64 {
        let began = Instant::now();
        // The pool takes superpages that are already free first, so add them to the count.
        let free = self.free();
        let count = (free + wanted).min(self.most());
        let got = match count > free && self.are_had(free) {
            true => self.gather(count).unwrap_or_else(|why| {
                self.supplied.why_not = Some(why.to_string());
                0
            }),
            false => 0,
        };
        let got = got.saturating_sub(free);
        if got < wanted
            && let Err(why) = self.turn_sizes_on()
        {
            self.supplied.why_not = Some(why.to_string());
        }
        self.supplied.requests += 1;
        self.supplied.wanted += wanted;
        self.supplied.got += got;
        let took = began.elapsed();
        self.supplied.seconds += took.as_secs_f64();
        self.supplied.took.push(took.as_micros() as u64);
        got
    }

    fn free(&self) -> u64 {
        let free = FreeContiguity::for_programs(&self.root, self.superpage).ok();
        free.and_then(|free| free.superpages).unwrap_or(0)
    }

    fn gather(&self, count: u64) -> Result<u64, JournalError> {
        let MaxTime { superpage, request } = self.max_time;
        let time = superpage.saturating_mul(count as u32).min(request);
        let limits = Limits { time, short: 0, cache: Cache::Reclaimed };
        contiguous::gather(&self.root, &self.journal, self.superpage, count, limits)
    }

    /// Returns the number of superpages that free memory, page cache and our control group allow. The program is usually
    /// in the same group.
    fn most(&self) -> u64 {
        let most = contiguous::most(&self.root, self.superpage, Cache::Reclaimed);
        most.min(self.headroom() / self.superpage.bytes())
    }

    fn headroom(&self) -> u64 {
        cgroup::memory_headroom(&self.root).map_or(u64::MAX, |left| left.bytes())
    }

    /// Returns whether faults of this process get a few superpages in addition to the free ones. The probe is needed
    /// because a pool that cannot grow wakes kcompactd, which then migrates the program's memory for a second. Such
    /// faults do not wake it (GFP_TRANSHUGE has no __GFP_KSWAPD_RECLAIM).
    fn are_had(&self, free: u64) -> bool {
        if self.root != Root::real() {
            return true;
        }
        // Where page cache fills the memory, such faults fail now and then, and then defer the pool's compaction, too.
        if free > STEP || contiguous::lacks_free_memory(&self.root) {
            return true;
        }
        let count = free + EXTRA_TRIED;
        // The probe's memory is charged to our control group, which reclaims it from other processes.
        if count * self.superpage.bytes() > self.headroom() / TRIED_SHARE {
            return false;
        }
        let tried = || {
            let pagemap = Pagemap::open(sys::param::own_pid())?;
            let mut held = Vec::new();
            for _ in 0..count {
                let (piece, got) = fragment::fault(&pagemap, self.superpage, 1)?;
                if got.is_empty() {
                    return Ok(false);
                }
                held.push(piece);
            }
            Ok::<bool, FragmentError>(true)
        };
        tried().unwrap_or(false)
    }

    fn turn_sizes_on(&mut self) -> Result<(), JournalError> {
        let sizes = std::mem::take(&mut self.sizes);
        if !sizes.is_empty() {
            self.on = SharedKnob::allow_thp_sizes(&self.journal, &self.root, &sizes)?;
            self.supplied.sizes = sizes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine of files: a pool that grows to any size, 1 GiB of which 48 MiB are free, and a THP size that is off.
    struct Machine(tempfile::TempDir);

    const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    const SIZE: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";

    impl Machine {
        fn new() -> Self {
            let machine = Self(tempfile::tempdir().unwrap());
            for (path, text) in [
                ("/proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555"),
                ("/proc/meminfo", "MemTotal: 1048576 kB\nMemFree: 53248 kB"),
                // Two superpages are free.
                ("/proc/buddyinfo", "Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 1"),
                (POOL, "3"),
                (SIZE, "never"),
            ] {
                let file = machine.root().path(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, format!("{text}\n")).unwrap();
            }
            machine
        }

        fn root(&self) -> Root {
            Root::at(self.0.path().join("root"))
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.root().path(path)).unwrap().trim().to_string()
        }
    }

    /// Enough on a busy machine, too.
    const LONG: MaxTime =
        MaxTime { superpage: Duration::from_secs(100), request: Duration::from_secs(100) };

    /// A supply of a machine that may enable `sizes`, and the counters through which it is asked.
    fn started(machine: &Machine, sizes: &[PageSize]) -> (Supply, CounterFile) {
        let superpage = PageSize::new(2 << 20).unwrap();
        let counters = CounterFile::create().unwrap();
        assert_eq!(counters.words().unwrap().word(SERVES).load(Ordering::SeqCst), 0);
        let journal = machine.0.path().join("journal");
        let supply = Supply::start(&counters, machine.root(), &journal, superpage, sizes, LONG);
        (supply.unwrap(), counters)
    }

    /// Makes a request as the library does.
    fn ask(words: &SharedWords, count: u32) -> u32 {
        let seen = words.word(SERVED).load(Ordering::SeqCst);
        words.word(WANTED).store(count, Ordering::SeqCst);
        words.wake(WANTED);
        while words.word(SERVED).load(Ordering::SeqCst) == seen {
            words.wait(SERVED, seen, Duration::from_secs(1));
        }
        words.word(GOT).load(Ordering::SeqCst)
    }

    #[test]
    fn what_is_asked_for_is_made_free_and_settings_are_as_found() {
        let machine = Machine::new();
        let small = PageSize::new(64 << 10).unwrap();
        let (supply, counters) = started(&machine, &[small]);
        let words = counters.words().unwrap();
        assert_eq!(words.word(SERVES).load(Ordering::SeqCst), 1);
        assert_eq!(ask(&words, 5), 5);
        assert_eq!([machine.read(POOL), machine.read(SIZE)], ["3", "never"]);
        // Of 52 MiB, 32 must stay free and 4 lie in free superpages: only 8 more can be freed, so smaller sizes are
        // enabled.
        assert_eq!(ask(&words, 100), 8);
        assert_eq!([machine.read(POOL), machine.read(SIZE)], ["3", "madvise"]);
        let supplied = supply.stop();
        assert_eq!(machine.read(SIZE), "never");
        assert_eq!(words.word(SERVES).load(Ordering::SeqCst), 0);
        let Supplied { requests, wanted, got, sizes, why_not, .. } = supplied;
        assert_eq!((requests, wanted, got, sizes, why_not), (2, 105, 13, vec![small], None));
    }

    #[test]
    fn page_cache_is_reclaimed_for_what_the_program_is_about_to_touch() {
        let machine = Machine::new();
        let text = "MemTotal: 1048576 kB\nMemFree: 20480 kB\nMemAvailable: 614400 kB\n";
        fs::write(machine.root().path("/proc/meminfo"), text).unwrap();
        let (supply, counters) = started(&machine, &[]);
        let words = counters.words().unwrap();
        assert_eq!(ask(&words, 40), 40);
        // Of 600 MiB, 32 must stay available.
        assert_eq!(ask(&words, 1000), (600 - 32) / 2 - 2);
        assert_eq!((machine.read(POOL).as_str(), supply.stop().why_not), ("3", None));
    }

    #[test]
    fn what_cannot_be_changed_is_no_answer_but_a_reason() {
        let machine = Machine::new();
        fs::remove_file(machine.root().path(POOL)).unwrap();
        let (supply, counters) = started(&machine, &[]);
        let words = counters.words().unwrap();
        assert_eq!(ask(&words, 5), 0);
        assert!(supply.stop().why_not.is_some_and(|why| why.contains("nr_hugepages")));
    }
}
