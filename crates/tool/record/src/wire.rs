//! What the plugin sends: frames, read from bytes. `plugin/wire.h` and `plugin/calls.h` write them. Total:
//! any bytes are either a frame or an error, since a recorded program could send to our socket too.

/// The longest frame: a buffer full of records and a head.
pub const LONGEST: usize = 64 << 10;
/// "SPR1".
const MAGIC: u32 = 0x3152_5053;
/// Magic, kind, pid, tid, instructions.
const HEAD: usize = 24;
/// Addresses at and above this are not a program's: 57 bits, the most that x86 page tables have.
const END: u64 = 1 << 57;

/// A frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame<'a> {
    /// The process.
    pub pid: u32,
    /// Instructions of it since the frame before that told any; unknown where nobody counts them.
    pub instructions: Option<u64>,
    /// What it says.
    pub what: Message<'a>,
}

/// What a frame says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Message<'a> {
    /// A process begins with an empty address space: a new one, or one that executed a program.
    Start,
    /// Memory is mapped.
    Map(Mapped),
    /// Accesses of one thread, in order.
    Accesses(Words<'a>),
    /// Instruction fetches of one thread, in order.
    Fetches(Words<'a>),
    /// Memory is unmapped.
    Unmap(Span),
    /// What `shmat` mapped at this address is unmapped.
    Detach(u64),
    /// A mapping changes its size or its place.
    Remap {
        /// Where it was.
        old: Span,
        /// Where it is.
        new: Span,
        /// Whether the old place stays mapped (MREMAP_DONTUNMAP).
        stays: bool,
    },
    /// The heap's end moves from one address to another.
    Break(u64, u64),
    /// `madvise`, with its number.
    Advise(Span, u64),
    /// `mprotect`, with its bits.
    Protect(Span, u64),
    /// The process is about to fork; the child goes by this name.
    Forking(u64),
    /// This process is the child of that name.
    Forked(u64),
    /// There is no child of that name.
    ForkFailed(u64),
    /// The process ends.
    Exit,
    /// It executes a program that is not recorded; its path.
    Foreign(&'a [u8]),
    /// It makes another thread.
    Thread,
    /// Memory is mapped, or was already and is told of again; whether it is the heap. (Only of perf events.)
    Declared(Mapped, bool),
    /// So many events were lost. (Only of perf events.)
    Lost(u64),
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub begin: u64,
    /// How many.
    pub length: u64,
}

/// A mapping as the kernel made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapped {
    /// Where.
    pub span: Span,
    /// PROT_ bits.
    pub protection: u64,
    /// Whether writes are seen by others that map it.
    pub shared: bool,
    /// Its file or segment; 0: none.
    pub file: u64,
    /// Where in it.
    pub offset: u64,
}

/// Records of accesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Words<'a>(&'a [[u8; 8]]);

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word {
    /// The virtual page number.
    pub page: u64,
    /// Whether it is written.
    pub writes: bool,
    /// The accesses it stands for, at least 1.
    pub count: u32,
}

impl<'a> Words<'a> {
    /// Records as the plugin writes them: bit 0 writes, 44 bits of page number, 19 bits of count.
    pub fn new(words: &'a [[u8; 8]]) -> Self {
        Self(words)
    }

    /// The records, in order.
    pub fn iter(self) -> impl Iterator<Item = Word> + 'a {
        self.0.iter().map(|bytes| {
            let word = u64::from_le_bytes(*bytes);
            let count = ((word >> 45) as u32).max(1);
            Word { page: word >> 1 & ((1 << 44) - 1), writes: word & 1 == 1, count }
        })
    }
}

/// Reads a frame.
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
            // MREMAP_DONTUNMAP is 4 (linux/mman.h); a length of 0 copies a shared mapping (mremap(2)).
            (Message::Remap { old, new, stays: field(4)? & 4 != 0 }, 5)
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

/// Bytes that can be a program's. What is longer than memory is cut at its end: the kernel refused it.
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
