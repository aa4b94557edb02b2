//! A sample as metrics, in the text formats of OpenMetrics and of Prometheus.
//!
//! Names begin with `superpage_`; units are bytes, seconds and ratios; counters end in `_total`. No label is a pid.
//! What is unknown has no sample; the metric's description is printed all the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use host::Pressure;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use units::ByteSize;

use crate::cgroup::CgroupCounters;
use crate::machine::Pool;
use crate::sample::{Group, Grouping, Sample, groups};
use crate::walk::Mapped;

/// Prefixes of the counters of `/proc/vmstat` that are metrics.
const EVENTS: [&str; 5] = ["thp_", "compact_", "allocstall", "pgfault", "pgmajfault"];

/// A sample, with what changes after it was taken.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// The sample.
    pub sample: Arc<Sample>,
    /// How long ago it was taken.
    pub age: Duration,
    /// Number of samples taken since the start.
    pub samples: u64,
}

impl Metrics {
    /// OpenMetrics 1.0, with a final `# EOF`.
    pub fn open_metrics(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &self.registry());
        out
    }

    /// The older text format of Prometheus, which the textfile collector of node_exporter reads.
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let _ = prometheus_text::encode(&mut out, &self.registry());
        out
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::with_prefix("superpage");
        registry.register_collector(Box::new(self.clone()));
        registry
    }
}

type Labels = Vec<(&'static str, String)>;

/// Writes metrics, one family at a time.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn family(
        &mut self,
        kind: MetricType,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in values {
            let Some(value) = value else { continue };
            let place = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => ConstCounter::new(value).encode(place)?,
                _ => ConstGauge::new(value).encode(place)?,
            }
        }
        Ok(())
    }

    fn gauges(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, name, unit, help, values)
    }

    fn counters(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        values: impl IntoIterator<Item = (Labels, Option<f64>)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, name, unit, help, values)
    }

    fn gauge(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        value: Option<f64>,
    ) -> fmt::Result {
        self.gauges(name, unit, help, [(Vec::new(), value)])
    }
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut out = Writer(encoder);
        self.of_processes(&mut out)?;
        self.of_cgroups(&mut out)?;
        self.of_machine(&mut out)?;
        self.of_counters(&mut out)?;
        self.of_exporter(&mut out)
    }
}

fn bytes(value: Option<ByteSize>) -> Option<f64> {
    value.map(|value| value.bytes() as f64)
}

fn count(value: u64) -> Option<f64> {
    Some(value as f64)
}

impl Metrics {
    fn of_processes(&self, out: &mut Writer) -> fmt::Result {
        let groups = groups(&self.sample.processes, Grouping::Both);
        let each = |value: &dyn Fn(&Group) -> Option<f64>| -> Vec<(Labels, Option<f64>)> {
            let labels = |group: &Group| {
                let name = |name: &Option<String>| name.clone().unwrap_or_default();
                vec![("unit", name(&group.unit)), ("cgroup", name(&group.cgroup))]
            };
            groups.iter().map(|group| (labels(group), value(group))).collect()
        };
        let memory = |part: fn(&Mapped) -> Option<ByteSize>| {
            each(&move |group| bytes(group.memory.as_ref().and_then(part)))
        };
        out.gauges(
            "processes",
            None,
            "Processes that have memory.",
            each(&|g| count(g.processes)),
        )?;
        out.gauges(
            "processes_read",
            None,
            "Processes whose page tables have been read: the sums of mapped memory are over these.",
            each(&|g| count(g.read)),
        )?;
        out.gauges(
            "processes_unreadable",
            None,
            "Processes that the exporter may not read.",
            each(&|g| count(g.denied)),
        )?;
        out.gauges(
            "processes_waiting",
            None,
            "Processes whose page tables have not been read yet, or could not be.",
            each(&|g| count(g.waiting)),
        )?;
        out.gauges(
            "resident",
            Some(Unit::Bytes),
            "Resident memory of all processes, hugetlb pages included. Shared memory counts for each process.",
            each(&|g| bytes(g.resident)),
        )?;
        out.gauges(
            "swap",
            Some(Unit::Bytes),
            "Memory of all processes in swap.",
            each(&|g| bytes(g.swap)),
        )?;
        out.gauges(
            "mapped",
            Some(Unit::Bytes),
            "Resident memory by page tables, of the processes read.",
            memory(|m| Some(m.resident)),
        )?;
        out.gauges(
            "mapped_superpages",
            Some(Unit::Bytes),
            "The part of superpage_mapped_bytes on superpages: THP mapped as a whole, and hugetlb pages.",
            memory(|m| Some(m.superpages)),
        )?;
        out.gauges(
            "mapped_potential",
            Some(Unit::Bytes),
            "The part of superpage_mapped_bytes on base pages in aligned anonymous blocks at least half resident.",
            memory(|m| m.possible),
        )?;
        out.gauges(
            "mapped_age",
            Some(Unit::Seconds),
            "Age of the oldest figure in superpage_mapped_bytes when the sample was taken.",
            each(&|g| g.age),
        )
    }

