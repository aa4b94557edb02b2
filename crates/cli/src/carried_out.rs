//! A superpage design as a way to run a program: which of its rules the library inside the program carries
//! out, and which stay the kernel's. For `run --design`.

use crate::design::Named;
use std::collections::BTreeSet;

use design::{Design, designs, diff};
use host::{Root, Thp};
use launch::{Ahead, Memory, Pages, Recipe};
use policy::rules::Prefault;
use policy::{Launch, LaunchPages, Scale};
use units::{ByteSize, PageSize};

use crate::exit::Failure;

/// What is done, and what is not.
pub struct CarriedOut {
    /// How the program is to be launched.
    pub recipe: Recipe,
    /// The rules that are not carried out, in words.
    pub notes: Vec<String>,
}

/// What the kernel does without us, against which the other rules of a design are held.
const KERNEL: &str = "linux-6";
/// The same of a pool, and of base pages.
const KERNEL_POOL: &str = "hugetlb";
const KERNEL_BASE: &str = "base";

/// The most that the library keeps of what a program unmaps, or populates of a new mapping.
const MAX_PREPARED: ByteSize = ByteSize::mib(64);

/// Decides from the design.
pub fn carry_out(design: &Design) -> Result<CarriedOut, Failure> {
    let name = &design.name;
    let plan = design.policy(Scale::X86).launch();
    let size = plan.size.unwrap_or(ByteSize::mib(2));
    let (pages, memory) = match plan.pages {
        LaunchPages::Base => (Pages::Base, Memory::default()),
        LaunchPages::Pool => {
            let size = PageSize::new(size.bytes()).map_err(Failure::usage)?;
            (Pages::Hugetlb(Some(size)), Memory::USUAL)
        }
        LaunchPages::Transparent => (Pages::Thp, Memory::USUAL),
        LaunchPages::OwnKernel => {
            return Err(Failure::usage(format!(
                "design {name} cannot be carried out for a program: its superpages are reserved or \
                 collapsed by a kernel of its own; simulate it with: superpage lab run --design {name}"
            )));
        }
    };
    let (ahead, mut notes) = ahead(&plan, pages, size);
    notes.extend(not_ours(design, &plan));
    Ok(CarriedOut {
        recipe: Recipe { name: name.clone(), memory, ahead, ..Recipe::new(pages) },
        notes,
    })
}

/// Whether this machine has transparent superpages of all sizes that a design gives to programs.
pub fn has_sizes(named: &Named) -> Result<(), Failure> {
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
fn ahead(plan: &Launch, pages: Pages, size: ByteSize) -> (Ahead, Vec<String>) {
    let (mut ahead, mut notes) = (Ahead::default(), Vec::new());
    let can = pages == Pages::Thp && plan.is_whole;
    let mut not_carried_out = |rule: &str, why: &str| {
        notes.push(format!("not carried out: {rule}, because {why}"));
    };
    const ONLY: &str = "only transparent superpages can be prepared ahead";
    match plan.prezero {
        false => {}
        true if !can => not_carried_out("[preparation.prezero]", ONLY),
        true => {
            ahead.prezero = Some(MAX_PREPARED);
            // Nothing of ours runs beside the program's own threads.
            not_carried_out(
                "[preparation.prezero]",
                "no thread of superpage's works in a program; what the program unmaps is zeroed again for \
                 its next mapping",
            );
        }
    }
    match plan.prefault {
        Prefault::None => {}
        Prefault::Doubling(order) if can => {
            ahead.prefault = Some(ByteSize(size.bytes() << (order + 1)).min(MAX_PREPARED));
        }
        Prefault::Doubling(_) => not_carried_out("[preparation.prefault]", ONLY),
        Prefault::Resident(_) => {
            not_carried_out("[preparation.prefault]", "pages of files are the kernel's to map");
        }
    }
    (ahead, notes)
}

/// Keys that were carried out, or that something was said of.
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
fn not_ours(design: &Design, plan: &Launch) -> Vec<String> {
    let mut notes = Vec::new();
    let like = match plan.pages {
        LaunchPages::Transparent => KERNEL,
        LaunchPages::Pool => KERNEL_POOL,
        LaunchPages::Base | LaunchPages::OwnKernel => KERNEL_BASE,
    };
    let is_transparent = plan.pages == LaunchPages::Transparent;
    if is_transparent && design.policy(Scale::X86).sizes().iter().count() > 1 {
        notes.push(format!(
            "not carried out: {SIZES}, because which sizes there are beside {} is the machine's to say \
             (transparent_hugepage/hugepages-*/enabled)",
            plan.size.unwrap_or(ByteSize::mib(2))
        ));
    }
    let Ok(kernel) = designs::find(like) else { return notes };
    let keys: Vec<String> = diff(&kernel, design)
        .into_iter()
        .map(|difference| difference.key)
        .filter(|key| !OURS.iter().any(|ours| key.starts_with(ours)))
        .collect();
    if !keys.is_empty() {
        let keys = keys.join(", ");
        notes.push(format!(
            "not carried out, because the kernel has its own rules for them: {keys}"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried(name: &str) -> Result<CarriedOut, Failure> {
        carry_out(&designs::find(name).expect("a preset"))
    }

    #[test]
    fn the_preset_becomes_a_stock_and_a_window() {
        let done = carried("prezeroed-pool").unwrap();
        assert_eq!((done.recipe.pages, done.recipe.memory), (Pages::Thp, Memory::USUAL));
        assert_eq!(done.recipe.ahead.prezero, Some(MAX_PREPARED));
        assert_eq!(done.recipe.ahead.prefault, Some(ByteSize::mib(64)));
        assert!(done.notes[0].contains("no thread"), "{:?}", done.notes);
    }

    #[test]
    fn what_is_not_carried_out_is_named() {
        let preset = designs::preset("prezeroed-pool").unwrap().text;
        let text = preset.replace("proactiveness = 20", "proactiveness = 99");
        let design = Design::from_toml("mine.toml", &text).unwrap();
        let done = carry_out(&design).unwrap();
        assert!(done.notes[1].contains("memory.proactiveness"), "{:?}", done.notes);
    }

    #[test]
    fn keys_of_a_pool_and_of_base_pages_are_named_too() {
        let notes = |preset: &str, from: &str, to: &str| {
            let text = designs::preset(preset).unwrap().text.replace(from, to);
            carry_out(&Design::from_toml("mine.toml", &text).unwrap()).unwrap().notes.concat()
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
            match carried(preset.name) {
                Ok(done) => assert_eq!(done.recipe.name, preset.name),
                Err(why) => assert!(format!("{why:?}").contains("superpage lab run"), "{why:?}"),
            }
        }
        assert_eq!(carried("base").unwrap().recipe.pages, Pages::Base);
        assert!(matches!(carried("hugetlb").unwrap().recipe.pages, Pages::Hugetlb(Some(_))));
        assert!(carried("freebsd").is_err());
    }
}
