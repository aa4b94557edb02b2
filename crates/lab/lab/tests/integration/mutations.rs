//! Each number of a design moves a figure: halved and doubled, in the direction that its paper or its code says.
//!
//! [`ROWS`] is the table. A number that is in no row is in [`UNMOVED`], with the reason. See
//! docs/decisions/policy.md#12.

use std::collections::BTreeSet;

use design::{Design, designs};
use mm_sim::Cause::{Compact, Scan};
use rayon::prelude::*;
use superpage_lab::{End, Report, run_stream};
use trace::{Advice, Backing, Event};
use units::ByteSize;

use crate::mechanisms::script::{Script, experiment, grow_heap};

/// How a figure moves.
#[derive(Debug, Clone, Copy)]
enum Moves {
    /// It grows by at least this many per cent.
    Up(u64),
    /// It shrinks by at least this many per cent.
    Down(u64),
    /// It stays, for this reason.
    Stays(&'static str),
}
use Moves::{Down, Stays, Up};

/// A number of some designs, another value of it, and what that does.
struct Row {
    designs: &'static [&'static str],
    key: &'static str,
    /// The designs' value, or one of which a small run shows what it does.
    value: &'static str,
    other: &'static str,
    run: Run,
    figure: (&'static str, fn(&Report) -> u64),
    moves: Moves,
    /// What says so: section of docs/sources/policies.md.
    source: &'static str,
}

/// A run of a few milliseconds.
#[derive(Clone, Copy)]
struct Run {
    memory_mib: u64,
    fragmentation: &'static str,
    program: fn(&mut Script),
    /// Text at the end of the design's file.
    more: &'static str,
}

const fn on(program: fn(&mut Script)) -> Run {
    Run { memory_mib: 2048, fragmentation: "none", program, more: "" }
}

impl Run {
    const fn memory(self, memory_mib: u64) -> Self {
        Self { memory_mib, ..self }
    }
    const fn after(self, fragmentation: &'static str) -> Self {
        Self { fragmentation, ..self }
    }
    const fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }
}

// Programs. Times are milliseconds unless a name says otherwise.

/// Waits, and accesses every eighth page each second, so that regions are referenced.
fn wait(script: &mut Script, seconds: u32, pages: u32) {
    for _ in 0..seconds {
        script.wait(1);
        script.read((0..pages).step_by(8));
    }
}

fn pause(script: &mut Script, time: u64) {
    script.event(Event::Wait(time * 1000));
}

fn advise(script: &mut Script, superpages: u32, advice: Advice) {
    let all = script.pages(0, superpages * 512);
    script.event(Event::Advise(all, advice));
}

fn heap_for_36_seconds(script: &mut Script) {
    grow_heap(script, 0, 100 * 512);
    wait(script, 36, 100 * 512);
}

fn advised_heap_for_36_seconds(script: &mut Script) {
    grow_heap(script, 0, 100 * 512);
    advise(script, 100, Advice::Huge);
    wait(script, 36, 100 * 512);
}

/// Number of pages touched in each region in turn: from a few to nearly all.
const LADDER: [u32; 12] = [8, 24, 40, 56, 80, 104, 130, 180, 240, 300, 420, 490];

/// A heap grows by 32 pages at a time, of which only the first are touched: [`LADDER`] of each region, twice.
fn ladder_in_a_heap(script: &mut Script) {
    let pages = |region: u32| LADDER[region as usize % LADDER.len()];
    script.map(0, 32, Backing::Heap).write(0..1);
    for at in (32..24 * 512).step_by(32) {
        let more = script.pages(at, 32);
        script.event(Event::Grow { pages: more });
        // Before the heap holds the window.
        if at % 512 == 0 {
            script.write(at..at + 1);
        }
    }
    for region in 0..24 {
        script.write(region * 512 + 1..region * 512 + 1 + pages(region));
    }
    for _ in 0..36 {
        script.wait(1);
        script.read((0..24).map(|region| region * 512 + 1));
    }
}

/// [`LADDER`] of each region; after some time one more page of each.
fn ladder_and_one_more(script: &mut Script, time: u64) {
    let count = LADDER.len() as u32;
    script.map(0, count * 512, Backing::Anonymous);
    for (region, pages) in (0..).zip(LADDER) {
        script.write(region * 512..region * 512 + pages);
    }
    pause(script, time);
    script.write((0..).zip(LADDER).map(|(region, pages)| region * 512 + pages));
}

/// As [`ladder_and_one_more`], and Ingens' thread has time to serve what qualifies.
fn ladder_for_11_seconds(script: &mut Script) {
    ladder_and_one_more(script, 3000);
    wait(script, 8, 0);
}

fn forty_regions(script: &mut Script) {
    script.map(0, 40 * 512, Backing::Anonymous).write(0..40 * 512);
}

/// Faults in many regions, a page of each.
fn a_page_of_600_regions(script: &mut Script) {
    script.map(0, 600 * 512, Backing::Anonymous);
    advise(script, 600, Advice::Huge);
    script.write((0..600).map(|region| region * 512));
}

/// One page is touched.
fn idle(script: &mut Script, time: u64) {
    script.map(0, 512, Backing::Anonymous).write(0..1);
    wait(script, (time / 1000) as u32, 0);
    pause(script, time % 1000);
}

fn base_pages(script: &mut Script) {
    script.map(0, 8 * 512, Backing::Anonymous);
    advise(script, 8, Advice::NoHuge);
    script.write(0..8 * 512);
}

fn base_pages_for_200_seconds(script: &mut Script) {
    base_pages(script);
    wait(script, 200, 8 * 512);
}

