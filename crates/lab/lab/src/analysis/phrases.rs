//! Formats facts as phrases for `explain`.

use report::sig3;

use super::account::Made;
use crate::{Cell, End, Report};

/// Formats cycles: `41.00 G`, `770`.
pub(super) fn cycles(count: u64) -> String {
    if count < 1000 { count.to_string() } else { sig3::figure(count as f64) }
}

/// Formats a count: `3 superpages`, `1 superpage`, `no superpages`.
pub(super) fn count(count: u64, one: &str) -> String {
    match count {
        0 => format!("no {one}s"),
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    }
}

/// Formats superpages: `made 12 superpages, all in place`, `made 15 superpages: 12 in place, 3 by copying`.
pub(super) fn made(made: Made) -> String {
    let kinds =
        [(made.at_fault, "by a fault"), (made.in_place, "in place"), (made.by_copy, "by copying")];
    let some: Vec<&(u64, &str)> = kinds.iter().filter(|(count, _)| *count > 0).collect();
    match some.as_slice() {
        [] => "made none".to_string(),
        [(made, how)] => {
            let all = if *made > 1 { "all " } else { "" };
            format!("made {}, {all}{how}", count(*made, "superpage"))
        }
        several => {
            let parts: Vec<String> =
                several.iter().map(|(count, how)| format!("{count} {how}")).collect();
            format!("made {}: {}", count(made.total(), "superpage"), parts.join(", "))
        }
    }
}

/// Describes an abnormal end: `was killed: memory ran out with 1 base page resident`.
pub fn end(end: &End) -> Option<String> {
    match end {
        End::Done => None,
        End::OutOfMemory { resident_pages, reserved_pages } => {
            let kept = reserved_pages.filter(|pages| *pages > 0).map_or(String::new(), |pages| {
                let pages = count(pages, "base page");
                format!(
                    ", while reservations keep {pages} unused: the design does not break them \
                     (allocation.break-reservations = false)"
                )
            });
            let pages = count(*resident_pages, "base page");
            Some(format!("was killed: memory ran out with {pages} resident{kept}"))
        }
        End::Killed { why } => Some(format!("was killed at a fault on the explicit pool ({why})")),
        End::Refused { short_by } => Some(format!(
            "was refused a mapping: its pool was {} short",
            count(*short_by, "superpage")
        )),
    }
}

/// Returns distinct names for two runs.
pub(super) fn names(a: &Report, b: &Report) -> (String, String) {
    if a.cell.design != b.cell.design {
        return (a.cell.design.clone(), b.cell.design.clone());
    }
    let parts = |cell: &Cell| {
        [
            cell.machine.clone(),
            cell.workload.clone(),
            cell.fragmentation.clone(),
            units::ByteSize(cell.memory_bytes).to_string(),
            format!("swap {}", units::ByteSize(cell.swap_bytes)),
            format!("{} nodes", cell.nodes_bytes.len().max(1)),
            format!("{} for movable pages only", units::ByteSize(cell.movable_bytes)),
            format!("seed {}", cell.seed),
        ]
    };
    let differing = |own: &Cell, other: &Cell| {
        let pairs = parts(own).into_iter().zip(parts(other));
        let apart: Vec<String> =
            pairs.filter(|(own, other)| own != other).map(|(own, _)| own).collect();
        format!("{} ({})", own.design, apart.join(", "))
    };
    if a.cell == b.cell {
        return (format!("{} (first)", a.cell.design), format!("{} (second)", b.cell.design));
    }
    (differing(&a.cell, &b.cell), differing(&b.cell, &a.cell))
}

/// Returns the differences between the settings of two runs, except the design.
pub(super) fn differing_cells(a: &Cell, b: &Cell) -> Vec<&'static str> {
    [
        ("machine", a.machine != b.machine),
        ("workload", a.workload != b.workload),
        ("fragmentation", a.fragmentation != b.fragmentation),
        ("memory", a.memory_bytes != b.memory_bytes),
        ("swap", a.swap_bytes != b.swap_bytes),
        ("nodes", a.nodes_bytes != b.nodes_bytes),
        ("the partition for movable pages", a.movable_bytes != b.movable_bytes),
        ("seed", a.seed != b.seed),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}
