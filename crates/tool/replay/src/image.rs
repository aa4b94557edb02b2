//! Windows as an image: code of their basic blocks, a stream of the offsets and directions that the code reads, and the
//! shape of their memory.
//! See docs/decisions/prediction.md#11.

use std::collections::{BTreeMap, HashMap, HashSet};

use units::{ByteSize, PageSize, Pid};

use crate::ReplayError;
use crate::cache::{Touched, kept};
use crate::record::{Recorded, Window};
use crate::translate::{CodeWriter, is_branch, least_used};

/// Maximum number of instructions of a block.
const MAX_BLOCK: usize = 48;
/// The successor of a part's last block.
pub(crate) const EXIT: u32 = u32::MAX;
/// Maximum bytes that offsets reach.
const MAX_BYTES: u64 = 4 << 30;
/// A line is rare if at most one in this many windows touches it, or one alone. It is cold unless the program's last-level
/// cache keeps it.
const FEW_WINDOWS: u32 = 8;
/// Bytes of a cache line.
const LINE: u32 = 64;

/// A superpage region of the replay's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// Whether superpages could back it in the program.
    pub is_eligible: bool,
    /// The base pages that windows touch, ascending.
    pub pages: Vec<u16>,
}

/// An access to a line that no cache has when its window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    /// Place of its word.
    pub word: u32,
    /// Whether its page, too, is touched by few windows and may be any of its region.
    pub has_cold_page: bool,
}

/// Half of a window: the first warms up for the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first block in the code.
    pub entry: u32,
    /// Its first word in the stream.
    pub first: u32,
    /// The two words in which the stack pointer is saved.
    pub exit: u32,
}

/// Code and stream.
#[derive(Debug, Default)]
pub struct Image {
    /// Machine code.
    pub code: Vec<u8>,
    /// The stream: offsets of accesses, directions and targets of branches.
    pub words: Vec<u32>,
    /// Places of words that are offsets in the code, to which its address is added.
    pub targets: Vec<u32>,
    /// Accesses to lines that no cache has when their window begins.
    pub cold: Vec<Cold>,
    /// Both halves of each window.
    pub parts: Vec<[Part; 2]>,
    /// The memory.
    pub regions: Vec<Region>,
    /// Whether its base pages lie in order in physical memory.
    pub lies_in_order: bool,
    /// Executed instructions, and those of them that were replaced by moves.
    pub instructions: (u64, u64),
}

/// Slots of the replay's memory, by region of the program.
type Slots = HashMap<(Pid, u64), u64>;

/// A run through a block: its number, and its first step.
type Run = (u32, u32);

/// A basic block that windows run through.
pub(crate) struct Block {
    /// Its instructions, as places in [`Recorded::code`].
    pub code: Vec<u32>,
    runs: u64,
    next: BTreeMap<u32, u64>,
    /// Successors by frequency.
    pub order: Vec<u32>,
    /// Its place in the machine code.
    pub at: u32,
}

