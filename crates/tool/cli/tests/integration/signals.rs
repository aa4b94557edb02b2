//! `superpage run` and signals: the program gets the signals that are sent to it, and ignores those that superpage was
//! started to ignore.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use crate::common::{any_pages, send, stdout, superpage};

#[test]
fn signals_reach_the_program() {
    // An image of httpd is stopped by WINCH.
    for (name, signal) in [("TERM", libc::SIGTERM), ("WINCH", libc::SIGWINCH)] {
        let script =
            format!("trap 'echo got it; exit 5' {name}; echo ready; while :; do sleep 0.01; done");
        let mut command =
            superpage(&["run", "-q", "--pages", any_pages(), "--", "sh", "-c", &script]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut rest) = (String::new(), String::new());
        reader.read_line(&mut line).unwrap();
        send(&child, signal);
        reader.read_to_string(&mut rest).unwrap();
        assert_eq!((line.as_str(), rest.as_str()), ("ready\n", "got it\n"), "{name}");
        assert_eq!(child.wait().unwrap().code(), Some(5), "{name}");
    }
}

#[test]
fn what_it_was_made_to_ignore_the_program_ignores_and_nothing_else() {
    let program = "kill -PIPE $$; echo alive; exit 7";
    let under = |trap: &str| {
        let own = env!("CARGO_BIN_EXE_superpage");
        let script = format!("{trap} exec {own} run -q --pages base -- sh -c '{program}'");
        std::process::Command::new("sh").args(["-c", &script]).output().unwrap()
    };
    let ignoring = under("trap '' PIPE;");
    assert_eq!((stdout(&ignoring).as_str(), ignoring.status.code()), ("alive\n", Some(7)));
    assert_eq!(under("").status.signal(), Some(libc::SIGPIPE));
    // A process that ignores SIGCHLD is not told of its children's end, which the launcher must know.
    let both = under("trap '' PIPE; trap '' CHLD;");
    assert_eq!((stdout(&both).as_str(), both.status.code()), ("alive\n", Some(7)));
}
