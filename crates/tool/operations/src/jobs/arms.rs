//! Parses arms and other flag values of `compare`, and plans the arms.

use std::collections::BTreeSet;
use std::time::Duration;

use experiment::document::{Arm, LeftOut};
use experiment::stats::stopping::Rule;
use experiment::stats::{Better, Confidence};
use host::{Hypervisor, Snapshot};
use launch::{Facts, Pages, Recipe, Word};

use super::preload;
use crate::Failure;
use crate::{design, facts};

/// Parses a recipe.
pub fn parse(text: &str) -> Result<Recipe, String> {
    let mut recipe: Recipe =
        text.parse().map_err(|error: launch::ParseRecipeError| error.to_string())?;
    if recipe.design.is_some() && recipe.pages != Pages::System {
        return Err(format!("arm `{}`: design= and pages= cannot be used together", recipe.name));
    }
    design::recipe::follow(&mut recipe).map_err(|why| why.to_string())?;
    design::recipe::name_approximate(&mut recipe);
    Ok(recipe)
}

/// Direction in which a metric is better, as a flag.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum BetterArg {
    /// A rate.
    Higher,
    /// A time or an amount.
    Lower,
}

impl From<BetterArg> for Better {
    fn from(better: BetterArg) -> Self {
        match better {
            BetterArg::Higher => Self::Higher,
            BetterArg::Lower => Self::Lower,
        }
    }
}

/// When to warm memory before a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum WarmMemory {
    /// In a virtual machine, or if it is unknown whether this is one.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl WarmMemory {
    /// Returns whether memory is warmed on this machine.
    pub fn applies(self, machine: &Snapshot) -> bool {
        match self {
            Self::Auto => {
                let cpu = machine.cpu.as_ref();
                !cpu.is_some_and(|cpu| cpu.hypervisor == Hypervisor::Absent)
            }
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// Parses a share from 0 to 1: `2%` or `0.02`.
pub fn share(text: &str) -> Result<f64, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| "expected a share between 0 and 1, e.g. 2% or 0.02".to_string())
}

/// Parses a confidence level, `99%` or `0.99`.
pub fn confidence(text: &str) -> Result<Confidence, String> {
    Confidence::try_from(share(text)?).map_err(str::to_string)
}

/// Parses a time above 0 into seconds: `90`, `90s`, `300ms`, `5m`, `1h`.
pub fn seconds(text: &str) -> Result<f64, String> {
    parse_time(text)
        .filter(|seconds| *seconds > 0.0)
        .ok_or_else(|| "expected a time, e.g. 90, 90s, 300ms, 5m, 1h".to_string())
}

/// Parses a time of 0 or more, with its unit: a number alone may be meant in milliseconds.
pub fn time(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    parse_time(text)
        .filter(|_| has_unit)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("invalid time `{text}`: expected e.g. 50ms, 2s, 1m or 1h"))
}

/// Parses a time below 116 days into seconds.
fn parse_time(text: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("", 1.0)];
    let parsed = units.iter().find_map(|(unit, scale)| {
        let number: f64 = text.trim().strip_suffix(unit)?.parse().ok()?;
        Some(number * scale)
    });
    parsed.filter(|seconds| (0.0..1e7).contains(seconds))
}

/// Largest value of `--min-runs` and `--max-runs`.
pub const MOST_RUNS: u32 = 10_000;

/// Returns the minimum and maximum number of runs; a default yields to a given value.
pub fn runs(least: Option<u32>, most: Option<u32>) -> Result<(u32, u32), Failure> {
    let rule = Rule::default();
    match (least, most) {
        (Some(least), Some(most)) if least > most => {
            Err(Failure::usage(format!("--min-runs {least} is more than --max-runs {most}")))
        }
        (least, most) => {
            let most = most.unwrap_or(rule.max_runs.max(least.unwrap_or(0)));
            Ok((least.unwrap_or(rule.min_runs.min(most)), most))
        }
    }
}

/// The requested arms, before planning.
pub struct RequestedArms {
    arms: Vec<(Recipe, bool)>,
    /// Whether the user named the arms: a named arm that cannot run is an error.
    named: bool,
}

impl RequestedArms {
    /// Creates default arms. Default arms that cannot run here are left out.
    pub fn by_default(recipes: &[Recipe]) -> Self {
        Self { named: false, ..Self::new(recipes, false) }
    }

    /// Creates the given arms, or base, thp and hugetlb. Names are made unique. With `aa`, a second copy of the
    /// reference follows it.
    pub fn new(given: &[Recipe], aa: bool) -> Self {
        let default = || [Pages::Base, Pages::Thp, Pages::Hugetlb(None)].map(Recipe::new).to_vec();
        let recipes = if given.is_empty() { default() } else { given.to_vec() };
        let mut arms: Vec<(Recipe, bool)> = recipes.into_iter().map(|one| (one, false)).collect();
        if aa {
            let again = Recipe { name: format!("{} again", arms[0].0.name), ..arms[0].0.clone() };
            arms.insert(1, (again, true));
        }
        let mut taken = BTreeSet::new();
        for (recipe, _) in &mut arms {
            let name = recipe.name.clone();
            let numbered = (2..).map(|n| format!("{name} #{n}"));
            let free = std::iter::once(name.clone()).chain(numbered);
            recipe.name =
                free.into_iter().find(|name| taken.insert(name.clone())).expect("endless");
        }
        Self { arms, named: !given.is_empty() }
    }

    /// Returns the recipes of the arms.
    pub fn recipes(&self) -> Vec<&Recipe> {
        self.arms.iter().map(|(recipe, _)| recipe).collect()
    }

