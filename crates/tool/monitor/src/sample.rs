//! `Sample`: what was seen of processes, units and cgroups at one moment. Pure data; groups are sums of rows.

use std::collections::BTreeMap;

use host::Unknown;
use serde::Serialize;
use units::{ByteSize, Pid};

use crate::cgroup::CgroupCounters;
use crate::machine::Machine;
use crate::walk::Mapped;

/// One look at this computer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Seconds since the sample before; `None` in the first one.
    pub interval: Option<f64>,
    /// This computer.
    pub machine: Machine,
    /// The processes, lowest pid first.
    pub processes: Vec<Row>,
    /// The processes by systemd unit, processes outside every unit last.
    pub units: Vec<Group>,
    /// The processes by cgroup.
    pub cgroups: Vec<Group>,
    /// Number of processes, kernel threads included, of which not even name and cgroup could be read.
    pub unnamed: u64,
    /// Whether `/proc` is mounted with hidepid, so that processes of other users may be missing.
    pub hides_processes: bool,
    /// What the sample cost.
    pub cost: Cost,
    /// What could not be read, except processes without permission.
    pub unknown: Vec<Unknown>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Process id.
    pub pid: Pid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// The command's name, at most 15 bytes.
    pub name: String,
    /// Effective user id.
    pub user_id: Option<u32>,
    /// Name of the effective user.
    pub user: Option<String>,
    /// The systemd unit.
    pub unit: Option<String>,
    /// The cgroup's path.
    pub cgroup: Option<String>,
    /// Resident bytes, hugetlb pages included.
    pub resident: Option<ByteSize>,
    /// Bytes in swap.
    pub swap: Option<ByteSize>,
    /// Memory by its page tables, as it was `age` seconds before the sample.
    pub memory: Option<Mapped>,
    /// Age of `memory` in seconds.
    pub age: Option<f64>,
    /// Why `memory` is unknown, or was not read again.
    pub unread: Option<Unread>,
    /// Page faults per second without I/O, since the sample before.
    pub minor_faults: Option<f64>,
    /// Page faults per second that needed I/O, since the sample before.
    pub major_faults: Option<f64>,
}

/// Why page tables were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unread {
    /// The process's turn has not come yet.
    Waiting,
    /// This user may not read the process.
    Denied,
    /// The kernel has no PAGEMAP_SCAN (Linux 6.7).
    NoScan,
    /// Another error; see `unknown` of the sample.
    Failed,
}

/// Processes of one unit or cgroup.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Group {
    /// The unit's name; `None`: processes outside every unit, or groups by cgroup alone.
    pub unit: Option<String>,
    /// The cgroup's path; `None` in groups by unit alone.
    pub cgroup: Option<String>,
    /// Name of the user of all its processes; `None`: unknown or several.
    pub user: Option<String>,
    /// Number of processes.
    pub processes: u64,
    /// Number of processes whose page tables have been read: `memory` is their sum.
    pub read: u64,
    /// Number of processes that this user may not read.
    pub denied: u64,
    /// Number of processes not yet read, or that failed to be read.
    pub waiting: u64,
    /// Sum of resident bytes; memory that several processes share is counted for each.
    pub resident: Option<ByteSize>,
    /// Resident bytes with each page counted once, as the kernel counts for the cgroup of these processes and of no others,
    /// without hugetlb pages; `None`: there is no such cgroup, or no such count.
    pub resident_once: Option<ByteSize>,
    /// Sum of bytes in swap.
    pub swap: Option<ByteSize>,
    /// Sum over the processes that were read; `None` if none was.
    pub memory: Option<Mapped>,
    /// Age of the oldest figure in `memory`, in seconds.
    pub age: Option<f64>,
    /// Page faults per second without I/O; `None` if known of no process.
    pub minor_faults: Option<f64>,
    /// Page faults per second that needed I/O.
    pub major_faults: Option<f64>,
    /// What the kernel counts for the cgroup.
    pub kernel: Option<CgroupCounters>,
}

