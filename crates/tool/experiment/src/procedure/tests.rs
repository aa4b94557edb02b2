use super::*;

/// An executor that takes no time and returns scripted results.
struct Mock<F: FnMut(Run) -> Result<Sample, RunError>>(F);

impl<F: FnMut(Run) -> Result<Sample, RunError>> Executor for Mock<F> {
    fn execute(&mut self, run: Run) -> Result<Sample, RunError> {
        self.0(run)
    }
}

pub(crate) fn sample(run: Run, wall_seconds: f64) -> Sample {
    Sample {
        arm: run.at.arm,
        purpose: run.purpose,
        block: run.at.block,
        slot: run.at.slot,
        wall_seconds,
        exit_code: Some(0),
        environment_padding: run.environment_padding,
        ..Sample::default()
    }
}

fn run(
    executor: &mut dyn Executor,
    arms: u32,
    settings: &Settings,
    observe: &mut dyn FnMut(Event),
) -> Result<Ran, RunError> {
    super::run(executor, arms, settings, &Question::default(), observe)
}

fn settings(max_runs: u32) -> Settings {
    let rule = Rule { max_runs, ..Rule::default() };
    Settings { seed: 7, warm_ups: 1, rule, max_seconds: None, patience_seconds: None }
}

#[test]
fn quiet_arms_stop_after_the_least_number_of_runs() {
    let mut executor = Mock(|run: Run| Ok(sample(run, 1.000_000_001)));
    let ran = run(&mut executor, 3, &settings(30), &mut |_| {}).unwrap();
    assert_eq!(ran.stopped, Stopped::RuleMet);
    let measured = values(&ran.samples, |sample| Some(sample.wall_seconds));
    assert_eq!((ran.samples.len(), measured.len()), (3 + 18, 18));
}

#[test]
fn noisy_arms_go_on_to_the_limit() {
    let mut turn = 0;
    let mut executor = Mock(|run: Run| {
        turn += 1;
        Ok(sample(run, 1.0 + f64::from(turn % 7)))
    });
    let ran = run(&mut executor, 2, &settings(10), &mut |_| {}).unwrap();
    assert_eq!(ran.stopped, Stopped::MaxRuns);
    assert_eq!(ran.samples.len(), 2 + 20);
}

#[test]
fn a_noisy_metric_keeps_a_quiet_clock_going() {
    let mut turn = 0;
    let mut executor = Mock(|run: Run| {
        turn += 1;
        Ok(Sample { metric: Some(1.0 + f64::from(turn % 7)), ..sample(run, 1.0) })
    });
    let ran = run(&mut executor, 2, &settings(10), &mut |_| {}).unwrap();
    assert_eq!(ran.stopped, Stopped::MaxRuns);
}

#[test]
fn time_ends_it_between_blocks() {
    let mut executor = Mock(|run: Run| {
        std::thread::sleep(Duration::from_millis(2));
        Ok(sample(run, 1.0 + f64::from(run.environment_padding)))
    });
    let limited = Settings { max_seconds: Some(0.03), ..settings(1000) };
    let ran = run(&mut executor, 2, &limited, &mut |_| {}).unwrap();
    assert_eq!(ran.stopped, Stopped::MaxTime);
    assert_eq!((ran.samples.len() - 2) % 4, 0);
}

/// A limit that was given is the time until the answer: warm-ups count, and no block is begun that would not fit. A
/// limit that is too short for an answer is reported after the warm-ups.
#[test]
fn a_given_time_is_kept_or_called_too_short_at_the_start() {
    // Each run takes ten seconds: a warm-up of both arms 20, a block 40.
    let ran = |max_seconds: f64, patience_seconds: Option<f64>| {
        let clock = std::cell::Cell::new(0.0);
        let mut executor = Mock(|run: Run| {
            clock.set(clock.get() + 10.0);
            Ok(sample(run, 10.0 + f64::from(run.environment_padding)))
        });
        let now = || Duration::from_secs_f64(clock.get());
        let rule = Rule { decide_after: None, ..settings(1000).rule };
        let limits =
            Settings { rule, max_seconds: Some(max_seconds), patience_seconds, ..settings(1000) };
        let mut short = None;
        let mut observe = |event: Event| {
            if let Event::Short { one_block, needed, limit } = event {
                short = Some([one_block, needed, limit].map(|time| time.as_secs()));
            }
        };
        let ran =
            run_by(&now, &mut executor, 2, &limits, &Question::default(), &mut observe).unwrap();
        assert_eq!(ran.stopped, Stopped::MaxTime);
        (ran.elapsed.as_secs(), short)
    };
    assert_eq!(ran(140.0, None), (140, None));
    assert_eq!(ran(179.0, None), (140, None), "a fourth block would not fit");
    assert_eq!(ran(99.0, None), (60, Some([60, 100, 99])));
    assert_eq!(ran(5.0, None), (60, Some([60, 100, 5])), "one block is always made");
    assert_eq!(ran(5.0, Some(0.0)), (100, Some([60, 100, 5])), "with a second block");
    assert_eq!(ran(140.0, Some(0.0)), (140, None), "with warm-ups");
    assert_eq!(ran(100.0, Some(110.0)).1, None, "an extended limit is without warm-ups");
}

