//! Compares the laboratory's model of the hugetlb pool with this machine's kernel: both get the same calls, and the
//! four counters are compared after each call.
//!
//! Privileged tier: the pool is resized. `programs/pool_actor.c` makes the calls, because they include forks and
//! mappings.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use superpage_mm_sim::hugetlb::{
    Counts, Fault, Frames, HugetlbPool, Kind, MappingId, ObjectId, Place, Request,
};
use superpage_mm_sim::memory::Frame;

/// Maximum time until the kernel counts pages that a process has freed, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

const DIR: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn read(file: &str) -> u64 {
    let text = fs::read_to_string(format!("{DIR}/{file}")).expect("a pool");
    text.trim().parse().expect("a number")
}

fn kernel() -> Counts {
    Counts {
        total: read("nr_hugepages"),
        free: read("free_hugepages"),
        reserved: read("resv_hugepages"),
        surplus: read("surplus_hugepages"),
    }
}

/// Memory that never runs out.
#[derive(Default)]
struct Plenty(u32);

impl Frames for Plenty {
    fn allocate(&mut self, _: u8) -> Option<Frame> {
        self.0 += 1;
        Some(Frame(self.0 << 9))
    }
    fn free(&mut self, _: Frame, _: u8) {}
}

/// The kernel and the model, which get the same calls.
struct Both {
    actor: Child,
    lines: ChildStdin,
    answers: BufReader<ChildStdout>,
    model: HugetlbPool,
    memory: Plenty,
    /// By process and number: the model's mapping, and the pages that are still mapped.
    mappings: BTreeMap<(usize, usize), (MappingId, Vec<u32>)>,
    objects: Vec<ObjectId>,
    told: Vec<String>,
    // The pools are restored after the actor ended, while the lock is held.
    _found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

impl Drop for Both {
    fn drop(&mut self) {
        let _ = self.actor.kill();
        let _ = self.actor.wait();
        let started = Instant::now();
        // The actor's children are killed when it dies, a moment later.
        while kernel().free < kernel().total && started.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Maximum size of the pool in these tests: a resize to 9 pages, and 3 surplus pages.
const MOST_PAGES: u64 = 12;

/// Returns whether the kernel can make this many pool pages on this machine. Frees them at once.
fn can_be_had(pages: u64) -> bool {
    let resize = |pages: u64| {
        fs::write(format!("{DIR}/nr_hugepages"), pages.to_string()).expect("root");
        read("nr_hugepages")
    };
    let got = resize(pages);
    got == pages && resize(0) == 0
}

fn actor() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/pool_actor.c");
    let name = format!("pool_actor-{:?}", thread::current().id());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("cc").arg("-O1").arg(source).arg("-o").arg(&program).status();
    assert!(status.expect("the compiler starts").success());
    program
}

impl Both {
    /// Starts the actor; `None` if this machine lacks something.
    fn start(pages: u64, overcommit: u64) -> Option<Self> {
        if !testkit::is_root() || !Path::new(DIR).exists() {
            return None;
        }
        let has_cc = Command::new("cc").arg("--version").output().is_ok();
        let lock = testkit::machine_lock()?;
        let found = testkit::PoolsAsFound::note();
        let one_node = fs::read_to_string("/sys/devices/system/node/online").ok()?.trim() == "0";
        if !has_cc || !one_node || kernel() != Counts::default() || !can_be_had(MOST_PAGES) {
            return None;
        }
        let program = Command::new(actor()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut program = program.expect("the actor starts");
        let mut both = Self {
            lines: program.stdin.take().expect("piped"),
            answers: BufReader::new(program.stdout.take().expect("piped")),
            actor: program,
            model: HugetlbPool::new(1, 0),
            memory: Plenty::default(),
            mappings: BTreeMap::new(),
            objects: Vec::new(),
            told: Vec::new(),
            _found: found,
            _lock: lock,
        };
        both.overcommit(overcommit);
        both.resize(pages).then_some(both)
    }

    /// Sends a call to the actor; returns its answer.
    fn tell(&mut self, process: usize, call: String) -> String {
        self.told.push(format!("{process} {call}"));
        writeln!(self.lines, "{process} {call}").expect("the actor lives");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the actor lives");
        answer.trim().to_string()
    }

    /// Checks that the kernel's answer is as expected, and that both have the same counters.
    fn agree(&mut self, answer: &str, expected: &str) {
        assert_eq!(answer, expected, "{:#?}", self.told);
        self.model.verify().expect("the model holds");
        let (wanted, started) = (self.model.counts(), Instant::now());
        // A process that has ended may not have freed its pages yet.
        while kernel() != wanted && started.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(kernel(), wanted, "the kernel, the model: {:#?}", self.told);
    }

    fn resize(&mut self, pages: u64) -> bool {
        self.told.push(format!("resize {pages}"));
        fs::write(format!("{DIR}/nr_hugepages"), pages.to_string()).expect("root");
        self.model.resize(pages, None, &mut self.memory);
        kernel().total == self.model.counts().total
    }

    fn overcommit(&mut self, pages: u64) {
        self.told.push(format!("overcommit {pages}"));
        fs::write(format!("{DIR}/nr_overcommit_hugepages"), pages.to_string()).expect("root");
        self.model.set_overcommit(pages);
    }

    fn map(
        &mut self,
        process: usize,
        number: usize,
        kind: Option<(usize, u32)>,
        pages: u32,
        reserve: bool,
    ) {
        let flag = u8::from(reserve);
        let (call, kind) = match kind {
            None => (format!("private {number} {pages} {flag}"), Kind::Private),
            Some((file, start)) => (
                format!("shared {number} {file} {start} {pages} {flag}"),
                Kind::Shared { object: self.objects[file], start },
            ),
        };
        let answer = self.tell(process, call);
        let request = Request { kind, pages, reserve, place: Place::ANY };
        let said = self.model.map(request, &mut self.memory);
        if let Ok(id) = said {
            self.mappings.insert((process, number), (id, (0..pages).collect()));
        }
        self.agree(&answer, if said.is_ok() { "ok" } else { "refused" });
    }

    fn file(&mut self) {
        let answer = self.tell(0, format!("file {}", self.objects.len()));
        self.objects.push(self.model.create_object());
        self.agree(&answer, "ok");
    }

    fn touch(&mut self, process: usize, number: usize, page: u32, write: bool) -> Fault {
        let answer = self.tell(process, format!("touch {number} {page} {}", u8::from(write)));
        let id = self.mappings[&(process, number)].0;
        let fault = self.model.fault(id, page, write, Place::ANY, &mut self.memory);
        let killed = matches!(fault, Fault::Killed(_));
        self.agree(&answer, if killed { "killed" } else { "ok" });
        fault
    }

    fn unmap(&mut self, process: usize, number: usize, from: u32, pages: u32) {
        let answer = self.tell(process, format!("unmap {number} {from} {pages}"));
        let (id, live) = self.mappings.get_mut(&(process, number)).expect("mapped");
        live.retain(|page| !(from..from + pages).contains(page));
        let (id, gone) = (*id, live.is_empty());
        self.model.unmap(id, from, from + pages, &mut self.memory);
        if gone {
            self.mappings.remove(&(process, number));
        }
        self.agree(&answer, "ok");
    }

    fn discard(&mut self, process: usize, number: usize, from: u32, pages: u32) {
        let answer = self.tell(process, format!("discard {number} {from} {pages}"));
        let id = self.mappings[&(process, number)].0;
        self.model.discard(id, from, from + pages, &mut self.memory);
        self.agree(&answer, "ok");
    }

    fn truncate(&mut self, file: usize, pages: u32) {
        let answer = self.tell(0, format!("truncate {file} {pages}"));
        self.model.truncate(self.objects[file], pages, &mut self.memory);
        self.agree(&answer, "ok");
    }

    fn punch(&mut self, file: usize, from: u32, pages: u32) {
        let answer = self.tell(0, format!("punch {file} {from} {pages}"));
        self.model.punch(self.objects[file], from, from + pages, &mut self.memory);
        self.agree(&answer, "ok");
    }

    fn fork(&mut self, child: usize) {
        let answer = self.tell(0, format!("fork {child}"));
        let own: Vec<_> =
            self.mappings.range((0, 0)..(1, 0)).map(|(k, v)| (k.1, v.clone())).collect();
        for (number, (id, live)) in own {
            self.mappings.insert((child, number), (self.model.fork(id), live));
        }
        self.agree(&answer, "ok");
    }

    fn exit(&mut self, child: usize) {
        let answer = self.tell(child, "exit".into());
        let gone: Vec<_> =
            self.mappings.range((child, 0)..(child + 1, 0)).map(|(k, _)| *k).collect();
        for key in gone {
            let (id, _) = self.mappings.remove(&key).expect("listed");
            self.model.unmap_all(id, &mut self.memory);
        }
        self.agree(&answer, "ok");
    }
}

const NEEDS: &str =
    "needs root, an unused pool of 2 MiB pages on one node, free memory for some, and a C compiler";

mod exclusive {
    use super::*;

