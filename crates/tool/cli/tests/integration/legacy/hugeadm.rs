//! hugeadm: lists, dry runs that change nothing, errors, and real changes.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{refuses, tool};
use crate::common::{NO_POOL, POOL, has_pool, stderr, stdout};

/// Returns every file that hugeadm could write, by name, and other state that it could change.
fn machine() -> Vec<(String, String)> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut dirs = vec![
        PathBuf::from("/sys/kernel/mm/hugepages"),
        PathBuf::from("/sys/kernel/mm/transparent_hugepage"),
    ];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    // These counters, here and below, change by themselves.
    let counts = ["free_", "resv_", "surplus_", "full_scans", "pages_collapsed", "stats"];
    files.retain(|file| !counts.iter().any(|word| file.to_string_lossy().contains(word)));
    let others = ["/proc/sys/kernel/shmmax"].map(PathBuf::from);
    let vm = ["hugetlb_shm_group", "min_free_kbytes", "nr_overcommit_hugepages"];
    let vm = vm.map(|name| PathBuf::from("/proc/sys/vm").join(name));
    files.extend(others.into_iter().chain(vm));
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| error.to_string());
        (path.display().to_string(), text)
    };
    let mut all: Vec<(String, String)> = files.into_iter().map(read).collect();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts: String = mounts.lines().filter(|line| line.contains("hugetlbfs")).collect();
    all.push(("mounts".to_string(), mounts));
    // Leave out how much of each swap file is used.
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swaps = swaps.lines().filter_map(|line| line.split_whitespace().next());
    all.push(("swaps".to_string(), swaps.collect::<Vec<_>>().join(" ")));
    let dir = fs::read_dir("/var/lib/hugetlbfs").map(|entries| entries.count());
    all.push(("/var/lib/hugetlbfs".to_string(), format!("{:?}", dir.ok())));
    all
}

/// Errors in the arguments alone are reported on a machine without pools too.
#[test]
fn junk_is_refused_without_a_look_at_pools() {
    refuses(
        "hugeadm",
        &[
            (&[], &["say what to do"]),
            (&["--hard"], &["say what to do"]),
            (&["-v"], &["say what to do"]),
            (&["--pool-list", "x"], &["\"x\""]),
            (&["--pool"], &["ambiguous", "--pool-pages-min"]),
            (&["--banana"], &["'--banana'"]),
            (&["--pool-pages-min"], &["requires an argument"]),
            (&["--pool-pages-min", "2M"], &["`2M`", "SIZE:AMOUNT"]),
            (&["--pool-pages-min", "2M:10Q"], &["invalid amount `10Q`"]),
            (&["--pool-pages-min", "2M:banana"], &["invalid amount `banana`"]),
            (&["--pool-pages-min", "banana:3"], &["invalid page size `banana`"]),
            (&["--pool-pages-max", "2M:"], &["invalid amount"]),
            (&["--persist"], &["--add-temp-swap"]),
            (&["--add-temp-swap"], &["--pool-pages-min"]),
            (&["--add-temp-swap=x", "--pool-pages-min", "2M:+1"], &["--add-temp-swap=x"]),
            (&["--add-temp-swap=0", "--pool-pages-min", "2M:+1"], &["above zero"]),
            (&["--add-temp-swap", "--add-ramdisk-swap", "--pool-pages-min=2M:+1"], &["choose one"]),
            (&["--obey-mempolicy"], &["--pool-pages-min"]),
            (&["--thp-khugepaged-pages", "banana"], &["`banana` is no number"]),
            (&["--thp-khugepaged-scan-sleep", "-1"], &["`-1` is no number"]),
            (&["--thp-always", "--thp-never"], &["exclude each other"]),
            (&["--create-mounts", "--max-size", "banana"], &["--max-size", "`banana`"]),
            (&["--create-mounts", "--max-size", "0"], &["--max-size"]),
            (&["--create-mounts", "--max-inodes", "many"], &["--max-inodes=many"]),
            (&["--max-size", "4M"], &["--create-mounts"]),
            (&["--verbose", "100", "--pool-list"], &["0-99"]),
            (&["--verbose=x", "--pool-list"], &["x: verbosity"]),
        ],
    );
}

/// Unmounts on drop what the test mounted.
struct NoMounts;

