//! The wanted state of the pools, described in a file, and the changes that reach this state. Idempotent: a setting
//! that already has the wanted value is not written.

use std::fs::File;
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml_keys::{DeValue, Field, FileError, Reader, parsed, wrong};
use units::{ByteSize, NodeId, PageSize};

use super::mounts::{Limits, MountOutcome, MountPlan, Owner};
use super::resize::{check_headroom, resize_all};
use super::shm::recommended_min_free;
use super::{
    HeadroomRule, Options, Outcome, PoolError, PoolName, Progress, Request, Shortage, SpecError,
    Status, WhyShort, check_overcommit, mounts, outcome, overcommit, set_overcommit,
};
use crate::journal::{Journal, Knob, Restoration};
use crate::{Root, root};

// The file is strict TOML. Every mistake, including a misspelt key, is reported with its line and the allowed values:
// if a misspelt key were skipped, its pool would be missing without an error.
//
// ```toml
// shm_group = "dba"                # name or number
// shmmax = "64G"                   # raised to this, never lowered
// min_free_kbytes = "recommended"  # or a number; never lowered
//
// [[pages]]
// size = "2M"                      # or "default"
// count = 512
// node = 0                         # optional
// overcommit = 0                   # optional
//
// [[mounts]]
// size = "2M"
// owner = "group:dba"              # everybody (the default), root, user:NAME, group:NAME
// max_size = "1G"                  # optional
// min_size = "512M"                # optional: reserved for this mount
// max_inodes = 100                 # optional
// ```

/// A wanted state of the machine. Settings that the file does not name stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Pools.
    pub pages: Vec<WantedPages>,
    /// Mounts.
    pub mounts: Vec<WantedMount>,
    /// The group that may use hugetlb shared memory, by name or number.
    pub shm_group: Option<String>,
    /// Lower bound for the maximum size of a SysV segment.
    pub shmmax: Option<ByteSize>,
    /// Lower bound for `min_free_kbytes`.
    pub min_free_kbytes: Option<MinFree>,
}

/// One pool's wanted state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WantedPages {
    /// Page size of the pool.
    pub size: PoolName,
    /// The node; `None`: the whole machine.
    pub node: Option<NodeId>,
    /// Number of persistent pages.
    pub count: u64,
    /// Maximum number of surplus pages; `None`: unchanged.
    pub overcommit: Option<u64>,
}

/// One wanted mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedMount {
    /// The pool that provides its pages.
    pub size: PoolName,
    /// Owner of the mount.
    pub owner: Owner,
    /// Limits of the mount.
    pub limits: Limits,
}

/// A wanted `min_free_kbytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// [`crate::pool::recommended_min_free`].
    Recommended,
    /// A number of kB.
    KBytes(u64),
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WantedError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// Invalid keys or values.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Maximum size of the file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads the file at `path`.
pub fn read(path: &Path) -> Result<Wanted, WantedError> {
    let io = |source| WantedError::Io { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(io)?;
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(io)?;
    if text.len() as u64 > MAX_FILE {
        return Err(io(std::io::Error::other("it is longer than 1 MiB")));
    }
    parse(&text, path)
}

/// Parses the text of a file of wanted state; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Wanted, WantedError> {
    let wanted = toml_keys::read(path.display(), text, |keys| {
        let mut wanted = Wanted {
            shm_group: keys.optional("shm_group").map(|Group(group)| group),
            shmmax: keys.optional("shmmax"),
            min_free_kbytes: keys.optional("min_free_kbytes"),
            ..Wanted::default()
        };
        keys.tables("pages", |keys| pages(keys, &mut wanted.pages));
        keys.tables("mounts", |keys| wanted.mounts.extend(mount(keys)));
        wanted
    });
    Ok(wanted?)
}

fn pages(keys: &mut Reader<'_>, pages: &mut Vec<WantedPages>) {
    let (size, count) = (keys.required("size"), keys.required("count"));
    let (node, overcommit) = (keys.optional("node"), keys.optional("overcommit"));
    let (Some(size), Some(count)) = (size, count) else { return };
    for other in pages.iter().filter(|other| other.size == size) {
        keys.problem_here(match (other.node, node) {
            (None, None) => "this pool has an entry already",
            (None, Some(_)) | (Some(_), None) => {
                "this pool has an entry for the machine and one for a node; keep one kind"
            }
            (Some(a), Some(b)) if a == b => "this pool has an entry for this node already",
            _ if other.overcommit.is_some() && overcommit.is_some() => {
                "overcommit is of the whole machine; name it once for each size"
            }
            _ => continue,
        });
    }
    pages.push(WantedPages { size, node, count, overcommit });
}

