//! Configuration from the environment: read once, before anything else happens.
//!
//! An invalid value turns everything off and prints a one-line message: half a configuration would pass unnoticed.
//!
//! # Safety
//! The first call of [`get`] may come from a malloc before any constructor has run, when `environ` is still null. So
//! the strings are read from the initial stack, behind argv, which the loader publishes in `__libc_stack_end`.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU8, Ordering};

use abi::Kind;
use abi::environment::{self as variable, FILES_COPY, FILES_MIN, REPORT_SHORTAGE, TEXT_COPY};
pub use abi::environment::{Advice, Children, Fallback, Text};

use crate::message::Decimal;
use crate::text::{self, decimal, first_number, page_size};
use crate::{environment, files, message, raw};

/// Kind of pages for the memory that [`Settings::memory`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// No superpages requested: the library is inert.
    None,
    /// THP, by advice, of the largest size (0) or of at least this size.
    Thp(usize),
    /// Pages of the hugetlb pool of this size, or of the default size (0).
    Hugetlb(usize),
}

/// Memory to put on superpages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Memory of malloc.
    pub heap: bool,
    /// Anonymous private mappings.
    pub mmap: bool,
    /// Shared memory: System V, anonymous, memfd and POSIX.
    pub shared: bool,
    /// The program's code; `None`: left alone.
    pub text: Option<Text>,
    /// The program's data and bss.
    pub data: bool,
    /// Stacks of this many bytes each; 0: left alone.
    pub stack: usize,
    /// Large files mapped for reading.
    pub files: Option<Files>,
}

/// File mappings to put on superpages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// Minimum length of a mapping.
    pub min: usize,
    /// Whether files that the page cache holds in small pages may be copied.
    pub copies: bool,
}

/// The directory of the files that hold memory (see `in_place`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// Its descriptor, which this process inherited.
    pub fd: i32,
    /// Device of the directory. It shows whether the program has closed the descriptor and opened another file.
    pub device: u64,
    /// Inode of the directory, likewise.
    pub inode: u64,
}

/// All settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// SUPERPAGE_PAGES
    pub pages: Pages,
    /// SUPERPAGE_MEMORY
    pub memory: Memory,
    /// SUPERPAGE_FALLBACK
    pub fallback: Fallback,
    /// SUPERPAGE_ADVICE
    pub advice: Advice,
    /// SUPERPAGE_POOL=always: use the pool even if calls that work on base pages would fail on its pages (`mapping`).
    pub always_pool: bool,
    /// SUPERPAGE_CHILDREN
    pub children: Children,
    /// SUPERPAGE_IN_PLACE: directory of files that hold memory, instead of the pool.
    pub in_place: Option<InPlace>,
    /// SUPERPAGE_REPORT: where a report is appended when the process ends.
    pub report: Option<&'static CStr>,
    /// SUPERPAGE_REPORT=shortage: whether a process that did not get all superpages prints a line at exit. `superpage
    /// run` prints one for the whole run. The setting serves a command that replaced itself with the program.
    pub says_shortage: bool,
    /// Whether even the first bytes of the heap go on superpages.
    pub whole_heap: bool,
    /// Whether malloc must not mmap objects, as in libhugetlbfs' heap: only HUGETLB_MORECORE asked for superpages.
    pub maps_nothing: bool,
    /// Whether the environment sets glibc's mmap, growth, trim or perturb parameters.
    pub tunes_malloc: bool,
    /// SUPERPAGE_PREZERO: bytes of unmapped memory that may be kept for reuse.
    pub prezero: usize,
    /// SUPERPAGE_PREFAULT: bytes of a new mapping that may be populated by mmap.
    pub prefault: usize,
    /// SUPERPAGE_LEDGER: the counters file of the run (see `counters`).
    pub counters: Option<&'static CStr>,
    /// SUPERPAGE_POLICY_LOG: file to which decisions are appended (see `executor`).
    pub policy_log: Option<&'static CStr>,
}

