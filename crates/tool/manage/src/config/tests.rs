use super::*;

/// Writes the files below a fake root and reads them as the system's configuration.
struct System {
    dir: tempfile::TempDir,
    root: Root,
}

impl System {
    fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let system = Self { dir, root };
        for (name, text) in files {
            system.write(name, text);
        }
        system
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("etc/superpage").join(name)
    }

    fn read(&self) -> Result<Config, ConfigError> {
        Config::read(&self.root, &Sources::System)
    }
}

/// Reads one file.
fn read(text: &str) -> Result<Config, ConfigError> {
    System::new(&[("manage.toml", text)]).read()
}

/// The lines of the errors of one file, without its directory.
fn mistakes(text: &str) -> Vec<String> {
    let lines = read(text).map(drop).unwrap_err().lines().collect::<Vec<_>>();
    let name = |line: String| line.rsplit_once("etc/superpage/").unwrap().1.to_string();
    lines.into_iter().map(name).collect()
}

fn process(name: &str, command: &str, cgroup: &str, user: u32) -> Process {
    let unit = cgroup.rsplit('/').find(|part| part.contains(".s"));
    Process {
        pid: units::Pid(7),
        start_ticks: 1,
        parent: units::Pid(1),
        name: name.to_string(),
        command: command.split(' ').map(str::to_string).collect(),
        user: Some(user),
        cgroup: (!cgroup.is_empty()).then(|| cgroup.to_string()),
        unit: unit.map(str::to_string),
    }
}

fn never() -> Request {
    panic!("the environment is not needed")
}

/// The design, or a word for what else is decided, and the line of the rule.
fn decided(config: &Config, process: &Process, request: impl FnOnce() -> Request) -> String {
    let decision = config.decide(process, request);
    let line = decision.rule.map_or(0, |rule| rule.place.line);
    let what = match &decision.outcome {
        Outcome::Unmatched => "unmatched".to_string(),
        Outcome::LeaveAlone => "left alone".to_string(),
        Outcome::BadRequest { asked, .. } => format!("bad {asked}"),
        Outcome::UnknownRequest { .. } => "unknown".to_string(),
        Outcome::UnknownLimits => "unknown limits".to_string(),
        Outcome::Keep(design) => design.name.clone(),
    };
    format!("{what} {line}")
}

#[test]
fn an_empty_file_observes_with_the_defaults_and_every_key_is_read() {
    let empty = read("").unwrap();
    assert_eq!((&empty.machine, empty.rules.len()), (&Machine::default(), 0));
    assert_eq!(empty.machine.mode, Mode::Observe);
    let config = read(
        r#"
[manage]
mode = "enforce"
interval = "2s"
cpu-share = "0.5%"
collapses-per-second = 7
memory-headroom = "3G"
longest-call = "2ms"
may-override = ["thp-never", "userfaultfd"]
[manage.give-back]
pressure = "20%"
free-memory = "2.5%"
leave-alone = "1h"

[[rule]]
comm = "redis*"
design = "sync-64"
mode = "observe"
collapses-per-second = 8
memory-headroom = "0%"
longest-call = "500us"
may-override = []

[[rule]]
user = 33
design = "sync-64"
"#,
    )
    .unwrap();
    let limits = Limits {
        collapses_per_second: 7,
        memory_headroom: Amount::Bytes(ByteSize::gib(3)),
        longest_call: Duration::from_millis(2),
        may_override: vec![Override::ThpNever, Override::Userfaultfd],
    };
    let give_back = GiveBack {
        pressure: 20.0,
        free_memory: Amount::Percent(2.5),
        leave_alone: Duration::from_secs(3600),
    };
    let (mode, interval) = (Mode::Enforce, Duration::from_secs(2));
    let machine = Machine { mode, interval, cpu_share: 0.5, limits: limits.clone(), give_back };
    assert_eq!(config.machine, machine);
    let [own, others] = &config.rules[..] else { panic!("two rules") };
    let of_rule = Limits {
        collapses_per_second: 8,
        memory_headroom: Amount::Percent(0.0),
        longest_call: Duration::from_micros(500),
        may_override: Vec::new(),
    };
    assert_eq!((own.mode, &own.limits), (Mode::Observe, &of_rule));
    assert_eq!((others.mode, &others.limits), (Mode::Enforce, &limits));
    let total = ByteSize::gib(8);
    assert_eq!(Amount::Percent(2.5).bytes(total), ByteSize(total.bytes() / 40));
}

