//! Instructions as machine code that makes the same accesses over memory of zeros.
//!
//! Each basic block of the program is translated once. An instruction becomes one of the same kind on the same
//! registers, in which every value is zero and stays zero: constants are dropped, and instructions that make something
//! of nothing (`setc`, `not`, comparisons of vectors) become others with the same inputs and outputs. Addresses come
//! from a stream of offsets, to which the registers of the program's address are added. They are zero, so the address
//! is right, and the processor waits for them as it did in the program. A branch takes its direction from the stream
//! and waits for the flags of the program's branch, so it is predicted, and found wrong, as in the program.
//!
//! rsp points into the stream, and one more register, the least used one, holds offsets; what depended on them in the
//! program depends on nothing. gs has the start of the memory.
//! See docs/decisions/prediction.md#11.
use std::collections::{HashMap, HashSet};

use iced_x86::{
    Code as Op, ConditionCode, Encoder, FlowControl, Instruction, InstructionInfoFactory,
    MemoryOperand, Mnemonic, OpKind, Register,
};

use crate::image::{Block, EXIT};
use crate::record::{Code, Recorded, Use, Window};

/// The register for offsets: of those without a fixed role, the least used one.
pub(crate) fn least_used(recorded: &Recorded, windows: &[Window]) -> Register {
    let mut runs = vec![0u64; recorded.code.len()];
    for window in windows {
        window.steps.iter().for_each(|step| runs[step.code as usize] += 1);
    }
    let mut uses: HashMap<Register, u64> = HashMap::new();
    for (code, runs) in recorded.code.iter().zip(runs) {
        for register in named(&code.instruction) {
            *uses.entry(register).or_default() += runs;
        }
    }
    let candidates = [
        Register::R15,
        Register::R14,
        Register::R13,
        Register::R12,
        Register::R11,
        Register::R10,
        Register::R9,
        Register::R8,
    ];
    let least = candidates.into_iter().min_by_key(|register| uses.get(register).copied());
    least.unwrap_or(Register::R15)
}

/// The general registers that an instruction names.
fn named(instruction: &Instruction) -> Vec<Register> {
    let operands = (0..instruction.op_count())
        .filter(|operand| instruction.op_kind(*operand) == OpKind::Register)
        .map(|operand| instruction.op_register(operand));
    let address = [instruction.memory_base(), instruction.memory_index()];
    let all = operands.chain(address).filter(|register| register.is_gpr());
    all.map(Register::full_register).collect()
}

/// Writes machine code.
pub(crate) struct CodeWriter {
    pub bytes: Vec<u8>,
    encoder: Encoder,
    factory: InstructionInfoFactory,
    /// The register for offsets, and its lower half.
    offset: (Register, Register),
    /// Offset of the code that leaves.
    pub exit: u32,
    /// Instructions that were replaced by moves.
    replaced: HashSet<u32>,
    /// Places of displacements and the blocks that they lead to.
    jumps: Vec<(usize, u32)>,
}

impl CodeWriter {
    pub fn new(offset: Register) -> Self {
        let half = Register::EAX + (offset as u32 - Register::RAX as u32);
        Self {
            bytes: Vec::new(),
            encoder: Encoder::new(64),
            factory: InstructionInfoFactory::new(),
            offset: (offset, half),
            exit: 0,
            replaced: HashSet::new(),
            jumps: Vec::new(),
        }
    }

    pub fn replaced_in(&self, code: &[u32]) -> u64 {
        code.iter().filter(|code| self.replaced.contains(code)).count() as u64
    }

    pub fn blocks(&mut self, blocks: &mut [Block], recorded: &Recorded) {
        // mov rsp, [rsp]; ret
        self.bytes.extend([0x48, 0x8b, 0x24, 0x24, 0xc3]);
        for (number, block) in (0..).zip(blocks.iter_mut()) {
            block.at = self.bytes.len() as u32;
            let mut word = 0;
            for code in &block.code {
                self.instruction(*code, &recorded.code[*code as usize], word);
                word += recorded.code[*code as usize].accesses.len();
            }
            let last = block.code.last().map(|code| &recorded.code[*code as usize].instruction);
            let order = block.order.clone();
            self.end(last, &order, word, number + 1);
        }
        for (place, to) in std::mem::take(&mut self.jumps) {
            let to = if to == EXIT { self.exit } else { blocks[to as usize].at };
            let from = place as i64 + 4;
            let by = (i64::from(to) - from) as i32;
            self.bytes[place..place + 4].copy_from_slice(&by.to_le_bytes());
        }
    }

