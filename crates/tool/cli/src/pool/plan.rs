//! `superpage pool plan`: prints the number of pages that programs take of a pool, from their mappings.

use host::Root;
use host::pool::{RelatedSettings, Status, exact};
use launch::Word;
use serde_json::json;
use services::{Application, Bound, LeftOut, Need, OwnFigure, SharedKind, Source};
use units::{ByteSize, PageSize};

use super::peak::{self, Peak};
use super::show;
use crate::exit::{self, Done, Failure};
use crate::progress::Progress;
use crate::targets::{self, TargetArgs};

/// Print how large a pool a program or running processes need.
///
/// The kernel reserves pages for a mapping when it is made. Shared memory therefore counts whole, touched or not, and once
/// for all processes; private memory counts as `superpage run --pages hugetlb` takes it. A program after `--` runs on base
/// pages to its end, without input, and its output goes to standard error; the largest need is printed. Run it under the
/// load that the pool is for. PostgreSQL and java print their own figures, in separate processes. Nothing is changed, and
/// smaps is not read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// Program and arguments.
    #[arg(
        last = true,
        value_name = "PROGRAM",
        conflicts_with_all = ["pid", "cgroup", "unit", "pattern"]
    )]
    command: Vec<Word>,

    #[command(flatten)]
    targets: TargetArgs,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let targets = args.targets.targets();
    if args.command.is_empty() && targets.is_empty() {
        return Err(Failure::usage(
            "no process named; give -- PROGRAM, or --pid, --cgroup, --unit or --match for running processes",
        ));
    }
    let root = Root::real();
    let status = Status::read(&root)?;
    let mut peak = Peak::new(&status)?;
    if args.command.is_empty() {
        let selected = targets::select(&root, &targets)?;
        peak.unknown.extend(selected.unknown.iter().map(ToString::to_string));
        let mut progress = Progress::new(args.json, "reading memory");
        peak.read(&root, &selected.processes, &mut |done| {
            progress.tell(done, Some(selected.processes.len() as u64), String::new);
        });
        progress.clear();
    } else {
        peak = peak::watch(&args.command, peak)?;
    }
    if peak.images.is_empty() {
        return Err(match peak.unknown.first() {
            Some(why) => Failure::cannot(why),
            None => Failure::usage(
                "the program ended before its memory could be read; give it more work, or wrap it: -- sh -c \
                 'PROGRAM; sleep 1'",
            ),
        });
    }
    let figures = peak.figures(&root, status.default);
    let plan = Plan {
        rows: status
            .pools
            .sizes
            .iter()
            .map(|(size, pool)| Row {
                size: *size,
                need: peak.need(*size),
                free: pool.unreserved(),
            })
            .collect(),
        settings: RelatedSettings::read(&root),
        status,
        figures,
        peak,
    };
    if args.json {
        let command = (!args.command.is_empty()).then_some(&args.command);
        exit::print_json("superpage.pool-plan/2", plan.document(command))?;
    } else {
        exit::print(&plan.text())?;
    }
    const MOST_SAID: usize = 5;
    for why in plan.peak.unknown.iter().take(MOST_SAID) {
        exit::say(&format!("not counted: {why}"));
    }
    if plan.peak.unknown.len() > MOST_SAID {
        let more = plan.peak.unknown.len() - MOST_SAID;
        exit::say(&format!("not counted: {more} more processes (--json lists them)"));
    }
    Ok(if plan.peak.unknown.is_empty() { Done::Fine } else { Done::Negative })
}

/// Pages of one size, and how many the pool lacks.
struct Row {
    size: PageSize,
    need: Need,
    free: Option<u64>,
}

impl Row {
    /// Pages to add to the pool for `pages`, of which the processes may have some already.
    fn missing(&self, pages: u64) -> Option<u64> {
        let has = self.free?.saturating_add(self.need.held_pages);
        Some(pages.saturating_sub(has))
    }

    fn to_have(&self, pages: u64) -> String {
        match self.missing(pages) {
            Some(0) => "enough is free".to_string(),
            missing => format!(
                "superpage pool grow {}:{}",
                exact(self.size.bytes()),
                missing.unwrap_or(pages)
            ),
        }
    }
}

struct Plan {
    status: Status,
    settings: RelatedSettings,
    rows: Vec<Row>,
    figures: Vec<OwnFigure>,
    peak: Peak,
}

/// Most objects of shared memory, and most processes, that the table lists.
const MOST_ROWS: usize = 12;

impl Plan {
    fn document(&self, command: Option<&Vec<Word>>) -> serde_json::Value {
        let sizes = self.rows.iter().map(|row| {
            json!({
                "page_bytes": row.size, "shared_pages": row.need.shared_pages,
                "private_pages": row.need.private_pages, "spare_pages": row.need.spare_pages,
                "pages": row.need.pages(), "held_pages": row.need.held_pages,
                "free_pages": row.free, "missing_pages": row.missing(row.need.pages()),
            })
        });
        json!({
            "command": command, "processes": self.peak.demand.processes,
            "shared": self.peak.demand.shared, "private": self.peak.demand.private,
            "left_out": self.peak.demand.left_out,
            "sizes": sizes.collect::<Vec<_>>(), "applications": self.figures,
            "needs_shm_group": self.uses_sysv(), "unknown": self.peak.unknown,
        })
    }