#[test]
fn every_mistake_is_told_with_its_line_and_what_would_be_right() {
    let rule = |keys: &str| format!("[[rule]]\ncomm = \"x\"\n{keys}\n");
    for (text, line, expected) in [
        ("[mange]\n", 1, &["unknown key: did you mean `manage`?"][..]),
        ("[manage]\nmod = \"enforce\"", 2, &["manage.mod", "did you mean `mode`?"]),
        ("[manage]\nmode = \"enfroce\"", 2, &["manage.mode", "did you mean \"enforce\"?"]),
        ("[manage]\ninterval = 3", 2, &["manage.interval: is an integer", "10s"]),
        ("[manage]\ninterval = \"1ms\"", 2, &["1ms is out of range", "100ms"]),
        ("[manage]\ncpu-share = 1", 2, &["manage.cpu-share", "\"5%\""]),
        ("[manage]\ncpu-share = \"101%\"", 2, &["101% is out of range", "100%"]),
        ("[manage]\ncpu-share = \"NaN%\"", 2, &["is no share"]),
        ("[manage]\ncollapses-per-second = 0", 2, &["0 is out of range: must be from 1"]),
        ("[manage]\ncollapses-per-second = \"x\"", 2, &["must be a whole number"]),
        ("[manage]\nmemory-headroom = \"91%\"", 2, &["from 0% to 90%"]),
        ("[manage]\nmemory-headroom = \"much\"", 2, &["is no amount", "2G"]),
        ("[manage]\nmemory-headroom = 5", 2, &["is an integer", "2G"]),
        ("[manage]\nlongest-call = \"2s\"", 2, &["2s is out of range", "1s"]),
        ("[manage]\nmay-override = \"x\"", 2, &["must be a list"]),
        ("[manage]\nmay-override = [\"thp-nver\"]", 2, &["did you mean \"thp-never\"?"]),
        ("[manage]\nmay-override = [\"nohugepage\"]", 2, &["cannot be overridden", "EINVAL"]),
        ("[manage]\nmay-override = [\"prctl\"]", 2, &["PR_SET_THP_DISABLE", "EINVAL"]),
        ("[manage]\nmay-override = [\"memory-thp\"]", 2, &["MemoryTHP=", "EINVAL"]),
        ("[manage]\ngive-back = 3", 2, &["expected a table"]),
        ("[manage.give-back]\npresure = \"5%\"", 2, &["did you mean `pressure`?"]),
        ("[manage.give-back]\npressure = \"0%\"", 2, &["0% is out of range"]),
        ("[manage.give-back]\nfree-memory = \"\"", 2, &["is no amount"]),
        ("[manage.give-back]\nleave-alone = \"0s\"", 2, &["out of range", "from 1s"]),
        ("rule = 3", 1, &["must be tables: write [[rule]]"]),
        ("[rule]\ncomm = \"x\"", 1, &["must be tables: write [[rule]]"]),
        ("[[rule]]\ndesign = \"sync-64\"", 1, &["matches every process", "cgroup = \"/\""]),
        ("[[rule]]\nleave-alone = true", 1, &["matches every process"]),
        (&rule(""), 1, &["rule.design: is missing", "leave-alone = true"]),
        (&rule("design = \"sync-64\"\nleave-alone = true"), 1, &["keep one of them"]),
        (&rule("leave-alone = false"), 3, &["is false: must be true"]),
        (&rule("leave-alone = true\nmode = \"observe\""), 4, &["rule.mode", "has no effect"]),
        (&rule("desing = \"sync-64\""), 3, &["did you mean `design`?"]),
        (&rule("design = 3"), 3, &["is an integer", "as-requested"]),
        (
            &rule("design = \"sync64\""),
            3,
            &["unknown design", "did you mean \"sync-64\"?", "for least memory"],
        ),
        (&rule("design = \"hugetlb\""), 3, &["pages of a pool"]),
        (&rule("design = \"base\""), 3, &["makes no superpages", "leave-alone = true"]),
        (
            &rule("design = \"hawkeye\""),
            3,
            &["cannot be kept in force", "not known beside a program"],
        ),
        (&rule("design = \"ideal\""), 3, &["cannot be kept in force"]),
        (&rule("design = \"sync-64\"\nmode = 1"), 4, &["rule.mode"]),
        (&rule("design = \"sync-64\"\nlongest-call = \"1\""), 4, &["rule.longest-call", "10s"]),
        ("[[rule]]\nunit = \"\"\ndesign = \"sync-64\"", 2, &["rule.unit: is empty"]),
        ("[[rule]]\nunit = 3\ndesign = \"sync-64\"", 2, &["rule.unit: is an integer"]),
        ("[[rule]]\ncgroup = \"x\"\ndesign = \"sync-64\"", 2, &["no slash in front"]),
        ("[[rule]]\ncgroup = \"/sys/fs/cgroup/x\"\ndesign = \"sync-64\"", 2, &["mount point"]),
        (
            "[[rule]]\ncomm = \"elasticsearch-server\"\ndesign = \"sync-64\"",
            2,
            &["longer than 15 bytes", "\"elasticsearch-s*\""],
        ),
        ("[[rule]]\ncommand = \"(\"\ndesign = \"sync-64\"", 2, &["unclosed group"]),
        ("[[rule]]\ncommand = \"\"\ndesign = \"sync-64\"", 2, &["matches every process"]),
        ("[[rule]]\nuser = -1\ndesign = \"sync-64\"", 2, &["rule.user"]),
        ("[[rule]]\nuser = \"no such user\"\ndesign = \"sync-64\"", 2, &["no user is called"]),
    ] {
        let found = mistakes(text);
        let [found] = &found[..] else { panic!("{text}: {found:#?}") };
        assert!(found.starts_with(&format!("manage.toml:{line}: ")), "{text}: {found}");
        assert!(expected.iter().all(|word| found.contains(word)), "{text}: {found}");
    }
    let all = mistakes("[manage]\nmode = 1\n[[rule]]\ncomm = 1\ndesign = 1\n[[rule]]\nx = 1\n");
    let places: Vec<&str> = all.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected = [2, 4, 5, 6, 7].map(|line| format!("manage.toml:{line}:"));
    assert_eq!(places, expected, "{all:#?}");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let config = read(
        r#"
[[rule]]
unit = "postgresql@*.service"
user = 26
design = "sync-1"

[[rule]]
unit = "redis"
leave-alone = true

[[rule]]
comm = "redis*"
design = "sync-64"

[[rule]]
cgroup = "/kubepods.slice/*"
command = "java .*-Xmx"
design = "async-64"

[[rule]]
cgroup = "/machine.slice"
design = "async-256"
"#,
    )
    .unwrap();
    for (process, expected) in [
        (process("postgres", "postgres", "/system.slice/postgresql@15.service", 26), "sync-1 2"),
        (process("postgres", "postgres", "/system.slice/postgresql@15.service", 0), "unmatched 0"),
        (process("redis-server", "redis", "/system.slice/redis.service/inner", 1), "left alone 7"),
        (process("redis-server", "redis", "/user.slice/redis.scope", 1), "left alone 7"),
        (process("redis-server", "redis", "/system.slice/redisx.service", 1), "sync-64 11"),
        (process("redis-server", "redis", "/redis/x", 1), "sync-64 11"),
        (process("xredis", "redis", "/redis/x", 1), "unmatched 0"),
        (process("java", "java -Xmx4g a", "/kubepods.slice/pod1/c", 1), "quicksilver-async-64 15"),
        (process("java", "java -Xmx4g a", "/kubepods.slice", 1), "unmatched 0"),
        (process("java", "java a", "/kubepods.slice/pod1/c", 1), "unmatched 0"),
        (process("qemu", "qemu", "/machine.slice/vm.scope", 1), "quicksilver-async-256 20"),
        (process("qemu", "qemu", "/machine.slicer", 1), "unmatched 0"),
        (process("qemu", "qemu", "", 1), "unmatched 0"),
    ] {
        let found = decided(&config, &process, never).replace("quicksilver-sync", "sync");
        assert_eq!(found, expected, "{process:?}");
    }
    let all = read("[[rule]]\ncgroup = \"/\"\nleave-alone = true").unwrap();
    for cgroup in ["", "/", "/a/b"] {
        assert_eq!(decided(&all, &process("a", "a", cgroup, 1), never), "left alone 1");
    }
}

