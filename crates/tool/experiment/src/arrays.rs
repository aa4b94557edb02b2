//! Gorman's rule for STREAM ("Huge pages", part 4, LWN 2010): if equal runs have a standard deviation over 5 %, the
//! arrays may collide in the caches, and are shifted by one more cache line. Pure.

use launch::Word;
use report::format::percent;
use units::ByteSize;
use workload::stream;

use crate::document::{Deviation, Document};
use crate::spread::{MAX_DEVIATION, widest};

/// Cache line size in bytes if the machine does not report it: the longest common one.
const UNKNOWN_LINE: u64 = 128;

/// Returns the largest standard deviation of an arm's values.
pub fn deviation(document: &Document) -> Option<Deviation> {
    let (arms, metrics) = (document.arms.len() as u32, document.metrics().count());
    let widest = widest(&document.samples, arms, metrics)?;
    Some(Deviation {
        arm: document.arms[widest.arm as usize].name.clone(),
        metric: document.metrics().nth(widest.metric)?.name.clone(),
        share: widest.deviation,
    })
}

/// Returns the bytes by which the arrays shift on the document's machine: one cache line.
pub fn line(document: &Document) -> u64 {
    let cpu = document.machine.cpu.as_ref();
    cpu.and_then(|cpu| cpu.cache_line_bytes).unwrap_or(UNKNOWN_LINE)
}

/// Returns the next offset in bytes.
pub fn shifted(offset: u64, line: u64) -> u64 {
    (offset + line) % stream::OFFSET_LIMIT
}

/// Returns a note on a comparison of STREAM: how the arrays were shifted, and whether the rates still vary too much.
pub fn note(document: &Document) -> Option<String> {
    let words: Vec<_> = document.command.iter().map(Word::text).collect();
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    if !matches!(words[..], ["superpage", "workload", "stream", ..]) {
        return None;
    }
    let (found, limit) = (deviation(document), percent(MAX_DEVIATION));
    let is_over = found.as_ref().is_some_and(|found| found.share > MAX_DEVIATION);
    if let Some(arrays) = document.arrays.as_ref().filter(|arrays| !arrays.earlier.is_empty()) {
        let tried = arrays.earlier.iter().map(|one| (one.offset_bytes, one.deviation.as_ref()));
        let tried = tried.chain([(arrays.offset_bytes, found.as_ref())]).map(|(offset, found)| {
            let found = found.map_or("unknown".to_string(), |one| {
                format!("{} ({}: {})", percent(one.share), one.arm, one.metric)
            });
            format!("--offset {offset}: {found}")
        });
        let tried = tried.collect::<Vec<_>>().join("; ");
        let still = if is_over { ", and still is" } else { "" };
        return Some(format!(
            "arrays shifted by a cache line because a standard deviation was over {limit}{still}; {tried}; \
             the figures are of the last"
        ));
    }
    let found = found.filter(|_| is_over)?;
    let given = words.iter().position(|word| *word == "--offset");
    let given = given.and_then(|at| words.get(at + 1)?.parse::<ByteSize>().ok());
    let next = shifted(given.map_or(stream::OFFSET, ByteSize::bytes), line(document));
    Some(format!(
        "{}: {} has a standard deviation of {} (over {limit}): shift the arrays by a cache line with \
         --offset {next} and repeat",
        found.arm,
        found.metric,
        percent(found.share)
    ))
}
