//! The memory access that a sampled thread waited for.
//!
//! An interrupt is taken when an instruction retires. So the sampled instruction pointer is mostly one behind the
//! instruction that took long: a load that missed. That instruction is found by decoding backwards, and its address is
//! computed from the registers of the sample. They are those after the load, so an address whose own register was
//! overwritten is lost, except in a pointer chase (`mov rax, [rax+8]`): there the loaded value is the register of the
//! chase's next access, which stands for this one.
//!
//! x86 instructions have no common length, so backwards means: forwards from many starts before, of which nearly all
//! fall into step after a few instructions.

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use serde::Serialize;

/// Reads code: fills the buffer with the bytes at an address and returns the number of bytes read, from the first on.
pub type Reader<'a> = Box<dyn FnMut(u64, &mut [u8]) -> usize + 'a>;

/// Bytes decoded before an instruction pointer.
const BEFORE: u64 = 112;
/// Bytes of which each is a start of decoding. The rest of [`BEFORE`] is for falling into step.
const STARTS: usize = 48;
/// Longest instruction, in bytes.
const LONGEST: u64 = 15;
/// Instructions looked at before the sampled one. A core retires several at once, and the first may be the load.
const BACK: usize = 4;

/// What an access does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Reads memory.
    Load,
    /// Writes memory.
    Store,
    /// Reads and writes the same address.
    Update,
}

/// An access of a sampled thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Address of the instruction.
    pub site: u64,
    /// First byte accessed.
    pub address: u64,
    /// What it does.
    pub kind: Kind,
    /// Whether the address is that of the instruction's next access.
    pub is_next: bool,
    /// Whether the address was loaded from memory itself by the same instruction, or by one shortly before: such
    /// accesses wait for each other.
    pub is_dependent: bool,
}

/// What a sample tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribution {
    /// The thread waited for this access, or had just made it.
    Access(Access),
    /// There was an access, but its address is lost: its registers were overwritten, or are vectors or segments.
    Lost,
    /// No access was near.
    None,
    /// The code could not be read or decoded.
    Unreadable,
}

/// The code of a process, decoded around sampled instructions.
pub struct Code<'a> {
    read: Reader<'a>,
    info: InstructionInfoFactory,
    sites: HashMap<u64, Option<Site>>,
}

/// The instructions around an instruction pointer.
#[derive(Debug, Clone)]
struct Site {
    /// The nearest first; each was executed just before the next if no branch came from elsewhere.
    before: Vec<Known>,
    at: Option<Known>,
}

/// What matters of an instruction.
#[derive(Debug, Clone)]
struct Known {
    ip: u64,
    memory: Option<Operand>,
    /// Full general registers that it writes, as bits of their numbers.
    writes: u16,
    /// The register to which it only adds a constant, and the constant.
    adds: Option<(u8, u64)>,
    /// Whether it reads memory into the registers it writes.
    is_load: bool,
    /// Whether the next instruction is executed after it.
    falls_through: bool,
}

/// A memory operand.
#[derive(Debug, Clone, Copy)]
struct Operand {
    kind: Kind,
    /// Instruction-relative and absolute addresses have neither register.
    base: Option<u8>,
    index: Option<u8>,
    scale: u64,
    displacement: u64,
    /// Whether the address needs what a sample does not have: a segment's base, vector registers.
    is_hidden: bool,
}

impl Operand {
    fn registers(&self) -> u16 {
        [self.base, self.index].into_iter().flatten().fold(0, |bits, register| bits | 1 << register)
    }

    /// The address with these registers, from each of which what was added to it since is taken away.
    fn address(&self, registers: &[u64; 16], added: &[u64; 16]) -> u64 {
        let value = |register: Option<u8>| {
            register.map_or(0, |at| {
                let at = usize::from(at);
                registers[at].wrapping_sub(added[at])
            })
        };
        value(self.base)
            .wrapping_add(value(self.index).wrapping_mul(self.scale))
            .wrapping_add(self.displacement)
    }
}

impl<'a> Code<'a> {
    /// Code that `read` reads, 64-bit.
    pub fn new(read: Reader<'a>) -> Self {
        Self { read, info: InstructionInfoFactory::new(), sites: HashMap::new() }
    }