fn advised_base_pages_for_200_seconds(script: &mut Script) {
    base_pages(script);
    advise(script, 8, Advice::Huge);
    wait(script, 200, 8 * 512);
}

/// A heap of 100 regions is read every half second. HawkEye's first sample ends after 3.5 s.
fn heap(script: &mut Script, time: u64) {
    grow_heap(script, 0, 100 * 512);
    for _ in 0..time / 500 {
        pause(script, 500);
        script.read((0..100 * 512).step_by(8));
    }
    pause(script, time % 500);
}

/// Uses superpages of a stock of zeroed ones.
fn from_the_stock(script: &mut Script, superpages: u32) {
    script.map(0, superpages * 512, Backing::Anonymous);
    advise(script, superpages, Advice::Huge);
    script.wait(1);
    script.write((0..superpages).map(|region| region * 512)).wait(1);
}

/// Reservations with 60 pages each, untouched for some time.
fn reservations(script: &mut Script, count: u32, time: u64) {
    script.map(0, count * 512, Backing::Anonymous);
    for region in 0..count {
        script.write(region * 512..region * 512 + 60);
    }
    pause(script, time);
}

fn small_heap(script: &mut Script) {
    grow_heap(script, 0, 40 * 512);
}

/// Superpages of which 16 pages are accessed. All but a tenth of memory is in use.
fn sparse(script: &mut Script, superpages: u32, time: u64) {
    script.map(0, superpages * 512, Backing::Anonymous);
    script.write((0..superpages).map(|region| region * 512));
    for _ in 0..time / 500 {
        pause(script, 500);
        let pages = |region: u32| (0..16).map(move |page| region * 512 + page * 8);
        script.read((0..superpages).flat_map(pages));
    }
}

/// All pages of a heap are accessed, again and again. HugeScope's first sample ends after 7.5 s.
fn whole_heap_for_12_seconds(script: &mut Script) {
    grow_heap(script, 0, 20 * 512);
    for _ in 0..24 {
        pause(script, 500);
        script.read(0..20 * 512);
    }
}

/// A heap of which each region has nearly all its pages, all accessed.
fn dense_heap(script: &mut Script) {
    grow_heap(script, 0, 20 * 512);
    for region in 0..20 {
        let gone = script.pages(region * 512, 12);
        script.event(Event::Advise(gone, Advice::DontNeed));
    }
    for _ in 0..30 {
        pause(script, 500);
        script.read((0..20).flat_map(|region| region * 512 + 12..region * 512 + 512));
    }
}

/// Full superpages, and `sparse` ones of which a fifth is used, made on request. Of 512 MiB, 205 superpages leave a tenth
/// free, 170 a fifth.
fn bloat(script: &mut Script, full: u32, sparse: u32, seconds: u32) {
    script.map(0, (full + sparse) * 512, Backing::Anonymous).write(0..full * 512);
    for region in full..full + sparse {
        script.write(region * 512..region * 512 + 100);
    }
    let all = script.pages(full * 512, sparse * 512);
    script.event(Event::Advise(all, Advice::Collapse));
    for _ in 0..seconds {
        script.wait(1);
        script.read([0]);
    }
}

/// The program's memory: five spans of 16 superpages, whose misses are in [`MISSES`].
fn five_spans(script: &mut Script) {
    script.map(0, 80 * 512, Backing::Anonymous).write((0..80).map(|region| region * 512));
}

/// TLB misses per superpage and 10 s, which are worth 75,000 to 800,000 cycles at 50 a miss.
const MISSES: &str = "[profile]\nspans = [\"0 32M 1500\", \"32M 64M 3000\", \"64M 96M 6000\", \
                      \"96M 128M 12000\", \"128M 160M 16000\"]";

// Figures.

const COPIED: (&str, fn(&Report) -> u64) =
    ("superpages made by copying", |r| r.counters.made_by_copy);
const IN_PLACE: (&str, fn(&Report) -> u64) =
    ("superpages made in place", |r| r.counters.made_in_place);
const AT_FAULT: (&str, fn(&Report) -> u64) =
    ("superpages made at faults", |r| r.counters.made_at_fault);
const FAULTS: (&str, fn(&Report) -> u64) = ("faults", |r| r.counters.faults);
const PREZEROED: (&str, fn(&Report) -> u64) = ("pages zeroed ahead", |r| r.counters.prezeroed);
const EVACUATED: (&str, fn(&Report) -> u64) = ("reservations emptied", |r| r.counters.evacuated);
const RECOVERED: (&str, fn(&Report) -> u64) =
    ("zero-filled pages given back", |r| r.counters.recovered);
const COMPACTIONS: (&str, fn(&Report) -> u64) = ("direct compactions", |r| r.counters.compactions);
const COMPACTING: (&str, fn(&Report) -> u64) =
    ("cycles of compaction in faults", |r| r.ledger[Compact]);
const BEHIND: (&str, fn(&Report) -> u64) =
    ("cycles of compaction behind", |r| r.background[Compact]);
const SCANNING: (&str, fn(&Report) -> u64) = ("cycles of scans", |r| r.background[Scan]);
const DEMOTED: (&str, fn(&Report) -> u64) = ("superpages split", |r| r.counters.demoted);
const BACKED: (&str, fn(&Report) -> u64) = ("superpages of programs that were not refused", |r| {
    if r.end == End::Done { r.counters.superpages } else { 0 }
});

