//! Pure tier: no parser panics, whatever the bytes; well-formed input is read back the same.

extern crate superpage_host as host;

use std::path::Path;

use host::coverage::Coverage;
use host::journal::{Knob, canonical};
use host::process::{self, Maps, Smaps};
use host::{Choice, FreeContiguity, Root, ZoneFree, parse};
use proptest::prelude::*;
use units::{NodeId, PageSize, Pid};

/// Text that is nearly valid: lines of real files, cut and mixed with noise.
fn nearly() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("Node 0, zone   Normal    735    580".to_string()),
        Just("Node    0, zone   Normal, type    Unmovable >100000     1".to_string()),
        Just("Number of blocks type     Unmovable      Movable".to_string()),
        Just("Page block order: 9".to_string()),
        Just("MemTotal:       24684084 kB".to_string()),
        Just("Hugepagesize:       2048 kB".to_string()),
        Just("thp_fault_alloc 12".to_string()),
        Just("processor\t: 0".to_string()),
        Just("TLB size\t: 3584 4K pages".to_string()),
        Just("00400000-00c00000 rw-p 00000000 00:00 0 [heap]".to_string()),
        Just("AnonHugePages:      2048 kB".to_string()),
        Just("KernelPageSize:        4 kB".to_string()),
        Just("Anonymous:  18014398509481983 kB".to_string()),
        Just("VmRSS:\t    1736 kB".to_string()),
        Just("25 24 0:23 / /dev/shm rw - tmpfs tmpfs rw".to_string()),
        Just("1 (a) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 77 0".to_string()),
        "[a-zA-Z0-9:() ,>-]{0,40}",
        "\\PC{0,20}",
    ];
    let cut = (line, 0usize..60).prop_map(|(line, at)| line.chars().take(at).collect::<String>());
    prop::collection::vec(cut, 0..12).prop_map(|lines| lines.join("\n"))
}

fn try_all(text: &str) {
    let path = Path::new("/x");
    let _ = parse::buddyinfo(text, path).map(|zones| {
        FreeContiguity::from_zones(
            &zones,
            PageSize::new(4096).unwrap(),
            PageSize::new(1 << 21).unwrap(),
        )
    });
    let _ = parse::zoneinfo(text, path);
    let _ = parse::pagetypeinfo(text, path);
    let _ = parse::meminfo(text, path);
    let _ = parse::vmstat(text, path);
    let _ = parse::cpuinfo(text, path);
    let _ = process::parse::stat(text, path);
    let _ = process::parse::status(text, path);
    let _ = process::parse::mountinfo(text, path);
    let _ = Choice::parse(text);
    let _ = canonical(text);
    let _ = Knob::new(text);
}

proptest! {
    #[test]
    fn no_text_parser_panics(noise in "\\PC*", text in nearly()) {
        try_all(&noise);
        try_all(&text);
    }

    #[test]
    fn no_stream_parser_panics_or_runs_on(
        bytes in prop::collection::vec(any::<u8>(), 0..400), text in nearly()
    ) {
        for bytes in [bytes.as_slice(), text.as_bytes()] {
            let lines = bytes.split(|byte| *byte == b'\n').count();
            prop_assert!(Maps::from_reader(bytes, "/x").take(lines + 1).count() <= lines);
            prop_assert!(Smaps::from_reader(bytes, "/x").take(lines + 1).count() <= lines);
        }
    }

    #[test]
    fn whole_machines_of_noise_are_read(text in nearly()) {
        let dir = tempfile::tempdir().unwrap();
        let thp = "sys/kernel/mm/transparent_hugepage";
        for name in ["proc/meminfo", "proc/vmstat", "proc/7/smaps", "proc/7/mountinfo",
            "proc/7/task/7/children", "proc/7/stat",
            &format!("{thp}/hpage_pmd_size"), &format!("{thp}/hugepages-64kB/enabled")] {
            let file = dir.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, &text).unwrap();
        }
        let root = Root::at(dir.path());
        let _ = host::Snapshot::read(&root);
        let _ = process::tree(&root, Pid(7));
        let _ = Coverage::of_process(&root, Pid(7));
    }

    #[test]
    fn contiguity_never_overflows(blocks in prop::collection::vec(any::<u64>(), 0..80), order in 0u32..63) {
        let zones = [ZoneFree { node: NodeId(0), zone: "Normal".into(), blocks }];
        let size = |order: u32| PageSize::new(1u64 << order).unwrap();
        let _ = FreeContiguity::from_zones(&zones, size(12), size(order));
        let _ = FreeContiguity::from_zones(&zones, size(order), size(12));
    }

    #[test]
    fn a_canonical_value_stays_as_it_is(text in "\\PC{0,40}") {
        let once = canonical(&text);
        prop_assume!(!once.contains('['));
        prop_assert_eq!(canonical(&once), once);
    }

    #[test]
    fn what_a_knob_accepts_stays_below_the_known_directories(path in "(/sys|/proc|)(/[a-z._]{0,9}){0,8}") {
        if let Ok(knob) = Knob::new(&path) {
            let known = ["/sys/kernel/mm/transparent_hugepage/", "/sys/kernel/mm/hugepages/",
                "/sys/devices/system/node/node", "/proc/sys/vm/"];
            prop_assert!(known.iter().any(|dir| knob.path().starts_with(dir)));
            prop_assert!(!knob.path().contains(".."));
        }
    }
}
