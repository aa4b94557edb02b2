//! The gain of several processes together.
//!
//! A gain of 10 % saves 1 - 1/1.1 of a process's CPU time. Saved CPU time adds up over processes, gains do not: so the
//! saved shares are averaged, weighted by CPU time. The bounds are averaged too, because the error of the model, which is
//! most of an interval, has the same sign for all processes. See docs/decisions/advise.md#8.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use services::{Naming, Process};
use units::{ByteSize, PageSize};

use crate::advice::{Advice, Contiguity};
use crate::verdict::{Range, Verdict};

/// Least share of the CPU time whose gain must be known for the gain of all.
const LEAST_KNOWN: f64 = 0.5;

/// The saved share of CPU time of a gain.
pub fn saved(gain: f64) -> f64 {
    1.0 - 1.0 / (1.0 + gain)
}

/// The gain of a saved share of CPU time.
pub fn gain(saved: f64) -> f64 {
    1.0 / (1.0 - saved) - 1.0
}

/// CPU time of processes, and what superpages would save of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Sum {
    /// CPUs used by processes whose gain is known.
    pub known: f64,
    /// CPUs used by processes whose gain is unknown.
    pub unknown: f64,
    /// Saved CPUs: lower bound, best estimate, upper bound.
    pub saved: [f64; 3],
}

impl Sum {
    /// Adds a process that uses this many CPUs.
    pub fn add(&mut self, verdict: &Verdict, cpus: f64) {
        match verdict.range() {
            None => self.unknown += cpus,
            Some(range) => {
                self.known += cpus;
                for (sum, gain) in self.saved.iter_mut().zip([range.low, range.mid, range.high]) {
                    *sum += cpus * saved(gain);
                }
            }
        }
    }

    /// The gain of the processes whose gain is known; `None`: they use less than half of the CPU time.
    pub fn range(&self) -> Option<Range> {
        let is_known = self.known > 0.0 && self.known >= LEAST_KNOWN * (self.known + self.unknown);
        let [low, mid, high] = self.saved.map(|saved| gain(saved / self.known));
        is_known.then_some(Range { low, mid, high })
    }

    /// Share of the CPU time whose gain is known; `None`: no CPU time.
    pub fn known_share(&self) -> Option<f64> {
        let all = self.known + self.unknown;
        (all > 0.0).then(|| self.known / all)
    }
}

/// Memory, by what superpages would change about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    /// Bytes that superpages could hold and do not.
    pub on_base_pages: ByteSize,
    /// Bytes on superpages.
    pub on_superpages: ByteSize,
    /// Bytes that superpages would add.
    pub extra_bytes: ByteSize,
}

impl Footprint {
    fn each(self, other: Self, of: fn(u64, u64) -> u64) -> Self {
        let of = |a: ByteSize, b: ByteSize| ByteSize(of(a.bytes(), b.bytes()));
        Self {
            on_base_pages: of(self.on_base_pages, other.on_base_pages),
            on_superpages: of(self.on_superpages, other.on_superpages),
            extra_bytes: of(self.extra_bytes, other.extra_bytes),
        }
    }

    /// The sum of two.
    pub fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn resident(self) -> u64 {
        self.on_base_pages.bytes().saturating_add(self.on_superpages.bytes())
    }
}

/// Memory of several processes. Shared memory counts once: as the process sees it that has most of it resident. So it is a
/// lower bound if processes map different shared memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Together {
    private: Footprint,
    shared: Footprint,
}

impl Together {
    /// Adds a process with `all` memory, of which `shared` is shared memory.
    pub fn add(&mut self, all: Footprint, shared: Footprint) {
        self.private = self.private.plus(all.each(shared, u64::saturating_sub));
        if shared.resident() > self.shared.resident() {
            self.shared = shared;
        }
    }

    /// The memory of all.
    pub fn all(&self) -> Footprint {
        self.private.plus(self.shared)
    }
}

/// The processes of one service on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// The service's name: a named container, the systemd service, or the program.
    pub service: String,
    /// Process ids, the most CPU time first.
    pub pids: Vec<units::Pid>,
    /// CPUs that the processes use.
    pub cpus: f64,
    /// Share of their CPU time that belongs to processes whose gain is known; `None`: no CPU time.
    pub known_share: Option<f64>,
    /// The gain of the processes whose gain is known, weighted by CPU time; `None`: they use less than half of the CPU
    /// time.
    pub gain: Option<Range>,
    /// Its memory; shared memory counts once.
    #[serde(flatten)]
    pub memory: Footprint,
    /// Free memory in blocks of a superpage; `None`: unknown.
    pub contiguity: Option<Contiguity>,
    /// The process whose remedies help most: the one with the most saved CPU time; `None`: no gain.
    pub remedies_of: Option<units::Pid>,
}

