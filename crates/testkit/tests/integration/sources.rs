//! Citations in files can be opened: pages below docs/, other Markdown files, and their numbered sections. The test
//! reads all sources, designs, machines, scripts and pages of the repository.
//!
//! A citation is a path below `docs/`, `crates/`, `designs/` or `machines/`, any name that ends in `.md`, or the name
//! of a page of docs/sources (without its ending) before a section's number. Sections follow the name: ` 3.2`, ` 3.2
//! and 3.4`, `#7`. For docs/decisions the test also checks that the code named by an entry cites the entry.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// Pages that are cited without their ending.
const BARE: [&str; 3] = ["policies", "simulators", "kernel_facts"];
/// Files of other projects, and files that the command writes.
const FOREIGN: [&str; 2] = ["docs/devel/tcg-plugins.rst", "machines/this.toml"];
/// Paths below these directories are citations.
const PLACES: [&str; 4] = ["docs/", "crates/", "designs/", "machines/"];
/// Paths that are not searched: build output, inputs of parsers, and this file, which cites pages that do not exist.
const SKIPPED: [&str; 6] = [
    "target",
    ".git",
    "fuzz/target",
    "fuzz/seeds",
    "fuzz/corpus",
    "crates/testkit/tests/integration/sources.rs",
];

#[test]
fn every_citation_leads_somewhere() {
    let root = root();
    let mut count = 0;
    let mut broken = Vec::new();
    for_each_line(&root, |file, number, line| {
        for citation in citations(line) {
            count += 1;
            if let Err(why) = citation.open(&root, file) {
                broken.push(format!("{}:{number}: {why}", file.display()));
            }
        }
    });
    assert!(count > 200, "only {count} citations were found");
    assert!(broken.is_empty(), "{} of {count} lead nowhere:\n{}", broken.len(), broken.join("\n"));
    println!("{count} citations");
}

/// A value without a source is `(assumed)` or `(cited)`, and docs/sources/assumed.md lists it.
#[test]
fn no_value_is_recalled() {
    for_each_line(&root(), |file, number, line| {
        for label in ["(recall", "by recall", "; recall)", "(secondary:", ", secondary)", "(seed 0"]
        {
            let place = format!("{}:{number}", file.display());
            assert!(
                !line.contains(label),
                "{place}: `{label}`: labels are in docs/sources/README.md"
            );
        }
    });
}

/// The pages of docs/decisions are listed in its README, and their entries are numbered. The code that an entry names on
/// its last line, `Code:`, cites it; an entry without code says why: `Code: none (...)`.
#[test]
fn decisions_and_code_cite_each_other() {
    let root = root();
    let index = fs::read_to_string(root.join("docs/decisions/README.md")).unwrap();
    let mut cited = BTreeMap::new();
    for_each_line(&root, |file, _, line| {
        for Citation { name, sections } in citations(line) {
            let topic = name.rsplit('/').next().unwrap().to_string();
            for section in sections {
                let entry: &mut Vec<PathBuf> = cited.entry((topic.clone(), section)).or_default();
                entry.push(file.to_path_buf());
            }
        }
    });
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in fs::read_dir(root.join("docs/decisions")).unwrap().map(|entry| entry.unwrap()) {
        let topic = page.file_name().into_string().unwrap();
        if topic == "README.md" {
            continue;
        }
        if !index.contains(&format!("]({topic}) |")) {
            wrong.push(format!("{topic}: not in README.md"));
        }
        let text = fs::read_to_string(page.path()).unwrap();
        for (before, entry) in text.split("\n## ").skip(1).enumerate() {
            count += 1;
            let (title, code) = (entry.lines().next().unwrap(), entry.lines().last().unwrap());
            let number = (before + 1).to_string();
            if !title.starts_with(&format!("{number}. ")) {
                wrong.push(format!("{topic}: `{title}`: not entry {number}"));
            }
            let citing = cited.get(&(topic.clone(), number)).map(Vec::as_slice).unwrap_or_default();
            for place in uncited(code, citing) {
                wrong.push(format!("{topic}: `{title}`: {place}"));
            }
        }
    }
    assert!(count > 100, "only {count} entries were found");
    assert!(wrong.is_empty(), "{} of {count} entries:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} entries");
}

