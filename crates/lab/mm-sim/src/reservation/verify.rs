//! The table's invariants, checked from scratch.

use crate::memory::Frame;

use super::{Flags, ReservationId, Reservations};

impl Reservations {
    /// Compares everything that is kept twice: counts, queue membership and order, both indexes, the slab. Slow; for
    /// tests and for debug builds at coarse points.
    ///
    /// # Errors
    /// What is wrong with the table.
    pub fn verify(&self) -> Result<(), String> {
        let (mut live, mut clear, mut queued) = (0, 0, 0);
        for (at, record) in self.records.iter().enumerate().skip(usize::from(self.queues.count)) {
            if !record.flags.has(Flags::LIVE) {
                continue;
            }
            let name = || format!("reservation of page {} at frame {}", record.page, record.base);
            let maps = self.maps(ReservationId::new(at as u32)).iter().flatten();
            let ones: u32 = maps.map(|word| word.count_ones()).sum();
            if ones != record.count || record.count > record.capacity() {
                return Err(format!("{}: {ones} bits, count {}", name(), record.count));
            }
            let partly = record.count > 0 && record.count < record.capacity();
            if record.flags.has(Flags::QUEUED) != partly {
                return Err(format!("{}: wrongly on or off the queue", name()));
            }
            if self.at(Frame(record.base)).map(|id| id.at()) != Some(at) {
                return Err(format!("{}: not found by its frame", name()));
            }
            let found = self.find(record.page).map(|id| id.at());
            if !record.flags.has(Flags::DISPLACED) && found != Some(at) {
                return Err(format!("{}: not found by its page", name()));
            }
            live += 1;
            clear += u64::from(record.capacity() - record.count);
            queued += u32::from(partly);
        }
        if (live, clear) != (self.live, self.clear_frames) {
            let (kept, frames) = (self.live, self.clear_frames);
            return Err(format!("{live} live with {clear} clear frames, kept {kept} and {frames}"));
        }
        let mut seen = 0;
        for queue in 0..self.queues.count {
            let (mut at, mut length) = (None, 0);
            while let Some(id) = self.newer(queue, at) {
                let ordered = at.is_none_or(|at| {
                    self.last_change(at) / self.tick <= self.last_change(id) / self.tick
                });
                // Splitting puts old parts at the tail.
                if !ordered && self.obtainable.is_none() {
                    return Err(format!("queue {queue} is not in the order of changes"));
                }
                (at, length) = (Some(id), length + 1);
            }
            if length != self.partly_populated(queue) {
                return Err(format!("queue {queue} holds {length}, kept another count"));
            }
            seen += length;
        }
        if seen != queued {
            return Err(format!("{seen} on the queues, {queued} partly populated"));
        }
        Ok(())
    }
}
