//! The procedure on simulated services: a rate with autocorrelated noise and drift, integrated over each block.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

use super::*;
use crate::document::Judging;
use crate::running::MeterError;
use crate::running::analysis::{Analysis, Counts, analyse};
use crate::running::document::{Document, Subject};
use crate::running::html::{bias, disturbed};
use crate::running::metric::{Metric, Per, Source};
use crate::verdict::Verdict;

/// Seconds of one step of the simulated load.
const STEP: f64 = 0.1;

/// The load of a simulated service.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Times faster on superpages.
    gain: f64,
    /// AR(1) of the logarithm of the rate, per step: coefficient and stationary deviation.
    wander: (f64, f64),
    /// Relative change of the rate per second.
    drift: f64,
    /// Amplitude and period in seconds of a periodic load.
    wave: (f64, f64),
    /// Standard deviation of a block's figure.
    white: f64,
}

/// Loads that drift, wander with time constants from 1 s to 100 s, and are periodic; the last one with the period of a
/// round.
const LOADS: [Load; 6] = [
    Load { gain: 1.0, wander: (0.9, 0.05), drift: 0.0, wave: (0.0, 1.0), white: 0.01 },
    Load { gain: 1.0, wander: (0.99, 0.05), drift: 0.001, wave: (0.0, 1.0), white: 0.01 },
    Load { gain: 1.0, wander: (0.999, 0.1), drift: -0.001, wave: (0.0, 1.0), white: 0.01 },
    Load { gain: 1.0, wander: (0.9, 0.02), drift: 0.0, wave: (0.05, 60.0), white: 0.01 },
    Load { gain: 1.0, wander: (0.9, 0.02), drift: 0.0, wave: (0.05, 7.0), white: 0.02 },
    Load { gain: 1.0, wander: (0.9, 0.02), drift: 0.0, wave: (0.05, 10.8), white: 0.02 },
];

/// What the parts of a simulated service share.
struct Service {
    load: Load,
    random: RefCell<Pcg64>,
    now: Cell<f64>,
    wander: Cell<f64>,
    /// Phase of the periodic load, as a share of its period.
    phase: f64,
    pages: Cell<Pages>,
    done: Cell<f64>,
    /// Coverage that a switch reaches, by state.
    reached: Cell<[f64; 2]>,
    /// Coverage on superpages from this time on.
    fades: Cell<(f64, f64)>,
    ends_at: Cell<f64>,
    executes_at: Cell<f64>,
    interrupted_at: Cell<f64>,
    restored: Cell<u32>,
}

impl Service {
    fn new(load: Load, seed: u64) -> Rc<Self> {
        let mut random = Pcg64::seed_from_u64(seed);
        let wander = load.wander.1 * normal(&mut random);
        let phase = uniform(&mut random);
        Rc::new(Self {
            load,
            random: RefCell::new(random),
            now: Cell::new(0.0),
            wander: Cell::new(wander),
            phase,
            pages: Cell::new(Pages::Base),
            done: Cell::new(0.0),
            reached: Cell::new([0.0, 1.0]),
            fades: Cell::new((f64::MAX, 0.0)),
            ends_at: Cell::new(f64::MAX),
            executes_at: Cell::new(f64::MAX),
            interrupted_at: Cell::new(f64::MAX),
            restored: Cell::new(0),
        })
    }

    fn pass(&self, seconds: f64) {
        let load = &self.load;
        let (phi, deviation) = load.wander;
        let mut left = seconds;
        while left > 1e-9 {
            let step = left.min(STEP);
            let fresh =
                deviation * (1.0 - phi * phi).sqrt() * normal(&mut self.random.borrow_mut());
            self.wander.set(phi * self.wander.get() + fresh);
            let now = self.now.get();
            let turn = std::f64::consts::TAU * (now / load.wave.1 + self.phase);
            let wave = load.wave.0 * turn.sin();
            let gain = if self.pages.get() == Pages::Superpages { load.gain } else { 1.0 };
            let rate = 1000.0 * gain * (self.wander.get() + wave + load.drift * now).exp();
            self.done.set(self.done.get() + rate * step);
            self.now.set(now + step);
            left -= step;
        }
    }

