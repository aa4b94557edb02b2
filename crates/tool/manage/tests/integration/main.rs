//! Superpages made and split in a real process; the manager as it is packaged.

#[allow(dead_code)]
mod child;
mod daemon;
mod kubernetes;
mod unit;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use child::{Child, Part};
use host::Root;
use superpage_manage::once::{self, Plan, Request};
use superpage_manage::{Coverage, Kept, Memory, Skip, record};
use units::ByteSize;

fn request() -> Request {
    Request {
        duty: 1.0,
        within: Duration::from_secs(60),
        fill: 0.3,
        headroom: ByteSize::mib(64),
        overrides: Vec::new(),
    }
}

/// Whether superpages can be made from outside here.
fn may_collapse() -> bool {
    live::check_machine(&Root::real()).is_ok()
}

#[test]
#[ignore = "started by other tests as a process to manage"]
fn child() {
    child::run();
}

fn share(coverage: Coverage) -> f64 {
    coverage.share().unwrap()
}

#[test]
fn a_process_gets_superpages_and_base_pages_again_with_its_contents_whole() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let (root, dir) = (Root::real(), tempfile::tempdir().unwrap());
    let mut child = Child::start();
    let process = child.process();
    let memory = Memory::open(&root, &process).unwrap();
    let resident = host::process::status(&root, process.pid).unwrap().total().unwrap();
    // Enough for the half-filled superpages, not for one of a single page more.
    let fill = ByteSize::mib(9).bytes() as f64 / resident.bytes() as f64;
    let request = Request { fill, ..request() };
    let plan = Plan::read(&memory, &request, &BTreeMap::new()).unwrap();
    testkit::require!(
        plan.forbidden.is_empty(),
        "superpages are forbidden here: {:?}",
        plan.forbidden
    );
    let before = plan.coverage;
    let outcome = once::collapse(&memory, plan, &request, dir.path(), |_| true).unwrap();
    if outcome.collapsed.skipped.contains_key(&Skip::NoSuperpage) {
        testkit::skipped!("this machine has too few free superpages");
        return;
    }
    let made = &outcome.collapsed.starts;
    let has = |part| child.starts(part).iter().filter(|start| made.contains(start)).count();
    assert_eq!((has(Part::Full), has(Part::Half)), (8, 8), "{:?}", outcome.collapsed);
    assert_eq!((has(Part::Sparse), has(Part::Refused)), (0, 0));
    let skipped = &outcome.collapsed.skipped;
    assert!(skipped[&Skip::Sparse].bytes() >= 8 * 4096, "{skipped:?}");
    assert_eq!(skipped[&Skip::Refused], ByteSize::mib(16));
    assert!(share(outcome.after.unwrap()) > share(before) + 0.3);
    assert!(outcome.collapsed.longest_seconds.unwrap() > 0.0);
    // Of each second page of eight superpages.
    let filled = outcome.collapsed.filled;
    assert!(filled >= ByteSize::mib(8) && filled <= ByteSize::mib(9), "{filled}");
    assert!(child.is_whole());
    assert_eq!(record::recorded(&root, dir.path()).unwrap().len(), 1);

    let undone = once::undo(&memory, dir.path(), 1.0, Duration::from_secs(60)).unwrap();
    assert_eq!((undone.recorded, undone.split.split), (made.len() as u64, made.len() as u64));
    assert_eq!(share(undone.after.unwrap()), share(before));
    assert!(child.is_whole());
    assert_eq!(record::recorded(&root, dir.path()).unwrap().len(), 0);
}

#[test]
fn the_hottest_come_first_and_time_ends_it() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let (root, dir) = (Root::real(), tempfile::tempdir().unwrap());
    let child = Child::start();
    let memory = Memory::open(&root, &child.process()).unwrap();
    let hot = child.starts(Part::Half)[3];
    let heat = BTreeMap::from([(hot, 0.5), (child.starts(Part::Sparse)[0], 0.1)]);
    let plan = Plan::read(&memory, &request(), &heat).unwrap();
    assert_eq!(plan.blocks[0].start, hot);
    assert_eq!(plan.blocks[1].start, child.starts(Part::Sparse)[0]);
    let none = Request { within: Duration::ZERO, ..request() };
    let outcome = once::collapse(&memory, plan, &none, dir.path(), |_| true).unwrap();
    assert_eq!(outcome.collapsed.made, 0);
    let plan = Plan::read(&memory, &request(), &heat).unwrap();
    let outcome = once::collapse(&memory, plan, &request(), dir.path(), |done| done < 3).unwrap();
    if outcome.forbidden.is_empty() {
        assert!(outcome.collapsed.made <= 3);
        assert!(outcome.collapsed.skipped.contains_key(&Skip::Interrupted));
    }
}

#[test]
fn a_process_that_ends_leaves_nothing_behind() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let (root, dir) = (Root::real(), tempfile::tempdir().unwrap());
    let mut child = Child::start();
    let process = child.process();
    let memory = Memory::open(&root, &process).unwrap();
    let plan = Plan::read(&memory, &request(), &BTreeMap::new()).unwrap();
    testkit::require!(
        plan.forbidden.is_empty(),
        "superpages are forbidden here: {:?}",
        plan.forbidden
    );
    let outcome = once::collapse(&memory, plan, &request(), dir.path(), |done| {
        if done == 2 {
            child.kill();
        }
        true
    })
    .unwrap();
    assert_eq!(outcome.after, None);
    assert!(memory.record(dir.path()).is_err_and(|error| error.is_ended()));
    assert!(outcome.collapsed.made <= 2, "{:?}", outcome.collapsed);
    assert!(Memory::open(&root, &process).is_err_and(|error| error.is_ended()));
    assert_eq!(record::recorded(&root, dir.path()).unwrap().len(), 0);
}

#[test]
fn what_is_not_on_superpages_is_not_split() {
    testkit::require!(may_collapse(), "superpages cannot be made in another process here");
    let root = Root::real();
    let child = Child::start();
    let memory = Memory::open(&root, &child.process()).unwrap();
    let starts = child.starts(Part::Refused);
    let split = memory.split(&starts, 1.0, None);
    assert_eq!((split.split, split.gone), (0, 8));
    let late = Some(Instant::now());
    let full = child.starts(Part::Full);
    let split = memory.split(&full, 1.0, late);
    assert!(split.kept.keys().all(|why| *why == Kept::NoTime), "{split:?}");
}
