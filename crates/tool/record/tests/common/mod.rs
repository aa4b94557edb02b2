//! Shared helpers of the recorder's tests: QEMU or a counted skip, small C programs, and reading a trace back with all
//! its promises checked.
#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use superpage_record::{Recorded, Recording, Streams, Tools};
use trace::{Access, Block, Checker, Event, Page, Reader, Source};

/// A directory, QEMU and the plugin.
pub struct Room {
    pub tools: Tools,
    pub directory: tempfile::TempDir,
}

pub const SEARCH: &str = "/usr/local/bin:/usr/bin:/bin";

impl Room {
    /// Returns the helpers; `None`, counted as skipped, if programs cannot be recorded.
    pub fn new() -> Option<Self> {
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("recorder");
        match Tools::prepare(SEARCH, &cache) {
            Ok(tools) => Some(Self { tools, directory: tempfile::tempdir().unwrap() }),
            Err(error) => {
                assert!(error.is_cannot(), "{error}");
                testkit::skipped!("{error}");
                None
            }
        }
    }

    /// Returns the usual recording of a command, into a trace of its own.
    pub fn recording(&self, command: &[&str]) -> Recording {
        let program = if command[0].contains('/') {
            PathBuf::from(command[0])
        } else {
            find(command[0]).unwrap()
        };
        let arguments = command.iter().map(Into::into).collect();
        let output = self.directory.path().join("program.spt");
        Recording {
            streams: Streams::Errors,
            replace: true,
            ..Recording::new(&program, arguments, &output)
        }
    }

    /// Records the command to its end.
    pub fn record(&self, recording: &Recording) -> (Recorded, Stream) {
        let done =
            superpage_record::record(&self.tools, recording, &mut |_| ControlFlow::Continue(()));
        let done = done.unwrap();
        let stream = Stream::read(&done.path);
        assert_eq!(stream.accesses, done.totals.accesses);
        (done, stream)
    }

    /// Builds a C program of the tests.
    pub fn build(&self, name: &str, flags: &[&str]) -> String {
        build(self.directory.path(), name, flags)
    }
}

/// Returns the path of a program on this machine.
pub fn find(name: &str) -> Option<PathBuf> {
    let mut paths = SEARCH.split(':').map(|one| Path::new(one).join(name));
    paths.find(|path| path.is_file())
}

/// Builds a C program of the tests in a directory.
pub fn build(directory: &Path, name: &str, flags: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = directory.join(name.trim_end_matches(".c"));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"]).arg(&program).arg(source).args(flags);
    assert!(cc.status().unwrap().success(), "cc {name}");
    program.to_str().unwrap().to_string()
}

/// A trace that was read back.
#[derive(Default)]
pub struct Stream {
    pub events: Vec<Event>,
    pub accesses: u64,
    /// The records of all mappings, in order: virtual page, whether it is a write, number of accesses.
    pub records: Vec<(u64, bool, u32)>,
    /// The virtual page number of each page.
    places: BTreeMap<u32, u64>,
}

impl Stream {
    /// Reads a whole trace, which must be valid for the laboratory.
    pub fn read(path: &Path) -> Self {
        let mut reader = Reader::open(path).unwrap();
        let (mut checker, mut block) = (Checker::new(), Block::default());
        let mut stream = Self::default();
        while reader.next(&mut block).unwrap() {
            checker.block(&block).unwrap_or_else(|(at, what)| panic!("record {at}: {what}"));
            let mut events = block.events.iter().peekable();
            for at in 0..=block.accesses.len() {
                while let Some((_, event)) = events.next_if(|(place, _)| *place as usize <= at) {
                    stream.event(event);
                }
                let Some(access) = block.accesses.get(at) else { break };
                let count = block.counts.get(at).copied().unwrap_or(1);
                stream.access(*access, count);
            }
        }
        stream
    }

    fn event(&mut self, event: &Event) {
        match *event {
            Event::Map { pages, address, .. } => {
                for number in 0..pages.count {
                    let address = address + u64::from(number);
                    self.places.insert(pages.first.0 + number, address);
                }
            }
            Event::Grow { pages } => {
                let before = self.places[&(pages.first.0 - 1)];
                for number in 0..pages.count {
                    let address = before + 1 + u64::from(number);
                    self.places.insert(pages.first.0 + number, address);
                }
            }
            Event::Fork { offset, .. } => {
                let twins: Vec<_> =
                    self.places.iter().map(|(page, at)| (page + offset, *at)).collect();
                for (page, at) in twins {
                    self.places.entry(page).or_insert(at);
                }
            }
            _ => {}
        }
        self.events.push(event.clone());
    }

    fn access(&mut self, access: Access, count: u32) {
        let Page(page) = access.page();
        self.accesses += u64::from(count);
        self.records.push((self.places[&page], access.writes(), count));
    }

    /// Returns the number of events of a kind.
    pub fn count(&self, kind: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|event| kind(event)).count()
    }

    /// Returns the records in a range of pages.
    pub fn within(&self, first: u64, count: u64) -> Vec<(u64, bool, u32)> {
        let inside = |record: &&(u64, bool, u32)| (first..first + count).contains(&record.0);
        self.records.iter().filter(inside).copied().collect()
    }
}
