//! libhugetlbfs.so.0 as programs see it: its names and versions, and C programs that are linked with it, linked with
//! libsuperpage.so, or started with one of them preloaded.
//!
//! Pure tier (the file), kernel tier (programs), privileged tier (a pool of four superpages).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, SymbolIndex};
use testkit::PoolsAsFound;

mod archive;
mod privutils;
mod text_sharing;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("the repository")
}

/// Returns every defined dynamic symbol with its version, which is empty if there is none.
fn exported(library: &str) -> BTreeMap<String, String> {
    let bytes = std::fs::read(library).expect("build.rs made it");
    let data = bytes.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).expect("an ELF file");
    let endian = header.endian().expect("known");
    let sections = header.sections(endian, data).expect("sections");
    let symbols = sections.symbols(endian, data, object::elf::SHT_DYNSYM).expect("symbols");
    let versions = sections.versions(endian, data).expect("readable").expect("there are versions");
    let mut exported = BTreeMap::new();
    for (index, symbol) in symbols.iter().enumerate() {
        let is_defined = !symbol.is_undefined(endian) && symbol.st_type() == object::elf::STT_FUNC;
        if !is_defined {
            continue;
        }
        let name = symbol.name(endian, symbols.strings()).expect("a name");
        let version = versions.version_index(endian, SymbolIndex(index));
        let version =
            versions.version(version.into()).expect("known").map_or(&b""[..], |it| it.name());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        exported.insert(text(name), text(version));
    }
    exported
}

#[test]
fn every_symbol_has_the_version_that_programs_ask_for() {
    let expected = [
        ("VERS_1.0", "gethugepagesize"),
        ("VERS_1.0", "hugetlbfs_test_path"),
        ("VERS_1.0", "hugetlbfs_find_path"),
        ("VERS_1.0", "hugetlbfs_unlinked_fd"),
        ("HTLBFS_2.0", "get_huge_pages"),
        ("HTLBFS_2.0", "free_huge_pages"),
        ("HTLBFS_2.1", "get_hugepage_region"),
        ("HTLBFS_2.1", "free_hugepage_region"),
        ("HTLBFS_2.1", "gethugepagesizes"),
        ("HTLBFS_2.1", "getpagesizes"),
        ("HTLBFS_2.1", "hugetlbfs_find_path_for_size"),
        ("HTLBFS_2.1", "hugetlbfs_unlinked_fd_for_size"),
        ("HTLBFS_2.1", "__tp_kernel_default_hugepage_size_reset"),
        ("", "shmget"),
    ];
    let expected: BTreeMap<String, String> =
        expected.map(|(version, name)| (name.to_string(), version.to_string())).into();
    assert_eq!(exported(compat::LIBRARY), expected);
}

/// Returns the path of a library that was built as a dependency of this test.
fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("our own path");
    let deps = exe.parent().expect("a directory");
    let places = [deps.join(name), deps.join("..").join(name)];
    places.into_iter().find(|path| path.is_file()).expect("built as a dependency")
}

/// The libraries side by side, as in an installation, and a directory for programs.
struct Installed {
    dir: tempfile::TempDir,
}

impl Installed {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::copy(built("libsuperpage.so"), dir.path().join("libsuperpage.so.0"))
            .expect("copied");
        std::os::unix::fs::symlink("libsuperpage.so.0", dir.path().join("libsuperpage.so"))
            .expect("linked");
        let [file, link] = compat::NAMES;
        std::fs::copy(compat::LIBRARY, dir.path().join(file)).expect("copied");
        std::os::unix::fs::symlink(file, dir.path().join(link)).expect("linked");
        std::fs::copy(compat::PRIVUTILS, dir.path().join("libhugetlbfs_privutils.so"))
            .expect("copied");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Compiles a C program with the compiler that links Rust programs.
    fn program(&self, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let file = self.path(&format!("{name}.c"));
        std::fs::write(&file, source).expect("written");
        let program = self.path(name);
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .arg(&program)
            .arg(&file)
            .arg("-I")
            .arg(repository().join("include"))
            .arg("-I")
            .arg(repository().join("crates/preload/compat/include"))
            .arg("-L")
            .arg(self.dir.path())
            .args(arguments)
            .output()
            .expect("cc starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    fn run(&self, program: &Path, environment: &[(&str, &str)]) -> Output {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("HUGETLB_")) {
            command.env_remove(name);
        }
        command.env("LD_LIBRARY_PATH", self.dir.path()).envs(environment.iter().copied());
        command.output().expect("it starts")
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn assert_success(output: &Output) {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
}

/// Prints the object in which a name is found, and the result of a request for pool pages.
const WHO: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/shm.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        Dl_info info = {0};
        void *found = dlsym(RTLD_DEFAULT, argv[i]);
        dladdr(found, &info);
        printf("%s %s\n", argv[i], info.dli_fname ? info.dli_fname : "nowhere");
    }
    return 0;
}
"#;

