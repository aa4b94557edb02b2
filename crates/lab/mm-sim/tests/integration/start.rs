//! Every design starts with the same free memory: what the fragmentation says, whatever the design does at a fault.

use design::Design;
use machine::Machine;
use policy::Policy;
use superpage_mm_sim::{Layout, kernel_memory, simulation};
use units::ByteSize;

/// Pages that the artifact keeps in each fragmented superpage.
const KEPT: u64 = 16;

struct Start {
    machine: Machine,
    memory: ByteSize,
    layout: Layout,
    /// Superpages that the workload needs.
    needed: u64,
}

impl Start {
    /// Creates a machine of this size, and a workload that needs half of it.
    fn new(mib: u64) -> Self {
        let machine = machine::preset("e3-1245v6").expect("a preset");
        Self { machine, memory: ByteSize::mib(mib), layout: Layout::default(), needed: mib / 4 }
    }

    fn policy(&self, design: &Design) -> Policy {
        superpage_mm_sim::policy_on(&self.machine, |scale| design.policy(scale))
    }

    /// Returns the free superpages and pages at the program's start under a design.
    fn under(&self, design: &str, how: &str) -> (u64, u64) {
        let Self { machine, memory, layout, needed } = self;
        let policy = self.policy(&design::designs::find(design).expect("a preset"));
        let made = simulation(machine, policy, *memory, layout, ByteSize::gib(1));
        let mut machine = made.expect("memory can be divided so");
        let how = how.parse().expect("a fragmentation");
        machine
            .fragment(&how, self.policy(&design::designs::fragmenting()), *needed, 1)
            .expect("well-formed");
        let (stop, outcome) = machine.finish();
        assert_eq!(stop, None);
        let start = &outcome.observations.timeline[0];
        (start.free_superpages, start.free_pages)
    }

    /// Returns the free superpages and pages that a fragmentation promises on an undivided machine.
    fn promised(&self, how: &str) -> (u64, u64) {
        let pages = self.memory.bytes() / 4096;
        let free = pages - kernel_memory(self.memory).bytes() / 4096;
        let superpages = free / 512;
        let level = |kind| how.strip_prefix(kind)?.parse::<u64>().ok().filter(|&level| level > 0);
        if let Some(level) = level("frag-") {
            let left = (100 - level) * self.needed / 100;
            return (left, free - (superpages - left) * KEPT);
        }
        // The kernel's own superpages need no pinned page.
        let pinned = level("pinned-").map_or(0, |level| pages / 512 * level / 100).min(superpages);
        (superpages - pinned, free - pinned)
    }

    /// Checks that every design starts with this memory.
    fn is_the_same_under_all(&self, how: &str, wanted: (u64, u64)) {
        for design in design::designs::list().iter().map(|preset| preset.name) {
            let (memory, found) = (self.memory, self.under(design, how));
            assert_eq!(found, wanted, "free superpages and pages: {design}, {how}, {memory}");
        }
    }
}

const LEVELS: [&str; 9] = [
    "none",
    "frag-0",
    "frag-25",
    "frag-50",
    "frag-75",
    "frag-100",
    "pinned-25",
    "pinned-50",
    "pinned-100",
];

#[test]
fn every_design_starts_with_what_the_level_says() {
    let sizes: &[u64] =
        if testkit::is_nightly() { &[256, 1024, 4096, 8192, 32768] } else { &[256, 1024] };
    for &size in sizes {
        let start = Start::new(size);
        LEVELS.iter().for_each(|how| start.is_the_same_under_all(how, start.promised(how)));
    }
}

/// Divided memory, and fragmenters without a level.
#[test]
fn every_design_starts_with_the_same_memory() {
    for (nodes, movable) in [("1", "0"), ("2", "0"), ("1", "64M"), ("2", "64M")] {
        let nodes = nodes.parse().expect("nodes");
        let layout = Layout { nodes, movable: movable.parse().expect("a size") };
        let start = Start { layout, ..Start::new(256) };
        for how in ["frag-50", "frag-100", "pinned-50", "ingens-normal", "ingens-severe"] {
            let wanted = start.under("linux-4.3", how);
            if how.starts_with("frag-") {
                assert_eq!(wanted, start.promised(how), "{how}, {:?}", start.layout);
            }
            start.is_the_same_under_all(how, wanted);
        }
    }
}