#[test]
fn a_process_whose_limits_are_hidden_gets_nothing() {
    let config = read(
        "[[rule]]\ncomm = \"a\"\ndesign = \"sync-64\"\n[[rule]]\ncomm = \"b\"\nleave-alone = true\n",
    )
    .unwrap();
    for (name, cgroup, expected) in [
        ("a", "/../pod2/c", "unknown limits 1"),
        ("a", "/pod..2/c", "quicksilver-sync-64 1"),
        ("b", "/../pod2/c", "left alone 4"),
        ("c", "/../pod2/c", "unmatched 0"),
    ] {
        assert_eq!(decided(&config, &process(name, name, cgroup, 1), never), expected);
    }
}

#[test]
fn a_program_that_asks_gets_what_it_asks_for_and_others_go_on_to_the_next_rule() {
    let config = read(
        "[[rule]]\ncgroup = \"/a\"\ndesign = \"as-requested\"\n\
         [[rule]]\ndesign = \"as-requested\"\n[[rule]]\ncgroup = \"/\"\ndesign = \"async-64\"\n",
    )
    .unwrap();
    let (inside, outside) = (process("a", "a", "/a/b", 1), process("a", "a", "/c", 1));
    let asks = |name: &str| Request::Design(name.to_string());
    for (process, request, expected) in [
        (&inside, asks("sync-64"), "quicksilver-sync-64 1"),
        (&outside, asks("sync-64"), "quicksilver-sync-64 4"),
        (&inside, Request::None, "quicksilver-async-64 6"),
        (&inside, asks("hugetlb"), "bad hugetlb 1"),
        (&inside, asks("/etc/passwd"), "bad /etc/passwd 1"),
        (&inside, asks("own/x.toml"), "bad own/x.toml 1"),
        (&inside, asks("as-requested"), "bad as-requested 1"),
        (&inside, Request::Unknown("x".to_string()), "unknown 1"),
    ] {
        assert_eq!(decided(&config, process, || request.clone()), expected, "{request:?}");
    }
    // No other rule reads environments.
    let config = read("[[rule]]\ncomm = \"b\"\ndesign = \"as-requested\"").unwrap();
    assert_eq!(decided(&config, &inside, never), "unmatched 0");
}

