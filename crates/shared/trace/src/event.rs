//! Events between accesses: system calls, markers of the program, and pace.

use crate::{Page, Region};

/// A process of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process(pub u32);

/// `count` base pages from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pages {
    /// The first page.
    pub first: Page,
    /// Number of pages.
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
    /// The regions that contain any of the pages, ascending. There must be at least one page.
    pub fn regions(self) -> impl Iterator<Item = Region> {
        (self.first.region().0..=Page(self.end().0 - 1).region().0).map(Region)
    }
}

/// Backing of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// Private anonymous memory.
    Anonymous,
    /// The heap: anonymous memory that can grow at its end ([`Event::Grow`]).
    Heap,
    /// Shared memory, with the number of the memory object. All mappings of an object start at its
    /// first page.
    Shared(u32),
    /// A private, read-only file mapping.
    File {
        /// The file's number.
        file: u32,
        /// Whether its pages are in the page cache from the start.
        cached: bool,
    },
}

/// Advice of a program on its memory (madvise).
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

/// How much time the following accesses take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Time per access without address translation, in 1/1024 cycles.
    pub work: u32,
    /// Share of the page-walk time that delays the program, per mille: 1000 for dependent accesses (pointer chasing),
    /// less for overlapping accesses.
    pub exposed_permille: u16,
    /// Number of the program's accesses that one access of the stream stands for (1: not sampled). Steady phases of
    /// random accesses may be sampled; first touches must not.
    pub weight: u32,
    /// Number of threads that make these accesses concurrently, each on its own CPU. The elapsed time is divided by
    /// this number.
    pub threads: u16,
}

/// An event between two accesses of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A new process with an empty address space. The new process makes the following accesses.
    Spawn(Process),
    /// The process that runs the following events and accesses.
    Run(Process),
    /// A new mapping, whose page numbers were not in use.
    Map {
        /// The pages.
        pages: Pages,
        /// Virtual page number of the first page.
        address: u64,
        /// Backing.
        backing: Backing,
    },
    /// A mapping grows at its end (brk).
    Grow {
        /// The added pages, which start at the end of a mapping.
        pages: Pages,
    },
    /// Pages are unmapped.
    Unmap(Pages),
    /// The program advises the kernel about pages.
    Advise(Pages, Advice),
    /// Pages become read-only (`false`) or writable (`true`).
    Protect(Pages, bool),
    /// The running process forks: page `p` of the parent is page `p + offset` of the child.
    Fork {
        /// The child.
        child: Process,
        /// Difference of the page numbers: a whole number of regions.
        offset: u32,
    },
    /// A process exits, which unmaps its pages.
    Exit(Process),
    /// Sets the pace of the following accesses of the running process.
    Pace(Pace),
    /// Idle time in microseconds.
    Wait(u64),
    /// A phase of the program starts; results are reported per phase.
    Phase(String),
    /// A request starts. The simulator records its latency, up to the next `RequestEnd`.
    RequestBegin,
    /// The request ends.
    RequestEnd,
}

impl Event {
    /// The pages of the event, if it has any.
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

    /// The process named by the event, if any.
    pub fn process(&self) -> Option<Process> {
        match *self {
            Self::Spawn(process) | Self::Run(process) | Self::Exit(process) => Some(process),
            Self::Fork { child, .. } => Some(child),
            _ => None,
        }
    }
}