fn mount(keys: &mut Reader<'_>) -> Option<WantedMount> {
    let (size, owner) = (keys.required("size"), keys.optional("owner"));
    let limits = Limits {
        size: keys.optional("max_size"),
        min_size: keys.optional("min_size"),
        inodes: keys.optional("max_inodes"),
    };
    Some(WantedMount { size: size?, owner: owner.unwrap_or(Owner::Everybody), limits })
}

impl Field for PoolName {
    fn allowed() -> String {
        "\"default\" or a page size like \"2M\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        parsed(value, &Self::allowed())
    }
}

impl Field for Owner {
    fn allowed() -> String {
        "\"everybody\", \"root\", \"user:NAME\" or \"group:NAME\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        parsed(value, &Self::allowed())
    }
}

struct Group(String);

impl Field for Group {
    fn allowed() -> String {
        "a group's name or number".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let number = || u32::read(value).map(|id| id.to_string());
        let name = value.as_str().map(str::to_string).ok_or(());
        name.or_else(|()| number()).map(Self).map_err(|_| wrong(value, &Self::allowed()))
    }
}

impl Field for MinFree {
    fn allowed() -> String {
        "\"recommended\" or a number of kB".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_str() {
            Some("recommended") => Ok(Self::Recommended),
            _ => u64::read(value).map(Self::KBytes).map_err(|_| wrong(value, &Self::allowed())),
        }
    }
}

// Differences between a wanted state and the machine. Reads only.

/// The changes that reach a wanted state; settings that already have their value are not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Pools to resize.
    pub requests: Vec<Request>,
    /// Changed overcommit limits: page size, current limit, wanted limit.
    pub overcommits: Vec<(PageSize, u64, u64)>,
    /// Other settings.
    pub settings: Vec<Raise>,
    /// Mounts to make.
    pub mounts: Vec<MountPlan>,
}

/// A setting and its wanted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raise {
    /// The setting.
    pub knob: Knob,
    /// Current value.
    pub now: u64,
    /// Wanted value.
    pub wanted: u64,
}

/// One difference, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The pool, setting or mount.
    pub what: String,
    /// Current state.
    pub now: String,
    /// Wanted state.
    pub wanted: String,
}

/// Compares the machine with the wanted state.
pub fn plan(root: &Root, wanted: &Wanted) -> Result<Plan, PoolError> {
    let mut plan = Plan::default();
    if !wanted.pages.is_empty() || !wanted.mounts.is_empty() {
        let status = Status::read(root)?;
        plan.pools(&status, wanted)?;
        plan.mounts(root, &status, wanted)?;
    }
    let number = |knob: &Knob| root::number(root, knob.path());
    if let Some(group) = &wanted.shm_group {
        let (knob, gid) = (Knob::hugetlb_shm_group(), mounts::group_id(root, group)?);
        let now = number(&knob)?;
        plan.setting(knob, now, gid.into(), now != u64::from(gid));
    }
    if let Some(bytes) = wanted.shmmax {
        let knob = Knob::shmmax();
        let now = number(&knob)?;
        plan.setting(knob, now, bytes.bytes(), now < bytes.bytes());
    }
    let kbytes = match wanted.min_free_kbytes {
        None => None,
        Some(MinFree::KBytes(kbytes)) => Some(kbytes),
        Some(MinFree::Recommended) => recommended_min_free(root)?,
    };
    if let Some(kbytes) = kbytes {
        let knob = Knob::min_free_kbytes();
        let now = number(&knob)?;
        plan.setting(knob, now, kbytes, now < kbytes);
    }
    Ok(plan)
}

