//! State beyond the pools: the wanted state, mounts, shared memory, and users of pages.

extern crate superpage_host as host;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use host::Root;
use host::journal::{self, Journal};
use host::pool::ensure::{self, Ensured};
use host::pool::mounts::{self, Limits, MountOutcome, Owner};
use host::pool::users::{Stale, Users};
use host::pool::{self, Options, PoolError, RelatedSettings, Status};
use units::{ByteSize, PageSize, Pid};

const POOL: &str = "sys/kernel/mm/hugepages/hugepages-2048kB";

struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let fake = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["free", "resv", "surplus", "nr", "nr_overcommit"] {
            fake.write(&format!("{POOL}/{name}_hugepages"), "0");
        }
        fake.write("proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555");
        fake.write("proc/sys/kernel/shmmax", "18446744073692774399");
        fake.write("proc/sys/vm/hugetlb_shm_group", "0");
        fake.write("proc/sys/vm/min_free_kbytes", "67584");
        fake.write("proc/sys/vm/compact_memory", "");
        let meminfo = "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nHugepagesize: 2048 kB";
        fake.write("proc/meminfo", meminfo);
        fake.write("proc/buddyinfo", "Node 0, zone Normal 1 1 1 1 1 1 1 1 1 1 2");
        let zones = ["DMA", "DMA32", "Normal", "Movable", "Device"];
        let zones: String =
            zones.iter().map(|zone| format!("Node 0, zone {zone}\n  pages free 1\n")).collect();
        fake.write("proc/zoneinfo", &zones);
        fake.write("proc/self/mounts", "none / ext4 rw 0 0");
        fake.write("etc/group", "dba:x:54:");
        fake
    }
    fn root(&self) -> Root {
        Root::at(self.dir.path().join("root")).with_page_size(PageSize::new(4096).unwrap())
    }
    fn write(&self, path: &str, text: &str) {
        let file = self.root().path(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
    }
    fn now(&self, path: &str) -> String {
        fs::read_to_string(self.root().path(path)).unwrap().trim().to_string()
    }
    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }
    fn plan(&self, text: &str) -> Result<ensure::Plan, PoolError> {
        ensure::plan(&self.root(), &ensure::parse(text, Path::new("x.toml")).unwrap())
    }
    fn ensure(&self, text: &str) -> Result<Ensured, PoolError> {
        let plan = self.plan(text)?;
        ensure::carry_out(&self.root(), &self.journal(), &plan, Options::default(), &mut |_| {
            ControlFlow::Continue(())
        })
    }
}

const WANTED: &str = r#"
shm_group = "dba"
shmmax = "1G"
min_free_kbytes = "recommended"
[[pages]]
size = "2M"
count = 512
overcommit = 16
"#;

#[test]
fn a_wanted_state_is_reached_once_and_then_nothing_differs() {
    let fake = Fake::new();
    let plan = fake.plan(WANTED).unwrap();
    let differences: Vec<String> = plan.differences().into_iter().map(|one| one.what).collect();
    assert_eq!(
        differences,
        [
            "2 MiB pages",
            "overcommit of 2 MiB pages",
            "/proc/sys/vm/hugetlb_shm_group",
            "/proc/sys/vm/min_free_kbytes"
        ],
        "shmmax is larger already, and never lowered"
    );
    assert!(fake.ensure(WANTED).unwrap().is_full());
    assert_eq!(fake.now(&format!("{POOL}/nr_hugepages")), "512");
    assert_eq!(fake.now(&format!("{POOL}/nr_overcommit_hugepages")), "16");
    assert_eq!(fake.now("proc/sys/vm/hugetlb_shm_group"), "54");
    assert_eq!(fake.now("proc/sys/vm/min_free_kbytes"), "112640");
    assert_eq!(fake.now("proc/sys/kernel/shmmax"), "18446744073692774399");
    assert!(!fake.journal().join(journal::FILE).exists());
    assert!(fake.plan(WANTED).unwrap().is_empty());
    fs::remove_dir_all(fake.journal()).unwrap();
    assert!(fake.ensure(WANTED).unwrap().is_full());
    assert!(!fake.journal().exists(), "the second time nothing was to be written");
}

#[test]
fn what_cannot_be_had_changes_nothing_at_all() {
    let fake = Fake::new();
    let much = WANTED.replace("512", "99999");
    assert!(matches!(fake.ensure(&much), Err(PoolError::NoHeadroom { .. })));
    let other = WANTED.replace("2M", "1G");
    assert!(matches!(fake.ensure(&other), Err(PoolError::NoSuchPool { .. })));
    let nobody = WANTED.replace("dba", "nobody-of-that-name");
    assert!(matches!(fake.ensure(&nobody), Err(PoolError::NoSuchName { .. })));
    let twice = format!("{WANTED}[[pages]]\nsize = \"default\"\ncount = 1\n");
    assert!(fake.ensure(&twice).unwrap_err().to_string().contains("specified twice"));
    // If a write in the middle fails, earlier writes are undone.
    fs::remove_file(fake.root().path(&format!("{POOL}/nr_hugepages"))).unwrap();
    assert!(fake.ensure(WANTED).is_err());
    assert_eq!(fake.now("proc/sys/vm/hugetlb_shm_group"), "0");
}

