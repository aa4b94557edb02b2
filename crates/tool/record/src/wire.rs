//! Parser of frames, which `plugin/wire.h` and `plugin/calls.h` write. Any bytes give a frame or an error, because the
//! recorded program could also send to the socket.

/// Maximum frame size in bytes: a header and a full buffer of records.
pub const MAX_FRAME: usize = 64 << 10;
/// "SPR1".
const MAGIC: u32 = 0x3152_5053;
/// Number of bytes of the header: magic, kind, pid, tid, instructions.
const HEAD: usize = 24;
/// Upper bound of user addresses: 57 bits, the maximum of x86 page tables.
const END: u64 = 1 << 57;

/// A frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    /// The process.
    pub pid: u32,
    /// Number of instructions of the process since its last frame with a count; `None` if the frame
    /// has no count.
    pub instructions: Option<u64>,
    /// The payload.
    pub what: Message<'a>,
}

/// The payload of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// A process starts with an empty address space: at the beginning, or after exec.
    Start,
    /// mmap.
    Map(Mapped),
    /// Accesses of one thread, in order.
    Accesses(Words<'a>),
    /// Instruction fetches of one thread, in order.
    Fetches(Words<'a>),
    /// munmap.
    Unmap(Span),
    /// shmdt of the segment at this address.
    Detach(u64),
    /// mremap.
    Remap {
        /// Old address range.
        old: Span,
        /// New address range.
        new: Span,
        /// Whether the old range stays mapped (MREMAP_DONTUNMAP).
        keeps_old: bool,
    },
    /// brk: old and new end of the heap.
    Break(u64, u64),
    /// madvise, with the advice number.
    Advise(Span, u64),
    /// mprotect, with the PROT_ bits.
    Protect(Span, u64),
    /// The process is about to fork a child with this name.
    Forking(u64),
    /// This process is the child with this name.
    Forked(u64),
    /// The fork of the child with this name failed.
    ForkFailed(u64),
    /// The process exits.
    Exit,
    /// exec of an unrecorded program; its path.
    Foreign(&'a [u8]),
    /// A new thread.
    Thread,
    /// A mapping that may already be known, and whether it is the heap (perf records only).
    Declared(Mapped, bool),
    /// Number of lost records (perf records only).
    Lost(u64),
}

/// A byte range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// First address.
    pub begin: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A mapping as the kernel made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Address range.
    pub span: Span,
    /// PROT_ bits.
    pub protection: u64,
    /// Whether it is MAP_SHARED.
    pub shared: bool,
    /// Identity of the mapped file or segment; 0: none.
    pub file: u64,
    /// Offset in the file, in bytes.
    pub offset: u64,
}

/// Access records of a frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Words<'a>(&'a [[u8; 8]]);

/// One access record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// The virtual page number.
    pub page: u64,
    /// Whether it is a write.
    pub writes: bool,
    /// Number of accesses that the record represents, at least 1.
    pub count: u32,
}

impl<'a> Words<'a> {
    /// Wraps records as the plugin writes them: bit 0 write, 44 bits of page number, 19 bits of
    /// count.
    pub fn new(words: &'a [[u8; 8]]) -> Self {
        Self(words)
    }

    /// Decodes the records, in order.
    pub fn iter(self) -> impl Iterator<Item = Word> + 'a {
        self.0.iter().map(|bytes| {
            let word = u64::from_le_bytes(*bytes);
            let count = ((word >> 45) as u32).max(1);
            Word { page: word >> 1 & ((1 << 44) - 1), writes: word & 1 == 1, count }
        })
    }
}

/// Parses a frame.
pub fn read(bytes: &[u8]) -> Result<Frame<'_>, String> {
    let wrong = |what: &str| Err(format!("{what} ({} bytes)", bytes.len()));
    let Some((head, body)) = bytes.split_first_chunk::<HEAD>() else {
        return wrong("a frame without a head");
    };
    let half = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if half(0) != MAGIC {
        return wrong("something other than a frame");
    }
    let kind = half(4);
    let instructions = Some(u64::from(half(16)) | u64::from(half(20)) << 32);
    let (words, rest) = body.as_chunks::<8>();
    let field = |at: usize| words.get(at).map(|word| u64::from_le_bytes(*word));
    let what = match kind {
        3 | 4 if rest.is_empty() && !words.is_empty() => {
            let words = Words(words);
            Some(if kind == 3 { Message::Accesses(words) } else { Message::Fetches(words) })
        }
        14 => Some(Message::Foreign(body)),
        _ if rest.is_empty() => fields(kind, words.len(), &field),
        _ => None,
    };
    match what {
        Some(what) => Ok(Frame { pid: half(8), instructions, what }),
        None => wrong(&format!("a frame of kind {kind} that makes no sense")),
    }
}

