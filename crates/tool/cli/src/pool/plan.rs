//! `superpage pool plan`: prints the number of pages that programs take of a pool, from their mappings.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use experiment::watch::{AT_PEAK, NEAR_PEAK};
use host::pool::{RelatedSettings, Status, exact};
use host::{Root, process};
use launch::{Pages, Recipe, Start, Streams, Word};
use serde_json::json;
use services::{
    Application, Bound, Demand, Identity, Image, LeftOut, Need, OwnFigure, Process, SharedKind,
    Source, SpaceError, largest_backed,
};
use units::{ByteSize, PageSize, Pid};

use super::show;
use crate::background::{self, Descendants};
use crate::exit::{self, Done, Failure};
use crate::progress::Progress;
use crate::targets::{self, TargetArgs};
use operations::{facts, signals};

/// Print how large a pool a program or running processes need.
///
/// The kernel reserves pages for a mapping when it is made. Shared memory therefore counts whole, touched or not, and once
/// for all processes; private memory counts as `superpage run --pages hugetlb` takes it. A program after `--` runs on base
/// pages to its end, without input, and its output goes to standard error; the largest need is printed. Run it under the
/// load that the pool is for. PostgreSQL and java are asked for their own figures, in processes of their own. Nothing is
/// changed, and smaps is not read.
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
            "nothing to plan for: give -- PROGRAM, or --pid, --cgroup, --unit or --match for running processes",
        ));
    }
    let root = Root::real();
    let status = super::status()?;
    let mut peak = Peak::new(&status)?;
    if args.command.is_empty() {
        let selected = targets::select(&root, &targets)?;
        peak.unknown.extend(selected.unknown.iter().map(ToString::to_string));
        let mut progress = Progress::new(args.json, "reading memory");
        peak.look(&root, &selected.processes, &mut |done| {
            progress.tell(done, Some(selected.processes.len() as u64), String::new);
        });
        progress.clear();
    } else {
        peak = watch(&args.command, peak)?;
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
            .map(|(size, pool)| Row::new(*size, peak.need(*size), pool.unreserved()))
            .collect(),
        settings: RelatedSettings::read(&root),
        status,
        figures,
        peak,
    };
    if args.json {
        let command = (!args.command.is_empty()).then_some(&args.command);
        super::print_json("superpage.pool-plan/2", plan.document(command))?;
    } else {
        exit::print(&plan.text())?;
    }
    const MOST_TOLD: usize = 5;
    for why in plan.peak.unknown.iter().take(MOST_TOLD) {
        exit::say(&format!("not counted: {why}"));
    }
    if plan.peak.unknown.len() > MOST_TOLD {
        let more = plan.peak.unknown.len() - MOST_TOLD;
        exit::say(&format!("not counted: {more} more processes (--json lists them)"));
    }
    Ok(if plan.peak.unknown.is_empty() { Done::Fine } else { Done::Negative })
}

/// The largest need that was seen, and the memory at that time.
struct Peak {
    sizes: Vec<PageSize>,
    limit: u64,
    /// This process: a child looks like it until it executes the program.
    own: Option<Image>,
    needs: BTreeMap<PageSize, Need>,
    demand: Demand,
    images: Vec<Image>,
    identities: BTreeMap<(Pid, u64), Identity>,
    /// Resident bytes of each process: most at a look, and most that the kernel noted.
    resident: BTreeMap<(Pid, u64), (u64, u64)>,
    /// Processes that could not be read, with reasons.
    unknown: Vec<String>,
}

impl Peak {
    fn new(status: &Status) -> Result<Self, Failure> {
        let root = Root::real();
        let sizes: Vec<PageSize> = status.pools.sizes.keys().copied().collect();
        if sizes.is_empty() {
            return Err(Failure::cannot("this kernel has no pool of any page size"));
        }
        let own = Process::read(&root, sys::param::own_pid()).ok().flatten();
        Ok(Self {
            sizes,
            limit: largest_backed(&root),
            own: own.and_then(|own| Image::read(&root, &own).ok()),
            needs: BTreeMap::new(),
            demand: Demand::default(),
            images: Vec::new(),
            identities: BTreeMap::new(),
            resident: BTreeMap::new(),
            unknown: Vec::new(),
        })
    }

