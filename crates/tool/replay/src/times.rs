//! Executes an image on base pages and on superpages in turns, and compares the times.
//! See docs/decisions/prediction.md#11.

use host::coverage::{self, Scanned};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sys::SysError;
use sys::code::Code;
use sys::expendable::{Expendable, in_child};
use sys::mem::{Advice, Mapping};
use sys::pagemap::Pagemap;
use units::{ByteSize, PageSize};

use crate::ReplayError;
use crate::image::{Cold, Image, Part};

/// How often a window is replayed.
#[derive(Debug, Clone, Copy)]
pub struct Passes(pub usize);

impl Default for Passes {
    fn default() -> Self {
        Self(16)
    }
}

/// Cycles of the second half of each window, by pass: on base pages, on superpages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    /// By window, by pass.
    pub cycles: Vec<Vec<[u64; 2]>>,
}

/// Share of its windows' time that a program saves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Saving {
    /// Lower bound, at 95 % confidence.
    pub low: f64,
    /// The estimate.
    pub mid: f64,
    /// Upper bound.
    pub high: f64,
}

/// Least share of memory that must be on the requested pages.
const LEAST_GOT: f64 = 0.95;
/// Passes that are not counted: the times fall during six to eight passes, until caches have what windows share.
const WARM_PASSES: usize = 8;

/// Replays an image. `available`: memory that may be used.
///
/// # Errors
/// Memory is short or not on the requested pages, or the code crashes.
pub fn replay(
    image: &Image,
    superpage: PageSize,
    passes: Passes,
    available: ByteSize,
) -> Result<Times, ReplayError> {
    let needed = image.memory(superpage);
    if needed > available {
        return Err(ReplayError::NoMemory { needed, available });
    }
    let numbers = in_child(|child| {
        numbers_of(image, superpage, passes, child).map_err(|error| error.to_string())
    })?;
    let eligible = image.regions.iter().filter(|region| region.is_eligible).count() as u64;
    let eligible = ByteSize(eligible * superpage.bytes());
    let [base, huge] = [numbers[0], numbers[1]].map(ByteSize);
    for (got, on) in [(base, "base pages"), (huge, "superpages")] {
        if (got.bytes() as f64) < LEAST_GOT * eligible.bytes() as f64 {
            return Err(ReplayError::NotGot { got, of: eligible, on });
        }
    }
    let pairs: Vec<[u64; 2]> = numbers[2..].as_chunks().0.to_vec();
    let windows = image.parts.len();
    let of = |window: usize| pairs.iter().skip(window).step_by(windows).copied().collect();
    Ok(Times { cycles: (0..windows).map(of).collect() })
}

/// In the child: bytes of eligible memory on base pages and on superpages, then cycles by pass and window.
fn numbers_of(
    image: &Image,
    superpage: PageSize,
    passes: Passes,
    child: &Expendable,
) -> Result<Vec<u64>, SysError> {
    // Superpages first: base pages take frames from anywhere.
    let huge = memory(image, superpage, Advice::HugePage)?;
    let base = memory(image, superpage, Advice::NoHugePage)?;
    let mut code = Code::new(Mapping::low(image.code.len())?);
    code.writable()?.bytes_mut()[..image.code.len()].copy_from_slice(&image.code);
    let code_at = code.executable()?.address();
    let mut stream = Mapping::anonymous(4 * image.words.len(), Default::default())?;
    let stream_at = stream.address();
    put(&mut stream, image.words.iter().copied().enumerate());
    let targets = image.targets.iter().map(|place| *place as usize);
    put(&mut stream, targets.map(|place| (place, image.words[place] + code_at as u32)));
    let mut numbers = vec![
        eligible(image, superpage, &base).map_or(0, |it| it.present.bytes() - it.huge.bytes()),
        eligible(image, superpage, &huge).map_or(0, |it| it.huge.bytes()),
    ];
    child.block_signals();
    let run = |part: &Part| {
        let at = |word: u32| stream_at + 4 * u64::from(word);
        child.run(code_at + u64::from(part.entry), at(part.first), at(part.exit))
    };
    let page = sys::param::page_size().bytes() as u32 - 1;
    let region = superpage.bytes() as u32 - 1;
    for pass in 0..passes.0 + WARM_PASSES {
        // Cold lines and pages move, so that caches do not have them from the last pass; by two lines, because
        // processors fetch pairs, and by pages of several lines of page tables.
        let by = pass as u32 * 128;
        let pages = pass as u32 * 73 * (page + 1);
        let moved = |cold: &Cold| {
            let word = image.words[cold.word as usize];
            let pages = if cold.has_cold_page { pages } else { 0 };
            let page_of = word.wrapping_add(pages) & region & !page;
            (cold.word as usize, word & !region | page_of | (word + by) & page)
        };
        put(&mut stream, image.cold.iter().map(moved));
        let mut pairs = vec![[0; 2]; image.parts.len()];
        for turn in 0..2 {
            let side = (pass + turn) % 2;
            child.set_gs([&base, &huge][side])?;
            for ([warms, timed], pair) in image.parts.iter().zip(&mut pairs) {
                run(warms);
                pair[side] = run(timed);
            }
        }
        if pass >= WARM_PASSES {
            numbers.extend(pairs.into_iter().flatten());
        }
    }
    Ok(numbers)
}