    #[test]
    fn known_sequences_count_as_the_kernel_counts() {
        let both = Both::start(4, 0);
        testkit::require!(both.is_some(), "{NEEDS}");
        let mut both = both.unwrap();
        // Pages are reserved, used, and unmapped in parts.
        both.map(0, 0, None, 3, true);
        both.map(0, 1, None, 2, true);
        both.touch(0, 0, 1, false);
        both.unmap(0, 0, 1, 2);
        both.unmap(0, 0, 0, 1);
        // Surplus pages come with a reservation, and go with its end.
        both.overcommit(2);
        both.map(0, 2, None, 6, true);
        both.touch(0, 2, 0, true);
        both.unmap(0, 2, 0, 6);
        both.overcommit(0);
        // Pages of an object are reserved once, and outlive its mappings.
        both.file();
        both.map(0, 3, Some((0, 0)), 3, true);
        both.map(0, 4, Some((0, 1)), 3, true);
        both.touch(0, 3, 1, true);
        both.touch(0, 4, 0, true);
        both.unmap(0, 3, 0, 3);
        both.truncate(0, 2);
        both.touch(0, 4, 2, false);
        both.unmap(0, 4, 0, 3);
        both.punch(0, 0, 1);
        both.truncate(0, 0);
        // Without reservation.
        both.map(0, 5, None, 6, false);
        for page in 0..5 {
            both.touch(0, 5, page, true);
        }
        both.unmap(0, 5, 0, 6);
        // A child owns no reservation; the parent takes the pages it needs.
        both.map(0, 6, None, 3, true);
        both.touch(0, 6, 0, true);
        both.touch(0, 6, 1, true);
        both.fork(1);
        both.touch(1, 6, 0, false);
        assert!(matches!(both.touch(1, 6, 0, true), Fault::Copied { .. }));
        assert!(matches!(both.touch(1, 6, 1, true), Fault::Killed(_)));
        assert!(matches!(both.touch(0, 6, 1, true), Fault::Robbed { .. }));
        assert!(matches!(both.touch(1, 6, 1, false), Fault::Killed(_)));
        both.exit(1);
        both.discard(0, 6, 0, 2);
        both.touch(0, 6, 0, true);
        both.unmap(0, 6, 0, 3);
        // Pages that are in use or reserved become surplus when the pool shrinks.
        both.map(0, 7, None, 3, true);
        both.touch(0, 7, 0, true);
        assert!(both.resize(1));
        both.agree("", "");
        both.unmap(0, 7, 0, 3);
        assert_eq!(both.model.counts(), Counts { total: 1, free: 1, reserved: 0, surplus: 0 });
    }