    /// Ends a block of `words` accesses.
    fn end(&mut self, last: Option<&Instruction>, order: &[u32], words: usize, following: u32) {
        let (offset, half) = self.offset;
        let several = order.len() > 1;
        if several {
            let waits = last.is_some_and(|it| {
                matches!(
                    it.flow_control(),
                    FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return
                )
            });
            let word = stream(words);
            if waits {
                // The register has a zero that waits for the program's target.
                self.put(Instruction::with2(Op::Add_r32_rm32, half, word));
            } else {
                self.put(Instruction::with2(Op::Mov_r32_rm32, half, word));
            }
            if last.is_some_and(|it| it.condition_code() != ConditionCode::None) {
                self.put(Instruction::with2(Op::Cmovbe_r64_rm64, offset, offset));
            }
        }
        let used = 4 * (words + usize::from(several)) as i64;
        if used > 0 {
            let next = MemoryOperand::with_base_displ(Register::RSP, used);
            self.put(Instruction::with2(Op::Lea_r64_m, Register::RSP, next));
        }
        if order.len() > 2 {
            self.put(Instruction::with1(Op::Jmp_rm64, offset));
            return;
        }
        if let [_, second] = order {
            self.put(Instruction::with2(Op::Test_rm32_r32, half, half));
            self.bytes.extend([0x0f, 0x85]); // jne
            self.jump(*second);
        }
        let first = order.first().copied().unwrap_or(EXIT);
        if first != following {
            self.bytes.push(0xe9);
            self.jump(first);
        }
    }

    fn jump(&mut self, to: u32) {
        self.jumps.push((self.bytes.len(), to));
        self.bytes.extend([0; 4]);
    }

    /// Appends an instruction; false: it cannot be encoded.
    fn put(&mut self, made: Result<Instruction, iced_x86::IcedError>) -> bool {
        let Ok(instruction) = made else { return false };
        let is_encoded = self.encoder.encode(&instruction, 0).is_ok();
        let bytes = self.encoder.take_buffer();
        if is_encoded {
            self.bytes.extend(bytes);
        }
        is_encoded
    }

    /// Whether a register has the role that it had in the program.
    fn is_kept(&self, register: Register) -> bool {
        register.is_gpr()
            && !matches!(register.full_register(), Register::RSP)
            && register.full_register() != self.offset.0
    }

    /// The registers that an instruction's address waits for.
    fn waits_for(&self, instruction: &Instruction) -> Vec<Register> {
        let both = [instruction.memory_base(), instruction.memory_index()];
        let mut found: Vec<Register> =
            both.into_iter().filter(|it| self.is_kept(*it)).map(Register::full_register).collect();
        found.dedup();
        found
    }

    /// Loads the offset of the access at `word`; returns the operand.
    fn address(&mut self, word: usize, waits_for: &[Register]) -> MemoryOperand {
        let (offset, half) = self.offset;
        self.put(Instruction::with2(Op::Mov_r32_rm32, half, stream(word)));
        if let Some(second) = waits_for.get(1) {
            let sum = MemoryOperand::with_base_index(offset, *second);
            self.put(Instruction::with2(Op::Lea_r64_m, offset, sum));
        }
        let index = waits_for.first().copied().unwrap_or(Register::None);
        MemoryOperand::new(offset, index, 1, 0, 0, false, Register::GS)
    }

