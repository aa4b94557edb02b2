//! `superpage compare --help` lists the common options, `--help-advanced` all.

use clap::Command;

/// Groups of options of which `--help` lists only [`COMMON`].
const GROUPS: [&str; 5] =
    ["Workload options", "Services", "Running services", "Processes", "Stopping and judging"];
const COMMON: [&str; 18] = [
    "size",
    "seed",
    "threads",
    "service",
    "load",
    "ready",
    "suite",
    "pid",
    "unit",
    "metric_command",
    "metric_counter",
    "metric_url",
    "metric_series",
    "metric_per",
    "min_runs",
    "max_runs",
    "max_time",
    "confidence",
];
/// Rare options outside [`GROUPS`]; `--help` omits them.
const RARE: [&str; 3] = ["ignore_failure", "svg", "force"];
const FLAG: &str = "--help-advanced";

/// Hides rare options from `--help`; they still parse.
pub fn abridged(command: Command) -> Command {
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is_in_group = arg.get_help_heading().is_some_and(|heading| GROUPS.contains(&heading));
        let is_hidden = is_in_group && !COMMON.contains(&id) || RARE.contains(&id);
        arg.hide(is_hidden)
    })
}

/// Whether `--help-advanced` is given before any `--`.
pub fn is_advanced(words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let mut words = words.skip(1).take_while(|word| word != "--");
    words.next().is_some_and(|word| word == "compare") && words.any(|word| word == FLAG)
}

/// Renders the help text of all options.
pub fn all(mut superpage: Command) -> String {
    superpage.build();
    let compare = superpage.find_subcommand_mut("compare").expect("a command");
    compare.render_long_help().to_string()
}

/// The recipes of `--arm`, printed at the end of `--help`.
pub const ARMS: &str = "\
Arms:
  base            base pages only
  thp             transparent superpages wherever they fit
  hugetlb[:SIZE]  pages of the hugetlb pool, which may grow for the runs (--pool)
  superpage       as `superpage run --heap --mmap`
  system          the system's settings, unchanged
  glibc-tunable, python-hugepages, jvm-thp, jvm-large-pages, jemalloc-thp, mimalloc, tcmalloc,
  postgres-huge_pages
                  what a malloc or a runtime does about superpages itself, by its own switch
  'NAME: WORDS'   a recipe of these words, in any order:
                    pages=KIND         one of the above, or auto or thp:SIZE
                    memory=LIST        what libsuperpage.so backs: heap, mmap, shm, text, data, stack=SIZE
                    fallback=KIND      when the pool is empty: thp, base, error
                    children=KIND      memory of child processes: base, same, none
                    design=DESIGN      as `superpage run --design`: a name, or a file
                    executor=KIND      how its superpages are made: collapse, in-place, pool
                    approximate=yes    run a design whose conditions cannot be applied; the arm is named so
                    prezero=SIZE       superpages zeroed ahead of use
                    prefault=SIZE      superpages mapped ahead of use
                    preload=LIBRARY    preload a library, such as another malloc
                    VARIABLE=VALUE     set in the environment; the name is in upper case
                    -- WRAPPER ARGS    last: a command that starts the program, such as
                                       `taskset -c 1` or `env name=value`
                  Examples:
                  --arm 'mimalloc: preload=/usr/lib/x86_64-linux-gnu/libmimalloc.so.2'
                  --arm 'glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1'

Exit codes: 0 compared; 1 a verdict of --fail-if; 2 wrong usage or an error; 3 not possible on this machine.";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use clap::CommandFactory;

    use super::*;

    fn options(text: &str) -> BTreeSet<String> {
        let named = |line: &str| {
            let (_, name) = line.split_once("--")?;
            let is_option =
                line.trim_start().starts_with('-') && !line.trim_start().starts_with("- ");
            let end = name.find(|letter: char| !letter.is_ascii_lowercase() && letter != '-');
            is_option.then(|| name[..end.unwrap_or(name.len())].to_string())
        };
        text.lines().filter_map(named).collect()
    }

    #[test]
    fn help_has_the_common_options_and_help_advanced_all() {
        let all = options(&all(crate::Cli::command()));
        let mut superpage = crate::Cli::command().mut_subcommand("compare", abridged);
        superpage.build();
        let few = superpage.find_subcommand_mut("compare").unwrap().render_long_help().to_string();
        let few = options(&few);
        assert!((28..=41).contains(&few.len()), "{} options: {few:?}", few.len());
        assert!(few.is_subset(&all), "{few:?}");
        assert_eq!(all.len(), few.len() + 32, "{all:?}");
        // A comparison on a running service cannot be asked for without them.
        let metrics: Vec<&String> = all.iter().filter(|one| one.starts_with("metric")).collect();
        assert!(metrics.len() > 6 && metrics.iter().all(|one| few.contains(*one)), "{metrics:?}");
    }

    #[test]
    fn the_flag_is_the_programs_own_after_dashes() {
        let of = |text: &str| is_advanced(text.split(' ').map(OsString::from));
        assert!(of("superpage compare --help-advanced"));
        assert!(of("superpage compare gups --help-advanced"));
        assert!(!of("superpage compare -- ./app --help-advanced"));
        assert!(!of("superpage run --help-advanced"));
    }

    #[test]
    fn named_arms_are_in_help_and_guide() {
        let page = include_str!("../../../../../docs/guide/evaluate.md");
        for (name, _) in launch::NAMED {
            let words = ARMS.split(|c: char| c.is_whitespace() || c == ',');
            assert!(words.into_iter().any(|word| word == name), "{name}: not in ARMS");
            assert!(page.contains(&format!("\n| `{name}` | ")), "{name}: not in evaluate.md");
        }
    }
}
