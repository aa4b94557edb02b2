//! Decides when to look again where programs take faults, and from which CPU.
//!
//! A kernel that implements a design with thresholds makes superpages of partly filled extents inside a fault.
//! Outside the kernel, the closest to that is a thread on the CPU of the fault: it runs at once, and the program
//! takes no fault there meanwhile. So none of the program's pages is on that CPU's list of pages that are not on
//! the LRU yet, for which the kernel refuses with EAGAIN. See docs/decisions/live.md#9.

use std::time::Duration;

/// Pause after a look, in multiples of its CPU time: the thread uses 10 % of a CPU while a program grows. See
/// docs/decisions/live.md#7.
const PAUSE: u32 = 9;
/// Pause without samples, in multiples of the CPU time that the look before and the switching take: the thread uses 1 %
/// of a CPU.
pub(crate) const LONG_PAUSE: u32 = 99;
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(2);
/// Number of consecutive looks that found nothing to make, after which the thread pauses again.
const MAX_FRUITLESS: u32 = 8;
/// Time during which faults of other programs do not end a wait; doubled while only those come.
const IDLE: Duration = Duration::from_millis(1);
/// The same if no CPU is idle.
const BUSY_IDLE: Duration = Duration::from_millis(10);
/// Maximum of that time.
const MAX_IDLE: Duration = Duration::from_millis(8);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// No program grew lately.
    Idle,
    /// A program grows: pause this long.
    Pause(Duration),
    /// The same, without samples meanwhile.
    Unsampled(Duration),
    /// A program grows, and each look finds something to make: wait for the next faults.
    Faults,
}

#[derive(Debug)]
pub(crate) struct Pace {
    pub rest: Rest,
    /// Whether the design makes superpages that save faults.
    pub saves_faults: bool,
    /// Whether the executor rested since the last look.
    pub has_rested: bool,
    fruitless: u32,
    /// While [`Rest::Idle`]: time without samples.
    idle: Duration,
    /// CPUs that the executor may run on.
    allowed: Vec<usize>,
    /// The CPU that the executor is pinned to.
    cpu: Option<usize>,
}

impl Pace {
    pub(crate) fn new(saves_faults: bool) -> Self {
        let allowed = sys::affinity::allowed().unwrap_or_default();
        Self {
            rest: Rest::Idle,
            saves_faults,
            has_rested: true,
            fruitless: MAX_FRUITLESS,
            idle: IDLE,
            allowed,
            cpu: None,
        }
    }

    /// Returns how long an idle executor takes no samples. `is_busy`: no CPU is idle.
    pub(crate) fn idle(&self, is_busy: bool) -> Duration {
        if is_busy { self.idle.max(BUSY_IDLE) } else { self.idle }
    }

    /// Notes whether only other programs took the faults that were sampled.
    pub(crate) fn sampled(&mut self, only_others: bool) {
        self.idle = if only_others { (self.idle * 2).min(MAX_IDLE) } else { IDLE };
    }