#[test]
fn drop_ins_are_read_in_the_order_of_their_names_and_the_last_setting_wins() {
    let rule = |comm: &str| format!("[[rule]]\ncomm = \"{comm}\"\nleave-alone = true\n");
    let system = System::new(&[
        ("manage.d/20-b.toml", &("[manage]\nmode = \"observe\"\n".to_string() + &rule("b"))),
        (
            "manage.d/10-a.toml",
            &("[manage]\nmode = \"enforce\"\ninterval = \"5s\"\n".to_string() + &rule("a")),
        ),
        (
            "manage.toml",
            &("[manage]\ninterval = \"9s\"\ncpu-share = \"2%\"\n".to_string() + &rule("main")),
        ),
        ("manage.d/.hidden.toml", "not TOML"),
        ("manage.d/30-c.toml~", "not TOML"),
        ("manage.d/README", "not TOML"),
    ]);
    let config = system.read().unwrap();
    let order = |config: &Config| {
        let comm = |rule: &Rule| rule.conditions.comm.as_ref().unwrap().to_string();
        config.rules.iter().map(comm).collect::<Vec<_>>()
    };
    assert_eq!(order(&config), ["main", "a", "b"]);
    let machine =
        Machine { interval: Duration::from_secs(5), cpu_share: 2.0, ..Machine::default() };
    assert_eq!(config.machine, machine);
    let files = ["manage.toml", "manage.d/10-a.toml", "manage.d/20-b.toml"];
    assert_eq!(config.files, files.map(|name| system.path(name)));
    // The mode of a later file holds for rules of earlier ones.
    system.write("manage.d/90-x.toml", "[manage]\nmode = \"enforce\"\n");
    assert!(system.read().unwrap().rules.iter().all(|rule| rule.mode == Mode::Enforce));
    std::fs::remove_file(system.path("manage.toml")).unwrap();
    assert_eq!(order(&system.read().unwrap()), ["a", "b"]);
    // Mistakes of all files are told.
    system.write("manage.d/10-a.toml", "x = 1");
    system.write("manage.d/20-b.toml", "y = 1");
    let lines: Vec<String> = system.read().unwrap_err().lines().collect();
    assert!(
        lines[0].contains("10-a.toml:1: x") && lines[1].contains("20-b.toml:1: y"),
        "{lines:?}"
    );
}

