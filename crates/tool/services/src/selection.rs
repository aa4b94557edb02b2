//! Selecting running processes by pid, cgroup, systemd unit or command line.
//!
//! A pid may be reused while it is looked at. A [`Process`] therefore keeps the start time, and
//! [`Process::is_running`] compares it.

use std::collections::BTreeMap;

use host::cgroup::Hierarchy;
use host::{ReadError, Root, Unknown, process};
use regex::Regex;
use serde::{Deserialize, Serialize};
use units::Pid;

/// Which processes are meant.
#[derive(Debug, Clone)]
pub enum Target {
    /// One process.
    Pid(Pid),
    /// The processes of a cgroup and of the groups below it. The path starts at the root of its hierarchy.
    Cgroup(String),
    /// The processes of a systemd unit: `redis.service`, or `redis`.
    Unit(String),
    /// The processes whose name or command line matches.
    Match(Regex),
    /// All processes that have memory.
    All,
}

/// A running process, as it was when it was selected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: Pid,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
    /// Parent process id.
    pub parent: Pid,
    /// The command's name, at most 15 bytes.
    pub name: String,
    /// Program and arguments; empty for kernel threads, and for programs that overwrote them.
    pub command: Vec<String>,
    /// Effective user id; `None` if the process ended meanwhile.
    pub user: Option<u32>,
    /// Path of the memory cgroup (version 1), or of the cgroup (version 2).
    pub cgroup: Option<String>,
    /// The systemd unit, from the cgroup's path.
    pub unit: Option<String>,
}

/// The selected processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selected {
    /// Lowest pid first, each once.
    pub processes: Vec<Process>,
    /// Processes that could not be read, with reasons. Processes that ended are not included.
    pub unknown: Vec<Unknown>,
}

/// Why nothing was selected.
#[derive(Debug, thiserror::Error)]
pub enum SelectError {
    /// No process has this pid.
    #[error("no process has pid {0}")]
    NoSuchProcess(Pid),
    /// The process is a zombie or a kernel thread.
    #[error("pid {0} has no memory: it is a kernel thread or has ended")]
    NoMemory(Pid),
    /// No process is in such a cgroup.
    #[error("no process is in cgroup {0:?}; expected a path as in /proc/PID/cgroup")]
    NoCgroup(String),
    /// No process belongs to such a unit.
    #[error(
        "no process belongs to unit {0:?}; `systemctl list-units` lists units; without systemd: --match NAME, or --pid"
    )]
    NoUnit(String),
    /// Nothing matches the expression.
    #[error("no name and no command line matches {0:?}")]
    NoMatch(String),
    /// `/proc` or the process cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Returns the processes that any of `targets` means. Leaves out this process, kernel threads and zombies. An
/// ancestor of this process (sudo, timeout, `sh -c`) has this command line as its arguments: a pattern means it only by
/// its name.
///
/// # Errors
/// A target means no process, or `/proc` cannot be read.
pub fn select(root: &Root, targets: &[Target]) -> Result<Selected, SelectError> {
    let mut found = BTreeMap::new();
    let mut unknown = Vec::new();
    let (pids, others): (Vec<_>, Vec<_>) =
        targets.iter().partition(|target| matches!(target, Target::Pid(_)));
    for target in pids {
        let Target::Pid(pid) = target else { continue };
        let process = Process::read(root, *pid).map_err(|error| match error.is_gone() {
            true => SelectError::NoSuchProcess(*pid),
            false => error.into(),
        })?;
        found.insert(*pid, process.ok_or(SelectError::NoMemory(*pid))?);
    }
    if !others.is_empty() {
        let mut hits = vec![false; others.len()];
        let own = root.is_real().then(sys::param::own_pid);
        let ancestors = own.map_or_else(Vec::new, |own| ancestors(root, own));
        for pid in process::pids(root)?.into_iter().filter(|pid| Some(*pid) != own) {
            match Candidate::read(root, pid) {
                Ok(Some(candidate)) => {
                    let mut is_meant = false;
                    for (target, hit) in others.iter().zip(&mut hits) {
                        let quotes_us = ancestors.contains(&pid)
                            && !target.is_met_by_name(&candidate.process.name);
                        if candidate.is_meant_by(target) && !quotes_us {
                            *hit = true;
                            is_meant = true;
                        }
                    }
                    if is_meant {
                        found.insert(pid, candidate.process);
                    }
                }
                Ok(None) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => {
                    unknown.push(Unknown { what: format!("pid {pid}"), why: error.to_string() })
                }
            }
        }
        if let Some((target, _)) = others.iter().zip(&hits).find(|(_, hit)| !**hit) {
            return Err(target.unmet());
        }
    }
    Ok(Selected { processes: found.into_values().collect(), unknown })
}

