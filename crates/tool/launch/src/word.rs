//! A word of a command line.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A program's name or one of its arguments. The program gets the bytes unchanged; texts and documents replace
/// invalid UTF-8 by U+FFFD.
#[derive(Clone, Debug)]
pub struct Word(OsString);

impl Word {
    /// Returns the text for display.
    pub fn text(&self) -> Cow<'_, str> {
        self.0.to_string_lossy()
    }

    /// Replaces each `mark` in the word by `value`. A word that is not UTF-8 stays unchanged.
    #[must_use]
    pub fn replaced(&self, mark: &str, value: &str) -> Self {
        self.0.to_str().map_or_else(|| self.clone(), |text| text.replace(mark, value).into())
    }
}

impl AsRef<OsStr> for Word {
    fn as_ref(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

impl<T: Into<OsString>> From<T> for Word {
    fn from(word: T) -> Self {
        Self(word.into())
    }
}

impl<T: AsRef<OsStr> + ?Sized> PartialEq<T> for Word {
    fn eq(&self, other: &T) -> bool {
        self.0 == *other.as_ref()
    }
}

impl Eq for Word {}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn bytes_that_are_not_utf8_are_kept_and_shown_as_replacement_characters() {
        let word = Word::from(OsString::from_vec(b"caf\xe9 {N}".to_vec()));
        assert_eq!(word.text(), "caf\u{fffd} {N}");
        assert_eq!(serde_json::to_string(&word).unwrap(), "\"caf\u{fffd} {N}\"");
        assert_eq!(word.replaced("{N}", "1"), word);
        assert_eq!(Word::from("a {N}").replaced("{N}", "1"), "a 1");
    }
}
