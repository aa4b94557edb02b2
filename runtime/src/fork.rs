//! What becomes of superpages when a process forks.
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
//! The parent's other threads are held up meanwhile if they write to such memory (`hold`): without a
//! free page the kernel would take the child's away for them before it is copied.
//!
//! All locks of this library are held across the fork, so a child is not born with one that is
//! never given back.
//!
//! # Safety
//! The child's handler runs alone in its process, in the state a forked child of many threads is in:
//! it makes system calls and nothing else. It may be running on the very stack it copies, so it
//! works from a stack of its own.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::hold::{self, Hold};
use crate::ledger::{self, Column, Kind, Reason};
use crate::mapping::{chips, demote, pieces, table};
use crate::maps::{self, Vma};
use crate::settings::{self, Children, Fallback};
use crate::{libc_state, message, prepare, raw, source, stack};

/// Registers the handlers. Ours are the first: the child's run before anybody else's.
pub fn provide() {
    // SAFETY: the three functions live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(in_parent), Some(in_child)) };
}

/// The sockets between a parent and the child it is making; -1 where none is needed.
static PARENT_END: AtomicI32 = AtomicI32::new(-1);
static CHILD_END: AtomicI32 = AtomicI32::new(-1);

/// Whether the process had one thread when it prepared: then no lock is held but perhaps by code that a
/// signal interrupted and that goes on in both processes, and none is taken.
static ALONE: AtomicBool = AtomicBool::new(false);

extern "C" fn prepare() {
    let alone = hold::has_one_thread();
    ALONE.store(alone, Ordering::Relaxed);
    let may_copy = settings::get().children != Children::Same && source::has_private_hugetlb();
    if prepare::is_on() {
        prepare::before_fork();
    }
    if !alone {
        if may_copy {
            libc_state::leave_the_pool();
        }
        stack::lock();
        demote::lock();
        chips::lock();
        source::lock();
        table::lock();
        pieces::lock();
    }
    // Also of a process with one thread: the library's own is not one of libc's.
    prepare::lock();
    if settings::get().children == Children::Same || !source::has_private_hugetlb() {
        return;
    }
    if !maps::can_be_read() {
        unguarded(b"/proc cannot be read");
        return;
    }
    let mut ends = [-1i32; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes two descriptors.
    let made = raw::keeping_errno(|| unsafe {
        raw::call!(SYS_socketpair, libc::AF_UNIX, kind, 0, ends.as_mut_ptr())
    });
    if made != 0 {
        unguarded(b"there is no descriptor for a socket");
        return;
    }
    PARENT_END.store(ends[0], Ordering::Relaxed);
    CHILD_END.store(ends[1], Ordering::Relaxed);
    // A handler in the child could write to what is already copied.
    SIGNALS.store(raw::set_signals(u64::MAX), Ordering::Relaxed);
    if !alone {
        hold_up_other_threads();
    }
}

/// The child cannot be given copies: it is told, and counted.
fn unguarded(why: &[u8]) {
    ledger::because(Reason::Unprotected);
    message::line(&[
        why,
        b": a forked child shares superpages, and is killed if the pool is short",
    ]);
}

/// The signals that were blocked before.
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Other threads of the parent go on while the child copies. What they write then must not reach
/// the copy, and must not need a page: without one the kernel would take the child's.
fn hold_up_other_threads() {
    // Without privilege a system call that writes meanwhile would fail with EFAULT. Where the pool
    // has as many pages again nobody need be held up: the kernel gives the writers pages of their
    // own, and the child keeps what it was born with.
    let everybody = raw::keeping_errno(Hold::of_everybody);
    if everybody.is_none() && raw::keeping_errno(has_as_many_pages_again) {
        return;
    }
    let Some(hold) = everybody.or_else(|| raw::keeping_errno(Hold::of_the_program)) else {
        message::line(&[
            b"no descriptor to hold up other threads with: a forked child may be killed",
        ]);
        return;
    };
    // What this thread itself needs to get through the fork.
    let on_stack = 0u8;
    let (stack, storage) = (&raw const on_stack as usize, raw::errno_address());
    maps::each(|vma| {
        let is_needed = [stack, storage].iter().any(|it| (vma.start..vma.end).contains(it));
        // SAFETY: the lock is held for the fork.
        let is_entered = || unsafe { table::holds_private(vma.start, vma.end) };
        if is_to_be_copied(vma, is_entered)
            && !is_needed
            && !raw::keeping_errno(|| hold.protect(vma.start, vma.end - vma.start))
        {
            ledger::because(Reason::Unprotected);
        }
    });
    HOLD.store(hold.into_number(), Ordering::Relaxed);
}

fn has_as_many_pages_again() -> bool {
    let mut bytes = 0;
    let read = maps::each(|vma| {
        // SAFETY: the lock is held for the fork.
        let is_entered = || unsafe { table::holds_private(vma.start, vma.end) };
        if is_to_be_copied(vma, is_entered) {
            bytes += vma.end - vma.start;
        }
    });
    // Gigantic pages are copied by the parent, from what it has by then.
    read.is_some() && source::superpage() < GIGANTIC && source::has_to_spare(bytes)
}

/// The descriptor that holds up other threads; -1 if none does.
static HOLD: AtomicI32 = AtomicI32::new(-1);

fn let_go() {
    let number = HOLD.swap(-1, Ordering::Relaxed);
    if number >= 0 {
        raw::keeping_errno(|| drop(Hold::from_number(number)));
    }
}

/// `is_entered`: whether the table has it, for what lies in files of a mount. Code is not written.
fn is_to_be_copied(vma: &Vma, is_entered: impl FnOnce() -> bool) -> bool {
    vma.is_private() && vma.flags[2] != b'x' && (vma.is_anonymous_hugetlb() || is_entered())
}

fn unlock() {
    prepare::unlock();
    if ALONE.load(Ordering::Relaxed) {
        return;
    }
    pieces::unlock();
    table::unlock();
    source::unlock();
    chips::unlock();
    demote::unlock();
    stack::unlock();
}

/// What the child asks of its parent: a range to be filled, or, with no length, nothing more.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Request {
    pid: c_int,
    start: usize,
    length: usize,
}