/// Groups advice by service, the most saved CPU time first. `superpage` is the machine's superpage size.
pub fn by_service(advice: &[Advice], superpage: Option<PageSize>) -> Vec<Group> {
    let mut services: BTreeMap<String, Vec<&Advice>> = BTreeMap::new();
    for one in advice {
        services.entry(Naming::Service.name(&one.process)).or_default().push(one);
    }
    let mut groups: Vec<(f64, Group)> =
        services.into_iter().map(|(service, all)| Group::new(service, all, superpage)).collect();
    groups.sort_by(|a, b| b.0.total_cmp(&a.0));
    groups.into_iter().map(|(_, group)| group).collect()
}

impl Group {
    /// The group with the CPUs that superpages would save.
    fn new(service: String, mut all: Vec<&Advice>, superpage: Option<PageSize>) -> (f64, Self) {
        all.sort_by(|a, b| b.look.cpus().total_cmp(&a.look.cpus()));
        let mut sum = Sum::default();
        all.iter().for_each(|one| sum.add(&one.verdict, one.look.cpus()));
        let mut memory = Together::default();
        all.iter().for_each(|one| memory.add(one.footprint(), one.shared));
        let memory = memory.all();
        let needed = memory.on_base_pages.bytes().saturating_add(memory.extra_bytes.bytes());
        let free = all.iter().map(|one| one.contiguity.map(|found| found.free)).min().flatten();
        let contiguity = free.zip(superpage).map(|(free, superpage)| Contiguity {
            needed: needed.div_ceil(superpage.bytes()),
            free,
        });
        let saves = |one: &Advice| {
            one.verdict.range().map_or(0.0, |range| saved(range.mid) * one.look.cpus())
        };
        let gain = sum.range();
        let best = all.iter().filter(|one| !one.remedies.is_empty());
        let best = best.max_by(|a, b| saves(a).total_cmp(&saves(b)));
        let group = Self {
            service,
            pids: all.iter().map(|one| one.process.pid).collect(),
            cpus: sum.known + sum.unknown,
            known_share: sum.known_share(),
            gain,
            memory,
            contiguity,
            remedies_of: best.filter(|_| gain.is_some()).map(|one| one.process.pid),
        };
        (sum.saved[1], group)
    }
}

/// A process that could not be looked at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failed {
    /// The process.
    pub process: Process,
    /// The reason as text.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Why;

    fn range(low: f64, mid: f64, high: f64) -> Verdict {
        Verdict::new(Range { low, mid, high })
    }

    #[test]
    fn saved_time_adds_up_by_cpu_time() {
        let mut sum = Sum::default();
        // One CPU at +100 % becomes half a CPU; three stay as they are.
        sum.add(&range(1.0, 1.0, 1.0), 1.0);
        sum.add(&range(-0.2, 0.0, 0.25), 3.0);
        let found = sum.range().unwrap();
        assert!((found.mid - (4.0 / 3.5 - 1.0)).abs() < 1e-12, "{found:?}");
        // 3 CPUs at -20 % become 3.75, at +25 % 2.4.
        assert!((found.low - (4.0 / 4.25 - 1.0)).abs() < 1e-12, "{found:?}");
        assert!((found.high - (4.0 / 2.9 - 1.0)).abs() < 1e-12, "{found:?}");
        assert_eq!(sum.known_share(), Some(1.0));
    }

    #[test]
    fn a_gain_of_less_than_half_of_the_time_is_no_gain_of_all() {
        let mut sum = Sum::default();
        assert_eq!((sum.range(), sum.known_share()), (None, None));
        sum.add(&range(0.1, 0.2, 0.3), 1.0);
        sum.add(&Verdict::Unknown(Why::Lost), 0.5);
        assert!((sum.range().unwrap().mid - 0.2).abs() < 1e-12);
        sum.add(&Verdict::Unknown(Why::FewSamples), 0.6);
        assert_eq!(sum.range(), None);
    }

    #[test]
    fn shared_memory_counts_once_and_private_memory_for_each() {
        let footprint = |base, huge, extra| Footprint {
            on_base_pages: ByteSize(base),
            on_superpages: ByteSize(huge),
            extra_bytes: ByteSize(extra),
        };
        let mut together = Together::default();
        // Two backends with 10 and 20 of their own see 300 and 200 of one segment.
        together.add(footprint(310, 1, 5), footprint(300, 0, 4));
        together.add(footprint(220, 0, 107), footprint(200, 0, 100));
        assert_eq!(together.all(), footprint(330, 1, 12));
    }

    #[test]
    fn gains_and_saved_shares_are_inverse() {
        for share in [-0.5, 0.0, 0.1, 0.9] {
            assert!((saved(gain(share)) - share).abs() < 1e-12);
        }
        assert!((saved(1.0) - 0.5).abs() < 1e-12);
    }
}
