//! Advice of many nodes joined into one table by service.
//!
//! Documents are added one at a time; of each node and service about a hundred bytes are kept. A node counts once: of
//! several documents the newest stays. See docs/decisions/advise.md#8.

use std::collections::{BTreeMap, HashMap};

use report::document::NotJson;
use serde::{Deserialize, Serialize};
use services::{Naming, Process};
use units::ByteSize;

use crate::combine::{Footprint, Sum, Together, gain, saved};
use crate::sampler::PERIOD;
use crate::verdict::{Range, Verdict, Why};

/// The schema of the documents that are joined.
pub const SCHEMA: &str = "superpage.advise/1";
/// Most nodes that are named in a list.
const NAMED: usize = 5;

/// The machine that a document is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name (`uname -n`); `None`: unknown.
    pub name: Option<String>,
    /// The processor's name; `None`: unknown.
    pub processor: Option<String>,
    /// The kernel's release; `None`: unknown.
    pub kernel: Option<String>,
}

/// A document of one node, as far as the table needs it.
#[derive(Debug, Deserialize)]
pub struct NodeDocument {
    /// Missing in documents of earlier versions.
    #[serde(default)]
    machine: Node,
    /// Seconds since 1970; missing in documents of earlier versions.
    #[serde(default)]
    taken: Option<u64>,
    processes: Vec<NodeAdvice>,
    #[serde(default)]
    failed: Vec<NodeFailure>,
    #[serde(default)]
    left_out: u64,
}

#[derive(Debug, Deserialize)]
struct NodeAdvice {
    process: Process,
    verdict: Verdict,
    #[serde(flatten)]
    memory: Footprint,
    /// Missing in documents of earlier versions.
    #[serde(default)]
    shared: Footprint,
    look: NodeLook,
}

#[derive(Debug, Deserialize)]
struct NodeLook {
    #[serde(deserialize_with = "units::elapsed")]
    seconds: f64,
    #[serde(deserialize_with = "units::count")]
    samples: u64,
    #[serde(default, deserialize_with = "units::seconds")]
    cpu_seconds: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct NodeFailure {
    /// Missing in documents of earlier versions.
    #[serde(default)]
    process: Option<Process>,
}

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unusable {
    /// It cannot be read.
    Unreadable,
    /// It is larger than any such document.
    TooLarge,
    /// It has no bytes, or blanks only.
    Empty,
    /// The JSON ends early.
    Truncated,
    /// It is no JSON.
    NotJson,
    /// It is another document, or has no schema.
    OtherDocument,
    /// It is advice in another version.
    OtherVersion,
    /// A field is missing or out of its range.
    Invalid,
}

/// What is wrong with a file, with the text for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The kind.
    pub kind: Unusable,
    /// One line.
    pub why: String,
}

impl NodeDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// It is empty, truncated, no JSON, another document or version, or has an invalid field.
    pub fn read(text: &str) -> Result<Self, Refused> {
        let refused = |kind, why: String| Refused { kind, why };
        let head = report::document::json(text).map_err(|error| {
            let kind = match error {
                NotJson::Empty => Unusable::Empty,
                NotJson::Truncated(_) => Unusable::Truncated,
                NotJson::Other(_) => Unusable::NotJson,
            };
            refused(kind, error.to_string())
        })?;
        match head["schema"].as_str() {
            Some(SCHEMA) => {}
            None => return Err(refused(Unusable::OtherDocument, "no schema".to_string())),
            Some(other) => {
                let (name, _) = SCHEMA.split_once('/').unwrap_or((SCHEMA, ""));
                let kind = match other.split_once('/').is_some_and(|(of, _)| of == name) {
                    true => Unusable::OtherVersion,
                    false => Unusable::OtherDocument,
                };
                return Err(refused(kind, format!("schema {other:?}, expected {SCHEMA}")));
            }
        }
        let document: Self =
            report::document::read(text).map_err(|why| refused(Unusable::Invalid, why))?;
        match document.check() {
            Ok(()) => Ok(document),
            Err(why) => Err(refused(Unusable::Invalid, why)),
        }
    }

    fn check(&self) -> Result<(), String> {
        for (at, one) in self.processes.iter().enumerate() {
            let Some(Range { low, mid, high }) = one.verdict.range() else { continue };
            if low > mid || mid > high {
                return Err(format!(
                    "processes[{at}].verdict: {mid} is not in {low} to {high}: expected low <= mid <= high"
                ));
            }
        }
        Ok(())
    }
}

