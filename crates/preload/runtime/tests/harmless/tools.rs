//! Other programs and tools: shells under limits, debuggers, sanitizers, preloaded libraries.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

use crate::modes::{self, Mode, natively};
use crate::outcome::{built, built_as, compare};
use crate::programs;

/// Whole command lines; `{program}` stands for a program of `programs/harmless`.
macro_rules! commands {
    ($($name:ident [$($mode:ident)*] $shell:literal;)*) => {
        $(#[test]
        fn $name() {
            compare_lines(stringify!($name), &[$(Mode::$mode),*], $shell);
        })*
    };
}

/// Compares command lines. If a tool is missing, a line fails in the same way in all modes, which proves nothing.
fn compare_lines(name: &str, modes: &[Mode], script: &str) {
    testkit::require!(programs::has("bash"), "no bash");
    let lines = || shell(&format!("set -eo pipefail; {script}"));
    testkit::require!(works(lines()), "one of the commands does not work here without the library");
    compare(name, modes, None, lines);
}

fn shell(script: &str) -> Command {
    let mut command = natively("bash");
    command.args(["-c", script]);
    command
}

commands! {
    address_space_limited_by_a_shell [T P H S]
        "ulimit -v 4000000; x=$(seq 300000); echo ${#x}; ls / > /dev/null; seq 100000 | sort -n | tail -1; \
         python3 -c 'import threading, ssl; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()'";
    data_limited_by_a_shell [T P H S]
        "ulimit -d 300000; x=$(seq 300000); echo ${#x}; seq 100000 | sort -n | tail -1; python3 -c 'print(len(bytearray(100 << 20)))'";
    python_maps_resizes_and_forks [T P H S]
        "python3 -c '
import mmap, multiprocessing, gc
m = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[:] = b\"a\" * len(m); m.resize(24 << 20); print(m[0], m[-1], len(m))
s = mmap.mmap(-1, 8 << 20); s[:] = b\"b\" * len(s)
p = multiprocessing.get_context(\"fork\").Process(target=s.write, args=(b\"child\",)); p.start(); p.join()
print(s[:6], p.exitcode, gc.isenabled())
try: s.resize(16 << 20); print(len(s))
except OSError as error: print(error)
'";
    a_filter_of_processes [T P H S]
        "seq 200000 | sort -R --random-source=/bin/bash -S 20M | gzip -c | gunzip -c | sha1sum";
}

/// Returns whether a tool works here without the library.
fn works(mut command: Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// libfaketime and similar libraries replace `clock_gettime` by a function that allocates.
#[test]
fn a_preloaded_clock_that_allocates() {
    let clock = built_as("clock", "clock.so", &["-shared", "-fPIC"]);
    testkit::require!(clock.is_some(), "no C compiler");
    compare(
        "a_preloaded_clock_that_allocates",
        &[Mode::T, Mode::P, Mode::H, Mode::S],
        clock.as_deref(),
        || shell("/bin/true; date -d @0 -u; seq 10 | sort -n"),
    );
}

/// The library leaves programs with a sanitizer's allocator alone.
#[test]
fn a_program_with_the_thread_sanitizer() {
    sanitized("sanitized-threads", &["-fsanitize=thread", "-O1"]);
}

/// Linked statically, because the dynamic sanitizer library refuses to run if another library is loaded first; only the
/// launcher could leave such a program alone.
#[test]
fn a_program_with_the_address_sanitizer() {
    sanitized("sanitized-addresses", &["-fsanitize=address", "-static-libasan", "-O1"]);
}

fn sanitized(name: &'static str, flags: &[&str]) {
    let supported = works({
        let mut command = natively("sh");
        let flags = flags.join(" ");
        command.args([
            "-c",
            &format!("echo 'int main(){{}}' | cc {flags} -xc - -o {name}.probe && ./{name}.probe"),
        ]);
        command
    });
    testkit::require!(supported, "no compiler with {flags:?}, or its programs do not start here");
    let program = built_as("sanitized", name, flags).expect("a compiler");
    compare(name, &[Mode::T, Mode::P, Mode::H, Mode::S], None, || natively(&program));
}

/// The stacks of this program's threads must be executable, too.
#[test]
fn a_program_with_executable_stacks() {
    let flags = ["-O1", "-pthread", "-z", "execstack"];
    let program = built_as("executable", "executable", &flags);
    testkit::require!(program.is_some(), "no C compiler");
    let program = program.unwrap();
    testkit::require!(works(natively(&program)), "no executable stacks here");
    let modes = [Mode::T, Mode::P, Mode::H, Mode::S, Mode::K];
    compare("a_program_with_executable_stacks", &modes, None, || natively(&program));
}

#[test]
fn a_program_under_valgrind() {
    testkit::require!(programs::has("valgrind"), "no valgrind");
    let program = built("sanitized");
    testkit::require!(program.is_some(), "no C compiler");
    let program = program.unwrap();
    compare("a_program_under_valgrind", &[Mode::T, Mode::P, Mode::H, Mode::S], None, || {
        let mut command = natively("valgrind");
        command.args(["-q", "--error-exitcode=9"]).arg(&program);
        command
    });
}

/// To pass a string to a function, a debugger allocates memory in the program, by calling malloc.
#[test]
fn a_debugger_calls_functions() {
    testkit::require!(programs::has("gdb"), "no gdb");
    let program = built("peaks");
    testkit::require!(program.is_some(), "no C compiler");
    let program = program.unwrap();
    let debugger = || {
        // The shell between test and gdb keeps the library out of gdb itself.
        let script = "preload=$LD_PRELOAD; unset LD_PRELOAD; gdb -batch -nx \
            -ex 'set startup-with-shell off' -ex 'set confirm off' \
            ${preload:+-ex \"set environment LD_PRELOAD $preload\"} \
            -ex 'break small_heap' -ex 'run small_heap > /dev/null' \
            -ex 'print (int)puts(\"hi\")' -ex kill \"$0\" 2> /dev/null | grep '^\\$'";
        let mut command = shell(script);
        command.arg(&program);
        command
    };
    testkit::require!(works(debugger()), "gdb cannot call functions of a program here");
    compare("a_debugger_calls_functions", &[Mode::T, Mode::P, Mode::H, Mode::S], None, debugger);
}

/// The kernel merges equal pages, and its daemon ksmd runs as long as these programs do.
fn merged(case: &str) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    testkit::require!(modes::has_machine(), "{}", modes::NEEDS_MACHINE);
    let daemon = Daemon::start();
    testkit::require!(daemon.is_some(), "no KSM");
    crate::compare_case("usage", case, &[Mode::T, Mode::P, Mode::H, Mode::S]);
}

#[test]
fn equal_pages_are_merged_by_advice() {
    merged("merged_by_advice");
}

#[test]
fn equal_pages_are_merged_by_prctl() {
    merged("merged_by_prctl");
}

/// Settings of ksmd, restored on drop, under the machine's lock.
struct Daemon(Vec<(PathBuf, String)>);

impl Daemon {
    fn start() -> Option<Self> {
        let wanted = [("pages_to_scan", "100000"), ("sleep_millisecs", "10"), ("run", "1")];
        let mut daemon = Self(Vec::new());
        for (name, value) in wanted {
            let file = PathBuf::from("/sys/kernel/mm/ksm").join(name);
            let found = std::fs::read_to_string(&file).ok()?;
            daemon.0.push((file.clone(), found));
            std::fs::write(file, value).ok()?;
        }
        Some(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        for (file, found) in self.0.iter().rev() {
            let _ = std::fs::write(file, found);
        }
    }
}
