//! On which pages the memory lay at its peak: one bar per arm, stacked by kind.

use host::coverage::Coverage;

use super::memory::covered;
use crate::document::Document;
use report::axis::{Axis, block, px};
use report::format::{self, known};
use report::frame;
use report::marks::swatch;
use report::markup::{Element, el};
use report::scale::percent;

/// A kind of memory: its class, its name, its bytes. Superpages first and solid, base pages hatched:
/// they can be told apart without any colour.
type Kind = (&'static str, &'static str, fn(&Coverage) -> u64);

const KINDS: [Kind; 7] = [
    ("hugetlb", "hugetlb", |c| c.hugetlb().bytes()),
    ("thp", "anonymous, THP", |c| c.anon_thp.bytes()),
    ("pmd", "shared memory, superpages", |c| c.shmem_pmd.bytes()),
    ("filepmd", "files, superpages", |c| c.file_pmd.bytes()),
    ("anon", "anonymous, base pages", |c| c.anon_base.bytes()),
    ("shmem", "shared memory, base pages", |c| c.shmem_base.bytes()),
    ("file", "files, base pages", |c| c.file_base.bytes()),
];

/// The bars with their key.
pub fn figure(document: &Document) -> Element {
    let all: Vec<Option<&Coverage>> =
        (0..document.arms.len()).map(|arm| covered(document, arm)).collect();
    let most = all.iter().flatten().map(|coverage| coverage.resident().bytes()).max().unwrap_or(0);
    let axis = Axis::bytes(most);
    let mut parts = Vec::new();
    let mut top = 0.0;
    for (arm, coverage) in document.arms.iter().zip(&all) {
        let told = match coverage {
            None => "unknown: no scan near the peak".to_string(),
            Some(coverage) => told(coverage),
        };
        let name = el("tspan").class("name").text(format::name(&arm.name, 12));
        let label = el("text").with("x", 0).with("y", px(top + 14.0));
        let label = label.add(el("title").text(&arm.name)).add(name);
        parts.push(label.add(el("tspan").with("dx", 8).text(told)));
        let mut from = 0u64;
        for (class, name, bytes) in KINDS {
            let Some(bytes) = coverage.map(bytes).filter(|bytes| *bytes > 0) else { continue };
            let start = axis.place(from as f64);
            from = from.saturating_add(bytes);
            let width = percent((axis.place(from as f64) - start).max(0.0));
            let bar = block(percent(start), px(top + 21.0), width, 22);
            let told = format!("{}, {name}: {}", arm.name, format::bytes(bytes as f64));
            parts.push(bar.class(format!("kind {class}")).add(el("title").text(told)));
        }
        top += 54.0;
    }
    let present = |kind: &&Kind| all.iter().flatten().any(|coverage| kind.2(coverage) > 0);
    let keys = KINDS
        .iter()
        .filter(present)
        .map(|(class, name, _)| el("span").class("item").add(swatch(class)).text(name));
    let title = "On which pages the memory lay at its peak";
    let about = "One bar per arm; solid parts are superpages, hatched parts base pages.";
    let chart = frame::chart("coverage", false, top + 22.0, title, about);
    let chart = chart.all(axis.across(top, 5)).all(parts);
    let caption = el("figcaption").text(title);
    el("figure").add(caption).add(chart).add(el("p").class("keys").all(keys))
}

fn told(coverage: &Coverage) -> String {
    let resident = format::bytes(coverage.resident().bytes() as f64);
    let share = known(coverage.ratio(), format::percent);
    format!("{share} of {resident} on superpages")
}