impl NodeLook {
    /// CPUs that the process used; of a process that ended, those of its samples.
    fn cpus(&self) -> f64 {
        cpus(self.cpu_seconds, self.samples as usize, self.seconds)
    }
}

/// CPUs that a process used while it was sampled for `seconds`; where its CPU time is unknown, that of its samples.
pub fn cpus(cpu_seconds: Option<f64>, samples: usize, seconds: f64) -> f64 {
    let of_samples = || samples as f64 * PERIOD as f64 * 1e-9;
    cpu_seconds.unwrap_or_else(of_samples) / seconds
}

/// One service on one node.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    sum: Sum,
    memory: Together,
    processes: u32,
    unknown: UnknownProcesses,
}

/// Processes whose gain is unknown, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct UnknownProcesses {
    /// Too little CPU time in user mode.
    pub few_samples: u32,
    /// Too many accesses without an address.
    pub lost: u32,
    /// Not looked at: no permission, ended, or a 32-bit program.
    pub failed: u32,
}

#[derive(Debug)]
struct Entry {
    taken: Option<u64>,
    left_out: u64,
    services: Vec<(u32, Share)>,
}

/// Documents of many nodes, as they are added.
#[derive(Debug)]
pub struct Fleet {
    naming: Naming,
    names: BTreeMap<String, u32>,
    nodes: HashMap<String, Entry>,
    documents: u64,
}

/// Nodes of a service by what superpages would bring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounts {
    /// All.
    pub all: u64,
    /// A gain, of which even the lower bound is above 0.
    pub gain: u64,
    /// A gain of at least 1 %, whose interval has 0 in it.
    pub undecided: u64,
    /// Less than 1 %.
    pub none: u64,
    /// Nodes, counted among `none` too, whose best estimate is a loss of speed.
    pub lose: u64,
    /// Nodes, counted among `none` too, on which superpages would take more memory.
    pub memory_only: u64,
    /// Unknown: processes with at least half of the CPU time have an unknown gain.
    pub unknown: u64,
}

/// The middle of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The gain of the node at 5 %.
    pub low: f64,
    /// The gain of the node at 95 %.
    pub high: f64,
}

/// One service on all nodes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Service {
    /// Its name; empty: processes outside every unit or cgroup.
    pub service: String,
    /// Its nodes.
    pub nodes: NodeCounts,
    /// Names of nodes that would lose speed, the greatest loss first; at most five.
    pub losing_nodes: Vec<String>,
    /// Its processes.
    pub processes: u64,
    /// Its processes whose gain is unknown.
    pub unknown_processes: UnknownProcesses,
    /// CPUs that it uses.
    pub cpus: f64,
    /// Share of these CPUs on nodes whose gain is known; `None`: no CPU time.
    pub known_share: Option<f64>,
    /// Expected gain, weighted by CPU time, with its 95 % interval over nodes; `None`: known of no node.
    pub gain: Option<Range>,
    /// The gains of nine nodes in ten; `None`: known of no node.
    pub spread: Option<Spread>,
    /// CPUs that superpages would save on the nodes whose gain is known.
    pub saved_cpus: Option<Range>,
    /// Its memory on all nodes. Shared memory counts once on a node.
    #[serde(flatten)]
    pub memory: Footprint,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Merged {
    /// Nodes with a document.
    pub nodes: u64,
    /// Documents that were replaced by a newer one of the same node.
    pub replaced: u64,
    /// Processes that were selected on the nodes and not sampled, because others have more memory.
    pub left_out: u64,
    /// The services, the most saved CPU time first.
    pub services: Vec<Service>,
}

impl Fleet {
    /// No documents yet.
    pub fn new(naming: Naming) -> Self {
        Self { naming, names: BTreeMap::new(), nodes: HashMap::new(), documents: 0 }
    }

