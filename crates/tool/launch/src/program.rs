//! Finds the program to launch, and how a preloaded library can reach it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf;
use object::read::ReadCache;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol};
use serde::{Deserialize, Serialize, Serializer};

use crate::{Instrumentation, LaunchError, instrumentation};

/// A program file that exists and may be executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path of the file.
    #[serde(serialize_with = "as_shown")]
    pub path: PathBuf,
    /// Kind of the file, which decides whether preloaded libraries and tunables reach the program.
    pub kind: Kind,
    /// What the program allocates with in place of glibc's malloc, and libsuperpage.so sees the mappings of: a library
    /// that it is linked with, or Go's runtime over libc's mmap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// What manages the program's memory, if it is in the program's own file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
}

/// What manages a program's memory from within its own file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// Go's runtime without cgo: maps memory by its own system calls, which no library sees.
    Go,
    /// glibc, linked statically: malloc reads its tunables, which need no loader.
    StaticGlibc,
}

/// The tunable by which malloc asks for superpages.
const TUNABLE: &[u8] = b"glibc.malloc.hugetlb";

fn as_shown<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// File name prefixes of libraries that replace malloc.
const ALLOCATORS: [&str; 5] =
    ["libjemalloc", "libtcmalloc", "libmimalloc", "libsnmalloc", "librpmalloc"];

/// How a preloaded library and glibc's tunables reach a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Dynamic, loaded by glibc's loader, of our own word size: preloaded libraries and tunables reach it.
    Glibc,
    /// Dynamic, with another loader (musl, or glibc of another word size).
    OtherLoader(String),
    /// Static: there is no loader.
    Static,
    /// Set-user-id or set-group-id: the loader ignores preloads from outside.
    Privileged,
    /// Instrumented by a sanitizer or valgrind: superpage adds nothing to it.
    Instrumented(Instrumentation),
    /// A script. Its interpreter inherits the environment, so the interpreter's kind decides.
    Script(String),
    /// Neither ELF nor `#!`, or unreadable.
    Unknown,
}

impl Program {
    /// Finds `name` as `execvp(3)` does: as a path if it has a slash, else along `search`.
    pub fn find(name: impl AsRef<OsStr>, search: &str) -> Result<Self, LaunchError> {
        let name = name.as_ref();
        let candidates: Vec<PathBuf> = if name.as_bytes().contains(&b'/') {
            vec![PathBuf::from(name)]
        } else {
            search.split(':').map(|dir| Path::new(dir).join(name)).collect()
        };
        let mut denied = None;
        for path in candidates.into_iter().filter(|_| !name.is_empty()) {
            match executable(&path) {
                Ok(()) => {
                    let kind = Kind::of(&path);
                    let (allocator, runtime) = memory_managers(&path, &kind).unwrap_or_default();
                    return Ok(Self { path, kind, allocator, runtime });
                }
                Err(None) => {}
                Err(Some(why)) => denied = denied.or(Some((path, why))),
            }
        }
        Err(match denied {
            Some((path, why)) => LaunchError::NotExecutable(path, why),
            None => LaunchError::ProgramNotFound(name.into()),
        })
    }
}

/// Name of Go's runtime as an allocator.
const GO: &str = "Go's runtime";

/// Whether Go's linker wrote the file: it writes these sections, which `strip` leaves.
fn is_go<'data>(file: &impl Object<'data>) -> bool {
    let names = [".go.buildinfo", ".note.go.buildid"];
    names.iter().any(|name| file.section_by_name(name).is_some())
}

/// Whether the loader finds `mmap` for the file. With cgo, which is Go's default where there is a C compiler, Go's
/// runtime maps its heap through it (go/src/runtime/cgo_mmap.go), so that sanitizers see the memory.
fn imports_mmap<'data>(file: &impl Object<'data>) -> bool {
    let is_mmap = |name: &str| matches!(name, "mmap" | "mmap64");
    let mut symbols = file.dynamic_symbols();
    symbols.any(|symbol| symbol.is_undefined() && symbol.name().is_ok_and(is_mmap))
}

