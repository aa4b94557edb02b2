use crate::memory::{Frame, Memory, Mobility, Residents};
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Async,
    SyncLight,
    Sync,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Partial,
    Complete,
    Skipped,
    Deferred,
}
pub struct Request {
    pub order: u8,
    pub mobility: Mobility,
    pub mode: Mode,
    pub whole: bool,
}
pub struct Report {
    pub outcome: Outcome,
    pub migrated: u64,
    pub scanned_pages: u64,
}
#[derive(Debug)]
pub struct Compaction;
impl Compaction {
    pub fn new(_: &Memory, _: u8) -> Self {
        Self
    }
    pub fn compact(&mut self, _: &mut Memory, _: &mut impl Residents, _: Request) -> Report {
        Report { outcome: Outcome::Skipped, migrated: 0, scanned_pages: 0 }
    }
    pub fn score(&self, _: &Memory) -> u32 {
        0
    }
}
pub struct Reclaimed {
    pub scanned: u64,
    pub written: u64,
    pub evicted: u64,
}
pub fn lumpy(_: &mut Memory, _: &mut impl Residents, _: u8) -> Reclaimed {
    Reclaimed { scanned: 0, written: 0, evicted: 0 }
}
pub fn reclaim(_: &mut Memory, _: &mut impl Residents, _: u64) -> Reclaimed {
    Reclaimed { scanned: 0, written: 0, evicted: 0 }
}
pub fn zeroed_frames(_: &Memory) -> u64 {
    0
}
pub fn take_unzeroed(_: &mut Memory, _: u8) -> Option<Frame> {
    None
}
pub fn put_zeroed(_: &mut Memory, _: Frame, _: u8) {}
