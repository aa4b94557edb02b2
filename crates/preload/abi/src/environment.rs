//! The variables by which `superpage run` tells libsuperpage.so what to do, and their words. A person may set them
//! too: superpage(7).

use std::fmt;
use std::str::FromStr;

/// Which pages: see superpage(7).
pub const PAGES: &str = "SUPERPAGE_PAGES";
/// Which memory: names of [`crate::Kind`], [`TEXT_COPY`], `stack=BYTES`, separated by commas.
pub const MEMORY: &str = "SUPERPAGE_MEMORY";
/// A word of [`Fallback`].
pub const FALLBACK: &str = "SUPERPAGE_FALLBACK";
/// Whether memory goes to the pool that not every later call finds as it finds ordinary memory.
pub const POOL: &str = "SUPERPAGE_POOL";
/// A word of [`Children`].
pub const CHILDREN: &str = "SUPERPAGE_CHILDREN";
/// Memory goes to files of this directory in the place of the pool, as `DESCRIPTOR:DEVICE:INODE`: a tmpfs whose files are
/// of superpages. See docs/decisions/live.md#11.
pub const IN_PLACE: &str = "SUPERPAGE_IN_PLACE";
/// How the files of [`IN_PLACE`] begin that are a program's memory, in /proc/PID/maps.
pub const IN_PLACE_FILE: &str = "/superpage-in-place";
/// Bytes of unmapped memory that may be kept for the next request.
pub const PREZERO: &str = "SUPERPAGE_PREZERO";
/// Bytes of a new mapping that may be populated when it is mapped.
pub const PREFAULT: &str = "SUPERPAGE_PREFAULT";
/// [`REPORT_SHORTAGE`], or `json:PATH`.
pub const REPORT: &str = "SUPERPAGE_REPORT";
/// The counters' file, as `PATH:INODE`, and perhaps `:DIRECTORY`, in which each user has one.
pub const COUNTERS: &str = "SUPERPAGE_LEDGER";
/// The file to which decisions are appended.
pub const POLICY_LOG: &str = "SUPERPAGE_POLICY_LOG";

/// Of [`MEMORY`]: code for which the file has no superpages is copied.
pub const TEXT_COPY: &str = "text=copy";
/// Of [`MEMORY`]: large files that are mapped to be read; also `files=BYTES`, the least length of such a mapping.
pub const FILES: &str = "files";
/// Of [`FILES`]: files that are cached in small pages are copied; also `copy:BYTES`.
pub const FILES_COPY: &str = "copy";
/// The least length of a mapping of a file, where none is said.
pub const FILES_MIN: u64 = 64 << 20;
/// Of [`REPORT`]: a line at the end of a process that did not get all.
pub const REPORT_SHORTAGE: &str = "shortage";

words! {
    /// What a request gets that the hugetlb pool cannot serve. Unset, the library takes base pages.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
    #[derive(Default)]
    Fallback {
        /// An error, as if memory had run out.
        Error = "error",
        /// Base pages.
        Base = "base",
        /// Transparent superpages where the kernel has some.
        #[default]
        Thp = "thp",
    }
}

words! {
    /// What becomes of a program's children.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
    #[derive(Default)]
    Children {
        /// A forked child gets private hugetlb memory copied to ordinary memory; what it executes is backed as
        /// the program is.
        #[default]
        Base = "base",
        /// A forked child shares the superpages, and may be killed when the pool is short.
        Same = "same",
        /// As `base`, and what it executes runs as if there were no superpage.
        None = "none",
    }
}

words! {
    /// What may be done to put a program's code on superpages.
    Text {
        /// Superpages of its file, where the kernel has some or makes them; nothing else of it changes.
        File = "file",
        /// The same, or else private copies. Programs that look for their code in /proc/self/maps may break.
        Copy = "copy",
    }
}

/// A word that a variable or an option cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord {
    setting: &'static str,
    word: String,
    expected: &'static str,
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid {} `{}`: expected {}", self.setting, self.word, self.expected)
    }
}

impl std::error::Error for UnknownWord {}

macro_rules! parse {
    ($type:ident, $setting:literal, $expected:literal) => {
        impl FromStr for $type {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                Self::from_name(word).ok_or_else(|| UnknownWord {
                    setting: $setting,
                    word: word.to_string(),
                    expected: $expected,
                })
            }
        }
    };
}
parse!(Fallback, "fallback", "error, base or thp");
parse!(Children, "children", "base, same or none");
parse!(Text, "text", "file or copy");
