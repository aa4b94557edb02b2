//! The built-in machines: `machines/*.toml` at the workspace's root, which users read, copy and change.

use super::Machine;

/// An unknown name of a machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown machine `{name}`: expected one of {known}, or a file", known = known())]
pub struct UnknownMachine {
    /// The given name.
    pub name: String,
}

fn known() -> String {
    names().collect::<Vec<_>>().join(", ")
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../machines/", $name, ".toml")))),*]
    };
}

/// Names and texts, sorted by name.
const PRESETS: &[(&str, &str)] = presets![
    "athlon64-3000",
    "cascade-lake",
    "core-duo-t2600",
    "e3-1231v3",
    "e3-1245v6",
    "e5-2640v4",
    "golden-cove",
    "haswell",
    "ice-lake",
    "itanium2-16k",
    "itanium2-16k-long",
    "neoverse-n1",
    "neoverse-v1",
    "neoverse-v2",
    "phenom-9950",
    "ppc970",
    "ppc970-64k",
    "r7-2700x",
    "skylake",
    "zen1",
    "zen2",
    "zen3",
    "zen4"
];

/// The names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a built-in machine.
pub fn preset_text(name: &str) -> Result<&'static str, UnknownMachine> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| UnknownMachine { name: name.to_string() })
}

/// The preset for a CPU by its ids: Intel's family 6 models as in Linux's `intel-family.h`, AMD's families and models,
/// and Arm's part numbers (docs/sources/machines.md 5).
///
/// `family` and `model` are those of x86; on Arm, `model` is the part number.
pub fn preset_of(vendor: &str, family: Option<u32>, model: Option<u32>) -> Option<&'static str> {
    Some(match (vendor, family, model?) {
        ("GenuineIntel", Some(6), 60 | 63 | 69 | 70) => "haswell",
        ("GenuineIntel", Some(6), 61 | 71 | 79 | 86) => "e5-2640v4",
        ("GenuineIntel", Some(6), 85) => "cascade-lake",
        ("GenuineIntel", Some(6), 78 | 94 | 142 | 158 | 165 | 166) => "e3-1245v6",
        ("GenuineIntel", Some(6), 106 | 108 | 125 | 126 | 140 | 141 | 167) => "ice-lake",
        ("GenuineIntel", Some(6), 143 | 151 | 154 | 173 | 174 | 183 | 186 | 191 | 207) => {
            "golden-cove"
        }
        ("AuthenticAMD", Some(0x17), 0..=0x2f | 0x50..=0x5f) | ("HygonGenuine", Some(0x18), _) => {
            "zen1"
        }
        ("AuthenticAMD", Some(0x17), _) => "zen2",
        ("AuthenticAMD", Some(0x19), 0x10..=0x1f | 0x60..=0xaf) => "zen4",
        ("AuthenticAMD", Some(0x19), _) => "zen3",
        ("AuthenticAMD", Some(0x1a), _) => "zen4",
        ("0x41", _, 0xd0c) => "neoverse-n1",
        ("0x41", _, 0xd40) => "neoverse-v1",
        ("0x41", _, 0xd4f) => "neoverse-v2",
        _ => return None,
    })
}

/// A built-in machine.
pub fn preset(name: &str) -> Result<Machine, UnknownMachine> {
    let text = preset_text(name)?;
    // The tests parse every built-in machine.
    Ok(Machine::from_toml(text, &format!("{name}.toml")).expect("the built-in machines are right"))
}
