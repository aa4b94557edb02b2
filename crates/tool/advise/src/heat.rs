//! Where a process's accesses go, by superpage-sized blocks; no prices.

use std::collections::BTreeMap;
use std::time::Duration;

use host::Root;
use services::{AddressSpace, Process};

use crate::advice::AdviceError;
use crate::code::Code;
use crate::peek::Peek;
use crate::sampler::Sampler;
use crate::verdict::Accesses;

/// Sampled accesses of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heat {
    /// Share of the samples, 0 to 1, that are at accesses to a block, by its first address.
    pub blocks: BTreeMap<u64, f64>,
    /// Number of samples; without any the process used no CPU time in user mode.
    pub samples: usize,
}

impl Heat {
    /// Samples the accesses of a process for a time. `goes_on` is asked about every 25 ms.
    ///
    /// # Errors
    /// The process ended, or may not be sampled.
    pub fn sample(
        root: &Root,
        process: &Process,
        time: Duration,
        mut goes_on: impl FnMut(Duration) -> bool,
    ) -> Result<Self, AdviceError> {
        let mut peek = Peek::open(process.pid, root.page_size()).map_err(AdviceError::Code)?;
        let sampled = Sampler::open(root, process)?.run(time, |passed, _| goes_on(passed));
        let space = AddressSpace::read(root, process)?;
        let mut code =
            Code::new(Box::new(move |address, buffer: &mut [u8]| peek.read(address, buffer)));
        let accesses = Accesses::new(&sampled, Vec::new(), &mut code, &space);
        let total = accesses.total();
        let mut blocks = BTreeMap::<u64, f64>::new();
        for seen in &accesses.seen {
            let start = seen.access.address / space.superpage.bytes() * space.superpage.bytes();
            *blocks.entry(start).or_default() += 1.0 / total as f64;
        }
        Ok(Self { blocks, samples: total })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use sys::mem::{Backing, Mapping};

    use super::*;

    /// A thread that writes to one of two mappings: that one is hot.
    #[test]
    fn blocks_that_are_accessed_are_hot() {
        let root = Root::real();
        let own = Process::read(&root, sys::param::own_pid()).unwrap().unwrap();
        let size = 4 << 20;
        let mut cold = Mapping::anonymous(size, Backing::Pages).unwrap();
        let mut hot = Mapping::anonymous(size, Backing::Pages).unwrap();
        cold.bytes_mut().fill(1);
        let (from, stop) = (hot.address(), AtomicBool::new(false));
        let of = |heat: &Heat, from: u64| {
            let inside = heat.blocks.range(from / (2 << 20) * (2 << 20)..from + size as u64);
            inside.map(|(_, share)| share).sum::<f64>()
        };
        let heat = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut at = 0usize;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        at = (at * 5 + 4099) % size;
                        hot.bytes_mut()[at] = hot.bytes_mut()[at].wrapping_add(1);
                    }
                }
            });
            // Other tests run in this process: until the thread has its part of the samples.
            let mut heat = Heat::sample(&root, &own, Duration::from_secs(1), |_| true);
            for _ in 0..20 {
                match &heat {
                    Ok(found) if of(found, from) <= 0.3 => {}
                    _ => break,
                }
                heat = Heat::sample(&root, &own, Duration::from_secs(1), |_| true);
            }
            stop.store(true, Ordering::Relaxed);
            heat
        });
        let heat = match heat {
            Ok(heat) => heat,
            Err(AdviceError::Sample(error)) => {
                testkit::skipped!("processes cannot be sampled here: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(heat.samples > 0);
        assert!(of(&heat, from) > 0.3 && of(&heat, cold.address()) < 0.1, "{heat:?}");
    }
}
