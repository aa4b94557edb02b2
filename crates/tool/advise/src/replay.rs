//! What a thread accesses within the next microseconds after a sample.
//!
//! Samples are milliseconds apart, in which a thread makes a million accesses. Whether it uses a page once or twenty
//! times in a row is not seen in them, but decides what the page's translation costs. So some samples are replayed: from
//! the sampled registers and the process's memory, the instructions that follow are interpreted here, and their
//! accesses are recorded. The process runs on and is not touched; what the interpreter writes, only the interpreter
//! reads.
//!
//! The interpreter knows the general registers. Vector registers hold unknown values, and unknown values make
//! addresses and flags unknown. A conditional branch by unknown flags is taken if it goes back; a window ends after a few
//! of these guesses, at a system call, and where code or a branch's target is unknown. The process may have changed
//! memory since the sample: an approximation, like the guesses, of what is used as a mean over many windows.
//! See docs/decisions/advise.md#2.

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize,
    Mnemonic, OpAccess, OpKind, Register,
};

use crate::code::{Kind, number_of};
use crate::peek::{Pages, Peek};

/// Most instructions of a window.
const MAX_INSTRUCTIONS: u32 = 3000;
/// Most accesses of a window.
const MAX_ACCESSES: usize = 600;
/// Most branches of a window that are guessed.
const MAX_GUESSES: u32 = 12;
/// Most lines of one string instruction that are recorded.
const MAX_LINES: u64 = 64;

/// An access of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Address of the instruction.
    pub site: u64,
    /// First byte accessed.
    pub address: u64,
    /// What it does.
    pub kind: Kind,
    /// Number of instructions before it in the window.
    pub after: u32,
    /// The access of the window that its address was computed from, the latest if there are several.
    pub from: Option<u32>,
    /// The last conditional branch before it that an access decides: its address, and the access.
    pub branch: Option<(u64, u32)>,
}

/// The accesses after one sample.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// In order; those to unknown addresses are missing.
    pub steps: Vec<Step>,
    /// Number of instructions interpreted.
    pub instructions: u32,
    /// Number of accesses whose addresses are unknown.
    pub unknown: u32,
    /// Conditional branches: address, and whether taken. Without guesses.
    pub branches: Vec<(u64, bool)>,
}

/// Interprets code. Keeps decoded instructions.
pub struct Replay {
    decoded: HashMap<u64, Option<Instruction>>,
    info: InstructionInfoFactory,
}

/// A value, if known, and the access that it was computed from, as its index plus one; 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    bits: Option<u64>,
    from: u32,
}

const UNKNOWN: Value = Value { bits: None, from: 0 };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Flags {
    carry: bool,
    zero: bool,
    sign: bool,
    overflow: bool,
    parity: bool,
}

struct State<'a, P> {
    peek: &'a mut Peek<P>,
    registers: [Value; 16],
    flags: Option<Flags>,
    flags_from: u32,
    written: HashMap<u64, Option<u8>>,
    window: Window,
    branch: Option<(u64, u32)>,
    guesses: u32,
}

/// Where the interpreter goes on.
enum Next {
    At(u64),
    End,
}

impl Default for Replay {
    fn default() -> Self {
        Self { decoded: HashMap::new(), info: InstructionInfoFactory::new() }
    }
}

impl Replay {
    /// The accesses that follow `ip` with these registers and flags.
    pub fn window<P: Pages>(
        &mut self,
        ip: u64,
        registers: &[u64; 16],
        flags: u64,
        peek: &mut Peek<P>,
    ) -> Window {
        let mut state = State {
            peek,
            registers: registers.map(|bits| Value { bits: Some(bits), from: 0 }),
            flags: Some(Flags::from_register(flags)),
            flags_from: 0,
            written: HashMap::new(),
            window: Window::default(),
            branch: None,
            guesses: 0,
        };
        let mut ip = ip;
        while state.window.instructions < MAX_INSTRUCTIONS
            && state.window.steps.len() < MAX_ACCESSES
        {
            let Some(instruction) = self.fetch(ip, state.peek) else { break };
            let next = state.execute(&instruction, &mut self.info);
            state.window.instructions += 1;
            match next {
                Next::At(at) => ip = at,
                Next::End => break,
            }
        }
        state.window
    }

    fn fetch<P: Pages>(&mut self, ip: u64, peek: &mut Peek<P>) -> Option<Instruction> {
        let decode = || {
            let mut bytes = [0; 15];
            let count = peek.read(ip, &mut bytes);
            let mut decoder = Decoder::with_ip(64, &bytes[..count], ip, DecoderOptions::NONE);
            let instruction = decoder.can_decode().then(|| decoder.decode())?;
            (!instruction.is_invalid()).then_some(instruction)
        };
        *self.decoded.entry(ip).or_insert_with(decode)
    }
}

