//! [`Region`]: memory with the superpages that were requested, unmapped on drop.

use std::path::Path;

use sys::SysError;
use sys::mem::{self, Advice, Mapping};
use sys::numa::{self, Binding};
use sys::pagemap::{Categories, Pagemap};
use units::{ByteSize, NodeId, PageSize};

use crate::kernel;
use crate::{Error, Reason};

/// What to give when the pool has too few superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing.
    Error,
    /// Memory aligned as superpages are, advised to become some (transparent superpages).
    Thp,
    /// Base pages.
    Base,
}

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Superpages of the pool of this size, all of them.
    Superpages(PageSize),
    /// Advised memory, for this reason; [`Region::coverage`] says what came of it.
    Advised(Reason),
    /// Base pages, for this reason.
    Base(Reason),
}

/// What to ask for; [`Region::new`] is the short way.
///
/// ```
/// use superpage_api::{Fallback, PageSize, Request};
///
/// let region = Request::new(3 << 20).page_size(PageSize::new(2 << 20)?).or(Fallback::Base).allocate()?;
/// assert_eq!(region.len(), 3 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Request {
    len: usize,
    page: Option<PageSize>,
    fallback: Fallback,
    node: Option<(NodeId, Binding)>,
}

impl Request {
    /// `len` bytes on superpages of the kernel's default size, or an error.
    pub fn new(len: usize) -> Self {
        Self { len, page: None, fallback: Fallback::Error, node: None }
    }

    /// Superpages of this size. Without it: of the size that `MAP_HUGETLB` means.
    pub fn page_size(self, page: PageSize) -> Self {
        Self { page: Some(page), ..self }
    }

    /// What to give where there are too few superpages. Without it: [`Fallback::Error`].
    pub fn or(self, fallback: Fallback) -> Self {
        Self { fallback, ..self }
    }

    /// On this NUMA node.
    pub fn on_node(self, node: NodeId, binding: Binding) -> Self {
        Self { node: Some((node, binding)), ..self }
    }

    /// The memory: zeroed, and if it is of the pool, with all its superpages faulted in.
    ///
    /// # Errors
    /// [`Error::reason`] says why there are too few superpages, where no fallback was allowed. With a fallback:
    /// [`Reason::NoMemory`] if not even base pages can be mapped, [`Reason::Node`] if there is no such node.
    pub fn allocate(self) -> Result<Region, Error> {
        let page = self.page.unwrap_or_else(usual_size);
        let (reason, source) = match self.superpages(page) {
            Ok(mapping) => return Ok(self.region(mapping, Backing::Superpages(page))),
            Err(refusal) => refusal,
        };
        let error = |reason, source| Error { len: self.len, reason, source };
        let mut mapping = match self.fallback {
            Fallback::Error => return Err(error(reason, source)),
            Fallback::Thp => Mapping::aligned(self.len.max(1), page),
            Fallback::Base => Mapping::anonymous(self.len.max(1), mem::Backing::Pages),
        }
        .map_err(|source| error(Reason::NoMemory, source))?;
        self.bind(&mut mapping).map_err(|source| error(Reason::Node, source))?;
        // A kernel without THP refuses the advice: then these are base pages.
        let advised = self.fallback == Fallback::Thp && mapping.advise(Advice::HugePage).is_ok();
        let backing = if advised { Backing::Advised(reason) } else { Backing::Base(reason) };
        Ok(self.region(mapping, backing))
    }

    fn superpages(&self, page: PageSize) -> Result<Mapping, (Reason, SysError)> {
        let mut mapping = Mapping::anonymous(self.len.max(1), mem::Backing::Hugetlb(page))
            .map_err(|error| (Reason::from_mapping(&error, self.len, page), error))?;
        self.bind(&mut mapping).map_err(|error| (Reason::Node, error))?;
        mapping.advise(Advice::DontFork).map_err(|error| (Reason::Other, error))?;
        mapping
            .advise(Advice::PopulateWrite)
            .map_err(|error| (Reason::from_populating(&error, self.node.is_some()), error))?;
        Ok(mapping)
    }

    fn bind(&self, mapping: &mut Mapping) -> Result<(), SysError> {
        match self.node {
            Some((node, binding)) => numa::bind(mapping, node, binding),
            None => Ok(()),
        }
    }

    fn region(self, mapping: Mapping, backing: Backing) -> Region {
        Region { mapping, len: self.len, backing }
    }
}

/// The pool's default size; where the kernel has no pools, the alignment that serves THP best.
fn usual_size() -> PageSize {
    let root = Path::new("/");
    let usual = PageSize::new(2 << 20).expect("a power of two");
    kernel::default_size(root).or_else(|| kernel::transparent_size(root)).unwrap_or(usual)
}

/// Zeroed private memory of this process alone, unmapped on drop.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    len: usize,
    backing: Backing,
}

impl Region {
    /// `len` bytes on superpages of the default size, or what `fallback` says.
    ///
    /// # Errors
    /// Those of [`Request::allocate`].
    pub fn new(len: usize, fallback: Fallback) -> Result<Self, Error> {
        Request::new(len).or(fallback).allocate()
    }

    /// Bytes that were requested, not rounded up to pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether 0 bytes were requested.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[..self.len]
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.mapping.bytes_mut()[..self.len]
    }

    /// What it is made of, and why if not of what was requested.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// How much of it lies on superpages now, of the pool or transparent, read from the page tables; at most
    /// [`Region::len`].
    ///
    /// # Errors
    /// `ENOTTY`: Linux before 6.7 cannot say. `ENOENT`: /proc is not mounted.
    pub fn coverage(&self) -> Result<ByteSize, SysError> {
        let start = self.mapping.address();
        let end = start + self.len as u64;
        let mut regions = Vec::new();
        let pagemap = Pagemap::open(sys::param::own_pid())?;
        let page_end = sys::param::page_size().ceil(end);
        pagemap.scan(start, page_end, Categories::HUGE, &mut regions)?;
        let huge = regions.iter().filter(|region| region.categories.contains(Categories::HUGE));
        let bytes = |from: u64, to: u64| to.min(end).saturating_sub(from.max(start));
        Ok(ByteSize(huge.map(|region| bytes(region.start, region.end)).sum()))
    }

    /// The node that holds the byte at `offset`; `None` where no page is there yet.
    ///
    /// # Errors
    /// Those of `move_pages(2)`.
    ///
    /// # Panics
    /// If the byte lies outside the region's pages.
    pub fn node_of(&self, offset: usize) -> Result<Option<NodeId>, SysError> {
        numa::node_of(&self.mapping, offset)
    }
}
