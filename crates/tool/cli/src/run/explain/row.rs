//! The rows of `--explain` and their formatting.

use ::report::format as words;
use live::Latency;
use serde_json::{Map, Value};
use units::ByteSize;

use crate::pool::show;

/// Mechanism of rules that the kernel decides itself.
pub(super) const OWN_RULES: &str = "the kernel's own rules";

/// A rule and the outcome of one mechanism.
#[derive(Debug, Default, PartialEq)]
pub struct Row {
    pub(super) rule: String,
    pub(super) asked: Option<u64>,
    pub(super) done: Option<u64>,
    /// Upper bound of `done`, where `done` is unknown.
    pub(super) at_most: Option<u64>,
    pub(super) bytes: Option<u64>,
    /// Number of requested superpages that were not made.
    pub(super) refused: Option<u64>,
    /// Reasons for failed attempts, with the number of attempts; attempts are repeated.
    pub(super) failures: Vec<(&'static str, u64)>,
    pub(super) means: &'static str,
    pub(super) by: &'static str,
    pub(super) when: When,
    pub(super) why: String,
}

/// Delay between the trigger and the superpage.
#[derive(Debug, Default, PartialEq)]
pub(super) enum When {
    #[default]
    Unknown,
    /// Before the call or fault returned.
    AtOnce(&'static str),
    /// In the call that another row reports.
    With(&'static str),
    Later(Latency),
}

impl Row {
    pub(super) fn nothing(&mut self, why: &str) {
        (self.done, self.bytes) = (Some(0), Some(0));
        self.say(why);
    }

    /// Records `count` superpages of `size` bytes each.
    pub(super) fn made(&mut self, count: u64, size: Option<u64>) {
        (self.done, self.bytes) = (Some(count), size.map(|size| count * size));
    }

    pub(super) fn say(&mut self, why: &str) {
        if !self.why.is_empty() {
            self.why += "; ";
        }
        self.why += why;
    }

    fn document(&self) -> Value {
        let (median, p99, when) = match self.when {
            When::Unknown => (None, None, None),
            When::With(when) => (None, None, Some(when)),
            When::AtOnce(when) => (Some(0.0), Some(0.0), Some(when)),
            When::Later(Latency { median_seconds, p99_seconds }) => {
                (Some(median_seconds * 1e3), Some(p99_seconds * 1e3), Some("later"))
            }
        };
        let why = Some(self.why.as_str()).filter(|why| !why.is_empty());
        let mut row = Map::new();
        for (key, text) in [
            ("rule", Some(self.rule.as_str())),
            ("means", Some(self.means)),
            ("by", Some(self.by)),
            ("when", when),
            ("why", why),
        ] {
            row.insert(key.to_string(), text.into());
        }
        for (key, count) in [
            ("asked", self.asked),
            ("done", self.done),
            ("done_at_most", self.at_most),
            ("bytes", self.bytes),
            ("refused", self.refused),
        ] {
            row.insert(key.to_string(), count.into());
        }
        for (key, milliseconds) in [("median_ms", median), ("p99_ms", p99)] {
            row.insert(key.to_string(), milliseconds.into());
        }
        let mut failures = Map::new();
        for (why, times) in &self.failures {
            failures.insert(why.to_string(), (*times).into());
        }
        row.insert("failures".to_string(), failures.into());
        row.into()
    }

    fn cells(&self) -> Vec<String> {
        let done = match (self.done, self.at_most) {
            (None, Some(most)) => format!("<= {most}"),
            (done, _) => show::known(done),
        };
        let when = match self.when {
            When::Unknown if self.done == Some(0) => "-".to_string(),
            When::Unknown => words::UNKNOWN.to_string(),
            When::AtOnce(when) | When::With(when) => when.to_string(),
            When::Later(Latency { median_seconds, p99_seconds }) => {
                format!("{}, {}", words::seconds(median_seconds), words::seconds(p99_seconds))
            }
        };
        let (asked, refused) = (show::known(self.asked), show::known(self.refused));
        let bytes = words::known(self.bytes, |bytes| ByteSize(bytes).to_string());
        let by = if self.by == super::NO_ACTOR { "-" } else { self.by };
        let (means, by) = (self.means.to_string(), by.to_string());
        vec![self.rule.clone(), asked, done, bytes, refused, means, by, when]
    }
}

/// Formats the field `explain` of `superpage.run/1`.
pub fn document(rows: &[Row]) -> Value {
    let mut documents = Vec::new();
    for row in rows {
        documents.push(row.document());
    }
    documents.into()
}

/// Formats the table. Below it, says why rules were not carried out, or how differently.
pub fn in_words(rows: &[Row]) -> String {
    const HEAD: [&str; 8] =
        ["rule", "asked", "done", "bytes", "refused", "by what means", "by whom", "median, 99 %"];
    let (mut cells, mut below, mut others) = (Vec::new(), String::new(), String::new());
    for row in rows {
        if row.means == OWN_RULES {
            others += if others.is_empty() { "  by the kernel's own rules: " } else { ", " };
            others += &row.rule;
            continue;
        }
        cells.push(row.cells());
        for (why, times) in &row.failures {
            below += &format!("  {}: failed {times} times: {why}\n", row.rule);
        }
        let line = format!("  {}: {}\n", row.rule, row.why);
        if !row.why.is_empty() && !below.contains(&line) {
            below += &line;
        }
    }
    if !others.is_empty() {
        others.push('\n');
    }
    show::table(&HEAD, cells, &[0, 5, 6, 7]) + &below + &others
}

#[cfg(test)]
mod tests {
    use super::super::{CALL, COLLAPSE, LAUNCHER, MACHINE};
    use super::*;

    #[test]
    fn unknown_is_not_zero_and_what_only_the_machine_counts_is_a_bound() {
        let later = Latency { median_seconds: 0.0005, p99_seconds: 0.02 };
        let row = |rule: &str, means| {
            let rule = rule.to_string();
            Row { rule, means, by: LAUNCHER, ..Row::default() }
        };
        let why = MACHINE.to_string();
        let rows = [
            Row {
                asked: Some(3),
                done: Some(2),
                bytes: Some(4 << 20),
                refused: Some(1),
                failures: vec![("none was free (ENOMEM)", 5)],
                when: When::Later(later),
                ..row("mapping.when", COLLAPSE)
            },
            Row { at_most: Some(7), why: why.clone(), ..row("mapping.scan", COLLAPSE) },
            Row {
                when: CALL,
                why,
                failures: vec![("the kernel held a page (EAGAIN)", 2)],
                ..row("mapping.scan", COLLAPSE)
            },
            row("fault.rss", OWN_RULES),
            row("memory.reclaim", OWN_RULES),
        ];
        let text = in_words(&rows);
        let words: Vec<Vec<&str>> =
            text.lines().map(|it| it.split_whitespace().collect()).collect();
        let shown = ["mapping.when", "3", "2", "4", "MiB", "1", COLLAPSE];
        assert_eq!(words[1][..7], shown, "{text}");
        assert!(text.lines().nth(1).unwrap().ends_with("500 µs, 20.00 ms"), "{text}");
        assert_eq!(words[2][..6], ["mapping.scan", "unknown", "<=", "7", "unknown", "unknown"]);
        assert!(text.lines().nth(3).unwrap().ends_with("in the call"), "{text}");
        let below: Vec<&str> = text.lines().skip(4).collect();
        let machine = format!("  mapping.scan: {MACHINE}");
        let failed = "  mapping.when: failed 5 times: none was free (ENOMEM)";
        let again = "  mapping.scan: failed 2 times: the kernel held a page (EAGAIN)";
        let own = "  by the kernel's own rules: fault.rss, memory.reclaim";
        assert_eq!(below, [failed, &machine, again, own], "a footnote stands once");

        let documents = document(&rows);
        assert_eq!(documents[0]["p99_ms"], 20.0);
        assert_eq!(
            (&documents[1]["done"], &documents[1]["done_at_most"]),
            (&Value::Null, &7.into())
        );
        let call = &documents[2];
        assert_eq!((&call["when"], &call["median_ms"]), (&"in the call".into(), &0.0.into()));
        assert!(documents[3]["when"].is_null() && documents[3]["bytes"].is_null());
    }
}
