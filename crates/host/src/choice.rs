//! `Choice`: a setting printed as `always [madvise] never`.

use serde::{Deserialize, Serialize};

use crate::{ReadError, Root};

/// What is chosen, among what this kernel allows. Not an enum: kernels add words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The word in brackets.
    pub selected: String,
    /// Every word, in the kernel's order.
    pub allowed: Vec<String>,
}

impl Choice {
    /// Reads `always [madvise] never`; `None` unless exactly one word is in brackets.
    pub fn parse(line: &str) -> Option<Self> {
        let mut selected = None;
        let mut allowed = Vec::new();
        for word in line.split_ascii_whitespace() {
            let chosen = word.strip_prefix('[').and_then(|w| w.strip_suffix(']'));
            let word = chosen.unwrap_or(word);
            if word.is_empty() || (chosen.is_some() && selected.is_some()) {
                return None;
            }
            selected = selected.or(chosen);
            allowed.push(word.to_string());
        }
        Some(Self { selected: selected?.to_string(), allowed })
    }

    /// Whether `word` is the chosen one.
    pub fn is(&self, word: &str) -> bool {
        self.selected == word
    }

    /// Whether this kernel knows `word`.
    pub fn allows(&self, word: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == word)
    }

    pub(crate) fn read(root: &Root, path: &str) -> Result<Self, ReadError> {
        let text = root.read(path)?;
        let line = text.trim();
        Self::parse(line).ok_or_else(|| {
            let expected = "words, one of them in brackets, such as `always [madvise] never`";
            ReadError::malformed(&root.path(path), 1, line, expected)
        })
    }
}
