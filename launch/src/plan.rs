//! Plans: what a recipe means for one program on one machine, decided from facts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use crate::{
    Children, Fallback, Instrumentation, Kind, LaunchError, Memory, Pages, Program, Recipe,
    tunables,
};

/// What the decision needs to know of the machine and the environment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The mode in force for transparent superpages of the largest size: `always`, `madvise`,
    /// `never`; `None` where the kernel has none.
    pub thp_mode: Option<String>,
    /// The smaller sizes (mTHP) that are on at least where advised, with the largest first.
    pub thp_sizes: Vec<PageSize>,
    /// The largest size of transparent superpages.
    pub thp_largest: Option<PageSize>,
    /// The hugetlb pools, default size first.
    pub pools: Vec<Pool>,
    /// Where libsuperpage.so is, if it was found.
    pub runtime: Option<PathBuf>,
    /// LD_PRELOAD as it is now.
    pub ld_preload: Option<String>,
    /// GLIBC_TUNABLES as it is now.
    pub glibc_tunables: Option<String>,
}

/// One hugetlb pool.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Size of its pages.
    pub size: PageSize,
    /// Pages it has.
    pub total: u64,
    /// Pages nobody uses.
    pub free: u64,
    /// Free pages already promised.
    pub reserved: u64,
    /// Pages it may still grow by when asked.
    pub overcommit_left: u64,
}

impl Pool {
    /// Pages that a new mapping could reserve.
    pub fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserved) + self.overcommit_left
    }
}

/// What an arm stands for, to be checked against what was read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Whatever comes.
    Nothing,
    /// No superpage at all.
    BasePages,
    /// Superpages under the anonymous memory that can hold them.
    Superpages,
}

/// What the child asks of the kernel about transparent superpages before it becomes the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpRequest {
    /// Nothing: what it inherits stays.
    Inherit,
    /// The system's settings decide, whatever it inherits.
    System,
    /// None at all.
    Disabled,
}

/// One change to the program's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// The variable.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// What that does.
    pub why: String,
}

/// A launch, decided in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The recipe's name.
    pub name: String,
    /// The pages it asks for.
    pub pages: Pages,
    /// The file that is executed: the program, or the wrapper.
    pub program: Program,
    /// Everything after argv\[0\].
    pub arguments: Vec<String>,
    /// Changes to the environment, each variable once.
    pub environment: Vec<EnvironmentChange>,
    /// What the child asks of the kernel first (prctl PR_SET_THP_DISABLE).
    pub thp: ThpRequest,
    /// The size its main thread's stack may grow to, where a fixed one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<ByteSize>,
    /// What must be read back for the arm to count.
    pub promise: Promise,
    /// Why the program is left alone, where it is: nothing of ours goes into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<String>,
    /// What the user should know: parts that cannot be reached, and risks.
    pub notes: Vec<String>,
}

