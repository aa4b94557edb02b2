//! Facts about a program that only `hugectl` needs: whether it is linked with libhugetlbfs, which then provides the
//! superpages, and hugeedit's marks.

use std::fs::File;
use std::path::Path;

use launch::Kind;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};

use crate::legacy::hugeedit;

/// The facts about a program that decide the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Path of the program, as text.
    pub name: String,
    /// Why preload and environment may not affect the program.
    pub unreached: Option<String>,
    /// Whether the program is linked with libhugetlbfs.
    pub has_libhugetlbfs: bool,
    /// Whether hugeedit marked the program's text.
    pub marked_text: bool,
    /// Whether hugeedit marked the program's data.
    pub marked_data: bool,
}

impl Target {
    /// Reads a program's file. An unreadable or unknown file has no marks and no libraries.
    pub fn from_program(program: &launch::Program) -> Self {
        let path = &program.path;
        let (marked_text, marked_data) = match program.kind {
            Kind::Script(_) | Kind::Unknown => (false, false),
            _ => hugeedit::marks(path),
        };
        Self {
            name: path.display().to_string(),
            unreached: program.kind.unreached(),
            has_libhugetlbfs: libraries(path)
                .iter()
                .any(|name| name.starts_with("libhugetlbfs.so")),
            marked_text,
            marked_data,
        }
    }
}

fn libraries(path: &Path) -> Vec<String> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let cache = ReadCache::new(file);
    let found = needed::<elf::FileHeader64<object::Endianness>>(&cache);
    found.or_else(|| needed::<elf::FileHeader32<object::Endianness>>(&cache)).unwrap_or_default()
}

fn needed<Header: FileHeader<Endian = object::Endianness>>(
    cache: &ReadCache<File>,
) -> Option<Vec<String>> {
    let header = Header::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, cache).ok()?;
    let entries = segments.iter().find_map(|one| one.dynamic(endian, cache).ok().flatten())?;
    let value = |tag| entries.iter().find(|one| one.tag(endian) == tag);
    let strings_at: u64 = value(elf::DT_STRTAB)?.d_val(endian).into();
    // DT_STRTAB holds a virtual address; find its file offset from the segment that contains it.
    let strings = segments.iter().find_map(|one| {
        let (start, size) = (one.p_vaddr(endian).into(), one.p_filesz(endian).into());
        let within = one.p_type(endian) == elf::PT_LOAD && strings_at >= start;
        (within && strings_at - start < size).then_some((one, (strings_at - start) as usize))
    });
    let (segment, skip) = strings?;
    let strings = segment.data(endian, cache).ok()?.get(skip..)?;
    let names = entries.iter().filter(|one| one.tag(endian) == elf::DT_NEEDED);
    let names = names.filter_map(|one| {
        let start = usize::try_from(Into::<u64>::into(one.d_val(endian))).ok()?;
        let name = strings.get(start..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    });
    Some(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_libraries() {
        let own = std::env::current_exe().unwrap();
        assert!(libraries(&own).iter().any(|name| name.starts_with("libc.so")));
    }

    #[test]
    fn damaged_files_have_none_and_panic_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read("/bin/sh").unwrap();
        let path = dir.path().join("cut");
        for length in [0, 3, 64, 100, 700, 5000, whole.len() / 2] {
            std::fs::write(&path, &whole[..length.min(whole.len())]).unwrap();
            let found = libraries(&path);
            // Up to 64 bytes hold only the ELF header, which names no libraries. Longer truncated files may give
            // arbitrary names.
            assert!(length > 64 || found.is_empty(), "{length}: {found:?}");
        }
        assert!(libraries(Path::new("/no/such")).is_empty());
    }
}
