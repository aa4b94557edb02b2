//! hugetlbfs mounts: those there are, those to be made, and lines that make them stay.

mod act;
mod names;
mod persist;
mod plan;
mod table;

pub use act::{MountOutcome, make, remove};
pub use names::{group_id, user_id};
pub use persist::{fstab_line, systemd_mount};
pub use plan::{Limits, MOUNTS_DIR, MountPlan, Owner, plan};
pub use table::{Mount, mounts, parse};
