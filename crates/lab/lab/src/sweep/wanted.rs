//! A sweep as people write it: names, in TOML or as flags. Whoever reads files resolves the names into
//! a [`super::Plan`].

use mm_sim::memory::{Nodes, ParseNodesError};
use toml_keys::{DeValue, Field, FileError, Reader, wrong};
use units::ByteSize;

use super::seeds;

/// What a sweep is to cover. Lists that are empty get their default from the command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Designs: names of presets, or files.
    pub designs: Vec<String>,
    /// Machines: the same.
    pub machines: Vec<String>,
    /// Workloads, as `lab run` takes them.
    pub workloads: Vec<String>,
    /// Fragmentations, as `lab run` takes them.
    pub fragmentations: Vec<String>,
    /// Memory sizes.
    pub memories: Vec<ByteSize>,
    /// How memory is divided into nodes.
    pub nodes: Vec<Nodes>,
    /// How much of it takes movable pages only.
    pub movables: Vec<ByteSize>,
    /// Seeds.
    pub seeds: Vec<u64>,
}

/// Several values, or one.
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

/// How many nodes, or the memory of each.
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

/// Numbers, or ranges of them.
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
    /// Reads a plan; `file` is what errors call it.
    ///
    /// # Errors
    /// All that is wrong with the text, by line.
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

#[cfg(test)]
mod tests {
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