/// Returns what is wrong with the line `Code:` of an entry, given the files that cite the entry.
fn uncited(code: &str, citing: &[PathBuf]) -> Vec<String> {
    if code.starts_with("Code: none (") {
        return Vec::new();
    }
    let places: Vec<&str> = code.split('`').skip(1).step_by(2).collect();
    if !code.starts_with("Code: ") || places.is_empty() {
        return vec![format!("its last line names no code: `{code}`")];
    }
    let is_cited = |place: &&str| citing.iter().any(|file| file.starts_with(place));
    places
        .into_iter()
        .filter(|it| !is_cited(it))
        .map(|it| format!("{it} does not cite it"))
        .collect()
}

#[test]
fn an_entry_that_no_code_cites_is_found() {
    let citing = [PathBuf::from("crates/lab/src/load.rs"), PathBuf::from("docs/facts.md")];
    for (code, wrong) in [
        ("Code: `crates/lab/src/load.rs`", 0),
        ("Code: `crates/lab/src`, `crates/lab/src/run.rs`", 1),
        ("Code: `crates/la`", 1),
        ("Code: none (measured only)", 0),
        ("Code: none", 1),
        ("Rejected: all of it.", 1),
    ] {
        assert_eq!(uncited(code, &citing).len(), wrong, "{code}");
    }
}

#[test]
fn citations_are_found_in_what_people_write() {
    for (line, expected) in [
        (
            "(docs/sources/policies.md 3.1 and 4.1; labels)",
            &["docs/sources/policies.md 3.1 4.1"][..],
        ),
        ("see `docs/sources/policies.md` 3.3.", &["docs/sources/policies.md 3.3"]),
        ("policies 3.8, V8", &["policies 3.8"]),
        ("(`kernel_facts` section 2)", &["kernel_facts 2"]),
        ("policies.md 3.2, 3.5 and 3.6)", &["policies.md 3.2 3.5 3.6"]),
        ("decisions/pool.md#7), and docs/man", &["decisions/pool.md 7", "docs/man"]),
        ("contiguity.md#2 and #3: mappings", &["contiguity.md 2 3"]),
        ("decisions/fork.md#1, #2 and #3.", &["decisions/fork.md 1 2 3"]),
        ("docs/sources/README.md#labels.", &["docs/sources/README.md labels"]),
        ("the policies that 3 of them have", &[]),
        ("docs/decisions/<topic>.md, *.md, `designs/NAME.toml`", &[]),
        ("(`crates/lab/lab/src/run.rs`) in designs/", &["crates/lab/lab/src/run.rs"]),
    ] {
        let found: Vec<String> = citations(line).iter().map(Citation::to_string).collect();
        assert_eq!(found, expected, "{line}");
    }
}

#[test]
fn what_does_not_exist_cannot_be_opened() {
    for (name, section, says) in [
        ("docs/sources/nothing.md", None, "docs/sources/nothing.md is no file"),
        ("reference/policies.md", Some("3.2"), "reference/policies.md is no file"),
        ("docs/sources/policies.md", Some("9.9"), "docs/sources/policies.md has no section 9.9"),
        ("policies", Some("3.9"), "policies has no section 3.9"),
        ("decisions/fork.md", Some("99"), "decisions/fork.md has no section 99"),
    ] {
        let sections = section.into_iter().map(String::from).collect();
        let citation = Citation { name: name.to_string(), sections };
        assert_eq!(
            citation.open(&root(), Path::new("crates/lab/lab/src/run.rs")),
            Err(says.to_string())
        );
    }
}

struct Citation {
    name: String,
    sections: Vec<String>,
}

impl std::fmt::Display for Citation {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.name)?;
        self.sections.iter().try_for_each(|section| write!(f, " {section}"))
    }
}

impl Citation {
    /// Fails if the file or a section of it is missing. A name is searched from the root, among the pages below docs/,
    /// and in the directories above the citing file.
    fn open(&self, root: &Path, from: &Path) -> Result<(), String> {
        let Citation { name, sections } = self;
        if FOREIGN.contains(&name.as_str()) {
            return Ok(());
        }
        let file = if BARE.contains(&name.as_str()) { format!("{name}.md") } else { name.clone() };
        let page = ["docs", "docs/decisions", "docs/sources"]
            .map(Path::new)
            .into_iter()
            .chain(from.ancestors())
            .map(|directory| root.join(directory).join(&file))
            .find(|path| path.exists())
            .ok_or(format!("{name} is no file"))?;
        let text = fs::read_to_string(&page).unwrap_or_default();
        match sections.iter().find(|section| !has_section(&text, section)) {
            None => Ok(()),
            Some(section) => Err(format!("{name} has no section {section}")),
        }
    }
}

