//! Turns a user's command into plans: finds the files, including a wrapper's.

use std::ffi::OsStr;

use crate::{Facts, LaunchError, Plan, Program, Recipe, Word};

/// Plans `command` (program and arguments) under `recipe`. Programs are searched along `search`, a value of PATH. If
/// the recipe has a wrapper, the wrapper is started. The program is still searched, so that a missing program is an
/// error before anything runs.
pub fn resolve(
    recipe: &Recipe,
    command: &[Word],
    search: &str,
    facts: &Facts,
) -> Result<Plan, LaunchError> {
    let name = command.first().map_or(OsStr::new(""), AsRef::as_ref);
    let program = Program::find(name, search)?;
    let Some((wrapper, wrapper_arguments)) = recipe.wrapper.split_first() else {
        return Plan::resolve(recipe, program, None, command[1..].to_vec(), facts);
    };
    let wrapper = Program::find(wrapper, search)?;
    let target = program.path.clone().into_os_string();
    let arguments =
        wrapper_arguments.iter().map(|word| word.as_str().into()).chain([target.into()]);
    let arguments = arguments.chain(command[1..].iter().cloned()).collect();
    Plan::resolve(recipe, wrapper, Some(&program), arguments, facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(recipe: &str, command: &[&str]) -> Result<Plan, LaunchError> {
        let command: Vec<Word> = command.iter().map(|word| Word::from(*word)).collect();
        resolve(&recipe.parse().unwrap(), &command, "/bin:/usr/bin", &Facts::default())
    }

    #[test]
    fn a_wrapper_comes_first_and_gets_the_programs_path() {
        let plan = plan("x: -- env A=1", &["sh", "-c", "true"]).unwrap();
        assert!(plan.program.path.ends_with("env"));
        assert_eq!(plan.arguments[0], "A=1");
        assert!(plan.arguments[1].text().ends_with("/sh"), "{:?}", plan.arguments);
        assert_eq!(plan.arguments[2..], ["-c", "true"]);
    }

    #[test]
    fn what_is_missing_is_found_before_anything_runs() {
        for (recipe, command) in
            [("x: -- env", &["no-such"][..]), ("x: -- no-such", &["sh"]), ("base", &[])]
        {
            assert!(matches!(plan(recipe, command), Err(LaunchError::ProgramNotFound(_))));
        }
    }
}
