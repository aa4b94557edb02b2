//! Reads and replaces costs in the text of a machine file. Keeps comments and the order of lines.
//!
//! For commands that measure a machine's costs. This editor does not understand all of TOML, so check the result with
//! [`super::Machine::from_toml`] before saving it.

/// A line of costs: its key (`fault-base`, `zero.temporal`), and the text after `=`, including the comment.
pub type CostLine = (String, String);

/// The sections, and the prefixes of their keys.
const SECTIONS: [(&str, &str); 2] = [("[costs]", ""), ("[costs.zero]", "zero.")];

/// Replaces `costs` in the text, and adds costs that the text lacks. Removes comments directly above a replaced line,
/// because they described the old value.
pub fn with_costs(text: &str, costs: &[CostLine]) -> String {
    let mut left: Vec<&CostLine> = costs.iter().collect();
    let mut out: Vec<String> = Vec::new();
    let mut section = None;
    for line in text.lines() {
        if line.trim_start().starts_with('[') && key(line).is_none() {
            add(&mut out, &mut left, section);
            section = prefix(line);
        }
        let found = section.zip(key(line)).and_then(|(prefix, key)| {
            left.iter().position(|(wanted, _)| wanted.strip_prefix(prefix) == Some(key))
        });
        match found {
            None => out.push(line.to_string()),
            Some(place) => {
                let (_, rest) = left.remove(place);
                while out.last().is_some_and(|above| above.trim_start().starts_with('#')) {
                    out.pop();
                }
                out.push(format!("{} = {rest}", key(line).unwrap_or_default()));
            }
        }
    }
    add(&mut out, &mut left, section);
    out.join("\n") + "\n"
}

/// Returns the costs in lines that contain `mark`.
pub fn costs_marked(text: &str, mark: &str) -> Vec<CostLine> {
    let mut section = None;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with('[') && key(line).is_none() {
            section = prefix(line);
        }
        if let (Some(prefix), Some(key), true) = (section, key(line), line.contains(mark)) {
            let rest = line.split_once('=').map_or("", |(_, rest)| rest.trim());
            found.push((format!("{prefix}{key}"), rest.to_string()));
        }
    }
    found
}

/// Adds the remaining costs of `section`, before the blank lines at its end.
fn add(out: &mut Vec<String>, left: &mut Vec<&CostLine>, section: Option<&'static str>) {
    let Some(prefix) = section else { return };
    let here = |cost: &&CostLine| match cost.0.strip_prefix(prefix) {
        Some(key) => !key.contains('.'),
        None => false,
    };
    let end = out.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    let lines: Vec<String> = left
        .iter()
        .filter(|cost| here(cost))
        .map(|(key, rest)| format!("{} = {rest}", &key[prefix.len()..]))
        .collect();
    out.splice(end..end, lines);
    left.retain(|cost| !here(cost));
}

fn prefix(line: &str) -> Option<&'static str> {
    let name = line.split('#').next().unwrap_or("").trim();
    SECTIONS.iter().find(|(section, _)| *section == name).map(|(_, prefix)| *prefix)
}

fn key(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (!key.is_empty() && key.chars().all(plain)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, names, preset_text};

    fn line(key: &str, rest: &str) -> CostLine {
        (key.to_string(), rest.to_string())
    }

    #[test]
    fn every_presets_costs_can_be_set_and_found_again() {
        let costs = [
            line("fault-base", "812.5   # (measured) here"),
            line("fault-superpage", "9000   # (measured) here"),
            line("zero.temporal", "[350.5, 340, 330]   # (measured) here"),
            line("zero.non-temporal", "[300, 260, 250]   # (measured) here"),
        ];
        for name in names() {
            let text = preset_text(name).unwrap();
            let edited = with_costs(text, &costs);
            let before = Machine::from_toml(text, name).unwrap();
            let after = Machine::from_toml(&edited, name).unwrap();
            assert_eq!((after.costs.fault_base, after.costs.fault_superpage), (812.5, 9000.0));
            assert_eq!(after.costs.zero.temporal, [350.5, 340.0, 330.0]);
            assert_eq!(after.costs.zero.non_temporal, [300.0, 260.0, 250.0]);
            assert_eq!(after.costs.table_page, before.costs.table_page);
            assert_eq!(after.l1, before.l1);
            let mut found = costs_marked(&edited, "(measured) here");
            let mut wanted = costs.to_vec();
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{name}");
            assert_eq!(with_costs(&edited, &costs), edited);
        }
    }

    #[test]
    fn what_is_not_there_is_added_in_its_section() {
        let text =
            "a = 1\n\n[costs]   # ns\n# of old\nx = 1\n\n[costs.zero]\ntemporal = [1, 1, 1]\n";
        let costs = [line("x", "2"), line("y", "3"), line("zero.other", "4")];
        let wanted = "a = 1\n\n[costs]   # ns\nx = 2\ny = 3\n\n[costs.zero]\ntemporal = [1, 1, 1]\nother = 4\n";
        assert_eq!(with_costs(text, &costs), wanted);
        assert_eq!(with_costs("a = 1\n", &costs), "a = 1\n");
    }
}
