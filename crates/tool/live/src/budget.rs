//! Superpages may cost a program at most 2 % of its CPU time, so that no design is slower than base pages by more than
//! 3 %. See docs/decisions/live.md#12.
//!
//! Credit accrues with the programs' CPU time. A call of MADV_COLLAPSE costs the time that the program may have
//! waited: the whole call if the program ran before, nothing if it slept. Scanning is charged its CPU time, a part of
//! it if a CPU is idle. Saved faults are credited once the pages that filled a superpage are used. Without credit no
//! superpage is requested, and pending extents keep their place. Making superpages ahead of their first touch may go
//! into debt, if the faults that they save take longer than making them.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Pid;

use crate::ahead::MIN_AHEAD;
use crate::extent::PAGES;

/// One nanosecond of credit accrues per this many nanoseconds of the programs' CPU time.
const SHARE: i64 = 50;
/// The same for programs that run for long, which earn the cost of a superpage back.
const SHARE_OF_SERVICES: i64 = 10;
/// Initial credit, in nanoseconds.
const START: i64 = 1_000_000;
/// Maximum credit, in nanoseconds.
const MAX_CREDIT: i64 = 50_000_000;
/// For designs that make superpages ahead: minimum credit for copying while a program grows, in nanoseconds.
const SPARE_TO_GROW: i64 = 10 * START;
/// For the same designs: minimum credit for copying while no program grows, in nanoseconds.
const SPARE: i64 = 2 * START;
/// Maximum debt for making superpages ahead, in nanoseconds.
const DEBT: i64 = 2 * START;
/// Minimum credit, in nanoseconds, to make superpages that save no fault while a program grows: unspent credit soon
/// reaches [`MAX_CREDIT`].
const PLENTY: i64 = MAX_CREDIT / 2;
/// One call raises the estimated cost of a superpage made ahead by at most 1/DEARER, because something else may
/// have delayed the call.
const DEARER: i64 = 4;
/// Minimum window in which a program's share of a CPU is measured.
const WINDOW: Duration = Duration::from_millis(10);
/// Share of a CPU below which a program is asleep, so that a call does not delay it.
const SLEEPS: f64 = 0.02;
/// Initial estimate of the nanoseconds for one superpage.
const EXPECTED: i64 = 700_000;
/// The newest measurement has the weight 1/WEIGHT in the estimate.
const WEIGHT: i64 = 2;

#[derive(Debug)]
struct Program {
    /// CPU time of the program at the start of the window.
    used: Duration,
    /// Time at which the window started.
    since: Duration,
    /// CPU time at the last reading.
    newest: Duration,
    /// Wall time of calls in this window, during which the program may have waited.
    held_up: Duration,
    /// Share of a CPU (0 to 1) in the previous window.
    share: f64,
}

#[derive(Debug)]
pub(crate) struct Budget {
    /// One nanosecond of credit per this many.
    share: i64,
    balance: i64,
    expected: i64,
    /// Number of superpages requested; it limits the number in one call.
    asked: usize,
    programs: BTreeMap<Pid, Program>,
    /// Cost of a page fault here, in nanoseconds; 0: unknown.
    fault: i64,
    /// Whether superpages may be made ahead.
    goes_ahead: bool,
    /// Nanoseconds to make one superpage ahead; 0: unknown.
    ahead: i64,
}

impl Budget {
    /// Creates the budget. `goes_ahead` says whether superpages may be made ahead of their first touch.
    pub(crate) fn new(goes_ahead: bool) -> Self {
        Self {
            share: SHARE,
            balance: START,
            expected: EXPECTED,
            asked: 0,
            programs: BTreeMap::new(),
            fault: 0,
            goes_ahead,
            ahead: 0,
        }
    }

    /// The budget of services under a supervisor: a tenth of their CPU time.
    pub(crate) fn of_services() -> Self {
        Self { share: SHARE_OF_SERVICES, ..Self::new(false) }
    }

    /// Adds a reading of a process's CPU clock, `used`.
    pub(crate) fn ran(&mut self, pid: Pid, used: Duration, now: Duration) {
        let program = self.programs.entry(pid).or_insert(Program {
            used,
            since: now,
            newest: used,
            held_up: Duration::ZERO,
            share: 1.0,
        });
        let more = nanoseconds(used.saturating_sub(program.newest));
        program.newest = used;
        let free = now.saturating_sub(program.since).saturating_sub(program.held_up);
        if free >= WINDOW {
            let ran = used.saturating_sub(program.used);
            program.share = (ran.as_secs_f64() / free.as_secs_f64()).min(1.0);
            (program.used, program.since, program.held_up) = (used, now, Duration::ZERO);
        }
        self.add(more / self.share);
    }

