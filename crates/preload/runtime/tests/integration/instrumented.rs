//! Programs with a sanitizer, or under valgrind, behave as without the library.

use crate::common;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::*;

/// Compilers and flags, with and without static runtimes.
const BUILDS: [(&str, &str, &str); 10] = [
    ("gcc", "-fsanitize=address", ""),
    ("gcc", "-fsanitize=address", "-static-libasan"),
    ("gcc", "-fsanitize=thread", ""),
    ("gcc", "-fsanitize=thread", "-static-libtsan"),
    ("gcc", "-fsanitize=leak", ""),
    ("gcc", "-fsanitize=address", "-s"),
    ("clang", "-fsanitize=address", ""),
    ("clang", "-fsanitize=thread", ""),
    ("clang", "-fsanitize=memory", ""),
    ("clang", "-fsanitize=leak", ""),
];

/// Returns what the program prints, its exit code, and whether it prints errors.
fn outcome(mut command: Command) -> (String, Option<i32>, bool) {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, output.status.code(), !output.stderr.is_empty())
}

fn asked() -> Vec<(&'static str, String)> {
    let mut variables = under("thp", "heap,mmap,text,data", "thp");
    variables.push(("SUPERPAGE_PREZERO", "67108864".to_string()));
    variables
}

/// Returns commands for the program without the library, under the library, and under the library started by a shell.
fn ways(program: &Path, arguments: &[&str]) -> [Command; 3] {
    let direct = |program: &Path| {
        let mut command = Command::new(program);
        command.args(arguments);
        command
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" \"$@\"; exit $?"]).arg(program).args(arguments);
    let mut ways = [direct(program), direct(program), shell];
    ways[1..].iter_mut().for_each(|command| {
        command.envs(asked());
    });
    ways
}

fn built(compiler: &str, sanitizer: &str, more: &str) -> Option<PathBuf> {
    let name = format!("instrumented-{compiler}{sanitizer}{more}").replace('=', "-");
    let probe = std::panic::catch_unwind(|| {
        build(
            "instrumented.c",
            &name,
            compiler,
            &[sanitizer, if more.is_empty() { "-O1" } else { more }],
        )
    });
    probe.ok().filter(|program| {
        Command::new(program).output().is_ok_and(|output| output.status.success())
    })
}

#[test]
fn a_program_with_a_sanitizer_runs_as_without_the_library() {
    // Check that each compiler accepts the source: otherwise the test would take a broken source for a missing
    // sanitizer.
    for compiler in ["gcc", "clang"].into_iter().filter(|compiler| has(compiler)) {
        build("instrumented.c", &format!("instrumented-{compiler}"), compiler, &["-O1"]);
    }
    let mut tried = 0;
    for (compiler, sanitizer, more) in BUILDS {
        if !has(compiler) {
            testkit::skipped!("no {compiler}");
            continue;
        }
        let Some(program) = built(compiler, sanitizer, more) else {
            testkit::skipped!("{compiler} {sanitizer} {more} builds no program that runs here");
            continue;
        };
        tried += 1;
        for arguments in [&["once"][..], &["twice"], &["maps"]] {
            let [native, direct, shell] = ways(&program, arguments).map(outcome);
            let what = format!("{compiler} {sanitizer} {more} {arguments:?}");
            assert_eq!(native, direct, "{what}");
            assert_eq!(native, shell, "{what}, started by a shell");
        }
    }
    println!("{tried} builds");
}

#[test]
fn valgrind_reports_what_it_reports_without_the_library() {
    testkit::require!(has("valgrind") && has("cc"), "no valgrind or no C compiler");
    let program = build("instrumented.c", "instrumented-plain", "cc", &["-O0"]);
    for tool in ["memcheck", "massif"] {
        for argument in ["once", "twice"] {
            let errors = |under_library: bool| {
                let mut command = Command::new("valgrind");
                command.arg(format!("--tool={tool}")).arg("--error-exitcode=9");
                command.args(if tool == "massif" {
                    vec!["--massif-out-file=/dev/null"]
                } else {
                    vec![]
                });
                command.arg(&program).arg(argument);
                if under_library {
                    command.envs(asked());
                }
                let output = command.output().expect("it starts");
                let text = String::from_utf8_lossy(&output.stderr).into_owned();
                (output.status.code(), text.matches("Invalid free").count(), output.stdout)
            };
            assert_eq!(errors(true), errors(false), "{tool} {argument}");
        }
    }
}

/// To call `malloc` in a program, gdb uses the type in the debug information; without debug information it assumes C's
/// type. With a type other than C's, every call with a string fails.
#[test]
fn a_debugger_takes_the_exported_functions_for_those_of_c() {
    testkit::require!(has("gdb"), "no gdb");
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx"]);
    for function in ["malloc", "mmap"] {
        gdb.arg("-ex").arg(format!("whatis {function}"));
    }
    gdb.arg(common::library());
    let text = run(gdb);
    assert_eq!(text.matches("<text variable, no debug info>").count(), 2, "{text}");
}

#[test]
fn a_debugger_calls_functions_that_allocate() {
    testkit::require!(has("gdb") && has("cc"), "no gdb or no C compiler");
    let program = build("instrumented.c", "instrumented-debugged", "cc", &["-O0"]);
    let session = |under_library: bool| {
        let mut gdb = Command::new("gdb");
        gdb.args(["-batch", "-nx", "-ex", "set startup-with-shell off"]);
        for (name, value) in under("thp", "heap,mmap", "thp").iter().filter(|_| under_library) {
            gdb.arg("-ex").arg(format!("set environment {name} {value}"));
        }
        for line in [
            "break main",
            "run",
            "print (int)puts(\"called\")",
            "print (void*)malloc(100) != 0",
            "print *(char*)calloc(1, 100)",
            "kill",
        ] {
            gdb.args(["-ex", line]);
        }
        let output = gdb.arg(&program).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().filter(|line| line.starts_with('$')).map(str::to_string).collect::<Vec<_>>()
    };
    let native = session(false);
    testkit::require!(native.len() == 3, "gdb calls no function here, also without the library");
    assert_eq!(session(true), native);
}
