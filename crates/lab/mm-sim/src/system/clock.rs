//! Virtual time, and the cycles of the program and of the daemons by cause.
//!
//! Time is the program's CPU cycles divided by its threads. Daemons run concurrently on their own CPUs, and cost the
//! program only through their effects on its memory. See docs/decisions/lab-model.md#5.

use machine::{Machine, Stores};
use policy::Zeroing;
use trace::{Pace, SLOTS};
use units::ByteSize;

use crate::{Cause, CycleCounts, Moment, Phase};

#[derive(Debug)]
pub(crate) struct Clock {
    /// The program's CPU cycles.
    ledger: CycleCounts,
    /// The daemons' CPU cycles.
    background: CycleCounts,
    /// The program's current threads and work per access.
    pace: Pace,
    spent: u64,
    /// At the last change of pace: the time, and the cycles spent until then.
    mark: (u64, u64),
    /// Remainder of work, in 1/1024 cycles.
    rest: u64,
    mhz: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payer {
    Program,
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

    pub(crate) fn ledger(&self) -> &CycleCounts {
        &self.ledger
    }

    pub(crate) fn background(&self) -> &CycleCounts {
        &self.background
    }

    #[inline]
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Returns the virtual time, in cycles.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        let spent = self.spent - self.mark.1;
        // Avoids a division, which takes longer than the rest of a fault without cache misses.
        let passed =
            if self.pace.threads <= 1 { spent } else { spent / u64::from(self.pace.threads) };
        self.mark.0 + passed
    }

    #[inline]
    pub(crate) fn spend(&mut self, cause: Cause, cycles: u64) {
        self.ledger.charge(cause, cycles);
        self.spent += cycles;
    }

    /// Charges the work of the program's accesses, without translation.
    pub(crate) fn work(&mut self, accesses: u64) {
        let fine = u128::from(accesses) * u128::from(self.pace.work) + u128::from(self.rest);
        self.rest = (fine % 1024) as u64;
        self.spend(Cause::Work, (fine / 1024) as u64);
    }

    /// Returns the duration of `accesses` by one thread, in microseconds, without translation.
    pub(crate) fn microseconds_of_work(&self, accesses: u64) -> u64 {
        let cycles = u128::from(accesses) * u128::from(self.pace.work.max(1)) / 1024;
        u64::try_from(cycles).unwrap_or(u64::MAX) / self.mhz
    }

    pub(crate) fn spend_behind(&mut self, cause: Cause, cycles: u64) {
        self.background.charge(cause, cycles);
    }

    /// Refunds cycles that a daemon had not spent by the end of the run.
    pub(crate) fn withdraw_behind(&mut self, cause: Cause, cycles: u64) {
        self.background.withdraw(cause, cycles);
    }

    pub(crate) fn charge(&mut self, payer: Payer, cause: Cause, cycles: u64) {
        match payer {
            Payer::Program => self.spend(cause, cycles),
            Payer::Daemon => self.spend_behind(cause, cycles),
        }
    }

    pub(crate) fn wait(&mut self, cycles: u64) {
        self.mark = (self.now() + cycles, self.spent);
    }

    pub(crate) fn set_pace(&mut self, pace: Pace) {
        self.mark = (self.now(), self.spent);
        self.pace = pace;
    }

    /// Resets the ledger to `books`, and refunds what was spent since.
    pub(crate) fn restore(&mut self, books: CycleCounts) {
        self.spent -= self.ledger.total() - books.total();
        self.ledger = books;
    }