    /// Reads the processes, and keeps what is more than before. Tells the number of those done.
    fn look(&mut self, root: &Root, processes: &[Process], told: &mut dyn FnMut(u64)) {
        let mut images = Vec::new();
        for (done, one) in processes.iter().enumerate() {
            told(done as u64);
            let mut image = match Image::read(root, one) {
                Ok(image) if self.own.as_ref().is_some_and(|own| image.is_copy_of(own)) => continue,
                Ok(image) => image,
                Err(SpaceError::Ended) => continue,
                Err(error) => {
                    let remedy = match error {
                        SpaceError::Denied(_) => "; run superpage as its user or as root",
                        _ => "",
                    };
                    let name = report::format::name(&one.name, 20);
                    let why = format!("pid {} ({name}): {error}{remedy}", one.pid);
                    if !self.unknown.contains(&why) {
                        self.unknown.push(why);
                    }
                    continue;
                }
            };
            let key = (one.pid, one.start_ticks);
            if let Some(identity) = Identity::read(root, one) {
                if identity.application == Application::Redis {
                    image.drop_private();
                }
                // The command line of an earlier look may be that of the program that executed this one; redis
                // overwrites its own by one word.
                let is_fuller = one.command.len() > 1 || !self.identities.contains_key(&key);
                if is_fuller {
                    self.identities.insert(key, identity);
                }
            }
            images.push(image);
            if let Ok(memory) = process::status(root, one.pid) {
                let bytes = |size: Option<ByteSize>| size.map_or(0, ByteSize::bytes);
                let most = self.resident.entry(key).or_default();
                *most = (most.0.max(bytes(memory.rss)), most.1.max(bytes(memory.peak_rss)));
            }
        }
        if images.is_empty() {
            return;
        }
        let demand = Demand::new(&images, self.limit);
        let least = self.least();
        for size in &self.sizes {
            let need = demand.need(*size, least);
            let most = self.needs.entry(*size).or_default();
            if need.pages() >= most.pages() {
                *most = need;
            }
        }
        // Many processes say more of a server than the few bytes that its start-up mapped for a moment.
        let extent =
            |demand: &Demand| (demand.need(least, least).pages(), demand.processes, demand.bytes());
        if self.images.is_empty() || extent(&demand) >= extent(&self.demand) {
            (self.demand, self.images) = (demand, images);
        }
    }

    fn least(&self) -> PageSize {
        self.sizes.iter().copied().min().unwrap_or_else(sys::param::page_size)
    }

    fn need(&self, size: PageSize) -> Need {
        self.needs.get(&size).copied().unwrap_or_default()
    }

    /// What the applications among the processes say of themselves.
    fn figures(&self, root: &Root, default: Option<PageSize>) -> Vec<OwnFigure> {
        let is_server = |identity: &&Identity| {
            let is_parent = |other: &Identity| {
                other.process.pid == identity.process.parent
                    && other.application == identity.application
            };
            // A child of PostgreSQL looks like the server until it changes its title.
            !self.identities.values().any(is_parent)
        };
        let servers = self.identities.values().filter(is_server);
        servers.map(|identity| identity.figure(root, &self.images, default)).collect()
    }

    /// Smallest share of a process's peak that a look saw, of the processes that had a page of a pool more.
    fn seen_share(&self) -> f64 {
        let page = self.least().bytes();
        let partly =
            self.resident.values().filter(|(seen, most)| most.saturating_sub(*seen) >= page);
        partly.map(|(seen, most)| *seen as f64 / *most as f64).fold(1.0, f64::min)
    }
}

/// Runs the program to its end and looks at its memory often: its speed does not matter here.
fn watch(command: &[Word], mut peak: Peak) -> Result<Peak, Failure> {
    let relay = signals::Relay::new()?;
    let plan =
        launch::resolve(&Recipe::new(Pages::Base), command, &facts::search_path(), &facts::read())?;
    let stderr = || -> Result<File, Failure> {
        let copy = std::io::stderr().as_fd().try_clone_to_owned();
        copy.map(File::from).map_err(|error| Failure::usage(format!("standard error: {error}")))
    };
    let start = Start {
        streams: Streams::Into { stdout: stderr()?, stderr: stderr()? },
        die_with_parent: true,
        ..Start::default()
    };
    let descendants = Descendants::new().map_err(Failure::cannot)?;
    let pid = launch::start(&plan, start)?;
    let relaying = relay.to(pid);
    let tree = descendants.clone();
    let (stop, stopped) = channel::<()>();
    let looker = std::thread::spawn(move || {
        look_until(&stopped, &tree, &mut peak);
        peak
    });
    let ended = descendants.until_exit(pid);
    let _ = stop.send(());
    let looked = looker.join();
    relaying.stop();
    ended.map_err(Failure::cannot)?;
    let (status, _) = sys::wait::reap(pid).map_err(Failure::cannot)?;
    let peak = looked.map_err(|_| Failure::cannot("the looks at its memory failed"))?;
    let background = background::words(&descendants.left(pid), "give --pid");
    if status.code() != Some(0) {
        let how = signals::how_it_ended(status);
        exit::say(&format!("the program ended by {how}; its memory until then is counted"));
        if let Some(background) = background {
            exit::say(&background);
        }
    } else if let Some(background) = background {
        // Its memory was read until the first process ended, which is not what it needs.
        return Err(Failure::usage(background));
    }
    let share = peak.seen_share();
    if !peak.images.is_empty() && share < NEAR_PEAK {
        return Err(Failure::cannot(format!(
            "its memory was read only when a process had {} of its peak; a program that keeps its memory for a second \
             is planned for",
            report::format::percent(share)
        )));
    }
    if share < AT_PEAK {
        exit::say(&format!(
            "its memory was read when a process had {} of its peak",
            report::format::percent(share)
        ));
    }
    Ok(peak)
}

