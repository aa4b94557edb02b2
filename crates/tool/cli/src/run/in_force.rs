//! Formats what an applied design did during a run, as a line and as JSON.

use ::report::format as words;
use live::{Report, Rule};
use serde::Serialize;

/// Why superpage backed off.
pub(super) const BACKED_OFF: &str = "superpage backed off, because making them would hold the program up for over 2 % of its CPU time";
/// Why superpages were not filled with zeros.
pub(super) const HELD: &str = "too much that was filled with zeros is not used";

/// A design that superpage applied.
#[derive(Debug, Serialize)]
pub struct InForce {
    /// The rules and how they were carried out.
    pub rules: Vec<Rule>,
    /// The superpages made.
    #[serde(flatten)]
    pub report: Report,
}

impl InForce {
    /// Formats one line for a run of this many seconds.
    pub fn in_words(&self, name: &str, seconds: f64) -> String {
        let Report { made, by_fault, failed, delay, .. } = &self.report;
        let mut parts = Vec::new();
        if *by_fault > 0 {
            let were = if *by_fault == 1 { "was" } else { "were" };
            parts.push(format!("{} {were} made by the kernel's fault", superpages(*by_fault)));
        }
        parts.push(match made {
            0 if *by_fault > 0 => "none was made by copying".to_string(),
            0 => self.why_none(),
            made if *made == self.report.in_place => format!("made {} in place", superpages(*made)),
            made => {
                let in_place = match self.report.in_place {
                    0 => String::new(),
                    some => format!("{some} of them in place, the others "),
                };
                let ahead = match self.report.ahead {
                    0 => String::new(),
                    some => format!("; {some} of them before their first touch"),
                };
                format!(
                    "made {} {in_place}by copying ({} copied, {} filled with zeros{ahead})",
                    superpages(*made),
                    words::counted(self.report.copied_pages, "page", "pages"),
                    self.report.filled_pages
                )
            }
        });
        parts.extend(
            failed.iter().map(|(why, times)| format!("failed {}: {why}", times_in_words(*times))),
        );
        if self.report.repeated > 0 {
            parts.push(format!(
                "tried again {}: the kernel held a page (EAGAIN)",
                times_in_words(self.report.repeated)
            ));
        }
        if self.report.gone > 0 {
            parts.push(format!("unmapped before: {}", self.report.gone));
        }
        if self.report.unmade > 0 {
            parts.push(format!("qualified, but on base pages: {}", self.report.unmade));
        }
        if self.report.waiting > 0 {
            parts.push(format!("{} not made: {BACKED_OFF}", superpages(self.report.waiting)));
        }
        if self.report.held > 0 {
            parts.push(format!("qualified, but not filled: {}: {HELD}", self.report.held));
        }
        if self.report.by_others > 0 {
            parts.push(format!("made by others: {}", self.report.by_others));
        }
        if let Some(delay) = delay {
            parts.push(format!(
                "half of them within {} after they qualified, 95 % within {}",
                words::seconds(delay.median_seconds),
                words::seconds(delay.p95_seconds)
            ));
        }
        let share = |spent: f64| words::percent(spent / seconds.max(1e-9));
        parts.push(format!(
            "{} of a CPU for looking, {} for making",
            share(self.report.looking_seconds),
            share(self.report.making_seconds)
        ));
        parts.extend(
            self.report
                .unsampled
                .iter()
                .map(|why| format!("faults were not sampled, so that growth was seen late: {why}")),
        );
        parts.extend(self.report.unseen.iter().map(|why| format!("not all was seen: {why}")));
        format!("{name}: {}", parts.join("; "))
    }

    fn why_none(&self) -> String {
        let Report { touched, fullest, .. } = self.report;
        let wanted: u64 = self.report.accounts.iter().map(|account| account.wanted).sum();
        match (touched, wanted) {
            (0, _) => "made no superpage: no memory of 2 MiB was seen in use".to_string(),
            (_, 0) => format!(
                "made no superpage: none of {touched} pieces of 2 MiB qualified; the fullest had {fullest} of \
                 512 pages"
            ),
            _ => "made no superpage".to_string(),
        }
    }
}

fn superpages(count: u64) -> String {
    words::counted(count, "superpage", "superpages")
}

fn times_in_words(times: u64) -> String {
    match times {
        1 => "once".to_string(),
        times => format!("{times} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_superpage_is_not_superpages() {
        let line = |made, by_fault| {
            let report = Report { made, by_fault, ..Report::default() };
            InForce { rules: Vec::new(), report }.in_words("x", 1.0)
        };
        assert!(line(1, 0).starts_with("x: made 1 superpage by copying"), "{}", line(1, 0));
        assert!(
            line(2, 1)
                .starts_with("x: 1 superpage was made by the kernel's fault; made 2 superpages ")
        );
    }
}
