//! Load by other programs: the load average before a measurement, and the CPU time that others used during it.

use serde::{Deserialize, Serialize};

use units::Pid;

use crate::{Root, process};

/// What else a machine did during a measurement. `None` means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// CPUs of the machine that are online.
    #[serde(deserialize_with = "units::count")]
    pub cpus: u64,
    /// Load average of the minute before: tasks that ran or waited.
    #[serde(deserialize_with = "units::count")]
    pub load_before: Option<f64>,
    /// Number of CPUs that other programs kept busy during the measurement, on average.
    #[serde(deserialize_with = "units::count")]
    pub others_cpus: Option<f64>,
    /// Share of the machine's CPU time that its hypervisor gave to other guests (steal), 0 to 1.
    #[serde(deserialize_with = "units::proportion")]
    pub stolen: Option<f64>,
}

/// CPUs that others may use before they count: daemons of an idle machine use less.
const QUIET_CPUS: f64 = 0.1;
/// Share of stolen time that counts.
const QUIET_STOLEN: f64 = 0.02;

impl Neighbours {
    /// Says what others did during the runs of a comparison, if it disturbs; `None`: they did little, or nothing is known.
    pub fn line(&self) -> Option<String> {
        let found = self.found("during the runs")?;
        Some(format!("{found}: equal runs differ more than on an idle machine"))
    }

    /// Says what others did `when` it was measured, if it disturbs, without the consequence.
    pub fn found(&self, when: &str) -> Option<String> {
        if !self.disturbed() {
            return None;
        }
        let mut parts = Vec::new();
        if let Some(busy) = self.others_cpus {
            parts.push(format!("other programs used {busy:.1} of {} CPUs {when}", self.cpus));
        }
        if let Some(stolen) = self.stolen.filter(|share| *share > QUIET_STOLEN) {
            parts.push(format!(
                "the hypervisor gave {:.0} % of their time to other guests",
                100.0 * stolen
            ));
        }
        if let Some(load) = self.load_before {
            parts.push(format!("load average {load:.1} before"));
        }
        Some(parts.join("; "))
    }

    /// Whether others used enough CPU time to disturb a measurement.
    pub fn disturbed(&self) -> bool {
        let cpus = self.cpus.max(1) as f64;
        self.others_cpus.is_some_and(|busy| busy > QUIET_CPUS.max(0.05 * cpus))
            || self.stolen.is_some_and(|share| share > QUIET_STOLEN)
    }
}

/// The start of a measurement.
#[derive(Debug, Clone)]
pub struct Before {
    /// Running processes that are measured.
    measured: Vec<Pid>,
    load: Option<f64>,
    cpus: u64,
    at: Option<Times>,
}

/// CPU times since boot, in clock ticks of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Times {
    /// All of them.
    all: u64,
    /// Neither idle nor stolen.
    busy: u64,
    stolen: u64,
    /// Those of this process, of the measured ones, and of the children that they waited for.
    own: u64,
    cpus: u64,
}

impl Before {
    /// Reads the load average and the CPU times, for a measurement on children of this process.
    pub fn read(root: &Root) -> Self {
        Self::read_for(root, &[])
    }

    /// The same for a measurement on running processes. What others did is unknown if one of them ends.
    pub fn read_for(root: &Root, measured: &[Pid]) -> Self {
        let load = root.read("/proc/loadavg").ok();
        let load = load.and_then(|text| text.split_whitespace().next()?.parse().ok());
        let at = Times::read(root, measured);
        Self { measured: measured.to_vec(), load, cpus: at.map_or(0, |at| at.cpus), at }
    }

    /// Says that others load the machine; `None`: they do not, or nothing is known. The load average alone does not tell:
    /// it is of the minute before, perhaps of a compilation that has ended.
    pub fn warning(&self, root: &Root) -> Option<String> {
        let load = self.load.filter(|load| self.cpus > 0 && *load > 0.5 * self.cpus as f64)?;
        let found = self.until_now(root);
        let busy = found.others_cpus.filter(|_| found.disturbed())?;
        Some(format!(
            "load average {load:.1}, and other programs use {busy:.1} of {} CPUs beside the measured ones: equal runs differ \
             more",
            self.cpus
        ))
    }

    /// What others did since.
    pub fn until_now(&self, root: &Root) -> Neighbours {
        let now = Times::read(root, &self.measured);
        let passed = self.at.zip(now).and_then(|(before, now)| now.since(before));
        Neighbours {
            cpus: self.cpus,
            load_before: self.load,
            others_cpus: passed.map(|passed| {
                let others = passed.busy.saturating_sub(passed.own) as f64;
                others / passed.all as f64 * self.cpus.max(1) as f64
            }),
            stolen: passed.map(|passed| passed.stolen as f64 / passed.all as f64),
        }
    }
}

