//! The machines that are built in: `machines/*.toml` at the workspace's root, which users read,
//! copy and change.

use super::Machine;

/// The named machine is not built in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown machine `{name}`: expected one of {known}, or a file", known = known())]
pub struct UnknownMachine {
    /// What was asked for.
    pub name: String,
}

fn known() -> String {
    names().collect::<Vec<_>>().join(", ")
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../machines/", $name, ".toml")))),*]
    };
}

/// Names and texts, by name.
const PRESETS: &[(&str, &str)] = presets![
    "cascade-lake",
    "e3-1245v6",
    "e5-2640v4",
    "golden-cove",
    "haswell",
    "ice-lake",
    "itanium2-16k",
    "neoverse-n1",
    "neoverse-v1",
    "neoverse-v2",
    "ppc970",
    "r7-2700x",
    "skylake",
    "zen1",
    "zen2",
    "zen3",
    "zen4"
];

/// The names of the machines that are built in.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The file of a machine that is built in.
pub fn preset_text(name: &str) -> Result<&'static str, UnknownMachine> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| UnknownMachine { name: name.to_string() })
}

/// A machine that is built in.
pub fn preset(name: &str) -> Result<Machine, UnknownMachine> {
    let text = preset_text(name)?;
    // The tests read every one of them.
    Ok(Machine::from_toml(text, &format!("{name}.toml")).expect("the built-in machines are right"))
}