    fn of_cgroups(&self, out: &mut Writer) -> fmt::Result {
        let named = self.sample.cgroups.iter().filter_map(|group| {
            Some((vec![("cgroup", group.cgroup.clone()?)], group.kernel.as_ref()?))
        });
        let named: Vec<(Labels, &CgroupCounters)> = named.collect();
        let each = |value: &dyn Fn(&CgroupCounters) -> Option<f64>| -> Vec<(Labels, Option<f64>)> {
            named.iter().map(|(labels, kernel)| (labels.clone(), value(kernel))).collect()
        };
        out.gauges(
            "cgroup_mapped_once",
            Some(Unit::Bytes),
            "Memory that the cgroup and the groups below it map, each page once, by memory.stat: anon and file_mapped.",
            each(&|kernel| bytes(kernel.mapped_once)),
        )?;
        out.gauges(
            "cgroup_anonymous_superpages",
            Some(Unit::Bytes),
            "Anonymous memory of the cgroup and the groups below it on THP, by memory.stat.",
            each(&|kernel| bytes(kernel.anonymous_superpages)),
        )?;
        out.counters(
            "cgroup_page_faults",
            None,
            "Page faults of the cgroup and the groups below it.",
            each(&|kernel| kernel.faults.and_then(count)),
        )?;
        out.counters(
            "cgroup_superpage_faults",
            None,
            "Page faults of the cgroup that got a superpage (cgroup version 2).",
            each(&|kernel| kernel.superpage_faults.and_then(count)),
        )?;
        out.counters(
            "cgroup_collapses",
            None,
            "Superpages that khugepaged made in the cgroup (cgroup version 2).",
            each(&|kernel| kernel.collapses.and_then(count)),
        )?;
        let waits = named.iter().flat_map(|(labels, kernel)| {
            stalled(kernel.pressure).map(|(tasks, value)| {
                (labels.iter().cloned().chain([("tasks", tasks)]).collect(), value)
            })
        });
        out.counters(
            "cgroup_memory_stalled",
            Some(Unit::Seconds),
            "Time that some or all tasks of the cgroup waited for memory (cgroup version 2).",
            waits.collect::<Vec<_>>(),
        )
    }

