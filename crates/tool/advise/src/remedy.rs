//! What a user writes where, so that a program gets superpages for good.

use serde::Serialize;
use services::Process;

/// How a program is given superpages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Remedy {
    /// Start the program by `superpage run`.
    Run {
        /// Program and arguments of the running process.
        command: Vec<String>,
    },
    /// A drop-in of its systemd unit.
    DropIn {
        /// The unit.
        unit: String,
        /// Program and arguments of the running process.
        command: Vec<String>,
    },
    /// A flag of the Java virtual machine.
    Java,
    /// `huge_pages = on` in postgresql.conf, with a pool for the shared buffers.
    Postgres {
        /// The server's process, for `superpage pool plan`.
        pid: units::Pid,
    },
    /// A tunable of glibc's malloc, for programs that allocate with it.
    Glibc,
    /// The same tunable in the specification of its container, which starts the program.
    Container,
    /// THP by the mode `always`: for programs that neither a library nor a tunable reaches (Go, static programs).
    Always,
    /// Redis refuses transparent superpages of its own accord (`disable-thp`).
    Redis,
}

/// The remedies for a process, the best first. `uses_glibc`: whether it has mapped glibc's libc.so.
pub fn remedies(process: &Process, uses_glibc: bool) -> Vec<Remedy> {
    let command = process.command.clone();
    let mut found = Vec::new();
    let name = program_name(process);
    match name {
        "java" => found.push(Remedy::Java),
        "postgres" | "postmaster" => found.push(Remedy::Postgres { pid: process.pid }),
        name if name.starts_with("redis-server") || name.starts_with("valkey-server") => {
            found.push(Remedy::Redis);
        }
        _ => {}
    }
    if uses_glibc && is_in_container(process) {
        found.push(Remedy::Container);
    } else if uses_glibc {
        // A service's scope or session is not started from a unit's file.
        match process.unit.clone().filter(|unit| unit.ends_with(".service")) {
            Some(unit) => found.push(Remedy::DropIn { unit, command }),
            None if !command.is_empty() => found.push(Remedy::Run { command }),
            None => {}
        }
        if !found.contains(&Remedy::Java) {
            found.push(Remedy::Glibc);
        }
    } else {
        found.push(Remedy::Always);
    }
    found
}

/// Whether its cgroup is one that container runtimes name.
fn is_in_container(process: &Process) -> bool {
    let cgroup = process.cgroup.as_deref().unwrap_or("");
    ["docker", "libpod", "kubepods", "containerd", "/lxc"].iter().any(|name| cgroup.contains(name))
}

/// The last part of the program's path, or the process's name. Of `postgres: writer`, the part before the colon.
fn program_name(process: &Process) -> &str {
    let first = process.command.first().map_or(process.name.as_str(), String::as_str);
    let first = first.split([' ', ':']).next().unwrap_or(first);
    first.rsplit('/').next().unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use units::Pid;

    use super::*;

    fn process(command: &str, unit: Option<&str>) -> Process {
        Process {
            pid: Pid(7),
            start_ticks: 1,
            parent: Pid(1),
            name: "name".into(),
            command: command
                .split(' ')
                .filter(|word| !word.is_empty())
                .map(str::to_string)
                .collect(),
            user: Some(0),
            cgroup: None,
            unit: unit.map(str::to_string),
        }
    }

    #[test]
    fn programs_are_known_by_their_names() {
        let of = |command, unit, glibc| remedies(&process(command, unit), glibc);
        let java = of("/usr/bin/java -jar x.jar", None, true);
        assert!(matches!(java[..], [Remedy::Java, Remedy::Run { .. }]), "{java:?}");
        let postgres = of("postgres: checkpointer", Some("pg.service"), true);
        let expected = Remedy::Postgres { pid: Pid(7) };
        assert_eq!(postgres[0], expected);
        assert!(matches!(postgres[1], Remedy::DropIn { .. }));
        assert_eq!(of("redis-server *:6379", None, true)[0], Remedy::Redis);
        assert_eq!(of("/srv/go-service", Some("go.service"), false), [Remedy::Always]);
        let session = of("/usr/bin/x", Some("session-1.scope"), true);
        assert!(matches!(session[..], [Remedy::Run { .. }, Remedy::Glibc]), "{session:?}");
        assert_eq!(of("", None, true), [Remedy::Glibc]);
        let cgroup = Some("/system.slice/docker-0123.scope".to_string());
        let contained = Process { cgroup, ..process("/usr/bin/x", Some("docker-0123.scope")) };
        assert_eq!(remedies(&contained, true), [Remedy::Container]);
    }
}
