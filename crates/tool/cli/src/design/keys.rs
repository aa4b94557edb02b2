//! `superpage design keys`: the reference of design files. docs/guide/design-keys.md and the man page superpage-design(5)
//! are the same text.

use design::{KeyHelp, KeyKind, nearest, reference};
use operations::design::{Carried, Carriers, EXECUTORS};
use serde_json::json;

use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// List the keys of design files: what each takes, its default, its meaning, what it needs, and who carries it out.
///
/// Without KEY, a line per key. A KEY is a key or a table (`preparation.fill-at`, `mapping.scan`), or a part of one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The keys; without them all.
    #[arg(value_name = "KEY")]
    keys: Vec<String>,

    /// Print the page of the guide.
    #[arg(long, conflicts_with_all = ["json", "keys"])]
    markdown: bool,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<Done, Failure> {
    let all = reference();
    let shown = chosen(&all, &args.keys)?;
    if args.json {
        let carriers = Carriers::new();
        let keys: Vec<_> = shown.iter().map(|help| document(help, &carriers)).collect();
        exit::print_json("superpage.design-keys/1", json!({ "keys": keys }))?;
    } else if args.markdown {
        exit::print(&markdown())?;
    } else if args.keys.is_empty() {
        let keys = shown.iter().filter(|help| help.kind != KeyKind::Table);
        let row = |help: &&KeyHelp| vec![name(help), default(help), sentence(&help.meaning)];
        exit::print(&table(&["key", "default", "meaning"], keys.map(row).collect(), &[0, 1, 2]))?;
    } else {
        let carriers = Carriers::new();
        let blocks: Vec<String> = shown.iter().map(|help| block(help, &carriers)).collect();
        exit::print(&blocks.join("\n"))?;
    }
    Ok(Done::Fine)
}

/// Returns the entries that a command names: keys, tables with their keys, or else keys with this part.
fn chosen<'a>(all: &'a [KeyHelp], names: &[String]) -> Result<Vec<&'a KeyHelp>, Failure> {
    let mut is_chosen = vec![names.is_empty(); all.len()];
    for name in names {
        let name = name.trim_matches(['[', ']']);
        let below = format!("{name}.");
        let exact = |help: &KeyHelp| help.key == name || help.key.starts_with(&below);
        let part = |help: &KeyHelp| !name.is_empty() && help.key.contains(name);
        let is: &dyn Fn(&KeyHelp) -> bool = if all.iter().any(exact) { &exact } else { &part };
        if !all.iter().any(is) {
            let keys = all.iter().map(|help| help.key.as_str());
            let near = nearest(name, keys);
            let near = near.map_or(";".to_string(), |near| format!(": did you mean `{near}`?"));
            return Err(Failure::usage(format!(
                "no key of designs has `{name}` in its name{near} `superpage design keys` lists all"
            )));
        }
        for (chosen, help) in is_chosen.iter_mut().zip(all) {
            *chosen |= is(help);
        }
    }
    Ok(all.iter().zip(is_chosen).filter(|(_, chosen)| *chosen).map(|(help, _)| help).collect())
}

/// The key, a table's in brackets.
fn name(help: &KeyHelp) -> String {
    match help.kind {
        KeyKind::Key => help.key.clone(),
        KeyKind::Table | KeyKind::OptionalTable => format!("[{}]", help.key),
    }
}

/// The value of a missing key; `-` if there is none then.
fn default(help: &KeyHelp) -> String {
    match (help.kind, &help.default) {
        (KeyKind::Key, Some(value)) => value.to_string(),
        (KeyKind::Key, None) | (KeyKind::OptionalTable, _) => "-".to_string(),
        (KeyKind::Table, _) => String::new(),
    }
}

/// The first sentence of a text.
fn sentence(text: &str) -> String {
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].to_string()
}

/// How an executor carries out a key, in words.
fn words(carried: &[Carried]) -> String {
    carried.iter().map(|carried| carried.word()).collect::<Vec<_>>().join(" or ")
}

