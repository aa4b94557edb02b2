//! Formats what libsuperpage.so did in the processes of a run.

use abi::{Column, Kind, Prepared, Reason, Shortage, Totals};
use experiment::counters::CounterFile;
use units::ByteSize;

/// Formats the counters in one line. `uncounted` is the number of processes that could not add to them. `fallback`
/// names the pages of memory that got no superpages.
pub fn summary(counters: &CounterFile, uncounted: usize, fallback: &str, in_place: bool) -> String {
    let missing = match uncounted {
        0 => String::new(),
        1 => "; at least 1 more process is not counted".to_string(),
        count => format!("; at least {count} more processes are not counted"),
    };
    let why = if uncounted == 0 { "" } else { " (another user, namespace or capabilities)" };
    match counters.totals() {
        Some(totals) => in_words(&totals, fallback, in_place) + &missing + why,
        None => "unknown what libsuperpage.so did: its counters could not be read".to_string(),
    }
}

fn in_words(totals: &Totals, fallback: &str, in_place: bool) -> String {
    if totals.processes() == 0 {
        return "libsuperpage.so was active in no process: nothing was backed, or it could not open its \
            counters"
            .to_string();
    }
    let bytes = |kind, column| totals.bytes(kind, column);
    let (mut parts, fell_back) = (Vec::new(), format!("fell back to {fallback}"));
    for kind in Kind::ALL {
        let columns = [
            (
                Column::Hugetlb,
                if in_place { "in files of superpages" } else { "reserved in the pool" },
            ),
            (Column::Advised, "advised"),
            (Column::FellBack, fell_back.as_str()),
            (Column::Refused, "refused"),
        ];
        let amounts: Vec<String> = columns
            .iter()
            .filter(|(column, _)| bytes(kind, *column) > 0)
            .map(|(column, words)| format!("{} {words}", ByteSize(bytes(kind, *column))))
            .collect();
        if !amounts.is_empty() {
            parts.push(format!("{} {}", kind.name(), amounts.join(", ")));
        }
    }
    if parts.is_empty() {
        parts.push(nothing_asked(totals));
    }
    parts.extend(prepared_in_words(totals));
    let reasons: Vec<String> = Reason::ALL
        .iter()
        .filter(|why| totals.times(**why) > 0)
        .map(|why| match totals.times(*why) {
            1 => format!("{} (once)", why.words()),
            times => format!("{} ({times} times)", why.words()),
        })
        .collect();
    let why = if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join(", ")) };
    let mut processes = report::format::counted(totals.processes(), "process", "processes");
    if totals.forks() > 0 {
        processes += &format!(" ({} forked)", totals.forks());
    }
    format!("in {processes}: {}{why}", parts.join("; "))
}

/// Formats the bytes of requests left on base pages, by kind, for a run that requested no superpages.
fn nothing_asked(totals: &Totals) -> String {
    let left = |kind: &Kind| totals.bytes(*kind, Column::Small);
    let kinds = Kind::ALL.into_iter().filter(|kind| left(kind) > 0);
    let kinds = kinds.map(|kind| format!("{} {}", kind.name(), ByteSize(left(&kind))));
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    if kinds.is_empty() {
        return "no superpages were requested: it was asked for no memory of these kinds"
            .to_string();
    }
    format!(
        "no superpages were requested; left on base pages, as too small or not yet known to be used densely: {kinds}"
    )
}

/// Formats what the pool could not serve, and the remedy.
pub fn shortage_in_words(shortage: &Shortage, has_grown: bool) -> String {
    let Shortage { page, wanted, had, missing, why } = *shortage;
    let why = why.map_or("no reason is known", Reason::words);
    let remedy = match shortage.why {
        Some(Reason::PoolShort) if has_grown => {
            "; it could not be grown further, or not by more than --grow-pool=SIZE"
        }
        Some(Reason::PoolShort) => "; grow the pool for the run with --grow-pool (root)",
        _ => "",
    };
    format!(
        "{why}: {wanted} pages of {} wanted in all, {had} had, {} missing{remedy}",
        ByteSize(page),
        ByteSize(missing)
    )
}

/// Formats how much memory was prepared before its first touch, and how much of it the program never used.
fn prepared_in_words(totals: &Totals) -> Option<String> {
    let is_any = |what: &Prepared| totals.prepared(*what) > 0;
    if !Prepared::ALL.iter().any(is_any) {
        return None;
    }
    let size = |what| ByteSize(totals.prepared(what));
    let asked = [Prepared::HandedOut, Prepared::Lost, Prepared::Missed];
    let asked = ByteSize(asked.iter().map(|what| totals.prepared(*what)).sum());
    let mut line = format!("{} of {asked} were ready when asked for", size(Prepared::HandedOut));
    for (what, words) in [
        (Prepared::Recycled, "zeroed again after use"),
        (Prepared::Ahead, "faulted in ahead"),
        (Prepared::Lost, "reclaimed by the kernel before use"),
    ] {
        if totals.prepared(what) > 0 {
            line += &format!(", {} {words}", size(what));
        }
    }
    let most = size(Prepared::Most);
    Some(format!("{line}; of the memory, up to {most} was the stock of prepared superpages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the summary line of a counter file with these words set.
    fn line(words: &[(usize, u64)]) -> String {
        let mut bytes = abi::empty();
        for (word, value) in words {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        }
        in_words(&Totals::parse(&bytes).unwrap(), "THP", false)
    }

    #[test]
    fn the_line_says_what_was_got_and_why_not() {
        let line = line(&[
            (abi::processes(), 2),
            (abi::sum(Kind::Heap, Column::Hugetlb), 4 << 20),
            (abi::sum(Kind::Mmap, Column::FellBack), 2 << 20),
            (abi::reason(Reason::PoolShort), 1),
        ]);
        assert_eq!(
            line,
            "in 2 processes: heap 4 MiB reserved in the pool; mmap 2 MiB fell back to THP; the \
             hugetlb pool was short (once)"
        );
    }

    #[test]
    fn what_was_prepared_is_said_and_never_called_the_programs() {
        let line = line(&[
            (abi::processes(), 1),
            (abi::sum(Kind::Mmap, Column::Advised), 8 << 20),
            (abi::prepared(Prepared::HandedOut), 6 << 20),
            (abi::prepared(Prepared::Missed), 2 << 20),
            (abi::prepared(Prepared::Recycled), 4 << 20),
            (abi::prepared(Prepared::Most), 16 << 20),
        ]);
        assert_eq!(
            line,
            "in 1 process: mmap 8 MiB advised; 6 MiB of 8 MiB were ready when asked for, 4 MiB \
             zeroed again after use; of the memory, up to 16 MiB was the stock of prepared \
             superpages"
        );
    }

    #[test]
    fn memory_that_was_left_on_base_pages_is_told_by_kind_and_size() {
        let line = line(&[
            (abi::processes(), 1),
            (abi::sum(Kind::Heap, Column::Small), 160 << 20),
            (abi::sum(Kind::Mmap, Column::Small), 1 << 20),
        ]);
        assert_eq!(
            line,
            "in 1 process: no superpages were requested; left on base pages, as too small or not yet \
             known to be used densely: heap 160 MiB, mmap 1 MiB"
        );
    }

    #[test]
    fn a_library_that_never_ran_is_said() {
        let line = line(&[]);
        assert!(line.contains("nothing was backed"), "{line}");
    }
}
