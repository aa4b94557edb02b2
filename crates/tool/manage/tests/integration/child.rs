//! A process with memory of known kinds: this test program, started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use host::Root;
use services::Process;
use sys::mem::{Advice, Backing, Mapping};
use units::Pid;

const SUPERPAGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// Superpages of each part.
const COUNT: usize = 8;

/// Parts of the child's memory, in the order in which it prints their addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Every page has contents.
    Full,
    /// Every second page has contents.
    Half,
    /// One page of each superpage has contents.
    Sparse,
    /// MADV_NOHUGEPAGE.
    Refused,
}

const PARTS: [Part; 4] = [Part::Full, Part::Half, Part::Sparse, Part::Refused];

/// The process. It is killed when dropped.
pub struct Child {
    child: std::process::Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    addresses: Vec<u64>,
    tag: String,
}

/// Number of children so far.
static CHILDREN: AtomicU32 = AtomicU32::new(0);

impl Child {
    /// Starts this test program as the child. The test that is named `child` in it must call [`run`].
    pub fn start() -> Self {
        let number = CHILDREN.fetch_add(1, Ordering::Relaxed);
        let tag = format!("child-{number}-of-{}-", std::process::id());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"])
            // Names this process for the manager's rules; no test has this name.
            .args(["--skip", &tag])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut addresses = Vec::new();
        while addresses.len() < PARTS.len() {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the child ended");
            addresses
                .extend(line.split("at ").skip(1).filter_map(|at| at.trim().parse::<u64>().ok()));
        }
        Self { child, input, output, addresses, tag }
    }

    /// A word of its command line that no other process has.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    pub fn process(&self) -> Process {
        Process::read(&Root::real(), Pid(self.child.id() as i32)).unwrap().unwrap()
    }

    /// First addresses of the superpage-sized blocks of a part.
    pub fn starts(&self, part: Part) -> Vec<u64> {
        let first = self.addresses[PARTS.iter().position(|one| *one == part).unwrap()];
        (0..COUNT).map(|at| first + (at * SUPERPAGE) as u64).collect()
    }

    /// Whether the child finds its contents whole.
    pub fn is_whole(&mut self) -> bool {
        writeln!(self.input.as_mut().unwrap(), "check").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().ends_with("whole")
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Pages of a part that have contents.
fn pages(part: Part) -> impl Iterator<Item = usize> {
    let step = match part {
        Part::Full | Part::Refused => 1,
        Part::Half => 2,
        Part::Sparse => SUPERPAGE / PAGE,
    };
    (0..COUNT * SUPERPAGE / PAGE).step_by(step)
}

/// What the child does.
pub fn run() {
    let mut parts = Vec::new();
    for part in PARTS {
        let mut memory = Mapping::anonymous((COUNT + 1) * SUPERPAGE, Backing::Pages).unwrap();
        let skip = memory.address().next_multiple_of(SUPERPAGE as u64) - memory.address();
        if part == Part::Refused {
            memory.advise(Advice::NoHugePage).unwrap();
        }
        for page in pages(part) {
            let at = skip as usize + page * PAGE;
            memory.bytes_mut()[at..at + 8].copy_from_slice(&(page as u64 + 1).to_le_bytes());
        }
        println!("at {}", memory.address() + skip);
        parts.push((part, memory, skip as usize));
    }
    for line in std::io::stdin().lines() {
        line.unwrap();
        let is_whole = parts.iter().all(|(part, memory, skip)| {
            pages(*part).all(|page| {
                let at = skip + page * PAGE;
                memory.bytes()[at..at + 8] == (page as u64 + 1).to_le_bytes()
            })
        });
        println!("{}", if is_whole { "whole" } else { "broken" });
    }
}
