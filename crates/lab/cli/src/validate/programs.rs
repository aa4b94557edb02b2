//! What `lab validate` runs: kernels that exist live and as streams, and programs whose recording is simulated; and the
//! suite of `--suite`. See docs/decisions/lab.md#10.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cli::exit;
use lab::sweep::NamedInput;
use launch::Word;
use operations::Failure;
use operations::predict::Subject;
use workload::Workload;
use workload_streams::{Setup, WorkloadError, catalog};

use crate::what;

/// A workload as it runs live, and as it is simulated.
#[derive(Clone)]
pub struct Candidate {
    /// Its name in the result.
    pub name: String,
    pub live: Subject,
    /// The stream, or the recording.
    pub lab: NamedInput,
    /// Superpages that it needs, for the fragmenter.
    pub superpages: u64,
}

/// The kernels of the suite. Of each as much as a TLB does not reach, and runs of about a second.
pub const KERNELS: [&str; 7] = [
    "gups:size=256M,operations=32M",
    "chase:size=256M",
    "stream:size=384M,iterations=10",
    "touch:size=256M",
    "pagerank:size=128M,iterations=3",
    "btree:size=256M,operations=4M",
    "hashmap:size=256M,operations=8M",
];

/// A program of the suite.
pub struct Program {
    pub name: &'static str,
    /// The executable that it needs, with or without its directory.
    pub needs: &'static str,
    pub words: &'static [&'static str],
}

/// The programs of the suite. They run for a fraction of a second, because recording takes 24 to 129 times as long.
pub const PROGRAMS: [Program; 7] = [
    Program {
        name: "awk",
        needs: "awk",
        words: &[
            "awk",
            "BEGIN { for (i = 0; i < 400000; i++) a[i * 7919 % 400009] = i; \
             for (i = 0; i < 400000; i++) s += a[i]; print s }",
        ],
    },
    Program {
        name: "python",
        needs: "/usr/bin/python3",
        // CPython's own arenas are no memory of malloc, and would get no superpages live.
        words: &[
            "env",
            "PYTHONMALLOC=malloc",
            "/usr/bin/python3",
            "-S",
            "-c",
            "d = {i: str(i) for i in range(300000)}\n\
             print(sum(len(d[i * 7919 % 300000]) for i in range(300000)))",
        ],
    },
    Program {
        name: "sqlite3",
        needs: "sqlite3",
        words: &[
            "sqlite3",
            ":memory:",
            "CREATE TABLE t(a INTEGER PRIMARY KEY, b INT, c TEXT); WITH RECURSIVE n(i) AS \
             (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) INSERT INTO t SELECT i, \
             i * 7919 % 100003, hex(i * 12345) FROM n; CREATE INDEX j ON t(b); \
             SELECT sum(length(x.c)) FROM t x JOIN t y ON y.b = x.a;",
        ],
    },
    Program {
        name: "perl",
        needs: "perl",
        words: &[
            "perl",
            "-e",
            "my %h; $h{$_ * 7919 % 300007} = $_ for 1 .. 300000; my $s = 0; \
             $s += $h{$_} // 0 for 1 .. 300000; print \"$s\\n\"",
        ],
    },
    Program {
        name: "sort",
        needs: "sort",
        words: &["sh", "-c", "seq 1 300000 | rev | sort -S 200M --parallel=1 > /dev/null"],
    },
    Program {
        name: "xz",
        needs: "xz",
        words: &["sh", "-c", "seq 1 80000 | xz -6 -T1 -c > /dev/null"],
    },
    Program {
        name: "gcc",
        needs: "gcc",
        words: &[
            "sh",
            "-c",
            r#"awk "BEGIN { for (i = 0; i < 60; i++) printf \"int f%d(int *a, int n) { int s = %d; for (int i = 0; i < n; i++) { s += a[i] * %d; if (s > %d) s ^= a[i]; } return s; }\\n\", i, i, i + 3, i * 7 }" | gcc -O1 -w -x c -S -o - - > /dev/null"#,
        ],
    },
];

impl Program {
    pub fn is_installed(&self) -> bool {
        launch::Program::find(self.needs, &operations::facts::search_path()).is_ok()
    }
}

/// glibc's setting for recordings: the heap grows by superpages, as libsuperpage.so lets it grow in live runs.
const GLIBC: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");

impl Candidate {
    /// Finds a workload that exists both live and simulated.
    ///
    /// # Errors
    /// It does not, or its options are invalid.
    pub fn kernel(word: &str, seed: u64) -> Result<Self, Failure> {
        let name = word.split(':').next().unwrap_or(word);
        let is_live = |name: &str| name.parse::<Workload>().is_ok();
        let only = |what: &str| {
            let both: Vec<&str> =
                catalog().map(|entry| entry.name).filter(|name| is_live(name)).collect();
            Failure::usage(format!(
                "{name}: {what}; both live and simulated are {}",
                both.join(", ")
            ))
        };
        let mut setup = match word.parse::<Setup>() {
            Ok(setup) => setup,
            Err(WorkloadError::Unknown { .. }) if is_live(name) => {
                return Err(only("it is not simulated"));
            }
            Err(error) => return Err(what::unknown_workload(word, error)),
        };
        setup.seed = seed;
        let both = setup.both().ok_or_else(|| only("it is a model, and not run live"))?;
        let setup: Setup = both.specification.parse().map_err(Failure::usage)?;
        let description = setup.describe().map_err(Failure::usage)?;
        Ok(Self {
            lab: what::workload(&both.specification)?,
            name: both.specification,
            live: Subject::Workload(both.workload, both.settings),
            superpages: description.superpages,
        })
    }

    /// Returns the file of a program's recording.
    pub fn recording(traces: &Path, name: &str) -> PathBuf {
        traces.join(format!("{name}.spt"))
    }

    /// Finds a program's recording in `traces`, or records the program and keeps the recording there.
    ///
    /// # Errors
    /// The program does not exist or fails, cannot be recorded, or the recording that is there is another program's.
    pub fn program(
        name: &str,
        words: &[String],
        traces: &Path,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let path = Self::recording(traces, name);
        if !path.exists() {
            record(name, words, &path, quiet)?;
        }
        let shown = path.display().to_string();
        let reader = what::trace(&shown)?;
        if reader.info().header.workload != words.join(" ") {
            return Err(Failure::usage(format!(
                "{shown}: it is a recording of another command: {}; remove it, or give another --traces",
                reader.info().header.workload
            )));
        }
        let superpages = reader.info().totals.regions.into();
        let live = Subject::Program(words.iter().map(|word| Word::from(word.clone())).collect());
        Ok(Self { name: name.to_string(), live, lab: what::workload(&shown)?, superpages })
    }
}

fn record(name: &str, words: &[String], path: &Path, quiet: bool) -> Result<(), Failure> {
    let superpage = operations::programs::superpage()?;
    if !quiet {
        exit::say(&format!("recording {name}, once"));
    }
    let mut command = Command::new(superpage);
    command.args(["record", "--quiet", "-o"]).arg(path).arg("--").args(words);
    command.env(GLIBC.0, GLIBC.1).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status();
    let status = status.map_err(|error| Failure::usage(format!("superpage record: {error}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Failure::cannot(format!(
            "{name}: not recorded ({status}); see what superpage record says above, or omit it"
        ))),
    }
}
