//! Notes of a plan for the user. Code decides by the variants; the texts are made where they are printed.
//! See docs/decisions/launch.md#5.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};
use units::PageSize;

use crate::{Fallback, Instrumentation, Kind, Pages, Runtime};

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Note {
    /// `memory=` alone requests no pages: it says which memory is backed, not by which pages.
    NoPages {
        /// Pages of the recipe.
        pages: Pages,
    },
    /// Private mappings are in superpage files, and so appear as shared.
    MappedAsShared,
    /// Only a small part of free memory is in superpages.
    Fragmented {
        /// Pages of the program's memory beyond the free superpages.
        rest: Rest,
    },
    /// `pages=auto` was resolved.
    Chose {
        /// The chosen pages.
        pages: Pages,
        /// The reason.
        because: Because,
    },
    /// Larger sizes than the requested one are enabled too.
    LargerThp(LargerThp),
    /// No library can be preloaded into the program.
    NotPreloadable,
    /// Preparing memory ahead has no effect with this recipe.
    NothingAhead {
        /// The recipe's pages.
        pages: Pages,
        /// The recipe's memory.
        memory: String,
    },
    /// Preparing memory ahead has no effect on malloc's memory.
    MallocNotAhead,
    /// Memory that is prepared ahead counts as the program's.
    AheadCounts,
    /// With children=same, a child and its parent share the pool's pages.
    ForkSharesPool,
    /// A fork copies the pool's pages.
    ForkCopiesPool,
    /// No variable can name the library's path.
    LibraryPath {
        /// The path, which contains a space or colon.
        path: String,
    },
    /// The library was not found.
    LibraryMissing,
    /// The pool has no free page.
    PoolEmpty {
        /// Page size of the pool.
        size: PageSize,
        /// The pages that all requests get instead.
        fallback: Fallback,
    },
    /// glibc's tunable puts only malloc's memory on the pool.
    MallocAlone,
    /// With glibc's tunable, the heap is on private pages of the pool.
    ForkSharesHeap,
    /// Neither preloaded libraries nor tunables reach a program.
    NotReached {
        /// Path of the program.
        path: String,
        /// Kind of the program.
        program: Kind,
        /// What manages its memory from within its own file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        runtime: Option<Runtime>,
    },
    /// Only glibc's malloc requests superpages, and the program has another allocator.
    OwnAllocator {
        /// Path of the program.
        path: String,
        /// File of the allocator.
        library: String,
    },
    /// The recipe sets a tunable to another value than the plan would.
    RecipeStands {
        /// The tunable.
        name: String,
        /// The recipe's value.
        set: String,
        /// The value that would have been set.
        wanted: String,
    },
    /// Superpage adds nothing to the program.
    LeftAlone {
        /// The file that contains the tool.
        path: String,
        /// The tool.
        tool: Instrumentation,
    },
    /// A note from another crate of superpage; no code decides by it.
    Said {
        /// Text of the note.
        text: String,
    },
}

/// Enabled sizes of THP above the requested one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LargerThp {
    /// Requested size.
    pub size: PageSize,
    /// Whether THP of the largest size is enabled.
    pub with_largest: bool,
    /// The other larger sizes that are enabled.
    pub larger: Vec<PageSize>,
}

impl LargerThp {
    /// Formats the sizes.
    pub fn sizes(&self) -> String {
        let largest = self.with_largest.then(|| "the largest size".to_string());
        let sizes = largest.into_iter().chain(self.larger.iter().map(PageSize::to_string));
        sizes.collect::<Vec<_>>().join(", ")
    }
}

/// What a program gets when the free superpages are used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rest {
    /// Base pages.
    Base,
    /// THP of the smaller sizes that are enabled.
    Smaller(Vec<PageSize>),
    /// Superpages are freed for the program. If they do not suffice, these sizes are enabled until it ends.
    Supplied(Vec<PageSize>),
    /// Superpages that each first touch compacts memory for, as the design says; base pages if that fails.
    Compacted,
}

