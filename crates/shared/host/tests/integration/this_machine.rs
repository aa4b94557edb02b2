//! Kernel tier: the readers on this machine, with memory of known layout. Privileged tier: a real setting is changed
//! and restored.

extern crate superpage_host as host;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::coverage::{self, Census, Coverage};
use host::journal::{Journal, Knob};
use host::process::KeptLoad;
use host::{Counters, FreeContiguity, Root, Snapshot, Thp, process, waste};
use sys::mem::{Advice, Backing, Mapping};
use sys::pagemap::Pagemap;
use units::{PageSize, Pid};

const MIB: u64 = 1 << 20;

fn own() -> Pid {
    sys::param::own_pid()
}

/// Returns a mapping of `huge` superpages followed by base pages, each region aligned, and its aligned start; `None` if
/// the machine gives no superpages.
fn known_layout(superpage: u64, huge: u64, base: u64) -> Option<(Mapping, u64)> {
    let len = (huge + base + 1) * superpage;
    let mut mapping = Mapping::anonymous(len as usize, Backing::Pages).ok()?;
    mapping.advise(Advice::NoHugePage).ok()?;
    let skip = mapping.address().next_multiple_of(superpage) - mapping.address();
    let huge_range = skip as usize..(skip + huge * superpage) as usize;
    let base_range = huge_range.end..huge_range.end + (base * superpage) as usize;
    mapping.bytes_mut()[base_range].fill(1);
    mapping.advise_range(huge_range.clone(), Advice::HugePage).ok()?;
    let bytes = mapping.bytes_mut();
    huge_range.step_by(superpage as usize).for_each(|at| bytes[at] = 1);
    let start = mapping.address() + skip;
    Some((mapping, start))
}

#[test]
fn smaps_and_pagemap_scan_agree_on_a_known_layout() {
    testkit::lock_machine!(shared);
    let root = Root::real();
    let Ok(superpage) = Thp::pmd_size_of(&root) else {
        testkit::skipped!("no THP on this kernel");
        return;
    };
    let size = superpage.bytes();
    testkit::require!(size <= 32 * MIB, "superpages of {superpage} would need gigabytes");
    let Some((_mapping, start)) = known_layout(size, 6, 2) else {
        testkit::skipped!("this machine gives no superpages");
        return;
    };
    let scanned = match coverage::scan(&Pagemap::open(own()).unwrap(), start, start + 8 * size) {
        Ok(scanned) => scanned,
        Err(error) => {
            testkit::skipped!("{error}");
            return;
        }
    };
    testkit::require!(scanned.huge.bytes() == 6 * size, "memory is too fragmented: {scanned:?}");
    assert_eq!((scanned.present.bytes(), scanned.zero.bytes()), (8 * size, 0));
    let mappings = coverage::per_mapping(&root, own()).unwrap();
    let inside = mappings.iter().filter(|m| m.start < start + 8 * size && m.end > start);
    let smaps: Coverage = inside.map(|m| m.coverage.clone()).sum();
    assert_eq!(smaps.anon_thp.bytes(), 6 * size);
    assert_eq!(smaps.anon_base.bytes(), 2 * size);
    assert_eq!((smaps.ratio(), smaps.anon_ratio()), (Some(0.75), Some(0.75)));
    let whole = Coverage::of_process(&root, own()).unwrap();
    assert!(whole.anon_thp.bytes() >= 6 * size && whole.anon_ratio() > Some(0.0));
}

