//! Records windows of a running program: between them it runs natively, within them one of its threads is stepped
//! instruction by instruction, and every instruction and every address that it accesses is kept.
//!
//! Windows lie evenly over the CPU time of all threads, so each stands for the same share of it.
//! See docs/decisions/prediction.md#11.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use host::process::{Maps, Sharing};
use host::{Root, coverage};
use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, Register, UsedMemory,
};
use sys::guard::{self, Guarded};
use sys::pagemap::Pagemap;
use sys::peek::Memory;
use sys::prctl::ThpControl;
use sys::ptrace::{self, Registers, Stop};
use sys::spawn::ChildSetup;
use units::{ByteSize, PageSize, Pid};

use crate::ReplayError;

/// How windows are recorded.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// CPU time between windows.
    pub interval: Duration,
    /// Instructions of a window.
    pub instructions: usize,
    /// Maximum number of windows.
    pub windows: usize,
}

/// How an access uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A load or a prefetch.
    Read,
    /// A store.
    Write,
    /// Both, of one address.
    Both,
}

impl Use {
    /// The use by an operand; `None`: no use, as of an address that is only computed.
    pub fn by(access: OpAccess) -> Option<Self> {
        match access {
            OpAccess::Read | OpAccess::CondRead => Some(Self::Read),
            OpAccess::Write | OpAccess::CondWrite => Some(Self::Write),
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Self::Both),
            OpAccess::None | OpAccess::NoMemAccess => None,
        }
    }

    /// Whether it loads.
    pub fn reads(self) -> bool {
        self != Self::Write
    }

    /// Whether it stores.
    pub fn writes(self) -> bool {
        self != Self::Read
    }
}

/// An access of an instruction.
#[derive(Debug, Clone, Copy)]
pub struct Access {
    /// How it uses memory.
    pub how: Use,
    /// Whether its address is the instruction's memory operand.
    pub is_explicit: bool,
    memory: UsedMemory,
}

/// An instruction of the program, decoded.
#[derive(Debug, Clone)]
pub struct Code {
    /// The instruction.
    pub instruction: Instruction,
    /// Its accesses, in the order in which a step has their addresses.
    pub accesses: Vec<Access>,
}

/// One executed instruction.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Its place in [`Recorded::code`].
    pub code: u32,
    /// The place of its first address in [`Window::addresses`].
    pub first: u32,
}

/// Consecutive instructions of one thread.
#[derive(Debug, Clone)]
pub struct Window {
    /// The process.
    pub process: Pid,
    /// Time since the program's start.
    pub at: Duration,
    /// The instructions.
    pub steps: Vec<Step>,
    /// Addresses of their accesses.
    pub addresses: Vec<u64>,
    /// Pages that the window touched first: the kernel has just written their entry, and zeroed them.
    pub fresh: HashSet<u64>,
}

/// Windows of a program.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The different instructions.
    pub code: Vec<Code>,
    /// The windows, in order of time.
    pub windows: Vec<Window>,
    /// Superpage regions (process, address / size) that superpages could back: private anonymous memory all through.
    pub eligible: HashSet<(Pid, u64)>,
    /// Resident memory of its processes when it was largest: all, and what superpages could back.
    pub resident: (ByteSize, ByteSize),
    /// Pairs of neighbouring base pages in that memory, and those of them that are neighbours in physical memory, too.
    /// Zero pairs without the privilege to see frames (CAP_SYS_ADMIN).
    pub neighbours: (u64, u64),
}

impl Recorded {
    /// Whether the program's base pages lie in order in physical memory, so that processors that merge neighbours in
    /// the TLB can do so. Assumed if it cannot be seen.
    pub fn lies_in_order(&self) -> bool {
        let (all, near) = self.neighbours;
        2 * near >= all
    }
}

