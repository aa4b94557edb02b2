//! Which CPUs are the service's and which the load's.

use host::Root;
use serde::{Deserialize, Serialize};

/// Below so many CPUs they are shared: a service with one CPU is another one than with several.
const MIN_CPUS: usize = 4;

/// Disjoint sets of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// The service's.
    pub service: Vec<usize>,
    /// Those of the phases.
    pub load: Vec<usize>,
}

impl Cpus {
    /// Half of the CPUs that we may run on for each, the service's half the larger one; `None` of fewer than four.
    pub fn from_root(root: &Root) -> Option<Self> {
        let allowed = sys::affinity::allowed().ok()?;
        Self::divide(&allowed, |cpu| {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            let siblings = root.read(&path).unwrap_or_default();
            let first =
                siblings.trim().split([',', '-']).next().and_then(|first| first.parse().ok());
            first.unwrap_or(cpu)
        })
    }

    /// The threads of a core, those with one `core`, stay together where there are several cores. The load gets the
    /// first ones, which take the machine's interrupts.
    fn divide(allowed: &[usize], core: impl Fn(usize) -> usize) -> Option<Self> {
        if allowed.len() < MIN_CPUS {
            return None;
        }
        let mut sorted: Vec<(usize, usize)> =
            allowed.iter().map(|cpu| (core(*cpu), *cpu)).collect();
        sorted.sort_unstable();
        let half = allowed.len() / 2;
        // A core that lies across the middle is the service's.
        let middle =
            sorted.iter().position(|(core, _)| *core == sorted[half].0).filter(|at| *at > 0);
        let (load, service) = sorted.split_at(middle.unwrap_or(half));
        let ascending = |cpus: &[(usize, usize)]| {
            let mut cpus: Vec<usize> = cpus.iter().map(|(_, cpu)| *cpu).collect();
            cpus.sort_unstable();
            cpus
        };
        Some(Self { service: ascending(service), load: ascending(load) })
    }
}

/// `0-3,8`.
pub(super) fn ranges(cpus: &[usize]) -> String {
    let mut text = String::new();
    let runs = cpus.chunk_by(|before, after| before + 1 == *after);
    for run in runs {
        let separator = if text.is_empty() { "" } else { "," };
        text += &match run {
            [one] => format!("{separator}{one}"),
            [first, .., last] => format!("{separator}{first}-{last}"),
            [] => unreachable!("a run has a member"),
        };
    }
    text
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "service on CPUs {}, load on CPUs {}", ranges(&self.service), ranges(&self.load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divided(allowed: &[usize], core: impl Fn(usize) -> usize) -> Option<String> {
        Cpus::divide(allowed, core).map(|cpus| cpus.to_string())
    }

    #[test]
    fn halves_are_apart_and_keep_cores_whole() {
        let own = |cpu| cpu;
        let said = |text: &str| Some(text.to_string());
        assert_eq!(divided(&[0, 1, 2], own), None);
        assert_eq!(divided(&[0, 1, 2, 3], own), said("service on CPUs 2-3, load on CPUs 0-1"));
        assert_eq!(
            divided(&[2, 3, 5, 9, 10], own),
            said("service on CPUs 5,9-10, load on CPUs 2-3")
        );
        // Siblings n and n + 4, and neighbours.
        let far = divided(&[0, 1, 2, 3, 4, 5, 6, 7], |cpu| cpu % 4);
        assert_eq!(far, said("service on CPUs 2-3,6-7, load on CPUs 0-1,4-5"));
        let near = divided(&[0, 1, 2, 3, 4, 5], |cpu| cpu / 2);
        assert_eq!(near, said("service on CPUs 2-5, load on CPUs 0-1"));
        assert_eq!(divided(&[0, 1, 2, 3], |_| 0), said("service on CPUs 2-3, load on CPUs 0-1"));
    }
}
