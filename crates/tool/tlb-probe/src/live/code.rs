//! `LiveCode`: instruction fetch on this machine as a [`Probe`]. A chase is a cycle of jumps without loads, so many
//! pages differ from few pages only in the translation of instruction addresses.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use host::Root;
use sys::SysError;
use sys::code::Code;
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use units::PageSize;
use workload::jumps::Jumps;
use workload::rng::mix;

use super::arena::no_superpages;
use super::clock::Meter;
use super::{WINDOWS, check_stop, means, of_page, pmd_size};
use crate::probe::{Clock, Offer, Place, Probe, ProbeError};

/// Maximum number of pages of one chase: twice the largest known level (512 entries; Zen's second level for
/// instructions), and at most twice the lines of the L1 instruction cache.
const PAGES: u64 = 1 << 10;
/// Number of superpages of one chase, limited by the range of a jump.
const SUPERPAGES: u64 = 1 << 9;
/// Number of physical superpages, which are mapped repeatedly to make up a chase.
const FILE_SUPERPAGES: u64 = 64;
/// Minimum number of jumps in a time window.
const JUMPS: u64 = 1 << 13;

/// Instruction fetch on this machine.
#[derive(Debug)]
pub struct LiveCode {
    areas: Vec<Area>,
    meter: Meter,
    line: u64,
    notes: Vec<String>,
    stop: Arc<AtomicI32>,
}

/// Pages of one size.
#[derive(Debug)]
struct Area {
    offer: Offer,
    code: Code,
}

impl LiveCode {
    /// Allocates executable pages of the sizes in `pages` that support code: base pages and superpages. Empty `pages`
    /// selects both.
    ///
    /// # Errors
    /// This process may not execute code, or not from memory that it wrote.
    pub fn new(root: &Root, pages: &[PageSize]) -> Result<Self, ProbeError> {
        let line = means::line(root);
        let base = sys::param::page_size();
        let wanted = |page: &PageSize| pages.is_empty() || pages.contains(page);
        let (mut areas, mut notes) = (Vec::new(), Vec::new());
        if wanted(&base) {
            areas.push(base_pages(base, line)?);
        }
        match pmd_size(root).filter(wanted).map(|page| superpages(page, line)) {
            Some(Ok(area)) => areas.push(area),
            Some(Err(why)) => notes.push(format!("code in {why}")),
            None => {}
        }
        Ok(Self { areas, meter: Meter::new(), line, notes, stop: Arc::default() })
    }

    /// Like [`super::Live::stop_when`].
    pub fn stop_when(&mut self, asked: Arc<AtomicI32>) {
        self.stop = asked;
    }

    /// Page sizes that are not offered, with reasons.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl Probe for LiveCode {
    fn offers(&self) -> Vec<Offer> {
        self.areas.iter().map(|area| area.offer.clone()).collect()
    }

    fn line(&self) -> u64 {
        self.line
    }

    fn chase(&mut self, page: PageSize, places: &[Place], seed: u64) -> Result<f64, ProbeError> {
        check_stop(&self.stop)?;
        let line = self.line;
        let area = of_page(&mut self.areas, |area| &area.offer, page)?;
        // Writing first makes all pages non-executable, which flushes their TLB entries.
        let mut jumps = link(&mut area.code, page, line, places, seed)?;
        let lap = places.len() as u64;
        let laps = JUMPS.div_ceil(lap);
        let failed = |error: workload::jumps::JumpsError| not_got(page, &error);
        jumps.ticks(2).map_err(failed)?;
        let mut outcome = Ok(());
        let cycles = self.meter.cycles(|| {
            let mut least = u64::MAX;
            for _ in 0..WINDOWS {
                match jumps.ticks(laps) {
                    Ok(ticks) => least = least.min(ticks),
                    Err(error) => outcome = Err(failed(error)),
                }
            }
            least as f64 / (laps * lap) as f64
        });
        outcome.map(|()| cycles)
    }

