//! Blocks writers to hugetlb pages while their contents are copied.
//!
//! userfaultfd write-protects the pages: a writer, whether the program or a system call on its behalf, waits in the
//! kernel until the descriptor is closed, and then continues. Unlike with mprotect, the writer gets neither a signal
//! nor an error.
//!
//! # Safety
//! `ioctl(2)` with the structures that linux/userfaultfd.h gives its commands.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::once::OnceBool;
use crate::{filter, raw};

/// Whether this process can block writers. If it cannot, private memory must not be put on pages of the pool: neither a
/// part of a page nor a fork could be handled.
pub fn is_possible() -> bool {
    static ANSWER: OnceBool = OnceBool::new();
    ANSWER.get_or_init(|| raw::keeping_errno(|| WriteProtect::new().is_some()))
}

/// Whether system calls of other threads can be blocked, too. Otherwise a system call that writes to memory being
/// demoted fails with EFAULT. Checked each time: the process may have dropped privileges.
pub fn can_block_system_calls() -> bool {
    raw::keeping_errno(|| WriteProtect::with_system_calls().is_some())
}

unsafe extern "C" {
    /// glibc 2.32: nonzero while the process has never had a second thread.
    static __libc_single_threaded: std::ffi::c_char;
}

/// Whether no other thread can write.
pub fn has_one_thread() -> bool {
    // SAFETY: libc's variable; only this thread could change it.
    unsafe { (&raw const __libc_single_threaded).read_volatile() != 0 }
}

/// Blocks writers until dropped.
pub struct WriteProtect {
    fd: c_int,
    /// `[start, end)` of everything that was protected.
    span: Cell<(usize, usize)>,
}

/// `struct uffdio_api`
#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}
/// `struct uffdio_register`
#[repr(C)]
struct UffdioRegister {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}
/// `struct uffdio_range`
#[repr(C)]
struct UffdioRange {
    start: u64,
    length: u64,
}
/// `struct uffdio_writeprotect`
#[repr(C)]
struct UffdioWriteprotect {
    start: u64,
    length: u64,
    mode: u64,
}

// linux/userfaultfd.h: _IOWR(0xAA, nr, size)
const fn command(number: u64, size: usize) -> u64 {
    3 << 30 | (size as u64) << 16 | 0xaa << 8 | number
}
const UFFDIO_API: u64 = command(0x3f, size_of::<UffdioApi>());
const UFFDIO_REGISTER: u64 = command(0x00, size_of::<UffdioRegister>());
const UFFDIO_WRITEPROTECT: u64 = command(0x06, size_of::<UffdioWriteprotect>());
// _IOR(0xAA, nr, struct uffdio_range)
const UFFDIO_UNREGISTER: u64 = 2 << 30 | (size_of::<UffdioRange>() as u64) << 16 | 0xaa << 8 | 0x01;
const UFFDIO_WAKE: u64 = 2 << 30 | (size_of::<UffdioRange>() as u64) << 16 | 0xaa << 8 | 0x02;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
/// Only faults from user space are blocked.
const UFFD_USER_MODE_ONLY: c_int = 1;
/// `_IO(0xAA, 0x00)`
const USERFAULTFD_IOC_NEW: u64 = 0xaa00;

impl WriteProtect {
    /// Opens a descriptor that protects nothing yet.
    pub fn new() -> Option<Self> {
        Self::with_system_calls().or_else(Self::user_mode_only)
    }

    /// Opens a descriptor that blocks writes by system calls as well as by the program. Needs a
    /// privilege (`CAP_SYS_PTRACE`), access to /dev/userfaultfd (Linux 6.1), or
    /// vm.unprivileged_userfaultfd.
    pub fn with_system_calls() -> Option<Self> {
        let by_call = Self::from_system_call(0);
        by_call.or_else(|| {
            let device = raw::open(c"/dev/userfaultfd", libc::O_RDWR | libc::O_CLOEXEC, 0)?;
            // SAFETY: flags only; the descriptor is ours.
            let fd = unsafe { raw::call!(SYS_ioctl, device, USERFAULTFD_IOC_NEW, libc::O_CLOEXEC) };
            raw::close(device);
            Self::from_fd(fd)
        })
    }

    /// Opens a descriptor as an unprivileged process may: a system call that writes to protected pages fails with
    /// EFAULT.
    pub fn user_mode_only() -> Option<Self> {
        Self::from_system_call(UFFD_USER_MODE_ONLY)
    }

    fn from_system_call(mode: c_int) -> Option<Self> {
        // SAFETY: flags only; the descriptor is ours.
        Self::from_fd(unsafe { raw::call!(SYS_userfaultfd, libc::O_CLOEXEC | mode) })
    }

    fn from_fd(fd: libc::c_long) -> Option<Self> {
        let span = Cell::new((usize::MAX, 0));
        let guard = (fd >= 0).then_some(Self { fd: fd as c_int, span })?;
        let mut api =
            UffdioApi { api: UFFD_API, features: UFFD_FEATURE_WP_HUGETLBFS_SHMEM, ioctls: 0 };
        guard.call(UFFDIO_API, &mut api).then_some(guard)
    }

