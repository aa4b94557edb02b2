//! malloc and its relatives.

/// For `fork`.
pub fn lock() {}

/// For `fork`.
pub fn unlock() {}
