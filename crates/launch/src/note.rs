//! What a user should know of a plan. Code decides by the variants; their text is made where it is printed.
//! See docs/decisions/launch.md#5.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::{Fallback, Instrumentation, Kind, Pages};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Note {
    /// `memory=` says what is backed, not by what: alone it asks for nothing.
    NoPages {
        /// Those of the recipe.
        pages: Pages,
    },
    /// Mappings lie in files of superpages.
    MappedAsShared,
    /// Little of free memory is in superpages.
    Fragmented {
        /// What the rest of its memory gets.
        rest: Rest,
    },
    /// `pages=auto` was decided.
    Chose {
        /// What it means here.
        pages: Pages,
        /// What decided.
        because: Because,
    },
    /// Sizes above the one that was asked for are on, too.
    LargerThp(LargerThp),
    /// No library can be preloaded into the program.
    NotPreloadable,
    /// What prepares memory ahead has no effect with this recipe.
    NothingAhead {
        /// The recipe's pages.
        pages: Pages,
        /// The recipe's memory.
        memory: String,
    },
    /// Nor has it on malloc's memory.
    MallocNotAhead,
    /// Memory that is prepared counts as the program's.
    AheadCounts,
    /// A child and its parent share the pool's pages.
    ForkSharesPool,
    /// Or a fork copies them.
    ForkCopiesPool,
    /// No variable can name the library's path.
    LibraryPath {
        /// It has a space or colon.
        path: String,
    },
    /// The library is not where it is looked for.
    LibraryMissing,
    /// The pool has no free page.
    PoolEmpty {
        /// Its page size.
        size: PageSize,
        /// What everything gets instead.
        fallback: Fallback,
    },
    /// glibc's tunable puts malloc's memory on the pool, and no other.
    MallocAlone,
    /// Its heap lies there privately.
    ForkSharesHeap,
    /// Neither a preload nor the tunables reach a program.
    NotReached {
        /// The file.
        path: String,
        /// What kind it is.
        program: Kind,
    },
    /// Nothing but glibc's malloc is asked for superpages, and the program has another allocator.
    OwnAllocator {
        /// The program.
        path: String,
        /// The allocator's file.
        library: String,
    },
    /// The recipe sets a tunable otherwise.
    RecipeStands {
        /// The tunable.
        name: String,
        /// What the recipe says.
        set: String,
        /// What would have been set.
        wanted: String,
    },
    /// Nothing of ours goes into the program.
    LeftAlone {
        /// The file with the tool in it.
        path: String,
        /// The tool.
        tool: Instrumentation,
    },
    /// What another part of superpage says; nothing is decided by it.
    Said {
        /// In words.
        text: String,
    },
}

/// Sizes of THP above the one that was asked for that are on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargerThp {
    /// Asked for.
    pub size: PageSize,
    /// The size of a superpage is on.
    pub with_largest: bool,
    /// The others.
    pub larger: Vec<PageSize>,
}

impl LargerThp {
    /// The sizes, in words.
    pub fn sizes(&self) -> String {
        let largest = self.with_largest.then(|| "the largest size".to_string());
        let sizes = largest.into_iter().chain(self.larger.iter().map(PageSize::to_string));
        sizes.collect::<Vec<_>>().join(", ")
    }
}

/// What a program gets beyond the superpages that are free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rest {
    /// Base pages.
    Base,
    /// THP of the smaller sizes that are on.
    Smaller(Vec<PageSize>),
    /// Superpages are made free for it; where that is not enough, these sizes are turned on until it ends.
    Supplied(Vec<PageSize>),
}

/// Why `pages=auto` chose what it chose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// A pool that has free pages was made to be used.
    FreePool {
        /// How many are free.
        pages: u64,
        /// Their size.
        size: PageSize,
    },
    /// No pool has free pages.
    NoFreePool,
    /// The largest size of THP that is on.
    LargestOn,
    /// A pool may grow.
    PoolMayGrow {
        /// By how many pages.
        pages: u64,
        /// Their size.
        size: PageSize,
    },
}