    /// Plans every arm. A default arm that cannot run on this machine is left out, with the reason. The reference and
    /// named arms must run. `not_raised` says why no pool was raised.
    pub fn plan(
        self,
        command: &[Word],
        facts: &Facts,
        not_raised: Option<Failure>,
    ) -> Result<(Vec<Arm>, Vec<LeftOut>), Failure> {
        let mut planned = Vec::new();
        let mut left_out = Vec::new();
        let mut not_raised = not_raised;
        let search = facts::search_path();
        for (index, (recipe, is_noise_floor)) in self.arms.into_iter().enumerate() {
            let checked = preload::check(&recipe, command, &search)
                .and_then(|()| design::recipe::check_in_force(&recipe));
            let resolved = checked.and_then(|()| {
                let mut plan =
                    launch::resolve(&recipe, command, &search, facts).map_err(|error| {
                        // If the pool is empty, report why it was not raised.
                        let pool = matches!(error, launch::LaunchError::PoolEmpty { .. });
                        let why = if pool { not_raised.take() } else { None };
                        why.unwrap_or_else(|| Failure::from(error))
                    })?;
                // If libsuperpage.so is missing, the arm would measure other pages than it names: fail.
                let rules = design::recipe::follow(&mut recipe.clone())?;
                plan.notes.extend(rules.iter().map(ToString::to_string));
                let lacking = plan.without_library().map(Failure::cannot);
                lacking.map_or(Ok(plan), Err)
            });
            match resolved {
                Ok(plan) if index > 0 && !self.named && plan.misses_allocator().is_some() => {
                    let why = plan.misses_allocator().map(ToString::to_string).unwrap_or_default();
                    let other = "--arm 'pool: pages=hugetlb memory=heap,mmap' reaches it";
                    left_out.push(LeftOut { name: recipe.name, why: format!("{why}; {other}") });
                }
                Ok(plan) => {
                    planned.push(Arm { name: recipe.name.clone(), plan, recipe, is_noise_floor })
                }
                Err(failure) => {
                    let is_library = !recipe.preload.is_empty();
                    if self.named || index == 0 || !(failure.is_cannot() || is_library) {
                        return Err(failure.on(&format!("arm {}", recipe.name)));
                    }
                    left_out.push(LeftOut { name: recipe.name, why: failure.to_string() });
                }
            }
        }
        Ok((planned, left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[&str], aa: bool) -> Vec<String> {
        let given: Vec<Recipe> = given.iter().map(|text| parse(text).unwrap()).collect();
        RequestedArms::new(&given, aa).recipes().iter().map(|recipe| recipe.name.clone()).collect()
    }

    #[test]
    fn names_are_unique_and_the_reference_comes_first() {
        assert_eq!(names(&[], false), ["base", "thp", "hugetlb"]);
        assert_eq!(names(&["base", "base", "base"], false), ["base", "base #2", "base #3"]);
        assert_eq!(names(&["x: A=1", "thp"], true), ["x", "x again", "thp"]);
    }

    /// glibc's malloc alone asks for pool pages in the arm hugetlb: a program with jemalloc is not run on it for nothing,
    /// unless the arm was named.
    #[test]
    fn the_default_arm_that_misses_the_programs_allocator_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let program = testkit::linked_with_jemalloc(dir.path());
        let pool = launch::Pool {
            size: units::PageSize::new(2 << 20).unwrap(),
            total: 10,
            free: 10,
            reserved: 0,
            overcommit_left: 0,
            is_gigantic: false,
        };
        let facts = Facts {
            thp_mode: Some("madvise".to_string()),
            pools: vec![pool],
            runtime: Some("/lib/libsuperpage.so".into()),
            ..Facts::default()
        };
        let planned = |given: &[Recipe]| {
            let asked = RequestedArms::new(given, false);
            let (arms, left_out) = asked.plan(&[program.clone().into()], &facts, None).unwrap();
            let arms: Vec<String> = arms.into_iter().map(|arm| arm.name).collect();
            (arms, left_out.into_iter().map(|arm| arm.name).collect::<Vec<_>>())
        };
        let [base, thp, hugetlb] = ["base", "thp", "hugetlb"].map(str::to_string);
        assert_eq!(planned(&[]), (vec![base.clone(), thp], vec![hugetlb.clone()]));
        let named = ["base", "hugetlb"].map(|name| parse(name).unwrap());
        assert_eq!(planned(&named), (vec![base, hugetlb], vec![]));
    }

    #[test]
    fn runs_that_contradict_each_other_are_refused() {
        for (least, most, runs) in [
            (None, None, (5, 100)),
            (Some(10), None, (10, 100)),
            (Some(200), None, (200, 200)),
            (None, Some(2), (2, 2)),
            (Some(6), Some(6), (6, 6)),
        ] {
            assert_eq!(super::runs(least, most).unwrap(), runs);
        }
        let refused = super::runs(Some(10), Some(5)).unwrap_err().to_string();
        assert_eq!(refused, "--min-runs 10 is more than --max-runs 5");
    }

    #[test]
    fn shares_and_times_are_read_strictly() {
        assert_eq!(share("2%"), Ok(0.02));
        assert_eq!(share("0.5"), Ok(0.5));
        for bad in ["", "%", "2", "0", "-1%", "100%", "NaN", "x"] {
            assert!(share(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("90"), Ok(90.0));
        assert_eq!(seconds("1.5m"), Ok(90.0));
        assert_eq!(seconds("300ms"), Ok(0.3));
        assert_eq!(time("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(time("0s"), Ok(Duration::ZERO));
        for bad in ["", "5", "ms", "s", "-1s", "NaNs", "1e300s", "5x"] {
            assert!(time(bad).is_err(), "{bad}");
        }
        for bad in ["", "s", "0", "-1s", "5x", "inf", "NaN"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
