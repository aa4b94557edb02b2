//! What the kernel says of itself to every process.

use units::PageSize;

/// The base page size (`sysconf(_SC_PAGESIZE)`, from the auxiliary vector).
pub fn page_size() -> PageSize {
    PageSize::new(rustix::param::page_size() as u64)
        .expect("the kernel's page size is a power of two")
}

/// Whether this process runs with effective user id 0 (`geteuid`). Only to explain a failure:
/// whether a call is allowed is found by trying it.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// This process.
pub fn own_pid() -> units::Pid {
    units::Pid(rustix::process::getpid().as_raw_nonzero().get())
}
