//! The presets: `designs/*.toml`, embedded in the binary and found by name or alias.

use crate::error::nearest;
use crate::{Design, DesignError, Value, write};

/// A built-in design.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its aliases.
    pub aliases: &'static [&'static str],
    /// The text of its file, with comments.
    pub text: &'static str,
}

impl Preset {
    /// Parses the design.
    ///
    /// # Errors
    /// The embedded file is invalid; the tests check every preset.
    pub fn design(&self) -> Result<Design, DesignError> {
        Design::from_toml(&format!("designs/{}.toml", self.name), self.text)
    }
}

macro_rules! presets {
    ($($name:literal $($alias:literal)*,)+) => {
        &[$(Preset {
            name: $name,
            aliases: &[$($alias),*],
            text: include_str!(concat!("../../../../designs/", $name, ".toml")),
        }),+]
    };
}

/// The ideal designs first, then the systems; each preset stands next to those it derives from.
const PRESETS: &[Preset] = presets! {
    "base",
    "ideal",
    "linux-4.3",
    "linux-6" "linux" "linux-6-madvise",
    "linux-6-always",
    "linux-6-defer",
    "linux-6-mthp" "mthp",
    "linux-6-underused",
    "prezeroed-pool",
    "ingens",
    "ingens-star" "ingens*",
    "hawkeye-pmu" "hawkeye",
    "hawkeye-g",
    "hawkeye-star" "hawkeye*",
    "navarro",
    "freebsd",
    "freebsd-11.2",
    "quicksilver-sync-1" "sync-1",
    "quicksilver-sync-64" "sync-64" "quicksilver",
    "quicksilver-async-64" "async-64",
    "quicksilver-async-256" "async-256",
    "hugetlb",
    "cbmm",
    "elastic" "elastic-translations",
    "hugescope" "fhpm",
    "trident",
};

/// All presets, in a stable order.
pub fn list() -> &'static [Preset] {
    PRESETS
}

/// Finds a preset by name or alias.
///
/// # Errors
/// [`DesignError::Unknown`], with the most similar name.
pub fn preset(name: &str) -> Result<&'static Preset, DesignError> {
    let named = |preset: &&Preset| preset.name == name || preset.aliases.contains(&name);
    PRESETS.iter().find(named).ok_or_else(|| {
        let names = PRESETS
            .iter()
            .flat_map(|preset| [preset.name].into_iter().chain(preset.aliases.iter().copied()));
        DesignError::Unknown {
            name: name.to_string(),
            nearest: nearest(name, names),
            known: PRESETS.iter().map(|preset| preset.name).collect(),
        }
    })
}

/// Returns the design under which the laboratory fragments memory for all designs: the scripts of ATC'20 fragment Linux'
/// memory with THP `always`. See docs/decisions/lab-model.md#21.
pub fn fragmenting() -> Design {
    find("linux-4.3").expect("a preset")
}

/// Finds a preset by name or alias and parses it.
///
/// # Errors
/// [`DesignError::Unknown`], with the most similar name.
pub fn find(name: &str) -> Result<Design, DesignError> {
    preset(name)?.design()
}

// Differences between two designs, key by key.

/// A key whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The key with its table prefix: `preparation.fill-at`.
    pub key: String,
    /// Its value in the first design; `None` if the key is absent there.
    pub a: Option<Value>,
    /// Its value in the second design.
    pub b: Option<Value>,
}

/// Returns the keys that differ, in the order of the five events. Ignores names and summaries.
pub fn diff(a: &Design, b: &Design) -> Vec<Difference> {
    let (a, b) = (write::pairs(a), write::pairs(b));
    let mut differences = Vec::new();
    let mut rest = b.as_slice();
    for (key, value) in a {
        let Some(at) = rest.iter().position(|(other, _)| *other == key) else {
            differences.push(Difference { key, a: Some(value), b: None });
            continue;
        };
        // Both lists are in schema order, so the second list's keys before `key` are missing in the first list.
        differences.extend(rest[..at].iter().map(only_b));
        if rest[at].1 != value {
            differences.push(Difference { key, a: Some(value), b: Some(rest[at].1.clone()) });
        }
        rest = &rest[at + 1..];
    }
    differences.extend(rest.iter().map(only_b));
    differences.retain(|one| one.key != "name" && one.key != "summary");
    differences
}

fn only_b((key, value): &(String, Value)) -> Difference {
    Difference { key: key.clone(), a: None, b: Some(value.clone()) }
}
