//! hugetlbfs mounts: existing mounts, mounts to make, and configuration lines that make mounts
//! permanent.

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use super::{PoolError, exact};
use crate::{ReadError, Root, root};

// `/proc/self/mounts`: the hugetlbfs mounts this process sees.
//
// Lines have any length (overlayfs lists all its layers), sources may contain slashes or be empty, and spaces, tabs,
// newlines, `#` and backslashes in names are escaped in octal (`\040`).

/// One hugetlbfs mount. An option is `None` if it has its default value, because the kernel then does not print it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Mount point.
    pub point: PathBuf,
    /// The mount's source, which means nothing to hugetlbfs.
    pub source: String,
    /// Page size of the pool that provides its pages.
    pub page_size: Option<PageSize>,
    /// Maximum bytes.
    pub size: Option<ByteSize>,
    /// Bytes reserved at mount time.
    pub min_size: Option<ByteSize>,
    /// Maximum number of files.
    pub inodes: Option<u64>,
    /// Its root's owner; `None`: 0.
    pub uid: Option<u32>,
    /// Its root's group; `None`: 0.
    pub gid: Option<u32>,
    /// Its root's permissions; `None`: 0755.
    pub mode: Option<u32>,
    /// Mounted read-only.
    pub read_only: bool,
    /// Every option as printed.
    pub options: String,
}

/// Reads the hugetlbfs mounts, in mount order.
pub fn mounts(root: &Root) -> Result<Vec<Mount>, ReadError> {
    let path = "/proc/self/mounts";
    parse(&root.read(path)?, &root.path(path))
}

/// Reads the text of `/proc/self/mounts`; errors name `path`.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Mount>, ReadError> {
    let mut mounts = Vec::new();
    for (line, bad) in root::numbered(text, path) {
        // Split at single spaces: the source may be empty.
        let words: Vec<&str> = line.split(' ').collect();
        let [source, point, kind, options, ..] = words.as_slice() else {
            return Err(bad("`source point type options 0 0`"));
        };
        if *kind != "hugetlbfs" {
            continue;
        }
        let mut mount = Mount {
            point: PathBuf::from(unescape(point)),
            source: unescape(source),
            options: (*options).to_string(),
            ..Mount::default()
        };
        for option in options.split(',') {
            mount.set(option).ok_or_else(|| bad("hugetlbfs options such as pagesize=2M"))?;
        }
        mounts.push(mount);
    }
    Ok(mounts)
}

impl Mount {
    fn set(&mut self, option: &str) -> Option<()> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let bytes = || value.parse::<ByteSize>().ok();
        match key {
            "pagesize" => self.page_size = Some(PageSize::new(bytes()?.bytes()).ok()?),
            "size" => self.size = Some(bytes()?),
            "min_size" => self.min_size = Some(bytes()?),
            "nr_inodes" => self.inodes = Some(value.parse().ok()?),
            "uid" => self.uid = Some(value.parse().ok()?),
            "gid" => self.gid = Some(value.parse().ok()?),
            "mode" => self.mode = Some(u32::from_str_radix(value, 8).ok()?),
            "ro" => self.read_only = true,
            _ => {}
        }
        Some(())
    }
}

/// Decodes `\040` and similar octal escapes to bytes; other text stays unchanged.
fn unescape(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| u8::from_str_radix(digits, 8).ok())?
        });
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

// User and group names are looked up in the files only. Names known only to a directory service must be given as
// numbers: looking them up would need the C library's name service in a program that may run at boot.

/// Returns a user's id; `name` may be a number.
pub fn user_id(root: &Root, name: &str) -> Result<u32, PoolError> {
    look_up(root, name, "user", "/etc/passwd")
}

/// Returns a group's id; `name` may be a number.
pub fn group_id(root: &Root, name: &str) -> Result<u32, PoolError> {
    look_up(root, name, "group", "/etc/group")
}

