//! How long to rest where others need the CPUs. Used by threads that work ahead of a program.

/// Looks at the CPUs, of which each is one moment: who ran then may have run for that moment only, or runs
/// all the time.
///
///     idle: forgets a quarter of a busy one
///     busy: rests 0.2 ms, 0.4, 0.8 ... 40 ms, the longer the more busy looks are not forgotten
///
/// So one look in ten that is busy costs 0.2 ms each time (a fixed rest of 10 ms took 0.30 of the 0.47 s in
/// which 4 GiB were filled, measured), and one in two, of a server and its client that keep two CPUs busy, the
/// longest rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rests {
    /// Quarters of busy looks that are not forgotten.
    busy: u32,
}

impl Rests {
    /// Idle looks that make up for a busy one.
    const MAKE_UP: u32 = 4;
    /// The first rest, and the longest, in microseconds.
    const FIRST_US: u64 = 200;
    const LONGEST_US: u64 = 40_000;
    /// So many doublings are beyond the longest.
    const DOUBLINGS: u32 = 9;

    /// No look yet.
    pub const fn new() -> Self {
        Self { busy: 0 }
    }

    /// A look: whether there was a CPU.
    pub const fn looked(&mut self, has_cpu: bool) {
        self.busy = match has_cpu {
            true => self.busy.saturating_sub(1),
            false if self.busy < Self::DOUBLINGS * Self::MAKE_UP => self.busy + Self::MAKE_UP,
            false => self.busy,
        };
    }

    /// How long to rest now that there is none.
    pub const fn rest_us(&self) -> u64 {
        let doublings = self.busy.div_ceil(Self::MAKE_UP).saturating_sub(1);
        let rest = Self::FIRST_US << doublings;
        if rest < Self::LONGEST_US { rest } else { Self::LONGEST_US }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    /// The rests of looks of which every `nth` is busy.
    fn rests(nth: usize) -> Vec<u64> {
        let mut rests = Rests::new();
        let look = |at: usize| {
            let is_busy = at.is_multiple_of(nth);
            rests.looked(!is_busy);
            is_busy.then(|| rests.rest_us())
        };
        (0..1000).filter_map(look).collect()
    }

    #[test]
    fn who_runs_for_moments_is_waited_for_shortly_and_who_runs_on_for_long() {
        assert!(rests(10).iter().all(|&rest| rest == 200));
        assert_eq!(rests(2).last(), Some(&40_000));
        assert_eq!(
            rests(1)[..10],
            [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 40_000, 40_000]
        );
    }
}
