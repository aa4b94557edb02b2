//! Documentation of public functions: those that return a `Result` have a section `# Errors`, and those that return
//! numbers name a unit or the rounding.
//!
//! The test reads sources as rustfmt formats them. A function is public if it is in a public module, is re-exported by
//! one, or is a method of such a type or trait; implementations of a trait have the trait's documentation. If two
//! modules have the same name, it counts for both.
//!
//! `cargo test -p superpage-testkit public -- --nocapture` prints the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The crates, by the folders that contain them or their parts.
const CRATES: [&str; 6] = [
    "bindings/api",
    "shared/design",
    "shared/policy",
    "shared/trace",
    "lab",
    "shared/workload-streams",
];

/// Words that say what a number counts, measures or names.
const UNITS: &[&str] = &[
    "address",
    "addresses",
    "bit",
    "bits",
    "blocks",
    "byte",
    "bytes",
    "count",
    "cycles",
    "errno",
    "frames",
    "hash",
    "how many",
    "how often",
    "id",
    "index",
    "line",
    "microseconds",
    "milliseconds",
    "misses",
    "nanoseconds",
    "number",
    "offset",
    "order",
    "page",
    "pages",
    "per cent",
    "per mille",
    "periods",
    "ratio",
    "records",
    "regions",
    "requests",
    "rounded",
    "samples",
    "seconds",
    "seed",
    "share",
    "steps",
    "superpage",
    "superpages",
    "threads",
    "ticks",
    "times",
    "walks",
    "words",
];

/// A public function.
#[derive(Debug)]
struct Function {
    /// `crates/bindings/api/src/region.rs:93: Region::len`
    place: String,
    docs: String,
    /// The returned type; empty if there is none.
    returns: String,
}

impl Function {
    fn can_fail(&self) -> bool {
        words(&self.returns).any(|word| word == "Result")
    }

    fn returns_number(&self) -> bool {
        let numbers =
            ["u8", "u16", "u32", "u64", "u128", "usize", "i32", "i64", "i128", "f32", "f64"];
        words(&self.returns).any(|word| numbers.contains(&word))
    }

    fn says_errors(&self) -> bool {
        self.docs.lines().any(|line| line == "# Errors")
    }

    fn says_unit(&self) -> bool {
        let docs = format!(" {} ", words(&self.docs).collect::<Vec<_>>().join(" ").to_lowercase());
        UNITS.iter().any(|unit| docs.contains(&format!(" {unit} ")))
    }
}

#[test]
fn functions_say_when_they_fail_and_what_they_count() {
    let mut missing = Vec::new();
    println!("crate                   functions  fail  `# Errors`  return numbers  unit");
    for name in CRATES {
        let all = functions(&root().join("crates").join(name));
        let count = |is: fn(&Function) -> bool| all.iter().filter(|function| is(function)).count();
        let (failing, numbers) = (count(Function::can_fail), count(Function::returns_number));
        let errors = count(|function| function.can_fail() && function.says_errors());
        let units = count(|function| function.returns_number() && function.says_unit());
        println!("{name:<23} {:>9} {failing:>5} {errors:>11} {numbers:>15} {units:>5}", all.len());
        assert!(all.len() > 5, "{name}: {all:?}");
        for function in &all {
            if function.can_fail() && !function.says_errors() {
                missing.push(format!("{} has no `# Errors`", function.place));
            }
            if function.returns_number() && !function.says_unit() {
                missing.push(format!("{} -> {} has no unit", function.place, function.returns));
            }
        }
    }
    assert!(missing.is_empty(), "{}:\n{}", missing.len(), missing.join("\n"));
}

#[test]
fn what_is_public_is_found() {
    let text = "\
/// Bytes.
pub fn first(
    of: u8,
) -> Result<u64, Error>
where
    u8: Copy,
{
}

impl Known {
    /// A thing.
    ///
    /// # Errors
    /// Never.
    #[inline]
    pub const fn second(&self) -> (Thing, usize) {}
    fn private() {}
    pub(crate) fn inner() {}
}

impl Other {
    pub fn hidden() {}
}

impl Display for Known {
    fn of_a_trait() {}
}

pub trait Third {
    fn of_all();
}

#[cfg(test)]
mod tests {
    pub fn helper() {}
}
";
    let names = ["first", "Known", "Third"].map(String::from).into();
    let found = read("x.rs", text, false, &names);
    let shown: Vec<_> =
        found.iter().map(|one| (one.place.as_str(), one.returns.as_str())).collect();
    let expected = [
        ("x.rs:2: first", "Result<u64, Error>"),
        ("x.rs:16: Known::second", "(Thing, usize)"),
        ("x.rs:30: Third::of_all", ""),
    ];
    assert_eq!(shown, expected);
    let says =
        |one: &Function| (one.can_fail(), one.says_errors(), one.returns_number(), one.says_unit());
    assert_eq!(says(&found[0]), (true, false, true, true));
    assert_eq!(says(&found[1]), (false, true, true, false));
}

/// Returns the public functions of the crates below a directory.
fn functions(directory: &Path) -> Vec<Function> {
    let mut found = Vec::new();
    for lib in libraries(directory) {
        let modules = modules(&lib, true);
        let mut names = BTreeSet::new();
        for module in modules.iter().filter(|module| module.is_public) {
            names.extend(re_exported(&module.text));
            names.extend(module.text.lines().filter_map(type_name).map(String::from));
        }
        let place = |file: &Path| file.strip_prefix(root()).unwrap().display().to_string();
        let each =
            |module: &Module| read(&place(&module.file), &module.text, module.is_public, &names);
        found.extend(modules.iter().flat_map(each));
    }
    found
}

