//! Design to TOML: a walk over its keys that lists their values.

use policy::table::{Keys, Limit, Slot};

use crate::{Design, Value, field, schema};

/// A key of the design.
pub(crate) struct Entry {
    /// The key with its table prefix.
    pub key: String,
    pub value: Value,
    /// Limit of the key's number.
    pub limit: Option<Limit>,
    /// The key's number, or its time in nanoseconds.
    pub amount: Option<u64>,
}

/// Lists every key of the design, in file order.
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
    /// The tables that contain the next key, outermost first.
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

/// Joins a key with its table prefix.
pub(crate) fn path(tables: &[&str], name: &str) -> String {
    tables.iter().chain([&name]).copied().collect::<Vec<_>>().join(".")
}