impl Image {
    /// Translates windows for superpages of `superpage`. `cache`: size of the last-level cache.
    ///
    /// # Errors
    /// No windows, or more memory than offsets reach.
    pub fn new(
        recorded: &Recorded,
        windows: &[Window],
        superpage: PageSize,
        cache: ByteSize,
    ) -> Result<Self, ReplayError> {
        let (slots, regions) = regions(recorded, windows, superpage)?;
        let mut blocks: Vec<Block> = Vec::new();
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        let runs: Vec<Vec<Run>> = windows
            .iter()
            .map(|window| runs_of(recorded, window, &mut blocks, &mut known))
            .collect();
        let middles: Vec<usize> = runs.iter().map(|runs| middle(runs, &blocks)).collect();
        for (runs, middle) in runs.iter().zip(&middles) {
            for (place, (block, _)) in runs.iter().enumerate() {
                let is_last = place + 1 == *middle || place + 1 == runs.len();
                let next = if is_last { EXIT } else { runs[place + 1].0 };
                *blocks[*block as usize].next.entry(next).or_default() += 1;
            }
        }
        for block in &mut blocks {
            let mut order: Vec<(u32, u64)> = block.next.iter().map(|(a, b)| (*a, *b)).collect();
            order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            block.order = order.into_iter().map(|(next, _)| next).collect();
        }
        let lies_in_order = recorded.lies_in_order();
        let mut image = Self { regions, lies_in_order, ..Self::default() };
        let mut writer = CodeWriter::new(least_used(recorded, windows));
        writer.blocks(&mut blocks, recorded);
        let exit = writer.exit;
        image.code = std::mem::take(&mut writer.bytes);
        let mut accesses: Vec<(u32, u32)> = Vec::new();
        for (number, (window, runs)) in (0..).zip(windows.iter().zip(&runs)) {
            let (size, page) = (superpage.bytes(), sys::param::page_size().bytes());
            let offset = |address: u64| {
                let slot = slots.get(&(window.process, address / size));
                slot.map_or(0, |slot| (slot * size + address % size) as u32)
            };
            let middle = middles[number as usize];
            let parts = [0..middle, middle..runs.len()].map(|range| {
                // The entry is pushed below the first word.
                image.words.extend([0; 4]);
                let first = image.words.len() as u32;
                let entry = blocks[runs[range.start].0 as usize].at;
                for place in range.clone() {
                    let (block, step) = runs[place];
                    let (block, step) = (&blocks[block as usize], step as usize);
                    image.instructions.0 += block.code.len() as u64;
                    image.instructions.1 += writer.replaced_in(&block.code);
                    for step in &window.steps[step..step + block.code.len()] {
                        let count = recorded.code[step.code as usize].accesses.len();
                        let from = step.first as usize;
                        for address in &window.addresses[from..from + count] {
                            if !window.fresh.contains(&(address / page)) {
                                accesses.push((image.words.len() as u32, number));
                            }
                            image.words.push(offset(*address));
                        }
                    }
                    let next = if place + 1 == range.end { EXIT } else { runs[place + 1].0 };
                    match block.order.len() {
                        1 => {}
                        2 => image.words.push(u32::from(block.order[1] == next)),
                        _ => {
                            image.targets.push(image.words.len() as u32);
                            let at = if next == EXIT { exit } else { blocks[next as usize].at };
                            image.words.push(at);
                        }
                    }
                }
                let exit = image.words.len() as u32;
                image.words.extend([0; 2]);
                Part { entry, first, exit }
            });
            image.parts.push(parts);
        }
        image.cold = cold(&image, &accesses, superpage, cache);
        Ok(image)
    }

    /// The memory that a replay needs: the regions on base pages and on superpages.
    pub fn memory(&self, superpage: PageSize) -> ByteSize {
        ByteSize(2 * self.regions.len() as u64 * superpage.bytes())
    }
}

/// Numbers the superpage regions that windows touch, in the order of their addresses.
fn regions(
    recorded: &Recorded,
    windows: &[Window],
    superpage: PageSize,
) -> Result<(Slots, Vec<Region>), ReplayError> {
    let (size, page) = (superpage.bytes(), sys::param::page_size().bytes());
    let mut touched: BTreeMap<(Pid, u64), HashSet<u16>> = BTreeMap::new();
    for window in windows {
        for address in &window.addresses {
            let pages = touched.entry((window.process, address / size)).or_default();
            pages.insert((address % size / page) as u16);
        }
    }
    let most = MAX_BYTES / size - 1;
    if touched.is_empty() || touched.len() as u64 > most {
        return Err(ReplayError::TooLarge { regions: touched.len() as u64, most });
    }
    let slots = (0..).zip(touched.keys()).map(|(slot, region)| (*region, slot)).collect();
    let regions = touched.into_iter().map(|(region, pages)| {
        let mut pages: Vec<u16> = pages.into_iter().collect();
        pages.sort_unstable();
        Region { is_eligible: recorded.eligible.contains(&region), pages }
    });
    Ok((slots, regions.collect()))
}

