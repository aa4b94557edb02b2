//! Environment variables that the C library removed because this program's file has capabilities.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

/// Variables that the C library removed from our environment because our file has capabilities (`AT_SECURE`,
/// getauxval(3): LD_LIBRARY_PATH, LD_PRELOAD, TMPDIR, GLIBC_TUNABLES and others; ld.so(8)). Callers restore them for
/// the programs that they start, which do not get the capabilities. The list is empty if the file is set-user-ID,
/// because then the environment is another user's.
pub fn removed_variables() -> &'static [(OsString, OsString)] {
    static REMOVED: OnceLock<Vec<(OsString, OsString)>> = OnceLock::new();
    REMOVED.get_or_init(|| {
        // SAFETY: these calls have no preconditions and cannot fail.
        let has_capabilities = unsafe {
            let is_own = libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid();
            is_own && libc::getauxval(libc::AT_SECURE) != 0
        };
        let text = if has_capabilities { initial_environment() } else { Vec::new() };
        variables(&text).filter(|(name, _)| std::env::var_os(name).is_none()).collect()
    })
}

/// The initial environment of this process.
fn initial_environment() -> Vec<u8> {
    // While this process is not dumpable, root owns its files in /proc. Making it dumpable exposes nothing, because
    // other processes need our capabilities to trace us (ptrace(2)). SAFETY: reads and sets a flag of this process;
    // only 0 and 1 can be set.
    unsafe {
        let before = libc::prctl(libc::PR_GET_DUMPABLE);
        libc::prctl(libc::PR_SET_DUMPABLE, 1);
        let text = fs::read("/proc/self/environ").unwrap_or_default();
        libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(before == 1));
        text
    }
}

/// Splits the text of `/proc/PID/environ` into variables.
fn variables(text: &[u8]) -> impl Iterator<Item = (OsString, OsString)> {
    text.split(|byte| *byte == 0).filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let (name, value) = (&line[..at], &line[at + 1..]);
        Some((OsStr::from_bytes(name).to_owned(), OsStr::from_bytes(value).to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_variable_is_left_out() {
        let found: Vec<_> = variables(b"A=1\0junk\0=x\0B=\0C=a=b\0\0").collect();
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
            .collect();
        assert_eq!(found, [("A", "1"), ("B", ""), ("C", "a=b")]);
    }
}