impl Plan {
    /// Whether the machine is as wanted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All differences, in words.
    pub fn differences(&self) -> Vec<Difference> {
        let pools = self.requests.iter().map(|one| Difference {
            what: outcome::pool_name(one.size, one.node),
            now: format!("{} pages", one.before),
            wanted: format!("{} pages", one.target),
        });
        let limits = self.overcommits.iter().map(|(size, now, wanted)| Difference {
            what: format!("overcommit of {size} pages"),
            now: now.to_string(),
            wanted: wanted.to_string(),
        });
        let settings = self.settings.iter().map(|one| Difference {
            what: one.knob.to_string(),
            now: one.now.to_string(),
            wanted: one.wanted.to_string(),
        });
        let mounts = self.mounts.iter().map(|one| Difference {
            what: one.point.display().to_string(),
            now: "not mounted".to_string(),
            wanted: one.options(),
        });
        pools.chain(limits).chain(settings).chain(mounts).collect()
    }

    fn setting(&mut self, knob: Knob, now: u64, wanted: u64, differs: bool) {
        if differs {
            self.settings.push(Raise { knob, now, wanted });
        }
    }

    fn pools(&mut self, status: &Status, wanted: &Wanted) -> Result<(), PoolError> {
        let mut seen = Vec::new();
        for pages in &wanted.pages {
            let size = status.size(pages.size)?;
            // `default` may be a size that is also named explicitly.
            if seen.contains(&(size, pages.node)) {
                return Err(SpecError::Twice(size).into());
            }
            seen.push((size, pages.node));
            let before = status.persistent(size, pages.node)?;
            let target = crate::pool::Amount::Pages(pages.count).pages(size, before)?;
            if before != target {
                self.requests.push(Request { size, node: pages.node, before, target });
            }
            if let Some(limit) = pages.overcommit {
                check_overcommit(status, size, limit)?;
                let now = overcommit(status, size)?;
                if now != limit {
                    self.overcommits.push((size, now, limit));
                }
            }
        }
        Ok(())
    }

    fn mounts(&mut self, root: &Root, status: &Status, wanted: &Wanted) -> Result<(), PoolError> {
        if wanted.mounts.is_empty() {
            return Ok(());
        }
        let there = mounts::mounts(root)?;
        for mount in &wanted.mounts {
            let size = status.size(mount.size)?;
            let plan = mounts::plan(root, &mount.owner, size, mount.limits)?;
            if self.mounts.iter().any(|other| other.point == plan.point) {
                let point = plan.point.display();
                return Err(PoolError::Mount(format!(
                    "{point} is specified twice; specify it once"
                )));
            }
            if plan.check(&there)? == MountOutcome::New {
                self.mounts.push(plan);
            }
        }
        Ok(())
    }
}

// Reaching a wanted state, under one journal.

/// The results.
#[derive(Debug)]
pub struct Ensured {
    /// The result of each resized pool.
    pub outcomes: Vec<Outcome>,
    /// The restored settings, if the call was stopped, or if a pool fell short with all-or-nothing.
    pub given_back: Option<Vec<Restoration>>,
    /// Changes of an earlier superpage process that was killed; they were undone first.
    pub inherited: Vec<Restoration>,
}

impl Ensured {
    /// Whether the machine is as wanted.
    pub fn is_full(&self) -> bool {
        self.given_back.is_none() && self.outcomes.iter().all(Outcome::is_full)
    }
}