/// Cuts a window into runs through blocks.
fn runs_of(
    recorded: &Recorded,
    window: &Window,
    blocks: &mut Vec<Block>,
    known: &mut HashMap<(u32, u32), u32>,
) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut first = 0;
    for place in 0..window.steps.len() {
        let instruction = &recorded.code[window.steps[place].code as usize].instruction;
        let next = window.steps.get(place + 1);
        let next = next.map(|step| recorded.code[step.code as usize].instruction.ip());
        let goes_on = !is_branch(instruction) && next == Some(instruction.next_ip());
        let length = place + 1 - first;
        if goes_on && length < MAX_BLOCK {
            continue;
        }
        let key = (window.steps[first].code, length as u32);
        let number = *known.entry(key).or_insert_with(|| {
            let code = window.steps[first..=place].iter().map(|step| step.code).collect();
            let (next, order) = (BTreeMap::new(), Vec::new());
            blocks.push(Block { code, runs: 0, next, order, at: 0 });
            blocks.len() as u32 - 1
        });
        blocks[number as usize].runs += 1;
        runs.push((number, first as u32));
        first = place + 1;
    }
    runs
}

/// The place at which a window's second half begins: near its middle, after the rarest block, because the end of a part
/// is one more successor of its last block.
fn middle(runs: &[Run], blocks: &[Block]) -> usize {
    let half = runs.len() / 2;
    let near = half.saturating_sub(runs.len() / 20)..=half;
    near.min_by_key(|place| blocks[runs[place.saturating_sub(1)].0 as usize].runs).unwrap_or(half)
}

/// The accesses to lines that few windows touch, unless the last-level cache keeps them. Windows are far apart in time, so
/// such a line is in no cache when its window begins. (Accesses to pages that their window touches first are not in
/// `accesses`.)
fn cold(image: &Image, accesses: &[(u32, u32)], superpage: PageSize, cache: ByteSize) -> Vec<Cold> {
    let page = sys::param::page_size().bytes() as u32;
    let few = (image.parts.len() as u32 / FEW_WINDOWS).max(1);
    let of = |word: u32, size: u32| image.words[word as usize] / size;
    // The last window and the number of windows; accesses are in the windows' order.
    let windows_by = |size: u32| {
        let mut windows: HashMap<u32, (u32, u32)> = HashMap::new();
        for (word, window) in accesses {
            let (last, count) = windows.entry(of(*word, size)).or_insert((*window, 1));
            *count += u32::from(*last != *window);
            *last = *window;
        }
        windows
    };
    let (lines, pages) = (windows_by(LINE), windows_by(page));
    let superpage = superpage.bytes() as u32;
    let mut touched = vec![Touched::default(); image.regions.len()];
    for (line, (_, windows)) in &lines {
        let region = &mut touched[(line / (superpage / LINE)) as usize];
        region.touches += f64::from(*windows);
        region.lines += 1.0;
    }
    let kept =
        kept(&touched, f64::from(superpage / LINE), (cache.bytes() / u64::from(LINE)) as f64);
    // A page's lines are kept or cold together, so that windows do not touch more pages than they did.
    let is_kept = |word: u32| spread(of(word, page)) < kept[of(word, superpage) as usize];
    let cold = accesses.iter().filter(|(word, _)| lines[&of(*word, LINE)].1 <= few);
    let cold = cold.filter(|(word, _)| !is_kept(*word)).map(|(word, _)| {
        let region = of(*word, superpage) as usize;
        let has_cold_page = pages[&of(*word, page)].1 <= few && image.regions[region].is_eligible;
        Cold { word: *word, has_cold_page }
    });
    cold.collect()
}

