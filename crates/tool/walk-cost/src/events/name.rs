//! Normalizes the event names that perf prints.

/// Returns the event's name in lower case, without PMU and modifiers: `cpu_core/DTLB_LOAD_MISSES.WALK_ACTIVE/u` becomes
/// `dtlb_load_misses.walk_active`.
pub fn normal(printed: &str) -> String {
    let name = printed.trim();
    // `pmu/name,term=1/modifiers`: the event's name is in a `name=` term, or else is the first
    // term.
    let name = match name.split_once('/') {
        Some((_, inside)) => {
            let inside = inside.rsplit_once('/').map_or(inside, |(terms, _)| terms);
            let named = inside.split(',').find_map(|term| term.strip_prefix("name="));
            named.unwrap_or_else(|| inside.split(',').next().unwrap_or(inside))
        }
        None => name,
    };
    // Modifiers are letters after the last colon. A tracepoint also has a colon, but followed by other letters.
    let name = match name.rsplit_once(':') {
        Some((head, modifiers)) if is_modifiers(modifiers) => head,
        _ => name,
    };
    name.trim_matches('\'').to_ascii_lowercase()
}

/// Returns the modifiers after the name: `u` for user mode only, `k` for the kernel.
pub fn modifiers(printed: &str) -> &str {
    let after = printed.trim().rsplit_once(['/', ':']);
    after.map_or("", |(_, modifiers)| if is_modifiers(modifiers) { modifiers } else { "" })
}

/// Whether all letters are modifiers of perf-list(1), "EVENT MODIFIERS".
fn is_modifiers(text: &str) -> bool {
    text.len() <= 8 && text.chars().all(|c| "ukhIGHpPSDWebR".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_for_all_that_perf_prints() {
        for (printed, name) in [
            ("cycles", "cycles"),
            ("cycles:u", "cycles"),
            ("cycles:ukH", "cycles"),
            ("cpu/cycles/u", "cycles"),
            ("cpu_core/cycles/", "cycles"),
            (
                "cpu/event=0x8,umask=0x10,name=DTLB_LOAD_MISSES.WALK_PENDING/",
                "dtlb_load_misses.walk_pending",
            ),
            ("DTLB_LOAD_MISSES.WALK_ACTIVE:u", "dtlb_load_misses.walk_active"),
            ("exceptions:page_fault_user", "exceptions:page_fault_user"),
            ("dTLB-load-misses:pp", "dtlb-load-misses"),
            ("", ""),
            ("/", ""),
        ] {
            assert_eq!(normal(printed), name, "{printed}");
        }
        assert_eq!(modifiers("cycles:u"), "u");
        assert_eq!(modifiers("cpu/cycles/uk"), "uk");
        assert_eq!(modifiers("sched:sched_switch"), "");
        assert_eq!(modifiers("cycles"), "");
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_a_name(text in ".{0,60}") {
            let _ = (normal(&text), modifiers(&text));
        }
    }
}