/// A key with everything about it, as a block of lines.
fn block(help: &KeyHelp, carriers: &Carriers) -> String {
    let mut text = format!("{}\n  {}\n", name(help), help.meaning);
    if help.kind == KeyKind::Table {
        return text;
    }
    text += &format!("  takes: {}\n", help.takes);
    for (word, meaning) in &help.words {
        text += &format!("    \"{word}\": {meaning}\n");
    }
    text += &format!("  default: {}\n", default(help));
    for needs in &help.needs {
        text += &format!("  rule: {needs}\n");
    }
    text += "  lab: yes\n";
    for executor in EXECUTORS {
        text +=
            &format!("  run --executor {executor}: {}\n", words(&carriers.of(&help.key, executor)));
    }
    text
}

fn document(help: &KeyHelp, carriers: &Carriers) -> serde_json::Value {
    let kind = match help.kind {
        KeyKind::Key => "key",
        KeyKind::Table => "table",
        KeyKind::OptionalTable => "optional-table",
    };
    let (default, unit) = match help.default.as_ref().map(super::value) {
        Some((value, unit)) => (Some(value), unit),
        None => (None, None),
    };
    let word = |(word, meaning): &(&str, String)| json!({ "word": word, "meaning": meaning });
    let [collapse, in_place, pool] = EXECUTORS.map(|executor| carriers.of(&help.key, executor));
    json!({
        "key": help.key,
        "kind": kind,
        "takes": help.takes,
        "words": help.words.iter().map(word).collect::<Vec<_>>(),
        "default": default,
        "unit": unit,
        "meaning": help.meaning,
        "rules": help.needs,
        "executors": { "lab": ["yes"], "collapse": collapse, "in-place": in_place, "pool": pool },
    })
}

const OPENING: &str = "\
# Keys of designs

Printed by `superpage design keys --markdown`. `superpage design keys KEY` and the man page superpage-design(5) have the rules
too: what a key needs other keys to say. `superpage design check` names the rule that a file breaks.

Numbers are whole numbers; pages are base pages of 4 KiB. Times have ns, us, ms, s, min or h (`\"10s\"`), sizes K, M or G
(`\"64K\"`). Conditions are explained in [facts](../facts.md). A table in brackets with `-` as its default is optional: without
it there is no such daemon, and an empty one (`[mapping.scan]` alone) has the defaults below it.

The laboratory simulates every key. The last column is for the executors of `superpage run --design`
([run](../guide/run.md#designs)): `collapse`, `in-place` and `pool`, in this order, or one entry for all. `means`: superpage acts, by
another mechanism; `kernel`: the kernel's own rule holds; `no`: nothing acts; `refused`: the design is not run, or called
approximate. Differences are named before the program starts; `or`: the rest of the design decides.
";

/// The page of the guide.
pub fn markdown() -> String {
    let carriers = Carriers::new();
    let mut text = OPENING.to_string();
    let all = reference();
    for (at, help) in all.iter().enumerate() {
        let is_part = help.kind == KeyKind::Table && !help.key.contains('.')
            || help.key == "estimate"
            || help.key == "profile";
        if help.key == "name" {
            text += "\n## The file\n\n";
        } else if is_part {
            text += &format!("\n## {}\n{}\n\n", help.key, help.meaning);
        }
        if help.key == "name" || is_part {
            text += "| key | takes | default | meaning | run |\n|---|---|---|---|---|\n";
        }
        if help.kind != KeyKind::Table {
            let same = all[..at].iter().find(|other| other.words == help.words);
            text += &line(help, same, &carriers);
        }
    }
    text
}

/// A key's line in the guide. `same` is an earlier key with the same words.
fn line(help: &KeyHelp, same: Option<&KeyHelp>, carriers: &Carriers) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut meaning = help.meaning.clone();
    match same {
        Some(same) if !help.words.is_empty() => {
            meaning += &format!("<br>Words: as `{}`.", same.key);
        }
        _ => {
            for (word, says) in &help.words {
                meaning += &format!("<br>`\"{word}\"`: {says}");
            }
        }
    }
    let default = match default(help).as_str() {
        "-" => "-".to_string(),
        value => format!("`{value}`"),
    };
    let each = EXECUTORS.map(|executor| {
        let carried = carriers.of(&help.key, executor);
        carried.into_iter().map(mark).collect::<Vec<_>>().join(" or ")
    });
    let run =
        if each.iter().all(|one| *one == each[0]) { each[0].clone() } else { each.join(", ") };
    let (takes, meaning) = (cell(&help.takes), cell(&meaning));
    format!("| `{}` | {takes} | {default} | {meaning} | {run} |\n", name(help))
}

/// The word of the page's last column, which its opening explains.
fn mark(carried: Carried) -> &'static str {
    match carried {
        Carried::OtherMeans => "means",
        Carried::Kernel => "kernel",
        Carried::Yes | Carried::No | Carried::Refused => carried.word(),
    }
}