/// Starts a program, which gets no superpages, and records windows of it. `progress` gets the number of windows, and
/// cancels by returning false. A program that has not ended with the recording is ended.
///
/// # Errors
/// The program cannot be started or traced.
pub fn record(
    command: &mut Command,
    plan: Plan,
    superpage: PageSize,
    progress: impl FnMut(usize) -> bool,
) -> Result<(Recorded, ExitStatus), ReplayError> {
    let setup = ChildSetup { thp: Some(ThpControl::Disabled), ..ChildSetup::default() };
    let started = guard::spawn(command, |command| sys::spawn::prepare(command, setup));
    let Guarded { guard, program } = started.map_err(ReplayError::Start)?;
    let recorded = Recorder::new(program, plan, superpage).map(|it| it.record(progress));
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        if sys::wait::has_ended_within(guard, GRACE) != Some(true) {
            // Fails if it ended meanwhile.
            let _ = sys::signal::send(program, signal);
        }
    }
    let (status, _) = sys::wait::reap(guard)?;
    Ok((recorded?, status))
}

struct Thread {
    process: Pid,
    /// CPU time seen so far, and the part of it that windows stand for.
    seen: Duration,
    due: Duration,
}

/// Number of regions of a mapping whose frames are looked at.
const SEEN_REGIONS: u64 = 8;
/// Time in which a program ends by itself, or after SIGTERM.
const GRACE: Duration = Duration::from_secs(2);

/// A running recording. Only the thread that has started it may use it (ptrace).
struct Recorder {
    plan: Plan,
    superpage: PageSize,
    program: Pid,
    begun: Instant,
    threads: HashMap<Pid, Thread>,
    known: HashMap<(Pid, u64), u32>,
    memory: HashMap<Pid, Memory>,
    factory: InstructionInfoFactory,
    recorded: Recorded,
}

const POLL: Duration = Duration::from_millis(2);
/// Maximum time of a window; a thread that sleeps in the kernel ends its window.
const MAX_SLEEP: Duration = Duration::from_millis(300);

impl Recorder {
    /// Starts to trace a program that was just started.
    ///
    /// # Errors
    /// It cannot be traced.
    fn new(program: Pid, plan: Plan, superpage: PageSize) -> Result<Self, ReplayError> {
        ptrace::seize(program).map_err(ReplayError::Trace)?;
        let mut recorder = Self {
            plan,
            superpage,
            program,
            begun: Instant::now(),
            threads: HashMap::new(),
            known: HashMap::new(),
            memory: HashMap::new(),
            factory: InstructionInfoFactory::new(),
            recorded: Recorded::default(),
        };
        recorder.add(program);
        Ok(recorder)
    }

    /// Records until the program ends or `progress` returns false. What still runs is left to the caller, untraced.
    fn record(mut self, mut progress: impl FnMut(usize) -> bool) -> Recorded {
        let mut due = Duration::ZERO;
        while self.threads.contains_key(&self.program)
            && self.recorded.windows.len() < self.plan.windows
            && progress(self.recorded.windows.len())
        {
            std::thread::sleep(POLL.min(self.plan.interval / 4));
            self.events();
            due += self.account();
            if due >= self.plan.interval {
                due = due.saturating_sub(self.plan.interval).min(self.plan.interval);
                let most = self.threads.iter().max_by_key(|(_, thread)| thread.due);
                if let Some(thread) = most.map(|(thread, _)| *thread) {
                    self.window(thread);
                }
            }
        }
        self.let_go();
        self.recorded
    }

    fn let_go(&mut self) {
        for thread in self.threads.keys().copied().collect::<Vec<_>>() {
            if ptrace::interrupt(thread).is_ok() && self.wait(thread) != Stop::Gone {
                let _ = ptrace::detach(thread);
            }
        }
    }

    /// Waits for a thread, and handles what happens to others meanwhile.
    fn wait(&mut self, thread: Pid) -> Stop {
        loop {
            match ptrace::wait(thread, false) {
                Ok(Some(stop)) => return stop,
                Ok(None) => ptrace::wait_for_any(),
                Err(_) => return Stop::Gone,
            }
            self.other_events(thread);
        }
    }

    fn other_events(&mut self, but: Pid) {
        let others: Vec<_> = self.threads.keys().copied().filter(|it| *it != but).collect();
        for other in others {
            if let Ok(Some(stop)) = ptrace::wait(other, false) {
                self.event(other, stop);
            }
        }
    }

