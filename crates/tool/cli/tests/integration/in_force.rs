//! `superpage run --design` with designs for which superpage itself makes the superpages while the program runs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{has_thp, run, send, stderr, stdout, superpage, wait_until};

/// The program `extents.c`, and a directory for designs.
pub struct Bench(tempfile::TempDir);

/// Returns the test bench; `None`, counted as skipped, if designs cannot be in force.
pub fn bench() -> Option<Bench> {
    if let Err(why) = sys::pidfd::may_collapse() {
        testkit::skipped!("superpages cannot be made in another process: {why}");
        return None;
    }
    if let Err(why) = Command::new("cc").arg("--version").output() {
        testkit::skipped!("no C compiler: {why}");
        return None;
    }
    let bench = Bench(tempfile::tempdir().unwrap());
    bench.build("extents.c", &[]);
    Some(bench)
}

impl Bench {
    /// Builds one of the programs beside this file.
    pub fn build(&self, file: &str, flags: &[&str]) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration").join(file);
        let stem = source.file_stem().unwrap().display();
        let name = format!("{stem}{}", flags.concat());
        let program = self.0.path().join(name);
        let mut command = Command::new("cc");
        let built = command.arg("-O1").args(flags).arg("-o").arg(&program).arg(source).output();
        let built = built.unwrap();
        assert!(built.status.success(), "{}", stderr(&built));
        program.display().to_string()
    }

    pub fn program(&self) -> String {
        self.0.path().join("extents").display().to_string()
    }

    /// Waits until a launcher has started its program.
    pub fn await_program(&self, launcher: &std::process::Child) {
        let launcher = units::Pid(launcher.id() as i32);
        let is_program = |pid: &units::Pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name == "extents\n")
        };
        wait_until("the program is seen", || {
            host::process::tree(&host::Root::real(), launcher).iter().any(is_program)
        });
    }

    /// Writes a preset with changes to a file.
    fn design(&self, preset: &str, changes: &[(&str, &str)]) -> String {
        let mut text = stdout(&run(&["design", "show", preset]));
        for (from, to) in changes {
            assert!(text.contains(from), "{preset} has no {from}");
            text = text.replace(from, to);
        }
        let file: PathBuf = self.0.path().join(format!("{preset}.toml"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    /// Runs the program under a design; returns the design's part of the document.
    pub fn run(&self, design: &str, words: &[&str]) -> Value {
        let document = self.run_with(&["--design", design], words);
        assert_eq!(document["pages"], "collapsed");
        document["design"].clone()
    }

    /// Runs the program with these flags; returns the whole document.
    pub fn run_with(&self, flags: &[&str], words: &[&str]) -> Value {
        let program = self.program();
        let before = [&["run", "--json"], flags, &["--", &program]].concat();
        let output = run(&[&before[..], words].concat());
        let said = stderr(&output);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), "ok\n"), "{said}");
        let line = said.lines().last().expect("a document");
        serde_json::from_str(line).expect(line)
    }
}

#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn superpages_are_made_at_the_designs_thresholds() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    // Ingens' thread would wake only every 10 s.
    let ingens = bench.design("ingens", &[("every = \"10s\"", "every = \"100ms\"")]);
    let cases = [("quicksilver-sync-64", 64), ("freebsd", 512), (ingens.as_str(), 460)];
    for (design, least) in cases {
        let below = bench.run(design, &["8", &(least - 1).to_string(), "0"]);
        assert_eq!((&below["made"], &below["unmade"]), (&0.into(), &0.into()), "{design}: {below}");
        assert_eq!((&below["touched"], &below["fullest"]), (&8.into(), &(least - 1).into()));
        let at = bench.run(design, &["8", &least.to_string(), "8"]);
        testkit::require!(at["failed"] == serde_json::json!({}), "superpages were short: {at}");
        assert_eq!((&at["made"], &at["unmade"]), (&8.into(), &0.into()), "{design}: {at}");
        assert_eq!((&at["by_others"], &at["copied_pages"]), (&0.into(), &(8 * least).into()));
        assert_eq!(at["filled_pages"], 8 * (512 - least));
    }
}

/// The program waits in each extent for its superpage, so no more pages are copied than the threshold.
#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn superpages_are_made_where_the_program_grows() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let made = bench.run("quicksilver-sync-64", &["8", "64", "8", "step"]);
    testkit::require!(made["failed"] == serde_json::json!({}), "superpages were short: {made}");
    assert_eq!((&made["made"], &made["unmade"]), (&8.into(), &0.into()), "{made}");
    assert!(made["copied_pages"].as_u64() <= Some(8 * 64), "{made}");
    testkit::require!(made["unsampled"].is_null(), "no faults were sampled: {made}");
    assert!(made["frontier_looks"].as_u64() > Some(0), "{made}");
}

