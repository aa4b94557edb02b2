//! The system calls of this library, without the libc functions that it interposes.
//!
//! # Safety
//! Every function is the system call and nothing more: no libc function that could be interposed, and no allocation, so
//! any allocator may call them. The caller answers for what a call does to memory, as `unsafe` says.
//! See docs/decisions/library.md#3.

use std::ffi::{CStr, c_char, c_int, c_void};

/// An error number of the kernel.
pub type Errno = c_int;

/// `PROT_READ | PROT_WRITE`
pub const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
/// `MAP_PRIVATE | MAP_ANONYMOUS`
pub const PRIVATE_ANONYMOUS: c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// An argument of a system call: a whole register. (`syscall(2)` is variadic: the upper bits of a narrower argument
/// would be undefined.)
pub trait Word {
    /// The register's value.
    fn word(self) -> usize;
}

macro_rules! word {
    ($($type:ty),*) => { $(impl Word for $type {
        fn word(self) -> usize {
            self as usize
        }
    })* };
}
word!(usize, u64, i64, u32, i32);

impl<T> Word for *const T {
    fn word(self) -> usize {
        self as usize
    }
}
impl<T> Word for *mut T {
    fn word(self) -> usize {
        self as usize
    }
}

/// Makes one system call: `call!(SYS_close, fd)`. As unsafe as that call.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        $crate::raw::system_call(libc::$number $(, $crate::raw::Word::word($argument))*)
    };
}
pub(crate) use call;

/// Sleeps until [`futex_wake`], if `*word` is still `seen`; a signal may end the sleep early. Only for threads of this
/// process. Errno is left alone.
pub fn futex_wait(word: *const u32, seen: u32) {
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the kernel reads the word, or fails.
    keeping_errno(|| unsafe { call!(SYS_futex, word, operation, seen, forever) });
}

/// Wakes at most `most` threads that sleep on `word`; errno is left alone.
pub fn futex_wake(word: *const u32, most: i32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the kernel only compares the address.
    keeping_errno(|| unsafe { call!(SYS_futex, word, operation, most) });
}

/// As [`futex_wait`], between processes and for at most `most` nanoseconds.
pub fn shared_futex_wait(word: *const u32, seen: u32, most: i64) {
    let time = libc::timespec { tv_sec: most / 1_000_000_000, tv_nsec: most % 1_000_000_000 };
    // SAFETY: the kernel reads the word and the time, or fails.
    keeping_errno(|| unsafe { call!(SYS_futex, word, libc::FUTEX_WAIT, seen, &raw const time) });
}

/// Wakes all threads of any process that sleep on `word`; errno is left alone.
pub fn shared_futex_wake(word: *const u32) {
    // SAFETY: the kernel only compares the address.
    keeping_errno(|| unsafe { call!(SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) });
}

/// Runs `work` with cancellation deferred; a request for cancellation takes effect afterwards. With asynchronous
/// cancellation the thread could end within `work`, or in a frame through which it cannot unwind.
pub fn not_cancelled<R>(work: impl FnOnce() -> R) -> R {
    unsafe extern "C-unwind" {
        // With asynchronous cancellation the thread may end in the second call.
        fn pthread_setcanceltype(new: c_int, old: *mut c_int) -> c_int;
    }
    const DEFERRED: c_int = 0;
    let mut before = DEFERRED;
    // SAFETY: a number and a local variable. Neither call makes a system call or takes a lock.
    unsafe { pthread_setcanceltype(DEFERRED, &raw mut before) };
    let result = work();
    if before != DEFERRED {
        // SAFETY: as above.
        unsafe { pthread_setcanceltype(before, std::ptr::null_mut()) };
    }
    result
}

/// Whether this thread blocks any signal, as in a handler.
pub fn blocks_signals() -> bool {
    let mut blocked = 0u64;
    keeping_errno(|| {
        // SAFETY: only a query; a set of the kernel's size.
        unsafe {
            let (nothing, into) = (std::ptr::null::<u64>(), &raw mut blocked);
            call!(SYS_rt_sigprocmask, libc::SIG_BLOCK, nothing, into, size_of::<u64>())
        };
    });
    blocked != 0
}

#[cfg(not(target_arch = "x86_64"))]
pub use libc::syscall as system_call;

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    /// As `syscall(2)`. libc's function cannot be called here, because this library interposes it (`mapping::direct`).
    #[link_name = "superpage_system_call"]
    pub fn system_call(number: libc::c_long, ...) -> libc::c_long;
}

