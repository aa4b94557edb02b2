//! prctl settings of this process that its children inherit.

use crate::SysError;

/// `PR_GET_THP_DISABLE`; `PR_SET_THP_DISABLE` is in libc (`include/uapi/linux/prctl.h`).
const PR_GET_THP_DISABLE: libc::c_int = 42;
/// Linux 6.18; no crate has it yet (`include/uapi/linux/prctl.h`).
const PR_THP_DISABLE_EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// THP control of a process. Inherited by fork and kept by exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpControl {
    /// The system's THP settings apply.
    System,
    /// No THP, whatever the system's settings; `MADV_COLLAPSE` fails too.
    Disabled,
    /// THP only for memory advised with `MADV_HUGEPAGE` (or collapsed), whatever the system's settings. Linux 6.18.
    OnlyAdvised,
}

/// `prctl(PR_SET_THP_DISABLE, ...)`. Linux 3.15; `OnlyAdvised` 6.18 (`EINVAL` before).
pub fn set_thp(control: ThpControl) -> Result<(), SysError> {
    let (disable, flags) = match control {
        ThpControl::System => (0, 0),
        ThpControl::Disabled => (1, 0),
        ThpControl::OnlyAdvised => (1, PR_THP_DISABLE_EXCEPT_ADVISED),
    };
    let disable: libc::c_ulong = disable;
    // SAFETY: all arguments are numbers.
    match unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            disable,
            flags,
            0 as libc::c_ulong,
            0 as libc::c_ulong,
        )
    } {
        0 => Ok(()),
        _ => Err(SysError::last("prctl(PR_SET_THP_DISABLE)", format!("{control:?}"))),
    }
}

/// `prctl(PR_GET_THP_DISABLE)`: reads back the current control.
pub fn thp() -> Result<ThpControl, SysError> {
    let zero: libc::c_ulong = 0;
    // SAFETY: all arguments are numbers.
    match unsafe { libc::prctl(PR_GET_THP_DISABLE, zero, zero, zero, zero) } {
        0 => Ok(ThpControl::System),
        1 => Ok(ThpControl::Disabled),
        3 => Ok(ThpControl::OnlyAdvised),
        _ => Err(SysError::last("prctl(PR_GET_THP_DISABLE)", "this process")),
    }
}

/// Whether the kernel supports [`ThpControl::OnlyAdvised`], tested by setting and restoring the control of this
/// process.
pub fn has_only_advised() -> bool {
    let before = thp().unwrap_or(ThpControl::System);
    let has = before == ThpControl::OnlyAdvised || set_thp(ThpControl::OnlyAdvised).is_ok();
    let _ = set_thp(before);
    has
}

/// `prctl(PR_SET_CHILD_SUBREAPER)`: orphaned descendants become our children. Linux 3.4.
pub fn become_subreaper() -> Result<(), SysError> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|errno| SysError::new("prctl(PR_SET_CHILD_SUBREAPER)", "this process", errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A single test, because all tests of a process share the setting.
    #[test]
    fn what_is_set_is_read_back() {
        let before = thp().unwrap();
        for control in [ThpControl::Disabled, ThpControl::OnlyAdvised, ThpControl::System] {
            match set_thp(control) {
                Err(error) if control == ThpControl::OnlyAdvised => {
                    testkit::skipped!("this kernel has no PR_THP_DISABLE_EXCEPT_ADVISED: {error}");
                    continue;
                }
                result => result.unwrap(),
            }
            assert_eq!(thp().unwrap(), control);
            has_only_advised();
            assert_eq!(thp().unwrap(), control);
        }
        set_thp(before).unwrap();
    }
}
