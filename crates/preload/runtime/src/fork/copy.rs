//! Copies of private superpages for a forked child (decisions: docs/decisions/fork.md).
//!
//! A private hugetlb mapping is guaranteed only in the process that made it, which keeps its reservation. In a child,
//! or in the parent while a child lives, a copy-on-write fault needs another page of the pool. Without a free page the
//! kernel kills the child at its write, or takes the page from the child and kills it at its next access (measured, and
//! as Gorman describes it). Unless `--children same` accepts that, a forked child therefore gets ordinary memory with
//! the same contents before `fork` returns in either process: the child copies while the parent waits. That takes time
//! in proportion to the hugetlb memory in use. `vfork` and `posix_spawn` share memory until exec and cost nothing. THP
//! cost nothing either.
//!
//! The parent copies pages of 1 GiB into the child instead: on Linux 6.18 a forked child was seen to read zeroes from
//! them (32 of 760 forks), so the child cannot copy them itself.
//!
//! Other threads of the parent continue meanwhile, and their writes need further pages. The pool must have as many free
//! pages as those threads could write to, or the kernel would take the child's. Pages that the pool lacks are freed
//! before the fork, by demoting hugetlb memory to ordinary memory: once, and at most half of the memory.
//! Write-protecting all of the memory during a fork was rejected: a blocked writer may hold a lock that the fork needs.
//!
//! # Safety
//! The child has only this thread, in the state of a forked child of a multi-threaded process: it only makes system
//! calls. It may be running on the very stack it copies, so it switches to an alternate one.
//! See docs/decisions/fork.md#1, #2 and #3.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::counters::{self, Column, Kind, Reason};
use crate::mapping::{demote, is_hugetlb};
use crate::maps::{self, Vma};
use crate::settings::{self, Children};
use crate::table::{Entry, Range};
use crate::{
    executor, filter, fork_lock, in_place, limits, message, raw, sizes, source, stack, table,
    write_protect,
};

/// A fork in progress, from the prepare handler to the parent or child handler.
struct Fork {
    /// The forking thread (address of its errno); 0: unused.
    owner: AtomicUsize,
    /// Sequence number. The latest fork of a thread counts, because a signal handler may fork during a fork.
    number: AtomicU64,
    /// The sockets between parent and child; -1: not needed.
    parent_end: AtomicI32,
    child_end: AtomicI32,
    /// The signal mask from before the fork; [`NOT_CHANGED`] if it is still in force.
    signals: AtomicU64,
}

/// No mask has this value, because `SIGKILL` cannot be blocked.
const NOT_CHANGED: u64 = u64::MAX;

/// Forks in progress. glibc may run several threads' handlers at a time.
static FORKS: [Fork; 64] = [const {
    Fork {
        owner: AtomicUsize::new(0),
        number: AtomicU64::new(0),
        parent_end: AtomicI32::new(-1),
        child_end: AtomicI32::new(-1),
        signals: AtomicU64::new(NOT_CHANGED),
    }
}; 64];

impl Fork {
    fn begin() -> Option<&'static Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let me = raw::errno_address();
        let is_free = |fork: &&Self| {
            fork.owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let fork = FORKS.iter().find(is_free)?;
        fork.number.store(COUNT.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(fork)
    }

    /// The latest fork of this thread.
    fn latest() -> Option<&'static Self> {
        let me = raw::errno_address();
        let mine = FORKS.iter().filter(|fork| fork.owner.load(Ordering::Relaxed) == me);
        mine.max_by_key(|fork| fork.number.load(Ordering::Relaxed))
    }

    fn end(&self) {
        close(&self.parent_end);
        close(&self.child_end);
        let signals = self.signals.swap(NOT_CHANGED, Ordering::Relaxed);
        self.owner.store(0, Ordering::Relaxed);
        if signals != NOT_CHANGED {
            raw::set_signals(signals);
        }
    }
}