/// Spreads numbers evenly over 0 to 1 (multiplication by 2^32 divided by the golden ratio).
fn spread(number: u32) -> f64 {
    f64::from(number.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
    use units::Pid;

    use super::*;
    use crate::record::{Step, decoded};

    pub fn superpage() -> PageSize {
        PageSize::new(2 << 20).unwrap()
    }

    /// A recording of code that lies at 0x1000 and is run from its begin `times` times; `address` of an access of one
    /// round.
    pub fn recorded(bytes: &[u8], times: u64, address: impl Fn(u64) -> u64) -> Recorded {
        let mut recorded = Recorded::default();
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        let mut factory = InstructionInfoFactory::new();
        while decoder.can_decode() {
            recorded.code.push(decoded(decoder.decode(), &mut factory));
        }
        let mut window = Window {
            process: Pid(1),
            at: Default::default(),
            steps: vec![],
            addresses: vec![],
            fresh: HashSet::new(),
        };
        for round in 0..times {
            for (code, known) in (0..).zip(&recorded.code) {
                let first = window.addresses.len() as u32;
                window.steps.push(Step { code, first });
                window.addresses.extend(known.accesses.iter().map(|_| address(round)));
            }
        }
        recorded.windows = vec![window];
        recorded.eligible = (0..64).map(|region| (Pid(1), region)).collect::<HashSet<_>>();
        recorded
    }

    pub fn image(recorded: &Recorded) -> Image {
        Image::new(recorded, &recorded.windows, superpage(), ByteSize(0)).unwrap()
    }

    fn text(bytes: &[u8]) -> String {
        Decoder::new(64, bytes, DecoderOptions::NONE)
            .iter()
            .map(|it| format!("{:?};", it.code()))
            .collect()
    }

    #[test]
    fn the_stream_has_every_offset_and_every_direction() {
        // mov rax, [rbx]; jne 0x1000
        let recorded = recorded(&[0x48, 0x8b, 0x03, 0x75, 0xfb], 8, |round| 5 + (round << 21));
        let image = image(&recorded);
        assert_eq!((image.regions.len(), image.instructions), (8, (16, 0)));
        let [warms, timed] = image.parts[0];
        assert_eq!(image.words.len() as u32, timed.exit + 2);
        // An offset and a direction a round; only the last leaves.
        let expected: Vec<u32> =
            (0..4).flat_map(|round| [5 + (round << 21), u32::from(round == 3)]).collect();
        assert_eq!(image.words[warms.first as usize..warms.exit as usize], expected);
        let code = text(&image.code);
        let load = "Mov_r32_rm32;Mov_r64_rm64;";
        assert!(code.contains(load), "{code}");
        assert!(code.contains("Cmovbe_r64_rm64"), "the branch waits for flags: {code}");
    }

    #[test]
    fn lines_and_pages_of_one_window_are_cold() {
        let mut recorded = recorded(&[0x48, 0x8b, 0x03], 4, |round| round << 12);
        let mut other = recorded.windows[0].clone();
        // The same lines of pages 0 and 1, another line of page 2.
        other.addresses = vec![0, 1 << 12, (2 << 12) + 64, 9 << 12];
        recorded.windows.push(other);
        let cold: Vec<(u32, bool)> =
            image(&recorded).cold.iter().map(|cold| (cold.word, cold.has_cold_page)).collect();
        assert_eq!(cold.iter().filter(|(_, page)| *page).count(), 2, "{cold:?}");
        assert_eq!(cold.len(), 4, "{cold:?}");
        // A cache as large as their region keeps them.
        let image = Image::new(&recorded, &recorded.windows, superpage(), ByteSize::mib(2));
        assert_eq!(image.unwrap().cold, []);
    }

    #[test]
    fn too_many_regions_are_refused() {
        let recorded = recorded(&[0x48, 0x8b, 0x03], 4096, |round| round << 21);
        let error = Image::new(&recorded, &recorded.windows, superpage(), ByteSize(0)).unwrap_err();
        assert!(matches!(error, ReplayError::TooLarge { regions: 4096, most: 2047 }), "{error}");
    }
}
