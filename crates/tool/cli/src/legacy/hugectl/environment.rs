//! Decides the environment in which one program runs for a request, and warns about requests that have no effect. The
//! program always starts, as with libhugetlbfs. The decision uses facts alone, so that `--dry-run` tries nothing.
//!
//! Two libraries can provide superpages. libsuperpage.so, preloaded, backs any program that loads it. A program linked
//! with libhugetlbfs (the original, or our replacement of the same name) backs its own text, data and shared memory, as
//! the `HUGETLB_*` variables say; preloading a second library for the same memory would move it twice. libsuperpage.so
//! backs malloc in both cases, because libhugetlbfs cannot since glibc 2.34.
//! See docs/decisions/libhugetlbfs.md#2.

use std::path::PathBuf;

use launch::{
    Facts, Fallback, Kind, LaunchError, Memory, Pages, Plan, Pool, Program, Recipe, Text,
    ThpRequest,
};
use units::PageSize;

use super::options::{Library, PagesRequest, Preload, Request};
use super::program::Target;
use crate::legacy::voice::{HIGHEST, WARNINGS};

/// The environment and the warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Variables in printing order, each once.
    pub environment: Vec<(String, String)>,
    /// Enable THP for the process, even if it inherits a disabled state.
    pub allow_thp: bool,
    /// Requests that work differently than expected, or not at all.
    pub warnings: Vec<String>,
}

/// Facts about the system that the decision depends on.
#[derive(Debug)]
pub struct SystemState {
    /// The program; `None` in a dry run without one.
    pub target: Option<Target>,
    /// The machine and the environment.
    pub facts: Facts,
    /// libsuperpage.so, or why there is none.
    pub library: Result<PathBuf, String>,
    /// The current value of LD_LIBRARY_PATH.
    pub ld_library_path: Option<String>,
    /// Whether SUPERPAGE_REPORT is already set.
    pub has_report: bool,
    /// Verbosity of the libraries.
    pub verbosity: u8,
}

/// Decides the environment of a program.
pub fn decide(request: &Request, around: &SystemState) -> Decision {
    let nobody = Target::default();
    let target = around.target.as_ref().unwrap_or(&nobody);
    let mut decision = Decision::default();
    if around.verbosity == HIGHEST {
        decision.set("HUGETLB_DEBUG", "yes");
    }
    decision.set("HUGETLB_VERBOSE", around.verbosity.to_string());
    if let Library::Below(path) = &request.library {
        let old = around.ld_library_path.as_deref().filter(|list| !list.is_empty());
        // Append no colon for an empty list: an empty entry means the working directory.
        let old = old.map_or(String::new(), |list| format!(":{list}"));
        let list = match PathBuf::from(path).join("libhugetlbfs.so").exists() {
            true => format!("{path}{old}"),
            false => format!("{path}/lib:{path}/lib64{old}"),
        };
        decision.set("LD_LIBRARY_PATH", list);
    }
    let marked = |mark: bool, off: bool| (mark && !off).then_some(PagesRequest::Default);
    let is_unsaid = request.text.is_none() && request.data.is_none();
    let text = request.text.clone().or(marked(target.marked_text && is_unsaid, request.no_text));
    let data = request.data.clone().or(marked(target.marked_data && is_unsaid, request.no_data));
    decision.segments(request, &text, &data);
    match &request.heap {
        Some(wish) => decision.set("HUGETLB_MORECORE", wish.text().unwrap_or("yes")),
        None if request.thp => decision.set("HUGETLB_MORECORE", "thp"),
        None => {}
    }
    if request.shm.is_some() {
        decision.set("HUGETLB_SHM", "yes");
    }
    let by_us = |wish: &Option<PagesRequest>| wish.clone().filter(|_| !target.has_libhugetlbfs);
    let parts = [
        ("heap", request.heap.clone()),
        ("shm", by_us(&request.shm)),
        ("text", by_us(&text)),
        ("data", by_us(&data)),
    ];
    let mut ours: Vec<(&str, Pages)> = Vec::new();
    if request.thp {
        ours.push(("heap", Pages::Thp));
    }
    let default = around.facts.pools.first().map(|pool| pool.size);
    for (part, wish) in parts {
        // Omit the size if it is the default pool's.
        let size = wish.map(|wish| wish.size().filter(|size| Some(*size) != default));
        ours.extend(size.map(|size| (part, Pages::Hugetlb(size))));
    }
    decision.for_linked_programs(request, target);
    if ours.is_empty() {
        decision.without_preload(request, around, target);
    } else {
        decision.check_reach(request, target, &ours);
        decision.set_library_variables(request, around, ours);
    }
    decision.check_pools(request, &around.facts, [&text, &data]);
    decision
}

