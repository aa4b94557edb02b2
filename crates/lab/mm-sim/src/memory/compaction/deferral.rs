//! How long compaction of a zone is left alone after it failed (Linux' `compact_defer_shift`).

/// The counters of a zone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Deferral {
    /// Attempts since the last failure that were considered.
    considered: u32,
    /// 2^shift attempts must be considered before one is made.
    shift: u8,
    /// The smallest order that failed; smaller ones are not deferred.
    failed: u8,
}

impl Deferral {
    /// Whether this attempt is to be skipped. It counts as considered (`compaction_deferred`).
    pub(super) fn defers(&mut self, order: u8, most: u8) -> bool {
        if order < self.failed {
            return false;
        }
        let limit = 1 << self.shift.min(most);
        self.considered += 1;
        if self.considered >= limit {
            self.considered = limit;
            return false;
        }
        true
    }

    /// A run that went through its zone did not help (`defer_compaction`).
    pub(super) fn failed(&mut self, order: u8, most: u8) {
        self.considered = 0;
        self.shift = (self.shift + 1).min(most);
        self.failed = self.failed.min(order);
    }

    /// A run ended well, or even the allocation did (`compaction_defer_reset`).
    pub(super) fn reset(&mut self, order: u8, allocated: bool) {
        if allocated {
            self.considered = 0;
            self.shift = 0;
        }
        if order >= self.failed {
            self.failed = order + 1;
        }
    }

    /// Whether this attempt follows the longest deferral: what is known about pageblocks is old by now
    /// (`compaction_restarting`).
    pub(super) fn restarts(&self, order: u8, most: u8) -> bool {
        order >= self.failed && self.shift >= most && self.considered >= 1 << self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts that are skipped between two runs, when every run fails.
    #[test]
    fn doubles_up_to_64_attempts() {
        let mut deferral = Deferral::default();
        let skipped: Vec<u32> = (0..9)
            .map(|_| {
                let skipped = (0..).take_while(|_| deferral.defers(9, 6)).count();
                deferral.failed(9, 6);
                skipped as u32
            })
            .collect();
        // 2^k attempts are considered, and the last of them is made.
        assert_eq!(skipped, [0, 1, 3, 7, 15, 31, 63, 63, 63]);
        assert!(!deferral.restarts(9, 6));
        while deferral.defers(9, 6) {}
        assert!(deferral.restarts(9, 6));
    }

    #[test]
    fn smaller_orders_than_the_failed_one_are_tried() {
        let mut deferral = Deferral::default();
        deferral.reset(9, false);
        assert!(!deferral.defers(9, 6));
        deferral.failed(9, 6);
        assert!(!deferral.defers(8, 6));
        assert!(deferral.defers(9, 6));
        deferral.reset(9, true);
        assert!(!deferral.defers(9, 6));
    }
}
