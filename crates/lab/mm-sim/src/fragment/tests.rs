//! Tests that fragmenters leave a toy memory as specified.

use std::collections::BTreeMap;

use proptest::prelude::*;
use trace::{Advice, Block, Event, Pages, Process};

use super::{Fragmentation, Fragmenter, FreeBlocks, Mobility, ORDERS, PhysicalMemoryView, Place};

/// A set of used frames. A first touch gets a superpage while a block is wholly free.
struct Toy {
    used: Vec<[bool; 512]>,
    /// The frame of each page.
    frames: BTreeMap<u32, (usize, usize)>,
    owner: BTreeMap<u32, u32>,
    running: u32,
}

impl Toy {
    fn new(blocks: usize) -> Self {
        Self {
            used: vec![[false; 512]; blocks],
            frames: BTreeMap::new(),
            owner: BTreeMap::new(),
            running: 0,
        }
    }

    fn whole(&self, block: usize) -> bool {
        self.used[block].iter().all(|used| !used)
    }

    fn touch(&mut self, page: u32) {
        assert_eq!(self.owner.get(&page), Some(&self.running), "page {page}");
        if self.frames.contains_key(&page) {
            return;
        }
        let region = page >> 9 << 9..(page >> 9 << 9) + 512;
        let empty = self.frames.range(region.clone()).next().is_none();
        let mapped = self.owner.range(region.clone()).count() == 512;
        if let Some(block) =
            (0..self.used.len()).find(|&block| empty && mapped && self.whole(block))
        {
            for (slot, page) in region.enumerate() {
                self.used[block][slot] = true;
                self.frames.insert(page, (block, slot));
            }
            return;
        }
        let free =
            |block: usize| self.used[block].iter().position(|used| !used).map(|slot| (block, slot));
        let partly = (0..self.used.len()).filter(|&block| !self.whole(block)).find_map(free);
        let (block, slot) = partly.or_else(|| (0..self.used.len()).find_map(free)).expect("memory");
        self.used[block][slot] = true;
        self.frames.insert(page, (block, slot));
    }

    fn drop_page(&mut self, page: u32) {
        if let Some((block, slot)) = self.frames.remove(&page) {
            self.used[block][slot] = false;
        }
    }

    fn event(&mut self, event: &Event) {
        let range = |pages: &Pages| pages.first.0..pages.first.0 + pages.count;
        match event {
            Event::Spawn(Process(id)) => self.running = *id,
            Event::Map { pages, .. } => {
                for page in range(pages) {
                    assert!(self.owner.insert(page, self.running).is_none(), "mapped twice");
                }
            }
            Event::Unmap(pages) => {
                for page in range(pages) {
                    assert!(self.owner.remove(&page).is_some(), "not mapped");
                    self.drop_page(page);
                }
            }
            Event::Advise(pages, Advice::DontNeed) => {
                range(pages).for_each(|page| self.drop_page(page))
            }
            Event::Exit(Process(id)) => {
                let own =
                    self.owner.iter().filter(|(_, owner)| *owner == id).map(|(&page, _)| page);
                for page in own.collect::<Vec<_>>() {
                    self.owner.remove(&page);
                    self.drop_page(page);
                }
            }
            Event::Wait(_) => {}
            other => panic!("{other:?}"),
        }
    }

    fn run(&mut self, fragmenter: &mut dyn Fragmenter) {
        let mut block = Block::default();
        while fragmenter.step(self, &mut block) {
            let mut events = block.events.iter().peekable();
            for (index, access) in block.accesses.iter().enumerate() {
                while let Some((_, event)) = events.next_if(|(at, _)| *at as usize <= index) {
                    self.event(event);
                }
                self.touch(access.page().0);
            }
            events.for_each(|(_, event)| self.event(event));
        }
    }

