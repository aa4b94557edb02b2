//! Design to TOML: a walk over its keys that lists each with its value.

use policy::table::{Keys, Limit, Slot};

use crate::{Design, Value, field, schema};

/// A key that the design has.
pub(crate) struct Entry {
    /// With its tables before it.
    pub key: String,
    pub value: Value,
    /// What its amount must be.
    pub limit: Option<Limit>,
    /// A number, or a time in nanoseconds.
    pub amount: Option<u64>,
}

/// Every key that the design has, in the order of the file.
pub(crate) fn entries(design: &Design) -> Vec<Entry> {
    let mut writer = Writer { tables: vec![], entries: vec![] };
    schema::design(&mut writer, &mut design.clone());
    writer.entries
}

pub(crate) fn pairs(design: &Design) -> Vec<(String, Value)> {
    entries(design).into_iter().map(|entry| (entry.key, entry.value)).collect()
}

pub(crate) fn toml(design: &Design) -> String {
    let mut text = String::new();
    let mut current = String::new();
    for (key, value) in pairs(design) {
        let (table, name) = key.rsplit_once('.').unwrap_or(("", &key));
        if table != current {
            text += &format!("\n[{table}]\n");
            current = table.to_string();
        }
        text += &format!("{name} = {value}\n");
    }
    text
}

struct Writer {
    /// Those that the next key is in.
    tables: Vec<&'static str>,
    entries: Vec<Entry>,
}

impl Keys for Writer {
    fn key(&mut self, name: &'static str, limit: Option<Limit>, slot: Slot<'_>) {
        let (key, amount) = (path(&self.tables, name), slot.amount());
        let entry = field::write(&slot).map(|value| Entry { key, value, limit, amount });
        self.entries.extend(entry);
    }

    fn only_with(&mut self, _: &[&'static str], _: &'static str) {}

    fn enter(&mut self, name: &'static str, is_there: bool) -> bool {
        self.tables.push(name);
        is_there
    }

    fn leave(&mut self) {
        self.tables.pop();
    }
}

/// A key with its tables before it.
pub(crate) fn path(tables: &[&str], name: &str) -> String {
    tables.iter().chain([&name]).copied().collect::<Vec<_>>().join(".")
}
