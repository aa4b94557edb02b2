//! A machine in a temporary directory, whose files answer writes as the kernel's do.

extern crate superpage_doctor as doctor;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use doctor::{Facts, Report, State, Step, Workload, examine};
use host::Root;
use units::PageSize;

pub const THP: &str = "/sys/kernel/mm/transparent_hugepage";
pub const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const JOURNAL: &str = "/var/lib/superpage/journal";

pub struct Machine(tempfile::TempDir);

impl Machine {
    /// An ordinary machine of 16 GiB and one node, as Debian 13 sets it up: THP for advised memory, no pools.
    pub fn debian() -> Self {
        // In memory: the tests make some two hundred machines of eighty files.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let machine = Self(dir.unwrap());
        for (file, text) in FILES {
            machine.put(file, text);
        }
        machine.free(&[10, 10, 10, 10, 10, 10, 10, 10, 10, 100, 1500]);
        machine.counters(&[]);
        for dir in [JOURNAL, "/sys/devices/system/node/node0", "/sys/fs/cgroup/system.slice"] {
            fs::create_dir_all(machine.path(dir)).unwrap();
        }
        machine.pool(2048, 0, 0, 0);
        machine.pool(1 << 20, 0, 0, 0);
        machine
    }

    pub fn root(&self) -> Root {
        Root::at(self.0.path()).with_page_size(PageSize::new(4096).unwrap())
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.root().path(file)
    }

    pub fn put(&self, file: &str, text: &str) {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    /// Adds lines to a file, or makes it.
    pub fn add(&self, file: &str, text: &str) {
        let before = fs::read_to_string(self.path(file)).unwrap_or_default();
        self.put(file, &(before + text));
    }

    /// Replaces a line's beginning up to its end.
    pub fn line(&self, file: &str, start: &str, rest: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.lines().any(|line| line.starts_with(start)), "{file} has no {start}");
        let lines = text.lines().map(|line| match line.starts_with(start) {
            true => format!("{start}{rest}"),
            false => line.to_string(),
        });
        self.put(file, &lines.collect::<Vec<_>>().join("\n"));
    }

