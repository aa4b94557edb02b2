//! A superpage design as a way to run a program: which of its rules the library inside the program carries
//! out, and which stay the kernel's. For `run --design`.

use std::collections::BTreeSet;
use std::fmt;

use design::{Design, designs, diff};
use host::{Root, Thp};
use launch::{Ahead, Executor, Memory, Pages, Recipe};
use policy::rules::Prefault;
use policy::{Launch, LaunchPages, Policy, Scale};
use units::{ByteSize, PageSize};

use super::Named;
use crate::exit::Failure;

/// What the kernel does without us, against which the other rules of a design are held.
pub(super) const KERNEL: &str = "linux-6";
/// The same of a pool, and of base pages.
const KERNEL_POOL: &str = "hugetlb";
const KERNEL_BASE: &str = "base";

/// The most that the library keeps of what a program unmaps, or populates of a new mapping.
const MAX_PREPARED: ByteSize = ByteSize::mib(64);

/// A rule of a design that is not carried out as it says.
#[derive(Debug, Clone)]
pub struct RuleNote {
    /// Its key, or those of several, as in the design's file.
    pub rule: String,
    /// Who does something in its place.
    pub instead: Instead,
    /// What the design wants and what is done, or why nothing is.
    pub words: String,
}

/// Who does something in the place of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// superpage, by other means.
    Superpage,
    /// The kernel, by rules of its own.
    Kernel,
    /// Nobody.
    Nobody,
}

impl fmt::Display for RuleNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, instead, words } = self;
        match instead {
            Instead::Superpage => write!(f, "applied by other means: {rule}: {words}"),
            Instead::Kernel => write!(f, "not applied, the kernel has its own rules: {rule}"),
            Instead::Nobody => write!(f, "not applied: {rule}: {words}"),
        }
    }
}

impl RuleNote {
    /// The key alone: that of a table is in brackets.
    pub fn key(&self) -> &str {
        self.rule.trim_matches(['[', ']'])
    }

    fn nobody(rule: &str, words: impl Into<String>) -> Self {
        Self { rule: rule.to_string(), instead: Instead::Nobody, words: words.into() }
    }
}

/// How to launch a program as the design says, and the rules that are not carried out so.
pub fn from_design(
    design: &Design,
    executor: Executor,
) -> Result<(Recipe, Vec<RuleNote>), Failure> {
    let name = &design.name;
    let plan = design.policy(Scale::X86).launch();
    if !executor.is_usual() {
        check_reserves(design).map_err(|why| {
            Failure::usage(format!("design {name} cannot have executor {executor}: {why}"))
        })?;
    }
    let size = plan.size.unwrap_or(ByteSize::mib(2));
    let (pages, memory) = match plan.pages {
        LaunchPages::Base => (Pages::Base, Memory::default()),
        LaunchPages::Pool => {
            let size = PageSize::new(size.bytes()).map_err(Failure::usage)?;
            (Pages::Hugetlb(Some(size)), Memory::USUAL)
        }
        LaunchPages::Transparent => (Pages::Thp, Memory::USUAL),
        LaunchPages::OwnKernel => {
            live::check_design(&design.policy(Scale::X86)).map_err(|why| {
                Failure::usage(format!(
                    "design {name} cannot be run: {why}; simulate it with: superpage lab run --design {name}"
                ))
            })?;
            match executor {
                Executor::Collapse => (Pages::Collapsed, Memory::default()),
                Executor::InPlace => (Pages::Collapsed, Memory::USUAL),
                Executor::Pool => {
                    let size = PageSize::new(size.bytes()).map_err(Failure::usage)?;
                    (Pages::Hugetlb(Some(size)), Memory::USUAL)
                }
            }
        }
    };
    let (ahead, mut notes) = ahead(&plan, pages, size);
    notes.extend(not_ours(design, &plan, executor));
    let design = Some(name.clone());
    let recipe =
        Recipe { name: name.clone(), memory, ahead, design, executor, ..Recipe::new(pages) };
    Ok((recipe, notes))
}

