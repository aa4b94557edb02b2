//! A sweep's directory: its plan, and the lines of its results.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

fn room() -> &'static PathBuf {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(|| {
        let room = tempfile::tempdir().unwrap().keep();
        fs::create_dir(room.join("groups")).unwrap();
        room
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let store = lab::sweep::Store::at(room());
    if *which == b'p' {
        fs::write(room().join("plan.json"), rest).unwrap();
        let _ = store.plan();
    } else {
        fs::write(room().join("groups/x.jsonl"), rest).unwrap();
        let _ = store.read();
    }
});
