//! Reasons, kinds and switches as text. Pure.

use host::coverage::MappingKind;
use services::why::{Mode, Reason, Setting, ShmemMode};

/// A reason in a few words.
pub fn reason(reason: Reason) -> String {
    let text = match reason {
        Reason::OnSuperpages => "on superpages",
        Reason::Pool => "on pages of a hugetlb pool",
        Reason::NeverTouched => "never touched",
        Reason::ZeroPage => "only read, zero page",
        Reason::Kernel => "mapping of the kernel",
        Reason::Device => "memory of a device or driver",
        Reason::TooSmall => "mapping holds no aligned superpage",
        Reason::AtEdge => "unaligned edge of the mapping",
        Reason::File => "file",
        Reason::OffForProcess => "THP off for the process",
        Reason::Refused => "MADV_NOHUGEPAGE",
        Reason::OffForAll => "THP off",
        Reason::NotAdvised => "not advised",
        Reason::AdviceUnknown => "advice unknown",
        Reason::SharedOff { mode } => return format!("shared memory, THP {}", shared(mode)),
        Reason::SharedNotAdvised { .. } => "shared memory, not advised",
        Reason::SharedAdviceUnknown { .. } => "shared memory, advice unknown",
        Reason::Userfault => "registered with userfaultfd",
        Reason::Swapped { .. } => "swapped out",
        Reason::TooSparse { least } => return format!("fewer than {least} pages resident"),
        Reason::Forked { .. } => "shared after a fork",
        Reason::ScanDisabled => "khugepaged scans nothing",
        Reason::NoContiguity { .. } => "no free superpage",
        Reason::NotYet => "not yet scanned by khugepaged",
        Reason::Unknown { setting } => return format!("unknown: {} unreadable", what(setting)),
    };
    text.to_string()
}

/// What decides, and what would change it; `None` where nothing can be changed.
pub fn remedy(reason: Reason) -> Option<String> {
    let text = match reason {
        Reason::OffForProcess => {
            "prctl(PR_SET_THP_DISABLE), which children inherit: called by the program, by systemd \
             (MemoryTHP=, from systemd 260 on) or by a container runtime"
        }
        Reason::Refused => {
            "the program asked for base pages; the kernel sets this for stacks of threads"
        }
        Reason::OffForAll => {
            "transparent_hugepage/enabled, or `enabled` of the superpage size, is never"
        }
        Reason::NotAdvised => {
            "transparent_hugepage/enabled is madvise: `superpage run` advises, or set it to always"
        }
        Reason::AdviceUnknown | Reason::SharedAdviceUnknown { .. } => {
            "only advised memory gets superpages; --smaps reads whether this memory is advised"
        }
        Reason::SharedOff { .. } => {
            "transparent_hugepage/shmem_enabled, or huge= of the tmpfs mount"
        }
        Reason::SharedNotAdvised { .. } => "MADV_HUGEPAGE, as by `superpage run --shm`",
        Reason::Userfault => "a program handles its faults page by page",
        Reason::Swapped { most } => {
            return Some(format!("khugepaged/max_ptes_swap is {most} pages of a superpage"));
        }
        Reason::TooSparse { .. } => "khugepaged/max_ptes_none",
        Reason::Forked { most } => {
            return Some(format!("khugepaged/max_ptes_shared is {most} pages of a superpage"));
        }
        Reason::ScanDisabled => "khugepaged/pages_to_scan is 0",
        Reason::NoContiguity { compacts: Some(false) } => {
            "memory is fragmented, and khugepaged/defrag is 0"
        }
        Reason::NoContiguity { .. } => "memory is fragmented; khugepaged compacts it when it scans",
        Reason::NotYet => "no obstacle; `superpage run` does not wait for khugepaged",
        _ => return None,
    };
    Some(text.to_string())
}

/// A kind of memory.
pub fn kind(kind: MappingKind) -> &'static str {
    match kind {
        MappingKind::Anonymous => "anonymous",
        MappingKind::Heap => "heap",
        MappingKind::Stack => "stack",
        MappingKind::Shmem => "shared",
        MappingKind::File => "file",
        MappingKind::Hugetlb => "hugetlb",
        MappingKind::Special => "kernel",
    }
}

/// A mode of THP.
pub fn mode(mode: Option<Mode>) -> &'static str {
    match mode {
        Some(Mode::Always) => "always",
        Some(Mode::Madvise) => "madvise",
        Some(Mode::Never) => "never",
        None => "unknown",
    }
}

fn shared(mode: ShmemMode) -> &'static str {
    match mode {
        ShmemMode::Always => "always",
        ShmemMode::WithinSize => "within_size",
        ShmemMode::Advise => "advise",
        ShmemMode::Never => "never",
    }
}

fn what(setting: Setting) -> &'static str {
    match setting {
        Setting::Anonymous => "transparent_hugepage/enabled",
        Setting::Shared => "the switch of its file system",
        Setting::Khugepaged => "khugepaged's limits",
    }
}
