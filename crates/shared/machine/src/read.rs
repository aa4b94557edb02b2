//! Reader of machine files: strict TOML. Every misspelt, missing or out-of-range key is reported with its line and the
//! allowed values.

use toml_keys::{DeValue, Field, FileError, Reader, parsed, quoted, word, wrong};
use units::{ByteSize, PageSize};

use super::{
    Array, Cache, Costs, Far, Hashed, Independent, Index, Machine, Nested, Organisation,
    Replacement, Tlb, WalkCaches, Zeroing,
};
use crate::{READS, SIZES, Size};

/// Maximum number of entries of a TLB array: four times that of any known CPU.
const MAX_ENTRIES: u16 = 1 << 14;
/// Maximum number of page-table levels.
const MAX_LEVELS: u8 = READS as u8 - 1;

impl Machine {
    /// Reads a machine; errors name `file`.
    ///
    /// # Errors
    /// All errors in the text, by line.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, FileError> {
        toml_keys::read(file, text, machine)
    }
}

fn machine(keys: &mut Reader<'_>) -> Machine {
    let (l1, l2) = keys.required_table("tlb", levels);
    let base_page = keys.must::<BasePage>("base-page").0;
    let levels_of_walk = keys.within("levels", 1..=MAX_LEVELS);
    let (walkers, walk_blocks, organisation, walk_caches) = keys.required_table("walk", |keys| {
        let caches = WalkCaches {
            pde: keys.optional_table("pde", array),
            pdpte: keys.optional_table("pdpte", array),
            pml4e: keys.optional_table("pml4e", array),
        };
        let blocks = keys.optional("blocks").unwrap_or(false);
        (keys.within("walkers", 1..=64), blocks, organisation(keys, levels_of_walk), caches)
    });
    Machine {
        name: keys.must("name"),
        summary: keys.must("summary"),
        mhz: keys.within("mhz", 1..=20_000),
        base_page,
        kernel_page: kernel_page(keys, base_page),
        own_superpages: superpages(keys, base_page),
        levels: levels_of_walk,
        l1,
        l2,
        walk_caches,
        walkers,
        walk_blocks,
        organisation,
        pcid: keys.optional("pcid").unwrap_or(false),
        nested: keys.optional_table("nested", |keys| Nested {
            host_page: keys.required("host-page").unwrap_or(Size::Base),
            levels: keys.within("levels", 1..=MAX_LEVELS),
        }),
        caches: caches(keys),
        memory_cycles: keys.within("memory-cycles", 1..=60_000),
        stream_bandwidth: keys.optional_within("stream-bandwidth", 1..=10_000_000),
        independent: keys.optional_table("independent", independent),
        window: keys.optional_within("window", 16..=4096),
        far: far(keys),
        costs: keys.required_table("costs", costs),
    }
}

/// The kernel's base page size; the CPU's by default.
fn kernel_page(keys: &mut Reader<'_>, base_page: PageSize) -> PageSize {
    let Some(BasePage(size)) = keys.optional("kernel-page") else { return base_page };
    let range = base_page.bytes()..base_page.bytes() << Size::Large.shift();
    if !range.contains(&size.bytes()) {
        let (least, most) = (ByteSize(range.start), ByteSize(range.end / 2));
        keys.problem_here(format!("`kernel-page` is of {least} to {most}"));
    }
    size
}

/// Reads the superpage sizes, which must be between 512 and 512 × 512 base pages.
fn superpages(keys: &mut Reader<'_>, base_page: PageSize) -> Option<Vec<PageSize>> {
    let sizes: Vec<Bytes> = keys.optional("superpages")?;
    let range = base_page.bytes() << Size::Large.shift()..=base_page.bytes() << Size::Huge.shift();
    let fits = |bytes: u64| PageSize::new(bytes).ok().filter(|_| range.contains(&bytes));
    let read: Option<Vec<PageSize>> = sizes.iter().map(|&Bytes(bytes)| fits(bytes)).collect();
    let read = read.filter(|sizes| !sizes.is_empty() && sizes.is_sorted());
    if read.is_none() {
        let (least, most) = (ByteSize(*range.start()), ByteSize(*range.end()));
        keys.problem_here(format!(
            "`superpages` are powers of two from {least} to {most}, ascending"
        ));
    }
    read
}