/// Whether this mount of /proc may hide other users' processes (`hidepid=`, proc(5)). It hides none from root.
pub fn hides_processes(root: &Root) -> bool {
    if root.is_real() && sys::param::effective_user() == 0 {
        return false;
    }
    let text = root.read("/proc/self/mountinfo").unwrap_or_default();
    text.lines().any(|line| {
        let is_proc = line.split(' ').nth(4) == Some("/proc");
        let options = line.split_once(" - ").map_or("", |(_, after)| after);
        let hides = |option: &str| {
            option.strip_prefix("hidepid=").is_some_and(|value| !["0", "off"].contains(&value))
        };
        is_proc && options.split([' ', ',']).any(hides)
    })
}

/// The processes above `pid`, its parent first.
fn ancestors(root: &Root, pid: Pid) -> Vec<Pid> {
    let mut above: Vec<Pid> = Vec::new();
    let mut one = pid;
    while let Ok(stat) = process::stat(root, one)
        && stat.parent.0 > 0
        && !above.contains(&stat.parent)
    {
        one = stat.parent;
        above.push(one);
    }
    above
}

impl Target {
    /// Path of the memory cgroup that a target names, below the mount point; of a unit from the path of one of its
    /// processes. `None` for other targets, and if no process is in the unit.
    pub fn cgroup(&self, processes: &[Process]) -> Option<String> {
        match self {
            Self::Cgroup(path) => Some(below_mount(path)),
            Self::Unit(name) => {
                let mut paths = processes.iter().filter_map(|process| process.cgroup.as_deref());
                paths.find_map(|path| up_to_unit(path, name)).map(str::to_string)
            }
            Self::Pid(_) | Self::Match(_) | Self::All => None,
        }
    }

    /// False for a pattern that does not match the name.
    fn is_met_by_name(&self, name: &str) -> bool {
        match self {
            Self::Match(pattern) => pattern.is_match(name),
            _ => true,
        }
    }

    /// The error that no process is meant.
    fn unmet(&self) -> SelectError {
        match self {
            Self::Pid(pid) => SelectError::NoSuchProcess(*pid),
            Self::Cgroup(path) => SelectError::NoCgroup(path.clone()),
            Self::Unit(name) => SelectError::NoUnit(name.clone()),
            Self::Match(pattern) => SelectError::NoMatch(pattern.as_str().to_string()),
            Self::All => SelectError::NoMatch(String::new()),
        }
    }
}

impl Process {
    /// Reads one process; `None`: it has no memory, as kernel threads and zombies.
    ///
    /// # Errors
    /// The process does not exist ([`ReadError::is_gone`]), or may not be read.
    pub fn read(root: &Root, pid: Pid) -> Result<Option<Self>, ReadError> {
        Ok(Candidate::read(root, pid)?.map(|candidate| candidate.process))
    }

    /// Whether this process still runs: its pid is in use, with the same start time.
    pub fn is_running(&self, root: &Root) -> bool {
        process::stat(root, self.pid)
            .is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.is_dead())
    }

    /// Whether `target` means this process. Reads its cgroups.
    pub fn is_meant_by(&self, root: &Root, target: &Target) -> bool {
        let text = match target {
            Target::Cgroup(_) | Target::Unit(_) => {
                root.read(&format!("/proc/{}/cgroup", self.pid)).unwrap_or_default()
            }
            Target::Pid(_) | Target::Match(_) | Target::All => String::new(),
        };
        let cgroups =
            lines(&text).map(|(list, path)| below_mount_point(root, list, path)).collect();
        Candidate { process: self.clone(), cgroups }.is_meant_by(target)
    }

    /// The program's name: the last part of its path, or the process's name. Of a title such as `postgres: writer` or
    /// `redis-server *:6379`, the first word without the colon.
    pub fn program_name(&self) -> &str {
        let first = self.command.first().map_or(self.name.as_str(), String::as_str);
        let first = first.split([' ', ':']).next().unwrap_or(first);
        first.rsplit('/').next().unwrap_or(first)
    }

    /// Program and arguments in one line, or the name in brackets, as ps(1) prints it.
    pub fn command_line(&self) -> String {
        match self.command.is_empty() {
            true => format!("[{}]", self.name),
            false => self.command.join(" "),
        }
    }
}

