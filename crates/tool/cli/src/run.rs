//! `superpage run`: runs any unmodified program on the requested pages.

mod explain;
mod in_force;
mod plan;
mod report;

use std::os::unix::process::ExitStatusExt;

use self::in_force::InForce;
pub use self::plan::plan_in_words;
use self::plan::print_plan;
use self::report::Ended;
pub use self::report::peak_in_words;
use experiment::counters::CounterFile;
use host::{MemInfo, Root, Thp};
use launch::{Ahead, Children, Executor, Fallback, Files, Memory, Pages, Plan, Recipe, Text, Word};
use operations::design::recipe::{self as design_recipe, RuleNote};
use operations::pool_guard::PoolPolicy;
use operations::run::{Ran, Request, on_scratch_thread};
use operations::{design, facts, signals};
use units::{ByteSize, PageSize};

use crate::delivery::ReportFlags;
use crate::exit::{self, Done, Failure};

/// Run a program on superpages.
///
/// The program is not modified. Its exit code and signals are passed through; signals sent to
/// superpage reach it. A one-line report on standard error says which pages it got.
///
/// Without --heap, --mmap, --shm, --text, --data, --stack and --files, libsuperpage.so backs malloc's memory and the
/// program's own mappings with THP; in a static program, glibc's tunable backs malloc's memory. With any of them,
/// libsuperpage.so backs exactly that memory: THP where free memory is contiguous, or pages of a hugetlb pool,
/// reserved when memory is mapped. --pages hugetlb, --prezero and --prefault imply --heap and --mmap.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: the program's, or its signal; 2 wrong usage; 125 superpage failed; 126 the program cannot be executed; 127 not found.")]
pub struct Args {
    /// Pages to use: base, thp, thp:SIZE, hugetlb, hugetlb:SIZE, auto (hugetlb if the pool has free pages, else thp),
    /// or system (change nothing) [default: thp; auto with a memory option such as --heap; thp with --prezero or
    /// --prefault; hugetlb with --fallback error or --grow-pool]
    #[arg(long, value_name = "KIND")]
    pages: Option<Pages>,

    /// Run as a superpage design says: a name from `superpage design list`, or a file. Superpages that the design
    /// creates after the first fault are created by superpage while the program runs (root). Rules that cannot be
    /// applied to a process are listed. E.g. sync-64 for throughput, freebsd for least memory, ingens for short stalls.
    #[arg(long, value_name = "DESIGN", conflicts_with_all = ["pages", "size"])]
    design: Option<String>,

    /// How superpages are made of a design's reservations: collapse (the kernel copies their pages into one), in-place
    /// (large private mappings lie in superpage frames from the beginning, which are later mapped as superpages: no
    /// copy), or pool (pages of the hugetlb pool, which grows for the run). in-place is only for programs that make
    /// memory system calls through libc: memory discarded by a program's own syscall instruction (Go, JIT compilers,
    /// sandboxes) would keep its contents [default: collapse]
    #[arg(long, value_name = "KIND", requires = "design")]
    executor: Option<Executor>,

    /// Run the program although a condition or threshold that decides whether the design makes superpages cannot be
    /// applied: the report calls the run approximate. Without this flag, a design with such a condition is refused.
    #[arg(long, requires = "design")]
    approximate: bool,

    /// Superpage size: 2M, 1G, 64K.
    #[arg(long, value_name = "SIZE", value_parser = page_size)]
    size: Option<PageSize>,

    /// Back the heap; the allocator stays glibc's malloc.
    #[arg(long, help_heading = "Memory")]
    heap: bool,

    /// Back anonymous mappings, also those of libraries. They lie on a hugetlb pool only where other
    /// threads' system calls can be intercepted (see superpage(7), SUPERPAGE_POOL).
    #[arg(long, help_heading = "Memory")]
    mmap: bool,

    /// Back shared memory with THP. With SUPERPAGE_POOL=always, System V segments and MAP_SHARED|MAP_ANONYMOUS use
    /// the hugetlb pool.
    #[arg(long, help_heading = "Memory")]
    shm: bool,