    /// The access of a sample at `ip` with these general registers, in the order of
    /// [`UserSample::registers`](sys::perf::UserSample).
    pub fn attribute(&mut self, ip: u64, registers: &[u64; 16]) -> Attribution {
        if !self.sites.contains_key(&ip) {
            let site = self.site(ip);
            self.sites.insert(ip, site);
        }
        match &self.sites[&ip] {
            Some(site) => site.attribute(registers),
            None => Attribution::Unreadable,
        }
    }

    /// Decodes around `ip`; `None`: unreadable, or the decodings from before do not agree.
    fn site(&mut self, ip: u64) -> Option<Site> {
        let from = ip.saturating_sub(BEFORE);
        let mut bytes = vec![0; (ip - from + LONGEST) as usize];
        let mut first = 0;
        let mut got = (self.read)(from, &mut bytes);
        if got == 0 {
            // The page before is not mapped.
            first = ip - from;
            got = (self.read)(ip, &mut bytes[first as usize..]);
        }
        let end = first as usize + got;
        let bytes = &bytes[first as usize..end];
        let from = from + first;
        let split = (ip - from) as usize;
        if split >= bytes.len() {
            return None;
        }
        let at = self.decode(&bytes[split..], ip).next();
        let before = self.before(&bytes[..split], from, ip);
        (at.is_some() || !before.is_empty()).then_some(Site { before, at })
    }

    /// The instructions that end at `ip`, the nearest first; empty if no way of decoding prevails.
    fn before(&mut self, bytes: &[u8], from: u64, ip: u64) -> Vec<Known> {
        let mut ways: HashMap<Vec<u64>, usize> = HashMap::new();
        let starts = bytes.len().min(STARTS);
        let mut arrived = 0;
        for start in 0..starts {
            let decoder = &mut Decoder::with_ip(
                64,
                &bytes[start..],
                from + start as u64,
                DecoderOptions::NONE,
            );
            let mut way = Vec::new();
            while decoder.can_decode() {
                let instruction = decoder.decode();
                if instruction.is_invalid() {
                    way.clear();
                    continue;
                }
                way.push(instruction.ip());
            }
            if decoder.ip() == ip && !way.is_empty() {
                arrived += 1;
                way.reverse();
                way.truncate(BACK);
                *ways.entry(way).or_default() += 1;
            }
        }
        let Some((way, count)) = ways.into_iter().max_by_key(|(way, count)| (*count, way.len()))
        else {
            return Vec::new();
        };
        if arrived < starts.div_ceil(2) || count < (arrived * 3).div_ceil(4) {
            return Vec::new();
        }
        let Some(&first) = way.last() else { return Vec::new() };
        let mut known: Vec<Known> = self.decode(&bytes[(first - from) as usize..], first).collect();
        known.reverse();
        known
    }

    fn decode<'b>(&'b mut self, bytes: &'b [u8], ip: u64) -> impl Iterator<Item = Known> + 'b {
        let mut decoder = Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE);
        let info = &mut self.info;
        std::iter::from_fn(move || {
            let instruction = decoder.can_decode().then(|| decoder.decode())?;
            (!instruction.is_invalid()).then(|| Known::new(&instruction, info))
        })
    }
}

impl Site {
    fn attribute(&self, registers: &[u64; 16]) -> Attribution {
        // Since the access: registers with new values, and constants added to others.
        let (mut overwritten, mut added) = (0, [0; 16]);
        let mut lost = false;
        for (place, known) in self.before.iter().enumerate() {
            if !known.falls_through {
                break;
            }
            // Behind a store nothing is waited for.
            if let Some(operand) = &known.memory
                && (operand.kind != Kind::Store || place == 0)
            {
                match self.access(place, operand, overwritten, &added, registers) {
                    Some(access) if operand.kind != Kind::Store => {
                        return Attribution::Access(access);
                    }
                    Some(_) => {}
                    None => lost = true,
                }
                if lost {
                    break;
                }
            }
            match known.adds {
                Some((register, constant)) => {
                    let sum = &mut added[usize::from(register)];
                    *sum = sum.wrapping_add(constant);
                }
                None => overwritten |= known.writes,
            }
        }
        if lost {
            return Attribution::Lost;
        }
        // A store waits at its own place: for room in the store buffer.
        let operand = self.at.as_ref().and_then(|known| Some((known.ip, known.memory?)));
        match operand {
            Some((_, operand)) if operand.is_hidden => Attribution::Lost,
            Some((site, operand)) => Attribution::Access(Access {
                site,
                address: operand.address(registers, &[0; 16]),
                kind: operand.kind,
                is_next: false,
                is_dependent: self.is_loaded(0, &operand),
            }),
            None => Attribution::None,
        }
    }