fn look_up(
    root: &Root,
    name: &str,
    kind: &'static str,
    file: &'static str,
) -> Result<u32, PoolError> {
    if !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit()) {
        let unknown = |_| PoolError::NoSuchName { kind, name: name.to_string(), file };
        return name.parse().map_err(unknown);
    }
    let text = root.read(file)?;
    let id = text.lines().find_map(|line| {
        let mut words = line.split(':');
        (words.next() == Some(name)).then(|| words.nth(1)?.parse().ok())?
    });
    id.ok_or_else(|| PoolError::NoSuchName { kind, name: name.chars().take(80).collect(), file })
}

// Decides mount point and options before anything is made. No I/O except the lookup of names.

/// Directory of all mounts: hugeadm's, which scripts written for hugeadm expect.
pub const MOUNTS_DIR: &str = "/var/lib/hugetlbfs";

/// Owner of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Root: `pagesize-2MB`, mode 0770.
    Root,
    /// All users: `global/pagesize-2MB`, mode 1777.
    Everybody,
    /// One user, by name or number: `user/NAME/pagesize-2MB`, mode 0700.
    User(String),
    /// One group, by name or number: `group/NAME/pagesize-2MB`, mode 0070.
    Group(String),
}

/// Limits of a mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Maximum number of bytes; rounded down to whole pages.
    pub size: Option<ByteSize>,
    /// Bytes reserved for the mount when it is made; rounded up to whole pages.
    pub min_size: Option<ByteSize>,
    /// Maximum number of files.
    pub inodes: Option<u64>,
}

/// A mount to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPlan {
    /// Mount point.
    pub point: PathBuf,
    /// Page size of the pool.
    pub page_size: PageSize,
    /// Maximum number of bytes, in whole pages.
    pub size: Option<ByteSize>,
    /// Bytes reserved when the mount is made, in whole pages. The mount fails if the pool has fewer free pages.
    pub min_size: Option<ByteSize>,
    /// Maximum number of files.
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
        Owner::User(name) => (format!("/user/{name}"), user_id(root, name)?, 0, 0o700),
        Owner::Group(name) => (format!("/group/{name}"), 0, group_id(root, name)?, 0o070),
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
    let reserved = |asked: ByteSize| match size.count(asked.bytes()).checked_mul(size.bytes()) {
        None | Some(0) => Err(PoolError::Mount(format!(
            "a mount cannot reserve {asked}; use at least {}, or leave the minimum away",
            exact(size.bytes())
        ))),
        Some(bytes) => Ok(ByteSize(bytes)),
    };
    let min_size = limits.min_size.map(reserved).transpose()?;
    if let (Some(least), Some(most)) = (min_size, bytes)
        && least > most
    {
        return Err(PoolError::Mount(format!(
            "a mount of at most {most} cannot reserve {least}; use a minimum of {most} or less"
        )));
    }
    let inodes = limits.inodes;
    Ok(MountPlan { point, page_size: size, size: bytes, min_size, inodes, uid, gid, mode })
}

impl MountPlan {
    /// The options that mount(8) and mount(2) take.
    pub fn options(&self) -> String {
        let mut options = format!("pagesize={}", exact(self.page_size.bytes()));
        if let Some(size) = self.size {
            options += &format!(",size={}", size.bytes());
        }
        if let Some(least) = self.min_size {
            options += &format!(",min_size={}", least.bytes());
        }
        if let Some(inodes) = self.inodes {
            options += &format!(",nr_inodes={inodes}");
        }
        options + &format!(",uid={},gid={},mode={:04o}", self.uid, self.gid, self.mode)
    }

