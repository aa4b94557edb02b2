//! Real programs print the same, and end in the same way, on superpages and without.
//!
//! Each program runs plainly, on THP and under a design in force, and (privileged tier, in `exclusive`) on a hugetlb
//! pool with enough pages and on one with far too few. `SUPERPAGE_TEST_SCALE` enlarges the inputs, for long tests by
//! hand. The programs are in `programs/`: scripts that print digests of all their results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{NO_POOL, POOL, comes_true, has_pool, has_thp, stderr, thp_fallbacks};

const KINDS: [&str; 2] = ["--heap", "--mmap"];
const IN_FORCE: &str = "quicksilver-sync-64";

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// On THP, without named kinds of memory. The library leaves the heap alone, and must not ask another allocator
    /// about memory of the program's own. (redis, linked with jemalloc, used to end by SIGSEGV.)
    Unnamed,
    Thp,
    /// On THP that are prepared before they are touched.
    Ahead,
    /// Under a design that the launcher carries out, without the library.
    InForce,
    /// On a pool with enough pages.
    Enough,
    /// On a pool with too few pages.
    Scarce,
}

impl Way {
    fn pages(self) -> &'static str {
        match self {
            Self::InForce => IN_FORCE,
            Self::Unnamed | Self::Thp | Self::Ahead => "thp",
            _ => "hugetlb",
        }
    }

    fn has_library(self) -> bool {
        !matches!(self, Self::Unnamed | Self::InForce)
    }
}

/// A program as the tests run it.
#[derive(Clone)]
struct Program {
    words: Vec<String>,
    kinds: Vec<&'static str>,
    /// Whether the program runs as an unprivileged user.
    unprivileged: bool,
}

impl Program {
    fn of(words: &[&str]) -> Self {
        let words = words.iter().map(|word| word.to_string()).collect();
        Self { words, kinds: KINDS.to_vec(), unprivileged: false }
    }

    /// Returns a script of `programs/`, run by `interpreter`, with the scale of its input as an argument.
    fn script(interpreter: &str, name: &str) -> Self {
        Self::of(&[interpreter, &source(name), &scale()])
    }

    /// Runs the program in a directory of its own, which is kept until the caller drops the result.
    fn run(&self, way: Way) -> Ended {
        let dir = tempfile::tempdir().expect("a temporary directory");
        open_to_all(dir.path());
        let mut words: Vec<&str> = Vec::new();
        if self.unprivileged && testkit::is_root() {
            words.extend(AS_NOBODY);
        }
        // If the program hangs, `timeout` ends its whole process group.
        words.extend(["timeout", "-k", "5", "300"]);
        if way != Way::Plain {
            let how = if way == Way::InForce { "--design" } else { "--pages" };
            words.extend([env!("CARGO_BIN_EXE_superpage"), "run", how, way.pages()]);
            if way == Way::Ahead {
                words.extend(["--prezero=64M", "--prefault=32M"]);
            }
            if way.has_library() {
                words.extend(&self.kinds);
            }
            words.push("--");
        }
        words.extend(self.words.iter().map(String::as_str));
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(dir.path());
        command.env_remove("LD_PRELOAD").env_remove("GLIBC_TUNABLES");
        if self.kinds.contains(&"--shm") {
            command.env("SUPERPAGE_POOL", "always");
        }
        Ended { output: command.output().expect("it starts"), dir }
    }
}

struct Ended {
    output: Output,
    dir: tempfile::TempDir,
}

impl Ended {
    /// Returns the file `facts` that the script left: facts that differ between the ways.
    fn facts(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("facts")).unwrap_or_default()
    }

    fn fact(&self, name: &str) -> u64 {
        let facts = self.facts();
        let line = facts.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
    }
}

const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir, mode).expect("our own directory");
}

fn source(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    dir.join(name).to_str().expect("UTF-8").to_string()
}

fn scale() -> String {
    std::env::var("SUPERPAGE_TEST_SCALE").unwrap_or_else(|_| "1".to_string())
}

