//! Objects of 128 KiB to some MiB, which malloc maps separately: on which pages they are, what they cost, and that the
//! library changes nothing else about them.

use std::path::Path;
use std::process::Command;

use testkit::ControlGroup;

use crate::common::has_free_superpages;
use crate::programs::{build, has, has_thp, number, run, under};

fn program() -> &'static Path {
    static BUILT: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    BUILT.get_or_init(|| build("objects.c", "objects", "cc", &["-O1", "-w", "-pthread"]))
}

fn command(is_backed: bool, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(arguments).env_remove("GLIBC_TUNABLES");
    if is_backed {
        command.envs(under("thp", "heap", "base")).env("SUPERPAGE_CHILDREN", "same");
    }
    command
}

/// Returns what the program prints natively and under the library.
fn both(arguments: &[&str]) -> [String; 2] {
    [false, true].map(|is_backed| run(command(is_backed, arguments)))
}

/// Returns the output after a word.
fn after<'a>(text: &'a str, word: &str) -> &'a str {
    text.split_once(word).unwrap_or_else(|| panic!("no {word:?} in {text:?}")).1
}

/// Returns the lines with malloc's own statistics.
fn said(text: &str) -> Vec<&str> {
    text.lines().filter(|line| line.contains("mappings")).collect()
}

/// Returns whether 256 MiB of THP are available.
fn has_superpages() -> bool {
    has("cc") && has_thp() && has_free_superpages(256)
}

const NEEDS: &str = "needs a C compiler and 256 MiB of free superpages";

#[test]
fn most_of_many_objects_lie_on_superpages() {
    testkit::lock_machine!(shared);
    testkit::require!(has_superpages(), "{NEEDS}");
    for (count, size, least) in [
        ("200", "1048576", 85),
        ("25", "8000000", 85),
        ("30", "4194304", 85),
        ("900", "200000", 60),
    ] {
        let text = run(command(true, &["kept", count, size]));
        let (rss, huge) = (number(&text, "rss"), number(&text, "huge"));
        assert!(huge * 100 >= rss * least, "{count} of {size}: {text}");
        // Objects that are freed in order are returned to the kernel.
        assert!(number(after(&text, "freed"), "rss") <= 12 << 10, "{text}");
    }
}

#[test]
fn objects_that_are_hardly_touched_stay_on_base_pages() {
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    let [native, backed] = both(&["sparse", "600", "1048576"]);
    assert_eq!(number(&backed, "huge"), 0, "{backed}");
    let [native, backed] = [native, backed].map(|text| number(&text, "rss"));
    assert!(backed <= native * 103 / 100 + 1024, "{native} {backed} KiB");
}

#[test]
fn a_program_that_becomes_sparse_is_noticed() {
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    testkit::require!(!testkit::thp_are_for_all(), "all memory gets THP here");
    let [native, backed] = both(&["later", "200", "1048576"]);
    let [native, backed] = [native, backed].map(|text| number(&text, "rss"));
    assert!(backed <= native * 103 / 100 + 1024, "{native} {backed} KiB");
}

#[test]
fn a_few_objects_cost_little_more() {
    testkit::require!(has("cc") && has_thp(), "needs a C compiler and THP of 2 MiB by advice");
    for [count, size] in
        [["5", "1048576"], ["12", "1048576"], ["7", "4194304"], ["100", "150000"], ["9", "2097152"]]
    {
        let Some(group) = ControlGroup::of_memory(1 << 30, &format!("few-{count}-{size}")) else {
            testkit::skipped!("needs a control group of memory");
            return;
        };
        let charge = |is_backed| {
            let inner = command(is_backed, &["kept", count, size]);
            number(&run(joined(&group, &inner)), "charge")
        };
        let (native, backed) = (charge(false), charge(true));
        let most = (native / 20).max(2 << 10);
        assert!(backed <= native + most, "{count} of {size}: {native} {backed} KiB");
    }
}

/// Returns the command, run as a member of a control group.
fn joined(group: &ControlGroup, inner: &Command) -> Command {
    let mut shell = Command::new("sh");
    group.join(&mut shell).arg("env");
    for (name, value) in inner.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value.and_then(|it| it.to_str())) {
            shell.arg(format!("{name}={value}"));
        }
    }
    shell.arg(inner.get_program()).args(inner.get_args()).env("GROUP", group.path());
    shell
}

#[test]
fn what_is_freed_at_random_is_not_charged() {
    testkit::lock_machine!(shared);
    testkit::require!(has_superpages(), "{NEEDS}");
    let Some(group) = ControlGroup::of_memory(2 << 30, "objects") else {
        testkit::skipped!("needs a control group of memory");
        return;
    };
    let charges = |is_backed| {
        let text = run(joined(&group, &command(is_backed, &["random", "500", "1048576"])));
        (number(&text, "charge"), number(after(&text, "empty"), "charge"), text)
    };
    let (freed, _, native) = charges(false);
    let (backed, empty, text) = charges(true);
    assert!(number(&text, "huge") < number(&text, "rss"), "{text}");
    assert!(backed * 100 <= freed * 105, "{native}\n{text}");
    assert!(empty <= 12 << 10, "{text}");
    assert_eq!(said(&text), said(&native));
}

#[test]
fn vectors_that_double_lie_on_superpages_and_leave_no_charge_behind() {
    testkit::lock_machine!(shared);
    testkit::require!(has_superpages(), "{NEEDS}");
    let Some(group) = ControlGroup::of_memory(2 << 30, "vectors") else {
        testkit::skipped!("needs a control group of memory");
        return;
    };
    let of = |is_backed| run(joined(&group, &command(is_backed, &["doubled", "40", "8388608"])));
    let (native, backed) = (of(false), of(true));
    let (rss, huge) = (number(&backed, "rss"), number(&backed, "huge"));
    assert!(huge * 100 >= rss * 70, "{backed}");
    let [charged, more] = [&native, &backed].map(|text| number(text, "charge"));
    assert!(more * 100 <= charged * 107, "{native}{backed}");
    assert!(number(after(&backed, "freed"), "charge") <= 12 << 10, "{backed}");
    assert_eq!(said(&backed), said(&native));
}

#[test]
fn malloc_says_of_them_what_it_said() {
    testkit::require!(has("cc"), "needs a C compiler");
    for arguments in [
        ["kept", "60", "1048576"],
        ["kept", "12", "9000000"],
        ["random", "60", "1048576"],
        ["aligned", "20", "1500000"],
        ["resized", "60", "1048576"],
        ["resized", "8", "20000000"],
        ["churn", "60", "700000"],
        ["forks", "50", "1048576"],
    ] {
        let [native, backed] = both(&arguments);
        let is_rounded = arguments == ["resized", "8", "20000000"];
        let [native, backed] = [&native, &backed].map(|text| said(text));
        assert!(!native.is_empty(), "{arguments:?}");
        // Large objects grow by whole superpages, so `rounded` figures may differ until they are freed.
        let skipped = usize::from(is_rounded);
        assert_eq!(backed[skipped..], native[skipped..], "{arguments:?}");
    }
}

#[test]
fn locked_memory_is_what_it_was() {
    testkit::require!(has("cc") && testkit::is_root(), "needs a C compiler and root");
    let [native, backed] = both(&["locked", "40", "1048576"]);
    for (native, backed) in native.lines().zip(backed.lines()) {
        let (native, backed) = (number(native, "locked"), number(backed, "locked"));
        // Allow for the last superpage, which is mapped whole, and for the library's own pages.
        assert!(backed <= native + (6 << 10), "{native} {backed} KiB");
        assert!(backed >= native, "{native} {backed} KiB");
    }
}
