//! The presets: `designs/*.toml`, embedded. Looked up by name or alias.

use crate::error::nearest;
use crate::{Design, DesignError};

/// A design that comes with superpage.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Other names it goes by.
    pub aliases: &'static [&'static str],
    /// The file, with its comments.
    pub text: &'static str,
}

impl Preset {
    /// The design.
    ///
    /// # Errors
    /// The preset cannot be read: a bug, which the tests find.
    pub fn design(&self) -> Result<Design, DesignError> {
        Design::from_toml(&format!("designs/{}.toml", self.name), self.text)
    }
}

macro_rules! presets {
    ($($name:literal $($alias:literal)*,)+) => {
        &[$(Preset {
            name: $name,
            aliases: &[$($alias),*],
            text: include_str!(concat!("../../../designs/", $name, ".toml")),
        }),+]
    };
}

/// The bounds first, then the systems, each beside those it came from.
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

/// The preset of this name or alias.
///
/// # Errors
/// [`DesignError::Unknown`], with the name that is spelt most like it.
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

/// The design of this name or alias.
///
/// # Errors
/// [`DesignError::Unknown`], with the name that is spelt most like it.
pub fn find(name: &str) -> Result<Design, DesignError> {
    preset(name)?.design()
}