    /// Forgets a process that ended or executed another program.
    pub(crate) fn ended(&mut self, pid: Pid) {
        self.programs.remove(&pid);
    }

    /// Charges a call: its wall time, or its CPU time if no CPU was idle.
    pub(crate) fn made(&mut self, pid: Pid, superpages: usize, took: Duration, cpu: Duration) {
        let took_each = nanoseconds(took) / (superpages.max(1) as i64);
        self.expected += (took_each - self.expected) / WEIGHT;
        self.asked = self.asked.saturating_add(superpages);
        let held_up = (nanoseconds(took) as f64 * self.share(pid)) as i64;
        self.balance -= held_up.max(nanoseconds(cpu));
        if let Some(program) = self.programs.get_mut(&pid) {
            program.held_up += took;
        }
    }

    /// Adjusts the charge of the last call, which made superpages ahead. Credits the time by which the call
    /// exceeded twice the time of the saved faults: the host was backing the memory then, and faults would have
    /// waited as long.
    pub(crate) fn made_ahead(&mut self, pid: Pid, superpages: usize, made: usize, took: Duration) {
        let each = nanoseconds(took) / (superpages.max(1) as i64);
        let excess = (each - 2 * self.fault * i64::from(PAGES)).max(0) * superpages as i64;
        self.add((excess as f64 * self.share(pid)) as i64);
        if made > 0 {
            let each = nanoseconds(took) / made as i64;
            let most = if self.ahead > 0 { self.ahead + self.ahead / DEARER } else { each };
            self.ahead = each.min(most);
        }
    }

    /// Charges the time that a look took from the programs.
    pub(crate) fn looked(&mut self, took: Duration) {
        self.balance -= nanoseconds(took);
    }

    pub(crate) fn learn_fault(&mut self, cost: Duration) {
        self.fault = nanoseconds(cost);
    }

    /// Credits saved faults: filled pages that the program used.
    pub(crate) fn saved(&mut self, faults: u64) {
        self.add(self.fault.saturating_mul(faults as i64));
    }

    /// Takes back credit for filled pages that the program did not use.
    pub(crate) fn not_saved(&mut self, faults: u64) {
        self.balance -= self.fault.saturating_mul(faults as i64);
    }

    /// Returns the maximum number of superpages of a process in one call; 0: wait for credit.
    pub(crate) fn affordable(&self, pid: Pid) -> usize {
        let share = self.share(pid);
        match self.balance {
            _ if share < SLEEPS => usize::MAX,
            ..=0 => 0,
            credit => {
                let each = (self.expected.max(1) as f64 * share).max(1.0);
                ((credit as f64 / each) as usize).min(self.asked).max(1)
            }
        }
    }

    /// Returns the maximum number of superpages of a process in one call ahead of the first touch.
    pub(crate) fn affordable_ahead(&self, pid: Pid) -> usize {
        if self.waits() {
            0
        } else if self.pays_ahead() {
            self.asked.max(MIN_AHEAD)
        } else {
            self.affordable(pid)
        }
    }

    /// Returns whether nothing may be requested: there is no credit, and some program is awake.
    pub(crate) fn waits(&self) -> bool {
        let least = if self.pays_ahead() { -DEBT } else { 0 };
        self.balance <= least && self.is_awake()
    }

    /// Returns whether superpages that are copied must wait for credit.
    pub(crate) fn waits_to_copy(&self, is_growing: bool) -> bool {
        let least = match self.goes_ahead {
            true if is_growing => SPARE_TO_GROW,
            true => SPARE,
            false => 0,
        };
        self.balance <= least && self.is_awake()
    }

    fn is_awake(&self) -> bool {
        self.programs.values().any(|program| program.share >= SLEEPS)
    }

    /// Returns whether the faults that a superpage saves take longer than making it ahead. Returns `true` if only
    /// the time to make it is unknown, `false` if the cost of a fault is.
    fn pays_ahead(&self) -> bool {
        self.goes_ahead && self.ahead < self.fault * i64::from(PAGES)
    }