    fn add(&mut self, thread: Pid) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", thread.0));
        let process = status.ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
            line.trim().parse().ok().map(Pid)
        });
        let process = process.unwrap_or(thread);
        let seen = cpu_time(thread).unwrap_or_default();
        self.threads.entry(thread).or_insert(Thread { process, seen, due: Duration::ZERO });
    }

    /// Handles what has happened to the threads.
    fn events(&mut self) {
        for thread in self.threads.keys().copied().collect::<Vec<_>>() {
            while self.threads.contains_key(&thread)
                && let Some(stop) = ptrace::wait(thread, false).unwrap_or(Some(Stop::Gone))
            {
                self.event(thread, stop);
            }
        }
    }

    /// Handles one change and lets the thread go on. A request to a thread that was killed meanwhile fails; its end is
    /// reported next.
    fn event(&mut self, thread: Pid, stop: Stop) {
        let mut signal = 0;
        match stop {
            Stop::Gone => {
                self.threads.remove(&thread);
                return;
            }
            Stop::Stopped => {
                let _ = ptrace::listen(thread);
                return;
            }
            Stop::Signal(number) => signal = number,
            Stop::Started(other) => self.add(other),
            Stop::Executed => {
                let process = self.threads.get(&thread).map_or(thread, |it| it.process);
                self.forget(process);
            }
            Stop::Trap | Stop::Interrupted => {}
        }
        let _ = ptrace::resume(thread, signal);
    }

    fn forget(&mut self, process: Pid) {
        self.memory.remove(&process);
        self.known.retain(|(other, _), _| *other != process);
    }

    /// Adds up CPU time, and returns how much was added.
    fn account(&mut self) -> Duration {
        let mut added = Duration::ZERO;
        for (pid, thread) in &mut self.threads {
            let Some(now) = cpu_time(*pid) else { continue };
            let used = now.saturating_sub(thread.seen);
            thread.seen = now;
            thread.due += used;
            added += used;
        }
        added
    }

    /// Steps a thread through a window.
    fn window(&mut self, thread: Pid) {
        loop {
            // Any other stop takes the place of this one.
            if ptrace::interrupt(thread).is_err() {
                return;
            }
            match self.wait(thread) {
                Stop::Interrupted => break,
                stop => {
                    self.event(thread, stop);
                    if stop == Stop::Gone || stop == Stop::Stopped {
                        return;
                    }
                }
            }
        }
        let Some(state) = self.threads.get_mut(&thread) else { return };
        state.due = state.due.saturating_sub(self.plan.interval);
        let process = state.process;
        self.note_eligible(process);
        let at = self.begun.elapsed();
        let (steps, addresses) = (Vec::with_capacity(self.plan.instructions), Vec::new());
        let mut window = Window { process, at, steps, addresses, fresh: HashSet::new() };
        let left = self.steps(thread, &mut window);
        if left && let Some(thread_state) = self.threads.get_mut(&thread) {
            thread_state.seen = cpu_time(thread).unwrap_or(thread_state.seen);
            let _ = ptrace::resume(thread, 0);
        }
        if window.steps.len() > self.plan.instructions / 2 {
            self.recorded.windows.push(window);
        }
    }

    /// Returns whether the thread is left stopped.
    fn steps(&mut self, thread: Pid, window: &mut Window) -> bool {
        let mut signal = 0;
        let mut seen = Seen { pagemap: Pagemap::open(window.process).ok(), ..Seen::default() };
        let begun = Instant::now();
        while window.steps.len() < self.plan.instructions {
            let Ok(registers) = ptrace::registers(thread) else { return true };
            let code = self.decode(window.process, registers.rip);
            if let Some(code) = code {
                self.keep(code, &registers, window, &mut seen);
            }
            let enters_kernel = code.is_none_or(|code| {
                self.recorded.code[code as usize].instruction.mnemonic() == Mnemonic::Syscall
            });
            if ptrace::step(thread, std::mem::take(&mut signal)).is_err() {
                return true;
            }
            let stop = match enters_kernel {
                false => Some(self.wait(thread)),
                true => self.slow_step(thread),
            };
            match stop {
                Some(Stop::Trap) => {}
                Some(Stop::Signal(number)) => signal = number,
                Some(Stop::Interrupted) => {}
                Some(Stop::Started(other)) => self.add(other),
                Some(Stop::Executed) => self.forget(window.process),
                Some(stop @ (Stop::Gone | Stop::Stopped)) => {
                    self.event(thread, stop);
                    return false;
                }
                None => return true,
            }
            if window.steps.len().is_multiple_of(4096) && begun.elapsed() > 10 * MAX_SLEEP {
                break;
            }
        }
        if signal != 0 {
            let _ = ptrace::resume(thread, signal);
            return false;
        }
        true
    }

    /// Waits for a step that may sleep in the kernel; `None`: it slept too long, and was interrupted.
    fn slow_step(&mut self, thread: Pid) -> Option<Stop> {
        let begun = Instant::now();
        loop {
            if let Some(stop) = ptrace::wait(thread, false).unwrap_or(Some(Stop::Gone)) {
                return Some(stop);
            }
            self.other_events(thread);
            if begun.elapsed() > MAX_SLEEP {
                let _ = ptrace::interrupt(thread);
                return match self.wait(thread) {
                    Stop::Interrupted | Stop::Trap => None,
                    stop => Some(stop),
                };
            }
            std::thread::yield_now();
        }
    }

    fn decode(&mut self, process: Pid, at: u64) -> Option<u32> {
        if let Some(known) = self.known.get(&(process, at)) {
            return Some(*known);
        }
        let memory = match self.memory.entry(process) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(Memory::open(process).ok()?),
        };
        let mut bytes = [0; 15];
        let read = memory.read(at, &mut bytes).ok()?;
        let instruction = Decoder::with_ip(64, &bytes[..read], at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return None;
        }
        let code = decoded(instruction, &mut self.factory);
        let number = self.recorded.code.len() as u32;
        self.recorded.code.push(code);
        self.known.insert((process, at), number);
        Some(number)
    }

    fn keep(&self, code: u32, registers: &Registers, window: &mut Window, seen: &mut Seen) {
        let known = &self.recorded.code[code as usize];
        let address = |access: &Access| {
            let value = |register, _, _| value(registers, register);
            access.memory.virtual_address(0, value).unwrap_or(0)
        };
        let first = window.addresses.len() as u32;
        let is_string = known.instruction.is_string_instruction();
        if is_string && (known.instruction.has_rep_prefix() || known.instruction.has_repne_prefix())
        {
            // A rep prefix moves whole lines at once.
            let at: Vec<u64> = known.accesses.iter().map(&address).collect();
            let touched = (code, at.iter().map(|address| address >> 6).collect::<Vec<_>>());
            if seen.lines.as_ref() == Some(&touched) || registers.rcx == 0 {
                return;
            }
            seen.lines = Some(touched);
            seen.look(&at, &mut window.fresh);
            window.addresses.extend(at);
            window.steps.push(Step { code, first });
            return;
        }
        seen.lines = None;
        window.addresses.extend(known.accesses.iter().map(address));
        seen.look(&window.addresses[first as usize..], &mut window.fresh);
        window.steps.push(Step { code, first });
    }

    fn note_eligible(&mut self, process: Pid) {
        let Ok(maps) = Maps::open(&Root::real(), process) else { return };
        let size = self.superpage.bytes();
        // Neighbours of one kind, whose permissions and names are alike, are one area.
        let mut area: Option<(u64, u64)> = None;
        let pagemap = Pagemap::open(process);
        let (mut eligible, mut neighbours) = (0, (0, 0));
        let mut add = |(start, end): (u64, u64)| {
            let regions = start.div_ceil(size)..end / size;
            if !regions.is_empty()
                && let Ok(map) = &pagemap
                && let Ok(found) = coverage::scan(map, regions.start * size, regions.end * size)
            {
                eligible += found.present.bytes();
                // The last regions: those that the program touched last.
                let some = regions.end.saturating_sub(SEEN_REGIONS).max(regions.start);
                let frames = map.frames(some * size, regions.end * size).unwrap_or_default();
                for pair in frames.windows(2) {
                    if let [Some(one @ 1..), Some(two)] = pair {
                        neighbours.0 += 1;
                        neighbours.1 += u64::from(*two == one + 1);
                    }
                }
            }
            self.recorded.eligible.extend(regions.map(|region| (process, region)));
        };
        for mapping in maps.flatten() {
            let is_plain = mapping.inode == 0
                && mapping.writable
                && mapping.sharing == Sharing::Private
                && (mapping.name.is_empty()
                    || mapping.name == "[heap]"
                    || mapping.name.starts_with("[anon"));
            area = match area {
                Some((start, end)) if is_plain && end == mapping.start => {
                    Some((start, mapping.end))
                }
                other => {
                    other.into_iter().for_each(&mut add);
                    is_plain.then_some((mapping.start, mapping.end))
                }
            };
        }
        area.into_iter().for_each(&mut add);
        let all = std::fs::read_to_string(format!("/proc/{}/statm", process.0)).ok();
        let all = all.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
        let all = all.unwrap_or(0) * sys::param::page_size().bytes();
        if all > self.recorded.resident.0.bytes() {
            self.recorded.resident = (ByteSize(all), ByteSize(eligible));
            self.recorded.neighbours = neighbours;
        }
    }
}