    fn text(&self) -> String {
        let demand = &self.peak.demand;
        let mut text = self.memory();
        let rows = self.rows.iter().map(|row| {
            vec![
                row.size.to_string(),
                row.need.shared_pages.to_string(),
                row.need.private_pages.to_string(),
                show::pages(Some(row.need.pages()), row.size),
                row.need.held_pages.to_string(),
                show::known(row.free),
                row.to_have(self.wanted(row)),
            ]
        });
        let header = ["pages", "shared", "private", "in all", "held", "free", "to have them"];
        text += &format!("\n{}", show::table(&header, rows.collect(), &[6]));
        if self.rows.iter().any(|row| row.need.pages() > 0) {
            text.push('\n');
        }
        for row in self.rows.iter().filter(|row| self.wanted(row) != row.need.pages()) {
            text += &format!(
                "to have them: {} pages of {}, by the applications' own figures, which count memory not mapped yet or leave \
                 out what stays off the pool; for superpage run --pages hugetlb {} pages\n",
                self.wanted(row),
                row.size,
                row.need.pages()
            );
        }
        let has = |pages: fn(&Need) -> u64| self.rows.iter().any(|row| pages(&row.need) > 0);
        if has(|need| need.shared_pages) {
            text += "shared: of a program that asks for the pool itself, or under SUPERPAGE_POOL=always superpage run --shm \
                     --pages hugetlb (without memfd and files)\n";
        }
        if has(|need| need.private_pages) {
            text += "private: at most, under superpage run --pages hugetlb; adjoining mappings count as one";
            let spare: Vec<String> = self
                .rows
                .iter()
                .filter(|row| row.need.spare_pages > 0)
                .map(|row| format!("{} of {}", row.need.spare_pages, row.size))
                .collect();
            if !spare.is_empty() {
                text += &format!("; the heap may leave {} unused", spare.join(", "));
            }
            text.push('\n');
        }
        if demand.private.iter().any(|one| one.inherited_bytes.bytes() > 0) {
            text += "forked children: copies of their parent's private memory are not counted; superpage run makes them on \
                     base pages\n";
        }
        for figure in &self.figures {
            text += &self.application(figure);
        }
        text + &self.lines()
    }

    /// Pages that a pool should have: by the applications' own figures if there are any for its size, else by the mappings.
    fn wanted(&self, row: &Row) -> u64 {
        let own = self.figures.iter().filter(|it| it.page_bytes == Some(row.size));
        let own = own.filter_map(|it| it.pages).reduce(u64::saturating_add);
        own.unwrap_or(row.need.pages())
    }

    /// The shared objects and the processes, largest first.
    fn memory(&self) -> String {
        let demand = &self.peak.demand;
        let least = self.peak.least();
        let known = |bytes| report::format::known(bytes, |bytes: ByteSize| bytes.to_string());
        let mut rows = Vec::new();
        let large = |bytes: u64| bytes >= least.bytes();
        let shared: Vec<_> =
            demand.shared.iter().filter(|object| large(object.bytes.bytes())).collect();
        for object in shared.iter().take(MOST_ROWS) {
            rows.push(vec![
                format!("shared, {}", kind_name(object.kind)),
                object.bytes.to_string(),
                known(object.touched_bytes),
                object.processes.to_string(),
                report::format::name(&object.name, 40),
            ]);
        }
        let private: Vec<_> = demand.private.iter().filter(|one| large(one.bytes())).collect();
        for one in private.iter().take(MOST_ROWS) {
            rows.push(vec![
                "private".to_string(),
                ByteSize(one.bytes()).to_string(),
                known(one.touched_bytes),
                "1".to_string(),
                format!("{} {}", one.pid, report::format::name(&one.name, 30)),
            ]);
        }
        let processes = report::format::counted(demand.processes, "process", "processes");
        let left_out: String = demand.left_out.iter().take(MOST_ROWS).map(left_out).collect();
        if rows.is_empty() {
            let what = match left_out.is_empty() {
                true => format!("pages of {least}"),
                false => "a pool".to_string(),
            };
            return format!("{processes}: no memory that {what} could hold\n{left_out}");
        }
        let left = shared.len().saturating_sub(MOST_ROWS) + private.len().saturating_sub(MOST_ROWS);
        let mut text = format!("{processes}\n\n");
        let header = ["memory", "mapped", "touched", "processes", "of"];
        text += &show::table(&header, rows, &[0, 4]);
        if left > 0 {
            text += &format!("and {left} smaller\n");
        }
        text + &left_out
    }

