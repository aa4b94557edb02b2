//! The hash of contents: 128 bits of XXH3, which is fast, stable over versions and platforms, and not
//! meant against an adversary; nobody gains by a collision here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

/// A hash of contents, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(u128);

impl Hash {
    /// Of parts, each with its length before it, so that no two lists of parts give the same bytes.
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut state = Xxh3::new();
        for part in parts {
            state.update(&(part.len() as u64).to_le_bytes());
            state.update(part.as_bytes());
        }
        Self(state.digest128())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Hash {
    type Err = std::num::ParseIntError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| serde::de::Error::custom(format!("invalid hash `{text}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that lie on disk are found by these numbers: they must never change. (Computed with
    /// xxHash 0.8 by python-xxhash.)
    #[test]
    fn is_the_same_for_ever() {
        assert_eq!(Hash::new(["superpage"]).to_string(), "ec9ea8e8f3a6d20a4c9c4088044bce0a");
        assert_eq!(Hash::new(["super", "page"]).to_string(), "db028ffde190edbd1a3d65070fdac9dc");
        assert_ne!(Hash::new(["ab", "c"]), Hash::new(["a", "bc"]));
        let hash = Hash::new(["x"]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(serde_json::to_string(&hash).unwrap(), format!("\"{hash}\""));
        assert!(serde_json::from_str::<Hash>("\"zz\"").is_err());
    }
}
