//! Files of /proc/PID: maps, smaps, status, stat, mountinfo. The first byte says which.
#![no_main]

use std::path::Path;

use host::process::{Maps, Smaps, parse};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let path = Path::new("/proc/1/x");
    match which {
        b'm' => Maps::from_reader(rest, path).take_while(Result::is_ok).for_each(drop),
        b's' => Smaps::from_reader(rest, path).take_while(Result::is_ok).for_each(drop),
        b'u' => drop(parse::status(&text, path)),
        b't' => drop(parse::stat(&text, path)),
        b'i' => drop(parse::mountinfo(&text, path)),
        _ => {}
    }
});