    /// Resets the ledgers; time continues.
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

// Costs of operations on this machine under this design, in cycles. See docs/decisions/lab-model.md#8 and #10.

/// Costs in cycles, some of which depend on the design.
#[derive(Debug)]
pub(crate) struct Prices {
    /// Trap, kernel path and one new entry.
    pub fault: u64,
    /// Additional cost of a superpage fault over `fault`, without zeroing.
    pub superpage_fault: u64,
    /// Each further entry in a fault.
    pub map_page: u64,
    pub zero_page: u64,
    /// Zeroing a superpage of one region in a fault, with the design's method.
    pub zero_large: u64,
    /// Zeroing one of the design's largest superpages in a fault.
    pub zero_larger: u64,
    /// Zeroing a superpage ahead of need.
    pub zero_ahead: u64,
    pub copy_page: u64,
    pub migrate_page: u64,
    pub collapse: u64,
    pub promote: u64,
    pub split: u64,
    /// Creating a reservation.
    pub reserve: u64,
    /// Taking or returning one page of a reservation, without zeroing and mapping.
    pub reserved_page: u64,
    pub shootdown: u64,
    /// Additional cost of a fault per concurrently faulting thread: the cache lines of the address space's lock and
    /// counters come from other CPUs.
    pub beside: u64,
    pub unmap_page: u64,
    pub unmap_superpage: u64,
    pub scan_page: u64,
    /// Writing a page to swap, or reading one from swap or a file.
    pub write_page: u64,
    pub read_page: u64,
    pub system_call: u64,
    /// Zeroing runs of 1 to 512 pages, in one call per run.
    zero_runs: Vec<u64>,
}

/// Cache lines that faults of all threads write: the address space's lock, taken and released, and its counters
/// (inferred; the issue of fault scaling has the model).
const LINES_PER_FAULT: f64 = 2.0;

/// Cache misses per page of a reservation when its pages are prepared together, and again when all are freed. FreeBSD
/// keeps a structure, a place in the object and a place on a queue for each base page, even if mapped as part of a
/// superpage. Linux has one structure for the whole. (inferred) One miss is for the page's own structure, the other for
/// its neighbour on the queue. 512 pages prepared and freed take 123 us on the machine of ATC 2020, and 194 us with
/// zeroing; docs/sources/policies.md 2.4 derives 208 us from slide 24.
const RESERVED_PAGE_MISSES: f64 = 2.0;

/// Reading or writing a base page on a disk or SSD. The SSD of the ATC'20 machine is not known; an NVMe drive of its
/// time takes about 80 us (inferred).
const DISK_MICROSECONDS: f64 = 80.0;

impl Prices {
    /// Computes the prices. The largest superpages have 2^`group` regions.
    pub(crate) fn new(machine: &Machine, zeroing: Zeroing, is_ideal: bool, group: u32) -> Self {
        let cycles =
            |nanoseconds: f64| (nanoseconds * f64::from(machine.mhz) / 1000.0).round() as u64;
        let costs = &machine.costs;
        let base = machine.base_page.bytes();
        let zero_by = |non_temporal: bool, pages: u64| {
            let stores = if non_temporal { Stores::NonTemporal } else { Stores::Temporal };
            let size = ByteSize(base * pages);
            cycles(costs.zero.time(stores, ByteSize(zeroing.bulk.bytes().min(size.bytes())), size))
        };
        let zero = |pages| zero_by(zeroing.non_temporal, pages);
        // A single page is zeroed through the caches under every design, because the program is about to use it.
        let zero_page = cycles(costs.zero.time(Stores::Temporal, ByteSize(base), ByteSize(base)));
        Self {
            fault: cycles(costs.fault_base),
            superpage_fault: cycles((costs.fault_superpage - costs.fault_base).max(0.0)),
            map_page: cycles(costs.fault_around_page),
            zero_page,
            zero_large: zero(SLOTS.into()),
            zero_larger: zero(u64::from(SLOTS) << group),
            zero_ahead: zero_by(zeroing.ahead_non_temporal.unwrap_or(false), SLOTS.into()),
            copy_page: cycles(costs.copy_page),
            migrate_page: cycles(costs.migrate_page),
            collapse: cycles(costs.collapse),
            promote: cycles(costs.promote),
            split: cycles(costs.promote),
            reserve: cycles(costs.lock + costs.table_page),
            reserved_page: if is_ideal {
                0
            } else {
                cycles(RESERVED_PAGE_MISSES * costs.scan_page)
            },
            shootdown: cycles(costs.shootdown),
            beside: cycles(LINES_PER_FAULT * costs.line_transfer),
            unmap_page: cycles(costs.unmap_page),
            unmap_superpage: cycles(costs.unmap_superpage),
            scan_page: cycles(costs.scan_page),
            write_page: cycles(DISK_MICROSECONDS * 1000.0),
            read_page: cycles(DISK_MICROSECONDS * 1000.0),
            system_call: cycles(costs.system_call),
            zero_runs: (0..=SLOTS.into())
                .map(|pages| if pages == 0 { 0 } else { zero(pages) })
                .collect(),
        }
    }

