//! Address spaces: processes and what they mapped. Page tables are in `region`.

use std::collections::BTreeMap;

use trace::{Backing, Page, Pages};

/// A process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// Its mappings by first page: neither empty nor overlapping.
    pub(super) mappings: BTreeMap<u32, Mapping>,
    /// Superpages mapped.
    pub(super) superpages: u64,
    /// Cycles spent on walks and passed in all, when a daemon last looked: (walks, all).
    pub(super) overhead: (u64, u64),
}

/// A mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The page after its last.
    pub end: u32,
    /// What backs it.
    pub backing: Backing,
    /// What the program advised: superpages, none, or nothing.
    pub advised: Option<bool>,
    /// May be written.
    pub writable: bool,
    /// Superpages of the explicit pool were set aside for it: its number there.
    pub pool: Option<u32>,
    /// The first page of what it was when it was mapped: parts keep it, so that a page's place in its
    /// object is known.
    pub origin: u32,
}

/// A mapping with its first page.
pub(crate) type Place = (u32, Mapping);

impl Process {
    /// All mappings, by address.
    pub(crate) fn mappings(&self) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.iter().map(|(&first, &mapping)| (first, mapping))
    }

    /// Those that begin before a page.
    pub(crate) fn mappings_before(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(..page).map(|(&first, &mapping)| (first, mapping))
    }

    /// Those that begin at a page or after it.
    pub(crate) fn mappings_from(&self, page: u32) -> impl DoubleEndedIterator<Item = Place> {
        self.mappings.range(page..).map(|(&first, &mapping)| (first, mapping))
    }

    /// Whether a mapping begins at a page.
    pub(crate) fn begins_at(&self, page: u32) -> bool {
        self.mappings.contains_key(&page)
    }

    /// Cycles that it waited for walks, and that passed in all, since a daemon last looked.
    pub(crate) fn overhead(&self) -> (u64, u64) {
        self.overhead
    }

    /// The mapping that holds `page`.
    pub(crate) fn find(&self, page: Page) -> Option<Place> {
        let (&first, &mapping) = self.mappings.range(..=page.0).next_back()?;
        (page.0 < mapping.end).then_some((first, mapping))
    }

    /// The mapping that holds `pages` and more on both sides.
    pub(super) fn strictly_within(&self, pages: Pages) -> Option<Place> {
        let end = pages.end().0;
        self.find(pages.first)
            .filter(|(first, mapping)| *first < pages.first.0 && end < mapping.end)
    }

    /// Splits mappings so that none crosses the ends of `pages`.
    pub(super) fn cut(&mut self, pages: Pages) {
        for at in [pages.first.0, pages.end().0] {
            if let Some((first, mapping)) = self.find(Page(at))
                && first < at
            {
                self.mappings.insert(at, mapping);
                self.mappings.get_mut(&first).expect("found above").end = at;
            }
        }
    }

    /// Whether any of these pages is mapped.
    pub(crate) fn meets(&self, pages: Pages) -> bool {
        let before = self.mappings.range(..pages.end().0).next_back();
        before.is_some_and(|(_, mapping)| mapping.end > pages.first.0)
    }

    /// The mappings that lie within `pages`, after a cut.
    pub(super) fn within(&self, pages: Pages) -> Vec<Place> {
        let range = pages.first.0..pages.end().0;
        self.mappings.range(range).map(|(&first, &mapping)| (first, mapping)).collect()
    }

    /// Joins neighbours that differ in nothing, as kernels do, over and beside `pages`.
    pub(super) fn join(&mut self, pages: Pages) {
        for at in [pages.end().0, pages.first.0] {
            let Some(&right) = self.mappings.get(&at) else { continue };
            let Some((&first, &left)) = self.mappings.range(..at).next_back() else { continue };
            if left.end == at && (Mapping { end: right.end, ..left }) == right {
                self.mappings.remove(&at);
                self.mappings.get_mut(&first).expect("found above").end = right.end;
            }
        }
    }
}

impl Mapping {
    /// Whether the 512 pages from `window` on lie in it, which begins at `first`.
    pub(crate) fn holds_window(&self, first: u32, window: u32) -> bool {
        first <= window && window + trace::SLOTS <= self.end
    }
    /// Whether its memory is the program's own.
    pub(crate) fn is_anonymous(&self) -> bool {
        matches!(self.backing, Backing::Anonymous | Backing::Heap)
    }
}