extern "C" fn in_parent() {
    close(&CHILD_END);
    let socket = PARENT_END.load(Ordering::Relaxed);
    if socket >= 0 {
        raw::keeping_errno(|| serve(socket));
        close(&PARENT_END);
    }
    let_go();
    unlock();
    libc_state::let_go();
    if socket >= 0 {
        raw::set_signals(SIGNALS.load(Ordering::Relaxed));
    }
}

/// Fills what the child asks for until it is done or dead.
fn serve(socket: c_int) {
    loop {
        let mut request = Request::default();
        // SAFETY: a value of ours, and its size.
        let got = unsafe {
            let into = (&raw mut request).cast::<u8>();
            raw::call!(SYS_recvfrom, socket, into, size_of::<Request>(), 0, 0, 0)
        };
        match got {
            -1 if raw::errno() == libc::EINTR => continue,
            got if got != size_of::<Request>() as libc::c_long => return,
            _ if request.length == 0 => return,
            _ => {}
        }
        let mut done = 0;
        while done < request.length {
            let here = libc::iovec {
                iov_base: (request.start + done) as *mut _,
                iov_len: request.length - done,
            };
            // SAFETY: this process's own memory is read, and written at the same address of the
            // child that asked for it; the call checks both.
            let written = unsafe {
                raw::call!(
                    SYS_process_vm_writev,
                    request.pid,
                    &raw const here,
                    1,
                    &raw const here,
                    1,
                    0
                )
            };
            if written <= 0 {
                break;
            }
            done += written as usize;
        }
        // The answer says how much was written: the child does not go on with less.
        // SAFETY: a value of ours, and its size.
        unsafe {
            let from = (&raw const done).cast::<u8>();
            raw::call!(SYS_sendto, socket, from, size_of::<usize>(), libc::MSG_NOSIGNAL, 0, 0,)
        };
    }
}