    fn check(&self) -> Result<(), SwitchError> {
        match self.now.get() {
            now if now >= self.ends_at.get() => Err(SwitchError::Ended("x 1".to_string())),
            now if now >= self.executes_at.get() => Err(SwitchError::Executed("x 1".to_string())),
            _ => Ok(()),
        }
    }
}

fn uniform(random: &mut Pcg64) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn normal(random: &mut Pcg64) -> f64 {
    let radius = (-2.0 * (uniform(random) + 1e-17).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(random)).cos()
}

struct Simulated(Rc<Service>);

impl Switch for Simulated {
    fn switch(&mut self, to: Pages) -> Result<Switched, SwitchError> {
        self.0.check()?;
        self.0.pass(0.2);
        self.0.pages.set(to);
        Ok(Switched { seconds: 0.2, ..Switched::default() })
    }

    fn coverage(&mut self) -> Result<Coverage, SwitchError> {
        self.0.check()?;
        let is_huge = self.0.pages.get() == Pages::Superpages;
        let (from, faded) = self.0.fades.get();
        let share = match is_huge && self.0.now.get() >= from {
            true => faded,
            false => self.0.reached.get()[usize::from(is_huge)],
        };
        Ok(Coverage { eligible_bytes: 1000, superpage_bytes: (1000.0 * share) as u64 })
    }

    fn restore(&mut self) -> Result<Switched, SwitchError> {
        self.0.restored.set(self.0.restored.get() + 1);
        self.0.pages.set(Pages::Base);
        Ok(Switched::default())
    }
}

/// A counter, read at both ends.
struct Counter(Rc<Service>, (f64, f64));

impl Meter for Counter {
    fn begin(&mut self) -> Result<(), MeterError> {
        self.1 = (self.0.now.get(), self.0.done.get());
        Ok(())
    }

    fn end(&mut self) -> Result<f64, MeterError> {
        let (from, done) = self.1;
        let noise = self.0.load.white * normal(&mut self.0.random.borrow_mut());
        Ok((self.0.done.get() - done) / (self.0.now.get() - from) * noise.exp())
    }
}

struct SimulatedTime(Rc<Service>);

impl Clock for SimulatedTime {
    fn now(&self) -> Duration {
        Duration::from_secs_f64(self.0.now.get())
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.0.pass(time.as_secs_f64());
        !self.is_interrupted()
    }

    fn is_interrupted(&self) -> bool {
        self.0.now.get() >= self.0.interrupted_at.get()
    }
}

fn arm(name: &str, pages: Pages) -> Arm {
    Arm { name: name.to_string(), pages, is_noise_floor: false }
}

fn settings(seed: u64) -> Settings {
    Settings {
        seed,
        warm_ups: 1,
        rule: Rule::default(),
        max_seconds: 180.0,
        block_seconds: 2.0,
        settle_seconds: 0.5,
        bounds: Bounds::default(),
    }
}

fn compare(service: &Rc<Service>, seed: u64, keeps: bool) -> (Document, Analysis) {
    let arms = vec![arm("base", Pages::Base), arm("thp", Pages::Superpages)];
    let metric = Metric {
        name: "work".to_string(),
        better: Better::Higher,
        per: Some(Per::Second),
        source: Source::Command { command: String::new(), regex: None },
    };
    let mut switch = Simulated(Rc::clone(service));
    let mut session = Session::new(&mut switch);
    let (mut meter, mut clock) =
        (Counter(Rc::clone(service), (0.0, 0.0)), SimulatedTime(Rc::clone(service)));
    let judging = Judging::default();
    let (settings, margin) = (settings(seed), judging.margin(None));
    let question = (Better::Higher, &margin);
    let ran = session.run(&mut meter, &mut clock, &arms, &settings, question, &mut |_| {}).unwrap();
    let machine = host::Snapshot::read(&host::Root::at("/nonexistent"));
    let subject = Subject {
        processes: Vec::new(),
        metric,
        settings,
        judging,
        arms,
        machine,
        began_unix_seconds: 0,
    };
    let mut document = Document::new(subject, ran);
    document.left = Some(session.leave(keeps));
    let analysis = analyse(&document);
    (document, analysis)
}