    pub(crate) fn is_plentiful(&self) -> bool {
        self.balance >= PLENTY
    }

    fn share(&self, pid: Pid) -> f64 {
        self.programs.get(&pid).map_or(1.0, |program| program.share)
    }

    fn add(&mut self, credit: i64) {
        self.balance = self.balance.saturating_add(credit).min(MAX_CREDIT);
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: Pid = Pid(7);

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn us(time: u64) -> Duration {
        Duration::from_micros(time)
    }

    /// Simulates a program that is alone on its CPU and waits `takes` for each superpage. Returns the number of
    /// superpages made, and the time waited.
    fn busy(budget: &mut Budget, lasts: Duration, takes: Duration, saves: u64) -> (u32, Duration) {
        let (mut ran, mut held_up, mut made) = (Duration::ZERO, Duration::ZERO, 0);
        while ran < lasts {
            ran += us(100);
            budget.ran(PID, ran, ran + held_up);
            if budget.affordable(PID) > 0 {
                held_up += takes;
                made += 1;
                budget.made(PID, 1, takes, Duration::ZERO);
                budget.saved(saves);
            }
        }
        (made, held_up)
    }

    #[test]
    fn a_busy_program_waits_for_a_fiftieth_of_its_time_however_long_a_call_takes() {
        for takes in [us(50), us(400), ms(3), ms(15)] {
            let mut budget = Budget::new(false);
            let (made, held_up) = busy(&mut budget, ms(3000), takes, 0);
            // A call may begin with the last credit.
            let most = ms(60) + Duration::from_nanos(START as u64) + takes;
            assert!(held_up <= most && made > 0, "{takes:?}: {made} in {held_up:?}");
            assert!(held_up + takes >= ms(60), "{takes:?}: credit was not used: {held_up:?}");
        }
    }

    /// If waits counted as sleep, calls would cost nothing.
    #[test]
    fn a_program_that_only_waits_for_calls_counts_as_busy() {
        let mut budget = Budget::new(false);
        let (mut now, mut used) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..100 {
            (now, used) = (now + us(200), used + us(200));
            budget.ran(PID, used, now);
            now += ms(5);
            budget.made(PID, 1, ms(5), Duration::ZERO);
        }
        assert!(budget.waits());
        assert_eq!(budget.share(PID), 1.0);
    }

    #[test]
    fn a_program_that_sleeps_waits_for_nothing() {
        let mut budget = Budget::new(false);
        budget.ran(PID, ms(1), ms(0));
        budget.ran(PID, ms(1), ms(20));
        for _ in 0..1000 {
            budget.made(PID, 16, ms(10), Duration::ZERO);
        }
        assert!(!budget.waits());
        // A program that sleeps is not delayed, even if calls delayed it before.
        budget.looked(ms(5));
        assert_eq!((budget.waits(), budget.affordable(PID)), (false, usize::MAX));
        // The program wakes up, so its waits count again.
        budget.ran(PID, ms(21), ms(20) + ms(10_000) + ms(20));
        assert_eq!((budget.waits(), budget.affordable(PID)), (true, 0));
    }

    #[test]
    fn faults_that_were_saved_pay_for_calls() {
        let mut budget = Budget::new(false);
        budget.learn_fault(Duration::from_nanos(1000));
        let without = busy(&mut Budget::new(false), ms(1000), us(500), 448).0;
        let with = busy(&mut budget, ms(1000), us(500), 448).0;
        assert!(with > 5 * without, "{with} and {without}");
        // If a call takes no longer than the faults that it saves, all superpages are made.
        let mut budget = Budget::new(false);
        budget.learn_fault(Duration::from_nanos(1000));
        assert_eq!(busy(&mut budget, ms(1000), us(400), 448).0, 10_000);
        // If the cost of a fault is unknown, the 2 % hold.
        assert_eq!(busy(&mut Budget::new(false), ms(1000), us(500), 0).0, without);
    }

    /// A superpage saves 512 faults of 1 us.
    #[test]
    fn what_pays_for_itself_is_made_ahead_in_debt() {
        let mut budget = Budget::new(true);
        budget.ran(PID, ms(0), ms(0));
        assert_eq!(budget.affordable_ahead(PID), 1, "the first call is for one");
        budget.looked(Duration::from_nanos(START as u64));
        assert!(budget.waits(), "what a fault costs is not known");
        budget.learn_fault(us(1));
        assert_eq!((budget.waits(), budget.affordable_ahead(PID)), (false, MIN_AHEAD));
        for _ in 0..100 {
            budget.made(PID, 4, us(1600), Duration::ZERO);
            budget.made_ahead(PID, 4, 4, us(1600));
            budget.saved(4 * 512);
        }
        assert!(!budget.waits() && budget.is_plentiful());
        // The filled pages were not used: the credit is taken back.
        budget.not_saved(100 * 4 * 512);
        assert_eq!((budget.waits(), budget.affordable_ahead(PID)), (true, 0));
        // A superpage that costs more than it saves needs credit.
        let mut budget = Budget::new(true);
        budget.ran(PID, ms(0), ms(0));
        budget.learn_fault(us(1));
        budget.made(PID, 1, us(900), Duration::ZERO);
        budget.made_ahead(PID, 1, 1, us(900));
        assert!(!budget.waits());
        budget.looked(us(100));
        assert!(budget.waits());
    }

    /// A call ahead costs at most twice the faults that it saves. Its further time is the host's, for memory that the
    /// host had not backed.
    #[test]
    fn the_hosts_time_for_cold_memory_is_not_counted_ahead() {
        let mut budget = Budget::new(true);
        budget.ran(PID, ms(0), ms(0));
        budget.learn_fault(us(1));
        budget.made(PID, 8, ms(60), Duration::ZERO);
        budget.made_ahead(PID, 8, 8, ms(60));
        assert_eq!(budget.balance, START - 8 * 2 * 512_000);
    }

    #[test]
    fn copies_leave_credit_for_what_is_made_ahead() {
        let mut budget = Budget::new(true);
        budget.ran(PID, ms(0), ms(0));
        let waits = |budget: &Budget| (budget.waits_to_copy(true), budget.waits_to_copy(false));
        assert_eq!(waits(&budget), (true, true));
        budget.ran(PID, ms(100), ms(100));
        assert_eq!(waits(&budget), (true, false));
        budget.ran(PID, ms(600), ms(600));
        assert_eq!(waits(&budget), (false, false));
        // A look uses up the credit. When the program sleeps afterwards, nothing waits.
        budget.looked(ms(20));
        assert_eq!(waits(&budget), (true, true));
        budget.ran(PID, ms(600), ms(900));
        assert_eq!(waits(&budget), (false, false));
        assert_eq!(waits(&Budget::new(false)), (false, false));
    }

    #[test]
    fn credit_is_bounded() {
        let mut budget = Budget::new(false);
        budget.ran(PID, ms(0), ms(0));
        assert!(!budget.is_plentiful());
        budget.ran(PID, Duration::from_secs(1000), Duration::from_secs(1000));
        assert!(budget.is_plentiful());
        assert_eq!(budget.affordable(PID), 1, "what a call takes here is unknown");
        budget.asked = 1000;
        let all = budget.affordable(PID) as i64;
        assert_eq!(all, MAX_CREDIT / EXPECTED);
        budget.made(PID, all as usize, Duration::from_nanos(MAX_CREDIT as u64), Duration::ZERO);
        assert!(budget.waits() && budget.affordable(PID) == 0);
        // CPU time of another process adds credit too.
        budget.ran(Pid(8), ms(0), ms(0));
        budget.ran(Pid(8), ms(50), ms(50));
        assert_eq!(budget.affordable(Pid(8)), 1);
    }

    #[test]
    fn looking_on_busy_cpus_counts() {
        let mut budget = Budget::new(false);
        budget.looked(Duration::from_nanos(START as u64));
        assert!(!budget.waits(), "there is no program");
        budget.ran(PID, ms(100), ms(100));
        assert!(budget.waits(), "what it used before it was seen is no credit");
        budget.ran(PID, ms(150), ms(150));
        assert!(!budget.waits());
        // If no CPU is idle, calls cost credit even for a sleeping program.
        budget.ran(PID, ms(150), ms(500));
        budget.made(PID, 1, ms(2), ms(2));
        budget.ran(PID, ms(170), ms(522));
        assert!(budget.waits());
        budget.ended(PID);
        assert!(!budget.waits(), "no program is left");
    }
}
