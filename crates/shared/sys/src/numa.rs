//! NUMA placement of a mapping: binding to a node, and reading a page's node.

use std::ffi::{c_int, c_void};

use units::NodeId;

use crate::SysError;
use crate::mem::Mapping;

/// NUMA memory policy of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// `MPOL_PREFERRED`: falls back to other nodes when this node is full.
    Preferred,
    /// `MPOL_BIND`: only this node. A fault raises SIGBUS if the node has no free superpage, even for pages that the
    /// pool has reserved. So populate the memory before using it.
    Strict,
}

/// Maximum number of nodes of a Linux kernel (CONFIG_NODES_SHIFT up to 10).
const MAX_NODES: usize = 1024;

/// `long mbind(void *addr, unsigned long len, int mode, const unsigned long *nodemask, unsigned long maxnode, unsigned
/// flags)` binds pages that are not yet present. `EINVAL`: no such node. `ENOSYS`: the kernel lacks NUMA, so all memory
/// is on node 0. See mbind(2).
pub fn bind(mapping: &mut Mapping, node: NodeId, binding: Binding) -> Result<(), SysError> {
    let what = || format!("{mapping:?} to {node:?}");
    let mut mask = [0usize; MAX_NODES / usize::BITS as usize];
    let Some(word) = mask.get_mut((node.0 / usize::BITS) as usize) else {
        let errno = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(SysError::new("mbind", what(), errno));
    };
    *word = 1 << (node.0 % usize::BITS);
    let mode: usize = match binding {
        Binding::Preferred => 1,
        Binding::Strict => 2,
    };
    let (start, len) = (mapping.address(), mapping.len());
    // The kernel reads `maxnode - 1` bits (`get_nodes`, mm/mempolicy.c).
    let bits = MAX_NODES + 1;
    // SAFETY: a policy changes no bytes. The mask is a live local and contains every bit that the kernel reads.
    let code =
        unsafe { libc::syscall(libc::SYS_mbind, start, len, mode, mask.as_ptr(), bits, 0usize) };
    if code == 0 { Ok(()) } else { Err(SysError::last("mbind", what())) }
}

/// `long move_pages(0, 1, &addr, NULL, &status, 0)`: returns the node of the page at `offset` bytes in the mapping;
/// `None` if the page is not present. See move_pages(2).
pub fn node_of(mapping: &Mapping, offset: usize) -> Result<Option<NodeId>, SysError> {
    assert!(offset < mapping.len(), "{offset} lies outside {mapping:?}");
    let address = (mapping.address() as usize + offset) as *const c_void;
    let mut status: c_int = 0;
    let null = std::ptr::null::<c_int>();
    // SAFETY: one address and one status, both live locals; a null node list moves nothing.
    let code = unsafe {
        let (addresses, statuses) = (&raw const address, &raw mut status);
        libc::syscall(libc::SYS_move_pages, 0usize, 1usize, addresses, null, statuses, 0usize)
    };
    match (code, status) {
        (0, 0..) => Ok(Some(NodeId(status as u32))),
        (0, error) if error == -libc::ENOENT || error == -libc::EFAULT => Ok(None),
        (0, error) => {
            let errno = std::io::Error::from_raw_os_error(-error);
            Err(SysError::new("move_pages", format!("{mapping:?}"), errno))
        }
        _ => Err(SysError::last("move_pages", format!("{mapping:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Backing;

    #[test]
    fn memory_bound_to_node_0_lies_there_once_touched() {
        let mut mapping = Mapping::anonymous(1 << 20, Backing::Pages).unwrap();
        for binding in [Binding::Preferred, Binding::Strict] {
            match bind(&mut mapping, NodeId(0), binding) {
                Err(error) if error.errno() == libc::ENOSYS => {
                    testkit::skipped!("this kernel has no NUMA");
                    return;
                }
                result => result.unwrap(),
            }
        }
        assert_eq!(node_of(&mapping, 0).unwrap(), None);
        mapping.bytes_mut()[0] = 1;
        assert_eq!(node_of(&mapping, 0).unwrap(), Some(NodeId(0)));
    }

    #[test]
    fn a_node_that_is_not_there_is_an_error() {
        let mut mapping = Mapping::anonymous(1 << 20, Backing::Pages).unwrap();
        for node in [NodeId(900), NodeId(1_000_000)] {
            let error = bind(&mut mapping, node, Binding::Strict).unwrap_err();
            assert!([libc::EINVAL, libc::ENOSYS].contains(&error.errno()), "{error}");
        }
    }
}