#[test]
fn preloading_the_old_name_puts_the_runtime_before_libc() {
    let installed = Installed::new();
    let who = installed.program("who", WHO, &[]);
    for preload in compat::NAMES {
        let output = Command::new(&who)
            .args(["mmap", "get_huge_pages", "superpage_map"])
            .env("LD_LIBRARY_PATH", installed.dir.path())
            .env("LD_PRELOAD", preload)
            .output()
            .expect("it starts");
        assert_success(&output);
        let lines = text(&output.stdout);
        let library = |name: &str| {
            let line = lines.lines().find(|line| line.starts_with(name)).expect("a line");
            line.rsplit('/').next().expect("a file name").to_string()
        };
        let own = library("mmap ");
        assert!(own.starts_with("libsuperpage.so"), "libc's mmap stays in front: {lines}");
        assert!(library("get_huge_pages").starts_with("libhugetlbfs.so"), "{lines}");
        assert_eq!(library("superpage_map"), own);
    }
}

/// Calls every old function once; expects four superpages.
const OLD: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef OWN
#define SUPERPAGE_HUGETLBFS_NAMES
#include "superpage.h"
#else
#include "hugetlbfs.h"
#endif
#define CHECK(what) do { if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
int main(void) {
    long size = gethugepagesize(), sizes[8];
    CHECK(size > 0);
    CHECK(gethugepagesizes(sizes, 8) == gethugepagesizes(NULL, 0));
    CHECK(getpagesizes(NULL, 0) == gethugepagesizes(NULL, 0) + 1);
    CHECK(getpagesizes(sizes, 8) > 1 && sizes[0] == getpagesize());
    CHECK(gethugepagesizes(sizes, -1) == -1 && errno == EINVAL);
    CHECK(hugetlbfs_test_path("/") == 0);
    CHECK(hugetlbfs_find_path() == hugetlbfs_find_path_for_size(size));
    int fd = hugetlbfs_unlinked_fd();
    CHECK(fd >= 0 && close(fd) == 0);
    fd = hugetlbfs_unlinked_fd_for_size(size);
    CHECK(fd >= 0 && close(fd) == 0);
    char *pages = get_huge_pages(4 * size, GHP_DEFAULT);
    CHECK(pages != NULL);
    memset(pages, 1, 4 * size);
    CHECK(get_huge_pages(size, GHP_DEFAULT) == NULL);
    CHECK(get_hugepage_region(size, GHR_STRICT) == NULL);
    char *region = get_hugepage_region(size + 5, GHR_DEFAULT);
    CHECK(region != NULL);
    memset(region, 1, size + 5);
    free_hugepage_region(region);
    free_huge_pages(pages);
    region = get_hugepage_region(3 * size + 5, GHR_STRICT | GHR_COLOR);
    CHECK(region != NULL);
    memset(region, 1, 3 * size + 5);
    free_hugepage_region(region);
    free_hugepage_region(&size);
    return 0;
}
"#;

/// Runs `work` with four free superpages, and restores the pool afterwards.
fn with_four_superpages(work: impl FnOnce()) {
    testkit::require!(testkit::is_root(), "pools are root's to change");
    testkit::require!(Path::new(POOL).exists(), "no 2 MiB pages on this machine");
    testkit::lock_machine!();
    let found = PoolsAsFound::note();
    if testkit::leave_free(4) {
        work();
        // Other processes may have freed superpages meanwhile.
        assert!(available() >= 4, "superpages leaked: {} of 4 are free", available());
    } else {
        testkit::skipped!("this machine has no four free superpages");
    }
    drop(found);
}