impl Note {
    /// Whether the program will not get what was asked for.
    pub fn is_unreached(&self) -> bool {
        match self {
            Self::LargerThp(_)
            | Self::NotPreloadable
            | Self::NothingAhead { .. }
            | Self::MallocNotAhead
            | Self::NotReached { .. }
            | Self::OwnAllocator { .. }
            | Self::LeftAlone { .. } => true,
            Self::NoPages { .. }
            | Self::MappedAsShared
            | Self::Fragmented { .. }
            | Self::Chose { .. }
            | Self::AheadCounts
            | Self::ForkSharesPool
            | Self::ForkCopiesPool
            | Self::LibraryPath { .. }
            | Self::LibraryMissing
            | Self::PoolEmpty { .. }
            | Self::MallocAlone
            | Self::ForkSharesHeap
            | Self::RecipeStands { .. }
            | Self::Said { .. } => false,
        }
    }
}

impl From<String> for Note {
    fn from(text: String) -> Self {
        Self::Said { text }
    }
}

const UNREACHED: &str = "memory the program maps itself is not reached";

fn list(sizes: &[PageSize]) -> String {
    sizes.iter().map(PageSize::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPages { pages } => {
                let why = if *pages == Pages::Base { "with pages=base" } else { "without pages=" };
                write!(
                    f,
                    "memory= {why} asks for no superpages, and libsuperpage.so is not used; add e.g. pages=thp"
                )
            }
            Self::MappedAsShared => f.write_str(
                "its large private mappings are files of superpages, mapped as shared: a fork makes them ordinary memory first",
            ),
            Self::Fragmented { rest } => write!(f, "free memory is fragmented: {rest}"),
            Self::Chose { pages, because } => write!(f, "auto chose {pages}: {because}"),
            Self::LargerThp(those) => write!(
                f,
                "larger transparent superpages are enabled too ({}): libsuperpage.so keeps the largest out of new memory, \
                 but khugepaged may make some later, and sizes between come first; to use {} alone, disable them in \
                 /sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled",
                those.sizes(),
                those.size
            ),
            Self::NotPreloadable => f.write_str(
                "libsuperpage.so cannot be preloaded into it: none of what was requested applies",
            ),
            Self::NothingAhead { pages, memory } => write!(
                f,
                "nothing is prepared ahead: that takes pages=thp and memory=mmap (here: pages={pages}, memory={memory})"
            ),
            Self::MallocNotAhead => f.write_str(
                "malloc's memory is not prepared ahead: libc maps and unmaps it itself; the program's own mappings are, \
                 and those of allocators other than libc's",
            ),
            Self::AheadCounts => f.write_str(
                "what is prepared counts as the program's memory (RSS) until it is asked for; the report says how much \
                 it was",
            ),
            Self::ForkSharesPool => f.write_str(
                "a forked child shares the superpages: when it or its parent writes, the pool must have a free page, or \
                 the kernel kills it (SIGBUS)",
            ),
            Self::ForkCopiesPool => f.write_str(
                "a fork copies the program's private hugetlb memory to ordinary memory for the child before it returns",
            ),
            Self::LibraryPath { path } => write!(
                f,
                "{UNREACHED}: LD_PRELOAD cannot hold a path with a space or colon ({path}); move libsuperpage.so"
            ),
            Self::LibraryMissing => write!(
                f,
                "libsuperpage.so is not beside superpage nor in ../lib (cargo build --release makes it; put it there): \
                 {UNREACHED}, and malloc is not reached reliably on glibc 2.36"
            ),
            Self::PoolEmpty { size, fallback } => write!(
                f,
                "the hugetlb pool of {size} pages has no free pages: everything falls back to {}",
                fallback.name()
            ),
            Self::MallocAlone => f.write_str(
                "memory the program maps itself, not through malloc, stays on base pages; all threads share one malloc \
                 arena",
            ),
            Self::ForkSharesHeap => f.write_str(
                "a forked child that writes the heap needs further free pages of the pool, and the kernel kills it \
                 (SIGBUS) when there are none",
            ),
            Self::NotReached { path, program } => write!(
                f,
                "neither malloc's tunables nor a preload can be counted on to reach {}: {}",
                path,
                program.unreached().unwrap_or_default()
            ),
            Self::OwnAllocator { path, library } => write!(
                f,
                "only glibc's malloc gets superpages, and {} has an allocator of its own ({library})",
                path
            ),
            Self::RecipeStands { name, set, wanted } => {
                write!(f, "the recipe's {name}={set} stands in place of {name}={wanted}")
            }
            Self::LeftAlone { path, tool } => write!(
                f,
                "{} is {}: run on base pages, without libsuperpage.so",
                path,
                tool.what()
            ),
            Self::Said { text } => f.write_str(text),
        }
    }
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str(
                "what does not fit on superpages stays on base pages (as root, superpage makes superpages free and turns \
                 smaller sizes of THP on)",
            ),
            Self::Smaller(on) => write!(f, "what does not fit on superpages gets THP of {}", list(on)),
            Self::Supplied(off) if off.is_empty() => {
                f.write_str("superpages are made free when it asks for them")
            }
            Self::Supplied(off) => write!(
                f,
                "superpages are made free when it asks for them; where that is not enough, THP of {} are turned on where \
                 advised, until it ends",
                list(off)
            ),
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FreePool { pages, size } => {
                write!(f, "its pool has {pages} free pages of {size}")
            }
            Self::NoFreePool => f.write_str("no hugetlb pool has free pages"),
            Self::LargestOn => f.write_str("the largest enabled transparent size"),
            Self::PoolMayGrow { pages, size } => {
                write!(f, "its pool of {size} may grow by {pages} pages")
            }
        }
    }
}