#[test]
fn a_configuration_that_is_not_there_is_an_error() {
    let system = System::new(&[]);
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("manage.toml: is missing") && error.contains("--config"), "{error}");
    let named = Sources::File(system.path("other.toml"));
    let error = Config::read(&system.root, &named).unwrap_err().to_string();
    assert!(error.contains("other.toml: cannot be read"), "{error}");
    let empty = Sources::File(PathBuf::new());
    Config::read(&system.root, &empty).unwrap_err();
    // The system's files are not read if one is named.
    let system = System::new(&[("manage.toml", "not TOML"), ("other.toml", "")]);
    let named = Sources::File(system.path("other.toml"));
    assert_eq!(Config::read(&system.root, &named).unwrap().files, [system.path("other.toml")]);
}

#[test]
fn a_reload_with_a_typo_keeps_what_is_in_force() {
    let system = System::new(&[("manage.toml", "[manage]\nmode = \"enforce\"\n")]);
    let mut config = system.read().unwrap();
    system.write("manage.toml", "[manage]\nmode = \"enforced\"\ninterval = \"7s\"\n");
    let error = config.reload(&system.root).unwrap_err().to_string();
    assert!(error.contains("manage.toml:2: manage.mode"), "{error}");
    assert_eq!(config.machine.mode, Mode::Enforce);
    assert_eq!(config.machine.interval, Machine::default().interval);
    system.write("manage.toml", "[manage]\nmode = \"observe\"\ninterval = \"7s\"\n");
    config.reload(&system.root).unwrap();
    assert_eq!(config.machine.mode, Mode::Observe);
    assert_eq!(config.machine.interval, Duration::from_secs(7));
}

#[test]
fn a_hostile_file_is_an_error_and_holds_nothing_up() {
    let deep = format!("a = {}{}", "[".repeat(200_000), "]".repeat(200_000));
    let tables = format!("a = {}1{}", "{a=".repeat(100_000), "}".repeat(100_000));
    let dotted = format!("{}b = 1", "a.".repeat(200_000));
    for (text, expected) in [
        (format!("# {}", "x".repeat(1 << 20)).into_bytes(), "longer than 1 MiB"),
        (format!("x = \"{}\"", "x".repeat((1 << 20) - 10)).into_bytes(), "unknown key"),
        (b"[manage]\nmode = \"enf\0orce\"".to_vec(), "manage.toml:2: invalid TOML"),
        (b"[manage]\n# \xff\nmode = \"enforce\"".to_vec(), "manage.toml:2: is not UTF-8"),
        (deep.into_bytes(), "invalid TOML"),
        (tables.into_bytes(), "invalid TOML"),
        (dotted.into_bytes(), "invalid TOML"),
        (b"[[rule]\n".to_vec(), "manage.toml:1: invalid TOML"),
    ] {
        let system = System::new(&[]);
        system.write("manage.toml", &text);
        let error = system.read().unwrap_err();
        let lines: Vec<String> = error.lines().collect();
        assert!(lines[0].contains(expected), "{expected}: {:.200}", lines[0]);
        assert!(lines.len() < 10, "{expected}: {}", lines.len());
    }
    let system = System::new(&[]);
    std::fs::create_dir_all(system.path("manage.toml")).unwrap();
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
    std::fs::remove_dir(system.path("manage.toml")).unwrap();
    let fifo = system.path("manage.toml");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
}