/// The program fills its extents in order, under designs that fill a reservation at some page. It takes no fault in
/// extents that were made before it reached them. At most a tenth more superpages are made than it touches.
#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn superpages_are_made_ahead_of_a_program_that_grows() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    for design in ["quicksilver-sync-64", "freebsd"] {
        let made = bench.run(design, &["300", "512", "0"]);
        testkit::require!(made["failed"] == serde_json::json!({}), "superpages were short: {made}");
        testkit::require!(made["unsampled"].is_null(), "no faults were sampled: {made}");
        let number = |what: &str| made[what].as_u64().unwrap();
        assert!(number("ahead") >= 8 && number("ahead") <= number("made"), "{made}");
        assert!(number("touched") <= 300, "{made}");
        assert!(number("filled_pages") >= 512 * number("ahead"), "{made}");
    }
}

/// A design that prepares a superpage at its first fault copies nothing.
#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn superpages_of_the_first_fault_are_the_kernels() {
    let Some(bench) = bench() else { return };
    testkit::require!(has_thp(), "THP are off on this machine");
    testkit::lock_machine!(shared);
    let document = bench.run_with(&["--design", "quicksilver-sync-1"], &["64", "512", "0"]);
    assert_eq!(document["pages"], "thp");
    let design = &document["design"];
    let number = |what: &str| design[what].as_u64().unwrap();
    testkit::require!(number("by_fault") > 0, "no superpage was free at a fault: {document}");
    assert!(number("by_fault") >= 60 && number("copied_pages") < 4 * 512, "{document}");
}

/// For a program that never rests, on a CPU of its own, copying takes at most a fiftieth of its time; more copies would
/// exceed that.
#[test]
#[ignore = "nightly: what a design in force takes of a program's time"]
fn a_busy_program_has_few_superpages_copied_and_the_report_says_why() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let python =
        "m = bytearray(b'x') * (800 << 20)\nx = 0\nwhile x < 15_000_000: x += 1\nprint('ok')";
    let words = ["run", "--json", "--design", "freebsd", "--", "/usr/bin/python3", "-c", python];
    let output = run(&words);
    let said = stderr(&output);
    assert_eq!(stdout(&output), "ok\n", "{said}");
    let document: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let design = &document["design"];
    assert!(design["waiting"].as_u64() > Some(0), "{design}");
    assert_eq!(design["waiting"], design["unmade"], "{design}");
    drop(bench);
}

#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn a_daemon_completes_reservations() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let below = bench.run("quicksilver-async-64", &["8", "63", "0"]);
    assert_eq!(below["made"], 0, "{below}");
    let at = bench.run("quicksilver-async-64", &["8", "64", "8"]);
    testkit::require!(at["failed"] == serde_json::json!({}), "superpages were short: {at}");
    assert_eq!(at["made"], 8, "{at}");
}

/// The scan visits four regions every three seconds, so the last four come a period after the first four.
#[test]
#[ignore = "nightly: a period that is timed"]
fn a_scan_keeps_its_period() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let (trigger, regions, every) = ("trigger = \"first-fault\"", "regions = 8", "every = \"10s\"");
    let scan = [
        (trigger, "trigger = \"scan\""),
        (regions, "regions = 4"),
        (every, "every = \"3s\""),
        ("when = \"with-preparation\"", "when = \"never\""),
        ("zero-page = true", "zero-page = false"),
        ("effort = \"direct-4.3\"", "effort = \"none\""),
        ("effort-advised = \"direct-4.3\"", "effort-advised = \"none\""),
    ];
    let design = bench.design("linux-4.3", &scan);
    let scanned = bench.run(&design, &["8", "1", "8"]);
    testkit::require!(
        scanned["failed"] == serde_json::json!({}),
        "superpages were short: {scanned}"
    );
    assert_eq!(scanned["made"], 8, "{scanned}");
    let last = scanned["delay"]["p95_seconds"].as_f64().unwrap();
    assert!(last > 2.7, "{scanned}");
}

/// `extents.c` itself checks the contents.
#[test]
fn a_forked_child_keeps_its_contents() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let document = bench.run("quicksilver-sync-64", &["4", "100", "4", "fork"]);
    assert_eq!(document["processes"], 2, "{document}");
}

#[test]
#[ignore = "nightly: what a design in force makes, and when"]
fn a_forked_child_is_served() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let made = bench.run("quicksilver-sync-64", &["4", "100", "4", "fork"]);
    testkit::require!(made["failed"] == serde_json::json!({}), "superpages were short: {made}");
    assert_eq!((&made["made"], &made["processes"]), (&8.into(), &2.into()), "{made}");
}

