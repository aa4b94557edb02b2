//! What programs, files and this command ask for and do not get.

use super::thp::{in_force, printed};
use super::{Found, Judged, Stop, Workload, all_seen, evidence, only_if, pools};
use crate::facts::{Facts, Setting, THP};
use crate::finding::{Evidence, Remedy, Severity};
use crate::processes::{ProcessFacts, Program};

/// Processes that ask in this way.
fn asking(facts: &Facts, program: Program) -> Vec<&ProcessFacts> {
    facts.processes.iter().filter(|one| one.asks.contains(&program)).collect()
}

/// No process asks: fine, unless variables of some processes could not be read.
fn none_asks(facts: &Facts) -> Judged {
    match facts.processes_unknown.is_empty() {
        true => Ok(Vec::new()),
        false => Err(Stop::Unknown(facts.processes_unknown.clone())),
    }
}

fn listed(processes: &[&ProcessFacts], file: &str, value: &str) -> Vec<Evidence> {
    let line = |one: &&ProcessFacts| {
        let file = format!("/proc/{}/{file}", one.process.pid);
        evidence(file, format!("{value} ({})", one.process.name))
    };
    processes.iter().take(8).map(line).collect()
}

fn number(processes: &[&ProcessFacts]) -> String {
    match processes {
        [one] => format!("{} (pid {})", one.process.name, one.process.pid),
        all => format!("{} processes", all.len()),
    }
}

pub(super) fn morecore(facts: &Facts, _: Workload) -> Judged {
    let found = asking(facts, Program::MorecoreWithoutHook);
    if found.is_empty() {
        return none_asks(facts);
    }
    let mut remedy = Remedy::default();
    for unit in found.iter().filter_map(|one| one.process.unit.as_deref()).take(8) {
        if unit.ends_with(".service") {
            remedy = remedy.unit(unit, "Environment=GLIBC_TUNABLES=glibc.malloc.hugetlb=1", None);
        }
    }
    remedy = remedy.edit("where the program is started", "superpage run --heap -- PROGRAM");
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!("HUGETLB_MORECORE does nothing for {}", number(&found)),
        evidence: listed(&found, "environ", "HUGETLB_MORECORE"),
        why: "glibc 2.34 removed the hook by which libhugetlbfs gave malloc its memory: the program \
              runs on base pages without a message.",
        remedy,
    }])
}

pub(super) fn glibc_hugetlb(facts: &Facts, _: Workload) -> Judged {
    let (thp, hugetlb) = (asking(facts, Program::GlibcThp), asking(facts, Program::GlibcHugetlb));
    if thp.is_empty() && hugetlb.is_empty() {
        return none_asks(facts);
    }
    let mut found = without_thp(facts, &thp, "environ", "glibc.malloc.hugetlb=1")?;
    let why = "glibc falls back to base pages and says nothing.";
    found.extend(without_pool(facts, &hugetlb, "environ", "glibc.malloc.hugetlb=2", why)?);
    Ok(found)
}

pub(super) fn jvm(facts: &Facts, _: Workload) -> Judged {
    let (thp, hugetlb) = (asking(facts, Program::JvmThp), asking(facts, Program::JvmHugetlb));
    if thp.is_empty() && hugetlb.is_empty() {
        // Anybody may read arguments, but not of a process that is hidden.
        return all_seen(facts).map(|()| Vec::new());
    }
    let mut found = without_thp(facts, &thp, "cmdline", "-XX:+UseTransparentHugePages")?;
    let why = "The JVM prints a warning when it starts and runs on base pages.";
    found.extend(without_pool(facts, &hugetlb, "cmdline", "-XX:+UseLargePages", why)?);
    Ok(found)
}

fn without_thp(facts: &Facts, asking: &[&ProcessFacts], file: &str, flag: &str) -> Judged {
    if asking.is_empty() {
        return Ok(Vec::new());
    }
    let in_force = match in_force(facts) {
        Ok(in_force) => in_force,
        // `thp-not-built` reports it.
        Err(Stop::NotApplicable) => return Ok(Vec::new()),
        Err(stop) => return Err(stop),
    };
    if !in_force.is_never() {
        return Ok(Vec::new());
    }
    let mut lines = listed(asking, file, flag);
    lines.push(evidence(&in_force.file, printed(in_force.choice)));
    let value = if in_force.file == format!("{THP}/enabled") { "madvise" } else { "inherit" };
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!("{} asked for THP by `{flag}`, and THP are off", number(asking)),
        evidence: lines,
        why: "The program's advice is ignored; it runs on base pages.",
        remedy: Remedy::sysfs(in_force.file, value),
    }])
}

