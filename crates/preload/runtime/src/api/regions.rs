//! Table of the memory that was handed out: no other memory is ever unmapped.
//!
//! libhugetlbfs looked its regions up in /proc/self/maps, where adjacent mappings that the kernel merged look like one,
//! and foreign mappings look like its own. Here a table finds a region by the address that the caller got. The table
//! grows by chunks and never shrinks.
//!
//! Life of a slot: free (0) -> claimed by one thread (1) -> holds a region (its address) -> claimed by the one thread
//! that removes it -> free.
//!
//! # Safety
//! No locks, so a child forked at any moment can continue. Only the thread that claimed a slot by compare-and-swap
//! accesses its other fields, until it stores another value. A region is removed before it is unmapped, so two calls
//! cannot unmap the same region, nor a later one at the same address.
//! See docs/decisions/library.md#2.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::kernel;
use crate::raw;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The address the caller got: the start, or with a cache colour an address some cache lines
    /// after the start.
    pub handle: usize,
    pub start: usize,
    /// Mapped bytes from `start` on.
    pub mapped: usize,
    /// Length the caller asked for.
    pub asked: usize,
}

const FREE: usize = 0;
const CLAIMED: usize = 1;
const SLOTS: usize = 1000;

/// (c): a thread claims the slot through `handle`.
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

/// Adds a region; `false`: there is no memory for it.
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

/// Removes the region with this address if `accepts` returns `true` for it, and returns it: only this caller may unmap
/// it.
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
    // SAFETY: chunks are initialized before they are published, and never unmapped.
    unsafe { link.load(Ordering::Acquire).as_ref() }
}

/// Adds a chunk at the end, or returns the one that another thread has just added.
fn grow(link: &AtomicPtr<Chunk>) -> Option<&'static Chunk> {
    let fresh = kernel::forever::<Chunk>()?;
    let null = std::ptr::null_mut();
    if link.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: no other thread has seen it.
        let _ = unsafe { raw::munmap(fresh as usize, size_of::<Chunk>()) };
    }
    follow(link)
}

impl Chunk {
    /// All slots, starting at a hash of the address, so that look-ups are short.
    fn slots_from(&self, handle: usize) -> impl Iterator<Item = &Slot> {
        // Regions begin at superpages, so the higher address bits distinguish them.
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
