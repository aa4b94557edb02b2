//! Reasons of `superpage manage` in words.

use ::manage::{Forbidden, Ineligible, Kept, Skip};

/// Seconds up to which calls are short: ten times what they take on an idle machine.
const SHORT_CALL: f64 = 0.01;

/// What the calls that would make superpages mean for the threads of the program; `None`: there would be none.
pub fn may_wait(superpages: u64) -> Option<&'static str> {
    (superpages > 0).then_some(
        "threads that touch a superpage while it is made wait for the call: less than 1 ms on an idle machine; up to 0.4 s \
         was seen where all CPUs were busy",
    )
}

/// What a longest call of this many seconds means for the threads of the program; `None` if it was short.
pub fn may_have_waited(longest: f64) -> Option<String> {
    (longest > SHORT_CALL).then(|| {
        format!(
            "threads that touched a superpage while it was made or split may have waited up to {}, the longest call; on an \
             idle machine a call takes less than 1 ms",
            report::format::seconds(longest)
        )
    })
}

/// What forbids superpages, with the remedy.
pub fn forbidden(what: Forbidden) -> &'static str {
    match what {
        Forbidden::OffForProcess => {
            "THP are off for the process (prctl PR_SET_THP_DISABLE, or MemoryTHP= of its unit); only the process or its \
             unit can change that"
        }
        Forbidden::OffForMachine => {
            "THP are off for the machine (transparent_hugepage/enabled is never); --override thp-never"
        }
        Forbidden::Userfaultfd => {
            "it has a userfaultfd: a program serves its page faults; --override userfaultfd"
        }
        Forbidden::UserfaultfdUnknown => {
            "whether it has a userfaultfd is unknown: /proc/PID/fd cannot be read"
        }
    }
}

/// Why memory cannot be on superpages.
pub fn ineligible(why: Ineligible) -> &'static str {
    match why {
        Ineligible::File => "of files",
        Ineligible::Stack => "of the stack",
        Ineligible::Kernel => "of the kernel",
        Ineligible::Pool => "of hugetlb pools",
        Ineligible::AtEdge => "in no whole superpage of its mapping",
        Ineligible::Unaligned => "of shared memory at unaligned addresses",
        Ineligible::ReadOnly => "not writable",
    }
}

/// Why memory stays on base pages.
pub fn skip(why: Skip) -> &'static str {
    match why {
        Skip::Sparse => "filling it would add more memory than allowed (--fill)",
        Skip::Swapped => "it has pages in swap",
        Skip::SharedByFork => "other processes share its pages after a fork",
        Skip::Refused => "the kernel refuses (EINVAL): MADV_NOHUGEPAGE, or the mapping changed",
        Skip::NoSuperpage => "no superpage is free (ENOMEM): memory is fragmented or full",
        Skip::Busy => "the kernel held a page of it (EAGAIN): try again",
        Skip::Gone => "unmapped meanwhile",
        Skip::NoTime => "the time was over (--within)",
        Skip::NoMemory => {
            "too little memory is available (--headroom, or the control group's limit)"
        }
        Skip::Realtime => "a realtime task is running, which could hold up the process",
        Skip::Locked => "locked in memory (mlock): it could not be split again",
        Skip::Unrecorded => {
            "no record could be written to /run/superpage/manage, so it could not be undone"
        }
        Skip::Denied => "not permitted (EPERM): CAP_SYS_NICE",
        Skip::Failed => "another error of the kernel",
        Skip::Interrupted => "interrupted",
    }
}

/// Why a superpage is not split.
pub fn kept(why: Kept) -> &'static str {
    match why {
        Kept::Shared => "several processes map it: try again after a fork's child has ended",
        Kept::Busy => "the kernel had it locked: try again",
        Kept::Locked => {
            "locked in memory (mlock): the kernel splits it only once the program unlocks it"
        }
        Kept::Denied => "not permitted (EPERM): CAP_SYS_NICE",
        Kept::NoTime => "the time was over (--within)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_how_much_memory_superpages_may_add() {
        let guide = include_str!("../../../../../docs/guide/manage.md");
        let command = <crate::Cli as clap::CommandFactory>::command();
        let manage = command.find_subcommand("manage").unwrap();
        let fill = manage.get_arguments().find(|one| one.get_id() == "fill").unwrap();
        let default = fill.get_default_values()[0].to_str().unwrap();
        assert_eq!(operations::jobs::arms::share(default), Ok(::manage::FILL));
        let share = |share: f64| format!("{} %", (100.0 * share).round());
        for (command, most) in
            [("manage --once", ::manage::FILL), ("compare --pid", ::manage::FILL_COMPARED)]
        {
            let row = format!("| `{command}` | {} of", share(most));
            assert!(guide.contains(&row), "the guide has no row {row}");
        }
    }

    #[test]
    fn a_long_call_is_called_a_wait_of_the_programs_threads() {
        assert!(may_wait(0).is_none() && may_wait(1).is_some());
        assert_eq!(may_have_waited(0.001), None);
        let said = may_have_waited(1.407).unwrap();
        assert!(said.contains(&report::format::seconds(1.407)), "{said}");
    }
}