fn masked(bits: u64, size: usize) -> u64 {
    if size >= 8 { bits } else { bits & ((1 << (8 * size)) - 1) }
}

fn sign_bit(bits: u64, size: usize) -> bool {
    bits >> (8 * size - 1) & 1 == 1
}

fn extended(bits: u64, size: usize) -> u64 {
    let shift = 64 - 8 * size.min(8);
    ((bits << shift) as i64 >> shift) as u64
}

impl<P: Pages> State<'_, P> {
    fn execute(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Next {
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => return self.jump(instruction),
            FlowControl::UnconditionalBranch => return Next::At(instruction.near_branch_target()),
            FlowControl::Call => {
                self.push(Value { bits: Some(next), from: 0 }, instruction.ip());
                return Next::At(instruction.near_branch_target());
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall => {
                let target = self.operand(instruction, 0);
                if instruction.flow_control() == FlowControl::IndirectCall {
                    self.push(Value { bits: Some(next), from: 0 }, instruction.ip());
                }
                return target.bits.map_or(Next::End, Next::At);
            }
            FlowControl::Return => {
                let target = self.pop(instruction.ip());
                return target.bits.map_or(Next::End, Next::At);
            }
            _ => return Next::End,
        }
        if !self.simple(instruction) {
            self.other(instruction, factory);
        }
        Next::At(next)
    }

    fn jump(&mut self, instruction: &Instruction) -> Next {
        let target = instruction.near_branch_target();
        let condition = self.condition(instruction);
        if let Some(from) = self.flags_from.checked_sub(1) {
            self.branch = Some((instruction.ip(), from));
        }
        let is_taken = match condition {
            Some(is_taken) => {
                self.window.branches.push((instruction.ip(), is_taken));
                is_taken
            }
            None => {
                self.guesses += 1;
                if self.guesses > MAX_GUESSES {
                    return Next::End;
                }
                target < instruction.ip()
            }
        };
        Next::At(if is_taken { target } else { instruction.next_ip() })
    }

    /// Whether the condition of a jump, move or set holds.
    fn condition(&self, instruction: &Instruction) -> Option<bool> {
        use iced_x86::ConditionCode as Code;
        let flags = self.flags?;
        let Flags { carry, zero, sign, overflow, parity } = flags;
        Some(match instruction.condition_code() {
            Code::o => overflow,
            Code::no => !overflow,
            Code::b => carry,
            Code::ae => !carry,
            Code::e => zero,
            Code::ne => !zero,
            Code::be => carry || zero,
            Code::a => !(carry || zero),
            Code::s => sign,
            Code::ns => !sign,
            Code::p => parity,
            Code::np => !parity,
            Code::l => sign != overflow,
            Code::ge => sign == overflow,
            Code::le => zero || sign != overflow,
            Code::g => !(zero || sign != overflow),
            Code::None => return None,
        })
    }

    /// Executes the instructions that compute addresses and conditions in most code; false for others.
    fn simple(&mut self, instruction: &Instruction) -> bool {
        use Mnemonic::{
            Adc, Add, And, Bsf, Bsr, Bswap, Bt, Cdq, Cdqe, Cmp, Cqo, Cwde, Dec, Div, Idiv, Imul,
            Inc, Lea, Leave, Mov, Movsx, Movsxd, Movzx, Mul, Neg, Nop, Not, Or, Pop, Push, Rol,
            Ror, Sal, Sar, Sarx, Sbb, Shl, Shlx, Shr, Shrx, Sub, Test, Tzcnt, Xchg, Xor,
        };
        let size = self.size(instruction, 0);
        if size == 0 || size > 8 {
            if instruction.mnemonic() == Nop {
                return true;
            }
            if !matches!(instruction.mnemonic(), Leave | Cdqe | Cdq | Cqo | Cwde) {
                return false;
            }
        }
        // Moves to and from vector and segment registers have the same mnemonics.
        for operand in 0..instruction.op_count() {
            if instruction.op_kind(operand) == OpKind::Register
                && number_of(instruction.op_register(operand)).is_none()
            {
                return false;
            }
        }
        let read = |state: &mut Self, operand| state.operand(instruction, operand);
        match instruction.mnemonic() {
            Nop => {}
            Mov => {
                let value = read(self, 1);
                self.assign(instruction, 0, value);
            }
            Movzx => {
                let value = read(self, 1);
                self.assign(instruction, 0, value);
            }
            Movsx | Movsxd => {
                let (from, value) = (self.size(instruction, 1), read(self, 1));
                let bits = value.bits.map(|bits| extended(bits, from));
                self.assign(instruction, 0, Value { bits, ..value });
            }
            Lea => {
                let value = self.address(instruction);
                self.assign(instruction, 0, value);
            }
            Push => {
                let value = read(self, 0);
                self.push(value, instruction.ip());
            }
            Pop => {
                let value = self.pop(instruction.ip());
                self.assign(instruction, 0, value);
            }
            Leave => {
                self.registers[RSP] = self.registers[RBP];
                self.registers[RBP] = self.pop(instruction.ip());
            }
            Xchg => {
                let (first, second) = (read(self, 0), read(self, 1));
                self.assign(instruction, 0, second);
                self.assign(instruction, 1, first);
            }
            Cdqe => self.set_register(RAX, 8, |bits| extended(bits, 4)),
            Cwde => self.set_register(RAX, 4, |bits| extended(bits, 2)),
            Cdq | Cqo => {
                let size = if instruction.mnemonic() == Cqo { 8 } else { 4 };
                let value = self.registers[RAX];
                let bits = value.bits.map(|bits| match sign_bit(bits, size) {
                    true => masked(u64::MAX, size),
                    false => 0,
                });
                self.registers[RDX] = Value { bits, ..value };
            }
            Add | Sub | Cmp | And | Or | Xor | Test => {
                let mnemonic = instruction.mnemonic();
                let is_cleared = matches!(mnemonic, Xor | Sub)
                    && instruction.op_kind(0) == OpKind::Register
                    && instruction.op_kind(1) == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register();
                let (a, b) = match is_cleared {
                    true => (ZERO, ZERO),
                    false => (read(self, 0), read(self, 1)),
                };
                let from = a.from.max(b.from);
                let result = a.bits.zip(b.bits).map(|(a, b)| {
                    let b = masked(b, size);
                    match mnemonic {
                        Add => add(a, b, size),
                        Sub | Cmp => subtract(a, b, size),
                        And | Test => logic(a & b, size),
                        Or => logic(a | b, size),
                        _ => logic(a ^ b, size),
                    }
                });
                self.set_flags(result.map(|(_, flags)| flags), from);
                if !matches!(mnemonic, Cmp | Test) {
                    self.assign(instruction, 0, Value { bits: result.map(|one| one.0), from });
                }
            }
            Inc | Dec | Neg | Not => {
                let value = read(self, 0);
                let mnemonic = instruction.mnemonic();
                let result = value.bits.map(|bits| match mnemonic {
                    Inc => add(bits, 1, size),
                    Dec => subtract(bits, 1, size),
                    Neg => subtract(0, bits, size),
                    _ => (masked(!bits, size), Flags::of(0, size)),
                });
                let carry = self.flags.map(|flags| flags.carry);
                if mnemonic != Not {
                    // The carry is kept by inc and dec; an unknown one is taken as clear.
                    let flags = result.map(|(_, flags)| match mnemonic {
                        Neg => flags,
                        _ => Flags { carry: carry.unwrap_or(false), ..flags },
                    });
                    self.set_flags(flags, value.from);
                }
                self.assign(instruction, 0, Value { bits: result.map(|one| one.0), ..value });
            }
            Shl | Sal | Shr | Sar | Rol | Ror => {
                let (value, by) = (read(self, 0), read(self, 1));
                let from = value.from.max(by.from);
                let mnemonic = instruction.mnemonic();
                let result = value.bits.zip(by.bits).map(|(bits, by)| {
                    let by = (by & if size == 8 { 63 } else { 31 }) as u32;
                    shift(mnemonic, bits, by, size)
                });
                if !matches!(mnemonic, Rol | Ror) && by.bits != Some(0) {
                    self.set_flags(result.map(|bits| Flags::of(bits, size)), from);
                }
                self.assign(instruction, 0, Value { bits: result, from });
            }
            Shlx | Shrx | Sarx => {
                let (value, by) = (read(self, 1), read(self, 2));
                let mnemonic = match instruction.mnemonic() {
                    Shlx => Shl,
                    Shrx => Shr,
                    _ => Sar,
                };
                let bits = value.bits.zip(by.bits).map(|(bits, by)| {
                    shift(mnemonic, bits, (by & (8 * size as u64 - 1)) as u32, size)
                });
                self.assign(instruction, 0, Value { bits, from: value.from.max(by.from) });
            }
            Imul if instruction.op_count() >= 2 => {
                let (first, second) = match instruction.op_count() {
                    2 => (read(self, 0), read(self, 1)),
                    _ => (read(self, 1), read(self, 2)),
                };
                let bits =
                    first.bits.zip(second.bits).map(|(a, b)| masked(a.wrapping_mul(b), size));
                let from = first.from.max(second.from);
                self.set_flags(None, from);
                self.assign(instruction, 0, Value { bits, from });
            }
            Mul | Imul | Div | Idiv => {
                let by = read(self, 0);
                let (low, high) = (self.registers[RAX], self.registers[RDX]);
                let from = by.from.max(low.from);
                let known = low.bits.zip(by.bits).filter(|_| size >= 4);
                let result = known.and_then(|(low, by)| {
                    let low = masked(low, size);
                    match instruction.mnemonic() {
                        Mul => Some(wide(u128::from(low) * u128::from(by), size)),
                        Imul => {
                            let (a, b) = (extended(low, size) as i64, extended(by, size) as i64);
                            Some(wide((i128::from(a) * i128::from(b)) as u128, size))
                        }
                        mnemonic => divide(mnemonic, masked(high.bits?, size), low, by, size),
                    }
                });
                self.set_flags(None, from);
                self.registers[RAX] = Value { bits: result.map(|one| one.0), from };
                self.registers[RDX] = Value { bits: result.map(|one| one.1), from };
            }
            Adc | Sbb => {
                let (a, b) = (read(self, 0), read(self, 1));
                let from = a.from.max(b.from).max(self.flags_from);
                let carry = self.flags.map(|flags| u64::from(flags.carry));
                let result = a.bits.zip(b.bits).zip(carry).map(|((a, b), carry)| {
                    let with = match instruction.mnemonic() {
                        Adc => add,
                        _ => subtract,
                    };
                    let (once, first) = with(a, masked(b, size), size);
                    let (twice, second) = with(once, carry, size);
                    (twice, Flags { carry: first.carry || second.carry, ..second })
                });
                self.set_flags(result.map(|(_, flags)| flags), from);
                self.assign(instruction, 0, Value { bits: result.map(|one| one.0), from });
            }
            Bswap => {
                let value = read(self, 0);
                let bits = value.bits.map(|bits| bits.swap_bytes() >> (64 - 8 * size));
                self.assign(instruction, 0, Value { bits, ..value });
            }
            Bsf | Tzcnt | Bsr => {
                let value = read(self, 1);
                let is_last = instruction.mnemonic() == Bsr;
                let bits = value.bits.map(|bits| match (bits, is_last) {
                    (0, _) => 8 * size as u64,
                    (bits, true) => u64::from(bits.ilog2()),
                    (bits, false) => u64::from(bits.trailing_zeros()),
                });
                let flags =
                    value.bits.map(|bits| Flags { carry: bits == 0, ..Flags::of(bits, size) });
                self.set_flags(flags, value.from);
                self.assign(instruction, 0, Value { bits, ..value });
            }
            Bt if instruction.op_kind(0) == OpKind::Register => {
                let (value, bit) = (read(self, 0), read(self, 1));
                let flags = value.bits.zip(bit.bits).map(|(bits, bit)| Flags {
                    carry: bits >> (bit & (8 * size as u64 - 1)) & 1 == 1,
                    ..Flags::of(1, size)
                });
                self.set_flags(flags, value.from.max(bit.from));
            }
            _ if is_conditional(instruction) && instruction.op_count() == 2 => {
                let (old, new) = (read(self, 0), read(self, 1));
                let from = old.from.max(new.from).max(self.flags_from);
                let bits = match self.condition(instruction) {
                    Some(true) => new.bits,
                    Some(false) => old.bits,
                    None => None,
                };
                self.assign(instruction, 0, Value { bits, from });
            }
            _ if is_conditional(instruction) && instruction.op_count() == 1 => {
                let bits = self.condition(instruction).map(u64::from);
                self.assign(instruction, 0, Value { bits, from: self.flags_from });
            }
            _ => return false,
        }
        true
    }

    /// Records the accesses of any other instruction, and makes unknown what it writes.
    fn other(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) {
        let info = factory.info(instruction);
        let site = instruction.ip();
        let accesses: Vec<(Option<u64>, u32, Kind, u64)> = info
            .used_memory()
            .iter()
            .filter_map(|used| {
                let kind = kind_of(used.access())?;
                let (base, index) = (self.part(used.base()), self.part(used.index()));
                let is_hidden = matches!(used.segment(), Register::FS | Register::GS);
                let bits = base.bits.zip(index.bits).filter(|_| !is_hidden).map(|(base, index)| {
                    let scaled = index.wrapping_mul(u64::from(used.scale()));
                    base.wrapping_add(scaled).wrapping_add(used.displacement())
                });
                Some((bits, base.from.max(index.from), kind, used.memory_size().size() as u64))
            })
            .collect();
        let is_repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let count =
            self.registers[RCX].bits.filter(|_| is_repeated && instruction.is_string_instruction());
        for (address, from, kind, size) in accesses {
            let length = size.max(1).saturating_mul(count.unwrap_or(1));
            match address {
                Some(address) if length > 0 => {
                    for line in 0..length.div_ceil(64).min(MAX_LINES) {
                        self.record(site, address.wrapping_add(64 * line), kind, from);
                    }
                    if kind != Kind::Load {
                        for byte in 0..length.min(256) {
                            self.written.insert(address.wrapping_add(byte), None);
                        }
                    }
                }
                Some(_) => {}
                None => self.window.unknown += 1,
            }
        }
        let written: Vec<(usize, bool)> = info
            .used_registers()
            .iter()
            .filter(|used| {
                matches!(
                    used.access(),
                    OpAccess::Write
                        | OpAccess::ReadWrite
                        | OpAccess::CondWrite
                        | OpAccess::ReadCondWrite
                )
            })
            .filter_map(|used| Some((usize::from(number_of(used.register())?), true)))
            .collect();
        let is_string = count.is_some();
        let latest = self.window.steps.len() as u32;
        for (register, _) in written {
            let value = &mut self.registers[register];
            // The pointers of a repeated string instruction move by its length; the count ends at 0 unless it compares.
            if is_string && [RSI, RDI].contains(&register) {
                let size = string_size(instruction);
                value.bits = value
                    .bits
                    .zip(count)
                    .map(|(at, count)| at.wrapping_add(count.wrapping_mul(size)));
            } else if is_string && register == RCX {
                *value = ZERO;
            } else {
                *value = Value { bits: None, from: latest };
            }
        }
        if instruction.rflags_modified() != 0 {
            self.set_flags(None, latest);
        }
    }

    fn set_flags(&mut self, flags: Option<Flags>, from: u32) {
        (self.flags, self.flags_from) = (flags, from);
    }

    fn set_register(&mut self, register: usize, size: usize, change: impl Fn(u64) -> u64) {
        let value = &mut self.registers[register];
        value.bits = value.bits.map(|bits| masked(change(bits), size));
    }

    fn part(&self, register: Register) -> Value {
        match register {
            Register::None | Register::RIP | Register::EIP => ZERO,
            register => match number_of(register) {
                Some(number) => {
                    let value = self.registers[usize::from(number)];
                    let bits = value.bits.map(|bits| masked(bits, register.size()));
                    Value { bits, ..value }
                }
                None => UNKNOWN,
            },
        }
    }

    /// The address of the memory operand.
    fn address(&self, instruction: &Instruction) -> Value {
        let (base, index) =
            (self.part(instruction.memory_base()), self.part(instruction.memory_index()));
        let is_hidden = matches!(instruction.segment_prefix(), Register::FS | Register::GS);
        let from = base.from.max(index.from);
        // The decoder has added the instruction pointer to the displacement.
        let bits = base.bits.zip(index.bits).filter(|_| !is_hidden).map(|(base, index)| {
            let scaled = index.wrapping_mul(u64::from(instruction.memory_index_scale()));
            base.wrapping_add(scaled).wrapping_add(instruction.memory_displacement64())
        });
        Value { bits, from }
    }

    fn size(&self, instruction: &Instruction, operand: u32) -> usize {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size(),
            OpKind::Memory => memory_size(instruction),
            _ if operand > 0 => self.size(instruction, 0),
            // push imm
            _ => 8,
        }
    }

    /// Reads an operand, zero-extended.
    fn operand(&mut self, instruction: &Instruction, operand: u32) -> Value {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let Some(number) = number_of(register) else { return UNKNOWN };
                let value = self.registers[usize::from(number)];
                let is_high =
                    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
                let bits = value
                    .bits
                    .map(|bits| masked(if is_high { bits >> 8 } else { bits }, register.size()));
                Value { bits, ..value }
            }
            OpKind::Memory => {
                let address = self.address(instruction);
                self.load(address, memory_size(instruction), instruction.ip())
            }
            _ => Value { bits: instruction.try_immediate(operand).ok(), from: 0 },
        }
    }

    fn assign(&mut self, instruction: &Instruction, operand: u32, value: Value) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let Some(number) = number_of(register) else { return };
                let old = &mut self.registers[usize::from(number)];
                let is_high =
                    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
                *old = match register.size() {
                    8 => value,
                    4 => Value { bits: value.bits.map(|bits| masked(bits, 4)), ..value },
                    size => {
                        let at = if is_high { 8 } else { 0 };
                        let mask = masked(u64::MAX, size) << at;
                        let bits = old
                            .bits
                            .zip(value.bits)
                            .map(|(old, new)| old & !mask | new << at & mask);
                        Value { bits, from: old.from.max(value.from) }
                    }
                };
            }
            OpKind::Memory => {
                let address = self.address(instruction);
                self.store(address, value, memory_size(instruction), instruction.ip());
            }
            _ => {}
        }
    }

    fn load(&mut self, address: Value, size: usize, site: u64) -> Value {
        let Some(at) = address.bits else {
            self.window.unknown += 1;
            return UNKNOWN;
        };
        self.record(site, at, Kind::Load, address.from);
        let from = self.window.steps.len() as u32;
        let mut bytes = [0; 8];
        if size > 8 {
            return Value { bits: None, from };
        }
        let there = self.peek.read(at, &mut bytes[..size]);
        for (offset, byte) in bytes[..size].iter_mut().enumerate() {
            match self.written.get(&at.wrapping_add(offset as u64)) {
                Some(Some(written)) => *byte = *written,
                None if offset < there => {}
                _ => return Value { bits: None, from },
            }
        }
        Value { bits: Some(u64::from_le_bytes(bytes)), from }
    }

    fn store(&mut self, address: Value, value: Value, size: usize, site: u64) {
        let Some(at) = address.bits else {
            self.window.unknown += 1;
            return;
        };
        // A read of the same instruction just before: an update.
        match self.window.steps.last_mut() {
            Some(last) if last.site == site && last.address == at => last.kind = Kind::Update,
            _ => self.record(site, at, Kind::Store, address.from),
        }
        for offset in 0..size.min(8) {
            let byte = value.bits.map(|bits| (bits >> (8 * offset)) as u8);
            self.written.insert(at.wrapping_add(offset as u64), byte);
        }
    }

    fn record(&mut self, site: u64, address: u64, kind: Kind, from: u32) {
        if self.window.steps.len() < MAX_ACCESSES {
            self.window.steps.push(Step {
                site,
                address,
                kind,
                after: self.window.instructions,
                from: from.checked_sub(1),
                branch: self.branch,
            });
        }
    }

    fn push(&mut self, value: Value, site: u64) {
        let stack = &mut self.registers[RSP];
        stack.bits = stack.bits.map(|at| at.wrapping_sub(8));
        let stack = *stack;
        self.store(stack, value, 8, site);
    }

    fn pop(&mut self, site: u64) -> Value {
        let stack = self.registers[RSP];
        let value = self.load(stack, 8, site);
        self.registers[RSP].bits = stack.bits.map(|at| at.wrapping_add(8));
        value
    }
}

