//! Parsing and formatting of single values: words, numbers, sizes, times, lists, conditions.

use std::time::Duration;

use policy::Rule;
use policy::table::{Choice, Number, Slot};
use toml_keys::{DeValue, Field, list, quoted, wrong};
use units::ByteSize;

use crate::{Span, Value, condition};

const SPAN: &str =
    "spans of the program's memory with their misses, by address: [\"0 512M 40000\"]";

/// Parses the value of `key` (with its table prefix). An error describes the allowed values.
pub(crate) fn read(key: &str, slot: Slot<'_>, value: &DeValue<'_>) -> Result<(), String> {
    match slot {
        Slot::Text(to) => *to = String::read(value)?,
        Slot::Word(to) => word(to, value)?,
        Slot::Words(words, to) => several(words, to, value)?,
        Slot::Flag(to) => *to = bool::read(value)?,
        Slot::Number(to) => number(to, value)?,
        Slot::Size(to) => *to = ByteSize::read(value)?,
        Slot::Sizes(to) => *to = list(value, "a list of sizes: [\"2M\"]")?,
        Slot::Time(to) => *to = Duration::read(value)?,
        Slot::Condition(to) => {
            let rule = Rule::from_key(key).expect("a rule for each condition");
            let text = String::read(value)?;
            let read = condition::read(&text, rule);
            *to = Some(read.map_err(|what| format!("{}: {what}", quoted(&beginning(&text))))?);
        }
        Slot::Spans(to) => *to = values(value, SPAN)?.map(span).collect::<Result<_, _>>()?,
    }
    Ok(())
}

/// Returns the value in a form that [`read`] parses; `None` if the key is absent.
pub(crate) fn write(slot: &Slot<'_>) -> Option<Value> {
    let text = |text: &str| Value::Text(text.to_string());
    let span = |Span { from, to, misses }: &Span| {
        Value::Text(format!("{} {} {misses}", from.bytes(), to.bytes()))
    };
    Some(match slot {
        Slot::Text(is) => text(is),
        Slot::Word(is) => text(is.word()),
        Slot::Words(words, is) => {
            let words = words.iter().zip(is).filter(|(_, is)| ***is);
            Value::List(words.map(|(word, _)| text(word)).collect())
        }
        Slot::Flag(is) => Value::Flag(**is),
        Slot::Number(is) => Value::Number(is.get()?),
        Slot::Size(is) => Value::Size(**is),
        Slot::Sizes(are) => Value::List(are.iter().copied().map(Value::Size).collect()),
        Slot::Time(is) => Value::Time(**is),
        Slot::Condition(is) => text(&condition::text(is.as_ref()?)),
        Slot::Spans(are) => Value::List(are.iter().map(span).collect()),
    })
}

fn word(to: &mut dyn Choice, value: &DeValue<'_>) -> Result<(), String> {
    let words: Vec<(&str, &str)> = to.words().iter().map(|&word| (word, word)).collect();
    let word = toml_keys::word(value, &words)?;
    assert!(to.choose(word), "one of its words");
    Ok(())
}

/// Parses a list of words.
fn several(words: &[&str; 2], to: [&mut bool; 2], value: &DeValue<'_>) -> Result<(), String> {
    let allowed = format!("a list of {}", words.map(quoted).join(" and "));
    let mut on = [false; 2];
    for each in values(value, &allowed)? {
        let other = each.as_str().ok_or_else(|| format!("must be {allowed}"))?;
        let at = words.iter().position(|word| *word == other);
        on[at.ok_or_else(|| format!("{}: must be {allowed}", quoted(other)))?] = true;
    }
    to.into_iter().zip(on).for_each(|(to, on)| *to = on);
    Ok(())
}

/// Parses an integer that the type can represent. [`crate::check`] checks further limits. The largest TOML integer is
/// 2^63 - 1.
fn number(to: &mut dyn Number, value: &DeValue<'_>) -> Result<(), String> {
    let most = to.max().min(i64::MAX as u64);
    let allowed = format!("a whole number from 0 to {most}");
    let number = value.as_integer().ok_or_else(|| wrong(value, &allowed))?;
    let read = u64::from_str_radix(number.as_str(), number.radix()).ok();
    let read = read.filter(|read| *read <= most);
    to.set(read.ok_or_else(|| format!("{number} is out of range: must be {allowed}"))?);
    Ok(())
}

fn span(value: &DeValue<'_>) -> Result<Span, String> {
    let text = value.as_str();
    let read = text.and_then(|text| {
        let [from, to, misses] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return None;
        };
        let (from, to) = (from.parse().ok()?, to.parse().ok()?);
        Some(Span { from, to, misses: misses.parse().ok()? })
    });
    let text = text.map_or(String::new(), |text| format!("{}: ", quoted(text)));
    read.ok_or_else(|| format!("{text}must be {SPAN}"))
}

fn values<'a, 'b>(
    value: &'a DeValue<'b>,
    allowed: &str,
) -> Result<impl Iterator<Item = &'a DeValue<'b>> + use<'a, 'b>, String> {
    let list = value.as_array().ok_or_else(|| wrong(value, allowed))?;
    Ok(list.iter().map(|each| each.get_ref()))
}

/// Truncates a text for a one-line message.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}