impl Plan {
    /// Decides. `program` is what is started: the wrapper when the recipe has one, and `wrapped` is
    /// then the program behind it. `arguments` are complete.
    pub fn resolve(
        recipe: &Recipe,
        program: Program,
        wrapped: Option<&Program>,
        arguments: Vec<String>,
        facts: &Facts,
    ) -> Result<Self, LaunchError> {
        let mut plan = Self {
            name: recipe.name.clone(),
            pages: recipe.pages,
            program,
            arguments,
            environment: Vec::new(),
            thp: ThpRequest::Inherit,
            stack: None,
            promise: Promise::Nothing,
            left_alone: None,
            notes: Vec::new(),
        };
        let mut preload = recipe.preload.clone();
        let asks = !matches!(plan.pages, Pages::System | Pages::Base);
        let tool = plan.instrumentation(recipe, wrapped, facts).filter(|_| asks);
        if plan.pages == Pages::Auto && tool.is_none() {
            plan.pages = plan.choose(facts)?;
        }
        let by_library = !recipe.memory.is_empty();
        if let Some((path, tool)) = &tool {
            plan.leave_alone(path, *tool);
        }
        match plan.pages {
            _ if tool.is_some() => {}
            Pages::System | Pages::Auto => {}
            Pages::Base => plan.ask_for_base_pages(recipe, facts),
            Pages::Thp if by_library => {
                plan.check_thp(facts)?;
                preload.push(plan.ask_the_library("thp".to_string(), recipe, wrapped, facts)?);
            }
            Pages::ThpOf(size) => {
                if let Some(largest) = facts.thp_largest.filter(|largest| size > *largest) {
                    return Err(LaunchError::NoThpSize { size, largest });
                }
                if !facts.thp_sizes.contains(&size) {
                    return Err(LaunchError::ThpSizeOff(size));
                }
                let pages = format!("thp:{}", size.bytes());
                preload.push(plan.ask_the_library(pages, recipe, wrapped, facts)?);
                plan.promise = Promise::Nothing;
                plan.notes.push(
                    "coverage counts only superpages of the largest size: smaller ones (mTHP) show \
                     as base pages in it"
                        .to_string(),
                );
            }
            Pages::Hugetlb(size) if by_library => {
                let size = plan.check_pool(size, recipe.fallback, facts)?;
                let pages = format!("hugetlb:{}", size.bytes());
                preload.push(plan.ask_the_library(pages, recipe, wrapped, facts)?);
            }
            Pages::Thp => preload.extend(plan.ask_for_thp(recipe, wrapped, facts)?),
            Pages::Hugetlb(size) => plan.ask_for_hugetlb(size, recipe, facts)?,
        }
        if plan.left_alone.is_none() {
            plan.prepare_ahead(recipe);
        }
        if plan.promise == Promise::Superpages && plan.left_alone.is_none() {
            plan.note_reach(wrapped);
        }
        if !preload.is_empty() {
            let others = recipe.variable(LD_PRELOAD).or(facts.ld_preload.as_deref());
            preload.extend(others.filter(|list| !list.is_empty()).map(str::to_string));
            plan.set(LD_PRELOAD, preload.join(":"), "libraries loaded before all others");
        }
        for (variable, value) in &recipe.environment {
            // Of these two, what the recipe says is already part of what was set.
            let is_merged = [LD_PRELOAD, GLIBC_TUNABLES].contains(&variable.as_str());
            if !(is_merged && plan.sets(variable)) {
                plan.set(variable, value.clone(), "asked for by the recipe");
            }
        }
        Ok(plan)
    }

    /// Whether libsuperpage.so backs memory in it.
    pub fn uses_library(&self) -> bool {
        self.sets("SUPERPAGE_MEMORY")
    }

    /// The notes that say that a program will not get what was asked for.
    pub fn unreached_notes(&self) -> impl Iterator<Item = &str> {
        let about =
            ["neither malloc's tunables", "libsuperpage.so cannot be preloaded", NOTHING_AHEAD];
        let notes = self.notes.iter().map(String::as_str);
        let left_alone = self.left_alone.as_deref();
        notes.filter(move |note| {
            Some(*note) == left_alone || about.iter().any(|start| note.starts_with(start))
        })
    }

