//! Page faults recorded at native speed, from a program whose faults are known.

use std::ops::ControlFlow;
use std::path::Path;

use superpage_record::{Ended, FaultSession, RecordError, Recording, Streams};
use trace::Event;

fn recording(directory: &Path, program: &str) -> Recording {
    let path = Path::new(program);
    let output = directory.join("faults.spt");
    Recording { streams: Streams::Errors, ..Recording::new(path, vec![program.into()], &output) }
}

#[test]
fn first_touches_of_a_known_program_are_there_once_each() {
    let directory = tempfile::tempdir().unwrap();
    let program = crate::common::build(directory.path(), "known.c", &[]);
    let recording = recording(directory.path(), &program);
    let tracing = [Path::new("/sys/kernel/tracing"), Path::new("/sys/kernel/debug/tracing")];
    let session = match FaultSession::start(&recording, &tracing) {
        Ok(session) => session,
        Err(error) => {
            assert!(error.is_cannot(), "{error}");
            return testkit::skipped!("{error}");
        }
    };
    let done = session.finish(&mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((done.status.code(), done.ended), (Some(9), Ended::Program));
    assert_eq!((done.seen.lost, done.seen.processes), (0, 1));
    assert_eq!(done.seen.instructions, None);
    assert_eq!(trace::Reader::open(&done.path).unwrap().info().run, None);
    let stream = crate::common::Stream::read(&done.path);
    // Each of 64 pages is first read, which takes a fault for the zero page, and then written.
    let at = 0x10000000;
    let writes: Vec<u64> =
        stream.within(at, 64).iter().filter(|record| record.1).map(|record| record.0).collect();
    assert_eq!(writes, (at..at + 64).collect::<Vec<_>>());
    assert_eq!(stream.within(at, 64).len(), 128);
    assert!(stream.count(|event| matches!(event, Event::Map { .. })) > 5);
}

#[test]
fn without_the_tracepoint_the_remedy_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let recording = recording(directory.path(), "/bin/true");
    let error = FaultSession::start(&recording, &[directory.path()]).map(|_| ()).unwrap_err();
    assert!(matches!(error, RecordError::NoFaults { .. }) && error.is_cannot());
    assert!(error.to_string().contains("mount -t tracefs"), "{error}");
    let place = directory.path().join("events/exceptions/page_fault_user");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("id"), "190\n").unwrap();
    std::fs::write(place.join("format"), "field:int something;\n").unwrap();
    let error = FaultSession::start(&recording, &[directory.path()]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("another form"), "{error}");
    assert!(!recording.output.exists());
}