/// Finds the allocator and the runtime of a [`Program`]; `None`: the file cannot be read as ELF.
fn memory_managers(path: &Path, kind: &Kind) -> Option<(Option<String>, Option<Runtime>)> {
    let cache = ReadCache::new(File::open(path).ok()?);
    let file = ElfFile::<elf::FileHeader64<object::Endianness>, _>::parse(&cache).ok()?;
    if is_go(&file) {
        return Some(match imports_mmap(&file) {
            true => (Some(GO.to_string()), None),
            false => (None, Some(Runtime::Go)),
        });
    }
    let is_allocator = |name: &String| ALLOCATORS.iter().any(|start| name.starts_with(start));
    let allocator = instrumentation::needed(&file).into_iter().find(is_allocator);
    let is_static_glibc = *kind == Kind::Static && has_tunables(&file);
    Some((allocator, is_static_glibc.then_some(Runtime::StaticGlibc)))
}

/// Whether the file holds glibc's tunables. glibc keeps their names where relocations end (elf/dl-tunables.c: tunable_list).
fn has_tunables<'data>(file: &impl Object<'data>) -> bool {
    let names = [".data.rel.ro", ".rodata", ".data"].iter();
    let mut parts = names.filter_map(|name| file.section_by_name(name)?.data().ok());
    parts.any(|part| part.windows(TUNABLE.len()).any(|words| words == TUNABLE))
}

/// Checks that the file is executable: `Err(None)` if it is missing, `Err(why)` if it is not executable.
fn executable(path: &Path) -> Result<(), Option<String>> {
    let metadata = match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(None),
        Err(error) => return Err(Some(error.to_string())),
        Ok(metadata) => metadata,
    };
    if metadata.is_dir() {
        return Err(Some("it is a directory".to_string()));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(Some("it has no execute permission".to_string()));
    }
    Ok(())
}

