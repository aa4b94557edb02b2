//! How often a real difference is found, at what cost, and whether "about N more runs" is true.

use crate::common::{Experiment, Noise, share, simulate, upper_limit};
use superpage_experiment::stats::stopping::Rule;
use superpage_experiment::verdict::Verdict;

const EXPERIMENTS: u64 = 1_000;

#[test]
fn five_percent_is_found_in_one_percent_noise_within_thirty_runs() {
    println!(
        "{:22} {:>6} {:>8} {:>8} {:>8}",
        "noise, stop within", "ratio", "faster", "undec.", "runs"
    );
    for (cv, ratio, within) in [
        (0.01, 1.05, 0.02),
        (0.02, 1.05, 0.02),
        (0.01, 1.03, 0.02),
        (0.01, 1.03, 0.01),
        (0.01, 1.00, 0.01),
        (0.01, 1.00, 0.005),
    ] {
        let results = simulate(EXPERIMENTS, |seed| {
            let mut experiment = Experiment::new(Noise::Lognormal(cv), &[ratio], seed);
            experiment.until_stopped(&Rule { within, ..Rule::default() });
            experiment.judged()
        });
        let faster = share(&results, |(_, v)| matches!(v, Verdict::Faster(_)));
        let undecided = share(&results, |(_, v)| matches!(v, Verdict::Undecided { .. }));
        let runs: f64 = results.iter().map(|(c, _)| 2.0 * f64::from(c.blocks)).sum();
        println!(
            "CV {cv:<5} within {within:<6} {ratio:>6} {:>6.1} % {:>6.1} % {:>8.1}",
            100.0 * faster,
            100.0 * undecided,
            runs / EXPERIMENTS as f64
        );
        if ratio == 1.05 {
            assert!(faster > 0.9, "CV {cv}: {faster}");
        }
    }
}

#[test]
fn about_n_more_runs_decides_in_most_cases() {
    println!(
        "{:45} {:>6} {:>10} {:>10} {:>10}",
        "undecided, then N more", "ratio", "undecided", "mean N", "decided"
    );
    // A program of a second, after half a minute.
    for (noise, ratio) in [
        (Noise::Lognormal(0.05), 1.0),
        (Noise::Lognormal(0.08), 1.0),
        (Noise::Lognormal(0.025), 1.03),
        (Noise::Lognormal(0.05), 1.05),
        (Noise::Wander { phi: 0.75, deviation: 0.06 }, 1.0),
        (Noise::Wander { phi: 0.75, deviation: 0.03 }, 1.02),
        (Noise::Bimodal, 1.1),
        (Noise::Spikes, 1.05),
    ] {
        let results = simulate(EXPERIMENTS / 2, |seed| {
            let mut experiment = Experiment::new(noise, &[ratio], seed);
            experiment.run(&Rule::default(), 30.0, None);
            let Verdict::Undecided { more_runs, .. } = experiment.judged().1 else { return None };
            experiment.blocks(more_runs.min(400) / 2);
            Some((more_runs, experiment.judged().1))
        });
        let undecided: Vec<(u32, Verdict)> = results.into_iter().flatten().collect();
        assert!(!undecided.is_empty(), "{noise:?}, {ratio}: nothing left to decide");
        let mean: f64 = undecided.iter().map(|(n, _)| f64::from(*n)).sum();
        let decided = share(&undecided, |(_, v)| !matches!(v, Verdict::Undecided { .. }));
        assert!(decided > 0.5, "{noise:?}, {ratio}: {decided}");
        println!(
            "{:45} {ratio:>6} {:>10} {:>10.1} {:>8.1} %",
            format!("{noise:?}"),
            undecided.len(),
            mean / undecided.len() as f64,
            100.0 * decided
        );
    }
}

/// Taking "N more" until decided is a stopping rule that *does* look at the effect, so it spends what
/// the interval has in reserve. Measured: up to about 1 % instead of 0.2 % false verdicts; at the level,
/// not provably under it.
#[test]
fn following_the_advice_until_decided_spends_the_reserve() {
    println!(
        "{:45} {:>9} {:>8} {:>10}",
        "A/A, N more until decided", "false +", "limit", "undecided"
    );
    for noise in [
        Noise::Lognormal(0.01),
        Noise::Lognormal(0.02),
        Noise::Wander { phi: 0.75, deviation: 0.03 },
        Noise::EveryFourth,
    ] {
        let results = simulate(2 * EXPERIMENTS, |seed| {
            let mut experiment = Experiment::new(noise, &[1.0], seed);
            experiment.until_stopped(&Rule::default());
            let mut word = experiment.judged().1;
            for _ in 0..6 {
                let Verdict::Undecided { more_runs, .. } = word else { break };
                experiment.blocks(more_runs.min(100) / 2);
                word = experiment.judged().1;
            }
            word
        });
        let wrong = share(&results, |v| matches!(v, Verdict::Faster(_) | Verdict::Slower(_)));
        let limit = upper_limit((wrong * 2.0 * EXPERIMENTS as f64).round() as u64, 2 * EXPERIMENTS);
        let undecided = share(&results, |v| matches!(v, Verdict::Undecided { .. }));
        println!(
            "{:45} {:>7.2} % {:>6.2} % {:>8.1} %",
            format!("{noise:?}"),
            100.0 * wrong,
            100.0 * limit,
            100.0 * undecided
        );
        assert!(wrong < 0.015, "{noise:?}: {wrong}");
    }
}
