//! Exit codes and error lines. `operations::FailureKind` classifies a failure; this module maps the class to a code.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use report::markup::visible;

pub use operations::json::{json_text, to_json};
pub use operations::{Failure, FailureKind};

/// The last paragraph of `--help`.
pub const HELP: &str = "\
Exit codes: 0 success; 1 a negative result that was asked about; 2 wrong usage or an error; 3 not \
possible on this machine. `run` exits with the program's code, or 125, 126, 127 if it cannot start it.";

/// How a subcommand ended without an error.
#[derive(Debug, PartialEq, Eq)]
pub enum Done {
    /// Success.
    Fine,
    /// The negative result that the user asked about (exit code 1).
    Negative,
    /// The exit code of a launched program.
    Code(u8),
    /// The signal that ended a launched program.
    Signal(i32),
}

/// A launcher ends as its program ended.
impl From<ExitStatus> for Done {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code as u8),
            (None, signal) => Self::Signal(signal.unwrap_or(libc::SIGKILL)),
        }
    }
}

/// Program not found.
pub const NOT_FOUND: u8 = 127;
/// Program not executable.
pub const NOT_EXECUTABLE: u8 = 126;
/// The launcher itself failed.
pub const LAUNCHER: u8 = 125;

fn code_of(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Usage => 2,
        FailureKind::Cannot | FailureKind::Denied => 3,
        FailureKind::Interrupted(signal) => by_signal(signal),
        FailureKind::NotFound => NOT_FOUND,
        FailureKind::NotExecutable => NOT_EXECUTABLE,
        FailureKind::Launcher => LAUNCHER,
    }
}

/// Formats this command line with `sudo` and without `--dry-run`.
fn as_root() -> String {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--dry-run").collect();
    format!(": sudo superpage {}", report::format::command(&words))
}

/// Prints clap's output: help to stdout with exit code 0, an error as one line to stderr with exit code 2. For
/// `launchers` the error suggests `--` before a program.
pub fn of_clap(error: &clap::Error, launchers: &[&str]) -> ExitCode {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() || error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    say(&mistake(error, launchers));
    ExitCode::from(2)
}

/// Formats a clap error in one line. For `launchers` it suggests `--` before a program.
pub fn mistake(error: &clap::Error, launchers: &[&str]) -> String {
    // clap's first paragraph is the error, and a `tip:` paragraph may follow. The rest is usage, which is dropped.
    let text = error.render().to_string();
    let paragraphs: Vec<String> = text
        .split("\n\n")
        .map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let mistake = plainly(paragraphs[0].trim_start_matches("error: "));
    // For a negative number, clap suggests `--` even if the option takes no negative numbers; drop that tip.
    let tip = paragraphs.iter().find_map(|one| one.strip_prefix("tip: "));
    let tip = tip.filter(|_| !mistake.ends_with("below 0"));
    let tip = tip.map_or(String::new(), |tip| format!("; {tip}"));
    // The most common error is `superpage compare ./app` without `--`.
    use clap::error::ErrorKind::{UnknownArgument, ValueValidation};
    let lossy = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
    let words: Vec<String> = std::env::args_os().map(lossy).collect();
    let launcher = words.get(1).filter(|word| launchers.contains(&word.as_str()));
    let is_positional = || text.contains("' for '[");
    let slip =
        error.kind() == UnknownArgument || error.kind() == ValueValidation && is_positional();
    let slip = slip && !words.iter().any(|word| word == "--");
    let dashes = launcher.filter(|_| slip).map_or(String::new(), |launcher| {
        format!("; a program goes after `--`: superpage {launcher} -- ./app")
    });
    format!("{mistake}{tip}{dashes}; see --help")
}

