//! Plans: a recipe applied to one program on one machine. A plan depends only on facts that the caller read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use means::{GLIBC_TUNABLES, LD_PRELOAD};

use crate::recipe::spec;
use crate::{
    Advice, Executor, Instrumentation, Kind, LaunchError, Note, Notes, Pages, Program, Recipe, Word,
};

mod means;

/// Facts about the machine and the environment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Effective mode of transparent superpages of the largest size: `always`, `madvise`, `never`; `None` if the
    /// kernel has no transparent superpages.
    pub thp_mode: Option<String>,
    /// The smaller sizes (mTHP) that are enabled for all or for advised memory, largest first.
    pub thp_sizes: Vec<PageSize>,
    /// The smaller sizes, from 64K on, that are disabled.
    pub thp_sizes_off: Vec<PageSize>,
    /// Whether this process may change settings of the machine.
    pub may_change_settings: bool,
    /// Share (0 to 1) of free memory that is in blocks of at least a superpage.
    pub free_in_superpages: Option<f64>,
    /// Whether the kernel can withhold unadvised transparent superpages from a program (Linux 6.18).
    pub thp_only_advised: bool,
    /// The largest size of transparent superpages.
    pub thp_largest: Option<PageSize>,
    /// The hugetlb pools, default size first.
    pub pools: Vec<Pool>,
    /// Path of libsuperpage.so, if found.
    pub runtime: Option<PathBuf>,
    /// Inherited value of LD_PRELOAD.
    pub ld_preload: Option<String>,
    /// Inherited value of GLIBC_TUNABLES.
    pub glibc_tunables: Option<String>,
}

impl Facts {
    /// Returns whether memory can have transparent superpages of the largest size.
    pub fn has_thp(&self) -> bool {
        self.thp_mode.as_deref().is_some_and(|mode| mode != "never")
    }
}

/// One hugetlb pool.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// Size of its pages.
    pub size: PageSize,
    /// Number of pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
    /// Number of free pages that are already reserved.
    pub reserved: u64,
    /// Number of pages by which the pool can still grow on demand.
    pub overcommit_left: u64,
    /// Whether the pages are gigantic, in which case the kernel does not grow the pool on demand.
    pub is_gigantic: bool,
}

impl Pool {
    /// Returns the number of pages that a new mapping could reserve.
    pub fn available(&self) -> u64 {
        self.unused() + self.overcommit_left
    }

    /// Returns the number of those pages that the pool already has.
    pub fn unused(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }
}

/// What an arm must have on its pages. Checked against the pages read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Any pages.
    Nothing,
    /// No superpages.
    BasePages,
    /// Superpages under the anonymous memory that can hold them.
    Superpages,
    /// No superpages of the largest size.
    SmallerSuperpages,
}

/// The child's THP setting before it executes the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThpRequest {
    /// The inherited setting.
    Inherit,
    /// The system's settings, whatever setting is inherited.
    System,
    /// No THP.
    Disabled,
    /// Only advised THP, or THP on request (MADV_COLLAPSE).
    OnlyAdvised,
}

/// One change to the program's environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// The variable.
    pub variable: String,
    /// Value of the variable.
    pub value: String,
    /// Effect of the change.
    pub why: String,
}

/// A fully decided launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The recipe's name.
    pub name: String,
    /// The requested pages.
    pub pages: Pages,
    /// The file that is executed: the program, or the wrapper.
    pub program: Program,
    /// All arguments after argv\[0\].
    pub arguments: Vec<Word>,
    /// Changes to the environment, one per variable.
    pub environment: Vec<EnvironmentChange>,
    /// The child's THP setting (prctl PR_SET_THP_DISABLE).
    pub thp: ThpRequest,
    /// If free memory is fragmented, superpage frees superpages in bulk when the library requests them. If they do not
    /// suffice, it enables these THP sizes (`madvise`) until the program ends. `None`: it does neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supply: Option<Vec<PageSize>>,
    /// Whether the program's memory is in superpage files, in which superpages are made in place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// Whether criteria of the design are not applied; the plan's name says so too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// Maximum size of the main thread's stack, if a fixed size was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<ByteSize>,
    /// What the arm must have when its pages are read back.
    pub promise: Promise,
    /// Why the program is left alone, if superpage adds nothing to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<String>,
    /// Notes for the user: unreachable parts, and risks.
    #[serde(flatten)]
    pub notes: Notes,
}

