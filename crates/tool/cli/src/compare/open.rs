//! What decides the open verdicts: the flags to change, or that more runs are not worth their time.

use experiment::stats::stopping::Rule;
use operations::jobs::arms::MOST_RUNS;
use report::format as words;

/// Most further runs of each arm that are worth their time if they take over [`MAX_SECONDS`].
const MAX_RUNS: u32 = 100;
/// Most seconds that more than [`MAX_RUNS`] runs of each arm are worth.
const MAX_SECONDS: f64 = 1800.0;

/// An open verdict.
pub struct Open {
    /// Arm and quantity.
    pub of: String,
    /// Further runs of each arm that would decide the verdict.
    pub more_runs: u32,
    /// Seconds that these runs of all arms take.
    pub seconds: f64,
}

/// What ended the runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The number of runs, the time, or the user.
    ByLimit,
    /// A rule that looks at the measured values. Only `--min-runs` makes further runs.
    ByValues,
}

/// The runs that were made.
pub struct Made {
    /// Runs of each arm.
    pub runs: u32,
    /// Seconds that count towards the time limit.
    pub seconds: f64,
    /// The rule that they had.
    pub rule: Rule,
    /// Their time limit in seconds.
    pub max_seconds: Option<f64>,
    /// What ended them.
    pub ended: Ended,
}

impl Open {
    fn is_hopeless(&self, made: &Made) -> bool {
        let is_long = self.more_runs > MAX_RUNS && self.seconds > MAX_SECONDS;
        is_long || made.runs.saturating_add(self.more_runs) > MOST_RUNS
    }
}

/// Formats a note on the open verdicts that more runs decide, with the flags that must change, and one on the others.
pub fn notes(open: Vec<Open>, made: &Made) -> Vec<String> {
    let (hopeless, open): (Vec<Open>, Vec<Open>) =
        open.into_iter().partition(|one| one.is_hopeless(made));
    let most = open.iter().max_by_key(|one| one.more_runs);
    let whose = if hopeless.is_empty() { "open verdicts" } else { "the other open verdicts" };
    let more = most.map(|most| {
        let flags = flags(most, made);
        let flags = if flags.is_empty() { flags } else { format!(": {flags}") };
        format!("to decide {whose}, about {} more is needed{flags}", words::seconds(most.seconds))
    });
    let least = hopeless.iter().min_by_key(|one| one.more_runs);
    let none = least.map(|least| {
        let of: Vec<&str> = hopeless.iter().map(|one| one.of.as_str()).collect();
        format!(
            "not worth more runs: {}: the difference is too small, or this machine too noisy ({} or more of each arm, \
             {})",
            of.join(", "),
            least.more_runs,
            words::seconds(least.seconds)
        )
    });
    more.into_iter().chain(none).collect()
}

/// Formats the flags that must change for the verdict's runs to be made.
fn flags(open: &Open, made: &Made) -> String {
    let runs = made.runs.saturating_add(open.more_runs).next_multiple_of(2);
    // A reserve: later runs may be slower.
    let seconds = (made.seconds + open.seconds) * 1.2;
    let least = (made.ended == Ended::ByValues).then(|| format!("--min-runs {runs}"));
    let most = (runs > made.rule.max_runs).then(|| format!("--max-runs {runs}"));
    let time = made.max_seconds.is_some_and(|most| seconds > most);
    let time = time.then(|| format!("--max-time {:.0}m", (seconds / 60.0).ceil()));
    [least, most, time].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(of: &str, more_runs: u32, seconds: f64) -> Open {
        Open { of: of.into(), more_runs, seconds }
    }

    /// Ten runs of each arm in 170 s, of at most 3 minutes.
    fn made() -> Made {
        let (rule, ended) = (Rule::default(), Ended::ByLimit);
        Made { runs: 10, seconds: 170.0, rule, max_seconds: Some(180.0), ended }
    }

    #[test]
    fn the_flags_decide_every_open_verdict_and_only_what_must_change_is_named() {
        let flags_of = |more: u32, made: &Made| {
            let few = open("thp wall", 2, 34.0);
            let most = open("thp metric", more, 17.0 * f64::from(more));
            let told = notes(vec![most, few], made);
            assert_eq!(told.len(), 1, "{told:?}");
            told[0].split_once("needed").unwrap().1.to_string()
        };
        assert_eq!(flags_of(22, &made()), ": --max-time 11m");
        assert_eq!(flags_of(96, &made()), ": --max-runs 106 --max-time 37m");
        let ten =
            Made { rule: Rule { max_runs: 10, ..Rule::default() }, max_seconds: None, ..made() };
        assert_eq!(flags_of(50, &ten), ": --max-runs 60");
        let early = Made { ended: Ended::ByValues, max_seconds: Some(3600.0), ..made() };
        assert_eq!(flags_of(22, &early), ": --min-runs 32");
        assert_eq!(flags_of(22, &Made { max_seconds: None, ..made() }), "");
    }

    #[test]
    fn runs_that_are_not_worth_their_time_are_not_proposed() {
        let told = notes(vec![open("thp wall", 1188, 5160.0), open("b wall", 22, 96.0)], &made());
        assert!(told[0].contains("the other open verdicts") && told[0].ends_with("--max-time 6m"));
        assert!(told[1].contains("thp wall") && !told[1].contains("b wall"), "{told:?}");
        assert!(!told[1].contains("--max"), "{told:?}");
        // Many short runs, and few long ones, are worth it.
        for worth in [open("a", 1188, 5.0), open("a", 4, 5160.0)] {
            assert!(notes(vec![worth], &made())[0].contains("--max"));
        }
        assert_eq!(notes(vec![open("a", 9_998, 5.0)], &made()).len(), 1);
        assert!(!notes(vec![open("a", 9_998, 5.0)], &made())[0].contains("--max"));
        assert_eq!(notes(Vec::new(), &made()), Vec::<String>::new());
    }
}
