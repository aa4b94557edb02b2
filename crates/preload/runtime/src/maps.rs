//! This process's VMAs, read without allocating.
//!
//! # Safety
//! System calls on a descriptor and a buffer of our own. The descriptor is opened and closed by system calls, so that
//! no interposed `open` sees it.

use std::ffi::CStr;

use abi::environment::IN_PLACE_FILE;

use crate::{raw, text};

/// One line of /proc/self/maps.
#[derive(Clone, Copy, Debug)]
pub struct Vma<'a> {
    /// First address.
    pub start: usize,
    /// Address after the last.
    pub end: usize,
    /// `rwxp`, as the kernel prints it.
    pub flags: [u8; 4],
    /// Offset in the file.
    pub offset: u64,
    /// The file's device, as the kernel prints it in hexadecimal (`major:minor`), and its inode.
    pub file: (u64, u64),
    /// The file's path or the kernel's name for the mapping; empty for anonymous memory.
    pub name: &'a [u8],
}

impl Vma<'_> {
    /// The protection as `mprotect(2)` takes it.
    pub fn protection(&self) -> i32 {
        let bit = |at: usize, letter: u8, bit: i32| if self.flags[at] == letter { bit } else { 0 };
        bit(0, b'r', libc::PROT_READ)
            | bit(1, b'w', libc::PROT_WRITE)
            | bit(2, b'x', libc::PROT_EXEC)
    }

    /// Whether the VMA is private.
    pub fn is_private(&self) -> bool {
        self.flags[3] == b'p'
    }

    /// Whether the VMA is anonymous shared memory on base pages, by the kernel's name.
    pub fn is_anonymous_shared(&self) -> bool {
        !self.is_private() && self.name.starts_with(b"/dev/zero (deleted)")
    }

    /// Whether the VMA is anonymous hugetlb memory, by the kernel's name.
    pub fn is_anonymous_hugetlb(&self) -> bool {
        self.name.starts_with(b"/anon_hugepage")
    }

    /// Whether the VMA is a file with private memory of the program (see `in_place`).
    pub fn is_in_place(&self) -> bool {
        !self.is_private() && self.name.starts_with(IN_PLACE_FILE.as_bytes())
    }

    /// Whether the program considers the VMA shared memory.
    pub fn is_shared_memory(&self) -> bool {
        !self.is_private() && !self.is_in_place()
    }
}

/// The thread's file: /proc/self/maps is empty once the main thread has exited.
const PATH: &CStr = c"/proc/thread-self/maps";

/// Whether [`each`] can read the file.
pub fn can_be_read() -> bool {
    let file = raw::keeping_errno(|| raw::open(PATH, libc::O_RDONLY | libc::O_CLOEXEC, 0));
    file.is_some_and(|fd| {
        raw::keeping_errno(|| raw::close(fd));
        true
    })
}

/// Whether the file exists, even if no descriptor is free to open it.
pub fn are_there() -> bool {
    raw::keeping_errno(|| {
        // SAFETY: the pointer is to a C string.
        let found = unsafe { raw::call!(SYS_faccessat, libc::AT_FDCWD, PATH.as_ptr(), libc::R_OK) };
        found == 0
    })
}

/// Calls `tell` with each VMA in ascending order; `None` if the file could not be read. The file is read in pieces, so
/// changes that `tell` makes may or may not show.
pub fn each(tell: impl FnMut(&Vma)) -> Option<()> {
    each_of(PATH, tell)
}

/// As [`each`], for the maps file of any process.
pub fn each_of(path: &CStr, mut tell: impl FnMut(&Vma)) -> Option<()> {
    each_line(path, |line| {
        if let Some(vma) = parse(line) {
            tell(&vma);
        }
    })
}

/// The VMA at an address, without its name.
pub fn at(address: usize) -> Option<Vma<'static>> {
    let mut found = None;
    each(|vma| {
        if (vma.start..vma.end).contains(&address) {
            found = Some(Vma { name: b"", ..*vma });
        }
    })?;
    found
}

/// Whether `[start, end)` overlaps files of `in_place`, or the maps cannot be read.
pub fn is_in_place(start: usize, end: usize) -> bool {
    let mut found = false;
    let read = each(|vma| found |= vma.start < end && start < vma.end && vma.is_in_place());
    found || read.is_none()
}

/// Whether all of `[start, end)` is private anonymous memory.
pub fn is_private_anonymous(start: usize, end: usize) -> bool {
    let mut at = start;
    let read = each(|vma| {
        if vma.start <= at && at < vma.end && vma.is_private() && vma.file == (0, 0) {
            at = vma.end;
        }
    });
    read.is_some() && at >= end
}

/// Two letters for each flag of a VMA (`VmFlags` of smaps, proc(5)).
pub type Marks = [u8; 128];

