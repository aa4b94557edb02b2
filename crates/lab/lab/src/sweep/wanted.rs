//! A sweep as people write it: names, in TOML or as flags. Whoever reads files resolves the names into
//! a [`super::Plan`].

use serde::{Deserialize, Deserializer};
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
    /// Seeds.
    pub seeds: Vec<u64>,
}

/// Why a plan in TOML could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}:{line}: {why}; keys are designs, machines, workloads, fragmentations, memory and seeds"
)]
pub struct WantedError {
    file: String,
    line: usize,
    why: String,
}

/// The file: every key is a list, or a single value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(deserialize_with = "names")]
    designs: Vec<String>,
    #[serde(default, deserialize_with = "names")]
    machines: Vec<String>,
    #[serde(deserialize_with = "names")]
    workloads: Vec<String>,
    #[serde(default, deserialize_with = "names")]
    fragmentations: Vec<String>,
    #[serde(default, deserialize_with = "names")]
    memory: Vec<String>,
    seeds: Option<Numbers>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, a list of numbers, or ranges as in \"1-10,20\"")]
enum Numbers {
    One(u64),
    Many(Vec<u64>),
    Ranges(String),
}

fn names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a name, or a list of names")]
    enum Names {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Names::deserialize(from)? {
        Names::One(name) => vec![name],
        Names::Many(names) => names,
    })
}

impl Wanted {
    /// Reads a plan; `file` is what errors call it.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, WantedError> {
        let at = |line, why: String| WantedError { file: file.to_string(), line, why };
        let read: File = toml::from_str(text).map_err(|error| {
            let before = &text[..error.span().map_or(0, |span| span.start).min(text.len())];
            at(before.matches('\n').count() + 1, error.message().replace('\n', " "))
        })?;
        // What TOML took as a value, its own grammar may still refuse: told at the key's line.
        let line = |key: &str| {
            let found = text.lines().position(|line| line.trim_start().starts_with(key));
            found.map_or(1, |index| index + 1)
        };
        let memories = (read.memory.iter())
            .map(|size| size.parse::<ByteSize>().map_err(|why| at(line("memory"), why.to_string())))
            .collect::<Result<_, _>>()?;
        let seeds = match read.seeds {
            None => Vec::new(),
            Some(Numbers::One(seed)) => vec![seed],
            Some(Numbers::Many(seeds)) => seeds,
            Some(Numbers::Ranges(text)) => {
                seeds(&text).map_err(|why| at(line("seeds"), why.to_string()))?
            }
        };
        Ok(Self {
            designs: read.designs,
            machines: read.machines,
            workloads: read.workloads,
            fragmentations: read.fragmentations,
            memories,
            seeds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_single_values_and_ranges() {
        let text = "designs = [\"base\", \"mine.toml\"]\nworkloads = \"gups\"\nmemory = \"32G\"\nseeds = \"1-3\"\n";
        let wanted = Wanted::from_toml("x.toml", text).unwrap();
        assert_eq!(wanted.designs, ["base", "mine.toml"]);
        assert_eq!((wanted.workloads.len(), wanted.machines.len()), (1, 0));
        assert_eq!((wanted.memories, wanted.seeds), (vec![ByteSize::gib(32)], vec![1, 2, 3]));
    }

    #[test]
    fn errors_name_file_and_line() {
        let error = |text: &str| Wanted::from_toml("x.toml", text).unwrap_err().to_string();
        let base = "designs = \"base\"\nworkloads = \"gups\"\n";
        assert!(
            error(&format!("{base}desings = 1")).starts_with("x.toml:3: unknown field `desings`")
        );
        assert!(
            error(&format!("{base}memory = \"lots\"")).starts_with("x.toml:3: invalid size `lots`")
        );
        assert!(
            error(&format!("{base}seeds = \"9-1\"")).starts_with("x.toml:3: invalid seeds `9-1`")
        );
        assert!(error(&format!("{base}seeds = -1")).contains("ranges as in"));
        assert!(error("workloads = \"gups\"").contains("missing field `designs`"));
        assert!(error("designs = [").starts_with("x.toml:1: "));
    }
}