/// Reads the organisation of the page table; radix if the file has neither a `hashed` nor a
/// `linear` table.
fn organisation(keys: &mut Reader<'_>, levels: u8) -> Organisation {
    let hashed = keys.optional_table("hashed", |keys| {
        let (group, entry) = (keys.within("group", 8..=4096), keys.within("entry", 8..=128));
        if group % entry != 0 {
            keys.problem_here(format!(
                "a group of {group} bytes holds no whole entries of {entry}"
            ));
        }
        let part = keys.within("memory-part", 1..=4096);
        Hashed {
            group,
            entry,
            part,
            handler_cycles: keys.optional_within("handler-cycles", 0..=60_000),
        }
    });
    let linear = keys.optional_table("linear", |keys| keys.within("handler-cycles", 0..=60_000));
    match (hashed, linear) {
        (None, None) => Organisation::Radix,
        (Some(hashed), None) => Organisation::Hashed(hashed),
        (None, Some(handler_cycles)) => {
            if levels < 3 {
                keys.problem_here(format!(
                    "a linear table lies over a tree of `levels` 3 or more, not {levels}"
                ));
            }
            Organisation::Linear { handler_cycles }
        }
        (Some(hashed), Some(_)) => {
            keys.problem_here("a page table is `hashed` or `linear`, not both");
            Organisation::Hashed(hashed)
        }
    }
}

fn levels(keys: &mut Reader<'_>) -> (Vec<Tlb>, Vec<Tlb>) {
    let (mut l1, mut l2) = (Vec::new(), Vec::new());
    keys.tables("l1", |keys| tlb(keys, &mut l1));
    keys.tables("l2", |keys| tlb(keys, &mut l2));
    if !keys.is_good() {
        return (l1, l2);
    }
    let held = |level: &[Tlb], size: Size| level.iter().any(|tlb| tlb.holds[size as usize]);
    if !held(&l1, Size::Base) {
        keys.problem_here("no [[tlb.l1]] has \"base\" among its `pages`");
    }
    for size in Size::ALL.into_iter().filter(|size| held(&l2, *size) && !held(&l1, *size)) {
        let name = size.name();
        keys.problem_here(format!("[[tlb.l2]] holds \"{name}\" but no [[tlb.l1]] does"));
    }
    (l1, l2)
}

fn tlb(keys: &mut Reader<'_>, level: &mut Vec<Tlb>) {
    let pages = keys.required::<Vec<Size>>("pages");
    let array = array(keys);
    let index = keys.optional("index").unwrap_or_default();
    let replacement = keys.optional("replacement").unwrap_or_default();
    let cycles = keys.optional_within("cycles", 0..=10_000).unwrap_or(0);
    let Some(pages) = pages else { return };
    if pages.is_empty() {
        let sizes = Size::ALL.map(|size| quoted(size.name())).join(", ");
        keys.problem_here(format!("`pages` is empty; it lists {sizes}"));
    }
    let mut holds = [false; SIZES];
    for page in pages {
        if level.iter().any(|tlb| tlb.holds[page as usize]) {
            keys.problem_here(format!("\"{}\" is held by an array above", page.name()));
        }
        holds[page as usize] = true;
    }
    let (sets, ways) = (array.sets(), array.ways);
    if index == Index::Xor && !sets.is_power_of_two() {
        keys.problem_here(format!("index \"xor\" needs a power of two sets, not {sets}"));
    }
    if replacement == Replacement::TreePlru && !(ways.is_power_of_two() && ways <= 64) {
        let needs = "needs 1, 2, 4 to 64 ways";
        keys.problem_here(format!("replacement \"tree-plru\" {needs}, not {ways}"));
    }
    level.push(Tlb { array, holds, index, replacement, cycles });
}

fn array(keys: &mut Reader<'_>) -> Array {
    let entries = keys.within("entries", 1..=MAX_ENTRIES);
    let divides = |value: &DeValue<'_>| match u16::read(value)? {
        ways if !(1..=entries).contains(&ways) => {
            Err(format!("{ways} is out of range: must be from 1 to {entries}"))
        }
        ways if !entries.is_multiple_of(ways) => {
            Err(format!("{ways} does not divide {entries} entries"))
        }
        ways => Ok(ways),
    };
    Array { entries, ways: keys.optional_by("ways", divides).unwrap_or(entries) }
}

fn independent(keys: &mut Reader<'_>) -> Independent {
    Independent {
        cycles: keys.within("cycles", 1.0..=60_000.0),
        walk: keys.within("walk", 0.0..=1.0),
    }
}

