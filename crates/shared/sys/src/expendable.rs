//! Generated machine code, executed in a forked child process.
//!
//! # Safety
//! Wrong code can corrupt or end the process that executes it. So only a forked child executes code: it shares no
//! writable memory with its parent, gives back nothing but numbers or an error's text, which the parent reads from a pipe,
//! and leaves by `_exit`. The parent's memory and state stay as they are whatever the code does.

use std::arch::asm;
use std::io::{Read, Write};

use crate::SysError;
use crate::mem::Mapping;

/// The right to execute generated code: exists only in a child that [`in_child`] has forked.
#[derive(Debug)]
pub struct Expendable(());

/// Why a child gave no numbers.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// A call failed.
    #[error(transparent)]
    Sys(#[from] SysError),
    /// The pipe failed.
    #[error("a pipe: {0}")]
    Pipe(#[from] std::io::Error),
    /// The child's work failed.
    #[error("{0}")]
    Failed(String),
    /// The child ended in this way.
    #[error("the child that executes generated code ended by {0}")]
    Ended(String),
}

/// Exit status of a child whose work failed; a panic is 1.
const FAILED: i32 = 2;

/// Forks, calls `work` in the child and returns its numbers. glibc makes its allocator usable in the child of a process
/// with threads; `work` must not use other locks that threads of the parent may hold.
///
/// # Errors
/// `fork`, a pipe or `work` fails, or the child crashes.
pub fn in_child(
    work: impl FnOnce(&Expendable) -> Result<Vec<u64>, String>,
) -> Result<Vec<u64>, ChildError> {
    let (mut reads, mut writes) = std::io::pipe()?;
    // SAFETY: see the module: the child only calls `work` and leaves.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(SysError::last("fork", String::new()).into());
    }
    if child == 0 {
        drop(reads);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // SAFETY: prctl with plain numbers: the child ends with the thread that forked it.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) };
            let (status, bytes) = match work(&Expendable(())) {
                Ok(numbers) => (0, numbers.into_iter().flat_map(u64::to_le_bytes).collect()),
                Err(why) => (FAILED, why.into_bytes()),
            };
            writes.write_all(&bytes).map_or(1, |()| status)
        }));
        // SAFETY: leaves without running the parent's exit handlers.
        unsafe { libc::_exit(done.unwrap_or(1)) };
    }
    drop(writes);
    let mut bytes = Vec::new();
    let read = reads.read_to_end(&mut bytes);
    let (status, _) = crate::wait::reap(units::Pid(child))?;
    read?;
    match status.code() {
        Some(0) => Ok(bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()),
        Some(FAILED) => Err(ChildError::Failed(String::from_utf8_lossy(&bytes).into_owned())),
        _ => Err(ChildError::Ended(status.to_string())),
    }
}