    /// Counts the maximal free blocks of each order up to 9.
    fn free_blocks(&self) -> [u64; 10] {
        fn count(used: &[bool], order: usize, counts: &mut [u64; 10]) {
            if used.iter().all(|used| !used) {
                counts[order] += 1;
            } else if order > 0 {
                let (low, high) = used.split_at(used.len() / 2);
                count(low, order - 1, counts);
                count(high, order - 1, counts);
            }
        }
        let mut counts = [0; 10];
        self.used.iter().for_each(|block| count(block, 9, &mut counts));
        counts
    }
}

impl PhysicalMemoryView for Toy {
    fn blocks(&self) -> u64 {
        self.used.len() as u64
    }
    fn free_superpages(&self) -> u64 {
        (0..self.used.len()).filter(|&block| self.whole(block)).count() as u64
    }
    fn free_frames(&self) -> u64 {
        self.used.iter().flatten().filter(|used| !**used).count() as u64
    }
    fn is_whole(&self, block: u64) -> bool {
        self.whole(block as usize)
    }
    fn occupy(&mut self, block: u64, from: u16, to: u16, _: Mobility) -> u64 {
        let frames = &mut self.used[block as usize][from.into()..to.into()];
        frames.iter_mut().map(|used| u64::from(!std::mem::replace(used, true))).sum()
    }
}

fn place(needed: u64, blocks: u64) -> Place {
    Place { needed, blocks, first_region: 7, first_process: 50, seed: 3 }
}

fn fragmented(how: &Fragmentation, needed: u64, blocks: usize) -> Toy {
    let mut toy = Toy::new(blocks);
    if let Some(mut program) = how.program(place(needed, blocks as u64)) {
        toy.run(&mut *program);
        let regions = toy.owner.keys().map(|page| page >> 9).max().unwrap_or(7);
        assert!(regions < 7 + program.regions().max(1), "{regions}");
    }
    toy
}

#[test]
fn a_level_leaves_exactly_its_share_free() {
    // A machine of 256 MB; the workload needs 80 superpages.
    for level in [100, 75, 50, 25] {
        let toy = fragmented(&Fragmentation::Level(level), 80, 128);
        assert_eq!(toy.free_superpages(), (100 - u64::from(level)) * 80 / 100, "level {level}");
        // Each fragmented superpage keeps 16 pages at its end.
        let fragmented =
            toy.used.iter().filter(|block| block.iter().filter(|used| **used).count() == 16);
        let fragmented = fragmented.count() as u64;
        assert_eq!(fragmented + toy.free_superpages(), 128, "level {level}");
    }
    assert_eq!(fragmented(&Fragmentation::Level(0), 80, 128).free_superpages(), 128);
}

#[test]
fn pinned_frames_spoil_their_percentage() {
    let toy = fragmented(&Fragmentation::Pinned(30), 10, 200);
    assert_eq!((toy.free_superpages(), toy.free_frames()), (140, 200 * 512 - 60));
}

#[test]
fn holes_leave_what_the_workload_needs() {
    for how in [Fragmentation::IngensNormal, Fragmentation::IngensSevere] {
        let toy = fragmented(&how, 40, 128);
        let free = toy.free_frames() / 512;
        assert!((40..80).contains(&free), "{how}: {free}");
        assert!(toy.free_superpages() < 40, "{how}: {}", toy.free_superpages());
    }
}

#[test]
fn specifications_are_read() {
    for text in
        ["none", "frag-0", "frag-50", "frag-100", "pinned-7", "ingens-normal", "ingens-severe"]
    {
        assert_eq!(text.parse::<Fragmentation>().unwrap().to_string(), text);
    }
    for text in ["frag-101", "frag-", "frag-+5", "frag", "Frag-5", ""] {
        assert!(text.parse::<Fragmentation>().is_err(), "{text}");
    }
}

const BUDDYINFO: &str = "\
Node 0, zone      DMA      0      0      0      0      0      0      0      0      1      1      2
Node 0, zone   Normal    216     55    189    101     84     38     37     27      5      3     30
";

