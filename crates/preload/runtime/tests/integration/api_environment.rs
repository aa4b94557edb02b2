//! What superpage.h reports about this machine: sizes, the environment, mounts. As in api.rs, each case is a process of
//! its own.
//!
//! Privileged tier: mounts are made in a mount namespace of their own.

use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::api_calls::child::{child, child_by, succeeds};
use crate::api_calls::{Library, SUPERPAGE};

const POOLS: &str = "/sys/kernel/mm/hugepages";

#[test]
fn sizes_and_the_environment_agree_with_the_kernel() {
    // The library checks whether this machine has the size.
    let has_pool = Path::new(POOLS).join("hugepages-2048kB").exists();
    testkit::require!(has_pool, "no 2 MiB pages on this machine");
    let with = |size: &str| {
        let mut command = child("api_environment::child_sizes");
        command.env("HUGETLB_DEFAULT_PAGE_SIZE", size).env("EXPECTED", "2097152");
        command
    };
    for size in ["", "2M", "2048k", "2097152", "0x200000", "2MB", "2MiB"] {
        assert!(!succeeds(with(size)).contains("WARNING"), "{size}");
    }
    let meminfo = std::fs::read_to_string("/proc/meminfo").expect("readable");
    let default = meminfo.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
    let is_usual = default.is_some_and(|size| size.trim() == "2048 kB");
    testkit::require!(is_usual, "the default size is not 2 MiB here");
    for size in ["banana", "3M", "64T", "-1", "99999999999999999999"] {
        let warnings = succeeds(with(size));
        let expected = format!("HUGETLB_DEFAULT_PAGE_SIZE={size}: no such superpage size here");
        assert_eq!(warnings.matches(&expected).count(), 1, "{warnings}");
    }
    let mut restricted = with("banana");
    restricted.env("HUGETLB_RESTRICT_EXE", "unknown:another").env("HUGETLB_DEBUG", "1");
    assert!(!succeeds(restricted).contains("WARNING"), "not meant for this program");
    let mut featured = with("2M");
    featured.env("HUGETLB_FEATURES", "no_private_reservations");
    assert!(succeeds(featured).contains("HUGETLB_FEATURES is ignored"));
}

#[test]
#[ignore = "started by sizes_and_the_environment_agree_with_the_kernel"]
fn child_sizes() {
    let library = Library::loaded();
    let expected: i64 = std::env::var("EXPECTED").expect("set").parse().expect("a number");
    assert_eq!(library.gethugepagesize(), expected);
    assert_eq!(library.gethugepagesize(), expected);
    let sizes = library.gethugepagesizes(16);
    let pools = std::fs::read_dir(POOLS).expect("pools").count();
    assert_eq!(sizes.len(), pools);
    let with_base = library.getpagesizes(16);
    // SAFETY: an integer in, an integer out.
    assert_eq!(with_base[0], unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    assert_eq!(with_base[1..], sizes);
    assert_eq!(library.getpagesizes(1), with_base[..1]);
    assert_eq!(library.getpagesizes(2), with_base[..2]);
    assert_eq!(library.gethugepagesizes(1), sizes[..1]);
    assert!(library.version().starts_with(env!("CARGO_PKG_VERSION")));
}

#[test]
fn mounts_are_found_whatever_their_lines_look_like() {
    testkit::require!(testkit::is_root(), "mounting is root's");
    let script = "mount --make-rprivate / && exec \"$@\"";
    let works = Command::new("unshare").args(["-m", "true"]).status();
    testkit::require!(works.is_ok_and(|it| it.success()), "no mount namespaces");
    succeeds(child_by(
        &["unshare", "-m", "sh", "-c", script, "sh"],
        "api_environment::child_mounts",
    ));
}

#[test]
#[ignore = "started by mounts_are_found_whatever_their_lines_look_like"]
fn child_mounts() {
    let library = Library::loaded();
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("huge \\ pages\tof mine");
    let long = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("long");
    std::fs::create_dir_all(&dir).expect("made");
    std::fs::create_dir_all(&long).expect("made");
    let mounts = || std::fs::read_to_string("/proc/mounts").expect("readable");
    for line in mounts().lines().filter(|line| line.contains(" hugetlbfs ")) {
        let target = line.split(' ').nth(1).expect("a target");
        let _ = run("umount", &["-l", target]);
    }
    testkit::require!(!mounts().contains(" hugetlbfs "), "hugetlbfs stays mounted here");

    assert_eq!(library.find_path(), None);
    let fd = library.unlinked_fd();
    assert!(fd >= 0, "a memfd where there is no mount");
    assert!(link_of(fd).starts_with("/memfd:"), "{}", link_of(fd));
    assert_eq!(block_size(fd), SUPERPAGE as i64);
    assert_eq!(library.unlinked_fd_for_size(12345), -1);

    // A mount that follows a line of 3000 bytes, with a slash in its source, and blanks and a backslash in its path.
    // mount(8) of util-linux 2.41 limits a source to 255 bytes.
    let source = CString::new("x".repeat(3000)).expect("no null byte");
    let target = CString::new(long.to_str().expect("UTF-8")).expect("no null byte");
    // SAFETY: strings that end with a null byte.
    let mounted = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null())
    };
    assert_eq!(mounted, 0, "{}", std::io::Error::last_os_error());
    let place = dir.to_str().expect("UTF-8");
    assert!(run("mount", &["-t", "hugetlbfs", "-o", "pagesize=2M", "some/where", place]));
    assert_eq!(library.find_path().as_deref(), Some(place), "a mount made later");
    let first = library.find_path_pointer();
    assert_eq!(first, library.find_path_pointer(), "the same for ever");
    assert_eq!(library.test_path(place), 1);
    assert_eq!(library.test_path("/"), 0);
    assert_eq!(library.test_path("/no/such/path"), -1);
    let fd = library.unlinked_fd();
    assert!(fd >= 0);
    assert!(link_of(fd).starts_with(place), "{}", link_of(fd));
    assert_eq!(std::fs::read_dir(&dir).expect("readable").count(), 0, "it has no name");
    // SAFETY: our own descriptor.
    unsafe { libc::close(fd) };

    assert!(run("umount", &[place]));
    assert_eq!(library.find_path(), None, "a mount that went away");
    // SAFETY: memory at an address that was handed out stays readable.
    let kept = unsafe { CStr::from_ptr(first) };
    assert_eq!(kept.to_str().expect("UTF-8"), place);
    assert!(run("umount", &[long.to_str().expect("UTF-8")]));
}

fn run(program: &str, arguments: &[&str]) -> bool {
    // Runs the command without the library, because only this process is tested.
    let mut command = Command::new(program);
    command.args(arguments).env_remove("LD_PRELOAD").status().is_ok_and(|status| status.success())
}

fn link_of(fd: i32) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).expect("an open descriptor");
    link.to_string_lossy().into_owned()
}

fn block_size(fd: i32) -> i64 {
    let mut status = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: a live structure of integers.
    unsafe {
        assert_eq!(libc::fstatfs(fd, status.as_mut_ptr()), 0);
        status.assume_init().f_bsize
    }
}
