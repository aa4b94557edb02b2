//! Advice as text. Pure.

use ::advise::{Advice, Contiguity, Damon, Group, Look, Range, Remedy, Verdict, Why};
use report::format::counted;
use units::ByteSize;

use crate::pool::show;

/// Advice about one process.
pub fn process(advice: &Advice, top: usize) -> String {
    let process = &advice.process;
    let name = report::format::name(&process.name, 40);
    let mut text = format!("{name} {}: {}\n", process.pid, verdict(advice));
    let look = &advice.look;
    let rows: Vec<Vec<String>> = advice
        .regions
        .iter()
        .take(top)
        .map(|region| {
            vec![
                format!("{:x}", region.start),
                ByteSize(region.end - region.start).to_string(),
                region.on_base_pages.to_string(),
                format!("+{}", region.extra_bytes),
                report::format::percent(region.accesses),
                report::format::percent(region.saved),
                report::format::name(&region.name, 40),
            ]
        })
        .collect();
    if !rows.is_empty() && matches!(advice.verdict, Verdict::Gain(_)) {
        let header =
            ["address", "size", "on base pages", "more memory", "samples", "time saved", "name"];
        text += "\n";
        text += &show::table(&header, rows, &[6]);
        text +=
            &order("regions", advice.regions.len(), top, "by time saved per byte, the best first");
    }
    let share = |count: usize| report::format::percent(count as f64 / look.samples.max(1) as f64);
    text += &format!(
        "\n{} samples in {:.0} s of {}: {} at accesses with known addresses, {} lost, {} without access",
        look.samples,
        look.seconds,
        counted(look.threads, "thread", "threads"),
        share(look.attributed),
        share(look.lost + look.unreadable),
        share(look.without),
    );
    if look.dropped > 0 {
        text += &format!(", {} dropped", look.dropped);
    }
    if look.unsampled_threads > 0 {
        text += &format!("; {} not sampled", counted(look.unsampled_threads, "thread", "threads"));
    }
    text += &format!("; {:.2} s of CPU time for sampling\n", look.own_seconds);
    if look.ended {
        text += "the process ended during sampling\n";
    }
    text += &format!("hotness: CPU clock samples; {}\n", not_used(look));
    text += &remedies(&advice.remedies, usize::MAX);
    if !can_be_managed(advice) {
        return text;
    }
    let eligible = ByteSize(advice.on_base_pages.bytes() + advice.on_superpages.bytes());
    text + &filled(advice.extra_bytes, eligible) + &proof(&format!("--pid {}", process.pid))
}

/// How the memory that all superpages add relates to what `manage --once` adds; empty if it adds all of it. The share is
/// of the memory that superpages can hold, so that it suffices as one of all memory.
fn filled(extra: ByteSize, eligible: ByteSize) -> String {
    let share = extra.bytes() as f64 / eligible.bytes().max(1) as f64;
    if share <= manage::FILL {
        return String::new();
    }
    let percent = (100.0 * share).ceil().min(100.0);
    format!(
        "  {extra} more memory is for all superpages, as from a restart; manage --once leaves out the sparsest ones, unless \
         with --fill {percent}%\n"
    )
}

/// Says that other programs used CPUs while processes were sampled; `None`: they did not, or nothing is known.
pub fn others(load: &host::Neighbours) -> Option<String> {
    let found = load.found("while the processes were sampled")?;
    Some(format!(
        "{found}: the intervals do not cover what others do to shared caches; repeat it on a quieter machine"
    ))
}

/// The order of a table's rows, and how to see all of them.
fn order(what: &str, all: usize, top: usize, order: &str) -> String {
    match all > top {
        true => format!("{top} of {all} {what}, {order}; all: --top {all}\n"),
        false => format!("{what} {order}\n"),
    }
}

fn can_be_managed(advice: &Advice) -> bool {
    advice.remedies.iter().any(|remedy| matches!(remedy, Remedy::Manage { .. }))
}

/// How a gain is proved on running processes.
fn proof(selected: &str) -> String {
    format!("  to prove it under its load: superpage compare {selected} --metric-counter COMMAND\n")
}

fn signed(share: f64) -> String {
    format!("{:+.0}", (100.0 * share).round() + 0.0)
}

/// A gain with its interval: `+9 % (+6 to +12 %)`.
pub fn gain(range: Range) -> String {
    format!("{} % ({} to {} %)", signed(range.mid), signed(range.low), signed(range.high))
}

/// The share of the time that a gain saves.
fn saved(gain: Range) -> f64 {
    1.0 - 1.0 / (1.0 + gain.mid)
}

/// What superpages would bring: a gain, `none`, or `unknown`.
fn brings(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Gain(range) if range.low > 0.0 => gain(*range),
        Verdict::Gain(range) => format!("undecided: {}", gain(*range)),
        Verdict::None(range) => format!("none: {}", gain(*range)),
        Verdict::Unknown(Why::FewSamples) => "unknown: few samples".to_string(),
        Verdict::Unknown(Why::Lost) => "unknown: addresses lost".to_string(),
    }
}