fn fields(
    kind: u32,
    count: usize,
    field: &dyn Fn(usize) -> Option<u64>,
) -> Option<Message<'static>> {
    let span = |at: usize| span(field(at)?, field(at + 1)?);
    let (what, length) = match kind {
        1 => (Message::Start, 0),
        2 => (
            Message::Map(Mapped {
                span: span(0)?,
                protection: field(2)?,
                shared: field(3)? & 1 != 0,
                file: field(4)?,
                offset: field(5)?,
            }),
            6,
        ),
        5 if field(1)? == 0 => (Message::Detach(field(0)?), 2),
        5 => (Message::Unmap(span(0)?), 2),
        6 => {
            let (old, new) = (Span { begin: field(0)?, length: field(1)? }, field(2)?);
            let old = if old.length == 0 { old } else { self::span(old.begin, old.length)? };
            let new = self::span(new, field(3)?)?;
            // MREMAP_DONTUNMAP is 4 (linux/mman.h); an old length of 0 duplicates a shared mapping and keeps the old
            // one (mremap(2)).
            (Message::Remap { old, new, keeps_old: field(4)? & 4 != 0 }, 5)
        }
        7 => (Message::Break(field(0)?, field(1)?), 2),
        8 => (Message::Advise(span(0)?, field(2)?), 3),
        9 => (Message::Protect(span(0)?, field(2)?), 3),
        10 => (Message::Forking(field(0)?), 1),
        11 => (Message::Forked(field(0)?), 1),
        12 => (Message::ForkFailed(field(0)?), 1),
        13 => (Message::Exit, 0),
        15 => (Message::Thread, 1),
        _ => return None,
    };
    let ends = |address: u64| address < END;
    let fits = match what {
        Message::Break(old, new) => ends(old) && ends(new),
        _ => true,
    };
    (count == length && fits).then_some(what)
}

/// Makes a range of user addresses, truncated at the upper bound. The kernel has refused calls with
/// longer ranges.
fn span(begin: u64, length: u64) -> Option<Span> {
    (begin < END).then(|| Span { begin, length: length.min(END - begin) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        [MAGIC, kind, 7, 8].iter().for_each(|half| bytes.extend(half.to_le_bytes()));
        bytes.extend(9u64.to_le_bytes());
        bytes.extend(body);
        bytes
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_an_error(
            kind in 0u32..18, body in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..300
        ) {
            let whole = frame(kind, &body);
            let some = &whole[..cut.min(whole.len())];
            if let Ok(frame) = read(some) {
                prop_assert_eq!((frame.pid, frame.instructions), (7, Some(9)));
                if let Message::Accesses(words) | Message::Fetches(words) = frame.what {
                    prop_assert!(words.iter().all(|word| word.count > 0 && word.page < 1 << 44));
                }
                if let Message::Map(Mapped { span, .. }) | Message::Unmap(span) = frame.what {
                    prop_assert!(span.begin + span.length <= END);
                }
            }
            let _ = read(&body);
        }

        #[test]
        fn records_come_back(page in 0u64..1 << 44, writes: bool, count in 1u32..1 << 19) {
            let word = page << 1 | u64::from(writes) | u64::from(count) << 45;
            let bytes = frame(3, &word.to_le_bytes());
            let Message::Accesses(words) = read(&bytes).unwrap().what else { panic!() };
            prop_assert_eq!(words.iter().collect::<Vec<_>>(), [Word { page, writes, count }]);
        }
    }

    #[test]
    fn every_kind_wants_its_own_fields() {
        let eight: Vec<u8> = (1..=8u64).flat_map(u64::to_le_bytes).collect();
        let lengths = [(1, 0), (2, 6), (5, 2), (6, 5), (7, 2), (8, 3), (9, 3), (10, 1), (13, 0)];
        for (kind, length) in lengths {
            for count in 0..8 {
                let read = read(&frame(kind, &eight[..count * 8])).is_ok();
                assert_eq!(read, count == length, "kind {kind} with {count} fields");
            }
        }
    }
}
