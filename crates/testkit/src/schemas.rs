//! Checks documents against docs/schemas: implements the part of JSON Schema 2020-12 that those files use. Any other
//! keyword is an error, so every keyword in those files is checked.
//!
//! See docs/decisions/documents.md#1.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::OnceLock;

use serde_json::{Map, Value};

/// The schema files of a folder, by file name.
#[derive(Debug)]
pub struct Schemas(BTreeMap<String, Value>);

/// A schema, and the file that contains it.
#[derive(Clone, Copy)]
struct Part<'a> {
    file: &'a str,
    schema: &'a Value,
}

const TYPES: [&str; 7] = ["null", "boolean", "string", "array", "object", "number", "integer"];
/// Keywords that only describe.
const WORDS: [&str; 4] = ["$schema", "title", "description", "$defs"];

impl Schemas {
    /// Returns the schemas of this repository.
    pub fn of_repository() -> &'static Self {
        static ALL: OnceLock<Schemas> = OnceLock::new();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
        ALL.get_or_init(|| Self::read(&folder))
    }

    /// Reads the schemas of a folder.
    ///
    /// # Panics
    /// A file cannot be read or is not JSON.
    pub fn read(folder: &Path) -> Self {
        let files = std::fs::read_dir(folder).expect("the folder of schemas");
        let paths = files.map(|file| file.expect("a file").path());
        let all = paths.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let one = |path: std::path::PathBuf| {
            let text = std::fs::read_to_string(&path).expect("a schema");
            let schema = serde_json::from_str(&text);
            let schema = schema.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            (path.file_name().unwrap().to_string_lossy().into_owned(), schema)
        };
        Self(all.map(one).collect())
    }

    /// Iterates over file names and contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(file, schema)| (file.as_str(), schema))
    }

    /// Name of the schema file for a document's name and version: `compare-1.json` for
    /// `superpage.compare/1`.
    pub fn file_of(name: &str) -> String {
        format!("{}.json", name.trim_start_matches("superpage.").replace('/', "-"))
    }

    /// Checks a document against the schema that it names.
    ///
    /// # Errors
    /// Every violation, one line each.
    pub fn check(&self, document: &Value) -> Result<(), Vec<String>> {
        let Some(name) = document["schema"].as_str() else {
            return Err(vec!["it names no schema".to_string()]);
        };
        let file = Self::file_of(name);
        let Some(schema) = self.0.get(&file) else {
            return Err(vec![format!("{name}: there is no docs/schemas/{file}")]);
        };
        let wrong = self.wrong(Part { file: &file, schema }, document, name);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Makes a set with a single schema file.
    pub fn from_value(file: &str, schema: Value) -> Self {
        Self(BTreeMap::from([(file.to_string(), schema)]))
    }

    /// Checks a value against a file's schema.
    ///
    /// # Errors
    /// Every violation, one line each.
    pub fn fits(&self, file: &str, value: &Value) -> Result<(), Vec<String>> {
        let (file, schema) = self.0.get_key_value(file).expect("there is such a file");
        let wrong = self.wrong(Part { file, schema }, value, file);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Returns errors in the schemas themselves: unsupported keywords, unknown types and dangling references.
    pub fn mistakes(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (file, schema) in &self.0 {
            self.add_mistakes(Part { file, schema }, &mut wrong);
        }
        wrong
    }

    fn add_mistakes(&self, part: Part, wrong: &mut Vec<String>) {
        let Some(keywords) = part.schema.as_object() else {
            wrong.push(format!("{}: a schema is an object, not {}", part.file, part.schema));
            return;
        };
        for (keyword, says) in keywords {
            let below: Vec<&Value> = match keyword.as_str() {
                "properties" | "$defs" => {
                    says.as_object().into_iter().flat_map(Map::values).collect()
                }
                "oneOf" | "anyOf" | "prefixItems" => {
                    says.as_array().into_iter().flatten().collect()
                }
                "additionalProperties" if says.is_boolean() => Vec::new(),
                "additionalProperties" | "items" => vec![says],
                "$ref" => {
                    wrong.extend(self.follow(part, says.as_str().unwrap_or_default()).err());
                    Vec::new()
                }
                word if WORDS.contains(&word) => Vec::new(),
                _ => {
                    if plain(keyword, says, &Value::Null).is_none() {
                        wrong.push(format!("{}: {keyword} {says} is not checked", part.file));
                    }
                    Vec::new()
                }
            };
            for schema in below {
                self.add_mistakes(Part { schema, ..part }, wrong);
            }
        }
    }

    /// Resolves a reference: `#/$defs/NAME` of this file, `FILE.json`, or `FILE.json#/$defs/NAME`.
    fn follow<'a>(&'a self, from: Part<'a>, to: &'a str) -> Result<Part<'a>, String> {
        let (file, place) = to.split_once('#').unwrap_or((to, ""));
        let file = if file.is_empty() { from.file } else { file };
        let whole = self.0.get(file);
        let schema = whole.and_then(|whole| whole.pointer(place));
        schema
            .map(|schema| Part { file, schema })
            .ok_or_else(|| format!("{}: $ref {to} leads nowhere", from.file))
    }

    /// Returns the violations of a value, each with its place in the document.
    fn wrong(&self, part: Part, value: &Value, at: &str) -> Vec<String> {
        let Some(keywords) = part.schema.as_object() else { return Vec::new() };
        let below = |schema| Part { schema, ..part };
        let mut wrong = Vec::new();
        for (keyword, says) in keywords {
            match keyword.as_str() {
                "$ref" => match self.follow(part, says.as_str().unwrap_or_default()) {
                    Ok(to) => wrong.extend(self.wrong(to, value, at)),
                    Err(why) => wrong.push(why),
                },
                "oneOf" | "anyOf" => {
                    let all = says.as_array().map(Vec::as_slice).unwrap_or_default();
                    let each = all.iter().map(|one| self.wrong(below(one), value, at));
                    wrong.extend(choice(keyword, each.collect(), at));
                }
                "required" if value.is_object() => {
                    for key in says.as_array().into_iter().flatten().filter_map(Value::as_str) {
                        if value.get(key).is_none() {
                            wrong.push(format!("{at}.{key}: missing"));
                        }
                    }
                }
                "properties" => {
                    for (key, schema) in says.as_object().into_iter().flatten() {
                        if let Some(value) = value.get(key) {
                            wrong.extend(self.wrong(below(schema), value, &format!("{at}.{key}")));
                        }
                    }
                }
                "additionalProperties" => {
                    for (key, value) in unnamed(keywords, value) {
                        let place = format!("{at}.{key}");
                        match says {
                            Value::Bool(false) => wrong.push(format!("{place}: not in the schema")),
                            schema => wrong.extend(self.wrong(below(schema), value, &place)),
                        }
                    }
                }
                "items" => {
                    let before = keywords.get("prefixItems").and_then(Value::as_array);
                    let rest = value.as_array().into_iter().flatten().enumerate();
                    for (index, item) in rest.skip(before.map_or(0, Vec::len)) {
                        wrong.extend(self.wrong(below(says), item, &format!("{at}[{index}]")));
                    }
                }
                "prefixItems" => {
                    let schemas = says.as_array().into_iter().flatten();
                    let items = value.as_array().into_iter().flatten();
                    for (index, (schema, item)) in schemas.zip(items).enumerate() {
                        wrong.extend(self.wrong(below(schema), item, &format!("{at}[{index}]")));
                    }
                }
                word if WORDS.contains(&word) => {}
                _ => match plain(keyword, says, value) {
                    None => wrong.push(format!("{}: keyword {keyword} is not checked", part.file)),
                    Some(true) => {}
                    Some(false) => {
                        let shown: String = value.to_string().chars().take(60).collect();
                        wrong.push(format!("{at}: {shown} is not {keyword} {says}"));
                    }
                },
            }
        }
        wrong
    }
}