    /// Describes how an existing mount at the same place differs from this plan; `None` if it does
    /// not.
    pub fn differs_from(&self, mount: &Mount) -> Option<String> {
        let known = |what: Option<ByteSize>| what.map_or("no limit".into(), |b| b.to_string());
        let differs = |what: &str, has: String, wants: String| {
            (has != wants).then(|| format!("{what} is {has} instead of {wants}"))
        };
        let size = |size: Option<PageSize>| size.map_or("unknown".into(), |size| size.to_string());
        let inodes = |n: Option<u64>| n.map_or("no limit".to_string(), |n| n.to_string());
        let id = |id: Option<u32>| id.unwrap_or(0).to_string();
        let mode = |mode: u32| format!("{mode:04o}");
        let least = |size: Option<ByteSize>| size.map_or("none".into(), |bytes| bytes.to_string());
        differs("the page size", size(mount.page_size), size(Some(self.page_size)))
            .or_else(|| differs("its size", known(mount.size), known(self.size)))
            .or_else(|| differs("the reserved size", least(mount.min_size), least(self.min_size)))
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

// Making and removing mounts. A mount is not a setting that a journal could restore: it exists or not, and making an
// existing mount again changes nothing.

/// The result of making a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountOutcome {
    /// The mount is new.
    New,
    /// The mount existed, with the same options.
    AlreadyThere,
}

impl MountPlan {
    /// Predicts the result of [`make`]; an error if something else is mounted there. Writes nothing.
    pub fn check(&self, mounts: &[Mount]) -> Result<MountOutcome, PoolError> {
        // The last mount at a place hides earlier ones.
        let Some(there) = mounts.iter().rev().find(|mount| mount.point == self.point) else {
            return Ok(MountOutcome::New);
        };
        self.differs_from(there).map_or(Ok(MountOutcome::AlreadyThere), |how| {
            let point = self.point.display();
            Err(PoolError::Mount(format!(
                "{point} is mounted already, but {how}; `superpage pool mounts remove {point}` \
                 removes it"
            )))
        })
    }
}

/// Makes the mount, and the directories above it. Needs root. Works only on the real machine.
pub fn make(plan: &MountPlan) -> Result<MountOutcome, PoolError> {
    if plan.check(&mounts(&Root::real())?)? == MountOutcome::AlreadyThere {
        return Ok(MountOutcome::AlreadyThere);
    }
    let failed = |source| PoolError::action("create a directory", &plan.point, source);
    let is_new = !plan.point.exists();
    make_directories(&plan.point).map_err(failed)?;
    let mounted = sys::mount::mount_hugetlbfs(&plan.point, &plan.options());
    if mounted.is_err() && is_new {
        // Removes only the directory that this call made, and only if empty.
        let _ = fs::remove_dir(&plan.point);
    }
    mounted?;
    Ok(MountOutcome::New)
}

/// Makes a directory and its missing parents with mode 0755 regardless of the umask: the mount's owner may not be the
/// caller.
fn make_directories(point: &Path) -> io::Result<()> {
    const MODE: u32 = 0o755;
    let missing = point.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && !dir.is_dir());
    for dir in missing.collect::<Vec<_>>().into_iter().rev() {
        match DirBuilder::new().mode(MODE).create(dir) {
            Ok(()) => fs::set_permissions(dir, Permissions::from_mode(MODE))?,
            // Another process made the directory meanwhile; its mode stays.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Unmounts `point`, which must be a hugetlbfs mount. Then removes its directory, and the parents in [`MOUNTS_DIR`]
/// that are now empty.
pub fn remove(point: &Path) -> Result<(), PoolError> {
    let mounts = mounts(&Root::real())?;
    if !mounts.iter().any(|mount| mount.point == point) {
        let list: Vec<String> =
            mounts.iter().map(|mount| mount.point.display().to_string()).collect();
        let list = if list.is_empty() { "none".to_string() } else { list.join(", ") };
        let point = point.display();
        return Err(PoolError::Mount(format!("{point} is not a hugetlbfs mount; mounted: {list}")));
    }
    sys::mount::unmount(point)?;
    let ours = |dir: &&Path| *dir != Path::new(MOUNTS_DIR) && dir.starts_with(MOUNTS_DIR);
    for dir in std::iter::once(point).chain(point.ancestors().skip(1).take_while(ours)) {
        // The directory is not empty, or busy: keep it.
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

// Lines that restore a mount after a reboot. Returned as text; no file is edited.

/// A line for `/etc/fstab`.
pub fn fstab_line(plan: &MountPlan) -> String {
    let point: String = plan.point.to_string_lossy().chars().map(fstab_char).collect();
    format!("none {point} hugetlbfs nosuid,nodev,{} 0 0\n", plan.options())
}

/// A systemd mount unit: its file name, which systemd derives from the mount point, and its text.
pub fn systemd_mount(plan: &MountPlan) -> (String, String) {
    let name = format!("{}.mount", escape(&plan.point.to_string_lossy()));
    // `%` begins a specifier in unit files.
    let point = plan.point.to_string_lossy().replace('%', "%%");
    // Reserved pages must be in the pool before the mount: from the kernel command line or a sysctl.
    let sized = if plan.min_size.is_some() { " systemd-sysctl.service" } else { "" };
    let text = format!(
        "[Unit]\nDescription=hugetlbfs, pages of {}\nDefaultDependencies=no\n\
         After=systemd-modules-load.service{sized}\nBefore=local-fs.target\n\n\
         [Mount]\nWhat=none\nWhere={point}\nType=hugetlbfs\nOptions=nosuid,nodev,{}\n\n\
         [Install]\nWantedBy=local-fs.target\n",
        plan.page_size,
        plan.options()
    );
    (name, text)
}

fn fstab_char(c: char) -> String {
    match c {
        ' ' | '\t' | '\n' | '\\' | '#' => format!("\\{:03o}", c as u32),
        c => c.to_string(),
    }
}

/// A path in systemd's unit name notation (systemd-escape --path): `/` is `-`, and any character except letters,
/// digits, `_`, `.` and `:` is `\x2d`.
pub(crate) fn escape(path: &str) -> String {
    let mut name = String::new();
    for (index, byte) in path.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if index == 0 => name += "\\x2e",
            b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':') => {
                name.push(char::from(b));
            }
            b => name += &format!("\\x{b:02x}"),
        }
    }
    name
}

#[cfg(test)]
mod table_tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<Mount> {
        parse(text, Path::new("/proc/self/mounts")).unwrap()
    }

    #[test]
    fn reads_what_kernels_print() {
        let long = format!("overlay / overlay rw,lowerdir={} 0 0\n", "/layer/".repeat(20_000));
        let text = long
            + " /empty tmpfs rw 0 0\n\
               none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
               dev/with/slash /mnt/a\\040b\\134c hugetlbfs \
               rw,uid=3,gid=4,mode=1770,nr_inodes=10,pagesize=1024M,size=3221225472,min_size=0 0 0\n\
               none /ro hugetlbfs ro,new_option=x 0 0\n";
        let found = read(&text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].page_size, PageSize::new(2 << 20).ok());
        assert_eq!((found[0].size, found[0].mode), (None, None));
        let second = &found[1];
        assert_eq!(second.point, Path::new("/mnt/a b\\c"));
        assert_eq!(second.source, "dev/with/slash");
        assert_eq!((second.uid, second.gid, second.mode), (Some(3), Some(4), Some(0o1770)));
        assert_eq!(second.size, Some(ByteSize::gib(3)));
        assert_eq!((second.min_size, second.inodes), (Some(ByteSize(0)), Some(10)));
        assert!(found[2].read_only && found[2].page_size.is_none());
    }

