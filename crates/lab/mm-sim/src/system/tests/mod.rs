//! Random programs under every preset. All invariants hold after each event, and at the end all memory is free.

mod hostile;
mod ideal;
mod larger;
mod naive;
mod plain;
mod pool;
mod program;
mod swapped;

use machine::Machine;
use proptest::prelude::*;
use tlb_sim::Naive;
use trace::{Access, Block, Event, Process};
use units::ByteSize;

use super::{Engine, Stop, System};
use crate::fragment::Fragmentation;
use crate::memory::Layout;
use program::{Op, Program, ops};

/// Tables of a design's file.
const TABLES: [&str; 7] =
    ["allocation", "preparation", "mapping", "unmapping", "deallocation", "memory", "fault"];

struct Run {
    engine: Engine<Naive>,
    /// First region and process of the program.
    first: (u32, u32),
    swap: bool,
    touched: crate::Touched,
    /// Log of events, printed on failure.
    log: Vec<String>,
}

#[derive(Debug, Clone)]
struct Conditions {
    machine: &'static str,
    memory: ByteSize,
    fragmentation: &'static str,
    swap: ByteSize,
    layout: Layout,
}

fn machine(name: &str) -> Machine {
    machine::preset(name).expect("a preset")
}

impl Run {
    fn new(design: &design::Design, conditions: &Conditions) -> Self {
        let machine = machine(conditions.machine);
        let policy = crate::policy_on(&machine, |scale| design.policy(scale));
        let memory = conditions.memory;
        let kernel = crate::kernel_memory(memory);
        let layout = &conditions.layout;
        let nodes = layout.shape(memory, machine.base_page.bytes(), kernel).expect("it can be so");
        let system = System::new(&machine, policy, memory, nodes, conditions.swap);
        let mut engine = Engine::new(Naive::new(&machine), system, machine.clone());
        let fragmentation: Fragmentation =
            conditions.fragmentation.parse().expect("a fragmentation");
        let under =
            crate::policy_on(&machine, |scale| design::designs::fragmenting().policy(scale));
        let first = engine.fragment(&fragmentation, under, 8, 1);
        let first = first.unwrap_or_else(|what| panic!("the fragmenter: {what}"));
        assert_eq!(engine.system.verify(), Ok(()), "{} after {conditions:?}", design.name);
        Self {
            engine,
            first,
            swap: conditions.swap != ByteSize(0),
            touched: crate::Touched::default(),
            log: Vec::new(),
        }
    }

    /// Executes one event and its accesses, then checks the invariants.
    fn step(&mut self, event: Option<Event>, accesses: &[Access]) -> Result<(), Stop> {
        let mut block = Block::default();
        if let Some(event) = event {
            block.event(event);
        }
        block.accesses.extend_from_slice(accesses);
        let ends = accesses.first().zip(accesses.last());
        self.log.push(format!("{:?} {} {ends:?}", block.events.first(), accesses.len()));
        self.touched.follow(&block);
        let done = self.engine.block(&block, self.touched.view());
        let system = &self.engine.system;
        if let Err(what) = system.verify() {
            panic!("{what}");
        }
        let mut uses = system.memory.uses();
        system.memory.update_uses(&mut uses, system.pool.blocks());
        assert_eq!(uses, system.memory.uses(), "kept as it is counted");
        // Without swap, touched pages stay until they are freed.
        if done.is_ok() && !self.swap {
            for access in accesses {
                let page = access.page();
                let region = page.region();
                let mapped = system.spaces.is_large(region) || system.spaces.is_present(page);
                assert!(mapped, "{access:?} found no page");
            }
        }
        done
    }

    /// Runs a program to its end, or until it is stopped.
    fn follow(&mut self, ops: &[Op]) {
        let mut program = Program::new(self.first.0, self.first.1);
        for op in ops {
            let Some((event, accesses)) = program.next(op) else { continue };
            match self.step(event, &accesses) {
                Ok(()) => {}
                Err(Stop::IllFormed(what)) => panic!("a program's stream: {what}"),
                Err(_) => break,
            }
        }
    }

    /// Ends all processes and checks that all their memory is free.
    fn end(&mut self) {
        let processes: Vec<u32> =
            self.engine.system.spaces.processes_from(0).map(|(number, _)| number).collect();
        for process in processes {
            self.step(Some(Event::Exit(Process(process))), &[]).expect("nothing to run out of");
        }
        let system = &self.engine.system;
        assert_eq!(system.spaces.resident(), 0);
        assert_eq!(system.spaces.superpages(), 0);
        assert_eq!(system.spaces.swapped(), 0);
        assert!(system.frames.nothing_shared() && system.frames.nothing_held());
        assert!(system.frames.reservations().is_empty(), "reservations without pages");
        let used = u64::from(system.memory.frames()) - system.memory.free_frames();
        assert_eq!(used, system.frames_beyond_processes(), "frames were lost");
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:#?}", self.log);
        }
    }
}

fn run_program(design: &design::Design, conditions: &Conditions, ops: &[Op]) {
    let mut run = Run::new(design, conditions);
    run.follow(ops);
    run.end();
}

fn all_conditions() -> impl Strategy<Value = Conditions> {
    let machines = prop::sample::select(vec!["e3-1245v6", "neoverse-n1"]);
    let sizes = prop::sample::select(vec![16, 32, 64, 128]);
    let fragmentations = prop::sample::select(vec!["none", "none", "frag-50", "pinned-50"]);
    // Sizes of swap: none, so little that it fills at once, and more than memory.
    let swaps = prop::sample::select(vec![ByteSize(0), ByteSize::kib(256), ByteSize::gib(1)]);
    let layouts = prop::sample::select(vec![("1", "0"), ("2", "0"), ("1", "8M"), ("2", "8M")]);
    (machines, sizes, fragmentations, swaps, layouts).prop_map(
        |(machine, size, fragmentation, swap, (nodes, movable))| {
            let memory = ByteSize::mib(size);
            let layout = Layout {
                nodes: nodes.parse().expect("nodes"),
                movable: movable.parse().expect("a size"),
            };
            let base_page = self::machine(machine).base_page.bytes();
            let fits = layout.shape(memory, base_page, crate::kernel_memory(memory)).is_ok();
            let layout = if fits { layout } else { Layout::default() };
            Conditions { machine, memory, fragmentation, swap, layout }
        },
    )
}