/// Share of free memory in superpages below which the library decides how much memory is advised.
const FRAGMENTED: f64 = 0.5;
/// Share of free memory in superpages below which no superpages of the largest size are promised, because only smaller
/// sizes may be available.
const HARDLY_ANY: f64 = 0.125;

impl Plan {
    /// Resolves a plan. `program` is the file to start. If the recipe has a wrapper, `program` is the wrapper, and
    /// `wrapped` is the program that it starts. `arguments` are complete.
    pub fn resolve(
        recipe: &Recipe,
        program: Program,
        wrapped: Option<&Program>,
        arguments: Vec<Word>,
        facts: &Facts,
    ) -> Result<Self, LaunchError> {
        recipe.check_fallback()?;
        let strict = recipe.strict();
        let recipe = strict.as_ref().unwrap_or(recipe);
        let mut plan = Self {
            name: recipe.name.clone(),
            pages: recipe.pages,
            program,
            arguments,
            environment: Vec::new(),
            thp: ThpRequest::Inherit,
            supply: None,
            in_place: false,
            approximate: recipe.approximate,
            stack: None,
            promise: Promise::Nothing,
            left_alone: None,
            notes: Notes::default(),
        };
        let mut preload = recipe.preload.clone();
        let asks = !matches!(plan.pages, Pages::System | Pages::Base);
        let tool = plan.instrumentation(recipe, wrapped, facts).filter(|_| asks);
        if plan.pages == Pages::Auto && tool.is_none() {
            plan.pages = plan.choose(facts)?;
        }
        // glibc advises its memory even if few superpages are free; the library does not.
        let is_below = |most| facts.free_in_superpages.is_some_and(|share| share < most);
        let is_fragmented = plan.pages == Pages::Thp && is_below(FRAGMENTED);
        let decides = is_fragmented && facts.runtime.is_some() && plan.is_preloadable(wrapped);
        let by_library = !recipe.memory.is_empty() || decides;
        if let Some((path, tool)) = &tool {
            if strict.is_some() {
                return Err(LaunchError::NotReached(path.into(), tool.why()));
            }
            plan.leave_alone(path, *tool);
        }
        match plan.pages {
            _ if tool.is_some() => {}
            Pages::System | Pages::Auto => {}
            Pages::Collapsed => {
                plan.await_superpages(recipe, facts)?;
                if recipe.executor == Executor::InPlace {
                    preload.push(plan.lie_in_files(recipe, wrapped, facts)?);
                }
            }
            Pages::Base => plan.ask_for_base_pages(recipe, facts),
            Pages::Thp if by_library => {
                plan.check_thp(facts)?;
                preload.push(plan.ask_the_library("thp".to_string(), recipe, wrapped, facts)?);
                let is_supplied = recipe.advice == Advice::Contiguous;
                if is_supplied && facts.may_change_settings {
                    plan.supply = Some(facts.thp_sizes_off.clone());
                }
                if is_fragmented {
                    plan.note_fragmented(recipe.advice, facts);
                    // A design whose faults compact promises nothing: what it makes is what it promises.
                    let is_promised =
                        recipe.memory.is_empty() || plan.promise == Promise::Superpages;
                    plan.promise = match is_supplied && is_promised && !is_below(HARDLY_ANY) {
                        true => Promise::Superpages,
                        false => Promise::Nothing,
                    };
                }
            }
            Pages::ThpOf(size) => {
                if let Some(largest) = facts.thp_largest.filter(|largest| size > *largest) {
                    return Err(LaunchError::NoThpSize { size, largest });
                }
                plan.check_thp_of(size, recipe.fallback, facts)?;
                let pages = format!("thp:{}", spec(size));
                preload.push(plan.ask_the_library(pages, recipe, wrapped, facts)?);
                plan.promise = Promise::SmallerSuperpages;
            }
            Pages::Hugetlb(size) if by_library => {
                if strict.is_some() {
                    plan.check_strict(recipe, wrapped)?;
                }
                let size = plan.check_pool(size, recipe.fallback, facts)?;
                let pages = format!("hugetlb:{}", spec(size));
                preload.push(plan.ask_the_library(pages, recipe, wrapped, facts)?);
            }
            Pages::Thp => preload.extend(plan.ask_for_thp(recipe, wrapped, facts)?),
            Pages::Hugetlb(size) => plan.ask_for_hugetlb(size, recipe, facts)?,
        }
        if plan.left_alone.is_none() {
            plan.prepare_ahead(recipe);
        }
        // Where hardly any superpage is free nothing is promised, and it is asked for all the same.
        let asks = matches!(plan.promise, Promise::Superpages | Promise::SmallerSuperpages);
        let asks = asks || is_fragmented || plan.notes.contains(&Note::NotPreloadable);
        if asks && plan.left_alone.is_none() {
            plan.note_reach(wrapped);
        }
        if plan.left_alone.is_none() {
            plan.note_allocator(recipe, wrapped);
        }
        if by_library && matches!(recipe.pages, Pages::System | Pages::Base) {
            plan.notes.push(Note::NoPages { pages: recipe.pages });
        }
        if !preload.is_empty() {
            let others = recipe.variable(LD_PRELOAD).or(facts.ld_preload.as_deref());
            preload.extend(others.filter(|list| !list.is_empty()).map(str::to_string));
            plan.set(LD_PRELOAD, preload.join(":"), "libraries loaded before all others");
        }
        for (variable, value) in &recipe.environment {
            // For these two variables, the new value already includes the recipe's.
            let is_merged = [LD_PRELOAD, GLIBC_TUNABLES].contains(&variable.as_str());
            if !(is_merged && plan.sets(variable)) {
                plan.set(variable, value.clone(), "requested by the recipe");
            }
        }
        Ok(plan)
    }