    /// Returns the cost of zeroing `pages` contiguous pages with the design's method, in cycles.
    pub(crate) fn zero_run(&self, pages: u64) -> u64 {
        self.zero_runs[pages as usize]
    }
}

// Observations of a run besides its counters: timeline, phases, latencies, memory peak.

#[derive(Debug)]
pub(crate) struct Observed {
    /// Start time of the program.
    began: u64,
    noted: Observations,
    /// Sampling interval of the timeline, in cycles.
    interval: u64,
    /// Time of the next sample; `u64::MAX` until the program begins.
    next_moment: u64,
    /// Whether memory reached its peak in the current block.
    peaked: bool,
    request: Option<u64>,
    /// The current phase: name, and time, ledger and accesses at its start.
    phase: Option<(String, u64, CycleCounts, u64)>,
}

/// Observations of a run.
#[derive(Debug, Default)]
pub struct Observations {
    /// Cycles from the program's start to its end.
    pub wall_cycles: u64,
    /// Memory over time.
    pub timeline: Vec<Moment>,
    /// The program's phases, in order.
    pub phases: Vec<Phase>,
    /// Request latencies, in cycles.
    pub latencies: Vec<u64>,
}

/// Maximum number of samples (moments) in a time line. At the limit every second sample is dropped and the interval is
/// doubled.
const MOMENTS: usize = 512;
const INITIAL_INTERVAL_MICROSECONDS: u64 = 1000;

impl Observed {
    pub(crate) fn new(clock: &Clock) -> Self {
        Self {
            began: 0,
            noted: Observations::default(),
            interval: clock.of_microseconds(INITIAL_INTERVAL_MICROSECONDS),
            next_moment: u64::MAX,
            peaked: false,
            request: None,
            phase: None,
        }
    }

    pub(crate) fn begin(&mut self, now: u64) {
        (self.began, self.next_moment) = (now, now);
    }

    pub(crate) fn began(&self) -> u64 {
        self.began
    }

    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.next_moment
    }

    pub(crate) fn note(&mut self, moment: Moment, now: u64) {
        self.noted.timeline.push(moment);
        if self.noted.timeline.len() >= MOMENTS {
            let mut at = 0;
            self.noted.timeline.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.interval *= 2;
        }
        self.next_moment = now + self.interval;
    }

    #[inline]
    pub(crate) fn peak(&mut self) {
        self.peaked = true;
    }

    /// Returns whether a peak was recorded since the last call.
    pub(crate) fn take_peak(&mut self) -> bool {
        std::mem::take(&mut self.peaked)
    }

    pub(crate) fn begin_request(&mut self, now: u64) {
        self.request = Some(now);
    }

    pub(crate) fn end_request(&mut self, now: u64) {
        if let Some(began) = self.request.take() {
            self.noted.latencies.push(now - began);
        }
    }

    /// Starts a phase; ends the previous one.
    pub(crate) fn begin_phase(&mut self, name: &str, clock: &Clock, accesses: u64) {
        self.end_phase(clock, accesses);
        self.phase = Some((name.to_string(), clock.now(), *clock.ledger(), accesses));
    }

    pub(crate) fn end_phase(&mut self, clock: &Clock, accesses: u64) {
        let Some((name, began, ledger, before)) = self.phase.take() else { return };
        self.noted.phases.push(Phase {
            name,
            wall_cycles: clock.now() - began,
            ledger: clock.ledger().since(&ledger),
            accesses: accesses - before,
        });
    }

    pub(crate) fn take(&mut self, now: u64) -> Observations {
        Observations { wall_cycles: now - self.began, ..std::mem::take(&mut self.noted) }
    }
}
