//! Files of /proc about the whole machine. The first byte says which.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let path = Path::new("/proc/x");
    match which {
        b'm' => drop(host::parse::meminfo(&text, path)),
        b'v' => drop(host::parse::vmstat(&text, path)),
        b'c' => drop(host::parse::cpuinfo(&text, path)),
        b'p' => drop(host::parse::pagetypeinfo(&text, path)),
        b'b' => drop(host::parse::buddyinfo(&text, path)),
        b'z' => drop(host::parse::zoneinfo(&text, path)),
        b'f' => drop(host::pool::mounts::parse(&text, path)),
        b'h' => drop(host::Choice::parse(&text)),
        _ => {}
    }
});