impl Kind {
    fn of(path: &Path) -> Self {
        let Ok(mut file) = File::open(path) else { return Self::Unknown };
        let privileged = file.metadata().is_ok_and(|meta| {
            meta.mode() & 0o6000 != 0
                && (meta.uid() != sys::param::effective_user() || meta.mode() & 0o2000 != 0)
        });
        if privileged {
            return Self::Privileged;
        }
        if let Some(tool) = Instrumentation::of_path(path) {
            return Self::Instrumented(tool);
        }
        let mut start = [0; 256];
        let Ok(length) = file.read(&mut start) else { return Self::Unknown };
        let start = &start[..length];
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line);
            return Self::Script(String::from_utf8_lossy(line).trim().to_string());
        }
        let cache = ReadCache::new(file);
        match start.get(..5) {
            Some(b"\x7fELF\x02") => Self::of_elf::<elf::FileHeader64<object::Endianness>>(&cache),
            Some(b"\x7fELF\x01") => Self::of_elf::<elf::FileHeader32<object::Endianness>>(&cache),
            _ => Self::Unknown,
        }
    }

    fn of_elf<Header: FileHeader<Endian = object::Endianness>>(cache: &ReadCache<File>) -> Self {
        let interpreter = || -> Option<Option<String>> {
            let header = Header::parse(cache).ok()?;
            let endian = header.endian().ok()?;
            for segment in header.program_headers(endian, cache).ok()? {
                if let Some(path) = segment.interpreter(endian, cache).ok()? {
                    return Some(Some(String::from_utf8_lossy(path).into_owned()));
                }
            }
            Some(None)
        };
        let file = ElfFile::<Header, _>::parse(cache).ok();
        if let Some(tool) = file.and_then(|file| Instrumentation::of_elf(&file)) {
            return Self::Instrumented(tool);
        }
        match interpreter() {
            None => Self::Unknown,
            Some(None) => Self::Static,
            Some(Some(path)) => {
                let same_word = Header::is_type_64_sized() == cfg!(target_pointer_width = "64");
                // glibc's loader is ld-linux*.so, on a few systems ld64.so; musl's is ld-musl-*.so.
                if same_word && (path.contains("/ld-linux") || path.contains("/ld64.so")) {
                    Self::Glibc
                } else {
                    Self::OtherLoader(path)
                }
            }
        }
    }

    /// Returns why environment variables may not reach the program; `None` if they do.
    pub fn unreached(&self) -> Option<String> {
        match self {
            Self::Glibc | Self::Script(_) => None,
            Self::OtherLoader(path) => Some(format!("its loader is {path}, not this glibc's")),
            Self::Static => Some("it is linked statically".to_string()),
            Self::Instrumented(tool) => Some(tool.why()),
            Self::Privileged => Some("it is set-user-id or set-group-id".to_string()),
            Self::Unknown => Some("its file could not be read as a program".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_along_the_path_and_tells_kinds_apart() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("tool");
        std::fs::write(&script, "#!/bin/sh -e\n").unwrap();
        let search = format!("/no/such:{}:/bin:/usr/bin", dir.path().display());
        let find = |name: &str| Program::find(name, &search);
        assert!(matches!(find("tool"), Err(LaunchError::NotExecutable(..))));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool").unwrap().kind, Kind::Script("/bin/sh -e".to_string()));
        assert!(matches!(find("no-such-tool"), Err(LaunchError::ProgramNotFound(_))));
        assert!(matches!(find(""), Err(LaunchError::ProgramNotFound(_))));
        assert!(matches!(find("/"), Err(LaunchError::NotExecutable(..))));
        assert!(matches!(find("/bin/sh").unwrap().kind, Kind::Glibc | Kind::OtherLoader(_)));
    }

    #[test]
    fn a_static_glibc_is_found_by_its_tunables() {
        let dir = tempfile::tempdir().unwrap();
        let [is_static, dynamic] = ["static", "dynamic"].map(|name| dir.path().join(name));
        let source = "#include <stdlib.h>\nint main(void) { return malloc(1) == 0; }";
        let is_built = testkit::compile(source, &is_static, &["-static"]);
        testkit::require!(is_built, "no static libc");
        assert!(testkit::compile(source, &dynamic, &[]));
        let of = |path: &Path| Program::find(path, "").unwrap().runtime;
        assert_eq!((of(&is_static), of(&dynamic)), (Some(Runtime::StaticGlibc), None));
    }

    #[test]
    fn a_program_linked_with_jemalloc_has_an_allocator_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let with = testkit::linked_with_jemalloc(dir.path());
        let without = dir.path().join("without");
        assert!(testkit::compile("int main(void) { return 0; }", &without, &[]));
        let of = |path: &Path| Program::find(path, "").unwrap().allocator;
        assert_eq!(of(&with).as_deref(), Some("libjemalloc.so.2"));
        assert_eq!(of(&without), None);
    }

    /// Two files as Go's linker writes them: with cgo the runtime imports mmap, without it imports nothing.
    #[test]
    fn go_is_reached_through_the_mmap_that_it_imports() {
        let dir = tempfile::tempdir().unwrap();
        let source = "#include <sys/mman.h>\n__attribute__((section(\".go.buildinfo\"))) int info = 1;\n\
             int main(int n, char **v) {\n#ifdef CGO\n\
             return mmap(0, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;\n#endif\n}";
        let build = |name: &str, with: &[&str]| {
            let out = dir.path().join(name);
            assert!(testkit::compile(source, &out, with));
            let program = Program::find(&out, "").unwrap();
            (program.allocator, program.runtime)
        };
        assert_eq!(build("cgo", &["-DCGO"]), (Some(GO.to_string()), None));
        assert_eq!(build("own", &[]), (None, Some(Runtime::Go)));
    }

    #[test]
    fn set_user_id_is_a_privilege_only_of_somebody_else() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let kind_with = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Kind::of(&path)
        };
        let ordinary = Kind::Script("/bin/sh".to_string());
        assert_eq!(kind_with(0o755), ordinary);
        assert_eq!(kind_with(0o4755), ordinary, "our own file gives us nothing we lack");
        assert_eq!(kind_with(0o2755), Kind::Privileged);
        testkit::require!(testkit::is_root(), "not root: no file can be given away");
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        assert_eq!(kind_with(0o4755), Kind::Privileged);
    }

    #[test]
    fn damaged_program_files_are_unknown_never_a_panic() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read("/bin/sh").unwrap();
        let path = dir.path().join("cut");
        for length in [0, 1, 4, 5, 16, 52, 63, 64, 65, 100, 300, 1000] {
            std::fs::write(&path, &whole[..length]).unwrap();
            let kind = Kind::of(&path);
            assert!(
                matches!(kind, Kind::Unknown | Kind::Glibc | Kind::Static),
                "{length}: {kind:?}"
            );
        }
    }
}