/// Returns the number of pages of the pool that can be reserved.
fn available() -> u64 {
    number("free_hugepages") - number("resv_hugepages")
}

fn number(file: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{POOL}/{file}")).expect("a counter");
    text.trim().parse().expect("a number")
}

mod exclusive {
    use super::*;

    #[test]
    fn a_program_for_libhugetlbfs_runs_with_either_library() {
        let installed = Installed::new();
        let old = installed.program("old", OLD, &["-lhugetlbfs"]);
        let own = installed.program("own", OLD, &["-DOWN", "-lsuperpage"]);
        with_four_superpages(|| {
            for (program, name) in [(&old, "libhugetlbfs"), (&own, "superpage")] {
                let output = installed.run(program, &[]);
                assert_success(&output);
                let said = text(&output.stderr);
                let refused = format!("{name}: WARNING: get_huge_pages: nothing for 2097152 bytes");
                assert!(said.contains(&refused), "{said}");
                assert!(said.contains(&format!("{name}: ERROR: free_hugepage_region:")), "{said}");
                let quiet = installed.run(program, &[("HUGETLB_VERBOSE", "0")]);
                assert_success(&quiet);
                assert_eq!(text(&quiet.stderr), "");
            }
        });
    }

    #[test]
    fn segments_come_from_the_pool_when_the_environment_says_so() {
        let installed = Installed::new();
        let plain = installed.program("segment", SEGMENT, &[]);
        let linked = installed.program("linked", SEGMENT, &["-Wl,--no-as-needed", "-lhugetlbfs"]);
        let shm = ("HUGETLB_SHM", "yes");
        with_four_superpages(|| {
            for preload in ["libhugetlbfs.so", "libhugetlbfs.so.0", "libsuperpage.so"] {
                let output = installed.run(&plain, &[("LD_PRELOAD", preload), shm]);
                assert_success(&output);
                assert_eq!(text(&output.stdout), "4096\n", "{preload}: two superpages");
                let output = installed.run(&plain, &[("LD_PRELOAD", preload)]);
                assert_eq!(text(&output.stdout), "0\n", "{preload}: nobody asked");
            }
            assert_eq!(text(&installed.run(&linked, &[shm]).stdout), "4096\n");
            let others = ("HUGETLB_RESTRICT_EXE", "another:segments");
            assert_eq!(text(&installed.run(&linked, &[shm, others]).stdout), "0\n");
            let this = ("HUGETLB_RESTRICT_EXE", "another:linked");
            assert_eq!(text(&installed.run(&linked, &[shm, this]).stdout), "4096\n");

            // With too few pages there are base pages, and a message.
            assert!(testkit::leave_free(0));
            let output = installed.run(&linked, &[shm]);
            assert_success(&output);
            assert_eq!(text(&output.stdout), "0\n");
            let said = text(&output.stderr);
            assert!(
                said.contains("libhugetlbfs: WARNING: HUGETLB_SHM: small pages instead"),
                "{said}"
            );
            assert!(testkit::leave_free(4));
        });
    }