/// Runs an ignored test of this program in a separate process, so that memory of other tests is not counted, and a
/// fork inherits none of their files.
fn passes_alone(test: &str) {
    let this = std::env::current_exe().expect("this program");
    let test = format!("this_machine::{test}");
    let done = Command::new(this)
        .args(["--exact", &test, "--ignored", "--nocapture", "--test-threads=1"])
        .output()
        .expect("this program runs");
    let (said, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    // Write past the harness's capture, so that skips are counted.
    for line in errors.lines().filter(|line| line.starts_with("skipped: ")) {
        let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    }
    assert!(done.status.success() && said.contains("1 passed"), "{said}{errors}");
}

#[test]
fn a_census_agrees_with_smaps_and_counts_shared_pages_once() {
    testkit::lock_machine!(shared);
    passes_alone("child_census_of_two_processes");
}

#[test]
#[ignore = "run by the test before it, in a process of its own"]
fn child_census_of_two_processes() {
    let root = Root::real();
    let Some(census) = Census::new(&root, own()) else {
        testkit::skipped!("this kernel has no PAGEMAP_SCAN");
        return;
    };
    let Some((mut mapping, _)) = known_layout(2 * MIB, 16, 16) else {
        testkit::skipped!("this machine gives no superpages");
        return;
    };
    let alone = census.count(&[own()]);
    assert_eq!(alone.missing, None);
    let smaps = Coverage::of_process(&root, own()).unwrap();
    let near = |a: u64, b: u64, within: u64| assert!(a.abs_diff(b) <= within, "{a} against {b}");
    near(alone.coverage.anon_thp.bytes(), smaps.anon_thp.bytes(), 4 * MIB);
    near(alone.coverage.anon_base.bytes(), smaps.anon_base.bytes(), 4 * MIB);
    near(alone.coverage.file_base.bytes(), smaps.file_base.bytes(), 4 * MIB);
    near(alone.coverage.eligible.bytes(), smaps.eligible.bytes(), 8 * MIB);
    assert!(alone.base_bytes >= 32 * MIB, "{alone:?}");

    // A forked child shares all memory, and then writes to half of the base pages.
    let before = alone.coverage.resident().bytes();
    let base = mapping.len() - 32 * MIB as usize..mapping.len() - 16 * MIB as usize;
    let (mut ready, mut go) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let twice = |census: &Census, child: Pid| {
        let both = census.count(&[own(), child]);
        assert_eq!(both.missing, None);
        both.coverage.resident().bytes()
    };
    use std::io::Read;
    // SAFETY: the child only writes to mapped memory and to pipes, and ends.
    let child = match unsafe { libc::fork() } {
        0 => {
            // Keep only the child's ends of the pipes: if the parent fails, the child reads end-of-file, and ends.
            drop(go.1);
            let _ = ready.1.write_all(b"1");
            if go.0.read_exact(&mut [0]).is_err() {
                // SAFETY: the call always succeeds.
                unsafe { libc::_exit(1) }
            }
            for at in base.step_by(4096) {
                mapping.bytes_mut()[at] = 2;
            }
            let _ = ready.1.write_all(b"2");
            let _ = go.0.read_exact(&mut [0]);
            // SAFETY: the call always succeeds.
            unsafe { libc::_exit(0) }
        }
        child => Pid(child),
    };
    ready.0.read_exact(&mut [0]).unwrap();
    near(twice(&census, child), before, 8 * MIB);
    go.1.write_all(b"1").unwrap();
    ready.0.read_exact(&mut [0]).unwrap();
    near(twice(&census, child), before + 16 * MIB, 8 * MIB);
    go.1.write_all(b"2").unwrap();
    sys::wait::until_exit(child).unwrap();
    sys::wait::reap(child).unwrap();
}

#[test]
fn waste_finds_the_zero_pages_of_superpages() {
    testkit::lock_machine!(shared);
    passes_alone("child_waste");
}

#[test]
#[ignore = "run by the test before it, in a process of its own"]
fn child_waste() {
    let root = Root::real();
    let Some((mut mapping, start)) = known_layout(2 * MIB, 8, 0) else {
        testkit::skipped!("this machine gives no superpages");
        return;
    };
    // Four superpages are full, and four have one nonzero byte each, so nearly half of the memory is waste.
    let skip = (start - mapping.address()) as usize;
    mapping.bytes_mut()[skip..skip + 8 * MIB as usize].fill(1);
    let found = match waste::sample(&root, own(), u32::MAX, 7) {
        Ok(found) => found,
        Err(error) => {
            testkit::skipped!("{error}");
            return;
        }
    };
    testkit::require!(found.superpage_bytes.bytes() >= 16 * MIB, "no superpages: {found:?}");
    testkit::require!(found.sampled > 0, "this kernel does not tell the huge zero page");
    assert_eq!(found.unreadable, 0, "{found:?}");
    assert_eq!(u64::from(found.sampled) * root.page_size().bytes(), found.superpage_bytes.bytes());
    assert!(found.wasted.unwrap().bytes() >= 8 * MIB - 4 * 4096, "{found:?}");
    let few = waste::sample(&root, own(), 64, 1).unwrap();
    assert_eq!((few.sampled, few.seed), (64, 1));
    assert!(few.wasted.unwrap() <= few.superpage_bytes);
    assert!(few.zero > 0 && few.zero < 64, "{few:?}");
}

#[test]
fn the_tree_holds_children_and_grandchildren_until_they_end() {
    let root = Root::real();
    let mut child = Command::new("sh").args(["-c", "sleep 300 & wait"]).spawn().unwrap();
    let pid = Pid(child.id() as i32);
    let began = Instant::now();
    while process::tree(&root, pid).len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(2));
    }
    let tree = process::tree(&root, pid);
    assert_eq!((tree[0], tree.len()), (pid, 2));
    assert!(process::tree(&root, own()).contains(&tree[1]));
    let both = Coverage::of_tree(&root, pid).unwrap();
    assert_eq!(both.processes, tree);
    assert!(both.coverage.resident() > Coverage::of_process(&root, pid).unwrap().resident());
    sys::signal::send(tree[1], libc::SIGTERM).unwrap();
    child.wait().unwrap();
    assert_eq!(process::tree(&root, pid), []);
    assert!(process::resident(&root, pid).unwrap_err().is_gone());
}

