//! The journal's text: JSON lines, a versioned header first. A reader of untrusted bytes.
//! See docs/decisions/settings.md#3.

use serde::{Deserialize, Serialize};

use super::knob::Knob;
use super::lock::printable;

/// The only version there is.
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    superpage_journal: u32,
    pub boot_id: String,
    pub pid: i32,
    pub command: String,
}

/// Every other line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Line {
    /// The knob is about to be written. `old` and `asked` are canonical.
    Change { seq: u32, knob: Knob, old: String, asked: String },
    /// It was written and read back.
    Wrote { seq: u32, got: String },
}

/// One change, with what was got if that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub seq: u32,
    pub knob: Knob,
    pub old: String,
    pub asked: String,
    pub got: Option<String>,
}

/// A line that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub line: usize,
    pub text: String,
    pub why: String,
    /// It is the last line and its end is missing: the writer died while writing it, so the knob
    /// it was about had not been written.
    pub half_written: bool,
}

/// What a journal's text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parsed {
    /// Nothing was written after at most a part of the header: no knob had been written.
    NeverBegun,
    /// No header that could be understood.
    NoHeader { why: String },
    /// Another version's.
    OtherVersion(u32),
    /// A journal, perhaps with faulty lines.
    Journal { header: Header, changes: Vec<Change>, faults: Vec<Fault> },
}

impl Header {
    pub fn new(boot_id: &str, pid: i32, command: &str) -> Self {
        let (boot_id, command) = (boot_id.to_string(), command.to_string());
        Self { superpage_journal: VERSION, boot_id, pid, command }
    }
}

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    #[derive(Deserialize)]
    struct Opening {
        superpage_journal: u32,
    }
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Parsed::NeverBegun };
    match serde_json::from_slice::<Opening>(first) {
        Ok(opening) if opening.superpage_journal != VERSION => {
            return Parsed::OtherVersion(opening.superpage_journal);
        }
        Err(_) if !first.ends_with(b"\n") && first.starts_with(b"{") => return Parsed::NeverBegun,
        _ => {}
    }
    let header: Header = match serde_json::from_slice(first) {
        Ok(header) => header,
        Err(error) => return Parsed::NoHeader { why: printable(&error.to_string()) },
    };
    let (mut changes, mut faults) = (Vec::<Change>::new(), Vec::new());
    for (index, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        if let Err(why) = read_line(line, &mut changes) {
            let half_written = !line.ends_with(b"\n");
            let text = printable(&String::from_utf8_lossy(line));
            faults.push(Fault { line: index + 1, text, why: printable(&why), half_written });
        }
    }
    Parsed::Journal { header, changes, faults }
}

fn read_line(line: &[u8], changes: &mut Vec<Change>) -> Result<(), String> {
    match serde_json::from_slice(line).map_err(|error| error.to_string())? {
        Line::Change { seq, knob, old, asked } => {
            knob.check(&old).and_then(|()| knob.check(&asked)).map_err(|e| e.to_string())?;
            changes.push(Change { seq, knob, old, asked, got: None });
        }
        Line::Wrote { seq, got } => {
            let change = changes.iter_mut().rev().find(|change| change.seq == seq);
            change.ok_or("it belongs to no change before it")?.got = Some(got);
        }
    }
    Ok(())
}
