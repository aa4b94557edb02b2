//! [`Region`]: memory with the superpages that were requested, unmapped on drop.

use std::path::Path;

use sys::SysError;
use sys::mem::{self, Advice, Mapping};
use sys::numa::{self, Binding};
use sys::pagemap::{Categories, Pagemap};
use units::{ByteSize, NodeId, PageSize};

use crate::kernel;
use crate::{Error, Reason};

/// What to allocate if the pool has too few superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing: the request fails.
    Error,
    /// Memory aligned to superpages and advised to become transparent superpages.
    Thp,
    /// Base pages.
    Base,
}

/// The pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Only pool superpages of this size.
    Superpages(PageSize),
    /// Memory advised to use THP, and why the pool did not provide superpages. [`Region::coverage`] reports the
    /// resulting superpages.
    Advised(Reason),
    /// Base pages, and the reason.
    Base(Reason),
}

/// A request for memory; [`Region::new`] is the short form.
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
    /// Makes a request for `len` bytes on superpages of the kernel's default size. If the pool has too few, the request
    /// fails.
    pub fn new(len: usize) -> Self {
        Self { len, page: None, fallback: Fallback::Error, node: None }
    }

    /// Sets the superpage size. Default: the size that `MAP_HUGETLB` means.
    pub fn page_size(self, page: PageSize) -> Self {
        Self { page: Some(page), ..self }
    }

    /// Sets the fallback. Default: [`Fallback::Error`].
    pub fn or(self, fallback: Fallback) -> Self {
        Self { fallback, ..self }
    }

    /// Places the memory on this NUMA node.
    pub fn on_node(self, node: NodeId, binding: Binding) -> Self {
        Self { node: Some((node, binding)), ..self }
    }

    /// Allocates the memory, zeroed. Pool superpages are all faulted in.
    ///
    /// # Errors
    /// Without a fallback, [`Error::reason`] says why there are too few superpages. With a fallback:
    /// [`Reason::NoMemory`] if not even base pages can be mapped, [`Reason::Node`] if the node does not exist.
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
        // A kernel without THP rejects the advice: the memory stays on base pages.
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

/// Returns the pool's default size. Without pools, returns the THP size, for the alignment.
fn usual_size() -> PageSize {
    let root = Path::new("/");
    let usual = PageSize::new(2 << 20).expect("a power of two");
    kernel::default_size(root).or_else(|| kernel::transparent_size(root)).unwrap_or(usual)
}

/// Zeroed private memory, unmapped on drop.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    len: usize,
    backing: Backing,
}

impl Region {
    /// Allocates `len` bytes on superpages of the default size, or as `fallback` says.
    ///
    /// # Errors
    /// Those of [`Request::allocate`].
    pub fn new(len: usize, fallback: Fallback) -> Result<Self, Error> {
        Request::new(len).or(fallback).allocate()
    }

    /// Returns the number of bytes requested, not rounded up to pages.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether 0 bytes were requested.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the requested bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.mapping.bytes()[..self.len]
    }

    /// Returns the requested bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.mapping.bytes_mut()[..self.len]
    }

    /// Returns the pages of the region, and the reason if they are not the requested ones.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns the number of bytes that are on superpages now, of the pool or transparent. Reads the page tables. At
    /// most [`Region::len`].
    ///
    /// # Errors
    /// `ENOTTY`: Linux before 6.7 cannot report it. `ENOENT`: /proc is not mounted.
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

    /// Returns the node that holds the byte at `offset`; `None` if its page is not populated.
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
