use crate::memory::{Frame, Memory, Residents};
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