macro_rules! under {
    ($($test:ident $name:literal,)+) => {
        /// The presets that random programs run under.
        const UNDER: &[&str] = &[$($name),+];
        proptest! {
            #![proptest_config(config())]
            $(#[test]
            fn $test(conditions in all_conditions(), ops in ops(120)) {
                run_program(&design::designs::find($name).expect("a preset"), &conditions, &ops);
            })+
        }
    };
}

under! {
    base "base",
    ideal "ideal",
    linux_4_3 "linux-4.3",
    linux_6 "linux-6",
    linux_6_always "linux-6-always",
    linux_6_defer "linux-6-defer",
    linux_6_mthp "linux-6-mthp",
    linux_6_underused "linux-6-underused",
    prezeroed_pool "prezeroed-pool",
    ingens "ingens",
    ingens_star "ingens-star",
    hawkeye_pmu "hawkeye-pmu",
    hawkeye_g "hawkeye-g",
    hawkeye_star "hawkeye-star",
    navarro "navarro",
    freebsd "freebsd",
    freebsd_11_2 "freebsd-11.2",
    quicksilver_sync_1 "quicksilver-sync-1",
    quicksilver_sync_64 "quicksilver-sync-64",
    quicksilver_async_64 "quicksilver-async-64",
    quicksilver_async_256 "quicksilver-async-256",
    hugetlb "hugetlb",
    cbmm "cbmm",
    elastic "elastic",
    hugescope "hugescope",
    trident "trident",
}

proptest! {
    #![proptest_config(config())]

    /// Superpages of eight regions: partial operations and forks.
    #[test]
    fn a_pool_of_16m(ops in ops(120), memory in prop::sample::select(vec![64, 256, 512]), overcommits: bool) {
        let text = design::designs::preset("hugetlb").expect("a preset").text;
        let mut text = text.replacen("sizes = [\"2M\"]", "sizes = [\"16M\"]", 1);
        if !overcommits {
            text = text.replacen("[memory]", "[memory]\npool-pages = 3", 1);
        }
        let design = design::Design::from_toml("pool", &text).expect("a design");
        let memory = ByteSize::mib(memory);
        let conditions = Conditions { machine: "ppc970", memory, fragmentation: "none", swap: ByteSize(0), layout: Layout::default() };
        run_program(&design, &conditions, &ops);
    }
}

#[test]
fn every_preset_is_tried() {
    let all = design::designs::list().iter().map(|preset| preset.name);
    let is_simulated = |name: &&str| {
        let design = design::designs::find(name).expect("a preset");
        crate::not_simulated(&design.policy(policy::Scale::X86)).is_none()
    };
    let all: Vec<&str> = all.filter(is_simulated).collect();
    assert_eq!(all, UNDER);
}

/// Runs few cases by default. PROPTEST_CASES and PROPTEST_RNG_SEED select more cases, or others.
fn config() -> ProptestConfig {
    ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() }
}

fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    asked.unwrap_or_else(|| testkit::cases(20) as u32)
}

/// A reservation with a hole in its region is filled and then broken: the pages in the hole stay.
#[test]
fn what_was_filled_in_a_hole_is_no_fault() {
    let conditions = Conditions {
        machine: "e3-1245v6",
        memory: ByteSize::mib(16),
        fragmentation: "none",
        swap: ByteSize(0),
        layout: Layout::default(),
    };
    run_program(
        &design::designs::find("quicksilver-sync-64").expect("a preset"),
        &conditions,
        &[
            (5, 530375947, 4238639158, 3199473715),
            (2, 3461669391, 714558554, 3109864987),
            (57, 279553175, 2161821523, 4009104467),
            (4, 1311145008, 1980601454, 847071968),
            (44, 3452614921, 967569681, 720207769),
            (57, 2362222477, 3275456851, 4179146713),
            (26, 3379937310, 2524120537, 725732285),
            (58, 1185990391, 3764481863, 1986015270),
            (10, 1015661278, 464560249, 3476900099),
            (93, 1342044356, 2113875047, 196977389),
            (39, 4127479448, 1811503021, 471791629),
            (6, 1663806495, 3430800055, 1563727262),
            (43, 2768499465, 2465207762, 2805443914),
            (95, 692668025, 4124577783, 1527237955),
            (41, 255363919, 231469362, 530096095),
            (51, 2913474165, 3841939524, 3088820705),
            (23, 2803647034, 4190292603, 3798352489),
            (69, 405124382, 2983451323, 3378595287),
            (63, 1743740776, 3275294127, 463842984),
            (95, 3824958037, 3891212538, 3532933839),
            (25, 2875407419, 3422815537, 2779531463),
            (28, 3648927128, 3014736578, 597551793),
            (31, 175784954, 1059511133, 4058825259),
            (36, 3811538934, 2928220032, 3383774034),
            (58, 1433732084, 1508906797, 117574664),
            (2, 523812022, 2852252766, 3240606261),
            (53, 2421376798, 2455118892, 2524153274),
            (39, 1046811753, 68679904, 2316527188),
            (28, 1338975396, 4173922403, 492431785),
            (34, 973705300, 175971850, 3322302835),
        ],
    );
}
