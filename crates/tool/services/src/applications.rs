//! What applications say themselves of the pool that they need: PostgreSQL, the JVM and Redis.
//!
//! The application's program is asked, in a new process and as the application's user; the running server
//! gets no signal and no connection. So `jcmd` is not used: it makes the JVM start a thread and open a socket.
//! As root, a program of another user is executed only if the file belongs to root and no other user may write it.
//! See docs/decisions/pool.md#11.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::Root;
use serde::Serialize;
use units::{ByteSize, PageSize, Pid};

use crate::{Demand, Image, Process, SharedKind};

/// An application whose figures are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Application {
    /// postgres.
    Postgresql,
    /// java.
    Jvm,
    /// redis-server, valkey-server.
    Redis,
}

/// A process, with what asking its program needs. Read while the process runs, and used also after it ended.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The process.
    pub process: Process,
    /// Which application it is.
    pub application: Application,
    /// Its program file.
    program: PathBuf,
    /// Its working directory.
    directory: PathBuf,
    /// Effective group id.
    group: Option<u32>,
    /// Whether it sees the same file systems as this process.
    view: View,
    /// Options of a JVM in its environment.
    jvm: JvmVariables,
}

/// Mount namespaces of this process and of another.
#[derive(Debug, Clone, PartialEq, Eq)]
enum View {
    /// The same.
    Same,
    /// Two, by the names that the kernel gives them (`mnt:[4026531841]`).
    Other { own: String, its: String },
    /// One of them could not be read.
    Unknown,
}

impl View {
    /// From the links `/proc/PID/ns/mnt`.
    fn new(own: Option<PathBuf>, its: Option<PathBuf>) -> Self {
        match (own, its) {
            (Some(own), Some(its)) if own == its => Self::Same,
            (Some(own), Some(its)) => {
                Self::Other { own: own.display().to_string(), its: its.display().to_string() }
            }
            _ => Self::Unknown,
        }
    }

    /// Why a program of process `pid` is not executed; `None` if it may be.
    fn obstacle(&self, pid: Pid) -> Option<String> {
        match self {
            Self::Same => None,
            Self::Other { own, its } => Some(format!(
                "superpage is in the mount namespace {own}, pid {pid} in {its}; run superpage in that one (nsenter -m -t {pid})"
            )),
            Self::Unknown => Some(format!(
                "whether pid {pid} is in superpage's mount namespace is unknown: run superpage as its user or as root"
            )),
        }
    }
}

/// What an application says of its memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnFigure {
    /// The application.
    pub application: Application,
    /// Its process.
    pub pid: Pid,
    /// Effective group of the process, for `vm.hugetlb_shm_group`.
    pub group: Option<u32>,
    /// Where the figure is from.
    pub source: Source,
    /// How the figure relates to the pages that it takes.
    pub bound: Bound,
    /// The page size that `pages` is of; `None` without `pages`.
    pub page_bytes: Option<PageSize>,
    /// Number of pages that it takes of the pool.
    pub pages: Option<u64>,
    /// What the pages are for, or what limits its memory.
    pub parts: Vec<NamedBytes>,
    /// Whether its settings ask for the pool; `None`: unknown.
    pub asks: Option<bool>,
    /// Whether it takes its shared memory by shmget, which needs `vm.hugetlb_shm_group`.
    pub uses_sysv: bool,
    /// Why a figure is missing, or not asked for.
    pub unknown: Option<String>,
}

/// A part of an application's memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedBytes {
    /// The application's name for it.
    pub name: String,
    /// Bytes.
    pub bytes: ByteSize,
}

/// Where a figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The program computed it when asked.
    Asked,
    /// The running server's own mapping.
    Mapping,
    /// Command line or configuration file.
    Settings,
    /// Nothing says it.
    None,
}

/// How a figure relates to the pages that the application takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Takes exactly these.
    Exact,
    /// Takes these and some tables.
    AtLeast,
    /// Takes these, or somewhat fewer.
    AtMost,
}