    fn application(&self, figure: &OwnFigure) -> String {
        let (name, how) = match figure.application {
            Application::Postgresql => ("PostgreSQL", "huge_pages = on in postgresql.conf"),
            Application::Jvm => ("Java", "-XX:+UseLargePages"),
            Application::Redis => ("Redis", ""),
        };
        let mut text = format!("\n{name}, pid {}: ", figure.pid);
        if let (Some(pages), Some(size)) = (figure.pages, figure.page_bytes) {
            let bound = match figure.bound {
                Bound::Exact => "",
                Bound::AtLeast => "at least ",
                Bound::AtMost => "at most ",
            };
            let source = match figure.source {
                Source::Asked => "as it reports itself",
                Source::Mapping => "the length of its shared mapping",
                Source::Settings | Source::None => "from its settings",
            };
            let bytes = show::bytes(pages, size);
            text += &format!("{bound}{pages} pages of {size} ({bytes}), {source}\n");
        } else if figure.application == Application::Redis {
            text += "it asks for no pages of a pool, and under superpage run jemalloc's memory (MAP_NORESERVE) stays off the \
                     pool; use THP (superpage run)\n";
        } else {
            text += "it reports no figure itself\n";
        }
        let parts: Vec<String> = figure
            .parts
            .iter()
            .map(|part| format!("{} {}", report::format::name(&part.name, 40), part.bytes))
            .collect();
        if !parts.is_empty() {
            text += &format!("  of which: {}\n", parts.join(", "));
        }
        if !how.is_empty() {
            text += &match figure.asks {
                Some(true) => "  its settings ask for the pool\n".to_string(),
                Some(false) => format!("  it uses the pool only with {how}\n"),
                None => format!("  it uses the pool with {how}; its settings are unknown\n"),
            };
        }
        if figure.application == Application::Postgresql && figure.uses_sysv {
            text +=
                "  PostgreSQL takes no pages of a pool with shared_memory_type = sysv: use mmap\n";
        }
        if figure.application == Application::Postgresql && figure.asks == Some(true) {
            text += "  huge_pages = on refuses to start without the pages; try falls back to base pages\n";
        }
        if let Some(why) = &figure.unknown {
            text += &format!("  unknown: {}\n", report::format::clipped(why, 200));
        }
        text
    }

    /// Whether memory would be taken by shmget with SHM_HUGETLB.
    fn uses_sysv(&self) -> bool {
        let least = self.peak.least().bytes();
        let has_segment = |object: &&services::SharedMemory| {
            object.kind == SharedKind::SysV && object.bytes.bytes() >= least
        };
        self.peak.demand.shared.iter().any(|object| has_segment(&object))
            || self.figures.iter().any(|figure| figure.uses_sysv)
    }

    /// The settings that keep the pool after a reboot, and who may use the pool.
    fn lines(&self) -> String {
        let mut text = String::new();
        let is_none = |row: &Row| row.need.pages() == 0;
        if self.rows.iter().all(is_none) && self.figures.iter().all(|it| it.pages.is_none()) {
            return text;
        }
        let default = self.status.default;
        if let Some(row) = self.rows.iter().find(|row| Some(row.size) == default) {
            let pages = self.wanted(row);
            let has = self.status.persistent(row.size, None).ok();
            if let (Some(missing), Some(has)) = (row.missing(pages), has)
                && pages > 0
            {
                let all = has.saturating_add(missing);
                text += &format!(
                    "\nat boot: vm.nr_hugepages = {all} in /etc/sysctl.d, or superpage pool boot {}:{all} --format systemd\n",
                    exact(row.size.bytes())
                );
            }
        }
        if self.uses_sysv() {
            text +=
                "limits: shmget(SHM_HUGETLB) needs CAP_IPC_LOCK or vm.hugetlb_shm_group = GROUP";
            let group = self.figures.iter().find(|it| it.uses_sysv).and_then(|it| it.group);
            text += &group.map_or(String::new(), |group| format!(" (its group is {group})"));
            text += " (superpage pool shm --group GROUP); LimitMEMLOCK= is obsolete for this\n";
            let segments =
                self.peak.demand.shared.iter().filter(|object| object.kind == SharedKind::SysV);
            let largest = segments.map(|object| object.bytes.bytes()).max().unwrap_or(0);
            if self.settings.shmmax.is_some_and(|most| most < largest) {
                text +=
                    &format!("kernel.shmmax = {largest}: the segment is larger than the limit\n");
            }
        } else {
            text += "limits: none; mmap(MAP_HUGETLB) needs neither LimitMEMLOCK= nor vm.hugetlb_shm_group nor kernel.shmmax\n";
        }
        text
    }
}

/// The line of a mapping that is not counted.
fn left_out(one: &LeftOut) -> String {
    let touched = report::format::known(one.touched_bytes, |bytes| bytes.to_string());
    format!(
        "left out: a private mapping of {} ({touched} touched) of {} {}: larger than memory and swap, so no pool can \
         hold it\n",
        one.bytes,
        one.pid,
        report::format::name(&one.name, 30)
    )
}

fn kind_name(kind: SharedKind) -> &'static str {
    match kind {
        SharedKind::Anonymous => "anonymous",
        SharedKind::SysV => "System V",
        SharedKind::Memfd => "memfd",
        SharedKind::File => "file in memory",
        SharedKind::Hugetlb => "on a pool",
    }
}
