//! hugetlb pools as something to be managed: sizes, mounts, permissions, users, a wanted state.
//!
//! Every setting is written through [`crate::journal`]; the three things that are no settings
//! (compaction, demotion, mounts) are typed operations of their own. Nothing here prints. Callers:
//! `superpage pool`, and the commands under the old tools' names.
//!
//! A pool in three steps: [`Status::read`] tells what there is; [`resolve`] turns [`Spec`]s into
//! [`Request`]s, purely; [`apply`] carries them out under one journal and says what came of each.

mod climb;
mod demote;
mod error;
mod outcome;
mod overcommit;
mod resize;
mod room;
mod spec;
mod status;

pub use demote::{Demoted, demote, demotes_into};
pub use error::PoolError;
pub use outcome::{
    Applied, Compaction, Options, Outcome, Progress, Request, RoomRule, Shortage, WhyShort,
};
pub use overcommit::{check_overcommit, overcommit, set_overcommit};
pub use resize::{apply, check_room, resize, resolve};
pub use room::Room;
pub use spec::{Amount, Change, PoolName, Spec, SpecError, exact};
pub use status::Status;