fn verdict(advice: &Advice) -> String {
    match advice.verdict {
        Verdict::Gain(range) => format!(
            "{}, {} of its time saved, {} more memory, {}",
            brings(&advice.verdict),
            report::format::percent(saved(range)),
            advice.extra_bytes,
            contiguity(advice.contiguity),
        ),
        Verdict::None(_) => brings(&advice.verdict),
        Verdict::Unknown(Why::FewSamples) => format!(
            "unknown: it used too little CPU time in user mode ({} samples); sample longer (--for), or under \
             load",
            advice.look.samples
        ),
        Verdict::Unknown(Why::Lost) => format!(
            "unknown: {} of its samples are at accesses whose addresses cannot be computed",
            report::format::percent(
                (advice.look.lost + advice.look.unreadable) as f64 / advice.look.samples as f64
            )
        ),
    }
}

/// Several services: a block each.
pub fn services(services: &[Group], advice: &[Advice], top: usize) -> String {
    let blocks: Vec<String> = services
        .iter()
        .map(|group| {
            let of = |pid| advice.iter().find(|one| one.process.pid == pid);
            let all: Vec<&Advice> = group.pids.iter().filter_map(|pid| of(*pid)).collect();
            match all[..] {
                [one] => process(one, top),
                _ => service(group, &all, top),
            }
        })
        .collect();
    blocks.join("\n")
}

/// One service of several processes: a line that sums up, the best remedy, and its processes.
fn service(group: &Group, all: &[&Advice], top: usize) -> String {
    let name = report::format::name(&group.service, 40);
    let mut text = format!("{name}, {} processes: {}\n", all.len(), sum(group));
    let best = all.iter().find(|one| Some(one.process.pid) == group.remedies_of);
    if let Some(best) = best {
        text += &remedies(&best.remedies, 1);
        if can_be_managed(best) {
            let selected = selected(all);
            text += &format!("  or {}\n{}", at_once(&selected), proof(&selected));
        }
    }
    let rows = all.iter().take(top).map(|one| {
        vec![
            format!("{} {}", report::format::name(&one.process.name, 20), one.process.pid),
            format!("{:.2}", one.look.cpus()),
            one.on_base_pages.to_string(),
            format!("+{}", one.extra_bytes),
            one.look.samples.to_string(),
            brings(&one.verdict),
        ]
    });
    let header = ["process", "CPUs", "on base pages", "more memory", "samples", "superpages bring"];
    text += "\n";
    text += &show::table(&header, rows.collect(), &[0, 5]);
    text += &order("processes", all.len(), top, "by CPU time, the most first");
    let own: f64 = all.iter().map(|one| one.look.own_seconds).sum();
    text += &format!("{own:.2} s of CPU time for sampling");
    if let Some(first) = all.first() {
        text += &format!("; hotness: CPU clock samples; {}", not_used(&first.look));
    }
    text + "\nregions, samples and other remedies of each process: --each, or --json\n"
}

/// The flags that select a service's processes.
fn selected(all: &[&Advice]) -> String {
    let unit = |one: &&Advice| one.process.unit.clone();
    match all.first().and_then(unit) {
        Some(first) if all.iter().all(|one| unit(one).as_ref() == Some(&first)) => {
            format!("--unit {}", report::format::command(&[first]))
        }
        _ => {
            let pids = all.iter().map(|one| format!("--pid {}", one.process.pid));
            pids.collect::<Vec<_>>().join(" ")
        }
    }
}

/// Superpages for processes that run.
fn at_once(selected: &str) -> String {
    format!("now, until it ends, as root: superpage manage --once {selected}")
}

/// The gain of a service's processes together.
fn sum(group: &Group) -> String {
    let known = group.known_share.unwrap_or(0.0);
    let Some(range) = group.gain else {
        return match group.known_share {
            None => "unknown: no process used CPU time".to_string(),
            Some(_) => format!(
                "unknown: the gain is known for {} of the CPU time ({:.2} CPUs); sample longer (--for), or under load",
                report::format::percent(known),
                group.cpus
            ),
        };
    };
    let verdict = Verdict::new(range);
    let mut text = brings(&verdict);
    if known < 0.995 {
        text += &format!(" for {} of the CPU time", report::format::percent(known));
    }
    text += &format!(" ({:.2} CPUs)", group.cpus);
    if matches!(verdict, Verdict::Gain(_)) {
        let contiguity = contiguity(group.contiguity);
        text += &format!(", {} more memory, {contiguity}", group.memory.extra_bytes);
    }
    text
}

fn contiguity(contiguity: Option<Contiguity>) -> String {
    match contiguity {
        None => "contiguity unknown".to_string(),
        Some(found) if found.free >= found.needed => "contiguity enough".to_string(),
        Some(found) => {
            format!(
                "contiguity for {} of {} superpages (echo 1 > /proc/sys/vm/compact_memory compacts)",
                found.free, found.needed
            )
        }
    }
}

