//! Real programs print the same and end the same on superpages as without.
//!
//! Each runs plainly, on THP, and (privileged tier) under a design in force, on a hugetlb pool with enough pages and on
//! one with far too few. `SUPERPAGE_TEST_SCALE` makes their inputs larger, for a soak by hand. What they do
//! lies in `programs/`: scripts that print digests of all they computed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{has_thp, stderr};

const KINDS: [&str; 2] = ["--heap", "--mmap"];
const IN_FORCE: &str = "quicksilver-sync-64";

/// How a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    /// On THP, no kind of memory named: beside a library that leaves the heap alone, what the program's own
    /// allocator gave must not be asked of another. (redis, linked with jemalloc, ended by SIGSEGV.)
    Unnamed,
    Thp,
    /// On THP that are prepared before they are touched.
    Ahead,
    /// Under a design that the launcher carries out: no library is in it.
    InForce,
    /// On a pool that has what it asks for.
    Enough,
    /// On a pool that runs out.
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
    /// Whether it runs as another user than root.
    unprivileged: bool,
}

impl Program {
    fn of(words: &[&str]) -> Self {
        let words = words.iter().map(|word| word.to_string()).collect();
        Self { words, kinds: KINDS.to_vec(), unprivileged: false }
    }

    /// A script of `programs/`, for `interpreter`, with the scale of its input.
    fn script(interpreter: &str, name: &str) -> Self {
        Self::of(&[interpreter, &source(name), &scale()])
    }

    /// In a directory of its own, which stays until the caller has looked.
    fn run(&self, way: Way) -> Ended {
        let dir = tempfile::tempdir().expect("a temporary directory");
        open_to_all(dir.path());
        let mut words: Vec<&str> = Vec::new();
        if self.unprivileged && testkit::is_root() {
            words.extend(AS_NOBODY);
        }
        // The whole group is ended, should it hang.
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
    /// What the script left in the file `facts`: things that differ from way to way.
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

/// The first of `names` that is not along PATH.
fn missing<'a>(names: &[&'a str]) -> Option<&'a str> {
    let dirs: Vec<PathBuf> =
        std::env::var_os("PATH").iter().flat_map(std::env::split_paths).collect();
    names.iter().copied().find(|name| !dirs.iter().any(|dir| dir.join(name).is_file()))
}

/// The machine's lock and its pools as found; pages come from the overcommit limit, so none is
/// taken that is not used.
struct Pool {
    // Dropped first: put back while the lock is held.
    _found: testkit::PoolsAsFound,
    _lock: testkit::MachineLock,
}

const OVERCOMMIT: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";
const PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

impl Pool {
    fn lock() -> Option<Self> {
        if !testkit::is_root() || !Path::new(OVERCOMMIT).exists() {
            return None;
        }
        let lock = testkit::machine_lock()?;
        let pool = Self { _found: testkit::PoolsAsFound::note(), _lock: lock };
        // What others reserved would be given to the program.
        (Self::pages() == 0).then_some(pool)
    }

    fn allow(&self, pages: u64) {
        std::fs::write(OVERCOMMIT, pages.to_string()).expect("root");
    }