    pub(crate) fn follows_a_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Updates the pace after a look. `cpu`: of the last sample of a served program. `is_wanted`: whether there is
    /// something to make. `looked`: CPU time of the look. `is_throttled`: looks take 1 % of a CPU, because
    /// none is idle, or because what they find cannot be made soon. Returns whether the samples are meaningful.
    pub(crate) fn followed(
        &mut self,
        cpu: Option<usize>,
        is_wanted: bool,
        looked: Duration,
        is_throttled: bool,
    ) -> bool {
        let has_rested = std::mem::take(&mut self.has_rested);
        if cpu.is_none() && !has_rested {
            return false; // superpages were made since, so the program hardly ran
        }
        self.fruitless = if is_wanted { 0 } else { self.fruitless.saturating_add(1) };
        let follows = self.saves_faults && self.fruitless < MAX_FRUITLESS;
        self.rest = match (cpu, self.rest) {
            // Without samples, other programs took the faults, or an earlier look examined the faults that ended the
            // wait.
            (None, Rest::Faults) | (Some(_), _) if follows => Rest::Faults,
            (Some(_), _) | (None, Rest::Faults) => {
                if is_throttled {
                    Rest::Unsampled(looked * LONG_PAUSE)
                } else {
                    Rest::Pause(looked * PAUSE)
                }
            }
            (None, Rest::Pause(pause)) if pause < MAX_PAUSE => Rest::Pause(pause * 2),
            (None, _) => Rest::Idle,
        };
        // Move to a CPU only to make superpages there: looks alone would take time from the program's own CPU.
        let cpu = cpu.or(self.cpu).filter(|_| self.rest == Rest::Faults);
        if cpu != self.cpu {
            // A cpuset may forbid this, or the CPU went offline: superpages are then made from another CPU.
            let moved = match cpu {
                Some(cpu) => sys::affinity::pin(cpu),
                None => sys::affinity::set(&self.allowed),
            };
            self.cpu = cpu.filter(|_| moved.is_ok());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_waited_for_while_they_lead_to_superpages() {
        // Use a separate thread, because the pace changes its CPU affinity.
        let rests = std::thread::spawn(|| {
            let cpu = sys::affinity::allowed().unwrap()[0];
            let look = Duration::from_micros(10);
            let mut pace = Pace::new(true);
            let mut rests = vec![pace.rest];
            let mut followed = |cpu, is_wanted| {
                pace.has_rested = true;
                pace.followed(cpu, is_wanted, look, false);
                (pace.rest, sys::affinity::allowed().unwrap().len() == 1)
            };
            let before = followed(Some(cpu), false);
            let during = followed(Some(cpu), true);
            let fruitless: Vec<_> =
                (0..MAX_FRUITLESS).map(|_| followed(Some(cpu), false)).collect();
            let after: Vec<_> = (0..12).map(|_| followed(None, false)).collect();
            rests.push(after[11].0);
            (rests, before, during, fruitless, after)
        });
        let (rests, before, during, fruitless, after) = rests.join().unwrap();
        let pause = Rest::Pause(Duration::from_micros(90));
        assert_eq!(rests, [Rest::Idle, Rest::Idle]);
        let cpus = sys::affinity::allowed().unwrap().len();
        assert_eq!((before, during), ((pause, cpus == 1), (Rest::Faults, true)));
        assert_eq!(fruitless[MAX_FRUITLESS as usize - 2].0, Rest::Faults);
        assert_eq!(fruitless[MAX_FRUITLESS as usize - 1].0, pause);
        assert_eq!(after[0].0, Rest::Pause(Duration::from_micros(180)));
        assert_eq!(after[0].1, cpus == 1, "it may run anywhere again");
    }

    #[test]
    fn faults_of_others_are_sampled_ever_less() {
        let mut pace = Pace::new(true);
        let mut idle = |only_others| {
            pace.sampled(only_others);
            (pace.idle(false).as_millis(), pace.idle(true).as_millis())
        };
        assert_eq!([(); 4].map(|()| idle(true)), [(2, 10), (4, 10), (8, 10), (8, 10)]);
        assert_eq!(idle(false), (1, 10));
    }

    #[test]
    fn designs_that_save_no_faults_follow_nobody() {
        let mut pace = Pace::new(false);
        pace.followed(Some(0), true, Duration::from_micros(10), false);
        assert_eq!(pace.rest, Rest::Pause(Duration::from_micros(90)));
        pace.followed(Some(0), true, Duration::from_micros(10), true);
        assert_eq!(pace.rest, Rest::Unsampled(Duration::from_micros(990)));
        pace.has_rested = true;
        pace.followed(None, false, Duration::ZERO, true);
        assert_eq!(pace.rest, Rest::Idle, "no fault came after the pause");
        assert_eq!(pace.cpu, None);
    }
}