impl Settings {
    const NONE: Self = Self {
        pages: Pages::None,
        memory: Memory {
            heap: false,
            mmap: false,
            shared: false,
            text: None,
            data: false,
            stack: 0,
            files: None,
        },
        fallback: Fallback::Base,
        advice: Advice::Contiguous,
        always_pool: false,
        children: Children::Base,
        in_place: None,
        report: None,
        says_shortage: false,
        whole_heap: false,
        maps_nothing: false,
        tunes_malloc: false,
        prezero: 0,
        prefault: 0,
        counters: None,
        policy_log: None,
    };

    /// Whether THP is requested.
    pub fn is_thp(&self) -> bool {
        matches!(self.pages, Pages::Thp(_))
    }

    /// Whether hugetlb pages are requested.
    pub fn is_hugetlb(&self) -> bool {
        matches!(self.pages, Pages::Hugetlb(_))
    }
}

struct Once(UnsafeCell<Settings>);
// SAFETY: written once, by the thread that changes `STATE` from 0 to 1; read only after it is 2.
unsafe impl Sync for Once {}

static SETTINGS: Once = Once(UnsafeCell::new(Settings::NONE));
static STATE: AtomicU8 = AtomicU8::new(0);

/// The settings of this process. The first caller reads them, before a second thread exists.
pub fn get() -> &'static Settings {
    if STATE.load(Ordering::Acquire) != READY {
        read();
    }
    // SAFETY: no thread writes after READY; while BUSY (a malloc within `read`, which makes none) the default is seen.
    unsafe { &*SETTINGS.0.get() }
}

const BUSY: u8 = 1;
const READY: u8 = 2;

#[cold]
fn read() {
    if STATE.compare_exchange(0, BUSY, Ordering::AcqRel, Ordering::Acquire).is_err() {
        return;
    }
    // SAFETY: getauxval reads the vector the kernel made. A program with more privileges than its caller must not trust
    // the caller's environment.
    let trusted = unsafe { libc::getauxval(libc::AT_SECURE) } == 0;
    let settings = if trusted { parse_environment() } else { Settings::NONE };
    // SAFETY: this thread holds BUSY.
    unsafe { *SETTINGS.0.get() = settings };
    STATE.store(READY, Ordering::Release);
}

/// Resets the settings: the library is inert. Call only from the constructor, before a second thread exists.
pub fn turn_off() {
    // SAFETY: there is one thread, and only the constructor, which returns, holds what `get` returned.
    unsafe { *SETTINGS.0.get() = Settings::NONE };
    STATE.store(READY, Ordering::Release);
}