impl Expendable {
    /// Sets the base of the gs segment (`arch_prctl(ARCH_SET_GS)`), which x86-64 Linux leaves to programs.
    ///
    /// # Errors
    /// The call fails.
    pub fn set_gs(&self, memory: &Mapping) -> Result<(), SysError> {
        const ARCH_SET_GS: libc::c_int = 0x1001; // asm/prctl.h
        // SAFETY: nothing else in this process uses gs.
        match unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_GS, memory.address()) } {
            0 => Ok(()),
            _ => Err(SysError::last("arch_prctl(ARCH_SET_GS)", format!("{memory:?}"))),
        }
    }

    /// Blocks all signals of this thread, because the code that runs has no stack.
    pub fn block_signals(&self) {
        // SAFETY: a full set is a valid value; the old mask is not returned.
        unsafe {
            let mut all = std::mem::zeroed::<libc::sigset_t>();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        }
    }

    /// Executes code at `entry` with all registers zero but rsp, which points to `stream`, and returns the cycles of the
    /// time-stamp counter. The code ends with `mov rsp, [rsp]; ret`, where rsp points to `exit`, in which the stack
    /// pointer is stored before.
    pub fn run(&self, entry: u64, stream: u64, exit: u64) -> u64 {
        use std::arch::x86_64::{_mm_lfence, _rdtsc};
        let has_wide = std::arch::is_x86_feature_detected!("avx512f");
        let has_avx = std::arch::is_x86_feature_detected!("avx");
        // SAFETY: see the module. The code may do anything to this process, which is expendable.
        unsafe {
            if has_wide {
                asm!(
                    "vpxorq zmm16, zmm16, zmm16", "vpxorq zmm17, zmm17, zmm17",
                    "vpxorq zmm18, zmm18, zmm18", "vpxorq zmm19, zmm19, zmm19",
                    "vpxorq zmm20, zmm20, zmm20", "vpxorq zmm21, zmm21, zmm21",
                    "vpxorq zmm22, zmm22, zmm22", "vpxorq zmm23, zmm23, zmm23",
                    "vpxorq zmm24, zmm24, zmm24", "vpxorq zmm25, zmm25, zmm25",
                    "vpxorq zmm26, zmm26, zmm26", "vpxorq zmm27, zmm27, zmm27",
                    "vpxorq zmm28, zmm28, zmm28", "vpxorq zmm29, zmm29, zmm29",
                    "vpxorq zmm30, zmm30, zmm30", "vpxorq zmm31, zmm31, zmm31",
                    out("xmm16") _, out("xmm17") _, out("xmm18") _, out("xmm19") _,
                    out("xmm20") _, out("xmm21") _, out("xmm22") _, out("xmm23") _,
                    out("xmm24") _, out("xmm25") _, out("xmm26") _, out("xmm27") _,
                    out("xmm28") _, out("xmm29") _, out("xmm30") _, out("xmm31") _,
                );
            }
            if has_avx {
                asm!("vzeroall", clobber_abi("sysv64"));
            } else {
                asm!(
                    "pxor xmm0, xmm0",
                    "pxor xmm1, xmm1",
                    "pxor xmm2, xmm2",
                    "pxor xmm3, xmm3",
                    "pxor xmm4, xmm4",
                    "pxor xmm5, xmm5",
                    "pxor xmm6, xmm6",
                    "pxor xmm7, xmm7",
                    "pxor xmm8, xmm8",
                    "pxor xmm9, xmm9",
                    "pxor xmm10, xmm10",
                    "pxor xmm11, xmm11",
                    "pxor xmm12, xmm12",
                    "pxor xmm13, xmm13",
                    "pxor xmm14, xmm14",
                    "pxor xmm15, xmm15",
                    clobber_abi("sysv64"),
                );
            }
            _mm_lfence();
            let begun = _rdtsc();
            asm!(
                "push rbx",
                "push rbp",
                "call 2f",
                "jmp 3f",
                "2:",
                "mov [rdx], rsp",
                "mov rsp, rsi",
                // The entry lies at the stream's first word pair, below rsp after the jump.
                "xor ebx, ebx", "xor ebp, ebp", "xor ecx, ecx", "xor edx, edx", "xor edi, edi",
                "xor esi, esi", "xor r8d, r8d", "xor r9d, r9d", "xor r10d, r10d",
                "xor r11d, r11d", "xor r12d, r12d", "xor r13d, r13d", "xor r14d, r14d",
                "xor r15d, r15d",
                "push rax",
                "xor eax, eax",
                "ret",
                "3:",
                "pop rbp",
                "pop rbx",
                inout("rax") entry => _,
                inout("rsi") stream => _,
                inout("rdx") exit => _,
                out("r12") _, out("r13") _, out("r14") _, out("r15") _,
                clobber_abi("sysv64"),
            );
            let ended = _rdtsc();
            _mm_lfence();
            ended - begun
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::Code;

    #[test]
    fn a_child_runs_code_and_gives_numbers_or_says_how_it_ended() {
        let mut code = Code::new(Mapping::low(4096).unwrap());
        // add rsp, 8; mov rsp, [rsp]; ret
        let bytes = [0x48, 0x83, 0xc4, 8, 0x48, 0x8b, 0x24, 0x24, 0xc3];
        code.writable().unwrap().bytes_mut()[..bytes.len()].copy_from_slice(&bytes);
        let entry = code.executable().unwrap().address();
        assert!(entry < 1 << 31);
        let stream = [0u64; 8];
        let numbers = in_child(|child| {
            child.block_signals();
            let at = (&raw const stream) as u64 + 16;
            Ok((0..3).map(|_| child.run(entry, at, at + 8)).collect())
        });
        let numbers = numbers.unwrap();
        assert!(numbers.len() == 3 && numbers.iter().all(|cycles| *cycles > 0), "{numbers:?}");
        let error = in_child(|child| Ok(vec![child.run(8, 0, (&raw const stream) as u64)]));
        assert!(error.unwrap_err().to_string().contains("signal: 11"));
        let error = in_child(|_| Err("no memory".to_string()));
        assert_eq!(error.unwrap_err().to_string(), "no memory");
    }
}