/// Violations of a keyword that lists alternatives: none, or those of the best alternative.
fn choice(keyword: &str, each: Vec<Vec<String>>, at: &str) -> Vec<String> {
    match each.iter().filter(|wrong| wrong.is_empty()).count() {
        0 => each
            .into_iter()
            .min_by_key(Vec::len)
            .unwrap_or_else(|| vec![format!("{at}: {keyword} of none")]),
        fit if fit > 1 && keyword == "oneOf" => vec![format!("{at}: fits {fit} of oneOf")],
        _ => Vec::new(),
    }
}

/// Members of an object that the schema's `properties` does not name.
fn unnamed<'a>(
    keywords: &'a Map<String, Value>,
    value: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let named = keywords.get("properties");
    let all = value.as_object().into_iter().flatten();
    all.filter(move |(key, _)| named.is_none_or(|named| named.get(key).is_none()))
}

/// Whether a value satisfies a keyword that contains no schemas; `None` if the keyword is unknown.
fn plain(keyword: &str, says: &Value, value: &Value) -> Option<bool> {
    // A keyword accepts values of other types than its own; only `type` checks types.
    let number = |holds: fn(f64, f64) -> bool| {
        value.as_f64().is_none_or(|value| says.as_f64().is_some_and(|bound| holds(value, bound)))
    };
    let count = |holds: fn(u64, u64) -> bool| {
        let items = value.as_array().map(|items| items.len() as u64);
        items.is_none_or(|items| says.as_u64().is_some_and(|bound| holds(items, bound)))
    };
    Some(match keyword {
        "const" => says == value,
        "enum" => says.as_array().is_some_and(|all| all.contains(value)),
        "type" => {
            let names = says.as_array().map_or(std::slice::from_ref(says), Vec::as_slice);
            if !names.iter().all(|name| TYPES.iter().any(|known| name == known)) {
                return None;
            }
            names.iter().any(|name| is_of_type(name, value))
        }
        "required" => true,
        "minimum" => number(|value, bound| value >= bound),
        "maximum" => number(|value, bound| value <= bound),
        "minItems" => count(|items, bound| items >= bound),
        "maxItems" => count(|items, bound| items <= bound),
        _ => return None,
    })
}

