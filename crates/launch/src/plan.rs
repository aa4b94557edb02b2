//! Plans: what a recipe means for one program on one machine, decided from facts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use means::{GLIBC_TUNABLES, LD_PRELOAD};

use crate::recipe::spec;
use crate::{
    Executor, Instrumentation, Kind, LaunchError, Note, Notes, Pages, Program, Recipe, Word,
};

mod means;

/// What the decision needs to know of the machine and the environment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The mode in force for transparent superpages of the largest size: `always`, `madvise`,
    /// `never`; `None` where the kernel has none.
    pub thp_mode: Option<String>,
    /// The smaller sizes (mTHP) that are on at least where advised, with the largest first.
    pub thp_sizes: Vec<PageSize>,
    /// The smaller sizes, from 64K on, that nobody gets.
    pub thp_sizes_off: Vec<PageSize>,
    /// We may change settings of the machine.
    pub may_change_settings: bool,
    /// The share of free memory that is in blocks of a superpage or more.
    pub free_in_superpages: Option<f64>,
    /// The kernel can be kept from giving a program transparent superpages that nobody advised (Linux 6.18).
    pub thp_only_advised: bool,
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

impl Facts {
    /// Whether memory can have transparent superpages of the largest size.
    pub fn has_thp(&self) -> bool {
        self.thp_mode.as_deref().is_some_and(|mode| mode != "never")
    }
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
    /// Whether its pages are gigantic: the kernel lets no such pool grow when asked.
    pub is_gigantic: bool,
}

impl Pool {
    /// Pages that a new mapping could reserve.
    pub fn available(&self) -> u64 {
        self.unused() + self.overcommit_left
    }

    /// Those of them that it has already.
    pub fn unused(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
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
    /// None of the largest size.
    SmallerSuperpages,
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
    /// Only where they are advised, or made by request (MADV_COLLAPSE).
    OnlyAdvised,
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
    pub arguments: Vec<Word>,
    /// Changes to the environment, each variable once.
    pub environment: Vec<EnvironmentChange>,
    /// What the child asks of the kernel first (prctl PR_SET_THP_DISABLE).
    pub thp: ThpRequest,
    /// Where free memory is fragmented, superpages are made free in bulk when the library asks; where that is not
    /// enough these sizes of THP, which nobody gets, are turned on (`madvise`) until the program ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supply: Option<Vec<PageSize>>,
    /// Its memory lies in files of superpages, of which superpages are made in place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_place: bool,
    /// What decides whether its design makes superpages is not carried out; its name says so, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// The size its main thread's stack may grow to, where a fixed one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<ByteSize>,
    /// What must be read back for the arm to count.
    pub promise: Promise,
    /// Why the program is left alone, where it is: nothing of ours goes into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_alone: Option<String>,
    /// What the user should know: parts that cannot be reached, and risks.
    #[serde(flatten)]
    pub notes: Notes,
}

/// Where less of free memory is in superpages, the library decides how much is advised.
const FRAGMENTED: f64 = 0.5;
/// Where less is, superpages of the largest size are not promised: smaller ones may be all that can be had.
const HARDLY_ANY: f64 = 0.125;

impl Plan {
    /// Decides. `program` is what is started: the wrapper when the recipe has one, and `wrapped` is
    /// then the program behind it. `arguments` are complete.
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
        // glibc advises its memory however little is free in superpages; the library does not.
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
                plan.supply = facts.may_change_settings.then(|| facts.thp_sizes_off.clone());
                if is_fragmented {
                    plan.note_fragmented(facts);
                    let is_promised =
                        recipe.memory.is_empty() || plan.promise == Promise::Superpages;
                    plan.promise = match is_promised && !is_below(HARDLY_ANY) {
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
        let asks = matches!(plan.promise, Promise::Superpages | Promise::SmallerSuperpages);
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
            // Of these two, what the recipe says is already part of what was set.
            let is_merged = [LD_PRELOAD, GLIBC_TUNABLES].contains(&variable.as_str());
            if !(is_merged && plan.sets(variable)) {
                plan.set(variable, value.clone(), "requested by the recipe");
            }
        }
        Ok(plan)
    }

    /// Whether libsuperpage.so backs memory in it: what is named, or the heap and mappings.
    pub fn uses_library(&self) -> bool {
        self.sets(abi::environment::PAGES)
    }

    /// Why libsuperpage.so is not in it, where it was to be: the machine lacks it, or cannot name it.
    pub fn without_library(&self) -> Option<&Note> {
        self.notes
            .iter()
            .find(|note| matches!(note, Note::LibraryMissing | Note::LibraryPath { .. }))
    }

    /// The notes that say that a program will not get what was asked for.
    pub fn unreached_notes(&self) -> impl Iterator<Item = &Note> {
        self.notes.iter().filter(|note| note.is_unreached())
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
        let note = Note::LeftAlone { path: path.to_string(), tool };
        self.promise = Promise::Superpages;
        self.left_alone = Some(note.to_string());
        self.notes.push(note);
    }

    /// Whether it sets a variable of the environment.
    pub fn sets(&self, variable: &str) -> bool {
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

#[cfg(test)]
mod tests;