    #[test]
    fn a_malformed_line_is_named() {
        let error = parse("a b c\n", Path::new("m")).unwrap_err().to_string();
        assert!(error.contains("m:1"), "{error}");
        let bad = "none /x hugetlbfs pagesize=banana 0 0";
        let error = parse(bad, Path::new("m")).unwrap_err().to_string();
        assert!(error.contains("banana"), "{error}");
    }

    #[test]
    fn only_octal_is_unescaped() {
        for (word, plain) in
            [("\\040", " "), ("\\9", "\\9"), ("\\", "\\"), ("\\777", "\\777"), ("\\+12", "\\+12")]
        {
            assert_eq!(unescape(word), plain);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(.{0,40}( hugetlbfs [a-z=,0-9]{0,30})?\n){0,5}") {
            let _ = parse(&text, Path::new("m"));
        }
    }
}

#[cfg(test)]
mod act_tests {
    use std::process::Command;

    use super::*;

    #[test]
    #[ignore = "started by all_may_enter_what_is_made, with another umask"]
    fn child_that_makes_directories() {
        let place = std::env::var("SUPERPAGE_TEST_PLACE").unwrap();
        make_directories(&Path::new(&place).join("there/new/newer")).unwrap();
    }

    #[test]
    fn all_may_enter_what_is_made() {
        let place = tempfile::tempdir().unwrap();
        let there = place.path().join("there");
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o711)).unwrap();
        let name = "pool::mounts::act_tests::child_that_makes_directories";
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 077; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        shell.args(["--ignored", "--exact", name]).env("SUPERPAGE_TEST_PLACE", place.path());
        assert!(shell.output().unwrap().status.success());
        let mode = |dir: &str| there.join(dir).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(""), mode("new"), mode("new/newer")], [0o711, 0o755, 0o755]);
        fs::write(there.join("file"), "").unwrap();
        assert!(make_directories(&there.join("file/below")).is_err());
        assert!(make_directories(&there.join("file")).is_err());
    }
}

