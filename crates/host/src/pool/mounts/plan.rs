//! What a mount is to be: its place and options, decided before anything is made. Pure, but for
//! the names looked up.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use super::names;
use super::table::Mount;
use crate::Root;
use crate::pool::{PoolError, exact};

/// Below this lie all mounts, where scripts written for hugeadm look for them.
pub const MOUNTS_DIR: &str = "/var/lib/hugetlbfs";

/// Whose mount it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// root's: `pagesize-2MB`, mode 0770.
    Root,
    /// Everybody's: `global/pagesize-2MB`, mode 1777.
    Everybody,
    /// One user's, by name or number: `user/NAME/pagesize-2MB`, mode 0700.
    User(String),
    /// One group's, by name or number: `group/NAME/pagesize-2MB`, mode 0070.
    Group(String),
}

/// How much a mount may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The most bytes; rounded down to whole pages.
    pub size: Option<ByteSize>,
    /// The most files.
    pub inodes: Option<u64>,
}

/// A mount to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// Where.
    pub point: PathBuf,
    /// The pool.
    pub page_size: PageSize,
    /// The most bytes it may hold, whole pages.
    pub size: Option<ByteSize>,
    /// The most files.
    pub inodes: Option<u64>,
    /// Its root's owner.
    pub uid: u32,
    /// Its root's group.
    pub gid: u32,
    /// Its root's permissions.
    pub mode: u32,
}

/// Decides where and how a mount is made.
pub fn plan(
    root: &Root,
    owner: &Owner,
    size: PageSize,
    limits: Limits,
) -> Result<MountPlan, PoolError> {
    let (dir, uid, gid, mode) = match owner {
        Owner::Root => (String::new(), 0, 0, 0o770),
        Owner::Everybody => ("/global".to_string(), 0, 0, 0o1777),
        Owner::User(name) => (format!("/user/{name}"), names::user_id(root, name)?, 0, 0o700),
        Owner::Group(name) => (format!("/group/{name}"), 0, names::group_id(root, name)?, 0o070),
    };
    if let Owner::User(name) | Owner::Group(name) = owner
        && (name.contains('/') || name.starts_with('.'))
    {
        return Err(PoolError::Mount(format!("`{name}` cannot be used as a directory name")));
    }
    let whole = |asked: ByteSize| match size.floor(asked.bytes()) {
        0 => Err(PoolError::Mount(format!(
            "a mount of {asked} cannot hold a single page of {size}; use at least {}",
            exact(size.bytes())
        ))),
        bytes => Ok(ByteSize(bytes)),
    };
    if limits.inodes == Some(0) {
        return Err(PoolError::Mount("a mount must allow 1 file or more".into()));
    }
    // hugeadm's names: 2MB, 1GB.
    let point = PathBuf::from(format!("{MOUNTS_DIR}{dir}/pagesize-{}B", exact(size.bytes())));
    let bytes = limits.size.map(whole).transpose()?;
    Ok(MountPlan { point, page_size: size, size: bytes, inodes: limits.inodes, uid, gid, mode })
}

impl MountPlan {
    /// The options that mount(8) and mount(2) take.
    pub fn options(&self) -> String {
        let mut options = format!("pagesize={}", exact(self.page_size.bytes()));
        if let Some(size) = self.size {
            options += &format!(",size={}", size.bytes());
        }
        if let Some(inodes) = self.inodes {
            options += &format!(",nr_inodes={inodes}");
        }
        options + &format!(",uid={},gid={},mode={:04o}", self.uid, self.gid, self.mode)
    }

    /// How `mount`, found at the same place, differs from this; `None`: not at all.
    pub fn differs_from(&self, mount: &Mount) -> Option<String> {
        let known = |what: Option<ByteSize>| what.map_or("no limit".into(), |b| b.to_string());
        let differs = |what: &str, has: String, wants: String| {
            (has != wants).then(|| format!("{what} is {has} instead of {wants}"))
        };
        let size = |size: Option<PageSize>| size.map_or("unknown".into(), |size| size.to_string());
        let inodes = |n: Option<u64>| n.map_or("no limit".to_string(), |n| n.to_string());
        let id = |id: Option<u32>| id.unwrap_or(0).to_string();
        let mode = |mode: u32| format!("{mode:04o}");
        differs("the page size", size(mount.page_size), size(Some(self.page_size)))
            .or_else(|| differs("its size", known(mount.size), known(self.size)))
            .or_else(|| differs("the number of files", inodes(mount.inodes), inodes(self.inodes)))
            .or_else(|| differs("the owner", id(mount.uid), id(Some(self.uid))))
            .or_else(|| differs("the group", id(mount.gid), id(Some(self.gid))))
            .or_else(|| differs("the mode", mode(mount.mode.unwrap_or(0o755)), mode(self.mode)))
    }
}

impl std::str::FromStr for Owner {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self, PoolError> {
        match text.split_once(':') {
            None if text == "root" => Ok(Self::Root),
            None if text == "everybody" => Ok(Self::Everybody),
            Some(("user", name)) if !name.is_empty() => Ok(Self::User(name.to_string())),
            Some(("group", name)) if !name.is_empty() => Ok(Self::Group(name.to_string())),
            _ => Err(PoolError::Mount(format!(
                "invalid owner `{text}`: expected everybody, root, user:NAME or group:NAME"
            ))),
        }
    }
}
