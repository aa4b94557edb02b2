//! Reads and changes the parts of ELF program headers that marking segments needs. Parses untrusted bytes: every offset
//! and count is checked against the file's length.
//!
//! Supports both word sizes and both byte orders. A mark is one bit of a word whose offset depends on them.

use std::fmt;
use std::mem::{offset_of, size_of};

use object::elf::{self, FileHeader32, FileHeader64, ProgramHeader32, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endian, Endianness, pod};

/// Marks a segment that is to be on superpages (libhugetlbfs' PF_LINUX_HUGETLB, one of the PF_MASKOS bits that the ELF
/// specification reserves for operating systems).
pub const MARK: u32 = 0x10_0000;

/// Bytes of the longest ELF header, which is that of 64-bit files.
pub const HEADER: usize = size_of::<FileHeader64<Endianness>>();

/// Location of the program headers, read from the file's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    is_64: bool,
    endian: Endianness,
    machine: elf::Machine,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of entries.
    pub count: usize,
}

/// Why a file cannot be marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAProgram {
    /// A script.
    Script,
    /// Neither a script nor an ELF file.
    NotElf,
    /// The file ends within its header.
    Short,
    /// EI_CLASS says neither 32 nor 64 bits; this is its value.
    Class(u8),
    /// EI_DATA says no known byte order; this is its value.
    ByteOrder(u8),
    /// e_type says neither executable nor shared object; this is its value.
    Kind(u16),
    /// The size of a program header differs from the format's.
    EntrySize {
        /// Bytes according to the file.
        found: u16,
        /// Bytes according to the format.
        right: usize,
    },
    /// The file has no program headers.
    NoSegments,
    /// The number of program headers is in a section header.
    TooManySegments,
    /// The program headers overlap the ELF header.
    OverHeader,
    /// The program headers reach beyond the end of the file.
    BeyondEnd {
        /// End of the program headers, in bytes.
        end: u128,
        /// Length of the file, in bytes.
        length: u64,
    },
}

/// A loaded segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Index in the program header table.
    pub index: usize,
    /// Byte offset of the segment's flags in the table.
    flags_at: usize,
    flags: elf::ProgramFlags,
    start: u64,
    file_size: u64,
    memory_size: u64,
    machine: elf::Machine,
}

impl Table {
    /// Parses `start`, the first [`HEADER`] bytes of a file of `length` bytes (or all bytes, if fewer).
    pub fn read(start: &[u8], length: u64) -> Result<Self, NotAProgram> {
        if start.starts_with(b"#!") {
            return Err(NotAProgram::Script);
        }
        if !start.starts_with(b"\x7fELF") {
            return Err(NotAProgram::NotElf);
        }
        match start.get(4).ok_or(NotAProgram::Short)? {
            1 => Self::of::<FileHeader32<Endianness>>(start, length, false),
            2 => Self::of::<FileHeader64<Endianness>>(start, length, true),
            other => Err(NotAProgram::Class(*other)),
        }
    }

    fn of<Header: FileHeader<Endian = Endianness>>(
        start: &[u8],
        length: u64,
        is_64: bool,
    ) -> Result<Self, NotAProgram> {
        let (header, _) = pod::from_bytes::<Header>(start).map_err(|()| NotAProgram::Short)?;
        let order = header.e_ident().data.0;
        let endian = match order {
            1 | 2 => Endianness::from_big_endian(order == 2),
            _ => None,
        };
        let endian = endian.ok_or(NotAProgram::ByteOrder(order))?;
        let kind = header.e_type(endian);
        if ![elf::ET_EXEC, elf::ET_DYN].contains(&kind) {
            return Err(NotAProgram::Kind(kind.0));
        }
        let (offset, count) = (header.e_phoff(endian).into(), header.e_phnum(endian));
        let (found, right) = (header.e_phentsize(endian), size_of::<Header::ProgramHeader>());
        match count {
            0 => return Err(NotAProgram::NoSegments),
            // PN_XNUM: the number of headers is in a section header.
            elf::PN_XNUM => return Err(NotAProgram::TooManySegments),
            _ if usize::from(found) != right => {
                return Err(NotAProgram::EntrySize { found, right });
            }
            _ if offset < size_of::<Header>() as u64 => return Err(NotAProgram::OverHeader),
            _ => {}
        }
        let count = usize::from(count);
        let end = u128::from(offset) + (count * right) as u128;
        if end > u128::from(length) {
            return Err(NotAProgram::BeyondEnd { end, length });
        }
        Ok(Self { is_64, endian, machine: header.e_machine(endian), offset, count })
    }

