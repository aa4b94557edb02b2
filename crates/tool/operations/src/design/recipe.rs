//! Translates a superpage design to a recipe for `run --design`. Decides which rules the library inside the program
//! applies, and which remain the kernel's.

use std::collections::BTreeSet;
use std::fmt;

use design::{Design, designs, diff};
use host::{Root, Thp};
use launch::{Advice, Ahead, Executor, Memory, Pages, Recipe};
use live::Fresh;
use policy::rules::Prefault;
use policy::{Criterion, Launch, LaunchPages, Policy, Rule, Scale};
use units::{ByteSize, PageSize};

use super::Named;
use crate::Failure;
use crate::facts;

/// The preset of an unmodified kernel. A design's other rules are compared with it.
pub(super) const KERNEL: &str = "linux-6";
/// The preset of a hugetlb pool.
const KERNEL_POOL: &str = "hugetlb";
/// The preset of base pages.
const KERNEL_BASE: &str = "base";

/// Maximum memory that the library keeps prezeroed, or prefaults in a new mapping.
const MAX_PREPARED: ByteSize = ByteSize::mib(64);

/// A rule of a design that is not applied exactly.
#[derive(Debug, Clone)]
pub struct RuleNote {
    /// The rule's key or keys, as in the design's file.
    pub rule: String,
    /// What acts in place of the rule.
    pub instead: Instead,
    /// What the rule decides.
    pub bearing: Bearing,
    /// Names the rule, and says what is done in its place, or why nothing is done.
    pub words: String,
}

/// What a rule decides. See docs/decisions/live.md#15.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bearing {
    /// Whether superpages are made. If such a rule cannot be applied, the program does not run under its design.
    Whether,
    /// How, how soon, or how many superpages are made.
    How,
}

/// What acts in place of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Instead {
    /// superpage acts, by another mechanism.
    Superpage,
    /// The kernel acts, by its own rules.
    Kernel,
    /// Nothing acts.
    Nothing,
}

impl fmt::Display for RuleNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, instead, bearing, words } = self;
        if *bearing == Bearing::Whether {
            return write!(
                f,
                "not applied, though it decides whether superpages are made: {rule}: {words}"
            );
        }
        match instead {
            Instead::Superpage => write!(f, "applied by other means: {rule}: {words}"),
            Instead::Kernel => write!(f, "not applied, the kernel has its own rules: {rule}"),
            Instead::Nothing => write!(f, "not applied: {rule}: {words}"),
        }
    }
}

impl RuleNote {
    /// Returns the key without the brackets of a table.
    pub fn key(&self) -> &str {
        self.rule.trim_matches(['[', ']'])
    }

    fn nothing(rule: &str, words: impl Into<String>) -> Self {
        let (rule, instead, bearing) = (rule.to_string(), Instead::Nothing, Bearing::How);
        Self { rule, instead, bearing, words: words.into() }
    }
}

/// What this machine's kernel does by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kernel {
    /// Whether page faults allocate superpages, at least in advised memory.
    gives_at_fault: bool,
    /// Minimum number of populated pages in a region that khugepaged collapses.
    least_present: Option<u16>,
    /// Maximum number of swapped-out pages in a region that khugepaged collapses.
    most_swapped: Option<u16>,
}

impl Kernel {
    /// Linux with default settings.
    pub(super) fn usual() -> Self {
        Self { gives_at_fault: true, least_present: Some(1), most_swapped: Some(64) }
    }

    fn read() -> Self {
        let Some(thp) = Thp::from_root(&Root::real()) else { return Self::default() };
        let pages = 1u64 << Scale::X86.superpage;
        let number = |value: u64| u16::try_from(value).ok();
        let none = thp.khugepaged.max_ptes_none.map(|none| pages.saturating_sub(none).max(1));
        Self {
            gives_at_fault: facts::mode_of_largest(&thp).is_some_and(|mode| mode != "never"),
            least_present: none.and_then(number),
            most_swapped: thp.khugepaged.max_ptes_swap.and_then(number),
        }
    }

    fn has(&self, criterion: &Criterion) -> bool {
        match criterion {
            Criterion::LeastPresent(pages) => self.least_present == Some(*pages),
            Criterion::MostSwapped(pages) => self.most_swapped == Some(*pages),
            Criterion::Condition(..) | Criterion::Accessed(_) => false,
        }
    }
}