/// Whether a design makes reservations that an executor can begin with.
fn check_reserves(design: &Design) -> Result<(), String> {
    let policy = design.policy(Scale::X86);
    match policy.launch().pages {
        LaunchPages::OwnKernel => live::check_reserves(&policy),
        _ => Err("its superpages are the kernel's to make".to_string()),
    }
}

/// The executor of a design, where this one is wanted of all that reserve superpages.
pub fn executor_of(design: &Design, wanted: Executor) -> Executor {
    match check_reserves(design) {
        Ok(()) => wanted,
        Err(_) => Executor::Collapse,
    }
}

/// Adds what a recipe's design says to it. Returns the rules that are not carried out so.
pub fn follow(recipe: &mut Recipe) -> Result<Vec<RuleNote>, Failure> {
    let Some(word) = &recipe.design else {
        return match recipe.executor.is_usual() {
            true => Ok(Vec::new()),
            false => Err(Failure::usage(format!(
                "executor {} says how a design is put in force: name one (--design DESIGN, design=DESIGN)",
                recipe.executor
            ))),
        };
    };
    let named = super::load(word)?;
    check_sizes(&named)?;
    let (of_design, notes) = from_design(&named.design, recipe.executor)?;
    recipe.pages = of_design.pages;
    if recipe.memory.is_empty() {
        recipe.memory = of_design.memory;
    }
    // What is said in other words as well is theirs to say.
    recipe.ahead.prezero = recipe.ahead.prezero.or(of_design.ahead.prezero);
    recipe.ahead.prefault = recipe.ahead.prefault.or(of_design.ahead.prefault);
    Ok(notes)
}

/// The policy that superpage itself puts in force on a recipe's program; `None`: there is none to put.
pub fn in_force(recipe: &Recipe) -> Result<Option<Policy>, Failure> {
    match &recipe.design {
        Some(word) if recipe.pages == Pages::Collapsed => {
            Ok(Some(super::load(word)?.design.policy(Scale::X86)))
        }
        _ => Ok(None),
    }
}

/// Whether this machine lets us put designs in force.
pub fn check_in_force(recipe: &Recipe) -> Result<(), Failure> {
    check(recipe, live::check_machine)?;
    match recipe.executor {
        Executor::InPlace => check(recipe, |_| live::check_in_place()),
        _ => Ok(()),
    }
}

/// Whether what a design would do can at least be seen on this machine.
pub fn check_seen(recipe: &Recipe) -> Result<(), Failure> {
    check(recipe, live::check_reading)
}

fn check(recipe: &Recipe, machine: fn(&Root) -> Result<(), String>) -> Result<(), Failure> {
    if recipe.pages != Pages::Collapsed {
        return Ok(());
    }
    let name = recipe.design.as_deref().unwrap_or_default();
    machine(&Root::real())
        .map_err(|why| Failure::cannot(format!("design {name} cannot be in force here: {why}")))
}

/// Whether this machine has transparent superpages of all sizes that a design gives to programs.
pub fn check_sizes(named: &Named) -> Result<(), Failure> {
    let Some(thp) = Thp::from_root(&Root::real()) else { return Ok(()) };
    let sizes: BTreeSet<u64> =
        thp.sizes.keys().copied().chain(thp.pmd_size).map(|size| size.bytes()).collect();
    let here: Vec<u64> = sizes.into_iter().collect();
    match lacking(&named.design, &here) {
        None => Ok(()),
        Some(size) => {
            let file = named.file.clone().unwrap_or(format!("designs/{}.toml", named.label));
            let line = Design::line_of(&named.text, SIZES);
            let here: Vec<String> = here.iter().map(|size| ByteSize(*size).to_string()).collect();
            Err(Failure::usage(format!(
                "{file}:{line}: {SIZES}: {}: this machine has no transparent superpages of this size; it has {}",
                ByteSize(size),
                here.join(", ")
            )))
        }
    }
}

const SIZES: &str = "allocation.sizes";