/// Finds an instruction's accesses.
pub(crate) fn decoded(instruction: Instruction, factory: &mut InstructionInfoFactory) -> Code {
    let info = factory.info_options(&instruction, InstructionInfoOptions::NO_REGISTER_USAGE);
    let is_prefetch = format!("{:?}", instruction.mnemonic()).starts_with("Prefetch");
    let mut accesses = Vec::new();
    for memory in info.used_memory() {
        let how = Use::by(memory.access()).or(is_prefetch.then_some(Use::Read));
        let Some(how) = how else { continue };
        // Of gathers and scatters no addresses are known.
        if memory.index().is_vector_register() {
            continue;
        }
        let is_explicit = (memory.base() == instruction.memory_base()
            || instruction.memory_base() == Register::RIP && memory.base() == Register::None)
            && memory.index() == instruction.memory_index();
        accesses.push(Access { how, is_explicit, memory: *memory });
    }
    Code { instruction, accesses }
}

/// What a window has touched.
#[derive(Default)]
struct Seen {
    /// Lines that the last iteration of a rep prefix touched.
    lines: Option<(u32, Vec<u64>)>,
    pages: HashSet<u64>,
    pagemap: Option<Pagemap>,
}

impl Seen {
    /// Notes the pages that are about to be touched first.
    fn look(&mut self, addresses: &[u64], fresh: &mut HashSet<u64>) {
        let size = sys::param::page_size().bytes();
        for page in addresses.iter().map(|address| address / size) {
            if !self.pages.insert(page) {
                continue;
            }
            let found = self.pagemap.as_ref().map(|map| map.frames(page * size, (page + 1) * size));
            if let Some(Ok(frames)) = found
                && frames.first() == Some(&None)
            {
                fresh.insert(page);
            }
        }
    }
}

