//! Relinking as the works on libhugetlbfs describe it: `gcc -B DIR -Wl,--hugetlbfs-align`, `--hugetlbfs-link`, and
//! `hugectl --text --data --no-preload`. The test reads back which memory is on superpages.
//!
//! Privileged tier: a pool of a few superpages.

use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::PoolsAsFound;

use crate::common::superpage;

/// Writes to 6 MiB of data and of bss, then prints the KiB on pool pages: of all memory, and of code.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
static char data[6 << 20] = {1};
static char bss[6 << 20];
int main(void) {
    for (int i = 0; i < (int) sizeof data; i += 4096)
        data[i]++, bss[i] = 2;
    unsigned long all = 0, code = 0, from, to, kib;
    char line[512], may[8] = "";
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (fgets(line, sizeof line, smaps)) {
        sscanf(line, "%lx-%lx %7s", &from, &to, may);
        if (sscanf(line, "Private_Hugetlb: %lu", &kib) == 1 || sscanf(line, "Shared_Hugetlb: %lu", &kib) == 1)
            all += kib, code += strchr(may, 'x') ? kib : 0;
    }
    printf("%lu %lu %d\n", all, code, data[0] + bss[4096]);
    return 0;
}
"#;

/// Returns the directory in which cargo puts the commands and the libraries.
fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_superpage")).parent().expect("a directory")
}

fn relinked(dir: &Path, options: &[&str]) -> PathBuf {
    let (source, program) = (dir.join("prog.c"), dir.join("prog"));
    std::fs::write(&source, PROGRAM).expect("written");
    let mut gcc = Command::new("gcc");
    gcc.arg("-O1").arg("-B").arg(built().join("libhugetlbfs")).args(options).arg(&source);
    gcc.arg("-L").arg(built()).arg("-lhugetlbfs").arg("-o").arg(&program);
    let done = gcc.output().expect("gcc starts");
    assert!(done.status.success(), "{gcc:?}: {}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Returns the MiB on pool pages: of all memory, and of code.
fn pool_mib(mut command: Command) -> [u64; 2] {
    let done = command.env("LD_LIBRARY_PATH", built()).output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout);
    let numbers: Vec<u64> = said.split_whitespace().map(|it| it.parse().expect("KiB")).collect();
    let [all, code, sum] = numbers[..] else {
        panic!("{command:?}: {said}{}", String::from_utf8_lossy(&done.stderr))
    };
    assert_eq!(sum, 4, "its memory holds what was written");
    [all >> 10, code >> 10]
}

fn can_link() -> bool {
    let is_there = |name: &str| built().join(name).exists();
    is_there("libhugetlbfs/ld") && is_there("libhugetlbfs.so") && is_there("libsuperpage.so")
}

#[test]
fn the_linker_says_what_it_does_not_know() {
    testkit::require!(can_link(), "libhugetlbfs.so was not built: cargo build -p superpage-compat");
    let refused = |option: &str| {
        let done = Command::new(built().join("libhugetlbfs/ld")).arg(option).output().unwrap();
        assert!(!done.status.success());
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    assert_eq!(
        refused("--hugetlbfs-link=D"),
        "ld.hugetlbfs: invalid --hugetlbfs-link=D: expected B or BDT\n"
    );
    assert!(refused("--hugetlbfs-x").contains("expected --hugetlbfs-align or --hugetlbfs-link"));
    let mut linker = Command::new(built().join("libhugetlbfs/ld"));
    let done = linker.args(["--hugetlbfs-align", "-static", "--version"]).output().unwrap();
    assert!(done.status.success());
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("linked with -static stay on base pages"), "{said}");
    // Without one of its own options the script is the same as ld.
    let plain = Command::new(built().join("libhugetlbfs/ld")).arg("--version").output().unwrap();
    assert!(plain.status.success() && String::from_utf8_lossy(&plain.stdout).contains("ld"));
}

mod exclusive {
    use super::*;

    #[test]
    fn relinked_programs_have_their_segments_on_superpages() {
        testkit::require!(
            can_link(),
            "libhugetlbfs.so was not built: cargo build -p superpage-compat"
        );
        testkit::require!(Command::new("gcc").arg("--version").output().is_ok(), "there is no gcc");
        testkit::require!(testkit::is_root(), "the pool is root's");
        testkit::lock_machine!();
        let _pools = PoolsAsFound::note();
        testkit::require!(testkit::leave_free(20), "this machine has no 20 free superpages");
        let dir = tempfile::tempdir().expect("a directory");
        for kind in ["-pie", "-no-pie"] {
            // bss has 6 MiB, and data with bss 12; the linker chooses where they start in a superpage. Code has one
            // superpage.
            for (link, expected, code_itself) in [
                ("-Wl,--hugetlbfs-align", 0..=0, 0),
                ("-Wl,--hugetlbfs-link=B", 6..=8, 0),
                ("-Wl,--hugetlbfs-link=BDT", 14..=20, 2),
            ] {
                let program = relinked(dir.path(), &[kind, link]);
                let context = format!("{kind} {link}");
                let [all, code] = pool_mib(Command::new(&program));
                assert!(
                    expected.contains(&all) && code == code_itself,
                    "{context}: {all}, {code} MiB"
                );
                let mut asked = Command::new(&program);
                asked.env("HUGETLB_ELFMAP", "RW");
                let [all, code] = pool_mib(asked);
                assert!(all >= 16 && code == 2, "{context}: {all}, {code} MiB");
                let words =
                    ["hugectl", "--text", "--data", "--no-preload", program.to_str().unwrap()];
                assert_eq!(pool_mib(superpage(&words)), [all, code], "{context}");
            }
        }
    }
}