    /// Writes what stands for an instruction whose accesses begin at `word`.
    fn instruction(&mut self, number: u32, code: &Code, word: usize) {
        let instruction = &code.instruction;
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 => return,
            _ if matches!(
                instruction.flow_control(),
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            ) =>
            {
                return;
            }
            Mnemonic::Lea => return self.lea(instruction),
            Mnemonic::Div | Mnemonic::Idiv if self.divide(code, word) => return,
            _ => {}
        }
        let kept =
            named(instruction).iter().all(|it| self.is_kept(*it) || is_address(instruction, *it));
        let begun = self.bytes.len();
        if kept && self.same(code, word) {
            return;
        }
        self.bytes.truncate(begun);
        if !is_branch(instruction)
            && !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave)
        {
            self.replaced.insert(number);
        }
        self.moves(code, word);
    }

    fn lea(&mut self, instruction: &Instruction) {
        let to = instruction.op_register(0);
        if !self.is_kept(to) {
            return;
        }
        let waits_for = self.waits_for(instruction);
        let made = match waits_for.as_slice() {
            [] => Instruction::with2(Op::Mov_r32_imm32, full_half(to), 0),
            [one] => Instruction::with2(
                Op::Lea_r64_m,
                to.full_register(),
                MemoryOperand::with_base(*one),
            ),
            [one, two, ..] => {
                let sum = MemoryOperand::with_base_index(*one, *two);
                Instruction::with2(Op::Lea_r64_m, to.full_register(), sum)
            }
        };
        self.put(made);
    }

    /// A division of zero by a one that waits for the divisor.
    fn divide(&mut self, code: &Code, word: usize) -> bool {
        let (offset, half) = self.offset;
        if !code.accesses.is_empty() {
            let from = self.address(word, &self.waits_for(&code.instruction));
            self.put(Instruction::with2(Op::Mov_r32_rm32, half, from));
        } else if self.is_kept(code.instruction.op_register(0)) {
            let divisor = code.instruction.op_register(0).full_register();
            self.put(Instruction::with2(Op::Mov_r64_rm64, offset, divisor));
        } else {
            return false;
        }
        self.put(Instruction::with2(Op::Or_rm64_imm8, offset, 1));
        let is_wide = code.instruction.op_register(0).is_gpr64()
            || code.instruction.memory_size().size() == 8;
        self.put(if is_wide {
            Instruction::with1(Op::Div_rm64, offset)
        } else {
            Instruction::with1(Op::Div_rm32, half)
        })
    }

    /// Writes the same instruction on zeros; false: it would not keep zeros, or cannot be written.
    fn same(&mut self, code: &Code, word: usize) -> bool {
        let mut made = code.instruction;
        let Some(op) = zero_preserving(&made) else { return false };
        made.set_code(op);
        let drops_constant = matches!(
            made.mnemonic(),
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor | Mnemonic::Or | Mnemonic::Mov
        );
        if drops_constant {
            for operand in 0..made.op_count() {
                // Fails for operands that are no constants.
                let _ = made.try_set_immediate_u64(operand, 0);
            }
        }
        let explicit = code.accesses.iter().position(|access| access.is_explicit);
        let has_memory = (0..made.op_count()).any(|it| made.op_kind(it) == OpKind::Memory);
        if code.accesses.len() > usize::from(has_memory) || has_memory != explicit.is_some() {
            return false;
        }
        if let Some(place) = explicit {
            let waits_for = self.waits_for(&made);
            let at = self.address(word + place, &waits_for);
            made.set_memory_base(at.base);
            made.set_memory_index(at.index);
            made.set_memory_index_scale(1);
            made.set_memory_displacement64(0);
            made.set_memory_displ_size(0);
            made.set_segment_prefix(Register::GS);
        }
        self.put(Ok(made))
    }

    /// Writes moves and additions with the instruction's inputs and outputs.
    fn moves(&mut self, code: &Code, word: usize) {
        let instruction = &code.instruction;
        let info = self.factory.info(instruction);
        let sources: Vec<Register> = (0..instruction.op_count())
            .filter(|it| instruction.op_kind(*it) == OpKind::Register)
            .filter(|it| Use::by(info.op_access(*it)).is_some_and(Use::reads))
            .map(|it| instruction.op_register(it))
            .collect();
        let results: Vec<Register> = info
            .used_registers()
            .iter()
            .filter(|it| Use::by(it.access()).is_some_and(Use::writes))
            .map(|it| it.register())
            .collect();
        let whole = |writer: &Self, registers: Vec<Register>| {
            let kept = registers.into_iter().filter(|it| writer.is_kept(*it));
            let mut kept: Vec<Register> = kept.map(Register::full_register).collect();
            kept.dedup();
            kept
        };
        let (sources, results) = (whole(self, sources), whole(self, results));
        let (offset, half) = self.offset;
        let waits_for = self.waits_for(instruction);
        let waits = |is_explicit: bool| if is_explicit { waits_for.as_slice() } else { &[] };
        let mut is_loaded = false;
        for (place, access) in code.accesses.iter().enumerate().filter(|(_, it)| it.how.reads()) {
            let from = self.address(word + place, waits(access.is_explicit));
            let to = if is_branch(instruction) { None } else { results.first().copied() };
            is_loaded |= to.is_some();
            self.put(Instruction::with2(Op::Mov_r64_rm64, to.unwrap_or(offset), from));
        }
        for (place, access) in code.accesses.iter().enumerate().filter(|(_, it)| it.how.writes()) {
            let to = self.address(word + place, waits(access.is_explicit));
            let is_word = instruction.memory_size().size() >= 8 || !access.is_explicit;
            match (sources.first(), is_word) {
                (Some(from), true) => self.put(Instruction::with2(Op::Mov_rm64_r64, to, *from)),
                (None, true) => self.put(Instruction::with2(Op::Mov_rm64_imm32, to, 0)),
                (Some(from), false) => {
                    self.put(Instruction::with2(Op::Mov_rm8_r8, to, byte_of(*from)))
                }
                (None, false) => self.put(Instruction::with2(Op::Mov_rm8_imm8, to, 0)),
            };
        }
        if is_branch(instruction) {
            // The target, if it is indirect: a zero that waits for what the program's target waits for.
            let is_loaded = code.accesses.iter().any(|access| access.how == Use::Read);
            match sources.first() {
                _ if is_loaded && instruction.flow_control() != FlowControl::IndirectCall => {}
                Some(from) => {
                    self.put(Instruction::with2(Op::Mov_r64_rm64, offset, *from));
                }
                None => {
                    self.put(Instruction::with2(Op::Mov_r32_imm32, half, 0));
                }
            }
            return;
        }
        for to in results.iter().skip(usize::from(is_loaded)) {
            let mut left = sources.iter();
            if !sources.contains(to) {
                match left.next() {
                    Some(from) => self.put(Instruction::with2(Op::Mov_r64_rm64, *to, *from)),
                    None => self.put(Instruction::with2(Op::Mov_r32_imm32, full_half(*to), 0)),
                };
            }
            for from in left.filter(|from| *from != to) {
                self.put(Instruction::with2(Op::Add_r64_rm64, *to, *from));
            }
        }
        if instruction.rflags_read() != 0
            && let Some(to) = results.first()
        {
            self.put(Instruction::with2(Op::Cmovbe_r64_rm64, *to, *to));
        }
        if instruction.rflags_modified() != 0
            && results.is_empty()
            && let Some(from) = sources.first()
        {
            self.put(Instruction::with2(Op::Test_rm64_r64, *from, *from));
        }
    }
}

