//! The file: TOML, strict. A misspelt key is an error with its line and the keys there are, because
//! a key that is silently skipped is a pool that is silently missing.
//!
//! ```toml
//! shm_group = "dba"                # name or number
//! shmmax = "64G"                   # raised to this, never lowered
//! min_free_kbytes = "recommended"  # or a number; never lowered
//!
//! [[pages]]
//! size = "2M"                      # or "default"
//! count = 512
//! node = 0                         # optional
//! overcommit = 0                   # optional
//!
//! [[mounts]]
//! size = "2M"
//! owner = "group:dba"              # everybody (the default), root, user:NAME, group:NAME
//! max_size = "1G"                  # optional
//! max_inodes = 100                 # optional
//! ```

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use toml::Spanned;
use units::{ByteSize, NodeId};

use crate::pool::PoolName;
use crate::pool::mounts::{Limits, Owner};

/// A state that the machine is to have. What is not named is left alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Pools.
    pub pages: Vec<WantedPages>,
    /// Mounts.
    pub mounts: Vec<WantedMount>,
    /// The group that may use hugetlb shared memory, by name or number.
    pub shm_group: Option<String>,
    /// The least that the largest SysV segment must be.
    pub shmmax: Option<ByteSize>,
    /// The least `min_free_kbytes`.
    pub min_free_kbytes: Option<MinFree>,
}

/// One pool's wanted state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPages {
    /// Which pool.
    pub size: PoolName,
    /// On this node only.
    pub node: Option<NodeId>,
    /// Persistent pages.
    pub count: u64,
    /// How many surplus pages may be made; `None`: as it is.
    pub overcommit: Option<u64>,
}

/// One wanted mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedMount {
    /// The pool its pages come from.
    pub size: PoolName,
    /// Whose it is.
    pub owner: Owner,
    /// How much it may hold.
    pub limits: Limits,
}

/// A wanted `min_free_kbytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// [`crate::pool::recommended_min_free`].
    Recommended,
    /// So many kB.
    KBytes(u64),
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A line that is not understood.
    #[error("{}:{line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it, and what would be right.
        why: String,
    },
}

/// No such file is longer.
const MAX_FILE: u64 = 1 << 20;

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<Wanted, WantedError> {
    let io = |source| WantedError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io(std::io::Error::other("it is longer than 1 MiB")));
    }
    parse(&text, path)
}

/// Reads the text of such a file; `path` is named in errors.
pub fn parse(text: &str, path: &Path) -> Result<Wanted, WantedError> {
    let at = |offset: usize, why: String| {
        let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        WantedError::Line { path: path.to_owned(), line, why }
    };
    let raw: Raw = toml::from_str(text).map_err(|error| {
        let mut why = error.message().to_string();
        for its in ["expected u64", "expected u32"] {
            why = why.replace(its, "expected a whole number, 0 or more");
        }
        at(error.span().map_or(0, |span| span.start), why)
    })?;
    let mut pages: Vec<WantedPages> = Vec::new();
    for entry in raw.pages {
        let (offset, entry) = (entry.span().start, entry.into_inner());
        let one = entry.into_wanted();
        for other in pages.iter().filter(|other| other.size == one.size) {
            let clash = match (other.node, one.node) {
                (None, None) => "this pool has an entry already",
                (None, Some(_)) | (Some(_), None) => {
                    "this pool has an entry for the machine and one for a node; keep one kind"
                }
                (Some(a), Some(b)) if a == b => "this pool has an entry for this node already",
                _ if other.overcommit.is_some() && one.overcommit.is_some() => {
                    "overcommit is of the whole machine; name it once for each size"
                }
                _ => continue,
            };
            return Err(at(offset, clash.to_string()));
        }
        pages.push(one);
    }
    Ok(Wanted {
        pages,
        mounts: raw.mounts.into_iter().map(RawMount::into_wanted).collect(),
        shm_group: raw.shm_group.map(|Word(word)| word),
        shmmax: raw.shmmax.map(|Parsed(size)| size),
        min_free_kbytes: raw.min_free_kbytes,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    #[serde(default)]
    pages: Vec<Spanned<RawPages>>,
    #[serde(default)]
    mounts: Vec<RawMount>,
    shm_group: Option<Word>,
    shmmax: Option<Parsed<ByteSize>>,
    min_free_kbytes: Option<MinFree>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPages {
    size: Parsed<PoolName>,
    count: u64,
    node: Option<NodeId>,
    overcommit: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMount {
    size: Parsed<PoolName>,
    owner: Option<Parsed<Owner>>,
    max_size: Option<Parsed<ByteSize>>,
    max_inodes: Option<u64>,
}

impl RawPages {
    fn into_wanted(self) -> WantedPages {
        let Self { size: Parsed(size), count, node, overcommit } = self;
        WantedPages { size, node, count, overcommit }
    }
}

impl RawMount {
    fn into_wanted(self) -> WantedMount {
        let owner = self.owner.map_or(Owner::Everybody, |Parsed(owner)| owner);
        let size = self.max_size.map(|Parsed(size)| size);
        let limits = Limits { size, inodes: self.max_inodes };
        WantedMount { size: self.size.0, owner, limits }
    }
}

/// A value that is written as a string and has a grammar of its own.
struct Parsed<T>(T);

impl<'de, T: std::str::FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Self).map_err(de::Error::custom)
    }
}

/// A string, or a number that stands for one.
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Word;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a group's name or number")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Word, E> {
                Ok(Word(text.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Word, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(number), &self);
                u32::try_from(number).map(|id| Word(id.to_string())).map_err(|_| wrong())
            }
        }
        from.deserialize_any(Either)
    }
}

