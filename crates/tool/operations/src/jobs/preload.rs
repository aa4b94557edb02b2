//! Checks that the dynamic loader can load an arm's preloaded libraries. The loader skips a library that it cannot
//! load, prints a message that nobody reads, and starts the program.
//! See docs/decisions/verdicts.md#3.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use launch::{Facts, Kind, Plan, Program, Recipe, Word};
use sys::spawn::{self, ChildSetup};
use sys::user::User;

use crate::Failure;

/// Fails with the loader's message if a library cannot be loaded, or if preloading cannot reach the program.
pub fn check(recipe: &Recipe, command: &[Word], search: &str) -> Result<(), Failure> {
    let named = recipe.variable("LD_PRELOAD").unwrap_or_default();
    let libraries = named.split([':', ' ']).filter(|library| !library.is_empty());
    let libraries: Vec<&str> = recipe.preload.iter().map(String::as_str).chain(libraries).collect();
    let Some(first) = libraries.first() else { return Ok(()) };
    // Another check reports a missing program.
    let name = command.first().map_or(OsStr::new(""), AsRef::as_ref);
    let why = match Program::find(name, search).map(|program| program.kind) {
        Ok(Kind::Static) => "it is statically linked",
        Ok(Kind::Privileged) => "it is set-user-ID or set-group-ID, and ld.so ignores preloads",
        // Our own loader cannot tell what another loader would do.
        Ok(Kind::OtherLoader(_)) => return Ok(()),
        _ => return libraries.into_iter().try_for_each(loads),
    };
    Err(Failure::usage(format!("`{first}` cannot be preloaded into {}: {why}", name.display())))
}

/// Fails if a plan preloads libsuperpage.so and `user`, who runs the program, may not read that file.
pub fn reaches(plan: &Plan, facts: &Facts, user: &User) -> Result<(), Failure> {
    let library = facts.runtime.as_ref().map(|path| path.display().to_string());
    let named = |path: &String| plan.environment.iter().any(|change| change.value.contains(path));
    let Some(library) = library.filter(named) else { return Ok(()) };
    let mut asked = Command::new("test");
    asked.args(["-r", &library]).stdin(Stdio::null()).stdout(Stdio::null());
    spawn::prepare(&mut asked, ChildSetup { user: Some(user.clone()), ..ChildSetup::default() });
    match asked.status() {
        Ok(status) if !status.success() => Err(Failure::cannot(format!(
            "arm {}: {} may not read {library}; copy superpage and the library to where everybody may, such as \
             /usr/local/bin and /usr/local/lib",
            plan.name, user.name
        ))),
        _ => Ok(()),
    }
}

/// Fails if the loader cannot load the library. Tries it on this program.
fn loads(library: &str) -> Result<(), Failure> {
    let cannot = |why: &str| {
        let install = launch::package_of(library);
        let install = install.map(|it| format!("; install {it} (Debian)")).unwrap_or_default();
        Err(Failure::usage(format!("`{library}` cannot be preloaded: {why}{install}")))
    };
    let Some(own) = sys::param::own_executable() else { return Ok(()) };
    let mut asked = Command::new(own);
    asked.arg("--version").env("LD_PRELOAD", library).env("LC_ALL", "C");
    let Ok(output) = asked.stdin(Stdio::null()).stdout(Stdio::null()).output() else {
        return Ok(());
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let Some(line) = said.lines().find(|line| line.contains("cannot be preloaded")) else {
        return Ok(());
    };
    // ld.so prints: object 'x' from LD_PRELOAD cannot be preloaded (why): ignored.
    let why = line.split_once("preloaded (").and_then(|(_, rest)| rest.rsplit_once("): "));
    cannot(why.map_or(line, |(why, _)| why))
}
