//! The thread "superpage-pool": one in a process, started by the first request, gone in a forked child.
//!
//! It is made by `clone` alone. libc knows nothing of it: a program with one thread stays one for libc,
//! `setuid` waits for nobody, and a process whose last own thread ends is over. All signals are blocked
//! in it. Its descriptors are in a table of its own, so that the program's `open` returns what it always
//! did. It keeps the credentials it was born with, and does nothing that needs any.
//!
//! # Safety
//! It has a stack, and thread-local storage that is nothing but zeroes around its pointer, far enough for
//! `errno`: so it makes system calls and touches memory of ours, and nothing here may panic, allocate or
//! use `thread_local!`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use ::ahead::Rests;

use super::area;
use super::facts::Files;
use super::stock::{self, PATIENCE_MS, Step, Waits};
use crate::ledger::{self, Prepared, Reason};
use crate::raw;

/// The process whose thread is running; 0: none yet; [`NEVER`]: it cannot be.
static OF: AtomicI32 = AtomicI32::new(0);
const STARTING: i32 = -1;
const NEVER: i32 = -2;

/// 1 while it sleeps for long: a futex.
static ASLEEP: AtomicU32 = AtomicU32::new(0);

const STACK: usize = 64 << 10;

/// Somebody asked for something or gave something back. Starts it if need be.
pub fn wake() {
    if OF.load(Ordering::Relaxed) == 0 {
        raw::keeping_errno(start);
    }
    if ASLEEP.load(Ordering::SeqCst) == 1 && ASLEEP.swap(0, Ordering::SeqCst) == 1 {
        let one = 1u32;
        raw::keeping_errno(|| {
            // SAFETY: a word of ours.
            unsafe {
                raw::call!(
                    SYS_futex,
                    ASLEEP.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    one
                )
            };
        });
    }
}

/// Whether there is a thread in this very process: not in the child of a `_Fork`.
pub fn is_here() -> bool {
    OF.load(Ordering::Relaxed) == raw::pid()
}

/// In a forked child.
pub fn after_fork() {
    if OF.load(Ordering::Relaxed) != NEVER {
        OF.store(0, Ordering::Relaxed);
    }
    ASLEEP.store(0, Ordering::Relaxed);
}

fn start() {
    if OF.compare_exchange(0, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    // It inherits them blocked.
    let before = raw::set_signals(u64::MAX);
    let is_made = make();
    raw::set_signals(before);
    if is_made {
        ledger::prepared(Prepared::Threads, 1);
    } else {
        ledger::because(Reason::Kernel);
    }
    OF.store(if is_made { raw::pid() } else { NEVER }, Ordering::Release);
}

/// The thread, on fresh memory: a guard, its stack, and its thread-local storage.
fn make() -> bool {
    let Some(pointer) = thread_pointer() else { return false };
    let page = raw::base_page();
    // On either side of the pointer: where errno lies depends on the machine and on the program.
    let reach = (pointer.abs_diff(raw::errno_address()) + 4096).next_multiple_of(page);
    let length = page + STACK + 2 * reach;
    let flags = raw::PRIVATE_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: fresh memory, which stays for the life of the process.
    unsafe {
        let Ok(start) = raw::mmap(0, length, raw::READ_WRITE, flags, -1, 0) else { return false };
        let _ = raw::mprotect(start, page, libc::PROT_NONE);
        let stack_top = start + page + STACK;
        let storage = stack_top + reach;
        // The x86-64 ABI has the pointer point to itself, at 0 and (glibc's tcbhead_t) at 16.
        #[cfg(target_arch = "x86_64")]
        for at in [0, 16] {
            *((storage + at) as *mut usize) = storage;
        }
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS;
        let nothing = std::ptr::null_mut::<c_void>();
        let made = libc::clone(
            run,
            stack_top as *mut c_void,
            flags,
            nothing,
            nothing.cast::<libc::pid_t>(),
            storage as *mut c_void,
            nothing.cast::<libc::pid_t>(),
        );
        if made < 0 {
            let _ = raw::munmap(start, length);
        }
        made >= 0
    }
}

/// Where this thread's thread-local storage is; `None` on machines this was not written for.
fn thread_pointer() -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer: usize;
        // SAFETY: reads the word that the ABI puts there.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
        Some(pointer)
    }
    #[cfg(target_arch = "aarch64")]
    {
        let pointer: usize;
        // SAFETY: reads a register.
        unsafe { std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem)) };
        Some(pointer)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