impl Identity {
    /// Recognizes the process's program; `None`: not an application that reports figures, or a child of one.
    pub fn read(root: &Root, process: &Process) -> Option<Self> {
        let link = |name: &str| {
            std::fs::read_link(root.path(&format!("/proc/{}/{name}", process.pid))).ok()
        };
        let program = link("exe")?;
        let application = recognize(&program, process)?;
        let status = root.read(&format!("/proc/{}/status", process.pid)).ok()?;
        let group = status.lines().find_map(|line| line.strip_prefix("Gid:"));
        let group = group.and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok());
        let own_view = std::fs::read_link(root.path("/proc/self/ns/mnt")).ok();
        Some(Self {
            process: process.clone(),
            application,
            program,
            directory: link("cwd")?,
            group,
            view: View::new(own_view, link("ns/mnt")),
            jvm: match application {
                Application::Jvm => {
                    let file = root.path(&format!("/proc/{}/environ", process.pid));
                    JvmVariables::from_environment(&std::fs::read(file).unwrap_or_default())
                }
                _ => JvmVariables::default(),
            },
        })
    }

    /// What the application says. `default`: the default page size. `images` are of the time when it ran.
    pub fn figure(&self, root: &Root, images: &[Image], default: Option<PageSize>) -> OwnFigure {
        match self.application {
            Application::Postgresql => self.postgresql(root, images, default),
            Application::Jvm => self.jvm(default),
            Application::Redis => self.redis(),
        }
    }

    fn nothing(&self) -> OwnFigure {
        OwnFigure {
            application: self.application,
            pid: self.process.pid,
            group: self.group,
            source: Source::None,
            bound: Bound::Exact,
            page_bytes: None,
            pages: None,
            parts: Vec::new(),
            asks: None,
            uses_sysv: false,
            unknown: None,
        }
    }

    /// A running server holds the lock of its data directory, and `postgres -C` refuses to compute. Its mapping is then
    /// the figure.
    fn postgresql(&self, root: &Root, images: &[Image], default: Option<PageSize>) -> OwnFigure {
        let own: Vec<Image> =
            images.iter().filter(|it| it.process.pid == self.process.pid).cloned().collect();
        let shared = Demand::new(&own, u64::MAX).shared;
        let of = |kinds: &[SharedKind]| {
            shared.iter().find(|object| kinds.contains(&object.kind)).cloned()
        };
        // The largest; the interlock of a few bytes is a segment, too.
        let buffers = of(&[SharedKind::Anonymous, SharedKind::Hugetlb, SharedKind::SysV]);
        let mut figure = self.nothing();
        figure.uses_sysv = buffers.as_ref().is_some_and(|it| it.kind == SharedKind::SysV);
        if let (Some(buffers), Some(size)) = (&buffers, default) {
            figure.source = Source::Mapping;
            figure.page_bytes = Some(buffers.page_bytes.unwrap_or(size));
            figure.pages = figure.page_bytes.map(|size| buffers.pages(size));
            figure.parts = vec![named("shared memory", buffers.bytes)];
            figure.asks = buffers.page_bytes.map(|_| true);
        }
        let ask = |setting: &str| {
            let mut arguments = vec!["-C".to_string(), setting.to_string()];
            arguments.extend(self.process.command.iter().skip(1).cloned());
            arguments.extend(["-D".to_string(), self.directory.display().to_string()]);
            self.ask(&arguments).map(|text| text.trim().to_string())
        };
        match ask("huge_pages") {
            Ok(word) => figure.asks = Some(word != "off"),
            Err(why) => figure.unknown = Some(why),
        }
        if figure.unknown.is_none() && !self.process.is_running(root) {
            let pages = ask("shared_memory_size_in_huge_pages").ok();
            if let (Some(pages), Some(size)) = (pages.and_then(|text| text.parse().ok()), default) {
                figure.source = Source::Asked;
                figure.page_bytes = Some(size);
                figure.pages = Some(pages);
            }
        }
        figure
    }

    /// The JVM reserves its whole heap and code cache at the start, and G1 and Parallel their tables. The program prints
    /// them (`-Xlog:pagesize`) when it starts with the same flags, without large pages and without a class.
    fn jvm(&self, default: Option<PageSize>) -> OwnFigure {
        let mut figure = self.nothing();
        let flags = self.jvm.around(jvm_flags(&self.process.command));
        let last = |name: &str| jvm_switch(&flags, name) == Some(true);
        figure.asks = Some(last("UseLargePages") && !last("UseTransparentHugePages"));
        let extra = [
            "-XX:-UseLargePages",
            "-XX:-UseTransparentHugePages",
            "-XX:-AlwaysPreTouch",
            "-XX:+PrintFlagsFinal",
            "-Xlog:pagesize=info:stdout",
            "-version",
        ];
        let mut arguments = flags.clone();
        arguments.extend(extra.map(str::to_string));
        let text = self.ask(&arguments).or_else(|why| {
            // JDK 8 has no -Xlog.
            arguments.retain(|word| !word.starts_with("-Xlog"));
            self.ask(&arguments).map_err(|_| why)
        });
        let report = match text {
            Ok(text) => JvmReport::parse(&text),
            Err(why) => {
                figure.unknown = Some(why);
                return figure;
            }
        };
        let Some(report) = report else {
            figure.unknown = Some("java printed no MaxHeapSize".to_string());
            return figure;
        };
        figure.source = Source::Asked;
        figure.bound = report.bound;
        figure.uses_sysv = last("UseSHM");
        let chosen = flags.iter().rev().find_map(|flag| {
            let text = flag.strip_prefix("-XX:LargePageSizeInBytes=")?;
            PageSize::new(jvm_bytes(text)?.bytes()).ok()
        });
        figure.page_bytes = chosen.or(default);
        figure.parts = report.parts.clone();
        figure.pages = figure.page_bytes.map(|size| report.pages(size));
        figure
    }

    /// Redis never asks for pages of a pool.
    fn redis(&self) -> OwnFigure {
        let mut figure = self.nothing();
        figure.asks = Some(false);
        let command = &self.process.command;
        let flag = command.iter().position(|word| word == "--maxmemory");
        let given = flag.and_then(|at| command.get(at + 1)).and_then(|text| redis_bytes(text));
        let file = || {
            let path = command.get(1).filter(|word| word.starts_with('/'))?;
            if self.view != View::Same {
                return None;
            }
            let text = text_of(Path::new(path))?;
            text.lines().rev().find_map(|line| redis_bytes(line.trim().strip_prefix("maxmemory ")?))
        };
        match given.or_else(file) {
            Some(bytes) => {
                figure.source = Source::Settings;
                figure.bound = Bound::AtMost;
                figure.parts = vec![named("maxmemory", bytes)];
            }
            None => {
                figure.unknown =
                    Some("neither its command line nor a file named there sets maxmemory".into());
            }
        }
        figure
    }

    /// Runs the application's program and returns what it printed.
    fn ask(&self, arguments: &[String]) -> Result<String, String> {
        let program = self.program.display();
        if let Some(why) = self.view.obstacle(self.process.pid) {
            return Err(format!("{program} is not asked: {why}"));
        }
        let file = std::fs::metadata(&self.program)
            .map_err(|error| format!("{program} cannot be executed: {error}"))?;
        let mut command = Command::new(&self.program);
        let user = self.process.user.ok_or_else(|| "its user is unknown".to_string())?;
        let own = sys::param::effective_user();
        if user != own {
            if own != 0 {
                return Err(format!(
                    "it belongs to user {user}: run superpage as that user or root"
                ));
            }
            let group = self.group.ok_or_else(|| "its group is unknown".to_string())?;
            if file.uid() != 0 || file.mode() & 0o022 != 0 {
                return Err(format!(
                    "{program} is not executed, because others than root may write it: run superpage as user {user}"
                ));
            }
            command.gid(group).uid(user);
        }
        command.args(arguments).env_clear().env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
        output_of(command).map_err(|why| format!("{program}: {why}"))
    }
}