/// What a sample cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cost {
    /// CPU time of this program since its start, in seconds.
    pub cpu: f64,
    /// Seconds that reading names and counters took.
    pub observe: f64,
    /// Seconds that reading page tables took.
    pub scan: f64,
    /// Number of processes whose page tables were read for this sample.
    pub scanned: u64,
    /// The longest system call on a page table for this sample, in seconds; the process's mmap lock is held at most so
    /// long.
    pub slice: f64,
    /// The longest such call since the start, in seconds.
    pub longest_slice: f64,
}

/// The cgroup that has all processes of a group, by the group's name: a unit's is the one that is called like it.
fn home<'a>(group: &Group, row: &'a Row) -> Option<&'a str> {
    let path = row.cgroup.as_deref()?;
    match (&group.cgroup, &group.unit) {
        (Some(own), _) => (own == path).then_some(path),
        (None, Some(unit)) => {
            let mut end = 0;
            path.split('/').find_map(|part| {
                end += part.len() + 1;
                (part == unit).then(|| &path[..end - 1])
            })
        }
        (None, None) => None,
    }
}

/// The cgroup whose processes are exactly the group's; `all` are the processes of the machine.
pub fn cgroup_of<'a>(
    group: &Group,
    rows: &'a [Row],
    all: &[(Pid, Option<&str>)],
) -> Option<&'a str> {
    let is_own = |row: &&Row| match (&group.cgroup, &group.unit) {
        (Some(cgroup), _) => row.cgroup.as_ref() == Some(cgroup),
        (None, unit) => row.unit == *unit,
    };
    let own: Vec<&Row> = rows.iter().filter(is_own).collect();
    let home = home(group, own.first()?)?;
    let is_inside = |path: &str| {
        let rest = path.strip_prefix(home.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let inside = all.iter().filter(|(_, path)| path.is_some_and(is_inside)).count();
    let is_all =
        inside == own.len() && own.iter().all(|row| row.cgroup.as_deref().is_some_and(is_inside));
    is_all.then_some(home)
}

/// By what processes are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// By systemd unit.
    Unit,
    /// By cgroup.
    Cgroup,
    /// By both: the groups of the metrics.
    Both,
}

/// Sums rows by unit or cgroup, in the order of the names; what has no name is last.
pub fn groups(rows: &[Row], by: Grouping) -> Vec<Group> {
    type Key = (bool, Option<String>, Option<String>);
    let mut found: BTreeMap<Key, (Group, bool)> = BTreeMap::new();
    for row in rows {
        let unit = row.unit.clone().filter(|_| by != Grouping::Cgroup);
        let cgroup = row.cgroup.clone().filter(|_| by != Grouping::Unit);
        let key = (unit.is_none() && cgroup.is_none(), unit.clone(), cgroup.clone());
        let (group, one_user) = found.entry(key).or_insert_with(|| {
            let user = row.user.clone();
            (Group { unit, cgroup, user, ..Group::default() }, true)
        });
        *one_user &= group.user == row.user;
        group.add(row);
    }
    let named = found.into_values().map(|(group, one_user)| {
        let user = group.user.clone().filter(|_| one_user);
        Group { user, ..group }
    });
    named.collect()
}

impl Group {
    fn add(&mut self, row: &Row) {
        self.processes += 1;
        match (row.memory, row.unread) {
            (Some(_), _) => self.read += 1,
            (None, Some(Unread::Denied)) => self.denied += 1,
            (None, _) => self.waiting += 1,
        }
        let bytes = |a: ByteSize, b: ByteSize| ByteSize(a.bytes().saturating_add(b.bytes()));
        self.resident = either(self.resident, row.resident, bytes);
        self.swap = either(self.swap, row.swap, bytes);
        self.memory = either(self.memory, row.memory, Mapped::plus);
        self.age = either(self.age, row.age, f64::max);
        self.minor_faults = either(self.minor_faults, row.minor_faults, |a, b| a + b);
        self.major_faults = either(self.major_faults, row.major_faults, |a, b| a + b);
    }
}

