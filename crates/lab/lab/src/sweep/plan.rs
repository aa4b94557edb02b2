//! A plan: everything a sweep runs, with the contents of what it names. Pure.

use std::fmt;
use std::str::FromStr;

use mm_sim::{Layout, Nodes};
use serde::{Deserialize, Serialize};
use units::ByteSize;

use super::Hash;
use crate::{ENGINE, SCHEMA};

/// The version of [`Plan`]'s layout.
pub const PLAN_SCHEMA: &str = "superpage.lab.plan/1";

/// A named part of an experiment. Equal contents under equal names are the same experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedInput {
    /// Its name in reports.
    pub name: String,
    /// What it is: a design's or machine's TOML, a workload's words, for a file its digest.
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
    /// How memory is fragmented before the workload runs.
    pub fragmentations: Vec<NamedInput>,
    /// Memory sizes.
    pub memories: Vec<ByteSize>,
    /// How memory is divided into nodes. Plans that say nothing of it have one.
    #[serde(default = "one_node", skip_serializing_if = "is_one_node")]
    pub nodes: Vec<Nodes>,
    /// How much takes movable pages only.
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

/// Cells that differ in the design only: one pass over the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group<'a> {
    /// The hash of what its cells share.
    pub key: Hash,
    /// The machine.
    pub machine: &'a NamedInput,
    /// The workload.
    pub workload: &'a NamedInput,
    /// The fragmentation.
    pub fragmentation: &'a NamedInput,
    /// The machine's memory.
    pub memory: ByteSize,
    /// How that is divided.
    pub layout: Layout,
    /// The seed.
    pub seed: u64,
    /// Its cells, by hash.
    pub members: Vec<Member<'a>>,
}

/// A cell of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The cell's hash.
    pub cell: Hash,
    /// Its design.
    pub design: &'a NamedInput,
}

/// Part `index` of `of`; counted from 0, as array indexes of Slurm, Kubernetes and Ray are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    of: u32,
}

/// Why a shard could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid shard `{0}`: expected I/N with I from 0 to N-1, e.g. 0/4")]
pub struct ShardError(String);

/// What a hash leaves out of a design's or machine's TOML: it changes nothing in a run.
const WORDS_ONLY: [&str; 1] = ["summary"];

impl Plan {
    /// The sweep's groups, sorted by key; each with all its cells.
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

    /// The memory sizes, each divided in each way.
    fn memories(&self) -> impl Iterator<Item = (ByteSize, Layout)> {
        self.memories.iter().flat_map(move |&memory| {
            self.nodes.iter().flat_map(move |nodes| {
                let layout = |&movable| Layout { nodes: nodes.clone(), movable };
                self.movables.iter().map(move |movable| (memory, layout(movable)))
            })
        })
    }
}

/// TOML without comments, layout and words for people; anything else as it is.
fn canonical(content: &str) -> String {
    let Ok(mut table) = toml::from_str::<toml::Table>(content) else {
        return content.to_string();
    };
    table.retain(|key, _| !WORDS_ONLY.contains(&key));
    // Sorted by key: toml's tables are.
    serde_json::to_string(&table).unwrap_or_else(|_| content.to_string())
}

impl Shard {
    /// The whole.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Part `index` of `of`, if there is one.
    pub fn new(index: u32, of: u32) -> Option<Self> {
        (index < of).then_some(Self { index, of })
    }

    /// Its groups. Sorted by hash and dealt out like cards: parts differ by one group at most, and
    /// neighbours in the plan, which take alike long, are spread.
    pub fn select<'a>(self, groups: &[Group<'a>]) -> Vec<Group<'a>> {
        groups.iter().skip(self.index as usize).step_by(self.of as usize).cloned().collect()
    }

    /// Its number, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// A name for files.
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
