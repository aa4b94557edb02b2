//! The report of an executor.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::account::{Account, Cause, Delays, Left};
use crate::extent::{Extent, PAGES};
use crate::make;

/// What an applied design did during a run. Times are in seconds; `None` means unknown, or that there was none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Report {
    /// Number of superpages made.
    #[serde(deserialize_with = "units::count")]
    pub made: u64,
    /// Number of base pages copied into superpages.
    #[serde(deserialize_with = "units::count")]
    pub copied_pages: u64,
    /// Number of zeroed pages added to superpages.
    #[serde(deserialize_with = "units::count")]
    pub filled_pages: u64,
    /// Number of superpages made without a copy, in the frame of their pages; part of `made`.
    #[serde(default, deserialize_with = "units::count")]
    pub in_place: u64,
    /// Number of superpages made before their first touch, in memory that the program was filling in order; part of
    /// `made`.
    #[serde(default, deserialize_with = "units::count")]
    pub ahead: u64,
    /// Number of failed attempts, by errno.
    pub failed: BTreeMap<String, u64>,
    /// Number of attempts repeated soon, because the kernel held a page (EAGAIN).
    #[serde(deserialize_with = "units::count")]
    pub repeated: u64,
    /// Number of extents whose memory was unmapped, or whose process ended, before they were made.
    #[serde(deserialize_with = "units::count")]
    pub gone: u64,
    /// Number of extents that the policy wanted and that were not superpages at the last look.
    #[serde(deserialize_with = "units::count")]
    pub unmade: u64,
    /// Number of extents that the policy wanted and that stayed on base pages, because too much filled memory is
    /// unused.
    #[serde(default, deserialize_with = "units::count")]
    pub held: u64,
    /// Number of extents that waited at the program's end, because making them would have held it up for over 2 % of its
    /// CPU time; part of `unmade`.
    #[serde(default, deserialize_with = "units::count")]
    pub waiting: u64,
    /// Number of extents that had pages.
    #[serde(deserialize_with = "units::count")]
    pub touched: u64,
    /// Largest number of pages of an extent that the policy did not want.
    pub fullest: u16,
    /// Number of superpages made by others, in memory that the program advises itself.
    #[serde(deserialize_with = "units::count")]
    pub by_others: u64,
    /// Number of superpages seen that the kernel's faults made of memory advised for the design.
    #[serde(default, deserialize_with = "units::count")]
    pub by_fault: u64,
    /// Delay from when memory qualified to when it was a superpage. An upper bound, because memory qualified at some
    /// time before the look that saw it.
    pub delay: Option<Delay>,
    /// CPU seconds for reading page tables.
    #[serde(deserialize_with = "units::seconds")]
    pub looking_seconds: f64,
    /// CPU seconds for making superpages.
    #[serde(deserialize_with = "units::seconds")]
    pub making_seconds: f64,
    /// Number of looks at whole processes.
    #[serde(deserialize_with = "units::count")]
    pub looks: u64,
    /// Number of looks at extents where faults were sampled.
    #[serde(deserialize_with = "units::count")]
    pub frontier_looks: u64,
    /// Why faults were not sampled.
    pub unsampled: Option<String>,
    /// Number of processes served.
    #[serde(deserialize_with = "units::count")]
    pub processes: u64,
    /// Why a process could not be looked at.
    pub unseen: Option<String>,
    /// Number of extents that the policy reserved.
    #[serde(skip)]
    pub reserved: u64,
    /// What each rule that makes superpages did.
    #[serde(skip)]
    pub accounts: Vec<Account>,
}

/// Delays of many superpages, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Delay {
    /// Median.
    #[serde(deserialize_with = "units::seconds")]
    pub median_seconds: f64,
    /// 95th percentile.
    #[serde(deserialize_with = "units::seconds")]
    pub p95_seconds: f64,
}

units::checked!(Report, Delay);

impl Report {
    fn check(&self) -> Result<(), String> {
        let Self { made, in_place, unmade, waiting, .. } = self;
        match () {
            () if in_place > made => Err(format!("in_place is {in_place} of {made} made")),
            () if waiting > unmade => Err(format!("waiting is {waiting} of {unmade} unmade")),
            () => Ok(()),
        }
    }
}

impl Delay {
    fn check(&self) -> Result<(), String> {
        let ascend = self.median_seconds <= self.p95_seconds;
        ascend.then_some(()).ok_or("median_seconds is more than p95_seconds".to_string())
    }
}

#[derive(Debug)]
pub(crate) struct Tally {
    pub report: Report,
    /// Why the last superpage was not made, since this was cleared.
    pub last_failure: Option<&'static str>,
    accounts: [Account; 3],
    delays: [Delays; 3],
}

impl Default for Tally {
    fn default() -> Self {
        let accounts = Cause::ALL.map(Account::new);
        Self { report: Report::default(), last_failure: None, accounts, delays: Default::default() }
    }
}

impl Tally {
    /// Records that the policy wants a superpage, by the rule `cause`. It stays that of the first rule that wanted it, so
    /// that a rule's superpages are made, refused or left of those that it wanted.
    pub(crate) fn wants(&mut self, extent: &mut Extent, cause: Cause) {
        if !extent.is_wanted && !extent.is_held {
            self.accounts[cause as usize].wanted += 1;
            extent.cause = cause;
        }
        (extent.is_wanted, extent.is_held) = (true, false);
    }

