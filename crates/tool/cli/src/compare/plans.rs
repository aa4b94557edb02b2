//! Formats the plans of an experiment as text.

use operations::jobs::Plans;

use crate::run::plan_in_words;

/// Formats the plan of each arm, and the pages that would be lent to pools.
pub fn in_words(plans: &Plans) -> String {
    let mut text = String::new();
    for (name, command) in &plans.service {
        text += &format!("{name}\n  sh -c        {command}\n");
    }
    for arm in &plans.arms {
        text += &plan_in_words(&arm.plan);
    }
    for arm in &plans.left_out {
        text += &format!("{}\n  left out     {}\n", arm.name, arm.why);
    }
    for line in &plans.would_lend {
        text += &format!("lend\n  {line}\n");
    }
    text
}