    fn of_machine(&self, out: &mut Writer) -> fmt::Result {
        let machine = &self.sample.machine;
        let memory = machine.memory.as_ref();
        let parts = [
            ("total", memory.and_then(|memory| memory.total)),
            ("free", memory.and_then(|memory| memory.free)),
            ("available", memory.and_then(|memory| memory.available)),
            ("anonymous", memory.and_then(|memory| memory.anonymous)),
            ("anonymous_superpages", memory.and_then(|memory| memory.anonymous_superpages)),
            ("shared_superpages", memory.and_then(|memory| memory.shared_superpages)),
            ("file_superpages", memory.and_then(|memory| memory.file_superpages)),
        ];
        out.gauges(
            "machine_memory",
            Some(Unit::Bytes),
            "Memory of the machine, by part; the parts overlap. From /proc/meminfo.",
            parts.map(|(part, value)| (vec![("part", part.to_string())], bytes(value))),
        )?;
        let thp = machine.thp.as_ref();
        let modes = thp.and_then(|thp| thp.enabled.as_ref()).into_iter().flat_map(|choice| {
            choice.allowed.iter().map(|mode| {
                (vec![("mode", mode.clone())], Some(f64::from(u8::from(choice.is(mode)))))
            })
        });
        out.gauges(
            "thp_mode",
            None,
            "1 for the mode of THP that is set, 0 for the others.",
            modes,
        )?;
        let blocks = machine.free_blocks.iter().flatten().flat_map(|zone| {
            zone.blocks.iter().enumerate().map(|(order, blocks)| {
                let labels = vec![
                    ("node", zone.node.0.to_string()),
                    ("zone", zone.zone.clone()),
                    ("order", order.to_string()),
                ];
                (labels, count(*blocks))
            })
        });
        out.gauges(
            "free_blocks",
            None,
            "Free blocks of 2^order base pages in the buddy allocator.",
            blocks,
        )?;
        let free = machine.free_superpages.zip(machine.superpage);
        out.gauge(
            "free_superpages",
            Some(Unit::Bytes),
            "Free memory in blocks of a superpage and larger, which needs no compaction; without the DMA zone.",
            free.map(|(pages, size)| pages as f64 * size.bytes() as f64),
        )?;
        let pool = |value: fn(&Pool) -> Option<ByteSize>| {
            let labels = |pool: &Pool| vec![("page_size", pool.page.bytes().to_string())];
            machine
                .pools
                .iter()
                .map(move |pool| (labels(pool), bytes(value(pool))))
                .collect::<Vec<_>>()
        };
        let unit = || Some(Unit::Bytes);
        out.gauges("pool", unit(), "Memory in the hugetlb pool.", pool(|p| p.total))?;
        out.gauges(
            "pool_free",
            unit(),
            "Memory in the hugetlb pool that is not in use.",
            pool(|p| p.free),
        )?;
        out.gauges(
            "pool_reserved",
            unit(),
            "Free memory in the hugetlb pool that is reserved for mappings.",
            pool(|p| p.reserved),
        )?;
        out.gauges(
            "pool_surplus",
            unit(),
            "Memory in the hugetlb pool beyond its persistent pages.",
            pool(|p| p.surplus),
        )
    }

    fn of_counters(&self, out: &mut Writer) -> fmt::Result {
        let machine = &self.sample.machine;
        let events = machine.counters.iter().flat_map(|counters| &counters.0);
        let events = events.filter(|(name, _)| EVENTS.iter().any(|one| name.starts_with(one)));
        out.counters(
            "vm_events",
            None,
            "Events since boot by the name in /proc/vmstat; base pages where the name says so.",
            events.map(|(name, value)| (vec![("event", name.clone())], count(*value))),
        )?;
        let thp = machine.thp.as_ref();
        let sizes = thp.into_iter().flat_map(|thp| &thp.sizes).flat_map(|(size, state)| {
            // `nr_` are numbers of folios, which also fall.
            let events = state.stats.iter().filter(|(name, _)| !name.starts_with("nr_"));
            events.map(|(name, value)| {
                let size = size.bytes().to_string();
                (vec![("page_size", size), ("event", name.clone())], count(*value))
            })
        });
        out.counters(
            "thp_events",
            None,
            "Events of THP since boot, by page size, from hugepages-*kB/stats.",
            sizes,
        )?;
        let khugepaged = thp.map(|thp| &thp.khugepaged);
        let collapses = khugepaged.and_then(|it| it.pages_collapsed).and_then(count);
        out.counters(
            "khugepaged_collapses",
            None,
            "Superpages that khugepaged made since boot.",
            [(Vec::new(), collapses)],
        )?;
        let passes = khugepaged.and_then(|it| it.full_scans).and_then(count);
        out.counters(
            "khugepaged_passes",
            None,
            "Passes of khugepaged over all memory since boot.",
            [(Vec::new(), passes)],
        )?;
        let waits = stalled(machine.pressure);
        out.counters(
            "memory_stalled",
            Some(Unit::Seconds),
            "Time that some or all tasks of the machine waited for memory since boot.",
            waits.map(|(tasks, value)| (vec![("tasks", tasks)], value)),
        )
    }