fn verdict_of(load: Load, seed: u64) -> (Document, Verdict) {
    let service = Service::new(load, seed);
    let (document, analysis) = compare(&service, seed, false);
    (document, analysis.judgements[0].verdict.clone())
}

/// The stated error is 1 %; `tests/integration/error_rate.rs` measures the rule on 68,000 experiments.
#[test]
fn equal_arms_are_not_called_different() {
    let mut all = 0;
    for load in LOADS {
        let mut counts = [0; 3];
        for seed in 0..200 {
            let (document, verdict) = verdict_of(load, seed);
            assert!(document.elapsed_seconds <= 180.0, "{}", document.elapsed_seconds);
            match verdict {
                Verdict::Faster(_) | Verdict::Slower(_) => counts[0] += 1,
                Verdict::Same { .. } => counts[1] += 1,
                _ => counts[2] += 1,
            }
        }
        println!("{load:?}: {} different, {} same, {} undecided", counts[0], counts[1], counts[2]);
        assert!(counts[0] <= 2, "{load:?}: {counts:?}");
        all += counts[0];
    }
    assert!(all <= 3, "{all} of 1200");
}

#[test]
fn ten_percent_are_found_within_three_minutes() {
    for load in LOADS {
        let (mut found, mut missed) = (0, 0);
        for seed in 1000..1200 {
            let (_, verdict) = verdict_of(Load { gain: 1.1, ..load }, seed);
            found += u32::from(matches!(verdict, Verdict::Faster(_)));
            let interval = verdict.ratio().and_then(|(_, interval)| interval);
            missed += u32::from(!interval.is_some_and(|interval| interval.contains(1.1)));
        }
        println!("{load:?}: {found} of 200 found, {missed} intervals missed 1.1");
        assert!(found >= 180, "{load:?}: {found} of 200");
    }
}

/// A quiet service, for tests of what happens around the figures.
fn quiet() -> Load {
    Load { wander: (0.0, 0.0), white: 0.0005, ..LOADS[0] }
}

#[test]
fn rounds_are_balanced_and_the_memory_as_found_comes_first() {
    let service = Service::new(quiet(), 7);
    let (document, analysis) = compare(&service, 7, false);
    assert_eq!(document.stopped, Stopped::RuleMet);
    let purposes: Vec<Purpose> = document.blocks.iter().map(|block| block.purpose).collect();
    use Purpose::{AsFound, Measured, WarmUp};
    assert_eq!(purposes[..6], [AsFound, AsFound, AsFound, AsFound, WarmUp, WarmUp]);
    assert!(document.blocks[0].switched.is_none() && document.blocks[0].arm.is_none());
    assert!(purposes[6..].iter().all(|purpose| *purpose == Measured));
    for round in document.blocks[6..].chunks(4) {
        let arms: Vec<u32> = round.iter().map(|block| block.arm.unwrap()).collect();
        assert!(arms == [0, 1, 1, 0] || arms == [1, 0, 0, 1], "{arms:?}");
    }
    assert_eq!((analysis.rounds, analysis.dropped_rounds), (3, 0));
    let counts = Counts { as_found: 4, warm_ups: 2, counted: 12, ..Counts::default() };
    assert_eq!(analysis.counts, counts);
    assert_eq!(counts.words(), "18 blocks = 4 as found + 2 before the rounds + 12 of the verdict");
    let said = bias(&analysis);
    assert!(
        said.contains("in 4 blocks before all others") && said.contains("no interval"),
        "{said}"
    );
    assert!(analysis.as_found.unwrap().value.is_some());
    assert_eq!(service.restored.get(), 1);
}