    /// Returns whether libsuperpage.so backs memory of the program: the named kinds, or heap and mappings.
    pub fn uses_library(&self) -> bool {
        self.sets(abi::environment::PAGES)
    }

    /// Returns why the plan lacks libsuperpage.so although it should have it: the library is missing, or LD_PRELOAD
    /// cannot hold its path.
    pub fn without_library(&self) -> Option<&Note> {
        self.notes
            .iter()
            .find(|note| matches!(note, Note::LibraryMissing | Note::LibraryPath { .. }))
    }

    /// Returns why the plan has no effect on a program with an allocator of its own: only glibc's malloc asks.
    pub fn misses_allocator(&self) -> Option<&Note> {
        self.notes.iter().find(|note| matches!(note, Note::OwnAllocator { .. }))
    }

    /// Returns the notes to say before a run. [`Note::NotReached`] says why no library can be preloaded, and what to do, in
    /// place of [`Note::NotPreloadable`].
    pub fn warnings(&self) -> impl Iterator<Item = &Note> {
        let has_reason = self.notes.iter().any(|note| matches!(note, Note::NotReached { .. }));
        let is_told = move |note: &&Note| !(has_reason && **note == Note::NotPreloadable);
        self.notes.iter().filter(|note| note.is_warning()).filter(is_told)
    }

    /// Returns whether a note says that libsuperpage.so does not reach the program.
    pub fn is_out_of_reach(&self) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| matches!(note, Note::NotReached { .. } | Note::NotPreloadable))
    }

    /// Returns the sanitizer or valgrind in the started files, and the file that contains it.
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
        let note = Note::LeftAlone { path: path.to_string(), tool };
        self.promise = Promise::Superpages;
        self.left_alone = Some(note.to_string());
        self.notes.push(note);
    }

    /// Returns whether the plan sets an environment variable.
    pub fn sets(&self, variable: &str) -> bool {
        self.environment.iter().any(|change| change.variable == variable)
    }

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

#[cfg(test)]
mod tests;
