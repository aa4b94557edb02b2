//! Looking up users by name, and switching to a user.
//!
//! # Safety
//! The calls fill buffers and structures that are live locals of the stated length. `User::become_user` runs between
//! fork and exec, so it makes only plain system calls, on memory prepared before the fork.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::SysError;

/// A user according to the name service switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// User id.
    pub id: u32,
    /// Primary group id.
    pub group: u32,
    /// All group ids.
    pub groups: Vec<u32>,
    /// Its home directory.
    pub home: PathBuf,
}

impl User {
    /// `int getpwnam_r(const char *name, ...)` and `getgrouplist(3)`; `None`: no such user.
    ///
    /// # Errors
    /// The name service fails.
    pub fn find(name: &str) -> Result<Option<Self>, SysError> {
        let Ok(asked) = CString::new(name) else { return Ok(None) };
        let mut buffer = vec![0; 16 << 10];
        // SAFETY: see the module; the strings that `entry` points to lie in `buffer`.
        let (found, home) = unsafe {
            let mut entry = std::mem::zeroed::<libc::passwd>();
            let mut there = std::ptr::null_mut();
            let (text, length) = (buffer.as_mut_ptr(), buffer.len());
            match libc::getpwnam_r(asked.as_ptr(), &mut entry, text, length, &mut there) {
                _ if !there.is_null() => {}
                // getpwnam(3): these errors mean "not found".
                0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => return Ok(None),
                error => {
                    let error = io::Error::from_raw_os_error(error);
                    return Err(SysError::new("getpwnam_r", name, error));
                }
            }
            (entry, OsStr::from_bytes(CStr::from_ptr(entry.pw_dir).to_bytes()).into())
        };
        let mut groups = vec![0; 1 << 10];
        let mut count = groups.len() as libc::c_int;
        // SAFETY: see "Safety" of this module.
        let listed = unsafe {
            libc::getgrouplist(asked.as_ptr(), found.pw_gid, groups.as_mut_ptr(), &mut count)
        };
        // A user in more than 1024 groups gets the first 1024.
        groups.truncate(if listed < 0 { groups.len() } else { count.max(0) as usize });
        Ok(Some(Self {
            name: name.to_string(),
            id: found.pw_uid,
            group: found.pw_gid,
            groups,
            home,
        }))
    }

    /// `int getpwuid_r(uid_t uid, ...)`: the name of a user id; `None`: the id has no name, or the name service fails.
    /// May ask a server, so callers keep the answer.
    pub fn name_of(id: u32) -> Option<String> {
        let mut buffer = vec![0; 16 << 10];
        // SAFETY: see the module; the strings that `entry` points to lie in `buffer`, which outlives the copy.
        unsafe {
            let mut entry = std::mem::zeroed::<libc::passwd>();
            let mut there = std::ptr::null_mut();
            let (text, length) = (buffer.as_mut_ptr(), buffer.len());
            libc::getpwuid_r(id, &mut entry, text, length, &mut there);
            if there.is_null() {
                return None;
            }
            Some(CStr::from_ptr(entry.pw_name).to_string_lossy().into_owned())
        }
    }

    /// `setgroups(2)`, `setgid(2)`, `setuid(2)` in a forked child, irreversibly. Does nothing if this process already
    /// runs as the user. Changing the user clears the parent-death signal (prctl(2)), so this function sets it again.
    pub(crate) fn become_user(&self) -> io::Result<()> {
        let done = |code| if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: see "Safety" of this module.
        unsafe {
            if libc::getuid() == self.id && libc::geteuid() == self.id {
                return Ok(());
            }
            let mut signal: libc::c_int = 0;
            done(libc::prctl(libc::PR_GET_PDEATHSIG, &mut signal))?;
            done(libc::setgroups(self.groups.len(), self.groups.as_ptr()))?;
            done(libc::setgid(self.group))?;
            done(libc::setuid(self.id))?;
            done(libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    use crate::spawn::{ChildSetup, prepare};

    #[test]
    fn users_are_found_by_name() {
        let root = User::find("root").unwrap().expect("every system has root");
        assert_eq!((root.id, root.group), (0, 0));
        assert!(root.groups.contains(&0) && root.home.is_absolute(), "{root:?}");
        assert_eq!(User::find("no such user").unwrap(), None);
        assert_eq!(User::find("a\0b").unwrap(), None);
        assert_eq!(User::name_of(0).as_deref(), Some("root"));
        assert_eq!(User::name_of(u32::MAX - 7), None);
    }

    #[test]
    fn a_child_becomes_the_user() {
        testkit::require!(testkit::is_root(), "not root: nobody else can be become");
        let user = User::find("nobody").unwrap();
        testkit::require!(user.is_some(), "no user `nobody`");
        let user = user.expect("just asked");
        let mut command = Command::new("sh");
        command.args(["-c", "id -u; id -g"]);
        let ids = format!("{}\n{}\n", user.id, user.group);
        prepare(&mut command, ChildSetup { user: Some(user), ..ChildSetup::default() });
        assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), ids);
    }
}