/// Longest time that a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest answer that is read, in bytes.
const LONGEST: u64 = 4 << 20;

fn output_of(mut command: Command) -> Result<String, String> {
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let read = output.map(|output| output.take(LONGEST).read_to_string(&mut text));
        read.and_then(Result::ok).map(|_| text)
    });
    let began = Instant::now();
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if began.elapsed() > PATIENCE => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("no answer in 20 s".to_string());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = reader.join().ok().flatten().ok_or_else(|| "its answer is not text".to_string())?;
    match status.success() {
        true => Ok(text),
        false => Err(format!("it refused to answer ({status})")),
    }
}

fn text_of(path: &Path) -> Option<String> {
    // A FIFO would block, and a device may have no end.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

fn named(name: &str, bytes: ByteSize) -> NamedBytes {
    NamedBytes { name: name.to_string(), bytes }
}

fn recognize(program: &Path, process: &Process) -> Option<Application> {
    let first = process.command.first()?;
    // Debian's redis-server is a link to redis-check-rdb; its name is that of the link.
    if ["redis-server", "valkey-server"].contains(&process.name.as_str()) {
        return Some(Application::Redis);
    }
    match program.file_name()?.to_str()? {
        // Children call themselves `postgres: checkpointer`.
        "postgres" | "postmaster" => (!first.contains(": ")).then_some(Application::Postgresql),
        "java" => Some(Application::Jvm),
        _ => None,
    }
}

/// `100mb` as redis.conf writes it: k, m and g are powers of 1000, kb, mb and gb of 1024.
fn redis_bytes(text: &str) -> Option<ByteSize> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes > 0).then_some(ByteSize(bytes))
}

