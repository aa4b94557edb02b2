//! Running processes as far as checks need them: THP by prctl, variables of allocators, flags of JVMs, PostgreSQL.

use host::process::{self, Mapping, Maps};
use host::{Root, Unknown};
use services::{Process, Target};
use units::ByteSize;

/// A running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    /// The process.
    pub process: Process,
    /// `THP_enabled` in its status: false if prctl(PR_SET_THP_DISABLE) is set; `None` before Linux 5.0.
    pub thp_enabled: Option<bool>,
    /// Resident memory in bytes, without hugetlb pages.
    pub resident: Option<ByteSize>,
    /// Resident hugetlb pages in bytes.
    pub hugetlb: Option<ByteSize>,
    /// Programs and variables that ask for superpages.
    pub asks: Vec<Program>,
}

/// A request for superpages in a process's variables or arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `HUGETLB_MORECORE`, with a C library that has no hook for malloc's memory any more (glibc 2.34) and without
    /// libsuperpage, which takes its place.
    MorecoreWithoutHook,
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`: THP for malloc.
    GlibcThp,
    /// `GLIBC_TUNABLES=glibc.malloc.hugetlb=2`: hugetlb pages for malloc.
    GlibcHugetlb,
    /// `java -XX:+UseLargePages`.
    JvmHugetlb,
    /// `java -XX:+UseTransparentHugePages`.
    JvmThp,
}

/// Reads every process, and what could not be read.
pub(crate) fn read(root: &Root) -> (Vec<ProcessFacts>, Vec<Unknown>) {
    let selected = match services::select(root, &[Target::All]) {
        Ok(selected) => selected,
        Err(services::SelectError::Read(error)) => {
            let unknown = Unknown { what: "/proc".to_string(), why: error.to_string() };
            return (Vec::new(), vec![unknown]);
        }
        // No process but this one.
        Err(_) => Default::default(),
    };
    let mut unknown = selected.unknown;
    if services::hides_processes(root) {
        let why = "mounted with hidepid, which hides processes of other users; run as root";
        unknown.push(Unknown { what: "/proc".to_string(), why: why.to_string() });
    }
    let (mut refused, mut why) = (0, String::new());
    let mut found = Vec::new();
    for process in selected.processes {
        let pid = process.pid;
        let Ok(memory) = process::status(root, pid) else { continue };
        let mut asks = jvm(&process);
        match root.read(&format!("/proc/{pid}/environ")) {
            Ok(environment) => asks.extend(of_environment(root, &process, &environment)),
            Err(error) if error.is_gone() => continue,
            Err(error) => {
                refused += 1;
                why = error.to_string();
            }
        }
        found.push(ProcessFacts {
            thp_enabled: memory.thp_enabled,
            resident: memory.rss,
            hugetlb: memory.hugetlb,
            process,
            asks,
        });
    }
    if refused > 0 {
        let what = match refused {
            1 => "variables of a process".to_string(),
            _ => format!("variables of {refused} processes"),
        };
        unknown.push(Unknown { what, why });
    }
    (found, unknown)
}

fn jvm(process: &Process) -> Vec<Program> {
    if process.program_name() != "java" {
        return Vec::new();
    }
    let is_on = |name: &str| services::jvm_switch(&process.command, name) == Some(true);
    match (is_on("UseTransparentHugePages"), is_on("UseLargePages")) {
        (true, _) => vec![Program::JvmThp],
        (false, true) => vec![Program::JvmHugetlb],
        (false, false) => Vec::new(),
    }
}

fn of_environment(root: &Root, process: &Process, environment: &str) -> Vec<Program> {
    let value = |name: &str| {
        let mut variables = environment.split('\0').filter_map(|one| one.split_once('='));
        variables.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let mut asks = Vec::new();
    let tunables = value("GLIBC_TUNABLES").unwrap_or_default();
    for tunable in tunables.split(':') {
        match tunable {
            "glibc.malloc.hugetlb=1" => asks.push(Program::GlibcThp),
            "glibc.malloc.hugetlb=2" => asks.push(Program::GlibcHugetlb),
            _ => {}
        }
    }
    if value("HUGETLB_MORECORE").is_some_and(|it| it != "no") && lacks_hook(root, process) {
        asks.push(Program::MorecoreWithoutHook);
    }
    asks
}

/// Whether the process has a glibc without malloc hooks, and no libsuperpage. Since glibc 2.34 the library's file is
/// `libc.so.6`; before, that was a link to `libc-2.31.so` and the like.
fn lacks_hook(root: &Root, process: &Process) -> bool {
    let Ok(maps) = Maps::open(root, process.pid) else { return false };
    let mut has_new_libc = false;
    for mapping in maps.flatten() {
        let file = mapping.name.rsplit('/').next().unwrap_or_default();
        if file.starts_with("libsuperpage.so") {
            return false;
        }
        has_new_libc |= file == "libc.so.6";
    }
    has_new_libc
}

/// A PostgreSQL server, from the files of its first process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// Its process.
    pub process: Process,
    /// The file of settings, as the server sees it.
    pub file: String,
    /// `shared_buffers`; the server's default if no file sets it.
    pub shared_buffers: ByteSize,
    /// Bytes of its shared memory, which holds more than the buffers: its largest shared anonymous mapping. `None` if its
    /// mappings cannot be read, or the memory is on hugetlb pages.
    pub shared: Option<ByteSize>,
    /// Whether the server asks for hugetlb pages: `huge_pages` is `on` or `try`.
    pub wants_hugetlb: bool,
    /// Its resident hugetlb pages in bytes.
    pub hugetlb: Option<ByteSize>,
}

impl Postgres {
    /// Reads the settings of a server's first process; `None` if this is none, or its files cannot be read.
    pub(crate) fn read(root: &Root, facts: &ProcessFacts) -> Option<Self> {
        let process = &facts.process;
        if !["postgres", "postmaster"].contains(&process.program_name()) {
            return None;
        }
        let words = &process.command;
        let directory = words.iter().position(|word| word == "-D").and_then(|at| words.get(at + 1));
        let named = words.iter().find_map(|word| {
            word.trim_start_matches("--").strip_prefix("config_file=").map(str::to_string)
        });
        let file = named.or_else(|| Some(format!("{}/postgresql.conf", directory?)))?;
        // The server may be in a container: its files are below its own root.
        let read = |file: &str| {
            root.read_regular(&format!("/proc/{}/root{file}", process.pid)).ok().flatten()
        };
        let mut text = read(&file)?;
        if let Some(more) = directory.and_then(|dir| read(&format!("{dir}/postgresql.auto.conf"))) {
            text += &format!("\n{more}");
        }
        let value = |name: &str| {
            // `name = value` or `name value`.
            let mut values = text.lines().filter_map(|line| {
                let rest = line.split('#').next()?.trim().strip_prefix(name)?;
                rest.starts_with([' ', '\t', '='])
                    .then(|| rest.trim_start().trim_start_matches('='))
            });
            values.next_back().map(|value| value.trim().trim_matches('\'').to_string())
        };
        let wants = value("huge_pages").is_none_or(|value| value == "on" || value == "try");
        let shared_buffers = match value("shared_buffers") {
            Some(value) => postgres_bytes(&value)?,
            // Its default.
            None => ByteSize::mib(128),
        };
        Some(Self {
            process: process.clone(),
            file,
            shared_buffers,
            shared: shared_memory(root, process),
            wants_hugetlb: wants,
            hugetlb: facts.hugetlb,
        })
    }
}

/// The size of the largest mapping of shared anonymous or SysV memory.
fn shared_memory(root: &Root, process: &Process) -> Option<ByteSize> {
    let maps = Maps::open(root, process.pid).ok()?;
    let is_shared = |mapping: &Mapping| {
        ["/dev/zero", "/SYSV"].iter().any(|name| mapping.name.starts_with(name))
    };
    let sizes = maps.flatten().filter(is_shared).map(|mapping| mapping.len());
    sizes.max().map(ByteSize)
}

/// PostgreSQL's sizes: a number of 8 KiB blocks, or a number and kB, MB, GB or TB.
fn postgres_bytes(text: &str) -> Option<ByteSize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[end..].trim() {
        "" => 8 << 10,
        "B" => 1,
        "kB" => 1 << 10,
        "MB" => 1 << 20,
        "GB" => 1 << 30,
        "TB" => 1 << 40,
        _ => return None,
    };
    Some(ByteSize(text[..end].parse::<u64>().ok()?.checked_mul(unit)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_postgres() {
        for (text, bytes) in [
            ("128MB", Some(128 << 20)),
            ("16384", Some(128 << 20)),
            ("2 GB", Some(2 << 30)),
            ("1TB", Some(1 << 40)),
            ("64gb", None),
            ("", None),
        ] {
            assert_eq!(postgres_bytes(text).map(|it| it.bytes()), bytes, "{text}");
        }
    }
}
