//! `Finding`: what is wrong, by which files, and what mends it.

use serde::Serialize;
use units::PageSize;

use crate::facts::Setting;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Good to know; may be set on purpose.
    Note,
    /// Costs speed, memory or superpages.
    Warning,
    /// Something that was asked for does not work.
    Error,
}

/// A file and what was read in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The file's absolute path, with a line number after `:` where lines matter.
    pub file: String,
    /// The value.
    pub value: String,
}

/// A finding of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub id: &'static str,
    /// How bad.
    pub severity: Severity,
    /// What was found, in one sentence.
    pub what: String,
    /// The files that say so.
    pub evidence: Vec<Evidence>,
    /// Why it matters, in one sentence.
    pub why: &'static str,
    /// What mends it.
    pub remedy: Remedy,
}

/// What mends a finding now, and what keeps it mended after a reboot. Either may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Remedy {
    /// Commands for now, in order.
    pub now: Vec<Step>,
    /// Files and boot parameters.
    pub lasting: Vec<Lasting>,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Step {
    /// Write a value to a file of the kernel.
    Write {
        /// The file.
        file: String,
        /// The value.
        value: String,
    },
    /// Set the size of a pool.
    Pool {
        /// The page size.
        size: PageSize,
        /// Number of pages wanted.
        pages: u64,
    },
    /// Run a program; its words.
    Run {
        /// Program and arguments.
        words: Vec<String>,
    },
}

/// What keeps a setting after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Lasting {
    /// A line in a file of `/etc/sysctl.d`.
    Sysctl {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// A line of tmpfiles.d(5) that writes a value to a file of the kernel at boot.
    Tmpfiles {
        /// The file that is written.
        file: String,
        /// The value.
        value: String,
    },
    /// Words for the kernel command line.
    Boot {
        /// The words.
        words: String,
    },
    /// A line in the `[Service]` section of a drop-in of a systemd unit.
    Unit {
        /// The unit.
        unit: String,
        /// The line.
        line: String,
        /// First version of systemd that knows the line.
        since: Option<u32>,
    },
    /// A file to edit.
    Edit {
        /// The file, with a line number after `:` where a line is meant.
        file: String,
        /// What to change.
        change: String,
    },
}

impl Remedy {
    /// Writes a number in `/proc/sys`, now and at boot.
    pub(crate) fn setting(setting: Setting, value: u64) -> Self {
        let value = value.to_string();
        let lasting = Lasting::Sysctl { key: setting.key().to_string(), value: value.clone() };
        Self::default().write(setting.path(), value).lasting(lasting)
    }

    /// Writes a file of sysfs, now and at boot.
    pub(crate) fn sysfs(file: impl Into<String>, value: impl ToString) -> Self {
        let (file, value) = (file.into(), value.to_string());
        let lasting = Lasting::Tmpfiles { file: file.clone(), value: value.clone() };
        Self::default().write(file, value).lasting(lasting)
    }

    pub(crate) fn write(self, file: impl Into<String>, value: impl ToString) -> Self {
        self.step(Step::Write { file: file.into(), value: value.to_string() })
    }

    pub(crate) fn run(self, words: &[&str]) -> Self {
        self.step(Step::Run { words: words.iter().map(ToString::to_string).collect() })
    }

    pub(crate) fn step(mut self, step: Step) -> Self {
        self.now.push(step);
        self
    }

    pub(crate) fn lasting(mut self, lasting: Lasting) -> Self {
        self.lasting.push(lasting);
        self
    }

    pub(crate) fn boot(self, words: impl Into<String>) -> Self {
        self.lasting(Lasting::Boot { words: words.into() })
    }

    pub(crate) fn edit(self, file: impl Into<String>, change: impl Into<String>) -> Self {
        self.lasting(Lasting::Edit { file: file.into(), change: change.into() })
    }

    pub(crate) fn unit(self, unit: &str, line: &str, since: Option<u32>) -> Self {
        self.lasting(Lasting::Unit { unit: unit.to_string(), line: line.to_string(), since })
    }
}

impl Step {
    /// The command as typed by root. Writes to `/proc/sys` use sysctl(8).
    pub fn command(&self) -> String {
        match self {
            Self::Write { file, value } => match file.strip_prefix("/proc/sys/") {
                Some(key) => format!("sysctl -w {}={value}", key.replace('/', ".")),
                None => format!("echo {value} > {}", report::format::command([file])),
            },
            Self::Pool { size, pages } => {
                let spec = format!("{}:{pages}", host::pool::exact(size.bytes()));
                report::format::command(["superpage", "pool", "set", &spec])
            }
            Self::Run { words } => report::format::command(words),
        }
    }
}

impl Lasting {
    /// The kind of place, as documents name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sysctl { .. } => "sysctl",
            Self::Tmpfiles { .. } => "tmpfiles",
            Self::Boot { .. } => "boot",
            Self::Unit { .. } => "unit",
            Self::Edit { .. } => "edit",
        }
    }

    /// Where the text goes: a file, or the kernel command line.
    pub fn place(&self) -> String {
        match self {
            Self::Sysctl { .. } => "/etc/sysctl.d/60-superpage.conf".to_string(),
            Self::Tmpfiles { .. } => "/etc/tmpfiles.d/superpage.conf".to_string(),
            Self::Boot { .. } => "kernel command line".to_string(),
            Self::Unit { unit, .. } => format!("/etc/systemd/system/{unit}.d/superpage.conf"),
            Self::Edit { file, .. } => file.clone(),
        }
    }

    /// The lines for that place, or what to change there.
    pub fn text(&self) -> String {
        match self {
            Self::Sysctl { key, value } => format!("{key} = {value}"),
            Self::Tmpfiles { file, value } => format!("w {file} - - - - {value}"),
            Self::Boot { words } => words.clone(),
            Self::Unit { line, .. } => format!("[Service]\n{line}"),
            Self::Edit { change, .. } => change.clone(),
        }
    }
}