#[test]
fn the_program_outlives_a_launcher_that_is_killed() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let program = bench.program();
    let words = ["run", "-q", "--design", "freebsd", "--", &program, "8", "512", "0"];
    let mut launcher = superpage(&words).stdout(Stdio::piped()).spawn().unwrap();
    bench.await_program(&launcher);
    let mut printed = launcher.stdout.take().unwrap();
    send(&launcher, libc::SIGKILL);
    launcher.wait().unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut printed, &mut text).unwrap();
    assert_eq!(text, "ok\n");
}

/// Without this capability, the program executed next cannot make superpages in other processes.
pub fn drop_sys_nice() -> std::io::Result<()> {
    const CAP_SYS_NICE: libc::c_ulong = 23;
    // SAFETY: only changes a flag of this process.
    match unsafe { libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[test]
fn what_cannot_be_in_force_is_refused_in_a_line() {
    let Some(_) = bench() else { return };
    let mut command = superpage(&["run", "--design", "freebsd", "--", "echo", "started"]);
    // SAFETY: one system call, between fork and exec.
    unsafe { command.pre_exec(drop_sys_nice) };
    let refused = command.output().unwrap();
    crate::common::refused(&refused, 3, "CAP_SYS_NICE");
    assert_eq!(stdout(&refused), "");
    let unknown = run(&["run", "--design", "hawkeye-g", "--", "true"]);
    crate::common::refused(&unknown, 2, "mapping.scan.sampling");
}

#[test]
#[ignore = "nightly: live designs"]
fn an_arm_of_a_comparison_can_be_a_design() {
    let Some(bench) = bench() else { return };
    testkit::lock_machine!(shared);
    let arms = ["compare", "--arm", "base", "--arm", "live: design=quicksilver-sync-64"];
    let (program, flags) = (bench.program(), ["--min-runs", "2", "--max-runs", "2", "--json"]);
    let output = run(&[&arms[..], &flags, &["--", &program, "8", "64", "0"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let (live, base): (Vec<&Value>, Vec<&Value>) =
        document["samples"].as_array().unwrap().iter().partition(|sample| sample["arm"] == 1);
    // A warm-up and two runs for each arm.
    assert_eq!((live.len(), base.len()), (3, 3), "{document}");
    assert!(base.iter().all(|sample| sample["design"].is_null()), "{document}");
    // While other programs take faults, the kernel may refuse some superpages until the program ends.
    let (whole, short): (Vec<&Value>, Vec<&Value>) =
        live.into_iter().partition(|sample| sample["design"]["failed"] == serde_json::json!({}));
    for sample in &whole {
        let number = |what: &str| sample["design"][what].as_u64().unwrap();
        // One more extent is mapped than is touched.
        let ahead = number("ahead").min(1);
        assert!((8..=8 + ahead).contains(&(number("made") + number("unmade"))), "{sample}");
    }
    assert!(short.iter().all(|sample| sample["design"]["failed"].is_object()), "{document}");
    if whole.is_empty() {
        testkit::skipped!("superpages were short in all runs");
    }
}

/// `setcap` lets all users put designs in force. The C library removes some environment variables from such a program.
#[test]
fn with_capabilities_of_the_file_an_ordinary_user_may_and_keeps_the_environment() {
    testkit::require!(testkit::is_root(), "not root: no capabilities can be given");
    let dir = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir()
        .unwrap();
    let copy = dir.path().join("superpage");
    testkit::copy_program(env!("CARGO_BIN_EXE_superpage"), &copy);
    let given = Command::new("setcap").arg("cap_sys_nice,cap_perfmon+ep").arg(&copy).status();
    testkit::require!(
        given.is_ok_and(|it| it.success()),
        "no capability can be given to a file here"
    );
    let mut options = Command::new("findmnt");
    options.args(["-no", "OPTIONS", "-T"]).arg(dir.path());
    let options = options.output().map(|output| stdout(&output)).unwrap_or_default();
    testkit::require!(
        !options.contains("nosuid"),
        "capabilities of files have no effect in nosuid"
    );
    let run = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).arg("run");
        command.args(words).current_dir("/").env("TMPDIR", "/a b").env("LD_LIBRARY_PATH", "/c=d");
        command.output().unwrap()
    };
    let says = ["sh", "-c", "echo $TMPDIR $LD_LIBRARY_PATH"];
    let output = run(&[&["-q", "--pages", "base", "--"], &says[..]].concat());
    assert_eq!(stdout(&output), "/a b /c=d\n", "{}", stderr(&output));
    if let Err(why) = sys::pidfd::may_collapse() {
        testkit::skipped!("no design can be in force: {why}");
        return;
    }
    let output = run(&["-q", "--design", "quicksilver-sync-64", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}