/// The word at a place of the block's part of the stream.
fn stream(word: usize) -> MemoryOperand {
    MemoryOperand::with_base_displ(Register::RSP, 4 * word as i64)
}

/// Whether an instruction names a register in its address alone.
fn is_address(instruction: &Instruction, register: Register) -> bool {
    (0..instruction.op_count())
        .filter(|operand| instruction.op_kind(*operand) == OpKind::Register)
        .all(|operand| instruction.op_register(operand).full_register() != register)
}

fn full_half(register: Register) -> Register {
    Register::EAX + (register.full_register() as u32 - Register::RAX as u32)
}

fn byte_of(register: Register) -> Register {
    let number = register.full_register() as u32 - Register::RAX as u32;
    // AL CL DL BL, then AH CH DH BH, then SPL on.
    if number < 4 { Register::AL + number } else { Register::AL + number + 4 }
}

/// The code of an instruction that has zeros for zeros, of the same kind as this one; `None`: there is none.
fn zero_preserving(instruction: &Instruction) -> Option<Op> {
    use Mnemonic as M;
    let code = instruction.code();
    if instruction.is_string_instruction() || is_branch(instruction) {
        return None;
    }
    // The first operand is the size of the others; registers and memory alike.
    let size = (0..instruction.op_count())
        .find(|it| instruction.op_kind(*it) == OpKind::Register)
        .map_or(instruction.memory_size().size(), |it| instruction.op_register(it).size());
    let by_size = |ops: [Op; 4]| match size {
        1 => Some(ops[0]),
        2 => Some(ops[1]),
        4 => Some(ops[2]),
        8 => Some(ops[3]),
        _ => None,
    };
    match instruction.mnemonic() {
        M::Mov
        | M::Movzx
        | M::Movsx
        | M::Movsxd
        | M::Add
        | M::Sub
        | M::Xor
        | M::And
        | M::Or
        | M::Imul
        | M::Mul
        | M::Shl
        | M::Shr
        | M::Sar
        | M::Rol
        | M::Ror
        | M::Shld
        | M::Shrd
        | M::Neg
        | M::Bswap
        | M::Xchg
        | M::Xadd
        | M::Cmp
        | M::Test
        | M::Bt
        | M::Popcnt
        | M::Pext
        | M::Pdep
        | M::Rorx
        | M::Sarx
        | M::Shlx
        | M::Shrx
        | M::Andn
        | M::Blsr
        | M::Cdqe
        | M::Cdq
        | M::Cqo
        | M::Cwde
        | M::Cbw
        | M::Cwd
        | M::Cmpxchg
        | M::Mulx
        | M::Bextr
        | M::Bzhi
        | M::Movbe
        | M::Movnti
        | M::Mfence
        | M::Lfence
        | M::Sfence
        | M::Pause => return Some(code),
        M::Inc | M::Dec | M::Not => {
            return by_size([Op::Neg_rm8, Op::Neg_rm16, Op::Neg_rm32, Op::Neg_rm64]);
        }
        M::Tzcnt | M::Lzcnt | M::Bsf | M::Bsr => {
            let op = [Op::INVALID, Op::Popcnt_r16_rm16, Op::Popcnt_r32_rm32, Op::Popcnt_r64_rm64];
            return by_size(op).filter(|op| *op != Op::INVALID);
        }
        _ => {}
    }
    let scalar = match code {
        Op::Divss_xmm_xmmm32 => Some(Op::Sqrtss_xmm_xmmm32),
        Op::Divsd_xmm_xmmm64 => Some(Op::Sqrtsd_xmm_xmmm64),
        Op::VEX_Vdivss_xmm_xmm_xmmm32 => Some(Op::VEX_Vsqrtss_xmm_xmm_xmmm32),
        Op::VEX_Vdivsd_xmm_xmm_xmmm64 => Some(Op::VEX_Vsqrtsd_xmm_xmm_xmmm64),
        Op::Pcmpeqb_xmm_xmmm128 => Some(Op::Pcmpgtb_xmm_xmmm128),
        Op::Pcmpeqw_xmm_xmmm128 => Some(Op::Pcmpgtw_xmm_xmmm128),
        Op::Pcmpeqd_xmm_xmmm128 => Some(Op::Pcmpgtd_xmm_xmmm128),
        Op::VEX_Vpcmpeqb_xmm_xmm_xmmm128 => Some(Op::VEX_Vpcmpgtb_xmm_xmm_xmmm128),
        Op::VEX_Vpcmpeqb_ymm_ymm_ymmm256 => Some(Op::VEX_Vpcmpgtb_ymm_ymm_ymmm256),
        Op::VEX_Vpcmpeqd_ymm_ymm_ymmm256 => Some(Op::VEX_Vpcmpgtd_ymm_ymm_ymmm256),
        _ => None,
    };
    if scalar.is_some() {
        return scalar;
    }
    let name = format!("{:?}", instruction.mnemonic());
    if name.starts_with("Cmov") || name.starts_with("Prefetch") {
        return Some(code);
    }
    let is_vector = (0..instruction.op_count()).any(|it| {
        instruction.op_kind(it) == OpKind::Register
            && instruction.op_register(it).is_vector_register()
    });
    let has_mask = (0..instruction.op_count()).any(|it| {
        instruction.op_kind(it) == OpKind::Register && instruction.op_register(it).is_k()
    });
    if !is_vector || has_mask {
        return None;
    }
    // Prefixes of the names, without the v of AVX.
    const KEPT: [&str; 52] = [
        "mov",
        "padd",
        "psub",
        "pxor",
        "por",
        "pand",
        "pmul",
        "pmadd",
        "pshuf",
        "punpck",
        "pack",
        "psll",
        "psrl",
        "psra",
        "pmin",
        "pmax",
        "pabs",
        "palignr",
        "pmovzx",
        "pmovsx",
        "pmovmskb",
        "pextr",
        "pinsr",
        "pblend",
        "pbroadcast",
        "pcmpgt",
        "ptest",
        "addp",
        "adds",
        "sub",
        "mul",
        "min",
        "max",
        "unpck",
        "shufp",
        "and",
        "orp",
        "xorp",
        "sqrt",
        "cvt",
        "ucomis",
        "comis",
        "broadcast",
        "insert",
        "extract",
        "perm",
        "fmadd",
        "fmsub",
        "fnmadd",
        "hadd",
        "blend",
        "lddqu",
    ];
    let name = name.to_lowercase();
    let name = name.strip_prefix('v').unwrap_or(&name);
    KEPT.iter().any(|it| name.starts_with(it)).then_some(code)
}