fn is_of_type(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        _ => value.as_f64().is_some_and(|number| number.fract() == 0.0),
    }
}

/// Checks every document that a command printed or wrote to the file after `-o`: standard output as a whole or line by
/// line, and lines of standard error. Returns the number of documents.
///
/// # Panics
/// A document violates its schema or has no schema.
pub fn check_output<S: AsRef<str>>(arguments: &[S], output: &Output) -> usize {
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut count = check_text(&printed);
    // Arguments after `--` belong to a program, and so does the output of `run`.
    let own = arguments.split(|word| word.as_ref() == "--").next().unwrap_or_default();
    let has = |word| own.iter().any(|one| one.as_ref() == word);
    let is_json = || serde_json::from_str::<Value>(&printed).is_ok_and(|value| value.is_object());
    assert!(count > 0 || !has("--json") || has("run") || !is_json(), "no schema in {printed}");
    for line in String::from_utf8_lossy(&output.stderr).lines() {
        count += check_text(line);
    }
    for pair in own.windows(2).filter(|pair| ["-o", "--output"].contains(&pair[0].as_ref())) {
        let file = Path::new(pair[1].as_ref());
        let small = file.metadata().is_ok_and(|it| it.is_file() && it.len() < 16 << 20);
        if let (true, Some(0 | 1)) = (small, output.status.code()) {
            count += check_text(&String::from_utf8_lossy(&std::fs::read(file).unwrap_or_default()));
        }
    }
    count
}

/// Checks a text that is one document or has one document per line. Returns the number of documents; 0 for plain text
/// and other JSON.
///
/// # Panics
/// A document violates its schema, or the schema does not exist.
pub fn check_text(text: &str) -> usize {
    if !text.starts_with('{') {
        return 0;
    }
    if let Ok(document) = serde_json::from_str::<Value>(text) {
        if !document["schema"].as_str().is_some_and(|name| name.starts_with("superpage.")) {
            return 0;
        }
        let own = text.trim_start_matches(|c: char| c == '{' || c.is_whitespace());
        assert!(own.starts_with("\"schema\""), "the schema is not the first key: {text:.300}");
        if let Err(wrong) = Schemas::of_repository().check(&document) {
            let shown: String = text.chars().take(300).collect();
            panic!("against docs/schemas:\n{}\nin {shown}", wrong.join("\n"));
        }
        return 1;
    }
    let lines = text.lines().filter(|line| line.len() < text.trim_end().len());
    lines.map(check_text).sum()
}
