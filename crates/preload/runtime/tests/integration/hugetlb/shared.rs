//! Memory that others use too: shared mappings, and buffers that the kernel writes to.

use super::can_write;
use crate::common::*;
use std::ffi::c_void;

mod exclusive {
    use super::*;

    #[test]
    fn parts_of_shared_memory_move_unless_another_process_has_it() {
        let Some(pool) = Pool::of(64) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child_on_pool("hugetlb::shared::child_shares", HUGETLB)));
        assert!(pool.is_empty());
    }

    #[test]
    fn buffers_registered_with_io_uring_stay_where_they_are() {
        let Some(pool) = Pool::of(16) else {
            return testkit::skipped!("{NEEDS_POOL}");
        };
        assert!(succeeds(child("hugetlb::shared::child_registers_buffers", HUGETLB)));
        assert!(pool.is_empty());
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_shares() {
    let length = 8 * MIB + 8192;
    let start = map_as(length, libc::MAP_SHARED);
    fill(start, length, 1);
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    let before = hugetlb_mib();
    assert!(before >= 8);
    // SAFETY: parts of the mapping above.
    unsafe {
        // While a child maps the memory, the call fails and changes nothing.
        let (mut ready, mut go) = ([0; 2], [0; 2]);
        assert_eq!(libc::pipe(ready.as_mut_ptr()) | libc::pipe(go.as_mut_ptr()), 0);
        let child = libc::fork();
        if child == 0 {
            let mut byte = 0u8;
            libc::write(ready[1], (&raw const byte).cast(), 1);
            libc::read(go[0], (&raw mut byte).cast(), 1);
            start.add(5 * MIB).cast::<u64>().write(99);
            libc::_exit(0);
        }
        let mut byte = 0u8;
        libc::read(ready[0], (&raw mut byte).cast(), 1);
        assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_NONE), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert!(can_write(start.add(MIB)) && holds(start, 0, length, 1));
        assert_eq!(libc::mprotect(at(2 * MIB), 2 * MIB, libc::PROT_READ), 0, "whole superpages");
        libc::write(go[1], (&raw const byte).cast(), 1);
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
        assert_eq!(*start.add(5 * MIB).cast::<u64>(), 99);
        // After the child ended, the whole mapping may leave the pool; it stays shared.
        assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_NONE), 0);
        assert!(!can_write(start.add(MIB)) && !can_write(start.add(2 * MIB)));
        assert_eq!(hugetlb_mib(), before - 8);
        assert!(holds(start, 0, MIB, 1) && holds(start, MIB + 4096, 5 * MIB, 1));
        assert_eq!(
            in_child(|| {
                start.cast::<u64>().write(7);
                start.add(6 * MIB).cast::<u64>().write(8);
                true
            }),
            0
        );
        assert_eq!((*start.cast::<u64>(), *start.add(6 * MIB).cast::<u64>()), (7, 8));
        // The object is mapped a second time; both mappings show the same memory.
        assert_eq!(libc::mprotect(start.cast(), length, libc::PROT_READ | libc::PROT_WRITE), 0);
        let again = libc::mremap(start.cast(), 0, length, libc::MREMAP_MAYMOVE).cast::<u8>();
        assert_ne!(again.cast(), libc::MAP_FAILED);
        for place in [0, 3 * MIB, 8 * MIB + 4096] {
            again.add(place).cast::<u64>().write(place as u64 + 1);
            assert_eq!(*start.add(place).cast::<u64>(), place as u64 + 1);
        }
        marks_on_base_pages_stay();
        // A mapping that only reserves address space is not put on the pool.
        let before = hugetlb_mib();
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let null = std::ptr::null_mut();
        let reserved = libc::mmap(null, 8 * MIB, libc::PROT_NONE, flags, -1, 0).cast::<u8>();
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        assert_eq!(libc::mprotect(reserved.cast(), 8 * MIB, rw), 0);
        fill(reserved, 8 * MIB, 3);
        assert_eq!(hugetlb_mib(), before);
    }
}

/// Advice on the tail of a shared mapping is kept when the whole mapping leaves the pool.
fn marks_on_base_pages_stay() {
    const MADV_GUARD_INSTALL: i32 = 102;
    let length = 2 * MIB + 16384;
    for advice in [MADV_GUARD_INSTALL, libc::MADV_DONTFORK] {
        let start = map_as(length, libc::MAP_SHARED);
        fill(start, length, 1);
        let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
        let tail = 2 * MIB + 4096;
        // SAFETY: parts of the mapping above.
        unsafe {
            if libc::madvise(at(tail), 4096, advice) != 0 {
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
                continue; // guards in shared memory need Linux 6.15
            }
            let before = hugetlb_mib();
            assert_eq!(libc::mprotect(at(MIB), 4096, libc::PROT_READ), 0);
            assert!(hugetlb_mib() < before || advice == MADV_GUARD_INSTALL, "it was moved");
            assert!(holds(start, 0, tail, 1) && holds(start, tail + 4096, length, 1));
            let is_there = || start.add(tail).cast::<u64>().read_volatile() != 0;
            if advice == MADV_GUARD_INSTALL {
                assert_eq!(in_child(is_there), libc::SIGSEGV, "the guard");
                assert_eq!(libc::madvise(at(tail), 4096, advice + 1), 0, "removed");
            } else {
                assert_eq!(in_child(is_there), libc::SIGSEGV, "not the child's");
            }
            assert!(holds(start, tail, tail + 4096, 1));
        }
    }
}

#[test]
#[ignore = "run by the tests above, in a process of its own"]
fn child_registers_buffers() {
    const IORING_REGISTER_BUFFERS: usize = 0;
    const IORING_UNREGISTER_BUFFERS: usize = 1;
    let start = map(4 * MIB);
    fill(start, 4 * MIB, 1);
    let at = |offset: usize| start.wrapping_add(offset).cast::<c_void>();
    // `struct io_uring_params`: 120 bytes, all of them zero.
    let mut parameters = [0u64; 15];
    let buffer = libc::iovec { iov_base: at(MIB), iov_len: 64 << 10 };
    // SAFETY: the structures that the calls need, and parts of the mapping above.
    unsafe {
        let ring = libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr());
        if ring < 0 {
            testkit::skipped!("no io_uring: {}", std::io::Error::last_os_error());
            return;
        }
        let (register, one) = (libc::SYS_io_uring_register, 1usize);
        let done = libc::syscall(register, ring, IORING_REGISTER_BUFFERS, &raw const buffer, one);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // The superpage with the registered buffer stays on the pool; the next may leave it.
        assert_eq!(libc::munmap(at(0), 4096), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        assert!(holds(start, 0, 4 * MIB, 1));
        assert_eq!(libc::munmap(at(3 * MIB), 4096), 0);
        // The kernel releases a ring's pages some time after the ring is closed, so unregister them.
        let none = std::ptr::null::<libc::iovec>();
        let done = libc::syscall(register, ring, IORING_UNREGISTER_BUFFERS, none, 0usize);
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::munmap(at(0), 4096), 0);
        assert!(!is_mapped(start));
        assert_eq!(libc::close(ring as i32), 0);
        assert!(holds(start, 4096, 3 * MIB, 1));
    }
}
