//! Pools: specifications on fake roots, and pools of this machine that grow and shrink.

extern crate superpage_host as host;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use host::Root;
use host::journal::{self, Journal};
use host::pool::{
    self, Applied, HeadroomRule, Options, PoolError, PoolName, Request, Shortage, Spec, Status,
    WhyShort,
};
use units::{NodeId, PageSize};

const M2: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";
const G1: &str = "sys/kernel/mm/hugepages/hugepages-1048576kB";
const NODES: &str = "sys/devices/system/node";

/// A machine with two pools and two nodes, where every write succeeds.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { dir: tempfile::tempdir().unwrap() };
        for (dir, overcommit) in [(M2, "0"), (G1, "0")] {
            for name in ["free_hugepages", "resv_hugepages", "surplus_hugepages"] {
                fake.write(&format!("{dir}/{name}"), "0");
            }
            fake.write(&format!("{dir}/nr_hugepages"), "10");
            fake.write(&format!("{dir}/nr_overcommit_hugepages"), overcommit);
            for node in ["node0", "node1"] {
                let size = dir.rsplit('/').next().unwrap();
                for (name, value) in
                    [("nr_hugepages", "5"), ("free_hugepages", "0"), ("surplus_hugepages", "0")]
                {
                    fake.write(&format!("{NODES}/{node}/hugepages/{size}/{name}"), value);
                }
            }
        }
        fake.write(&format!("{G1}/demote_size"), "2048kB");
        fake.write("proc/sys/vm/compact_memory", "");
        fake.write("proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555");
        let meminfo = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugepagesize: 2048 kB";
        fake.write("proc/meminfo", meminfo);
        fake.write("proc/buddyinfo", "Node 0, zone Normal 1 1 1 1 1 1 1 1 1 1 2");
        fake
    }
    fn root(&self) -> Root {
        let base = PageSize::new(4096).unwrap();
        Root::at(self.dir.path().join("root")).with_page_size(base)
    }
    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }
    fn write(&self, path: &str, text: &str) {
        let file = self.root().path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    fn now(&self, path: &str) -> String {
        fs::read_to_string(self.root().path(path)).unwrap().trim().to_string()
    }
    fn requests(&self, specs: &[&str], node: Option<u32>) -> Result<Vec<Request>, PoolError> {
        let specs: Vec<Spec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        pool::resolve(&Status::read(&self.root()).unwrap(), &specs, node.map(NodeId))
    }
    fn apply(&self, specs: &[&str], options: Options) -> Result<Applied, PoolError> {
        let requests = self.requests(specs, None)?;
        pool::apply(&self.root(), &self.journal(), &requests, options, &mut |_| {
            ControlFlow::Continue(())
        })
    }
}

fn size(bytes: u64) -> PageSize {
    PageSize::new(bytes).unwrap()
}

#[test]
fn status_knows_default_and_gigantic_sizes() {
    let fake = Fake::new();
    let status = Status::read(&fake.root()).unwrap();
    assert_eq!(status.size(PoolName::Default).unwrap(), size(2 << 20));
    assert_eq!(status.gigantic[&size(2 << 20)], Some(false));
    assert_eq!(status.gigantic[&size(1 << 30)], Some(true));
    let error = status.size(PoolName::Of(size(32 << 20))).unwrap_err().to_string();
    assert_eq!(error, "there is no pool of 32 MiB pages; this machine has 2M, 1G");
    let error = status.persistent(size(2 << 20), Some(NodeId(9))).unwrap_err().to_string();
    assert_eq!(error, "there is no node 9; this machine has node 0, node 1");
    // The largest block is unknown, so the pages are neither known to be gigantic nor known not to be.
    fs::remove_file(fake.root().path("proc/buddyinfo")).unwrap();
    assert_eq!(Status::read(&fake.root()).unwrap().gigantic[&size(1 << 30)], None);
    fs::remove_dir_all(fake.root().path("sys/kernel/mm/hugepages")).unwrap();
    assert!(matches!(Status::read(&fake.root()), Err(PoolError::NoHugetlb)));
}

#[test]
fn growing_and_shrinking_stay_and_leave_no_journal() {
    let fake = Fake::new();
    let done = fake.apply(&["2M:+1G", "1G:-9"], Options::default()).unwrap();
    assert!(done.is_full());
    assert_eq!((done.outcomes[0].before, done.outcomes[0].got), (10, 522));
    assert_eq!((fake.now(&format!("{M2}/nr_hugepages")).as_str(), 10), ("522", 10));
    assert_eq!(fake.now(&format!("{G1}/nr_hugepages")), "1");
    assert!(!fake.journal().join(journal::FILE).exists());
    assert_eq!(fake.now("proc/sys/vm/compact_memory"), "1", "the free lists held 4 of 512");
    assert_eq!(fake.now(&format!("{M2}/nr_overcommit_hugepages")), "0");
}

