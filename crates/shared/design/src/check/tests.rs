//! For each rule, a file that violates the rule; the error names the expected key.

use policy::table::{Keys, Limit, Slot};

use super::rules;
use crate::write::path;
use crate::{Design, DesignError, Problem, schema};

/// A minimal valid design for each form, as a base for the cases.
const FAULT: &str = "name = \"x\"\n";
const RESERVE: &str = "name = \"x\"\nallocation.form = \"reservation\"\nmapping.when = \"prepared\"\n\
                       deallocation.when = \"when-empty\"\n";
const SCANNED: &str = "name = \"x\"\nallocation.trigger = \"scan\"\nmapping.when = \"never\"\n";
const NEVER: &str = "name = \"x\"\nallocation.trigger = \"never\"\nmapping.when = \"never\"\n\
                     preparation.grain = \"page\"\n";
const POOL: &str = "name = \"x\"\nallocation.trigger = \"mmap\"\nallocation.form = \"pool\"\n\
                    deallocation.when = \"to-pool\"\n";

/// Each case: a valid base design, the line added to it, and the first key of the violated rule.
#[rustfmt::skip]
const CASES: &[(&str, &str, &str)] = &[
    ("", "name = \"Linux\"", "name"),
    (FAULT, "summary = \"a\\nb\"", "summary"),
    (FAULT, "allocation.sizes = []", "allocation.sizes"),
    (FAULT, "allocation.sizes = [\"2M\", \"64K\"]", "allocation.sizes"),
    (FAULT, "allocation.sizes = [\"2M\", \"2M\"]", "allocation.sizes"),
    (FAULT, "allocation.sizes = [\"3M\"]", "allocation.sizes"),
    (FAULT, "allocation.sizes = [\"4K\"]", "allocation.sizes"),
    (FAULT, "preparation.bulk = \"2K\"", "preparation.bulk"),
    (FAULT, "preparation.bulk = \"4M\"", "preparation.bulk"),
    (FAULT, "preparation.prezero.order = 11", "preparation.prezero.order"),
    (FAULT, "preparation.prezero.blocks = 0", "preparation.prezero.blocks"),
    (FAULT, "preparation.prezero.every = \"0s\"", "preparation.prezero.every"),
    (FAULT, "preparation.prezero.start-permille = 0", "preparation.prezero.start-permille"),
    (FAULT, "preparation.prezero.stop-permille = 999", "preparation.prezero.stop-permille"),
    (FAULT, "preparation.prefault = {kind = \"resident\", pages = 0}", "preparation.prefault.pages"),
    (FAULT, "preparation.prefault = {kind = \"doubling\", order = 10}", "preparation.prefault.order"),
    (FAULT, "mapping.scan.every = \"0s\"", "mapping.scan.every"),
    (FAULT, "mapping.scan.regions = 0", "mapping.scan.regions"),
    (FAULT, "mapping.scan.after-failure = \"25h\"", "mapping.scan.after-failure"),
    (FAULT, "mapping.scan.least-present = 513", "mapping.scan.least-present"),
    (FAULT, "mapping.scan.least-present = 0", "mapping.scan.least-present"),
    (FAULT, "mapping.scan.most-swapped = 513", "mapping.scan.most-swapped"),
    (FAULT, "mapping.scan.most-swapped = 511", "mapping.scan.most-swapped"),
    (FAULT, "mapping.scan = {most-swapped = 412, least-present = 100}", "mapping.scan.most-swapped"),
    (FAULT, "mapping.scan.most-swapped = 64\nmemory.reclaim = \"none\"", "mapping.scan.most-swapped"),
    (FAULT, "mapping.scan.cpu-percent = 101", "mapping.scan.cpu-percent"),
    (FAULT, "mapping.scan.sampling.every = \"0s\"", "mapping.scan.sampling.every"),
    (FAULT, "mapping.scan.sampling.window = \"0s\"", "mapping.scan.sampling.window"),
    (FAULT, "mapping.scan.sampling.newest-percent = 0", "mapping.scan.sampling.newest-percent"),
    (FAULT, "deallocation.bloat.every = \"0s\"", "deallocation.bloat.every"),
    (FAULT, "deallocation.bloat.below-percent = 0", "deallocation.bloat.below-percent"),
    (FAULT, "deallocation.bloat.until-percent = 14", "deallocation.bloat.until-percent"),
    (FAULT, "deallocation.bloat.more-zero-than = 512", "deallocation.bloat.more-zero-than"),
    (FAULT, "memory.proactiveness = 101", "memory.proactiveness"),
    (FAULT, "memory.defer-shift = 17", "memory.defer-shift"),
    (FAULT, "memory.contended-permille = 1001", "memory.contended-permille"),
    (FAULT, "memory.contended-pages = 2000000", "memory.contended-pages"),
    (FAULT, "memory.pool-pages = 9223372036854775807", "memory.pool-pages"),
    (FAULT, "memory.periodic-compaction.blocks = 0", "memory.periodic-compaction.blocks"),
    (FAULT, "memory.periodic-compaction.every = \"0s\"", "memory.periodic-compaction.every"),
    (RESERVE, "preparation.fill-at = 600", "preparation.fill-at"),
    (RESERVE, "preparation.fill-at = 0", "preparation.fill-at"),
    (RESERVE, "preparation.grain = \"superpage\"\npreparation.fill-at = 9", "preparation.fill-at"),
    (RESERVE, "preparation.background.at = 513", "preparation.background.at"),
    (RESERVE, "preparation.background.every = \"0s\"", "preparation.background.every"),
    (RESERVE, "preparation.background.budget-reservations = 0", "preparation.background.budget-reservations"),
    (RESERVE, "preparation.background = {}", "preparation.background"),
    (RESERVE, "preparation.fill-at = 64\npreparation.background.at = 64", "preparation.background.at"),
    (RESERVE, "allocation.trigger = \"mmap\"", "allocation.trigger"),
    (RESERVE, "allocation.trigger = \"scan\"", "allocation.form"),
    (RESERVE, "allocation.zero-page = true", "allocation.zero-page"),
    (RESERVE, "allocation.shortage = \"refuse\"", "allocation.shortage"),
    (SCANNED, "memory.ideal = true", "memory.ideal"),
    (FAULT, "allocation.form = \"pool\"", "allocation.form"),
    (FAULT, "allocation.form = \"reservation\"", "mapping.when"),
    (FAULT, "allocation.form = \"reservation\"", "deallocation.when"),
    (FAULT, "allocation.trigger = \"never\"", "mapping.when"),
    (FAULT, "allocation.trigger = \"never\"", "preparation.grain"),
    (FAULT, "allocation.trigger = \"scan\"", "mapping.when"),
    (FAULT, "allocation.growth = \"past-end\"", "allocation.growth"),
    (FAULT, "allocation.shortage = \"preempt\"", "allocation.shortage"),
    (FAULT, "allocation.break-reservations = true", "allocation.break-reservations"),
    (FAULT, "preparation.grain = \"page\"", "preparation.grain"),
    (FAULT, "preparation.fill-at = 64", "preparation.fill-at"),
    (FAULT, "preparation.background.at = 64", "preparation.background"),
    (FAULT, "mapping.when = \"prepared\"", "mapping.when"),
    (FAULT, "mapping.clean-pages = \"relaxed\"", "mapping.clean-pages"),
    (FAULT, "mapping.needs-accessed = true", "mapping.needs-accessed"),
    (FAULT, "unmapping.clean-write = \"demote\"", "unmapping.clean-write"),
    (FAULT, "unmapping.on = [\"partial-protect\"]", "unmapping.on"),
    (FAULT, "deallocation.when = \"inactive\"", "deallocation.when"),
    (FAULT, "deallocation = {when = \"inactive\", after = \"25h\"}", "deallocation.after"),
    (FAULT, "deallocation = {when = \"inactive\", every = \"0s\"}", "deallocation.every"),
    (FAULT, "deallocation = {when = \"inactive\", budget-pages = 0}", "deallocation.budget-pages"),
    (FAULT, "deallocation.when = \"to-pool\"", "deallocation.when"),
    (FAULT, "allocation.effort = \"direct\"\nmemory.reclaim = \"none\"", "allocation.effort"),
    (FAULT, "allocation.effort-advised = \"direct\"\nmemory.reclaim = \"none\"", "allocation.effort-advised"),
    (FAULT, "mapping.scan.effort = \"direct-4.3\"\nmemory.reclaim = \"none\"", "mapping.scan.effort"),
    (FAULT, "allocation.effort = \"wake\"", "allocation.effort"),
    (FAULT, "allocation.effort-advised = \"wake\"", "allocation.effort-advised"),
    (FAULT, "mapping.scan.effort = \"wake\"", "mapping.scan.effort"),
    (FAULT, "memory = {background-compaction = true, reclaim = \"lumpy\"}", "memory.background-compaction"),
    (FAULT, "memory = {periodic-compaction = {}, reclaim = \"none\"}", "memory.periodic-compaction"),
    (FAULT, "memory.proactiveness = 20", "memory.proactiveness"),
    (FAULT, "memory.pool-pages = 512", "memory.pool-pages"),
    (FAULT, "mapping.scan.order = \"coverage\"", "mapping.scan.order"),
    (FAULT, "mapping.scan.sampling = {}", "mapping.scan.sampling"),
    (FAULT, "fault = {locking = \"atomic-entries\", rss = \"locked\"}", "fault.rss"),
    (SCANNED, "", "allocation.trigger"),
    (SCANNED, "mapping.scan = {}\nallocation.effort = \"direct\"", "allocation.effort"),
    (SCANNED, "mapping.scan = {}\nallocation.effort-advised = \"direct\"", "allocation.effort-advised"),
    (SCANNED, "mapping.scan = {}\nallocation.sizes = [\"64K\", \"2M\"]", "allocation.sizes"),
    (SCANNED, "mapping.scan = {}\nallocation.when = \"advised\"", "allocation.when"),
    (RESERVE, "allocation.when = \"advised\"", "allocation.when"),
    (FAULT, "mapping.scan.when = \"coverage > 9\"", "mapping.scan.when"),
    (FAULT, "mapping.scan.when = \"misses > 9\"", "mapping.scan.when"),
    (FAULT, "mapping.scan = {order = \"coverage\", sampling = {}, when = \"accessed\"}", "mapping.scan.when"),
    (FAULT, "mapping.scan = {order = \"misses\"}", "mapping.scan.order"),
    (FAULT, "mapping.scan = {sampling = {}, when = \"populated > 9\"}", "mapping.scan.sampling"),
    (FAULT, "unmapping.when = \"coverage < 9\"", "unmapping.when"),
    (FAULT, "unmapping.scan = {}", "unmapping.scan"),
    (NEVER, "unmapping = {when = \"coverage < 9\", scan = {}}", "unmapping.scan"),
    (RESERVE, "unmapping = {when = \"coverage < 9\", scan = {}}", "unmapping.scan"),
    (FAULT, "unmapping = {when = \"coverage < 9\", scan = {every = \"0s\"}}", "unmapping.scan.every"),
    (FAULT, "unmapping = {when = \"coverage < 9\", scan = {window = \"0s\"}}", "unmapping.scan.window"),
    (FAULT, "unmapping = {when = \"coverage < 9\", scan = {window = \"60s\"}}", "unmapping.scan.window"),
    (FAULT, "unmapping = {when = \"coverage < 9\", scan = {superpages = 0}}", "unmapping.scan.superpages"),
    (FAULT, "unmapping = {when = \"coverage < 9\", scan = {below-percent = 0}}", "unmapping.scan.below-percent"),
    (FAULT, "estimate = {}", "estimate"),
    (FAULT, "allocation.when = \"advised\"\nestimate = {}", "estimate"),
    (FAULT, "allocation.when = \"benefit > 9\"\nestimate = {miss-cycles = 9000000000000}", "estimate.miss-cycles"),
    (FAULT, "allocation.when = \"cost > 9\"\nestimate = {prepare-cycles = 9000000000000}", "estimate.prepare-cycles"),
    (FAULT, "allocation.when = \"cost > 9\"\nestimate = {shortage-cycles = 9000000000000}", "estimate.shortage-cycles"),
    (FAULT, "profile = {}", "profile"),
    (FAULT, "allocation.when = \"cost > 9\"\nprofile = {}", "profile"),
    (FAULT, "allocation.when = \"profiled > 9\"\nprofile = {spans = [\"0 2M 1\", \"1M 4M 2\"]}", "profile.spans"),
    (FAULT, "allocation.when = \"profiled > 9\"\nprofile = {spans = [\"2M 2M 1\"]}", "profile.spans"),
    (NEVER, "mapping.scan = {}", "mapping.scan"),
    (NEVER, "allocation.sizes = [\"64K\", \"2M\"]", "allocation.sizes"),
    (NEVER, "deallocation.bloat = {}", "deallocation.bloat"),
    (POOL, "deallocation.bloat = {}", "deallocation.bloat"),
    (POOL, "deallocation.when = \"at-once\"", "deallocation.when"),
    (POOL, "allocation.sizes = [\"2M\", \"1G\"]", "allocation.sizes"),
    (FAULT, "allocation.when = \"1 < 2\"", "allocation.when"),
    (FAULT, "mapping.scan = {when = \"not 1 < 2\"}", "mapping.scan.when"),
    (FAULT, "unmapping = {when = \"1 < 2\", scan = {}}", "unmapping.when"),
    (FAULT, "allocation.when = \"prezeroed\"", "allocation.when"),
    (FAULT, "mapping.scan = {when = \"prezeroed\"}", "mapping.scan.when"),
    (FAULT, "allocation.when = \"cost > 9\"\nestimate = {miss-cycles = 51}", "estimate.miss-cycles"),
    (FAULT, "allocation.when = \"benefit > 9\"\nestimate = {prepare-cycles = 51}", "estimate.prepare-cycles"),
    (FAULT, "allocation.when = \"benefit > 9\"\nestimate = {shortage-cycles = 51}", "estimate.shortage-cycles"),
    (FAULT, "allocation.sizes = [\"64K\"]\nmapping.scan = {}", "mapping.scan"),
    (FAULT, "allocation = {effort = \"direct\", eligible = \"advised\"}", "allocation.effort"),
    (POOL, "allocation.eligible = \"advised\"", "allocation.eligible"),
    (POOL, "unmapping.on = [\"partial-free\"]", "unmapping.on"),
    (SCANNED, "mapping.scan = {}\npreparation.grain = \"page\"", "preparation.grain"),
    (RESERVE, "allocation.sizes = [\"1M\"]", "mapping.when"),
    (RESERVE, "allocation.sizes = [\"1M\"]\npreparation = {grain = \"page\", fill-at = 9}", "preparation.fill-at"),
    (RESERVE, "allocation.sizes = [\"1M\"]\npreparation = {grain = \"page\", background = {}}", "preparation.background"),
    (RESERVE, "deallocation.when = \"at-once\"", "deallocation.when"),
    (NEVER, "preparation.zeroing = \"non-temporal\"", "preparation.zeroing"),
    (NEVER, "preparation.bulk = \"8K\"", "preparation.bulk"),
    (FAULT, "allocation = {sizes = [\"1M\"], effort = \"direct\"}", "allocation.effort"),
    (FAULT, "allocation = {sizes = [\"1M\"], effort-advised = \"direct\"}", "allocation.effort-advised"),
    (FAULT, "memory.background-compaction = true", "memory.background-compaction"),
    (FAULT, "memory = {background-compaction = true, proactiveness = 9, periodic-compaction = {}}", "memory.background-compaction"),
    (FAULT, "memory = {reclaim = \"none\", contended-permille = 9}", "memory.contended-permille"),
    (FAULT, "memory.contended-pages = 9", "memory.contended-pages"),
    (FAULT, "memory = {reclaim = \"none\", defer-shift = 9}", "memory.defer-shift"),
    (FAULT, "mapping.scan = {order = \"coverage\", sampling = {}, referenced = false}", "mapping.scan.referenced"),
];