const ZERO: Value = Value { bits: Some(0), from: 0 };
// Places of registers in samples.
const RAX: usize = 0;
const RCX: usize = 2;
const RDX: usize = 3;
const RSI: usize = 4;
const RDI: usize = 5;
const RBP: usize = 6;
const RSP: usize = 7;

fn memory_size(instruction: &Instruction) -> usize {
    match instruction.memory_size() {
        MemorySize::Unknown => 8,
        size => size.size(),
    }
}

/// Whether it is a conditional move or set.
fn is_conditional(instruction: &Instruction) -> bool {
    instruction.condition_code() != iced_x86::ConditionCode::None
}

fn kind_of(access: OpAccess) -> Option<Kind> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Kind::Load),
        OpAccess::Write | OpAccess::CondWrite => Some(Kind::Store),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => Some(Kind::Update),
        _ => None,
    }
}

fn string_size(instruction: &Instruction) -> u64 {
    instruction.memory_size().size().max(1) as u64
}

impl Flags {
    /// The flags in EFLAGS.
    fn from_register(bits: u64) -> Self {
        let bit = |place: u32| bits >> place & 1 == 1;
        Self { carry: bit(0), parity: bit(2), zero: bit(6), sign: bit(7), overflow: bit(11) }
    }

    fn of(bits: u64, size: usize) -> Self {
        let bits = masked(bits, size);
        Self {
            carry: false,
            zero: bits == 0,
            sign: sign_bit(bits, size),
            overflow: false,
            parity: (bits as u8).count_ones().is_multiple_of(2),
        }
    }
}

