//! Every command of README, guide, `docs/sweeps.md` and man pages, and every example in another language: it is run as it stands, or in the way that [`RULES`]
//! says, and what it prints is compared with what stands beside it. A command without a rule fails.
//!
//! A page's commands are run from top to bottom in one directory, with the files that [`prepare`] puts there.
//! `figures of` and `findings of` in a comment mark output that differs between machines; `...` is any number of lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;

use testkit::skipped;

use crate::common::{NO_LAB, has_lab};

/// How a documented command is tested.
#[derive(Debug, Clone, Copy)]
enum How {
    /// As it stands. Where the output beside it is marked, its figures are left out of the comparison.
    Run,
    /// As it stands, for its exit code alone: its findings differ between machines.
    Findings,
    /// As it stands; ends with this code.
    Code(i32),
    /// With texts replaced, so that it takes no time.
    Smaller(&'static [(&'static str, &'static str)]),
    /// The same, of what not every machine or user can: exit code 3 is a skip. `1234` is a process of ours.
    Here(&'static [(&'static str, &'static str)]),
    /// With `--dry-run`, and without what cannot be given with it: options, programs and files are checked, and nothing
    /// is done.
    DryRun,
    /// The same, with smaller sizes.
    SmallerDryRun(&'static [(&'static str, &'static str)]),
    /// In the nightly set, for its exit code alone: it takes seconds.
    Nightly(i32),
    /// Not at all; its options are checked by `docs::tests` of the command.
    Not(&'static str),
}
use How::{Code, DryRun, Findings, Here, Nightly, Not, Run, Smaller, SmallerDryRun};

const BUILDS: &str =
    "compiles the repository: .ci/run, and scripts/nightly --part checkout, package, wheel";
const INSTALLS: &str =
    "installs on the machine: scripts/package-test, scripts/wheel-test, the test `package`";
const SYSTEMD: &str = "needs systemd";
const ENDLESS: &str = "does not end by itself, and there is one a machine: the test `manage`";
const COUNTERS: &str =
    "needs the processor's counters, or a recording under QEMU: the test `measure`";
const RELINKED: &str = "needs libhugetlbfs.a and ld.hugetlbfs installed: the test `relinking`";
const MACHINE: &str = "changes the machine: the tests of the journal";

/// Rules: the first whose pattern is the command's holds. `*` is any text.
const RULES: &[(&str, How)] = &[
    ("scripts/quickstart", Not(BUILDS)),
    ("scripts/test", Not(BUILDS)),
    ("scripts/package*", Not(BUILDS)),
    ("scripts/wheel", Not(BUILDS)),
    ("sudo apt-get *", Not(INSTALLS)),
    ("sudo rpm *", Not(INSTALLS)),
    ("tar *", Not(INSTALLS)),
    ("pip install *", Not(INSTALLS)),
    ("./install.sh*", Not(INSTALLS)),
    ("PREFIX=*", Not(INSTALLS)),
    ("ln -s *", Smaller(&[("/usr/local/bin/", "fleet/")])),
    ("install -D *", Smaller(&[("/usr/share/doc/superpage/", "packaging/"), (" /etc/", " etc/")])),
    ("*systemctl *", Not(SYSTEMD)),
    ("podman *", Not("needs podman")),
    ("pipx *", Not("needs check-jsonschema: the tests of schemas check every document")),
    ("mkdir -p *", Run),
    ("superpage completions *", Run),
    // Running services.
    ("superpage advise merge *", Findings),
    ("superpage advise 1234", Here(&[("1234", OF_A_SECOND)])),
    (
        "superpage advise --unit redis --for 30 *",
        Here(&[(" --for 30", ""), ("--unit redis --prices prices.json", OF_A_SECOND)]),
    ),
    (
        "superpage advise --match '^postgres' --json",
        Here(&[("--match '^postgres' --json", OF_A_SECOND)]),
    ),
    (
        "ssh *",
        Here(&[("--unit redis --prices prices.json --json > fleet/node-17.json", OF_A_SECOND)]),
    ),
    (
        "superpage advise * --prices prices.json",
        Here(&[
            ("--unit redis ", ""),
            ("--unit postgresql ", ""),
            ("$(pidof app) ", ""),
            ("--prices prices.json", OF_A_SECOND),
        ]),
    ),
    ("superpage map --unit redis", Here(&[("--unit redis", "1234")])),
    ("superpage map 1234", Findings),
    ("superpage map 1234 *", Run),
    ("superpage map --after *", Smaller(&[("10s", "10ms")])),
    ("superpage pool plan --unit postgresql", Here(&[("--unit postgresql", "--pid 1234")])),
    ("superpage compare --pid 1234 * --dry-run", Here(&[])),
    (
        "superpage compare --pid *",
        Here(&[
            ("--pid 19756", "--pid 1234"),
            ("superpage compare", "superpage compare --dry-run"),
        ]),
    ),
    ("superpage compare --unit redis *", Here(&[("--unit redis", "--dry-run --pid 1234")])),
    ("superpage top --once *", Run),
    ("superpage top --json --unit redis *", Smaller(&[("--unit redis", "--once --pid 1234")])),
    ("superpage top --match *", Smaller(&[("--match '^postgres'", "--once --pid 1234")])),
    ("superpage top*", Smaller(&[("superpage top", "superpage top --once")])),
    ("superpage exporter --once", Run),
    (
        "superpage exporter --textfile *",
        Smaller(&[("/var/lib/node_exporter/superpage.prom", "superpage.prom --once")]),
    ),
    (
        "superpage exporter --listen *",
        Smaller(&[(
            "superpage exporter --listen unix:/run/superpage.sock",
            "timeout -k 5 1 superpage exporter --listen unix:$PWD/a.sock; [ $? = 124 ]",
        )]),
    ),
    (
        "superpage exporter",
        Smaller(&[(
            "superpage exporter",
            "timeout -k 5 1 superpage exporter --listen 127.0.0.1:0; [ $? = 124 ]",
        )]),
    ),
    (
        "curl *",
        Here(&[(
            "curl -s http://127.0.0.1:9917/metrics",
            "command -v curl || exit 3; superpage exporter --listen unix:$PWD/b.sock & \
             until [ -S b.sock ] || ! kill -0 $!; do sleep 0.1; done; \
             curl -s --unix-socket b.sock http://localhost/metrics; got=$?; kill $!; exit $got",
        )]),
    ),
    ("superpage manage --once --unit redis --dry-run", Here(&[("--unit redis", "--pid 1234")])),
    // The process has no memory that could be on superpages.
    (
        "superpage manage --once * --require-coverage *",
        Here(&[("--unit redis", "--pid 1234"), ("--within 30s", EXITS_1)]),
    ),
    ("superpage manage --* --unit redis", Here(&[("--unit redis", "--pid 1234")])),
    ("superpage manage --check-config", Smaller(&[("-config", "-config --config manage.toml")])),
    ("superpage manage --status", Smaller(&[("--status", "--status || [ $? = 1 ]")])),
    ("superpage manage", Not(ENDLESS)),
    // Comparisons and runs.
    ("superpage compare --from *", Run),
    ("superpage compare --dry-run *", Run),
    // Other mallocs are where somebody installed them.
    (
        "superpage compare * --arm mimalloc *",
        SmallerDryRun(&[("--arm mimalloc ", ""), (JEMALLOC, "")]),
    ),
    ("superpage compare *", DryRun),
    ("superpage evaluate --list", Run),
    ("superpage evaluate --from *", Run),
    ("superpage evaluate * --dry-run", Run),
    ("superpage evaluate *", DryRun),
    ("superpage run --heap --mmap ./app", Run),
    ("superpage run --heap --mmap -- ./app", Run),
    ("superpage run --heap --mmap -- sort *", Findings),
    ("superpage run -q *", Run),
    ("superpage run --explain *", Run),
    // Whether this machine has the pages is not said here.
    ("superpage run * --dry-run *", Smaller(&[("--fallback error", "")])),
    ("*superpage run *", DryRun),
    ("superpage workload *", Smaller(&[("4G", "4M"), ("1G", "4M")])),
    ("superpage restore", Not(MACHINE)),
    ("superpage verify-cost *", DryRun),
    (
        "superpage doctor * --fail-if *",
        Smaller(&[("--fail-if warning", "--fail-if warning || [ $? = 1 ]")]),
    ),
    ("superpage doctor*", Findings),
    // Pools.
    ("superpage pool", Run),
    ("superpage pool boot *", Run),
    ("superpage pool plan *", Smaller(&[("./app", "sleep 1")])),
    ("superpage pool mounts", Run),
    ("superpage pool shm", Run),
    ("superpage pool min-free", Run),
    ("superpage pool users", Findings),
    // Here are fewer pages of 1 GiB, or none are possible.
    (
        "superpage pool demote *",
        Smaller(&[("1G:2", "1G:2 --dry-run || case $? in 1 | 3) ;; *) false ;; esac")]),
    ),
    ("superpage pool *", DryRun),
    ("hugeadm --pool-list", Findings),
    ("hugeadm *", DryRun),
    ("hugectl --heap *", Findings),
    ("hugectl *", Findings),
    ("hugeedit *", Run),
    ("pagesize *", Findings),
    ("gcc -static *", Not(RELINKED)),
    ("gcc -B *", Not(RELINKED)),
    // Costs.
    ("superpage tlb --quick", Nightly(0)),
    ("eval *", Nightly(0)),
    (
        "superpage tlb --save && superpage lab *",
        Smaller(&[
            ("--save", "--dry-run"),
            ("size=4G", "size=16M,operations=10K"),
            ("--machine this", ""),
        ]),
    ),
    ("superpage tlb --save && *", Smaller(&[("--save", "--dry-run")])),
    ("superpage tlb*", DryRun),
    ("superpage bench *", SmallerDryRun(&[("4G", "8M"), ("6G", "8M")])),
    ("superpage measure --misses *", Run),
    ("superpage measure --from stat.txt", Run),
    // The fixture has no event of the TLB.
    ("superpage measure --from perf.data", Smaller(&[("perf.data", "perf.data || [ $? = 1 ]")])),
    ("superpage measure --pid *", Here(&[("--for 10", "--for 1")])),
    ("superpage measure -- *", Not(COUNTERS)),
    ("echo misses=*", Run),
    ("perf *", Not(COUNTERS)),
    ("(opreport *", Findings),
    // Designs, the laboratory, traces.
    ("superpage design*", Run),
    ("superpage lab compare * -w gups:size=2G,operations=20M *", Run),
    ("superpage lab run -d linux-6 -w *.spt *", Run),
    ("superpage lab run * -w mcf.spt *", Run),
    ("superpage lab run -d mine.toml -w redis-cold *", Smaller(&[("redis-cold", SMALL)])),
    ("superpage lab explain * -w pagerank", Smaller(&[("pagerank", SMALL)])),
    ("superpage lab machines", Run),
    ("superpage lab workloads *", Run),
    ("superpage lab table", Run),
    ("superpage lab table all*", Smaller(&[("table all", "table quicksilver-zeroing")])),
    ("superpage lab table *", Nightly(0)),
    ("superpage lab faults * --table", Nightly(1)),
    ("superpage lab faults *", Nightly(0)),
    ("superpage lab validate --from v.json --fail-if off", Code(2)),
    ("superpage lab validate --from v.json --fail-if order *", Findings),
    ("superpage lab validate --from *", Run),
    ("superpage lab validate *", SmallerDryRun(&[("size=1G", "size=16M")])),
    ("superpage lab sweep run * --dry-run", Run),
    ("superpage lab sweep run * --on *", DryRun),
    ("superpage lab sweep merge results -o sweep", Findings),
    ("superpage lab sweep plan -o results *", Run),
    ("superpage lab sweep *", Run),
    (
        "superpage lab *",
        Smaller(&[("size=8G", "size=16M,operations=10K"), ("size=1G", "size=16M")]),
    ),
    (
        "superpage trace import --from champsim *",
        Smaller(&[("605.mcf.xz", "605.mcf"), ("mcf.spt", "605.spt")]),
    ),
    ("superpage trace *", Run),
    ("valgrind *", Run),
    ("superpage record *", DryRun),
    // Benchmarks of others.
    ("gcc -O2 -DSTREAM*", Here(&[("gcc", "command -v gcc || exit 3; gcc")])),
];

/// A process to look at for a second, with prices that need not be measured. It sleeps: exit code 1 says so.
const OF_A_SECOND: &str = "--pid 1234 --for 1 --prices prices.json --json || [ $? = 1 ]";

/// After a command that may exit with 1.
const EXITS_1: &str = "--within 1s || { got=$?; [ $got = 1 ] || exit $got; }";

/// An arm of a library that may not be installed.
const JEMALLOC: &str = "--arm 'jemalloc: preload=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2' ";

/// A workload that takes no time.
const SMALL: &str = "gups:size=16M,operations=10K";

/// A command of a page.
#[derive(Debug)]
struct Documented {
    page: String,
    line: usize,
    command: String,
    comment: String,
    /// What stands beside it.
    output: Vec<String>,
}

impl Documented {
    fn how(&self) -> Option<How> {
        let rule = RULES.iter().find(|(pattern, _)| is_like(pattern, &self.command));
        rule.map(|(_, how)| *how)
    }

    fn is_marked(&self) -> bool {
        self.comment.contains("figures of") || self.comment.contains("findings of")
    }

    /// The line that is run; `None` if it is not.
    fn line(&self) -> Option<String> {
        let line = match self.how()? {
            Run | Findings | Code(_) => self.command.clone(),
            Nightly(_) if testkit::is_nightly() => self.command.clone(),
            Nightly(_) | Not(_) => return None,
            Smaller(texts) | Here(texts) => replaced(&self.command, texts),
            DryRun => dry(&self.command),
            SmallerDryRun(texts) => dry(&replaced(&self.command, texts)),
        };
        Some(line)
    }

    /// Returns what is wrong with the outcome.
    fn wrong(&self, output: &Output) -> Option<String> {
        let (printed, said) = (text(&output.stdout), text(&output.stderr));
        let place = format!("{}:{}: {}", self.page, self.line, self.command);
        let expected = if let Some(Code(code) | Nightly(code)) = self.how() { code } else { 0 };
        let is_of_machine = matches!(self.how(), Some(DryRun | SmallerDryRun(_) | Here(_)));
        if is_of_machine && output.status.code() == Some(3) {
            skipped!("{place}: not possible on this machine: {}", said.trim_end());
            return None;
        }
        if output.status.code() != Some(expected) {
            return Some(format!("{place}: {}: {said}{printed}", output.status));
        }
        let is_as_it_stands = matches!(self.how(), Some(Run | Code(_)));
        if self.output.is_empty() || !is_as_it_stands {
            return None;
        }
        let whole = if printed.is_empty() { said } else { printed };
        let line =
            |line: &str| if self.is_marked() { words(line) } else { line.trim_end().to_string() };
        let wanted: Vec<String> = self.output.iter().map(|one| line(one)).collect();
        let lines: Vec<String> = whole.lines().map(line).collect();
        (!is_as(&wanted, &lines)).then(|| format!("{place}: prints\n{whole}"))
    }
}

fn replaced(command: &str, texts: &[(&str, &str)]) -> String {
    texts.iter().fold(command.to_string(), |line, (from, to)| line.replace(from, to))
}

/// Adds `--dry-run`, and leaves out options that cannot be given with it.
fn dry(command: &str) -> String {
    let at = [" -- ", " > ", " | "].iter().filter_map(|end| command.find(end));
    let (own, rest) = command.split_at(at.min().unwrap_or(command.len()));
    let mut words = own.split(' ').peekable();
    let mut line = String::new();
    while let Some(word) = words.next() {
        match word {
            "--json" => {}
            "--html" | "--svg" | "--vary" | "-o" => drop(words.next()),
            word => line = line + word + " ",
        }
    }
    format!("{line}--dry-run{rest}")
}

/// Whether lines are as the pattern, in which `...` is any number of them.
fn is_as(pattern: &[String], lines: &[String]) -> bool {
    match pattern {
        [] => lines.is_empty(),
        [first, rest @ ..] if first == "..." => {
            (0..=lines.len()).any(|left_out| is_as(rest, &lines[left_out..]))
        }
        [first, rest @ ..] => lines.first() == Some(first) && is_as(rest, &lines[1..]),
    }
}

/// Leaves figures and their units out of a line.
fn words(line: &str) -> String {
    const UNITS: [&str; 12] =
        ["s", "ms", "us", "ns", "%", "B", "KiB", "MiB", "GiB", "TiB", "pages", "(default)"];
    let has_figure = |word: &&str| word.bytes().any(|byte| byte.is_ascii_digit());
    let is_unit = |word: &&str| UNITS.contains(&word.trim_matches(|c| "(),;".contains(c)));
    let all = line.split_whitespace().filter(|word| !has_figure(word) && !is_unit(word));
    all.collect::<Vec<_>>().join(" ")
}

/// Whether a command is as the pattern, in which `*` is any text.
fn is_like(pattern: &str, command: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == command,
        Some((start, rest)) => command.strip_prefix(start).is_some_and(|left| {
            let ends = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            ends.into_iter().any(|at| is_like(rest, &left[at..]))
        }),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Reads the commands of a page's shell sessions.
fn of_page(page: &str) -> Vec<Documented> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let mut all: Vec<Documented> = Vec::new();
    let (mut is_session, mut is_text, mut goes_on) = (false, true, false);
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        if let Some(language) = text.strip_prefix("```") {
            (is_session, is_text) = (is_text && language == "console", !is_text);
            let is_named = is_text || !language.is_empty();
            assert!(
                is_named,
                "{page}:{line}: a block needs a language; output stands below its command"
            );
            continue;
        }
        if !is_session {
            continue;
        }
        if let Some(typed) = text.strip_prefix("$ ").filter(|_| !goes_on) {
            let (page, command) = (page.to_string(), typed.to_string());
            all.push(Documented {
                page,
                line,
                command,
                comment: String::new(),
                output: Vec::new(),
            });
        } else if let Some(last) = all.last_mut() {
            match goes_on {
                true => last.command += text.trim_start(),
                false => last.output.push(text.to_string()),
            }
        }
        let last = all.last_mut().unwrap_or_else(|| panic!("{page}:{line}: no command"));
        goes_on = last.output.is_empty() && last.command.ends_with('\\');
        if goes_on {
            last.command.pop();
        } else if last.output.is_empty() {
            (last.command, last.comment) = without_comment(&last.command);
        }
    }
    for one in &mut all {
        while one.output.last().is_some_and(String::is_empty) {
            one.output.pop();
        }
    }
    all
}

/// Splits a line of shell at ` #`, outside quotes.
fn without_comment(line: &str) -> (String, String) {
    let mut quote = None;
    for (at, c) in line.char_indices() {
        match quote {
            Some(end) if c == end => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            None if line[at..].starts_with(" # ") => {
                return (line[..at].trim_end().to_string(), line[at + 3..].to_string());
            }
            _ => {}
        }
    }
    (line.trim_end().to_string(), String::new())
}

/// Reads the examples at the end of generated man pages. Those of README and guide are added when a package is made.
fn of_man_pages() -> Vec<Documented> {
    let directory = tempfile::tempdir().unwrap();
    let line = format!("superpage man {}", directory.path().display());
    assert!(shell(&line, directory.path(), 1).status.success());
    let mut all = Vec::new();
    for entry in fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        let page = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).unwrap().replace("\\-", "-").replace("\\*(Aq", "'");
        for (index, line) in text.lines().enumerate() {
            let is_example = line.starts_with("  superpage ") || line.starts_with("  eval ");
            if let Some(line) =
                line.strip_prefix("  ").filter(|line| is_example && !line.contains("   as `"))
            {
                let (command, comment) = without_comment(line);
                let page = page.clone();
                all.push(Documented {
                    page,
                    line: index + 1,
                    command,
                    comment,
                    output: Vec::new(),
                });
            }
        }
    }
    all.sort_by(|a, b| (&a.page, a.line).cmp(&(&b.page, b.line)));
    all
}

/// Runs a line in a directory as a shell does, with the commands of this build; `1234` becomes a process to look at.
fn shell(line: &str, directory: &Path, pid: u32) -> Output {
    let own = Path::new(env!("CARGO_BIN_EXE_superpage")).parent().unwrap();
    let before = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{before}", directory.join("bin").display(), own.display());
    let mut shell = Command::new("timeout");
    shell.args(["-k", "5", "600", "sh", "-c", &line.replace("1234", &pid.to_string())]);
    shell.current_dir(directory).env("PATH", path).env("NO_COLOR", "1").stdin(Stdio::null());
    // Without these variables `superpage lab` does not build the laboratory first.
    shell.env_remove("CARGO").env_remove("CARGO_MANIFEST_DIR");
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"] {
        shell.env(name, directory);
    }
    shell.output().expect("there is timeout")
}

