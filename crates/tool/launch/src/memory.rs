//! The memory of a program that libsuperpage.so backs or prepares.

use std::fmt;
use std::str::FromStr;

pub use abi::environment::{Advice, Children, Fallback, Text};
use abi::{Kind, environment};
use serde::{Deserialize, Serialize};
use units::ByteSize;

use crate::ParseRecipeError;

/// Kinds of memory that libsuperpage.so backs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Memory {
    /// malloc's memory.
    pub heap: bool,
    /// Anonymous private mappings.
    pub mmap: bool,
    /// Shared memory: System V, anonymous, memfd and POSIX.
    pub shm: bool,
    /// The program's code.
    pub text: Option<Text>,
    /// The program's data and bss.
    pub data: bool,
    /// Stacks of this fixed size.
    pub stack: Option<ByteSize>,
    /// Large files that the program maps for reading.
    pub files: Option<Files>,
}

/// The file mappings that are backed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// Minimum length of a mapping.
    pub min: ByteSize,
    /// Whether private copies may replace parts that are cached in small pages.
    pub copies: bool,
}

impl FromStr for Files {
    type Err = ParseRecipeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseRecipeError::UnknownFiles(text.to_string());
        let (copies, min) = match text.strip_prefix(environment::FILES_COPY) {
            Some("") => (true, None),
            Some(rest) => (true, Some(rest.strip_prefix(':').ok_or_else(unknown)?)),
            None => (false, Some(text)),
        };
        let min = min.map_or(Ok(ByteSize(environment::FILES_MIN)), str::parse);
        Ok(Self { min: min.map_err(|_| unknown())?, copies })
    }
}

impl Memory {
    /// Heap and mappings, which are nearly all memory of most programs.
    pub const USUAL: Self = Self {
        heap: true,
        mmap: true,
        shm: false,
        text: None,
        data: false,
        stack: None,
        files: None,
    };

    /// Returns whether no kind of memory is named.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the value of the library's SUPERPAGE_MEMORY, with sizes in bytes.
    pub fn variable(&self) -> String {
        let flags = [
            (self.heap, Kind::Heap.name()),
            (self.mmap, Kind::Mmap.name()),
            (self.shm, Kind::Shared.name()),
            (self.text == Some(Text::File), Kind::Text.name()),
            (self.text == Some(Text::Copy), environment::TEXT_COPY),
            (self.data, Kind::Data.name()),
        ];
        let mut words: Vec<String> =
            flags.iter().filter(|(set, _)| *set).map(|(_, word)| word.to_string()).collect();
        words.extend(self.stack.map(|size| format!("stack={}", size.bytes())));
        words.extend(self.files.map(|Files { min, copies }| {
            let copy = if copies { "copy:" } else { "" };
            format!("{}={copy}{}", environment::FILES, min.bytes())
        }));
        words.join(",")
    }
}

impl FromStr for Memory {
    type Err = ParseRecipeError;

    /// Parses `heap,mmap,stack=8M`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut memory = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "heap" => memory.heap = true,
                "mmap" => memory.mmap = true,
                "shm" => memory.shm = true,
                "text" | "text=file" => memory.text = Some(Text::File),
                "text=copy" => memory.text = Some(Text::Copy),
                "data" => memory.data = true,
                "stack" => memory.stack = Some(ByteSize::mib(8)),
                "files" => {
                    memory.files =
                        Some(Files { min: ByteSize(environment::FILES_MIN), copies: false });
                }
                _ if word.starts_with("files=") => memory.files = Some(word[6..].parse()?),
                _ => {
                    let size = word.strip_prefix("stack=").and_then(|size| size.parse().ok());
                    let size = size.filter(|size: &ByteSize| size.bytes() > 0);
                    memory.stack = Some(
                        size.ok_or_else(|| ParseRecipeError::UnknownMemory(word.to_string()))?,
                    );
                }
            }
        }
        Ok(memory)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.variable())
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        memory.variable()
    }
}

impl TryFrom<String> for Memory {
    type Error = ParseRecipeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Memory that libsuperpage.so prepares before a program touches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// Maximum amount of unmapped memory that is kept, and zeroed again for the program's next mapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prezero: Option<ByteSize>,
    /// Maximum part of a new mapping that is populated at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefault: Option<ByteSize>,
}

impl Ahead {
    /// Returns whether nothing is prepared.
    pub fn is_empty(&self) -> bool {
        self.settings().next().is_none()
    }

    /// Returns the library's variables, their values, and their effects.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, String, &'static str)> {
        let prezero = "unmapped superpages that may be kept and zeroed again";
        let prefault = "how much of a new mapping may be populated at once";
        let all = [
            (environment::PREZERO, self.prezero, prezero),
            (environment::PREFAULT, self.prefault, prefault),
        ];
        all.into_iter().filter_map(move |(variable, size, what)| {
            let size = size.filter(|size| size.bytes() > 0)?;
            Some((variable, size.bytes().to_string(), what))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written() {
        for (text, written) in [
            ("heap,mmap", "heap,mmap"),
            ("mmap, heap ,", "heap,mmap"),
            ("stack", "stack=8388608"),
            ("text,data,shm,stack=2M", "shm,text,data,stack=2097152"),
            ("data,text=copy", "text=copy,data"),
            ("text=file", "text"),
            ("files", "files=67108864"),
            ("files=1G,heap", "heap,files=1073741824"),
            ("files=copy", "files=copy:67108864"),
            ("files=copy:2M", "files=copy:2097152"),
            ("", ""),
        ] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!(memory.variable(), written, "{text}");
            assert_eq!(written.parse(), Ok(memory));
        }
        for bad in [
            "all",
            "stack=",
            "stack=0",
            "stack=x",
            "heap mmap",
            "files=",
            "files=x",
            "files=copy2M",
        ] {
            assert!(bad.parse::<Memory>().is_err(), "{bad}");
        }
    }
}