// As in glibc: the number and the six arguments each move by one register; the last argument comes from the stack.
// Results in the last page of the address range are negated errors (System V ABI for AMD64, A.2.1).
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl superpage_system_call",
    ".hidden superpage_system_call",
    ".type superpage_system_call, @function",
    "superpage_system_call:",
    ".cfi_startproc",
    "mov rax, rdi",
    "mov rdi, rsi",
    "mov rsi, rdx",
    "mov rdx, rcx",
    "mov r10, r8",
    "mov r8, r9",
    "mov r9, [rsp + 8]",
    "syscall",
    "cmp rax, -4095",
    "jae 2f",
    "ret",
    "2:",
    "neg eax",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "call __errno_location@PLT",
    "pop rcx",
    ".cfi_adjust_cfa_offset -8",
    "mov [rax], ecx",
    "mov rax, -1",
    "ret",
    ".cfi_endproc",
    ".size superpage_system_call, . - superpage_system_call",
);

/// Opens a file; errno is set if that fails.
pub fn open(path: &CStr, flags: c_int, mode: c_int) -> Option<c_int> {
    // SAFETY: a path and numbers.
    let fd = unsafe { call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) };
    (fd >= 0).then_some(fd as c_int)
}

/// Closes a descriptor of this library's own.
pub fn close(fd: c_int) {
    // SAFETY: a number; the callers opened it.
    unsafe { call!(SYS_close, fd) };
}

/// A descriptor that is closed on drop.
pub struct File(pub c_int);

impl File {
    /// Fills `buffer` from offset `at`; `None` if the file ends before.
    pub fn read_at(&self, at: usize, buffer: &mut [u64]) -> Option<()> {
        let bytes = size_of_val(buffer);
        // SAFETY: a buffer of that size, in which any numbers are valid.
        let got =
            keeping_errno(|| unsafe { call!(SYS_pread64, self.0, buffer.as_mut_ptr(), bytes, at) });
        (got == bytes as libc::c_long).then_some(())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        keeping_errno(|| close(self.0));
    }
}

/// `fstatat(2)` of a path.
pub fn stat(path: &CStr, flags: c_int) -> Option<libc::stat> {
    // SAFETY: the pointer is to a C string.
    unsafe { stat_by(path.as_ptr(), flags) }
}

/// As [`stat`], without computing the length of the path, for which Rust calls libc's strlen.
///
/// # Safety
/// `path` is a C string, or null.
pub unsafe fn stat_by(path: *const c_char, flags: c_int) -> Option<libc::stat> {
    // SAFETY: a path and a place for the answer, which is all zero before.
    unsafe {
        let mut file: libc::stat = std::mem::zeroed();
        let looked = call!(SYS_newfstatat, libc::AT_FDCWD, path, &raw mut file, flags);
        (looked == 0).then_some(file)
    }
}

/// `fstat(2)`.
pub fn fstat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: a place for the answer, which is all zero before.
    unsafe {
        let mut file: libc::stat = std::mem::zeroed();
        (call!(SYS_fstat, fd, &raw mut file) == 0).then_some(file)
    }
}

/// `readlinkat(2)`, truncated to the buffer.
pub fn read_link<'a>(directory: c_int, path: &CStr, into: &'a mut [u8]) -> Option<&'a [u8]> {
    let (path, start) = (path.as_ptr(), into.as_mut_ptr());
    // SAFETY: a path and a buffer of that size.
    let length = unsafe { call!(SYS_readlinkat, directory, path, start, into.len()) };
    into.get(..usize::try_from(length).ok()?)
}

/// Nanoseconds of CLOCK_MONOTONIC, by system call: a program may interpose clock_gettime by a function that allocates.
pub fn monotonic() -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one structure.
    let asked =
        keeping_errno(|| unsafe { call!(SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) });
    (asked == 0).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Effective user id.
pub fn effective_user() -> u32 {
    // SAFETY: the call takes no arguments.
    unsafe { call!(SYS_geteuid) as u32 }
}

/// `getrusage(2)`; errno is left alone.
pub fn usage(of: c_int) -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes the structure if it returns 0.
    keeping_errno(|| unsafe {
        (call!(SYS_getrusage, of, usage.as_mut_ptr()) == 0).then(|| usage.assume_init())
    })
}

/// Runs `work` and restores errno.
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let value = work();
        *errno = before;
        value
    }
}

/// Ends this process.
pub fn exit(status: c_int) -> ! {
    // SAFETY: all arguments are numbers.
    unsafe {
        call!(SYS_exit_group, status);
        libc::abort()
    }
}