    /// A helper that outlives its program (Python's resource tracker) ends a moment later.
    fn is_empty_soon() -> bool {
        (0..100).any(|_| {
            let empty = Self::pages() == 0;
            if !empty {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            empty
        })
    }

    fn pages() -> u64 {
        let text = std::fs::read_to_string(PAGES).expect("a pool");
        text.trim().parse().expect("a number")
    }
}

/// Runs it every way there is and compares; `look` sees each run that is not the plain one.
fn compare(program: &Program, look: impl Fn(Way, &Ended)) {
    let plain = program.run(Way::Plain);
    let same = |way: Way| {
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
        look(way, &ended);
    };
    // What a program cannot do at all proves nothing.
    assert!(!matches!(plain.output.status.code(), None | Some(124..=127)), "{:?}", plain.output);
    // Where memory is fragmented the launcher grows the pool for a moment, which others may compare.
    let shared = testkit::shared_machine_lock();
    if has_thp() {
        same(Way::Unnamed);
        same(Way::Thp);
        same(Way::Ahead);
    } else {
        testkit::skipped!("THP are off on this machine");
    }
    match sys::pidfd::may_collapse() {
        Ok(()) if program.unprivileged && testkit::is_root() => {}
        Ok(()) => same(Way::InForce),
        Err(why) => testkit::skipped!("no design can be in force: {why}"),
    }
    drop(shared);
    let Some(pool) = Pool::lock() else {
        testkit::skipped!("needs root and an empty pool of 2 MiB hugetlb pages");
        return;
    };
    for (way, pages) in [(Way::Enough, 2048), (Way::Scarce, 5)] {
        pool.allow(pages);
        same(way);
        assert!(Pool::is_empty_soon(), "{way:?}: {} superpages were left behind", Pool::pages());
    }
}

/// One test: the programs it needs, and what it runs.
macro_rules! programs {
    ($($name:ident: $needs:expr => $program:expr;)+) => {
        $(
            #[test]
            fn $name() {
                let missing = missing(&$needs);
                testkit::require!(missing.is_none(), "no {}", missing.unwrap());
                compare(&$program, |_, _| {});
            }
        )+
    };
}

programs! {
    python: ["python3"] => Program::script("python3", "python.py");
    perl: ["perl"] => Program::script("perl", "perl.pl");
    compilers: ["gcc", "g++", "awk"] => Program::script("sh", "compile.sh");
    git: ["git", "awk"] => Program::script("sh", "git.sh");
    sort: ["sort", "awk"] => Program::script("sh", "sort.sh");
    sqlite: ["sqlite3"] => Program::script("sh", "sqlite.sh");
    bash: ["bash"] => Program::script("bash", "bash.sh");
    archives: ["tar", "xz", "gzip"] => Program::script("sh", "archive.sh");
    node: ["node"] => Program::script("node", "node.js");
    redis: ["redis-server", "redis-cli", "redis-benchmark"] => Program::script("sh", "redis.sh");
}

#[test]
fn java() {
    let missing = missing(&["java", "javac"]);
    testkit::require!(missing.is_none(), "no {}", missing.unwrap());
    let mut program = Program::script("sh", "java.sh");
    program.words.push(source(""));
    compare(&program, |_, _| {});
}

#[test]
fn threads_in_cpp() {
    let missing = missing(&["g++"]);
    testkit::require!(missing.is_none(), "no {}", missing.unwrap());
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("threads").to_str().unwrap().to_string();
    let file = source("threads.cpp");
    let flags = ["-std=c++17", "-O2", "-pthread", &file, "-o", &binary];
    assert!(Command::new("g++").args(flags).status().unwrap().success());
    compare(&Program::of(&[&binary, &scale()]), |way, ended| {
        let pages = match way {
            Way::Unnamed | Way::InForce => return,
            Way::Thp | Way::Ahead => "advised",
            _ => "reserved in the pool",
        };
        let said = stderr(&ended.output);
        // Whose block is the first depends on the threads: the largest does not fit the small pool.
        let is_short = way == Way::Scarce && said.contains("the hugetlb pool was short");
        assert!(said.contains(pages) || is_short, "{way:?}: {said}");
    });
}

/// As a user without privileges, on which it insists; and with its shared buffers.
#[test]
fn postgres() {
    let missing = missing(&["initdb", "postgres", "pgbench", "psql", "pg_dump", "setpriv"]);
    testkit::require!(missing.is_none(), "no {}", missing.unwrap());
    testkit::require!(anybody_can_run_it(), "this build lies where only root may read");
    let mut program = Program::script("sh", "postgres.sh");
    program.unprivileged = true;
    program.kinds.push("--shm");
    compare(&program, |way, ended| match way {
        Way::Thp | Way::Ahead if shared_memory_heeds_advice() => {
            assert!(ended.fact("thp") > 0, "no superpage under the shared buffers");
        }
        Way::Enough => {
            let kib = ended.fact("pool");
            assert!(kib >= 64 << 10, "of 64 MiB of shared buffers only {kib} KiB");
        }
        _ => {}
    });
}

fn shared_memory_heeds_advice() -> bool {
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    mode.is_ok_and(|mode| !mode.contains("[never]") && !mode.contains("[deny]"))
}

/// Root runs others' programs as nobody; without root this is our own build.
fn anybody_can_run_it() -> bool {
    if !testkit::is_root() {
        return true;
    }
    let mut command = Command::new(AS_NOBODY[0]);
    command.args(&AS_NOBODY[1..]).args([env!("CARGO_BIN_EXE_superpage"), "--version"]);
    command.output().is_ok_and(|output| output.status.success())
}

const PLAIN_C: &str = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
    int main(void) { char *p = malloc(5 << 20); p[4 << 20] = 3; \
    printf(\"%d %d\\n\", p[4 << 20], getuid() != geteuid()); return 23; }\n";

/// Builds a small C program; `None` where that cannot be done.
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
        // Up front, before the report.
        let said = errors.split("superpage: thp: ").next().unwrap_or_default();
        let said = said.split("superpage: hugetlb: ").next().unwrap_or_default();
        assert!(said.contains("cannot be preloaded") && said.contains(word), "{way:?}: {errors}");
    }
}
