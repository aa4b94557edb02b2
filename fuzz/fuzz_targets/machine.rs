//! Files of /proc about the whole machine. The first byte says which.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let path = Path::new("/proc/x");
    match which {
        b'm' => drop(machine::parse::meminfo(&text, path)),
        b'v' => drop(machine::parse::vmstat(&text, path)),
        b'c' => drop(machine::parse::cpuinfo(&text, path)),
        b'p' => drop(machine::parse::pagetypeinfo(&text, path)),
        b'b' => drop(machine::parse::buddyinfo(&text, path)),
        b'z' => drop(machine::parse::zoneinfo(&text, path)),
        b'f' => drop(machine::pool::mounts::parse(&text, path)),
        b'h' => drop(machine::Choice::parse(&text)),
        _ => {}
    }
});
