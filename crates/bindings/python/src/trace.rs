//! `superpage.trace`: reads a recorded stream as batches of columns.

use std::path::PathBuf;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trace::{Block, Reader, SLOTS, Source};

use crate::call::failed;

/// A trace being read.
#[pyclass(frozen)]
pub struct Trace {
    state: Mutex<State>,
}

struct State {
    reader: Reader,
    block: Block,
    /// Bytes of a base page.
    page: u64,
    /// Address of the first page of each region.
    addresses: Vec<u64>,
}

/// Columns of numbers in native byte order, and events with the index of the record that follows each.
#[derive(Default)]
struct Columns {
    /// u32: region and slot of the page.
    pages: Vec<u8>,
    /// u8: whether it is a write.
    writes: Vec<u8>,
    /// u32: number of accesses that the record stands for.
    counts: Vec<u8>,
    /// u64: address of the page.
    addresses: Vec<u8>,
    events: Vec<(usize, String)>,
}

type Batch<'py> = (
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Vec<(usize, String)>,
);

/// Stands for the address of a page whose address is unknown.
const UNKNOWN_ADDRESS: u64 = u64::MAX;

#[pymethods]
impl Trace {
    #[new]
    fn new(path: PathBuf) -> PyResult<Self> {
        let mut reader = operations::traces::open(&path).map_err(failed)?;
        let page = u64::from(reader.info().header.base_page);
        let mut addresses = vec![None; reader.info().totals.regions as usize];
        for run in reader.regions().map_err(failed)? {
            for (at, region) in (run.first.0..).take(run.count as usize).enumerate() {
                let address =
                    run.address.wrapping_add(at as u64).wrapping_mul(page * u64::from(SLOTS));
                match addresses.get_mut(region as usize) {
                    Some(place @ None) => *place = Some(address),
                    // The region number was used for several addresses, and accesses do not say which one.
                    Some(Some(place)) if *place != address => *place = UNKNOWN_ADDRESS,
                    _ => {}
                }
            }
        }
        let addresses = addresses.into_iter().map(|it| it.unwrap_or(UNKNOWN_ADDRESS)).collect();
        Ok(Self { state: Mutex::new(State { reader, block: Block::default(), page, addresses }) })
    }

    /// Returns the trace's header and footer as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| cli::trace_info(&mut self.lock().reader)).map_err(failed)
    }

    /// Makes the next batch start at this chunk.
    fn seek(&self, py: Python<'_>, chunk: usize) {
        py.detach(|| self.lock().reader.seek(chunk));
    }

    /// Returns the next batch of about `records` records; `None` at the end.
    fn next<'py>(&self, py: Python<'py>, records: usize) -> PyResult<Option<Batch<'py>>> {
        let columns = py.detach(|| self.lock().read(records)).map_err(failed)?;
        let bytes = |column: &[u8]| PyBytes::new(py, column);
        Ok(columns.map(|Columns { pages, writes, counts, addresses, events }| {
            (bytes(&pages), bytes(&writes), bytes(&counts), bytes(&addresses), events)
        }))
    }
}

impl Trace {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn read(&mut self, records: usize) -> Result<Option<Columns>, trace::TraceError> {
        let mut columns = Columns::default();
        let mut read = 0;
        while read < records {
            if !self.reader.next(&mut self.block)? {
                let is_end = read == 0 && columns.events.is_empty();
                return Ok((!is_end).then_some(columns));
            }
            self.add(read, &mut columns);
            read += self.block.accesses.len();
        }
        Ok(Some(columns))
    }

    fn add(&self, before: usize, columns: &mut Columns) {
        let Block { accesses, counts, events } = &self.block;
        for (at, access) in accesses.iter().enumerate() {
            let page = access.page();
            let region = self.addresses.get(page.region().index()).copied();
            let known = region.filter(|region| *region != UNKNOWN_ADDRESS);
            let address = known.map_or(UNKNOWN_ADDRESS, |region| {
                region.wrapping_add(u64::from(page.slot()) * self.page)
            });
            columns.pages.extend(page.0.to_ne_bytes());
            columns.writes.push(u8::from(access.writes()));
            columns.counts.extend(counts.get(at).copied().unwrap_or(1).to_ne_bytes());
            columns.addresses.extend(address.to_ne_bytes());
        }
        let events =
            events.iter().map(|(at, event)| (before + *at as usize, cli::trace_event(event)));
        columns.events.extend(events);
    }
}
