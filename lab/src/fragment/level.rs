//! `Fragmentation`: which fragmenter, read from a specification.

use std::str::FromStr;

use super::{Artifact, Fragmenter, Scale};

/// How the memory is fragmented.
#[derive(Debug, Clone, PartialEq)]
pub enum Fragmentation {
    /// Not at all: a machine just booted.
    None,
    /// The artifact's: `percent` of the superpages that the workload needs are not free.
    Level(u8),
}

/// Why a fragmentation could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FragmentError {
    /// No such fragmentation.
    #[error("`{0}` is no fragmentation; known are none and frag-L with L from 0 to 100")]
    Unknown(String),
}

impl FromStr for Fragmentation {
    type Err = FragmentError;

    fn from_str(text: &str) -> Result<Self, FragmentError> {
        let unknown = || FragmentError::Unknown(text.to_string());
        if text == "none" {
            return Ok(Self::None);
        }
        let level = text.strip_prefix("frag-").ok_or_else(unknown)?;
        let level = level.parse::<u8>().ok().filter(|&level| level <= 100);
        level.map(Self::Level).ok_or_else(unknown)
    }
}

impl Fragmentation {
    /// The program. `needed` are the superpages that the workload needs, `blocks` those of the
    /// machine; the program's regions and processes are numbered from the ones given.
    pub fn program(
        &self,
        needed: u64,
        blocks: u64,
        first_region: u32,
        first_process: u32,
    ) -> Option<Box<dyn Fragmenter>> {
        match *self {
            Self::None => None,
            Self::Level(level) => {
                let scale = Scale::of(blocks);
                Some(Box::new(Artifact::new(scale, level, needed, first_region, first_process)))
            }
        }
    }
}