#[test]
fn a_block_out_of_bounds_ends_its_round_and_too_many_end_all() {
    // 80 % on superpages is neither arm.
    let service = Service::new(quiet(), 7);
    service.reached.set([0.0, 0.8]);
    let (document, analysis) = compare(&service, 7, false);
    assert_eq!(document.stopped, Stopped::Dropped);
    assert_eq!((analysis.rounds, analysis.dropped_rounds), (0, 3));
    assert!(service.restored.get() == 1 && service.pages.get() == Pages::Base);
    assert!(matches!(analysis.judgements[0].verdict, Verdict::NoData { .. }));
    let (counts, blocks) = (analysis.counts, document.blocks.len() as u32);
    assert_eq!(counts.wrong_pages, 3);
    assert!(counts.of_dropped_rounds <= 6 && counts.counted == 0, "{counts:?}");
    assert_eq!(4 + 2 + 3 + counts.of_dropped_rounds, blocks, "{counts:?}");
    let discarded = &analysis.arms[1].discarded;
    assert!(discarded[0].why.contains("80 % on superpages at its start"), "{discarded:?}");
    assert!(
        document
            .blocks
            .iter()
            .filter(|block| block.arm == Some(1))
            .all(|block| block.after.is_none())
    );
    assert_eq!((document.left.unwrap().state, service.restored.get()), (LeftAs::Found, 1));
    // Base pages that come back onto superpages (khugepaged).
    let service = Service::new(quiet(), 7);
    service.reached.set([0.06, 1.0]);
    assert_eq!(compare(&service, 7, false).0.stopped, Stopped::Dropped);
}

#[test]
fn a_service_that_executes_another_program_has_no_verdict() {
    let service = Service::new(Load { gain: 1.5, white: 0.1, ..quiet() }, 7);
    // After two rounds.
    service.executes_at.set(36.0);
    let (document, analysis) = compare(&service, 7, true);
    assert_eq!(document.stopped, Stopped::Executed { process: "x 1".to_string() });
    assert!(matches!(analysis.judgements[0].verdict, Verdict::NoData { .. }));
    assert!(document.blocks.len() > 6 + 4, "{}", document.blocks.len());
}

#[test]
fn rounds_before_most_were_dropped_give_no_verdict() {
    let service = Service::new(Load { gain: 1.5, white: 0.1, ..quiet() }, 7);
    service.fades.set((36.0, 0.5));
    let (document, analysis) = compare(&service, 7, true);
    assert_eq!(document.stopped, Stopped::Dropped);
    assert!(analysis.rounds > 0 && analysis.dropped_rounds > analysis.rounds, "{analysis:?}");
    assert!(matches!(analysis.judgements[0].verdict, Verdict::NoData { .. }));
}

#[test]
fn the_bounds_are_inclusive() {
    let service = Service::new(quiet(), 7);
    service.reached.set([0.05, 0.9]);
    assert_eq!(compare(&service, 7, false).0.stopped, Stopped::RuleMet);
}

#[test]
fn load_by_others_is_told_with_the_remedy_of_an_open_verdict() {
    let busy = host::Neighbours {
        cpus: 2,
        load_before: Some(3.5),
        others_cpus: Some(1.1),
        stolen: Some(0.0),
    };
    for (white, is_open) in [(0.3, true), (0.0005, false)] {
        let service = Service::new(Load { white, ..quiet() }, 7);
        let (mut document, analysis) = compare(&service, 7, false);
        assert_eq!(disturbed(&document, &analysis), None);
        document.neighbours = Some(busy);
        let said = disturbed(&document, &analysis).unwrap();
        assert!(said.contains("1.1 of 2 CPUs") && said.contains("load average 3.5"), "{said}");
        assert_eq!(said.contains("--metric-per cpu-second"), is_open, "{said}");
        document.metric.per = Some(Per::CpuSecond);
        assert!(!disturbed(&document, &analysis).unwrap().contains("--metric-per"));
    }
}

