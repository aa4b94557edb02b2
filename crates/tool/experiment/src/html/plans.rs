//! Formats the plan of each arm: settings, reasons, and unreachable parts.

use launch::{Kind, Promise, ThpRequest};

use crate::analysis::asks_for_some;
use crate::document::{Arm, Document};
use report::format;
use report::marks::named;
use report::markup::{Element, el};
use report::tables::{pairs, table};

/// Formats the section.
pub fn section(document: &Document) -> Element {
    let section = el("section").add(el("h2").text("Configuration of each arm"));
    let arms = document.arms.iter().enumerate().map(|(index, arm)| plan(index, arm));
    let section = section.add(el("div").class("tables").all(arms));
    let section = if document.left_out.is_empty() {
        section
    } else {
        let rows = document.left_out.iter().map(|arm| (arm.name.clone(), arm.why.clone()));
        section.add(pairs("Requested arms that could not run here", rows.collect()))
    };
    let told = el("h3").text("Settings changed for the runs and restored afterwards");
    section.add(told).add(list(&document.lent, "None: no setting of the machine was changed."))
}

fn plan(index: usize, arm: &Arm) -> Element {
    let (recipe, plan) = (&arm.recipe, &arm.plan);
    let promise = match plan.promise {
        Promise::Nothing if asks_for_some(recipe, plan) => "some superpages, however many",
        Promise::Nothing => "nothing; any pages count",
        Promise::BasePages => "no superpages",
        Promise::SmallerSuperpages => "no superpages of the largest size",
        Promise::Superpages => "superpages for the eligible anonymous memory",
    };
    let thp = match plan.thp {
        ThpRequest::Inherit => "nothing; inherited settings stay",
        ThpRequest::System => "the system's settings decide (PR_SET_THP_DISABLE cleared)",
        ThpRequest::Disabled => "disabled for it (PR_SET_THP_DISABLE set)",
        ThpRequest::OnlyAdvised => "only where advised (PR_SET_THP_DISABLE, except advised)",
    };
    let kind = match &plan.program.kind {
        Kind::Glibc => "dynamic, loaded by glibc".to_string(),
        Kind::OtherLoader(path) => format!("dynamic, loaded by {path}"),
        Kind::Static => "static".to_string(),
        Kind::Instrumented(tool) => format!("with {}", tool.name()),
        Kind::Privileged => "set-user-id or set-group-id".to_string(),
        Kind::Script(line) => format!("script of {line}"),
        Kind::Unknown => format::UNKNOWN.to_string(),
    };
    let mut rows = vec![
        ("pages requested", recipe.pages.to_string()),
        ("promise, verified by reading back", promise.to_string()),
        ("transparent superpages requested from the kernel", thp.to_string()),
        ("program", plan.program.path.display().to_string()),
        ("kind of program", kind),
        (
            "arguments",
            if plan.arguments.is_empty() {
                "none".into()
            } else {
                format::command(&plan.arguments)
            },
        ),
    ];
    if !recipe.wrapper.is_empty() {
        rows.push(("wrapper", format::command(&recipe.wrapper)));
    }
    if !recipe.preload.is_empty() {
        rows.push(("preloaded", recipe.preload.join(", ")));
    }
    if arm.is_noise_floor {
        rows.push(("role", "the reference again, to measure the noise floor".to_string()));
    } else if index == 0 {
        rows.push(("role", "the reference".to_string()));
    }
    let changes = plan
        .environment
        .iter()
        .map(|change| vec![change.variable.clone(), change.value.clone(), change.why.clone()]);
    let changes: Vec<Vec<String>> = changes.collect();
    let part = el("div").add(el("h3").add(named(index, &arm.name)));
    let part = part.add(pairs("Plan", rows));
    let part = if changes.is_empty() {
        part.add(el("p").class("small").text("Nothing is set in its environment."))
    } else {
        let head = ["variable", "value", "effect"].map(String::from).to_vec();
        part.add(table("Set in its environment", false, head, changes))
    };
    if plan.notes.is_empty() { part } else { part.add(list(&plan.notes.texts(), "")) }
}

fn list(lines: &[String], none: &str) -> Element {
    if lines.is_empty() {
        return el("p").class("small").text(none);
    }
    el("ul").all(lines.iter().map(|line| el("li").text(line)))
}
