//! The reference of design files: every key with what it takes, its default, its meaning and what it needs, from the
//! declarations that read the files ([`policy::rules`]) and the rules that check them ([`crate::check`]).

use policy::Rule;
use policy::table::{Keys, Limit, Slot};
use toml_keys::Field;
use units::ByteSize;

use crate::{Design, Value, check, field, schema, write};

/// A key of design files, or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHelp {
    /// The key with its table prefix: `mapping.scan.every`.
    pub key: String,
    /// A key, or what kind of table.
    pub kind: KeyKind,
    /// What the key takes. For keys of words: `a word`.
    pub takes: String,
    /// The words that the key takes, each with its meaning; empty: other values.
    pub words: Vec<(&'static str, String)>,
    /// The value where the key is missing; `None`: there is none then.
    pub default: Option<Value>,
    /// The meaning.
    pub meaning: String,
    /// What the key needs other keys to say, else the design is refused.
    pub needs: Vec<String>,
}

/// What an entry of the reference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// A key with a value.
    Key,
    /// A table that every design has.
    Table,
    /// A table that a design may lack; without it there is no such daemon or estimate.
    OptionalTable,
}

/// Returns every key and table of design files, in the order of [`Design::to_toml`]; tables stand before their keys.
pub fn reference() -> Vec<KeyHelp> {
    let mut all: Vec<KeyHelp> = Vec::new();
    for word in 0.. {
        // A word may have keys of its own, so every word of every key is chosen once.
        let mut lister = Lister { word, ..Lister::default() };
        schema::design(&mut lister, &mut Design::default());
        if word > 0 && !lister.has_chosen {
            break;
        }
        let mut at = 0;
        for (mut help, chosen) in lister.found {
            at = match all.iter().position(|one| one.key == help.key) {
                Some(known) => known + 1,
                None => {
                    help.needs.extend(chosen.map(|word| format!("goes only with {word}")));
                    all.insert(at, help);
                    at + 1
                }
            };
        }
    }
    for help in &mut all {
        help.needs.extend(check::needs(&help.key).map(str::to_string));
    }
    all
}

/// Lists keys, with one word chosen for each key of words.
#[derive(Default)]
struct Lister {
    /// Index of the word to choose, from 1; 0: the default's.
    word: usize,
    /// Whether a key has a word with this index.
    has_chosen: bool,
    /// The tables that contain the next key, outermost first, each with the word last chosen in it.
    tables: Vec<(&'static str, Option<String>)>,
    about: &'static str,
    /// The keys, each with the word chosen before it in its table.
    found: Vec<(KeyHelp, Option<String>)>,
}

impl Lister {
    fn path(&self, name: &str) -> String {
        let tables: Vec<&str> = self.tables.iter().map(|(name, _)| *name).collect();
        write::path(&tables, name)
    }
}

impl Keys for Lister {
    fn about(&mut self, meaning: &'static str) {
        self.about = meaning;
    }

    fn key(&mut self, name: &'static str, limit: Option<Limit>, slot: Slot<'_>) {
        let key = self.path(name);
        let before = self.tables.last().and_then(|(_, word)| word.clone());
        let (takes, default, meaning) =
            (takes(&key, &slot, limit), field::write(&slot), tidy(self.about));
        let mut words = Vec::new();
        if let Slot::Word(choice) = slot {
            let meanings = choice.meanings().iter().map(|meaning| tidy(meaning));
            words = choice.words().iter().copied().zip(meanings).collect();
            if let Some(word) = self.word.checked_sub(1).and_then(|at| choice.words().get(at)) {
                self.has_chosen = choice.choose(word);
                if let Some((_, chosen)) = self.tables.last_mut() {
                    *chosen = Some(format!("{name} = \"{word}\""));
                }
            }
        }
        let kind = KeyKind::Key;
        self.found
            .push((KeyHelp { key, kind, takes, words, default, meaning, needs: vec![] }, before));
    }