    fn of_exporter(&self, out: &mut Writer) -> fmt::Result {
        let (sample, seconds) = (&self.sample, || Some(Unit::Seconds));
        let cost = &sample.cost;
        out.counters(
            "exporter_cpu",
            seconds(),
            "CPU time that the exporter used since its start.",
            [(Vec::new(), Some(cost.cpu))],
        )?;
        out.counters(
            "exporter_samples",
            None,
            "Samples taken since the start.",
            [(Vec::new(), count(self.samples))],
        )?;
        out.gauge(
            "exporter_sample_age",
            seconds(),
            "Age of the sample.",
            Some(self.age.as_secs_f64()),
        )?;
        out.gauge(
            "exporter_observe_duration",
            seconds(),
            "Time that reading names and counters took for the sample.",
            Some(cost.observe),
        )?;
        out.gauge(
            "exporter_scan_duration",
            seconds(),
            "Time that reading page tables took for the sample.",
            Some(cost.scan),
        )?;
        out.gauge(
            "exporter_scanned_processes",
            None,
            "Processes whose page tables were read for the sample.",
            count(cost.scanned),
        )?;
        out.gauge(
            "exporter_slice",
            seconds(),
            "The longest system call on a page table for the sample: a process's mmap lock is held at most so long.",
            Some(cost.slice),
        )?;
        out.gauge(
            "exporter_longest_slice",
            seconds(),
            "The longest such system call since the start.",
            Some(cost.longest_slice),
        )?;
        out.gauge(
            "exporter_unnamed_processes",
            None,
            "Processes, kernel threads included, of which not even the name could be read.",
            count(sample.unnamed),
        )?;
        out.gauge(
            "exporter_hidden_processes",
            None,
            "1 if /proc is mounted with hidepid and processes of other users may be missing.",
            Some(f64::from(u8::from(sample.hides_processes))),
        )
    }
}