    /// Back the program's code. file: superpages of the page cache, where the kernel supports them. copy: as file,
    /// but private copies where the page cache has no superpages; copies may break a program that looks for its code
    /// in /proc/self/maps.
    #[arg(
        long,
        value_name = "HOW",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "file",
        help_heading = "Memory"
    )]
    text: Option<Text>,

    /// Back the program's data and bss.
    #[arg(long, help_heading = "Memory")]
    data: bool,

    /// Back stacks of all threads, the main one included; each stack has this fixed size.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "8M",
        help_heading = "Memory"
    )]
    stack: Option<ByteSize>,

    /// Back files of at least MIN that are mapped for reading. Their superpages belong to the page cache and are made
    /// when the file is first read (ext4, XFS, btrfs, tmpfs). Parts already cached in small pages stay small; with
    /// copy or copy:MIN, each process gets its own superpage copy of those parts in private mappings.
    #[arg(
        long,
        value_name = "MIN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64M",
        help_heading = "Memory"
    )]
    files: Option<Files>,

    /// Keep up to SIZE of unmapped memory, zeroed, for later mappings of the same length (THP; not malloc's memory). At
    /// most 64M, and at most a tenth of the process's memory.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64M",
        help_heading = "Ahead of need"
    )]
    prezero: Option<ByteSize>,

    /// Fault in up to SIZE of each new mapping at once (THP; not malloc's memory). At most 64M, and at most a tenth of
    /// the process's memory.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64M",
        help_heading = "Ahead of need"
    )]
    prefault: Option<ByteSize>,

    /// Pages to use when the hugetlb pool is empty: thp, base or error. error implies --pages hugetlb; once the heap
    /// holds 4 MiB, a request of 128 KiB or more that the pool cannot serve fails (ENOMEM). error with thp:SIZE: do not
    /// start if larger THP are enabled too.
    #[arg(long, value_name = "PAGES", default_value = "thp", help_heading = "Memory")]
    fallback: Fallback,

    /// Memory of child processes: base (a forked child gets copies on base pages), same (it shares the superpages;
    /// not guaranteed), none (as base, and programs that the child executes get no superpages).
    #[arg(long, value_name = "HOW", default_value = "base", help_heading = "Memory")]
    children: Children,

    /// What to do about a hugetlb pool with too few free pages.
    #[arg(long, value_enum, default_value = "keep", help_heading = "Pool")]
    pool: PoolPolicy,

    /// Grow the hugetlb pool for the run and shrink it afterwards (root): by SIZE before the program
    /// starts, or without SIZE as the program asks for pages. Implies --pages hugetlb.
    #[arg(
        long,
        value_name = "SIZE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "0",
        help_heading = "Pool"
    )]
    grow_pool: Option<ByteSize>,

    /// Print also, for each rule of the design (or for the pages requested), how many superpages were requested, made and
    /// refused, by what means, by whom, and how soon after they qualified. If superpage lacks the privilege to make the superpages
    /// (CAP_SYS_NICE), the program runs on base pages, and the table says what the design asked for.
    #[arg(long, conflicts_with = "dry_run")]
    explain: bool,

    #[command(flatten)]
    report: ReportFlags,

    /// Print no report and no notes; only why the program cannot be started or the pool cannot be restored.
    #[arg(long, short)]
    quiet: bool,

    /// Program and arguments: everything from the first word that is not an option, or after `--`.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    command: Vec<Word>,
}

fn page_size(text: &str) -> Result<PageSize, String> {
    let size: ByteSize = text.parse().map_err(|error| format!("{error}"))?;
    PageSize::new(size.bytes()).map_err(|error| error.to_string())
}

impl Args {
    /// Returns the recipe, notes on design rules carried out differently, and why superpages cannot be made as the
    /// design says.
    fn recipe(&self) -> Result<(Recipe, Vec<RuleNote>, Option<String>), Failure> {
        let mut recipe = self.recipe_of_flags()?;
        if let Some(design) = &self.design {
            recipe.name = design::load(design)?.design.name;
            recipe.design = Some(design.clone());
            recipe.executor = self.executor.unwrap_or_default();
            recipe.approximate = self.approximate;
        }
        let notes = design_recipe::follow(&mut recipe)?;
        design_recipe::name_approximate(&mut recipe);
        recipe.check_fallback()?;
        if self.grow_pool.is_some() && !matches!(recipe.pages, Pages::Hugetlb(_) | Pages::Auto) {
            let what =
                "--grow-pool is for a program on the hugetlb pool; this one takes no page of it";
            return Err(Failure::usage(format!("{what} (pages: {})", recipe.pages)));
        }
        let checked = match self.report.dry_run {
            true => Ok(()),
            false => design_recipe::check_in_force(&recipe),
        };
        let refused = match checked {
            Err(why) if self.explain => {
                design_recipe::check_seen(&recipe)?;
                Some(why.to_string())
            }
            checked => checked.map(|()| None)?,
        };
        Ok((recipe, notes, refused))
    }