const KHUGEPAGED: &[&str] = &[
    "linux-4.3",
    "linux-6",
    "linux-6-always",
    "linux-6-defer",
    "linux-6-mthp",
    "linux-6-underused",
];
const HAWKEYE: &[&str] = &["hawkeye-g", "hawkeye-pmu", "hawkeye-star"];
const ASYNC: &[&str] = &["quicksilver-async-64", "quicksilver-async-256"];
/// Those that keep reservations of 60 pages as they are.
const PARTLY: &[&str] = &["quicksilver-sync-64", "quicksilver-async-64", "quicksilver-async-256"];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { designs: KHUGEPAGED, key: "mapping.scan.regions", value: "8", other: "4", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(45), source: "3.1 pages_to_scan" },
    Row { designs: KHUGEPAGED, key: "mapping.scan.regions", value: "8", other: "16", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(90), source: "3.1 pages_to_scan" },
    Row { designs: KHUGEPAGED, key: "mapping.scan.every", value: "\"10s\"", other: "\"5s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(50), source: "3.1 scan_sleep_millisecs" },
    Row { designs: KHUGEPAGED, key: "mapping.scan.every", value: "\"10s\"", other: "\"20s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(40), source: "3.1 scan_sleep_millisecs" },
    Row { designs: &["linux-4.3", "linux-6", "linux-6-always", "linux-6-defer", "linux-6-mthp"], key: "mapping.scan.least-present", value: "1", other: "257", run: on(ladder_in_a_heap), figure: COPIED, moves: Down(40), source: "3.1 max_ptes_none, halved" },
    Row { designs: &["linux-6-underused"], key: "mapping.scan.least-present", value: "103", other: "51", run: on(ladder_in_a_heap), figure: COPIED, moves: Up(20), source: "3.1 max_ptes_none" },
    Row { designs: &["linux-6-underused"], key: "mapping.scan.least-present", value: "103", other: "206", run: on(ladder_in_a_heap), figure: COPIED, moves: Down(20), source: "3.1 max_ptes_none" },
    Row { designs: &["linux-6-always"], key: "memory.defer-shift", value: "6", other: "3", run: on(a_page_of_600_regions).after("pinned-100"), figure: COMPACTIONS, moves: Up(100), source: "3.1 COMPACT_MAX_DEFER_SHIFT" },
    Row { designs: &["linux-6-always"], key: "memory.defer-shift", value: "6", other: "12", run: on(a_page_of_600_regions).after("pinned-100"), figure: COMPACTIONS, moves: Down(20), source: "3.1 COMPACT_MAX_DEFER_SHIFT" },
    Row { designs: &["linux-4.3"], key: "memory.contended-permille", value: "950", other: "475", run: on(a_page_of_600_regions).after("frag-100"), figure: AT_FAULT, moves: Up(50), source: "lab-model.md 2" },
    Row { designs: &["linux-4.3"], key: "memory.contended-permille", value: "950", other: "1000", run: on(a_page_of_600_regions).after("frag-100"), figure: AT_FAULT, moves: Down(50), source: "lab-model.md 2" },
    Row { designs: &["linux-4.3"], key: "memory.contended-pages", value: "450", other: "225", run: on(a_page_of_600_regions).after("frag-100"), figure: COMPACTING, moves: Down(20), source: "lab-model.md 2" },
    Row { designs: &["linux-4.3"], key: "memory.contended-pages", value: "450", other: "900", run: on(a_page_of_600_regions).after("frag-100"), figure: COMPACTING, moves: Up(20), source: "lab-model.md 2" },
    Row { designs: &["linux-6", "linux-6-always", "linux-6-defer", "linux-6-mthp", "linux-6-underused"], key: "memory.proactiveness", value: "20", other: "10", run: on(|s| idle(s, 8000)).after("frag-100"), figure: BEHIND, moves: Down(90), source: "3.1 compaction_proactiveness" },
    Row { designs: &["linux-6", "linux-6-always", "linux-6-defer", "linux-6-mthp", "linux-6-underused"], key: "memory.proactiveness", value: "20", other: "40", run: on(|s| idle(s, 8000)).after("frag-100"), figure: BEHIND, moves: Up(30), source: "3.1 compaction_proactiveness" },
    Row { designs: KHUGEPAGED, key: "mapping.scan.after-failure", value: "\"60s\"", other: "\"30s\"", run: on(advised_base_pages_for_200_seconds).after("pinned-100"), figure: SCANNING, moves: Up(30), source: "3.1 alloc_sleep_millisecs" },
    Row { designs: KHUGEPAGED, key: "mapping.scan.after-failure", value: "\"60s\"", other: "\"120s\"", run: on(advised_base_pages_for_200_seconds).after("pinned-100"), figure: SCANNING, moves: Down(20), source: "3.1 alloc_sleep_millisecs" },

    Row { designs: &["ingens"], key: "mapping.scan.least-present", value: "460", other: "230", run: on(ladder_for_11_seconds), figure: COPIED, moves: Up(100), source: "3.3 util_threshold" },
    Row { designs: &["ingens"], key: "mapping.scan.least-present", value: "460", other: "512", run: on(ladder_for_11_seconds), figure: COPIED, moves: Down(100), source: "3.3 util_threshold" },
    Row { designs: &["ingens"], key: "mapping.scan.every", value: "\"10s\"", other: "\"5s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(50), source: "3.3 khugepaged" },
    Row { designs: &["ingens"], key: "mapping.scan.every", value: "\"10s\"", other: "\"20s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(40), source: "3.3 khugepaged" },
    Row { designs: &["ingens"], key: "mapping.scan.regions", value: "8", other: "4", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(40), source: "3.3 khugepaged" },
    Row { designs: &["ingens"], key: "mapping.scan.regions", value: "8", other: "16", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(50), source: "3.3 khugepaged" },
    Row { designs: &["ingens-star"], key: "memory.periodic-compaction.blocks", value: "20", other: "10", run: on(|s| idle(s, 500)).after("frag-100"), figure: BEHIND, moves: Down(40), source: "3.3 periodic compaction" },
    Row { designs: &["ingens-star"], key: "memory.periodic-compaction.blocks", value: "20", other: "40", run: on(|s| idle(s, 500)).after("frag-100"), figure: BEHIND, moves: Up(30), source: "3.3 periodic compaction" },
    Row { designs: &["ingens-star"], key: "memory.periodic-compaction.every", value: "\"100ms\"", other: "\"50ms\"", run: on(|s| idle(s, 500)).after("frag-100"), figure: BEHIND, moves: Up(30), source: "3.3 compact_sleep" },
    Row { designs: &["ingens-star"], key: "memory.periodic-compaction.every", value: "\"100ms\"", other: "\"200ms\"", run: on(|s| idle(s, 500)).after("frag-100"), figure: BEHIND, moves: Down(40), source: "3.3 compact_sleep" },

    Row { designs: &["hawkeye-g", "hawkeye-pmu"], key: "mapping.scan.regions", value: "8", other: "4", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(45), source: "3.4 promotions a wake" },
    Row { designs: &["hawkeye-g", "hawkeye-pmu"], key: "mapping.scan.regions", value: "8", other: "16", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(90), source: "3.4 promotions a wake" },
    Row { designs: &["hawkeye-g", "hawkeye-pmu"], key: "mapping.scan.every", value: "\"10s\"", other: "\"5s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Up(50), source: "3.4 promotions 10 s apart" },
    Row { designs: &["hawkeye-g", "hawkeye-pmu"], key: "mapping.scan.every", value: "\"10s\"", other: "\"20s\"", run: on(heap_for_36_seconds), figure: COPIED, moves: Down(30), source: "3.4 promotions 10 s apart" },
    Row { designs: HAWKEYE, key: "mapping.scan.sampling.every", value: "\"5s\"", other: "\"2500ms\"", run: on(heap_for_36_seconds).with("[mapping.scan]\nregions = 1"), figure: SCANNING, moves: Up(20), source: "3.4 coverage" },
    Row { designs: HAWKEYE, key: "mapping.scan.sampling.every", value: "\"5s\"", other: "\"10s\"", run: on(heap_for_36_seconds).with("[mapping.scan]\nregions = 1"), figure: SCANNING, moves: Down(12), source: "3.4 coverage" },
    Row { designs: HAWKEYE, key: "preparation.prezero.blocks", value: "10", other: "5", run: on(|s| idle(s, 8000)), figure: PREZEROED, moves: Down(45), source: "3.4 prezeroing" },
    Row { designs: HAWKEYE, key: "preparation.prezero.blocks", value: "10", other: "20", run: on(|s| idle(s, 8000)), figure: PREZEROED, moves: Up(90), source: "3.4 prezeroing" },
    Row { designs: HAWKEYE, key: "preparation.prezero.every", value: "\"1s\"", other: "\"500ms\"", run: on(|s| idle(s, 8000)), figure: PREZEROED, moves: Up(90), source: "3.4 prezeroing" },
    Row { designs: HAWKEYE, key: "preparation.prezero.every", value: "\"1s\"", other: "\"2s\"", run: on(|s| idle(s, 8000)), figure: PREZEROED, moves: Down(45), source: "3.4 prezeroing" },
    Row { designs: HAWKEYE, key: "preparation.prezero.order", value: "10", other: "9", run: on(|s| idle(s, 8000)), figure: PREZEROED, moves: Down(45), source: "3.4 prezeroing: half a block" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.below-percent", value: "15", other: "7", run: on(|s| bloat(s, 155, 50, 70)).memory(512), figure: RECOVERED, moves: Down(100), source: "3.4 bloat" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.below-percent", value: "15", other: "30", run: on(|s| bloat(s, 120, 50, 70)).memory(512), figure: RECOVERED, moves: Up(100), source: "3.4 bloat" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.until-percent", value: "30", other: "15", run: on(|s| bloat(s, 90, 110, 70)).memory(512), figure: RECOVERED, moves: Down(40), source: "3.4 bloat" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.until-percent", value: "30", other: "60", run: on(|s| bloat(s, 90, 110, 70)).memory(512), figure: RECOVERED, moves: Up(20), source: "3.4 bloat" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.every", value: "\"120s\"", other: "\"60s\"", run: on(|s| bloat(s, 155, 50, 45)).memory(512), figure: RECOVERED, moves: Up(100), source: "3.4 bloat" },
    Row { designs: HAWKEYE, key: "deallocation.bloat.every", value: "\"120s\"", other: "\"240s\"", run: on(|s| bloat(s, 155, 50, 70)).memory(512), figure: RECOVERED, moves: Down(100), source: "3.4 bloat" },

    Row { designs: &["quicksilver-sync-1"], key: "preparation.fill-at", value: "1", other: "2", run: on(forty_regions), figure: FAULTS, moves: Up(90), source: "3.5 synchronous" },
    Row { designs: &["quicksilver-sync-64"], key: "preparation.fill-at", value: "64", other: "32", run: on(forty_regions), figure: FAULTS, moves: Down(45), source: "3.5 synchronous" },
    Row { designs: &["quicksilver-sync-64"], key: "preparation.fill-at", value: "64", other: "128", run: on(forty_regions), figure: FAULTS, moves: Up(90), source: "3.5 synchronous" },
    Row { designs: &["quicksilver-async-64"], key: "preparation.background.at", value: "64", other: "32", run: on(|s| ladder_and_one_more(s, 3000)), figure: IN_PLACE, moves: Up(20), source: "3.5 asynchronous" },
    Row { designs: &["quicksilver-async-64"], key: "preparation.background.at", value: "64", other: "128", run: on(|s| ladder_and_one_more(s, 3000)), figure: IN_PLACE, moves: Down(20), source: "3.5 asynchronous" },
    Row { designs: &["quicksilver-async-256"], key: "preparation.background.at", value: "256", other: "128", run: on(|s| ladder_and_one_more(s, 3000)), figure: IN_PLACE, moves: Up(90), source: "3.5 asynchronous" },
    Row { designs: &["quicksilver-async-256"], key: "preparation.background.at", value: "256", other: "512", run: on(|s| ladder_and_one_more(s, 3000)), figure: IN_PLACE, moves: Down(100), source: "3.5 asynchronous" },
    Row { designs: PARTLY, key: "deallocation.after", value: "\"5s\"", other: "\"2500ms\"", run: on(|s| reservations(s, 100, 4000)), figure: EVACUATED, moves: Up(100), source: "3.5 whole deallocation" },
    Row { designs: PARTLY, key: "deallocation.after", value: "\"5s\"", other: "\"10s\"", run: on(|s| reservations(s, 100, 6000)), figure: EVACUATED, moves: Down(100), source: "3.5 whole deallocation" },
    Row { designs: PARTLY, key: "deallocation.every", value: "\"1s\"", other: "\"500ms\"", run: on(|s| reservations(s, 100, 5400)), figure: EVACUATED, moves: Up(100), source: "3.5 whole deallocation" },
    Row { designs: PARTLY, key: "deallocation.every", value: "\"1s\"", other: "\"2s\"", run: on(|s| reservations(s, 100, 6000)), figure: EVACUATED, moves: Down(100), source: "3.5 whole deallocation" },
    Row { designs: &["quicksilver-sync-64"], key: "deallocation.budget-pages", value: "262144", other: "131072", run: on(|s| reservations(s, 5000, 6000)).memory(16384), figure: EVACUATED, moves: Down(45), source: "3.5 whole deallocation" },
    Row { designs: &["quicksilver-sync-64"], key: "deallocation.budget-pages", value: "262144", other: "524288", run: on(|s| reservations(s, 5000, 6000)).memory(16384), figure: EVACUATED, moves: Up(10), source: "3.5 whole deallocation" },
    Row { designs: ASYNC, key: "preparation.background.every", value: "\"1s\"", other: "\"500ms\"", run: on(|s| ladder_and_one_more(s, 400)), figure: IN_PLACE, moves: Up(100), source: "3.5 asynchronous" },
    Row { designs: ASYNC, key: "preparation.background.every", value: "\"1s\"", other: "\"2s\"", run: on(|s| ladder_and_one_more(s, 800)), figure: IN_PLACE, moves: Down(100), source: "3.5 asynchronous" },
    Row { designs: ASYNC, key: "preparation.background.budget-reservations", value: "200000", other: "100000", run: on(|s| ladder_and_one_more(s, 3000)), figure: IN_PLACE, moves: Stays("a pass completes as many reservations only on a machine of 200 GB"), source: "3.5 asynchronous" },
    Row { designs: ASYNC, key: "preparation.background.budget-reservations", value: "2", other: "1", run: on(|s| ladder_and_one_more(s, 800)), figure: IN_PLACE, moves: Down(45), source: "3.5 asynchronous" },
    Row { designs: &["quicksilver-sync-1", "quicksilver-sync-64"], key: "preparation.prefault.pages", value: "4", other: "2", run: on(small_heap), figure: FAULTS, moves: Up(30), source: "3.2 preparation" },
    Row { designs: &["quicksilver-sync-1", "quicksilver-sync-64"], key: "preparation.prefault.pages", value: "4", other: "8", run: on(small_heap), figure: FAULTS, moves: Down(25), source: "3.2 preparation" },
    Row { designs: &["freebsd", "freebsd-11.2"], key: "preparation.prefault.pages", value: "4", other: "8", run: on(small_heap), figure: FAULTS, moves: Stays("what is resident was mapped by its fault: nothing is filled ahead"), source: "3.2 preparation" },

    Row { designs: &["cbmm"], key: "estimate.miss-cycles", value: "50", other: "25", run: on(five_spans).with(MISSES), figure: AT_FAULT, moves: Down(30), source: "designs/cbmm.toml" },
    Row { designs: &["cbmm"], key: "estimate.miss-cycles", value: "50", other: "100", run: on(five_spans).with(MISSES), figure: AT_FAULT, moves: Up(30), source: "designs/cbmm.toml" },
    Row { designs: &["cbmm"], key: "estimate.prepare-cycles", value: "200000", other: "100000", run: on(five_spans).with(MISSES), figure: AT_FAULT, moves: Up(30), source: "designs/cbmm.toml" },
    Row { designs: &["cbmm"], key: "estimate.prepare-cycles", value: "200000", other: "400000", run: on(five_spans).with(MISSES), figure: AT_FAULT, moves: Down(30), source: "designs/cbmm.toml" },

    Row { designs: &["hugetlb"], key: "memory.pool-pages", value: "60", other: "30", run: on(forty_regions), figure: BACKED, moves: Down(100), source: "3.7 reservations" },
    Row { designs: &["hugetlb"], key: "memory.pool-pages", value: "30", other: "60", run: on(forty_regions), figure: BACKED, moves: Up(100), source: "3.7 reservations" },
    Row { designs: &["trident", "ingens-star"], key: "mapping.scan.every", value: "\"10s\"", other: "\"5s\"", run: on(|s| heap(s, 4000)), figure: COPIED, moves: Up(100), source: "3.1 scan_sleep_millisecs" },
    Row { designs: &["prezeroed-pool"], key: "mapping.scan.every", value: "\"10s\"", other: "\"5s\"", run: on(advised_heap_for_36_seconds), figure: COPIED, moves: Up(50), source: "3.1 scan_sleep_millisecs" },
    Row { designs: &["prezeroed-pool"], key: "mapping.scan.every", value: "\"10s\"", other: "\"20s\"", run: on(advised_heap_for_36_seconds), figure: COPIED, moves: Down(40), source: "3.1 scan_sleep_millisecs" },
    Row { designs: &["cbmm"], key: "estimate.shortage-cycles", value: "4294967296", other: "2147483648", run: on(five_spans).after("pinned-100").with(MISSES), figure: AT_FAULT, moves: Stays("no benefit reaches 2^31"), source: "designs/cbmm.toml" },
    Row { designs: &["cbmm", "trident"], key: "preparation.prezero.blocks", value: "256", other: "128", run: on(|s| idle(s, 2000)).memory(8192), figure: PREZEROED, moves: Down(45), source: "designs/trident.toml" },
    Row { designs: &["cbmm", "trident"], key: "preparation.prezero.blocks", value: "256", other: "512", run: on(|s| idle(s, 2000)).memory(8192), figure: PREZEROED, moves: Up(80), source: "designs/trident.toml" },
    Row { designs: &["cbmm", "trident"], key: "preparation.prezero.every", value: "\"1s\"", other: "\"500ms\"", run: on(|s| idle(s, 2000)).memory(8192), figure: PREZEROED, moves: Up(60), source: "designs/trident.toml" },
    Row { designs: &["cbmm", "trident"], key: "preparation.prezero.every", value: "\"1s\"", other: "\"2s\"", run: on(|s| idle(s, 2000)).memory(8192), figure: PREZEROED, moves: Down(45), source: "designs/trident.toml" },
    Row { designs: &["cbmm", "trident"], key: "preparation.prezero.order", value: "10", other: "9", run: on(|s| idle(s, 2000)).memory(8192), figure: PREZEROED, moves: Down(45), source: "designs/trident.toml: half a block" },

    Row { designs: &["elastic"], key: "mapping.scan.regions", value: "16", other: "8", run: on(|s| heap(s, 7000)), figure: COPIED, moves: Down(40), source: "designs/elastic.toml" },
    Row { designs: &["elastic"], key: "mapping.scan.regions", value: "16", other: "32", run: on(|s| heap(s, 7000)), figure: COPIED, moves: Up(60), source: "designs/elastic.toml" },
    Row { designs: &["elastic"], key: "mapping.scan.every", value: "\"1s\"", other: "\"500ms\"", run: on(|s| heap(s, 7000)), figure: COPIED, moves: Up(60), source: "designs/elastic.toml" },
    Row { designs: &["elastic"], key: "mapping.scan.every", value: "\"1s\"", other: "\"2s\"", run: on(|s| heap(s, 9000)), figure: COPIED, moves: Down(20), source: "designs/elastic.toml" },
    Row { designs: &["elastic"], key: "mapping.scan.sampling.window", value: "\"4s\"", other: "\"2s\"", run: on(|s| heap(s, 4000)), figure: COPIED, moves: Up(100), source: "designs/elastic.toml: earlier hints" },
    Row { designs: &["elastic"], key: "mapping.scan.sampling.window", value: "\"4s\"", other: "\"8s\"", run: on(|s| heap(s, 7000)), figure: COPIED, moves: Down(100), source: "designs/elastic.toml: later hints" },

    Row { designs: &["hugescope"], key: "unmapping.scan.superpages", value: "500", other: "250", run: on(|s| sparse(s, 610, 10_000)).memory(1456), figure: DEMOTED, moves: Down(45), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.superpages", value: "500", other: "1000", run: on(|s| sparse(s, 610, 10_000)).memory(1456), figure: DEMOTED, moves: Up(15), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.every", value: "\"9s\"", other: "\"4500ms\"", run: on(|s| sparse(s, 216, 6000)).memory(512), figure: DEMOTED, moves: Up(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.every", value: "\"9s\"", other: "\"18s\"", run: on(|s| sparse(s, 216, 10_000)).memory(512), figure: DEMOTED, moves: Down(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.window", value: "\"3s\"", other: "\"1500ms\"", run: on(|s| sparse(s, 216, 7000)).memory(512), figure: DEMOTED, moves: Up(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.window", value: "\"3s\"", other: "\"6s\"", run: on(|s| sparse(s, 216, 9000)).memory(512), figure: DEMOTED, moves: Down(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.below-percent", value: "10", other: "5", run: on(|s| sparse(s, 216, 9000)).memory(512), figure: DEMOTED, moves: Down(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "unmapping.scan.below-percent", value: "10", other: "20", run: on(|s| sparse(s, 200, 9000)).memory(512), figure: DEMOTED, moves: Up(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "mapping.scan.every", value: "\"9s\"", other: "\"4500ms\"", run: on(whole_heap_for_12_seconds), figure: COPIED, moves: Up(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "mapping.scan.least-present", value: "512", other: "256", run: on(dense_heap), figure: COPIED, moves: Up(100), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "mapping.scan.sampling.window", value: "\"6s\"", other: "\"3s\"", run: on(base_pages_for_200_seconds), figure: SCANNING, moves: Up(30), source: "designs/hugescope.toml" },
    Row { designs: &["hugescope"], key: "mapping.scan.sampling.every", value: "\"3s\"", other: "\"6s\"", run: on(base_pages_for_200_seconds), figure: SCANNING, moves: Down(15), source: "designs/hugescope.toml" },
    Row { designs: &["trident"], key: "mapping.scan.every", value: "\"10s\"", other: "\"20s\"", run: on(|s| heap(s, 9000)), figure: COPIED, moves: Down(100), source: "designs/trident.toml" },

    Row { designs: HAWKEYE, key: "mapping.scan.sampling.window", value: "\"1s\"", other: "\"500ms\"", run: on(base_pages_for_200_seconds), figure: SCANNING, moves: Up(5), source: "3.4 coverage" },
    Row { designs: HAWKEYE, key: "mapping.scan.sampling.window", value: "\"1s\"", other: "\"2s\"", run: on(base_pages_for_200_seconds), figure: SCANNING, moves: Down(8), source: "3.4 coverage" },
    Row { designs: &["hawkeye-star"], key: "mapping.scan.cpu-percent", value: "50", other: "25", run: on(|s| heap(s, 3510)), figure: COPIED, moves: Down(30), source: "3.4 max_cpu" },
    Row { designs: &["hawkeye-star"], key: "mapping.scan.cpu-percent", value: "50", other: "100", run: on(|s| heap(s, 3510)), figure: COPIED, moves: Up(30), source: "3.4 max_cpu" },

    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.stop-permille", value: "16", other: "32", run: on(|s| idle(s, 2000)), figure: PREZEROED, moves: Up(80), source: "3.8 scrub_stop" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.start-permille", value: "12", other: "6", run: on(|s| from_the_stock(s, 24)).memory(8192), figure: PREZEROED, moves: Down(20), source: "3.8 scrub_start" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.start-permille", value: "12", other: "16", run: on(|s| from_the_stock(s, 8)).memory(8192), figure: PREZEROED, moves: Up(8), source: "3.8 scrub_start" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.blocks", value: "4", other: "2", run: on(|s| idle(s, 3)).memory(8192), figure: PREZEROED, moves: Down(45), source: "designs/prezeroed-pool.toml" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.blocks", value: "4", other: "8", run: on(|s| idle(s, 3)).memory(8192), figure: PREZEROED, moves: Up(80), source: "designs/prezeroed-pool.toml" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.every", value: "\"1ms\"", other: "\"500us\"", run: on(|s| idle(s, 3)).memory(8192), figure: PREZEROED, moves: Up(60), source: "designs/prezeroed-pool.toml" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.every", value: "\"1ms\"", other: "\"2ms\"", run: on(|s| idle(s, 3)).memory(8192), figure: PREZEROED, moves: Down(30), source: "designs/prezeroed-pool.toml" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prezero.order", value: "9", other: "8", run: on(|s| idle(s, 3)).memory(8192), figure: PREZEROED, moves: Down(45), source: "designs/prezeroed-pool.toml: half a block" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prefault.order", value: "4", other: "2", run: on(forty_regions), figure: FAULTS, moves: Up(200), source: "3.8 max_prealloc_order" },
    Row { designs: &["prezeroed-pool"], key: "preparation.prefault.order", value: "4", other: "8", run: on(forty_regions), figure: FAULTS, moves: Down(70), source: "3.8 max_prealloc_order" },
    Row { designs: &["prezeroed-pool"], key: "mapping.scan.regions", value: "8", other: "16", run: on(advised_heap_for_36_seconds), figure: COPIED, moves: Up(90), source: "3.1 pages_to_scan" },
];

/// Returns the preset with `key` set to `value`, and `more` keys.
fn mutated(preset: &str, more: &str, key: &str, value: &str) -> Design {
    let parse = |text: &str| text.parse::<toml::Table>().expect("TOML");
    let mut all = parse(designs::preset(preset).expect("a preset").text);
    merge(&mut all, parse(more));
    let nested =
        key.rsplit('.').fold(value.to_string(), |inner, part| format!("{{{part} = {inner}}}"));
    let wrapped = format!("x = {nested}");
    if let Some(toml::Value::Table(one)) = parse(&wrapped).remove("x") {
        merge(&mut all, one);
    }
    Design::from_toml(preset, &lines(&all, ""))
        .unwrap_or_else(|error| panic!("{key} = {value}: {error}"))
}

/// Writes a table with a line for each key.
fn lines(table: &toml::Table, above: &str) -> String {
    let line = |(key, value): (&String, &toml::Value)| match value {
        toml::Value::Table(below) if below.is_empty() => format!("{above}{key} = {{}}\n"),
        toml::Value::Table(below) => lines(below, &format!("{above}{key}.")),
        value => format!("{above}{key} = {}\n", written(value)),
    };
    table.iter().map(line).collect()
}

fn written(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Array(values) => {
            format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(", "))
        }
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        other => panic!("{other:?} in a design"),
    }
}

fn merge(into: &mut toml::Table, from: toml::Table) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(more)) => merge(below, more),
            (_, value) => drop(into.insert(key, value)),
        }
    }
}

fn report(design: Design, run: &Run) -> Report {
    let memory = ByteSize::mib(run.memory_mib);
    let reports =
        run_stream(&experiment(memory, run.fragmentation), &[design], 0, |region, process| {
            let mut script = Script::new(region, process);
            (run.program)(&mut script);
            Ok(script)
        });
    reports.unwrap().remove(0)
}

/// Returns what is wrong with a row for a design, if anything.
fn wrong(row: &Row, name: &str) -> Option<String> {
    let Row { key, value, other, run, figure: (figure, of), moves, source, .. } = row;
    let [before, after] =
        [value, other].map(|value| of(&report(mutated(name, run.more, key, value), run)));
    let (is_moved, expected) = match *moves {
        Up(percent) => (
            after > before && after * 100 >= before * (100 + percent),
            format!("{percent} % more expected"),
        ),
        Down(percent) => (
            after < before && after * 100 <= before * (100 - percent),
            format!("{percent} % less expected"),
        ),
        Stays(why) => (after == before, format!("the same expected, because {why}")),
    };
    let found = || {
        format!(
            "{name}: {key} from {value} to {other}: {figure} {before} and {after}, {expected} ({source})"
        )
    };
    (!is_moved).then(found)
}

#[test]
fn every_number_moves_the_figure_that_its_source_says() {
    let cases: Vec<(&Row, &str)> =
        ROWS.iter().flat_map(|row| row.designs.iter().map(move |&name| (row, name))).collect();
    let wrong: Vec<String> = cases.par_iter().filter_map(|(row, name)| wrong(row, name)).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// Numbers in no row: the key, the designs (all of them if none is named), and why.
const UNMOVED: &[(&str, &[&str], &str)] = &[
    (
        "memory.defer-shift",
        &[],
        "as linux-6-always; the asynchronous runs of 4.3's faults defer nothing, and scans try too seldom in a run of seconds",
    ),
    ("memory.contended-permille", &[], "as linux-4.3, whose compaction it is"),
    ("memory.contended-pages", &[], "as linux-4.3, whose compaction it is"),
    ("memory.proactiveness", &["prezeroed-pool"], "as linux-6"),
    ("mapping.scan.after-failure", &[], "as linux-4.3"),
    ("mapping.scan.least-present", &[], "1 page is the least there is"),
    (
        "mapping.scan.most-swapped",
        &["trident"],
        "no run here swaps; tables/trident.rs of policy has its border",
    ),
    ("mapping.scan.regions", &["hawkeye-star"], "cpu-percent ends its passes before"),
    (
        "mapping.scan.every",
        &["hawkeye-star"],
        "cpu-percent is a share of it: as many per second as before",
    ),
    (
        "mapping.scan.regions",
        &["hugescope", "trident"],
        "500 and 4096 regions are more than a run of seconds has",
    ),
    (
        "mapping.scan.regions",
        &["ingens-star"],
        "all regions are listed, and those that are served are not counted",
    ),
    ("mapping.scan.sampling.every", &["elastic"], "the rest between epochs of 4 s; as window"),
    (
        "mapping.scan.sampling.newest-percent",
        &[],
        "weighs samples against each other: which region is first, not how many",
    ),
    ("preparation.prezero.start-permille", &[], "1000 is the most there is"),
    ("preparation.prezero.stop-permille", &[], "1000 is the most there is"),
    (
        "preparation.prefault.pages",
        &["quicksilver-async-64", "quicksilver-async-256", "ideal"],
        "the next fault on a filled reservation maps the superpage",
    ),
    ("preparation.fill-at", &["ideal"], "a bound, not a system"),
    (
        "deallocation.after",
        &["quicksilver-sync-1"],
        "its reservations are full from the first fault on",
    ),
    (
        "deallocation.every",
        &["quicksilver-sync-1"],
        "its reservations are full from the first fault on",
    ),
    ("deallocation.budget-pages", &[], "as quicksilver-sync-64"),
    ("deallocation.bloat.below-percent", &["linux-6-underused"], "as HawkEye's"),
    ("deallocation.bloat.until-percent", &["linux-6-underused"], "as HawkEye's"),
    ("deallocation.bloat.every", &["linux-6-underused"], "as HawkEye's"),
    (
        "deallocation.bloat.more-zero-than",
        &["linux-6-underused"],
        "tables/bloat.rs of policy has its border",
    ),
];

#[test]
fn every_number_is_in_a_row_or_said_not_to_move() {
    let mut rows: BTreeSet<(&str, String)> = BTreeSet::new();
    for row in ROWS {
        rows.extend(row.designs.iter().map(|&name| (name, row.key.to_string())));
    }
    let mut used = BTreeSet::new();
    for preset in designs::list() {
        let table = preset.text.parse::<toml::Table>().expect("TOML");
        for key in numbers(&table, "") {
            let is_unmoved = |(_, (other, names, _)): &(usize, &(&str, &[&str], &str))| {
                *other == key && (names.is_empty() || names.contains(&preset.name))
            };
            let reason = UNMOVED.iter().enumerate().find(is_unmoved).map(|(at, _)| at);
            let is_in_row = rows.contains(&(preset.name, key.clone()));
            assert!(is_in_row || reason.is_some(), "{}: {key} is in no row", preset.name);
            used.extend(reason.filter(|_| !is_in_row));
        }
    }
    let idle: Vec<_> =
        (0..UNMOVED.len()).filter(|at| !used.contains(at)).map(|at| UNMOVED[at]).collect();
    assert!(idle.is_empty(), "of no design, or in a row: {idle:?}");
}

/// The keys of numbers and times that are not 0, which doubled is 0.
fn numbers(table: &toml::Table, above: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in table {
        let key = format!("{above}{key}");
        match value {
            toml::Value::Table(below) => found.extend(numbers(below, &format!("{key}."))),
            toml::Value::Integer(1..) => found.push(key),
            toml::Value::String(text) => {
                let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
                let is_time = ["ns", "us", "ms", "s", "min", "h"].contains(&unit);
                let is_zero = text.trim_start_matches('0') == unit;
                found.extend((is_time && unit.len() < text.len() && !is_zero).then_some(key));
            }
            _ => {}
        }
    }
    found
}