/// Rephrases parser errors about numbers.
fn plainly(mistake: &str) -> String {
    for (its, ours) in [
        ("invalid digit found in string", "not a whole number"),
        ("number too large to fit in target type", "too large a number"),
        ("number too small to fit in target type", "too small a number"),
    ] {
        if let Some(before) = mistake.strip_suffix(its) {
            return format!("{before}{ours}");
        }
    }
    if let Some((before, range)) = mistake.split_once(" is not in ")
        && let Some((least, end)) = range.split_once("..")
    {
        let most = match end.strip_prefix('=') {
            Some(most) => most.to_string(),
            None => end.parse::<u64>().map_or(end.to_string(), |end| (end - 1).to_string()),
        };
        return format!("{before} is not {least} to {most}");
    }
    // Our message repeats the value (`--size: invalid size ...`): drop clap's text before it.
    if let Some((head, ours)) = mistake.split_once("': ")
        && ours.starts_with("invalid ")
        && let Some((_, flag)) = head.split_once("' for '")
    {
        let flag = flag.split(' ').next().unwrap_or(flag);
        return format!("{flag}: {ours}");
    }
    let negative = mistake
        .strip_prefix("unexpected argument '-")
        .filter(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    match negative.and_then(|rest| rest.split_once('\'')) {
        Some((number, _)) => format!("`-{number}`: no option here takes a number below 0"),
        None => mistake.to_string(),
    }
}

/// Ends the process with the exit code or signal of `done`.
pub fn finish(done: Result<Done, Failure>) -> ExitCode {
    match done {
        Ok(Done::Fine) => ExitCode::SUCCESS,
        Ok(Done::Negative) => ExitCode::from(1),
        Ok(Done::Code(code)) => ExitCode::from(code),
        Ok(Done::Signal(signal)) => {
            sys::signal::die_by(signal);
            ExitCode::from(by_signal(signal))
        }
        Err(failure) => {
            let remedy = match failure.kind() {
                FailureKind::Denied => as_root(),
                _ => String::new(),
            };
            for line in failure.lines() {
                say(&format!("{}{remedy}", line.replace('\n', "; ")));
            }
            if let FailureKind::Interrupted(signal) = failure.kind() {
                sys::signal::die_by(signal);
            }
            ExitCode::from(code_of(failure.kind()))
        }
    }
}

/// Returns 128 + signal, the shell's convention. Used if the signal is blocked and does not kill this process.
fn by_signal(signal: i32) -> u8 {
    128u8.saturating_add(signal as u8)
}

/// Writes one line to stderr, prefixed with the program's name. Ignores write errors.
pub fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "superpage: {}", visible(line));
}

/// Writes text of several lines to stderr, for commands whose stdout belongs to a program.
pub fn print_aside(text: &str) {
    let _ = anstream::stderr().write_all(visible(text).as_bytes());
}

/// Writes to stdout. A closed pipe (`| head`) is success, as for every filter.
pub fn print(text: &str) -> Result<(), Failure> {
    print_some(text).map(|_| ())
}

/// Like `print`, for output in parts. Returns whether the reader is still there.
pub fn print_some(text: &str) -> Result<bool, Failure> {
    printed(anstream::stdout().write_all(visible(text).as_bytes()))
}

/// Writes text of a format for programs to stdout, byte for byte. On a terminal, escapes the characters that the terminal
/// would obey.
pub fn print_exact(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = match stdout.is_terminal() {
        true => stdout.write_all(escaped_lines(text).as_bytes()),
        false => stdout.write_all(text.as_bytes()),
    };
    printed(written.and_then(|()| stdout.flush())).map(|_| ())
}

/// Escapes each line; line breaks stay.
fn escaped_lines(text: &str) -> String {
    text.split('\n').map(report::format::escaped).collect::<Vec<_>>().join("\n")
}

/// Whether the reader of stdout is still there.
fn printed(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::usage(format!("standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

/// Prints a JSON document whose first key is its schema.
pub fn print_json(schema: &str, body: serde_json::Value) -> Result<(), Failure> {
    print(&json_text(schema, body)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const CHILD: &str = "SUPERPAGE_TEST_EXIT";

    #[test]
    fn what_a_signal_interrupted_ends_by_it() {
        // Runs this test again in a child process.
        if std::env::var_os(CHILD).is_some() {
            finish(Err(Failure::interrupted(libc::SIGTERM, "the prediction").on("gups")));
            std::process::exit(17);
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "exit::tests::what_a_signal_interrupted_ends_by_it";
        command.args([name, "--exact", "--nocapture"]).env(CHILD, "1");
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGTERM));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("superpage: gups: the prediction was interrupted"), "{said}");
        let failure = Failure::interrupted(libc::SIGINT, "x");
        assert_eq!((code_of(failure.kind()), failure.is_cannot()), (130, false));
    }

    #[test]
    fn a_terminal_obeys_no_character_of_a_label() {
        let text = "x{unit=\"a\u{1b}[2J\u{7f}\u{202e}\"} 1\n";
        assert_eq!(escaped_lines(text), "x{unit=\"a\\u{1b}[2J\\u{7f}\\u{202e}\"} 1\n");
    }

    #[test]
    fn numbers_are_told_in_words_of_people() {
        for (its, ours) in [
            (
                "invalid value 'x' for '--jobs <N>': invalid digit found in string",
                ": not a whole number",
            ),
            ("invalid value '9' for '-n <N>': 9 is not in 0..8", ": 9 is not 0 to 7"),
            ("invalid value '0' for '-n <N>': 0 is not in 1..=100", ": 0 is not 1 to 100"),
            (
                "invalid value '10Q' for '--size <SIZE>': invalid size `10Q`: expected bytes",
                "--size: invalid size `10Q`: expected bytes",
            ),
            ("unexpected argument '-1' found", "`-1`: no option here takes a number below 0"),
        ] {
            assert!(plainly(its).ends_with(ours), "{}", plainly(its));
        }
        assert_eq!(plainly("unexpected argument '-x' found"), "unexpected argument '-x' found");
    }
}