    /// A request that is not met gives one warning, as in libhugetlbfs.
    #[test]
    fn what_falls_back_is_said() {
        let installed = Installed::new();
        let program = installed.program("region", REGION, &["-lhugetlbfs"]);
        let preload = ("LD_PRELOAD", "libhugetlbfs.so");
        let is_1g_there = Path::new("/sys/kernel/mm/hugepages/hugepages-1048576kB").exists();
        with_four_superpages(|| {
            let said = |environment: &[(&str, &str)], free: u64| {
                assert!(testkit::leave_free(free));
                let output = installed.run(&program, environment);
                assert_success(&output);
                (text(&output.stdout), text(&output.stderr))
            };
            let memory = "2097152 memory\n".to_string();
            assert_eq!(said(&[], 4), (memory.clone(), String::new()));
            for (environment, free, warning) in [
                (
                    &[][..],
                    0,
                    "libhugetlbfs: WARNING: get_hugepage_region: base pages for 3145728 bytes",
                ),
                (&[("HUGETLB_MORECORE", "yes"), preload], 4, "pages of 2 MiB wanted, "),
                (
                    &[("HUGETLB_MORECORE", "yes"), ("HUGETLB_DEFAULT_PAGE_SIZE", "8T"), preload],
                    4,
                    "HUGETLB_DEFAULT_PAGE_SIZE=8T: no such superpage size here; malloc",
                ),
                (
                    &[("HUGETLB_MORECORE", "banana"), preload],
                    4,
                    "HUGETLB_MORECORE=banana: invalid page size",
                ),
                (
                    &[("HUGETLB_PATH", "/")],
                    4,
                    "WARNING: HUGETLB_PATH does not name a hugetlbfs mount: /",
                ),
                (
                    &[("HUGETLB_DEFAULT_PAGE_SIZE", "8T")],
                    4,
                    "HUGETLB_DEFAULT_PAGE_SIZE=8T: no such",
                ),
                (&[("HUGETLB_DEFAULT_PAGE_SIZE", "1G")], 4, "HUGETLB_DEFAULT_PAGE_SIZE=1G: "),
            ] {
                let is_1g = environment.contains(&("HUGETLB_DEFAULT_PAGE_SIZE", "1G"));
                let has_any =
                    std::fs::read_to_string("/proc/mounts").is_ok_and(|it| it.contains("1024M"));
                if is_1g && (!is_1g_there || has_any) {
                    testkit::skipped!("no pool of 1 GiB pages, or a mount of them");
                    continue;
                }
                // A region of the other size would need a mount of that size.
                let (out, err) = said(environment, free);
                assert_eq!(out, memory, "{environment:?}: {err}");
                assert_eq!(err.matches(warning).count(), 1, "{environment:?}: {err}");
                let quiet = [environment, &[("HUGETLB_VERBOSE", "1")]].concat();
                assert_eq!(said(&quiet, free), (memory.clone(), String::new()));
            }
            assert!(testkit::leave_free(4));
        });
    }
}

/// Maps a segment of a little over a superpage; prints how much of it is on the pool.
const SEGMENT: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/shm.h>
int main(void) {
    int id = shmget(IPC_PRIVATE, (2 << 20) + 1, IPC_CREAT | 0600);
    char *start = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
    if (start == (void *)-1) { perror("segment"); return 1; }
    shmctl(id, IPC_RMID, NULL);
    memset(start, 1, (2 << 20) + 1);
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    long kib = 0, sum = 0;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "Shared_Hugetlb: %ld", &kib) == 1 || sscanf(line, "Private_Hugetlb: %ld", &kib) == 1)
            sum += kib;
    printf("%ld\n", sum);
    return 0;
}
"#;

/// Requests a region of the default size that may fall back.
const REGION: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include "hugetlbfs.h"
int main(void) {
    void *region = get_hugepage_region(3 << 20, GHR_DEFAULT);
    for (int i = 0; i < 3; i++)
        hugetlbfs_find_path_for_size(4096 << i);
    printf("%ld %s\n", gethugepagesize(), region ? "memory" : "nothing");
    char *more = malloc(64 << 20);
    for (long i = 0; i < 64 << 20; i += 4096)
        more[i] = 1;
    return more[4096] - 1;
}
"#;

#[test]
fn the_headers_are_for_c_plus_plus_too() {
    let has_compiler = Command::new("c++").arg("--version").output().is_ok();
    testkit::require!(has_compiler, "no C++ compiler");
    for header in [
        "include/superpage.h",
        "crates/preload/compat/include/hugetlbfs.h",
        "crates/preload/compat/include/libhugetlbfs_privutils.h",
    ] {
        let output = Command::new("c++")
            .args(["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"])
            .args(["-x", "c++", "-include"])
            .arg(repository().join(header))
            .arg("/dev/null")
            .output()
            .expect("it starts");
        assert_success(&output);
    }
}
