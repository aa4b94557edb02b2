//! What every parser gives its accesses to: addresses become pages of densely numbered regions.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use super::Progress;
use crate::{Access, BLOCK, Block, Page, Place, Region, SLOTS, TraceError, Writer};

/// The longest access that is believed: the largest are saves of all registers, some 11 KiB with AMX
/// (Intel SDM vol. 1, 13.4.2 and 18.3).
pub const MAX_ACCESS: u64 = 64 << 10;
/// Regions that can be numbered.
const REGIONS: usize = 1 << 22;

type Watch<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

/// A region that was touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    /// Its number in the address space.
    pub address: u64,
    /// The lowest page that was touched.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

/// Collects accesses.
pub struct Collector<'a> {
    writer: Writer,
    block: Block,
    page_bits: u32,
    path: PathBuf,
    /// By address: a region's number. Only looked up, so its order matters to nobody.
    numbers: HashMap<u64, u32>,
    /// By number.
    touched: Vec<Touched>,
    /// The region of the last access.
    last: (u64, u32),
    accesses: u64,
    watch: Watch<'a>,
}

impl<'a> Collector<'a> {
    /// Collects into `writer`; `path` is the input's name.
    pub fn new(writer: Writer, base_page: u32, path: PathBuf, watch: Watch<'a>) -> Self {
        Self {
            writer,
            block: Block::default(),
            page_bits: base_page.trailing_zeros(),
            path,
            numbers: HashMap::new(),
            touched: Vec::new(),
            last: (u64::MAX, 0),
            accesses: 0,
            watch,
        }
    }

    /// An access to `size` bytes at `address`: to every page that they lie in.
    pub fn access(
        &mut self,
        address: u64,
        size: u64,
        writes: bool,
        place: Place,
    ) -> Result<(), TraceError> {
        let first = address >> self.page_bits;
        let last = address.saturating_add(size.clamp(1, MAX_ACCESS) - 1) >> self.page_bits;
        for page in first..=last {
            self.page(page, writes, place)?;
        }
        Ok(())
    }

    fn page(&mut self, page: u64, writes: bool, place: Place) -> Result<(), TraceError> {
        let address = page / u64::from(SLOTS);
        let slot = (page % u64::from(SLOTS)) as u32;
        if address != self.last.0 {
            self.last = (address, self.number(address, slot, place)?);
        }
        let region = self.last.1;
        let touched = &mut self.touched[region as usize];
        touched.first = touched.first.min(slot as u16);
        touched.last = touched.last.max(slot as u16);
        let page = Page::new(Region(region), slot);
        self.block.accesses.push(if writes { Access::write(page) } else { Access::read(page) });
        self.accesses += 1;
        if self.block.accesses.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    fn number(&mut self, address: u64, slot: u32, place: Place) -> Result<u32, TraceError> {
        if let Some(&number) = self.numbers.get(&address) {
            return Ok(number);
        }
        let number = self.touched.len();
        if number == REGIONS {
            return Err(TraceError::Import {
                path: self.path.clone(),
                place,
                what: format!("more than {REGIONS} regions of {SLOTS} pages are touched"),
                remedy: "these are hardly addresses of a program: is --from right?",
            });
        }
        self.numbers.insert(address, number as u32);
        self.touched.push(Touched { address, first: slot as u16, last: slot as u16 });
        Ok(number as u32)
    }

    fn flush(&mut self) -> Result<(), TraceError> {
        self.writer.push(&self.block)?;
        self.block.clear();
        let progress = Progress { accesses: self.accesses, writing: false };
        match (self.watch)(progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(TraceError::Stopped { path: self.path.clone() }),
        }
    }

    /// Ends the first pass: the regions by number.
    pub fn finish(mut self) -> Result<(Vec<Touched>, Watch<'a>), TraceError> {
        self.flush()?;
        if self.touched.is_empty() {
            let what = "holds no access; is --from right?".to_string();
            return Err(TraceError::TooLarge { path: self.path, what });
        }
        self.writer.finish()?;
        Ok((self.touched, self.watch))
    }
}