    /// The sanitizer or valgrind in what is started, and the file that has it.
    fn instrumentation(
        &self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Option<(String, Instrumentation)> {
        let of_program = |program: &Program| match program.kind {
            Kind::Instrumented(tool) => Some((program.path.display().to_string(), tool)),
            _ => None,
        };
        let mut programs = [Some(&self.program), wrapped].into_iter().flatten();
        programs.find_map(of_program).or_else(|| {
            let others = recipe.variable(LD_PRELOAD).or(facts.ld_preload.as_deref())?;
            let mut libraries =
                others.split([':', ' ']).chain(recipe.preload.iter().map(String::as_str));
            libraries.find_map(|name| Some((name.to_string(), Instrumentation::of_library(name)?)))
        })
    }

    fn leave_alone(&mut self, path: &str, tool: Instrumentation) {
        let why = tool.why();
        let why = why.strip_prefix("it ").unwrap_or(&why);
        let note = format!("{path} {why}: run on base pages, without libsuperpage.so");
        self.promise = Promise::Superpages;
        self.left_alone = Some(note.clone());
        self.notes.push(note);
    }

    fn ask_for_base_pages(&mut self, recipe: &Recipe, facts: &Facts) {
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::BasePages;
        // Nothing to undo unless somebody's environment already asks glibc for hugetlb pages,
        // which the prctl does not stop.
        let inherited = facts.glibc_tunables.as_deref().unwrap_or("");
        if recipe.variable(GLIBC_TUNABLES).is_none()
            && tunables::value(inherited, "glibc.malloc.hugetlb").is_some()
        {
            let settings = [("glibc.malloc.hugetlb", "0")];
            self.set_malloc(recipe, facts, &settings, "malloc uses base pages");
        }
    }

    /// The best this machine has: the pool's pages are reserved, so they cannot fail later, and a
    /// pool with free pages was made to be used.
    fn choose(&mut self, facts: &Facts) -> Result<Pages, LaunchError> {
        let pool = facts.pools.first().filter(|pool| pool.available() > 0);
        let has_thp = facts.thp_mode.as_deref().is_some_and(|mode| mode != "never");
        let (pages, why) = match pool {
            Some(pool) => {
                let pages = pool.available();
                let why = format!("hugetlb: its pool has {pages} pages of {} to give", pool.size);
                (Pages::Hugetlb(None), why)
            }
            None if has_thp => (Pages::Thp, "thp: no hugetlb pool has pages to give".to_string()),
            None => match facts.thp_sizes.first() {
                Some(size) => {
                    let why = format!("thp:{size}: the largest transparent size that is on");
                    (Pages::ThpOf(*size), why)
                }
                None => return Err(LaunchError::NoSuperpages),
            },
        };
        self.notes.push(format!("auto chose {why}"));
        Ok(pages)
    }

    fn check_thp(&self, facts: &Facts) -> Result<(), LaunchError> {
        match facts.thp_mode.as_deref() {
            None => Err(LaunchError::NoThp),
            Some("never") => {
                let path = "/sys/kernel/mm/transparent_hugepage/enabled";
                Err(LaunchError::ThpOff(path.to_string()))
            }
            Some(_) => Ok(()),
        }
    }

    /// The library's means, for the memory that was asked for.
    fn ask_the_library(
        &mut self,
        pages: String,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<String, LaunchError> {
        let path = facts.runtime.as_ref().ok_or(LaunchError::NoLibrary)?.display().to_string();
        if path.contains([':', ' ']) {
            return Err(LaunchError::LibraryPath(path));
        }
        self.thp = match (self.pages, recipe.fallback) {
            (Pages::Hugetlb(_), Fallback::Base | Fallback::Error) => ThpRequest::Disabled,
            _ => ThpRequest::System,
        };
        // Most memory is on superpages only if both of these are.
        if recipe.memory.heap && recipe.memory.mmap {
            self.promise = Promise::Superpages;
        }
        let memory = if recipe.memory.is_empty() { Memory::USUAL } else { recipe.memory };
        let memory = memory.variable();
        self.set("SUPERPAGE_PAGES", pages, "libsuperpage.so backs the program's memory with these");
        self.set("SUPERPAGE_MEMORY", memory, "this memory of it");
        if matches!(self.pages, Pages::Hugetlb(_)) {
            let word = recipe.fallback.word();
            self.set("SUPERPAGE_FALLBACK", word, "what a request gets that the pool cannot serve");
        }
        let children = recipe.children.word();
        self.set("SUPERPAGE_CHILDREN", children, "what becomes of its children");
        self.stack = recipe.memory.stack;
        self.note_the_price(recipe);
        if !self.is_preloadable(wrapped) {
            self.notes.push(
                "libsuperpage.so cannot be preloaded into it: it gets nothing of what was asked for"
                    .to_string(),
            );
        }
        Ok(path)
    }

    /// Only what the library itself hands out, on transparent superpages of the largest size, can be
    /// ready before it is asked for.
    fn prepare_ahead(&mut self, recipe: &Recipe) {
        if recipe.ahead.is_empty() {
            return;
        }
        let (heap, mmap) = (recipe.memory.heap, recipe.memory.mmap);
        if self.pages != Pages::Thp || !(heap || mmap) {
            self.notes.push(format!(
                "{NOTHING_AHEAD}: that takes pages=thp and memory=heap or mmap (here: pages={}, \
                 memory={})",
                self.pages,
                if recipe.memory.is_empty() {
                    "none named".to_string()
                } else {
                    recipe.memory.variable()
                }
            ));
            return;
        }
        for (variable, value, what) in recipe.ahead.settings() {
            self.set(variable, value, what);
        }
        self.notes.push(
            "what is prepared counts as the program's memory (RSS) until it is asked for; the \
             report says how much it was"
                .to_string(),
        );
    }

    fn note_the_price(&mut self, recipe: &Recipe) {
        let hugetlb = matches!(self.pages, Pages::Hugetlb(_));
        if hugetlb && recipe.children == Children::Same {
            self.notes.push(
                "a forked child shares the superpages: when it or its parent writes, the pool must \
                 have a free page, or the kernel kills it (SIGBUS)"
                    .to_string(),
            );
        } else if hugetlb {
            self.notes.push(
                "a fork copies the program's hugetlb memory to ordinary memory for the child before \
                 it returns"
                    .to_string(),
            );
        }
    }

    /// The library to preload is returned: it goes between the recipe's and those there already.
    fn ask_for_thp(
        &mut self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<Option<String>, LaunchError> {
        self.check_thp(facts)?;
        self.thp = ThpRequest::System;
        self.promise = Promise::Superpages;
        let settings = [("glibc.malloc.hugetlb", "1")];
        self.set_malloc(recipe, facts, &settings, "malloc advises its memory MADV_HUGEPAGE");
        if !self.is_preloadable(wrapped) {
            return Ok(None);
        }
        match facts.runtime.as_ref().map(|path| path.display().to_string()) {
            Some(path) if path.contains([':', ' ']) => self.notes.push(format!(
                "memory the program maps itself is not reached: LD_PRELOAD cannot hold a path with \
                 a space or colon ({path}); move libsuperpage.so"
            )),
            Some(path) => {
                let why = "libsuperpage.so makes that reliable and advises the program's own mmap";
                self.set("SUPERPAGE_PAGES", "thp", why);
                return Ok(Some(path));
            }
            None => self.notes.push(
                "libsuperpage.so is not beside superpage (build it with: cargo build --release): \
                 memory the program maps itself is not reached, and whether malloc is reached is up \
                 to chance on glibc 2.36"
                    .to_string(),
            ),
        }
        Ok(None)
    }

    /// Whether libsuperpage.so can be preloaded to any effect. Under another loader it is worse than
    /// useless: musl does not start a program whose preload needs libraries it does not have.
    fn is_preloadable(&self, wrapped: Option<&Program>) -> bool {
        let target = wrapped.unwrap_or(&self.program);
        // A static wrapper hands the variable on; a privileged one has it taken away by its loader.
        !matches!(self.program.kind, Kind::OtherLoader(_) | Kind::Privileged)
            && matches!(target.kind, Kind::Glibc | Kind::Script(_) | Kind::Unknown)
    }

    /// The pool's page size. One with nothing to give will do only for a program that may fall back.
    fn check_pool(
        &mut self,
        size: Option<PageSize>,
        fallback: Fallback,
        facts: &Facts,
    ) -> Result<PageSize, LaunchError> {
        let pool = match size {
            None => facts.pools.first(),
            Some(size) => facts.pools.iter().find(|pool| pool.size == size),
        };
        let Some(pool) = pool else {
            let sizes: Vec<String> = facts.pools.iter().map(|pool| pool.size.to_string()).collect();
            let have = if sizes.is_empty() { "none".to_string() } else { sizes.join(", ") };
            let wanted = size.unwrap_or(PageSize::new(2 << 20).expect("a power of two"));
            return Err(LaunchError::NoSuchPool(wanted, have));
        };
        if pool.available() == 0 && fallback == Fallback::Error {
            return Err(LaunchError::PoolEmpty {
                size: pool.size,
                total: pool.total,
                free: pool.free,
                reserved: pool.reserved,
                overcommit: pool.overcommit_left,
            });
        }
        if pool.available() == 0 {
            self.notes.push(format!(
                "the hugetlb pool of {} pages has none to give: everything falls back to {}",
                pool.size,
                fallback.word()
            ));
        }
        Ok(pool.size)
    }

    fn ask_for_hugetlb(
        &mut self,
        size: Option<PageSize>,
        recipe: &Recipe,
        facts: &Facts,
    ) -> Result<(), LaunchError> {
        let pool = self.check_pool(size, Fallback::Error, facts)?;
        // Beside the pool's pages no THP: an arm is one kind of superpage, or it says nothing.
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::Superpages;
        let value = size.map_or("2".to_string(), |size| size.bytes().to_string());
        // One arena: glibc maps the arenas of further threads with MAP_NORESERVE, whose faults
        // are killed by SIGBUS when the pool runs short; the main arena is reserved at mmap.
        let settings = [("glibc.malloc.hugetlb", value.as_str()), ("glibc.malloc.arena_max", "1")];
        let why = format!("malloc maps {pool} pages of the hugetlb pool, reserved at mmap");
        self.set_malloc(recipe, facts, &settings, &why);
        self.notes.push(
            "memory the program maps itself, not through malloc, stays on base pages; all threads \
             share one malloc arena"
                .to_string(),
        );
        self.notes.push(
            "a forked child that writes the heap needs further free pages of the pool, and the \
             kernel kills it (SIGBUS) when there are none"
                .to_string(),
        );
        Ok(())
    }

    fn note_reach(&mut self, wrapped: Option<&Program>) {
        for program in [Some(&self.program), wrapped].into_iter().flatten() {
            if let Some(why) = program.kind.unreached() {
                let path = program.path.display();
                self.notes.push(format!(
                    "neither malloc's tunables nor a preload can be counted on to reach {path}: {why}"
                ));
            }
        }
    }

    /// What the recipe itself says of a tunable stays; what is merely inherited gives way.
    fn set_malloc(&mut self, recipe: &Recipe, facts: &Facts, wanted: &[(&str, &str)], why: &str) {
        let own = recipe.variable(GLIBC_TUNABLES);
        let mut settings: Vec<(&str, String)> = Vec::new();
        for (name, value) in wanted {
            match own.and_then(|list| tunables::value(list, name)) {
                None => settings.push((name, value.to_string())),
                Some(set) if set == *value => {}
                Some(set) => self
                    .notes
                    .push(format!("the recipe's {name}={set} stands in place of {name}={value}")),
            }
        }
        let existing = own.or(facts.glibc_tunables.as_deref());
        self.set(GLIBC_TUNABLES, tunables::merge(existing, &settings), why);
    }

    fn sets(&self, variable: &str) -> bool {
        self.environment.iter().any(|change| change.variable == variable)
    }

    /// Sets a variable, in place of what it was set to before.
    fn set(&mut self, variable: &str, value: impl Into<String>, why: &str) {
        let change = EnvironmentChange {
            variable: variable.to_string(),
            value: value.into(),
            why: why.to_string(),
        };
        self.environment.retain(|earlier| earlier.variable != variable);
        self.environment.push(change);
    }
}

const NOTHING_AHEAD: &str = "nothing is prepared ahead";

/// The variables that several parties write.
const LD_PRELOAD: &str = "LD_PRELOAD";
const GLIBC_TUNABLES: &str = "GLIBC_TUNABLES";

#[cfg(test)]
mod tests;
