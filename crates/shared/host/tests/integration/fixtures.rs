//! Fixture tier: captured and hand-made machines, read through a root directory.

extern crate superpage_host as host;

use host::coverage::{self, Coverage, MappingKind};
use host::process::{self, Maps};
use host::{Choice, FreeContiguity, Hypervisor, Root, Snapshot};
use units::{ByteSize, NodeId, PageSize, Pid};

fn root(name: &str) -> Root {
    Root::at(format!("{}/tests/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))).with_page_size(kib(4))
}

fn kib(n: u64) -> PageSize {
    PageSize::new(n << 10).unwrap()
}

fn because(snapshot: &Snapshot, what: &str) -> String {
    let reason = snapshot.unknown.iter().find(|unknown| unknown.what.contains(what));
    reason.unwrap_or_else(|| panic!("no reason for {what}: {:#?}", snapshot.unknown)).why.clone()
}

#[test]
fn a_captured_machine_is_read_whole() {
    let snapshot = Snapshot::read(&root("zen4-6.18"));
    let missing: Vec<_> = snapshot.unknown.iter().map(|unknown| unknown.what.as_str()).collect();
    assert_eq!(missing, ["cpu.nominal_mhz", "tlb"], "everything else was captured");
    let cpu = snapshot.cpu.as_ref().unwrap();
    assert_eq!(cpu.model.as_deref(), Some("AMD EPYC"));
    assert_eq!((cpu.online, cpu.reported_mhz, cpu.tlb_entries), (Some(2), Some(2596), Some(3584)));
    assert_eq!(cpu.hypervisor, Hypervisor::Present(None));
    let memory = snapshot.memory.as_ref().unwrap();
    assert_eq!(memory.total, Some(ByteSize::kib(24684084)));
    assert_eq!(memory.default_hugepage, Some(kib(2048)));
    let thp = snapshot.thp.as_ref().unwrap();
    assert!(thp.enabled.as_ref().unwrap().is("madvise"));
    assert_eq!(thp.pmd_size, Some(kib(2048)));
    assert_eq!(thp.sizes.len(), 10 - 1, "16 KiB to 2 MiB, and shmem's 8 KiB if there");
    assert!(thp.sizes[&kib(64)].stats.contains_key("anon_fault_alloc"));
    assert_eq!(thp.khugepaged.max_ptes_none, Some(511));
    let giant = &snapshot.hugetlb.sizes[&kib(1 << 20)];
    assert_eq!((giant.total, giant.demote_size), (Some(0), Some(kib(2048))));
    assert_eq!(snapshot.hugetlb.sizes[&kib(2048)].demote_size, None);
    let types = snapshot.page_types.as_ref().unwrap();
    assert_eq!((types.block_order, types.free.len(), types.blocks.len()), (Some(9), 15, 3));
    let zones = snapshot.zones.as_ref().unwrap();
    assert!(zones.iter().any(|z| z.zone == "Normal" && z.min > Some(0) && z.high > z.low));
    assert!(snapshot.counters.as_ref().unwrap().get("thp_fault_alloc").is_some());
    let json = serde_json::to_string(&snapshot).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
}

#[test]
fn two_nodes_have_their_own_pools_and_capped_counts_say_so() {
    let snapshot = Snapshot::read(&root("two-nodes"));
    let pool = &snapshot.hugetlb.sizes[&kib(2048)];
    assert_eq!(
        (pool.total, pool.persistent(), pool.unreserved()),
        (Some(512), Some(500), Some(200))
    );
    let share = |node| &snapshot.hugetlb.nodes[&NodeId(node)][&kib(2048)];
    assert_eq!((share(0).total, share(1).free), (Some(400), Some(10)));
    let cpu = snapshot.cpu.as_ref().unwrap();
    assert_eq!((cpu.online, cpu.nominal_mhz), (Some(4), Some(2000)));
    assert_eq!(cpu.hypervisor, Hypervisor::Absent);
    let capped: Vec<_> = snapshot.page_types.as_ref().unwrap().free.iter().collect();
    assert_eq!((capped[2].blocks[0], capped[2].lower_bounds.as_slice()), (100_000, [0].as_slice()));
    assert_eq!(snapshot.page_types.unwrap().blocks[1].counts["Movable"], 15_900);
}

#[test]
fn contiguity_counts_blocks_of_at_least_a_superpage() {
    let free = FreeContiguity::read(&root("two-nodes"), kib(2048)).unwrap();
    // Orders 9 and 10 over all zones: 1 + 2*3, 2 + 2*400, 6 + 2*1000, 0 + 2*2.
    assert_eq!(free.superpages, Some(7 + 802 + 2006 + 4));
    assert_eq!(free.in_superpages, Some(ByteSize::mib(2 * 2819)));
    assert!(free.free > free.in_superpages.unwrap() && free.ratio().unwrap() < 1.0);
    let giant = FreeContiguity::read(&root("two-nodes"), kib(1 << 20)).unwrap();
    assert_eq!((giant.superpages, giant.in_superpages), (None, None), "unknown is not zero");
    let arm = root("arm64-64k").with_page_size(kib(64));
    let free = FreeContiguity::read(&arm, kib(512 << 10)).unwrap();
    assert_eq!(free.superpages, Some(9));
    let smaller = FreeContiguity::read(&arm, kib(2048)).unwrap();
    assert_eq!(smaller.superpages, Some(741 + 1920));
}

#[test]
fn kernels_that_lack_things_say_so() {
    let old = Snapshot::read(&root("old-4.19"));
    assert!(old.thp.as_ref().unwrap().sizes.is_empty());
    assert_eq!(old.thp.as_ref().unwrap().shrink_underused, None);
    assert!(because(&old, "hugepages-*kB").contains("no mTHP"));
    assert!(because(&old, "shrink_underused").contains("cannot read"));
    assert!(because(&old, "pagetypeinfo").contains("cannot read"));
    let none = Snapshot::read(&root("no-thp"));
    assert_eq!(none.thp, None);
    assert!(because(&none, "transparent_hugepage").contains("built without"));
    let empty = Snapshot::read(&root("no-such-machine"));
    assert!(empty.kernel.is_none() && empty.memory.is_none() && empty.free.is_none());
    assert!(empty.unknown.len() > 8);
}

#[test]
fn a_64k_machine_has_other_sizes() {
    let snapshot = Snapshot::read(&root("arm64-64k").with_page_size(kib(64)));
    let thp = snapshot.thp.unwrap();
    assert_eq!(thp.pmd_size, Some(kib(512 << 10)));
    assert_eq!(thp.sizes.keys().copied().collect::<Vec<_>>(), [kib(2048), kib(512 << 10)]);
    let cpu = snapshot.cpu.unwrap();
    assert_eq!(cpu.model.as_deref(), Some("Arm implementer 0x41 part 0xd0c"));
    assert_eq!((cpu.hypervisor, cpu.online), (Hypervisor::Unknown, Some(2)));
    assert_eq!(snapshot.hugetlb.sizes.len(), 3);
    let coverage = Coverage::of_process(&root("arm64-64k"), Pid(77)).unwrap();
    assert_eq!((coverage.anon_thp, coverage.eligible), (ByteSize::mib(512), ByteSize::mib(768)));
    assert_eq!(coverage.anon_ratio(), Some(2.0 / 3.0), "256 MiB holds no whole 512 MiB page");
    assert_eq!(coverage.swapped, ByteSize::kib(64));
}

#[test]
fn coverage_of_a_captured_thp_process() {
    let root = root("zen4-6.18");
    let coverage = Coverage::of_process(&root, Pid(4201)).unwrap();
    assert_eq!(coverage.anon_thp, ByteSize::mib(40));
    assert_eq!(coverage.shmem_pmd, ByteSize::mib(4));
    assert_eq!(coverage.shmem_base, ByteSize::mib(3));
    assert_eq!(coverage.hugetlb(), ByteSize(0));
    assert_eq!(coverage.superpage_bytes(), ByteSize::mib(44));
    let mappings = coverage::per_mapping(&root, Pid(4201)).unwrap();
    let advised = mappings.iter().find(|m| m.coverage.anon_thp.bytes() > 0).unwrap();
    assert_eq!(advised.kind, MappingKind::Anonymous);
    assert!(advised.vm_flags.split(' ').any(|flag| flag == "hg"));
    let memfd = mappings.iter().find(|m| m.name.starts_with("/memfd:cache")).unwrap();
    assert_eq!((memfd.kind, memfd.coverage.shmem_pmd), (MappingKind::Shmem, ByteSize::mib(4)));
    assert_eq!(mappings.iter().map(|m| m.coverage.clone()).sum::<Coverage>(), coverage);
    let resident = process::resident(&root, Pid(4201)).unwrap();
    let rss = resident.total().unwrap().bytes() as f64;
    assert!((coverage.resident().bytes() as f64 / rss - 1.0).abs() < 0.2, "pruned libraries only");
    assert_eq!((resident.thp_enabled, resident.name.as_str()), (Some(true), "python3"));
    assert!(resident.start_ticks > Some(0) && resident.peak_rss >= resident.rss);
}

#[test]
fn coverage_of_a_captured_hugetlb_process() {
    let coverage = Coverage::of_process(&root("zen4-6.18"), Pid(4202)).unwrap();
    // Shared after fork: the 10 MiB private mapping and the one page that the child read.
    assert_eq!(coverage.hugetlb_shared[&kib(2048)], ByteSize::mib(12));
    assert_eq!(coverage.hugetlb_private[&kib(2048)], ByteSize::mib(2));
    assert_eq!(coverage.superpage_bytes(), ByteSize::mib(14));
    assert!(coverage.eligible >= ByteSize::mib(14) && coverage.anon_ratio() > Some(0.5));
    let json = serde_json::to_value(&coverage).unwrap();
    assert_eq!(json["hugetlb_private"]["2097152"], 2 << 20);
    assert_eq!(serde_json::from_value::<Coverage>(json).unwrap(), coverage);
    let maps = Maps::open(&root("zen4-6.18"), Pid(4202)).unwrap();
    let maps: Vec<_> = maps.collect::<Result<_, _>>().unwrap();
    assert!(maps.iter().any(|mapping| mapping.name == "[stack]"));
    assert!(maps.iter().any(|mapping| mapping.name == "/anon_hugepage (deleted)"));
}

#[test]
fn old_smaps_and_no_thp_are_judged_by_what_they_have() {
    let coverage = Coverage::of_process(&root("old-4.19"), Pid(100)).unwrap();
    assert_eq!((coverage.anon_thp, coverage.anon_base), (ByteSize::mib(2), ByteSize::mib(2)));
    assert_eq!((coverage.ratio(), coverage.anon_ratio()), (Some(0.5), Some(0.5)));
    assert_eq!(Coverage::default().ratio(), None);
    assert_eq!(Coverage::default().anon_ratio(), None);
}

#[test]
fn the_tree_by_children_files_leaves_out_zombies_and_the_vanished() {
    let tree = process::tree(&root("old-4.19"), Pid(100));
    assert_eq!(tree, [Pid(100), Pid(101), Pid(103)]);
    assert_eq!(process::tree(&root("old-4.19"), Pid(12345)), []);
    let stat = process::stat(&root("old-4.19"), Pid(100)).unwrap();
    assert_eq!((stat.name.as_str(), stat.start_ticks), ("a b) (c", 5000));
    assert_eq!(
        process::tree(&root("old-4.19"), Pid(1)),
        [],
        "the fixture's parents have no parent"
    );
}

#[test]
fn the_tree_by_parents_finds_the_same() {
    let fixture = root("old-4.19");
    let dir = tempfile::tempdir().unwrap();
    for pid in 100..=104 {
        let proc = dir.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&proc).unwrap();
        std::fs::copy(fixture.path(&format!("/proc/{pid}/stat")), proc.join("stat")).unwrap();
    }
    let tree = process::tree(&Root::at(dir.path()), Pid(100));
    assert_eq!(tree, [Pid(100), Pid(101), Pid(103)]);
}

#[test]
fn counters_that_exist_in_only_one_reading_are_left_out() {
    let now = host::Counters::read(&root("two-nodes")).unwrap();
    let mut earlier = now.clone();
    earlier.0.insert("thp_fault_fallback".into(), 2);
    earlier.0.insert("allocstall_movable".into(), 1);
    earlier.0.insert("compact_gone".into(), 1);
    earlier.0.insert("pgfault".into(), 5000);
    earlier.0.remove("compact_stall");
    let deltas = now.since(&earlier);
    assert_eq!(deltas.thp_fault_fallback(), Some(10));
    assert_eq!(deltas.allocstall(), Some(3));
    assert_eq!(deltas.compact_stall(), None);
    assert_eq!((deltas.get("compact_gone"), deltas.get("pgfault")), (None, None));
    assert_eq!(host::CounterDeltas::default().allocstall(), None);
}

#[test]
fn errors_name_path_line_and_text() {
    let path = std::path::Path::new("/fx/proc/buddyinfo");
    let text = "Node 0, zone DMA 1 2\nNode 0, zone DMA32 1 x 3\n";
    let error = host::parse::buddyinfo(text, path).unwrap_err().to_string();
    assert!(error.starts_with("/fx/proc/buddyinfo:2: expected "), "{error}");
    assert!(error.contains("Node 0, zone DMA32 1 x 3"), "{error}");
    let text = "MemTotal: 12 parsecs\n";
    let error = host::parse::meminfo(text, path).unwrap_err().to_string();
    assert!(error.contains(":1:") && error.contains("12 parsecs"), "{error}");
    let smaps = "400000-c00000 rw-p 00000000 00:00 0\nRss: many kB\n";
    let error = process::Smaps::from_reader(smaps.as_bytes(), "/p").next().unwrap().unwrap_err();
    assert!(error.to_string().starts_with("/p:2: expected a number of kB"), "{error}");
    let gone = process::resident(&root("no-thp"), Pid(5)).unwrap_err();
    assert!(gone.is_gone() && gone.to_string().contains("proc/5/status"), "{gone}");
    assert_eq!(Choice::parse("always [madvise] never").unwrap().selected, "madvise");
    assert_eq!(Choice::parse("always madvise"), None);
}