#[test]
fn what_lies_ready_is_not_compacted_for() {
    let fake = Fake::new();
    fake.apply(&["2M:+4"], Options::default()).unwrap();
    assert_eq!(fake.now("proc/sys/vm/compact_memory"), "");
}

#[test]
fn nothing_to_do_opens_no_journal() {
    let fake = Fake::new();
    let done = fake.apply(&["2M:10", "1G:+0"], Options::default()).unwrap();
    assert!(done.is_full() && !fake.journal().exists());
}

#[test]
fn one_node_alone() {
    let fake = Fake::new();
    let requests = fake.requests(&["2M:+3"], Some(1)).unwrap();
    assert_eq!((requests[0].before, requests[0].target), (5, 8));
    let node = format!("{NODES}/node1");
    let error = pool::check_headroom(&fake.root(), &Status::read(&fake.root()).unwrap(), &requests);
    assert!(error.unwrap_err().to_string().contains("node1/meminfo"));
    let meminfo = "Node 1 MemTotal: 1048576 kB\nNode 1 MemFree: 524288 kB\n\
        Node 1 Active(file): 8 kB\nNode 1 Inactive(file): 8 kB";
    fake.write(&format!("{node}/meminfo"), meminfo);
    pool::apply(&fake.root(), &fake.journal(), &requests, Options::default(), &mut |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(fake.now(&format!("{node}/hugepages/hugepages-2048kB/nr_hugepages")), "8");
    assert_eq!(fake.now(&format!("{M2}/nr_hugepages")), "10", "a file of its own here");
    let much = fake.requests(&["2M:+400M"], Some(1)).unwrap();
    let error = pool::check_headroom(&fake.root(), &Status::read(&fake.root()).unwrap(), &much);
    let error = error.map(|()| String::new()).unwrap_or_else(|e| e.to_string());
    assert_eq!(error, "", "400 of 512 MiB fit");
    let more = fake.requests(&["2M:+500M"], Some(1)).unwrap();
    let error = pool::check_headroom(&fake.root(), &Status::read(&fake.root()).unwrap(), &more);
    assert!(error.unwrap_err().to_string().contains("node 1 has 512.0 MiB available"));
}

#[test]
fn what_cannot_fit_is_refused_before_anything_is_written() {
    let fake = Fake::new();
    for specs in [&["2M:+8G"][..], &["2M:+4G", "1G:+4"]] {
        let error = fake.apply(specs, Options::default()).unwrap_err();
        assert!(matches!(error, PoolError::NoHeadroom { .. }), "{error}");
        assert!(error.to_string().contains("8 GiB available"), "{error}");
    }
    assert_eq!(fake.now(&format!("{M2}/nr_hugepages")), "10");
    assert!(!fake.journal().exists());
    // Pages that one pool frees become available to another; surplus pages become persistent ones.
    fake.write(&format!("{G1}/free_hugepages"), "10");
    assert!(fake.apply(&["2M:+8G", "1G:-10"], Options::default()).unwrap().is_full());
}

#[test]
fn a_partial_pool_is_reported_and_given_back_if_asked() {
    // 100 surplus pages cannot be freed, so every size that is written reads back 100 pages smaller.
    let fake = Fake::new();
    fake.write(&format!("{M2}/nr_hugepages"), "110");
    fake.write(&format!("{M2}/surplus_hugepages"), "100");
    let all = Options { shortage: Shortage::GiveBack, ..Options::default() };
    let done = fake.apply(&["2M:+50", "1G:+1"], all).unwrap();
    assert!(!done.is_full() && done.given_back.is_some());
    assert!(matches!(done.outcomes[0].why_short, Some(WhyShort::Memory { .. })));
    assert!(done.outcomes[0].rounds > 1);
    assert_eq!(fake.now(&format!("{G1}/nr_hugepages")), "10", "all or nothing is of the call");
    assert!(!fake.journal().join(journal::FILE).exists());
    let done = fake.apply(&["1G:+1"], Options::default()).unwrap();
    assert!(done.is_full() && done.given_back.is_none());
}

#[test]
fn stopping_puts_everything_back() {
    let fake = Fake::new();
    let requests = fake.requests(&["2M:+4G", "1G:-1"], None).unwrap();
    let mut steps = 0;
    let done =
        pool::apply(&fake.root(), &fake.journal(), &requests, Options::default(), &mut |_| {
            steps += 1;
            if steps == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(done.outcomes[0].why_short, Some(WhyShort::Stopped));
    assert!(done.outcomes[0].got > 10 && done.given_back.is_some());
    assert_eq!(fake.now(&format!("{M2}/nr_hugepages")), "10");
    assert_eq!(fake.now(&format!("{G1}/nr_hugepages")), "10");
}

#[test]
fn forced_growth_stops_at_the_floor() {
    let fake = Fake::new();
    fake.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 1024 kB");
    let force = Options { headroom: HeadroomRule::Force, ..Options::default() };
    let done = fake.apply(&["2M:+8G"], force).unwrap();
    assert_eq!(done.outcomes[0].got, 10);
    assert!(matches!(done.outcomes[0].why_short, Some(WhyShort::Memory { .. })));
}

#[test]
fn gigantic_pages_cannot_be_overcommitted() {
    let fake = Fake::new();
    let mut journal = Journal::open(&fake.journal(), &fake.root()).unwrap();
    let error = pool::set_overcommit(&fake.root(), &mut journal, size(1 << 30), 2).unwrap_err();
    assert!(error.to_string().contains("gigantic") && error.to_string().contains("1G:+N"));
    let set = pool::set_overcommit(&fake.root(), &mut journal, size(2 << 20), 7).unwrap();
    assert_eq!(set, (0, 7));
    journal.keep().unwrap();
    assert_eq!(fake.now(&format!("{M2}/nr_overcommit_hugepages")), "7");
}

#[test]
fn a_pool_is_named_once() {
    let error = Fake::new().requests(&["2M:+1", "default:+1"], None).unwrap_err().to_string();
    assert!(error.contains("specified twice"), "{error}");
}

/// Real pools: the privileged tier.
mod exclusive {
    use super::*;

    fn apply(specs: &[&str], options: Options) -> Applied {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::real();
        let specs: Vec<Spec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        let requests = pool::resolve(&Status::read(&root).unwrap(), &specs, None).unwrap();
        pool::apply(&root, dir.path(), &requests, options, &mut |_| ControlFlow::Continue(()))
            .unwrap()
    }

    fn has(bytes: u64) -> bool {
        let status = Status::read(&Root::real());
        let room = host::pool::Headroom::read(&Root::real(), None).ok().flatten();
        status.is_ok_and(|status| status.pool(size(bytes)).is_ok())
            && room.is_some_and(|room| room.fits(size(bytes)) >= 3 + (512 << 20) / bytes)
    }

    /// Returns whether this many superpages, and some more, are free as blocks: if so, the kernel must provide them.
    fn has_free_superpages(count: u64) -> bool {
        let free = host::FreeContiguity::read(&Root::real(), size(2 << 20)).ok();
        free.and_then(|free| free.superpages).is_some_and(|free| free >= count + 128)
    }

    #[test]
    fn grows_shrinks_and_leaks_nothing() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        testkit::require!(has(2 << 20), "no pool of 2 MiB pages, or no room for 512 MiB");
        testkit::require!(has_free_superpages(256), "memory is fragmented");
        let found = testkit::PoolsAsFound::note();
        let done = apply(&["2M:+512M"], Options::default());
        assert!(done.is_full(), "{done:?}");
        assert_eq!(done.outcomes[0].got, done.outcomes[0].before + 256);
        let done = apply(&["2M:-512M"], Options::default());
        assert!(done.is_full() && done.outcomes[0].still_in_use == 0, "{done:?}");
        assert!(found.is_intact(), "no overcommit is left behind");
    }

    #[test]
    fn pages_in_use_become_surplus_and_are_reported() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        testkit::require!(has(2 << 20), "no pool of 2 MiB pages, or no room for 512 MiB");
        testkit::require!(has_free_superpages(16), "memory is fragmented");
        let _pool = testkit::PoolsAsFound::note();
        // Free pages of a pool that is there would be given back instead of those in use.
        testkit::require!(testkit::leave_free(0), "the pool keeps free pages");
        let found = testkit::PoolsAsFound::note();
        assert!(apply(&["2M:+16"], Options::default()).is_full());
        let backing = sys::mem::Backing::Hugetlb(size(2 << 20));
        let mut memory = sys::mem::Mapping::anonymous(8 << 21, backing).unwrap();
        memory.bytes_mut().fill(1);
        let done = apply(&["2M:-16"], Options::default());
        assert_eq!(done.outcomes[0].still_in_use, 8, "{done:?}");
        drop(memory);
        assert!(found.is_intact(), "they went when their user let go");
    }

    #[test]
    fn gigantic_pages_come_go_and_are_demoted() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(has(1 << 30) && has(2 << 20), "no pool of 1 GiB pages, or no room");
        let found = testkit::PoolsAsFound::note();
        let done = apply(&["1G:+2"], Options::default());
        testkit::require!(done.is_full(), "no 2 GiB in one piece: {:?}", done.outcomes[0]);
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(dir.path(), &Root::real()).unwrap();
        let refused = pool::set_overcommit(&Root::real(), &mut journal, size(1 << 30), 1);
        assert!(matches!(refused, Err(PoolError::GiganticOvercommit { .. })));
        let split = pool::demote(&Root::real(), &mut journal, size(1 << 30), None, 1).unwrap();
        assert_eq!((split.got, split.pieces - split.pieces_before), (1, 512));
        journal.keep().unwrap();
        let done = apply(&["1G:-1", "2M:-512"], Options::default());
        assert!(done.is_full() && found.is_intact(), "{done:?}");
    }
}