/// Sets errno, as a C function does before it returns -1.
pub fn set_errno(errno: Errno) {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// This thread's errno.
pub fn errno() -> Errno {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() }
}

fn checked(result: libc::c_long) -> Result<usize, Errno> {
    if result == -1 { Err(errno()) } else { Ok(result as usize) }
}

/// `mmap(2)`; errno is left alone.
///
/// # Safety
/// With `MAP_FIXED` the caller owns `[at, at + length)`.
pub unsafe fn mmap(
    at: usize,
    length: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> Result<usize, Errno> {
    keeping_errno(|| {
        // SAFETY: the caller keeps this function's contract.
        checked(unsafe { call!(SYS_mmap, at, length, protection, flags, fd, offset) })
    })
}

/// Maps fresh zeroed private memory where the kernel chooses; `flags` are added to the usual ones.
pub fn map(length: usize, flags: c_int) -> Result<usize, Errno> {
    // SAFETY: no address is fixed: nothing existing is replaced.
    unsafe { mmap(0, length, READ_WRITE, PRIVATE_ANONYMOUS | flags, -1, 0) }
}

/// As [`map`], but exactly at `at`; `None`: the range is in use, or the kernel refuses.
pub fn map_at(at: usize, length: usize, protection: c_int, flags: c_int) -> Option<()> {
    let flags = PRIVATE_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | flags;
    // SAFETY: replaces nothing. A kernel before 4.17 takes the address as a hint.
    unsafe {
        let got = mmap(at, length, protection, flags, -1, 0).ok()?;
        if got != at {
            let _ = munmap(got, length);
        }
        (got == at).then_some(())
    }
}

/// `munmap(2)`; errno is left alone.
///
/// # Safety
/// No code uses the range afterwards.
pub unsafe fn munmap(at: usize, length: usize) -> Result<(), Errno> {
    // SAFETY: the caller keeps this function's contract.
    keeping_errno(|| checked(unsafe { call!(SYS_munmap, at, length) }).map(drop))
}

/// `mprotect(2)`; errno is left alone.
///
/// # Safety
/// All users of the range tolerate the new protection.
pub unsafe fn mprotect(at: usize, length: usize, protection: c_int) -> Result<(), Errno> {
    keeping_errno(|| {
        // SAFETY: the caller keeps this function's contract.
        checked(unsafe { call!(SYS_mprotect, at, length, protection) }).map(drop)
    })
}

/// Whether the words of `[at, at + length)` are all zero.
///
/// # Safety
/// The range is readable.
pub unsafe fn is_zero(at: usize, length: usize) -> bool {
    // SAFETY: the caller keeps this function's contract.
    let words = unsafe { std::slice::from_raw_parts(at as *const u64, length / size_of::<u64>()) };
    words.iter().all(|word| *word == 0)
}

/// Faults in the pages of a range for writing, and restarts after signals (`MADV_POPULATE_WRITE`, Linux 5.14).
/// `EFAULT`: a touch would raise SIGBUS.
///
/// # Safety
/// The caller owns the range. No contents change.
pub unsafe fn populate(start: usize, length: usize) -> Result<(), Errno> {
    // SAFETY: the caller keeps this function's contract.
    unsafe { populate_by(start, length, libc::MADV_POPULATE_WRITE) }
}

/// As [`populate`], for reading.
///
/// # Safety
/// As [`populate`].
pub unsafe fn populate_read(start: usize, length: usize) -> Result<(), Errno> {
    // SAFETY: the caller keeps this function's contract.
    unsafe { populate_by(start, length, libc::MADV_POPULATE_READ) }
}

unsafe fn populate_by(start: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    loop {
        // SAFETY: the caller keeps this function's contract.
        match unsafe { madvise(start, length, advice) } {
            Err(libc::EINTR) => {}
            outcome => return outcome,
        }
    }
}

/// `madvise(2)`; errno is left alone.
///
/// # Safety
/// Some advice discards contents, which the caller then owns.
pub unsafe fn madvise(at: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    keeping_errno(|| {
        // SAFETY: the caller keeps this function's contract.
        checked(unsafe { call!(SYS_madvise, at, length, advice) }).map(drop)
    })
}

/// `mremap(2)` to a fixed address, which replaces what is mapped there; errno is left alone.
///
/// # Safety
/// The caller owns both ranges.
pub unsafe fn move_to(from: usize, length: usize, to: usize) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    keeping_errno(|| {
        // SAFETY: the caller keeps this function's contract.
        checked(unsafe { call!(SYS_mremap, from, length, length, flags, to) }).map(drop)
    })
}