/// Returns the recipe that launches a program under a design, and the rules that are not applied exactly.
pub fn from_design(
    design: &Design,
    executor: Executor,
    kernel: Kernel,
) -> Result<(Recipe, Vec<RuleNote>), Failure> {
    let name = &design.name;
    let plan = design.policy(Scale::X86).launch();
    if !executor.is_usual() {
        check_reserves(design).map_err(|why| {
            Failure::usage(format!("design {name} cannot have executor {executor}: {why}"))
        })?;
    }
    let size = plan.size.unwrap_or(ByteSize::mib(2));
    let by_fault = kernel.gives_at_fault && gives_at_fault(design, executor);
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
                // Superpages at the first fault, as `run` makes them without a design.
                Executor::Collapse if by_fault => (Pages::Thp, Memory::default()),
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
    notes.extend(kernel_notes(design, &plan, executor, by_fault, kernel));
    let design = Some(name.clone());
    let advice = if plan.compacts { Advice::All } else { Advice::Contiguous };
    let recipe = Recipe {
        name: name.clone(),
        memory,
        advice,
        ahead,
        design,
        executor,
        ..Recipe::new(pages)
    };
    Ok((recipe, notes))
}

/// Fails if a design makes no reservations that an executor could use.
fn check_reserves(design: &Design) -> Result<(), String> {
    let policy = design.policy(Scale::X86);
    match policy.launch().pages {
        LaunchPages::OwnKernel => live::check_reserves(&policy),
        _ => Err("the kernel makes its superpages".to_string()),
    }
}

/// Returns whether the kernel's page faults make a design's superpages. The design makes reservations, but they are
/// fully prepared and mapped at the first fault. See docs/decisions/live.md#13.
pub fn gives_at_fault(design: &Design, executor: Executor) -> bool {
    let policy = design.policy(Scale::X86);
    let is_own = policy.launch().pages == LaunchPages::OwnKernel;
    is_own && executor == Executor::Collapse && live::is_at_first_fault(&policy)
}

/// Returns the executor of a design if `wanted` is chosen for all designs with reservations.
pub fn executor_of(design: &Design, wanted: Executor) -> Executor {
    match check_reserves(design) {
        Ok(()) => wanted,
        Err(_) => Executor::Collapse,
    }
}

/// Adds the settings of a recipe's design to it. Returns the rules that are not applied exactly. If one of these rules
/// decides whether superpages are made, fails unless the recipe is `approximate` or its executor is `pool`.
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
    let (of_design, notes) = from_design(&named.design, recipe.executor, Kernel::read())?;
    let deciding = notes.iter().find(|note| note.bearing == Bearing::Whether);
    if let Some(note) = deciding
        && !recipe.approximate
        && recipe.executor != Executor::Pool
    {
        let Named { label, .. } = &named;
        return Err(Failure::usage(format!(
            "{}: {}: design {label} is not carried out here, as this decides whether superpages are made: {}; simulate it \
             with: superpage lab run --design {label}, or add --approximate (to an arm: approximate=yes)",
            place(&named, note.key()),
            note.key(),
            note.words,
        )));
    }
    recipe.approximate = deciding.is_some();
    (recipe.pages, recipe.advice) = (of_design.pages, of_design.advice);
    if recipe.memory.is_empty() {
        recipe.memory = of_design.memory;
    }
    // Explicit settings override the design's.
    recipe.ahead.prezero = recipe.ahead.prezero.or(of_design.ahead.prezero);
    recipe.ahead.prefault = recipe.ahead.prefault.or(of_design.ahead.prefault);
    Ok(notes)
}

/// Adds "(approximate)" to the name of an approximate recipe.
pub fn name_approximate(recipe: &mut Recipe) {
    if recipe.approximate {
        recipe.name += " (approximate)";
    }
}

/// Returns the policy that superpage itself applies to a recipe's program. Returns `None` if there is none, or if the
/// kernel's faults make its superpages and superpage may make no others.
pub fn in_force(recipe: &Recipe) -> Result<Option<Policy>, Failure> {
    let Some(word) = &recipe.design else { return Ok(None) };
    let design = super::load(word)?.design;
    let is_in_force = match recipe.pages {
        Pages::Collapsed => true,
        Pages::Thp => {
            gives_at_fault(&design, recipe.executor) && live::check_machine(&Root::real()).is_ok()
        }
        _ => false,
    };
    Ok(is_in_force.then(|| design.policy(Scale::X86)))
}