/// Whether a heading starts with the number, or has this anchor (`tiers-of-tests`).
fn has_section(page: &str, section: &str) -> bool {
    page.lines().filter(|line| line.starts_with('#')).any(|line| {
        let heading = line.trim_start_matches('#').trim();
        let number = heading.split_whitespace().next().unwrap_or_default().trim_end_matches('.');
        number == section || heading.to_lowercase().replace(' ', "-") == section
    })
}

/// Returns the citations in one line.
fn citations(line: &str) -> Vec<Citation> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let length = token(&line[at..]);
        if length == 0 {
            at += line[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        }
        let name = line[at..at + length].trim_end_matches(['.', '/']);
        let behind = &line[at + name.len()..];
        let is_pattern = line[..at].ends_with(['*', '<', '>', '{', '}', '$'])
            || behind.starts_with(['*', '<', '{']);
        let sections = sections(behind.trim_start_matches('`'));
        let is_path = PLACES.iter().any(|place| name.starts_with(place))
            || (name.ends_with(".md") && name != ".md");
        let is_bare = BARE.contains(&name) && !sections.is_empty();
        if !is_pattern
            && !name.contains("/NAME.")
            && !behind.starts_with("/<")
            && (is_path || is_bare)
        {
            found.push(Citation { name: name.to_string(), sections });
        }
        at += length;
    }
    found
}

/// Returns the length of the path or name at the start.
fn token(text: &str) -> usize {
    text.find(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c))).unwrap_or(text.len())
}

/// Returns the sections after a name: ` 3.1 and 4.1`, `#2 and #3`, ` section 9`; or one anchor: `#labels`.
fn sections(behind: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = behind;
    while let Some((number, next)) = section(rest, found.is_empty()) {
        found.push(number.to_string());
        rest = next;
    }
    found
}

/// Returns the section at the start, and the rest.
fn section(text: &str, is_first: bool) -> Option<(&str, &str)> {
    let joints =
        if is_first { &[" section ", " ", "#"][..] } else { &[" and #", " and ", ", #", ", "] };
    joints.iter().find_map(|joint| {
        let text = text.strip_prefix(joint)?;
        let is_anchor = *joint == "#" && text.starts_with(|c: char| c.is_ascii_lowercase());
        let length = if is_anchor { token(text) } else { number(text)? };
        let found = text[..length].trim_end_matches('.');
        Some((found, &text[found.len()..]))
    })
}

/// Returns the length of the number at the start if it is a section's: neither a word nor a unit follows directly.
fn number(text: &str) -> Option<usize> {
    let length = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let is_whole = !text[length..].starts_with(|c: char| c.is_alphanumeric() || c == '%');
    (text.starts_with(|c: char| c.is_ascii_digit()) && is_whole).then_some(length)
}

/// Calls `see` with every line of every text file: the path from the root, the line's number, the line.
fn for_each_line(root: &Path, mut see: impl FnMut(&Path, usize, &str)) {
    for file in files(root, root) {
        let Ok(text) = fs::read_to_string(root.join(&file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            see(&file, number + 1, line);
        }
    }
}

/// Returns the text files below a directory, as paths from the root.
pub fn files(root: &Path, below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(below).unwrap_or_else(|error| panic!("{}: {error}", below.display()))
    {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        if SKIPPED.iter().any(|skipped| name == Path::new(skipped)) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(files(root, &path));
        } else if is_read(&name) {
            found.push(name);
        }
    }
    found
}

fn is_read(name: &Path) -> bool {
    let extension = name.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let kinds =
        ["rs", "toml", "md", "sh", "py", "pl", "c", "h", "yml", "1", "3", "7", "8", "csv", "in"];
    kinds.contains(&extension) || name.starts_with("scripts") || name.starts_with(".ci")
}