fn put(stream: &mut Mapping, words: impl Iterator<Item = (usize, u32)>) {
    let all = stream.bytes_mut().as_chunks_mut().0;
    words.for_each(|(place, word)| all[place] = word.to_le_bytes());
}

/// Memory of the program's shape.
fn memory(image: &Image, superpage: PageSize, advice: Advice) -> Result<Mapping, SysError> {
    let (size, page) = (superpage.bytes() as usize, sys::param::page_size().bytes() as usize);
    // One region more, for accesses that begin at the last byte.
    let mut memory = Mapping::aligned((image.regions.len() + 1) * size, superpage)?;
    memory.advise(Advice::NoHugePage)?;
    let pages = size / page;
    let mut order: Vec<usize> = Vec::new();
    for (slot, region) in image.regions.iter().enumerate() {
        if region.is_eligible {
            memory.advise_range(slot * size..(slot + 1) * size, advice)?;
            order.extend(slot * pages..(slot + 1) * pages);
        } else {
            order.extend(region.pages.iter().map(|number| slot * pages + usize::from(*number)));
        }
    }
    if !image.lies_in_order && advice == Advice::NoHugePage {
        // The regions in turns, so that neighbours get frames that are none.
        order.sort_by_key(|number| number % pages);
    }
    let bytes = memory.bytes_mut();
    order.into_iter().for_each(|number| bytes[number * page] = 0);
    Ok(memory)
}

fn eligible(image: &Image, superpage: PageSize, memory: &Mapping) -> Option<Scanned> {
    let pagemap = Pagemap::open(sys::param::own_pid()).ok()?;
    let mut all = Scanned::default();
    for (slot, _) in image.regions.iter().enumerate().filter(|(_, region)| region.is_eligible) {
        let start = memory.address() + slot as u64 * superpage.bytes();
        let found = coverage::scan(&pagemap, start, start + superpage.bytes()).ok()?;
        all.present = ByteSize(all.present.bytes() + found.present.bytes());
        all.huge = ByteSize(all.huge.bytes() + found.huge.bytes());
    }
    Some(all)
}

/// The share of time saved: the median of several memories, because a host may back one with pages of another size. Its
/// interval is by a bootstrap over memories, windows and passes.
pub fn saving(memories: &[Times], seed: u64) -> Saving {
    let share = |passes: &[[u64; 2]]| {
        let [base, huge] =
            [0, 1].map(|side| median(passes.iter().map(|pair| pair[side] as f64).collect()));
        1.0 - huge / base.max(1.0)
    };
    let mean = |shares: Vec<f64>| shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let of = |times: &Times| mean(times.cycles.iter().map(|passes| share(passes)).collect());
    let mid = median(memories.iter().map(of).collect());
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut again = || {
        let windows = &drawn(memories, &mut random).cycles;
        mean(windows.iter().map(|_| share(&resampled(windows, &mut random))).collect())
    };
    let mut medians: Vec<f64> =
        (0..ROUNDS).map(|_| median(memories.iter().map(|_| again()).collect())).collect();
    medians.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (medians.len() - 1) as f64) as usize];
    Saving { low: at(0.025).min(mid), mid, high: at(0.975).max(mid) }
}

/// As many passes of one window, drawn with replacement.
fn resampled(windows: &[Vec<[u64; 2]>], random: &mut Pcg64Mcg) -> Vec<[u64; 2]> {
    let window = drawn(windows, random);
    window.iter().map(|_| *drawn(window, random)).collect()
}

fn drawn<'all, T>(all: &'all [T], random: &mut Pcg64Mcg) -> &'all T {
    &all[random.next_u64() as usize % all.len()]
}

/// Number of samples of the bootstrap.
const ROUNDS: usize = 400;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(windows: [[u64; 2]; 3]) -> Times {
        Times { cycles: windows.map(|pair| vec![pair; 4]).to_vec() }
    }

    #[test]
    fn the_saving_is_the_mean_of_windows_and_the_median_of_memories() {
        let one = times([[100, 80], [100, 60], [1000, 1000]]);
        let Saving { low, mid, high } = saving(std::slice::from_ref(&one), 1);
        assert!((mid - 0.2).abs() < 1e-9 && low < mid && mid < high, "{low} {mid} {high}");
        // Memories that differ make the interval wide, however alike their windows are.
        let memories = [90, 70, 130].map(|huge| times([[100, huge]; 3]));
        let Saving { low, mid, high } = saving(&memories, 1);
        let found = [low, mid, high].map(|share| (share * 100.0).round());
        assert_eq!(found, [-30.0, 10.0, 30.0]);
        let same = vec![times([[100, 90]; 3]); 5];
        let Saving { low, mid, high } = saving(&same, 1);
        assert!([low, mid, high].iter().all(|share| (share - 0.1).abs() < 1e-9));
    }
}
