//! The journal on fake knobs in a temporary root: what it writes, undoes and leaves alone.

extern crate superpage_host as host;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use host::Root;
use host::journal::{self, Journal, JournalError, KhugepagedKnob, Knob, Outcome, restore_orphans};
use units::{NodeId, PageSize};

const BOOT: &str = "proc/sys/kernel/random/boot_id";

/// A root with a few knobs, and a journal directory beside it.
struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { dir: tempfile::tempdir().unwrap() };
        fake.put(&Knob::thp_enabled(), "always [madvise] never");
        fake.put(&Knob::defrag(), "always defer defer+madvise [madvise] never");
        fake.put(&pool(), "10");
        fake.write(BOOT, "11111111-2222-4333-8444-555555555555");
        fake
    }
    fn at(path: &str) -> (Root, PathBuf) {
        (Root::at(format!("{path}/root")), PathBuf::from(format!("{path}/journal")))
    }
    fn root(&self) -> Root {
        Self::at(self.dir.path().to_str().unwrap()).0
    }
    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }
    fn write(&self, path: &str, text: &str) {
        let file = self.root().path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    fn put(&self, knob: &Knob, text: &str) {
        self.write(knob.path(), text);
    }
    fn now(&self, knob: &Knob) -> String {
        knob.read(&self.root()).unwrap()
    }
    fn open(&self) -> Journal {
        Journal::open(&self.journal(), &self.root()).unwrap()
    }
    fn orphans(&self) -> Vec<Outcome> {
        let done = restore_orphans(&self.journal(), &self.root()).unwrap();
        done.into_iter().map(|one| one.outcome).collect()
    }
    /// Leaves the journal of a writer that was killed after `changes`.
    fn leave(&self, text: impl AsRef<[u8]>) {
        // Write the file directly: opening a journal syncs the disk, and some tests leave hundreds.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.journal()).unwrap();
        fs::write(self.journal().join(journal::FILE), text).unwrap();
    }
    fn header(&self) -> String {
        let boot = fs::read_to_string(self.root().path(BOOT)).unwrap();
        let boot = boot.trim();
        format!(r#"{{"superpage_journal":1,"boot_id":"{boot}","pid":1,"command":"x"}}"#) + "\n"
    }
    fn journal_is_gone(&self) -> bool {
        !self.journal().join(journal::FILE).exists()
    }
}

fn pool() -> Knob {
    Knob::hugetlb_pool(PageSize::new(2 << 20).unwrap())
}

fn change(seq: u32, knob: &str, old: &str, asked: &str) -> String {
    let change = format!(r#""seq":{seq},"knob":"{knob}","old":"{old}","asked":"{asked}""#);
    format!(r#"{{"change":{{{change}}}}}"#) + "\n"
}

fn wrote(seq: u32, got: &str) -> String {
    format!(r#"{{"wrote":{{"seq":{seq},"got":"{got}"}}}}"#) + "\n"
}

#[test]
fn sets_reads_back_and_restores_in_reverse() {
    let fake = Fake::new();
    let mut journal = fake.open();
    let written = journal.set(&Knob::thp_enabled(), "always").unwrap();
    assert!(written.is_full());
    journal.set(&pool(), "0020").unwrap();
    journal.set(&Knob::thp_enabled(), "never").unwrap();
    journal.set(&Knob::defrag(), "madvise").unwrap();
    assert_eq!((fake.now(&pool()), fake.now(&Knob::thp_enabled())), ("20".into(), "never".into()));
    let done = journal.restore();
    let knobs: Vec<_> = done.iter().map(|one| one.knob.clone().unwrap()).collect();
    assert_eq!(knobs, [pool(), Knob::thp_enabled()], "defrag had the value already");
    assert_eq!(done[0].to_string(), format!("{}: 20 -> 10", pool()));
    assert_eq!(fake.now(&Knob::thp_enabled()), "madvise");
    assert!(fake.journal_is_gone());
}

#[test]
fn the_journal_is_private_and_on_disk_before_the_knob_changes() {
    let fake = Fake::new();
    let mut journal = fake.open();
    let file = fake.journal().join(journal::FILE);
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&fake.journal()), mode(&file)), (0o700, 0o600));
    assert_eq!(mode(&fake.journal().join(journal::LOCK)), 0o600);
    // Setting a knob that cannot be written fails. The journal has the record nevertheless, which is harmless.
    let read_only = Knob::vm("swappiness").unwrap();
    let text = || fs::read_to_string(&file).unwrap();
    assert!(journal.set(&read_only, "1").unwrap_err().is_gone());
    assert!(!text().contains("swappiness"), "it could not be read, so nothing was to come");
    journal.set(&pool(), "20").unwrap();
    assert_eq!(text().lines().count(), 3);
    assert!(text().contains(r#""old":"10","asked":"20""#) && text().contains(r#""got":"20""#));
}

#[test]
fn dropping_and_panicking_restore_and_keep_does_not() {
    let fake = Fake::new();
    let (root, dir) = (fake.root(), fake.journal());
    let panicked = std::thread::spawn(move || {
        let mut journal = Journal::open(&dir, &root).unwrap();
        journal.set(&pool(), "20").unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(fake.now(&pool()), "10");
    let mut journal = fake.open();
    journal.set(&pool(), "30").unwrap();
    journal.keep().unwrap();
    assert_eq!(fake.now(&pool()), "30");
    assert!(fake.journal_is_gone());
    assert_eq!(fake.orphans(), []);
}

#[test]
fn one_writer_at_a_time_and_the_second_learns_who() {
    let fake = Fake::new();
    let mut journal = fake.open();
    journal.set(&pool(), "20").unwrap();
    let error = Journal::open(&fake.journal(), &fake.root()).unwrap_err();
    assert!(matches!(error, JournalError::Busy { .. }));
    assert!(error.to_string().contains(&format!("pid {} (", std::process::id())), "{error}");
    assert!(matches!(fake.orphans().as_slice(), [Outcome::OwnerAlive { .. }]));
    assert_eq!(fake.now(&pool()), "20", "a living owner's change is left");
    drop(journal);
    assert_eq!(fake.now(&pool()), "10");
}

#[test]
fn what_somebody_else_changed_is_left_alone() {
    let fake = Fake::new();
    let mut journal = fake.open();
    journal.set(&pool(), "20").unwrap();
    journal.set(&Knob::thp_enabled(), "always").unwrap();
    fake.put(&pool(), "33");
    fake.put(&Knob::thp_enabled(), "[always] madvise never");
    let done = journal.restore();
    assert!(matches!(&done[0].outcome, Outcome::Restored { to, .. } if to == "madvise"));
    let (ours, now, original) = ("20".into(), "33".into(), "10".into());
    assert_eq!(done[1].outcome, Outcome::ChangedElsewhere { ours, now, original });
    assert_eq!(fake.now(&pool()), "33");
    // If another process changes the knob between two changes of ours, its value is the one to restore.
    let mut journal = fake.open();
    journal.set(&pool(), "40").unwrap();
    fake.put(&pool(), "50");
    journal.set(&pool(), "60").unwrap();
    journal.restore();
    assert_eq!(fake.now(&pool()), "50");
}

#[test]
fn surplus_pages_are_no_change_of_the_pool() {
    let fake = Fake::new();
    let mut journal = fake.open();
    journal.set(&pool(), "20").unwrap();
    fake.put(&pool(), "25");
    fake.write(&pool().path().replace("nr_", "surplus_"), "5");
    assert_eq!(fake.now(&pool()), "20");
    let done = journal.restore();
    assert!(matches!(done[0].outcome, Outcome::Restored { .. }), "{done:?}");
}

/// Changes a knob and waits until it is killed.
#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_that_is_killed() {
    let dir = std::env::var("SUPERPAGE_TEST_CHILD").unwrap();
    let (root, journal) = Fake::at(&dir);
    let mut journal = Journal::open(&journal, &root).unwrap();
    journal.set(&Knob::thp_enabled(), "never").unwrap();
    journal.set(&pool(), "512").unwrap();
    fs::write(format!("{dir}/ready"), "").unwrap();
    std::thread::sleep(Duration::from_secs(300));
}

fn kill_a_writer(fake: &Fake) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "journal::child_that_is_killed", "--nocapture"])
        .env("SUPERPAGE_TEST_CHILD", fake.dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !fake.dir.path().join("ready").exists() {
        assert!(began.elapsed() < Duration::from_secs(120), "the child never changed the knob");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(matches!(fake.orphans().as_slice(), [Outcome::OwnerAlive { holder }]
        if holder.pid.unwrap().0 == child.id() as i32));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!((fake.now(&pool()), fake.now(&Knob::thp_enabled())), ("512".into(), "never".into()));
}

#[test]
fn a_killed_writers_changes_are_undone() {
    let fake = Fake::new();
    kill_a_writer(&fake);
    let done = fake.orphans();
    assert!(done.iter().all(|outcome| matches!(outcome, Outcome::Restored { .. })), "{done:?}");
    assert_eq!((done.len(), fake.now(&pool())), (2, "10".into()));
    assert_eq!(fake.now(&Knob::thp_enabled()), "madvise");
    assert_eq!(fake.orphans(), [], "once is enough");
}

#[test]
fn the_next_writer_undoes_a_killed_ones_changes_first() {
    let fake = Fake::new();
    kill_a_writer(&fake);
    let journal = fake.open();
    assert_eq!((journal.inherited().len(), fake.now(&pool())), (2, "10".into()));
}

#[test]
fn what_a_dead_writer_left_is_listed_and_nothing_is_changed() {
    let fake = Fake::new();
    let knobs = || -> Vec<Knob> {
        let left = journal::left_changed(&fake.journal(), &fake.root()).unwrap();
        left.into_iter().map(|one| one.knob).collect()
    };
    assert_eq!(knobs(), [], "there is no journal");
    let own = std::process::id();
    let stat = format!("{own} (x) S 1 1 1 0 -1 0 5 0 0 0 0 0 0 0 20 0 3 0 77 4096 10 0 0 0 0");
    fake.write(&format!("proc/{own}/stat"), &stat);
    let mut journal = fake.open();
    journal.set(&Knob::thp_enabled(), "always").unwrap();
    assert_eq!(knobs(), [], "its owner runs");
    // The same files without the process.
    fs::remove_dir_all(fake.root().path(&format!("/proc/{own}"))).unwrap();
    assert_eq!(knobs(), [Knob::thp_enabled()]);
    assert_eq!(fake.now(&Knob::thp_enabled()), "always", "nothing was restored");
    fake.write(BOOT, "99999999-2222-4333-8444-555555555555");
    assert_eq!(knobs(), [], "a boot resets settings");
    fake.write(BOOT, "11111111-2222-4333-8444-555555555555");
    drop(journal);
    assert_eq!(knobs(), []);
}

#[test]
fn a_journal_of_another_boot_is_not_applied() {
    let fake = Fake::new();
    let header = fake.header();
    fake.leave(header + &change(1, pool().path(), "3", "10") + &wrote(1, "10"));
    fake.write(BOOT, "99999999-2222-4333-8444-555555555555");
    assert!(matches!(fake.orphans().as_slice(), [Outcome::OtherBoot { .. }]));
    assert_eq!(fake.now(&pool()), "10");
    assert!(fake.journal_is_gone());
}

#[test]
fn killed_at_any_byte_the_journal_is_undone_or_had_nothing_to_undo() {
    let whole = {
        let fake = Fake::new();
        fake.header() + &change(1, pool().path(), "3", "10") + &wrote(1, "10")
    };
    let change_ends = whole.find(r#"{"wrote"#).unwrap() - 1;
    for cut in 0..=whole.len() {
        let fake = Fake::new();
        // The knob is written only after the whole record is in the journal: a shorter journal means that the knob is
        // still 3, a longer one that it is 10.
        fake.put(&pool(), if cut <= change_ends { "3" } else { "10" });
        fake.leave(&whole[..cut]);
        let done = fake.orphans();
        assert!(!done.iter().any(|o| matches!(o, Outcome::Rejected { .. })), "{cut}: {done:?}");
        assert_eq!(fake.now(&pool()), "3", "cut at {cut}");
        assert!(fake.journal_is_gone(), "cut at {cut}: {done:?}");
    }
}

#[test]
fn killed_between_write_and_read_back_a_smaller_pool_is_still_ours() {
    let fake = Fake::new();
    fake.put(&pool(), "7");
    fake.leave(fake.header() + &change(1, pool().path(), "3", "100"));
    assert!(matches!(fake.orphans().as_slice(), [Outcome::Restored { .. }]));
    assert_eq!(fake.now(&pool()), "3");
    fake.put(&pool(), "101");
    fake.leave(fake.header() + &change(1, pool().path(), "3", "100"));
    assert!(matches!(fake.orphans().as_slice(), [Outcome::ChangedElsewhere { .. }]));
}

#[test]
fn hostile_journals_write_nothing_outside_the_knobs() {
    let fake = Fake::new();
    fake.write("etc/passwd", "root");
    fake.write("proc/sys/kernel/core_pattern", "core");
    let good = change(9, pool().path(), "3", "10") + &wrote(9, "10");
    for path in [
        "../../etc/passwd",
        "/etc/passwd",
        "/proc/sys/vm/../kernel/core_pattern",
        "/proc/sys/vm/../../../etc/passwd",
        "/proc/sys/kernel/core_pattern",
        "/sys/kernel/mm/transparent_hugepage",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/nr_hugepages",
        "/proc/sys/vm/",
        "",
    ] {
        fake.put(&pool(), "10");
        fake.leave(fake.header() + &change(1, path, "evil", "root") + &good);
        let done = fake.orphans();
        assert!(matches!(&done[0], Outcome::Restored { .. }), "{path}: the good record: {done:?}");
        assert!(matches!(&done[1], Outcome::Rejected { line: 2, .. }), "{path}: {done:?}");
        assert!(fake.journal_is_gone());
        assert!(fake.journal().join("journal.jsonl.rejected").exists(), "kept as evidence");
    }
    let read = |path| fs::read_to_string(fake.root().path(path)).unwrap();
    assert_eq!(read("etc/passwd"), "root\n");
    assert_eq!(read("proc/sys/kernel/core_pattern"), "core\n");
    // Values that no knob accepts are refused too.
    fake.leave(fake.header() + &change(1, pool().path(), "a\\nb", "10"));
    assert!(matches!(fake.orphans().as_slice(), [Outcome::Rejected { line: 2, .. }]));
}

#[test]
fn garbage_is_set_aside_and_other_versions_are_kept() {
    let fake = Fake::new();
    fake.leave("");
    assert!(matches!(fake.orphans().as_slice(), [Outcome::HalfWritten { line: 1 }]));
    let huge = vec![b'{'; 5 << 20];
    for text in [b"garbage\n".as_slice(), b"\0\xff\n", b"[]\n", b"{}\n{}\n", &huge] {
        fake.leave(text);
        assert!(matches!(fake.orphans().as_slice(), [Outcome::Rejected { line: 0, .. }]));
        assert!(fake.journal_is_gone());
    }
    fake.leave("{\"superpage_journal\":2,\"new\":true}\n");
    assert!(matches!(fake.orphans().as_slice(), [Outcome::OtherVersion { version: 2 }]));
    let error = Journal::open(&fake.journal(), &fake.root()).unwrap_err();
    assert!(error.to_string().contains("superpage restore"), "{error}");
    // The journal is not a regular file, or other users may write to its directory.
    fs::remove_file(fake.journal().join(journal::FILE)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", fake.journal().join(journal::FILE)).unwrap();
    assert!(matches!(fake.orphans().as_slice(), [Outcome::Rejected { line: 0, .. }]));
    fs::set_permissions(fake.journal(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = Journal::open(&fake.journal(), &fake.root()).unwrap_err();
    assert!(error.to_string().contains("chmod 700"), "{error}");
}

#[test]
fn a_knob_that_cannot_be_restored_keeps_the_journal_and_one_that_is_gone_does_not() {
    let fake = Fake::new();
    fake.leave(fake.header() + &change(1, pool().path(), "3", "10") + &wrote(1, "10"));
    let file = fake.root().path(pool().path());
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(matches!(fake.orphans().as_slice(), [Outcome::Failed { .. }]));
    assert!(!fake.journal_is_gone());
    fs::remove_dir(&file).unwrap();
    assert!(matches!(fake.orphans().as_slice(), [Outcome::Gone { .. }]));
    assert!(fake.journal_is_gone());
}

#[test]
fn constructors_make_knobs_that_the_list_accepts() {
    let size = PageSize::new(64 << 10).unwrap();
    for knob in [
        pool(),
        Knob::hugetlb_overcommit(size),
        Knob::hugetlb_node_pool(NodeId(3), size),
        Knob::thp_enabled(),
        Knob::defrag(),
        Knob::shmem_enabled(),
        Knob::use_zero_page(),
        Knob::shrink_underused(),
        Knob::thp_size_enabled(size),
        Knob::thp_size_shmem_enabled(size),
        Knob::khugepaged(KhugepagedKnob::MaxPtesNone),
        Knob::vm("min_free_kbytes").unwrap(),
    ] {
        assert_eq!(Knob::new(knob.path()), Ok(knob.clone()));
        assert_eq!(serde_json::to_value(&knob).unwrap(), knob.path());
    }
    let fake = Fake::new();
    let error = fake.open().set(&pool(), "1\n2[").unwrap_err();
    assert!(error.to_string().contains("plain words"), "{error}");
}

#[test]
fn a_journal_that_may_not_be_looked_into_is_not_taken_for_none() {
    let fake = Fake::new();
    fake.leave(fake.header() + &change(1, pool().path(), "3", "10") + &wrote(1, "10"));
    let dir = fake.dir.path().to_str().unwrap();
    if testkit::is_root() {
        let setpriv = Command::new("setpriv").arg("--version").output();
        testkit::require!(setpriv.is_ok(), "no setpriv (util-linux) to drop privilege with");
        // The directories belong to another user, and root lacks the capability to override that. The test's own
        // program may be in a directory where only root can start it.
        std::os::unix::fs::chown(fake.journal(), Some(65534), Some(65534)).unwrap();
        let output = Command::new("setpriv")
            .arg("--bounding-set=-dac_override,-dac_read_search")
            .arg(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "journal::child_may_not_look"])
            .env("SUPERPAGE_TEST_CHILD", dir)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    } else {
        fs::set_permissions(fake.journal(), fs::Permissions::from_mode(0o000)).unwrap();
        may_not_look(dir);
        fs::set_permissions(fake.journal(), fs::Permissions::from_mode(0o700)).unwrap();
    }
    assert!(!fake.journal_is_gone());
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn child_may_not_look() {
    may_not_look(&std::env::var("SUPERPAGE_TEST_CHILD").unwrap());
}

fn may_not_look(fake: &str) {
    let (root, journal) = Fake::at(fake);
    let error = restore_orphans(&journal, &root).unwrap_err().to_string();
    assert!(error.contains("denied") && error.contains("run as root"), "{error}");
}
