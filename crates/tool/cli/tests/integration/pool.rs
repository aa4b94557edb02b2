//! `superpage pool`: dry runs that change nothing, bad input, partial pools, and a kill during a change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{NO_POOL, comes_true, has_pool, run, send, stderr, stdout, superpage};
use serde_json::Value;

const POOLS: &str = "/sys/kernel/mm/hugepages";
const G1: &str = "/sys/kernel/mm/hugepages/hugepages-1048576kB";

/// Returns every setting of the pools and related ones, and the mounts of hugetlbfs, without the pages that programs
/// use.
fn machine() -> BTreeMap<PathBuf, String> {
    let dirs = fs::read_dir(POOLS).into_iter().flatten().flatten();
    let files = dirs.flat_map(|dir| fs::read_dir(dir.path()).into_iter().flatten().flatten());
    let is_count = |path: &PathBuf| {
        let counts = ["free_hugepages", "resv_hugepages", "surplus_hugepages"];
        counts.iter().any(|count| path.ends_with(count))
    };
    let files = files.map(|file| file.path()).filter(|path| !is_count(path));
    let around = ["vm/hugetlb_shm_group", "vm/min_free_kbytes", "kernel/shmmax"];
    let around = around.map(|name| Path::new("/proc/sys").join(name));
    let paths = files.chain(around);
    let mut all: BTreeMap<PathBuf, String> =
        paths.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts: String = mounts.lines().filter(|line| line.contains(" hugetlbfs ")).collect();
    all.insert("mounts".into(), mounts);
    assert!(all.len() > 1, "nothing could be read: {all:?}");
    all
}

fn json(output: &Output) -> Value {
    assert_eq!(stderr(output), "");
    let text = stdout(output);
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(text.starts_with("{\n  \"schema\": \"superpage.pool"), "{text}");
    value
}

