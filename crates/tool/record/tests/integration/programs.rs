//! Programs recorded under QEMU, compared with what they are known to do.

use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::common::{Room, find};
use superpage_record::{Ended, Limits, Recording};
use trace::{Advice, Event, Filter, MruSets};

/// Address of the test programs' memory.
const AT: u64 = 0x10000000;

#[test]
fn every_access_of_a_known_program_is_there_and_in_order() {
    let Some(room) = Room::new() else { return };
    let program = room.build("known.c", &[]);
    let recording = Recording { filter: Filter::None, ..room.recording(&[&program]) };
    let (done, stream) = room.record(&recording);
    assert_eq!((done.status.code(), done.ended), (Some(9), Ended::Program));
    assert_eq!(done.seen.accesses, done.totals.accesses);

    let mut expected = Vec::new();
    for _ in 0..3 {
        for page in AT..AT + 64 {
            expected.extend([(page, false, 1), (page, true, 1)]);
        }
    }
    expected.extend([(AT + 4, true, 1), (AT + 5, true, 1)]);
    assert_eq!(stream.within(AT, 64), expected);

    // Reserved memory is mapped only once it was made accessible.
    let reserved = AT + (1 << 18);
    let mapped = |begin: u64, count: u32| {
        stream.count(|event| {
            matches!(event, Event::Map { pages, address, .. }
                if *address == begin && pages.count == count)
        })
    };
    assert_eq!(mapped(AT, 64), 1);
    assert_eq!(mapped(reserved, 3 << 8), 1);
    assert_eq!(
        stream.count(|event| matches!(event, Event::Map { pages, .. } if pages.count > 1 << 19)),
        0
    );
    let dontneed = |event: &Event| matches!(event, Event::Advise(pages, Advice::DontNeed) if pages.count == 512);
    assert_eq!(stream.count(dontneed), 1);
    let unmapped =
        |event: &Event, count| matches!(event, Event::Unmap(pages) if pages.count == count);
    assert_eq!(stream.count(|event| unmapped(event, 32)), 1, "munmap of a part");
    assert!(stream.count(|event| unmapped(event, 256)) >= 2, "mremap, and a heap that shrinks");
    assert!(stream.count(|event| matches!(event, Event::Grow { .. })) >= 30, "the heap");
}

#[test]
fn filters_leave_out_what_the_format_says_and_count_everything() {
    let Some(room) = Room::new() else { return };
    let program = room.build("known.c", &[]);
    let record = |filter| {
        let recording = Recording { filter, ..room.recording(&[&program]) };
        let (done, stream) = room.record(&recording);
        (done.totals.accesses, stream)
    };
    let (all, plain) = record(Filter::None);
    let (same, merged) = record(Filter::SamePage);
    let (mru, less) = record(Filter::SetMru(MruSets::INTEL));
    // The kernel's random numbers in the first stack page move some libc loops by a few accesses.
    let near = |other: u64| other.abs_diff(all) < all / 50;
    assert!(near(same) && near(mru), "{all} {same} {mru}");
    assert!(
        merged.records.len() < plain.records.len() && less.records.len() < merged.records.len()
    );
    // 64 pages are used in turn, so no filter may leave out a page: each is read, then first written.
    let pages = |stream: &crate::common::Stream| -> Vec<u64> {
        let mut pages: Vec<u64> = stream.within(AT, 64).iter().map(|record| record.0).collect();
        pages.dedup();
        pages
    };
    assert_eq!(pages(&merged), pages(&plain));
    assert_eq!(pages(&less), pages(&plain));
}

#[test]
fn threads_are_one_process_and_lose_nothing() {
    let Some(room) = Room::new() else { return };
    let program = room.build("threads.c", &["-pthread"]);
    let (done, stream) = room.record(&room.recording(&[&program]));
    assert_eq!((done.seen.threads, done.seen.processes), (4, 1));
    assert!(done.seen.instructions.unwrap() > 4 * 8 * 1000);
    let writes: u64 = stream
        .within(AT, 4000)
        .iter()
        .filter(|record| record.1)
        .map(|record| u64::from(record.2))
        .sum();
    // Under the same-page filter a record may count adjacent accesses; here every page differs from the one before.
    assert!(writes >= 4 * 8 * 1000, "{writes}");
}

#[test]
fn a_forking_shell_is_followed_through_every_exec() {
    let Some(room) = Room::new() else { return };
    let script = "for i in 1 2 3; do /bin/echo $i; done | sort -r; exec /bin/sh -c 'exit 5'";
    let (done, stream) = room.record(&room.recording(&["sh", "-c", script]));
    assert_eq!(done.status.code(), Some(5));
    // The processes are sh, the loop's subshell, three forks for echo, and sort; six programs were executed by these.
    assert_eq!(done.seen.foreign_count, 0, "{:?}", done.seen.foreign);
    let forks = stream.count(|event| matches!(event, Event::Fork { .. }));
    let spawns = stream.count(|event| matches!(event, Event::Spawn(_)));
    assert_eq!((forks, spawns), (5, 6), "sh forks 5 times; 6 programs begin");
    assert_eq!(stream.count(|event| matches!(event, Event::Exit(_))), forks + spawns);

    let recording = Recording { follow: false, ..room.recording(&["sh", "-c", script]) };
    let (done, _) = room.record(&recording);
    assert_eq!(done.status.code(), Some(5));
    assert!(
        done.seen.foreign.iter().any(|path| path.ends_with("/sort")),
        "{:?}",
        done.seen.foreign
    );
}