/// Whether a forked child can get copies. Checks before the fork whether the kernel would refuse them for lack of
/// memory or because of an rlimit. No more private pool pages are mapped meanwhile (`fork_lock`). See
/// docs/decisions/fork.md#6.
pub fn is_possible() -> bool {
    if !source::has_private_hugetlb() {
        return true;
    }
    if in_place::is_asked() {
        return demote::make_all_ordinary().is_ok();
    }
    let needs_no_room = || {
        settings::get().children == Children::Same
            || filter::is_set()
            || limits::has_no_memory_rlimits()
    };
    let has_room = || raw::map(STEP, 0).is_ok_and(|at| unmap(at, STEP));
    needs_no_room() || has_room() || demote::make_all_ordinary().is_ok()
}

fn unmap(at: usize, length: usize) -> bool {
    // SAFETY: the caller mapped it, and no other code uses it.
    unsafe { raw::munmap(at, length) }.is_ok()
}

/// Before a fork: makes a socket to the child if there is anything to copy, and leaves free pages in the pool.
pub fn prepare() {
    let fork = Fork::begin();
    if in_place::is_asked() {
        // A child would share files with us, so memory that stays in files is not inherited (MADV_DONTFORK).
        if source::has_private_hugetlb() && demote::make_all_ordinary().is_err() {
            message::line(&[b"a forked child does not have memory that could not be copied"]);
        }
        return;
    }
    if settings::get().children == Children::Same || !source::has_private_hugetlb() {
        return;
    }
    if filter::is_set() {
        // The filter may kill the process for reading the maps, and for printing a message.
        counters::count_reason(Reason::Unprotected);
        return;
    }
    if !maps::can_be_read() {
        let is_private = |entry: &Entry| !entry.is_ordinary && !entry.range.shared;
        if table::first_entry(0, usize::MAX, is_private).is_some() {
            unguarded(b"/proc cannot be read");
        }
        return;
    }
    let mut ends = [-1i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors.
    let made = raw::keeping_errno(|| unsafe {
        raw::call!(SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
    });
    let Some(fork) = fork.filter(|_| made == 0) else {
        unguarded(b"there is no descriptor for a socket");
        return;
    };
    fork.parent_end.store(ends[0], Ordering::Relaxed);
    fork.child_end.store(ends[1], Ordering::Relaxed);
    if write_protect::has_one_thread() {
        // While the child copies, a write by a signal handler needs a pool page, like writes of threads. With one
        // thread, no other thread waits for the handler, so signals can be blocked.
        fork.signals.store(raw::set_signals(u64::MAX), Ordering::Relaxed);
    } else {
        leave_pages_free();
    }
}

/// Prints a message and counts a fork whose child cannot get copies.
fn unguarded(why: &[u8]) {
    counters::count_reason(Reason::Unprotected);
    message::line(&[
        why,
        b": a forked child shares superpages, and is killed if the pool is short",
    ]);
}

/// Makes sure that the pool has as many free pages as other threads could write to while the child copies.
fn leave_pages_free() {
    let mut bytes = 0;
    each_private(|vma| bytes += vma.end - vma.start);
    if is_spare(bytes) {
        return;
    }
    // Addresses that this thread writes itself while a page is copied.
    let on_stack = 0u8;
    let needed = [&raw const on_stack as usize, raw::errno_address()];
    each_private(|vma| {
        let mut start = vma.start;
        while start < vma.end && !is_spare(bytes) {
            let entry = table::first(start, start + 1);
            let page = entry.map_or_else(sizes::superpage, |entry| entry.page);
            let is_needed = needed.iter().any(|it| (start..start + page).contains(it));
            if !is_needed && demote::make_page_ordinary(start, page) {
                bytes -= page;
                counters::count_reason(Reason::Forked);
            }
            start += page;
        }
    });
    if !is_spare(bytes) {
        counters::count_reason(Reason::Unprotected);
    }
}

/// Whether the pool could serve `bytes` more. `false` for gigantic pages: the parent would copy them after the fork,
/// when other threads may have changed them, so none may remain.
fn is_spare(bytes: usize) -> bool {
    bytes == 0 || sizes::superpage() < GIGANTIC && source::pool_can_serve(bytes)
}

/// Calls `tell` with each VMA of which a child gets a copy.
fn each_private(mut tell: impl FnMut(&Vma)) {
    maps::each(|vma| {
        if is_to_be_copied(vma) {
            tell(vma);
        }
    });
}

/// Code is not written, so it stays shared. Only the table knows whether a file in a hugetlbfs mount is ours. Its
/// entries may be stale, so this asks the kernel, too: copying ordinary memory by superpages would lose the contents of
/// pages that are not present.
fn is_to_be_copied(vma: &Vma) -> bool {
    let is_entered = || table::first(vma.start, vma.end).is_some_and(|entry| !entry.shared);
    let is_file_of_mount = || vma.file != (0, 0) && is_entered() && is_hugetlb(vma.start);
    vma.is_private() && vma.flags[2] != b'x' && (vma.is_anonymous_hugetlb() || is_file_of_mount())
}

/// A request of the child to its parent: fill a range, or, with length 0, stop.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Request {
    pid: c_int,
    start: usize,
    length: usize,
}

/// In the parent: serves the child's requests.
pub fn in_parent() {
    if let Some(fork) = Fork::latest() {
        close(&fork.child_end);
        let socket = fork.parent_end.load(Ordering::Relaxed);
        if socket >= 0 {
            raw::keeping_errno(|| serve(socket));
        }
        fork.end();
    }
}

/// Fills ranges until the child is done or dead.
fn serve(socket: c_int) {
    while let Some(request) = receive::<Request>(socket).filter(|request| request.length > 0) {
        let mut done = 0;
        while done < request.length {
            let here = libc::iovec {
                iov_base: (request.start + done) as *mut _,
                iov_len: request.length - done,
            };
            // SAFETY: reads this process's memory, and writes to the same address of the child that asked for it; the
            // call checks both.
            let written = unsafe {
                let here = &raw const here;
                raw::call!(SYS_process_vm_writev, request.pid, here, 1, here, 1, 0)
            };
            if written <= 0 {
                break;
            }
            done += written as usize;
        }
        // The reply is the number of bytes written: the child does not continue with less.
        send(socket, &done);
    }
}

/// In the child: keeps only this thread's latest fork, and copies.
pub fn in_child() {
    let fork = Fork::latest();
    let me = raw::errno_address();
    for other in &FORKS {
        let owner = other.owner.load(Ordering::Relaxed);
        let is_this = fork.is_some_and(|it| std::ptr::eq(it, other));
        if owner != 0 && !is_this {
            // The fork of another thread, or one of this thread during which a signal handler forked.
            close(&other.parent_end);
            close(&other.child_end);
            if owner != me {
                other.owner.store(0, Ordering::Relaxed);
                other.signals.store(NOT_CHANGED, Ordering::Relaxed);
            }
        }
    }
    let mine = FORKS.iter().filter(|it| it.owner.load(Ordering::Relaxed) == me).count();
    fork_lock::after_fork(mine.saturating_sub(1) as u32);
    let Some(fork) = fork else { return };
    close(&fork.parent_end);
    let socket = fork.child_end.load(Ordering::Relaxed);
    if socket >= 0 {
        // A handler could write to memory being copied.
        let before = raw::set_signals(u64::MAX);
        raw::keeping_errno(|| {
            stack::on_alternate(copy_everything, |_| {
                die(b"no memory for a forked child to copy its superpages")
            })
        });
        send(socket, &Request::default());
        source::forget_private_hugetlb();
        raw::set_signals(before);
    }
    // Add hugetlb memory that remains in the child, according to the maps.
    if table::is_in_use() && !filter::is_set() {
        maps::each(enter);
    }
    fork.end();
}

/// Adds hugetlb memory missing from the table: a thread that does not exist in the child may have been about to add it.
fn enter(vma: &Vma) {
    if vma.is_anonymous_hugetlb() && table::first(vma.start, vma.end).is_none() {
        let (start, end, page) = (vma.start, vma.end, sizes::superpage());
        table::add(Range { start, end, page, shared: !vma.is_private() });
    }
}

fn close(socket: &AtomicI32) {
    let fd = socket.swap(-1, Ordering::Relaxed);
    if fd >= 0 {
        raw::keeping_errno(|| raw::close(fd));
    }
}

/// Replaces every private writable hugetlb mapping by ordinary memory with the same contents. Decides by the maps,
/// because code other than this library may have made a mapping.
fn copy_everything() {
    let ours = raw::pid();
    let read = maps::each(|vma| {
        if is_to_be_copied(vma) {
            replace(vma, ours);
        }
    });
    if read.is_none() {
        die(b"a forked child cannot read /proc/self/maps to copy its superpages");
    }
}

fn replace(vma: &Vma, ours: c_int) {
    let page = table::first(vma.start, vma.end).map_or_else(sizes::superpage, |entry| entry.page);
    let is_ours = table::first(vma.start, vma.end).is_some();
    let mut step = page.max(STEP);
    let mut from = vma.start;
    while from < vma.end {
        let length = step.min(vma.end - from);
        let Ok(fresh) = raw::map(length, 0) else {
            if step == page {
                die(b"no memory for a forked child's copy of its superpages");
            }
            step = page;
            continue;
        };
        let copied = copy(fresh, from, length, page, vma.protection(), ours);
        if !copied && is_ours {
            die(b"a forked child's superpages could not be replaced");
        }
        // A mapping that the program made itself with another page size stays as it is.
        if copied {
            counters::count(Kind::Mmap, Column::FellBack, length);
        }
        from += length;
    }
    table::remove(vma.start, vma.end);
    if is_ours {
        // The kernel does not merge copies with adjacent VMAs.
        let (start, end) = (vma.start, vma.end);
        table::add_ordinary(Range { start, end, page, shared: false }, (start, end));
    }
    counters::count_reason(Reason::Forked);
}

/// Maximum bytes copied at once, and so held twice.
const STEP: usize = 32 << 20;
/// The parent copies pages of this size and larger.
const GIGANTIC: usize = 1 << 30;

/// Copies `[start, start + length)` to `fresh`, and moves the copy over the original; `false`: not moved.
fn copy(
    fresh: usize,
    start: usize,
    length: usize,
    page: usize,
    protection: c_int,
    ours: c_int,
) -> bool {
    executor::advise(advisor::Kind::Copy, settings::get().fallback, fresh, length);
    if protection & libc::PROT_READ == 0 {
        // SAFETY: no other thread runs; the replacement gets the original protection.
        let _ = unsafe { raw::mprotect(start, length, protection | libc::PROT_READ) };
    }
    if page < GIGANTIC {
        // SAFETY: no other thread runs; the source was made readable, the target is ours.
        unsafe { demote::copy_present(start, fresh, length, page) };
    }
    // SAFETY: `[start, start + length)` is the mapping being replaced, whose contents are now in `fresh` or come from
    // the parent; no other thread runs, and this code is on its own stack.
    let moved = unsafe {
        demote::advise_alike(fresh, length, demote::marks_of(start))
            .and_then(|()| raw::mprotect(fresh, length, protection))
            .and_then(|()| raw::move_to(fresh, length, start))
    };
    if moved.is_err() {
        unmap(fresh, length);
        return false;
    }
    if page >= GIGANTIC {
        ask_parent(&Request { pid: ours, start, length });
    }
    true
}

fn ask_parent(request: &Request) {
    let socket = Fork::latest().map_or(-1, |fork| fork.child_end.load(Ordering::Relaxed));
    send(socket, request);
    if receive(socket) != Some(request.length) {
        die(b"a forked child's pages of 1 GiB could not be filled by its parent");
    }
}

fn send<T>(socket: c_int, value: &T) {
    let (from, size) = (std::ptr::from_ref(value), size_of::<T>());
    // SAFETY: a value and its size.
    unsafe { raw::call!(SYS_sendto, socket, from, size, libc::MSG_NOSIGNAL, 0, 0) };
}

/// Receives a value; `None`: the other side is gone.
fn receive<T: Default>(socket: c_int) -> Option<T> {
    let mut value = T::default();
    loop {
        let (into, size) = (&raw mut value, size_of::<T>());
        // SAFETY: a value of ours, and its size.
        let got = unsafe { raw::call!(SYS_recvfrom, socket, into, size, 0, 0, 0) };
        if got != -1 || raw::errno() != libc::EINTR {
            return (got == size as libc::c_long).then_some(value);
        }
    }
}

/// Ends the child, as if it had run out of memory. The child cannot continue with memory that may vanish, and cannot
/// return an error to a caller that was promised a copy.
fn die(why: &[u8]) -> ! {
    message::line(&[why]);
    raw::exit(127)
}