/// The reason for the choice of `pages=auto`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// A pool has free pages, so somebody filled it in order to use it.
    FreePool {
        /// Number of free pages.
        pages: u64,
        /// Page size.
        size: PageSize,
    },
    /// No pool has free pages.
    NoFreePool,
    /// The largest THP size that is enabled.
    LargestOn,
    /// A pool may grow.
    PoolMayGrow {
        /// Number of pages by which it may grow.
        pages: u64,
        /// Page size.
        size: PageSize,
    },
}

impl Note {
    /// Returns whether to say it before a run: the program will not get what the recipe requests, or may be slowed down.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::LargerThp(_)
            | Self::NotPreloadable
            | Self::NothingAhead { .. }
            | Self::MallocNotAhead
            | Self::NotReached { .. }
            | Self::OwnAllocator { .. }
            | Self::LeftAlone { .. }
            | Self::Fragmented { rest: Rest::Compacted } => true,
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
            Self::NotReached { path, program, runtime } => {
                let why = program.unreached().unwrap_or_default();
                match (runtime, program) {
                    (Some(Runtime::Go), _) => write!(
                        f,
                        "neither libsuperpage.so nor malloc's tunables reach the heap of {path}: Go's runtime without cgo \
                         maps it by its own system calls; {OUTSIDE}"
                    ),
                    (Some(Runtime::StaticGlibc), _) => write!(
                        f,
                        "use superpage run -- {} (an arm: thp): its malloc takes superpages by itself then; what was \
                         requested needs libsuperpage.so, which does not reach it: {why}; or, for memory outside \
                         malloc, {OUTSIDE}",
                        quoted(path)
                    ),
                    (None, Kind::Static | Kind::OtherLoader(_)) => write!(
                        f,
                        "neither malloc's tunables nor a preload can be counted on to reach {path}: {why}; {OUTSIDE}"
                    ),
                    (None, _) => write!(
                        f,
                        "neither malloc's tunables nor a preload can be counted on to reach {path}: {why}"
                    ),
                }
            }
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

/// What reaches a program that no library reaches.
const OUTSIDE: &str = "as root, --design quicksilver-sync-64 (of an arm: design=quicksilver-sync-64) makes superpages \
                       from outside, for programs that run for seconds or longer";

/// Quotes a path for a shell.
fn quoted(path: &str) -> Cow<'_, str> {
    shlex::try_quote(path).unwrap_or(path.into())
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
                "superpages are made free when it asks for them; only if that is not enough, THP of {} are turned on \
                 where advised, until it ends",
                list(off)
            ),
            Self::Compacted => f.write_str(
                "as the design says, each first touch of a superpage compacts memory, which can take longer than superpages save",
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

/// The notes of a plan. A document has their texts in `notes`, and the variants that decide in `conditions`.
/// Documents of versions before 0.1 lack `conditions`; for such documents, a text in `notes` decides whether free
/// memory was fragmented, as it did in those versions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Notes(Vec<Note>);

#[derive(Serialize, Deserialize)]
struct Written {
    notes: Vec<String>,
    conditions: Option<Vec<Note>>,
}

impl Notes {
    /// Adds a note.
    pub fn push(&mut self, note: impl Into<Note>) {
        self.0.push(note.into());
    }

    /// Adds notes of other crates, as text.
    pub fn extend(&mut self, said: impl IntoIterator<Item = String>) {
        self.0.extend(said.into_iter().map(Note::from));
    }

    /// Returns the texts of the notes.
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

    #[test]
    fn a_static_glibc_is_shown_the_command_that_reaches_it_first() {
        let told = |runtime| {
            let (path, program) = ("/opt/my app".to_string(), Kind::Static);
            Note::NotReached { path, program, runtime }.to_string()
        };
        let of_glibc = told(Some(Runtime::StaticGlibc));
        assert!(of_glibc.starts_with("use superpage run -- '/opt/my app' "), "{of_glibc}");
        for runtime in [Some(Runtime::StaticGlibc), Some(Runtime::Go), None] {
            // A design has 2 % of the program's CPU time to find its memory.
            assert!(told(runtime).contains("for seconds or longer"), "{}", told(runtime));
        }
    }
}
