//! `Fragmentation`: which fragmenter, read from a specification.

use std::fmt;
use std::str::FromStr;

use super::{Artifact, Fragmenter, FreeBlocks, FreeLists, Holes, Machine, Pinned};

/// How the memory is fragmented.
#[derive(Debug, Clone, PartialEq)]
pub enum Fragmentation {
    /// Not at all: a machine just booted.
    None,
    /// Frag-L of Quicksilver's artifact: `L` percent of the superpages that the workload needs are not
    /// free.
    Level(u8),
    /// This many percent of the machine's superpage-sized blocks hold a frame that cannot be moved.
    Pinned(u8),
    /// Ingens' `frag_normal`.
    IngensNormal,
    /// Ingens' `frag_severe`.
    IngensSevere,
    /// As a real machine's free lists are; and the lists themselves, if they were captured.
    Machine(Box<FreeBlocks>, Option<Box<FreeLists>>),
}

/// What every fragmenter knows of its machine and workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Superpages that the workload needs.
    pub needed: u64,
    /// Superpage-sized blocks of the machine.
    pub blocks: u64,
    /// The first region it may number.
    pub first_region: u32,
    /// The first process.
    pub first_process: u32,
    /// The seed of what is random.
    pub seed: u64,
}

/// Why a fragmentation could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FragmentError {
    /// No such fragmentation.
    #[error(
        "unknown fragmentation `{0}`: expected none, frag-L or pinned-L with L from 0 to 100, \
         ingens-normal or ingens-severe"
    )]
    Unknown(String),
    /// A line of a file of /proc is not as the kernel writes it.
    #[error("{file}, line {line}: {why}: `{text}`; expected the file as Linux writes it")]
    Line {
        /// Which file.
        file: &'static str,
        /// Which line, from 1 on.
        line: usize,
        /// The line.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file of /proc says nothing about free memory.
    #[error("{file}: no line about a zone; expected the file as Linux writes it")]
    Empty {
        /// Which file.
        file: &'static str,
    },
}

impl FromStr for Fragmentation {
    type Err = FragmentError;

    fn from_str(text: &str) -> Result<Self, FragmentError> {
        let percent = |prefix: &str| {
            let level = text.strip_prefix(prefix)?;
            let digits = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
            level.parse::<u8>().ok().filter(|&level| digits && level <= 100)
        };
        match text {
            "none" => Ok(Self::None),
            "ingens-normal" => Ok(Self::IngensNormal),
            "ingens-severe" => Ok(Self::IngensSevere),
            _ => (percent("frag-").map(Self::Level))
                .or_else(|| percent("pinned-").map(Self::Pinned))
                .ok_or_else(|| FragmentError::Unknown(text.to_string())),
        }
    }
}

impl fmt::Display for Fragmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Level(level) => write!(f, "frag-{level}"),
            Self::Pinned(percent) => write!(f, "pinned-{percent}"),
            Self::IngensNormal => f.write_str("ingens-normal"),
            Self::IngensSevere => f.write_str("ingens-severe"),
            Self::Machine(..) => f.write_str("as this machine"),
        }
    }
}

impl Fragmentation {
    /// As a real machine is.
    ///
    /// # Errors
    /// [`FragmentError`]: the free lists cannot be read.
    pub fn from_machine(lists: &FreeLists) -> Result<Self, FragmentError> {
        let FreeLists { buddyinfo, pagetypeinfo, frames } = lists;
        let free = FreeBlocks::parse(buddyinfo, pagetypeinfo.as_deref(), *frames)?;
        Ok(Self::Machine(Box::new(free), Some(Box::new(lists.clone()))))
    }

    /// The free lists that memory is made to look like, if it is.
    pub fn free_lists(&self) -> Option<&FreeLists> {
        match self {
            Self::Machine(_, lists) => lists.as_deref(),
            _ => None,
        }
    }

    /// The program, if there is anything to do.
    pub fn program(&self, place: Place) -> Option<Box<dyn Fragmenter>> {
        match self {
            Self::None => None,
            // The scripts run `frag_compact` and `frag_background` before `fragment_level 0` too,
            // but the slides call this level a fresh boot, so nothing is run.
            Self::Level(0) | Self::Pinned(0) => None,
            Self::Level(level) => Some(Box::new(Artifact::new(*level, place))),
            Self::Pinned(percent) => Some(Box::new(Pinned::new(*percent, place.seed))),
            Self::IngensNormal => Some(Box::new(Holes::normal(place))),
            Self::IngensSevere => Some(Box::new(Holes::severe(place))),
            Self::Machine(free, _) => Some(Box::new(Machine::new(free, place.seed))),
        }
    }
}