    /// Returns the length of the table in bytes.
    pub fn bytes(&self) -> usize {
        let entry = match self.is_64 {
            true => size_of::<ProgramHeader64<Endianness>>(),
            false => size_of::<ProgramHeader32<Endianness>>(),
        };
        self.count * entry
    }

    /// Returns the loaded segments; `bytes` is the whole table.
    pub fn segments(&self, bytes: &[u8]) -> Vec<Segment> {
        type Small = ProgramHeader32<Endianness>;
        type Large = ProgramHeader64<Endianness>;
        match self.is_64 {
            true => self.loaded::<Large>(bytes, offset_of!(Large, p_flags)),
            false => self.loaded::<Small>(bytes, offset_of!(Small, p_flags)),
        }
    }

    fn loaded<Entry: ProgramHeader<Endian = Endianness>>(
        &self,
        bytes: &[u8],
        flags: usize,
    ) -> Vec<Segment> {
        let (endian, machine) = (self.endian, self.machine);
        let entries = pod::slice_from_bytes::<Entry>(bytes, self.count);
        let entries = entries.map_or(&[][..], |(entries, _)| entries).iter().enumerate();
        let loaded = entries.filter(|(_, entry)| entry.p_type(endian) == elf::PT_LOAD);
        let segment = |(index, entry): (usize, &Entry)| Segment {
            index,
            flags_at: index * size_of::<Entry>() + flags,
            flags: entry.p_flags(endian),
            start: entry.p_vaddr(endian).into(),
            file_size: entry.p_filesz(endian).into(),
            memory_size: entry.p_memsz(endian).into(),
            machine,
        };
        loaded.map(segment).collect()
    }

    /// Marks or unmarks a segment; `bytes` is the whole table.
    pub fn mark(&self, bytes: &mut [u8], segment: &Segment, marked: bool) {
        let flags = segment.flags.0;
        let flags = if marked { flags | MARK } else { flags & !MARK };
        bytes[segment.flags_at..segment.flags_at + 4]
            .copy_from_slice(&self.endian.write_u32(flags));
    }
}

impl Segment {
    /// Returns whether this is code: readable and executable, not writable, and entirely in the file.
    pub fn is_text(&self) -> bool {
        self.access() == elf::PF_R.0 | elf::PF_X.0 && self.memory_size == self.file_size
    }

    /// Returns whether this is data or bss: readable and writable.
    pub fn is_data(&self) -> bool {
        // On 32-bit PowerPC data segments are executable (the old procedure linkage table).
        let executable = if self.machine == elf::EM_PPC { elf::PF_X.0 } else { 0 };
        self.access() == elf::PF_R.0 | elf::PF_W.0 | executable
    }

    /// Returns whether this is bss alone: no part is in the file.
    pub fn is_bss(&self) -> bool {
        self.is_data() && self.file_size == 0
    }

    /// Returns whether the segment is marked.
    pub fn is_marked(&self) -> bool {
        self.flags.0 & MARK != 0
    }

    fn access(&self) -> u32 {
        self.flags.0 & (elf::PF_R.0 | elf::PF_W.0 | elf::PF_X.0)
    }
}

/// Formats a segment as hugeedit prints it.
impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.is_text(), self.is_data()) {
            (true, _) => "TEXT",
            (_, true) => "DATA",
            _ => "",
        };
        let pages = if self.is_marked() { "HUGE" } else { "BASE" };
        let (start, end) = (self.start, self.start.wrapping_add(self.memory_size));
        write!(f, "Segment {} {start:#x} - {end:#x} ({kind}) default is {pages} pages", self.index)
    }
}