/// Fails if superpage cannot apply the recipe's design on this machine.
pub fn check_in_force(recipe: &Recipe) -> Result<(), Failure> {
    check(recipe, live::check_machine)?;
    match recipe.executor {
        Executor::InPlace => check(recipe, |_| live::check_in_place()),
        _ => Ok(()),
    }
}

/// Fails if a design's effects cannot even be observed on this machine.
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

/// Fails if this machine lacks a THP size that the design gives to programs.
pub fn check_sizes(named: &Named) -> Result<(), Failure> {
    let Some(thp) = Thp::from_root(&Root::real()) else { return Ok(()) };
    let sizes: BTreeSet<u64> =
        thp.sizes.keys().copied().chain(thp.pmd_size).map(|size| size.bytes()).collect();
    let here: Vec<u64> = sizes.into_iter().collect();
    match first_missing_size(&named.design, &here) {
        None => Ok(()),
        Some(size) => {
            let place = place(named, SIZES);
            let here: Vec<String> = here.iter().map(|size| ByteSize(*size).to_string()).collect();
            Err(Failure::usage(format!(
                "{place}: {SIZES}: {}: this machine has no transparent superpages of this size; it has {}",
                ByteSize(size),
                here.join(", ")
            )))
        }
    }
}

fn place(named: &Named, key: &str) -> String {
    let file = named.file.clone().unwrap_or(format!("designs/{}.toml", named.label));
    format!("{file}:{}", Design::line_of(&named.text, key))
}

const SIZES: &str = "allocation.sizes";

/// Returns the first THP size of a design, in bytes, that is not in `here` (bytes).
fn first_missing_size(design: &Design, here: &[u64]) -> Option<u64> {
    let policy = design.policy(Scale::X86);
    let is_transparent = policy.launch().pages == LaunchPages::Transparent && !here.is_empty();
    let mut sizes = policy.sizes().iter().map(|order| Scale::X86.base_page << order);
    if is_transparent { sizes.find(|size| !here.contains(size)) } else { None }
}

