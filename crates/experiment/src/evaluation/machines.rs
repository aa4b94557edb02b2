//! Which machines an evaluation was made on. Of a cluster there may be several: each application is of one, and its ratios
//! are within that one.

use std::collections::BTreeSet;

use host::Snapshot;

use super::{Application, Evaluation, NotRun};

/// A machine that applications were measured on.
#[derive(Clone, Debug)]
pub struct Machine<'a> {
    /// Its name, where that is known; what tells two kinds of one name apart is added.
    pub label: String,
    /// What is equal on machines of one kind: CPUs, memory, kernel and THP setting, in a line.
    pub kind: String,
    /// It before the first run of its first application.
    pub snapshot: &'a Snapshot,
    /// Names of the applications.
    pub applications: Vec<&'a str>,
    host: Option<&'a str>,
}

impl Evaluation {
    /// The machines, in the order of their first applications.
    pub fn machines(&self) -> Vec<Machine<'_>> {
        let mut machines: Vec<Machine> = Vec::new();
        for one in &self.applications {
            let (host, kind) = (one.host.as_deref(), one.kind());
            // An unknown name is not another one.
            let fits = |known: Option<&str>| known == host || known.is_none() || host.is_none();
            let known = machines.iter_mut().find(|it| fits(it.host) && it.kind == kind);
            if let Some(machine) = known {
                machine.applications.push(&one.name);
                continue;
            }
            let again = machines.iter().filter(|it| it.host == host).count();
            let name = host.unwrap_or("unnamed");
            let label =
                if again == 0 { name.to_string() } else { format!("{name} ({})", again + 1) };
            let (snapshot, applications) = (&one.comparison.machine, vec![one.name.as_str()]);
            machines.push(Machine { label, kind, snapshot, applications, host });
        }
        machines
    }

    /// Whether it is of several machines, so that each must be named.
    pub fn has_several_hosts(&self) -> bool {
        let hosts = self.applications.iter().map(|one| &one.host);
        let hosts: BTreeSet<_> =
            hosts.chain(self.not_run.iter().map(|one| &one.host)).flatten().collect();
        hosts.len() > 1
    }

    /// The machines in lines, one for each kind, with the names of those of it where there are several.
    pub fn machine_lines(&self) -> Vec<String> {
        let machines = self.machines();
        if let [one] = machines.as_slice() {
            return vec![one.kind.clone()];
        }
        let mut kinds: Vec<&str> = Vec::new();
        for machine in &machines {
            if !kinds.contains(&machine.kind.as_str()) {
                kinds.push(&machine.kind);
            }
        }
        let line = |kind: &str| {
            let labels = machines.iter().filter(|it| it.kind == kind).map(|it| it.label.as_str());
            format!("{}: {kind}", labels.collect::<Vec<_>>().join(", "))
        };
        kinds.into_iter().map(line).collect()
    }
}

impl NotRun {
    /// A line, with the machine's name if that is wanted.
    pub fn line(&self, with_host: bool) -> String {
        let host = self.host.as_ref().filter(|_| with_host);
        let host = host.map_or(String::new(), |host| format!(", on {host}"));
        format!("{}{host}: {}", self.name, self.why)
    }
}

impl Application {
    /// The kind of its machine: what is equal on machines that can be taken for one another.
    pub fn kind(&self) -> String {
        self.comparison.machine_line()
    }
}

/// The label of the machine of an application.
pub fn label_of<'a>(machines: &'a [Machine], application: &str) -> &'a str {
    let machine = machines.iter().find(|it| it.applications.contains(&application));
    machine.map_or("", |machine| machine.label.as_str())
}
