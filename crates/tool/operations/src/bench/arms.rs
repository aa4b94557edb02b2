//! Arms of a benchmark: recipes, and whether the workload populates its memory before it touches it.

use host::{Root, Thp};
use launch::{Ahead, Facts, Memory, Pages, Recipe};
use units::{ByteSize, PageSize};

/// One arm of a benchmark.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Recipe of the workload's process.
    pub recipe: Recipe,
    /// Whether the workload populates its memory (MADV_POPULATE_WRITE) before touching it.
    pub populates: bool,
}

const POPULATE: &str = "populate";

/// Parses an arm.
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

/// Default limit of prezeroed memory if `--burst` is not given.
const DEFAULT_PREZERO: ByteSize = ByteSize::mib(64);
/// Limit of the prefaulted part of a new mapping.
const DEFAULT_PREFAULT: ByteSize = ByteSize::mib(64);

/// Returns the arm whose superpages libsuperpage.so prepares. The limit is large enough for a burst; the library's
/// own bounds decide how much memory it keeps.
fn pool(burst: Option<ByteSize>) -> Arm {
    let memory = Memory::USUAL;
    // malloc needs little memory beyond the burst; a quarter more is enough.
    let ready =
        burst.map_or(DEFAULT_PREZERO, |burst| ByteSize((burst.bytes() / 4).saturating_mul(5)));
    let ahead = Ahead { prezero: Some(ready), prefault: Some(DEFAULT_PREFAULT) };
    let name = "pool".to_string();
    Arm { recipe: Recipe { name, memory, ahead, ..Recipe::new(Pages::Thp) }, populates: false }
}

/// Returns the default arms of a benchmark; `burst` is the size of one allocation.
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

/// Names a recipe by a readable size, if the recipe's name is a size in bytes.
fn readable(recipe: Recipe) -> Recipe {
    let name = match folio(&recipe) {
        Some(size) if recipe.name == recipe.pages.to_string() => {
            format!("thp:{}", size.to_string().replace(' ', ""))
        }
        _ => recipe.name.clone(),
    };
    Recipe { name, ..recipe }
}

/// Makes glibc map every allocation anew. By default glibc reuses freed memory of up to 32 MiB
/// (`DEFAULT_MMAP_THRESHOLD_MAX` in its malloc.c), whose pages were touched before. A recipe with its own tunables
/// keeps them.
pub fn have_fresh_memory(arm: &mut Arm) {
    const TUNABLES: &str = "GLIBC_TUNABLES";
    if arm.recipe.variable(TUNABLES).is_none() {
        let threshold = "glibc.malloc.mmap_threshold=131072".to_string();
        arm.recipe.environment.push((TUNABLES.to_string(), threshold));
    }
}

/// Returns the mTHP size that an arm requests.
pub fn folio(recipe: &Recipe) -> Option<PageSize> {
    match recipe.pages {
        Pages::ThpOf(size) => Some(size),
        _ => None,
    }
}

/// Returns every second mTHP size of this kernel, the largest first.
fn spread_sizes() -> Vec<PageSize> {
    let Some(thp) = Thp::from_root(&Root::real()) else { return Vec::new() };
    let smaller = thp.sizes.iter().rev().filter(|(size, _)| Some(**size) != thp.pmd_size);
    let smaller = smaller.filter(|(_, setting)| setting.enabled.is_some());
    smaller.map(|(size, _)| *size).step_by(2).collect()
}

/// Adds to `facts` the mTHP sizes that will be enabled during the arms' runs.
pub fn allowed(facts: &mut Facts, arms: &[Arm]) {
    let thp = Thp::from_root(&Root::real());
    for size in arms.iter().filter_map(|arm| folio(&arm.recipe)) {
        let known = thp.as_ref().is_some_and(|thp| thp.sizes.contains_key(&size));
        if known && !facts.thp_sizes.contains(&size) {
            facts.thp_sizes.push(size);
        }
    }
}
