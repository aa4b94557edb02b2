//! libhugetlbfs_privutils.so: its symbols, and its functions' results compared with the kernel's files.
//!
//! Pure tier (the file), kernel tier (reading), privileged tier (writing the overcommit limit and the pool).

use std::path::Path;

use crate::{Installed, POOL, assert_success, exported, text, with_four_superpages};

#[test]
fn it_has_the_symbols_that_the_test_suite_asks_for() {
    let symbols = exported(compat::PRIVUTILS);
    let names = [
        "arch_has_slice_support",
        "get_huge_page_counter",
        "hugetlbfs_test_feature",
        "kernel_default_hugepage_size",
        "kernel_has_hugepages",
        "kernel_has_overcommit",
        "read_meminfo",
        "read_nr_overcommit",
        "restore_overcommit_pages",
        "set_huge_page_counter",
        "set_nr_hugepages",
        "set_nr_overcommit_hugepages",
        "test_compare_kver",
    ];
    let expected = names.map(|name| (format!("__pu_{name}"), "VERS_1.0".to_string()));
    assert_eq!(symbols, expected.into());
}

/// Reads the counters. With an argument it also writes them, and restores them.
const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "libhugetlbfs_privutils.h"
#define CHECK(what) do { if (!(what)) { printf("line %d: %s: %s\n", __LINE__, #what, strerror(errno)); exit(1); } } while (0)
static void versions(void) {
    static const struct { const char *a, *b; int expected; } cases[] = {
        {"6.1", "6.1.0", 0}, {"6.1.0", "6.2", -1}, {"6.10.1", "6.9.12", 1}, {"5.19", "6.0", -1},
        {"2.6.27-rc3", "2.6.27", -1}, {"2.6.27-rc3", "2.6.26", 1}, {"2.6.27-rc3", "2.6.27-rc10", -1},
        {"2.6.16.60-0.21-smp", "2.6.16.60", 0}, {"6.1.0-13-amd64", "6.1.0", 0}, {"3.10.0", "3.10.0-rc1", 1},
        {"v6.1", "6.1", -2}, {"6.1", "", -2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (test_compare_kver(cases[i].a, cases[i].b) != cases[i].expected)
            printf("%s %s: not %d\n", cases[i].a, cases[i].b, cases[i].expected), exit(1);
}
int main(int argc, char **argv) {
    (void) argv;
    versions();
    CHECK(read_meminfo("MemTotal:") > 1024);
    CHECK(read_meminfo("MemTot") == -1 && errno == EINVAL);
    CHECK(read_meminfo("") == -1 && read_meminfo("NoSuchLine:") == -1);
    long size = kernel_default_hugepage_size();
    CHECK(kernel_has_hugepages() == (size > 0));
    CHECK(hugetlbfs_test_feature(HUGETLB_FEATURE_MAP_HUGETLB) == (size > 0));
    CHECK(hugetlbfs_test_feature(HUGETLB_FEATURE_NR) == -1 && errno == EINVAL);
    CHECK(get_huge_page_counter(4096, HUGEPAGES_TOTAL) == -1 && errno == ENOENT);
    CHECK(get_huge_page_counter(size, HUGEPAGES_MAX_COUNTERS) == -1 && errno == EINVAL);
    CHECK(get_huge_page_counter(0, HUGEPAGES_TOTAL) == -1 && errno == EINVAL);
    CHECK(set_huge_page_counter(size, HUGEPAGES_FREE, 1) == -1 && errno == EACCES);
    CHECK(set_nr_hugepages(4096, 1) == -1 && errno == ENOENT);
    restore_overcommit_pages(size, -1);
    for (unsigned counter = 0; counter < HUGEPAGES_MAX_COUNTERS; counter++)
        printf("%ld ", get_huge_page_counter(size, counter));
    printf("%ld\n", size);
    if (argc > 1) {
        long limit = read_nr_overcommit(size), total = get_huge_page_counter(size, HUGEPAGES_TOTAL);
        CHECK(kernel_has_overcommit() == 1 && limit >= 0 && total >= 4);
        CHECK(set_nr_overcommit_hugepages(size, limit + 3) == 0 && read_nr_overcommit(size) == limit + 3);
        restore_overcommit_pages(size, limit);
        CHECK(read_nr_overcommit(size) == limit);
        CHECK(set_nr_hugepages(size, total - 1) == 0);
        CHECK(get_huge_page_counter(size, HUGEPAGES_TOTAL) == total - 1);
        CHECK(set_nr_hugepages(size, total) == 0);
    }
    return 0;
}
"#;

/// Runs the program without an argument, and compares what it read with the kernel's files. Returns the default size.
fn reads_as_the_kernel(installed: &Installed, program: &Path) -> u64 {
    let output = installed.run(program, &[]);
    assert_success(&output);
    let numbers: Vec<u64> =
        text(&output.stdout).split_whitespace().map(|it| it.parse().expect("pages")).collect();
    let size = numbers[6];
    let counters = [
        "nr_hugepages",
        "nr_hugepages_mempolicy",
        "free_hugepages",
        "resv_hugepages",
        "surplus_hugepages",
        "nr_overcommit_hugepages",
    ];
    let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size / 1024);
    for (name, number) in counters.iter().zip(&numbers) {
        let path = format!("{pool}/{name}");
        match std::fs::read_to_string(&path) {
            Ok(there) => assert_eq!(there.trim(), number.to_string(), "{name}"),
            // A kernel without NUMA has no counter by memory policy.
            Err(error) if *name == "nr_hugepages_mempolicy" => {
                testkit::skipped!("{path}: {error}");
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }
    size
}

#[test]
fn it_reads_the_counters() {
    testkit::require!(Path::new(POOL).exists(), "no 2 MiB pages on this machine");
    testkit::lock_machine!(shared);
    testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
    let installed = Installed::new();
    let program = installed.program("privutils", PROGRAM, &["-lhugetlbfs_privutils"]);
    reads_as_the_kernel(&installed, &program);
}

mod exclusive {
    use super::*;

    #[test]
    fn it_reads_and_writes_the_counters() {
        let installed = Installed::new();
        let program = installed.program("privutils", PROGRAM, &["-lhugetlbfs_privutils"]);
        with_four_superpages(|| {
            let size = reads_as_the_kernel(&installed, &program);
            testkit::require!(size == 2 << 20, "the default size is not 2 MiB");
            let output = std::process::Command::new(&program)
                .arg("write")
                .env("LD_LIBRARY_PATH", installed.dir.path())
                .output()
                .expect("it starts");
            assert_success(&output);
        });
    }
}