/// Arguments, exit code, and texts that the line must contain: the faulty word and the remedy.
type Case<'a> = (&'a [&'a str], i32, &'a [&'a str]);

fn is_refused_in_a_line((arguments, code, parts): &Case<'_>) {
    let output = run(&[&["pool"][..], arguments].concat());
    let line = stderr(&output);
    assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {line}");
    assert_eq!(line.trim_end().lines().count(), 1, "{arguments:?}: {line}");
    for part in *parts {
        assert!(line.contains(part), "{arguments:?} lacks {part}: {line}");
    }
}

/// Errors in the arguments alone are reported on a machine without pools too.
#[test]
fn bad_words_are_one_line_without_a_look_at_pools() {
    let cases: [Case<'_>; 13] = [
        (&["set"], 2, &["SPEC"]),
        (&["set", "2M:10Q"], 2, &["invalid amount `10Q`"]),
        (&["set", "banana"], 2, &["`banana`", "SIZE:AMOUNT"]),
        (&["set", "2M:banana"], 2, &["invalid amount `banana`"]),
        (&["set", "33M:1"], 2, &["invalid page size `33M`"]),
        (&["set", "2M:+1", "--node", "x"], 2, &["--node"]),
        (&["grow", "2M:-5"], 2, &["invalid change `2M:-5`", "without + or -", "`pool shrink`"]),
        (&["shrink", "2M:+5"], 2, &["invalid change `2M:+5`", "without + or -", "`pool grow`"]),
        (&["overcommit", "2M:x"], 2, &["invalid amount `x`"]),
        (&["demote", "1G:x"], 2, &["invalid amount `x`"]),
        (&["demote", "1G:+1"], 2, &["no + or -"]),
        (&["plan"], 2, &["PROGRAM"]),
        (&["frobnicate"], 2, &["frobnicate"]),
    ];
    cases.iter().for_each(is_refused_in_a_line);
}

/// What each format makes of the same pools, whether or not this machine has them.
#[test]
fn every_format_has_every_pool_or_says_which_is_missing() {
    for (format, code, parts) in [
        ("kernel", 0, &["hugepagesz=2M hugepages=512 hugepagesz=1G hugepages=4"][..]),
        ("systemd", 0, &["pool set 2M:512 1G:4\n"]),
        ("tmpfiles", 0, &["2048kB/nr_hugepages - - - - 512\n", "1048576kB/nr_hugepages - - - - 4"]),
        ("sysctl", 1, &["# 1 GiB pages: ", ": hugepagesz=1G hugepages=4\n"]),
        ("fstab", 0, &["pagesize=2M,size=1073741824,", "pagesize=1G,size=4294967296,"]),
        ("mount", 0, &["pagesize=2M,size=1073741824,", "pagesize=1G,size=4294967296,"]),
    ] {
        let output = run(&["pool", "boot", "2M:512,1G:4", "--format", format]);
        assert_eq!(output.status.code(), Some(code), "{format}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), code as usize, "{format}");
        for part in parts {
            assert!(stdout(&output).contains(part), "{format}: {}", stdout(&output));
        }
    }
    let reserved = run(&["pool", "boot", "2M:512", "--format", "mount", "--reserve"]);
    let text = stdout(&reserved);
    assert!(text.contains("size=1073741824,min_size=1073741824,"), "{text}");
    assert!(text.contains("After=systemd-modules-load.service systemd-sysctl.service\n"), "{text}");
    let nodes = stdout(&run(&["pool", "boot", "1G:0=1,3=2"]));
    assert_eq!(nodes, "hugepagesz=1G hugepages=0:1,3:2\n");
}

/// The configuration may be for another machine, but some words fit none.
#[test]
fn what_no_machine_can_have_at_boot_is_refused() {
    let share = &["give pages (512) or bytes (1G)"][..];
    let x86 = &["no x86_64 machine has huge pages of", "give one of 2M, 1G"][..];
    let many = &["more than 4 PiB", "give fewer pages"][..];
    let cases: [Case<'_>; 7] = [
        (&["boot", "2M:25%"], 2, share),
        (&["boot", "2M:200%"], 2, share),
        (&["boot", "2M:0=25%"], 2, share),
        (&["boot", "2M:9999999T"], 2, many),
        (&["boot", "2M:0=4P,1=2M"], 2, many),
        (&["boot", "2M:0", "--format", "fstab"], 2, &["every pool is empty", "e.g. 2M:512"]),
        (&["boot", "--format", "systemd", "--file", "/a\nExecStart=/b"], 2, &["--file /a\\nExec"]),
    ];
    cases.iter().for_each(is_refused_in_a_line);
    if cfg!(target_arch = "x86_64") {
        let cases: [Case<'_>; 4] = [
            (&["boot", "4K:1"], 2, x86),
            (&["boot", "16G:1"], 2, x86),
            (&["boot", "1G:2", "--default-size", "64K"], 2, x86),
            (&["boot", "1G:2", "--default-size", "64K"], 2, &["--default-size: no"]),
        ];
        cases.iter().for_each(is_refused_in_a_line);
    }
    // A node and a size that this machine lacks may be those of another.
    let output = run(&["pool", "boot", "1G:77=1,2M:4P"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "hugepagesz=1G hugepages=77:1 hugepagesz=2M hugepages=2147483648\n"
    );
}

#[test]
fn without_privilege_the_line_names_the_command_that_works() {
    testkit::require!(has_pool(), "{NO_POOL}");
    testkit::require!(testkit::is_root(), "not root, so privilege cannot be dropped");
    let setpriv = Command::new("setpriv").arg("--version").output();
    testkit::require!(setpriv.is_ok(), "no setpriv (util-linux) to drop privilege with");
    testkit::lock_machine!(shared);
    let readable = fs::Permissions::from_mode(0o755);
    let dir = tempfile::Builder::new().permissions(readable).tempdir().unwrap();
    let copy = dir.path().join("superpage");
    testkit::copy_program(env!("CARGO_BIN_EXE_superpage"), &copy);
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy);
        command.arg("pool").args(arguments).current_dir("/").output().unwrap()
    };
    let output = as_nobody(&["grow", "2M:1"]);
    let line = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{line}");
    assert!(line.ends_with("sudo superpage pool grow 2M:1\n"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    for arguments in [&["list"][..], &["users"], &["grow", "2M:1", "--dry-run"], &["shm"]] {
        let output = as_nobody(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        let needs_root = "superpage: this needs root: sudo superpage pool grow 2M:1\n";
        let says_so = stderr(&output) == needs_root;
        assert_eq!(says_so, arguments.contains(&"--dry-run"), "{arguments:?}");
    }
}

#[test]
fn a_partial_pool_is_exit_1_and_rolled_back_if_asked() {
    testkit::require!(testkit::is_root(), "not root: no mount namespace of our own");
    testkit::lock_machine!(shared);
    // In a mount namespace of its own the command finds a fake pool that is always 20 pages short: that many are
    // surplus, whatever is written.
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("hugepages-2048kB");
    fs::create_dir(&pool).unwrap();
    let write = |name: &str, text: &str| fs::write(pool.join(name), text).unwrap();
    let fresh = || {
        for name in ["free_hugepages", "resv_hugepages", "nr_overcommit_hugepages"] {
            write(name, "0\n");
        }
        write("nr_hugepages", "30\n");
        write("surplus_hugepages", "20\n");
    };
    let script = format!(
        "mount --bind {} {POOLS} && mkdir -p /var/lib/superpage && \
         mount -t tmpfs -o mode=700 none /var/lib/superpage && exec {} pool set 2M:+50 \
         --no-compact \"$@\"",
        dir.path().display(),
        env!("CARGO_BIN_EXE_superpage")
    );
    let inside = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", &script, "sh"]).args(more).output()
    };
    fresh();
    let output = inside(&[]);
    testkit::require!(output.is_ok(), "no unshare (util-linux)");
    let output = output.unwrap();
    // In a chroot whose root is not a mount point, unshare fails.
    let is_refused = ["mount:", "unshare:"].iter().any(|who| stderr(&output).contains(who));
    testkit::require!(!is_refused, "no mounts here: {}", stderr(&output).trim());
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("10 -> 40 of 60 requested, in"), "{text}");
    let now = || fs::read_to_string(pool.join("nr_hugepages")).unwrap();
    assert_eq!(now(), "60\n", "what was got is kept");
    assert_eq!(fs::read_to_string(pool.join("nr_overcommit_hugepages")).unwrap(), "0\n");
    fresh();
    let output = inside(&["--or-nothing"]).unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("restored"), "{text}");
    assert_eq!(now(), "10\n", "the persistent pages it had");
}

#[test]
fn what_a_killed_command_left_is_given_back_before_a_limit_is_decided() {
    testkit::require!(testkit::is_root(), "not root: nothing may be mounted");
    testkit::require!(has_pool(), "{NO_POOL}");
    testkit::lock_machine!(shared);
    // In a mount namespace of its own the command finds a fake pool. A command that was killed has raised the pool's
    // limit from 3 to 30.
    let dir = tempfile::tempdir().unwrap();
    let pool = dir.path().join("pools/hugepages-2048kB");
    fs::create_dir_all(&pool).unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let state = serde_json::json!({
        "superpage_share": 1, "boot_id": boot_id.trim(), "found": 3, "old": 3, "asked": 30, "got": 30,
    });
    let hugeadm = dir.path().join("hugeadm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_superpage"), &hugeadm).unwrap();
    let script = format!(
        "umask 077; mount --bind {}/pools {POOLS} && mkdir -p /var/lib/superpage && \
         mount -t tmpfs -o mode=700 none /var/lib/superpage && \
         cd /var/lib/superpage && mkdir -p \"$0\" && printf %s '{state}' >\"$0/state\" && exec \"$@\"",
        dir.path().display(),
    );
    let knob = "journal/shared/,sys,kernel,mm,hugepages,hugepages-2048kB,nr_overcommit_hugepages";
    let after = |words: &[&str]| {
        for (name, text) in [("free", "10"), ("resv", "0"), ("nr", "10"), ("surplus", "0")] {
            fs::write(pool.join(format!("{name}_hugepages")), text).unwrap();
        }
        fs::write(pool.join("nr_overcommit_hugepages"), "30").unwrap();
        let mut command = Command::new("unshare");
        let output = command.args(["-m", "sh", "-c", &script, knob]).args(words).output().unwrap();
        let limit = fs::read_to_string(pool.join("nr_overcommit_hugepages")).unwrap();
        (limit.trim().to_string(), stdout(&output) + &stderr(&output))
    };
    let (limit, said) = after(&["true"]);
    testkit::require!(said.is_empty() && limit == "30", "no mounts here: {said}");
    let (own, hugeadm) = (env!("CARGO_BIN_EXE_superpage"), hugeadm.to_str().unwrap());
    for words in
        [&[own, "pool", "overcommit", "2M:+5"][..], &[hugeadm, "--pool-pages-max", "2M:+5"]]
    {
        let (limit, said) = after(words);
        assert_eq!(limit, "8", "{words:?}: {said}");
        assert!(said.contains("left by a killed superpage"), "{words:?}: {said}");
    }
    // A dry run restores nothing.
    assert_eq!(after(&[own, "pool", "overcommit", "2M:+5", "--dry-run"]).0, "30");
    assert_eq!(after(&[hugeadm, "--dry-run", "--pool-pages-max", "2M:+5"]).0, "30");
}

/// Compiles `pool_plan.c`; `None` without a C compiler.
fn plan_program(directory: &Path) -> Option<String> {
    let program = directory.join("pool_plan").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/pool_plan.c");
    let built = Command::new("cc").args(["-O1", "-o", &program, source]).output();
    built.is_ok_and(|built| built.status.success()).then_some(program)
}

/// The document of a plan.
fn planned(words: &[&str]) -> Value {
    let output = run(&[&["pool", "plan", "--json"][..], words].concat());
    let text = stdout(&output);
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {text} {}", stderr(&output)))
}

/// Pages of 2 MiB that a plan names.
fn pages_of(document: &Value, what: &str) -> u64 {
    let sizes = document["sizes"].as_array().unwrap();
    let need = sizes.iter().find(|size| size["page_bytes"] == 2 << 20).unwrap();
    need[what].as_u64().unwrap()
}

#[test]
fn shared_memory_counts_whole_and_once_for_a_server_and_its_children() {
    testkit::require!(has_pool(), "{NO_POOL}");
    let directory = tempfile::tempdir().unwrap();
    let program = plan_program(directory.path());
    testkit::require!(program.is_some(), "needs a C compiler");
    let program = program.unwrap();
    for (kind, name) in
        [("anonymous", "anonymous"), ("sysv", "sys-v"), ("memfd", "memfd"), ("posix", "file")]
    {
        let document = planned(&["--", &program, kind, "37", "2"]);
        assert_eq!(pages_of(&document, "shared_pages"), 19, "{kind}: {document}");
        assert_eq!(pages_of(&document, "private_pages"), 0, "{kind}: {document}");
        let object = &document["shared"][0];
        assert_eq!((&object["kind"], &object["processes"]), (&name.into(), &3.into()), "{object}");
        assert_eq!(object["bytes"], 37 << 20, "{object}");
        // What was not touched counts. Before Linux 6.7 the touched part is unknown.
        let touched = object["touched_bytes"].as_u64();
        assert!(touched.is_none_or(|touched| touched < 8 << 20), "{object}");
        assert_eq!(document["needs_shm_group"], kind == "sysv", "{document}");
    }
}

#[test]
fn running_processes_are_planned_for_without_their_being_changed() {
    testkit::require!(has_pool(), "{NO_POOL}");
    let directory = tempfile::tempdir().unwrap();
    let program = plan_program(directory.path());
    testkit::require!(program.is_some(), "needs a C compiler");
    let mut child = Command::new(program.unwrap())
        .args(["anonymous", "37", "0"])
        .env("KEEP_SECONDS", "100")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    let mut pages = 0;
    // The child may not have mapped its memory yet.
    comes_true(|| {
        pages = pages_of(&planned(&["--pid", &pid]), "shared_pages");
        pages > 0 || child.try_wait().unwrap().is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(pages, 19);
    is_refused_in_a_line(&(&["plan", "--pid", &pid], 2, &["no process has pid"]));
    is_refused_in_a_line(&(&["plan", "--pid", "1", "--", "true"], 2, &["cannot be used with"]));
}

/// 16 TiB of address space with MAP_NORESERVE, as sanitizers and databases map it.
#[test]
fn a_mapping_larger_than_memory_is_named_not_passed_over() {
    testkit::require!(has_pool(), "{NO_POOL}");
    let memory = host::MemInfo::read(&host::Root::real()).unwrap().total.unwrap();
    testkit::require!(memory.bytes() < 1 << 43, "this machine has too much memory for the case");
    let directory = tempfile::tempdir().unwrap();
    let program = plan_program(directory.path());
    testkit::require!(program.is_some(), "needs a C compiler");
    let program = program.unwrap();
    let document = planned(&["--", &program, "sparse", "16777216", "0"]);
    let left_out = document["left_out"].as_array().unwrap();
    assert_eq!((left_out.len(), &left_out[0]["bytes"]), (1, &(1u64 << 44).into()), "{document}");
    let text = stdout(&run(&["pool", "plan", "--", &program, "sparse", "16777216", "0"]));
    assert!(text.contains("left out: a private mapping of 16 TiB ("), "{text}");
}

/// The flags that a program names decide, not what its memory looks like.
#[test]
fn java_is_asked_for_its_own_figure() {
    testkit::require!(has_pool(), "{NO_POOL}");
    let has_java =
        Command::new("java").arg("-version").output().is_ok_and(|it| it.status.success());
    testkit::require!(has_java, "needs java");
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("Rest.java");
    let text = "public class Rest { public static void main(String[] a) throws Exception { Thread.sleep(500); } }";
    fs::write(&source, text).unwrap();
    let source = source.to_str().unwrap();
    let flags = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=32m"];
    let words = [&["--", "java"][..], &flags, &["-XX:+UseLargePages", source]].concat();
    let document = planned(&words);
    let figure = &document["applications"][0];
    assert_eq!((&figure["application"], &figure["asks"]), (&"jvm".into(), &true.into()));
    assert_eq!((&figure["source"], &figure["bound"]), (&"asked".into(), &"at-most".into()));
    assert_eq!(figure["pages"], 32 + 16, "{figure}");
    // Flags of the environment; those of the command line override them.
    let variable = "JAVA_TOOL_OPTIONS=-Xmx32m -XX:+UseSerialGC -XX:ReservedCodeCacheSize=64m";
    let words = ["--", "env", variable, "java", "-XX:ReservedCodeCacheSize=32m", source];
    let document = planned(&words);
    assert_eq!(document["applications"][0]["pages"], 16 + 16, "{document}");
}

/// These tests change pools, or compare settings that another run may change for a moment: the launcher grows the pool
/// if memory is fragmented.
mod exclusive {
    use super::*;

    #[test]
    fn lists_are_the_same_for_people_and_programs() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let table = stdout(&run(&["pool"]));
        assert_eq!(table, stdout(&run(&["pool", "list"])));
        assert!(table.contains("2 MiB") && table.contains("default"), "{table}");
        let document = json(&run(&["pool", "--json"]));
        assert_eq!(document["schema"], "superpage.pool/1");
        let pool = document["pools"].as_array().unwrap();
        let pool = pool.iter().find(|pool| pool["page_bytes"] == 2 << 20).unwrap();
        let file = fs::read_to_string(format!("{POOLS}/hugepages-2048kB/nr_hugepages")).unwrap();
        assert_eq!(pool["current"].to_string(), file.trim());
        for arguments in [&["pool", "users", "--json"][..], &["pool", "mounts", "--json"]] {
            json(&run(arguments));
        }
    }

    #[test]
    fn dry_runs_change_nothing() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let before = machine();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pools.toml");
        let wanted = "shm_group = 12345\nmin_free_kbytes = \"recommended\"\n\
            [[pages]]\nsize = \"2M\"\ncount = 77\novercommit = 5\n[[mounts]]\nsize = \"2M\"\n";
        fs::write(&file, wanted).unwrap();
        let file = file.to_str().unwrap();
        for arguments in [
            &["pool", "set", "2M:+64", "--dry-run"][..],
            &["pool", "set", "2M:+64", "--dry-run", "--json", "--force", "--or-nothing"],
            &["pool", "grow", "default:128M", "--dry-run"],
            &["pool", "shrink", "2M:0%", "--dry-run"],
            &["pool", "overcommit", "2M:+9", "--dry-run"],
            &["pool", "mounts", "create", "--dry-run"],
            &["pool", "mounts", "create", "2M", "--persist", "fstab"],
            &["pool", "shm", "--group", "12345", "--dry-run"],
            &["pool", "min-free", "--recommended", "--dry-run"],
            &["pool", "boot", "1G:2"],
            &["pool", "boot", "2M:5", "--format", "sysctl"],
            &["pool", "boot", "2M:0=5", "--format", "tmpfiles"],
            &["pool", "boot", "2M:5,1G:1", "--format", "systemd"],
            &["pool", "boot", "2M:5", "--format", "fstab", "--reserve"],
            &["pool", "boot", "2M:5", "--format", "mount"],
            &["pool", "ensure", file, "--dry-run"],
        ] {
            let output = run(arguments);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
            assert!(!stdout(&output).is_empty(), "{arguments:?}");
            assert_eq!(machine(), before, "{arguments:?}");
        }
        let check = run(&["pool", "ensure", file, "--check"]);
        assert_eq!(check.status.code(), Some(1));
        assert!(stdout(&check).contains("2 MiB pages"), "{}", stdout(&check));
        assert_eq!(machine(), before);
    }

    #[test]
    fn bad_input_is_one_line_with_the_remedy_and_changes_nothing() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::lock_machine!();
        let before = machine();
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str, text: &str| -> String {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_string()
        };
        let cut = path("cut.toml", "[[pages]]\nsize = \"2M");
        let hostile = path("deep.toml", &"a.".repeat(200_000));
        let misspelt = path("key.toml", "[[pages]]\nsise = \"2M\"\ncount = 1");
        let binary = path("binary.toml", "\u{0}\u{1}");
        let cases: &[Case<'_>] = &[
            (&["set", "2M:33M"], 2, &["32M (16 pages) or 34M (17 pages)"]),
            (&["set", "2M:-99999999"], 2, &["cannot shrink by 99999999", "2M:0"]),
            (&["set", "2M:99999999999999999999999"], 2, &["is too large"]),
            (&["set", "2M:18446744073709551615"], 2, &["is too large"]),
            (&["set", "2M:+100T"], 3, &["available", "--force"]),
            (&["set", "8T:1"], 3, &["no pool of 8 TiB pages", "2M"]),
            (&["set", "2M:+1", "default:+1"], 2, &["specified twice"]),
            (&["set", "2M:+1", "--node", "99"], 3, &["no node 99"]),
            (&["demote", "2M:1"], 3, &["2 MiB cannot be demoted"]),
            (&["mounts", "create", "--user", "no-such-user"], 2, &["unknown user `no-such-user`"]),
            (&["mounts", "create", "--user", "../x"], 2, &["unknown user"]),
            (&["mounts", "create", "2M", "--max-size", "1M"], 2, &["single page", "2M"]),
            (&["mounts", "create", "2M", "--max-inodes", "0"], 2, &["1 file or more"]),
            (&["mounts", "remove", "/"], 2, &["/ is not a hugetlbfs mount"]),
            (&["shm", "--group", "no-such-group"], 2, &["unknown group `no-such-group`"]),
            (&["shm", "--shmmax", "1M"], 2, &["never lowered"]),
            (&["min-free", "--set", "1K"], 2, &["never lowered"]),
            (&["boot", "2M:+1"], 2, &["invalid amount"]),
            (&["boot", "1G:x=1"], 2, &["invalid amount"]),
            (&["boot", "1G:0=1", "1G:0=2"], 2, &["specified twice"]),
            (&["boot", "2M:1,banana"], 2, &["`banana`"]),
            (&["boot", "2M:0=1,2M:7"], 2, &["specified twice"]),
            (&["boot", "2M:1", "--reserve"], 2, &["--format fstab"]),
            (&["boot", "2M:1", "--file", "x"], 2, &["--file"]),
            (
                &["boot", "2M:1", "--format", "tmpfiles", "--default-size", "2M"],
                2,
                &["command line"],
            ),
            (&["ensure", "/no/such.toml"], 2, &["/no/such.toml", "No such file"]),
            (&["ensure", "/"], 2, &["cannot read /", "directory"]),
            (&["ensure", &cut], 2, &["cut.toml:2"]),
            (&["ensure", &hostile], 2, &["deep.toml:1"]),
            (&["ensure", &misspelt], 2, &["key.toml:2", "pages.sise", "`size`"]),
            (&["ensure", &binary], 2, &["binary.toml:1"]),
            (&["plan", "--", "no-such-program"], 2, &["`no-such-program` was not found"]),
        ];
        for case in cases {
            is_refused_in_a_line(case);
            assert_eq!(machine(), before, "{case:?}");
        }
        if Path::new(G1).exists() {
            let output = run(&["pool", "overcommit", "1G:3"]);
            assert_eq!(output.status.code(), Some(3));
            assert!(stderr(&output).contains("gigantic"), "{}", stderr(&output));
            let lent =
                ["compare", "--arm", "base", "--arm", "hugetlb:1G", "--dry-run", "--", "true"];
            for arguments in
                [&lent[..], &["run", "--pages", "hugetlb:1G", "--pool", "lend", "true"]]
            {
                let output = run(arguments);
                let line = stderr(&output);
                if output.status.success() {
                    testkit::skipped!("the pool of 1 GiB pages has free ones and needs none lent");
                    continue;
                }
                let is_told =
                    line.contains("gigantic") || !testkit::is_root() && line.contains("root");
                assert!(is_told && line.lines().count() == 1, "{line}");
            }
            assert_eq!(machine(), before);
        } else {
            testkit::skipped!("no pool of 1 GiB pages");
        }
    }

    #[test]
    fn a_pool_grows_shrinks_and_is_ensured_and_ends_as_found() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::lock_machine!();
        run(&["restore"]);
        let found = testkit::PoolsAsFound::note();
        let output = run(&["pool", "set", "2M:+128M", "--json"]);
        let document = json(&output);
        testkit::require!(document["complete"] != false, "this machine has no 64 free superpages");
        assert_eq!((output.status.code(), &document["complete"]), (Some(0), &Value::Bool(true)));
        let outcome = &document["outcomes"][0];
        let before = outcome["before"].as_u64().unwrap();
        assert_eq!(outcome["got"].as_u64(), Some(before + 64));
        assert_eq!(run(&["pool", "shrink", "2M:128M", "-q"]).status.code(), Some(0));
        assert!(found.is_intact());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pools.toml");
        fs::write(&file, format!("[[pages]]\nsize = \"2M\"\ncount = {}\n", before + 16)).unwrap();
        let ensure =
            |more: &[&str]| run(&[&["pool", "ensure", file.to_str().unwrap()][..], more].concat());
        assert_eq!(ensure(&["--check"]).status.code(), Some(1));
        assert!(stdout(&ensure(&[])).contains(&format!("-> {}", before + 16)));
        assert_eq!(ensure(&["--check"]).status.code(), Some(0));
        assert!(stdout(&ensure(&[])).contains("nothing to change"));
        assert_eq!(run(&["pool", "set", &format!("2M:{before}")]).status.code(), Some(0));
        assert!(found.is_intact());
    }

    #[test]
    fn a_pool_of_the_planned_pages_is_enough_and_one_page_less_is_not() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        let directory = tempfile::tempdir().unwrap();
        let program = plan_program(directory.path());
        testkit::require!(program.is_some(), "needs a C compiler");
        let program = program.unwrap();
        testkit::lock_machine!();
        run(&["restore"]);
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let found = testkit::PoolsAsFound::note();
        run(&["pool", "overcommit", "2M:0"]);
        let set = |pages: u64| {
            let done = run(&["pool", "set", &format!("2M:{pages}"), "-q"]);
            done.status.code() == Some(0)
        };
        for kind in ["anonymous", "sysv", "memfd"] {
            let pages = pages_of(&planned(&["--", &program, kind, "37", "2"]), "pages");
            let starts = |pages| {
                testkit::require!(set(pages), "no {pages} superpages");
                let ended =
                    Command::new(&program).args([kind, "37", "2", "pool"]).output().unwrap();
                assert_eq!(ended.status.success(), pages >= 19, "{kind} on {pages}: {ended:?}");
            };
            starts(pages);
            starts(pages - 1);
        }
        let document = planned(&["--", &program, "heap", "37", "0"]);
        let (pages, spare) = (pages_of(&document, "pages"), pages_of(&document, "spare_pages"));
        let is_short = |pages: u64| -> bool {
            assert!(set(pages), "no {pages} superpages");
            let report = directory.path().join(format!("{pages}.json"));
            let file = report.to_str().unwrap();
            let words = ["run", "-q", "--heap", "--pages", "hugetlb", "-o", file, "--", &program];
            let output = run(&[&words[..], &["heap", "37", "0"]].concat());
            assert_eq!(stdout(&output), "fine\n", "{}", stderr(&output));
            let report: Value =
                serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
            !report["shortage"].is_null()
        };
        assert!(!is_short(pages), "{pages} pages are planned: {document}");
        assert!(is_short(pages - spare - 1), "more than {spare} of {pages} pages are too many");
        drop(found);
    }

    #[test]
    fn postgresql_starts_on_the_planned_pages_and_not_on_one_less() {
        testkit::require!(has_pool(), "{NO_POOL}");
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        let is_there = fs::read_dir("/usr/lib/postgresql").is_ok_and(|dirs| dirs.count() > 0);
        testkit::require!(is_there, "needs PostgreSQL in /usr/lib/postgresql");
        testkit::lock_machine!();
        run(&["restore"]);
        testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
        let _found = testkit::PoolsAsFound::note();
        run(&["pool", "overcommit", "2M:0"]);
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let output = Command::new("timeout")
            .args(["-k", "5", "100", "sh"])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/postgres-plan.sh"))
            .arg(env!("CARGO_BIN_EXE_superpage"))
            .arg("setpriv --reuid=65534 --regid=65534 --clear-groups")
            .current_dir(dir.path())
            .output()
            .unwrap();
        let (text, said) = (stdout(&output), stderr(&output));
        let figure = |name: &str| -> Value {
            let text = fs::read_to_string(dir.path().join(name)).unwrap_or_default();
            let plan: Value = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{error}: {text} {said}"));
            plan
        };
        let plan = figure("plan.json");
        let pages = plan["applications"][0]["pages"].as_u64().unwrap_or_else(|| panic!("{plan}"));
        assert_eq!(text, format!("own {pages}\nstarted on {pages}\n"), "{said}");
        assert_eq!(plan["applications"][0]["source"], "asked", "{plan}");
        assert_eq!(pages_of(&plan, "shared_pages"), pages, "the mapping is as long");
        assert_eq!(plan["applications"].as_array().unwrap().len(), 1, "{plan}");
        let running = figure("running.json");
        assert_eq!(running["applications"][0]["source"], "mapping");
        assert_eq!(pages_of(&running, "held_pages"), pages, "the server has them");
    }

    #[test]
    fn killed_while_growing_it_is_put_back_by_restore() {
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(Path::new(G1).exists(), "no pool of 1 GiB pages");
        testkit::lock_machine!();
        run(&["restore"]);
        let found = testkit::PoolsAsFound::note();
        let pages = || fs::read_to_string(format!("{G1}/nr_hugepages")).unwrap();
        let before = pages();
        let room = run(&["pool", "set", "1G:+6", "--dry-run"]);
        testkit::require!(room.status.success(), "no room for 6 GiB");
        // Gigantic pages are allocated one by one, slowly enough for an interruption.
        let mut child = superpage(&["pool", "set", "1G:+6"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let grows = comes_true(|| pages() != before || child.try_wait().unwrap().is_some());
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        let restored = run(&["restore"]);
        testkit::require!(grows, "no page of 1 GiB could be had for long");
        testkit::require!(ended.code().is_none(), "it ended before it could be killed");
        assert_eq!(restored.status.code(), Some(0), "{}", stderr(&restored));
        assert!(stdout(&restored).contains("hugepages-1048576kB"), "{}", stdout(&restored));
        assert!(found.is_intact());
    }

    #[test]
    fn interrupted_while_growing_it_is_put_back_at_once() {
        use std::os::unix::process::ExitStatusExt;
        testkit::require!(testkit::is_root(), "not root: pools cannot be changed");
        testkit::require!(Path::new(G1).exists(), "no pool of 1 GiB pages");
        testkit::lock_machine!();
        run(&["restore"]);
        let found = testkit::PoolsAsFound::note();
        let before = fs::read_to_string(format!("{G1}/nr_hugepages")).unwrap();
        let room = run(&["pool", "set", "1G:+6", "--dry-run"]);
        testkit::require!(room.status.success(), "no room for 6 GiB");
        let mut child =
            superpage(&["pool", "set", "1G:+6"]).stdout(Stdio::piped()).spawn().unwrap();
        let grows = comes_true(|| {
            fs::read_to_string(format!("{G1}/nr_hugepages")).unwrap() != before
                || child.try_wait().unwrap().is_some()
        });
        if child.try_wait().unwrap().is_none() {
            send(&child, libc::SIGINT);
        }
        let output = child.wait_with_output().unwrap();
        testkit::require!(grows, "no page of 1 GiB could be had for long");
        let finished = output.status.code() == Some(0);
        testkit::require!(!finished, "it ended before it could be interrupted");
        // Exit code 1: not even one page was available, so there was nothing to interrupt.
        let in_pieces = output.status.code() == Some(1) && stdout(&output).contains("fragmented");
        testkit::require!(!in_pieces, "free memory is in pieces smaller than 1 GiB");
        assert_eq!(output.status.signal(), Some(libc::SIGINT), "{}", stdout(&output));
        assert!(found.is_intact(), "{}", stdout(&output));
    }
}
