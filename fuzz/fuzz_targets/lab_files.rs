//! Files of the laboratory: machines of `lab faults`, workload tables, buddyinfo and pagetypeinfo as a
//! target, wanted sweeps. The first byte says which.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let mut characters = text.chars();
    let Some(which) = characters.next() else { return };
    let rest = characters.as_str();
    match which {
        'f' => drop(fault_scaling::Machine::from_toml(rest, "x.toml")),
        't' => drop(workload_streams::Tables::parse(rest)),
        's' => drop(lab::sweep::Wanted::from_toml("x.toml", rest)),
        'b' => {
            let (buddyinfo, pagetypeinfo) = match rest.split_once('\0') {
                Some((one, other)) => (one, Some(other)),
                None => (rest, None),
            };
            if let Ok(blocks) = mm_sim::fragment::FreeBlocks::parse(buddyinfo, pagetypeinfo, None) {
                let _ = blocks.frames_free();
            }
        }
        _ => {}
    }
});