/// State of a VMA's pages.
#[derive(Clone, Copy)]
pub struct State {
    /// Advised for THP.
    pub is_advised: bool,
    /// Charged to the commit limit.
    pub is_accounted: bool,
    /// Has anonymous pages in memory or in swap, or guard pages.
    pub was_changed: bool,
}

/// Calls `tell` with each VMA without its name, the flags that the program set other than MADV_HUGEPAGE, and its state.
/// Walks the page tables of the whole process: for rare use.
pub fn each_with_marks(mut tell: impl FnMut(&Vma, Marks, State)) -> Option<()> {
    let mut known: Option<Vma<'static>> = None;
    let mut has_pages = false;
    each_line(c"/proc/thread-self/smaps", |line| {
        if let Some(words) = line.strip_prefix(b"VmFlags:") {
            let mut marks = [0; 128];
            let words = words.split(|&byte| byte == b' ');
            let is_advised = words.clone().any(|word| word == b"hg");
            let is_accounted = words.clone().any(|word| word == b"ac");
            let was_changed = has_pages || words.clone().any(|word| word == b"gu");
            // Soft-dirty (sd), guard (gu) and accounted (ac) flags depend on how memory was used and how its copy was
            // made: they do not make two VMAs differ.
            let left_out = [b"hg", b"sd", b"gu", b"ac"];
            let is_kept = |word: &&[u8]| word.len() == 2 && left_out.iter().all(|it| word != it);
            let kept = words.filter(is_kept);
            for (place, word) in marks.chunks_exact_mut(2).zip(kept) {
                place.copy_from_slice(word);
            }
            if let Some(vma) = known.take() {
                tell(&vma, marks, State { is_advised, is_accounted, was_changed });
            }
        } else if line.starts_with(b"Anonymous:") || line.starts_with(b"Swap:") {
            has_pages |= line.iter().any(|byte| (b'1'..=b'9').contains(byte));
        } else if let Some(vma) = parse(line) {
            known = Some(Vma { name: b"", ..vma });
            has_pages = false;
        }
    })
}

/// Whether the VMA at `address` is advised for THP. As slow as [`each_with_marks`].
pub fn is_advised(address: usize) -> bool {
    let mut found = false;
    let holds = |vma: &Vma| vma.start <= address && address < vma.end;
    let _ = each_with_marks(|vma, _, state| found |= state.is_advised && holds(vma));
    found
}

/// Calls `tell` with each line of a file; `None` if it could not be read.
pub fn each_line(path: &CStr, mut tell: impl FnMut(&[u8])) -> Option<()> {
    raw::keeping_errno(|| {
        let fd = raw::open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0)?;
        let complete = read_lines(fd, &mut tell);
        raw::close(fd);
        complete
    })
}

/// Calls `tell` with each line of `fd`; a line longer than the buffer is truncated.
fn read_lines(fd: i32, tell: &mut dyn FnMut(&[u8])) -> Option<()> {
    // Small: a signal handler may run this on a stack of 8 KiB (SIGSTKSZ).
    let mut buffer = [0u8; 1024];
    let mut filled = 0;
    let mut skipping = false;
    loop {
        // SAFETY: the rest of our own buffer.
        let got = unsafe {
            let rest = buffer.as_mut_ptr().add(filled);
            raw::call!(SYS_read, fd, rest, buffer.len() - filled)
        };
        match got {
            0 => return Some(()),
            -1 if raw::errno() == libc::EINTR => continue,
            -1 => return None,
            _ => filled += got as usize,
        }
        let mut from = 0;
        while let Some(length) = buffer[from..filled].iter().position(|&byte| byte == b'\n') {
            if !std::mem::take(&mut skipping) {
                tell(&buffer[from..from + length]);
            }
            from += length + 1;
        }
        if from == 0 && filled == buffer.len() {
            tell(&buffer);
            skipping = true;
            from = filled;
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
    }
}

/// Parses a line such as `7f00-7f10 rw-p 0000 00:00 0      name`.
fn parse(line: &[u8]) -> Option<Vma<'_>> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let range = fields.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let flags = fields.next()?.try_into().ok()?;
    let offset = hexadecimal(fields.next()?)?;
    let device = fields.next()?;
    let colon = device.iter().position(|&byte| byte == b':')?;
    let device = hexadecimal(&device[..colon])? << 32 | hexadecimal(&device[colon + 1..])?;
    let inode = text::decimal(fields.next()?)? as u64;
    let rest = fields.next().unwrap_or(b"");
    let blanks = rest.iter().take_while(|&&byte| byte == b' ').count();
    Some(Vma {
        start: hexadecimal(&range[..dash])? as usize,
        end: hexadecimal(&range[dash + 1..])? as usize,
        flags,
        offset,
        file: (device, inode),
        name: &rest[blanks..],
    })
}

/// Parses all of `text` as a hexadecimal number without `0x`.
fn hexadecimal(text: &[u8]) -> Option<u64> {
    text::hexadecimal(text).filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}
