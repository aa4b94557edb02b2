//! The ledger of one run: a file that the processes of the program add to, and what it says.

use std::fs;
use std::io::Write;

use ledger::{Column, Kind, Prepared, Reason, Totals};
use tempfile::NamedTempFile;
use units::ByteSize;

/// The file, gone when this is.
#[derive(Debug)]
pub struct LedgerFile(NamedTempFile);

impl LedgerFile {
    /// An empty one; `None` where no file can be made: then what the program got is not summed up.
    pub fn create() -> Option<Self> {
        let shared_memory = fs::metadata("/dev/shm").is_ok_and(|it| it.is_dir());
        let dir = if shared_memory { "/dev/shm".into() } else { std::env::temp_dir() };
        let mut file = tempfile::Builder::new().prefix("superpage-").tempfile_in(dir).ok()?;
        file.write_all(&ledger::empty()).ok()?;
        // A program may become another user before it executes the one that counts. All that others
        // could do to it is to add to the sums of one run.
        let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        let _ = file.as_file().set_permissions(open_to_all);
        Some(Self(file))
    }

    /// How the program's processes learn of it.
    pub fn variable(&self) -> (String, String) {
        ("SUPERPAGE_LEDGER".to_string(), self.0.path().display().to_string())
    }

    /// What they got, in one line.
    pub fn in_words(&self) -> String {
        match fs::read(self.0.path()).ok().and_then(|bytes| Totals::parse(&bytes)) {
            Some(totals) => in_words(&totals),
            None => "what the library did is unknown: its ledger could not be read".to_string(),
        }
    }
}

fn in_words(totals: &Totals) -> String {
    if totals.processes() == 0 {
        return "no process said that libsuperpage.so is active in it: nothing was backed, or it \
                could not open the ledger"
            .to_string();
    }
    let bytes = |kind, column| totals.bytes(kind, column);
    let mut parts = Vec::new();
    for kind in Kind::ALL {
        let columns = [
            (Column::Hugetlb, "reserved in the pool"),
            (Column::Advised, "advised"),
            (Column::FellBack, "fell back"),
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
        parts.push("no request was large enough for a superpage".to_string());
    }
    parts.extend(prepared_in_words(totals));
    let reasons: Vec<String> = Reason::ALL
        .iter()
        .filter(|why| totals.times(**why) > 0)
        .map(|why| format!("{} ({} times)", why.words(), totals.times(*why)))
        .collect();
    let why = if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join(", ")) };
    let count = totals.processes();
    let processes = if count == 1 { "1 process".to_string() } else { format!("{count} processes") };
    format!("in {processes}: {}{why}", parts.join("; "))
}

/// What was ready before it was touched, and what of the memory was never the program's.
fn prepared_in_words(totals: &Totals) -> Option<String> {
    if totals.prepared(Prepared::Threads) == 0 {
        return None;
    }
    let size = |what| ByteSize(totals.prepared(what));
    let asked = [Prepared::HandedOut, Prepared::Lost, Prepared::Missed];
    let asked = ByteSize(asked.iter().map(|what| totals.prepared(*what)).sum());
    let mut line = format!("{} of {asked} were ready when asked for", size(Prepared::HandedOut));
    for (what, words) in [
        (Prepared::Recycled, "zeroed again after use"),
        (Prepared::Ahead, "populated ahead of touches"),
        (Prepared::Lost, "taken back by the kernel before"),
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

    #[test]
    fn the_line_says_what_was_got_and_why_not() {
        let mut bytes = ledger::empty();
        let mut put = |word: usize, value: u64| {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(ledger::processes(), 2);
        put(ledger::sum(Kind::Heap, Column::Hugetlb), 4 << 20);
        put(ledger::sum(Kind::Mmap, Column::FellBack), 2 << 20);
        put(ledger::reason(Reason::PoolShort), 1);
        let line = in_words(&Totals::parse(&bytes).unwrap());
        assert_eq!(
            line,
            "in 2 processes: heap 4 MiB reserved in the pool; mmap 2 MiB fell back; the hugetlb \
             pool was short (1 times)"
        );
    }

    #[test]
    fn what_was_prepared_is_said_and_never_called_the_programs() {
        let mut bytes = ledger::empty();
        let mut put = |word: usize, value: u64| {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        };
        put(ledger::processes(), 1);
        put(ledger::sum(Kind::Mmap, Column::Advised), 8 << 20);
        put(ledger::prepared(Prepared::Threads), 1);
        put(ledger::prepared(Prepared::HandedOut), 6 << 20);
        put(ledger::prepared(Prepared::Missed), 2 << 20);
        put(ledger::prepared(Prepared::Recycled), 4 << 20);
        put(ledger::prepared(Prepared::Most), 16 << 20);
        assert_eq!(
            in_words(&Totals::parse(&bytes).unwrap()),
            "in 1 process: mmap 8 MiB advised; 6 MiB of 8 MiB were ready when asked for, 4 MiB \
             zeroed again after use; of the memory, up to 16 MiB was the stock of prepared \
             superpages"
        );
    }

    #[test]
    fn a_library_that_never_ran_is_said() {
        let line = in_words(&Totals::parse(&ledger::empty()).unwrap());
        assert!(line.contains("nothing was backed"), "{line}");
    }
}