/// Options that a JVM reads from its environment and that decide how much memory is reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct JvmVariables {
    /// `JAVA_TOOL_OPTIONS` and `JDK_JAVA_OPTIONS`: the command line overrides them.
    before: Vec<String>,
    /// `_JAVA_OPTIONS`, which overrides the command line.
    after: Vec<String>,
}

impl JvmVariables {
    /// From `/proc/PID/environ`.
    fn from_environment(environment: &[u8]) -> Self {
        let of = |name: &str| -> Vec<String> {
            let text = environment
                .split(|byte| *byte == 0)
                .find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            let text = String::from_utf8_lossy(text.unwrap_or_default()).into_owned();
            let words = text.split_ascii_whitespace();
            let words = words.map(|word| word.trim_matches(['"', '\'']).to_string());
            words.filter(|word| sizes_memory(word)).collect()
        };
        let mut before = of("JAVA_TOOL_OPTIONS");
        before.extend(of("JDK_JAVA_OPTIONS"));
        Self { before, after: of("_JAVA_OPTIONS") }
    }

    /// The flags in the order in which the JVM takes them; the last one of a name counts.
    fn around(&self, flags: Vec<String>) -> Vec<String> {
        self.before.iter().cloned().chain(flags).chain(self.after.iter().cloned()).collect()
    }
}

/// The flags of a java command line that decide how much memory is reserved. Others are left away: they may open files
/// or load agents.
fn jvm_flags(command: &[String]) -> Vec<String> {
    let mut flags = Vec::new();
    let mut words = command.iter().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-cp" | "-classpath" | "--class-path" | "-p" | "--module-path" => drop(words.next()),
            "-jar" | "-m" | "--module" => break,
            option if option.starts_with('-') => {
                flags.extend(sizes_memory(option).then(|| option.to_string()));
            }
            _ => break, // the class; what follows is the program's
        }
    }
    flags
}

/// Whether the words of a JVM turn a switch (`-XX:+NAME`, `-XX:-NAME`) on or off: the last one counts. `None`: neither.
pub fn jvm_switch(words: &[String], name: &str) -> Option<bool> {
    words.iter().rev().find_map(|word| {
        let switch = word.strip_prefix("-XX:")?;
        match (switch.strip_prefix('+'), switch.strip_prefix('-')) {
            (Some(on), _) if on == name => Some(true),
            (_, Some(off)) if off == name => Some(false),
            _ => None,
        }
    })
}

