//! `HUGETLB_SHARE`: all processes of a program have their text on the same pages.

use std::process::Command;

use testkit::PoolsAsFound;

use crate::{Installed, available};

/// Prints a line, and runs until its input ends. Its constants fill three superpages.
const WAITS: &str = r#"
#include <stdio.h>
const char constants[6 << 20] = {1, 2, 3};
int main(void) {
    volatile long sum = 0;
    for (unsigned long i = 0; i < sizeof constants; i += 4096)
        sum += constants[i];
    printf("%ld\n", sum);
    fflush(stdout);
    return getchar() != EOF;
}
"#;

/// A mount of hugetlbfs, unmounted on drop.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let mount = ["-t", "hugetlbfs", "none", "-o", "pagesize=2M"];
        let done = Command::new("mount").args(mount).arg(dir.path()).status();
        done.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

mod exclusive {
    use super::*;

    #[test]
    fn text_is_shared_when_the_environment_says_so() {
        use std::io::Read;
        use std::process::{Child, Stdio};

        testkit::require!(testkit::is_root(), "only root can make mounts and pools");
        let installed = Installed::new();
        let flags = "-Wl,-z,max-page-size=0x200000,-z,common-page-size=0x200000";
        let program =
            installed.program("waits", WAITS, &["-Wl,--no-as-needed", "-lhugetlbfs", flags]);
        testkit::lock_machine!();
        let _pools = PoolsAsFound::note();
        testkit::require!(testkit::leave_free(40), "this machine has no 40 free superpages");
        let Some(mount) = Mount::new() else {
            testkit::skipped!("hugetlbfs cannot be mounted here");
            return;
        };
        let path = mount.0.path().to_str().expect("UTF-8").to_string();
        // Number of pool pages that four processes of the program take.
        let pages_of_four = |share: &[(&str, &str)]| {
            let before = available();
            let mut children: Vec<Child> = Vec::new();
            for _ in 0..4 {
                let mut command = Command::new(&program);
                command.env("LD_LIBRARY_PATH", installed.dir.path()).env("HUGETLB_ELFMAP", "R");
                command.env("HUGETLB_PATH", &path).envs(share.iter().copied());
                let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
                let mut child = child.expect("it starts");
                let mut line = [0; 2];
                child.stdout.as_mut().expect("piped").read_exact(&mut line).expect("it runs");
                assert_eq!(&line, b"1\n");
                children.push(child);
            }
            let taken = before - available();
            for mut child in children {
                drop(child.stdin.take());
                assert!(child.wait().expect("it ends").success());
            }
            taken
        };
        let alone = pages_of_four(&[]);
        assert!(alone >= 12 && alone % 4 == 0, "each has its own: {alone} pages");
        let shared = pages_of_four(&[("HUGETLB_SHARE", "1")]);
        assert_eq!(shared, alone / 4, "all have the same");
        // The file stays, and later processes use it.
        assert_eq!(pages_of_four(&[("HUGETLB_SHARE", "1")]), 0);
        let file = || {
            let dir =
                std::fs::read_dir(mount.0.path()).expect("read").next().expect("one").expect("it");
            let mut files = std::fs::read_dir(dir.path()).expect("read").flatten();
            files
                .find(|it| it.metadata().is_ok_and(|it| it.len() > 6 << 20))
                .expect("constants")
                .path()
        };
        // A file with other contents is not used, and not changed.
        let other = std::fs::File::options().write(true).open(file()).expect("ours");
        let length = other.metadata().expect("there").len();
        other.set_len(0).expect("emptied");
        other.set_len(length).expect("zeroes");
        assert!(pages_of_four(&[("HUGETLB_SHARE", "1")]) >= 12, "each has its own constants");
        // The directory that HUGETLB_SHARE_PATH names.
        std::fs::create_dir(mount.0.path().join("shared")).expect("made");
        let place = format!("{path}/shared");
        let environment = [("HUGETLB_SHARE", "1"), ("HUGETLB_SHARE_PATH", place.as_str())];
        assert_eq!(pages_of_four(&environment), alone / 4);
        assert!(std::fs::read_dir(place).expect("read").count() > 0);
    }
}
