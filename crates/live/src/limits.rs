//! What of a design is carried out here, by what means, and what cannot be.

use host::{Root, Thp};
use policy::{Daemon as Task, Mapping, Policy, Reads};
use serde::Serialize;
use sys::pagemap::{Categories, Pagemap};

use crate::ask;
use crate::daemons::is_ours;
use crate::extent::{BYTES, PAGES, SCALE};

/// A rule of a design, and what is done about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The key, or the section, in the design's file.
    pub rule: &'static str,
    /// What the design wants.
    pub asked: &'static str,
    /// What is done in its place; `None`: nothing.
    pub done: Option<&'static str>,
}

/// Facts that a policy may read and that nobody tells us, by the rule that reads them.
const UNKNOWN: [(Reads, &str); 4] = [
    (Reads::COVERAGE, "which base pages were accessed lately (mapping.scan.sampling)"),
    (Reads::MISSES, "how many TLB misses each region has (mapping.scan)"),
    (Reads::AT_FAULT, "what allocation.when names, at each fault"),
    (Reads::OF_CANDIDATES, "what mapping.scan.when or unmapping.when names"),
];

/// Whether all facts that a design decides by can be had, or the first that cannot.
pub fn check_design(policy: &Policy) -> Result<(), String> {
    let reads = policy.reads();
    if let Some((_, fact)) = UNKNOWN.into_iter().find(|(fact, _)| reads.has(*fact)) {
        return Err(format!("it decides by a fact that is not known beside a program: {fact}"));
    }
    if !policy.is_eligible(&Mapping::default()) {
        let fact = "which mappings the program advised (allocation.eligible)";
        return Err(format!("it decides by a fact that is not known beside a program: {fact}"));
    }
    let sizes = policy.sizes();
    if policy.physical().is_ideal || !sizes.has(SCALE.superpage) {
        return Err("no kernel has its superpages (allocation.sizes, memory.ideal)".to_string());
    }
    Ok(())
}

/// Whether a design can be put in force on this machine, by trying; else what is missing and what would help.
pub fn check_machine(root: &Root) -> Result<(), String> {
    check_reading(root)?;
    sys::pidfd::may_collapse().map_err(|error| match error.errno() {
        libc::EPERM => format!(
            "superpages cannot be made in another process: {error}; it takes CAP_SYS_NICE: run superpage \
             as root, or let all its users do this: `setcap cap_sys_nice,cap_perfmon+ep` on its file"
        ),
        libc::ENOSYS | libc::EINVAL => {
            format!("superpages cannot be made in another process: {error}; it takes Linux 6.1")
        }
        _ => format!("superpages cannot be made in another process: {error}"),
    })
}

/// Whether what a design decides by can be seen on this machine.
pub fn check_reading(root: &Root) -> Result<(), String> {
    let size = Thp::pmd_size_of(root).map(|size| size.bytes());
    if root.page_size().bytes() != SCALE.base_page || size.as_ref().ok() != Some(&BYTES) {
        return Err("it takes transparent superpages of 2 MiB, of pages of 4 KiB".to_string());
    }
    let own = Pagemap::open(sys::param::own_pid());
    let page = SCALE.base_page;
    own.and_then(|own| own.scan(0, page, Categories::PRESENT, &mut Vec::new()))
        .map_err(|error| format!("page tables cannot be read: {error}; it takes Linux 6.7"))
}

/// What is done about the rules of a design that base pages alone do not carry out.
pub fn rules(policy: &Policy) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut add = |rule, asked, done| rules.push(Rule { rule, asked, done });
    let reserved = policy.physical().reserved;
    let daemons: Vec<Task> = policy.daemons().map(|(task, _)| task).collect();
    if !reserved.is_empty() {
        add(
            "allocation.form",
            "physical memory is kept for a reservation",
            Some("none is kept: pages lie where the kernel puts them"),
        );
        add(
            "mapping.when",
            "a reservation is mapped as a superpage in place",
            Some(
                "its pages are copied into one (MADV_COLLAPSE), by superpage, some milliseconds later",
            ),
        );
    }
    if ask::least_filled(policy) < PAGES || daemons.contains(&Task::Fill) {
        add(
            "preparation",
            "missing pages are zeroed in the reservation",
            Some(
                "they are zeroed when it is copied, and mapped at once, while little of what was filled is \
                 unused (16 to 64 MiB, a 64th of what a control group has left)",
            ),
        );
    }
    if reserved.iter().any(|order| order != SCALE.superpage) {
        add("allocation.sizes", "reservations smaller than 2 MiB", None);
    }
    if daemons.contains(&Task::Scan) {
        add(
            "mapping.scan",
            "a thread of the kernel copies base pages into superpages",
            Some(
                "superpage asks the kernel to (MADV_COLLAPSE); all regions with pages count as accessed",
            ),
        );
    }
    for (task, rule, asked) in [
        (Task::Evacuate, "deallocation.when", "inactive reservations are emptied"),
        (Task::Recover, "deallocation.bloat", "pages of zeros are taken from superpages"),
        (Task::Prezero, "preparation.prezero", "free memory is zeroed ahead"),
    ] {
        if daemons.contains(&task) && !is_ours(task) {
            add(rule, asked, None);
        }
    }
    rules
}