#[cfg(test)]
mod persist_tests {
    use super::*;
    use crate::Root;
    use crate::pool::mounts::{Limits, Owner, plan};
    use units::{ByteSize, PageSize};

    fn planned(owner: Owner, size: u64, limit: Option<ByteSize>) -> Result<MountPlan, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\nann:x:7:8::/:\n")
            .unwrap();
        std::fs::write(dir.path().join("etc/group"), "dba:x:54:ann\n").unwrap();
        let limits = Limits { size: limit, ..Limits::default() };
        plan(&Root::at(dir.path()), &owner, PageSize::new(size).unwrap(), limits)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn places_modes_and_limits() {
        for (owner, point, options) in [
            (Owner::Root, "pagesize-2MB", "uid=0,gid=0,mode=0770"),
            (Owner::Everybody, "global/pagesize-2MB", "uid=0,gid=0,mode=1777"),
            (Owner::User("ann".into()), "user/ann/pagesize-2MB", "uid=7,gid=0,mode=0700"),
            (Owner::Group("dba".into()), "group/dba/pagesize-2MB", "uid=0,gid=54,mode=0070"),
            (Owner::User("12".into()), "user/12/pagesize-2MB", "uid=12,gid=0,mode=0700"),
        ] {
            let plan = planned(owner, 2 << 20, Some(ByteSize(5 << 20))).unwrap();
            assert_eq!(plan.point.to_str().unwrap(), format!("/var/lib/hugetlbfs/{point}"));
            assert_eq!(plan.options(), format!("pagesize=2M,size=4194304,{options}"));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = planned(Owner::Everybody, 1 << 30, Some(ByteSize::mib(4))).unwrap_err();
        assert!(error.contains("at least 1G"), "{error}");
        let error = planned(Owner::User("bob".into()), 2 << 20, None).unwrap_err();
        assert!(error.contains("unknown user `bob` (not in /etc/passwd)"), "{error}");
        assert!(planned(Owner::User("../../etc".into()), 2 << 20, None).is_err());
        assert!(planned(Owner::Group(String::new()), 2 << 20, None).is_err());
    }

    #[test]
    fn a_mount_that_is_there_is_recognised_by_what_the_kernel_prints() {
        use crate::pool::mounts::{MountOutcome, parse};
        let plan = planned(Owner::Everybody, 1 << 30, Some(ByteSize::gib(3))).unwrap();
        let table = |options: &str| {
            let line = format!("none {} hugetlbfs rw,{options} 0 0\n", plan.point.display());
            parse(&line, std::path::Path::new("m")).unwrap()
        };
        assert_eq!(plan.check(&[]).unwrap(), MountOutcome::New);
        let same = table("mode=1777,pagesize=1024M,size=3221225472");
        assert_eq!(plan.check(&same).unwrap(), MountOutcome::AlreadyThere);
        let error = plan.check(&table("mode=1777,pagesize=1024M")).unwrap_err().to_string();
        assert!(error.contains("its size is no limit instead of 3 GiB"), "{error}");
    }

    #[test]
    fn lines_that_make_it_stay() {
        let plan = planned(Owner::Everybody, 2 << 20, None).unwrap();
        assert_eq!(
            fstab_line(&plan),
            "none /var/lib/hugetlbfs/global/pagesize-2MB hugetlbfs \
             nosuid,nodev,pagesize=2M,uid=0,gid=0,mode=1777 0 0\n"
        );
        let (name, text) = systemd_mount(&plan);
        assert_eq!(name, "var-lib-hugetlbfs-global-pagesize\\x2d2MB.mount");
        assert!(text.contains("Where=/var/lib/hugetlbfs/global/pagesize-2MB\n"));
    }
}