    pub fn remove(&self, file: &str) {
        let path = self.path(file);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// Selects a word of a setting such as `always [madvise] never`, or writes another file.
    pub fn set(&self, file: &str, value: &str) {
        let now = fs::read_to_string(self.path(file)).unwrap_or_else(|it| panic!("{file}: {it}"));
        let text = match now.contains('[') {
            true => {
                let words: Vec<&str> =
                    now.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
                assert!(words.contains(&value), "{file}: the kernel takes {words:?}, not {value}");
                let words = words.into_iter().map(|word| match word == value {
                    true => format!("[{word}]"),
                    false => word.to_string(),
                });
                words.collect::<Vec<_>>().join(" ")
            }
            false => value.to_string(),
        };
        self.put(file, &text);
    }

    pub fn thp(&self, name: &str, value: &str) {
        self.set(&format!("{THP}/{name}"), value);
    }

    pub fn vm(&self, name: &str, value: &str) {
        self.set(&format!("/proc/sys/vm/{name}"), value);
    }

    pub fn pool(&self, kib: u64, total: u64, free: u64, reserved: u64) {
        let dir = format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB");
        for (name, value) in [
            ("nr_hugepages", total),
            ("free_hugepages", free),
            ("resv_hugepages", reserved),
            ("surplus_hugepages", 0),
            ("nr_overcommit_hugepages", 0),
        ] {
            self.put(&format!("{dir}/{name}"), &value.to_string());
        }
    }

    /// Free blocks by order of the Normal zone.
    pub fn free(&self, blocks: &[u64]) {
        let blocks: Vec<String> = blocks.iter().map(ToString::to_string).collect();
        let dma = "Node 0, zone      DMA 0 0 0 0 0 0 0 0 1 1 3";
        self.put("/proc/buddyinfo", &format!("{dma}\nNode 0, zone   Normal {}", blocks.join(" ")));
    }

    /// `/proc/vmstat` of a machine without trouble, with these counters instead.
    pub fn counters(&self, changed: &[(&str, u64)]) {
        let mut text = String::new();
        for (name, value) in [
            ("thp_fault_alloc", 50_000),
            ("thp_fault_fallback", 100),
            ("thp_fault_fallback_charge", 0),
            ("thp_swpout", 0),
            ("thp_swpout_fallback", 0),
            ("compact_stall", 40),
            ("compact_fail", 30),
        ] {
            let value = changed.iter().find(|(it, _)| *it == name).map_or(value, |it| it.1);
            text += &format!("{name} {value}\n");
        }
        self.put("/proc/vmstat", text.trim_end());
    }

    /// A process with its name, arguments and variables.
    pub fn process(&self, pid: i32, command: &str, variables: &str) {
        let program = command.split(' ').next().unwrap().rsplit('/').next().unwrap();
        let dir = format!("/proc/{pid}");
        let stat =
            format!("{pid} ({program}) S 1 1 1 0 -1 0 5 0 0 0 0 0 0 0 20 0 3 0 77 4096 10 0 0 0 0");
        self.put(&format!("{dir}/stat"), &stat);
        self.put(
            &format!("{dir}/status"),
            &format!(
                "Name:\t{program}\nUid:\t0\t0\t0\t0\nVmRSS:\t 1048576 kB\nHugetlbPages:\t       0 kB\n\
                 THP_enabled:\t1"
            ),
        );
        self.put(&format!("{dir}/cgroup"), &format!("0::/system.slice/{program}.service"));
        let zeros = |text: &str| text.replace(' ', "\0") + "\0";
        fs::write(self.path(&format!("{dir}/cmdline")), zeros(command)).unwrap();
        fs::write(self.path(&format!("{dir}/environ")), zeros(variables)).unwrap();
        self.put(
            &format!("{dir}/maps"),
            "7f0000000000-7f0000001000 r-xp 00000000 08:01 7 /usr/lib/x86_64-linux-gnu/libc.so.6",
        );
        fs::create_dir_all(self.path(&format!("{dir}/fd"))).unwrap();
    }

    /// A PostgreSQL server with 4 GiB of shared buffers.
    pub fn postgres(&self, settings: &str) {
        self.process(70, "/usr/lib/postgresql/17/bin/postgres -D /data", "");
        // 4.25 GiB.
        self.add(
            "/proc/70/maps",
            "7e0000000000-7e0110000000 rw-s 00000000 00:01 9 /dev/zero (deleted)",
        );
        let file = "/proc/70/root/data/postgresql.conf";
        self.put(
            file,
            &format!("shared_buffers = 128MB # min 128kB\nshared_buffers = 4GB\n{settings}"),
        );
    }

    /// A hugetlbfs mount at `/dev/hugepages`.
    pub fn mount(&self, options: &str, mode: u32) {
        self.add("/proc/self/mounts", &format!("hugetlbfs /dev/hugepages hugetlbfs {options} 0 0"));
        let path = self.path("/dev/hugepages");
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    pub fn two_nodes(&self) {
        for (node, size) in [(0, 2048), (1, 2048), (0, 1 << 20), (1, 1 << 20)] {
            let dir = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB");
            for name in ["nr_hugepages", "free_hugepages", "surplus_hugepages"] {
                self.put(&format!("{dir}/{name}"), "0");
            }
        }
    }

    /// Every file, as an absolute path below the machine's root.
    pub fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.0.path().to_path_buf()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
                match entry.is_dir() {
                    true => dirs.push(entry),
                    false => found.push(entry.strip_prefix(self.0.path()).unwrap().to_path_buf()),
                }
            }
        }
        found.sort();
        found.into_iter().map(|path| format!("/{}", path.display())).collect()
    }

    pub fn facts(&self) -> Facts {
        Facts::read(&self.root(), &self.path(JOURNAL))
    }

    pub fn examine(&self, workload: Workload) -> Report {
        examine(&self.facts(), workload)
    }

    pub fn state(&self, id: &str, workload: Workload) -> State {
        let report = self.examine(workload);
        report.checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no {id}")).state
    }

    /// Does what a command does to a machine's files; other programs do nothing.
    pub fn apply(&self, step: &Step) {
        match step {
            Step::Write { file, .. } if file == "/proc/sys/vm/compact_memory" => {
                self.free(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1600]);
            }
            Step::Write { file, value } => self.set(file, value),
            Step::Pool { size, pages } => {
                let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.bytes() / 1024);
                let number = |name: &str| -> u64 {
                    let text = fs::read_to_string(self.path(&format!("{dir}/{name}"))).unwrap();
                    text.trim().parse().unwrap()
                };
                let (total, free) = (number("nr_hugepages"), number("free_hugepages"));
                let used = total - free;
                assert!(*pages >= used, "a pool cannot shrink below what is used");
                self.set(&format!("{dir}/nr_hugepages"), &pages.to_string());
                self.set(&format!("{dir}/free_hugepages"), &(pages - used).to_string());
                self.set(&format!("{dir}/surplus_hugepages"), "0");
            }
            Step::Run { words } => match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["chmod", "o-w", path] => {
                    let path = self.path(path);
                    let mode = fs::metadata(&path).unwrap().permissions().mode() & !0o002;
                    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
                }
                ["rm", "--", path] => self.remove(path),
                ["superpage", "restore"] => self.remove(&format!("{JOURNAL}/journal.jsonl")),
                ["systemctl", "disable", "--now", unit] => {
                    self.remove(&format!("/etc/systemd/system/multi-user.target.wants/{unit}"))
                }
                _ => {}
            },
        }
    }
}

