//! The events of a recording: which there are, how their samples are laid out, and which
//! processor counted them. Private to the reader.

use std::collections::HashMap;

use super::bytes::{Order, text};
use crate::events::{self, Table};

/// The events, and the byte order in which they are described.
pub(super) struct Events {
    pub order: Order,
    /// In the file's order.
    pub list: Vec<Event>,
    /// Which event an id belongs to.
    pub of_id: HashMap<u64, usize>,
    cpu: Option<String>,
}

/// One recorded event.
#[derive(Clone, Debug, Default)]
pub(super) struct Event {
    /// As it was named on perf's command line, if the file says.
    pub name: String,
    /// `sample_type`: which fields its samples have.
    pub fields: u64,
    /// Whether other records end with the same fields (`sample_id_all`).
    pub trailer: bool,
    /// The period all samples have, unless they say their own.
    pub period: Option<u64>,
}

/// Numbers of features (tools/perf/util/header.h).
pub(super) const CPUID: u64 = 9;
pub(super) const EVENT_DESC: u64 = 12;

/// More events than anybody records.
pub(super) const MAX_EVENTS: usize = 4096;

impl Events {
    pub fn new(order: Order) -> Self {
        Self { order, list: Vec::new(), of_id: HashMap::new(), cpu: None }
    }

    /// Adds an event by its `struct perf_event_attr` and the words that are its ids.
    pub fn add(&mut self, attribute: &[u8], ids: &[u8]) {
        let index = self.list.len();
        if index == MAX_EVENTS {
            return;
        }
        let word = |at| self.order.u64_at(attribute, at).unwrap_or(0);
        // linux/perf_event.h: `freq` is bit 10 of the flags, `sample_id_all` bit 18.
        let flags = self.order.bit_fields_at(attribute, 40).unwrap_or(0);
        let by_frequency = flags >> 10 & 1 == 1;
        self.list.push(Event {
            name: format!("event {index}"),
            fields: word(24),
            trailer: flags >> 18 & 1 == 1,
            period: (!by_frequency).then(|| word(16)).filter(|period| *period > 0),
        });
        let ids = ids.chunks_exact(8).filter_map(|id| self.order.u64_at(id, 0));
        self.of_id.extend(ids.map(|id| (id, index)));
    }

    /// Takes what a feature's section says; most say nothing here.
    pub fn feature(&mut self, number: u64, section: &[u8]) {
        match number {
            CPUID => self.cpu = section.get(4..).map(text),
            EVENT_DESC => {
                self.read_names(section);
            }
            _ => {}
        }
    }

    /// The feature that names the events. What does not fit is left unnamed.
    fn read_names(&mut self, section: &[u8]) -> Option<()> {
        let word = |at| Some(self.order.u32_at(section, at)? as usize);
        let (count, size) = (word(0)?, word(4)?);
        let mut at = 8usize;
        for event in self.list.iter_mut().take(count) {
            let after = at.checked_add(size)?;
            let (ids, length) = (word(after)?, word(after + 4)?);
            event.name = text(section.get(after + 8..)?.get(..length)?);
            at = after + 8 + length + ids * 8;
        }
        Some(())
    }

    /// The events of the processor that was recorded: `GenuineIntel,6,85,7`, or a MIDR.
    pub fn table(&self) -> Option<&'static Table> {
        let cpu = self.cpu.as_deref()?;
        let mut parts = cpu.split(',');
        let vendor = parts.next()?;
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        events::table(vendor, number(), number())
    }
}
