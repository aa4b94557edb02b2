//! What the designs that set conditions, and those of more than two sizes, do at each event: tables, each line with
//! the source of its action. Repositories are named in the presets.

mod cbmm;
mod elastic;
mod facts;
mod hugescope;
mod trident;

use design::{Design, designs};
use superpage_policy::rules::Effort;
use superpage_policy::{
    Action, Candidates, Daemon, Event, Extent, Fact, Facts, How, Mapping, Orders, Page, Policy,
    Reads, Region, Result as Ended, Rule, Scale, Superpage, Wait,
};

/// Base pages of 4 KiB, superpages of 2 MiB, a clock of microseconds.
const SCALE: Scale = Scale::X86;
const SECOND: u64 = 1_000_000;

/// What happens, what is known, and what must follow; with its source.
type Line = (&'static str, &'static str, Vec<(Event, Facts, Action)>);

#[track_caller]
fn check(design: &Design, table: Vec<Line>) {
    for (what, source, steps) in table {
        assert!(source.len() > 10, "{what}");
        let mut policy = design.policy(SCALE);
        for (at, (event, facts, action)) in steps.into_iter().enumerate() {
            let is = policy.on(event, &facts);
            assert_eq!(is, action, "{}: {what} ({source}), step {}", design.name, at + 1);
        }
    }
}

fn preset(name: &str) -> Design {
    designs::find(name).expect("a preset")
}

/// The preset with a line added at its end.
fn with(name: &str, line: &str) -> Design {
    let text = format!("{}\n{line}\n", designs::preset(name).expect("a preset").text);
    Design::from_toml("test", &text).unwrap_or_else(|error| panic!("{error}"))
}

fn orders(orders: &[u8]) -> Orders {
    orders.iter().copied().collect()
}

/// The first touch of a superpage's worth of anonymous memory amid a large mapping; superpages are free, not zeroed.
fn fresh() -> Facts {
    let all: Orders = (1..=18).collect();
    let mut facts = Facts {
        mapping: Mapping { writable: true, ..Mapping::default() },
        place: (512_000, 512_512),
        region: Region { inside: true, begins: all, ends: all, absent: all, ..Region::default() },
        ..Facts::default()
    };
    (facts.machine.free, facts.machine.pages, facts.machine.free_superpages) = (900, 1000, 1);
    facts
}

fn known(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = fresh();
    change(&mut facts);
    facts
}

/// A candidate with base pages, as a scan is told of it.
fn candidate(order: u8, change: impl FnOnce(&mut Extent)) -> Facts {
    known(|facts| {
        facts.region.has_table = true;
        facts.region.populated = 512;
        facts.region.has_writable = true;
        facts.region.accessed = true;
        facts.extent = Extent { order, populated: 1 << order, ..Extent::default() };
        change(&mut facts.extent);
    })
}

const READ: Event = Event::Fault { write: false };
const WRITE: Event = Event::Fault { write: true };
const INSPECTED: Event = Event::Inspected { requested: false };
const SCAN: Event = Event::Tick(Daemon::Scan);
const SPLIT: Event = Event::Tick(Daemon::Split);
const BASE: Action = Action::MapBase { pages: 1 };
const DONE: Ended = Ended::Done { pages: 512 };

fn fresh_page(order: u8) -> Action {
    Action::MakeSuperpage { order, how: How::Fresh, effort: Effort::None }
}

fn copy(order: u8) -> Action {
    let how = How::Copy { exclusive: true };
    Action::MakeSuperpage { order, how, effort: Effort::DirectRetry }
}

fn ended(action: Action, result: Ended) -> Event {
    Event::Outcome { action, result, cost: 0 }
}
