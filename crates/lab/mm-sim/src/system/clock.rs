//! Virtual time, and the cycles that the program and the daemons spend, by cause.
//!
//! Time is the program's CPU cycles divided by its threads; daemons work beside it, on CPUs of their
//! own, and cost it nothing but what they do to its memory.
//! See docs/decisions/lab-model.md#5.

use trace::Pace;

use crate::{Cause, CycleCounts};

/// Virtual time and the cycles of both.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The program's CPU cycles.
    ledger: CycleCounts,
    /// The daemons' CPU cycles.
    background: CycleCounts,
    /// How accesses relate to time now.
    pace: Pace,
    /// CPU cycles of the program in all.
    spent: u64,
    /// When `threads` last changed: the time, and what had been spent.
    mark: (u64, u64),
    /// What is left over from work in 1/1024 cycles.
    rest: u64,
    mhz: u64,
}

/// Who pays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    /// The program, in a fault.
    Program,
    /// A daemon.
    Daemon,
}

impl Clock {
    pub(crate) fn new(mhz: u32) -> Self {
        Self {
            ledger: CycleCounts::default(),
            background: CycleCounts::default(),
            pace: Pace { work: 4096, exposed_permille: 1000, weight: 1, threads: 1 },
            spent: 0,
            mark: (0, 0),
            rest: 0,
            mhz: u64::from(mhz),
        }
    }

    /// What the program spent.
    pub(crate) fn ledger(&self) -> &CycleCounts {
        &self.ledger
    }

    /// What the daemons spent.
    pub(crate) fn background(&self) -> &CycleCounts {
        &self.background
    }

    /// How accesses relate to time now.
    #[inline]
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// The virtual time, in cycles.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let spent = self.spent - self.mark.1;
        // A division takes longer than all else at a fault that has no miss.
        let passed =
            if self.pace.threads <= 1 { spent } else { spent / u64::from(self.pace.threads) };
        self.mark.0 + passed
    }

    /// The program spends CPU cycles.
    #[inline]
    pub(crate) fn spend(&mut self, cause: Cause, cycles: u64) {
        self.ledger.charge(cause, cycles);
        self.spent += cycles;
    }

    /// The program's accesses, without their translation.
    pub(crate) fn work(&mut self, accesses: u64) {
        let fine = u128::from(accesses) * u128::from(self.pace.work) + u128::from(self.rest);
        self.rest = (fine % 1024) as u64;
        self.spend(Cause::Work, (fine / 1024) as u64);
    }

    /// How long so many accesses take, without their translation, if one thread makes them.
    pub(crate) fn microseconds_of_work(&self, accesses: u64) -> u64 {
        let cycles = u128::from(accesses) * u128::from(self.pace.work.max(1)) / 1024;
        u64::try_from(cycles).unwrap_or(u64::MAX) / self.mhz
    }

    /// A daemon spends CPU cycles.
    pub(crate) fn spend_behind(&mut self, cause: Cause, cycles: u64) {
        self.background.charge(cause, cycles);
    }

    /// A daemon did not come to spend these.
    pub(crate) fn withdraw_behind(&mut self, cause: Cause, cycles: u64) {
        self.background.withdraw(cause, cycles);
    }

    /// Who pays spends CPU cycles.
    pub(crate) fn charge(&mut self, payer: Payer, cause: Cause, cycles: u64) {
        match payer {
            Payer::Program => self.spend(cause, cycles),
            Payer::Daemon => self.spend_behind(cause, cycles),
        }
    }

    /// The program waits.
    pub(crate) fn wait(&mut self, cycles: u64) {
        self.mark = (self.now() + cycles, self.spent);
    }

    /// Accesses are at another pace from now on.
    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.mark = (self.now(), self.spent);
        self.pace = pace;
    }

    /// Forgets what was spent since the ledger was `books`.
    pub(crate) fn restore(&mut self, books: CycleCounts) {
        self.spent -= self.ledger.total() - books.total();
        self.ledger = books;
    }

    /// The books begin anew; time goes on.
    pub(crate) fn begin(&mut self) {
        self.ledger = CycleCounts::default();
        self.background = CycleCounts::default();
    }

    pub(crate) fn microseconds(&self, cycles: u64) -> u64 {
        cycles / self.mhz
    }
    pub(crate) fn of_microseconds(&self, microseconds: u64) -> u64 {
        microseconds.saturating_mul(self.mhz)
    }
}
