//! Knobs that several processes raise at the same time, on fake knobs in a temporary root.

extern crate superpage_host as host;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use host::Root;
use host::journal::{Claim, Journal, JournalError, Knob, Outcome, SharedKnob, restore_orphans};
use units::PageSize;

fn limit() -> Knob {
    Knob::hugetlb_overcommit(PageSize::new(2 << 20).unwrap())
}

fn pool() -> Knob {
    Knob::hugetlb_pool(PageSize::new(2 << 20).unwrap())
}

struct Fake(tempfile::TempDir);

impl Fake {
    fn new() -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        fake.write("/proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555");
        fake.write(limit().path(), "3");
        fake.write(pool().path(), "10");
        fake
    }
    fn at(dir: &Path) -> (Root, PathBuf) {
        (Root::at(dir.join("root")), dir.join("journal"))
    }
    fn root(&self) -> Root {
        Self::at(self.0.path()).0
    }
    fn journal(&self) -> PathBuf {
        Self::at(self.0.path()).1
    }
    fn write(&self, path: &str, text: &str) {
        let file = self.root().path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    fn now(&self, knob: &Knob) -> String {
        knob.read(&self.root()).unwrap()
    }
    fn raise(&self, knob: &Knob, want: Claim) -> SharedKnob {
        SharedKnob::raise(&self.journal(), &self.root(), knob, want, &|| true).unwrap()
    }
    fn orphans(&self) -> Vec<Outcome> {
        let done = restore_orphans(&self.journal(), &self.root()).unwrap();
        done.into_iter().map(|one| one.outcome).collect()
    }
    /// Starts another process, which raises the limit to at least `value` and keeps it raised. The process is killed on
    /// drop.
    fn other(&self, value: u64) -> Other {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "shared::child_that_holds", "--nocapture"]);
        command.env("SHARED_DIR", self.0.path()).env("SHARED_VALUE", value.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut text = String::new();
        let mut byte = [0];
        while !text.contains("holds") && child.stdout.as_mut().unwrap().read(&mut byte).unwrap() > 0
        {
            text.push(byte[0] as char);
        }
        assert!(text.contains("holds"), "{text}");
        Other(child)
    }
}

struct Other(Child);

