//! Shell completions: names of designs, machines and workloads, where clap's flags take any text.

use std::path::Path;
use std::process::Command;

use crate::common::{stderr, stdout};
use crate::fine;

/// Returns what bash offers for the last of the words.
fn offered(script: &Path, words: &[&str]) -> Vec<String> {
    let shell = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))
        _superpage superpage \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", shell, "bash"]).arg(script).args(words);
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    stdout(&output).lines().map(str::to_string).collect()
}

#[test]
fn completions_offer_designs_and_workloads_and_leave_files_alone() {
    let shell = Command::new("bash").arg("--version").output();
    testkit::require!(shell.is_ok(), "no bash");
    let directory = tempfile::tempdir().unwrap();
    let script = |shell: &str| {
        let path = directory.path().join(shell);
        std::fs::write(&path, fine(&["completions", shell])).unwrap();
        path
    };
    let bash = script("bash");
    let designs = offered(&bash, &["superpage", "run", "--design", "linux-6"]);
    assert!(designs.iter().any(|name| name == "linux-6-defer"), "{designs:?}");
    assert!(designs.iter().all(|name| name.starts_with("linux-6")), "{designs:?}");
    assert_eq!(
        offered(&bash, &["superpage", "design", "show", "free"]).first().unwrap(),
        "freebsd"
    );
    for words in
        [&["compare"][..], &["workload"], &["lab", "run", "-w"], &["lab", "sweep", "plan", "-w"]]
    {
        let words = [&["superpage"], words, &["gup"]].concat();
        assert_eq!(offered(&bash, &words), ["gups"], "{words:?}");
    }
    assert_eq!(offered(&bash, &["superpage", "lab", "run", "-m", "sky"]), ["skylake"]);
    assert_eq!(offered(&bash, &["superpage", "lab", "faults", "-m", "mod"]), ["modern"]);
    // The shell offers files where the command offers nothing.
    assert_eq!(offered(&bash, &["superpage", "run", "--design", "./x"]).concat(), "");
    let zsh = std::fs::read_to_string(script("zsh")).unwrap();
    assert!(zsh.contains(":DESIGN:{compadd base ideal ") && zsh.contains(";_files}"));
    let fish = std::fs::read_to_string(script("fish")).unwrap();
    assert!(fish.lines().any(|line| line.contains("-l design") && line.contains("-r -F -a")));
}