    /// The access of the instruction `place` before; `None` if its address is lost. `overwritten`: the registers that
    /// the instructions after it write; `added`: what they add to others.
    fn access(
        &self,
        place: usize,
        operand: &Operand,
        overwritten: u16,
        added: &[u64; 16],
        registers: &[u64; 16],
    ) -> Option<Access> {
        let known = &self.before[place];
        let (used, own) = (operand.registers(), known.writes);
        if operand.is_hidden || used & overwritten != 0 {
            return None;
        }
        // The load's own register: it holds the address of the chase's next access.
        let is_next = used & own != 0;
        let is_chase = known.is_load && operand.base.is_some_and(|base| own & 1 << base != 0);
        if is_next && (!is_chase || operand.index.is_some_and(|index| own & 1 << index != 0)) {
            return None;
        }
        Some(Access {
            site: known.ip,
            address: operand.address(registers, added),
            kind: operand.kind,
            is_next,
            is_dependent: is_next || self.is_loaded(place + 1, operand),
        })
    }

    /// Whether an instruction from `place` on loads a register of the address.
    fn is_loaded(&self, place: usize, operand: &Operand) -> bool {
        let used = operand.registers();
        self.before.iter().skip(place).any(|known| known.is_load && known.writes & used != 0)
    }
}

impl Known {
    fn new(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let info = factory.info(instruction);
        let mut writes = 0;
        for used in info.used_registers() {
            let is_write = matches!(
                used.access(),
                OpAccess::Write
                    | OpAccess::ReadWrite
                    | OpAccess::CondWrite
                    | OpAccess::ReadCondWrite
            );
            if let Some(number) = number_of(used.register()).filter(|_| is_write) {
                writes |= 1 << number;
            }
        }
        let (mut memory, mut is_load) = (None, false);
        for used in info.used_memory() {
            let kind = match used.access() {
                OpAccess::Read | OpAccess::CondRead => Kind::Load,
                OpAccess::Write | OpAccess::CondWrite => Kind::Store,
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => Kind::Update,
                _ => continue,
            };
            is_load |= kind != Kind::Store;
            let general = |register: Register| match register {
                Register::None | Register::RIP | Register::EIP => Some(None),
                register if register.size() < 4 => None,
                register => number_of(register).map(Some),
            };
            let (base, index) = (general(used.base()), general(used.index()));
            let segment = matches!(used.segment(), Register::FS | Register::GS);
            // Of a string instruction, the read is the first.
            if memory.is_none() {
                memory = Some(Operand {
                    kind,
                    base: base.flatten(),
                    index: index.flatten(),
                    scale: u64::from(used.scale()),
                    displacement: used.displacement(),
                    is_hidden: segment || base.is_none() || index.is_none(),
                });
            }
        }
        let falls_through = !matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Call
                | FlowControl::IndirectCall
        );
        let adds = constant_added(instruction);
        Self { ip: instruction.ip(), memory, writes, adds, is_load, falls_through }
    }
}

/// The 64-bit register to which an instruction adds a constant, and the constant.
fn constant_added(instruction: &Instruction) -> Option<(u8, u64)> {
    let register = instruction.op0_register();
    if instruction.op_count() == 0
        || instruction.op_kind(0) != OpKind::Register
        || register.size() != 8
    {
        return None;
    }
    let immediate = || instruction.try_immediate(1).ok();
    let constant = match instruction.mnemonic() {
        Mnemonic::Add => immediate()?,
        Mnemonic::Sub => immediate()?.wrapping_neg(),
        Mnemonic::Inc => 1,
        Mnemonic::Dec => u64::MAX,
        Mnemonic::Lea
            if instruction.memory_base() == register
                && instruction.memory_index() == Register::None =>
        {
            instruction.memory_displacement64()
        }
        _ => return None,
    };
    Some((number_of(register)?, constant))
}

/// The place of a general register in a sample; `None` for other registers.
pub(crate) fn number_of(register: Register) -> Option<u8> {
    use Register::{R8, R9, R10, R11, R12, R13, R14, R15};
    use Register::{RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP};
    const ORDER: [Register; 16] =
        [RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8, R9, R10, R11, R12, R13, R14, R15];
    let full = register.full_register();
    ORDER.iter().position(|one| *one == full).map(|at| at as u8)
}