/// The combination of two values, or the one that is known.
fn either<T>(a: Option<T>, b: Option<T>, combine: impl FnOnce(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(combine(a, b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, unit: Option<&str>, cgroup: &str, mib: Option<u64>) -> Row {
        let memory = mib.map(|mib| Mapped {
            resident: ByteSize(mib << 20),
            superpages: ByteSize(mib << 19),
            possible: Some(ByteSize(1)),
            swapped: ByteSize(0),
        });
        Row {
            pid: Pid(pid),
            start_ticks: 1,
            name: "a".into(),
            user_id: Some(0),
            user: Some(if pid > 2 { "b".into() } else { "a".to_string() }),
            unit: unit.map(str::to_string),
            cgroup: Some(cgroup.into()),
            resident: Some(ByteSize(5 << 20)),
            swap: None,
            memory,
            age: memory.map(|_| f64::from(pid)),
            unread: memory.is_none().then_some(Unread::Denied),
            minor_faults: (pid > 1).then_some(2.0),
            major_faults: None,
        }
    }

    #[test]
    fn a_group_has_a_cgroup_of_its_own_or_none() {
        let rows = [
            row(1, Some("x.service"), "/s/x.service", None),
            row(2, Some("x.service"), "/s/x.service/sub", None),
            row(3, Some("y.service"), "/s/y.service", None),
            row(4, None, "/", None),
        ];
        let all = |more: &[(i32, &'static str)]| {
            let known = rows.iter().map(|row| (row.pid, row.cgroup.as_deref()));
            let more = more.iter().map(|(pid, path)| (Pid(*pid), Some(*path)));
            known.chain(more).collect::<Vec<_>>()
        };
        let found = |by, more: &[(i32, &'static str)]| {
            let all = all(more);
            let of = |group: &Group| cgroup_of(group, &rows, &all).map(str::to_string);
            groups(&rows, by).iter().map(of).collect::<Vec<_>>()
        };
        let some = |path: &str| Some(path.to_string());
        assert_eq!(found(Grouping::Unit, &[]), [some("/s/x.service"), some("/s/y.service"), None]);
        // A process that is not shown is in the cgroup too; another one's name begins alike.
        let more = [(5, "/s/y.service"), (6, "/s/x.service2")];
        assert_eq!(found(Grouping::Unit, &more), [some("/s/x.service"), None, None]);
        // The cgroups "/" and "/s/x.service" have others below.
        let leaves = [None, None, some("/s/x.service/sub"), some("/s/y.service")];
        assert_eq!(found(Grouping::Cgroup, &[]), leaves);
    }

    #[test]
    fn groups_are_sums_and_say_how_much_of_them_was_read() {
        let rows = [
            row(1, Some("x.service"), "/x", Some(4)),
            row(2, Some("x.service"), "/x", None),
            row(3, Some("x.service"), "/x/sub", Some(2)),
            row(4, None, "/", None),
        ];
        let units = groups(&rows, Grouping::Unit);
        assert_eq!(units.len(), 2);
        let x = &units[0];
        assert_eq!(
            (x.unit.as_deref(), x.processes, x.read, x.denied),
            (Some("x.service"), 3, 2, 1)
        );
        assert_eq!((x.resident, x.swap), (Some(ByteSize(15 << 20)), None));
        assert_eq!(x.memory.unwrap().superpages, ByteSize(3 << 20));
        assert_eq!(x.memory.unwrap().coverage(), Some(0.5));
        assert_eq!((x.age, x.minor_faults, x.user.as_deref()), (Some(3.0), Some(4.0), None));
        // Nothing read is unknown, not zero.
        assert_eq!((units[1].unit.as_deref(), units[1].memory, units[1].age), (None, None, None));
        let cgroups = groups(&rows, Grouping::Cgroup);
        let names: Vec<_> = cgroups.iter().map(|group| group.cgroup.as_deref()).collect();
        assert_eq!(names, [Some("/"), Some("/x"), Some("/x/sub")]);
        assert_eq!(cgroups[1].user.as_deref(), Some("a"));
        assert_eq!(groups(&rows, Grouping::Both).len(), 3);
    }
}