    fn recipe_of_flags(&self) -> Result<Recipe, Failure> {
        let memory = Memory {
            heap: self.heap,
            mmap: self.mmap,
            shm: self.shm,
            text: self.text,
            data: self.data,
            stack: self.stack,
            files: self.files,
        };
        let most = || MemInfo::read(&Root::real()).ok().and_then(|memory| memory.total);
        if let Some(stack) = self.stack
            && let Some(most) = most()
            && stack > most
        {
            let what = format!("--stack={stack} is more than this machine's memory ({most})");
            return Err(Failure::usage(what));
        }
        let ahead = Ahead { prezero: self.prezero, prefault: self.prefault };
        // Prepared memory must be THP that the library hands out.
        let memory = if memory.is_empty() && !ahead.is_empty() { Memory::USUAL } else { memory };
        let usual = match (memory.is_empty(), ahead.is_empty()) {
            // --fallback error and --grow-pool make sense only with the pool.
            (_, true) if self.fallback == Fallback::Error || self.grow_pool.is_some() => {
                Pages::Hugetlb(None)
            }
            (false, true) => Pages::Auto,
            _ => Pages::Thp,
        };
        let pages = match (self.pages.unwrap_or(usual), self.size) {
            (pages, None) => pages,
            (Pages::Hugetlb(None), Some(size)) => Pages::Hugetlb(Some(size)),
            (Pages::Thp, Some(size)) => self.thp_of(size),
            (Pages::Auto, Some(size)) => self.best_of(size),
            (pages, Some(_)) => {
                return Err(Failure::usage(format!("--size cannot be used with --pages {pages}")));
            }
        };
        let is_pool = matches!(pages, Pages::Hugetlb(_)) && facts::runtime_library().is_some();
        let memory = if memory.is_empty() && is_pool { Memory::USUAL } else { memory };
        let (fallback, children) = (self.fallback, self.children);
        Ok(Recipe { memory, fallback, children, ahead, ..Recipe::new(pages) })
    }

    fn thp_of(&self, size: PageSize) -> Pages {
        let largest = Thp::from_root(&Root::real()).and_then(|thp| thp.pmd_size);
        if largest == Some(size) { Pages::Thp } else { Pages::ThpOf(size) }
    }

    /// Chooses the pool of that size if it has free pages or may grow, else THP.
    fn best_of(&self, size: PageSize) -> Pages {
        let facts = facts::read();
        let pool = facts.pools.iter().find(|pool| pool.size == size);
        match pool {
            Some(pool) if pool.available() > 0 || self.lends() => Pages::Hugetlb(Some(size)),
            _ => self.thp_of(size),
        }
    }

    fn lends(&self) -> bool {
        let is_on_pool = self.executor == Some(Executor::Pool);
        self.pool == PoolPolicy::Lend || self.grow_pool.is_some() || is_on_pool
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    on_scratch_thread(|| args.report.check()).map_err(Failure::in_launcher)?;
    // Catch signals before any setting is raised, so that every raised setting is restored.
    let relay = signals::Relay::new().map_err(Failure::in_launcher)?;
    let signal_guard = relay.signal_guard();
    let (recipe, rules, refused) = on_scratch_thread(|| args.recipe())?;
    let request = Request {
        notes: rules.iter().map(ToString::to_string).chain(refused.iter().cloned()).collect(),
        lends: args.lends(),
        grow: args.grow_pool.filter(|size| size.bytes() > 0),
        counts: args.explain,
        quiet: args.quiet,
        command: args.command.clone(),
        recipe,
    };
    if args.report.dry_run {
        let planned = request.plan()?;
        return print_plan(&planned.plan, &planned.would_lend, args.report.json);
    }
    let ran = match request.run(relay)? {
        Ran::Signal(signal) => return Ok(Done::Signal(signal)),
        Ran::Ended(ran) => *ran,
    };
    drop(signal_guard);
    let (totals, machine) = (ran.counters.as_ref().and_then(CounterFile::totals), ran.machine);
    let ended = Ended {
        may_have_any: request.recipe.pages == Pages::Auto,
        has_grown_pool: request.lends,
        in_force: ran.in_force.map(|(rules, report)| InForce { rules, report }),
        supplied: ran.supplied,
        status: ran.status,
        seconds: ran.seconds,
        usage: ran.usage,
        seen: ran.seen,
        pid: ran.pid,
    };
    let (plan, counters) = (ran.plan, ran.counters);
    let status = ended.status;
    let explained = args.explain.then(|| {
        let run = explain::Run {
            plan: &plan,
            is_design: request.recipe.design.is_some(),
            notes: &rules,
            ended: &ended,
            totals,
            machine,
            refused: refused.as_deref(),
        };
        run.rows()
    });
    let document = || {
        let mut document = ended.document(&plan, &args.command, counters.as_ref());
        if let Some(rows) = &explained {
            document["explain"] = explain::document(rows);
        }
        document
    };
    args.report.deliver(args.quiet, document, || {
        let fallback = fallback_of(&plan, request.recipe.fallback);
        for line in ended.in_words(&plan, counters.as_ref(), fallback) {
            exit::say(&line);
        }
        if let Some(rows) = &explained {
            exit::print_aside(&explain::in_words(rows));
        }
        if status.signal() == Some(libc::SIGBUS) && matches!(plan.pages, Pages::Hugetlb(_)) {
            exit::say(
                "the program was killed by SIGBUS: did the hugetlb pool run out after a fork? \
                 Enlarge the pool, or use --pages thp",
            );
        }
    });
    Ok(status.into())
}

/// Names the kind of pages of memory that did not get the requested pages, if known.
fn fallback_of(plan: &Plan, fallback: Fallback) -> &'static str {
    match (plan.pages, fallback) {
        (Pages::Hugetlb(_), Fallback::Thp) => "THP or base pages",
        _ => "base pages",
    }
}