fn add(a: u64, b: u64, size: usize) -> (u64, Flags) {
    let sum = masked(a.wrapping_add(b), size);
    let overflow = sign_bit((a ^ sum) & (b ^ sum), size);
    (sum, Flags { carry: sum < masked(a, size), overflow, ..Flags::of(sum, size) })
}

fn subtract(a: u64, b: u64, size: usize) -> (u64, Flags) {
    let difference = masked(a.wrapping_sub(b), size);
    let overflow = sign_bit((a ^ b) & (a ^ difference), size);
    let carry = masked(a, size) < masked(b, size);
    (difference, Flags { carry, overflow, ..Flags::of(difference, size) })
}

/// The low and the high half of a product.
fn wide(product: u128, size: usize) -> (u64, u64) {
    let low = product as u64;
    match size {
        8 => (low, (product >> 64) as u64),
        _ => (masked(low, size), masked((product >> (8 * size)) as u64, size)),
    }
}

/// Quotient and remainder; `None`: the processor would fault.
fn divide(mnemonic: Mnemonic, high: u64, low: u64, by: u64, size: usize) -> Option<(u64, u64)> {
    let whole = u128::from(high) << (8 * size) | u128::from(low);
    let (quotient, remainder) = match mnemonic {
        Mnemonic::Div => {
            let by = u128::from(by);
            (whole.checked_div(by)?, whole.checked_rem(by)?)
        }
        _ => {
            let shift = 128 - 16 * size as u32;
            let whole = (whole << shift) as i128 >> shift;
            let by = i128::from(extended(by, size) as i64);
            (whole.checked_div(by)? as u128, whole.checked_rem(by)? as u128)
        }
    };
    Some((masked(quotient as u64, size), masked(remainder as u64, size)))
}