#[test]
fn scripts_and_programs_that_close_everything() {
    let Some(room) = Room::new() else { return };
    let script = room.directory.path().join("script");
    testkit::write_script(&script, "#!/bin/sh -e\nexit $1\n");
    let script = script.to_str().unwrap();
    assert_eq!(room.record(&room.recording(&[script, "3"])).0.status.code(), Some(3));
    let through = format!("{script} 4");
    let (done, _) = room.record(&room.recording(&["sh", "-c", &through]));
    assert_eq!((done.status.code(), done.seen.foreign_count), (Some(4), 0));
    // All descriptors up to 1023 are closed, including ours, and then a program is executed.
    testkit::require!(find("bash").is_some(), "no bash, which closes descriptors above 9");
    let close =
        "i=3; while [ $i -lt 1024 ]; do eval \"exec $i>&-\"; i=$((i+1)); done; /bin/true; exit 6";
    let (done, stream) = room.record(&room.recording(&["bash", "-c", close]));
    assert_eq!(done.status.code(), Some(6));
    assert_eq!(stream.count(|event| matches!(event, Event::Exit(_))), 3);
}

#[test]
fn static_programs_are_recorded() {
    let Some(room) = Room::new() else { return };
    let probe = std::process::Command::new("sh")
        .args(["-c", "echo 'int main(void) { return 0; }' | cc -static -xc - -o \"$0\""])
        .arg(room.directory.path().join("probe"))
        .output();
    let is_possible = probe.is_ok_and(|output| output.status.success());
    testkit::require!(is_possible, "nothing can be linked statically here");
    let program = room.build("known.c", &["-static"]);
    let (done, stream) = room.record(&room.recording(&[&program]));
    assert_eq!(done.status.code(), Some(9));
    assert!(!stream.within(AT, 64).is_empty());
}

#[test]
fn limits_stop_a_program_and_leave_a_whole_trace() {
    let Some(room) = Room::new() else { return };
    let endless = ["sh", "-c", "while :; do :; done"];
    let limited = |limits| {
        let recording = Recording { limits, ..room.recording(&endless) };
        room.record(&recording).0
    };
    let done = limited(Limits { accesses: Some(100_000), ..Limits::default() });
    assert_eq!((done.ended, done.totals.accesses), (Ended::Accesses, 100_000));
    let done = limited(Limits { accesses: Some(5000), skip: 70_000, ..Limits::default() });
    assert_eq!((done.totals.accesses, done.seen.skipped), (5000, 70_000));
    // On a busy machine it may take seconds until the program runs.
    let has_run = [2, 8, 30, 90].into_iter().any(|seconds| {
        let time = Some(Duration::from_secs(seconds));
        let done = limited(Limits { time, ..Limits::default() });
        assert_eq!((done.ended, done.status.signal()), (Ended::Time, Some(15)));
        done.totals.accesses > 0
    });
    assert!(has_run, "not an access in 90 s");

    let mut watch = |so_far: superpage_record::Progress| match so_far.accesses {
        0 => ControlFlow::Continue(()),
        _ => ControlFlow::Break(()),
    };
    let done =
        superpage_record::record(&room.tools, &room.recording(&endless), &mut watch).unwrap();
    assert_eq!(done.ended, Ended::Stopped);
    crate::common::Stream::read(&done.path);
}

#[test]
fn a_killed_program_leaves_a_whole_trace() {
    let Some(room) = Room::new() else { return };
    let (done, _) = room.record(&room.recording(&["sh", "-c", "kill -9 $$"]));
    assert_eq!((done.status.signal(), done.ended), (Some(9), Ended::Program));
    assert!(done.totals.accesses > 0);
}

#[test]
fn instruction_fetches_are_a_second_stream() {
    let Some(room) = Room::new() else { return };
    let path = room.directory.path().join("program.itlb.spt");
    let recording =
        Recording { instructions: Some(path.clone()), ..room.recording(&["sh", "-c", "exit 0"]) };
    let (done, data) = room.record(&recording);
    let (_, totals) = done.fetches.unwrap();
    assert_eq!(totals.writes, 0);
    assert!(totals.accesses > 1000 && totals.accesses < done.seen.instructions.unwrap());
    let code = crate::common::Stream::read(&path);
    assert_eq!(code.accesses, totals.accesses);
    assert_eq!(code.events.len(), data.events.len());
}