impl<'de> Deserialize<'de> for MinFree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = MinFree;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"recommended\" or a number of kB")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<MinFree, E> {
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                (text == "recommended").then_some(MinFree::Recommended).ok_or_else(wrong)
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<MinFree, E> {
                let wrong = || E::invalid_value(de::Unexpected::Signed(number), &self);
                u64::try_from(number).map(MinFree::KBytes).map_err(|_| wrong())
            }
        }
        from.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Wanted, String> {
        parse(text, Path::new("pools.toml")).map_err(|error| error.to_string())
    }

    const WHOLE: &str = r#"
shm_group = 54
shmmax = "64G"
min_free_kbytes = "recommended"
[[pages]]
size = "2M"
count = 512
overcommit = 0
[[pages]]
size = "1G"
count = 2
node = 1
[[mounts]]
size = "default"
owner = "group:dba"
max_size = "1G"
"#;

    #[test]
    fn reads_every_key() {
        let wanted = read(WHOLE).unwrap();
        assert_eq!((wanted.pages.len(), wanted.mounts.len()), (2, 1));
        assert_eq!(wanted.pages[1].node, Some(NodeId(1)));
        assert_eq!(wanted.mounts[0].owner, Owner::Group("dba".into()));
        assert_eq!(wanted.shm_group.as_deref(), Some("54"));
        assert_eq!(wanted.min_free_kbytes, Some(MinFree::Recommended));
        assert_eq!(read("").unwrap(), Wanted::default());
    }

    #[test]
    fn mistakes_name_file_line_and_what_would_be_right() {
        for (text, parts) in [
            ("\n[[pages]]\nsise = \"2M\"", &["pools.toml:3", "sise", "`size`", "`overcommit`"][..]),
            ("pages = 3", &["pools.toml:1"]),
            ("\nhugepages = 3", &["pools.toml:2", "`hugepages`", "`pages`", "`mounts`"]),
            ("[[pages]]\nsize = \"2M\"", &["pools.toml:1", "`count`"]),
            ("[[pages]]\nsize = \"3M\"\ncount = 1", &["pools.toml:2", "`3M` is no page size"]),
            ("[[pages]]\nsize = \"2M\"\ncount = -1", &["pools.toml:3", "-1", "0 or more"]),
            ("[[pages]]\nsize = \"2M\"\ncount = \"x\"", &["pools.toml:3"]),
            ("[[pages]]\nsize = \"2M\"\ncount = 99999999999999999999", &["pools.toml:3"]),
            ("min_free_kbytes = \"lots\"", &["pools.toml:1", "recommended"]),
            ("shm_group = -1", &["pools.toml:1", "a group's name or number"]),
            ("[[mounts]]\nsize = \"2M\"\nowner = \"me\"", &["pools.toml:3", "group:NAME"]),
            ("[[pages]\nsize", &["pools.toml:1"]),
            ("[[pages]]\nsize = \"2M", &["pools.toml:2"]),
            (
                "[[pages]]\nsize = \"2M\"\ncount = 1\n[[pages]]\nsize = \"2M\"\ncount = 2",
                &["pools.toml:4", "already"],
            ),
            (
                "[[pages]]\nsize=\"2M\"\ncount=1\n[[pages]]\nsize=\"2M\"\ncount=2\nnode=0",
                &["pools.toml:4", "keep one kind"],
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
        assert!(read(&"[".repeat(100_000)).is_err(), "nested too deep");
    }

    proptest! {
        #[test]
        fn never_panics(cut in 0..WHOLE.len(), junk in "\\PC{0,20}") {
            let _ = read(&WHOLE[..cut]);
            let _ = read(&format!("{}{junk}{}", &WHOLE[..cut], &WHOLE[cut..]));
        }
    }
}