    #[test]
    fn random_sequences_count_as_the_kernel_counts() {
        let strategy = prop::collection::vec(
            (0..14u8, any::<usize>(), any::<usize>(), 0..6u32, 1..5u32, any::<bool>()),
            150,
        );
        for seed in 0..12u8 {
            let both = Both::start(6, 1);
            testkit::require!(both.is_some(), "{NEEDS}");
            let mut both = both.unwrap();
            both.file();
            both.file();
            let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]);
            let mut runner = TestRunner::new_with_rng(Config::default(), random);
            let steps = strategy.new_tree(&mut runner).expect("steps").current();
            let (mut children, mut next) = (Vec::new(), 0);
            for step in steps {
                perform(&mut both, &mut children, &mut next, step);
            }
            // If an owner ends before its children, the counters are wrong until the children end.
            children.iter().for_each(|child| both.exit(child.0));
        }
    }
}

/// A step: the kind of call, and its numbers.
type Step = (u8, usize, usize, u32, u32, bool);

/// An owner does not discard a page that a child still maps: in that case the kernel's counters are known to be wrong
/// (`HugetlbPool::discard`).
fn perform(both: &mut Both, children: &mut Vec<(usize, Vec<usize>)>, next: &mut usize, step: Step) {
    let (what, which, number, from, pages, flag) = step;
    let live: Vec<(usize, usize)> = both.mappings.keys().copied().collect();
    let chosen = (!live.is_empty()).then(|| live[which % live.len().max(1)]);
    let inherited =
        |key: (usize, usize)| key.0 == 0 && children.iter().any(|(_, maps)| maps.contains(&key.1));
    match (what, chosen) {
        (0 | 1, _) if *next < 60 => {
            let process = if flag { 0 } else { children.first().map_or(0, |child| child.0) };
            let kind = (what == 1).then_some((number % 2, from % 4));
            both.map(process, *next, kind, pages, which % 5 != 0);
            *next += 1;
        }
        (2..=5, Some(key)) => {
            let page = both.mappings[&key].1[number % both.mappings[&key].1.len()];
            both.touch(key.0, key.1, page, flag);
        }
        // Only mapped pages are unmapped: a hole may contain another mapping.
        (6, Some(key)) if !inherited(key) => {
            let live = &both.mappings[&key].1;
            let first = live[from as usize % live.len()];
            let run = (first..first + pages).take_while(|page| live.contains(page)).count() as u32;
            both.unmap(key.0, key.1, first, run);
        }
        (7, Some(key)) if !inherited(key) && both.mappings[&key].1.len() > from as usize => {
            let page = both.mappings[&key].1[from as usize];
            both.discard(key.0, key.1, page, 1);
        }
        (8, _) if children.len() < 2 => {
            let child = (1..3).find(|child| children.iter().all(|known| known.0 != *child));
            let maps = live.iter().filter(|key| key.0 == 0).map(|key| key.1).collect();
            both.fork(child.expect("one is free"));
            children.push((child.expect("one is free"), maps));
        }
        (9, _) if !children.is_empty() => {
            let child = children.remove(which % children.len());
            both.exit(child.0);
        }
        (10, _) => both.truncate(number % 2, from),
        (11, _) => both.punch(number % 2, from, pages),
        (12, _) => {
            both.overcommit(u64::from(pages) % 4);
            both.agree("", "");
        }
        (13, _) => {
            assert!(both.resize(u64::from(from + pages)), "{:#?}", both.told);
            both.agree("", "");
        }
        _ => {}
    }
}