/// Whether an instruction ends a basic block.
pub(crate) fn is_branch(instruction: &Instruction) -> bool {
    !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Exception)
        && instruction.mnemonic() != Mnemonic::Syscall
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;
    use crate::image::tests::{image, recorded, superpage};
    use crate::times::{Passes, replay};

    #[test]
    fn addresses_wait_for_their_registers_and_constants_are_dropped() {
        // add rax, 5; mov rcx, [rax+rdx*8+16]; inc rcx; setne al
        let bytes =
            [0x48, 0x83, 0xc0, 5, 0x48, 0x8b, 0x4c, 0xd0, 0x10, 0x48, 0xff, 0xc1, 0x0f, 0x95, 0xc0];
        let recorded = recorded(&bytes, 4, |_| 64);
        let image = image(&recorded);
        let decoder = Decoder::new(64, &image.code, DecoderOptions::NONE);
        let made: Vec<Instruction> = decoder.into_iter().collect();
        let add = made.iter().find(|it| it.code() == Op::Add_rm64_imm8).expect("the addition");
        assert_eq!(add.immediate8(), 0);
        let load = made.iter().find(|it| it.op0_register() == Register::RCX).expect("the load");
        assert_eq!((load.memory_index(), load.memory_segment()), (Register::RAX, Register::GS));
        assert_eq!(load.memory_displacement64(), 0);
        assert!(
            made.iter().any(|it| it.code() == Op::Lea_r64_m && it.memory_index() == Register::RDX)
        );
        assert!(made.iter().any(|it| it.code() == Op::Neg_rm64), "inc");
        // setne has no zero for a zero.
        assert_eq!(image.instructions.1, 4);
    }

    /// Every kind of instruction that is kept gives zeros for zeros: a chain through what it writes ends at the same
    /// address, or the child crashes.
    #[test]
    fn kept_instructions_keep_zeros() {
        testkit::require!(cfg!(target_arch = "x86_64"), "x86-64 code");
        let all: [&[u8]; 15] = [
            &[0x48, 0xff, 0xc0],                                     // inc rax
            &[0x48, 0xf7, 0xd0],                                     // not rax
            &[0x48, 0x83, 0xc8, 0x7f],                               // or rax, 127
            &[0x48, 0x8d, 0x44, 0x08, 0x40],                         // lea rax, [rax+rcx+64]
            &[0x48, 0x83, 0xd8, 0x01],                               // sbb rax, 1
            &[0x0f, 0x94, 0xc0],                                     // sete al
            &[0x48, 0xc7, 0xc0, 1, 2, 3, 4],                         // mov rax, 0x4030201
            &[0xf3, 0x48, 0x0f, 0xbc, 0xc1],                         // tzcnt rax, rcx
            &[0x48, 0xf7, 0xf1],                                     // div rcx
            &[0x66, 0x0f, 0x74, 0xc0, 0x66, 0x0f, 0xd7, 0xc0], // pcmpeqb xmm0, xmm0; pmovmskb eax, xmm0
            &[0xf2, 0x0f, 0x5e, 0xc1, 0x66, 0x48, 0x0f, 0x7e, 0xc0], // divsd xmm0, xmm1; movq rax, xmm0
            &[0x50, 0x58],                                           // push rax; pop rax
            &[0x0f, 0x31],                                           // rdtsc
            &[0x4c, 0x89, 0xf8],                                     // mov rax, r15
            &[0x48, 0x89, 0xe0],                                     // mov rax, rsp
        ];
        for bytes in all {
            // ...; mov rax, [rax]; mov [rax], rax
            let bytes = [bytes, &[0x48, 0x8b, 0x00, 0x48, 0x89, 0x00]].concat();
            let recorded = recorded(&bytes, 64, |round| 64 * round);
            let mut image = image(&recorded);
            // Base pages on both sides: this test is about code.
            image.regions.iter_mut().for_each(|region| {
                region.is_eligible = false;
                region.pages = vec![0, 1];
            });
            let times = replay(&image, superpage(), Passes(2), units::ByteSize::gib(1));
            let times = times.unwrap_or_else(|error| panic!("{bytes:x?}: {error}"));
            assert_eq!(times.cycles.len(), 1);
        }
    }
}