    fn only_with(&mut self, _: &[&'static str], _: &'static str) {}

    fn enter(&mut self, name: &'static str, is_there: bool) -> bool {
        let help = KeyHelp {
            key: self.path(name),
            kind: if is_there { KeyKind::Table } else { KeyKind::OptionalTable },
            takes: "a table".to_string(),
            words: vec![],
            default: None,
            meaning: tidy(self.about),
            needs: vec![],
        };
        self.found.push((help, None));
        self.tables.push((name, None));
        true
    }

    fn leave(&mut self) {
        self.tables.pop();
    }
}

/// Says what a key takes.
fn takes(key: &str, slot: &Slot<'_>, limit: Option<Limit>) -> String {
    let range = limit.map(|limit| limit.says).or_else(|| check::range(key));
    let range = range.map(|says| says.strip_prefix("must be ").unwrap_or(says));
    let with = |kind: &str| range.map_or(kind.to_string(), |range| format!("{kind}, {range}"));
    match slot {
        Slot::Text(_) => with("a text in quotes"),
        Slot::Word(_) => "a word".to_string(),
        Slot::Words(words, _) => {
            format!("a list of {}", words.map(toml_keys::quoted).join(" and "))
        }
        Slot::Flag(_) => bool::allowed(),
        Slot::Number(_) => range.unwrap_or("a whole number").to_string(),
        Slot::Size(_) => with(&ByteSize::allowed()),
        Slot::Sizes(_) => "a list of sizes, ascending: powers of two from 8K to 512G".to_string(),
        Slot::Time(_) => with("a time"),
        Slot::Condition(_) => {
            let rule = Rule::from_key(key).expect("a rule for each condition");
            format!("a condition over {}", crate::condition::facts(rule))
        }
        Slot::Spans(_) => "a list of spans: [\"0 512M 40000\"]".to_string(),
    }
}

/// Joins the lines of a comment.
fn tidy(comment: &str) -> String {
    comment.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every key of every preset is in the reference, and every key of the reference is read: a file with it and its
    /// default is not refused for an unknown key.
    #[test]
    fn the_reference_has_the_keys_that_are_read() {
        let all = reference();
        let has = |key: &str| all.iter().any(|help| help.key == key && help.kind == KeyKind::Key);
        for preset in crate::designs::list() {
            for (key, _) in preset.design().expect("presets are good").keys() {
                assert!(has(&key), "{key} of {}", preset.name);
            }
        }
        for key in [
            "memory.pool-pages",
            "preparation.prefault.order",
            "profile.spans",
            "deallocation.after",
        ] {
            assert!(has(key), "{key}");
        }
        for help in &all {
            let value = match &help.default {
                _ if help.kind != KeyKind::Key => "{}".to_string(),
                Some(value) => value.to_string(),
                None => continue,
            };
            let text = format!("{} = {value}\n", help.key);
            let problems = match Design::from_toml("x", &text) {
                Err(crate::DesignError::File { problems, .. }) => problems,
                _ => vec![],
            };
            let unknown = problems.iter().find(|problem| problem.what.starts_with("unknown key"));
            assert_eq!(unknown, None, "{text}");
        }
        let mut keys: Vec<&str> = all.iter().map(|help| help.key.as_str()).collect();
        let listed = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), listed, "each key once");
    }

    /// Every key and every word says what it means, in words of users: no names of the code.
    #[test]
    fn every_key_and_word_has_a_meaning() {
        for help in reference() {
            let texts = [(help.key.as_str(), &help.meaning)].into_iter();
            for (name, text) in texts.chain(help.words.iter().map(|(word, text)| (*word, text))) {
                assert!(text.ends_with(['.', ')']), "{}: {name}: {text:?}", help.key);
                let code =
                    ["::", "[`", "Self", "None`", "Some("].iter().find(|code| text.contains(*code));
                assert_eq!(code, None, "{}: {name}: {text}", help.key);
            }
        }
    }

    #[test]
    fn an_entry_says_what_it_takes_and_needs() {
        let all = reference();
        let of =
            |key: &str| all.iter().find(|help| help.key == key).unwrap_or_else(|| panic!("{key}"));
        let fill = of("preparation.fill-at");
        assert_eq!(fill.takes, "1 to the pages of the largest of allocation.sizes (512 for 2M)");
        assert_eq!(fill.default, None);
        assert!(
            fill.needs.iter().any(|needs| needs.contains("form = \"reservation\"")),
            "{fill:?}"
        );
        let after = of("deallocation.after");
        assert_eq!(after.needs, ["goes only with when = \"inactive\""]);
        assert_eq!(after.default.as_ref().map(ToString::to_string).as_deref(), Some("\"5s\""));
        let form = of("allocation.form");
        let words: Vec<&str> = form.words.iter().map(|(word, _)| *word).collect();
        assert_eq!(words, ["superpage", "reservation", "pool"]);
        assert_eq!(of("mapping.scan").kind, KeyKind::OptionalTable);
        assert_eq!(of("mapping").kind, KeyKind::Table);
    }
}
