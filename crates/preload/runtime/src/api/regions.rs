//! Which memory was handed out: the only memory that is ever taken back.
//!
//! libhugetlbfs looked its regions up in /proc/self/maps, where neighbours that the kernel merged
//! look like one and anybody's mapping looks like its own. Here a region is known by the address
//! the caller got, in a table that grows by chunks and never shrinks.
//!
//! Life of a slot: free (0) -> claimed by one thread (1) -> holds a region (its address) -> claimed
//! by the one thread that takes it out -> free.
//!
//! # Safety
//! No locks, so a child forked at any moment can go on. Whoever claims a slot by compare-and-swap
//! alone touches its other fields, until it stores a third value. A region is taken out before it
//! is unmapped, so two calls cannot unmap the same one, nor one that came to lie there later.
//! See docs/decisions/library.md#2.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::kernel;
use crate::raw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address the caller got: the start, or with a cache colour somewhat after it.
    pub handle: usize,
    pub start: usize,
    /// What is mapped from `start`.
    pub mapped: usize,
    /// What the caller asked for.
    pub asked: usize,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;
const SLOTS: usize = 1000;

/// (c) by `handle`.
#[repr(C)]
struct Slot {
    handle: AtomicUsize,
    start: AtomicUsize,
    mapped: AtomicUsize,
    asked: AtomicUsize,
}

#[repr(C)]
struct Chunk {
    slots: [Slot; SLOTS],
    next: AtomicPtr<Chunk>,
}

static FIRST: AtomicPtr<Chunk> = AtomicPtr::new(std::ptr::null_mut());

/// Remembers a region; whether there was memory to do so.
pub fn add(region: Region) -> bool {
    let mut link = &FIRST;
    loop {
        let chunk = match follow(link) {
            Some(chunk) => chunk,
            None => match grow(link) {
                Some(chunk) => chunk,
                None => return false,
            },
        };
        for slot in chunk.slots_from(region.handle) {
            if slot.claim(FREE) {
                slot.start.store(region.start, Ordering::Relaxed);
                slot.mapped.store(region.mapped, Ordering::Relaxed);
                slot.asked.store(region.asked, Ordering::Relaxed);
                slot.handle.store(region.handle, Ordering::Release);
                return true;
            }
        }
        link = &chunk.next;
    }
}

/// Forgets the region with this address if `accepts` it, and returns it: the caller, and nobody
/// else, is to unmap it.
pub fn take(handle: usize, accepts: impl Fn(Region) -> bool) -> Option<Region> {
    if handle <= CLAIMED {
        return None;
    }
    let mut link = &FIRST;
    while let Some(chunk) = follow(link) {
        for slot in chunk.slots_from(handle) {
            if !slot.claim(handle) {
                continue;
            }
            let region = Region {
                handle,
                start: slot.start.load(Ordering::Relaxed),
                mapped: slot.mapped.load(Ordering::Relaxed),
                asked: slot.asked.load(Ordering::Relaxed),
            };
            let accepted = accepts(region);
            slot.handle.store(if accepted { FREE } else { handle }, Ordering::Release);
            return accepted.then_some(region);
        }
        link = &chunk.next;
    }
    None
}

fn follow(link: &AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    // SAFETY: chunks are published whole, and never unmapped.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// Adds a chunk at the end, or follows the one that another thread has added just now.
fn grow(link: &AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    let fresh = kernel::forever::<Chunk>()?;
    let null = std::ptr::null_mut();
    if link.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: nobody has seen it.
        let _ = unsafe { raw::munmap(fresh as usize, size_of::<Chunk>()) };
    }
    follow(link)
}

impl Chunk {
    /// All slots, from one that depends on the address, so that looking one up is short.
    fn slots_from(&self, handle: usize) -> impl Iterator<Item = &Slot> {
        // Regions begin at superpages: the bits above those tell them apart.
        let first = ((handle >> 21) ^ (handle >> 12)) % SLOTS;
        self.slots[first..].iter().chain(&self.slots[..first])
    }
}

impl Slot {
    fn claim(&self, from: usize) -> bool {
        self.handle.load(Ordering::Relaxed) == from
            && self
                .handle
                .compare_exchange(from, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }
}