/// Whether a flag of a JVM decides how much memory is reserved.
fn sizes_memory(word: &str) -> bool {
    const SIZES: [&str; 12] = [
        "MaxHeapSize",
        "InitialHeapSize",
        "MaxRAM",
        "MaxRAMPercentage",
        "ReservedCodeCacheSize",
        "NonNMethodCodeHeapSize",
        "ProfiledCodeHeapSize",
        "NonProfiledCodeHeapSize",
        "LargePageSizeInBytes",
        "G1HeapRegionSize",
        "ParallelGCThreads",
        "MarkStackSizeMax",
    ];
    const SWITCHES: [&str; 9] = [
        "UnlockExperimentalVMOptions",
        "UnlockDiagnosticVMOptions",
        "UseLargePages",
        "UseTransparentHugePages",
        "UseSHM",
        "SegmentedCodeCache",
        "TieredCompilation",
        "UseCompressedOops",
        "UseContainerSupport",
    ];
    let sized = ["-Xmx", "-Xms", "-Xmn"].iter().any(|flag| word.starts_with(flag));
    let Some(option) = word.strip_prefix("-XX:") else { return sized };
    match option.strip_prefix(['+', '-']) {
        Some(name) => SWITCHES.contains(&name) || name.starts_with("Use") && name.ends_with("GC"),
        None => option.split_once('=').is_some_and(|(name, _)| SIZES.contains(&name)),
    }
}

/// What a JVM prints of its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
struct JvmReport {
    parts: Vec<NamedBytes>,
    bound: Bound,
}

impl JvmReport {
    /// Reads the lines of `-XX:+PrintFlagsFinal` and `-Xlog:pagesize`; `None` without `MaxHeapSize`.
    fn parse(text: &str) -> Option<Self> {
        let flag = |name: &str| {
            text.lines().find_map(|line| {
                let mut words = line.split_ascii_whitespace().skip(1);
                (words.next()? == name && words.next()?.ends_with('=')).then(|| words.next())?
            })
        };
        let bytes = |name: &str| flag(name).and_then(|text| text.parse().ok()).map(ByteSize);
        let is_on = |name: &str| flag(name) == Some("true");
        let mut parts = vec![named("heap", bytes("MaxHeapSize")?)];
        parts.extend(bytes("ReservedCodeCacheSize").map(|bytes| named("code cache", bytes)));
        let tables = text.lines().filter_map(|line| {
            // `[0.003s][info][pagesize] Prev Bitmap: req_size=8M base=0x0 page_size=4K alignment=4K size=8M`
            let (head, rest) = line.rsplit_once(']')?;
            let (name, sizes) = rest.trim().split_once(':')?;
            let is_table = head.contains("[pagesize") && sizes.contains(" base=");
            let is_counted = name == "Heap" || name.starts_with("CodeHeap") || name == "CodeCache";
            let size = sizes.split_ascii_whitespace().rev().find_map(|it| it.strip_prefix("size="));
            (is_table && !is_counted).then(|| Some(named(name, jvm_bytes(size?)?)))?
        });
        parts.extend(tables);
        let bound = match () {
            () if is_on("UseG1GC") && parts.len() > 2 => Bound::Exact,
            () if is_on("UseParallelGC") || is_on("UseSerialGC") || is_on("UseZGC") => {
                Bound::AtMost
            }
            () => Bound::AtLeast,
        };
        Some(Self { parts, bound })
    }

    /// Number of pages of `size`: each part is rounded up. A table smaller than a page stays on base pages.
    fn pages(&self, size: PageSize) -> u64 {
        let (reserved, tables) = self.parts.split_at(2.min(self.parts.len()));
        let tables = tables.iter().filter(|part| part.bytes.bytes() >= size.bytes());
        reserved.iter().chain(tables).map(|part| size.count(part.bytes.bytes())).sum()
    }
}

