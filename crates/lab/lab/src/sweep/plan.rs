//! The plan of a sweep, with the contents of everything it names. Pure.

use std::fmt;
use std::str::FromStr;

use mm_sim::Layout;
use mm_sim::memory::{Nodes, ParseNodesError};
use serde::{Deserialize, Serialize};
use toml_keys::{DeValue, Field, FileError, Reader, wrong};
use units::ByteSize;

use super::Hash;
use crate::{ENGINE, SCHEMA};

/// The version of [`Plan`]'s layout.
pub const PLAN_SCHEMA: &str = "superpage.lab.plan/1";

/// A named input of an experiment. Equal names with equal contents are the same input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedInput {
    /// Its name in reports.
    pub name: String,
    /// Contents: TOML of a design or machine, options of a workload, digest of a file.
    pub content: String,
}

/// What a sweep runs: the product of these lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// Designs.
    pub designs: Vec<NamedInput>,
    /// Machines.
    pub machines: Vec<NamedInput>,
    /// Workloads.
    pub workloads: Vec<NamedInput>,
    /// Fragmentations of memory before the workload runs.
    pub fragmentations: Vec<NamedInput>,
    /// Memory sizes.
    pub memories: Vec<ByteSize>,
    /// Divisions of memory into nodes. One node if absent.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub nodes: Vec<Nodes>,
    /// Sizes of movable-only memory.
    #[serde(default = "no_partition", skip_serializing_if = "is_no_partition")]
    pub movables: Vec<ByteSize>,
    /// Seeds.
    pub seeds: Vec<u64>,
}

fn one_node() -> Vec<Nodes> {
    vec![Nodes::default()]
}

fn is_one_node(nodes: &Vec<Nodes>) -> bool {
    *nodes == one_node()
}

fn no_partition() -> Vec<ByteSize> {
    vec![ByteSize(0)]
}

fn is_no_partition(movables: &Vec<ByteSize>) -> bool {
    *movables == no_partition()
}

/// Cells that differ only in the design; one pass over the stream runs them all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<'a> {
    /// Hash of the settings that its cells share.
    pub key: Hash,
    /// The machine.
    pub machine: &'a NamedInput,
    /// The workload.
    pub workload: &'a NamedInput,
    /// The fragmentation.
    pub fragmentation: &'a NamedInput,
    /// The machine's memory.
    pub memory: ByteSize,
    /// Division of the memory.
    pub layout: Layout,
    /// The seed.
    pub seed: u64,
    /// The group's cells, by hash.
    pub members: Vec<Member<'a>>,
}

/// A cell of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The cell's hash.
    pub cell: Hash,
    /// The cell's design.
    pub design: &'a NamedInput,
}

/// Part `index` of `of`, from 0, as in array indexes of Slurm, Kubernetes and Ray.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: u32,
}

/// A shard that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid shard `{0}`: expected I/N with I from 0 to N-1, e.g. 0/4")]
pub struct ShardError(String);

/// Keys of a design's or machine's TOML that do not affect a run; the hash omits them.
const WORDS_ONLY: [&str; 1] = ["summary"];

impl Plan {
    /// Returns the sweep's groups with all their cells, sorted by key.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let designs: Vec<String> = self.designs.iter().map(|one| canonical(&one.content)).collect();
        let tables = canonical(workload_streams::TABLES);
        let mut groups = Vec::new();
        for machine in &self.machines {
            let on = canonical(&machine.content);
            for (workload, fragmentation, memory, layout, seed) in self.conditions() {
                let bytes = memory.bytes().to_string();
                let drawn = seed.to_string();
                let Layout { nodes, movable } = &layout;
                let divided = [nodes.to_string(), movable.bytes().to_string()];
                let mut shared = vec![
                    ENGINE,
                    SCHEMA,
                    &tables,
                    &machine.name,
                    &on,
                    &workload.name,
                    &workload.content,
                    &fragmentation.name,
                    &fragmentation.content,
                    &bytes,
                    &drawn,
                ];
                if layout != Layout::default() {
                    shared.extend(divided.iter().map(String::as_str));
                }
                let key = Hash::new(shared);
                let key_words = key.to_string();
                let mut members: Vec<Member> = (self.designs.iter().zip(&designs))
                    .map(|(design, content)| {
                        let cell = Hash::new([key_words.as_str(), &design.name, content]);
                        Member { cell, design }
                    })
                    .collect();
                members.sort_by_key(|member| member.cell);
                members.dedup_by_key(|member| member.cell);
                groups.push(Group {
                    key,
                    machine,
                    workload,
                    fragmentation,
                    memory,
                    layout,
                    seed,
                    members,
                });
            }
        }
        groups.sort_by_key(|group| group.key);
        groups.dedup_by_key(|group| group.key);
        groups
    }

    fn conditions(
        &self,
    ) -> impl Iterator<Item = (&NamedInput, &NamedInput, ByteSize, Layout, u64)> {
        self.workloads.iter().flat_map(move |workload| {
            self.fragmentations.iter().flat_map(move |fragmentation| {
                self.memories().flat_map(move |(memory, layout)| {
                    let of = move |&seed| (workload, fragmentation, memory, layout.clone(), seed);
                    self.seeds.iter().map(of)
                })
            })
        })
    }

    /// Returns each combination of memory size and layout.
    fn memories(&self) -> impl Iterator<Item = (ByteSize, Layout)> {
        self.memories.iter().flat_map(move |&memory| {
            self.nodes.iter().flat_map(move |nodes| {
                let layout = |&movable| Layout { nodes: nodes.clone(), movable };
                self.movables.iter().map(move |movable| (memory, layout(movable)))
            })
        })
    }
}

