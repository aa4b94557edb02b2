//! libhugetlbfs.a, made from the libsuperpage.a of this build, and programs linked statically with it.
//!
//! Kernel tier (a static program), privileged tier (a pool of four superpages).

use std::process::Command;

use crate::{
    Installed, OLD, SEGMENT, assert_success, built, repository, text, with_four_superpages,
};

/// Prints the KiB of pool pages in memory of get_huge_pages, and the KiB left after it is freed.
const PAGES: &str = r#"
#include <stdio.h>
#include <string.h>
#include "hugetlbfs.h"
static long kib_at(char *wanted) {
    FILE *smaps = fopen("/proc/self/smaps", "r");
    unsigned long from, to;
    long sum = 0, kib, is_there = 0;
    char line[512];
    while (fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            is_there = from <= (unsigned long) wanted && (unsigned long) wanted < to;
        if (is_there && sscanf(line, "Private_Hugetlb: %ld", &kib) == 1)
            sum += kib;
    }
    fclose(smaps);
    return sum;
}
int main(void) {
    long size = gethugepagesize();
    char *pages = get_huge_pages(2 * size, GHP_DEFAULT);
    if (!pages)
        return 1;
    memset(pages, 1, 2 * size);
    long taken = kib_at(pages);
    free_huge_pages(pages);
    printf("%ld %ld\n", taken, kib_at(pages));
    return 0;
}
"#;

/// Returns an installation with the archive; `None`, with a message, if this machine cannot link statically.
fn with_archive() -> Option<Installed> {
    let installed = Installed::new();
    std::fs::write(installed.path("plain.c"), "int main(void) { return 0; }").expect("written");
    let is_possible = Command::new("cc")
        .args(["-static", "-o"])
        .args([installed.path("plain"), installed.path("plain.c")])
        .output()
        .is_ok_and(|output| output.status.success());
    let has_binutils = Command::new("objcopy").arg("--version").output().is_ok();
    if !is_possible || !has_binutils {
        testkit::skipped!("there is no static C library, or no objcopy");
        return None;
    }
    std::os::unix::fs::symlink(built("libsuperpage.a"), installed.path("libsuperpage.a"))
        .expect("linked");
    let script = repository().join("scripts/libhugetlbfs-archive");
    let output = Command::new(script).arg(installed.dir.path()).output().expect("it starts");
    assert_success(&output);
    assert_eq!(text(&output.stderr), "");
    Some(installed)
}

mod exclusive {
    use super::*;

    #[test]
    fn static_programs_get_superpages() {
        let Some(installed) = with_archive() else { return };
        let kinds = [
            ("static", &["-static", "-lhugetlbfs"][..]),
            ("pie", &["-static-pie", "-fPIE", "-lhugetlbfs"]),
            ("dynamic", &["-l:libhugetlbfs.a"]),
            ("whole", &["-static", "-Wl,--whole-archive", "-lhugetlbfs", "-Wl,--no-whole-archive"]),
        ];
        let programs = kinds.map(|(kind, arguments)| {
            [("pages", PAGES), ("old", OLD), ("segment", SEGMENT)].map(|(name, source)| {
                installed.program(&format!("{name}-{kind}"), source, arguments)
            })
        });
        with_four_superpages(|| {
            for (programs, (kind, _)) in programs.iter().zip(kinds) {
                let [pages, old, segment] = programs;
                let output = installed.run(pages, &[]);
                assert_success(&output);
                assert_eq!(text(&output.stdout), "4096 0\n", "{kind}");
                assert_success(&installed.run(old, &[]));
                // The program calls only shmget of the archive, a function that libc has too.
                for (environment, kib) in [(&[][..], "0\n"), (&[("HUGETLB_SHM", "yes")], "4096\n")]
                {
                    let output = installed.run(segment, environment);
                    assert_success(&output);
                    assert_eq!(text(&output.stdout), kib, "{kind}");
                }
            }
        });
    }
}

#[test]
fn what_does_nothing_there_is_said() {
    let Some(installed) = with_archive() else { return };
    let source = r#"
#include <stdio.h>
#include "hugetlbfs.h"
int main(void) { return printf("%d\n", hugetlbfs_test_path("/")) < 0; }
"#;
    let program = installed.program("path", source, &["-static", "-lhugetlbfs"]);
    let said = |environment: &[(&str, &str)]| {
        let output = installed.run(&program, environment);
        assert_success(&output);
        assert_eq!(text(&output.stdout), "0\n");
        text(&output.stderr)
    };
    for name in ["HUGETLB_MORECORE", "HUGETLB_ELFMAP"] {
        let warning =
            format!("libhugetlbfs: WARNING: {name}=RW does nothing in a program linked with");
        assert_eq!(said(&[(name, "RW")]).matches(&warning).count(), 1);
        assert_eq!(said(&[(name, "RW"), ("HUGETLB_VERBOSE", "1")]), "");
        assert_eq!(said(&[(name, "no")]), "");
    }
    assert_eq!(said(&[]), "");
}