/// Warm-ups and the last round count, too; what does not fit is known after the warm-ups.
#[test]
fn the_time_limit_is_kept_or_called_too_short() {
    let arms = [arm("base", Pages::Base), arm("thp", Pages::Superpages)];
    let margin = Margin::default();
    for seed in 0..20 {
        for (limit, rounds, is_short) in [(20.0, 1..2, true), (60.0, 2..7, false)] {
            let service = Service::new(Load { white: 0.3, ..quiet() }, seed);
            let mut switch = Simulated(Rc::clone(&service));
            let mut session = Session::new(&mut switch);
            let (mut meter, mut clock) =
                (Counter(Rc::clone(&service), (0.0, 0.0)), SimulatedTime(Rc::clone(&service)));
            let settings = Settings { max_seconds: limit, ..settings(seed) };
            let mut told = Vec::new();
            let observe = &mut |event: Event| {
                if let Event::Short { one_round, two_rounds } = event {
                    told.push((one_round, two_rounds));
                }
            };
            let question = (Better::Higher, &margin);
            let ran = session.run(&mut meter, &mut clock, &arms, &settings, question, observe);
            let ran = ran.unwrap();
            let measured = |block: &&Block| block.purpose == Purpose::Measured;
            let made = ran.blocks.iter().filter(measured).count() / 4;
            assert!(rounds.contains(&made), "{limit}: {made} rounds");
            assert_eq!(ran.elapsed_seconds <= limit, !is_short, "{limit}: {}", ran.elapsed_seconds);
            assert_eq!(ran.stopped, Stopped::MaxTime);
            // As found, warm-ups, rounds of four blocks and a switch to each arm, and the last switch.
            let expected = [8.0 + 5.4 + 10.4 + 0.2, 8.0 + 5.4 + 2.0 * 10.4 + 0.2];
            assert_eq!(told.len(), usize::from(is_short));
            for (one, two) in told {
                assert!((one - expected[0]).abs() < 1e-6 && (two - expected[1]).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn a_service_that_ends_is_told_with_the_rounds_before() {
    for (at, rounds) in [(1.0, 0), (31.0, 1), (67.0, 4)] {
        let service = Service::new(Load { white: 0.3, ..quiet() }, 7);
        service.ends_at.set(at);
        let (document, analysis) = compare(&service, 7, false);
        assert_eq!(document.stopped, Stopped::Ended { process: "x 1".to_string() }, "{at}");
        assert_eq!(analysis.rounds, rounds, "{at}");
        assert_eq!(service.restored.get(), 1);
    }
}

#[test]
fn an_interruption_keeps_complete_rounds_and_restores() {
    for (at, rounds) in [(0.0, 0), (3.1, 0), (31.0, 1)] {
        let service = Service::new(Load { white: 0.3, ..quiet() }, 7);
        service.interrupted_at.set(at);
        let (document, analysis) = compare(&service, 7, false);
        assert_eq!((document.stopped, analysis.rounds), (Stopped::Interrupted, rounds), "{at}");
        assert_eq!((service.restored.get(), service.pages.get()), (1, Pages::Base));
    }
}

#[test]
fn superpages_are_kept_on_request() {
    let service = Service::new(quiet(), 7);
    let (document, _) = compare(&service, 7, true);
    assert_eq!(document.left.unwrap().state, LeftAs::Superpages);
    assert_eq!((service.restored.get(), service.pages.get()), (0, Pages::Superpages));
}

/// A meter that has no figure, or panics.
struct Broken(bool);

impl Meter for Broken {
    fn begin(&mut self) -> Result<(), MeterError> {
        Ok(())
    }

    fn end(&mut self) -> Result<f64, MeterError> {
        match self.0 {
            true => panic!("a meter that panics"),
            false => Err(MeterError("no answer".to_string())),
        }
    }
}

#[test]
fn a_metric_without_figures_drops_rounds_and_a_panic_restores() {
    let arms = [arm("base", Pages::Base), arm("thp", Pages::Superpages)];
    let margin = Margin::default();
    let run = |panics: bool| {
        let service = Service::new(quiet(), 7);
        let held = Rc::clone(&service);
        let arms = &arms;
        let margin = &margin;
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let mut switch = Simulated(Rc::clone(&held));
            let mut session = Session::new(&mut switch);
            let (mut meter, mut clock) = (Broken(panics), SimulatedTime(held));
            let settings = Settings { warm_ups: u32::from(!panics), ..settings(7) };
            let question = (Better::Higher, margin);
            session.run(&mut meter, &mut clock, arms, &settings, question, &mut |_| {}).unwrap()
        }));
        (ran, service.restored.get())
    };
    let (ran, restored) = run(false);
    let ran = ran.unwrap();
    assert_eq!((ran.stopped, restored), (Stopped::Dropped, 1));
    assert!(ran.blocks.iter().all(|block| block.unknown.as_deref() == Some("no answer")));
    let (ran, restored) = run(true);
    assert!(ran.is_err() && restored == 1);
}