impl Other {
    /// Kills the process by SIGKILL, so that it cannot clean up.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "run by the tests below, in a process of its own"]
fn child_that_holds() {
    let (root, journal) = Fake::at(Path::new(&std::env::var("SHARED_DIR").unwrap()));
    let value = std::env::var("SHARED_VALUE").unwrap().parse().unwrap();
    let _share =
        SharedKnob::raise(&journal, &root, &limit(), Claim::AtLeast(value), &|| true).unwrap();
    println!("holds");
    // The process is killed long before this time.
    std::thread::sleep(std::time::Duration::from_secs(600));
}

fn restored(from: &str, to: &str) -> Outcome {
    Outcome::Restored { from: from.to_string(), to: to.to_string(), got: to.to_string() }
}

#[test]
fn the_largest_limit_counts_and_the_last_holder_restores() {
    let fake = Fake::new();
    let first = fake.raise(&limit(), Claim::AtLeast(100));
    assert_eq!(first.written().got, "100");
    let second = fake.raise(&limit(), Claim::AtLeast(50));
    assert_eq!(fake.now(&limit()), "100");
    let third = fake.raise(&limit(), Claim::AtLeast(200));
    assert_eq!(fake.now(&limit()), "200");
    assert_eq!(third.restore(), None);
    assert_eq!(fake.now(&limit()), "100");
    assert_eq!(first.restore(), None);
    assert_eq!(fake.now(&limit()), "50");
    assert_eq!(second.restore().map(|one| one.outcome), Some(restored("50", "3")));
    assert_eq!(fake.now(&limit()), "3");
    assert_eq!(fake.orphans(), []);
}

#[test]
fn pages_add_up_and_a_pool_that_got_less_gives_back_what_it_got() {
    let fake = Fake::new();
    let first = fake.raise(&pool(), Claim::Plus(5));
    let short = SharedKnob::raise_by::<JournalError>(
        &fake.journal(),
        &fake.root(),
        &pool(),
        Claim::Plus(20),
        &mut |knobs, from, to| {
            assert_eq!((from, to), (15, 35));
            // The kernel has no more pages than this.
            knobs.set(&pool(), "22").map(|_| ())
        },
        &|| true,
    );
    let short = short.unwrap();
    assert_eq!((short.written().asked.as_str(), short.written().got.as_str()), ("35", "22"));
    assert_eq!(first.restore(), None);
    assert_eq!(fake.now(&pool()), "17");
    assert_eq!(short.restore().map(|one| one.outcome), Some(restored("17", "10")));
}

#[test]
fn a_change_that_fails_leaves_the_knob_to_the_others() {
    let fake = Fake::new();
    let first = fake.raise(&pool(), Claim::Plus(5));
    let failed = SharedKnob::raise_by::<JournalError>(
        &fake.journal(),
        &fake.root(),
        &pool(),
        Claim::Plus(20),
        &mut |knobs, _, _| {
            knobs.set(&pool(), "18")?;
            knobs.set(&Knob::new("/proc/sys/vm/no_such")?, "1").map(|_| ())
        },
        &|| true,
    );
    assert!(failed.is_err());
    assert_eq!(fake.now(&pool()), "15");
    drop(first);
    assert_eq!(fake.now(&pool()), "10");
}

#[test]
fn who_is_asked_to_stop_waits_no_longer_for_who_changes_the_knob() {
    let fake = Fake::new();
    drop(fake.raise(&limit(), Claim::AtLeast(5)));
    let place = fs::read_dir(fake.journal().join("shared")).unwrap().next().unwrap().unwrap();
    let held = fs::File::open(place.path().join("lock")).unwrap();
    held.lock().unwrap();
    let asked = std::cell::Cell::new(0);
    let goes_on = || asked.replace(asked.get() + 1) < 3;
    let want = Claim::AtLeast(5);
    let waited = SharedKnob::raise(&fake.journal(), &fake.root(), &limit(), want, &goes_on);
    assert!(matches!(waited, Err(JournalError::Busy { .. })), "{waited:?}");
    assert!(asked.get() > 3, "it waited");
    assert_eq!(fake.now(&limit()), "3");
    drop(held);
    drop(fake.raise(&limit(), want));
}

#[test]
fn what_a_killed_holder_wanted_is_taken_back_by_the_next() {
    let fake = Fake::new();
    let own = fake.raise(&limit(), Claim::AtLeast(100));
    let other = fake.other(500);
    assert_eq!(fake.now(&limit()), "500");
    other.kill();
    assert_eq!(fake.now(&limit()), "500");
    let next = fake.raise(&limit(), Claim::AtLeast(50));
    assert_eq!(fake.now(&limit()), "100");
    drop((own, next));
    assert_eq!(fake.now(&limit()), "3");
}

#[test]
fn restore_repairs_what_a_killed_holder_left_and_names_the_living() {
    let fake = Fake::new();
    let (first, second) = (fake.other(500), fake.other(200));
    first.kill();
    let outcomes = fake.orphans();
    assert!(matches!(outcomes[..], [Outcome::OwnerAlive { .. }]), "{outcomes:?}");
    assert_eq!(fake.now(&limit()), "200");
    second.kill();
    assert_eq!(fake.orphans(), [restored("200", "3")]);
    assert_eq!(fake.orphans(), []);
}

#[test]
fn what_somebody_else_set_stays() {
    let fake = Fake::new();
    let first = fake.raise(&limit(), Claim::AtLeast(100));
    let second = fake.raise(&limit(), Claim::AtLeast(200));
    fake.write(limit().path(), "7");
    for (share, ours) in [(first, "200"), (second, "200")] {
        let outcome = share.restore().unwrap().outcome;
        let (ours, now, original) = (ours.to_string(), "7".to_string(), "3".to_string());
        assert_eq!(outcome, Outcome::ChangedElsewhere { ours, now, original });
    }
    assert_eq!(fake.now(&limit()), "7");
    assert_eq!(fake.orphans(), []);
}

#[test]
fn a_journal_and_a_share_exclude_each_other_on_one_knob_only() {
    let fake = Fake::new();
    let share = fake.raise(&limit(), Claim::AtLeast(100));
    let mut journal = Journal::open(&fake.journal(), &fake.root()).unwrap();
    let refused = journal.set(&limit(), "50");
    assert!(matches!(refused, Err(JournalError::Busy { .. })), "{refused:?}");
    journal.set(&pool(), "12").unwrap();
    let refused =
        SharedKnob::raise(&fake.journal(), &fake.root(), &pool(), Claim::Plus(1), &|| true);
    assert!(matches!(refused, Err(JournalError::Busy { .. })), "{refused:?}");
    // The limit can be shared while the journal is open.
    drop(fake.raise(&limit(), Claim::AtLeast(300)));
    drop((share, journal));
    assert_eq!((fake.now(&limit()), fake.now(&pool())), ("3".to_string(), "10".to_string()));
    drop(fake.raise(&pool(), Claim::Plus(1)));
}

#[test]
fn a_state_of_another_boot_or_a_damaged_one_is_none_of_ours() {
    let fake = Fake::new();
    fake.other(500).kill();
    fake.write("/proc/sys/kernel/random/boot_id", "99999999-2222-4333-8444-555555555555");
    assert_eq!(fake.orphans(), []);
    assert_eq!(fake.now(&limit()), "500");
    fake.other(600).kill();
    let state = fake.journal().join("shared").join(limit().path().replace('/', ",")).join("state");
    fs::write(state, "{\"superpage_share\":1,").unwrap();
    assert_eq!(fake.orphans(), []);
    assert_eq!(fake.now(&limit()), "600");
}

#[test]
fn sizes_of_thp_are_allowed_where_nobody_gets_them_and_the_last_holder_restores() {
    let fake = Fake::new();
    let sizes = [64u64 << 10, 1 << 20].map(|bytes| PageSize::new(bytes).unwrap());
    let [off, left_alone] = sizes.map(Knob::thp_size_enabled);
    fake.write(off.path(), "never");
    fake.write(left_alone.path(), "inherit");
    let allow = || SharedKnob::allow_thp_sizes(&fake.journal(), &fake.root(), &sizes).unwrap();
    let outcomes = |holders: Vec<SharedKnob>| {
        let restored = holders.into_iter().map(SharedKnob::restore);
        restored.map(|it| it.map(|it| it.outcome)).collect::<Vec<_>>()
    };
    let (first, second) = (allow(), allow());
    assert_eq!(first[0].written().got, "madvise");
    assert_eq!([fake.now(&off), fake.now(&left_alone)], ["madvise", "inherit"]);
    assert_eq!(outcomes(first), [None, None]);
    assert_eq!(fake.now(&off), "madvise", "one holder is left");
    let as_found = Outcome::AlreadyRestored { value: "inherit".to_string() };
    assert_eq!(outcomes(second), [Some(restored("madvise", "never")), Some(as_found)]);
    assert_eq!(fake.now(&off), "never");
}
