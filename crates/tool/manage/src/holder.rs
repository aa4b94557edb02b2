//! The pid of the process that holds the lock of a file, in the file: for messages alone.

use std::fs::File;
use std::io::{Read, Write};

use units::Pid;

/// Maximum length of the line in bytes.
const MAX_LINE: u64 = 32;

/// The pid in a locked file; `None`: the holder has not written it yet.
pub fn holder(file: &File) -> Option<Pid> {
    let mut text = String::new();
    file.take(MAX_LINE).read_to_string(&mut text).ok()?;
    text.trim_end().parse().ok().filter(|pid| *pid > 0).map(Pid)
}

/// Writes this process's pid. A full file system must not prevent what the lock is for.
pub fn write_own(file: &mut File) {
    let line = format!("{}\n", sys::param::own_pid());
    let _ = file.set_len(0).and_then(|()| file.write_all(line.as_bytes()));
}
