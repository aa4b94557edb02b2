//! Reading the files of a configuration.

use std::ffi::OsStr;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use design::{Design, DesignError};
use host::Root;
use regex::Regex;
use toml_keys::{DeValue, Field, FileError, Problem, Reader, quoted, word, wrong};
use units::ByteSize;

use super::{
    Amount, Conditions, Config, ConfigError, DROP_INS, Gets, Glob, Limits, MAIN, Machine, Mode,
    Override, Place, Rule, Sources, directory, keepable, known,
};

/// Maximum size of a file in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Maximum number of drop-ins.
const MAX_DROP_INS: usize = 256;
/// Maximum length of a command's name in bytes (`TASK_COMM_LEN` is 16, with the NUL).
const MAX_COMM: usize = 15;

/// Keys of `[manage]` and its tables that a file has.
#[derive(Default)]
struct Settings {
    mode: Option<Mode>,
    interval: Option<Duration>,
    cpu_share: Option<f64>,
    limits: SomeLimits,
    pressure: Option<f64>,
    free_memory: Option<Amount>,
    leave_alone: Option<Duration>,
}

/// Limits that a table has.
#[derive(Default)]
struct SomeLimits {
    collapses_per_second: Option<u32>,
    memory_headroom: Option<Amount>,
    longest_call: Option<Duration>,
    may_override: Option<Vec<Override>>,
}

/// A rule as it is written: what it leaves out, the machine's settings decide once all files are read.
struct Written {
    line: usize,
    conditions: Conditions,
    gets: Gets,
    mode: Option<Mode>,
    limits: SomeLimits,
}

/// Reads a configuration whole.
pub(super) fn read(root: &Root, sources: &Sources) -> Result<Config, ConfigError> {
    let texts = files(root, sources)?.into_iter().map(|file| (text(&file), file));
    combine(sources, texts.collect())
}

/// Reads the text of one file.
pub(super) fn parse(file: &Path, text: &str) -> Result<Config, ConfigError> {
    let texts = vec![(Ok(text.to_string()), file.to_path_buf())];
    combine(&Sources::File(file.to_path_buf()), texts)
}

