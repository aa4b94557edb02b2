//! The overcommit limit: how many surplus pages a pool may make on demand.

use units::PageSize;

use super::error::PoolError;
use super::status::Status;
use crate::Root;
use crate::journal::{Journal, JournalError, Knob};

/// How many surplus pages of `size` may be made.
pub fn overcommit(status: &Status, size: PageSize) -> Result<u64, PoolError> {
    let limit = status.pool(size)?.overcommit;
    limit.ok_or(PoolError::Unknown { size, what: "its overcommit limit" })
}

/// Refuses a limit that this kernel does not take, before anything is written.
pub fn check_overcommit(status: &Status, size: PageSize, pages: u64) -> Result<(), PoolError> {
    status.pool(size)?;
    // The kernel refuses every value for gigantic pages, also the 0 they have.
    if status.is_gigantic(size) && pages > 0 {
        return Err(PoolError::GiganticOvercommit { size });
    }
    Ok(())
}

/// Sets how many surplus pages of `size` may be made; returns the limit before and what it is now.
/// Takes no memory. The caller keeps or restores the journal.
pub fn set_overcommit(
    root: &Root,
    journal: &mut Journal,
    size: PageSize,
    pages: u64,
) -> Result<(u64, u64), PoolError> {
    let status = Status::read(root)?;
    check_overcommit(&status, size, pages)?;
    let before = overcommit(&status, size)?;
    match journal.set(&Knob::hugetlb_overcommit(size), &pages.to_string()) {
        Ok(written) => {
            let unknown = PoolError::Unknown { size, what: "its overcommit limit" };
            Ok((before, written.got.parse().map_err(|_| unknown)?))
        }
        Err(JournalError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::InvalidInput =>
        {
            Err(PoolError::GiganticOvercommit { size })
        }
        Err(error) => Err(error.into()),
    }
}
