//! Design to TOML: a walk over [`crate::schema`] that lists every key with its value.

use crate::field::Field;
use crate::schema::{self, Keys};
use crate::{Design, Value, condition};
use policy::{Condition, Rule};

/// Every key that the design has, with its tables before it, and its value; in the
/// schema's order.
pub(crate) fn pairs(design: &Design) -> Vec<(String, Value)> {
    let mut writer = Writer { path: String::new(), pairs: vec![] };
    schema::design(&mut writer, &mut design.clone());
    writer.pairs
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
    path: String,
    pairs: Vec<(String, Value)>,
}

impl Keys for Writer {
    fn key<T: Field>(&mut self, name: &'static str, value: &mut T) {
        self.pairs.push((format!("{}{name}", self.path), value.write()));
    }

    fn option<T: Field>(&mut self, name: &'static str, value: &mut Option<T>) {
        if let Some(value) = value {
            self.key(name, value);
        }
    }

    fn condition(&mut self, name: &'static str, _: Rule, value: &mut Option<Condition>) {
        if let Some(value) = value {
            self.key(name, &mut condition::text(value));
        }
    }

    fn only_with(&mut self, _: &[&'static str], _: &'static str) {}

    fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self)) {
        let above = self.path.len();
        self.path += &format!("{name}.");
        keys(self);
        self.path.truncate(above);
    }

    fn optional_table<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        _: T,
        keys: impl FnOnce(&mut Self, &mut T),
    ) {
        if let Some(value) = value {
            self.table(name, |writer| keys(writer, value));
        }
    }
}
