//! Allocates and checks memory without the library.

/// Touches every base page of a range that the caller owns.
pub fn write_all(start: usize, length: usize) {
    for address in (start..start + length).step_by(4096) {
        // SAFETY: the range was handed out to this test. If it is not mapped, the test is to die.
        unsafe { (address as *mut u8).write_volatile(1) };
    }
}

pub fn is_mapped(address: usize) -> bool {
    let mut residency = 0u8;
    let page = address & !4095;
    // SAFETY: asks about one page; the call fails with ENOMEM if nothing is mapped there.
    unsafe { libc::mincore(page as *mut libc::c_void, 1, &raw mut residency) == 0 }
}

pub fn map_anonymous(length: usize) -> usize {
    map_at(0, length)
}

pub fn map_at(address: usize, length: usize) -> usize {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let address = address as *mut libc::c_void;
    // SAFETY: the call replaces no mapping.
    let start = unsafe { libc::mmap(address, length, protection, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    start as usize
}

pub fn map_file(fd: i32, length: usize) -> Option<usize> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let null = std::ptr::null_mut();
    // SAFETY: the call replaces no mapping.
    let start = unsafe { libc::mmap(null, length, protection, libc::MAP_SHARED, fd, 0) };
    (start != libc::MAP_FAILED).then_some(start as usize)
}