const MEMINFO: &str = "\
MemTotal:       16777216 kB
MemFree:         6500000 kB
MemAvailable:   12000000 kB
AnonPages:       3000000 kB
Shmem:            200000 kB
AnonHugePages:   2000000 kB
Hugepagesize:       2048 kB
SwapTotal:             0 kB
SwapFree:              0 kB
CommitLimit:     8388608 kB
Committed_AS:    4000000 kB";

const ZONEINFO: &str = "\
Node 0, zone      DMA
  pages free     3840
        managed  3840
Node 0, zone    DMA32
  pages free     90000
        managed  700000
Node 0, zone   Normal
  pages free     1500000
        managed  3400000
Node 0, zone  Movable
  pages free     0
        managed  0";

const FILES: [(&str, &str); 48] = [
    ("/proc/meminfo", MEMINFO),
    ("/proc/zoneinfo", ZONEINFO),
    ("/proc/uptime", "90000.17 80000.0"),
    ("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet"),
    (
        "/proc/cpuinfo",
        "processor : 0\nvendor_id : GenuineIntel\nmodel name : x\nflags : fpu pdpe1gb",
    ),
    ("/proc/self/mounts", "proc /proc proc rw 0 0"),
    ("/proc/sys/kernel/osrelease", "6.12.0-13-amd64"),
    ("/proc/sys/kernel/random/boot_id", "11111111-2222-4333-8444-555555555555"),
    ("/proc/sys/kernel/numa_balancing", "0"),
    ("/proc/sys/kernel/perf_event_paranoid", "2"),
    ("/proc/sys/kernel/shmall", "18446744073692774399"),
    ("/proc/sys/kernel/shmmax", "18446744073692774399"),
    ("/proc/sys/vm/compaction_proactiveness", "20"),
    ("/proc/sys/vm/compact_unevictable_allowed", "1"),
    ("/proc/sys/vm/extfrag_threshold", "500"),
    ("/proc/sys/vm/hugetlb_optimize_vmemmap", "0"),
    ("/proc/sys/vm/hugetlb_shm_group", "0"),
    ("/proc/sys/vm/min_free_kbytes", "67584"),
    ("/proc/sys/vm/nr_hugepages", "0"),
    ("/proc/sys/vm/overcommit_memory", "0"),
    ("/proc/sys/vm/zone_reclaim_mode", "0"),
    ("/etc/group", "root:x:0:\npostgres:x:120:"),
    ("/etc/sysctl.d/99-sysctl.conf", "# nothing"),
    ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids"),
    ("/sys/fs/cgroup/hugetlb.2MB.events.local", "max 0"),
    ("/sys/kernel/mm/ksm/run", "0"),
    ("/sys/kernel/mm/ksm/pages_sharing", "0"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "always defer defer+madvise [madvise] never"),
    (
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "always within_size advise [never] deny force",
    ),
    ("/sys/kernel/mm/transparent_hugepage/use_zero_page", "1"),
    ("/sys/kernel/mm/transparent_hugepage/shrink_underused", "1"),
    ("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "1"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "4096"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "10000"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/alloc_sleep_millisecs", "60000"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none", "511"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_swap", "64"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_shared", "256"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed", "7"),
    ("/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans", "7"),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
        "always inherit madvise [never]",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled",
        "always inherit within_size advise [never]",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled",
        "always [inherit] madvise never",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled",
        "always [inherit] within_size advise never",
    ),
    ("/etc/systemd/system/other.service", "[Service]\nExecStart=/bin/true"),
    ("/etc/tuned/active_profile", ""),
];