const PAGETYPEINFO: &str = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 
Node    0, zone      DMA, type    Unmovable      0      0      0      0      0      0      0      0      1      1      0 
Node    0, zone      DMA, type      Movable      0      0      0      0      0      0      0      0      0      0      2 
Node    0, zone   Normal, type    Unmovable     16      5      9      1      4      8      7      2      1      0      0 
Node    0, zone   Normal, type      Movable   >100     40    170     99     80     30     30     25      4      3     30 
Node    0, zone   Normal, type  Reclaimable    100     10     10      1      0      0      0      0      0      0      0 
Node    0, zone   Normal, type   HighAtomic      0      0      0      0      0      0      0      0      0      0      0 
Node    0, zone   Normal, type      Isolate      0      0      0      0      0      0      0      0      0      0      0 

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate 
Node 0, zone      DMA            1            7            0            0            0 
Node 0, zone   Normal           10          200            4            0            0 
";

#[test]
fn a_machine_is_read_and_rebuilt() {
    let free = FreeBlocks::parse(BUDDYINFO, Some(PAGETYPEINFO), None).unwrap();
    assert_eq!(free.free[Mobility::Unmovable as usize][..3], [16, 5, 9]);
    assert_eq!(free.free[Mobility::Movable as usize][10], 32);
    assert_eq!(free.pageblocks, Some([207, 4, 11]));
    let sums = |order: usize| free.free.iter().map(|orders| orders[order]).sum::<u64>();
    assert_eq!(
        (0..ORDERS).map(sums).collect::<Vec<_>>(),
        [216, 55, 189, 101, 84, 38, 37, 27, 6, 4, 32]
    );

    let toy = fragmented(&Fragmentation::Machine(Box::new(free.clone()), None), 10, 222);
    let expected = (0..9).map(sums).chain([4 + 2 * 32]).collect::<Vec<_>>();
    assert_eq!(toy.free_blocks().to_vec(), expected);
    assert_eq!(toy.free_frames(), free.frames_free());
}

#[test]
fn wrong_lines_are_named() {
    let error = |text: &str| FreeBlocks::parse(text, None, None).unwrap_err().to_string();
    assert!(error("").starts_with("/proc/buddyinfo: no line about a zone"));
    let second = error("Node 0, zone DMA 1 2\nNode 0, zone Normal 1 x\n");
    assert!(
        second.starts_with("/proc/buddyinfo, line 2: not a number: `Node 0, zone Normal 1 x`"),
        "{second}"
    );
    for text in ["Node", "Node 0", "Node 0, zone", "Node a, zone DMA 1", "free", "Node 0, zone DMA"]
    {
        assert!(error(text).contains("line 1"), "{text}: {}", error(text));
    }
}

proptest! {
    #[test]
    fn any_text_is_read_without_a_panic(text in ".{0,300}", lines in prop::collection::vec(
        prop::sample::select(PAGETYPEINFO.lines().chain(BUDDYINFO.lines()).collect::<Vec<_>>()), 0..6,
    ), cut in any::<prop::sample::Index>()) {
        let mut mixed = lines.join("\n");
        mixed.truncate(cut.index(mixed.len() + 1));
        for text in [text, mixed] {
            let _ = FreeBlocks::parse(&text, Some(&text), None);
            let _ = FreeBlocks::parse(BUDDYINFO, Some(&text), Some(1 << 20)).map(|free| free.scaled(77 << 9));
        }
    }

    #[test]
    fn free_blocks_come_out_as_asked(
        needed in prop::array::uniform9(0u64..40), whole in 0u64..5, seed: u64,
    ) {
        let mut free = [[0; ORDERS]; 3];
        free[0][..9].copy_from_slice(&needed);
        free[0][9] = whole;
        let free = FreeBlocks { free, pageblocks: None, frames: None };
        let mut toy = Toy::new(80);
        let how = Fragmentation::Machine(Box::new(free), None);
        toy.run(&mut *how.program(Place { seed, ..place(1, 80) }).unwrap());
        let mut expected = [0; 10];
        expected[..9].copy_from_slice(&needed);
        expected[9] = whole;
        prop_assert_eq!(toy.free_blocks(), expected);
    }
}