fn parse_environment() -> Settings {
    let mut settings = Settings::NONE;
    let mut named = false;
    let mut bad = None;
    let mut morecore = None;
    let mut default_size: &[u8] = b"";
    let mut verbose = 2;
    let mut restricted = false;
    let mut under_valgrind = false;
    environment::each_variable(|name, value| {
        let bytes = value.to_bytes();
        under_valgrind |= is_of_valgrind(name, bytes);
        let understood = match std::str::from_utf8(name).unwrap_or_default() {
            variable::PAGES => set(&mut settings.pages, pages(bytes)),
            variable::MEMORY => {
                named = true;
                set(&mut settings.memory, memory(bytes))
            }
            variable::FALLBACK => set(&mut settings.fallback, word(bytes, Fallback::from_name)),
            variable::ADVICE => set(&mut settings.advice, word(bytes, Advice::from_name)),
            variable::POOL => set(&mut settings.always_pool, pool(bytes)),
            variable::CHILDREN => set(&mut settings.children, word(bytes, Children::from_name)),
            variable::IN_PLACE => set(&mut settings.in_place, in_place(bytes).map(Some)),
            variable::PREZERO => set(&mut settings.prezero, prezero(bytes)),
            variable::PREFAULT => set(&mut settings.prefault, decimal(bytes)),
            variable::COUNTERS => set(&mut settings.counters, Some(Some(value))),
            variable::POLICY_LOG => {
                set(&mut settings.policy_log, Some(Some(value).filter(|_| !bytes.is_empty())))
            }
            variable::REPORT if bytes == REPORT_SHORTAGE.as_bytes() => {
                set(&mut settings.says_shortage, Some(true))
            }
            variable::REPORT => set(&mut settings.report, json_path(value).map(Some)),
            "HUGETLB_MORECORE" => {
                morecore = Some(bytes).filter(|text| !text.eq_ignore_ascii_case(b"no"));
                true
            }
            "HUGETLB_DEFAULT_PAGE_SIZE" => set(&mut default_size, Some(bytes)),
            "HUGETLB_VERBOSE" => set(&mut verbose, Some(first_number(bytes).unwrap_or(0))),
            // Ignored: glibc trims its heap by its own rules.
            "HUGETLB_MORECORE_SHRINK" => true,
            "HUGETLB_RESTRICT_EXE" => set(&mut restricted, Some(!names_this_program(bytes))),
            "MALLOC_TOP_PAD_"
            | "MALLOC_TRIM_THRESHOLD_"
            | "MALLOC_MMAP_THRESHOLD_"
            | "MALLOC_MMAP_MAX_"
            | "MALLOC_PERTURB_" => set(&mut settings.tunes_malloc, Some(true)),
            "GLIBC_TUNABLES" => {
                settings.tunes_malloc |= tunes_malloc(bytes);
                true
            }
            _ => true,
        };
        if !understood {
            bad = Some((name, value));
        }
    });
    if under_valgrind {
        return Settings::NONE;
    }
    for (name, path, kept) in [
        (variable::REPORT, &mut settings.report, &REPORT),
        (variable::POLICY_LOG, &mut settings.policy_log, &POLICY_LOG),
    ] {
        if let Some(value) = *path {
            // SAFETY: `read` calls this once.
            *path = unsafe { kept.keep(value) };
            if path.is_none() {
                bad = Some((name.as_bytes(), value));
            }
        }
    }
    if let Some((name, value)) = bad {
        message::line(&[
            name,
            b"=",
            value.to_bytes(),
            b" is not understood; superpage does nothing in this process (see superpage(7))",
        ]);
        return Settings::NONE;
    }
    if let Some(text) = morecore.filter(|_| settings.pages == Pages::None && !restricted) {
        let warns = verbose >= 2;
        if let Some(pages) = legacy_heap(text, default_size, warns) {
            settings.pages = pages;
            settings.memory.heap = true;
            (settings.whole_heap, settings.maps_nothing) = (true, true);
            settings.says_shortage |= warns && settings.report.is_none();
            return settings;
        }
        if warns {
            let why = b": invalid page size; malloc stays on base pages";
            message::line(&[b"HUGETLB_MORECORE", b"=", text, why]);
        }
    }
    if settings.pages == Pages::None {
        // Reports are still written, and say that nothing was requested.
        settings.memory = Memory::default();
    } else if !named {
        // Only SUPERPAGE_PAGES is set: superpages for the program's own mappings and, with THP, which is only advice,
        // for the heap (docs/decisions/heap.md#8). Malloc's arenas lie on the pool only on request
        // (docs/decisions/pool.md#2).
        settings.memory.mmap = true;
        settings.memory.heap = settings.is_thp();
    }
    // `hugectl --heap` sets both variables: libhugetlbfs' heap, from its first byte on.
    let is_legacy_heap = morecore.is_some() && !restricted;
    settings.whole_heap = is_legacy_heap && settings.memory.heap && settings.is_hugetlb();
    settings
}

/// Copy of a path used after start-up: servers overwrite the environment with their titles (setproctitle(3)).
struct Kept(UnsafeCell<[u8; libc::PATH_MAX as usize]>);
// SAFETY: written once, before `keep` returns the reference.
unsafe impl Sync for Kept {}

static REPORT: Kept = Kept::new();
static POLICY_LOG: Kept = Kept::new();

impl Kept {
    const fn new() -> Self {
        Self(UnsafeCell::new([0; libc::PATH_MAX as usize]))
    }