    /// Blocks writers to the range, which consists of whole hugetlb pages.
    pub fn protect(&self, start: usize, length: usize) -> bool {
        let (from, to) = self.span.get();
        self.span.set((from.min(start), to.max(start + length)));
        let (start, length) = (start as u64, length as u64);
        let mut register =
            UffdioRegister { start, length, mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        let mut protect = UffdioWriteprotect { start, length, mode: UFFDIO_WRITEPROTECT_MODE_WP };
        self.call(UFFDIO_REGISTER, &mut register) && self.call(UFFDIO_WRITEPROTECT, &mut protect)
    }

    fn call<T>(&self, command: u64, argument: &mut T) -> bool {
        // SAFETY: the command's own structure, which the kernel reads and writes.
        unsafe { raw::call!(SYS_ioctl, self.fd, command, std::ptr::from_mut(argument)) == 0 }
    }
}

/// The descriptor that registers memory for mapping by base page; -1: none yet.
static UFFD: AtomicI32 = AtomicI32::new(-1);
/// Unique inode of that descriptor. It shows whether the program has closed the descriptor and opened another file.
static UFFD_INODE: AtomicU64 = AtomicU64::new(0);

/// Makes each touch of the range map one base page: a registered range has no fault-around (`finish_fault`,
/// mm/memory.c). Allocates the page tables, so that the kernel maps no superpages there. Blocks no writer: no page
/// stays protected. The range consists of whole superpages of shared memory. errno is left alone.
pub fn map_by_page(start: usize, length: usize, superpage: usize) -> bool {
    raw::keeping_errno(|| {
        let Some(uffd) = uffd() else { return false };
        let mut register = UffdioRegister {
            start: start as u64,
            length: length as u64,
            mode: UFFDIO_REGISTER_MODE_WP,
            ioctls: 0,
        };
        // Protecting a page allocates its page table, which stays when the protection is removed.
        let page = |at: usize, mode| UffdioWriteprotect {
            start: at as u64,
            length: raw::base_page() as u64,
            mode,
        };
        uffd.call(UFFDIO_REGISTER, &mut register)
            && (start..start + length).step_by(superpage).all(|at| {
                uffd.call(UFFDIO_WRITEPROTECT, &mut page(at, UFFDIO_WRITEPROTECT_MODE_WP))
                    && uffd.call(UFFDIO_WRITEPROTECT, &mut page(at, 0))
            })
    })
}

/// Undoes [`map_by_page`]. errno is left alone.
pub fn unregister(start: usize, length: usize) {
    raw::keeping_errno(|| {
        if let Some(uffd) = uffd() {
            let mut range = UffdioRange { start: start as u64, length: length as u64 };
            uffd.call(UFFDIO_UNREGISTER, &mut range);
        }
    });
}

/// Whether there is a descriptor for [`map_by_page`]; opens it if there is none. The descriptor must have this number,
/// by which `superpage run` finds it. errno is left alone.
pub fn can_map_by_page(number: c_int) -> bool {
    raw::keeping_errno(|| uffd().is_some() || open_uffd_at(number).is_some())
}

fn open_uffd_at(number: c_int) -> Option<()> {
    let made = WriteProtect::with_system_calls()?;
    // F_DUPFD gets the lowest free number from `number` on, and replaces no open descriptor.
    // SAFETY: numbers only; both descriptors are ours.
    let fd = unsafe { raw::call!(SYS_fcntl, made.fd, libc::F_DUPFD_CLOEXEC, number) } as c_int;
    if fd == number
        && let Some(file) = raw::fstat(fd)
    {
        UFFD_INODE.store(file.st_ino, Ordering::Relaxed);
        UFFD.store(fd, Ordering::Release);
        return Some(());
    }
    if fd >= 0 {
        raw::close(fd);
    }
    None
}

fn uffd() -> Option<ManuallyDrop<WriteProtect>> {
    let fd = UFFD.load(Ordering::Acquire);
    is_ours(fd).then(|| ManuallyDrop::new(WriteProtect { fd, span: Cell::new((0, 0)) }))
}

/// May change errno.
fn is_ours(fd: c_int) -> bool {
    fd >= 0 && raw::fstat(fd).is_some_and(|file| file.st_ino == UFFD_INODE.load(Ordering::Relaxed))
}

/// In a forked child: closes the descriptor, which refers to the parent's memory.
pub fn after_fork() {
    let fd = UFFD.swap(-1, Ordering::Relaxed);
    raw::keeping_errno(|| {
        // A filter may kill the process for fstat; the descriptor is then closed at exec.
        if !filter::may_be_in_place() && is_ours(fd) {
            raw::close(fd);
        }
    });
}

impl Drop for WriteProtect {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the descriptor, too, so closing this one does not end the protection.
        let (from, to) = self.span.get();
        if from < to {
            let mut range = UffdioRange { start: from as u64, length: (to - from) as u64 };
            raw::keeping_errno(|| {
                self.call(UFFDIO_UNREGISTER, &mut range);
                self.call(UFFDIO_WAKE, &mut range);
            });
        }
        raw::close(self.fd);
    }
}
