//! [`Region`]: memory with the superpages it was asked for, given back on drop.

use host::{MemInfo, Root, Thp};
use sys::SysError;
use sys::mem::{self, Advice, Mapping};
use sys::numa::{self, Binding};
use sys::pagemap::{Categories, Pagemap};
use units::{ByteSize, NodeId, PageSize};

use crate::why::{self, Refused, Why};

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
    Advised(Why),
    /// Base pages, for this reason.
    Base(Why),
}

/// What to ask for; [`Region::get`] is the short way.
#[derive(Clone, Copy, Debug)]
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

    /// Superpages of this size.
    pub fn page_size(self, page: PageSize) -> Self {
        Self { page: Some(page), ..self }
    }

    /// What to give without superpages.
    pub fn or(self, fallback: Fallback) -> Self {
        Self { fallback, ..self }
    }

    /// On this node.
    pub fn on_node(self, node: NodeId, binding: Binding) -> Self {
        Self { node: Some((node, binding)), ..self }
    }

    /// Gets the memory, zeroed, its superpages taken.
    pub fn get(self) -> Result<Region, Refused> {
        let page = self.page.or_else(default_size).unwrap_or_else(usual_size);
        let (why, source) = match self.superpages(page) {
            Ok(mapping) => return Ok(self.region(mapping, Backing::Superpages(page))),
            Err(refusal) => refusal,
        };
        let fallen_back = match self.fallback {
            Fallback::Error => return Err(Refused { len: self.len, why, source }),
            Fallback::Thp => Mapping::aligned(self.len.max(1), page),
            Fallback::Base => Mapping::anonymous(self.len.max(1), mem::Backing::Pages),
        };
        let no_memory = |source| Refused { len: self.len, why: Why::NoMemory, source };
        let mut mapping = fallen_back.map_err(no_memory)?;
        self.bind(&mut mapping).map_err(|source| Refused {
            len: self.len,
            why: Why::Node,
            source,
        })?;
        // A kernel without THP refuses the advice: then these are base pages.
        let advised = self.fallback == Fallback::Thp && mapping.advise(Advice::HugePage).is_ok();
        let backing = if advised { Backing::Advised(why) } else { Backing::Base(why) };
        Ok(self.region(mapping, backing))
    }

    fn superpages(&self, page: PageSize) -> Result<Mapping, (Why, SysError)> {
        let mut mapping = Mapping::anonymous(self.len.max(1), mem::Backing::Hugetlb(page))
            .map_err(|error| (why::of_mapping(&error, self.len, page), error))?;
        self.bind(&mut mapping).map_err(|error| (Why::Node, error))?;
        mapping.advise(Advice::DontFork).map_err(|error| (Why::Other, error))?;
        mapping
            .advise(Advice::PopulateWrite)
            .map_err(|error| (why::of_populating(&error, self.node.is_some()), error))?;
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

/// The size that `MAP_HUGETLB` means.
fn default_size() -> Option<PageSize> {
    MemInfo::read(&Root::real()).ok()?.default_hugepage
}

/// Where the kernel has no pools, what alignment serves THP best.
fn usual_size() -> PageSize {
    let usual = PageSize::new(2 << 20).expect("a power of two");
    Thp::pmd_size_of(&Root::real()).unwrap_or(usual)
}

/// Zeroed private memory of this process alone.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    len: usize,
    backing: Backing,
}

impl Region {
    /// `len` bytes on superpages of the default size, or what `fallback` says.
    pub fn get(len: usize, fallback: Fallback) -> Result<Self, Refused> {
        Request::new(len).or(fallback).get()
    }

    /// Bytes that were asked for.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was asked for.
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

    /// What it is made of, and why if not of what was asked for.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Bytes that lie on superpages now, read from the page tables. `ENOTTY`: Linux before 6.7
    /// cannot say.
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
    pub fn node_of(&self, offset: usize) -> Result<Option<NodeId>, SysError> {
        numa::node_of(&self.mapping, offset)
    }
}
