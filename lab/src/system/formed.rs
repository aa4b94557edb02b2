//! Whether an event is one that a program could make: what is not is refused before anything is changed.
//!
//! Recorded streams are files that others wrote. Nothing in one may make the laboratory panic, take memory
//! without bound or compute for ever.

use trace::{Event, Page, Pages, Process, SLOTS};

use super::region::NOBODY;
use super::{Stop, System};

/// Regions that streams may number: 2 TiB of virtual memory, more than [`crate::memory::Frame`]s' machines
/// have. Each costs about 20 bytes in each design of a pass.
pub(crate) const MOST_REGIONS: u32 = 1 << 20;
/// How far beyond all regions before a mapping may begin. Regions are numbered densely; a program's parts
/// and its children's begin a little further on.
const MOST_SKIPPED: u32 = 1 << 17;
/// The longest time that passes at once, in microseconds: daemons work all through it.
pub(crate) const MOST_MICROSECONDS: u64 = 10 * 24 * 3600 * 1_000_000;

pub(super) fn ill_formed<T>(what: String) -> Result<T, Stop> {
    Err(Stop::IllFormed(what))
}

impl System {
    /// Checks what can be without changing anything.
    pub(super) fn well_formed(&self, event: &Event) -> Result<(), Stop> {
        if let Some(Pages { first: Page(first), count }) = event.pages()
            && (count == 0 || u64::from(first) + u64::from(count) >= 1 << 31)
        {
            return ill_formed(format!("{count} pages from page {first} on"));
        }
        let lives = |process: u32| self.spaces.processes.contains_key(&process);
        match event {
            Event::Spawn(Process(process)) | Event::Fork { child: Process(process), .. }
                if lives(*process) || *process == NOBODY =>
            {
                ill_formed(format!("process {process} begins, and is there already"))
            }
            Event::Run(Process(process)) | Event::Exit(Process(process)) if !lives(*process) => {
                ill_formed(format!("process {process} was never begun, or has ended"))
            }
            Event::Map { .. }
            | Event::Grow { .. }
            | Event::Unmap(_)
            | Event::Advise(..)
            | Event::Protect(..)
            | Event::Fork { .. }
                if !lives(self.running) =>
            {
                ill_formed("a system call, and no process is running".to_string())
            }
            Event::Fork { offset, .. } if !offset.is_multiple_of(SLOTS) => {
                ill_formed(format!("a fork moves pages by {offset}, no whole region"))
            }
            Event::Pace(pace)
                if pace.weight == 0 || pace.threads == 0 || pace.exposed_permille > 1000 =>
            {
                ill_formed(format!("a pace of {pace:?}"))
            }
            Event::Wait(microseconds) if *microseconds > MOST_MICROSECONDS => {
                ill_formed(format!("a wait of {microseconds} microseconds"))
            }
            _ => Ok(()),
        }
    }

    /// Gives the regions of `pages` to a process. They must not be mapped by another, and the pages by none.
    pub(super) fn take_regions(&mut self, pages: Pages, process: u32) -> Result<(), Stop> {
        let (first, end) = (pages.first.0, pages.first.0 + pages.count);
        let known = self.spaces.regions.len() as u64;
        let last = (end - 1) >> 9;
        if last >= MOST_REGIONS || u64::from(first >> 9) > known + u64::from(MOST_SKIPPED) {
            return ill_formed(format!(
                "pages from {first} on are mapped, {known} regions are known: regions are \
                 numbered densely, and {MOST_REGIONS} are the most"
            ));
        }
        self.spaces.cover(pages);
        if self.spaces.processes.get(&process).is_some_and(|own| own.meets(pages)) {
            return ill_formed(format!("pages from {first} on are mapped, and some were already"));
        }
        for region in first >> 9..=last {
            let owner = self.spaces.regions[region as usize].process;
            let window = Pages { first: Page(region << 9), count: SLOTS };
            if owner != process
                && self.spaces.processes.get(&owner).is_some_and(|other| other.meets(window))
            {
                return ill_formed(format!("region {region} is mapped, and is process {owner}'s"));
            }
            self.spaces.region(region).process = process;
        }
        Ok(())
    }
}
