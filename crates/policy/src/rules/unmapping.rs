//! Event 4: a superpage mapping is destroyed.

use core::time::Duration;

use crate::Condition;
use crate::rules::table::{Key, Keys, Limit, ONE_OR_MORE, PERIOD, Slot, limit, rules, words};

rules! {
    /// The rules of mapping destruction.
    #[derive(Eq)]
    pub struct Unmapping {
        /// What splits the mapping.
        on: SplitOn = SplitOn { free: true, protect: true }, "on";
        /// What a write to a clean, read-only superpage does.
        clean_write: CleanWrite = CleanWrite::Keep, "clean-write";
        /// Superpages that are watched and of which this holds are split.
        when: Option<Condition> = None, "when";
        /// How superpages are watched.
        scan: Option<Watch> = None, "scan";
    }

    /// A daemon that watches which base pages of superpages are accessed: for a while they are mapped by base pages, in
    /// place (HugeScope and FHPM point the superpage's entry to a table of its own).
    ///
    /// By default as HugeScope's artifact: SP_INTERVAL 3000 ms between scans, ten samples of SAMPLE_PERIOD 600 ms in each,
    /// of the superpages that it found hot: at least 500 (ss_work.h; hmmv/ept_scanner.c: huge_page_split_select).
    #[derive(Copy, Eq)]
    pub struct Watch {
        /// Time between passes.
        every: Duration = Duration::from_secs(9), "every", PERIOD;
        /// How long accesses are counted.
        window: Duration = Duration::from_secs(6), "window";
        /// Superpages watched in a pass, at most.
        superpages: u32 = 500, "superpages", ONE_OR_MORE;
        /// They are watched only while less than this per cent of memory is free (100: always).
        below_percent: u8 = 100, "below-percent", limit(1, 100, "must be 1 to 100 (100: always)");
    }
}

/// What splits a superpage mapping: a list, `on = ["partial-free", "partial-protect"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SplitOn {
    /// Freeing a part of it (always true of what exists; false: the call is refused).
    pub free: bool,
    /// Changing the protection of a part.
    pub protect: bool,
}

impl Key for SplitOn {
    fn visit(&mut self, name: &'static str, none: Option<Limit>, keys: &mut dyn Keys) {
        let on = [&mut self.free, &mut self.protect];
        keys.key(name, none, Slot::Words(&["partial-free", "partial-protect"], on));
    }
}

words! {
    /// What a write to a clean, read-only superpage does.
    pub enum CleanWrite {
        /// It becomes writable.
        Keep = "keep",
        /// It is demoted to base pages (FreeBSD).
        Demote = "demote",
    }
}