    fn renew(&mut self, page: PageSize) -> Result<(), ProbeError> {
        let base = sys::param::page_size();
        let area = of_page(&mut self.areas, |area| &area.offer, page)?;
        if page == base {
            let memory = area.code.writable()?;
            memory.advise(Advice::DontNeed)?;
            touch(memory, base);
        }
        Ok(())
    }

    fn clock(&self) -> Clock {
        self.meter.clock()
    }
}

fn not_got(page: PageSize, why: &impl ToString) -> ProbeError {
    ProbeError::NotGot { page, why: why.to_string() }
}

fn link<'a>(
    code: &'a mut Code,
    page: PageSize,
    line: u64,
    places: &[Place],
    seed: u64,
) -> Result<Jumps<'a>, ProbeError> {
    let places: Vec<usize> = places.iter().map(|place| place.offset(page, line)).collect();
    Jumps::link(code, &places, seed).map_err(|error| not_got(page, &error))
}

/// Touches every page of a mapping in random order, so that adjacent pages have distant frames and CPUs cannot coalesce
/// them into one entry.
fn touch(memory: &mut Mapping, page: PageSize) {
    let bytes = page.bytes() as usize;
    let mut order: Vec<usize> = (0..memory.len() / bytes).collect();
    order.sort_unstable_by_key(|index| mix(*index as u64));
    let memory = memory.bytes_mut();
    order.into_iter().for_each(|index| memory[index * bytes] = 1);
}

fn area(page: PageSize, memory: Mapping, line: u64, means: &str) -> Result<Area, ProbeError> {
    let pages = memory.len() as u64 / page.bytes();
    let offer = Offer { page, means: means.to_string(), pages, span: pages };
    let mut code = Code::new(memory);
    // Try to make one jump.
    link(&mut code, page, line, &[Place { page: 0, line: 0 }], 1)?;
    Ok(Area { offer, code })
}

fn base_pages(page: PageSize, line: u64) -> Result<Area, ProbeError> {
    let alignment = PageSize::new(PAGES * page.bytes()).expect("a power of two");
    let mut memory = Mapping::aligned((PAGES * page.bytes()) as usize, alignment)?;
    no_superpages(&mut memory);
    touch(&mut memory, page);
    area(page, memory, line, "anonymous memory, MADV_NOHUGEPAGE")
}

/// Allocates superpages of shared memory and reads each back. An error says why there are none.
fn superpages(page: PageSize, line: u64) -> Result<Area, String> {
    let bytes = page.bytes() as usize;
    let error_text = |error: &dyn ToString| format!("pages of {page}: {}", error.to_string());
    let file = means::collapsed(page, FILE_SUPERPAGES).map_err(|why| error_text(&why))?;
    let get = || -> Result<Mapping, SysError> {
        let mut memory = Mapping::sparse(SUPERPAGES as usize * bytes, page)?;
        for index in 0..SUPERPAGES as usize {
            let (start, from) = (index * bytes, index as u64 % FILE_SUPERPAGES * page.bytes());
            memory.put_file(start, bytes, file.as_fd(), from)?;
            memory.bytes_mut()[start] = 1;
        }
        Ok(memory)
    };
    let memory = get().map_err(|error| error_text(&error))?;
    let (address, length) = (memory.address(), memory.len() as u64);
    let words =
        format!("shared memory, MADV_COLLAPSE; {FILE_SUPERPAGES} of them shown again and again");
    let area = area(page, memory, line, &words).map_err(|error| error_text(&error))?;
    // Without PAGEMAP_SCAN (Linux 6.7) the superpages cannot be checked; the result says so.
    let scanned = Pagemap::open(sys::param::own_pid())
        .ok()
        .and_then(|pagemap| host::coverage::scan(&pagemap, address, address + length).ok());
    match scanned {
        Some(found) if found.huge.bytes() != length => Err(error_text(&"not all are superpages")),
        Some(_) => Ok(area),
        None => {
            let means = area.offer.means + " (not read back: this kernel has no PAGEMAP_SCAN)";
            Ok(Area { offer: Offer { means, ..area.offer }, ..area })
        }
    }
}