impl Decision {
    fn set(&mut self, variable: impl Into<String>, value: impl Into<String>) {
        self.environment.push((variable.into(), value.into()));
    }

    /// Sets HUGETLB_ELFMAP to the requested segments or `no`. Without options about segments, the library reads the
    /// marks in the program.
    fn segments(
        &mut self,
        request: &Request,
        text: &Option<PagesRequest>,
        data: &Option<PagesRequest>,
    ) {
        let is_said = request.text.is_some() || request.data.is_some();
        if !(is_said || request.no_text || request.no_data) {
            return;
        }
        let one = |letter: &str, wish: &Option<PagesRequest>| {
            let size = wish.as_ref()?.text().map_or(String::new(), |size| format!("={size}"));
            Some(format!("{letter}{size}"))
        };
        let words: Vec<String> = [one("R", text), one("W", data)].into_iter().flatten().collect();
        let value = if words.is_empty() { "no".to_string() } else { words.join(":") };
        self.set("HUGETLB_ELFMAP", value);
    }

    fn without_preload(&mut self, request: &Request, around: &SystemState, target: &Target) {
        let is_asked = target.has_libhugetlbfs || request.share_text || around.target.is_none();
        if !is_asked && request.preload != Preload::No {
            self.warnings.push("none of the requests applies to this program".to_string());
        }
    }

    fn check_reach(&mut self, request: &Request, target: &Target, ours: &[(&str, Pages)]) {
        if request.preload == Preload::No {
            let parts: Vec<&str> = ours.iter().map(|(part, _)| *part).collect();
            self.warnings.push(format!(
                "nothing is preloaded: superpages for {} only if the program is linked with \
                 libsuperpage or libhugetlbfs",
                parts.join(", ")
            ));
        } else if let Some(why) = &target.unreached {
            let name = &target.name;
            self.warnings.push(format!("{name} cannot be reached by a preloaded library: {why}"));
        }
    }

    /// Applies the options that only a libhugetlbfs linked into the program supports.
    fn for_linked_programs(&mut self, request: &Request, target: &Target) {
        // --no-preload implies that the program is linked with libhugetlbfs, perhaps statically.
        let is_linked = target.has_libhugetlbfs || request.preload == Preload::No;
        if request.no_reserve {
            self.set("HUGETLB_NO_RESERVE", "yes");
            if !is_linked {
                self.warnings.push(
                    "--no-reserve: memory is reserved all the same, because a fault without a \
                     reservation kills the program when the pool is empty; what the pool cannot \
                     hold gets base pages"
                        .to_string(),
                );
            }
        }
        if request.share_text {
            self.set("HUGETLB_SHARE", "1");
            if !is_linked {
                self.warnings.push(
                    "--share-text: text on superpages is only shared by programs linked with \
                     libhugetlbfs; each process has its own"
                        .to_string(),
                );
            }
        }
    }

    /// Sets the variables of libsuperpage.so, as every launcher of this command does.
    fn set_library_variables(
        &mut self,
        request: &Request,
        around: &SystemState,
        mut ours: Vec<(&str, Pages)>,
    ) {
        // Drop sizes without a pool, about which `check_pools` warns: they would make the plan fail for all memory.
        let is_there = |size: PageSize| around.facts.pools.iter().any(|pool| pool.size == size);
        ours.retain(|(_, pages)| match pages {
            Pages::Hugetlb(Some(size)) => is_there(*size),
            Pages::Hugetlb(None) => !around.facts.pools.is_empty(),
            _ => true,
        });
        let Some((first, pages)) = ours.first().copied() else { return };
        let (ours, others): (Vec<_>, Vec<_>) =
            ours.into_iter().partition(|(_, other)| *other == pages);
        for (other, _) in others {
            self.warnings.push(format!(
                "{other} stays on base pages: it is to have other pages than {first}, and a process \
                 can have only one kind"
            ));
        }
        let has = |name: &str| ours.iter().any(|(part, _)| *part == name);
        let memory = Memory {
            heap: has("heap"),
            shm: has("shm"),
            text: has("text").then_some(Text::File),
            data: has("data"),
            ..Memory::default()
        };
        // Apply libhugetlbfs' rule: memory that the pool cannot hold gets base pages.
        let recipe = Recipe { memory, fallback: Fallback::Base, ..Recipe::new(pages) };
        let library = match &around.library {
            Ok(path) => path.clone(),
            Err(why) => return self.warnings.push(why.clone()),
        };
        let facts = Facts { runtime: Some(library), ..around.facts.clone() };
        // `check_reach` has already checked the program.
        let any =
            Program { path: PathBuf::new(), kind: Kind::Unknown, allocator: None, runtime: None };
        match Plan::resolve(&recipe, any, None, Vec::new(), &facts) {
            Err(LaunchError::NoThp) => {
                self.warnings
                    .push("this kernel has no transparent superpages; use --heap".to_string());
            }
            Err(error) => self.warnings.push(error.to_string()),
            Ok(plan) => {
                self.allow_thp = plan.thp == ThpRequest::System;
                let changes = plan.environment.into_iter().filter(|change| {
                    request.preload != Preload::No || change.variable != "LD_PRELOAD"
                });
                changes.for_each(|change| self.set(change.variable, change.value));
                // exec replaces this process, so the library must print the report itself.
                if around.verbosity >= WARNINGS && !around.has_report {
                    self.set(abi::environment::REPORT, abi::environment::REPORT_SHORTAGE);
                }
            }
        }
    }

