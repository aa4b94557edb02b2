//! Copies of private superpages for a forked child (decisions: docs/decisions/fork.md).
//!
//! A private hugetlb mapping is guaranteed only in the process that made it: its reservation stays
//! there. In a child, or in the parent while a child lives, a write needs another page of the pool,
//! and without one the kernel either kills the child at its write or takes the page from it and
//! kills it at its next look (measured, and as Gorman describes it). So, unless `--children same`
//! accepts that, a forked child gets ordinary memory with the same contents before `fork` returns in
//! either process: the child copies while the parent waits. It costs time in proportion to the
//! hugetlb memory in use; `vfork` and `posix_spawn` share memory until they execute and cost
//! nothing, and neither do THP.
//!
//! Pages of 1 GiB are copied by the parent instead, into the child: on Linux 6.18 a child of fork was
//! seen to read zeroes from them (32 of 760 forks), so a child's own copy cannot be trusted.
//!
//! Other threads of the parent go on meanwhile, and what they write needs further pages. There must
//! be as many free ones as they could write to, or the kernel would take the child's. What the pool
//! lacks of that is turned into ordinary memory before the fork, which makes its pages free ones: at
//! most half of the memory, once, and then it is as THP. Write-protecting all of it for the length of
//! a fork was given up: who waits may hold a lock that the fork waits for next.
//!
//! # Safety
//! The child is alone in its process, in the state a forked child of many threads is in: it makes
//! system calls and nothing else. It may be running on the very stack it copies, so it works on an
//! alternate one.
//! See docs/decisions/fork.md#1, #2 and #3.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

use policy::live;

use crate::counters::{self, Column, Kind, Reason};
use crate::mapping::{demote, is_hugetlb};
use crate::maps::{self, Vma};
use crate::settings::{self, Children};
use crate::table::{Entry, Range};
use crate::{
    executor, filter, fork_lock, in_place, limits, message, raw, sizes, source, stack, table,
    write_protect,
};

/// One fork, from the handler before it to the ones after it.
struct Fork {
    /// The thread (its errno's address); 0: nobody's.
    owner: AtomicUsize,
    /// Which of one thread's is the latest: a signal handler may fork in the midst of a fork.
    number: AtomicU64,
    /// The sockets between a parent and the child it is making; -1 where none is needed.
    parent_end: AtomicI32,
    child_end: AtomicI32,
    /// The signals that were blocked before; [`NOT_CHANGED`] if none were since.
    signals: AtomicU64,
}

/// `SIGKILL` cannot be blocked, so no set has it.
const NOT_CHANGED: u64 = u64::MAX;

/// Those under way. glibc may let several threads in at a time.
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

    /// The one that this thread is coming out of.
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

/// Whether the child of a fork can be given copies. What the kernel would refuse for want of memory or of room below a limit
/// is refused here, before a child is there. Nothing more is put on such pages meanwhile (`fork_lock`).
/// See docs/decisions/fork.md#6.
pub fn is_possible() -> bool {
    if !source::has_private_hugetlb() {
        return true;
    }
    if in_place::is_asked() {
        return demote::make_all_ordinary().is_ok();
    }
    let needs_no_room =
        || settings::get().children == Children::Same || filter::is_set() || limits::are_none();
    let has_room = || raw::map(STEP, 0).is_ok_and(|at| unmap(at, STEP));
    needs_no_room() || has_room() || demote::make_all_ordinary().is_ok()
}

fn unmap(at: usize, length: usize) -> bool {
    // SAFETY: the callers mapped it, and nobody uses it.
    unsafe { raw::munmap(at, length) }.is_ok()
}

/// Before a fork: a socket to the child if there is anything to copy, and free pages of the pool for it.
pub fn prepare() {
    let fork = Fork::begin();
    if in_place::is_asked() {
        // A child would share it with us: it does not get what stays (MADV_DONTFORK).
        if source::has_private_hugetlb() && demote::make_all_ordinary().is_err() {
            message::line(&[b"a forked child does not have memory that could not be copied"]);
        }
        return;
    }
    if settings::get().children == Children::Same || !source::has_private_hugetlb() {
        return;
    }
    if filter::is_set() {
        // It may end us for looking, and for saying so.
        counters::because(Reason::Unprotected);
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
        // What a signal handler writes while the child copies needs a page, like what threads write.
        // Nobody else is there to wait for what the handler would do.
        fork.signals.store(raw::set_signals(u64::MAX), Ordering::Relaxed);
    } else {
        leave_pages_free();
    }
}

/// The child cannot be given copies: it is told, and counted.
fn unguarded(why: &[u8]) {
    counters::because(Reason::Unprotected);
    message::line(&[
        why,
        b": a forked child shares superpages, and is killed if the pool is short",
    ]);
}

/// Makes the pool have as many free pages as other threads could write to while the child copies.
fn leave_pages_free() {
    let mut bytes = 0;
    each_private(|vma| bytes += vma.end - vma.start);
    if is_spare(bytes) {
        return;
    }
    // What this thread writes itself while the page is copied.
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
                counters::because(Reason::Forked);
            }
            start += page;
        }
    });
    if !is_spare(bytes) {
        counters::because(Reason::Unprotected);
    }
}

