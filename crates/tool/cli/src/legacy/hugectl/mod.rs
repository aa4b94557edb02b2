//! `hugectl`: sets up environment and preload so that parts of a program's memory are on superpages. Then it executes
//! the program in place of this process, so that pid and exit status are the program's.

mod environment;
mod options;
mod program;

pub use options::HELP;

use std::env;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use host::Root;
use launch::{LaunchError, Program};
use sys::prctl::ThpControl;
use sys::spawn::ChildSetup;

use self::environment::{Decision, SystemState};
use self::options::{Library, Request};
use self::program::Target;
use super::stop::Stop;
use super::voice::Voice;
use crate::exit::{self, Failure};
use operations::facts;

const LIBRARY: &str = "libsuperpage.so";

pub fn run(_: &Root, voice: &mut Voice, words: Vec<OsString>) -> Result<(), Stop> {
    let request = options::read(voice, words)?;
    if request.command.is_empty() && !request.dry_run {
        return Err(Stop::Words(Failure::usage("name a program to run")));
    }
    let program = find(&request)?;
    let facts = facts::read();
    let around = SystemState {
        target: program.as_ref().map(Target::from_program),
        library: library(&request.library, facts.runtime.clone()),
        facts,
        ld_library_path: env::var("LD_LIBRARY_PATH").ok(),
        has_report: env::var_os(abi::environment::REPORT).is_some(),
        verbosity: voice.level(),
    };
    let decision = environment::decide(&request, &around);
    for (variable, value) in &decision.environment {
        voice.inform(format!("{variable}='{value}'"));
    }
    decision.warnings.iter().for_each(|line| voice.warn(line));
    match program {
        Some(program) if !request.dry_run => become_program(&request, &program, decision),
        _ => Ok(exit::print(&assignments(&decision))?),
    }
}

/// Finds the program; a dry run does not need an existing one.
fn find(request: &Request) -> Result<Option<Program>, Failure> {
    let Some(name) = request.command.first() else { return Ok(None) };
    let Some(name) = name.to_str() else {
        return Err(Failure::usage(format!("{name:?}: a program's name must be UTF-8")));
    };
    match Program::find(name, &facts::search_path()) {
        Err(_) if request.dry_run => Ok(None),
        found => found.map(Some).map_err(not_run),
    }
}

fn library(place: &Library, own: Option<PathBuf>) -> Result<PathBuf, String> {
    let dirs: Vec<PathBuf> = match place {
        Library::Own => {
            return own.ok_or_else(|| {
                format!("{LIBRARY} was found neither beside this command nor in ../lib; install it")
            });
        }
        Library::Below(dir) => {
            ["", "lib", "lib64"].iter().map(|sub| Path::new(dir).join(sub)).collect()
        }
        // Search LD_LIBRARY_PATH, then the standard directories, as ld.so(8) does. Directories that are only in ld.so's
        // cache are not searched, because the cache's format is private.
        Library::OnPath => {
            let list = env::var("LD_LIBRARY_PATH").unwrap_or_default();
            let listed = list.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from);
            let usual = ["/usr/local/lib", "/lib", "/usr/lib", "/lib64", "/usr/lib64"];
            let triplet = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
            listed.chain(usual.map(PathBuf::from)).chain([PathBuf::from(triplet)]).collect()
        }
    };
    let found = dirs.iter().map(|dir| dir.join(LIBRARY)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        format!("{LIBRARY} is in none of {}", dirs.join(", "))
    })
}

fn assignments(decision: &Decision) -> String {
    let mut text = String::new();
    for (variable, value) in &decision.environment {
        let value = value.replace('\'', r"'\''");
        let _ = writeln!(text, "{variable}='{value}'");
    }
    text
}

fn become_program(request: &Request, program: &Program, decision: Decision) -> Result<(), Stop> {
    let mut command = Command::new(&program.path);
    // Pass the name as typed as argv[0], like execvp(3).
    command.arg0(&request.command[0]).args(&request.command[1..]).envs(decision.environment);
    let thp = decision.allow_thp.then_some(ThpControl::System);
    sys::spawn::prepare(&mut command, ChildSetup { thp, ..ChildSetup::default() });
    let source = command.exec();
    let program = program.path.clone();
    Err(not_run(LaunchError::Start { program, source, remedy: "" }).into())
}

fn not_run(error: LaunchError) -> Failure {
    Failure::usage(format!("exec failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_survive_a_shell() {
        let environment =
            vec![("A".to_string(), "it's".to_string()), ("B".to_string(), "x:y".to_string())];
        let decision = Decision { environment, ..Decision::default() };
        assert_eq!(assignments(&decision), "A='it'\\''s'\nB='x:y'\n");
    }

    #[test]
    fn the_library_is_where_it_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lib64")).unwrap();
        let below = Library::Below(dir.path().display().to_string());
        assert!(library(&below, None).unwrap_err().contains("lib64"));
        let path = dir.path().join("lib64").join(LIBRARY);
        std::fs::write(&path, "").unwrap();
        assert_eq!(library(&below, None), Ok(path));
        assert_eq!(library(&Library::Own, Some("/x".into())), Ok("/x".into()));
        assert!(library(&Library::Own, None).is_err());
    }
}
