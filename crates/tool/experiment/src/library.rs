//! Checks that libsuperpage.so was active in an arm's runs. An arm with `memory=` or rules for the library is
//! meaningless without it.
//! See docs/decisions/compare.md#3.

use launch::Recipe;
use serde::Serialize;

use crate::sample::Sample;

/// The library's report on a run. A field is `None` if the library was not part of the plan or the value is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PreloadReport {
    /// Whether the library reported that it is loaded.
    pub answered: Option<bool>,
    /// Bytes of superpages that the program requested from the library, granted or not.
    pub asked_bytes: Option<u64>,
}

/// A problem with the library in an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LibraryFault {
    /// The library did not answer in every run.
    Silent,
    /// The library should hand out memory, but no known run requested any.
    Idle,
}

impl PreloadReport {
    /// Returns the report on a run.
    pub fn from_sample(sample: &Sample) -> Self {
        Self { answered: sample.library_answered, asked_bytes: sample.library_asked_bytes }
    }
}

impl LibraryFault {
    /// Returns the problem, if any, according to the reports on an arm's runs.
    pub fn from_reports(
        recipe: &Recipe,
        told: impl IntoIterator<Item = PreloadReport>,
    ) -> Option<Self> {
        let told: Vec<PreloadReport> = told.into_iter().collect();
        let (hands_out, has_rules) = (!recipe.memory.is_empty(), !recipe.ahead.is_empty());
        if (hands_out || has_rules) && told.iter().any(|run| run.answered == Some(false)) {
            return Some(Self::Silent);
        }
        let mut asked = told.iter().filter_map(|run| run.asked_bytes).peekable();
        let is_idle = hands_out && asked.peek().is_some() && asked.all(|bytes| bytes == 0);
        is_idle.then_some(Self::Idle)
    }

    /// Describes the problem, with the remedy.
    pub fn why(self, recipe: &Recipe) -> String {
        match self {
            Self::Silent => "libsuperpage.so, which should provide its memory, did not respond in \
                    every run: is it of another version than the command, or is the program \
                    static?"
                .to_string(),
            Self::Idle => format!(
                "libsuperpage.so, with memory={}, requested no superpages: all requests of these kinds were too small, or \
                 not yet known to be used densely; does the program use other kinds (heap: malloc's; mmap: mappings of its \
                 own)?",
                recipe.memory.variable()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(recipe: &str, told: &[(Option<bool>, Option<u64>)]) -> Option<LibraryFault> {
        let told =
            told.iter().map(|&(answered, asked_bytes)| PreloadReport { answered, asked_bytes });
        LibraryFault::from_reports(&recipe.parse().expect("a recipe"), told)
    }

    #[test]
    fn a_silent_library_breaks_an_arm_that_is_nothing_without_it() {
        let (answered, silent, unknown) = ((Some(true), None), (Some(false), None), (None, None));
        for recipe in ["x: pages=thp memory=heap", "x: pages=thp prezero=64M", "x: prefault=64M"] {
            assert_eq!(fault(recipe, &[answered, unknown]), None, "{recipe}");
            assert_eq!(fault(recipe, &[answered, silent]), Some(LibraryFault::Silent), "{recipe}");
        }
        // In this arm the library only helps glibc, and coverage shows whether that was enough.
        assert_eq!(fault("thp", &[silent]), None);
    }

    #[test]
    fn a_library_that_was_asked_for_nothing_breaks_an_arm_that_names_memory_for_it() {
        let asked = |bytes| (Some(true), bytes);
        let named = "x: pages=thp memory=mmap";
        assert_eq!(fault(named, &[asked(Some(0)), asked(Some(0))]), Some(LibraryFault::Idle));
        assert_eq!(fault(named, &[asked(Some(0)), asked(Some(2 << 20))]), None);
        assert_eq!(fault(named, &[asked(None)]), None);
        assert_eq!(fault("thp", &[asked(Some(0))]), None);
        let why = LibraryFault::Idle.why(&named.parse().expect("a recipe"));
        assert!(why.contains("memory=mmap"), "{why}");
    }
}