/// The first size of a design with transparent superpages that is not among these.
fn lacking(design: &Design, here: &[u64]) -> Option<u64> {
    let policy = design.policy(Scale::X86);
    let is_transparent = policy.launch().pages == LaunchPages::Transparent && !here.is_empty();
    let mut sizes = policy.sizes().iter().map(|order| Scale::X86.base_page << order);
    if is_transparent { sizes.find(|size| !here.contains(size)) } else { None }
}

/// The rules of preparation that the library carries out.
fn ahead(plan: &Launch, pages: Pages, size: ByteSize) -> (Ahead, Vec<RuleNote>) {
    let (mut ahead, mut notes) = (Ahead::default(), Vec::new());
    let can = pages == Pages::Thp && plan.is_whole;
    let mut not_applied = |rule: &str, why: &str| notes.push(RuleNote::nobody(rule, why));
    const ONLY: &str = "only transparent superpages can be prepared ahead";
    match plan.prezero {
        false => {}
        true if !can => not_applied("[preparation.prezero]", ONLY),
        true => {
            ahead.prezero = Some(MAX_PREPARED);
            // Nothing of ours runs beside the program's own threads.
            not_applied(
                "[preparation.prezero]",
                "superpage runs no thread inside a program; unmapped memory is zeroed when it is mapped \
                 again",
            );
        }
    }
    match plan.prefault {
        Prefault::None => {}
        Prefault::Doubling(order) if can => {
            ahead.prefault = Some(ByteSize(size.bytes() << (order + 1)).min(MAX_PREPARED));
        }
        Prefault::Doubling(_) => not_applied("[preparation.prefault]", ONLY),
        Prefault::Resident(_) => {
            not_applied("[preparation.prefault]", "the kernel maps pages of files");
        }
    }
    (ahead, notes)
}

/// Keys of a design in force that were applied: those of its daemons and thresholds.
const IN_FORCE: [&str; 7] = [
    "allocation.growth",
    "allocation.shortage",
    "preparation.fill-at",
    "preparation.background.",
    "mapping.",
    "unmapping.clean-write",
    "deallocation.",
];

/// Keys that were applied, or are in a note.
const OURS: [&str; 7] = [
    "allocation.trigger",
    "allocation.form",
    SIZES,
    "allocation.eligible",
    "preparation.grain",
    "preparation.prezero.",
    "preparation.prefault.",
];

/// The rest, where this kernel does something else.
fn not_ours(design: &Design, plan: &Launch, executor: Executor) -> Vec<RuleNote> {
    let mut notes = Vec::new();
    let is_in_force = plan.pages == LaunchPages::OwnKernel;
    if is_in_force {
        let policy = design.policy(Scale::X86);
        let rules = match executor {
            Executor::Pool => live::rules_on_pool(&policy),
            _ => live::rules(&policy, executor == Executor::InPlace),
        };
        notes.extend(rules.iter().map(rule_in_words));
    }
    let like = match plan.pages {
        LaunchPages::Transparent => KERNEL,
        LaunchPages::Pool => KERNEL_POOL,
        LaunchPages::Base | LaunchPages::OwnKernel => KERNEL_BASE,
    };
    let is_transparent = plan.pages == LaunchPages::Transparent;
    if is_transparent && design.policy(Scale::X86).sizes().iter().count() > 1 {
        let words = format!(
            "sizes other than {} are the machine's setting \
             (transparent_hugepage/hugepages-*/enabled)",
            plan.size.unwrap_or(ByteSize::mib(2))
        );
        notes.push(RuleNote::nobody(SIZES, words));
    }
    let Ok(kernel) = designs::find(like) else { return notes };
    let keys: Vec<String> = diff(&kernel, design)
        .into_iter()
        .map(|difference| difference.key)
        .filter(|key| !OURS.iter().any(|ours| key.starts_with(ours)))
        .filter(|key| !is_in_force || !IN_FORCE.iter().any(|ours| key.starts_with(ours)))
        .collect();
    if !keys.is_empty() {
        let (rule, words) = (keys.join(", "), String::new());
        notes.push(RuleNote { rule, instead: Instead::Kernel, words });
    }
    notes
}

