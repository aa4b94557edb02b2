//! Parses arguments as getopt_long(3) does: `--opt value`, `--opt=value`, unambiguous abbreviations of long options,
//! grouped short options. Parsing stops at the first word that is not an option (POSIX mode, `+`): a program or a file
//! name.
//!
//! No library supports both abbreviations and optional values, and scripts rely on both.

use std::ffi::OsString;

use super::stop::Stop;
use crate::exit::Failure;

/// An option. Several spellings may share one `name`.
#[derive(Debug)]
pub struct Opt<T> {
    /// Long form, without `--`.
    pub long: &'static str,
    /// Short form, without `-`.
    pub short: Option<char>,
    /// Whether it takes a value.
    pub takes: Takes,
    /// Identifies the option to its command.
    pub name: T,
}

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// No value.
    Nothing,
    /// A required value: `--opt=value` or `--opt value`.
    Value,
    /// An optional value, accepted only as `--opt=value`.
    Perhaps,
    /// An optional number: `--verbose=3`, `--verbose 3`, `-v3` or `-v 3`. libhugetlbfs documented a level after `-v`
    /// but took that word for the program to run.
    PerhapsLevel,
}

/// The parsed arguments.
#[derive(Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// Options in order, with their values.
    pub options: Vec<(T, Option<String>)>,
    /// All words from the first that is not an option.
    pub rest: Vec<OsString>,
}

impl<T> Opt<T> {
    /// An option with a long form only.
    pub const fn long(long: &'static str, takes: Takes, name: T) -> Self {
        Self { long, short: None, takes, name }
    }

    /// An option with both forms.
    pub const fn both(long: &'static str, short: char, takes: Takes, name: T) -> Self {
        Self { long, short: Some(short), takes, name }
    }
}

/// Parses `words` with the options in `table`.
pub fn read<T: Copy + PartialEq>(table: &[Opt<T>], words: Vec<OsString>) -> Result<Read<T>, Stop> {
    parse(table, words).map_err(Stop::Words)
}

fn parse<T: Copy + PartialEq>(table: &[Opt<T>], words: Vec<OsString>) -> Result<Read<T>, Failure> {
    let mut options = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.peek() {
        let is_option = word.as_encoded_bytes().starts_with(b"-") && word != "-";
        if !is_option {
            break;
        }
        let word = words.next().unwrap_or_default();
        if word == "--" {
            break;
        }
        let word = text(word)?;
        // Short options may be grouped in a word; only the last can have its value in the next word.
        let mut next_level = |takes: Takes| {
            let is_level = |next: &OsString| next.to_str().is_some_and(is_number);
            let wanted = takes == Takes::PerhapsLevel && words.peek().is_some_and(is_level);
            if wanted { words.next().and_then(|next| next.into_string().ok()) } else { None }
        };
        let Some(long) = word.strip_prefix("--") else {
            let mut rest = &word[1..];
            while let Some(letter) = rest.chars().next() {
                rest = &rest[letter.len_utf8()..];
                let option = table.iter().find(|option| option.short == Some(letter));
                let option = option.ok_or_else(|| bad(format!("invalid option -- '{letter}'")))?;
                let digits =
                    rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                let value = match (option.takes, digits, rest) {
                    (Takes::PerhapsLevel, 1.., _) => {
                        let (level, after) = rest.split_at(digits);
                        rest = after;
                        Some(level.to_string())
                    }
                    (takes, 0, "") => next_level(takes),
                    _ => None,
                };
                options.push((option.name, value));
            }
            continue;
        };
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value.to_string())),
            None => (long, None),
        };
        let option = find(table, name)?;
        let value = match (option.takes, value) {
            (Takes::Nothing, Some(_)) => {
                return Err(bad(format!("option '--{}' doesn't allow an argument", option.long)));
            }
            (Takes::Value, None) => {
                let missing = || bad(format!("option '--{}' requires an argument", option.long));
                Some(text(words.next().ok_or_else(missing)?)?)
            }
            (takes, None) => next_level(takes),
            (_, value) => value,
        };
        options.push((option.name, value));
    }
    Ok(Read { options, rest: words.collect() })
}