/// Returns TOML without comments, formatting and `WORDS_ONLY` keys; other text unchanged.
fn canonical(content: &str) -> String {
    let Ok(mut table) = toml::from_str::<toml::Table>(content) else {
        return content.to_string();
    };
    table.retain(|key, _| !WORDS_ONLY.contains(&key));
    // TOML tables are sorted by key.
    serde_json::to_string(&table).unwrap_or_else(|_| content.to_string())
}

impl Shard {
    /// The whole sweep.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Returns part `index` of `of`, or `None` if `index` is too large.
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (index < of).then_some(Self { index, of })
    }

    /// Returns the shard's groups. Groups are sorted by hash and assigned round-robin: shards differ by at most one
    /// group, and neighbours in the plan, which take similar time, go to different shards.
    pub fn select<'a>(self, groups: &[Group<'a>]) -> Vec<Group<'a>> {
        groups.iter().skip(self.index as usize).step_by(self.of as usize).cloned().collect()
    }

    /// Returns the shard's number, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    pub(super) fn file_name(self) -> String {
        format!("{}-of-{}", self.index, self.of)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = ShardError;
    fn from_str(text: &str) -> Result<Self, ShardError> {
        let parts = text.split_once('/');
        let numbers = parts.and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        let shard = numbers.and_then(|(index, of)| Self::new(index, of));
        shard.ok_or_else(|| ShardError(text.to_string()))
    }
}

// The TOML or flags of a sweep, with names. The caller, which reads files, resolves the names into a [`super::Plan`].

/// Lists of a sweep as requested. The command fills empty lists with defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Designs: names of presets, or files.
    pub designs: Vec<String>,
    /// Machines: names of presets, or files.
    pub machines: Vec<String>,
    /// Workloads, as for `lab run`.
    pub workloads: Vec<String>,
    /// Fragmentations, as for `lab run`.
    pub fragmentations: Vec<String>,
    /// Memory sizes.
    pub memories: Vec<ByteSize>,
    /// Divisions of memory into nodes.
    pub nodes: Vec<Nodes>,
    /// Sizes of movable-only memory.
    pub movables: Vec<ByteSize>,
    /// Seeds.
    pub seeds: Vec<u64>,
}

/// A list of values, or a single one.
struct Many<T>(Vec<T>);

impl<T: Field> Field for Many<T> {
    fn allowed() -> String {
        format!("{}, or a list of such", T::allowed())
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_array() {
            Some(_) => Vec::read(value).map(Self),
            None => T::read(value).map(|one| Self(vec![one])),
        }
    }
}

/// Number of nodes, or the memory of each.
struct DividedInto(Nodes);

impl Field for DividedInto {
    fn allowed() -> String {
        "a number of nodes, or each one's memory as in \"8G,8G\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some(text) => text.parse().map(Self).map_err(|why: ParseNodesError| why.to_string()),
            None => u64::read(value)
                .map(|count| Self(Nodes::Equal(count)))
                .map_err(|_| wrong(value, &Self::allowed())),
        }
    }
}

/// Numbers or ranges of numbers.
struct Seeds(Vec<u64>);

impl Field for Seeds {
    fn allowed() -> String {
        "a number, a list of numbers, or ranges as in \"1-10,20\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some(ranges) => seeds(ranges).map(Self).map_err(|why| why.to_string()),
            None => Many::read(value)
                .map(|Many(seeds)| Self(seeds))
                .map_err(|_| wrong(value, &Self::allowed())),
        }
    }
}