#[test]
fn a_file_that_others_may_write_is_not_read_by_root() {
    use std::os::unix::fs::PermissionsExt;
    testkit::require!(sys::param::effective_user() == 0, "needs root");
    let system = System::new(&[("manage.toml", ""), ("mine.toml", "")]);
    let open = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(system.path("manage.toml"), open.clone()).unwrap();
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("is not trusted") && error.contains("666"), "{error}");
    // A design's file is not either.
    std::fs::remove_file(system.path("manage.toml")).unwrap();
    system.write("manage.toml", "[[rule]]\ncomm = \"x\"\ndesign = \"mine.toml\"\n");
    std::fs::set_permissions(system.path("mine.toml"), open).unwrap();
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("mine.toml: is not trusted"), "{error}");
}

#[test]
fn a_design_of_ones_own_is_read_from_beside_the_configuration() {
    let text = designs::preset("sync-64").unwrap().text;
    let mine = text.replacen("name = \"quicksilver-sync-64\"", "name = \"mine\"", 1);
    let system = System::new(&[
        ("manage.d/a.toml", "[[rule]]\ncomm = \"x\"\ndesign = \"mine.toml\"\n"),
        ("manage.d/b.toml", "[[rule]]\ncomm = \"y\"\ndesign = \"../own/mine.toml\"\n"),
        ("own/mine.toml", &mine),
    ]);
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("manage.d/mine.toml: "), "{error}");
    system.write("manage.d/a.toml", "");
    let config = system.read().unwrap();
    assert_eq!(decided(&config, &process("y", "y", "", 1), never), "mine 1");
    system.write("own/mine.toml", "name = \"mine\"\nallocation.efort = 1\n");
    let error = system.read().unwrap_err().to_string();
    assert!(error.contains("own/mine.toml:2: allocation.efort"), "{error}");
}

#[test]
fn designs_that_can_be_kept_in_force() {
    let kept: Vec<&str> = designs::list()
        .iter()
        .filter(|preset| keepable(preset.design().unwrap()).is_ok())
        .map(|preset| preset.name)
        .collect();
    for name in ["quicksilver-sync-1", "quicksilver-sync-64", "quicksilver-async-64", "navarro"] {
        assert!(kept.contains(&name), "{name}: {kept:?}");
    }
    let guide = include_str!("../../../../../docs/guide/manage.md");
    for choice in &CHOICES {
        let row = format!("| {} | `{}` | {} |", choice.purpose, choice.design, choice.what);
        assert!(guide.contains(&row), "the guide has no row {row}");
        let preset = designs::preset(choice.design).unwrap();
        assert!(kept.contains(&preset.name), "{choice:?}: {kept:?}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(testkit::cases(500) as u32))]

    /// Keys and values at random places: an error with lines, or a configuration.
    #[test]
    fn any_file_is_read_or_has_mistakes_with_lines(
        lines in proptest::collection::vec(
            (proptest::sample::select(KEYS.to_vec()), proptest::sample::select(VALUES.to_vec())),
            0..12,
        ),
    ) {
        let text: String = lines.iter().map(|(key, value)| match key.starts_with('[') {
            true => format!("{key}\n"),
            false => format!("{key} = {value}\n"),
        }).collect();
        match Config::from_toml(Path::new("x.toml"), &text) {
            Ok(config) => {
                for rule in &config.rules {
                    assert!(rule.place.line <= text.lines().count(), "{text}");
                }
            }
            Err(error) => for line in error.lines() {
                assert!(line.starts_with("x.toml:") && line.len() > 12, "{text}: {line}");
                assert!(!line.contains('\n'), "{text}: {line}");
            },
        }
    }
}

const KEYS: [&str; 16] = [
    "[manage]",
    "[manage.give-back]",
    "[[rule]]",
    "[[rule]]",
    "mode",
    "interval",
    "cpu-share",
    "memory-headroom",
    "may-override",
    "unit",
    "comm",
    "command",
    "user",
    "design",
    "leave-alone",
    "pressure",
];
const VALUES: [&str; 16] = [
    "\"enforce\"",
    "\"1s\"",
    "\"5%\"",
    "\"2G\"",
    "[\"thp-never\"]",
    "\"x*\"",
    "\"\"",
    "\"(\"",
    "0",
    "-1",
    "1e99",
    "true",
    "\"sync-64\"",
    "\"as-requested\"",
    "{}",
    "[[[]]]",
];