/// The first of these remedies, a line each. Redis' own takes the next one with it.
pub fn remedies(all: &[Remedy], most: usize) -> String {
    let most = match all.first() {
        Some(Remedy::Redis) => most.saturating_add(1),
        _ => most,
    };
    let (mut text, mut or) = (String::new(), "");
    for one in all.iter().take(most) {
        text += &format!("  {or}{}\n", remedy(one));
        or = if *one == Remedy::Redis { "" } else { "or " };
    }
    text
}

/// Why better sources were not used.
fn not_used(look: &Look) -> String {
    let damon = match &look.damon {
        Damon::Absent => "this kernel has no DAMON".to_string(),
        Damon::InUse { .. } if look.damon.lacks_processes() => {
            "DAMON of this kernel cannot watch a process".to_string()
        }
        Damon::InUse { .. } => "DAMON is in use by others".to_string(),
        Damon::Free => "DAMON is not used: using it would change its settings".to_string(),
        Damon::Unknown { why } => format!("DAMON cannot be read ({why})"),
    };
    let pmu = if look.has_pmu { "the PMU is not used yet" } else { "no PMU" };
    format!("{damon}; {pmu}")
}

/// Formats a remedy. `superpage` is named by its full path: systemd does not search PATH.
fn remedy(remedy: &Remedy) -> String {
    let started = |command: &[String]| match command.is_empty() {
        true => {
            "COMMAND (the one that starts it: the process overwrote its command line)".to_string()
        }
        false => report::format::command(command),
    };
    match remedy {
        Remedy::Run { command } => {
            format!("start it by: superpage run --heap --mmap -- {}", started(command))
        }
        Remedy::DropIn { unit, command } => {
            let own = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/superpage".into());
            format!(
                "systemctl edit {unit}: [Service], ExecStart=, ExecStart={} run --heap --mmap -- {}",
                report::format::command(&[own.to_string_lossy()]),
                started(command)
            )
        }
        Remedy::Java { is_refused: false } => "java -XX:+UseTransparentHugePages".to_string(),
        Remedy::Java { is_refused: true } => {
            "java -XX:+UseTransparentHugePages in place of its -XX:-UseTransparentHugePages".to_string()
        }
        Remedy::Postgres { pid, is_on_command_line } => format!(
            "postgresql.conf: huge_pages = on{}; the pool: superpage pool plan --pid {pid}",
            if *is_on_command_line { ", and no huge_pages on its command line, which wins" } else { "" }
        ),
        Remedy::Glibc => {
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 in its environment, from glibc 2.35 on (which leaves some starts \
             without: README)"
                .to_string()
        }
        Remedy::Jemalloc => "MALLOC_CONF=thp:always in its environment (jemalloc)".to_string(),
        Remedy::Container => {
            "in its container: docker run -e GLIBC_TUNABLES=glibc.malloc.hugetlb=1, or that under env: of the pod".to_string()
        }
        Remedy::Always => {
            "echo always > /sys/kernel/mm/transparent_hugepage/enabled (all programs), then restart it".to_string()
        }
        Remedy::Manage { pid } => {
            format!(
                "{} (adds at most {} of its memory; more: --fill); each time it starts: a rule of superpage manage",
                at_once(&format!("--pid {pid}")),
                report::format::percent(manage::FILL)
            )
        }
        Remedy::Redis => "redis.conf: disable-thp no (it turned THP off for itself), and:".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use units::Pid;

    use super::*;

    #[test]
    fn the_order_of_rows_and_the_flag_that_shows_all_are_told() {
        assert_eq!(order("regions", 3, 8, "by x"), "regions by x\n");
        assert_eq!(order("regions", 11, 8, "by x"), "8 of 11 regions, by x; all: --top 11\n");
    }

    #[test]
    fn memory_of_all_superpages_is_told_apart_from_that_of_manage_once() {
        let mib = ByteSize::mib;
        assert_eq!(filled(mib(3), mib(100)), "");
        let said = filled(mib(25), mib(400));
        assert!(said.contains("25 MiB") && said.contains("--fill 7%"), "{said}");
        assert!(filled(mib(9), mib(1)).contains("--fill 100%"));
    }

    #[test]
    fn others_are_named_where_they_used_cpus() {
        let load = host::Neighbours {
            cpus: 2,
            load_before: Some(2.5),
            others_cpus: Some(1.1),
            stolen: None,
        };
        let said = others(&load).unwrap();
        assert!(said.contains("1.1 of 2 CPUs") && said.contains("load average 2.5"), "{said}");
        assert_eq!(others(&host::Neighbours { others_cpus: Some(0.0), ..load }), None);
    }

    #[test]
    fn a_gain_of_speed_is_less_of_the_time() {
        let gain = Range { low: 0.2, mid: 0.25, high: 0.3 };
        assert!((saved(gain) - 0.2).abs() < 1e-12);
    }

    #[test]
    fn what_helps_without_a_restart_stands_behind_what_lasts() {
        let text = remedies(&[Remedy::Glibc, Remedy::Manage { pid: Pid(7) }], usize::MAX);
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("  or ") && last.contains("superpage manage --once --pid 7"),
            "{text}"
        );
        assert!(proof("--unit x").contains("superpage compare --unit x --metric-counter COMMAND"));
    }
}
