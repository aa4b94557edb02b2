//! Executor of `advisor` in this process: the advisor's state, and the functions that ask the advisor ([`decide`],
//! [`run_advisor`]). The caller performs the action; [`advise`] performs it for memory that only needs advice.
//!
//! The state is a seqlock over atomic words: `VERSION` is odd while a thread stores a change. Readers retry. After
//! [`TRIES`] they decide on the words as they are and store nothing, because the writer may have been stopped, or
//! interrupted by a signal handler. So no thread waits, and a change may be lost: the state has only hints. A forked
//! child keeps its parent's state.
//!
//! # Safety
//! Only atomics, and advice (`advice`).
//! See docs/decisions/live.md#2.

pub mod advice;
mod log;

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use advisor::{Action, Outcome};
use advisor::{Advisor, Event, Facts, Kind, Request, State};

use crate::settings::{self, Fallback, Pages, Settings};
use crate::{filter, raw, sizes};

pub use log::begin;

static WORDS: [AtomicU64; State::WORDS] = {
    const WORDS: [u64; State::WORDS] = State::NEW.to_words();
    let mut all = [const { AtomicU64::new(0) }; State::WORDS];
    let mut at = 0;
    while at < all.len() {
        all[at] = AtomicU64::new(WORDS[at]);
        at += 1;
    }
    all
};
static VERSION: AtomicU64 = AtomicU64::new(0);

/// Retries before deciding on a possibly torn snapshot.
const TRIES: usize = 64;

/// Success; the number of pages is not reported.
pub const DONE: Outcome = Outcome::Done { pages: 0 };

/// Result of a system call, for the advisor.
pub fn done_if(is_done: bool) -> Outcome {
    if is_done { DONE } else { Outcome::Unavailable }
}

/// Asks the advisor for an action. Preserves errno.
pub fn decide(event: Event, facts: &Facts) -> Action {
    for _ in 0..TRIES {
        let Some((version, state)) = load() else {
            std::hint::spin_loop();
            continue;
        };
        let mut advisor = Advisor { request: request(), state };
        let action = advisor.on(event, facts);
        if advisor.state == state || store(version, &advisor.state) {
            log::decision(version / 2, None, event, facts, action);
            return action;
        }
    }
    let state = State::from_words(words());
    let action = Advisor { request: request(), state }.on(event, facts);
    log::decision(VERSION.load(Relaxed) / 2, Some(state), event, facts, action);
    action
}

/// Asks the advisor and performs actions until `perform` returns `None`; returns that action.
pub fn run_advisor(
    event: Event,
    facts: &mut Facts,
    mut perform: impl FnMut(Action, &mut Facts) -> Option<(Outcome, u32)>,
) -> Action {
    let mut action = decide(event, facts);
    while let Some((result, cost)) = perform(action, facts) {
        action = decide(Event::Outcome { action, result, cost }, facts);
    }
    action
}

/// Tells the advisor how an action ended; returns the next action.
pub fn report_outcome(action: Action, result: Outcome, facts: &Facts) -> Action {
    decide(Event::Outcome { action, result, cost: 0 }, facts)
}

/// Facts about memory at `start`, whose superpages have `superpage` bytes.
pub fn facts(start: usize, length: usize, superpage: usize) -> Facts {
    Facts {
        superpage: superpage as u64,
        base_page: raw::base_page() as u64,
        is_sealed: filter::may_be_in_place(),
        length: length as u64,
        offset: (start % superpage) as u64,
        ..Facts::default()
    }
}

/// Decides the fallback for `length` bytes for which the pool has no superpages; `wanted` is the configured one.
pub fn fall_back(wanted: Fallback, length: usize) -> Fallback {
    let facts =
        Facts { fallback: advisor_fallback(wanted), length: length as u64, ..Facts::default() };
    match decide(Event::NoPoolPage, &facts) {
        Action::Refuse => Fallback::Error,
        Action::Advise { .. } => Fallback::Thp,
        _ => Fallback::Base,
    }
}

/// Advises memory whose advice does not depend on free blocks, if the advisor says so. `wanted` is the fallback for
/// memory that the pool did not serve. Returns whether the memory was advised.
pub fn advise(kind: Kind, wanted: Fallback, start: usize, length: usize) -> bool {
    let facts = Facts {
        kind,
        fallback: advisor_fallback(wanted),
        ..facts(start, length, sizes::superpage())
    };
    let action = decide(Event::Mapped, &facts);
    let Action::Advise { bytes, .. } = action else { return false };
    let result = done_if(advice::superpages(start, bytes as usize));
    report_outcome(action, result, &facts);
    result == DONE
}

/// Whether memory outside the pool is to be advised. Nothing is advised once the program has requested a seccomp
/// filter: malloc of a program without threads never calls madvise, and the filter may kill the process for it.
pub fn advises() -> bool {
    !filter::is_set() && request().advises(advisor_fallback(settings::get().fallback))
}

/// The fallback in the advisor's terms.
pub fn advisor_fallback(fallback: Fallback) -> advisor::Fallback {
    match fallback {
        Fallback::Error => advisor::Fallback::Refuse,
        Fallback::Base => advisor::Fallback::Base,
        Fallback::Thp => advisor::Fallback::Advise,
    }
}

/// Whether superpages are to be prepared ahead; `false` if a seccomp filter may forbid it.
pub fn prepares() -> bool {
    request().prepares(sizes::superpage() as u64)
}

/// Whether a decision was ever stored.
pub fn has_decided() -> bool {
    VERSION.load(Relaxed) > 0
}

/// Number of requests that kept memory could have served.
pub fn requests() -> u64 {
    State::from_words(words()).requests
}

fn request() -> Request {
    let &Settings { pages, prezero, prefault, .. } = settings::get();
    Request {
        pages: match pages {
            Pages::None => advisor::Pages::Base,
            Pages::Thp(0) => advisor::Pages::Superpage,
            Pages::Thp(_) => advisor::Pages::Smaller,
            Pages::Hugetlb(_) => advisor::Pages::Pool,
        },
        prezero: prezero as u64,
        prefault: prefault as u64,
    }
}

fn words() -> [u64; State::WORDS] {
    std::array::from_fn(|at| WORDS[at].load(Relaxed))
}

/// The state and its version; `None`: a store is in progress.
fn load() -> Option<(u64, State)> {
    let version = VERSION.load(Acquire);
    let state = State::from_words(words());
    fence(Acquire);
    (version.is_multiple_of(2) && VERSION.load(Relaxed) == version).then_some((version, state))
}

/// Stores a state derived from this version; `false`: another thread stored meanwhile.
fn store(version: u64, state: &State) -> bool {
    if VERSION.compare_exchange(version, version + 1, AcqRel, Relaxed).is_err() {
        return false;
    }
    fence(Release);
    for (word, value) in WORDS.iter().zip(state.to_words()) {
        word.store(value, Relaxed);
    }
    VERSION.store(version + 2, Release);
    true
}

/// In a forked child: ends a store that another thread had begun.
pub fn after_fork() {
    let version = VERSION.load(Relaxed);
    if version % 2 == 1 {
        let _ = VERSION.compare_exchange(version, version + 1, Relaxed, Relaxed);
    }
    log::begin();
}
