//! Says which rules of a design are applied, by what mechanism, and which are not.

use host::{Root, Thp};
use policy::{Daemon as Task, Mapping, Policy, Reads};
use serde::Serialize;
use sys::pagemap::{Categories, Pagemap};

use crate::ask;
use crate::daemons::is_ours;
use crate::extent::{BYTES, PAGES, SCALE};

/// A rule of a design, and what superpage or the kernel does in its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Key or section in the design's file.
    pub rule: &'static str,
    /// What the design requires.
    pub asked: &'static str,
    /// What is done instead; `None`: nothing.
    pub done: Option<&'static str>,
    /// Whether the rule decides if superpages are made, but is not applied.
    #[serde(skip)]
    pub decides: bool,
}

/// Pages that the first touch of an extent gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fresh {
    /// A base page. Superpages are made by copying.
    BasePages,
    /// A base page within a 2 MiB frame (of a file in memory). The frame is mapped as a superpage later.
    Frames,
    /// A superpage, by the kernel's fault in advised memory, for designs that [fill it at the first
    /// fault](crate::is_at_first_fault). Other superpages are made by copying.
    Superpages,
}

/// Facts that policies may read but that are unavailable here, and the rules that read them.
const UNKNOWN: [(Reads, &str); 4] = [
    (Reads::COVERAGE, "which base pages were accessed lately (mapping.scan.sampling)"),
    (Reads::MISSES, "how many TLB misses each region has (mapping.scan)"),
    (Reads::AT_FAULT, "what allocation.when names, at each fault"),
    (Reads::OF_CANDIDATES, "what mapping.scan.when or unmapping.when names"),
];

/// Fails with the first unavailable fact by which a design decides.
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

/// Checks by a trial whether a design can be applied on this machine. The error names the missing feature and the
/// remedy.
pub fn check_machine(root: &Root) -> Result<(), String> {
    check_reading(root)?;
    sys::pidfd::may_collapse().map_err(|error| {
        // Without the pid: it is that of a child which only served the trial.
        let what = format!(
            "superpages of another process can be neither made nor split: {}: {}",
            error.call, error.source
        );
        match error.errno() {
            libc::EPERM => format!(
                "{what}; this needs CAP_SYS_NICE: run superpage as root, or let all its users do this: \
                 `setcap cap_sys_nice,cap_perfmon+ep` on its file"
            ),
            libc::ENOSYS | libc::EINVAL => format!("{what}; this needs Linux 6.1"),
            _ => what,
        }
    })
}

/// Checks that the facts by which designs decide are available on this machine.
pub fn check_reading(root: &Root) -> Result<(), String> {
    let size = Thp::pmd_size_of(root).map(|size| size.bytes());
    if root.page_size().bytes() != SCALE.base_page || size.as_ref().ok() != Some(&BYTES) {
        return Err("this needs pages of 4 KiB and transparent superpages of 2 MiB".to_string());
    }
    let own = Pagemap::open(sys::param::own_pid());
    let page = SCALE.base_page;
    own.and_then(|own| own.scan(0, page, Categories::PRESENT, &mut Vec::new()))
        .map_err(|error| format!("page tables cannot be read: {error}; this needs Linux 6.7"))
}

/// Checks by a trial whether superpages can be made in place on this machine.
pub fn check_in_place() -> Result<(), String> {
    sys::mount::superpage_files().map(drop).map_err(|error| {
        format!("there can be no files of superpages: {error}; this needs CAP_SYS_ADMIN: run superpage as root")
    })
}

/// Checks that a design reserves superpages, which can be in one frame from the first page.
pub fn check_reserves(policy: &Policy) -> Result<(), String> {
    match policy.physical().reserved.has(SCALE.superpage) {
        true => Ok(()),
        false => Err("it reserves no superpages (allocation.form = \"reservation\")".to_string()),
    }
}

/// Returns the rules of a design that work differently if its reservations are pages of the hugetlb pool.
pub fn rules_on_pool(policy: &Policy) -> Vec<Rule> {
    let done = |rule, asked, done| Rule { rule, asked, done: Some(done), decides: false };
    let mut rules = vec![
        done(
            "allocation.form",
            "physical memory is kept for a reservation from its first fault",
            "it is kept from the call that maps it (MAP_HUGETLB), and cannot be broken while it is mapped",
        ),
        Rule {
            decides: !ask::is_at_first_fault(policy),
            ..done(
                "mapping.when",
                "a reservation is mapped as a superpage when it has enough pages",
                "it is one at its first fault: there are no base pages on the pool",
            )
        },
        done(
            "preparation",
            "missing pages are zeroed in the reservation",
            "all are zeroed in the first fault",
        ),
    ];
    if policy.physical().reserved.iter().any(|order| order != SCALE.superpage) {
        let (rule, asked) = ("allocation.sizes", "reservations smaller than 2 MiB");
        rules.push(Rule { rule, asked, done: None, decides: false });
    }
    rules
}

/// Returns the rules of a design that work differently if its memory starts on `fresh` pages.
pub fn rules(policy: &Policy, fresh: Fresh) -> Vec<Rule> {
    let mut rules = Vec::new();
    let mut add = |rule, asked, done| rules.push(Rule { rule, asked, done, decides: false });
    let reserved = policy.physical().reserved;
    let daemons: Vec<Task> = policy.daemons().map(|(task, _)| task).collect();
    if !reserved.is_empty() {
        add(
            "allocation.form",
            "physical memory is kept for a reservation",
            Some(match fresh {
                Fresh::Frames => {
                    "in large private mappings the fault of a reservation's first page gives it a frame (a file in \
                     memory), zeroed at once; it is not broken when memory is short; for other memory none is kept"
                }
                Fresh::Superpages => {
                    "the kernel's fault takes a whole superpage; where none is free, none is kept"
                }
                Fresh::BasePages => "none is kept: pages lie where the kernel puts them",
            }),
        );
        add(
            "mapping.when",
            "a reservation is mapped as a superpage in place",
            Some(match fresh {
                Fresh::Frames => {
                    "superpage has the kernel map its frame as one (MADV_COLLAPSE of a file's mapping); where it has none \
                     its pages are copied"
                }
                Fresh::Superpages => {
                    "by the kernel's fault, in memory that glibc and libsuperpage.so advise as far as free memory is \
                     contiguous; superpage copies other pages into one (MADV_COLLAPSE) once they no longer change, \
                     where this is permitted"
                }
                Fresh::BasePages => {
                    "superpage copies its pages into one (MADV_COLLAPSE) after they qualified; while the program runs, \
                     copies may hold it up for 2 % of its CPU time beyond the faults that they save; full ones wait until \
                     the program rests"
                }
            }),
        );
    }
    if ask::least_filled(policy) < PAGES || daemons.contains(&Task::Fill) {
        add(
            "preparation",
            "missing pages are zeroed in the reservation",
            Some(match fresh {
                Fresh::Frames => {
                    "a frame is zeroed whole when it is first touched; where pages are copied, missing ones are \
                     zeroed then"
                }
                Fresh::Superpages => {
                    "by the kernel's fault, all at once; where pages are copied, missing ones are zeroed then"
                }
                Fresh::BasePages => {
                    "they are zeroed when the reservation is copied, and mapped at once, while little filled memory \
                     is unused (16 to 64 MiB, a 64th of what a control group has left); if consecutive extents have \
                     enough pages, the next ones are prepared before their first touch"
                }
            }),
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
                "superpage asks the kernel to (MADV_COLLAPSE); while the program runs, that may hold it up for 2 % of its \
                 CPU time; all regions with pages count as accessed",
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
