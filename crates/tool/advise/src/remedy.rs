//! What a user writes where, so that a program gets superpages for good.

use host::{Root, process};
use launch::{Program, Runtime};
use serde::Serialize;
use services::Process;

/// How a program is given superpages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Remedy {
    /// Start the program by `superpage run`.
    Run {
        /// Program and arguments; empty if the process overwrote them.
        command: Vec<String>,
    },
    /// A drop-in of its systemd unit that starts the program by `superpage run`.
    DropIn {
        /// The unit.
        unit: String,
        /// Program and arguments; empty if the process overwrote them.
        command: Vec<String>,
    },
    /// A flag of the Java virtual machine.
    Java {
        /// Whether its command line has the opposite flag, which wins if it comes later.
        is_refused: bool,
    },
    /// `huge_pages = on` in postgresql.conf, with a pool for the shared buffers.
    Postgres {
        /// The server's process, for `superpage pool plan`.
        pid: units::Pid,
        /// Whether the server's command line sets `huge_pages`, which wins over the file.
        is_on_command_line: bool,
    },
    /// A tunable of glibc's malloc, for programs that allocate with it.
    Glibc,
    /// The same tunable in the specification of its container, which starts the program.
    Container,
    /// An option of jemalloc, for programs that allocate with it.
    Jemalloc,
    /// THP by the mode `always`: for programs that neither a library nor a tunable reaches (static programs).
    Always,
    /// Redis turned THP off for itself (`disable-thp`, where the mode is `always`).
    Redis,
    /// `superpage manage --once`: now, without a restart, until the process ends. Last.
    Manage {
        /// The process.
        pid: units::Pid,
    },
}

/// What a process allocates with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    /// glibc's malloc.
    Glibc,
    /// libjemalloc.so.
    Jemalloc,
    /// Another one, which maps memory through glibc: a library in place of its malloc, or Go's runtime with cgo.
    Other,
    /// None that a library or a tunable reaches: neither library is mapped, or the program calls the kernel itself.
    Unreached,
}

impl Allocator {
    /// Tells the allocator by the names of a process's mappings and by its program; `None`: the program is not readable.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>, program: Option<&Program>) -> Self {
        let mut found = Self::Unreached;
        for name in names {
            match () {
                () if name.contains("/libjemalloc.so") => return Self::Jemalloc,
                () if is_glibc(name) => found = Self::Glibc,
                () => {}
            }
        }
        match program {
            Some(program) if program.runtime == Some(Runtime::Go) => Self::Unreached,
            Some(program) if found == Self::Glibc && program.allocator.is_some() => Self::Other,
            _ => found,
        }
    }
}

fn is_glibc(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file == "libc.so.6" || file.starts_with("libc-2.")
}

/// Facts about a process that decide what helps it.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The process.
    pub process: &'a Process,
    /// Its parent's program and arguments; the server of a PostgreSQL backend.
    pub parent_command: &'a [String],
    /// What it allocates with.
    pub allocator: Allocator,
    /// False after `prctl(PR_SET_THP_DISABLE)`; `None`: unknown.
    pub thp_enabled: Option<bool>,
}

/// The remedies for a running process with mappings of these names, the best first; each alone is enough, except Redis'
/// own.
pub fn remedies_of<'a>(
    root: &Root,
    of: &Process,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<Remedy> {
    let parent = Process::read(root, of.parent).ok().flatten();
    let program = Program::find(root.path(&format!("/proc/{}/exe", of.pid)), "").ok();
    remedies(&Facts {
        process: of,
        parent_command: parent.as_ref().map_or(&[], |parent| &parent.command),
        allocator: Allocator::of(names, program.as_ref()),
        thp_enabled: process::status(root, of.pid).ok().and_then(|status| status.thp_enabled),
    })
}

/// The remedies for a process, the best first; each alone is enough, except Redis' own.
pub fn remedies(facts: &Facts) -> Vec<Remedy> {
    let process = facts.process;
    let command = own_command(process);
    let has = |words: &[String], text: &str| words.iter().any(|word| word.contains(text));
    let mut found = Vec::new();
    match program_name(process) {
        "java" => found.push(Remedy::Java {
            is_refused: has(&process.command, "-XX:-UseTransparentHugePages"),
        }),
        "postgres" | "postmaster" => {
            let of = [&process.command[..], facts.parent_command];
            let is_on_command_line = of.iter().any(|words| has(words, "huge_pages="));
            found.push(Remedy::Postgres { pid: process.pid, is_on_command_line });
        }
        name if facts.thp_enabled == Some(false) && is_redis(name) => found.push(Remedy::Redis),
        _ => {}
    }
    match facts.allocator {
        Allocator::Unreached => found.push(Remedy::Always),
        Allocator::Glibc if is_in_container(process) => found.push(Remedy::Container),
        Allocator::Other if is_in_container(process) => found.push(Remedy::Always),
        allocator => {
            if allocator == Allocator::Jemalloc {
                found.push(Remedy::Jemalloc);
            }
            // A service's scope or session is not started from a unit's file.
            match process.unit.clone().filter(|unit| unit.ends_with(".service")) {
                Some(unit) => found.push(Remedy::DropIn { unit, command }),
                None => found.push(Remedy::Run { command }),
            }
            let is_java = matches!(found.first(), Some(Remedy::Java { .. }));
            if allocator == Allocator::Glibc && !is_java {
                found.push(Remedy::Glibc);
            }
        }
    }
    // After prctl(PR_SET_THP_DISABLE) the kernel refuses superpages made from outside too.
    if facts.thp_enabled != Some(false) {
        found.push(Remedy::Manage { pid: process.pid });
    }
    found
}

