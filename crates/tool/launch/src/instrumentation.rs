//! Recognizes programs with their own allocator and loader order: sanitizers and valgrind.
//!
//! A sanitizer's runtime and valgrind must see malloc and mmap first. If a library is preloaded, programs refuse to
//! start (AddressSanitizer), crash in their constructors (ThreadSanitizer), or report false errors (valgrind's "Invalid
//! free"). So such a program is recognized by its file and left alone.
//! See docs/decisions/launch.md#1.

use std::path::Path;

use object::read::elf::{Dyn, ElfFile, FileHeader};
use object::read::{Object, ObjectSymbol, ReadRef};
use serde::{Deserialize, Serialize};

/// The tool that instruments a program, at build time or at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the variants are the tools' names")]
pub enum Instrumentation {
    AddressSanitizer,
    HwAddressSanitizer,
    LeakSanitizer,
    MemorySanitizer,
    ThreadSanitizer,
    /// A statically linked sanitizer with stripped symbols.
    UnknownSanitizer,
    Valgrind,
}

/// The sanitizer, its runtime's name in file names of libraries (`libasan.so.8` of GCC, `libclang_rt.asan-x86_64.so` of
/// clang), and the symbol that instrumented code calls first.
const SANITIZERS: [(Instrumentation, &str, &str); 5] = [
    (Instrumentation::HwAddressSanitizer, "hwasan", "__hwasan_init"),
    (Instrumentation::AddressSanitizer, "asan", "__asan_init"),
    (Instrumentation::ThreadSanitizer, "tsan", "__tsan_init"),
    (Instrumentation::MemorySanitizer, "msan", "__msan_init"),
    // LeakSanitizer must be last: AddressSanitizer's runtime has this symbol too.
    (Instrumentation::LeakSanitizer, "lsan", "__lsan_init"),
];

impl Instrumentation {
    /// Returns the tool's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AddressSanitizer => "AddressSanitizer",
            Self::HwAddressSanitizer => "HWAddressSanitizer",
            Self::LeakSanitizer => "LeakSanitizer",
            Self::MemorySanitizer => "MemorySanitizer",
            Self::ThreadSanitizer => "ThreadSanitizer",
            Self::UnknownSanitizer => "a sanitizer",
            Self::Valgrind => "valgrind",
        }
    }

    /// Describes an instrumented program.
    pub fn what(self) -> String {
        let it = if self == Self::Valgrind { "" } else { "built with " };
        format!("{it}{}, which brings its own allocator", self.name())
    }

    /// Explains in a clause why superpage adds nothing to the program.
    pub fn why(self) -> String {
        format!("it is {}", self.what())
    }

    /// Detects valgrind by the program's file name, because valgrind is a script on some systems.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        (name == "valgrind" || name == "valgrind.bin").then_some(Self::Valgrind)
    }

    /// Detects a sanitizer by a library's name, as in LD_PRELOAD or a program's DT_NEEDED.
    pub(crate) fn of_library(library: &str) -> Option<Self> {
        let file = library.rsplit('/').next().unwrap_or(library);
        SANITIZERS.iter().find_map(|(it, name, _)| {
            let is_gcc = file.strip_prefix("lib").and_then(|rest| rest.strip_prefix(name));
            let is_clang =
                file.strip_prefix("libclang_rt.").and_then(|rest| rest.strip_prefix(name));
            let ends = |rest: &str| rest.starts_with(['.', '-', '_']);
            is_gcc.or(is_clang).is_some_and(ends).then_some(*it)
        })
    }

    /// Detects a sanitizer by the libraries and symbols of an ELF file. Reads the full symbol table, which may be long,
    /// only if the file exports a malloc, as a statically linked runtime does.
    pub(crate) fn of_elf<'data, Header, R>(file: &ElfFile<'data, Header, R>) -> Option<Self>
    where
        Header: FileHeader<Endian = object::Endianness>,
        R: ReadRef<'data>,
    {
        if let Some(found) = needed(file).iter().find_map(|name| Self::of_library(name)) {
            return Some(found);
        }
        if let Some(found) = Self::of_symbols(file.dynamic_symbols()) {
            return Some(found);
        }
        let has = |test: &dyn Fn(&str, bool) -> bool| {
            let mut symbols = file.dynamic_symbols();
            symbols.any(|it| it.name().is_ok_and(|name| test(name, it.is_definition())))
        };
        let has_runtime = has(&|name, _| name.starts_with("__sanitizer_symbolize"))
            && has(&|name, is_defined| name == "malloc" && is_defined);
        let found = || Self::of_symbols(file.symbols()).unwrap_or(Self::UnknownSanitizer);
        has_runtime.then(found)
    }

    fn of_symbols<'data>(symbols: impl Iterator<Item = impl ObjectSymbol<'data>>) -> Option<Self> {
        let rank = |name: &str| SANITIZERS.iter().position(|(_, _, init)| *init == name);
        let ranks = symbols.filter_map(|symbol| rank(symbol.name().ok()?));
        ranks.min().map(|at| SANITIZERS[at].0)
    }
}

/// Returns the names in DT_NEEDED; empty for a damaged or static file.
pub(crate) fn needed<'data, Header, R>(file: &ElfFile<'data, Header, R>) -> Vec<String>
where
    Header: FileHeader<Endian = object::Endianness>,
    R: ReadRef<'data>,
{
    let (endian, data) = (file.endian(), file.data());
    let table = file.elf_section_table();
    let Ok(Some((entries, strings))) = table.dynamic(endian, data) else { return Vec::new() };
    let Ok(strings) = table.strings(endian, data, strings) else { return Vec::new() };
    let needed = entries.iter().filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED);
    let names = needed.filter_map(|entry| entry.string(endian, strings).ok());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_told_by_their_libraries_names() {
        use Instrumentation::*;
        for (library, found) in [
            ("libasan.so.8", Some(AddressSanitizer)),
            ("/usr/lib/gcc/x86_64-linux-gnu/12/libtsan.so", Some(ThreadSanitizer)),
            ("libclang_rt.asan-x86_64.so", Some(AddressSanitizer)),
            ("libclang_rt.hwasan-aarch64.so", Some(HwAddressSanitizer)),
            ("libhwasan.so.0", Some(HwAddressSanitizer)),
            ("liblsan.so.0", Some(LeakSanitizer)),
            // UndefinedBehaviorSanitizer needs no allocator.
            ("libubsan.so.1", None),
            ("libasanitary.so", None),
            ("libc.so.6", None),
            ("", None),
        ] {
            assert_eq!(Instrumentation::of_library(library), found, "{library}");
        }
        assert_eq!(Instrumentation::of_path(Path::new("/usr/bin/valgrind")), Some(Valgrind));
        assert_eq!(Instrumentation::of_path(Path::new("/usr/bin/valgrind-di-server")), None);
    }
}