    /// Adds a document. A node without a name in its document has that of the file.
    pub fn add(&mut self, file: &str, document: NodeDocument) {
        self.documents += 1;
        let name = document.machine.name.filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| file.to_string());
        if self.nodes.get(&name).is_some_and(|old| old.taken >= document.taken) {
            return;
        }
        let mut services: BTreeMap<u32, Share> = BTreeMap::new();
        for one in &document.processes {
            let share = services.entry(self.id(&one.process)).or_default();
            share.processes = share.processes.saturating_add(1);
            share.sum.add(&one.verdict, one.look.cpus());
            share.memory.add(one.memory, one.shared);
            match one.verdict {
                Verdict::Unknown(Why::FewSamples) => share.unknown.few_samples += 1,
                Verdict::Unknown(Why::Lost) => share.unknown.lost += 1,
                Verdict::Gain(_) | Verdict::None(_) => {}
            }
        }
        for process in document.failed.iter().filter_map(|one| one.process.as_ref()) {
            let share = services.entry(self.id(process)).or_default();
            share.processes = share.processes.saturating_add(1);
            share.unknown.failed += 1;
        }
        let entry = Entry {
            taken: document.taken,
            left_out: document.left_out,
            services: services.into_iter().collect(),
        };
        self.nodes.insert(name, entry);
    }

    fn id(&mut self, process: &Process) -> u32 {
        let next = self.names.len() as u32;
        *self.names.entry(self.naming.name(process)).or_insert(next)
    }

    /// The table of the documents added.
    pub fn merged(&self) -> Merged {
        let mut by_service: Vec<Vec<(&str, &Share)>> = vec![Vec::new(); self.names.len()];
        for (name, entry) in &self.nodes {
            for (id, share) in &entry.services {
                by_service[*id as usize].push((name, share));
            }
        }
        let mut services: Vec<Service> = self
            .names
            .iter()
            .map(|(name, id)| (name, std::mem::take(&mut by_service[*id as usize])))
            // A service of replaced documents only.
            .filter(|(_, nodes)| !nodes.is_empty())
            .map(|(name, mut nodes)| {
                nodes.sort_by_key(|(node, _)| *node);
                Service::new(name, &nodes)
            })
            .collect();
        services.sort_by(|a, b| {
            let saved = |one: &Service| one.saved_cpus.map_or(0.0, |range| range.mid);
            let by_saved = saved(b).total_cmp(&saved(a));
            by_saved.then(b.memory.on_base_pages.cmp(&a.memory.on_base_pages))
        });
        let nodes = self.nodes.len() as u64;
        Merged {
            nodes,
            replaced: self.documents - nodes,
            left_out: self.nodes.values().map(|entry| entry.left_out).fold(0, u64::saturating_add),
            services,
        }
    }
}

impl Service {
    fn new(name: &str, nodes: &[(&str, &Share)]) -> Self {
        let mut counts = NodeCounts { all: nodes.len() as u64, ..NodeCounts::default() };
        let mut unknown = UnknownProcesses::default();
        let mut all_cpus = 0.0;
        let mut known: Vec<(f64, Range)> = Vec::new();
        let mut losing: Vec<(f64, &str)> = Vec::new();
        for (node, share) in nodes {
            all_cpus += share.sum.known + share.sum.unknown;
            unknown.few_samples += share.unknown.few_samples;
            unknown.lost += share.unknown.lost;
            unknown.failed += share.unknown.failed;
            let Some(range) = share.sum.range() else {
                counts.unknown += 1;
                continue;
            };
            known.push((share.sum.known, range));
            match Verdict::new(range) {
                Verdict::Gain(range) if range.low > 0.0 => counts.gain += 1,
                Verdict::Gain(_) => counts.undecided += 1,
                Verdict::None(_) | Verdict::Unknown(_) => {
                    counts.none += 1;
                    counts.memory_only += u64::from(share.memory.all().extra_bytes > ByteSize(0));
                }
            }
            if range.mid < 0.0 {
                counts.lose += 1;
                losing.push((range.mid, node));
            }
        }
        losing.sort_by(|a, b| a.0.total_cmp(&b.0));
        let known_cpus: f64 = known.iter().map(|(cpus, _)| cpus).sum();
        let range = expected(&known);
        let memory = nodes.iter().map(|(_, share)| share.memory.all());
        let memory = memory.fold(Footprint::default(), Footprint::plus);
        Self {
            service: name.to_string(),
            nodes: counts,
            losing_nodes: losing.iter().take(NAMED).map(|(_, node)| (*node).to_string()).collect(),
            processes: nodes.iter().map(|(_, share)| u64::from(share.processes)).sum(),
            unknown_processes: unknown,
            cpus: all_cpus,
            known_share: (all_cpus > 0.0).then(|| known_cpus / all_cpus),
            gain: range,
            spread: spread(&known),
            saved_cpus: range.map(|Range { low, mid, high }| {
                let cpus = |gain: f64| saved(gain) * known_cpus;
                Range { low: cpus(low), mid: cpus(mid), high: cpus(high) }
            }),
            memory,
        }
    }
}