extern "C" fn in_child() {
    close(&PARENT_END);
    let_go();
    unlock();
    ledger::after_fork();
    stack::after_fork();
    crate::heap::after_fork();
    prepare::after_fork();
    let socket = CHILD_END.load(Ordering::Relaxed);
    if socket >= 0 {
        raw::keeping_errno(|| on_another_stack(copy_everything));
        let done = Request::default();
        tell(socket, &done);
        close(&CHILD_END);
        source::forget_private_hugetlb();
        raw::set_signals(SIGNALS.load(Ordering::Relaxed));
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
extern "C" fn copy_everything() {
    let ours = raw::pid();
    let read = maps::each(|vma| {
        let is_entered = || table::first(vma.start, vma.end).is_some_and(|row| !row.shared);
        if is_to_be_copied(vma, is_entered) {
            replace(vma, ours);
        }
    });
    if read.is_none() {
        die(b"a forked child cannot read /proc/self/maps to copy its superpages");
    }
}

fn replace(vma: &Vma, ours: c_int) {
    let page = table::first(vma.start, vma.end).map_or_else(source::superpage, |row| row.page);
    let is_ours = table::first(vma.start, vma.end).is_some();
    let step = page.max(STEP);
    let mut from = vma.start;
    while from < vma.end {
        let length = step.min(vma.end - from);
        let copied = copy(from, length, page, vma.protection(), ours);
        if !copied && is_ours {
            die(b"a forked child's superpages could not be replaced");
        }
        // A mapping that the program made with pages of its own choosing stays what it is.
        if copied {
            ledger::count(Kind::Mmap, Column::FellBack, length);
        }
        from += length;
    }
    table::remove(vma.start, vma.end);
    ledger::because(Reason::Forked);
}

/// How much is copied at once: what is held twice for a moment.
const STEP: usize = 32 << 20;
/// From this size on the parent copies.
const GIGANTIC: usize = 1 << 30;

/// Whether the copy took the place of `[start, start + length)`.
fn copy(start: usize, length: usize, page: usize, protection: c_int, ours: c_int) -> bool {
    let flags = raw::PRIVATE_ANONYMOUS;
    // SAFETY: fresh memory.
    let Ok(fresh) = (unsafe { raw::mmap(0, length, raw::READ_WRITE, flags, -1, 0) }) else {
        die(b"no memory for a forked child's copy of its superpages");
    };
    if settings::get().fallback == Fallback::Thp {
        // SAFETY: as above. Advice may be refused.
        let _ = unsafe { raw::madvise(fresh, length, libc::MADV_HUGEPAGE) };
    }
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
        raw::mprotect(fresh, length, protection).and_then(|()| raw::move_to(fresh, length, start))
    };
    if moved.is_err() {
        // SAFETY: ours, and used by nobody.
        let _ = unsafe { raw::munmap(fresh, length) };
        return false;
    }
    if page >= GIGANTIC {
        ask_parent(&Request { pid: ours, start, length });
    }
    true
}

fn ask_parent(request: &Request) {
    let socket = CHILD_END.load(Ordering::Relaxed);
    tell(socket, request);
    let mut done = 0usize;
    // SAFETY: a value of ours, and its size.
    unsafe {
        let into = (&raw mut done).cast::<u8>();
        raw::call!(SYS_recvfrom, socket, into, size_of::<usize>(), 0, 0, 0)
    };
    if done != request.length {
        die(b"a forked child's pages of 1 GiB could not be filled by its parent");
    }
}

fn tell(socket: c_int, request: &Request) {
    // SAFETY: a value of ours, and its size.
    unsafe {
        let from = std::ptr::from_ref(request).cast::<u8>();
        let size = size_of::<Request>();
        raw::call!(SYS_sendto, socket, from, size, libc::MSG_NOSIGNAL, 0, 0)
    };
}

/// The child cannot go on with memory that may vanish under it, and cannot say so to a caller that
/// was promised a copy. It ends as a child does for which there is no memory.
fn die(why: &[u8]) -> ! {
    message::line(&[why]);
    // SAFETY: ends this process.
    unsafe {
        raw::call!(SYS_exit_group, 127);
        libc::abort()
    }
}

struct Contexts(UnsafeCell<MaybeUninit<[libc::ucontext_t; 2]>>);
// SAFETY: used only by the one thread of a forked child.
unsafe impl Sync for Contexts {}
static CONTEXTS: Contexts = Contexts(UnsafeCell::new(MaybeUninit::uninit()));

/// Runs `work` on a stack mapped for it, so that it may replace the one it was called on.
fn on_another_stack(work: extern "C" fn()) {
    const SIZE: usize = 256 << 10;
    let flags = raw::PRIVATE_ANONYMOUS;
    // SAFETY: fresh memory for the stack; the contexts are static and this thread's alone;
    // `uc_link` leads back to the first, which `swapcontext` fills in before it leaves.
    unsafe {
        let Ok(stack) = raw::mmap(0, SIZE, raw::READ_WRITE, flags, -1, 0) else {
            die(b"no memory for a forked child to copy its superpages");
        };
        let [back, there] = (*CONTEXTS.0.get()).assume_init_mut();
        libc::getcontext(there);
        there.uc_stack.ss_sp = stack as *mut _;
        there.uc_stack.ss_size = SIZE;
        there.uc_link = back;
        libc::makecontext(there, work, 0);
        libc::swapcontext(back, there);
        let _ = raw::munmap(stack, SIZE);
    }
}