/// Returns the first of `names` that is not on PATH.
fn missing<'a>(names: &[&'a str]) -> Option<&'a str> {
    let dirs: Vec<PathBuf> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    names.iter().copied().find(|name| !dirs.iter().any(|dir| dir.join(name).is_file()))
}

fn pool_pages() -> u64 {
    let text = std::fs::read_to_string(format!("{POOL}/nr_hugepages")).expect("a pool");
    text.trim().parse().expect("a number")
}

/// Checks that a program ended on superpages as it did plainly, and that the run was reported.
fn same(way: Way, program: &Program, plain: &Ended) -> Ended {
    let ended = program.run(way);
    let (ours, theirs) = (&ended.output, &plain.output);
    let errors = stderr(ours);
    println!("{way:?}: {errors}");
    let text = String::from_utf8_lossy;
    assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{way:?}: {errors}");
    assert_eq!(ours.status, theirs.status, "{way:?}: {errors}");
    let is_told = errors.contains("superpage: in ") && errors.contains(" process");
    assert!(is_told || !way.has_library(), "{errors}");
    let name = format!("superpage: {}: ", way.pages());
    assert!(errors.contains(&name), "no report: {errors}");
    ended
}

/// Runs the program without superpages. A program that fails even then proves nothing.
fn plainly(program: &Program) -> Ended {
    let plain = program.run(Way::Plain);
    assert!(!matches!(plain.output.status.code(), None | Some(124..=127)), "{:?}", plain.output);
    plain
}

/// Runs the program in every way without a pool, and compares the results; `look` is called with each run but the plain
/// one.
fn compare(program: &Program, look: impl Fn(Way, &Ended)) {
    // If memory is fragmented the launcher grows the pool for a moment, which would disturb tests that compare pools.
    testkit::lock_machine!(shared);
    let plain = plainly(program);
    let try_on = |way: Way| look(way, &same(way, program, &plain));
    if has_thp() {
        try_on(Way::Unnamed);
        try_on(Way::Thp);
        try_on(Way::Ahead);
    } else {
        testkit::skipped!("THP are off on this machine");
    }
    match sys::pidfd::may_collapse() {
        Ok(()) if program.unprivileged && testkit::is_root() => {}
        Ok(()) => try_on(Way::InForce),
        Err(why) => testkit::skipped!("no design can be in force: {why}"),
    }
}

/// Runs the program on the pool, and compares the results. Pages come from the overcommit limit, so pages that are not
/// used are not taken from memory.
fn compare_on_pool(program: &Program, look: impl Fn(Way, &Ended)) {
    testkit::require!(testkit::is_root(), "not root: no pool can be changed");
    testkit::require!(has_pool(), "{NO_POOL}");
    testkit::lock_machine!();
    let _found = testkit::PoolsAsFound::note();
    // Pages that others reserved would go to the program.
    testkit::require!(pool_pages() == 0, "the pool of 2 MiB pages is not empty");
    let plain = plainly(program);
    for (way, pages) in [(Way::Enough, 2048), (Way::Scarce, 5)] {
        // Whether memory has this many superpages shows only when they are allocated.
        if way == Way::Enough && !testkit::leave_free(64) {
            testkit::skipped!("this machine has no 64 free superpages");
            continue;
        }
        assert!(testkit::leave_free(0), "the pool stays empty");
        let limit = format!("{POOL}/nr_overcommit_hugepages");
        std::fs::write(limit, pages.to_string()).expect("root");
        look(way, &same(way, program, &plain));
        // A helper that outlives its program (Python's resource tracker) ends a moment later.
        let is_empty = comes_true(|| pool_pages() == 0);
        assert!(is_empty, "{way:?}: {} superpages were left behind", pool_pages());
    }
}

