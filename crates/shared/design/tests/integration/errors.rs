//! Errors that a user sees after a mistake.

use superpage_design::{Design, DesignError, designs, diff};

fn lines(text: &str) -> Vec<String> {
    let error = Design::from_toml("my.toml", text).expect_err("bad");
    error.to_string().lines().map(str::to_string).collect()
}

#[test]
fn all_that_is_wrong_is_told_with_its_line() {
    let text = "\
name = \"mine\"
sumary = \"oops\"
[allocation]
trigger = \"first-falt\"
sizes = [\"2M\", 3]
[preparation]
fill-at = 600
grain = 1
[mapping]
when = \"prepared\"
[deallocation]
when = \"at-once\"
after = \"5s\"
[deallocation.bloat]
every = \"5 s\"
below-percent = 300
[memory.\"x y\"]
";
    assert_eq!(
        lines(text),
        [
            "my.toml:2: sumary: unknown key: did you mean `summary`? known keys: name, summary, \
             allocation, preparation, mapping, unmapping, deallocation, memory, fault, estimate, profile",
            "my.toml:4: allocation.trigger: \"first-falt\": did you mean \"first-fault\"? must be \"never\", \
             \"mmap\", \"first-fault\" or \"scan\"",
            "my.toml:5: allocation.sizes: is an integer: must be a size like \"64K\" or \"2M\"",
            "my.toml:7: preparation.fill-at: 600: fills a reservation: needs form = \"reservation\"",
            "my.toml:8: preparation.grain: is an integer: must be a text in quotes: \"page\" or \
             \"superpage\"",
            "my.toml:13: deallocation.after: goes only with when = \"inactive\"",
            "my.toml:15: deallocation.bloat.every: \"5 s\" is not a time: a whole number and ns, \
             us, ms, s, min or h, like \"10s\" or \"500ms\"",
            "my.toml:16: deallocation.bloat.below-percent: 300 is out of range: must be a whole \
             number from 0 to 255",
            "my.toml:17: memory.\"x y\": unknown key; known keys: grouping, reclaim, \
             background-compaction, proactiveness, defer-shift, contended-permille, contended-pages, pool-pages, ideal, \
             periodic-compaction",
        ]
    );
}

#[test]
fn syntax_is_told_first_and_alone() {
    let lines = lines("name = \"x\"\nsummary = \n[allocation\n");
    assert!(lines.len() >= 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("invalid TOML")), "{lines:?}");
    assert!(lines[0].starts_with("my.toml:2: "), "{lines:?}");
}

#[test]
fn tables_and_values_are_told_apart() {
    assert_eq!(
        lines("name = \"x\"\nallocation = 3\nmapping.scan = true\n"),
        [
            "my.toml:2: allocation: expected a table: write [allocation] and its keys below",
            "my.toml:3: mapping.scan: expected a table: write [mapping.scan] and its keys below",
        ]
    );
    let double = lines("name = \"x\"\nname = \"y\"\n");
    assert!(double[0].starts_with("my.toml:2: invalid TOML: duplicate key"), "{double:?}");
}

/// Texts from untrusted sources: each is judged at once, in lines of bounded length.
#[test]
fn hostile_files_are_told_in_short_lines() {
    let when = |text: &str| format!("name = \"x\"\nallocation.when = \"{text}\"\n");
    let deep = |open: &str, shut: &str| when(&(open.repeat(99) + "advised" + &shut.repeat(99)));
    let files = [
        "name = \"x\"\n[allocation]\ntrigger = \"first-fa".to_string(),
        String::new(),
        "name = \"x\"\0".to_string(),
        "name = \"x\"\nname = \"y\"\n".to_string(),
        "name = 7\nallocation = 3\nmemory.defer-shift = -1\nmemory.proactiveness = 1.5".to_string(),
        format!("name = \"x\"\nallocation.sizes = {}{}", "[".repeat(9999), "]".repeat(9999)),
        format!("name = \"x\"\n{}a = 1", "a.".repeat(9999)),
        format!(
            "name = \"x\"\n{}",
            (0..30_000).map(|at| format!("k{at} = 1\n")).collect::<String>()
        ),
        deep("(", ")").replace("advised", "populated"),
        deep("1 - (", ")"),
        when(&"not ".repeat(200_000)),
        when(&" + pages".repeat(100_000)),
        when(&format!("{} > 1", "a".repeat(50_000))),
        when("populated > 99999999999999999999999999"),
        when("populated > -9223372036854775808 / -1"),
        when("populated / 0 > 1"),
    ];
    for text in files {
        let Err(error) = Design::from_toml("x.toml", &text) else { panic!("{text:.99}") };
        let told = error.to_string();
        assert!(
            told.lines().all(|line| line.starts_with("x.toml:") && line.len() < 2000),
            "{told:.999}"
        );
    }
}

/// Numbers saturate at the largest and smallest values.
#[test]
fn conditions_do_not_overflow() {
    for (condition, holds) in [
        ("populated - 1 > (0 - 9223372036854775807 - 1) / (0 - 1)", false),
        ("9223372036854775807 * 9223372036854775807 + pages >= 9223372036854775807", true),
        ("(0 - 9223372036854775807) * pages - 9 < 0", true),
        ("pages / populated == 0", true),
    ] {
        let text = format!("name = \"x\"\nallocation.when = \"{condition}\"");
        let design = Design::from_toml("x.toml", &text).unwrap_or_else(|error| panic!("{error}"));
        let mut policy = design.policy(policy::Scale::X86);
        let mut facts = policy::Facts::default();
        facts.region.inside = true;
        let asked = policy.fault(true, &facts);
        let made = matches!(asked, policy::FaultAction::MakeSuperpage { .. });
        assert_eq!(made, holds, "{condition}: {asked:?}");
    }
}

#[test]
fn a_design_without_a_name_is_none() {
    assert!(lines("")[0].starts_with("my.toml:1: name: missing: must be lower-case"));
    assert!(lines("name = \"\"")[0].starts_with("my.toml:1: name: \"\": must be lower-case"));
}

#[test]
fn a_default_that_is_wrong_names_the_key_that_makes_it_so() {
    let text =
        "name = \"x\"\n\n[allocation]\nform = \"reservation\"\n[mapping]\nwhen = \"prepared\"\n";
    let found = lines(text);
    let start = "my.toml:4: deallocation.when: \"under-pressure\" (default, beside allocation.form = \"reservation\"): ";
    assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
}

#[test]
fn a_short_file_is_enough() {
    let design = Design::from_toml("x", "name = \"plain\"").unwrap();
    assert_eq!(design, Design::new("plain", "", Default::default()));
}

#[test]
fn names_and_aliases() {
    assert_eq!(designs::find("sync-64").unwrap().name, "quicksilver-sync-64");
    assert_eq!(designs::find("linux").unwrap().name, "linux-6");
    let mut names: Vec<&str> = Vec::new();
    for preset in designs::list() {
        names.push(preset.name);
        names.extend(preset.aliases);
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "every name means one design");
    match designs::find("quiksilver-sync-1") {
        Err(DesignError::Unknown { nearest, known, .. }) => {
            assert_eq!(nearest, Some("quicksilver-sync-1"));
            assert_eq!(known.len(), designs::list().len());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_differs_between_two_presets() {
    let difference = |a: &str, b: &str| {
        let found = diff(&designs::find(a).unwrap(), &designs::find(b).unwrap());
        let shown =
            |value: Option<superpage_design::Value>| value.map_or("-".into(), |v| v.to_string());
        let line =
            |d: superpage_design::Difference| format!("{} {} {}", d.key, shown(d.a), shown(d.b));
        found.into_iter().map(line).collect::<Vec<_>>()
    };
    assert_eq!(difference("sync-1", "sync-64"), ["preparation.fill-at 1 64"]);
    assert_eq!(
        difference("sync-64", "async-64"),
        [
            "preparation.fill-at 64 -",
            "preparation.bulk \"2M\" \"4K\"",
            "preparation.background.at - 64",
            "preparation.background.every - \"1s\"",
            "preparation.background.budget-reservations - 200000",
        ]
    );
    assert_eq!(
        difference("ingens", "ingens-star"),
        [
            "mapping.scan.least-present 460 1",
            "memory.periodic-compaction.blocks - 20",
            "memory.periodic-compaction.every - \"100ms\"",
        ]
    );
    assert_eq!(
        difference("hawkeye-pmu", "hawkeye-star"),
        ["mapping.scan.every \"10s\" \"1ms\"", "mapping.scan.cpu-percent 0 50",]
    );
}