impl Drop for NoMounts {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines().filter(|line| line.contains(" /var/lib/hugetlbfs/")) {
            let point = line.split(' ').nth(1).unwrap_or_default();
            let _ = Command::new("umount").arg(point).status();
        }
        let _ = fs::remove_dir_all("/var/lib/hugetlbfs");
    }
}

/// These tests change settings, or compare settings that another run may change for a moment: the launcher grows the
/// pool if memory is fragmented.
mod exclusive {
    use super::*;

    /// Each line of libhugetlbfs' hugeadm whose right value on this machine is known.
    #[test]
    fn lists_are_as_scripts_read_them() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let list = stdout(&tool("hugeadm", &["--pool-list"]));
        let mut lines = list.lines();
        assert_eq!(lines.next(), Some("      Size  Minimum  Current  Maximum  Default"));
        let number = |name: &str| -> u64 {
            fs::read_to_string(format!("{POOL}/{name}")).unwrap().trim().parse().unwrap()
        };
        let (total, surplus) = (number("nr_hugepages"), number("surplus_hugepages"));
        let (min, max) = (total - surplus, total - surplus + number("nr_overcommit_hugepages"));
        let row = lines.find(|line| line.trim_start().starts_with("2097152 ")).unwrap();
        assert!(row.starts_with(&format!("   2097152 {min:>8} {total:>8} {max:>8}")), "{row}");
        assert!(list.lines().all(|line| line.len() == 46), "{list}");
        // Abbreviated options, and options that do not affect a list.
        for words in [&["--pool-l"][..], &["-v", "--pool-list"]] {
            assert_eq!(stdout(&tool("hugeadm", words)), list);
        }
        assert_eq!(
            stdout(&tool("hugeadm", &["-d", "--pool-list"])),
            format!("HUGETLB_VERBOSE='2'\n{list}")
        );
        assert_eq!(
            stdout(&tool("hugeadm", &["--page-sizes-all"])),
            stdout(&tool("pagesize", &["-H"]))
        );
        let explained = stdout(&tool("hugeadm", &["--explain"]));
        assert!(explained.starts_with("Total System Memory: "), "{explained}");
        assert!(
            explained.contains(&format!("\nHuge page pools:\n{list}\nHuge page sizes")),
            "{explained}"
        );
    }

    #[test]
    fn a_dry_run_changes_nothing() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let before = machine();
        for words in [
            &["--pool-pages-min", "2M:+10"][..],
            &["--pool-pages-max", "2M:+10"],
            &["--pool-pages-min", "DEFAULT:+20M", "--pool-pages-max", "DEFAULT:+1G", "--hard"],
            &["--pool-pages-min=2M:+1", "--obey-mempolicy"],
            &["--pool-pages-min=2M:+1", "--add-temp-swap=2", "--persist"],
            &["--set-recommended-min_free_kbytes"],
            &["--set-recommended-shmmax"],
            &["--set-shm-group", "0"],
            &["--set-shm-group", "12345"],
            &["--create-mounts"],
            &["--create-user-mounts", "0", "--max-size", "4M"],
            &["--create-group-mounts", "0", "--max-inodes=7"],
            &["--create-global-mounts"],
            &["--thp-always"],
            &["--thp-madvise"],
            &["--thp-never"],
            &["--thp-khugepaged-pages", "7"],
            &["--thp-khugepaged-scan-sleep", "7"],
            &["--thp-khugepaged-alloc-sleep", "7"],
            &["--enable-zone-movable"],
            &["--explain"],
        ] {
            for dry in ["--dry-run", "-d"] {
                let output = tool("hugeadm", &[&[dry], words].concat());
                let text = stdout(&output);
                assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
                assert!(text.starts_with("HUGETLB_VERBOSE='2'\n"), "{words:?}: {text}");
            }
            assert_eq!(machine(), before, "{words:?}");
        }
        let printed = |words: &[&str]| {
            let text = stdout(&tool("hugeadm", &[&["--dry-run"], words].concat()));
            text.lines().skip(1).map(str::to_string).collect::<Vec<_>>()
        };
        let thp = "/sys/kernel/mm/transparent_hugepage";
        assert_eq!(printed(&["--thp-never"]), [format!("echo 'never' > {thp}/enabled")]);
        assert_eq!(
            printed(&["--thp-khugepaged-pages=7"]),
            [format!("echo '7' > {thp}/khugepaged/pages_to_scan")]
        );
        assert_eq!(
            printed(&["--set-shm-group=0"]),
            ["echo \"0\" > /proc/sys/vm/hugetlb_shm_group"]
        );
    }

    #[test]
    fn what_does_not_fit_the_pools_is_refused_before_anything_is_done() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let before = machine();
        refuses(
            "hugeadm",
            &[
                (&["--pool-pages-min", "2M:33M"], &["32M (16 pages) or 34M (17 pages)"]),
                (&["--pool-pages-min", "4M:1"], &["no pool of 4 MiB pages"]),
                (&["--pool-pages-min", "2M:1000000000"], &["at most", "more fit"]),
                (&["--pool-pages-min", "2M:+1", "--pool-pages-min", "2M:33M"], &["33 MiB"]),
                (&["--set-shm-group", "no-such-group"], &["unknown group `no-such-group`"]),
                (&["--create-user-mounts", "no-such-user"], &["unknown user `no-such-user`"]),
                (&["--create-user-mounts", "../.."], &["../.."]),
            ],
        );
        assert_eq!(machine(), before);
    }

    #[test]
    fn what_this_machine_cannot_is_said() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let before = machine();
        if !PathBuf::from("/proc/sys/vm/hugepages_treat_as_movable").exists() {
            refuses("hugeadm", &[(&["--disable-zone-movable"], &["gone since Linux 4.16"])]);
            let output = tool("hugeadm", &["--enable-zone-movable"]);
            assert_eq!(output.status.code(), Some(0));
            assert!(stderr(&output).contains("WARNING"), "{}", stderr(&output));
        }
        if !PathBuf::from("/dev/ram0").exists() {
            let words = &["--pool-pages-min", "2M:+1", "--add-ramdisk-swap"];
            refuses("hugeadm", &[(words, &["there is no /dev/ram0", "modprobe brd"])]);
        }
        if PathBuf::from("/sys/kernel/mm/hugepages/hugepages-1048576kB").exists() {
            refuses("hugeadm", &[(&["--pool-pages-max", "1G:1"], &["1 GiB", "on demand"])]);
        }
        assert_eq!(machine(), before);
    }

    #[test]
    fn pools_move_between_their_bounds() {
        testkit::require!(testkit::is_root(), "not root: no pool can be changed");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let _pools = testkit::PoolsAsFound::note();
        testkit::require!(testkit::leave_free(10), "this machine has no ten free superpages");
        for name in ["nr_overcommit_hugepages", "nr_hugepages"] {
            fs::write(format!("{POOL}/{name}"), "0").unwrap();
        }
        let in_use = fs::read_to_string(format!("{POOL}/nr_hugepages")).unwrap();
        testkit::require!(in_use.trim() == "0", "somebody has pages of the pool");
        let bounds = || {
            let list = stdout(&tool("hugeadm", &["--pool-list"]));
            let row = list.lines().find(|line| line.trim_start().starts_with("2097152 ")).unwrap();
            let words: Vec<&str> = row.split_whitespace().collect();
            (words[1].parse::<u64>().unwrap(), words[3].parse::<u64>().unwrap())
        };
        for (words, expected) in [
            (&["--pool-pages-min", "2M:10"][..], (10, 10)),
            // Once: 0 to 10.
            (&["--pool-pages-min", "2M:-10"], (0, 0)),
            (&["--pool-pages-max", "2M:8"], (0, 8)),
            (&["--pool-pages-min=2M:+8M"], (4, 8)),
            (&["--pool-pages-min=2M:0"], (0, 8)),
            (&["--pool-pages-min=2M:6", "--pool-pages-max=2M:+1"], (6, 9)),
            (&["--pool-pages-min=2M:2", "--pool-pages-max=2M:2"], (2, 2)),
            (&["--pool-pages-min=2097152:+2048K", "--obey-mempolicy", "--hard"], (3, 3)),
            (&["--pool-pages-min=2M:-100"], (0, 0)),
            (&["--pool-pages-min=2M:4", "--pool-pages-min=2M:+4"], (8, 8)),
            (&["--pool-pages-min=2M:0", "--pool-pages-max=2M:0"], (0, 0)),
        ] {
            let output = tool("hugeadm", words);
            assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
            assert_eq!((stdout(&output), bounds()), (String::new(), expected), "{words:?}");
        }
    }

    #[test]
    fn settings_and_mounts_are_really_made() {
        testkit::require!(testkit::is_root(), "not root: nothing can be changed");
        testkit::lock_machine!();
        let group = "/proc/sys/vm/hugetlb_shm_group";
        let scan = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs";
        let free = "/proc/sys/vm/min_free_kbytes";
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(PathBuf::from(scan).exists(), "no transparent superpages in this kernel");
        let _settings = testkit::AsFound::note([group, scan, free]);
        let shmmax = fs::read_to_string("/proc/sys/kernel/shmmax").unwrap();
        let words = [
            "--set-shm-group",
            "1",
            "--thp-khugepaged-scan-sleep",
            "9876",
            "--set-recommended-shmmax",
        ];
        let output = tool("hugeadm", &words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(fs::read_to_string(group).unwrap().trim(), "1");
        assert_eq!(fs::read_to_string(scan).unwrap().trim(), "9876");
        assert_eq!(fs::read_to_string("/proc/sys/kernel/shmmax").unwrap(), shmmax, "never lowered");
        let before: u64 = fs::read_to_string(free).unwrap().trim().parse().unwrap();
        assert_eq!(tool("hugeadm", &["--set-recommended-min_free_kbytes"]).status.code(), Some(0));
        let after: u64 = fs::read_to_string(free).unwrap().trim().parse().unwrap();
        assert!(after >= before, "{before} -> {after}");

        testkit::require!(
            !PathBuf::from("/var/lib/hugetlbfs").exists(),
            "there are mounts already"
        );
        let _mounts = NoMounts;
        let words = ["--create-group-mounts", "1", "--max-size", "3M", "--max-inodes", "5"];
        let output = tool("hugeadm", &words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let list = stdout(&tool("hugeadm", &["--list-all-mounts"]));
        let line = list.lines().find(|line| line.contains("group/1/pagesize-2MB")).unwrap();
        for part in ["gid=1", "mode=70", "nr_inodes=5", "pagesize=2M", "size=4194304"] {
            assert!(line.contains(part), "{line}");
        }
        let again = tool("hugeadm", &words);
        assert_eq!(again.status.code(), Some(0));
        assert!(stderr(&again).contains("is already mounted."), "{}", stderr(&again));
    }

    #[test]
    fn temporary_swap_goes_and_persistent_swap_stays() {
        testkit::require!(testkit::is_root(), "not root: nothing can be changed");
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(Command::new("mkswap").arg("-V").output().is_ok(), "no mkswap");
        testkit::lock_machine!();
        testkit::require!(
            !PathBuf::from("/var/lib/hugetlbfs").exists(),
            "something is there already"
        );
        let _pools = testkit::PoolsAsFound::note();
        let _mounts = NoMounts;
        // Compare names only: the used part of a swap file changes by itself.
        let swaps = || {
            let text = fs::read_to_string("/proc/swaps").unwrap();
            let names = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
            names.map(|name| format!("{name}\n")).collect::<String>()
        };
        let before = swaps();
        let output = tool("hugeadm", &["--pool-pages-min", "2M:+1", "--add-temp-swap=2"]);
        let said = stderr(&output);
        let has_swap = !said.contains("mkswap ") && !said.contains("swapon ");
        testkit::require!(has_swap, "no swap here: {said}");
        testkit::require!(
            !said.contains("pool minimum"),
            "this machine has no free superpage: {said}"
        );
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(swaps(), before);
        let dir = "/var/lib/hugetlbfs/swap/temp";
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
        let output =
            tool("hugeadm", &["--pool-pages-min", "2M:+1", "--add-temp-swap=2", "--persist"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let found = swaps();
        let file = fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
        let off = Command::new("swapoff").arg(&file).status();
        assert!(off.is_ok_and(|status| status.success()) && found.contains(dir), "{found}");
        // A pool that does not grow needs no swap.
        let output = tool("hugeadm", &["--pool-pages-min", "2M:-1", "--add-temp-swap=2"]);
        assert_eq!((output.status.code(), swaps()), (Some(0), before));
    }
}
