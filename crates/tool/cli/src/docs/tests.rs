//! Checks that every command and option named in help, man pages, README and guide exists.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory};

fn built() -> Command {
    let mut command = crate::Cli::command();
    command.build();
    command
}

fn tree(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|one| one.get_name() != "help");
    std::iter::once(command).chain(below.flat_map(tree)).collect()
}

/// Keeps letters and digits only: roff and terminals wrap and escape other characters differently.
fn plain(text: &str) -> String {
    let lines: String = text.lines().filter(|line| !line.starts_with('.')).collect();
    let text = lines.replace("\\*(Aq", "").replace("\\fI", "").replace("\\fR", "");
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}

#[test]
fn man_pages_have_the_words_of_the_help() {
    let command = built();
    let mut options = 0;
    for one in tree(&command) {
        let mut page = Vec::new();
        clap_mangen::Man::new(one.clone()).render(&mut page).unwrap();
        let page = plain(&String::from_utf8(page).unwrap());
        let help = |arg: &Arg| arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        let about = one.get_long_about().or(one.get_about()).map(ToString::to_string);
        let texts = one.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(help);
        for text in texts.chain(about) {
            assert!(page.contains(&plain(&text)), "{}: {text}", one.get_name());
            options += 1;
        }
    }
    assert!(options > 200, "{options}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn guide() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(repository().join("docs/guide")).expect("docs/guide");
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages
        .map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap()))
        .collect()
}

#[test]
fn readme_and_guide_use_commands_and_options_that_there_are() {
    let command = built();
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    let pages = [("README.md".to_string(), readme)].into_iter().chain(guide());
    let (mut checked, mut mistakes) = (0, Vec::new());
    for (name, text) in pages {
        for line in console_lines(&text) {
            for words in commands_of(&line) {
                checked += 1;
                mistakes
                    .extend(mistake(&command, &words).map(|why| format!("{name}: {line}: {why}")));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    assert!(checked > 100, "only {checked} command lines were found");
}

#[test]
fn the_guide_has_a_section_for_every_command() {
    let pages = guide();
    let headings: Vec<String> = pages
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches('#').replace('`', "").trim().to_string())
        .collect();
    for one in built().get_subcommands().filter(|one| one.get_name() != "help") {
        let heading = format!("superpage {}", one.get_name());
        assert!(headings.contains(&heading), "docs/guide has no heading `## {heading}`");
    }
}

/// Returns the commands typed in shell-session blocks, one per line; continuation lines are joined.
fn console_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = line.trim() == "```console";
            continue;
        }
        let typed = if goes_on { Some(line) } else { line.trim_start().strip_prefix("$ ") };
        let Some(typed) = typed.filter(|_| inside) else { continue };
        let (typed, more) = match typed.strip_suffix('\\') {
            Some(typed) => (typed, true),
            None => (typed, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => last.push_str(typed),
            None => lines.push(typed.to_string()),
        }
        goes_on = more;
    }
    lines
}

/// Returns the arguments of each use of `superpage` in a shell line.
fn commands_of(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("not a line of shell: {line}"));
    let mut found = Vec::new();
    for word in &words {
        if let Some(inner) = word.split_once("$(").and_then(|(_, rest)| rest.split_once(')')) {
            found.extend(commands_of(inner.0));
        }
    }
    let ends = |word: &String| match word.strip_suffix(';') {
        Some(before) => vec![before.to_string(), ";".to_string()],
        None => vec![word.clone()],
    };
    let words: Vec<String> = words.iter().flat_map(ends).collect();
    for part in words.split(|word| ["&&", "|", ";", ">", "2>"].contains(&word.as_str())) {
        let set = |word: &&String| word.contains('=') || *word == "sudo" || *word == "eval";
        let mut rest = part.iter().skip_while(set);
        match rest.next().map(String::as_str) {
            Some("superpage") => found.push(rest.cloned().collect()),
            Some("cargo") if rest.clone().next().is_some_and(|word| word == "run") => {
                found.push(rest.skip_while(|word| *word != "--").skip(1).cloned().collect());
            }
            _ => {}
        }
    }
    found
}

/// Returns the first unknown command or option, with the reason.
fn mistake(root: &Command, words: &[String]) -> Option<String> {
    let mut command = root;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            return None;
        }
        let option = match word.strip_prefix("--") {
            Some(long) => Some((long.split('=').next().unwrap_or(long), None)),
            None => word.strip_prefix('-').and_then(|rest| Some(("", Some(rest.chars().next()?)))),
        };
        if let Some((long, short)) = option {
            let is_it = |arg: &&Arg| match short {
                Some(short) => arg.get_short() == Some(short),
                None => arg.get_long() == Some(long),
            };
            let Some(arg) = command.get_arguments().find(is_it) else {
                // A command that accepts hyphen values parses its own arguments.
                if command.get_positionals().any(Arg::is_allow_hyphen_values_set) {
                    return None;
                }
                return Some(format!("`{}` has no option {word}", command.get_name()));
            };
            let takes = arg.get_num_args().is_some_and(|count| count.min_values() > 0);
            if takes && !word.contains('=') {
                words.next();
            }
            continue;
        }
        if let Some(below) = command.find_subcommand(word) {
            command = below;
            continue;
        }
        if command.get_positionals().any(Arg::is_trailing_var_arg_set) {
            return None;
        }
        if command.get_positionals().next().is_none() {
            return Some(format!("`{}` has no command {word}", command.get_name()));
        }
    }
    None
}

#[test]
fn mistakes_in_command_lines_are_found() {
    let command = built();
    let of = |line: &str| {
        let all: Vec<String> =
            commands_of(line).iter().filter_map(|words| mistake(&command, words)).collect();
        all.join("; ")
    };
    for line in [
        "superpage run --heap -- ./app --any",
        "superpage run ./app --any",
        "A=b superpage pool grow 2M:4G --node 1 && superpage pool",
        "eval \"$(superpage tlb --quick --format env)\"; echo $TLB_MISS_COST",
        "superpage compare --metric 'a|b --c' -- ./app | less   # and --so on",
        "superpage hugeadm --pool-list",
    ] {
        assert_eq!(of(line), "", "{line}");
    }
    for (line, part) in [
        ("superpage rum ./app", "no command rum"),
        ("superpage pool && superpage pool enlarge 2M:4", "no command enlarge"),
        ("superpage compare --arms base -- ./app", "no option --arms"),
        ("eval \"$(superpage tlb --env)\"", "no option --env"),
        ("cargo run --release -- compare gups -x", "no option -x"),
    ] {
        assert!(of(line).contains(part), "{line}: {}", of(line));
    }
    let text = "```console\n$ superpage a \\\n  --b\nprinted\n$ c\n```\n$ d\n";
    assert_eq!(console_lines(text), ["superpage a   --b", "c"]);
}
