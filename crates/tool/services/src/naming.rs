//! Names of services: what processes of many machines are grouped by.
//!
//! A name is the same on every machine that runs the service, so ids of containers, pods and sessions are not part of it.

use std::sync::LazyLock;

use regex::Regex;

use crate::Process;

/// What processes are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// A named container, else the systemd service, else the container's runtime with the program, else the program.
    Service,
    /// The systemd unit.
    Unit,
    /// The program.
    Program,
    /// The cgroup's path, with `*` in place of ids.
    Cgroup,
}

/// Ids that differ between machines: UUIDs, and hexadecimal numbers of at least 12 digits.
static ID: LazyLock<Regex> =
    LazyLock::new(|| expression("[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{12,}"));

/// Scopes of logins and of `systemd-run`, which are numbered.
static NUMBERED: LazyLock<Regex> =
    LazyLock::new(|| expression(r"^(session-|run-|run-[a-z]+|app-.*-)[0-9]+(\.scope|\.service)$"));

fn expression(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

impl Naming {
    /// The name of the group that a process belongs to; empty for a process outside every unit or cgroup.
    pub fn name(self, process: &Process) -> String {
        let cgroup = process.cgroup.as_deref().unwrap_or("");
        match self {
            Self::Program => process.program_name().to_string(),
            Self::Unit => process.unit.as_deref().map(without_ids).unwrap_or_default(),
            Self::Cgroup => {
                let parts: Vec<String> = cgroup.split('/').map(without_ids).collect();
                parts.join("/")
            }
            Self::Service => match container(cgroup) {
                Some((runtime, Some(name))) => format!("{runtime}:{name}"),
                Some((runtime, None)) => format!("{runtime}:{}", process.program_name()),
                None => match process.unit.as_deref().filter(|unit| is_service(unit)) {
                    Some(unit) => unit.to_string(),
                    None => process.program_name().to_string(),
                },
            },
        }
    }
}

/// Whether a unit is started from a file, and so has the same name everywhere.
fn is_service(unit: &str) -> bool {
    unit.ends_with(".service") && !unit.starts_with("user@") && !NUMBERED.is_match(unit)
}

fn without_ids(part: &str) -> String {
    match NUMBERED.captures(part) {
        Some(found) => format!("{}*{}", &found[1], &found[2]),
        None => ID.replace_all(part, "*").into_owned(),
    }
}

/// Runtime and name of the container whose cgroup this is; `None` as a name: the cgroup has the container's id only.
fn container(cgroup: &str) -> Option<(&'static str, Option<String>)> {
    let mut before = "";
    for part in cgroup.split('/') {
        if let Some(found) = container_of(before, part, cgroup) {
            return Some(found);
        }
        before = part;
    }
    None
}

/// One part of a cgroup's path, with the part before.
fn container_of(before: &str, part: &str, cgroup: &str) -> Option<(&'static str, Option<String>)> {
    let named = |name: &str| Some(name.to_string()).filter(|name| !name.is_empty());
    // Containers of LXC 3 and of LXC 4 on.
    if before == "lxc" || before == "lxc.payload" {
        return Some(("lxc", named(part)));
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(("lxc", named(name)));
    }
    // systemd-machined: `machine-qemu\x2d3\x2dweb.scope` of libvirt, `machine-web.scope` of others.
    if let Some(name) = part.strip_prefix("machine-").and_then(|name| name.strip_suffix(".scope")) {
        let name = name.replace(r"\x2d", "-");
        let libvirt = name.strip_prefix("qemu-").and_then(|rest| {
            let (number, rest) = rest.split_once('-')?;
            number.parse::<u32>().is_ok().then(|| rest.to_string())
        });
        return Some(("machine", named(&libvirt.unwrap_or(name))));
    }
    if !ID.is_match(part) {
        return None;
    }
    let is_of = |runtime: &str| before == runtime || part.starts_with(&format!("{runtime}-"));
    match () {
        () if cgroup.contains("kubepods") => Some(("kubernetes", None)),
        () if is_of("docker") => Some(("docker", None)),
        () if is_of("libpod") => Some(("podman", None)),
        () if is_of("cri-containerd") || is_of("containerd") => Some(("containerd", None)),
        () if is_of("crio") => Some(("crio", None)),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use units::Pid;

    use super::*;

    fn process(command: &str, unit: Option<&str>, cgroup: Option<&str>) -> Process {
        Process {
            pid: Pid(7),
            start_ticks: 1,
            parent: Pid(1),
            name: "name".into(),
            command: vec![command.to_string()],
            user: None,
            cgroup: cgroup.map(str::to_string),
            unit: unit.map(str::to_string),
        }
    }

    #[test]
    fn a_service_has_one_name_on_every_machine() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pod = "kubepods-burstable-pod0a1b2c3d_0123_4567_89ab_0123456789ab.slice";
        for (unit, cgroup, expected) in [
            (Some("redis.service"), "/system.slice/redis.service".into(), "redis.service"),
            (Some("session-3.scope"), "/user.slice/session-3.scope".into(), "app"),
            (Some("user@1000.service"), "/user.slice/user@1000.service".into(), "app"),
            (Some("run-u12.service"), "/system.slice/run-u12.service".into(), "app"),
            (None, String::new(), "app"),
            (Some("x"), format!("/system.slice/docker-{id}.scope"), "docker:app"),
            (None, format!("/docker/{id}"), "docker:app"),
            (None, format!("/kubepods.slice/{pod}/cri-containerd-{id}.scope"), "kubernetes:app"),
            (None, format!("/machine.slice/libpod-{id}.scope/container"), "podman:app"),
            (None, "/lxc/web/system.slice".into(), "lxc:web"),
            (None, "/lxc.payload.web/init.scope".into(), "lxc:web"),
            (None, r"/machine.slice/machine-qemu\x2d3\x2dweb\x2d1.scope".into(), "machine:web-1"),
            (Some("docker.service"), "/system.slice/docker.service".into(), "docker.service"),
        ] {
            let process = process("/usr/bin/app", unit, Some(&cgroup));
            assert_eq!(Naming::Service.name(&process), expected, "{cgroup}");
        }
    }

    #[test]
    fn ids_are_no_part_of_a_cgroups_or_units_name() {
        let id = "0123456789abcdef";
        let cgroup = format!("/kubepods/pod0a1b2c3d-0123-4567-89ab-0123456789ab/{id}");
        let one = process("app: x", Some("session-12.scope"), Some(&cgroup));
        assert_eq!(Naming::Cgroup.name(&one), "/kubepods/pod*/*");
        assert_eq!(Naming::Unit.name(&one), "session-*.scope");
        assert_eq!(Naming::Program.name(&one), "app");
        let none = process("app", None, None);
        assert_eq!((Naming::Unit.name(&none), Naming::Cgroup.name(&none)), <_>::default());
    }
}
