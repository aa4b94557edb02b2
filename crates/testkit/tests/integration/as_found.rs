//! Privileged tier: changes the overcommit limit of the pool, and checks that it is restored.

use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: &str = "/proc/sys/vm/nr_overcommit_hugepages";

fn limit() -> u64 {
    std::fs::read_to_string(LIMIT).unwrap().trim().parse().unwrap()
}

#[test]
#[ignore = "run by the test below, as another process"]
fn child_is_killed() {
    let _found = superpage_testkit::PoolsAsFound::note();
    let _limit = superpage_testkit::AsFound::note([LIMIT]);
    std::fs::write(LIMIT, (limit() + 3).to_string()).unwrap();
    let _ = Command::new("sh").args(["-c", "kill -9 $PPID"]).status();
    unreachable!("it is killed");
}

mod exclusive {
    use super::*;

    #[test]
    fn settings_are_put_back_also_if_the_test_is_killed() {
        superpage_testkit::require!(superpage_testkit::is_root(), "not root");
        superpage_testkit::lock_machine!();
        let before = limit();
        drop({
            let found = superpage_testkit::PoolsAsFound::note();
            std::fs::write(LIMIT, (before + 5).to_string()).unwrap();
            assert!(!found.is_intact());
            found
        });
        assert_eq!(limit(), before);
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["child_is_killed", "--include-ignored"]).output().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(output.status.signal(), Some(9), "{output:?}");
        let began = Instant::now();
        while limit() != before && began.elapsed() < Duration::from_secs(90) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(limit(), before);
    }
}