extern "C" fn run(_: *mut c_void) -> c_int {
    const CLOSE_RANGE_UNSHARE: u32 = 1 << 1;
    const NORMAL: [i32; 1] = [0];
    // SAFETY: calls about this thread alone; the name is a C string of less than 16 bytes. With the
    // flag, the table is left behind before anything in it is closed (Linux 5.9).
    let has_own_files = unsafe {
        raw::call!(SYS_prctl, libc::PR_SET_NAME, c"superpage-pool".as_ptr());
        raw::call!(SYS_prctl, libc::PR_SET_TIMERSLACK, 1000);
        raw::call!(SYS_sched_setscheduler, 0, libc::SCHED_OTHER, NORMAL.as_ptr());
        raw::call!(SYS_close_range, 0, u32::MAX, CLOSE_RANGE_UNSHARE) == 0
    };
    if !has_own_files {
        OF.store(NEVER, Ordering::Relaxed);
        return 0;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    let pagemap = raw::open(c"/proc/self/pagemap", flags, 0).unwrap_or(-1);
    Turns {
        files: Files::open(),
        pagemap,
        settled_us: now_us(libc::CLOCK_MONOTONIC) + SETTLING_US,
        asked_ms: 0,
        moved_us: 0,
        slow_until_us: 0,
        rests: Rests::new(),
        arrived: 0,
    }
    .go_on()
}

/// The thread's own state.
struct Turns {
    files: Files,
    pagemap: c_int,
    /// From then on the stock is filled before anybody asks.
    settled_us: u64,
    /// When the stock was last asked for something, or halved.
    asked_ms: u64,
    /// When a program was last seen to get on.
    moved_us: u64,
    /// No CPU was to be had: rest until then.
    slow_until_us: u64,
    /// How long to rest while no CPU is idle.
    rests: Rests,
    arrived: usize,
}

impl Turns {
    fn go_on(mut self) -> ! {
        loop {
            let now = now_us(libc::CLOCK_MONOTONIC);
            let (is_watching, stock) = self.look(now);
            let seen = self.files.look(now);
            let idle_ms = (now / 1000).saturating_sub(self.asked_ms);
            let waits =
                Waits { for_cpu: now < self.slow_until_us, for_request: now < self.settled_us };
            let step = stock::choose(&seen, idle_ms, waits);
            match step {
                Step::Rest { has_cpu, has_more } => {
                    let wait = self.wait(now, is_watching, stock, has_more);
                    self.rests.looked(has_cpu);
                    let held_up_us = if has_cpu { 0 } else { self.rests.rest_us() };
                    sleep(wait.map(|wait| wait.max(held_up_us)));
                    self.files.forget();
                }
                Step::Shrunk => self.asked_ms = now / 1000,
                _ => {
                    self.rests.looked(true);
                    self.work(step, now);
                }
            }
        }
    }

    /// Where the program is; whether mappings are watched, and whether there is a stock.
    fn look(&mut self, now: u64) -> (bool, bool) {
        area::with(|area| {
            if std::mem::take(&mut area.was_used) {
                self.asked_ms = now / 1000;
            }
            if area.look() || area.watch.arrived() != self.arrived {
                self.arrived = area.watch.arrived();
                self.moved_us = now;
            } else if now - self.moved_us > GIVE_UP_US {
                area.watch.give_up();
            }
            (area.watch.is_active(), area.stock > 0)
        })
    }

    fn work(&mut self, step: Step, began: u64) {
        let cpu = now_us(libc::CLOCK_THREAD_CPUTIME_ID);
        stock::carry_out(step, self.pagemap);
        let cpu = now_us(libc::CLOCK_THREAD_CPUTIME_ID) - cpu;
        let now = now_us(libc::CLOCK_MONOTONIC);
        if now - began > 2 * cpu + SLOW_US {
            self.slow_until_us = now + HELD_UP_US;
        }
    }

    /// How long to sleep, with a CPU to wake up on; `None`: until somebody asks.
    fn wait(&self, now: u64, is_watching: bool, has_stock: bool, has_more: bool) -> Option<u64> {
        let still = now - self.moved_us;
        let watching = match still {
            0..2_000 => 30,
            2_000..50_000 => 200,
            50_000..1_000_000 => 2_000,
            _ => 20_000,
        };
        let idle = (now / 1000).saturating_sub(self.asked_ms);
        let patience = PATIENCE_MS.saturating_sub(idle).max(1) * 1000;
        if is_watching {
            Some(watching)
        } else if has_more {
            Some(HELD_UP_US)
        } else {
            has_stock.then_some(patience)
        }
    }
}

/// Whoever waits for a CPU for longer than it works waits on somebody's behalf.
const SLOW_US: u64 = 300;
/// Rest after having waited for one.
const HELD_UP_US: u64 = 5_000;
/// A process that ends sooner does not wait for what it never asked for: the superpage that is being zeroed, and giving
/// back the others. (Measured: one of 1 ms ended 55 us later, one of 4 ms 0.35 ms, with 80 MiB to be ready at the start.)
const SETTLING_US: u64 = 10_000;
/// A program that has not got on for so long does something else now.
const GIVE_UP_US: u64 = 10_000_000;

fn sleep(wait_us: Option<u64>) {
    ASLEEP.store(1, Ordering::SeqCst);
    // Who asked before saw nobody asleep.
    if area::with(|area| area.was_used) {
        ASLEEP.store(0, Ordering::SeqCst);
        return;
    }
    let time = wait_us.map(|wait| libc::timespec {
        tv_sec: (wait / 1_000_000) as i64,
        tv_nsec: (wait % 1_000_000 * 1000) as i64,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a word of ours, and a time or none.
    unsafe {
        raw::call!(
            SYS_futex,
            ASLEEP.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            1u32,
            time
        )
    };
    ASLEEP.store(0, Ordering::SeqCst);
}

fn now_us(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a value of ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}