/// A process with the paths of all its cgroups.
struct Candidate {
    process: Process,
    cgroups: Vec<String>,
}

impl Candidate {
    fn read(root: &Root, pid: Pid) -> Result<Option<Self>, ReadError> {
        let stat = process::stat(root, pid)?;
        if stat.is_dead() || stat.mapped == 0 {
            return Ok(None);
        }
        let command = root.read(&format!("/proc/{pid}/cmdline"))?;
        let command = command.trim_end_matches('\0');
        let command = match command.is_empty() {
            true => Vec::new(),
            false => command.split('\0').map(str::to_string).collect(),
        };
        let status = root.read(&format!("/proc/{pid}/status"))?;
        // A kernel without cgroups has no such file.
        let text = root.read(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let cgroups: Vec<String> =
            lines(&text).map(|(list, path)| below_mount_point(root, list, path)).collect();
        let process = Process {
            pid,
            start_ticks: stat.start_ticks,
            parent: stat.parent,
            name: stat.name,
            command,
            user: effective_user(&status),
            cgroup: memory_cgroup(&text).map(|(list, path)| below_mount_point(root, list, path)),
            unit: cgroups.iter().find_map(|path| unit(path)).map(str::to_string),
        };
        Ok(Some(Self { process, cgroups }))
    }

    fn is_meant_by(&self, target: &Target) -> bool {
        match target {
            Target::Pid(pid) => *pid == self.process.pid,
            Target::Cgroup(wanted) => self.cgroups.iter().any(|path| is_in(path, wanted)),
            Target::Unit(name) => self.cgroups.iter().any(|path| up_to_unit(path, name).is_some()),
            Target::Match(pattern) => {
                pattern.is_match(&self.process.name)
                    || pattern.is_match(&self.process.command.join(" "))
            }
            Target::All => true,
        }
    }
}

/// Controllers and path of each line of `/proc/PID/cgroup`: `0::/path` (version 2) or `4:memory:/path` (version 1).
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    })
}

/// Controllers and path of version 1's memory hierarchy; without one, those of version 2.
fn memory_cgroup(text: &str) -> Option<(&str, &str)> {
    let memory = lines(text).find(|(list, _)| list.split(',').any(|one| one == "memory"));
    memory.or_else(|| lines(text).find(|(list, _)| list.is_empty()))
}

/// A cgroup's path below its mount point, also where this process is in a cgroup namespace. If it cannot be found, as the
/// kernel prints it.
fn below_mount_point(root: &Root, controllers: &str, path: &str) -> String {
    let hierarchy = match controllers {
        "" => Hierarchy::V2,
        list if list.split(',').any(|one| one == "memory") => Hierarchy::Memory,
        _ => return path.to_string(),
    };
    hierarchy.below_mount(root, path).unwrap_or_else(|| path.to_string())
}

/// The innermost service or scope in a cgroup's path.
fn unit(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

/// The part of a cgroup's path that ends with the unit `name`, which may lack its suffix.
fn up_to_unit<'a>(path: &'a str, name: &str) -> Option<&'a str> {
    let is_unit = |part: &str| {
        let rest = part.strip_prefix(name);
        rest.is_some_and(|rest| ["", ".service", ".scope", ".slice"].contains(&rest))
    };
    let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    ends.map(|end| &path[..end]).find(|start| is_unit(start.rsplit('/').next().unwrap_or(start)))
}

/// A cgroup's path without the mount point; of version 1 without the hierarchy's name either.
fn below_mount(path: &str) -> String {
    let path = path
        .strip_prefix("/sys/fs/cgroup")
        .map_or(path, |path| path.strip_prefix("/memory").unwrap_or(path));
    format!("/{}", path.trim_matches('/')).trim_end_matches('/').to_string()
}