impl Wanted {
    /// Reads the TOML of a sweep; `file` is its name in errors.
    ///
    /// # Errors
    /// Every problem in the text, with its line.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, FileError> {
        toml_keys::read(file, text, |keys| Self {
            designs: keys.required("designs").map_or(Vec::new(), |Many(names)| names),
            machines: many(keys, "machines"),
            workloads: keys.required("workloads").map_or(Vec::new(), |Many(names)| names),
            fragmentations: many(keys, "fragmentations"),
            memories: many(keys, "memory"),
            nodes: many(keys, "nodes").into_iter().map(|DividedInto(nodes)| nodes).collect(),
            movables: many(keys, "movable"),
            seeds: keys.optional("seeds").map_or(Vec::new(), |Seeds(seeds)| seeds),
        })
    }
}

fn many<T: Field>(keys: &mut Reader<'_>, name: &'static str) -> Vec<T> {
    keys.optional(name).map_or(Vec::new(), |Many(values)| values)
}

// Seeds in the form `1-10,20`.

/// Seeds that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid seeds `{0}`: expected numbers and ranges, e.g. 1-10,20")]
pub struct SeedsError(String);

/// Maximum number of seeds in a range: a typo must not exhaust memory.
const MAX_RANGE: u64 = 1 << 20;

/// Parses numbers and ranges, in order. Duplicates are dropped.
///
/// # Errors
/// [`SeedsError`]: invalid text, or a range of more than 2^20 seeds.
pub fn seeds(text: &str) -> Result<Vec<u64>, SeedsError> {
    let bad = || SeedsError(text.to_string());
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first || last - first >= MAX_RANGE {
            return Err(bad());
        }
        seeds.extend(first..=last);
    }
    seeds.sort_unstable();
    seeds.dedup();
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use testkit::figures::{Legitimate, refused};

    use super::Plan;

    #[test]
    fn no_figure_can_be_what_it_cannot_be() {
        let text = include_str!("../../../../../docs/schemas/examples/lab.plan-1.json");
        let none: [Legitimate; 0] = [];
        let count = refused(text, &none, |text| report::document::read::<Plan>(text).map(|_| ()));
        println!("{}: {count:?}", super::PLAN_SCHEMA);
    }
}

#[cfg(test)]
mod wanted_tests {
    use super::*;

    #[test]
    fn reads_lists_single_values_and_ranges() {
        let text = "designs = [\"base\", \"mine.toml\"]\nworkloads = \"gups\"\nmemory = \"32G\"\nseeds = \"1-3\"\n";
        let text = format!("{text}nodes = [2, \"8G,8G\"]\nmovable = \"1G\"\n");
        let wanted = Wanted::from_toml("x.toml", &text).unwrap();
        assert_eq!(wanted.nodes, [Nodes::Equal(2), Nodes::Of(vec![ByteSize::gib(8); 2])]);
        assert_eq!(wanted.movables, [ByteSize::gib(1)]);
        assert_eq!(wanted.designs, ["base", "mine.toml"]);
        assert_eq!((wanted.workloads.len(), wanted.machines.len()), (1, 0));
        assert_eq!((wanted.memories, wanted.seeds), (vec![ByteSize::gib(32)], vec![1, 2, 3]));
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = |text: &str| Wanted::from_toml("x.toml", text).unwrap_err().to_string();
        let base = "designs = \"base\"\nworkloads = \"gups\"\n";
        assert!(error(&format!("{base}desings = 1")).starts_with("x.toml:3: desings: "));
        assert!(
            error(&format!("{base}memory = \"lots\""))
                .starts_with("x.toml:3: memory: invalid size `lots`")
        );
        assert!(
            error(&format!("{base}seeds = \"9-1\""))
                .starts_with("x.toml:3: seeds: invalid seeds `9-1`")
        );
        assert!(
            error(&format!("{base}nodes = \"two\""))
                .starts_with("x.toml:3: nodes: invalid nodes `two`")
        );
        assert!(error(&format!("{base}seeds = -1")).contains("ranges as in"));
        assert!(error("workloads = \"gups\"").contains("designs: is missing"));
        assert!(error("designs = [").starts_with("x.toml:1: "));
    }
}

#[cfg(test)]
mod seeds_tests {
    use super::*;

    #[test]
    fn reads_numbers_and_ranges() {
        assert_eq!(seeds("1-3, 7,2").unwrap(), [1, 2, 3, 7]);
        assert_eq!(seeds("18446744073709551615").unwrap(), [u64::MAX]);
        for bad in ["", "1-", "3-1", "x", "1,,2", "0-18446744073709551615", "-1"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
