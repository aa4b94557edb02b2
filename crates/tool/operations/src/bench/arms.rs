//! Arms of a benchmark: recipes, and what the workload does besides.

use host::{Root, Thp};
use launch::{Ahead, Facts, Memory, Pages, Recipe};
use units::{ByteSize, PageSize};

/// One arm.
#[derive(Clone, Debug)]
pub struct Arm {
    /// How the workload is launched.
    pub recipe: Recipe,
    /// Whether it has the kernel fault its pages in ahead.
    pub populates: bool,
}

const POPULATE: &str = "populate";

/// Reads an arm.
pub fn parse(text: &str) -> Result<Arm, String> {
    if text.trim() == POPULATE {
        return Ok(populating(Recipe::new(Pages::Base), POPULATE.to_string()));
    }
    let (text, populates) = match text.strip_prefix("populate+") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let recipe = readable(crate::jobs::arms::parse(text)?);
    let name = format!("{POPULATE}+{}", recipe.name);
    Ok(if populates { populating(recipe, name) } else { Arm { recipe, populates } })
}

fn populating(recipe: Recipe, name: String) -> Arm {
    Arm { recipe: Recipe { name, ..recipe }, populates: true }
}

/// What the library may keep, where nothing is said of bursts.
const READY: ByteSize = ByteSize::mib(64);
/// How much of a new mapping it populates.
const AHEAD: ByteSize = ByteSize::mib(64);

/// Superpages that libsuperpage.so prepared. What it may keep holds a burst; how much it does keep, its
/// bounds say.
fn pool(burst: Option<ByteSize>) -> Arm {
    let memory = Memory::USUAL;
    // What malloc needs beside the burst is little; a quarter more is enough for any.
    let ready = burst.map_or(READY, |burst| ByteSize((burst.bytes() / 4).saturating_mul(5)));
    let ahead = Ahead { prezero: Some(ready), prefault: Some(AHEAD) };
    let name = "pool".to_string();
    Arm { recipe: Recipe { name, memory, ahead, ..Recipe::new(Pages::Thp) }, populates: false }
}

/// Those of a benchmark for which none were named; `burst` is what is allocated at a time.
pub fn default(allow: bool, facts: &Facts, populates: bool, burst: Option<ByteSize>) -> Vec<Arm> {
    let of = |pages| Arm { recipe: Recipe::new(pages), populates: false };
    let sizes = if allow { spread_sizes() } else { facts.thp_sizes.clone() };
    let smaller = sizes.into_iter().rev().map(|size| Recipe::new(Pages::ThpOf(size)));
    let smaller = smaller.map(|recipe| Arm { recipe: readable(recipe), populates: false });
    let mut arms = vec![of(Pages::Base)];
    arms.extend(smaller);
    arms.extend([of(Pages::Thp), of(Pages::Hugetlb(None))]);
    if populates {
        arms.push(populating(Recipe::new(Pages::Base), POPULATE.to_string()));
    }
    arms.push(pool(burst));
    arms
}

/// The recipe, named after a size as people read it where it is named after one in bytes.
fn readable(recipe: Recipe) -> Recipe {
    let name = match folio(&recipe) {
        Some(size) if recipe.name == recipe.pages.to_string() => {
            format!("thp:{}", size.to_string().replace(' ', ""))
        }
        _ => recipe.name.clone(),
    };
    Recipe { name, ..recipe }
}

/// Has glibc map every piece anew. Otherwise it keeps freed ones of up to 32 MiB (`DEFAULT_MMAP_THRESHOLD_MAX` in
/// its malloc.c), and the next piece is memory that was touched before. A recipe that has tunables keeps them.
pub fn have_fresh_memory(arm: &mut Arm) {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    if arm.recipe.variable(TUNABLES).is_none() {
        let threshold = "glibc.malloc.mmap_threshold=131072".to_string();
        arm.recipe.environment.push((TUNABLES.to_string(), threshold));
    }
}

/// The size of smaller superpages that an arm asks for.
pub fn folio(recipe: &Recipe) -> Option<PageSize> {
    match recipe.pages {
        Pages::ThpOf(size) => Some(size),
        _ => None,
    }
}

/// Sizes of mTHP that this kernel has, the largest first; every other one, which is enough to see.
fn spread_sizes() -> Vec<PageSize> {
    let Some(thp) = Thp::from_root(&Root::real()) else { return Vec::new() };
    let smaller = thp.sizes.iter().rev().filter(|(size, _)| Some(**size) != thp.pmd_size);
    let smaller = smaller.filter(|(_, setting)| setting.enabled.is_some());
    smaller.map(|(size, _)| *size).step_by(2).collect()
}

/// Facts as they will be in an arm's runs, when the sizes that arms ask for are switched on for them.
pub fn allowed(facts: &mut Facts, arms: &[Arm]) {
    let thp = Thp::from_root(&Root::real());
    for size in arms.iter().filter_map(|arm| folio(&arm.recipe)) {
        let known = thp.as_ref().is_some_and(|thp| thp.sizes.contains_key(&size));
        if known && !facts.thp_sizes.contains(&size) {
            facts.thp_sizes.push(size);
        }
    }
}
