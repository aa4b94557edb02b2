//! Reports of `bench frag`: the plan, the memory held, and free memory before, during and after the run.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use experiment::bench::SCHEMA;
use experiment::fragment::{Extent, Goal, Held, Kind};
use host::FreeContiguity;
use report::format as words;
use serde_json::{Value, json};
use units::ByteSize;

use super::Args;
use crate::exit::{self, Done, Failure};
use crate::pool::show::{self, table};

/// How the program ended, and after how many seconds.
pub struct Ended {
    pub status: ExitStatus,
    pub seconds: f64,
}

/// The fragmentation that was done, and free memory at each stage of the run.
pub struct Report {
    goal: Goal,
    extent: Extent,
    /// Whether memory was compacted before the fragmentation.
    compacted: bool,
    fragmented: u64,
    occupied: u64,
    bytes: ByteSize,
    before: FreeContiguity,
    held: FreeContiguity,
    /// Free memory after the program ended, while the memory was still held; `None`: unreadable.
    pub ended: Option<FreeContiguity>,
    /// Free memory after the held memory was freed.
    pub after: Option<FreeContiguity>,
}

impl Report {
    /// Creates a report on the memory `held`; `before` and `now` are free memory before and after it was taken.
    pub fn new(
        held: &Held,
        extent: Extent,
        compacted: bool,
        before: FreeContiguity,
        now: FreeContiguity,
    ) -> Self {
        let (fragmented, occupied, bytes) = (held.fragmented, held.occupied, held.bytes());
        let (ended, after) = (None, None);
        let goal = held.goal;
        Self {
            goal,
            extent,
            compacted,
            fragmented,
            occupied,
            bytes,
            before,
            held: now,
            ended,
            after,
        }
    }

    /// Formats the line on the held memory that is printed before the program starts.
    pub fn holding(&self) -> String {
        let (kind, size) = (kind(self.goal.kind), self.goal.superpage);
        let occupied = match self.occupied {
            0 => String::new(),
            occupied => format!(" and {} occupied", show::bytes(occupied, size)),
        };
        let free = words::known(self.held.in_superpages, |free| free.to_string());
        let rest = match self.extent {
            Extent::Part(_) => " for any program to take".to_string(),
            Extent::All | Extent::Leave(_) | Extent::Needed(_) => {
                let wanted =
                    words::known(self.goal.left, |left| show::bytes(left, size).to_string());
                format!(" ({wanted} wanted)")
            }
        };
        let fragmented = self.fragmented;
        format!(
            "{fragmented} superpages fragmented ({kind}){occupied}; {free} free in superpages{rest}"
        )
    }

    /// Formats a table of free memory at each stage.
    pub fn table(&self) -> String {
        let row = |when: &str, free: Option<&FreeContiguity>| {
            let known = |value: Option<ByteSize>| words::known(value, |bytes| bytes.to_string());
            vec![
                when.to_string(),
                known(free.map(|free| free.free)),
                known(free.and_then(|free| free.in_superpages)),
                words::known(free.and_then(FreeContiguity::ratio), words::percent),
            ]
        };
        let rows = vec![
            row("before", Some(&self.before)),
            row("held", Some(&self.held)),
            row("program ended", self.ended.as_ref()),
            row("given back", self.after.as_ref()),
        ];
        table(&["", "free", "in superpages", "share"], rows, &[0])
    }

    pub fn document(&self, args: &Args, ended: &Ended) -> Value {
        let size = self.goal.superpage;
        let free = |free: &FreeContiguity| {
            json!({
                "free_bytes": free.free,
                "in_superpages_bytes": free.in_superpages,
                "share": free.ratio(),
            })
        };
        json!({
            "schema": SCHEMA,
            "bench": "frag",
            "superpage_version": env!("CARGO_PKG_VERSION"),
            "command": args.command,
            "exit_code": ended.status.code(),
            "signal": ended.status.signal(),
            "wall_seconds": ended.seconds,
            "kind": self.goal.kind,
            "level_percent": self.goal.level,
            "superpage_bytes": size,
            "memory_bytes": args.memory,
            "leave_bytes": args.leave,
            "compacted": self.compacted,
            "fragmented_wanted": self.goal.fragmented,
            "fragmented": self.fragmented,
            "occupied": self.occupied,
            "held_bytes": self.bytes,
            "before": free(&self.before),
            "held": free(&self.held),
            "program_ended": self.ended.as_ref().map(free),
            "given_back": self.after.as_ref().map(free),
        })
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Movable => "movable: 16 pages of each stay in use",
        Kind::Pinned => "pinned: one page of each cannot be moved",
    }
}

/// Prints the plan on standard output.
pub fn plan(args: &Args, goal: &Goal, free: &FreeContiguity) -> Result<Done, Failure> {
    let size = goal.superpage;
    if args.report.json {
        exit::print_json(
            "superpage.fragmentation-plan/1",
            json!({
                "kind": goal.kind,
                "level_percent": goal.level,
                "superpage_bytes": size,
                "fragment": goal.fragmented,
                "occupy": goal.occupied,
                "held_bytes": goal.bytes(),
                "free_bytes": free.free,
                "in_superpages_bytes": free.in_superpages,
                "command": args.command,
            }),
        )?;
        return Ok(Done::Fine);
    }
    let mut out =
        "would make free memory contiguous before and afterwards, where that is permitted\n"
            .to_string();
    if goal.occupied > 0 {
        out += &format!("would occupy {}\n", show::bytes(goal.occupied, size));
    }
    out += &format!(
        "would fragment {} superpages of {size} ({})\nwould hold {} while running {}\n",
        goal.fragmented,
        kind(goal.kind),
        goal.bytes(),
        words::command(&args.command),
    );
    exit::print(&out)?;
    Ok(Done::Fine)
}