/// The gain of nodes, each with its CPUs, and its 95 % interval.
///
/// The saved share is a ratio of two sums over nodes (Cochran, Sampling Techniques, 1977, section 6). To the error of that ratio
/// comes the nodes' own interval: the error of the model is the same on every node and does not average out.
fn expected(nodes: &[(f64, Range)]) -> Option<Range> {
    let cpus: f64 = nodes.iter().map(|(cpus, _)| cpus).sum();
    if cpus <= 0.0 {
        return None;
    }
    let mean = |of: fn(&Range) -> f64| {
        nodes.iter().map(|(cpus, range)| cpus * saved(of(range))).sum::<f64>() / cpus
    };
    let (low, mid, high) =
        (mean(|range| range.low), mean(|range| range.mid), mean(|range| range.high));
    let count = nodes.len() as f64;
    let squares = nodes.iter().map(|(cpus, range)| (cpus * (saved(range.mid) - mid)).powi(2));
    let between = match nodes.len() {
        0 | 1 => 0.0,
        _ => t95(nodes.len() - 1) * (count / (count - 1.0) * squares.sum::<f64>()).sqrt() / cpus,
    };
    // A saved share of 1 would be an infinite gain.
    let bound = |saved: f64| gain(saved.min(0.99));
    Some(Range {
        low: bound(mid - (mid - low).hypot(between)),
        mid: bound(mid),
        high: bound(mid + (high - mid).hypot(between)),
    })
}

/// The quantile of Student's t at 97.5 %.
fn t95(freedom: usize) -> f64 {
    const T: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    T.get(freedom.saturating_sub(1)).copied().unwrap_or(1.96 + 2.46 / freedom as f64)
}

