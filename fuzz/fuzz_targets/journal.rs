//! The journal of changed settings, undone below a directory that stands for /. Nothing outside of it
//! may be written, whatever the journal names.
#![no_main]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use host::Root;
use host::journal::{FILE, restore_orphans};

const BOOT: &str = "proc/sys/kernel/random/boot_id";
const BESIDE: &str = "beside";
const KEPT: &str = "kept";

fn room() -> &'static PathBuf {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(|| {
        let room = tempfile::tempdir().unwrap().keep();
        let boot = room.join("root").join(BOOT);
        fs::create_dir_all(boot.parent().unwrap()).unwrap();
        fs::write(boot, "boot\n").unwrap();
        fs::create_dir_all(room.join("root/proc/sys/vm")).unwrap();
        fs::create_dir(room.join("journal")).unwrap();
        fs::set_permissions(room.join("journal"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(room.join(BESIDE), KEPT).unwrap();
        room
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let room = room();
    let (root, journal) = (room.join("root"), room.join("journal"));
    fs::write(root.join("proc/sys/vm/nr_overcommit_hugepages"), "8\n").unwrap();
    fs::write(journal.join(FILE), data).unwrap();
    let _ = restore_orphans(&journal, &Root::at(&root));
    assert_eq!(fs::read_to_string(room.join(BESIDE)).unwrap(), KEPT);
    for entry in fs::read_dir(&journal).unwrap() {
        let _ = fs::remove_file(entry.unwrap().path());
    }
});