/// Returns the preparation that the library applies, and notes on the other preparation rules.
fn ahead(plan: &Launch, pages: Pages, size: ByteSize) -> (Ahead, Vec<RuleNote>) {
    let (mut ahead, mut notes) = (Ahead::default(), Vec::new());
    let can = pages == Pages::Thp && plan.is_whole;
    let mut not_applied = |rule: &str, why: &str| notes.push(RuleNote::nothing(rule, why));
    const ONLY: &str = "only transparent superpages can be prepared ahead";
    match plan.prezero {
        false => {}
        true if !can => not_applied("[preparation.prezero]", ONLY),
        true => {
            ahead.prezero = Some(MAX_PREPARED);
            // superpage runs no thread of its own inside the program.
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

/// Prefixes of keys that superpage applies itself: daemons and thresholds.
pub(super) const IN_FORCE: [&str; 7] = [
    "allocation.growth",
    "allocation.shortage",
    "preparation.fill-at",
    "preparation.background.",
    "mapping.",
    "unmapping.clean-write",
    "deallocation.",
];

/// Prefixes of keys that earlier steps have applied or noted.
pub(super) const HANDLED_KEYS: [&str; 7] = [
    "allocation.trigger",
    "allocation.form",
    SIZES,
    "allocation.eligible",
    "preparation.grain",
    "preparation.prezero.",
    "preparation.prefault.",
];

/// Returns notes on the remaining rules for which this kernel behaves differently.
fn kernel_notes(
    design: &Design,
    plan: &Launch,
    executor: Executor,
    by_fault: bool,
    kernel: Kernel,
) -> Vec<RuleNote> {
    let mut notes = Vec::new();
    let is_in_force = plan.pages == LaunchPages::OwnKernel;
    let policy = design.policy(Scale::X86);
    if is_in_force {
        let rules = match executor {
            Executor::Pool => live::rules_on_pool(&policy),
            Executor::InPlace => live::rules(&policy, Fresh::Frames),
            Executor::Collapse if by_fault => live::rules(&policy, Fresh::Superpages),
            Executor::Collapse => live::rules(&policy, Fresh::BasePages),
        };
        notes.extend(rules.iter().map(rule_in_words));
    }
    let like = match plan.pages {
        LaunchPages::Transparent => KERNEL,
        LaunchPages::Pool => KERNEL_POOL,
        LaunchPages::Base | LaunchPages::OwnKernel => KERNEL_BASE,
    };
    let is_transparent = plan.pages == LaunchPages::Transparent;
    if is_transparent && policy.sizes().iter().count() > 1 {
        let words = format!(
            "sizes other than {} are the machine's setting \
             (transparent_hugepage/hugepages-*/enabled)",
            plan.size.unwrap_or(ByteSize::mib(2))
        );
        notes.push(RuleNote::nothing(SIZES, words));
    }
    let Ok(preset) = designs::find(like) else { return notes };
    let of_kernel = preset.policy(Scale::X86);
    let deciding: Vec<Criterion> = policy
        .criteria()
        .filter(|one| is_transparent && !kernel.has(one))
        .filter(|one| of_kernel.criteria().all(|other| other != *one))
        .collect();
    notes.extend(deciding.iter().map(|criterion| RuleNote {
        rule: criterion.key().to_string(),
        instead: Instead::Kernel,
        bearing: Bearing::Whether,
        words: without(criterion, kernel),
    }));
    let keys: Vec<String> = diff(&preset, design)
        .into_iter()
        .map(|difference| difference.key)
        .filter(|key| !HANDLED_KEYS.iter().any(|ours| key.starts_with(ours)))
        .filter(|key| !is_in_force || !IN_FORCE.iter().any(|ours| key.starts_with(ours)))
        .filter(|key| deciding.iter().all(|criterion| criterion.key() != key))
        .collect();
    if !keys.is_empty() {
        let (rule, words, bearing) = (keys.join(", "), String::new(), Bearing::How);
        notes.push(RuleNote { rule, instead: Instead::Kernel, bearing, words });
    }
    notes
}

/// Says what the kernel does instead of a condition or threshold.
fn without(criterion: &Criterion, kernel: Kernel) -> String {
    match criterion {
        Criterion::Condition(Rule::Fault, _) => {
            "the kernel's fault makes a superpage wherever one fits and is free".to_string()
        }
        Criterion::Condition(Rule::Scan, _) | Criterion::Accessed(_) => {
            "khugepaged takes regions by address".to_string()
        }
        Criterion::Condition(Rule::Split, _) => {
            "the kernel splits no superpage for its accesses".to_string()
        }
        Criterion::LeastPresent(wanted) => match kernel.least_present {
            Some(pages) => format!(
                "khugepaged takes regions with {pages} of 512 pages (khugepaged/max_ptes_none), not {wanted}"
            ),
            None => "khugepaged's limit is not known".to_string(),
        },
        Criterion::MostSwapped(_) => {
            "khugepaged's own limit holds (khugepaged/max_ptes_swap)".to_string()
        }
    }
}

fn rule_in_words(rule: &live::Rule) -> RuleNote {
    let live::Rule { rule, asked, done, decides } = rule;
    match done {
        Some(done) => RuleNote {
            rule: rule.to_string(),
            instead: Instead::Superpage,
            bearing: if *decides { Bearing::Whether } else { Bearing::How },
            words: format!("{asked}: {done}"),
        },
        None => RuleNote::nothing(rule, *asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules that decide whether superpages are made and that are not applied.
    fn not_decided(design: &Design, executor: Executor, kernel: Kernel) -> Vec<String> {
        let notes = from_design(design, executor, kernel).unwrap().1.into_iter();
        let deciding = notes.filter(|note| note.bearing == Bearing::Whether);
        deciding.map(|note| note.rule).collect()
    }

    fn changed(preset: &str, from: &str, to: &str) -> Design {
        let text = designs::preset(preset).unwrap().text;
        assert!(text.contains(from), "{preset} has no {from}");
        Design::from_toml("mine.toml", &text.replace(from, to)).unwrap()
    }

    #[test]
    fn conditions_and_thresholds_that_the_kernel_does_not_have_decide() {
        let rules = |design: &Design| not_decided(design, Executor::Collapse, Kernel::usual());
        for preset in
            ["linux-6", "linux-6-always", "linux-4.3", "prezeroed-pool", "hugetlb", "base"]
        {
            assert_eq!(rules(&designs::find(preset).unwrap()), [""; 0], "{preset}");
        }
        // superpage applies the design's own rules to the superpages that it makes.
        for preset in ["freebsd", "ingens", "quicksilver-sync-1", "quicksilver-sync-64"] {
            assert_eq!(rules(&designs::find(preset).unwrap()), [""; 0], "{preset}");
        }
        assert_eq!(rules(&designs::find("cbmm").unwrap()), ["allocation.when"]);
        let when = changed("linux-6", "form = ", "when = \"pages == 16\"\nform = ");
        assert_eq!(rules(&when), ["allocation.when"]);
        let half = changed("linux-6", "least-present = 1 ", "least-present = 256 ");
        assert_eq!(rules(&half), ["mapping.scan.least-present"]);
        // Delays, batches and efforts do not decide whether superpages are made.
        for (from, to) in [
            ("every = \"10s\"", "every = \"1s\""),
            ("regions = 8", "regions = 800"),
            ("effort = \"direct-retry\"", "effort = \"none\""),
        ] {
            assert_eq!(rules(&changed("linux-6", from, to)), [""; 0], "{to}");
        }
    }

    #[test]
    fn a_threshold_that_khugepaged_is_set_to_is_carried_out() {
        let underused = designs::find("linux-6-underused").unwrap();
        let set_to = |pages| Kernel { least_present: Some(pages), ..Kernel::usual() };
        let rules = |kernel| not_decided(&underused, Executor::Collapse, kernel);
        assert_eq!(rules(Kernel::usual()), ["mapping.scan.least-present"]);
        assert_eq!(rules(set_to(103)), [""; 0]);
        assert_eq!(rules(Kernel::default()), ["mapping.scan.least-present"], "unknown is not 1");
    }

    #[test]
    fn on_the_pool_no_threshold_decides() {
        let rules =
            |preset| not_decided(&designs::find(preset).unwrap(), Executor::Pool, Kernel::usual());
        assert_eq!(rules("quicksilver-sync-64"), ["mapping.when"]);
        assert_eq!(rules("freebsd"), ["mapping.when"]);
        // quicksilver-sync-1 has no such rule.
        assert_eq!(rules("quicksilver-sync-1"), [""; 0]);
    }

    /// The policy's answers decide, not the design's name.
    #[test]
    fn superpages_of_the_first_fault_are_the_kernels() {
        let pages = |design: &Design, executor, kernel| {
            let recipe = from_design(design, executor, kernel).unwrap().0;
            (recipe.pages, recipe.memory.is_empty())
        };
        let sync_1 = designs::find("quicksilver-sync-1").unwrap();
        assert_eq!(pages(&sync_1, Executor::Collapse, Kernel::usual()), (Pages::Thp, true));
        assert_eq!(pages(&sync_1, Executor::InPlace, Kernel::usual()).0, Pages::Collapsed);
        // With THP off, superpage makes the superpages.
        let never = Kernel { gives_at_fault: false, ..Kernel::usual() };
        assert_eq!(pages(&sync_1, Executor::Collapse, never).0, Pages::Collapsed);
        let at_64 = changed("quicksilver-sync-1", "fill-at = 1 ", "fill-at = 2 ");
        assert_eq!(pages(&at_64, Executor::Collapse, Kernel::usual()).0, Pages::Collapsed);
        let at_once = changed("quicksilver-sync-64", "fill-at = 64 ", "fill-at = 1 ");
        assert_eq!(pages(&at_once, Executor::Collapse, Kernel::usual()).0, Pages::Thp);
    }

    fn of_preset(name: &str) -> Result<(Recipe, Vec<String>), Failure> {
        in_words(&designs::find(name).expect("a preset"))
    }

    fn in_words(design: &Design) -> Result<(Recipe, Vec<String>), Failure> {
        let (recipe, notes) = from_design(design, Executor::default(), Kernel::usual())?;
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
        let lacks = |name: &str, here: &[u64]| {
            first_missing_size(&designs::find(name).expect("a preset"), here)
        };
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