/// `5692K`, `2G` or `4194305B`, as JVMs print and read sizes.
fn jvm_bytes(text: &str) -> Option<ByteSize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).map(ByteSize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    fn size(bytes: u64) -> PageSize {
        PageSize::new(bytes).unwrap()
    }

    #[test]
    fn another_mount_namespace_is_told_by_both_names() {
        let link = |name: &str| Some(PathBuf::from(name));
        let why = |own, its| View::new(own, its).obstacle(Pid(7));
        assert_eq!(why(link("mnt:[1]"), link("mnt:[1]")), None);
        let other = why(link("mnt:[1]"), link("mnt:[2]")).unwrap();
        assert!(other.contains("superpage is in the mount namespace mnt:[1], pid 7 in mnt:[2];"));
        assert!(!other.contains("container"), "either may be the one inside: {other}");
        assert!(why(link("mnt:[1]"), None).unwrap().contains("is unknown"));
    }

    #[test]
    fn only_flags_that_size_memory_are_given_to_a_second_jvm() {
        let line = "java -Xmx2g -cp /x -javaagent:/evil.jar -XX:+UseLargePages -Xloggc:/log -XX:+UseSerialGC \
            -XX:OnOutOfMemoryError=/x -XX:ReservedCodeCacheSize=64m -Xrunhprof -jar app.jar -Xmx9g";
        assert_eq!(
            jvm_flags(&words(line)),
            ["-Xmx2g", "-XX:+UseLargePages", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=64m"]
        );
        assert_eq!(jvm_flags(&words("java -Xms1g Main -Xmx4g")), ["-Xms1g"]);
    }

    #[test]
    fn flags_in_the_environment_stand_around_those_of_the_command_line() {
        let environment =
            b"A=-Xmx1g\0JDK_JAVA_OPTIONS=\"-Xms2g\" -agentlib:x\0_JAVA_OPTIONS=-Xmx3g\0\
            JAVA_TOOL_OPTIONS=-XX:+UseLargePages  -javaagent:/evil.jar -Xmx4g\0";
        let flags = JvmVariables::from_environment(environment).around(vec!["-Xmx5g".into()]);
        assert_eq!(flags, ["-XX:+UseLargePages", "-Xmx4g", "-Xms2g", "-Xmx5g", "-Xmx3g"]);
        assert_eq!(JvmVariables::from_environment(b""), JvmVariables::default());
    }

    #[test]
    fn a_jvm_takes_heap_code_cache_and_the_tables_of_a_page_or_more() {
        // OpenJDK 17.0.15, -Xmx512m; on a pool that JVM took 384 pages.
        let text = "\
[0.001s][info   ][pagesize] CodeHeap 'non-nmethods':  min=2496K max=5692K base=0x00007f579c938000 page_size=4K size=5692K
[0.003s][info   ][pagesize] Heap:  min=8M max=512M base=0x00000000e0000000 page_size=4K size=512M
[0.003s][info   ][pagesize] Card Table: req_size=1M base=0x00007f57b2228000 page_size=4K alignment=4K size=1M
[0.003s][info   ][pagesize] Prev Bitmap: req_size=8M base=0x00007f57b1800000 page_size=4K alignment=4K size=8M
[0.003s][info   ][pagesize] Next Bitmap: req_size=8M base=0x00007f57b1000000 page_size=4K alignment=4K size=8M
   size_t MaxHeapSize                              = 536870912                                 {product} {command line}
    uintx ReservedCodeCacheSize                    = 251658240                              {pd product} {ergonomic}
     bool UseG1GC                                  = true                                      {product} {ergonomic}
";
        let report = JvmReport::parse(text).unwrap();
        assert_eq!((report.pages(size(2 << 20)), report.bound), (384, Bound::Exact));
        let names: Vec<&str> = report.parts.iter().map(|part| part.name.as_str()).collect();
        assert_eq!(names, ["heap", "code cache", "Card Table", "Prev Bitmap", "Next Bitmap"]);
        let bare = "  size_t MaxHeapSize := 1073741824 {product}\n bool UseShenandoahGC = true {product}\n";
        let report = JvmReport::parse(bare).unwrap();
        assert_eq!((report.pages(size(2 << 20)), report.bound), (512, Bound::AtLeast));
        assert_eq!(JvmReport::parse("openjdk version \"17\"\n"), None);
    }

    #[test]
    fn sizes_as_applications_write_them() {
        for (text, bytes) in [("100mb", 100 << 20), ("1G", 1_000_000_000), ("7", 7), ("2kb", 2048)]
        {
            assert_eq!(redis_bytes(text), Some(ByteSize(bytes)), "{text}");
        }
        for text in ["", "0", "x", "1q", "99999999999gb"] {
            assert_eq!(redis_bytes(text), None, "{text}");
        }
        assert_eq!(jvm_bytes("4194305B"), Some(ByteSize(4_194_305)));
        assert_eq!(jvm_bytes("99999999T"), None);
    }
}