/// The notes of a plan. A document has their texts in `notes` and what decides in `conditions`, which documents of versions
/// before 0.1 lack: there a text decides whether free memory was fragmented, as it did then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Notes(Vec<Note>);

#[derive(Serialize, Deserialize)]
struct Written {
    notes: Vec<String>,
    conditions: Option<Vec<Note>>,
}

impl Notes {
    /// Adds one.
    pub fn push(&mut self, note: impl Into<Note>) {
        self.0.push(note.into());
    }

    /// Adds what other parts say.
    pub fn extend(&mut self, said: impl IntoIterator<Item = String>) {
        self.0.extend(said.into_iter().map(Note::from));
    }

    /// In words.
    pub fn texts(&self) -> Vec<String> {
        self.0.iter().map(Note::to_string).collect()
    }
}

impl Deref for Notes {
    type Target = [Note];

    fn deref(&self) -> &[Note] {
        &self.0
    }
}

impl From<Notes> for Written {
    fn from(notes: Notes) -> Self {
        Self { notes: notes.texts(), conditions: Some(notes.0) }
    }
}

impl From<Written> for Notes {
    fn from(written: Written) -> Self {
        let older = |text: String| match text.strip_prefix("free memory is fragmented: ") {
            Some(rest) if rest.contains("stays on base pages") => {
                Note::Fragmented { rest: Rest::Base }
            }
            Some(_) => Note::Fragmented { rest: Rest::Supplied(Vec::new()) },
            None => text.into(),
        };
        let conditions = written.conditions;
        Self(conditions.unwrap_or_else(|| written.notes.into_iter().map(older).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Notes {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn conditions_decide_and_texts_of_older_documents_do_where_there_are_none() {
        let mut notes = Notes::default();
        notes.push(Note::Fragmented { rest: Rest::Supplied(Vec::new()) });
        notes.push("what a design says".to_string());
        let json = serde_json::to_string(&notes).unwrap();
        assert_eq!(read(&json), notes);
        assert_eq!(read(&json.replace("free memory", "xyz")), notes);
        let of = |text: &str| read(&format!("{{\"notes\":[\"{text}\"]}}"))[0].clone();
        assert_eq!(of(&notes[0].to_string()), notes[0]);
        let base = Note::Fragmented { rest: Rest::Base };
        assert_eq!(of(&base.to_string()), base);
        assert_eq!(of("memory is fragmented"), Note::Said { text: "memory is fragmented".into() });
    }
}