/// Defines a test for each program: what the program needs, and how it runs.
macro_rules! tests {
    ($compare:ident; $($(#[$attribute:meta])* $name:ident: $needs:expr => $program:expr;)+) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                let missing = missing(&$needs);
                testkit::require!(missing.is_none(), "no {}", missing.unwrap());
                $compare(&$program, |_, _| {});
            }
        )+
    };
}

macro_rules! programs {
    ($compare:ident) => {
        tests! {
            $compare;
            python: ["python3"] => Program::script("python3", "python.py");
            perl: ["perl"] => Program::script("perl", "perl.pl");
            #[ignore = "nightly: a large program of others"]
            compilers: ["gcc", "g++", "awk"] => Program::script("sh", "compile.sh");
            #[ignore = "nightly: a large program of others"]
            git: ["git", "awk"] => Program::script("sh", "git.sh");
            sort: ["sort", "awk"] => Program::script("sh", "sort.sh");
            #[ignore = "nightly: a large program of others"]
            sqlite: ["sqlite3"] => Program::script("sh", "sqlite.sh");
            bash: ["bash"] => Program::script("bash", "bash.sh");
            archives: ["tar", "xz", "gzip"] => Program::script("sh", "archive.sh");
            #[ignore = "nightly: a large program of others"]
            node: ["node"] => Program::script("node", "node.js");
            #[ignore = "nightly: a large program of others"]
            redis: ["redis-server", "redis-cli", "redis-benchmark"] => Program::script("sh", "redis.sh");
            #[ignore = "nightly: a large program of others"]
            java: ["java", "javac"] => java_program();
        }
    };
}

programs!(compare);

fn java_program() -> Program {
    let mut program = Program::script("sh", "java.sh");
    program.words.push(source(""));
    program
}

/// Builds the program with threads; returns it with its directory. `None`, counted as skipped, without a compiler.
fn threads() -> Option<(tempfile::TempDir, Program)> {
    if let Some(missing) = missing(&["g++"]) {
        testkit::skipped!("no {missing}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("threads").to_str().unwrap().to_string();
    let file = source("threads.cpp");
    let flags = ["-std=c++17", "-O2", "-pthread", &file, "-o", &binary];
    assert!(Command::new("g++").args(flags).status().unwrap().success());
    let program = Program::of(&[&binary, &scale()]);
    Some((dir, program))
}

fn says_what_it_got(way: Way, ended: &Ended) {
    let pages = match way {
        Way::Unnamed | Way::InForce => return,
        Way::Thp | Way::Ahead => "advised",
        _ => "reserved in the pool",
    };
    let said = stderr(&ended.output);
    // The order of the threads decides whose block comes first; the largest block does not fit in the small pool.
    let is_short = way == Way::Scarce && said.contains("the hugetlb pool was short");
    assert!(said.contains(pages) || is_short, "{way:?}: {said}");
}

#[test]
fn threads_in_cpp() {
    let Some((_dir, program)) = threads() else { return };
    compare(&program, says_what_it_got);
}

/// Returns PostgreSQL with shared buffers, run by an unprivileged user as PostgreSQL requires; `None`, counted as
/// skipped, if it cannot run.
fn database() -> Option<Program> {
    let missing = missing(&["initdb", "postgres", "pgbench", "psql", "pg_dump", "setpriv"]);
    if let Some(missing) = missing {
        testkit::skipped!("no {missing}");
        return None;
    }
    if !anybody_can_run_it() {
        testkit::skipped!("this build lies where only root may read");
        return None;
    }
    let mut program = Program::script("sh", "postgres.sh");
    program.unprivileged = true;
    program.kinds.push("--shm");
    Some(program)
}

#[test]
#[ignore = "nightly: a large program of others"]
fn postgres() {
    let Some(program) = database() else { return };
    let before = thp_fallbacks();
    compare(&program, |way, ended| {
        if matches!(way, Way::Thp | Way::Ahead) && shared_memory_heeds_advice() {
            let kib = ended.fact("thp");
            let is_short = kib == 0 && thp_fallbacks() > before;
            testkit::require!(!is_short, "superpages were short");
            assert!(kib > 0, "no superpage under the shared buffers");
        }
    });
}

fn shared_memory_heeds_advice() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]") && !mode.contains("[deny]"))
}

