//! Zeroing free memory ahead, and recovering zero pages.

use superpage_policy::{Action, Daemon, Event, Reservation};

use super::dsl::*;

const VISIT: Action = upkeep(UpkeepAction::Inspect);

/// When less than `below` per cent of memory is free, superpages with more than `zeros` zero pages are split, until
/// `until` per cent are free.
#[rustfmt::skip]
pub fn recovery(source: &'static str, (below, until): (u64, u64), zeros: u16) -> Table {
    let free = move |percent| large().machine(|machine| (machine.free, machine.pages, machine.waiting) = (percent, 100, 1));
    let begin = move || on(tick(Daemon::Recover), free(below - 1), VISIT);
    let look = move |facts| on(Event::Candidate, facts, Action::Nothing);
    let superpage = |change: fn(&mut superpage_policy::Superpage)| fresh().superpage(change);
    let holds = move |pages| large().region(|region| region.zeros = pages);
    let inspected = Event::Inspected { requested: false };
    vec![
        at("bloat: enough is free", source, tick(Daemon::Recover), free(below), PERIOD),
        run("bloat: little is free, the next superpage is looked into", source, [
            begin(), on(Event::Candidate, large(), Action::Inspect), on(inspected, holds(zeros + 1), Action::Recover),
        ]),
        run("bloat: one with too few zeros is left alone", source, [
            begin(), on(Event::Candidate, large(), Action::Inspect), on(inspected, holds(zeros), Action::Nothing),
        ]),
        run("bloat: it goes on until enough is free", source, [
            begin(), then(done(1), free(until - 1), VISIT), then(done(1), free(until), PERIOD),
            on(tick(Daemon::Recover), free(below), PERIOD),
        ]),
        run("bloat: it goes on from pass to pass", source, [
            begin(), then(NOTHING, free(until - 1), PERIOD), on(tick(Daemon::Recover), free(until - 1), VISIT),
        ]),
        run("bloat: no superpages are left", source, [
            begin(), then(done(1), free(below).machine(|machine| machine.waiting = 0), PERIOD),
        ]),
        run("bloat: a piece of work is long enough", source, [
            begin(), then(superpage_policy::Result::Unfit, free(below).machine(|machine| machine.is_piece_done = true), MORE),
        ]),
        run("bloat: superpages shared, of a pool, of zeros, of reservations, and base pages are passed over", source, [
            begin(),
            look(superpage(|superpage| superpage.cow = true)), look(superpage(|superpage| superpage.pooled = true)),
            look(superpage(|superpage| superpage.zeros = true)), look(fresh().populated(9)),
            look(large().region(|region| region.reservation = Some(Reservation::default()))),
        ]),
    ]
}

/// When less than `start` per mille of free memory is zeroed, blocks of an order are zeroed, up to this many in a pass,
/// until `stop` per mille are.
#[rustfmt::skip]
pub fn prezero(source: &'static str, (start, stop): (u64, u64), blocks: usize, order: u8) -> Table {
    let zeroed = move |permille| fresh().machine(|machine| machine.zeroed_permille = permille);
    let zero = move || upkeep(UpkeepAction::Zero { order });
    let begin = move || on(tick(Daemon::Prezero), zeroed(start - 1), zero());
    let more = move || then(DONE, zeroed(start - 1), zero());
    let mut table = vec![
        at("idle time: enough is zeroed", source, tick(Daemon::Prezero), zeroed(stop), PERIOD),
        run("idle time: so many blocks in a pass, then the next", source,
            [begin()].into_iter().chain((1..blocks).map(|_| more()))
                .chain([then(DONE, zeroed(start - 1), PERIOD), begin()])),
        run("idle time: enough is zeroed now", source, [begin(), then(DONE, zeroed(stop), PERIOD)]),
        run("idle time: nothing is left to zero", source, [begin(), then(NOTHING, zeroed(start - 1), PERIOD)]),
        run("idle time: a long piece of work goes on", source, [
            on(tick(Daemon::Prezero), zeroed(start - 1).machine(|machine| machine.is_piece_done = true), zero()),
        ]),
    ];
    if start < stop {
        table.push(at("idle time: less than the start is a need, the start is none", source, tick(Daemon::Prezero), zeroed(start), PERIOD));
        table.push(run("idle time: a pass that began goes on up to the stop", source, [
            begin(), then(DONE, zeroed(stop - 1), zero()), then(DONE, zeroed(stop), PERIOD),
            on(tick(Daemon::Prezero), zeroed(stop - 1), PERIOD),
        ]));
    }
    table
}