fn without_pool(
    facts: &Facts,
    asking: &[&ProcessFacts],
    file: &str,
    flag: &str,
    why: &'static str,
) -> Judged {
    if asking.is_empty() {
        return Ok(Vec::new());
    }
    let mut lines = listed(asking, file, flag);
    if pools::are_absent(facts) {
        lines.push(evidence(&facts.pools.file, "no such directory"));
    } else if pools::default_gives(facts)? {
        return Ok(Vec::new());
    } else {
        lines.push(evidence(pools::default_file(facts)?, 0));
    }
    Ok(vec![Found {
        severity: Severity::Warning,
        what: format!(
            "{} asked for hugetlb pages by `{flag}`, and there is no pool",
            number(asking)
        ),
        evidence: lines,
        why,
        remedy: Remedy::default()
            .run(&["superpage", "pool", "plan", "--", "PROGRAM"])
            .run(&["superpage", "pool", "grow", "default:BYTES"])
            .edit("where the pool is set", "`superpage pool boot` writes the lines"),
    }])
}

pub(super) fn collapse(facts: &Facts, _: Workload) -> Judged {
    if *facts.collapse.if_there()? {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "this kernel has no MADV_COLLAPSE (Linux 6.1)".to_string(),
        evidence: vec![evidence(&facts.collapse.file, "EINVAL")],
        why: "Only khugepaged gives superpages to memory that is in use; `superpage run --design` \
              cannot make them at the times of the design.",
        remedy: Remedy::default().edit("the kernel", "6.1 or later"),
    }])
}

pub(super) fn perf_paranoid(facts: &Facts, _: Workload) -> Judged {
    only_if(!facts.is_root)?;
    let setting = facts.setting(Setting::PerfEventParanoid);
    let value = *setting.if_there()?;
    if value <= 2 {
        return Ok(Vec::new());
    }
    Ok(vec![Found {
        severity: Severity::Note,
        what: "ordinary users may not count or sample their own programs".to_string(),
        evidence: vec![evidence(&setting.file, value)],
        why: "`superpage measure` needs root then.",
        remedy: Remedy::setting(Setting::PerfEventParanoid, 2),
    }])
}

/// Beginnings of the keys that concern superpages.
const KEYS: [&str; 4] =
    ["vm.nr_hugepages", "vm.nr_overcommit_hugepages", "vm.hugetlb_", "vm.hugepages_"];

pub(super) fn sysctl_removed(facts: &Facts, _: Workload) -> Judged {
    let found = facts
        .sysctl
        .get()?
        .iter()
        .filter(|line| !line.is_there && KEYS.iter().any(|start| line.key.starts_with(start)));
    let found = found.map(|line| {
        let place = format!("{}:{}", line.file, line.line);
        Found {
            severity: Severity::Note,
            what: format!("this kernel has no setting {}", report::format::name(&line.key, 60)),
            evidence: vec![evidence(&place, format!("{} = {}", line.key, line.value))],
            why: "The line does nothing: the setting was removed (`vm.hugepages_treat_as_movable`) or is \
                  not built in.",
            remedy: Remedy::default().edit(place, "remove the line"),
        }
    });
    Ok(found.collect())
}

pub(super) fn settings_left(facts: &Facts, _: Workload) -> Judged {
    let left = facts.left.get()?;
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let lines = left.iter().map(|one| evidence(one.file.display().to_string(), &one.knob));
    Ok(vec![Found {
        severity: Severity::Warning,
        what: match left.as_slice() {
            [one] => format!("a killed superpage left {} changed", one.knob),
            all => format!("killed superpage commands left {} settings changed", all.len()),
        },
        evidence: lines.collect(),
        why: "The machine keeps what was meant for one run.",
        remedy: Remedy::default().run(&["superpage", "restore"]),
    }])
}
