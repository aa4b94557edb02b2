//! Checks that a program could issue an event. Invalid events are refused before any state changes.
//!
//! Recorded streams are untrusted files. No stream may make the laboratory panic, use unbounded memory or run for ever.

use trace::{Event, Page, Pages, Process, SLOTS};

use super::spaces::region::NOBODY;
use super::{Stop, System};

/// Maximum number of regions that a mapping may skip after all earlier regions. Regions are numbered densely; parts of
/// a program and of its children may begin a little further on.
pub(super) const MAX_SKIPPED: u32 = 1 << 17;
/// Maximum duration of one event, in microseconds: the daemons' work during the event is simulated too.
pub(crate) const MAX_MICROSECONDS: u64 = 10 * 24 * 3600 * 1_000_000;

pub(super) fn ill_formed<T>(what: String) -> Result<T, Stop> {
    Err(Stop::IllFormed(what))
}

impl System {
    /// Checks an event as far as possible without a change of state.
    pub(super) fn well_formed(&self, event: &Event) -> Result<(), Stop> {
        if let Some(Pages { first: Page(first), count }) = event.pages()
            && (count == 0 || u64::from(first) + u64::from(count) >= 1 << 31)
        {
            return ill_formed(format!("{count} pages from page {first} on"));
        }
        let lives = |process: u32| self.spaces.lives(process);
        match event {
            Event::Spawn(Process(process)) | Event::Fork { child: Process(process), .. }
                if lives(*process) || *process == NOBODY =>
            {
                ill_formed(format!("process {process} begins but already exists"))
            }
            Event::Run(Process(process)) | Event::Exit(Process(process)) if !lives(*process) => {
                ill_formed(format!("process {process} does not exist"))
            }
            Event::Map { .. }
            | Event::Grow { .. }
            | Event::Unmap(_)
            | Event::Advise(..)
            | Event::Protect(..)
            | Event::Fork { .. }
                if !lives(self.spaces.running()) =>
            {
                ill_formed("a system call while no process runs".to_string())
            }
            Event::Fork { offset, .. } if !offset.is_multiple_of(SLOTS) => {
                ill_formed(format!("a fork moves pages by {offset}, not a multiple of {SLOTS}"))
            }
            Event::Pace(pace)
                if pace.weight == 0 || pace.threads == 0 || pace.exposed_permille > 1000 =>
            {
                ill_formed(format!("invalid pace {pace:?}"))
            }
            Event::Wait(microseconds) if *microseconds > MAX_MICROSECONDS => ill_formed(format!(
                "a wait of {microseconds} microseconds, more than {MAX_MICROSECONDS}"
            )),
            _ => Ok(()),
        }
    }
}
