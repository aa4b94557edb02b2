//! What this process requested and got, for its report at exit and for `superpage run`.
//!
//! # Safety
//! `SHARED` is null, or `BYTES` of a file mapped shared at start-up and never unmapped. All processes that map the file
//! access its words as atomics only. Nobody can shorten the file (sealed), or only this user can:
//! docs/decisions/security.md#1, crates/tool/experiment/src/counters.rs.
//! See docs/decisions/compare.md#4.

use std::ffi::{CStr, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use ::abi::Shortage;
use ::abi::looks::{self, FIELDS, Field, HEAD};
use ::abi::supply::{GOT, REFUSED, SERVED, SERVES, WANTED};
pub use ::abi::{Column, Kind, Prepared, Reason};

use crate::text::Text;
use crate::{files, filter, message, raw, settings, sizes};

/// Sums of this process.
static OWN: [AtomicU64; ::abi::SUMS] = [const { AtomicU64::new(0) }; ::abi::SUMS];
/// The counters file of the run, mapped; null: none.
static SHARED: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

fn add(word: usize, amount: u64) {
    OWN[word].fetch_add(amount, Ordering::Relaxed);
    let shared = SHARED.load(Ordering::Acquire);
    if !shared.is_null() {
        // SAFETY: `word` is below SUMS, and the mapping is never unmapped.
        unsafe { (*shared.add(word)).fetch_add(amount, Ordering::Relaxed) };
    }
}

/// Adds `bytes` to a sum.
pub fn count(kind: Kind, column: Column, bytes: usize) {
    add(::abi::sum(kind, column), bytes as u64);
}

/// Counts one request under `why`.
pub fn count_reason(why: Reason) {
    add(::abi::reason(why), 1);
}

/// Adds `bytes` to a kind of preparation.
pub fn prepared(what: Prepared, bytes: usize) {
    add(::abi::prepared(what), bytes as u64);
}

/// Subtracts `bytes` from a kind of preparation.
pub fn prepared_less(what: Prepared, bytes: usize) {
    // The words are sums modulo 2^64.
    add(::abi::prepared(what), (bytes as u64).wrapping_neg());
}

/// Updates the largest stock with the current one.
pub fn prepared_most(bytes: u64) {
    let word = ::abi::prepared(Prepared::Most);
    OWN[word].fetch_max(bytes, Ordering::Relaxed);
    let shared = SHARED.load(Ordering::Acquire);
    if !shared.is_null() {
        // SAFETY: as in `add`.
        unsafe { (*shared.add(word)).fetch_max(bytes, Ordering::Relaxed) };
    }
}

/// Whether `superpage run` frees superpages on request.
pub fn has_supply() -> bool {
    supply_word(SERVES).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

/// Requests `count` superpages from `superpage run`. Waits for the reply and returns how many were freed; `None`: no
/// reply in time, or another process is waiting. The wait is shorter than compaction at first touches would take.
pub fn supply(count: u64) -> Option<u64> {
    let [wanted, served, got] = [WANTED, SERVED, GOT].map(supply_word);
    let (wanted, served, got) = (wanted?, served?, got?);
    let seen = served.load(Ordering::SeqCst);
    let count = count.min(u32::MAX.into()) as u32;
    wanted.compare_exchange(0, count, Ordering::SeqCst, Ordering::SeqCst).ok()?;
    raw::shared_futex_wake(wanted.as_ptr());
    let most = FIRST_WAIT + EACH_WAIT * i64::from(count.min(MOST_WAITED_FOR));
    raw::shared_futex_wait(served.as_ptr(), seen, most);
    (served.load(Ordering::SeqCst) != seen).then(|| got.load(Ordering::SeqCst).into())
}

/// Records that no superpages can be had beyond those already free. For one second, the processes of the run then do
/// not ask. See docs/decisions/contiguity.md#7.
pub fn refused() {
    if let Some(word) = supply_word(REFUSED) {
        word.store(tenths(), Ordering::Relaxed);
    }
}

/// Whether a process of the run called [`refused`] within the last second.
pub fn was_refused() -> bool {
    supply_word(REFUSED)
        .map(|word| word.load(Ordering::Relaxed))
        .is_some_and(|at| at != 0 && tenths().wrapping_sub(at) <= REFUSED_FOR)
}

const REFUSED_FOR: u32 = 10;

fn tenths() -> u32 {
    (raw::monotonic().unwrap_or(0) / 100_000_000) as u32
}

/// Base of the maximum wait for a reply, in nanoseconds. [`EACH_WAIT`] is added for each requested
/// superpage.
const FIRST_WAIT: i64 = 100_000_000;
/// Nanoseconds by which one requested superpage lengthens the maximum wait.
const EACH_WAIT: i64 = 2_000_000;
/// Number of requested superpages from which the maximum wait grows no further.
const MOST_WAITED_FOR: u32 = 500;

fn supply_word(word: usize) -> Option<&'static AtomicU32> {
    let shared = SHARED.load(Ordering::Acquire);
    // SAFETY: `word` is below WORDS, the mapping is never unmapped, and its words are accessed as atomics only.
    (!shared.is_null()).then(|| unsafe { &*shared.add(word).cast::<AtomicU32>() })
}

/// Whether this process adds to the counters file of a run.
pub fn are_shared() -> bool {
    !SHARED.load(Ordering::Acquire).is_null()
}

/// Whether the command has asked processes to sample their own residency (`looks`).
pub fn wants_looks() -> bool {
    supply_word(::abi::looks::WANTED).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

/// Bytes of the pool given to this process so far.
pub fn given_of_pool() -> u64 {
    let given = |kind: &Kind| OWN[::abi::sum(*kind, Column::Hugetlb)].load(Ordering::Relaxed);
    Kind::ALL.iter().map(given).sum()
}

/// Writes a record for the command and sets its stamp.
pub fn write_look(fields: &[u64; FIELDS]) {
    let shared = SHARED.load(Ordering::Acquire);
    if shared.is_null() {
        return;
    }
    // SAFETY: the words of records are below WORDS, and the mapping is never unmapped.
    let word = |at: usize| unsafe { &*shared.add(at) };
    let number = word(HEAD).fetch_add(1, Ordering::Relaxed);
    let stamp = word(looks::word(number, Field::Stamp));
    stamp.store(0, Ordering::Relaxed);
    std::sync::atomic::fence(Ordering::Release);
    for field in &Field::ALL[1..] {
        word(looks::word(number, *field)).store(fields[*field as usize], Ordering::Relaxed);
    }
    stamp.store(number + 1, Ordering::Release);
}

/// Maps the run's counters file. If the file is missing, not accessible or of another version, only the sums of this
/// process are kept.
pub fn open() {
    if let Some(value) = settings::get().counters
        && let Some(words) = raw::keeping_errno(|| join(value.to_bytes()))
    {
        SHARED.store(words, Ordering::Release);
    }
    add(::abi::processes(), 1);
}

/// Counts `why` in the run's counters file, for a process that runs without the library.
pub fn note(path: &CStr, why: Reason) {
    if let Some(words) = join(path.to_bytes()) {
        // SAFETY: words of the mapping just made, which is never unmapped.
        unsafe {
            (*words.add(::abi::processes())).fetch_add(1, Ordering::Relaxed);
            (*words.add(::abi::reason(why))).fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Maps the sealed file of the run, `PATH:INODE`. If that fails and `:DIRECTORY` follows, maps the user's file there.
fn join(value: &[u8]) -> Option<*mut AtomicU64> {
    let mut fields = value.splitn(3, |byte| *byte == b':');
    let path = Path::join(&[fields.next()?])?;
    let inode = fields.next()?;
    map_sealed(path.c_str(), inode).or_else(|| map_own(fields.next()?))
}

const FLAGS: c_int = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;

fn map_sealed(path: &CStr, inode: &[u8]) -> Option<*mut AtomicU64> {
    let is_it = |file: &libc::stat| message::Decimal::new(file.st_ino).bytes() == inode;
    // Check the inode before opening: in another PID namespace the path leads to another process's file.
    let file = raw::stat(path, 0)?;
    is_it(&file).then(|| map(raw::open(path, FLAGS, 0)?, is_it)).flatten()
}

/// Maps the file of the effective user; creates it if it is missing.
fn map_own(directory: &[u8]) -> Option<*mut AtomicU64> {
    let user = raw::effective_user();
    let path = Path::join(&[directory, b"/", message::Decimal::new(user.into()).bytes()])?;
    let fd = raw::open(path.c_str(), FLAGS | libc::O_CREAT | libc::O_NOFOLLOW, 0o600)?;
    // No other user may access the file: others could shorten it under us. The first process extends the file to its
    // final size and allocates its blocks: on a full file system the first touch of a hole raises SIGBUS.
    let is_own =
        |file: &libc::stat| file.st_uid == user && file.st_nlink == 1 && file.st_mode & 0o077 == 0;
    // SAFETY: a descriptor of our own; an existing file keeps its length and contents.
    unsafe {
        if raw::call!(SYS_lseek, fd, 0, libc::SEEK_END) == 0 {
            raw::call!(SYS_fallocate, fd, 0, 0, ::abi::BYTES);
            if raw::call!(SYS_lseek, fd, 0, libc::SEEK_END) == ::abi::BYTES as libc::c_long {
                let magic = ::abi::MAGIC.to_ne_bytes();
                raw::call!(SYS_pwrite64, fd, magic.as_ptr(), magic.len(), 0);
            }
        }
    }
    map(fd, is_own)
}

/// Maps the file of `fd` and closes `fd`.
fn map(fd: c_int, is_it: impl Fn(&libc::stat) -> bool) -> Option<*mut AtomicU64> {
    // A touch beyond the end of a short file raises SIGBUS.
    let fits = |file: &libc::stat| {
        file.st_mode & libc::S_IFMT == libc::S_IFREG
            && file.st_size == ::abi::BYTES as libc::off_t
            && is_it(file)
    };
    // SAFETY: a descriptor of our own and a fresh mapping.
    unsafe {
        let mapped = raw::fstat(fd).filter(fits).and_then(|_| {
            raw::mmap(0, ::abi::BYTES, raw::READ_WRITE, libc::MAP_SHARED, fd, 0).ok()
        });
        raw::close(fd);
        let start = mapped?;
        let words = start as *mut AtomicU64;
        if (*words).load(Ordering::Relaxed) == ::abi::MAGIC {
            return Some(words);
        }
        let _ = raw::munmap(start, ::abi::BYTES);
        None
    }
}

type Path = Text<257>;

/// In a forked child: resets the sums of this process.
pub fn after_fork() {
    for word in &OWN {
        word.store(0, Ordering::Relaxed);
    }
    add(::abi::processes(), 1);
    add(::abi::forks(), 1);
}

/// Reports at exit as SUPERPAGE_REPORT asks: prints a line if this process did not get all superpages, or appends one
/// line of JSON to a file. Does nothing if a seccomp filter may kill the process for opening a file.
pub fn report() {
    if filter::is_set() {
        return;
    }
    if settings::get().says_shortage {
        say_shortage();
    }
    let Some(path) = settings::get().report else { return };
    let mut text = Text::<4096>::new();
    text.push(b"{\"schema\":\"superpage.report/1\",\"pid\":");
    // SAFETY: getpid takes nothing.
    text.push(message::Decimal::new(unsafe { libc::getpid() } as u64).bytes());
    text.push(b",\"memory\":{");
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        text.push(if at == 0 { b"\"" } else { b",\"" });
        text.push(kind.name().as_bytes());
        text.push(b"\":");
        push_numbers(&mut text, Column::ALL.map(|it| (it.name(), ::abi::sum(kind, it))));
    }
    text.push(b"},\"reasons\":");
    push_numbers(&mut text, Reason::ALL.map(|it| (it.name(), ::abi::reason(it))));
    text.push(b",\"prepared\":");
    push_numbers(&mut text, Prepared::ALL.map(|it| (it.name(), ::abi::prepared(it))));
    text.push(b"}\n");
    if files::append(path, 0o666, text.bytes()).is_none() {
        message::line(&[b"the report could not be written to ", path.to_bytes()]);
    }
}

fn say_shortage() {
    let own = |word: usize| OWN[word].load(Ordering::Relaxed);
    let page = sizes::superpage() as u64;
    let bytes = |kind, column| own(::abi::sum(kind, column));
    let shortage = Shortage::from_sums(page, bytes, |why| own(::abi::reason(why)));
    if let Some(shortage) = shortage {
        message::shortage(&shortage, settings::get().is_hugetlb());
    }
}

/// Appends words of this process as a JSON object.
fn push_numbers<const N: usize>(text: &mut Text<4096>, words: [(&str, usize); N]) {
    for (at, (name, word)) in words.into_iter().enumerate() {
        text.push(if at == 0 { b"{\"" } else { b",\"" });
        text.push(name.as_bytes());
        text.push(b"\":");
        text.push(message::Decimal::new(OWN[word].load(Ordering::Relaxed)).bytes());
    }
    text.push(b"}");
}