    /// Returns a copy of `path`; `None`: longer than PATH_MAX, which the kernel would not accept either.
    ///
    /// # Safety
    /// Call only once.
    unsafe fn keep(&'static self, path: &CStr) -> Option<&'static CStr> {
        let bytes = path.to_bytes_with_nul();
        // SAFETY: by the contract there is no other reference.
        let place = unsafe { &mut *self.0.get() }.get_mut(..bytes.len())?;
        place.copy_from_slice(bytes);
        CStr::from_bytes_with_nul(place).ok()
    }
}

/// Stores a parsed value; `false`: the value was not understood.
fn set<T>(place: &mut T, value: Option<T>) -> bool {
    value.map(|value| *place = value).is_some()
}

/// Parses `json:PATH`.
fn json_path(value: &CStr) -> Option<&CStr> {
    let path = value.to_bytes_with_nul().strip_prefix(b"json:")?;
    CStr::from_bytes_with_nul(path).ok()
}

fn pages(text: &[u8]) -> Option<Pages> {
    match text {
        b"" | b"base" | b"system" => Some(Pages::None),
        b"thp" => Some(Pages::Thp(0)),
        b"hugetlb" => Some(Pages::Hugetlb(0)),
        _ => {
            let colon = text.iter().position(|&byte| byte == b':')?;
            let size = superpage_size(&text[colon + 1..])?;
            match &text[..colon] {
                b"thp" => Some(Pages::Thp(size)),
                b"hugetlb" => Some(Pages::Hugetlb(size)),
                _ => None,
            }
        }
    }
}

/// Parses `HUGETLB_MORECORE` of libhugetlbfs: `yes` (pages of `HUGETLB_DEFAULT_PAGE_SIZE`), `thp`, or a page size with
/// a unit. Any other value asks for nothing, as in libhugetlbfs.
fn legacy_heap(text: &[u8], default_size: &[u8], warns: bool) -> Option<Pages> {
    if text.eq_ignore_ascii_case(b"yes") {
        let size = superpage_size(default_size).filter(|size| has_pool(*size));
        if size.is_none() && !default_size.is_empty() && warns {
            let why = b": no such superpage size here; malloc asks for the kernel's default size";
            message::line(&[b"HUGETLB_DEFAULT_PAGE_SIZE", b"=", default_size, why]);
        }
        return Some(Pages::Hugetlb(size.unwrap_or(0)));
    }
    if text.eq_ignore_ascii_case(b"thp") {
        return Some(Pages::Thp(0));
    }
    superpage_size(text).map(Pages::Hugetlb)
}

/// Parses a page size larger than a base page.
fn superpage_size(text: &[u8]) -> Option<usize> {
    page_size(text).filter(|size| *size > raw::base_page())
}

/// Whether the machine has a pool of this page size, even an empty one.
fn has_pool(size: usize) -> bool {
    let kib = Decimal::new((size >> 10) as u64);
    let pieces: [&[u8]; 3] =
        [b"/sys/kernel/mm/hugepages/hugepages-", kib.bytes(), b"kB/nr_hugepages"];
    let path = text::Text::<96>::join(&pieces);
    path.is_some_and(|path| files::read_file(path.c_str(), &mut [0; 32]).is_some())
}

/// `HUGETLB_RESTRICT_EXE=a:b`: whether the list contains the file name of argv[0].
pub fn names_this_program(list: &[u8]) -> bool {
    // SAFETY: argv\[0\] is a C string or null.
    let name = unsafe {
        let arguments = environment::initial_arguments();
        if arguments.is_null() || (*arguments).is_null() {
            return false;
        }
        CStr::from_ptr(*arguments).to_bytes()
    };
    let name = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    list.split(|&byte| byte == b':').any(|entry| !entry.is_empty() && entry == name)
}

/// Whether a variable shows that valgrind runs this program: LD_PRELOAD names valgrind's libraries.
fn is_of_valgrind(name: &[u8], value: &[u8]) -> bool {
    const PRELOAD: &[u8] = b"/vgpreload_";
    name == b"LD_PRELOAD" && value.windows(PRELOAD.len()).any(|window| window == PRELOAD)
}

/// Whether a list of tunables sets when malloc gets memory from the kernel, or the byte with which malloc fills memory.
fn tunes_malloc(list: &[u8]) -> bool {
    const NAMES: [&[u8]; 5] = [
        b"glibc.malloc.top_pad=",
        b"glibc.malloc.trim_threshold=",
        b"glibc.malloc.mmap_threshold=",
        b"glibc.malloc.mmap_max=",
        b"glibc.malloc.perturb=",
    ];
    list.split(|&byte| byte == b':').any(|it| NAMES.iter().any(|name| it.starts_with(name)))
}

fn memory(text: &[u8]) -> Option<Memory> {
    let mut memory = Memory::default();
    for text in text.split(|&byte| byte == b',').filter(|text| !text.is_empty()) {
        match word(text, Kind::from_name) {
            Some(Kind::Heap) => memory.heap = true,
            Some(Kind::Mmap) => memory.mmap = true,
            Some(Kind::Shared) => memory.shared = true,
            Some(Kind::Text) => memory.text = Some(Text::File),
            Some(Kind::Data) => memory.data = true,
            Some(Kind::Files) => memory.files = files(b""),
            None if text == TEXT_COPY.as_bytes() => memory.text = Some(Text::Copy),
            None if text.starts_with(b"files=") => memory.files = Some(files(&text[6..])?),
            Some(Kind::Stack) | None => memory.stack = decimal(text.strip_prefix(b"stack=")?)?,
        }
    }
    Some(memory)
}

/// Parses `copy`, `BYTES`, or both: `copy:BYTES`.
fn files(text: &[u8]) -> Option<Files> {
    let rest = text.strip_prefix(FILES_COPY.as_bytes());
    let least = match rest {
        Some(rest) => rest.strip_prefix(b":").or(rest.is_empty().then_some(rest))?,
        None => text,
    };
    let min = if least.is_empty() { FILES_MIN as usize } else { decimal(least)? };
    Some(Files { min, copies: rest.is_some() })
}

fn word<T>(text: &[u8], from_name: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    from_name(std::str::from_utf8(text).ok()?)
}

fn pool(text: &[u8]) -> Option<bool> {
    match text {
        b"" | b"exact" => Some(false),
        b"always" => Some(true),
        _ => None,
    }
}

/// Parses `DESCRIPTOR:DEVICE:INODE`, e.g. `1000:42:1`.
fn in_place(text: &[u8]) -> Option<InPlace> {
    let mut words = text.split(|&byte| byte == b':').map(decimal);
    let (fd, device, inode) = (words.next()??, words.next()??, words.next()??);
    let fd = i32::try_from(fd).ok()?;
    words.next().is_none().then_some(InPlace { fd, device: device as u64, inode: inode as u64 })
}

/// Parses `268435456`. Ignores `,load=99` and `,start=67108864`: the thread they would tune does not exist.
fn prezero(text: &[u8]) -> Option<usize> {
    let mut words = text.split(|&byte| byte == b',');
    let bytes = decimal(words.next()?)?;
    words.try_for_each(|word| {
        decimal(word.strip_prefix(b"load=").or_else(|| word.strip_prefix(b"start="))?).map(drop)
    })?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_read_in_all_their_forms() {
        for text in ["2M", "2m", "2MB", "2MiB", "2048k", "2097152", "0x200000"] {
            assert_eq!(superpage_size(text.as_bytes()), Some(2 << 20), "{text}");
        }
        for text in ["", "4096", "3M", "M", "2X", "x2M", "99999999999999999999"] {
            assert_eq!(superpage_size(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn the_heap_of_libhugetlbfs_has_the_default_size_that_is_named() {
        let heap = |default: &str| legacy_heap(b"yes", default.as_bytes(), false);
        assert_eq!(heap(""), Some(Pages::Hugetlb(0)));
        // Sizes for which this machine has no pool.
        assert_eq!([heap("8T"), heap("banana")], [Some(Pages::Hugetlb(0)); 2]);
        for pool in std::fs::read_dir("/sys/kernel/mm/hugepages").into_iter().flatten().flatten() {
            let name = pool.file_name().into_string().unwrap();
            let kib = name.strip_prefix("hugepages-").and_then(|it| it.strip_suffix("kB")).unwrap();
            let size = kib.parse::<usize>().unwrap() << 10;
            assert_eq!(heap(&format!("{kib}k")), Some(Pages::Hugetlb(size)));
        }
        assert_eq!(legacy_heap(b"4M", b"2M", false), Some(Pages::Hugetlb(4 << 20)));
        assert_eq!(legacy_heap(b"thp", b"2M", false), Some(Pages::Thp(0)));
    }
}