fn logic(bits: u64, size: usize) -> (u64, Flags) {
    (masked(bits, size), Flags::of(bits, size))
}

fn shift(mnemonic: Mnemonic, bits: u64, by: u32, size: usize) -> u64 {
    let width = 8 * size as u32;
    let result = match mnemonic {
        Mnemonic::Shl | Mnemonic::Sal => bits.checked_shl(by).unwrap_or(0),
        Mnemonic::Shr => bits.checked_shr(by).unwrap_or(0),
        Mnemonic::Sar => ((extended(bits, size) as i64) >> by.min(63)) as u64,
        Mnemonic::Rol | Mnemonic::Ror if by.is_multiple_of(width) => bits,
        Mnemonic::Rol => bits << (by % width) | bits >> (width - by % width),
        _ => bits >> (by % width) | bits << (width - by % width),
    };
    masked(result, size)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const PAGE: u64 = 4096;

    /// Pages by address.
    struct Fake(BTreeMap<u64, Vec<u8>>);

    impl Pages for Fake {
        fn page(&mut self, address: u64, page: &mut [u8]) -> bool {
            self.0.get(&address).is_some_and(|bytes| {
                page.copy_from_slice(bytes);
                true
            })
        }
    }

    /// Replays code at 0x1000 with memory words elsewhere.
    fn window(code: &[u8], words: &[(u64, u64)], registers: &[(usize, u64)]) -> Window {
        let mut pages: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut put = |address: u64, bytes: &[u8]| {
            let page = pages.entry(address - address % PAGE).or_insert(vec![0; PAGE as usize]);
            let from = (address % PAGE) as usize;
            page[from..from + bytes.len()].copy_from_slice(bytes);
        };
        put(0x1000, code);
        words.iter().for_each(|(address, word)| put(*address, &word.to_le_bytes()));
        let mut all = [0; 16];
        registers.iter().for_each(|(register, value)| all[*register] = *value);
        let mut peek = Peek::new(Fake(pages), PAGE);
        Replay::default().window(0x1000, &all, 0, &mut peek)
    }

    fn addresses(window: &Window) -> Vec<u64> {
        window.steps.iter().map(|step| step.address).collect()
    }

    #[test]
    fn a_chase_is_followed_and_each_access_depends_on_the_last() {
        // loop: mov rax, [rax]; test rax, rax; jne loop; int3
        let code = [0x48, 0x8b, 0x00, 0x48, 0x85, 0xc0, 0x75, 0xf8, 0xcc];
        let chain = [(0x9000, 0x5008), (0x5008, 0x7010), (0x7010, 0)];
        let window = window(&code, &chain, &[(RAX, 0x9000)]);
        assert_eq!(addresses(&window), [0x9000, 0x5008, 0x7010]);
        let from: Vec<Option<u32>> = window.steps.iter().map(|step| step.from).collect();
        assert_eq!(from, [None, Some(0), Some(1)]);
        assert_eq!(window.steps[2].branch, Some((0x1006, 1)));
        assert_eq!(window.branches, [(0x1006, true), (0x1006, true), (0x1006, false)]);
    }

    #[test]
    fn a_binary_search_finds_its_key() {
        // next: lea rcx, [rsi+rdi]; shr rcx, 1; cmp [r8+rcx*8], rdx; jb low; mov rsi, rcx
        // test: cmp rdi, rsi; jb next; int3
        // low: lea rdi, [rcx+1]; jmp test
        let code = [
            0x48, 0x8d, 0x0c, 0x3e, 0x48, 0xd1, 0xe9, 0x49, 0x39, 0x14, 0xc8, 0x72, 0x09, 0x48,
            0x89, 0xce, 0x48, 0x39, 0xf7, 0x72, 0xeb, 0xcc, 0x48, 0x8d, 0x79, 0x01, 0xeb, 0xf4,
        ];
        let words: Vec<(u64, u64)> = (0..16).map(|at| (0x8000 + 8 * at, 10 * at)).collect();
        let window = window(&code, &words, &[(RSI, 16), (RDI, 0), (8, 0x8000), (RDX, 70)]);
        let places: Vec<u64> = addresses(&window).iter().map(|at| (at - 0x8000) / 8).collect();
        assert_eq!(places, [8, 4, 6, 7]);
    }

    #[test]
    fn what_is_written_is_read_back_by_the_replay_alone() {
        // mov [rdi], rsi; mov rax, [rdi]; mov rcx, [rax]; int3
        let code = [0x48, 0x89, 0x37, 0x48, 0x8b, 0x07, 0x48, 0x8b, 0x08, 0xcc];
        let window = window(&code, &[(0x9000, 0x1234)], &[(RDI, 0x9000), (RSI, 0xa000)]);
        assert_eq!(addresses(&window), [0x9000, 0x9000, 0xa000]);
        assert_eq!(window.steps[0].kind, Kind::Store);
    }

    #[test]
    fn unknown_values_make_addresses_unknown_and_end_windows() {
        // movq rax, xmm0; mov rcx, [rax]; mov rdx, [rdi]; jmp rcx
        let code = [0x66, 0x48, 0x0f, 0x7e, 0xc0, 0x48, 0x8b, 0x08, 0x48, 0x8b, 0x17, 0xff, 0xe1];
        let window = window(&code, &[], &[(RDI, 0x9000)]);
        assert_eq!((addresses(&window), window.unknown), (vec![0x9000], 1));
        assert_eq!(window.instructions, 4);
    }

    #[test]
    fn calls_return_and_string_instructions_touch_their_lines() {
        // call f; mov rdx, [rbx]; int3; f: rep stosb; ret
        let code = [0xe8, 0x04, 0, 0, 0, 0x48, 0x8b, 0x13, 0xcc, 0xf3, 0xaa, 0xc3];
        let registers = [(RSP, 0xb800), (RDI, 0x9000), (RCX, 200), (1, 0xa000)];
        let window = window(&code, &[], &registers);
        let lines: Vec<u64> = (0..4).map(|line| 0x9000 + 64 * line).collect();
        let expected = [&[0xb7f8], lines.as_slice(), &[0xb7f8, 0xa000]].concat();
        assert_eq!(addresses(&window), expected);
    }

    #[test]
    fn arithmetic_is_the_processors() {
        assert_eq!(add(u64::MAX, 1, 8).0, 0);
        assert!(add(0x7fff_ffff, 1, 4).1.overflow && add(0xff, 1, 1).1.carry);
        assert!(subtract(0, 1, 4).1.carry && !subtract(5, 3, 8).1.carry);
        assert!(subtract(0x80, 1, 1).1.overflow);
        assert_eq!(shift(Mnemonic::Sar, 0x80, 1, 1), 0xc0);
        assert_eq!(shift(Mnemonic::Rol, 0x81, 1, 1), 0x03);
        assert_eq!(shift(Mnemonic::Shl, 1, 63, 8), 1 << 63);
        assert_eq!(wide(u128::from(u64::MAX) * 2, 8), (u64::MAX - 1, 1));
        assert_eq!(divide(Mnemonic::Div, 1, 0, 2, 8), Some((1 << 63, 0)));
        let minus = masked(-7i64 as u64, 4);
        let expected = (masked(-3i64 as u64, 4), masked(-1i64 as u64, 4));
        assert_eq!(divide(Mnemonic::Idiv, masked(u64::MAX, 4), minus, 2, 4), Some(expected));
        assert_eq!(divide(Mnemonic::Div, 0, 1, 0, 8), None);
    }

    proptest::proptest! {
        /// No code and no registers end the interpreter, or make it go on for ever.
        #[test]
        fn any_code_is_interpreted(bytes: [u8; 64], registers: [u64; 16], flags: u64) {
            let mut page = vec![0x90; PAGE as usize];
            page[..64].copy_from_slice(&bytes);
            let mut peek = Peek::new(Fake(BTreeMap::from([(0x1000, page)])), PAGE);
            let window = Replay::default().window(0x1000, &registers, flags, &mut peek);
            proptest::prop_assert!(window.instructions <= MAX_INSTRUCTIONS);
        }
    }
}