/// Makes the files that the commands of a page read, and programs of the names that they start.
fn prepare(directory: &Path, page: &str) {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    let copy = |from: &str, to: &str| {
        fs::copy(repository().join(from), directory.join(to))
            .unwrap_or_else(|why| panic!("{from}: {why}"))
    };
    let bin = directory.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let own = Path::new(env!("CARGO_BIN_EXE_superpage"));
    for name in ["hugeadm", "hugectl", "hugeedit", "pagesize"] {
        symlink(own, bin.join(name)).unwrap();
    }
    let program =
        ["/bin/true", "/usr/bin/true"].map(Path::new).into_iter().find(|path| path.is_file());
    let program = program.expect("there is true");
    for name in [
        "redis-server",
        "redis-cli",
        "redis-benchmark",
        "postgres",
        "sqlite3",
        "java",
        "runcpu",
        "runspec",
        "setpriv",
    ] {
        testkit::copy_program(program, bin.join(name));
    }
    for name in ["app", "a.out", "bench", "test", "load", "stream", "run-oltp"] {
        testkit::copy_program(program, directory.join(name));
    }
    write("big.txt", &"some lines\nto sort\n".repeat(1000));
    write("shop.db", "");
    write(
        "redis.toml",
        "service = \"redis-server --port {port}\"\nload = \"redis-cli -p {port} ping\"\n",
    );
    write(
        "sweep.toml",
        &format!(
            "designs = [\"base\", \"linux-4.3\"]\nworkloads = [\"{SMALL}\"]\nmemory = \"256M\"\n"
        ),
    );
    write("accesses.txt", "r 0x1000\nw 0x201000\n");
    for name in ["mcf", "sqlite3", "db"].map(|name| format!("{name}.spt")) {
        let line = format!("superpage trace import --from text accesses.txt {name}");
        let made = shell(&line, directory, 1);
        assert!(made.status.success(), "{}", text(&made.stderr));
    }
    let examples = "docs/schemas/examples";
    copy("docs/results/compare-gups.json", "a.json");
    copy(&format!("{examples}/compare-series-1.json"), "series.json");
    copy(&format!("{examples}/evaluation-1.json"), "new.json");
    copy(&format!("{examples}/evaluation-1.json"), "old.json");
    copy(&format!("{examples}/prices-1.json"), "prices.json");
    fs::create_dir_all(directory.join("fleet")).unwrap();
    copy(&format!("{examples}/advise-1.json"), "fleet/node-17.json");
    let validated =
        fs::read_to_string(repository().join(format!("{examples}/validate-1.json"))).unwrap();
    let is_damaged = page.ends_with("documents.md");
    write("v.json", &if is_damaged { damaged(&validated) } else { validated });
    write("stat.txt", STAT);
    copy("crates/tool/walk-cost/tests/fixtures/piped.data", "perf.data");
    write("stream.c", "int main(void) { return STREAM_ARRAY_SIZE == 0; }\n");
    fs::write(directory.join("605.mcf"), champsim()).unwrap();
    for name in ["etc/superpage", "packaging"] {
        fs::create_dir_all(directory.join(name)).unwrap();
    }
    copy("packaging/pools.toml", "packaging/pools.toml");
    for (name, script) in STAND_INS {
        write(&format!("bin/{name}"), script);
        let program = bin.join(name);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (page, name) in [
        ("docs/guide/pools.md", "pools.toml"),
        ("docs/guide/manage.md", "manage.toml"),
        ("docs/guide/evaluate.md", "my-service.toml"),
    ] {
        let text = fs::read_to_string(repository().join(page)).unwrap().replace("postgres", "root");
        write(
            name,
            text.split("```toml\n").nth(1).and_then(|text| text.split("```").next()).unwrap(),
        );
    }
    // The manager's configuration is the user's alone.
    fs::set_permissions(directory.join("manage.toml"), fs::Permissions::from_mode(0o600)).unwrap();
    for design in ["mine.toml", "gups.toml"] {
        let made = match design {
            "mine.toml" => shell("superpage design show freebsd", directory, 1),
            _ => {
                shell(&format!("superpage lab profile -w {SMALL} --memory 256M -o -"), directory, 1)
            }
        };
        write(design, &text(&made.stdout));
    }
}

/// Programs of others, with the output that the commands read.
const STAND_INS: &[(&str, &str)] = &[
    ("ssh", "#!/bin/sh\nshift\nexec \"$@\"\n"),
    (
        "valgrind",
        "#!/bin/sh\nprintf '==1== Lackey\\nI  04000000,4\\n L 1ffe000,8\\n S 1ffe008,8\\n' >&9\n",
    ),
    (
        "opreport",
        "#!/bin/sh\ncase $2 in *CPU*) n=599073 of=50000 ;; *) n=9492 of=1000 ;; esac\n\
         echo 'CPU: Intel, speed 2401 MHz (estimated)'\n\
         echo \"Counted ${2#event:} events (of the example) with a unit mask of 0x00 (none) count $of\"\n\
         echo 'samples  %        image name'\necho \"$n     100.000  app\"\n",
    ),
];

/// Records of a ChampSim trace (`input_instr`): instructions that each read one page.
fn champsim() -> Vec<u8> {
    let record = |index: u64| {
        let mut bytes = [0; 64];
        bytes[..8].copy_from_slice(&(0x400000 + 4 * index).to_le_bytes());
        bytes[32..40].copy_from_slice(&(0x1000_0000 + 4096 * index).to_le_bytes());
        bytes
    };
    (0..16).flat_map(record).collect()
}

/// What `perf stat -j` writes for the command in `docs/guide/measure.md`.
const STAT: &str = "\
{\"counter-value\" : \"1000000.000000\", \"unit\" : \"\", \"event\" : \"cycles\", \"event-runtime\" : 1000, \"pcnt-running\" : 100.00}
{\"counter-value\" : \"200000.000000\", \"unit\" : \"\", \"event\" : \"dtlb_load_misses.walk_active\", \"event-runtime\" : 1000, \"pcnt-running\" : 100.00}
{\"counter-value\" : \"10000.000000\", \"unit\" : \"\", \"event\" : \"itlb_misses.walk_active\", \"event-runtime\" : 1000, \"pcnt-running\" : 100.00}
";

/// The document with a time that no run can have.
fn damaged(document: &str) -> String {
    let mut document: serde_json::Value = serde_json::from_str(document).unwrap();
    document["workloads"][0]["designs"][1]["live"]["seconds"] = (-1).into();
    serde_json::to_string_pretty(&document).unwrap()
}

/// A process to look at, which is ended with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Runs the commands of one page, and returns what is wrong.
fn run_page(page: &str, commands: &[Documented]) -> Vec<String> {
    if commands.iter().all(|one| one.line().is_none()) {
        return Vec::new();
    }
    let directory = tempfile::tempdir().unwrap();
    prepare(directory.path(), page);
    // Commands show or write these.
    for name in ["mine.toml", "gups.toml", "a.json", "series.json"] {
        let is_written = |one: &Documented| {
            one.line().is_some_and(|line| {
                !line.contains("--dry-run") && line.contains(&format!("-o {name}"))
            })
        };
        if commands.iter().any(is_written) {
            fs::remove_file(directory.path().join(name)).unwrap();
        }
    }
    let process = Process(Command::new("sleep").arg("600").spawn().expect("there is sleep"));
    let mut wrong = Vec::new();
    for one in commands {
        if let Some(line) = one.line() {
            wrong.extend(one.wrong(&shell(&line, directory.path(), process.0.id())));
        }
    }
    wrong
}

/// Returns the pages whose commands are run.
fn pages() -> Vec<String> {
    let guide = fs::read_dir(repository().join("docs/guide")).unwrap();
    let mut pages: Vec<String> = guide
        .map(|entry| format!("docs/guide/{}", entry.unwrap().file_name().to_string_lossy()))
        .chain(["README.md", "docs/sweeps.md"].map(String::from))
        .collect();
    pages.sort();
    pages
}

/// Returns the commands of each page that has some.
fn all() -> Vec<(String, Vec<Documented>)> {
    let mut all: Vec<_> = pages().into_iter().map(|page| (page.clone(), of_page(&page))).collect();
    all.push(("man pages".to_string(), of_man_pages()));
    all.retain(|(_, commands)| !commands.is_empty());
    all
}

#[test]
fn every_documented_command_does_what_stands_beside_it() {
    if !has_lab() {
        skipped!("{NO_LAB}");
        return;
    }
    let all = all();
    let mut without = Vec::new();
    for one in all.iter().flat_map(|(_, commands)| commands) {
        let place = format!("{}:{}: {}", one.page, one.line, one.command);
        match one.how() {
            None => without.push(format!("{place}: no rule in RULES says how it is tested")),
            Some(Run | Code(_)) => {}
            Some(_) if !one.output.is_empty() && !one.is_marked() => {
                without.push(format!(
                    "{place}: its output is not compared: mark it `# figures of one machine`"
                ));
            }
            Some(_) => {}
        }
    }
    let is_used = |pattern: &str| {
        all.iter().flat_map(|(_, commands)| commands).any(|one| is_like(pattern, &one.command))
    };
    let unused = RULES.iter().filter(|(pattern, _)| !is_used(pattern));
    without.extend(unused.map(|(pattern, _)| format!("no command is like the rule `{pattern}`")));
    assert!(without.is_empty(), "{}", without.join("\n"));

    let (left, wrong) = (Mutex::new(all.iter().collect::<Vec<_>>()), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    let work = || {
        while let Some((page, commands)) = next() {
            let found = run_page(page, commands);
            wrong.lock().unwrap().extend(found);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    let wrong = wrong.into_inner().unwrap();
    for (reason, count) in reasons(&all) {
        skipped!("{count} documented commands: {reason}");
    }
    println!("{}", table(&all));
    assert!(wrong.is_empty(), "{} of the documented commands:\n{}", wrong.len(), wrong.join("\n"));
}

/// How an example in another language, written to the file `example`, is tested: by a command, or not, with the reason.
const EXAMPLES: &[(&str, &str, Result<&str, &str>)] = &[
    (
        "README.md",
        "toml",
        Ok("chmod 600 example; superpage manage --check-config --config example"),
    ),
    ("docs/guide/benchmarks.md", "sh", Ok("sh -n example")),
    (
        "docs/guide/evaluate.md",
        "toml",
        Ok("cp example a.toml && superpage evaluate ./a.toml --dry-run"),
    ),
    (
        "docs/guide/library.md",
        "c",
        Ok("printf '#include <stdio.h>\\n#include <superpage.h>\\nvoid f(void) {\\n' >a.c && \
            cat example >>a.c && echo '}' >>a.c && cc -fsyntax-only -Wall -Werror -I include a.c"),
    ),
    ("docs/guide/manage.md", "ini", Err("needs systemd: the test `manage_service`")),
    (
        "docs/guide/manage.md",
        "toml",
        Ok(
            "sed -i s/postgres/root/ example; chmod 600 example; superpage manage --check-config --config example",
        ),
    ),
    (
        "docs/guide/manage.md",
        "yaml",
        Err("needs Kubernetes: the tests of superpage-manage read it"),
    ),
    (
        "docs/guide/pools.md",
        "toml",
        Ok(
            "sed -i s/postgres/root/ example; superpage pool ensure example --dry-run || [ $? = 3 ]",
        ),
    ),
    ("docs/guide/python.md", "python", Err("the Python module's tests run it")),
    ("docs/sweeps.md", "sql", Err("needs DuckDB")),
    ("docs/sweeps.md", "toml", Ok("superpage lab sweep plan example -o planned")),
    ("docs/sweeps.md", "yaml", Err("needs Kubernetes")),
];

#[test]
fn every_example_in_another_language_is_read() {
    if !has_lab() {
        skipped!("{NO_LAB}");
        return;
    }
    let (mut wrong, mut used) = (Vec::new(), vec![false; EXAMPLES.len()]);
    for page in pages() {
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, example) = block.split_once('\n').expect("a block has lines");
            if language == "console" {
                continue;
            }
            let is_it = |(of, is, _): &(&str, &str, _)| *of == page && *is == language;
            let Some(index) = EXAMPLES.iter().position(is_it) else {
                wrong.push(format!("{page}: a block of {language}: EXAMPLES says nothing of it"));
                continue;
            };
            used[index] = true;
            let line = match EXAMPLES[index].2 {
                Ok(line) => line,
                Err(why) => {
                    skipped!("an example in {language} of {page}: {why}");
                    continue;
                }
            };
            let directory = tempfile::tempdir().unwrap();
            prepare(directory.path(), &page);
            let headers = repository().join("include").canonicalize().unwrap();
            symlink(headers, directory.path().join("include")).unwrap();
            fs::write(directory.path().join("example"), format!("{example}\n")).unwrap();
            let output = shell(line, directory.path(), 1);
            if !output.status.success() {
                let said = self::text(&output.stdout) + &self::text(&output.stderr);
                wrong.push(format!("{page}: {language}: {line}: {said}"));
            }
        }
    }
    for (one, is_used) in EXAMPLES.iter().zip(used) {
        if !is_used {
            wrong.push(format!("no block is {one:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Counts commands that are not run, by reason.
fn reasons(all: &[(String, Vec<Documented>)]) -> BTreeMap<&'static str, usize> {
    let mut reasons = BTreeMap::new();
    for one in all.iter().flat_map(|(_, commands)| commands) {
        let reason = match one.how() {
            Some(Not(reason)) => reason,
            Some(Nightly(_)) if !testkit::is_nightly() => "it takes seconds: the nightly set",
            _ => continue,
        };
        *reasons.entry(reason).or_default() += 1;
    }
    reasons
}

/// Formats the counts by page.
fn table(all: &[(String, Vec<Documented>)]) -> String {
    let mut text = format!(
        "{:<38} commands  equal  marked  exit code  smaller  --dry-run  nightly  not run\n",
        "page"
    );
    let mut sums = [0; 8];
    for (page, commands) in all {
        let mut counts = [0; 8];
        for one in commands {
            let kind = match one.how() {
                Some(Run | Code(_)) if one.output.is_empty() => 3,
                Some(Run | Code(_)) if one.is_marked() => 2,
                Some(Run | Code(_)) => 1,
                Some(Findings) if one.output.is_empty() => 3,
                Some(Findings) => 2,
                Some(Smaller(_) | Here(_)) => 4,
                Some(DryRun | SmallerDryRun(_)) => 5,
                Some(Nightly(_)) => 6,
                Some(Not(_)) | None => 7,
            };
            counts[0] += 1;
            counts[kind] += 1;
        }
        (0..8).for_each(|at| sums[at] += counts[at]);
        row(&mut text, page, &counts);
    }
    row(&mut text, "all", &sums);
    text
}

fn row(text: &mut String, page: &str, counts: &[usize; 8]) {
    let [all, equal, marked, code, smaller, dry, nightly, not] = counts;
    let _ = writeln!(
        text,
        "{page:<38} {all:>8} {equal:>6} {marked:>7} {code:>10} {smaller:>8} {dry:>10} {nightly:>8} {not:>8}"
    );
}

#[test]
fn a_wrong_line_of_output_is_found() {
    let lines = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    for (pattern, printed, is_equal) in [
        ("a\nb", "a\nb", true),
        ("a\nb", "a\nc", false),
        ("a", "a\nb", false),
        ("a\n...\nd", "a\nb\nc\nd", true),
        ("a\n...\nd", "a\nb\nc", false),
        ("...", "", true),
    ] {
        assert_eq!(is_as(&lines(pattern), &lines(printed)), is_equal, "{pattern} {printed}");
    }
    assert_eq!(words(" 2 MiB        0  1536 (3 GiB)  default"), "default");
    assert!(is_like("superpage lab * -w a *", "superpage lab run -w a -f b"));
    assert!(!is_like("superpage lab", "superpage lab run"));
    assert_eq!(without_comment("a '# b' c   # d").0, "a '# b' c");
}
