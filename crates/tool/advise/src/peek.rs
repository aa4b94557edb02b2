//! Reads a process's memory without changing it.
//!
//! Only pages that are in the process's page table are read: a read of any other would map it, and so add to the
//! process's memory.

use std::collections::HashMap;

use sys::SysError;
use sys::pagemap::{Categories, Pagemap};
use sys::peek::Memory;
use units::{PageSize, Pid};

/// Memory, read a page at a time.
pub trait Pages {
    /// Fills `page` with the page at `address`, a multiple of its length. Returns whether it is there.
    fn page(&mut self, address: u64, page: &mut [u8]) -> bool;
}

/// The memory of a running process.
#[derive(Debug)]
pub struct Running {
    memory: Memory,
    pagemap: Pagemap,
}

impl Running {
    /// Opens the memory of a process.
    ///
    /// # Errors
    /// The process ended, or this user may not trace it.
    pub fn open(pid: Pid) -> Result<Self, SysError> {
        Ok(Self { memory: Memory::open(pid)?, pagemap: Pagemap::open(pid)? })
    }
}

impl Pages for Running {
    fn page(&mut self, address: u64, page: &mut [u8]) -> bool {
        let mut found = Vec::new();
        let end = address.saturating_add(page.len() as u64);
        let scanned = self.pagemap.scan(address, end, Categories::PRESENT, &mut found);
        scanned.is_ok()
            && !found.is_empty()
            && self.memory.read(address, page).is_ok_and(|read| read == page.len())
    }
}

/// Pages read so far.
pub struct Peek<P> {
    pages: P,
    size: u64,
    cache: HashMap<u64, Option<Box<[u8]>>>,
}

impl Peek<Running> {
    /// The memory of a running process, in pages of `size`.
    ///
    /// # Errors
    /// The process ended, or this user may not trace it.
    pub fn open(pid: Pid, size: PageSize) -> Result<Self, SysError> {
        Ok(Self::new(Running::open(pid)?, size.bytes()))
    }
}

impl<P: Pages> Peek<P> {
    /// Memory in pages of `size` bytes.
    pub fn new(pages: P, size: u64) -> Self {
        Self { pages, size, cache: HashMap::new() }
    }

    /// Reads up to the first page that is not there; returns the number of bytes read.
    pub fn read(&mut self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(at) = address.checked_add(done as u64) else { break };
            let start = at - at % self.size;
            let (pages, size) = (&mut self.pages, self.size as usize);
            let page = self.cache.entry(start).or_insert_with(|| {
                let mut page = vec![0; size].into_boxed_slice();
                pages.page(start, &mut page).then_some(page)
            });
            let Some(page) = page else { break };
            let from = (at - start) as usize;
            let count = (page.len() - from).min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&page[from..from + count]);
            done += count;
        }
        done
    }

    /// Forgets what was read, because the process has changed it meanwhile.
    pub fn forget(&mut self) {
        self.cache.clear();
    }
}