#[test]
fn settings_are_only_raised() {
    let fake = Fake::new();
    let root = fake.root();
    let around = RelatedSettings::read(&root);
    assert_eq!(around.recommended_min_free_kbytes, Some(112_640));
    assert_eq!((around.shm_group, around.min_free_kbytes), (Some(0), Some(67_584)));
    let mut journal = Journal::open(&fake.journal(), &root).unwrap();
    let lower = pool::raise_shmmax(&root, &mut journal, ByteSize::mib(20)).unwrap_err();
    assert!(lower.to_string().contains("never lowered"), "{lower}");
    assert!(pool::raise_min_free(&root, &mut journal, 1).is_err());
    assert!(pool::raise_min_free(&root, &mut journal, 112_640).unwrap().is_full());
    assert!(pool::set_shm_group(&mut journal, 7).unwrap().is_full());
    drop(journal);
    assert_eq!(fake.now("proc/sys/vm/hugetlb_shm_group"), "0", "dropped, so put back");
}

#[test]
fn users_are_found_by_mapping_and_files_by_who_holds_them() {
    let fake = Fake::new();
    let point = fake.root().path("mnt/huge");
    fake.write("mnt/huge/open", "");
    fake.write("mnt/huge/sub/left", "");
    fake.write("proc/self/mounts", "none /mnt/huge hugetlbfs rw,pagesize=2M 0 0");
    let process = |pid: u32, name: &str, maps: &str, smaps: &str| {
        fake.write(&format!("proc/{pid}/maps"), maps);
        fake.write(&format!("proc/{pid}/smaps"), smaps);
        let zeroes = "0 ".repeat(48);
        fake.write(&format!("proc/{pid}/stat"), &format!("{pid} ({name}) S 1 {zeroes}"));
        fs::create_dir_all(fake.root().path(&format!("proc/{pid}/fd"))).unwrap();
    };
    let anon = "7f0000000000-7f0000800000 rw-p 00000000 00:0f 99 /anon_hugepage (deleted)";
    let smaps = format!(
        "{anon}\nRss: 0 kB\nShared_Hugetlb: 0 kB\nPrivate_Hugetlb: 4096 kB\n\
         KernelPageSize: 2048 kB\nVmFlags: rd wr ht"
    );
    process(7, "db", anon, &smaps);
    process(8, "plain", "5000-6000 r-xp 00000000 08:01 1 /bin/true", "");
    std::os::unix::fs::symlink(point.join("open"), fake.root().path("proc/8/fd/3")).unwrap();
    let users = Users::read(&fake.root());
    assert_eq!(users.processes.len(), 1, "{users:?}");
    let holder = &users.processes[0];
    assert_eq!((holder.pid, holder.name.as_str()), (Pid(7), "db"));
    let share = holder.sizes[&PageSize::new(2 << 20).unwrap()];
    assert_eq!((share.mapped, share.private), (ByteSize::mib(8), ByteSize::mib(4)));
    let stale: Vec<(&str, Stale)> =
        users.files.iter().map(|file| (file.path.to_str().unwrap(), file.stale)).collect();
    let wanted = [("/mnt/huge/open", Stale::InUse), ("/mnt/huge/sub/left", Stale::Stale)];
    assert_eq!(stale, wanted);
    assert_eq!(users.unknown, []);
}

/// The privileged tier.
mod exclusive {
    use super::*;