fn look_until(stopped: &Receiver<()>, tree: &Descendants, peak: &mut Peak) {
    /// Shortest and longest rest between two looks.
    const RESTS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));
    let root = Root::real();
    let began = Instant::now();
    loop {
        let look_began = Instant::now();
        let read = |pid| Process::read(&root, pid).ok().flatten();
        let processes: Vec<Process> = tree.members().into_iter().filter_map(read).collect();
        peak.look(&root, &processes, &mut |_| {});
        // Rests grow with the age of the program; it runs four fifths of the time.
        let rest = (began.elapsed() / 50).clamp(RESTS.0, RESTS.1).max(look_began.elapsed() * 4);
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Pages of one size, and how many the pool lacks.
struct Row {
    size: PageSize,
    need: Need,
    free: Option<u64>,
}

impl Row {
    fn new(size: PageSize, need: Need, free: Option<u64>) -> Self {
        Self { size, need, free }
    }

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
                row.to_have(row.need.pages()),
            ]
        });
        let header = ["pages", "shared", "private", "in all", "held", "free", "to have them"];
        text += &format!("\n{}", show::table(&header, rows.collect(), &[6]));
        if self.rows.iter().any(|row| row.need.pages() > 0) {
            text.push('\n');
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

    /// The shared objects and the processes, largest first.
    fn memory(&self) -> String {
        let demand = &self.peak.demand;
        let least = self.peak.least();
        let known = |bytes: Option<ByteSize>| bytes.map_or("unknown".into(), |it| it.to_string());
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
                Source::Asked => "as it says itself",
                Source::Mapping => "the length of its shared mapping",
                Source::Settings | Source::None => "from its settings",
            };
            let row = self.rows.iter().find(|row| row.size == size);
            let have = row.map_or(String::new(), |row| format!("; {}", row.to_have(pages)));
            let bytes = show::bytes(pages, size);
            text += &format!("{bound}{pages} pages of {size} ({bytes}), {source}{have}\n");
        } else if figure.application == Application::Redis {
            text += "it asks for no pages of a pool, and under superpage run jemalloc's memory (MAP_NORESERVE) stays off the \
                     pool; use THP (superpage run)\n";
        } else {
            text += "it tells no figure of its own\n";
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
            let own = self.figures.iter().filter(|it| it.page_bytes == default);
            let own = own.filter_map(|it| it.pages).reduce(u64::saturating_add);
            let pages = own.unwrap_or(row.need.pages());
            let has = self.status.persistent(row.size, None).ok();
            if let (Some(missing), Some(has)) = (row.missing(pages), has)
                && pages > 0
            {
                let all = has.saturating_add(missing);
                let of = if own.is_some() { " (the applications' own figures)" } else { "" };
                text += &format!(
                    "\nat boot{of}: vm.nr_hugepages = {all} in /etc/sysctl.d, or superpage pool boot {}:{all} --format systemd\n",
                    exact(row.size.bytes())
                );
            }
        }
        if self.uses_sysv() {
            text +=
                "limits: shmget(SHM_HUGETLB) needs CAP_IPC_LOCK or vm.hugetlb_shm_group = GROUP";
            let group = self.figures.iter().find(|it| it.uses_sysv).and_then(|it| it.group);
            text += &group.map_or(String::new(), |group| format!(" (its group is {group})"));
            text += " (superpage pool shm --group GROUP); LimitMEMLOCK= is an obsolete way\n";
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
    let touched = one.touched_bytes.map_or("unknown".into(), |it| it.to_string());
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