/// Returns the option called `name`, or the only one with that prefix.
fn find<'a, T: PartialEq>(table: &'a [Opt<T>], name: &str) -> Result<&'a Opt<T>, Failure> {
    if let Some(exact) = table.iter().find(|option| option.long == name) {
        return Ok(exact);
    }
    let like: Vec<&Opt<T>> = table.iter().filter(|option| option.long.starts_with(name)).collect();
    match like.as_slice() {
        [] => Err(bad(format!("unrecognized option '--{name}'"))),
        [first, others @ ..] if others.iter().all(|other| other.name == first.name) => Ok(first),
        _ => {
            let names: Vec<String> = like.iter().map(|one| format!("'--{}'", one.long)).collect();
            let names = names.join(" ");
            Err(bad(format!("option '--{name}' is ambiguous; possibilities: {names}")))
        }
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn text(word: OsString) -> Result<String, Failure> {
    word.into_string().map_err(|word| bad(format!("{word:?} is not UTF-8")))
}

fn bad(what: String) -> Failure {
    Failure::usage(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Name {
        Help,
        Verbose,
        Heap,
        Path,
        UsePath,
        Obey,
    }

    const TABLE: &[Opt<Name>] = &[
        Opt::both("help", 'h', Takes::Nothing, Name::Help),
        Opt::both("verbose", 'v', Takes::PerhapsLevel, Name::Verbose),
        Opt::long("heap", Takes::Perhaps, Name::Heap),
        Opt::long("library-path", Takes::Value, Name::Path),
        Opt::long("library-use-path", Takes::Nothing, Name::UsePath),
        Opt::long("obey-mempolicy", Takes::Nothing, Name::Obey),
        Opt::long("obey-numa-mempol", Takes::Nothing, Name::Obey),
    ];

    type Line = (Vec<(Name, Option<String>)>, String);

    fn read_line(line: &str) -> Result<Line, String> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let read = parse(TABLE, words).map_err(|failure| failure.to_string())?;
        Ok((read.options, read.rest.join(std::ffi::OsStr::new(" ")).into_string().unwrap()))
    }

    fn value(text: &str) -> Option<String> {
        Some(text.to_string())
    }

    #[test]
    fn reads_as_getopt_long_does() {
        for (line, options, rest) in [
            ("--help", vec![(Name::Help, None)], ""),
            ("--he", vec![], "ambiguous"),
            ("--hea=2M prog --help", vec![(Name::Heap, value("2M"))], "prog --help"),
            ("--heap 2M", vec![(Name::Heap, None)], "2M"),
            ("--library-path /x y", vec![(Name::Path, value("/x"))], "y"),
            ("--library-path=/x=1 y", vec![(Name::Path, value("/x=1"))], "y"),
            ("--library-path --help", vec![(Name::Path, value("--help"))], ""),
            ("--library-u", vec![(Name::UsePath, None)], ""),
            ("--obey", vec![(Name::Obey, None)], ""),
            ("-vhv", vec![(Name::Verbose, None), (Name::Help, None), (Name::Verbose, None)], ""),
            ("-v3h", vec![(Name::Verbose, value("3")), (Name::Help, None)], ""),
            ("-v 3 x", vec![(Name::Verbose, value("3"))], "x"),
            ("--verbose 99", vec![(Name::Verbose, value("99"))], ""),
            ("--verbose=x", vec![(Name::Verbose, value("x"))], ""),
            ("--verbose ls", vec![(Name::Verbose, None)], "ls"),
            ("-h -- -v", vec![(Name::Help, None)], "-v"),
            ("-h - -v", vec![(Name::Help, None)], "- -v"),
            ("", vec![], ""),
        ] {
            match read_line(line) {
                Ok(read) => assert_eq!(read, (options, rest.to_string()), "{line}"),
                Err(why) => assert!(why.contains(rest) && !rest.is_empty(), "{line}: {why}"),
            }
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (line, part) in [
            ("--banana", "unrecognized option '--banana'"),
            ("-x", "invalid option -- 'x'"),
            ("-hx", "invalid option -- 'x'"),
            ("--library", "possibilities: '--library-path' '--library-use-path'"),
            ("--help=1", "doesn't allow an argument"),
            ("--library-path", "requires an argument"),
        ] {
            let why = read_line(line).expect_err(line);
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
