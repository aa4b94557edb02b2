//! Formats the plan of a run.

use launch::{Plan, Promise, ThpRequest};
use report::format as words;

use crate::exit::{self, Done, Failure};
/// Prints a plan, and the pages that would be lent for it.
pub(super) fn print_plan(plan: &Plan, would_lend: &[String], json: bool) -> Result<Done, Failure> {
    if json {
        let body = serde_json::json!({ "plan": plan, "would_lend": would_lend });
        exit::print_json("superpage.plan/1", body)?;
    } else {
        exit::print(&plan_in_words(plan))?;
        for line in would_lend {
            exit::print(&format!("  lend         {line}\n"))?;
        }
    }
    Ok(Done::Fine)
}

/// Formats a plan; `compare --dry-run` prints it for each arm.
pub fn plan_in_words(plan: &Plan) -> String {
    use std::fmt::Write;
    let mut text = format!("{}\n", plan.name);
    let mut line = |key: &str, value: &str| {
        let _ = writeln!(text, "  {key:<12} {value}");
    };
    line("start", &plan.program.path.display().to_string());
    if !plan.arguments.is_empty() {
        line("arguments", &words::command(&plan.arguments));
    }
    let thp = match plan.thp {
        ThpRequest::Inherit => "",
        ThpRequest::System => "the system's settings (prctl PR_SET_THP_DISABLE 0)",
        ThpRequest::Disabled => "disabled for it and its children (prctl PR_SET_THP_DISABLE 1)",
        ThpRequest::OnlyAdvised => {
            "only where it advises them (prctl PR_SET_THP_DISABLE 1, PR_THP_DISABLE_EXCEPT_ADVISED)"
        }
    };
    if !thp.is_empty() {
        line("THP", thp);
    }
    for change in &plan.environment {
        line("set", &format!("{}={}", change.variable, change.value));
        line("", &format!("({})", change.why));
    }
    let promise = match plan.promise {
        Promise::Nothing => "nothing is promised; coverage is reported",
        Promise::BasePages => "no superpage at all, or it did not take effect",
        Promise::SmallerSuperpages => {
            "no superpages of the largest size, or it did not take effect"
        }
        Promise::Superpages => {
            "the memory that can be on superpages is (--min-coverage), or it did not take effect"
        }
    };
    let is_expected = plan.promise == Promise::Nothing || !plan.is_out_of_reach();
    let doubt = if is_expected { "" } else { "; not to be expected: see the note" };
    line("promise", &format!("{promise}{doubt}"));
    for note in plan.notes.iter() {
        line("note", &note.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use launch::{Facts, Kind, Pages, Program, Recipe};

    use super::*;

    #[test]
    fn a_promise_that_cannot_be_kept_is_doubted() {
        let facts = Facts { thp_mode: Some("madvise".to_string()), ..Facts::default() };
        let doubted = |kind, pages| {
            let path = "/bin/app".into();
            let program = Program { path, kind, allocator: None, runtime: None };
            let recipe = Recipe::new(pages);
            let plan = Plan::resolve(&recipe, program, None, Vec::new(), &facts).unwrap();
            plan_in_words(&plan).contains("not to be expected")
        };
        assert!(doubted(Kind::Static, Pages::Thp));
        assert!(!doubted(Kind::Static, Pages::Base) && !doubted(Kind::Glibc, Pages::Thp));
    }
}