fn far(keys: &mut Reader<'_>) -> Vec<Far> {
    let mut all: Vec<Far> = Vec::new();
    keys.tables("far", |keys| {
        let bytes = ascending(keys, all.last().map(|last| last.bytes));
        let walk = keys.within("walk", 0.0..=60_000.0);
        let independent = keys.required_table("independent", independent);
        all.push(Far { bytes, walk, independent });
    });
    all
}

fn caches(keys: &mut Reader<'_>) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    keys.tables("caches", |keys| {
        let bytes = ascending(keys, caches.last().map(|last| last.bytes));
        caches.push(Cache { bytes, cycles: keys.within("cycles", 1..=60_000) });
    });
    caches
}

/// Reads the size of a table, larger than that of the table above.
fn ascending(keys: &mut Reader<'_>, above: Option<u64>) -> u64 {
    let Bytes(bytes) = keys.required("size").unwrap_or(Bytes(u64::MAX));
    if bytes <= above.unwrap_or(0) {
        keys.problem_here("go from the smallest to the largest `size`");
    }
    bytes
}

fn costs(keys: &mut Reader<'_>) -> Costs {
    let zero = keys.required_table("zero", |keys| {
        let mut times = |name| keys.required(name).map_or([0.0; 3], |Times(times)| times);
        Zeroing { temporal: times("temporal"), non_temporal: times("non-temporal") }
    });
    let mut cost = |name| keys.within(name, 0.0..=MAX_COST);
    Costs {
        fault_base: cost("fault-base"),
        fault_superpage: cost("fault-superpage"),
        fault_around_page: cost("fault-around-page"),
        system_call: cost("system-call"),
        zero,
        copy_page: cost("copy-page"),
        migrate_page: cost("migrate-page"),
        collapse: cost("collapse"),
        promote: cost("promote"),
        shootdown: cost("shootdown"),
        shootdown_per_cpu: cost("shootdown-per-cpu"),
        unmap_page: cost("unmap-page"),
        unmap_superpage: cost("unmap-superpage"),
        table_page: cost("table-page"),
        scan_page: cost("scan-page"),
        reclaim_page: cost("reclaim-page"),
        lock: cost("lock"),
        line_transfer: cost("line-transfer"),
        context_switch: cost("context-switch"),
    }
}

/// Maximum cost in nanoseconds: a second.
const MAX_COST: f64 = 1e9;

/// Three times, for calls of three sizes.
struct Times([f64; 3]);

impl Field for Times {
    fn allowed() -> String {
        "a list of three numbers from 0 to 1e9".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let bad = || wrong(value, &Self::allowed());
        let times: [f64; 3] = Vec::read(value)?.try_into().map_err(|_| bad())?;
        let is_good = times.iter().all(|time| (0.0..=MAX_COST).contains(time));
        is_good.then_some(Self(times)).ok_or_else(bad)
    }
}

/// A size such as `"4K"`, or a number of bytes.
struct Bytes(u64);

impl Field for Bytes {
    fn allowed() -> String {
        "a size such as \"4K\", or a number of bytes".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        match value.as_integer() {
            Some(_) => u64::read(value).map(Self),
            None => parsed::<ByteSize>(value, &Self::allowed()).map(|size| Self(size.bytes())),
        }
    }
}

struct BasePage(PageSize);

impl Default for BasePage {
    fn default() -> Self {
        Self(PageSize::new(4096).expect("a power of two"))
    }
}

impl Field for BasePage {
    fn allowed() -> String {
        "a power of two from 1K to 1M, such as \"4K\"".to_string()
    }
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let Bytes(bytes) = Bytes::read(value)?;
        let size = PageSize::new(bytes).ok().filter(|_| (1 << 10..=1 << 20).contains(&bytes));
        size.map(Self).ok_or_else(|| format!("must be {}", Self::allowed()))
    }
}

/// Implements [`Field`] for enums written as words.
macro_rules! words {
    ($($type:ty { $($word:literal => $value:expr,)+ })+) => {$(
        impl Field for $type {
            fn allowed() -> String {
                toml_keys::one_of(&[$($word),+])
            }
            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                word(value, &[$(($word, $value)),+])
            }
        }
    )+};
}

words! {
    Size {
        "base" => Self::Base,
        "cont" => Self::Cont,
        "large" => Self::Large,
        "huge" => Self::Huge,
    }
    Index {
        "modulo" => Self::Modulo,
        "xor" => Self::Xor,
    }
    Replacement {
        "lru" => Self::Lru,
        "tree-plru" => Self::TreePlru,
    }
}
