//! The memory access that a sampled thread waited for.
//!
//! An interrupt is taken when an instruction retires. So the sampled instruction pointer is mostly one behind the
//! instruction that took long: a load that missed. That instruction is found by decoding backwards, and its address is
//! computed from the registers of the sample. They are those after the load, so an address whose own register was
//! overwritten is lost, except in a pointer chase (`mov rax, [rax+8]`): there the loaded value is the register of the
//! chase's next access, which stands for this one.
//!
//! See docs/decisions/advise.md#1.
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

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: u64 = 0x40_0000;

    /// What is found for a sample behind `before` and at `at`, with registers 0x1000, 0x2000, ... in their order.
    fn found(before: &[u8], at: &[u8]) -> Attribution {
        found_with(before, at, std::array::from_fn(|place| 0x1000 * (place as u64 + 1)))
    }

    fn found_with(before: &[u8], at: &[u8], registers: [u64; 16]) -> Attribution {
        let mut bytes = vec![0x90; 256 - before.len()];
        bytes.extend(before);
        bytes.extend(at);
        bytes.extend([0x90; 32]);
        let read = move |address: u64, buffer: &mut [u8]| {
            let Some(from) = address.checked_sub(CODE) else { return 0 };
            let Some(rest) = bytes.get(from as usize..) else { return 0 };
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        };
        Code::new(Box::new(read)).attribute(CODE + 256, &registers)
    }

    fn access(before: &[u8], at: &[u8]) -> (u64, Kind, bool) {
        match found(before, at) {
            Attribution::Access(access) => (access.address, access.kind, access.is_next),
            other => panic!("{before:x?} {at:x?}: {other:?}"),
        }
    }

    const NOP: &[u8] = &[0x90];

    #[test]
    fn the_load_before_the_sampled_instruction_has_its_address_computed() {
        // mov rdx, [rdi+rcx*8]
        assert_eq!(
            access(&[0x48, 0x8b, 0x14, 0xcf], NOP),
            (0x6000 + 8 * 0x3000, Kind::Load, false)
        );
        // xor [rax+rdi*8], rdx
        let update = access(&[0x48, 0x31, 0x14, 0xf8], NOP);
        assert_eq!(update, (0x1000 + 8 * 0x6000, Kind::Update, false));
        // movups xmm0, [r15-16]
        assert_eq!(access(&[0x41, 0x0f, 0x10, 0x47, 0xf0], NOP), (0xfff0, Kind::Load, false));
        // mov rax, [rip+16]
        let relative = access(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], NOP);
        assert_eq!(relative, (CODE + 256 + 16, Kind::Load, false));
        // cmp [r8+rcx*8], rdx; jb +2: three instructions behind a load are still looked at.
        let behind = access(&[0x49, 0x39, 0x14, 0xc8, 0x72, 0x02], NOP);
        assert_eq!(behind, (0x9000 + 8 * 0x3000, Kind::Load, false));
    }

    #[test]
    fn a_chase_is_represented_by_its_next_access() {
        // mov rax, [rax+8]
        assert_eq!(access(&[0x48, 0x8b, 0x40, 0x08], NOP), (0x1008, Kind::Load, true));
        // mov rax, [rax+rax]: the index is overwritten too.
        assert_eq!(found(&[0x48, 0x8b, 0x04, 0x00], NOP), Attribution::Lost);
    }

    #[test]
    fn constants_added_since_are_taken_away() {
        // movupd xmm0, [rax]; add rax, 32
        let added = access(&[0x66, 0x0f, 0x10, 0x00, 0x48, 0x83, 0xc0, 0x20], NOP);
        assert_eq!(added, (0x1000 - 32, Kind::Load, false));
        // mov rdx, [rsi]; lea rsi, [rsi+8]; dec rcx
        let moved = [0x48, 0x8b, 0x16, 0x48, 0x8d, 0x76, 0x08, 0x48, 0xff, 0xc9];
        assert_eq!(access(&moved, NOP), (0x5000 - 8, Kind::Load, false));
        // mov rdx, [rsi]; mov rsi, rcx
        assert_eq!(found(&[0x48, 0x8b, 0x16, 0x48, 0x89, 0xce], NOP), Attribution::Lost);
    }

    #[test]
    fn what_a_sample_does_not_have_is_lost() {
        // mov rax, fs:[0x28]
        let segment = [0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0];
        assert_eq!(found(&segment, NOP), Attribution::Lost);
        // vpgatherqq xmm0, [rdi+xmm1*8], xmm2
        assert_eq!(found(&[0xc4, 0xe2, 0xe9, 0x91, 0x04, 0xcf], NOP), Attribution::Lost);
    }

    #[test]
    fn a_store_waits_at_its_own_place() {
        // mov [rsi], rax
        assert_eq!(access(NOP, &[0x48, 0x89, 0x06]), (0x5000, Kind::Store, false));
        // Behind a store nothing is waited for.
        assert_eq!(found(&[0x48, 0x89, 0x06], NOP), Attribution::None);
    }

    #[test]
    fn code_without_accesses_tells_nothing_and_no_code_is_unreadable() {
        assert_eq!(found(NOP, NOP), Attribution::None);
        // lea rax, [rdi+rcx]: an address, and no access.
        assert_eq!(found(&[0x48, 0x8d, 0x04, 0x0f], NOP), Attribution::None);
        // mov rdx, [rdi]; ret: what is behind a return was reached from elsewhere.
        assert_eq!(found(&[0x48, 0x8b, 0x17, 0xc3], NOP), Attribution::None);
        let mut code = Code::new(Box::new(|_, _: &mut [u8]| 0));
        assert_eq!(code.attribute(CODE, &[0; 16]), Attribution::Unreadable);
    }

    #[test]
    fn accesses_whose_addresses_were_loaded_depend_on_loads() {
        // mov rax, [rdi]; mov rdx, [rax+rcx*8]
        let loaded = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x14, 0xc8];
        let is_dependent = |before: &[u8]| match found(before, NOP) {
            Attribution::Access(access) => access.is_dependent,
            other => panic!("{other:?}"),
        };
        assert!(is_dependent(&loaded));
        assert!(!is_dependent(&loaded[3..]));
    }

    proptest::proptest! {
        /// No bytes and no registers end the decoder.
        #[test]
        fn any_code_is_decoded(bytes: [u8; 32], at: [u8; 8], registers: [u64; 16]) {
            found_with(&bytes, &at, registers);
        }
    }
}