/// Whether the pool could serve so much more. Gigantic pages are copied by the parent, from what it
/// has by then: there must be none.
fn is_spare(bytes: usize) -> bool {
    bytes == 0 || sizes::superpage() < GIGANTIC && source::has_to_spare(bytes)
}

/// Calls `tell` with each mapping that a child gets a copy of.
fn each_private(mut tell: impl FnMut(&Vma)) {
    maps::each(|vma| {
        if is_to_be_copied(vma) {
            tell(vma);
        }
    });
}

/// Code is not written. What lies in files of a mount only the table knows, whose entries may be stale: copied
/// by superpages, ordinary memory would lose what lies behind a page that is not there.
fn is_to_be_copied(vma: &Vma) -> bool {
    let is_entered = || table::first(vma.start, vma.end).is_some_and(|entry| !entry.shared);
    let is_file_of_mount = || vma.file != (0, 0) && is_entered() && is_hugetlb(vma.start);
    vma.is_private() && vma.flags[2] != b'x' && (vma.is_anonymous_hugetlb() || is_file_of_mount())
}

/// What the child asks of its parent: a range to be filled, or, with no length, nothing more.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Request {
    pid: c_int,
    start: usize,
    length: usize,
}

/// In the parent: does what the child asks for.
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

/// Fills what the child asks for until it is done or dead.
fn serve(socket: c_int) {
    while let Some(request) = receive::<Request>(socket).filter(|request| request.length > 0) {
        let mut done = 0;
        while done < request.length {
            let here = libc::iovec {
                iov_base: (request.start + done) as *mut _,
                iov_len: request.length - done,
            };
            // SAFETY: this process's own memory is read, and written at the same address of the
            // child that asked for it; the call checks both.
            let written = unsafe {
                let here = &raw const here;
                raw::call!(SYS_process_vm_writev, request.pid, here, 1, here, 1, 0)
            };
            if written <= 0 {
                break;
            }
            done += written as usize;
        }
        // The answer says how much was written: the child does not go on with less.
        send(socket, &done);
    }
}

/// In the child: takes over this thread's record and no other, and copies.
pub fn in_child() {
    let fork = Fork::latest();
    let me = raw::errno_address();
    for other in &FORKS {
        let owner = other.owner.load(Ordering::Relaxed);
        let is_this = fork.is_some_and(|it| std::ptr::eq(it, other));
        if owner != 0 && !is_this {
            // Of another thread, or one that a handler of this thread's interrupted by forking.
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
        // A handler could write to what is being copied.
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
    // What is left of the pool, now that the kernel's list says it.
    if table::is_in_use() && !filter::is_set() {
        maps::each(enter);
    }
    fork.end();
}

/// Enters what the table lacks of the pool's memory: a thread that does not exist here may have been
/// about to.
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

/// Replaces every private writable hugetlb mapping by ordinary memory with the same contents. What
/// the maps say is the truth here, whoever made the mapping.
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
        // A mapping that the program made with pages of its own choosing stays what it is.
        if copied {
            counters::count(Kind::Mmap, Column::FellBack, length);
        }
        from += length;
    }
    table::remove(vma.start, vma.end);
    if is_ours {
        // The kernel keeps copies apart from what lies beside them.
        let (start, end) = (vma.start, vma.end);
        table::add_ordinary(Range { start, end, page, shared: false }, (start, end));
    }
    counters::because(Reason::Forked);
}

/// How much is copied at once: what is held twice for a moment.
const STEP: usize = 32 << 20;
/// From this size on the parent copies.
const GIGANTIC: usize = 1 << 30;

/// Whether the copy, made at `fresh`, took the place of `[start, start + length)`.
fn copy(
    fresh: usize,
    start: usize,
    length: usize,
    page: usize,
    protection: c_int,
    ours: c_int,
) -> bool {
    executor::advise(live::Kind::Copy, settings::get().fallback, fresh, length);
    if protection & libc::PROT_READ == 0 {
        // SAFETY: nobody else runs; what takes its place gets its protection.
        let _ = unsafe { raw::mprotect(start, length, protection | libc::PROT_READ) };
    }
    if page < GIGANTIC {
        // SAFETY: nobody else runs; the one was made readable, the other is ours.
        unsafe { demote::copy_present(start, fresh, length, page) };
    }
    // SAFETY: `[start, start + length)` is the mapping being replaced, whose contents are now in
    // `fresh` or come from the parent; nothing runs meanwhile, and this code is on its own stack.
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
    // SAFETY: a value, and its size.
    unsafe { raw::call!(SYS_sendto, socket, from, size, libc::MSG_NOSIGNAL, 0, 0) };
}

/// What the other side sent: numbers; `None`: it is gone.
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

/// The child cannot go on with memory that may vanish under it, and cannot say so to a caller that
/// was promised a copy. It ends as a child does for which there is no memory.
fn die(why: &[u8]) -> ! {
    message::line(&[why]);
    raw::exit(127)
}