fn libraries(directory: &Path) -> Vec<PathBuf> {
    let lib = directory.join("src/lib.rs");
    let below = fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path());
    let below = below.filter(|path| path.is_dir() && !path.ends_with("src"));
    let mut found: Vec<PathBuf> = below.flat_map(|path| libraries(&path)).collect();
    found.extend(lib.exists().then_some(lib));
    found
}

struct Module {
    file: PathBuf,
    text: String,
    is_public: bool,
}

/// Returns a module, and its child modules that are files.
fn modules(file: &Path, is_public: bool) -> Vec<Module> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let is_root = ["lib.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let directory = if is_root { file.parent().unwrap().into() } else { file.with_extension("") };
    let mut found = Vec::new();
    for line in text.lines() {
        let (is_open, rest) = match line.strip_prefix("pub ") {
            Some(rest) => (true, rest),
            None => (false, line),
        };
        let Some(name) = rest.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) else {
            continue;
        };
        let files = [directory.join(format!("{name}.rs")), directory.join(name).join("mod.rs")];
        let file = files.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("{files:?}"));
        if name != "tests" {
            found.extend(modules(file, is_public && is_open));
        }
    }
    found.push(Module { file: file.to_path_buf(), text, is_public });
    found
}

/// Returns names that `pub use` re-exports from modules of the same crate.
fn re_exported(text: &str) -> impl Iterator<Item = String> {
    let uses = text.split("\npub use ").skip(1).filter_map(|rest| rest.split_once(';'));
    uses.flat_map(|(list, _)| words(list).map(String::from).collect::<Vec<_>>())
}

/// Returns the name of a public type or trait, if a line starts one.
fn type_name(line: &str) -> Option<&str> {
    let rest = ["pub struct ", "pub enum ", "pub trait "]
        .iter()
        .find_map(|head| line.strip_prefix(head))?;
    words(rest).next()
}

/// Returns the public functions of a file: methods of public types, and free functions if the module is public or
/// re-exports them.
fn read(file: &str, text: &str, is_public: bool, names: &BTreeSet<String>) -> Vec<Function> {
    let (mut found, mut docs) = (Vec::new(), String::new());
    let (mut owner, mut is_trait) = (None, false);
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if *line == "mod tests {" {
            break;
        }
        let code = line.trim_start();
        if !line.starts_with([' ', ')', '{', 'w']) && !line.is_empty() {
            (owner, is_trait) = (self::owner(line), line.starts_with("pub trait "));
        }
        if let Some(said) = code.strip_prefix("///") {
            docs += said.strip_prefix(' ').unwrap_or(said);
            docs.push('\n');
        } else if let Some(name) = function_name(code, is_trait) {
            let is_named = owner
                .as_ref()
                .map_or(is_public || names.contains(name), |owner| names.contains(owner));
            let place =
                owner.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join("::");
            if is_named {
                let place = format!("{file}:{}: {place}", at + 1);
                found.push(Function { place, docs: docs.clone(), returns: returns(&lines[at..]) });
            }
            docs.clear();
        } else if !code.starts_with("#[") {
            docs.clear();
        }
    }
    found
}

/// Returns the type to which functions after an unindented line belong: `Type` for `impl<T> Type<T> {`. The name is
/// empty for an implementation of a trait.
fn owner(line: &str) -> Option<String> {
    if let Some(name) = type_name(line) {
        return Some(name.to_string());
    }
    let rest = line.strip_prefix("impl")?;
    if rest.contains(" for ") {
        return Some(String::new());
    }
    let rest = match rest.strip_prefix('<') {
        Some(_) => rest.split_once("> ").map_or(rest, |(_, rest)| rest),
        None => rest,
    };
    words(rest).next().map(String::from)
}

/// Returns the name of a public function, if a line starts one; functions of a public trait are public.
fn function_name(code: &str, is_trait: bool) -> Option<&str> {
    let rest = if is_trait { code } else { code.strip_prefix("pub ")? };
    let rest = ["const ", "async ", "unsafe "]
        .iter()
        .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    words(rest.strip_prefix("fn ")?).next()
}

/// Returns the return type of the function whose signature starts these lines.
fn returns(lines: &[&str]) -> String {
    let mut signature = String::new();
    for line in lines {
        signature += line.trim();
        signature.push(' ');
        if line.ends_with(['{', ';', '}']) {
            break;
        }
    }
    // Arrows of closures in the arguments are inside parentheses.
    let depths = signature.char_indices().scan(0, |depth, (at, c)| {
        *depth += i32::from(c == '(') - i32::from(c == ')');
        Some((at, *depth))
    });
    let outer = depths.filter(|(at, depth)| *depth == 0 && signature[*at..].starts_with("-> "));
    let Some((arrow, _)) = outer.last() else { return String::new() };
    let rest = &signature[arrow + 3..];
    let end = [" where ", " {"].iter().filter_map(|end| rest.find(end)).min();
    rest[..end.unwrap_or(rest.len())].trim().to_string()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '#'))
        .filter(|word| !word.is_empty())
}
