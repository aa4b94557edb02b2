//! hugetlb pools: their sizes, mounts, permissions and users, and the changes to a wanted state.
//!
//! Every setting is written through [`crate::journal`]; compaction, demotion and mounts are not settings and have typed
//! operations. This module prints nothing.
//!
//! Three steps: [`Status::read`] reads the pools; [`resolve`] turns [`Spec`]s into [`Request`]s without I/O; [`apply`]
//! executes the requests under one journal and reports each result.

pub mod boot;
pub mod ensure;
pub mod mounts;
pub mod users;

mod outcome;
mod resize;
mod shm;
mod spec;
mod status;

pub use outcome::{
    Applied, Compaction, HeadroomRule, Options, Outcome, PoolError, Progress, Request, Shortage,
    WhyShort, pool_name,
};
pub use resize::Headroom;
pub use resize::{Demoted, demote, demotes_into};
pub use resize::{apply, check_headroom, resize, resolve};
pub use resize::{check_overcommit, overcommit, set_overcommit};
pub use shm::{
    RelatedSettings, check_raise, raise_min_free, raise_shmmax, recommended_min_free, set_shm_group,
};
pub use spec::{Amount, Change, PoolName, Spec, SpecError, exact};
pub use status::Status;
