use super::*;
use crate::stats::Confidence;
use crate::watch::Observed;

/// Takes no time and says what it is told to.
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
        user_seconds: 0.0,
        system_seconds: 0.0,
        minor_faults: 0,
        major_faults: 0,
        max_rss_bytes: 0,
        memory: Observed::default(),
        thp_fault_fallbacks: None,
        compaction_stalls: None,
        reclaim_stalls: None,
        free_superpage_bytes_before: None,
        free_superpage_bytes_after: None,
        metric: None,
        exit_code: Some(0),
        signal: None,
        warmed_bytes: 0,
        environment_padding: run.environment_padding,
        library_answered: None,
        library_asked_bytes: None,
        stragglers: 0,
    }
}

fn settings(max_runs: u32) -> Settings {
    let rule = Rule { min_runs: 5, max_runs, confidence: Confidence::P99, within: 0.02 };
    Settings { seed: 7, warm_ups: 1, rule, max_seconds: None }
}

#[test]
fn quiet_arms_stop_after_the_least_number_of_runs() {
    let mut executor = Mock(|run: Run| Ok(sample(run, 1.0)));
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

#[test]
fn the_same_seed_makes_the_same_runs_and_an_error_ends_them() {
    let runs = |seed| {
        let mut seen = Vec::new();
        let mut executor = Mock(|run: Run| {
            seen.push((run.at, run.environment_padding, run.seed));
            if seen.len() == 20 { Err(RunError::Interrupted) } else { Ok(sample(run, 1.0)) }
        });
        let settings = Settings { seed, ..settings(100) };
        let settings = Settings { rule: Rule { min_runs: 50, ..settings.rule }, ..settings };
        let error = run(&mut executor, 2, &settings, &mut |_| {}).unwrap_err();
        assert!(matches!(error, RunError::Interrupted));
        seen
    };
    assert_eq!(runs(1), runs(1));
    assert_ne!(runs(1), runs(2));
}