/// The man page superpage-design(5).
pub fn man() -> String {
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    let mut text = String::from(
        ".TH superpage\\-design 5\n.SH NAME\nsuperpage\\-design \\- keys of design files\n.SH DESCRIPTION\n\
         A design is a TOML file that says when superpages are allocated, prepared, mapped, unmapped and deallocated; see\n\
         .BR superpage\\-design (1).\nMissing keys have the defaults below; a table without a default is optional.\n",
    );
    text += ".SH KEYS\n";
    for help in reference() {
        text += &format!(".TP\n.B {}\n{}\n", escaped(&name(&help)), escaped(&help.meaning));
        if help.kind == KeyKind::Table {
            continue;
        }
        let default = default(&help);
        text += &format!(".br\nTakes {}; default {}.\n", escaped(&help.takes), escaped(&default));
        for (word, meaning) in &help.words {
            text += &format!(".br\n.BR {} :\n{}\n", escaped(word), escaped(meaning));
        }
        for needs in &help.needs {
            text += &format!(".br\nRule: {}.\n", escaped(needs));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/guide/design-keys.md is the generated text; `superpage design keys --markdown` prints it.
    #[test]
    fn the_page_of_keys_is_up_to_date() {
        let page = include_str!("../../../../../docs/guide/design-keys.md");
        let differs = markdown()
            .lines()
            .zip(page.lines())
            .find(|(made, is)| made != is)
            .map(|(made, _)| made.to_string());
        assert_eq!(
            differs, None,
            "write it again: superpage design keys --markdown > docs/guide/design-keys.md"
        );
        assert_eq!(markdown().len(), page.len());
    }

    #[test]
    fn names_choose_keys_tables_and_parts() {
        let all = reference();
        let keys = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            chosen(&all, &names).unwrap().iter().map(|help| help.key.clone()).collect()
        };
        assert_eq!(keys(&["preparation.fill-at"]), ["preparation.fill-at"]);
        assert_eq!(
            keys(&["[deallocation.bloat]"])[..2],
            ["deallocation.bloat", "deallocation.bloat.every"]
        );
        assert_eq!(keys(&["fill-at", "pool-pages"]), ["preparation.fill-at", "memory.pool-pages"]);
        assert_eq!(keys(&[]).len(), all.len());
        let error = format!("{:?}", chosen(&all, &["preparation.fil-at".to_string()]).unwrap_err());
        assert!(error.contains("did you mean `preparation.fill-at`?"), "{error}");
    }

    #[test]
    fn the_man_page_has_every_key_and_no_line_that_troff_takes_as_a_request() {
        let page = man();
        for help in reference() {
            assert!(page.contains(&help.key.replace('-', "\\-")), "{}", help.key);
        }
        let requests = [".TH", ".SH", ".TP", ".B ", ".BR", ".br"];
        let bad = page.lines().find(|line| {
            line.starts_with(['.', '\''])
                && !requests.iter().any(|request| line.starts_with(request))
        });
        assert_eq!(bad, None);
    }
}