    fn check_pools(
        &mut self,
        request: &Request,
        facts: &Facts,
        segments: [&Option<PagesRequest>; 2],
    ) {
        let wishes = [&request.heap, &request.shm].into_iter().chain(segments).flatten();
        let default = facts.pools.first().map(|pool| pool.size);
        let mut sizes: Vec<Option<PageSize>> = wishes.map(|wish| wish.size().or(default)).collect();
        sizes.sort();
        sizes.dedup();
        self.warnings.extend(sizes.into_iter().filter_map(|size| refusal(size, &facts.pools)));
    }
}

/// Returns why the pool of `size` has no pages; `None` if it has some.
fn refusal(size: Option<PageSize>, pools: &[Pool]) -> Option<String> {
    let pool = match size {
        None => pools.first(),
        Some(size) => pools.iter().find(|pool| pool.size == size),
    };
    let Some(pool) = pool else {
        let has: Vec<String> = pools.iter().map(|pool| pool.size.to_string()).collect();
        let has = if has.is_empty() { "none".to_string() } else { has.join(", ") };
        let asked = size.map_or("huge".to_string(), |size| size.to_string());
        return Some(format!("this machine has no hugetlb pool of {asked} pages; it has {has}"));
    };
    let Pool { size, total, free, reserved, overcommit_left, .. } = *pool;
    let is_empty = free.saturating_sub(reserved) + overcommit_left == 0;
    is_empty.then(|| {
        format!(
            "the hugetlb pool of {size} pages is empty ({total} in all, {free} free, {reserved} \
             reserved); fill it with: hugeadm --pool-pages-min {}:+N (as root)",
            host::pool::exact(size.bytes())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::options::tests::request;
    use super::*;

    fn pool(bytes: u64, free: u64) -> Pool {
        let size = PageSize::new(bytes).unwrap();
        Pool { size, total: free, free, reserved: 0, overcommit_left: 0, is_gigantic: false }
    }

    fn system_state(target: Target) -> SystemState {
        SystemState {
            target: Some(target),
            facts: Facts {
                thp_mode: Some("madvise".to_string()),
                pools: vec![pool(2 << 20, 10), pool(1 << 30, 0)],
                ..Facts::default()
            },
            library: Ok(PathBuf::from("/lib/libsuperpage.so")),
            ld_library_path: None,
            has_report: false,
            verbosity: 2,
        }
    }

    fn lines(line: &str, around: &SystemState) -> String {
        let decision = decide(&request(line), around);
        let each = decision.environment.iter().map(|(name, value)| format!("{name}={value} "));
        each.collect::<String>().trim_end().to_string()
    }

    /// Returns the variables with which libsuperpage.so backs `memory` with pages of the default pool.
    fn ours(memory: &str) -> String {
        format!(
            "SUPERPAGE_PAGES=hugetlb:2M SUPERPAGE_MEMORY={memory} SUPERPAGE_FALLBACK=base \
             SUPERPAGE_CHILDREN=base LD_PRELOAD=/lib/libsuperpage.so SUPERPAGE_REPORT=shortage"
        )
    }

    #[test]
    fn any_program_gets_our_library_and_both_sets_of_variables() {
        let around = system_state(Target::default());
        for (line, old, new) in [
            ("x", "", String::new()),
            ("--heap x", "HUGETLB_MORECORE=yes ", ours("heap")),
            ("--heap=2M --shm x", "HUGETLB_MORECORE=2M HUGETLB_SHM=yes ", ours("heap,shm")),
            ("--shm=1G x", "HUGETLB_SHM=yes ", ours("shm").replace("2M", "1G")),
            ("--text --bss=2M x", "HUGETLB_ELFMAP=R:W=2M ", ours("text,data")),
            ("--text --disable x", "HUGETLB_ELFMAP=no", String::new()),
            ("--text --data --disable=text x", "HUGETLB_ELFMAP=W ", ours("data")),
            (
                "--thp x",
                "HUGETLB_MORECORE=thp ",
                "SUPERPAGE_PAGES=thp SUPERPAGE_MEMORY=heap SUPERPAGE_CHILDREN=base \
                 LD_PRELOAD=/lib/libsuperpage.so SUPERPAGE_REPORT=shortage"
                    .to_string(),
            ),
        ] {
            let expected = format!("HUGETLB_VERBOSE=2 {old}{new}");
            assert_eq!(lines(line, &around), expected.trim_end(), "{line}");
        }
        let thp = decide(&request("--thp x"), &around);
        assert!(thp.allow_thp && thp.warnings.is_empty());
    }

    #[test]
    fn a_linked_program_does_its_segments_itself() {
        let linked = Target { has_libhugetlbfs: true, ..Target::default() };
        let around = system_state(linked);
        let decision = decide(&request("--text --shm --share-text --no-reserve x"), &around);
        assert!(decision.environment.iter().all(|(name, _)| name.starts_with("HUGETLB_")));
        assert_eq!(decision.warnings, Vec::<String>::new());
        assert!(lines("--heap --text x", &around).contains("SUPERPAGE_MEMORY=heap "));
    }

    #[test]
    fn marks_count_where_nothing_is_said() {
        let around = system_state(Target { marked_data: true, ..Target::default() });
        assert!(lines("x", &around).contains("SUPERPAGE_MEMORY=data "));
        assert!(!lines("x", &around).contains("ELFMAP"));
        assert!(lines("--text x", &around).contains("SUPERPAGE_MEMORY=text "));
        assert_eq!(lines("--disable x", &around), "HUGETLB_VERBOSE=2 HUGETLB_ELFMAP=no");
        assert!(lines("--disable=text x", &around).contains("HUGETLB_ELFMAP=W "));
    }

    #[test]
    fn what_cannot_be_is_a_warning() {
        let unreached = Some("it is linked statically".to_string());
        let mut around = system_state(Target { unreached, ..Target::default() });
        let warnings =
            |line: &str, around: &SystemState| decide(&request(line), around).warnings.join("\n");
        assert!(warnings("--heap x", &around).contains("linked statically"));
        assert!(lines("--heap x", &around).contains("LD_PRELOAD="), "and it is tried");
        assert!(warnings("--no-preload --heap x", &around).contains("nothing is preloaded"));
        around.target = Some(Target::default());
        for (line, part) in [
            ("--heap=1G x", "the hugetlb pool of 1 GiB pages is empty"),
            ("--shm=4M x", "no hugetlb pool of 4 MiB pages; it has 2 MiB, 1 GiB"),
            ("--thp --shm x", "shm stays on base pages"),
            ("--heap=1G --text x", "text stays on base pages"),
            ("--share-text x", "only shared by programs linked"),
        ] {
            assert_eq!(warnings(line, &around).matches(part).count(), 1, "{line}");
        }
        // Request a size if its pool exists: an empty pool may be filled while the program runs.
        assert!(lines("--heap=1G x", &around).contains("SUPERPAGE_PAGES=hugetlb:1G "));
        assert!(lines("--heap --shm=4M x", &around).contains("SUPERPAGE_MEMORY=heap "));
        assert!(lines("--thp --shm x", &around).contains("SUPERPAGE_PAGES=thp "));
        assert!(!lines("--shm=4M x", &around).contains("SUPERPAGE_"));
        around.facts.thp_mode = Some("never".to_string());
        assert!(warnings("--thp x", &around).contains("echo madvise"));
        around.library = Ok(PathBuf::from("/a b/libsuperpage.so"));
        assert!(warnings("--heap x", &around).contains("space or colon"));
        around.library = Err("there is none".to_string());
        assert!(warnings("--heap x", &around).contains("there is none"));
        around.facts.pools.clear();
        assert!(warnings("--heap x", &around).contains("it has none"));
        let warnings = decide(&request("--no-reserve --heap x"), &around).warnings;
        assert!(warnings[0].contains("reserved all the same"));
    }

    #[test]
    fn lists_of_others_are_kept() {
        let mut around = system_state(Target::default());
        around.facts.ld_preload = Some("/x.so".to_string());
        around.ld_library_path = Some("/old".to_string());
        let all = lines("--library-path /nowhere --heap x", &around);
        assert!(all.contains("LD_LIBRARY_PATH=/nowhere/lib:/nowhere/lib64:/old "), "{all}");
        assert!(all.contains("LD_PRELOAD=/lib/libsuperpage.so:/x.so "), "{all}");
        around.has_report = true;
        assert!(!lines("--heap x", &around).contains("SUPERPAGE_REPORT"));
        around.ld_library_path = Some(String::new());
        assert!(lines("--library-path /n x", &around).contains("LD_LIBRARY_PATH=/n/lib:/n/lib64"));
    }
}