/// Whether `path` is the cgroup `wanted` or below it. `wanted` may start with the mount point of cgroups.
fn is_in(path: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_prefix("/sys/fs/cgroup").unwrap_or(wanted);
    let below = |path: &str, wanted: &str| {
        let wanted = wanted.trim_matches('/');
        let rest = path.trim_start_matches('/').strip_prefix(wanted);
        rest.is_some_and(|rest| wanted.is_empty() || rest.is_empty() || rest.starts_with('/'))
    };
    // Below the mount point of version 1 the first part names the hierarchy.
    let hierarchy = wanted.trim_start_matches('/').split_once('/').map(|(_, rest)| rest);
    below(path, wanted) || hierarchy.is_some_and(|rest| below(path, rest))
}

/// The second number of `Uid:` in `/proc/PID/status`.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fake /proc with these processes: pid, name, command line, cgroup file.
    fn root(processes: &[(i32, &str, &str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (pid, name, command, cgroup) in processes {
            let proc = dir.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&proc).unwrap();
            let mapped = if command.is_empty() { 0 } else { 4096 };
            let stat = format!(
                "{pid} ({name}) S 1 1 1 0 -1 0 5 0 0 0 0 0 0 0 20 0 3 0 77 {mapped} 10 0 0 0 0\n"
            );
            std::fs::write(proc.join("stat"), stat).unwrap();
            std::fs::write(proc.join("cmdline"), command.replace(' ', "\0") + "\0").unwrap();
            std::fs::write(proc.join("status"), "Name:\tx\nUid:\t0\t33\t0\t0\n").unwrap();
            std::fs::write(proc.join("cgroup"), cgroup).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn pids(root: &Root, target: Target) -> Vec<i32> {
        select(root, &[target]).unwrap().processes.iter().map(|process| process.pid.0).collect()
    }

    #[test]
    fn processes_are_selected_by_pid_cgroup_unit_and_command_line() {
        let (_dir, root) = root(&[
            (2, "kthreadd", "", "0::/\n"),
            (7, "redis-server", "redis-server *:6379", "0::/system.slice/redis.service\n"),
            (8, "postgres", "postgres -D /x", "4:memory:/system.slice/pg.service\n0::/\n"),
            (9, "sh", "sh -c x", "0::/user.slice/session-1.scope/inner\n"),
            (11, "redis-cli", "redis-cli", "0::/system.slice/redis.service-x\n"),
        ]);
        assert_eq!(pids(&root, Target::Pid(Pid(8))), [8]);
        assert_eq!(pids(&root, Target::Unit("redis".into())), [7]);
        assert_eq!(pids(&root, Target::Unit("redis.service".into())), [7]);
        assert_eq!(pids(&root, Target::Unit("system.slice".into())), [7, 8, 11]);
        assert_eq!(pids(&root, Target::Cgroup("/system.slice".into())), [7, 8, 11]);
        assert_eq!(pids(&root, Target::Cgroup("system.slice/redis.service/".into())), [7]);
        let v1 = "/sys/fs/cgroup/memory/system.slice/pg.service";
        assert_eq!(pids(&root, Target::Cgroup(v1.into())), [8]);
        assert_eq!(pids(&root, Target::Cgroup("/sys/fs/cgroup/user.slice".into())), [9]);
        assert_eq!(pids(&root, Target::Match(Regex::new("^redis").unwrap())), [7, 11]);
        assert_eq!(pids(&root, Target::Match(Regex::new("-D /x").unwrap())), [8]);
        assert_eq!(pids(&root, Target::All), [7, 8, 9, 11]);
        let both = [Target::Pid(Pid(7)), Target::Unit("redis".into())];
        let both = select(&root, &both).unwrap().processes;
        assert_eq!(both.len(), 1);
        assert_eq!(both[0].unit.as_deref(), Some("redis.service"));
        assert_eq!((both[0].user, both[0].start_ticks), (Some(33), 77));
        assert_eq!(both[0].command, ["redis-server", "*:6379"]);
        let nested = Process::read(&root, Pid(9)).unwrap().unwrap();
        assert_eq!(nested.unit.as_deref(), Some("session-1.scope"));
        let pg = Process::read(&root, Pid(8)).unwrap().unwrap();
        assert!(pg.is_meant_by(&root, &Target::Unit("pg".into())));
        assert!(pg.is_meant_by(&root, &Target::Cgroup("/system.slice".into())));
        assert!(!pg.is_meant_by(&root, &Target::Unit("redis".into())));
        assert!(!pg.is_meant_by(&root, &Target::Match(Regex::new("redis").unwrap())));
        assert_eq!(pg.cgroup.as_deref(), Some("/system.slice/pg.service"));
    }

    #[test]
    fn a_target_that_means_nothing_is_an_error_that_names_it() {
        let (_dir, root) = root(&[(2, "kthreadd", "", "0::/\n"), (7, "a", "a", "0::/b\n")]);
        let error = |target| select(&root, &[Target::All, target]).unwrap_err();
        assert!(matches!(error(Target::Pid(Pid(2))), SelectError::NoMemory(Pid(2))));
        assert!(matches!(error(Target::Pid(Pid(3))), SelectError::NoSuchProcess(Pid(3))));
        assert!(matches!(error(Target::Unit("x".into())), SelectError::NoUnit(_)));
        assert!(matches!(error(Target::Cgroup("/bc".into())), SelectError::NoCgroup(_)));
        let pattern = Target::Match(Regex::new("zzz").unwrap());
        assert!(matches!(error(pattern), SelectError::NoMatch(_)));
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let (_dir, root) = root(&[(7, "a", "a", "0::/b\n")]);
        let process = Process::read(&root, Pid(7)).unwrap().unwrap();
        assert!(process.is_running(&root));
        let later = Process { start_ticks: 78, ..process.clone() };
        assert!(!later.is_running(&root));
        std::fs::remove_dir_all(root.path("/proc/7")).unwrap();
        assert!(!process.is_running(&root));
    }

    #[test]
    fn a_units_cgroup_is_a_part_of_its_processes_path() {
        let process = |cgroup: &str| Process {
            pid: Pid(1),
            start_ticks: 1,
            parent: Pid(0),
            name: "x".into(),
            command: Vec::new(),
            user: None,
            cgroup: Some(cgroup.into()),
            unit: None,
        };
        let processes = ["/other", "/system.slice/pg.service/inner"].map(process);
        let unit = |name: &str| Target::Unit(name.into()).cgroup(&processes);
        assert_eq!(unit("pg").as_deref(), Some("/system.slice/pg.service"));
        assert_eq!(unit("system.slice").as_deref(), Some("/system.slice"));
        assert_eq!(unit("inner").as_deref(), Some("/system.slice/pg.service/inner"));
        assert_eq!(unit("p"), None);
        let group = |path: &str| Target::Cgroup(path.into()).cgroup(&[]);
        assert_eq!(group("/sys/fs/cgroup/memory/a/").as_deref(), Some("/a"));
        assert_eq!((group("a/b").as_deref(), group("/").as_deref()), (Some("/a/b"), Some("")));
    }

    #[test]
    fn a_proc_that_hides_processes_is_known_by_its_options() {
        let (dir, root) = root(&[(7, "a", "a", "0::/b\n")]);
        let file = dir.path().join("proc/self/mountinfo");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let hides = |line: &str| {
            std::fs::write(&file, format!("22 1 0:20 / / rw - ext4 /dev/sda1 rw\n{line}\n"))
                .unwrap();
            hides_processes(&root)
        };
        assert!(hides("23 22 0:21 / /proc rw,nosuid - proc proc rw,hidepid=invisible"));
        assert!(hides("23 22 0:21 / /proc rw shared:3 - proc proc rw,gid=5,hidepid=2"));
        assert!(!hides("23 22 0:21 / /proc rw - proc proc rw,hidepid=0"));
        assert!(!hides("23 22 0:21 / /proc rw - proc proc rw"));
        assert!(!hides("23 22 0:21 / /mnt/proc rw - proc proc rw,hidepid=2"));
    }

    #[test]
    fn this_process_is_found_by_pid_but_not_by_pattern() {
        let root = Root::real();
        let own = sys::param::own_pid();
        let selected = select(&root, &[Target::Pid(own)]).unwrap();
        assert_eq!(selected.processes[0].pid, own);
        let all = select(&root, &[Target::All]).map(|all| all.processes).unwrap_or_default();
        assert!(all.iter().all(|process| process.pid != own));
    }
}