    /// A mount point and the directories made for it; removed when this ends.
    struct Gone<'a>(&'a Path, Vec<&'a Path>);
    impl Drop for Gone<'_> {
        fn drop(&mut self) {
            let _ = mounts::remove(self.0);
            for made in &self.1 {
                let _ = fs::remove_dir(made);
            }
        }
    }

    #[test]
    fn a_mount_is_made_once_holds_files_and_goes() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: nothing can be mounted");
        let root = Root::real();
        let size = Status::read(&root).ok().and_then(|status| status.default);
        testkit::require!(size.is_some(), "no hugetlb");
        // A user with a number that does not exist on this machine, so no other process uses the directory.
        let owner = Owner::User("4294900001".to_string());
        let limits = Limits { size: Some(ByteSize::mib(5)), inodes: Some(10), ..Limits::default() };
        let plan = mounts::plan(&root, &owner, size.unwrap(), limits).unwrap();
        let above = plan.point.ancestors().skip(1).filter(|above| !above.exists());
        let gone = Gone(&plan.point, above.collect());
        let made = mounts::make(&plan);
        testkit::require!(made.is_ok(), "nothing can be mounted here: {}", made.unwrap_err());
        assert_eq!(made.unwrap(), MountOutcome::New);
        assert_eq!(mounts::make(&plan).unwrap(), MountOutcome::AlreadyThere);
        let all = mounts::mounts(&root).unwrap();
        let found = all.iter().filter(|mount| mount.point == plan.point).collect::<Vec<_>>();
        assert_eq!((found.len(), found[0].size), (1, Some(ByteSize::mib(4))));
        fs::write(plan.point.join("left"), "").unwrap();
        let began = std::time::Instant::now();
        let is_late = || began.elapsed() > std::time::Duration::from_secs(90);
        // In a container the first process may not be readable.
        let (all_seen, stale) = loop {
            let users = Users::read(&root);
            let path = plan.point.join("left");
            let left = users.files.iter().find(|file| file.path == path).unwrap();
            // A child of another test may hold our files open until it executes its program.
            if left.stale != Stale::InUse || is_late() {
                break (users.unknown.is_empty(), left.stale);
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert_eq!(stale, if all_seen { Stale::Stale } else { Stale::Unknown });
        let open = fs::File::open(plan.point.join("left")).unwrap();
        let users = Users::read(&root);
        let left = users.files.iter().find(|file| file.path == plan.point.join("left")).unwrap();
        assert_eq!(left.stale, Stale::InUse);
        drop(open);
        let began = std::time::Instant::now();
        while let Err(error) = mounts::remove(&plan.point) {
            assert!(began.elapsed() < std::time::Duration::from_secs(90), "{error}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(mounts::remove(&plan.point).unwrap_err().to_string().contains("not a hugetlbfs"));
        assert!(!plan.point.exists());
        drop(gone);
    }

    #[test]
    fn a_mount_reserves_its_minimum_and_fails_without_it() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: nothing can be mounted");
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let _found = testkit::PoolsAsFound::note();
        let (root, size) = (Root::real(), PageSize::new(2 << 20).unwrap());
        let knob = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages";
        testkit::require!(testkit::leave_free(0), "the pool of 2 MiB pages cannot be emptied");
        // A user id that no account has, so that no other program uses this directory.
        let owner = Owner::User("4294900002".to_string());
        let limits = Limits { min_size: Some(ByteSize::mib(5)), ..Limits::default() };
        let plan = mounts::plan(&root, &owner, size, limits).unwrap();
        let above = plan.point.ancestors().skip(1).filter(|above| !above.exists());
        let _gone = Gone(&plan.point, above.collect());
        assert!(mounts::make(&plan).is_err(), "an empty pool reserved three pages");
        fs::write(knob, "3").unwrap();
        let made = mounts::make(&plan);
        testkit::require!(made.is_ok(), "nothing can be mounted here: {}", made.unwrap_err());
        let all = mounts::mounts(&root).unwrap();
        let found = all.iter().find(|mount| mount.point == plan.point).unwrap();
        assert_eq!(found.min_size, Some(ByteSize::mib(6)));
        assert_eq!(Status::read(&root).unwrap().pool(size).unwrap().reserved, Some(3));
        assert_eq!(mounts::make(&plan).unwrap(), MountOutcome::AlreadyThere);
        let other = Limits { min_size: None, ..limits };
        let other = mounts::plan(&root, &owner, size, other).unwrap();
        assert!(mounts::make(&other).unwrap_err().to_string().contains("reserved size"));
        mounts::remove(&plan.point).unwrap();
        assert_eq!(Status::read(&root).unwrap().pool(size).unwrap().reserved, Some(0));
    }

    #[test]
    fn this_process_is_found() {
        testkit::lock_machine!();
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let _found = testkit::PoolsAsFound::note();
        let size = PageSize::new(2 << 20).unwrap();
        let knob =
            format!("/sys/kernel/mm/hugepages/{}", "hugepages-2048kB/nr_overcommit_hugepages");
        testkit::require!(fs::write(knob, "8").is_ok(), "no pool of 2 MiB pages");
        let backing = sys::mem::Backing::Hugetlb(size);
        let mut memory = sys::mem::Mapping::anonymous(4 << 21, backing).unwrap();
        memory.bytes_mut()[0] = 1;
        let users = Users::read(&Root::real());
        let own = users.processes.iter().find(|one| one.pid == sys::param::own_pid()).unwrap();
        assert_eq!(own.sizes[&size].mapped, ByteSize(4 << 21));
        assert_eq!(own.sizes[&size].private, ByteSize(1 << 21));
    }
}
