//! Output of perf: perf.data and perf stat of every form. Also opreport and lines of key=value.
#![no_main]

use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if data.starts_with(b"PERFILE2") || data.starts_with(b"2ELIFREP") {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(data).unwrap();
        file.rewind().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let _ = walk_cost::from::read(&path);
    } else {
        let _ = walk_cost::from::read_text(&String::from_utf8_lossy(data), Path::new("x"));
    }
});