/// Seconds that some, and that all tasks waited.
fn stalled(pressure: Option<Pressure>) -> [(String, Option<f64>); 2] {
    let seconds = |part: fn(Pressure) -> f64| pressure.map(part);
    [
        ("some".to_string(), seconds(|pressure| pressure.some.seconds)),
        ("all".to_string(), seconds(|pressure| pressure.full.seconds)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use host::{Counters, Root, Stalled};
    use units::{PageSize, Pid};

    use super::*;
    use crate::machine::Machine;
    use crate::sample::{Cost, Row, Unread};

    /// A sample of two units, one of which has a hostile name and could not be read.
    fn metrics() -> Metrics {
        let row = |pid: i32, unit: &str, memory: Option<Mapped>| Row {
            pid: Pid(pid),
            start_ticks: 1,
            name: "x".into(),
            user_id: Some(0),
            user: None,
            unit: Some(unit.into()),
            cgroup: Some(format!("/{unit}")),
            resident: Some(ByteSize(9 << 20)),
            swap: Some(ByteSize(0)),
            memory,
            age: memory.map(|_| 1.5),
            unread: memory.is_none().then_some(Unread::Denied),
            minor_faults: None,
            major_faults: None,
        };
        let memory = Mapped {
            resident: ByteSize(8 << 20),
            superpages: ByteSize(6 << 20),
            possible: Some(ByteSize(1 << 20)),
            swapped: ByteSize(0),
        };
        let rows = vec![
            row(1, "db.service", Some(memory)),
            row(2, "db.service", None),
            row(3, HOSTILE, None),
        ];
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::read(&Root::at(dir.path()), None);
        machine.counters = Some(Counters(BTreeMap::from([
            ("thp_fault_alloc".to_string(), 1 << 40),
            ("numa_hint_faults".to_string(), 3),
        ])));
        machine.pools = vec![Pool {
            page: PageSize::new(2 << 20).unwrap(),
            total: Some(ByteSize(4 << 20)),
            free: None,
            reserved: None,
            surplus: None,
        }];
        let waits = Stalled { recent: 0.5, seconds: 2.5 };
        machine.pressure = Some(Pressure { some: waits, full: waits });
        let mut cgroups = groups(&rows, Grouping::Cgroup);
        cgroups[1].kernel = Some(CgroupCounters { faults: Some(4), ..CgroupCounters::default() });
        let sample = Sample {
            interval: None,
            machine,
            units: groups(&rows, Grouping::Unit),
            cgroups,
            processes: rows,
            unnamed: 1,
            hides_processes: true,
            cost: Cost { cpu: 0.25, ..Cost::default() },
            unknown: Vec::new(),
        };
        Metrics { sample: Arc::new(sample), age: Duration::from_millis(1500), samples: 3 }
    }

    const HOSTILE: &str = "a\"b\\c\nd{} # EOF\u{1b}[31m.service";

    /// Families with kind and unit, and samples with their labels, by the grammar of OpenMetrics 1.0.
    struct Parsed {
        families: BTreeMap<String, (String, Option<String>)>,
        samples: Vec<(String, Labels, f64)>,
    }

    /// Labels as they were before they were escaped.
    type Labels = Vec<(String, String)>;

    fn parse(text: &str) -> Parsed {
        let body = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
        let mut families: BTreeMap<String, (String, Option<String>)> = BTreeMap::new();
        let (mut samples, mut helped, mut current) = (Vec::new(), BTreeSet::new(), String::new());
        for line in body.lines() {
            if let Some(rest) = line.strip_prefix("# ") {
                let mut words = rest.splitn(3, ' ');
                let [what, name, rest] = std::array::from_fn(|_| words.next().unwrap());
                match what {
                    "HELP" => assert!(helped.insert(name.to_string()), "two HELP of {name}"),
                    "TYPE" => {
                        let before = families.insert(name.to_string(), (rest.to_string(), None));
                        assert!(before.is_none(), "two TYPE of {name}");
                    }
                    "UNIT" => {
                        assert!(name.ends_with(&format!("_{rest}")), "{name} has not its unit");
                        families.get_mut(name).unwrap().1 = Some(rest.to_string());
                    }
                    _ => panic!("{line}"),
                }
                current = name.to_string();
                continue;
            }
            let end = line.find(['{', ' ']).unwrap();
            let (name, mut rest) = line.split_at(end);
            let mut labels = Vec::new();
            if let Some(inner) = rest.strip_prefix('{') {
                rest = inner;
                while !rest.starts_with('}') {
                    let (key, value) = rest.trim_start_matches(',').split_once("=\"").unwrap();
                    let (mut text, mut chars) = (String::new(), value.char_indices());
                    let at = loop {
                        match chars.next().unwrap() {
                            (at, '"') => break at,
                            (_, '\\') => match chars.next().unwrap().1 {
                                'n' => text.push('\n'),
                                other => text.push(other),
                            },
                            (_, other) => text.push(other),
                        }
                    };
                    labels.push((key.to_string(), text));
                    rest = &value[at + 1..];
                }
                rest = &rest[1..];
            }
            let family = match families[&current].0.as_str() {
                "counter" => format!("{current}_total"),
                _ => current.clone(),
            };
            assert_eq!(name, family, "a sample stands below its family");
            samples.push((name.to_string(), labels, rest.trim_start().parse().unwrap()));
        }
        let typed: BTreeSet<_> = families.keys().cloned().collect();
        assert_eq!(helped, typed, "HELP and TYPE of every family");
        Parsed { families, samples }
    }

    #[test]
    fn the_text_is_of_the_grammar_and_has_the_figures() {
        let parsed = parse(&metrics().open_metrics());
        let mut seen = BTreeSet::new();
        for (name, labels, value) in &parsed.samples {
            assert!(name.starts_with("superpage_") && value.is_finite(), "{name}");
            assert!(labels.iter().all(|(key, _)| key != "pid"), "{name}");
            assert!(seen.insert((name, labels)), "two of {name} {labels:?}");
        }
        for (family, (_, unit)) in &parsed.families {
            let words: Vec<_> = family.split('_').collect();
            let is_named = words.iter().any(|word| ["bytes", "seconds"].contains(word));
            assert_eq!(is_named, unit.is_some(), "{family}");
        }
        let value = |name: &str, wanted: &[(&str, &str)]| {
            let is_it = |labels: &[(String, String)]| {
                wanted.iter().all(|(k, v)| labels.iter().any(|(key, value)| key == k && value == v))
            };
            let found = parsed.samples.iter().filter(|(n, labels, _)| n == name && is_it(labels));
            found.map(|(_, _, value)| *value).collect::<Vec<_>>()
        };
        let db = [("unit", "db.service"), ("cgroup", "/db.service")];
        assert_eq!(value("superpage_processes", &db), [2.0]);
        assert_eq!(value("superpage_processes_unreadable", &db), [1.0]);
        assert_eq!(value("superpage_resident_bytes", &db), [(18u32 << 20) as f64]);
        assert_eq!(value("superpage_mapped_superpages_bytes", &db), [(6u32 << 20) as f64]);
        assert_eq!(value("superpage_mapped_age_seconds", &db), [1.5]);
        // The name comes back as it was; what was not read is absent, not 0.
        assert_eq!(value("superpage_processes", &[("unit", HOSTILE)]), [1.0]);
        assert_eq!(value("superpage_mapped_bytes", &[("unit", HOSTILE)]), [0.0; 0]);
        assert_eq!(value("superpage_pool_bytes", &[("page_size", "2097152")]), [(4 << 20) as f64]);
        assert_eq!(value("superpage_pool_free_bytes", &[]), [0.0; 0]);
        assert_eq!(value("superpage_vm_events_total", &[]), [(1u64 << 40) as f64]);
        assert_eq!(value("superpage_memory_stalled_seconds_total", &[("tasks", "all")]), [2.5]);
        assert_eq!(
            value("superpage_cgroup_page_faults_total", &[("cgroup", "/db.service")]),
            [4.0]
        );
        assert_eq!(value("superpage_exporter_cpu_seconds_total", &[]), [0.25]);
        assert_eq!(value("superpage_exporter_sample_age_seconds", &[]), [1.5]);
    }

    #[test]
    fn the_older_format_has_the_same_samples() {
        let both = [metrics().open_metrics(), metrics().prometheus()];
        let [new, old] = both.map(|text| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_string).collect::<BTreeSet<_>>()
        });
        assert!(!old.is_empty());
        assert_eq!(new, old);
    }

    /// Every metric that the dashboard asks for is exported, with the labels it asks for.
    #[test]
    fn the_dashboard_asks_for_what_is_exported() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/grafana/superpage.json");
        let dashboard: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let parsed = parse(&metrics().open_metrics());
        let names: BTreeSet<String> = parsed
            .families
            .iter()
            .map(|(name, (kind, _))| match kind.as_str() {
                "counter" => format!("{name}_total"),
                _ => name.clone(),
            })
            .collect();
        let mut expressions = Vec::new();
        strings(&dashboard, &mut |key, text| {
            if ["expr", "query", "definition"].contains(&key) {
                expressions.push(text.to_string());
            }
        });
        let mut asked = BTreeSet::new();
        for text in &expressions {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("superpage_"));
            asked.extend(words.map(str::to_string));
        }
        assert!(asked.len() >= 15, "{asked:?}");
        let missing: Vec<_> = asked.difference(&names).collect();
        assert!(missing.is_empty(), "the dashboard asks for {missing:?}");
    }

    fn strings(value: &serde_json::Value, each: &mut dyn FnMut(&str, &str)) {
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    if let Some(text) = value.as_str() {
                        each(key, text);
                    }
                    strings(value, each);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| strings(item, each)),
            _ => {}
        }
    }
}