    /// Records that this extent became a superpage. `stayed`: in the frame of its pages.
    pub(crate) fn made(&mut self, extent: &Extent, stayed: bool, now: u64) {
        let missing = u64::from(PAGES - extent.populated);
        let filled = if stayed { 0 } else { missing };
        self.report.made += 1;
        self.report.in_place += u64::from(stayed);
        self.report.copied_pages += if stayed { 0 } else { u64::from(extent.populated) };
        self.report.filled_pages += filled;
        let account = &mut self.accounts[extent.cause as usize];
        account.made += 1;
        account.in_place += u64::from(stayed);
        account.filled += u64::from(filled > 0);
        account.filled_pages += filled;
        self.delays[extent.cause as usize].add(now.saturating_sub(extent.grew.0));
    }

    /// Records the number of superpages that were made before their first touch.
    pub(crate) fn ahead(&mut self, made: u64) {
        self.report.ahead += made;
        self.accounts[Cause::Mapping as usize].wanted += made;
    }

    /// Records that the extent's memory was unmapped before a superpage was made.
    pub(crate) fn gone(&mut self, extent: &Extent) {
        self.report.gone += 1;
        self.accounts[extent.cause as usize].gone += 1;
    }

    /// Records what a process left. `waits`: the extents without a superpage waited for credit.
    pub(crate) fn leaves(&mut self, left: Left, waits: bool) {
        for (account, (unmade, held)) in self.accounts.iter_mut().zip(left) {
            let waiting = if waits { unmade } else { 0 };
            self.report.unmade += unmade;
            self.report.held += held;
            self.report.waiting += waiting;
            account.held += held;
            account.waiting += waiting;
        }
    }

    pub(crate) fn failed(&mut self, extent: &Extent, errno: Option<i32>) {
        self.last_failure = Some(reason(errno));
        let account = &mut self.accounts[extent.cause as usize];
        *account.failed.entry(reason(errno)).or_default() += 1;
        if errno == Some(libc::EAGAIN) {
            self.report.repeated += 1;
            return;
        }
        *self.report.failed.entry(reason(errno).to_string()).or_default() += 1;
    }

    pub(crate) fn end(mut self) -> Report {
        let mut all = Delays::default();
        for (account, delays) in self.accounts.iter_mut().zip(&mut self.delays) {
            account.latency = delays.latency();
            all.append(delays);
        }
        self.report.accounts = self.accounts.into();
        self.report.delay = all
            .within(50)
            .zip(all.within(95))
            .map(|(median_seconds, p95_seconds)| Delay { median_seconds, p95_seconds });
        if self.report.made == 0 && !self.report.failed.is_empty() {
            // All extents were tried, so none waited.
            self.report.waiting = 0;
            self.report.accounts.iter_mut().for_each(|account| account.waiting = 0);
        }
        self.report
    }
}

/// Says what an errno of MADV_COLLAPSE means (mm/khugepaged.c: madvise_collapse_errno).
fn reason(errno: Option<i32>) -> &'static str {
    match errno {
        None => "not a superpage when read back",
        Some(libc::EAGAIN) => "the kernel held a page (EAGAIN)",
        Some(make::SHARED) => "another process shares it after a fork",
        Some(make::SHORT) => "the control group has too little memory left",
        Some(make::DENIED) => "not permitted now",
        Some(libc::ENOMEM) => "no superpage was free (ENOMEM)",
        Some(libc::EBUSY) => "the control group has no memory left (EBUSY)",
        Some(libc::EINVAL) => "the kernel makes none there (EINVAL)",
        Some(libc::ESRCH) => "the process had ended (ESRCH)",
        Some(libc::EPERM) => "not permitted (EPERM)",
        Some(_) => "another error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_wanted_is_made_or_left_by_the_same_rule() {
        let mut tally = Tally::default();
        let mut extent = Extent { populated: 64, ..Extent::default() };
        tally.wants(&mut extent, Cause::Mapping);
        tally.wants(&mut extent, Cause::Scan);
        tally.made(&extent, false, 1000);
        let mut found = Extent::default();
        tally.wants(&mut found, Cause::Scan);
        tally.leaves([(0, 0), (0, 0), (1, 2)], true);
        let report = tally.end();
        let counts = |cause: Cause| {
            let account = &report.accounts[cause as usize];
            (account.wanted, account.made, account.waiting, account.held)
        };
        assert_eq!(counts(Cause::Mapping), (1, 1, 0, 0));
        assert_eq!(counts(Cause::Scan), (1, 0, 1, 2));
        assert_eq!((report.unmade, report.held, report.waiting), (1, 2, 1));
    }

    #[test]
    fn delays_are_at_most_what_is_said() {
        let mut tally = Tally::default();
        assert_eq!(Tally::default().end().delay, None);
        for delay in 1..=100 {
            let extent = Extent { populated: 64, grew: (1000 - delay, 1000), ..Extent::default() };
            tally.made(&extent, false, 1000);
        }
        let extent = Extent { populated: 64, grew: (950, 1000), ..Extent::default() };
        tally.made(&extent, true, 1000);
        let report = tally.end();
        assert_eq!((report.made, report.in_place), (101, 1));
        let delay = report.delay.unwrap();
        assert_eq!((delay.median_seconds, delay.p95_seconds), (50e-6, 95e-6));
        assert_eq!((report.copied_pages, report.filled_pages), (6400, 44_800));
    }
}
