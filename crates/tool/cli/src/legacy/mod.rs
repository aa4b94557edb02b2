//! The commands of libhugetlbfs under their own names: `hugeadm`, `hugectl`, `hugeedit`, `pagesize`.
//!
//! Existing scripts use these commands. Where libhugetlbfs was right, options, output and exit codes are the same: 0 or
//! 1, usage on standard error, a program that starts with a warning if it cannot get the requested pages. Where
//! libhugetlbfs was wrong (a dry run that wrote, errors that exited 0, a partly grown pool reported as success), the
//! command's page in docs/man says what differs.
//!
//! Each command parses its arguments like getopt_long ([`getopt`]), prints messages with its own name and verbosity
//! ([`voice`]), and uses the same crates as the commands of `superpage`.
//! See docs/decisions/libhugetlbfs.md#1.

mod getopt;
mod hugeadm;
mod hugectl;
mod hugeedit;
mod pagesize;
mod stop;
mod voice;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use host::Root;

use crate::exit;
use stop::Stop;
use voice::Voice;

/// The commands as subcommands of `superpage`.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Configure pools of huge pages, as libhugetlbfs' hugeadm(8) does.
    #[command(disable_help_flag = true)]
    Hugeadm(Words),
    /// Run a program on huge pages, as libhugetlbfs' hugectl(8) does.
    #[command(disable_help_flag = true)]
    Hugectl(Words),
    /// Mark a program's segments for huge pages, as libhugetlbfs' hugeedit(8) does.
    #[command(disable_help_flag = true)]
    Hugeedit(Words),
    /// Print page sizes, as libhugetlbfs' pagesize(1) does.
    #[command(disable_help_flag = true)]
    Pagesize(Words),
}

/// All arguments after the command's name, not parsed by clap.
#[derive(Debug, clap::Args)]
pub struct Words {
    /// As hugeadm(8), hugectl(8), hugeedit(8) and pagesize(1) describe; see `NAME --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    words: Vec<OsString>,
}

struct Tool {
    name: &'static str,
    usage: &'static str,
    run: fn(&Root, &mut Voice, Vec<OsString>) -> Result<(), Stop>,
}

const HUGEADM: Tool = Tool { name: "hugeadm", usage: hugeadm::HELP, run: hugeadm::run };
const HUGECTL: Tool = Tool { name: "hugectl", usage: hugectl::HELP, run: hugectl::run };
const HUGEEDIT: Tool = Tool { name: "hugeedit", usage: hugeedit::HELP, run: hugeedit::run };
const PAGESIZE: Tool = Tool { name: "pagesize", usage: pagesize::HELP, run: pagesize::run };

/// If this process was started under a command's name (a hard or symbolic link), runs that command; otherwise `None`.
pub fn under_own_name() -> Option<ExitCode> {
    let mut words = std::env::args_os();
    let called = words.next()?;
    let name = Path::new(&called).file_name()?.to_str()?;
    let tool = [HUGEADM, HUGECTL, HUGEEDIT, PAGESIZE].into_iter().find(|tool| tool.name == name)?;
    Some(tool.start(words.collect()))
}

/// Runs a command as a subcommand of `superpage`.
pub fn run(command: Command) -> ExitCode {
    match command {
        Command::Hugeadm(words) => HUGEADM.start(words.words),
        Command::Hugectl(words) => HUGECTL.start(words.words),
        Command::Hugeedit(words) => HUGEEDIT.start(words.words),
        Command::Pagesize(words) => PAGESIZE.start(words.words),
    }
}

impl Tool {
    /// Runs the command. Every failure exits with 1, as scripts expect; the message gives the reason.
    fn start(&self, words: Vec<OsString>) -> ExitCode {
        let mut voice = Voice::new(self.name);
        let stop = match (self.run)(&Root::real(), &mut voice, words) {
            Ok(()) => return ExitCode::SUCCESS,
            Err(stop) => stop,
        };
        if let Stop::Words(failure) | Stop::Failed(failure) = &stop {
            voice.error(failure.to_string().replace('\n', " "));
        }
        if let Stop::Help | Stop::Words(_) = stop {
            exit::print_aside(self.usage);
        }
        ExitCode::from(u8::from(!matches!(stop, Stop::Help)))
    }
}

#[cfg(test)]
mod tests {
    use host::Root;

    /// Returns a fixture of `/proc` and `/sys` of another machine.
    pub fn fixture(machine: &str) -> Root {
        Root::at(format!(
            "{}/../../shared/host/tests/fixtures/{machine}",
            env!("CARGO_MANIFEST_DIR")
        ))
    }
}