fn spread(nodes: &[(f64, Range)]) -> Option<Spread> {
    let mut gains: Vec<f64> = nodes.iter().map(|(_, range)| range.mid).collect();
    gains.sort_by(f64::total_cmp);
    let at =
        |share: f64| gains.get(((gains.len().checked_sub(1)?) as f64 * share).round() as usize);
    Some(Spread { low: *at(0.05)?, high: *at(0.95)? })
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// A document of one process.
    fn document(node: &str, taken: u64, unit: &str, verdict: &str, cpus: f64) -> String {
        format!(
            r#"{{"schema":"superpage.advise/1","machine":{{"name":"{node}","processor":null,"kernel":null}},
            "taken":{taken},"left_out":1,"failed":[],"processes":[{{"process":{{"pid":7,"start_ticks":1,"parent":1,
            "name":"app","command":["/usr/bin/app"],"user":0,"cgroup":"/system.slice/{unit}","unit":"{unit}"}},
            "verdict":{verdict},"extra_bytes":4096,"on_base_pages":1000,"on_superpages":500,"regions":[],
            "look":{{"seconds":20.0,"samples":800,"cpu_seconds":{}}}}}]}}"#,
            20.0 * cpus
        )
    }

    fn fleet(documents: &[String]) -> Merged {
        let mut fleet = Fleet::new(Naming::Service);
        for (at, text) in documents.iter().enumerate() {
            fleet.add(&format!("{at}.json"), NodeDocument::read(text).unwrap());
        }
        fleet.merged()
    }

    const TENTH: &str = r#"{"kind":"gain","low":0.1,"mid":0.1,"high":0.1}"#;
    const NOTHING: &str = r#"{"kind":"none","low":-0.01,"mid":0.0,"high":0.01}"#;
    const LOSS: &str = r#"{"kind":"none","low":-0.2,"mid":-0.1,"high":-0.05}"#;
    const FEW: &str = r#"{"kind":"unknown","why":"few-samples"}"#;

    #[test]
    fn nodes_are_counted_by_verdict_and_services_ranked_by_saved_cpus() {
        let merged = fleet(&[
            document("a", 1, "small.service", TENTH, 1.0),
            document("b", 1, "large.service", TENTH, 4.0),
            document("c", 1, "large.service", NOTHING, 4.0),
            document("d", 1, "large.service", LOSS, 1.0),
            document("e", 1, "large.service", FEW, 1.0),
        ]);
        assert_eq!((merged.nodes, merged.replaced, merged.left_out), (5, 0, 5));
        let names: Vec<&str> = merged.services.iter().map(|one| one.service.as_str()).collect();
        // 4 CPUs at +10 % and one at -10 % save 0.25; the other one 0.09.
        assert_eq!(names, ["large.service", "small.service"]);
        let large = &merged.services[0];
        let expected = NodeCounts {
            all: 4,
            gain: 1,
            undecided: 0,
            none: 2,
            lose: 1,
            memory_only: 2,
            unknown: 1,
        };
        assert_eq!(large.nodes, expected);
        assert_eq!(large.losing_nodes, ["d"]);
        assert_eq!((large.unknown_processes.few_samples, large.processes), (1, 4));
        assert_eq!((large.cpus, large.known_share), (10.0, Some(0.9)));
        let share = (4.0 * saved(0.1) + saved(-0.1)) / 9.0;
        assert!((large.gain.unwrap().mid - gain(share)).abs() < 1e-12);
        assert!((large.saved_cpus.unwrap().mid - 9.0 * share).abs() < 1e-12);
        assert_eq!(large.memory.on_base_pages, ByteSize(4000));
        // One node: its own interval.
        let one = merged.services[1].gain.unwrap();
        assert!((one.low - 0.1).abs() < 1e-12 && (one.high - 0.1).abs() < 1e-12, "{one:?}");
    }

    #[test]
    fn the_newest_document_of_a_node_counts() {
        let merged = fleet(&[
            document("a", 2, "new.service", TENTH, 1.0),
            document("a", 1, "old.service", TENTH, 1.0),
            document("b", 1, "old2.service", TENTH, 1.0),
            document("b", 3, "new.service", TENTH, 1.0),
        ]);
        assert_eq!((merged.nodes, merged.replaced), (2, 2));
        let names: Vec<&str> = merged.services.iter().map(|one| one.service.as_str()).collect();
        assert_eq!((names, merged.services[0].nodes.all), (vec!["new.service"], 2));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_by_kind() {
        let good = document("a", 1, "x.service", TENTH, 1.0);
        assert!(NodeDocument::read(&good).is_ok());
        let swapped = r#"{"kind":"gain","low":0.3,"mid":0.1,"high":0.1}"#;
        for (text, kind) in [
            (String::new(), Unusable::Empty),
            (" \n".into(), Unusable::Empty),
            (good[..good.len() - 2].to_string(), Unusable::Truncated),
            ("superpage: no permission".into(), Unusable::NotJson),
            (format!("{good}{good}"), Unusable::NotJson),
            ("[]".into(), Unusable::OtherDocument),
            ("{}".into(), Unusable::OtherDocument),
            (r#"{"schema":"superpage.map/1"}"#.into(), Unusable::OtherDocument),
            (good.replace("advise/1", "advise/99"), Unusable::OtherVersion),
            (good.replace("\"extra_bytes\":4096,", ""), Unusable::Invalid),
            (good.replace("\"seconds\":20.0", "\"seconds\":0"), Unusable::Invalid),
            (good.replace("\"seconds\":20.0", "\"seconds\":1e300"), Unusable::Invalid),
            (document("a", 1, "x.service", swapped, 1.0), Unusable::Invalid),
        ] {
            let refused = NodeDocument::read(&text).unwrap_err();
            assert_eq!(refused.kind, kind, "{text}: {refused}");
            assert_eq!(refused.to_string().lines().count(), 1, "{refused}");
        }
    }

    /// Of fleets drawn from one population of nodes, 95 of 100 intervals hold the population's gain.
    #[test]
    fn the_interval_holds_the_gain_of_the_population() {
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let mut uniform = move || random.next_u64() as f64 / u64::MAX as f64;
        let (mut held, fleets) = (0, 400);
        for _ in 0..fleets {
            let nodes: Vec<(f64, Range)> = (0..25)
                .map(|_| {
                    // Independent of each other: the saved share is 0 to 0.2, the CPUs 0.5 to 1.5.
                    let of = gain(0.2 * uniform());
                    (0.5 + uniform(), Range { low: of, mid: of, high: of })
                })
                .collect();
            let found = expected(&nodes).unwrap();
            held += usize::from(found.low <= gain(0.1) && gain(0.1) <= found.high);
        }
        assert!((368..=392).contains(&held), "{held} of {fleets}");
    }

    #[test]
    fn quantiles_of_t_meet_the_table() {
        assert_eq!((t95(1), t95(30)), (12.706, 2.042));
        // Published: 2.000 at 60, 1.980 at 120.
        assert!((t95(60) - 2.000).abs() < 2e-3 && (t95(120) - 1.980).abs() < 2e-3);
    }
}