fn is_redis(name: &str) -> bool {
    name.starts_with("redis-server") || name.starts_with("valkey-server")
}

/// Program and arguments; none if the process overwrote them with a title, as servers do (`redis-server *:6379`).
fn own_command(process: &Process) -> Vec<String> {
    match &process.command[..] {
        [title] if title.contains(' ') => Vec::new(),
        command => command.to_vec(),
    }
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

    fn of(command: &str, unit: Option<&str>, allocator: Allocator) -> Vec<Remedy> {
        let process = process(command, unit);
        remedies(&Facts {
            process: &process,
            parent_command: &[],
            allocator,
            thp_enabled: Some(true),
        })
    }

    /// glibc's tunable is offered to glibc's malloc only: a Go program with cgo has glibc mapped, too.
    #[test]
    fn an_allocator_over_glibc_is_offered_no_tunable_of_malloc() {
        let program = |allocator: Option<&str>, runtime| Program {
            path: "/srv/app".into(),
            kind: launch::Kind::Glibc,
            allocator: allocator.map(str::to_string),
            runtime,
        };
        let names = ["/usr/lib/x86_64-linux-gnu/libc.so.6"];
        let allocator = |program: &Program| Allocator::of(names, Some(program));
        let cgo = allocator(&program(Some("Go's runtime"), None));
        assert_eq!(cgo, Allocator::Other);
        let found = of("/srv/app", None, cgo);
        assert!(matches!(found[..], [Remedy::Run { .. }, Remedy::Manage { .. }]), "{found:?}");
        assert_eq!(allocator(&program(None, Some(Runtime::Go))), Allocator::Unreached);
        assert_eq!(allocator(&program(None, None)), Allocator::Glibc);
        assert_eq!(Allocator::of(names, None), Allocator::Glibc);
    }

    #[test]
    fn programs_are_known_by_their_names_and_allocators() {
        use Allocator::{Glibc, Jemalloc, Unreached};
        let java = of("/usr/bin/java -jar x.jar", None, Glibc);
        let now = Remedy::Manage { pid: Pid(7) };
        assert!(matches!(java[..], [Remedy::Java { is_refused: false }, Remedy::Run { .. }, _]));
        assert_eq!(java[2], now);
        let refused = of("java -XX:-UseTransparentHugePages -jar x.jar", None, Glibc);
        assert_eq!(refused[0], Remedy::Java { is_refused: true });
        let postgres = of("postgres: checkpointer", Some("pg.service"), Glibc);
        assert_eq!(postgres[0], Remedy::Postgres { pid: Pid(7), is_on_command_line: false });
        assert!(matches!(postgres[1], Remedy::DropIn { .. }));
        assert_eq!(
            of("/srv/go-service", Some("go.service"), Unreached),
            [Remedy::Always, now.clone()]
        );
        let session = of("/usr/bin/x", Some("session-1.scope"), Glibc);
        assert!(matches!(session[..], [Remedy::Run { .. }, Remedy::Glibc, _]), "{session:?}");
        let redis = of("redis-server", Some("redis.service"), Jemalloc);
        assert!(matches!(redis[..], [Remedy::Jemalloc, Remedy::DropIn { .. }, _]), "{redis:?}");
        let cgroup = Some("/system.slice/docker-0123.scope".to_string());
        let contained = Process { cgroup, ..process("/usr/bin/x", Some("docker-0123.scope")) };
        let facts =
            Facts { process: &contained, parent_command: &[], allocator: Glibc, thp_enabled: None };
        assert_eq!(remedies(&facts), [Remedy::Container, now]);
    }

    #[test]
    fn a_title_is_no_command_and_a_servers_own_flags_are_seen() {
        let mut backend = process("x", None);
        backend.command = vec!["postgres: select".to_string()];
        let parent = ["postgres", "-c", "huge_pages=off"].map(str::to_string);
        let found = remedies(&Facts {
            process: &backend,
            parent_command: &parent,
            allocator: Allocator::Glibc,
            thp_enabled: Some(true),
        });
        assert_eq!(found[0], Remedy::Postgres { pid: Pid(7), is_on_command_line: true });
        assert_eq!(found[1], Remedy::Run { command: Vec::new() });
        let mut redis = process("x", None);
        redis.command = vec!["redis-server *:6379".to_string()];
        let facts = Facts {
            process: &redis,
            parent_command: &[],
            allocator: Allocator::Jemalloc,
            thp_enabled: Some(false),
        };
        assert_eq!(
            remedies(&facts),
            [Remedy::Redis, Remedy::Jemalloc, Remedy::Run { command: Vec::new() }]
        );
    }
}
