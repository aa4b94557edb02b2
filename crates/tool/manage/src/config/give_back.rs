//! Shortage of memory, and when it is time to give superpages back.

use host::{MemInfo, Pressure, ReadError, Root};
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::GiveBack;

/// One reading of the machine's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shortage {
    /// Percent of the last 10 s in which some task waited for memory; `None`: the kernel has no PSI.
    pub waiting: Option<f64>,
    /// Memory that programs can get without swapping; `None`: unknown.
    pub available: Option<ByteSize>,
    /// All memory; `None`: unknown.
    pub total: Option<ByteSize>,
}

/// Why superpages are given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Tasks wait for memory.
    Pressure,
    /// Little memory is available.
    FreeMemory,
}

impl Shortage {
    /// Reads the machine's memory. Without PSI, `waiting` is `None`.
    ///
    /// # Errors
    /// `/proc/meminfo` cannot be read.
    pub fn read(root: &Root) -> Result<Self, ReadError> {
        let MemInfo { available, total, .. } = MemInfo::read(root)?;
        let pressure = Pressure::read(root, Pressure::MACHINE).ok();
        let waiting = pressure.map(|pressure| 100.0 * pressure.some.recent);
        Ok(Self { waiting, available, total })
    }

    /// Whether superpages should be given back now. `before` is the previous reading, `earlier` one of some 10 s ago.
    /// Three conditions: the shortage is above its threshold, it has grown since `earlier`, and it does not shrink
    /// already. Without the second, a machine that is always short would lose its superpages over and over; without
    /// the third, those would be split that memory just freed no longer needs.
    pub fn cause(&self, before: &Self, earlier: &Self, give_back: &GiveBack) -> Option<Cause> {
        let is_waiting = matches!(
            (self.waiting, before.waiting, earlier.waiting),
            (Some(now), Some(before), Some(earlier))
                if now >= give_back.pressure && now > earlier && now >= before
        );
        let is_low = || {
            matches!(
                (self.available, self.total, before.available, earlier.available),
                (Some(now), Some(total), Some(before), Some(earlier))
                    if now <= give_back.free_memory.bytes(total) && now < earlier && now <= before
            )
        };
        match is_waiting {
            true => Some(Cause::Pressure),
            false => is_low().then_some(Cause::FreeMemory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Amount;
    use super::*;

    fn at(waiting: Option<f64>, available: u64) -> Shortage {
        let (available, total) = (Some(ByteSize::mib(available)), Some(ByteSize::mib(1000)));
        Shortage { waiting, available, total }
    }

    #[test]
    fn superpages_are_given_back_above_the_threshold_while_the_shortage_grows() {
        let give_back =
            GiveBack { pressure: 5.0, free_memory: Amount::Percent(5.0), ..GiveBack::default() };
        let waiting = |percent: f64| at(Some(percent), 500);
        let free = |mib: u64| at(Some(0.0), mib);
        let without = |mib: u64| at(None, mib);
        for (earlier, before, now, expected) in [
            (waiting(0.0), waiting(4.0), waiting(6.0), Some(Cause::Pressure)),
            (waiting(0.0), waiting(6.0), waiting(6.0), Some(Cause::Pressure)),
            // Below the threshold.
            (waiting(0.0), waiting(2.0), waiting(4.9), None),
            // Short for long, but no more than earlier.
            (waiting(9.0), waiting(9.0), waiting(9.0), None),
            // Falling already.
            (waiting(0.0), waiting(9.0), waiting(8.0), None),
            (free(200), free(60), free(50), Some(Cause::FreeMemory)),
            (without(200), without(60), without(50), Some(Cause::FreeMemory)),
            (free(200), free(60), free(51), None),
            (free(40), free(40), free(40), None),
            (free(200), free(30), free(40), None),
        ] {
            assert_eq!(now.cause(&before, &earlier, &give_back), expected, "{earlier:?} {now:?}");
        }
        let unknown = Shortage { waiting: None, available: None, total: None };
        assert_eq!(unknown.cause(&unknown, &unknown, &give_back), None);
        assert_eq!(free(10).cause(&unknown, &free(200), &give_back), None);
    }

    #[test]
    fn a_machine_without_psi_has_its_memory_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("proc/pressure")).unwrap();
        let root = Root::at(dir.path());
        Shortage::read(&root).unwrap_err();
        let meminfo = "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n";
        std::fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        let without = Shortage::read(&root).unwrap();
        assert_eq!(without.available, Some(ByteSize::mib(1)));
        assert_eq!((without.waiting, without.total), (None, Some(ByteSize::mib(2))));
        let psi = "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\n\
                   full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n";
        std::fs::write(dir.path().join("proc/pressure/memory"), psi).unwrap();
        assert_eq!(Shortage::read(&root).unwrap().waiting, Some(12.5));
    }
}