#[test]
fn a_decided_verdict_ends_long_runs_and_not_short_ones() {
    // Arms that differ by half and vary by a fifth: a few runs cannot give the ratio within 2 %.
    let stopped = |seconds: f64| {
        let clock = std::cell::Cell::new(0.0);
        let mut executor = Mock(|run: Run| {
            let noise = 1.0 + 0.02 * f64::from((run.seed % 11) as u32);
            let wall = seconds * noise / (1.0 + f64::from(run.at.arm));
            clock.set(clock.get() + wall);
            Ok(sample(run, wall))
        });
        let now = || Duration::from_secs_f64(clock.get());
        let question = Question::default();
        run_by(&now, &mut executor, 2, &settings(20), &question, &mut |_| {}).unwrap()
    };
    let (long, short) = (stopped(30.0), stopped(0.1));
    assert_eq!((long.stopped, long.samples.len()), (Stopped::Decided, 2 + 12));
    assert_eq!((short.stopped, short.looks.made), (Stopped::MaxRuns, 0));
}

#[test]
fn figures_that_differ_too_much_end_it_after_the_least_number_of_runs() {
    // Each run takes one second; the second arm's metric varies by `noise`.
    let ran = |noise: f64, max_deviation: Option<f64>, max_seconds: f64| {
        let clock = std::cell::Cell::new(0.0);
        let mut executor = Mock(|run: Run| {
            clock.set(clock.get() + 1.0);
            let varies = noise * f64::from(run.at.arm * (run.at.block % 2));
            Ok(Sample { metric: Some(1000.0 * (1.0 + varies)), ..sample(run, 1.000_000_001) })
        });
        let now = || Duration::from_secs_f64(clock.get());
        let rule = Rule { max_runs: 20, max_deviation, ..Rule::default() };
        let settings = Settings { rule, max_seconds: Some(max_seconds), ..settings(20) };
        let question = Question::default();
        let ran = run_by(&now, &mut executor, 2, &settings, &question, &mut |_| {}).unwrap();
        (ran.stopped, ran.samples.len())
    };
    let least = 2 + 12;
    assert_eq!(ran(0.2, Some(0.05), 100.0), (Stopped::Deviation, least));
    assert_eq!(ran(0.2, Some(0.05), 26.0), (Stopped::Deviation, least), "as much is left");
    assert_ne!(ran(0.2, Some(0.05), 25.0).0, Stopped::Deviation, "less is left");
    assert_ne!(ran(0.2, None, 100.0).0, Stopped::Deviation);
    assert_ne!(ran(0.2, Some(0.2), 100.0).0, Stopped::Deviation);
    assert_eq!(ran(0.0, Some(0.05), 100.0), (Stopped::RuleMet, least));
}

#[test]
fn the_same_seed_makes_the_same_runs() {
    let runs = |seed| {
        let mut seen = Vec::new();
        let mut executor = Mock(|run: Run| {
            seen.push((run.at, run.environment_padding, run.seed));
            Ok(sample(run, 1.0))
        });
        run(&mut executor, 2, &Settings { seed, ..settings(10) }, &mut |_| {}).unwrap();
        seen
    };
    assert_eq!(runs(1), runs(1));
    assert_ne!(runs(1), runs(2));
}

#[test]
fn interrupted_runs_are_kept_once_they_are_a_block_and_an_error_ends_them() {
    let ended = |after: usize, error: fn() -> RunError| {
        let mut made = 0;
        let mut executor = Mock(|run: Run| {
            made += 1;
            if made > after { Err(error()) } else { Ok(sample(run, f64::from(made as u32))) }
        });
        run(&mut executor, 2, &settings(100), &mut |_| {})
    };
    // There are two warm-ups, and four runs per block.
    assert!(matches!(ended(5, || RunError::Interrupted), Err(RunError::Interrupted)));
    for after in [6, 15] {
        let ran = ended(after, || RunError::Interrupted).unwrap();
        assert_eq!((ran.stopped, ran.samples.len()), (Stopped::Interrupted, after));
    }
    let stragglers = || RunError::Stragglers { arm: "x".to_string(), pids: String::new() };
    assert!(matches!(ended(15, stragglers), Err(RunError::Stragglers { .. })));
}