/// The base with added lines, which replace existing keys.
pub(super) fn text(good: &str, added: &str) -> String {
    let key = |line: &str| line.split('=').next().unwrap_or("").trim().to_string();
    let added_keys: Vec<String> = added.lines().map(key).collect();
    let kept = good.lines().filter(|line| {
        let key = key(line);
        // The line `deallocation = {...}` replaces every `deallocation.…` key.
        !added_keys.iter().any(|added| key == *added || key.starts_with(&format!("{added}.")))
    });
    kept.chain(added.lines()).map(|line| format!("{line}\n")).collect()
}

fn problems(text: &str) -> Vec<Problem> {
    match Design::from_toml("x.toml", text) {
        Ok(_) => vec![],
        Err(DesignError::File { problems, .. }) => problems,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_the_cases_start_from_is_good() {
    for good in [FAULT, RESERVE, NEVER, POOL] {
        assert_eq!(problems(good), [], "{good}");
    }
    assert_eq!(problems(&text(SCANNED, "mapping.scan = {}")), []);
}

#[test]
fn every_case_breaks_its_rule_and_every_rule_is_broken() {
    let mut told = std::collections::BTreeSet::new();
    for (good, added, key) in CASES {
        let text = text(good, added);
        let problems = problems(&text);
        assert!(problems.iter().any(|problem| problem.key == *key), "{text}{problems:?}");
        for problem in problems {
            let line = text.lines().nth(problem.line.expect("files have lines") - 1);
            assert!(line.is_some(), "{text}{problem:?}");
            told.insert((problem.key, problem.what));
        }
    }
    for (key, says) in limits() {
        let hit = told.iter().any(|(at, what)| *at == key && what.ends_with(says));
        assert!(hit, "no case breaks the limit of {key}: {says}");
    }
    for rule in rules() {
        // Texts speak of the pages of the design's own sizes.
        let says = |what: &str| rule.says.split(super::PAGES).all(|part| what.contains(part));
        let hit = told.iter().any(|(key, what)| key == rule.keys[0] && says(what));
        assert!(hit, "no case breaks the rule of {}: {}", rule.keys[0], rule.says);
    }
}

#[test]
fn limits_speak_of_the_sizes_of_the_design() {
    let small = "allocation.sizes = [\"64K\"]\nmapping.scan = {when = \"populated > 1\", least-present = 17}";
    let problem = problems(&text(FAULT, small)).remove(0);
    assert_eq!(problem.key, "mapping.scan.least-present");
    assert_eq!(problem.what, "17: must be 1 to 16, the base pages of 64K");
    let usual = problems(&text(FAULT, "mapping.scan.least-present = 513")).remove(0);
    assert_eq!(usual.what, "513: must be 1 to 512, the base pages of 2M");
}

#[test]
fn a_value_that_the_file_does_not_set_is_called_the_default() {
    let what = |line: &str| {
        let lines = format!("{line}\nmemory.reclaim = \"none\"");
        problems(&text(FAULT, &lines)).remove(0).what
    };
    let rest =
        "compacts and reclaims: needs reclaim = \"compaction\" or \"lumpy\", or effort = \"none\"";
    let default = "\"direct-retry\" (default, beside memory.reclaim = \"none\")";
    assert_eq!(what("mapping.scan = {}"), format!("{default}: {rest}"));
    assert_eq!(what("mapping.scan.effort = \"direct\""), format!("\"direct\": {rest}"));
}

#[test]
fn sizes_in_the_wrong_order_are_one_error() {
    let found = problems(&text(RESERVE, "allocation.sizes = [\"2M\", \"64K\"]"));
    let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["allocation.sizes"], "{found:?}");
    // Sizes that are valid, and too small for the other key.
    let found = problems(&text(RESERVE, "allocation.sizes = [\"64K\"]"));
    assert!(found.iter().any(|one| one.key == "mapping.when"), "{found:?}");
}

/// Returns every key that has a limit, from a design with every table, once for each value of the
/// enum keys.
fn limits() -> Vec<(String, &'static str)> {
    struct Walk {
        tables: Vec<&'static str>,
        word: usize,
        found: Vec<(String, &'static str)>,
    }
    impl Keys for Walk {
        fn key(&mut self, name: &'static str, limit: Option<Limit>, slot: Slot<'_>) {
            if let Slot::Word(choice) = slot {
                choice.choose(choice.words()[self.word % choice.words().len()]);
            }
            self.found.extend(limit.map(|limit| (path(&self.tables, name), limit.says)));
        }
        fn only_with(&mut self, _: &[&'static str], _: &'static str) {}
        fn enter(&mut self, name: &'static str, _: bool) -> bool {
            self.tables.push(name);
            true
        }
        fn leave(&mut self) {
            self.tables.pop();
        }
    }
    let mut walk = Walk { tables: vec![], word: 0, found: vec![] };
    for word in 0..6 {
        walk.word = word;
        schema::design(&mut walk, &mut Design::default());
    }
    assert!(walk.found.len() > 100, "{:?}", walk.found);
    walk.found
}

#[test]
fn rules_name_keys_that_exist() {
    let all: Vec<String> =
        crate::designs::list().iter().flat_map(|preset| keys(preset.text)).collect();
    for key in rules().flat_map(|rule| rule.keys) {
        let known = all.iter().any(|one| one == key || one.starts_with(&format!("{key}.")));
        let rare = ["memory.pool-pages", "preparation.prefault.order", "profile", "profile.spans"];
        assert!(known || rare.contains(key), "{key}");
    }
}

fn keys(text: &str) -> Vec<String> {
    let design = Design::from_toml("preset", text).expect("presets are good");
    crate::write::pairs(&design).into_iter().map(|(key, _)| key).collect()
}