/// Reads the texts of files as one configuration.
fn combine(
    sources: &Sources,
    texts: Vec<(Result<String, FileError>, PathBuf)>,
) -> Result<Config, ConfigError> {
    let (mut machine, mut rules, mut errors) = (Machine::default(), Vec::new(), Vec::new());
    for (text, file) in &texts {
        let read = text.as_ref().map_err(Clone::clone);
        match read.and_then(|text| read_file(file, text, &mut errors)) {
            Ok((settings, written)) => {
                settings.apply(&mut machine);
                rules.extend(written.into_iter().map(|one| (file, one)));
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(ConfigError { files: errors });
    }
    let rule = |(file, written): (&PathBuf, Written)| Rule {
        place: Place { file: file.clone(), line: written.line },
        conditions: written.conditions,
        gets: written.gets,
        mode: written.mode.unwrap_or(machine.mode),
        limits: written.limits.over(&machine.limits),
    };
    let rules = rules.into_iter().map(rule).collect();
    let files = texts.into_iter().map(|(_, file)| file).collect();
    Ok(Config { sources: sources.clone(), files, machine, rules })
}

/// The files of a configuration, in the order in which they are read.
fn files(root: &Root, sources: &Sources) -> Result<Vec<PathBuf>, ConfigError> {
    if let Sources::File(file) = sources {
        return Ok(vec![file.clone()]);
    }
    let (main, drop_ins) = (root.path(MAIN), root.path(DROP_INS));
    let names = match std::fs::read_dir(&drop_ins) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    let names: Vec<PathBuf> = names
        .map_err(|error: std::io::Error| error_of(&drop_ins, format!("cannot be read: {error}")))?;
    let is_toml = |path: &PathBuf| {
        let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
        name.ends_with(b".toml") && !name.starts_with(b".")
    };
    let mut found: Vec<PathBuf> = names.into_iter().filter(is_toml).collect();
    found.sort_unstable();
    if found.len() > MAX_DROP_INS {
        let what = format!("has {} files: at most {MAX_DROP_INS} are read", found.len());
        return Err(error_of(&drop_ins, what));
    }
    // Not `exists`: a main file that may not be looked at is an error, not absent.
    if std::fs::symlink_metadata(&main)
        .map_or_else(|error| error.kind() != std::io::ErrorKind::NotFound, |_| true)
    {
        found.insert(0, main.clone());
    }
    match found.is_empty() {
        true => Err(error_of(&main, "is missing: write it, or give another file with --config")),
        false => Ok(found),
    }
}

/// An error about a whole file.
fn of_file(file: &Path, what: impl Into<String>) -> FileError {
    let problem = Problem { line: None, key: String::new(), what: what.into() };
    FileError { file: file.display().to_string(), problems: vec![problem] }
}

fn error_of(file: &Path, what: impl Into<String>) -> ConfigError {
    ConfigError { files: vec![of_file(file, what)] }
}

/// Reads the text of a file that only root, or the user who runs this, may change.
fn text(file: &Path) -> Result<String, FileError> {
    let failed = |error: std::io::Error| of_file(file, format!("cannot be read: {error}"));
    if file.as_os_str().is_empty() {
        return Err(of_file(file, "is an empty file name: name a file"));
    }
    let opened = sys::trust::open_regular(file).map_err(failed)?;
    let opened = opened.ok_or_else(|| of_file(file, "is not a file: name a file of rules"))?;
    // As root only: what the file says, root does.
    sys::trust::check_as_root(file).map_err(|error| {
        of_file(file, format!("is not trusted: {error}; only root may be able to write it"))
    })?;
    let mut bytes = Vec::new();
    opened.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(of_file(file, "is longer than 1 MiB: name a file of rules"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        let what = "is not UTF-8 text".to_string();
        let problem = Problem { line: Some(line), key: String::new(), what };
        FileError { file: file.display().to_string(), problems: vec![problem] }
    })
}

/// Reads one file. Mistakes in files of designs that it names are added to `of_designs`.
fn read_file(
    file: &Path,
    text: &str,
    of_designs: &mut Vec<FileError>,
) -> Result<(Settings, Vec<Written>), FileError> {
    toml_keys::read(file.display(), text, |keys| {
        let mut settings = Settings::default();
        keys.table("manage", |keys| settings = Settings::read(keys));
        let mut rules = Vec::new();
        keys.tables("rule", |keys| rules.extend(rule(keys, directory(file), of_designs)));
        (settings, rules)
    })
}

impl Settings {
    fn read(keys: &mut Reader<'_>) -> Self {
        let mut settings = Self {
            mode: keys.optional("mode"),
            interval: time(
                keys,
                "interval",
                Duration::from_millis(100)..=Duration::from_secs(3600),
            ),
            cpu_share: percent(keys, "cpu-share", 0.01..=100.0),
            limits: SomeLimits::read(keys),
            ..Self::default()
        };
        keys.table("give-back", |keys| {
            settings.pressure = percent(keys, "pressure", 0.1..=100.0);
            settings.free_memory = keys.optional("free-memory");
            let (least, most) = (Duration::from_secs(1), Duration::from_secs(7 * 86_400));
            settings.leave_alone = time(keys, "leave-alone", least..=most);
        });
        settings
    }

    /// Sets what this file says; later files win.
    fn apply(self, machine: &mut Machine) {
        let set = |to: &mut Duration, value: Option<Duration>| *to = value.unwrap_or(*to);
        machine.mode = self.mode.unwrap_or(machine.mode);
        set(&mut machine.interval, self.interval);
        machine.cpu_share = self.cpu_share.unwrap_or(machine.cpu_share);
        machine.limits = self.limits.over(&machine.limits);
        let give_back = &mut machine.give_back;
        give_back.pressure = self.pressure.unwrap_or(give_back.pressure);
        give_back.free_memory = self.free_memory.unwrap_or(give_back.free_memory);
        set(&mut give_back.leave_alone, self.leave_alone);
    }
}

impl SomeLimits {
    fn read(keys: &mut Reader<'_>) -> Self {
        let (least, most) = (Duration::from_micros(100), Duration::from_secs(1));
        Self {
            collapses_per_second: keys.optional_within("collapses-per-second", 1..=100_000),
            memory_headroom: keys.optional("memory-headroom"),
            longest_call: time(keys, "longest-call", least..=most),
            may_override: keys.optional("may-override"),
        }
    }

    fn over(self, others: &Limits) -> Limits {
        Limits {
            collapses_per_second: self.collapses_per_second.unwrap_or(others.collapses_per_second),
            memory_headroom: self.memory_headroom.unwrap_or(others.memory_headroom),
            longest_call: self.longest_call.unwrap_or(others.longest_call),
            may_override: self.may_override.unwrap_or_else(|| others.may_override.clone()),
        }
    }
}

/// Reads a rule; `None` after a mistake.
fn rule(keys: &mut Reader<'_>, beside: &Path, of_designs: &mut Vec<FileError>) -> Option<Written> {
    let conditions = Conditions {
        unit: keys.optional("unit"),
        cgroup: keys.optional_by("cgroup", cgroup),
        comm: keys.optional_by("comm", comm),
        command: keys.optional_by("command", expression),
        user: keys.optional_by("user", user),
    };
    let has_conditions =
        ["unit", "cgroup", "comm", "command", "user"].iter().any(|name| keys.find(name).is_some());
    let has_design = keys.find("design").is_some();
    let design = keys.optional_by("design", |value| gets(value, beside, of_designs));
    let alone = keys.optional_by("leave-alone", |value| match bool::read(value)? {
        true => Ok(()),
        false => Err("is false: must be true, or the rule a design".to_string()),
    });
    let has_alone = keys.find("leave-alone").is_some();
    let mode = keys.optional("mode");
    let limits = SomeLimits::read(keys);
    let line = keys.line_here();
    match (has_design, has_alone) {
        (true, true) => {
            keys.problem_here("has both design and leave-alone: keep one of them");
            return None;
        }
        (false, false) => {
            let what =
                "is missing: must be a design such as \"sync-64\", or write leave-alone = true";
            keys.problem(line, "rule.design".to_string(), what.to_string());
            return None;
        }
        _ => {}
    }
    let gets = match (design, alone) {
        (Some(Some(gets)), _) => gets,
        (_, Some(())) => Gets::Nothing,
        _ => return None,
    };
    if !has_conditions && !matches!(gets, Gets::AsRequested) {
        keys.problem_here(
            "matches every process: give unit, cgroup, comm, command or user; all processes are cgroup = \"/\"",
        );
        return None;
    }
    if matches!(gets, Gets::Nothing) {
        for name in
            ["mode", "collapses-per-second", "memory-headroom", "longest-call", "may-override"]
        {
            if let Some(found) = keys.find(name) {
                let what = "has no effect: the rule leaves its processes alone".to_string();
                keys.problem(found.line, found.key, what);
            }
        }
    }
    Some(Written { line, conditions, gets, mode, limits })
}

/// Reads what a rule's processes get; `None`: a file of a design with mistakes, which were added to `of_designs`.
fn gets(
    value: &DeValue<'_>,
    beside: &Path,
    of_designs: &mut Vec<FileError>,
) -> Result<Option<Gets>, String> {
    let allowed = "a design's name, its file, or \"as-requested\"";
    let name = value.as_str().ok_or_else(|| wrong(value, allowed))?;
    if name == "as-requested" {
        return Ok(Some(Gets::AsRequested));
    }
    let design = match name.contains('/') || name.ends_with(".toml") {
        true => match from_file(&beside.join(name)) {
            Ok(design) => design,
            Err(error) => {
                of_designs.push(error);
                return Ok(None);
            }
        },
        false => known(name)?,
    };
    keepable(design).map(|design| Some(Gets::Design(design)))
}

/// Reads a design's file.
fn from_file(file: &Path) -> Result<Design, FileError> {
    let text = text(file)?;
    Design::from_toml(&file.display().to_string(), &text).map_err(|error| match error {
        DesignError::File { file, problems } => FileError { file, problems },
        unknown @ DesignError::Unknown { .. } => of_file(file, unknown.to_string()),
    })
}

/// Reads the pattern of a cgroup's path, with or without the mount point.
fn cgroup(value: &DeValue<'_>) -> Result<Glob, String> {
    let allowed = "a cgroup's path as in /proc/PID/cgroup, in which * stands for any text but /";
    let text = value.as_str().ok_or_else(|| wrong(value, allowed))?;
    if text.starts_with("/sys/fs/cgroup") {
        return Err(format!("{} has the mount point: must be {allowed}", quoted(text)));
    }
    match text.strip_prefix('/') {
        Some("") => Glob::new("/"),
        Some(_) => Glob::new(text.trim_end_matches('/')),
        None => Err(format!("{} has no slash in front: must be {allowed}", quoted(text))),
    }
}

/// Reads the pattern of a command's name.
fn comm(value: &DeValue<'_>) -> Result<Glob, String> {
    let glob = Glob::read(value)?;
    if glob.is_plain() && glob.as_str().len() > MAX_COMM {
        let text = glob.as_str();
        let mut cut = MAX_COMM;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        return Err(format!(
            "{} is longer than {MAX_COMM} bytes, at which the kernel cuts names: write {}, or use command",
            quoted(text),
            quoted(&format!("{}*", &text[..cut.min(MAX_COMM)])),
        ));
    }
    Ok(glob)
}

/// Reads a regular expression.
fn expression(value: &DeValue<'_>) -> Result<Regex, String> {
    let allowed = "a regular expression in quotes";
    let text = value.as_str().ok_or_else(|| wrong(value, allowed))?;
    if text.is_empty() {
        return Err(
            "is empty, which matches every process: all processes are cgroup = \"/\"".to_string()
        );
    }
    Regex::new(text).map_err(|error| {
        let reason = report::format::regex_reason(error);
        format!("{} is no regular expression: {reason}", quoted(text))
    })
}

/// Reads a user's name or number.
fn user(value: &DeValue<'_>) -> Result<u32, String> {
    let Some(name) = value.as_str() else {
        return u32::read(value).map_err(|_| wrong(value, "a user's name in quotes, or number"));
    };
    match sys::user::User::find(name) {
        Ok(Some(user)) => Ok(user.id),
        Ok(None) => {
            Err(format!("no user is called {}: must be a user's name, or number", quoted(name)))
        }
        Err(error) => {
            Err(format!("the name of a user cannot be looked up: {error}; give the number"))
        }
    }
}

/// Reads a time within a range.
fn time(
    keys: &mut Reader<'_>,
    name: &'static str,
    range: RangeInclusive<Duration>,
) -> Option<Duration> {
    keys.optional_shown_within(name, range, |time| format!("{time:?}"))
}

/// Reads a share in percent within a range.
fn percent(keys: &mut Reader<'_>, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
    keys.optional_by(name, |value| {
        let allowed = "a share in percent like \"5%\"";
        let text = value.as_str().ok_or_else(|| wrong(value, allowed))?;
        match share(text) {
            Some(share) if range.contains(&share) => Ok(share),
            Some(_) => Err(format!(
                "{text} is out of range: must be from {}% to {}%",
                range.start(),
                range.end()
            )),
            None => Err(format!("{} is no share: must be {allowed}", quoted(text))),
        }
    })
}

/// Parses a share such as `5%`.
fn share(text: &str) -> Option<f64> {
    let number: f64 = text.strip_suffix('%')?.trim_end().parse().ok()?;
    number.is_finite().then_some(number)
}

impl Field for Mode {
    fn allowed() -> String {
        "\"observe\" or \"enforce\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        word(value, &[("observe", Self::Observe), ("enforce", Self::Enforce)])
    }
}

impl Field for Amount {
    fn allowed() -> String {
        "a share of all memory or a size, like \"5%\" or \"2G\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| wrong(value, &Self::allowed()))?;
        let no_amount = || format!("{} is no amount: must be {}", quoted(text), Self::allowed());
        match text.ends_with('%') {
            true => match share(text).ok_or_else(no_amount)? {
                share if (0.0..=90.0).contains(&share) => Ok(Self::Percent(share)),
                _ => Err(format!("{text} is out of range: must be from 0% to 90%")),
            },
            false => text.parse::<ByteSize>().map(Self::Bytes).map_err(|_| no_amount()),
        }
    }
}

/// Words for what forbids superpages to MADV_COLLAPSE too, with the reason: see docs/decisions/manage.md#2.
const REFUSED: [(&str, &str); 3] = [
    ("nohugepage", "MADV_COLLAPSE of memory with MADV_NOHUGEPAGE fails (EINVAL)"),
    ("prctl", "MADV_COLLAPSE in a process with PR_SET_THP_DISABLE fails (EINVAL)"),
    (
        "memory-thp",
        "MemoryTHP=disable is PR_SET_THP_DISABLE, with which MADV_COLLAPSE fails (EINVAL)",
    ),
];

impl Field for Override {
    fn allowed() -> String {
        "\"thp-never\" or \"userfaultfd\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let words = [("thp-never", Self::ThpNever), ("userfaultfd", Self::Userfaultfd)];
        let refused = REFUSED.iter().find(|(name, _)| value.as_str() == Some(*name));
        match refused {
            Some((name, why)) => Err(format!("{} cannot be overridden: {why}", quoted(name))),
            None => word(value, &words),
        }
    }
}