#[test]
fn a_process_lives_while_a_thread_does() {
    const LEAVES: &str = "import ctypes, threading, time\n\
                          threading.Thread(target=time.sleep, args=(300,)).start()\n\
                          ctypes.CDLL(None).pthread_exit(None)";
    let root = Root::real();
    let started = Command::new("python3").args(["-c", LEAVES]).stderr(Stdio::null()).spawn();
    testkit::require!(started.is_ok(), "no python3");
    let mut child = started.unwrap();
    let pid = Pid(child.id() as i32);
    let began = Instant::now();
    while process::stat(&root, pid).unwrap().state != 'Z' {
        assert!(began.elapsed() < Duration::from_secs(90));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((process::tree(&root, pid), child.try_wait().unwrap()), (vec![pid], None));
    child.kill().unwrap();
    sys::wait::until_exit(pid).unwrap();
    assert!(process::stat(&root, pid).unwrap().is_dead());
    child.wait().unwrap();
}

#[test]
fn this_machine_is_read() {
    let root = Root::real();
    let snapshot = Snapshot::read(&root);
    assert!(snapshot.kernel.is_some() && snapshot.boot_id.is_some());
    assert!(snapshot.cpu.as_ref().unwrap().online >= Some(1));
    assert!(snapshot.memory.as_ref().unwrap().total > snapshot.memory.as_ref().unwrap().free);
    let size = snapshot.thp.as_ref().and_then(|thp| thp.pmd_size);
    let free = FreeContiguity::read(&root, size.unwrap_or(root.page_size())).unwrap();
    assert!(free.free.bytes() > 0 && free.in_superpages <= Some(free.free));
    let earlier = snapshot.counters.unwrap();
    let deltas = Counters::read(&root).unwrap().since(&earlier);
    assert!(deltas.get("pgfault").is_some());
    let resident = process::resident(&root, own()).unwrap();
    assert!(resident.rss > resident.anon && resident.start_ticks > Some(0));
    let load = KeptLoad::open(&root).unwrap().read().unwrap();
    assert!(load.newest.0 > 0 && load.running > 0, "{load:?}");
}

mod exclusive {
    use super::*;

    #[test]
    fn a_real_knob_is_changed_and_put_back() {
        testkit::require!(testkit::is_root(), "needs root");
        testkit::lock_machine!();
        let root = Root::real();
        let Some(size) = host::MemInfo::read(&root).unwrap().default_hugepage else {
            testkit::skipped!("no hugetlb on this kernel");
            return;
        };
        let knob = Knob::hugetlb_overcommit(size);
        let before = knob.read(&root).unwrap();
        let asked = (before.parse::<u64>().unwrap() + 3).to_string();
        let dir = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(&dir.path().join("journal"), &root).unwrap();
        assert!(journal.set(&knob, &asked).unwrap().is_full());
        assert_eq!(knob.read(&root).unwrap(), asked);
        // If the kernel refuses a value, the error names the knob, and nothing is changed.
        let error = journal.set(&knob, "many").unwrap_err().to_string();
        assert!(error.contains(knob.path()), "{error}");
        assert_eq!(journal.restore().len(), 1);
        assert_eq!(knob.read(&root).unwrap(), before);
    }
}

/// Prints the time of each reader: `cargo test --release -- --ignored --nocapture costs`.
#[test]
#[ignore = "nightly: prints times, and judges none"]
fn costs() {
    let root = Root::real();
    let base = PageSize::new(2 << 20).unwrap();
    let mut gigabyte = Mapping::anonymous(1 << 30, Backing::Pages).unwrap();
    gigabyte.advise(Advice::NoHugePage).unwrap();
    gigabyte.bytes_mut().fill(1);
    let time = |what: &str, run: &mut dyn FnMut()| {
        let mut times: Vec<_> = (0..21)
            .map(|_| {
                let began = Instant::now();
                run();
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("{what}: min {:?} median {:?}", times[0], times[10]);
    };
    time("coverage of 1 GB in base pages", &mut || drop(Coverage::of_process(&root, own())));
    let pagemap = Pagemap::open(own()).unwrap();
    let (start, end) = (gigabyte.address(), gigabyte.address() + (1 << 30));
    time("scan of 1 GB in base pages", &mut || drop(coverage::scan(&pagemap, start, end)));
    drop(gigabyte);
    time("coverage of this small process", &mut || drop(Coverage::of_process(&root, own())));
    time("tree", &mut || drop(process::tree(&root, own())));
    time("resident", &mut || drop(process::resident(&root, own())));
    time("counters", &mut || drop(Counters::read(&root)));
    time("contiguity", &mut || drop(FreeContiguity::read(&root, base)));
    time("snapshot", &mut || drop(Snapshot::read(&root)));
    let layout = known_layout(2 * MIB, 128, 0);
    for samples in [0, 512, 4096] {
        time(&format!("waste, {samples} samples of 256 MB huge"), &mut || {
            drop(waste::sample(&root, own(), samples, 1));
        });
    }
    println!("{:?}", waste::sample(&root, own(), 512, 1));
    drop(layout);
    let snapshot = Snapshot::read(&root);
    println!("{:?} {:?} {:?}", snapshot.cpu, snapshot.tlb, snapshot.unknown);
    let dir = tempfile::tempdir().unwrap();
    time("journal open + restore", &mut || {
        drop(Journal::open(&dir.path().join("j"), &root).unwrap().restore());
    });
}