impl fmt::Display for NotAProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Script => f.write_str("it is a script: give the file of its interpreter"),
            Self::NotElf => {
                f.write_str("it is not an ELF file: give a program or a shared library")
            }
            Self::Short => f.write_str("it ends within its ELF header"),
            Self::Class(class) => write!(f, "its ELF class is {class}, neither 32 bits nor 64"),
            Self::ByteOrder(order) => {
                write!(f, "its byte order is {order}, neither little nor big endian")
            }
            Self::Kind(kind) => {
                write!(f, "it is neither a program nor a shared library (ELF type {kind})")
            }
            Self::EntrySize { found, right } => {
                write!(f, "its program headers are {found} bytes long instead of {right}")
            }
            Self::NoSegments => f.write_str("it has no program headers"),
            Self::TooManySegments => f.write_str("it has more than 65534 program headers"),
            Self::OverHeader => f.write_str("its program headers would lie within its ELF header"),
            Self::BeyondEnd { end, length } => write!(
                f,
                "its program headers would end at byte {end}, and it has {length}: it is cut short"
            ),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Creates a file with one code and one data segment, and its program headers at `offset`.
    pub fn program(is_64: bool, is_little: bool, offset: usize) -> Vec<u8> {
        let (entry, header) = if is_64 { (56, 64) } else { (32, 52) };
        let mut bytes = vec![0; offset.max(header) + 3 * entry + 100];
        bytes[..6].copy_from_slice(&[
            0x7f,
            b'E',
            b'L',
            b'F',
            1 + u8::from(is_64),
            2 - u8::from(is_little),
        ]);
        let mut put = |at: usize, size: usize, value: u64| {
            let whole = if is_little { value.to_le_bytes() } else { value.to_be_bytes() };
            let field = if is_little { &whole[..size] } else { &whole[8 - size..] };
            bytes[at..at + size].copy_from_slice(field);
        };
        let word = if is_64 { 8 } else { 4 };
        put(16, 2, elf::ET_EXEC.0.into());
        put(18, 2, 62);
        put(if is_64 { 32 } else { 28 }, word, offset as u64);
        put(if is_64 { 54 } else { 42 }, 2, entry as u64);
        put(if is_64 { 56 } else { 44 }, 2, 3);
        let (flags_at, start_at, file_at, memory_at) =
            if is_64 { (4, 16, 32, 40) } else { (24, 8, 16, 20) };
        for (index, (kind, flags, start, file, memory)) in [
            (6, 4, 0x40, 0x38, 0x38),
            (1, 5, 0x40_0000, 0x1234, 0x1234),
            (1, 6, 0x60_0000, 0x10, 0x9000),
        ]
        .into_iter()
        .enumerate()
        {
            let at = offset + index * entry;
            put(at, 4, kind);
            put(at + flags_at, 4, flags);
            put(at + start_at, word, start);
            put(at + file_at, word, file);
            put(at + memory_at, word, memory);
        }
        bytes
    }

    fn table(file: &[u8]) -> Result<Table, NotAProgram> {
        Table::read(&file[..file.len().min(HEADER)], file.len() as u64)
    }

    #[test]
    fn reads_every_format_wherever_its_headers_are() {
        for (is_64, is_little, offset) in
            [(true, true, 64), (true, false, 8192), (false, true, 52), (false, false, 12345)]
        {
            let file = program(is_64, is_little, offset);
            let table = table(&file).unwrap();
            let bytes = &file[offset..offset + table.bytes()];
            let lines: Vec<String> = table.segments(bytes).iter().map(Segment::to_string).collect();
            assert_eq!(
                lines,
                [
                    "Segment 1 0x400000 - 0x401234 (TEXT) default is BASE pages",
                    "Segment 2 0x600000 - 0x609000 (DATA) default is BASE pages",
                ]
            );
            let mut marked = bytes.to_vec();
            for segment in table.segments(bytes) {
                table.mark(&mut marked, &segment, true);
            }
            assert!(table.segments(&marked).iter().all(Segment::is_marked));
            assert_eq!(marked.iter().zip(bytes).filter(|(a, b)| a != b).count(), 2);
            for segment in table.segments(&marked) {
                table.mark(&mut marked, &segment, false);
            }
            assert_eq!(marked, bytes);
        }
    }

    #[test]
    fn refuses_what_is_none() {
        let good = program(true, true, 64);
        let with = |changes: &[(usize, u8)]| {
            let mut file = good.clone();
            changes.iter().for_each(|(at, byte)| file[*at] = *byte);
            table(&file).unwrap_err().to_string()
        };
        for (changes, part) in [
            (&[(0, b'#'), (1, b'!')][..], "script"),
            (&[(0, 0)], "not an ELF file"),
            (&[(4, 3)], "class is 3"),
            (&[(5, 0)], "byte order is 0"),
            (&[(16, 1)], "ELF type 1"),
            (&[(54, 57)], "57 bytes long instead of 56"),
            (&[(56, 0)], "no program headers"),
            (&[(56, 0xff), (57, 0xff)], "more than 65534"),
            (&[(32, 8)], "within its ELF header"),
            (&[(33, 8)], "cut short"),
            (&[(39, 0xff), (38, 0xff), (37, 0xff), (36, 0xff)], "cut short"),
            (&[(57, 0xfe)], "cut short"),
        ] {
            assert!(with(changes).contains(part), "{part}: {}", with(changes));
        }
        for length in 0..64 {
            assert!(table(&good[..length]).is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..4000),
            as_elf: bool, class in 0u8..4, order in 0u8..4) {
            if as_elf && bytes.len() > 6 {
                bytes[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, order]);
            }
            if let Ok(table) = table(&bytes) {
                let at = table.offset as usize;
                let found = table.segments(&bytes[at..at + table.bytes()]);
                prop_assert!(found.iter().all(|one| !one.to_string().is_empty()));
            }
        }
    }
}
