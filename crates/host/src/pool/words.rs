//! Words that more than one message is made of.

use units::{NodeId, PageSize};

/// `2 MiB pages`, `2 MiB pages on node 1`.
pub fn pool(size: PageSize, node: Option<NodeId>) -> String {
    match node {
        None => format!("{size} pages"),
        Some(node) => format!("{size} pages on node {node}"),
    }
}