/// Executes a plan: first settings, which cost nothing and may help the pools grow; then pools; then mounts. An error
/// restores all changes. Mounts are made on the real machine only.
pub fn carry_out(
    root: &Root,
    journal_dir: &Path,
    plan: &Plan,
    options: Options,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Ensured, PoolError> {
    let nothing = || Ensured { outcomes: Vec::new(), given_back: None, inherited: Vec::new() };
    if plan.is_empty() {
        return Ok(nothing());
    }
    if options.headroom == HeadroomRule::Check && !plan.requests.is_empty() {
        check_headroom(root, &Status::read(root)?, &plan.requests)?;
    }
    let mut journal = Journal::open(journal_dir, root)?;
    let inherited = journal.inherited().to_vec();
    for setting in &plan.settings {
        journal.set(&setting.knob, &setting.wanted.to_string())?;
    }
    for (size, _, limit) in &plan.overcommits {
        set_overcommit(root, &mut journal, *size, *limit)?;
    }
    let outcomes = resize_all(root, &mut journal, &plan.requests, options, progress)?;
    let stopped = outcomes.iter().any(|one| one.why_short == Some(WhyShort::Stopped));
    let short = outcomes.iter().any(|one| !one.is_full());
    if stopped || (short && options.shortage == Shortage::GiveBack) {
        return Ok(Ensured { outcomes, given_back: Some(journal.restore()), inherited });
    }
    make_mounts(plan)?;
    journal.keep()?;
    Ok(Ensured { outcomes, given_back: None, inherited })
}

/// Makes all mounts, or none.
fn make_mounts(plan: &Plan) -> Result<(), PoolError> {
    for (index, mount) in plan.mounts.iter().enumerate() {
        if let Err(error) = mounts::make(mount) {
            for made in &plan.mounts[..index] {
                let _ = mounts::remove(&made.point);
            }
            return Err(error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod wanted_tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Wanted, String> {
        parse(text, Path::new("pools.toml")).map_err(|error| error.to_string())
    }

    const WHOLE: &str = r#"
shm_group = 54
shmmax = "64G"
min_free_kbytes = "recommended"
[[pages]]
size = "2M"
count = 512
overcommit = 0
[[pages]]
size = "1G"
count = 2
node = 1
[[mounts]]
size = "default"
owner = "group:dba"
max_size = "1G"
"#;

    #[test]
    fn reads_every_key() {
        let wanted = read(WHOLE).unwrap();
        assert_eq!((wanted.pages.len(), wanted.mounts.len()), (2, 1));
        assert_eq!(wanted.pages[1].node, Some(NodeId(1)));
        assert_eq!(wanted.mounts[0].owner, Owner::Group("dba".into()));
        assert_eq!(wanted.shm_group.as_deref(), Some("54"));
        assert_eq!(wanted.min_free_kbytes, Some(MinFree::Recommended));
        assert_eq!(read("").unwrap(), Wanted::default());
    }

    #[test]
    fn mistakes_name_file_line_and_what_would_be_right() {
        for (text, parts) in [
            (
                "\n[[pages]]\nsise = \"2M\"",
                &["pools.toml:3", "pages.sise", "`size`", "overcommit"][..],
            ),
            ("pages = 3", &["pools.toml:1"]),
            ("\nhugepages = 3", &["pools.toml:2", "hugepages", "pages", "mounts"]),
            ("[[pages]]\nsize = \"2M\"", &["pools.toml:1", "pages.count: is missing"]),
            ("[[pages]]\nsize = \"3M\"\ncount = 1", &["pools.toml:2", "invalid page size `3M`"]),
            ("[[pages]]\nsize = \"2M\"\ncount = -1", &["pools.toml:3", "-1", "from 0"]),
            ("[[pages]]\nsize = \"2M\"\ncount = \"x\"", &["pools.toml:3"]),
            ("[[pages]]\nsize = \"2M\"\ncount = 99999999999999999999", &["pools.toml:3"]),
            ("min_free_kbytes = \"lots\"", &["pools.toml:1", "recommended"]),
            ("shm_group = -1", &["pools.toml:1", "a group's name or number"]),
            ("[[mounts]]\nsize = \"2M\"\nowner = \"me\"", &["pools.toml:3", "group:NAME"]),
            ("[[pages]\nsize", &["pools.toml:1"]),
            ("[[pages]]\nsize = \"2M", &["pools.toml:2"]),
            (
                "[[pages]]\nsize = \"2M\"\ncount = 1\n[[pages]]\nsize = \"2M\"\ncount = 2",
                &["pools.toml:4", "already"],
            ),
            (
                "[[pages]]\nsize=\"2M\"\ncount=1\n[[pages]]\nsize=\"2M\"\ncount=2\nnode=0",
                &["pools.toml:4", "keep one kind"],
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
            assert!(error.lines().all(|line| line.starts_with("pools.toml:")), "{error}");
        }
        assert!(read(&"[".repeat(100_000)).is_err(), "nested too deep");
        let all = read("[[pages]]\nsize = 2\ncount = -1\n[[mounts]]\nowner = \"me\"").unwrap_err();
        assert_eq!(all.lines().count(), 4, "{all}");
    }

    proptest! {
        #[test]
        fn never_panics(cut in 0..WHOLE.len(), junk in "\\PC{0,20}") {
            let _ = read(&WHOLE[..cut]);
            let _ = read(&format!("{}{junk}{}", &WHOLE[..cut], &WHOLE[cut..]));
        }
    }
}
