//! The environment variables by which `superpage run` configures libsuperpage.so, and their values. Users may set them
//! too: superpage(7).

use std::fmt;
use std::str::FromStr;

/// Kind and size of pages: see superpage(7).
pub const PAGES: &str = "SUPERPAGE_PAGES";
/// Which memory: names of [`crate::Kind`], [`TEXT_COPY`], `stack=BYTES`, separated by commas.
pub const MEMORY: &str = "SUPERPAGE_MEMORY";
/// A word of [`Fallback`].
pub const FALLBACK: &str = "SUPERPAGE_FALLBACK";
/// `exact`, or `always`: use the pool even if calls that work on base pages would fail on its pages.
pub const POOL: &str = "SUPERPAGE_POOL";
/// A word of [`Children`].
pub const CHILDREN: &str = "SUPERPAGE_CHILDREN";
/// A tmpfs directory whose files are on superpages, as `DESCRIPTOR:DEVICE:INODE`. Memory goes to these files instead of
/// the pool. See docs/decisions/live.md#11.
pub const IN_PLACE: &str = "SUPERPAGE_IN_PLACE";
/// Prefix in /proc/PID/maps of the files of [`IN_PLACE`].
pub const IN_PLACE_FILE: &str = "/superpage-in-place";
/// A word of [`Advice`].
pub const ADVICE: &str = "SUPERPAGE_ADVICE";
/// Bytes of unmapped memory that may be kept for reuse.
pub const PREZERO: &str = "SUPERPAGE_PREZERO";
/// Bytes of a new mapping that may be populated by mmap.
pub const PREFAULT: &str = "SUPERPAGE_PREFAULT";
/// [`REPORT_SHORTAGE`], or `json:PATH`.
pub const REPORT: &str = "SUPERPAGE_REPORT";
/// The counters file, as `PATH:INODE`, optionally `:DIRECTORY` with a file for each user.
pub const COUNTERS: &str = "SUPERPAGE_LEDGER";
/// The file to which decisions are appended.
pub const POLICY_LOG: &str = "SUPERPAGE_POLICY_LOG";

/// In [`MEMORY`]: copy code whose file is not on superpages.
pub const TEXT_COPY: &str = "text=copy";
/// In [`MEMORY`]: large files mapped for reading; also `files=BYTES`, the minimum length of a mapping.
pub const FILES: &str = "files";
/// In [`FILES`]: copy files that the page cache holds in small pages; also `copy:BYTES`.
pub const FILES_COPY: &str = "copy";
/// Default minimum length of a file mapping.
pub const FILES_MIN: u64 = 64 << 20;
/// In [`REPORT`]: print a line at exit if the process did not get all superpages.
pub const REPORT_SHORTAGE: &str = "shortage";

words! {
    /// What a request gets if the hugetlb pool is short. If the variable is unset, the library uses base pages.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
    #[derive(Default)]
    Fallback {
        /// ENOMEM, as if memory had run out.
        Error = "error",
        /// Base pages.
        Base = "base",
        /// Transparent superpages, if the kernel has any.
        #[default]
        Thp = "thp",
    }
}

words! {
    /// How much memory is advised for transparent superpages.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
    #[derive(Default)]
    Advice {
        /// As much as free memory is contiguous.
        #[default]
        Contiguous = "contiguous",
        /// All: each first touch compacts memory if no superpage is free, as the kernel's `always` does.
        All = "all",
    }
}

words! {
    /// How child processes are treated.
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    #[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
    #[derive(Default)]
    Children {
        /// Private hugetlb memory of a forked child is copied to base pages; programs it executes get superpages like
        /// the parent.
        #[default]
        Base = "base",
        /// A forked child shares the hugetlb pages copy-on-write, and may be killed when the pool is short.
        Same = "same",
        /// As `base`, but programs that the child executes run without the library.
        None = "none",
    }
}

words! {
    /// How code may be put on superpages.
    Text {
        /// Superpages of the file in the page cache, if the kernel has or makes them.
        File = "file",
        /// As `file`, else private copies. Programs that look for their code in /proc/self/maps may break.
        Copy = "copy",
    }
}

/// A word that a variable or option does not accept.
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
