//! What happens between accesses: system calls, the program's own marks, its pace.

use crate::{Page, Region};

/// A process of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

/// `count` base pages from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pages {
    /// The first page.
    pub first: Page,
    /// How many.
    pub count: u32,
}

impl Pages {
    /// The page after the last.
    pub const fn end(self) -> Page {
        Page(self.first.0 + self.count)
    }
    /// The pages, ascending.
    pub fn iter(self) -> impl Iterator<Item = Page> + Clone {
        (self.first.0..self.end().0).map(Page)
    }
    /// The regions that have any of them, ascending. There must be a page.
    pub fn regions(self) -> impl Iterator<Item = Region> {
        (self.first.region().0..=Page(self.end().0 - 1).region().0).map(Region)
    }
}

/// What backs a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// The heap: anonymous, and it may grow at its end ([`Event::Grow`]).
    Heap,
    /// Memory shared by its object's number; all mappings of an object begin at its first page.
    Shared(u32),
    /// A file, mapped privately and only read; its pages are in the page cache from the start or not.
    File {
        /// The file's number.
        file: u32,
        /// Whether its pages are in memory already.
        cached: bool,
    },
}

/// What a program told the kernel about its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// MADV_HUGEPAGE.
    Huge,
    /// MADV_NOHUGEPAGE.
    NoHuge,
    /// MADV_COLLAPSE.
    Collapse,
    /// MADV_POPULATE_WRITE.
    Populate,
    /// MADV_DONTNEED.
    DontNeed,
    /// MADV_FREE.
    Free,
}

/// How the accesses that follow relate to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Cycles of an access with everything but its translation, in 1/1024 cycles.
    pub work: u32,
    /// The part of a walk's latency that the program waits for, per mille: 1000 where each access needs
    /// the last (a chase), less where many are under way at once.
    pub exposed_permille: u16,
    /// Accesses of the program that each one of the stream stands for (1: all are there). A steady
    /// random phase can be sampled; a first touch must not be.
    pub weight: u32,
    /// Threads that make these accesses at once, each with a CPU of its own: time passes so much faster.
    pub threads: u16,
}

/// What happens between two accesses of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A process begins, with an empty address space. The following events and accesses are its own.
    Spawn(Process),
    /// The following events and accesses are of this process.
    Run(Process),
    /// Pages are mapped. Their numbers were not in use.
    Map {
        /// Which.
        pages: Pages,
        /// The virtual page number of the first.
        address: u64,
        /// What backs them.
        backing: Backing,
    },
    /// A mapping grows at its end by as many pages (brk).
    Grow {
        /// The pages that are added: they begin where a mapping ends.
        pages: Pages,
    },
    /// Pages are unmapped.
    Unmap(Pages),
    /// The program tells something about pages.
    Advise(Pages, Advice),
    /// Pages are made read-only, or writable again.
    Protect(Pages, bool),
    /// The running process forks: page `p` is page `p + offset` in the child.
    Fork {
        /// The child.
        child: Process,
        /// What is added to a page's number; a multiple of a region.
        offset: u32,
    },
    /// A process ends: its pages are unmapped.
    Exit(Process),
    /// How the following accesses of the running process relate to time.
    Pace(Pace),
    /// Time passes without accesses, in microseconds.
    Wait(u64),
    /// A phase of the program begins; figures are kept for each.
    Phase(String),
    /// A request begins; it ends at the next `RequestEnd`. Its latency is kept.
    RequestBegin,
    /// The request ends.
    RequestEnd,
}

impl Event {
    /// The pages that it names, if it names some.
    pub fn pages(&self) -> Option<Pages> {
        match *self {
            Self::Map { pages, .. }
            | Self::Grow { pages }
            | Self::Unmap(pages)
            | Self::Advise(pages, _)
            | Self::Protect(pages, _) => Some(pages),
            _ => None,
        }
    }

    /// The process that it names, if it names one.
    pub fn process(&self) -> Option<Process> {
        match *self {
            Self::Spawn(process) | Self::Run(process) | Self::Exit(process) => Some(process),
            Self::Fork { child, .. } => Some(child),
            _ => None,
        }
    }
}