/// Returns whether nobody can run this build; root runs these programs as nobody.
fn anybody_can_run_it() -> bool {
    if !testkit::is_root() {
        return true;
    }
    let mut command = Command::new(AS_NOBODY[0]);
    // A shell executes the command, because setpriv itself has root's capabilities until it executes a program.
    command.args(&AS_NOBODY[1..]).args(["sh", "-c", "exec \"$0\" --version"]);
    command.arg(env!("CARGO_BIN_EXE_superpage"));
    command.output().is_ok_and(|output| output.status.success())
}

const PLAIN_C: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    int main(void) { char *p = malloc(5 << 20); p[4 << 20] = 3; \
    printf(\"%d %d\\n\", p[4 << 20], getuid() != geteuid()); return 23; }\n";

/// Builds a small C program; `None` if that is impossible.
fn build(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let (file, binary) = (dir.join("plain.c"), dir.join(name));
    std::fs::write(&file, PLAIN_C).ok()?;
    let mut command = Command::new("gcc");
    command.arg("-O0").args(flags).arg(&file).arg("-o").arg(&binary);
    command.output().is_ok_and(|output| output.status.success()).then_some(binary)
}

#[test]
fn a_static_program_runs_unharmed_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let binary = build(dir.path(), "static", &["-static"]);
    testkit::require!(binary.is_some(), "no gcc, or no static libc");
    let program = Program::of(&[binary.unwrap().to_str().unwrap()]);
    is_unharmed_and_named(&program, "it is linked statically");
}

#[test]
fn a_setuid_program_runs_unharmed_and_is_named() {
    use std::os::unix::fs::PermissionsExt;
    testkit::require!(testkit::is_root(), "needs root");
    testkit::require!(missing(&["setpriv"]).is_none(), "no setpriv");
    testkit::require!(anybody_can_run_it(), "this build lies where only root may read");
    let dir = tempfile::tempdir().unwrap();
    open_to_all(dir.path());
    let binary = build(dir.path(), "privileged", &[]);
    testkit::require!(binary.is_some(), "no gcc");
    let binary = binary.unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let mut program = Program::of(&[binary.to_str().unwrap()]);
    program.unprivileged = true;
    let output = program.run(Way::Plain).output;
    testkit::require!(output.stdout == b"3 1\n", "the temporary directory is mounted nosuid");
    is_unharmed_and_named(&program, "it is set-user-id");
}

fn is_unharmed_and_named(program: &Program, word: &str) {
    let plain = program.run(Way::Plain).output;
    assert_eq!(plain.status.code(), Some(23));
    for way in [Way::Thp, Way::Ahead, Way::Scarce] {
        let ours = program.run(way).output;
        assert_eq!((&ours.stdout, ours.status), (&plain.stdout, plain.status), "{way:?}");
        let errors = stderr(&ours);
        // The message comes first, before the report.
        let said = errors.split("superpage: thp: ").next().unwrap_or_default();
        let said = said.split("superpage: hugetlb: ").next().unwrap_or_default();
        assert!(said.contains("reach") && said.contains(word), "{way:?}: {errors}");
    }
}

mod exclusive {
    use super::*;

    programs!(compare_on_pool);

    #[test]
    fn threads_in_cpp() {
        let Some((_dir, program)) = threads() else { return };
        compare_on_pool(&program, says_what_it_got);
    }

    #[test]
    #[ignore = "nightly: a large program of others"]
    fn postgres() {
        let Some(program) = database() else { return };
        compare_on_pool(&program, |way, ended| {
            let kib = ended.fact("pool");
            let is_enough = way != Way::Enough || kib >= 64 << 10;
            assert!(is_enough, "of 64 MiB of shared buffers only {kib} KiB");
        });
    }
}