impl Times {
    fn read(root: &Root, measured: &[Pid]) -> Option<Self> {
        let stat = root.read("/proc/stat").ok()?;
        let numbers = |line: &str| -> Option<Vec<u64>> {
            line.split_whitespace().skip(1).map(|number| number.parse().ok()).collect()
        };
        let all = numbers(stat.lines().find(|line| line.starts_with("cpu "))?)?;
        // user nice system idle iowait irq softirq steal; guest times are part of user and nice (proc_stat(5)).
        let [user, nice, system, idle, iowait, irq, softirq, stolen, ..] = all[..] else {
            return None;
        };
        let is_cpu = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let cpus = stat.lines().filter(is_cpu).count() as u64;
        let busy = user + nice + system + irq + softirq;
        let of = |stat: process::Stat| stat.cpu_ticks + stat.children_cpu_ticks;
        let mut own = of(process::own_stat(root).ok()?);
        for pid in measured {
            own += of(process::stat(root, *pid).ok()?);
        }
        Some(Self { all: busy + idle + iowait + stolen, busy, stolen, own, cpus })
    }

    /// The times that passed; `None`: none did.
    fn since(self, before: Self) -> Option<Self> {
        let all = self.all.saturating_sub(before.all);
        (all > 0).then(|| Self {
            all,
            busy: self.busy.saturating_sub(before.busy),
            stolen: self.stolen.saturating_sub(before.stolen),
            own: self.own.saturating_sub(before.own),
            cpus: self.cpus,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(dir: &std::path::Path, cpu: &str, own: &str) -> Root {
        std::fs::create_dir_all(dir.join("proc/self")).unwrap();
        let stat =
            format!("cpu  {cpu}\ncpu0 1 1 1 1 1 1 1 1 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 1\n");
        std::fs::write(dir.join("proc/stat"), stat).unwrap();
        let own = format!("7 (a ) b) R 1 7 7 0 -1 0 0 0 0 0 {own} 20 0 1 0 5\n");
        std::fs::write(dir.join("proc/self/stat"), own).unwrap();
        std::fs::write(dir.join("proc/loadavg"), "3.50 2.00 1.00 4/200 99\n").unwrap();
        Root::at(dir)
    }

    #[test]
    fn others_are_all_but_this_process_and_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let before = Before::read(&root(dir.path(), "100 0 100 800 0 0 0 0 0 0", "10 10 10 10"));
        // 400 ticks pass on two CPUs: 300 busy, of which 100 are ours, 20 stolen.
        let after = root(dir.path(), "300 0 200 880 0 0 0 20 0 0", "30 10 80 20");
        let found = before.until_now(&after);
        assert_eq!(found.others_cpus, Some(200.0 / 400.0 * 2.0));
        assert_eq!(found.stolen, Some(0.05));
        assert_eq!((found.cpus, found.load_before), (2, Some(3.5)));
        assert_eq!(
            found.line().unwrap(),
            "other programs used 1.0 of 2 CPUs during the runs; the hypervisor gave 5 % of their time to other guests; load \
             average 3.5 before: equal runs differ more than on an idle machine"
        );
        assert_eq!(
            before.warning(&after).unwrap(),
            "load average 3.5, and other programs use 1.0 of 2 CPUs beside the measured ones: equal runs differ more"
        );
        // The same load, of programs that have ended.
        let quiet = root(dir.path(), "200 0 100 1000 0 0 0 0 0 0", "110 10 10 10");
        assert_eq!(before.warning(&quiet), None);
        let idle = Neighbours { others_cpus: Some(0.05), stolen: Some(0.0), ..found };
        assert_eq!(idle.line(), None);
    }

    #[test]
    fn measured_processes_are_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let service = |own: &str| {
            std::fs::create_dir_all(dir.path().join("proc/9")).unwrap();
            let text = format!("9 (served) R 1 9 9 0 -1 0 0 0 0 0 {own} 20 0 1 0 5\n");
            std::fs::write(dir.path().join("proc/9/stat"), text).unwrap();
        };
        service("50 0 0 0");
        let before = root(dir.path(), "100 0 100 800 0 0 0 0 0 0", "10 10 10 10");
        let before = Before::read_for(&before, &[Pid(9)]);
        // Of 300 busy ticks 100 are ours and 120 the service's.
        let after = root(dir.path(), "300 0 200 880 0 0 0 20 0 0", "30 10 80 20");
        service("150 20 0 0");
        assert_eq!(before.until_now(&after).others_cpus, Some(80.0 / 400.0 * 2.0));
        std::fs::remove_file(dir.path().join("proc/9/stat")).unwrap();
        assert_eq!(before.until_now(&after).others_cpus, None);
    }

    #[test]
    fn unknown_is_not_zero() {
        let dir = tempfile::tempdir().unwrap();
        let nothing = Root::at(dir.path());
        let before = Before::read(&nothing);
        assert_eq!(before.warning(&nothing), None);
        let found = before.until_now(&nothing);
        assert_eq!((found.others_cpus, found.stolen, found.load_before), (None, None, None));
        assert_eq!(found.line(), None);
    }
}
