//! `--create-mounts` and related options.

use host::pool::mounts::{self, Limits, MountOutcome, MountPlan};
use host::pool::{PoolError, Status};
use units::{ByteSize, PageSize};

use super::options::Request;
use super::{Completion, Context, refused};
use crate::exit::{self, Failure};

/// Returns the mounts to make: one per pool and owner.
pub fn plan(
    context: &Context,
    status: &Status,
    request: &Request,
) -> Result<Vec<MountPlan>, Failure> {
    let mut plans = Vec::new();
    for owner in &request.mounts {
        for size in status.pools.sizes.keys() {
            let limit = request.max_size.map(|limit| whole(limit, *size));
            let limits = Limits { size: limit, inodes: request.max_inodes, ..Limits::default() };
            plans.push(mounts::plan(context.root, owner, *size, limits).map_err(refused)?);
        }
    }
    Ok(plans)
}

/// Rounds a limit up to whole pages, as documented. The kernel rounds down, and a mount of 1 GiB pages limited to 4 MiB
/// would hold nothing.
fn whole(limit: ByteSize, size: PageSize) -> ByteSize {
    let bytes = size.floor(limit.bytes().saturating_add(size.bytes() - 1));
    ByteSize(bytes.max(size.bytes()))
}

/// Makes the mount, or prints the commands in a dry run.
pub fn mount(context: &Context, plan: &MountPlan) -> Result<Completion, Failure> {
    let there = mounts::mounts(context.root).map_err(|error| refused(error.into()))?;
    let point = plan.point.display();
    // The options of libhugetlbfs' mounts do not show the owner: accept any existing mount with the right page size.
    if let Some(mount) = there.iter().rev().find(|mount| mount.point == plan.point) {
        let differs = plan.differs_from(mount);
        if mount.page_size.is_some_and(|size| size != plan.page_size) {
            let line = format!("{point} is mounted already, but {}", differs.unwrap_or_default());
            return Err(Failure::cannot(line));
        }
        let differs = differs.map_or(String::new(), |how| format!(" ({how})"));
        context.voice.warn(format!("Directory {point} is already mounted.{differs}"));
        return Ok(Completion::Full);
    }
    if context.dry_run {
        let options = plan.options();
        exit::print(&format!("mkdir -p {point}\nmount -t hugetlbfs none {point} -o {options}\n"))?;
        return Ok(Completion::Full);
    }
    match mounts::make(plan) {
        Ok(MountOutcome::New | MountOutcome::AlreadyThere) => Ok(Completion::Full),
        // The caller did not choose the mount point, so a mount error is no usage error.
        Err(error @ PoolError::Mount(_)) => Err(Failure::cannot(error)),
        Err(error) => Err(refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_whole_pages() {
        let (small, large) = (PageSize::new(2 << 20).unwrap(), PageSize::new(1 << 30).unwrap());
        assert_eq!(whole(ByteSize::mib(4), small), ByteSize::mib(4));
        assert_eq!(whole(ByteSize::mib(5), small), ByteSize::mib(6));
        assert_eq!(whole(ByteSize::mib(4), large), ByteSize::gib(1));
        assert_eq!(whole(ByteSize(1), small), ByteSize::mib(2));
    }
}