fn rule_in_words(rule: &live::Rule) -> RuleNote {
    let live::Rule { rule, asked, done } = rule;
    match done {
        Some(done) => RuleNote {
            rule: rule.to_string(),
            instead: Instead::Superpage,
            words: format!("{asked}: {done}"),
        },
        None => RuleNote::nobody(rule, *asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_preset(name: &str) -> Result<(Recipe, Vec<String>), Failure> {
        in_words(&designs::find(name).expect("a preset"))
    }

    fn in_words(design: &Design) -> Result<(Recipe, Vec<String>), Failure> {
        let (recipe, notes) = from_design(design, Executor::default())?;
        Ok((recipe, notes.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn the_preset_becomes_a_stock_and_a_window() {
        let (recipe, notes) = of_preset("prezeroed-pool").unwrap();
        assert_eq!((recipe.pages, recipe.memory), (Pages::Thp, Memory::USUAL));
        assert_eq!(recipe.ahead.prezero, Some(MAX_PREPARED));
        assert_eq!(recipe.ahead.prefault, Some(ByteSize::mib(64)));
        assert!(notes[0].contains("no thread"), "{:?}", notes);
    }

    #[test]
    fn what_is_not_applied_is_named() {
        let preset = designs::preset("prezeroed-pool").unwrap().text;
        let text = preset.replace("proactiveness = 20", "proactiveness = 99");
        let design = Design::from_toml("mine.toml", &text).unwrap();
        let (_, notes) = in_words(&design).unwrap();
        assert!(notes[1].contains("memory.proactiveness"), "{:?}", notes);
    }

    #[test]
    fn keys_of_a_pool_and_of_base_pages_are_named_too() {
        let notes = |preset: &str, from: &str, to: &str| {
            let text = designs::preset(preset).unwrap().text.replace(from, to);
            in_words(&Design::from_toml("mine.toml", &text).unwrap()).unwrap().1.concat()
        };
        assert_eq!(notes("base", "", ""), "");
        assert_eq!(notes("hugetlb", "", ""), "");
        let pool = notes("hugetlb", "\"refuse\"", "\"base-page\"");
        assert!(pool.contains("allocation.shortage"), "{pool}");
        let base = notes("base", "[preparation]", "[preparation]\nprefault.kind = \"doubling\"");
        assert!(base.contains("[preparation.prefault]"), "{base}");
        let cbmm = notes("cbmm", "", "");
        assert!(
            cbmm.contains("allocation.when") && cbmm.contains("estimate.miss-cycles"),
            "{cbmm}"
        );
        let several = notes("linux-6-mthp", "", "");
        assert!(several.contains("allocation.sizes"), "{several}");
    }

    #[test]
    fn sizes_that_this_machine_lacks_are_found() {
        let lacks =
            |name: &str, here: &[u64]| lacking(&designs::find(name).expect("a preset"), here);
        let (mthp, thp) = ([1 << 16, 1 << 21], [1 << 21]);
        assert_eq!(
            (lacks("trident", &mthp), lacks("trident", &thp)),
            (Some(1 << 30), Some(1 << 30))
        );
        assert_eq!((lacks("elastic", &mthp), lacks("elastic", &thp)), (None, Some(1 << 16)));
        assert_eq!(
            (lacks("linux-6", &thp), lacks("hugetlb", &[1 << 16]), lacks("base", &thp)),
            (None, None, None)
        );
    }

    #[test]
    fn every_preset_is_a_recipe_or_refused_with_a_way_out() {
        for preset in designs::list() {
            match of_preset(preset.name) {
                Ok((recipe, _)) => assert_eq!(recipe.name, preset.name),
                Err(why) => assert!(format!("{why:?}").contains("superpage lab run"), "{why:?}"),
            }
        }
        assert_eq!(of_preset("base").unwrap().0.pages, Pages::Base);
        assert!(matches!(of_preset("hugetlb").unwrap().0.pages, Pages::Hugetlb(Some(_))));
        assert_eq!(of_preset("freebsd").unwrap().0.pages, Pages::Collapsed);
        assert!(of_preset("hawkeye-g").is_err());
    }
}