/// Policies of [`mbind`] (`include/uapi/linux/mempolicy.h`).
pub const MPOL_PREFERRED: c_int = 1;
/// As [`MPOL_PREFERRED`], but without fallback to other nodes.
pub const MPOL_BIND: c_int = 2;

/// A mask with one node, for [`mbind`]; `None` beyond Linux's maximum (CONFIG_NODES_SHIFT is 10 at most).
pub fn node_mask(node: u32) -> Option<[u64; 16]> {
    let mut mask = [0; 16];
    *mask.get_mut((node / u64::BITS) as usize)? = 1 << (node % u64::BITS);
    Some(mask)
}

/// `mbind(2)` to the nodes of a mask; errno is left alone. `ENOSYS` on kernels without NUMA.
///
/// # Safety
/// The caller owns the range.
pub unsafe fn mbind(at: usize, length: usize, policy: c_int, nodes: &[u64]) -> Result<(), Errno> {
    // The kernel reads one bit less than `maxnode` (`get_nodes`, mm/mempolicy.c).
    let bits = nodes.len() * u64::BITS as usize + 1;
    keeping_errno(|| {
        let mask = nodes.as_ptr();
        // SAFETY: by the contract; the mask has as many bits as the kernel reads.
        checked(unsafe { call!(SYS_mbind, at, length, policy, mask, bits, 0) }).map(drop)
    })
}

/// The base page size.
pub fn base_page() -> usize {
    // SAFETY: getauxval reads the vector the kernel made.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// The process id, by system call: after a fork a cached one would be the parent's.
pub fn pid() -> c_int {
    // SAFETY: the call takes no arguments.
    unsafe { call!(SYS_getpid) as c_int }
}

/// Sets errno and returns -1.
pub fn fails_with(errno: Errno) -> c_int {
    set_errno(errno);
    -1
}

/// Address of this thread's errno, which identifies the thread.
pub fn errno_address() -> usize {
    // SAFETY: only queries an address.
    unsafe { libc::__errno_location() as usize }
}

/// Sets this thread's signal mask to `blocked`; returns the old mask.
pub fn set_signals(blocked: u64) -> u64 {
    change_signals(libc::SIG_SETMASK, blocked)
}

/// `rt_sigprocmask(2)`; returns the old mask. errno is left alone.
fn change_signals(how: c_int, signals: u64) -> u64 {
    let mut before = 0u64;
    keeping_errno(|| {
        // SAFETY: two sets of the kernel's size.
        unsafe {
            let (new, old) = (&raw const signals, &raw mut before);
            call!(SYS_rt_sigprocmask, how, new, old, size_of::<u64>())
        };
    });
    before
}

/// Runs `work`, a write that the program did not ask for, and suppresses the signals it may raise: SIGPIPE for a pipe
/// without readers, SIGXFSZ for a limit on file size, SIGTTOU for the terminal of another job. Signals that were
/// pending before stay pending.
pub fn without_signals_of_a_write<R>(work: impl FnOnce() -> R) -> R {
    const fn bit(signal: c_int) -> u64 {
        1 << (signal - 1)
    }
    const RAISED: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ);
    let blocked = change_signals(libc::SIG_BLOCK, RAISED | bit(libc::SIGTTOU));
    let before = pending_signals();
    let result = work();
    let raised = pending_signals() & RAISED & !before;
    if raised != 0 {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let (set, time) = (&raw const raised, &raw const now);
        // SAFETY: a set of the kernel's size and a time; the call does not wait.
        let take = || unsafe { call!(SYS_rt_sigtimedwait, set, 0usize, time, size_of::<u64>()) };
        keeping_errno(take);
    }
    set_signals(blocked);
    result
}

/// `rt_sigpending(2)`, of this thread and its process; errno is left alone.
fn pending_signals() -> u64 {
    let mut pending = 0u64;
    // SAFETY: a set of the kernel's size.
    keeping_errno(|| unsafe { call!(SYS_rt_sigpending, &raw mut pending, size_of::<u64>()) });
    pending
}

/// Returns 0, or -1 with errno set, as a C function does.
pub fn answer(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => fails_with(errno),
    }
}

/// Returns the address, or MAP_FAILED with errno set, as `mmap(2)` and `mremap(2)` do.
pub fn answer_address(result: Result<usize, Errno>) -> *mut c_void {
    match result {
        Ok(start) => start as *mut c_void,
        Err(errno) => {
            set_errno(errno);
            libc::MAP_FAILED
        }
    }
}