/// CPU time of a thread (`/proc/PID/schedstat`), in user mode and in the kernel.
fn cpu_time(thread: Pid) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/{}/schedstat", thread.0)).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn value(registers: &Registers, register: Register) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS => 0,
        _ => return None,
    };
    Some(if register.is_gpr32() { whole & 0xffff_ffff } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader's end is reported after its threads' ends: a recorder that waits for the leader alone hangs here.
    #[test]
    fn windows_of_a_program_with_threads_are_recorded_until_it_ends() {
        let program = "import os, threading, time\n\
                       for _ in range(3):\n    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n\
                       print(sum(i * i for i in range(3000000)), flush=True)\nos._exit(7)";
        let mut command = Command::new("python3");
        command.args(["-c", program]).stdout(std::process::Stdio::null());
        let interval = Duration::from_millis(20);
        let plan = Plan { interval, instructions: 300, windows: 1000 };
        let (recorded, status) =
            match record(&mut command, plan, PageSize::new(2 << 20).unwrap(), |_| true) {
                Ok(recorded) => recorded,
                Err(error) => {
                    testkit::skipped!("{error}");
                    return;
                }
            };
        assert_eq!(status.code(), Some(7));
        assert!(recorded.windows.len() >= 2, "{}", recorded.windows.len());
        for window in &recorded.windows {
            assert!(window.steps.len() > 150 && !window.addresses.is_empty());
        }
        assert!(recorded.resident.0.bytes() > 1 << 20);
    }
}
