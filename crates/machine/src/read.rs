//! A machine's file: TOML, strict. A key that is misspelt, missing or out of range is an error with
//! its file, line, key and what is allowed.

use serde::Deserialize;
use serde::de::{self, Deserializer};
use toml::Spanned;
use units::{ByteSize, PageSize};

use super::{Array, Cache, Costs, Index, Machine, Nested, Replacement, Tlb, WalkCaches};
use crate::{READS, SIZES, Size};

/// Why a machine's file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {why}")]
pub struct MachineError {
    /// The file, as it was named.
    pub file: String,
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

impl MachineError {
    /// That something is wrong at this byte of a file's text.
    pub fn at(file: &str, text: &str, offset: usize, why: &str) -> Self {
        let line = text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1;
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
        Self { file: file.to_string(), line, why }
    }
}

/// A fault in the text: where, and why.
type Fault = (usize, String);

impl Machine {
    /// Reads a machine; `file` is named in errors.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, MachineError> {
        read(text).map_err(|(offset, why)| MachineError::at(file, text, offset, &why))
    }
}

fn read(text: &str) -> Result<Machine, Fault> {
    let raw: Raw = toml::from_str(text).map_err(|error| {
        (error.span().map_or(0, |span| span.start), error.message().to_string())
    })?;
    let mhz = ranged("mhz", &raw.mhz, 1, 20_000)?;
    let levels = ranged("levels", &raw.levels, 1, READS as u64 - 1)?;
    let at = raw.tlb.span().start;
    let RawLevels { l1, l2 } = raw.tlb.into_inner();
    let (l1, l2) = (level("tlb.l1", l1)?, level("tlb.l2", l2)?);
    if !l1.iter().any(|tlb| tlb.holds[Size::Base as usize]) {
        return Err((at, "no [[tlb.l1]] has \"base\" among its `pages`".into()));
    }
    for size in Size::ALL {
        let held = |level: &[Tlb]| level.iter().any(|tlb| tlb.holds[size as usize]);
        if held(&l2) && !held(&l1) {
            let name = size.name();
            return Err((at, format!("[[tlb.l2]] holds \"{name}\" but no [[tlb.l1]] does")));
        }
    }
    Ok(Machine {
        name: raw.name,
        summary: raw.summary,
        mhz: mhz as u32,
        base_page: base_page(&raw.base_page)?,
        levels: levels as u8,
        l1,
        l2,
        walk_caches: WalkCaches {
            pde: raw.walk.pde.map(|raw| raw.array("walk.pde")).transpose()?,
            pdpte: raw.walk.pdpte.map(|raw| raw.array("walk.pdpte")).transpose()?,
            pml4e: raw.walk.pml4e.map(|raw| raw.array("walk.pml4e")).transpose()?,
        },
        walkers: ranged("walk.walkers", &raw.walk.walkers, 1, 64)? as u8,
        pcid: raw.pcid,
        nested: raw.nested.map(RawNested::nested).transpose()?,
        caches: caches(raw.caches)?,
        memory_cycles: ranged("memory-cycles", &raw.memory_cycles, 1, 60_000)? as u16,
        costs: costs(raw.costs)?,
    })
}

fn ranged(key: &str, value: &Spanned<u64>, least: u64, most: u64) -> Result<u64, Fault> {
    let number = *value.get_ref();
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err((value.span().start, format!("`{key} = {number}`: must be from {least} to {most}")))
}

fn base_page(raw: &Spanned<Bytes>) -> Result<PageSize, Fault> {
    let bytes = raw.get_ref().0;
    match PageSize::new(bytes) {
        Ok(size) if (1 << 10..=1 << 20).contains(&bytes) => Ok(size),
        _ => {
            let why = "`base-page` must be a power of two from 1K to 1M, such as \"4K\"";
            Err((raw.span().start, why.into()))
        }
    }
}

fn level(key: &str, raw: Vec<Spanned<RawTlb>>) -> Result<Vec<Tlb>, Fault> {
    let mut level: Vec<Tlb> = Vec::new();
    for one in raw {
        let at = one.span().start;
        let tlb = one.into_inner().tlb(key)?;
        if !tlb.holds.contains(&true) {
            return Err((at, format!("[[{key}]]: `pages` is empty; it lists {}", sizes())));
        }
        for size in Size::ALL {
            let held = |tlb: &Tlb| tlb.holds[size as usize];
            if held(&tlb) && level.iter().any(held) {
                let why = format!("[[{key}]]: \"{}\" is held by an array above", size.name());
                return Err((at, why));
            }
        }
        level.push(tlb);
    }
    Ok(level)
}

fn sizes() -> String {
    Size::ALL.map(|size| format!("\"{}\"", size.name())).join(", ")
}

fn caches(raw: Vec<Spanned<RawCache>>) -> Result<Vec<Cache>, Fault> {
    let mut caches: Vec<Cache> = Vec::new();
    for one in raw {
        let at = one.span().start;
        let RawCache { size: Bytes(bytes), cycles } = one.into_inner();
        let cycles = ranged("cycles", &cycles, 1, 60_000)? as u16;
        if bytes == 0 || caches.last().is_some_and(|last| last.bytes >= bytes) {
            return Err((at, "[[caches]] go from the smallest to the largest `size`".into()));
        }
        caches.push(Cache { bytes, cycles });
    }
    Ok(caches)
}

fn costs(raw: Spanned<Costs>) -> Result<Costs, Fault> {
    let at = raw.span().start;
    let costs = raw.into_inner();
    let stores =
        [("zero.temporal", costs.zero.temporal), ("zero.non-temporal", costs.zero.non_temporal)];
    let zero = stores.into_iter().flat_map(|(key, times)| times.map(|time| (key, time)));
    let wrong = costs.all().into_iter().chain(zero).find(|(_, cost)| !(0.0..=1e9).contains(cost));
    match wrong {
        None => Ok(costs),
        Some((key, cost)) => Err((at, format!("[costs]: `{key} = {cost}`: must be from 0 to 1e9"))),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Raw {
    name: String,
    summary: String,
    mhz: Spanned<u64>,
    base_page: Spanned<Bytes>,
    levels: Spanned<u64>,
    #[serde(default)]
    pcid: bool,
    memory_cycles: Spanned<u64>,
    tlb: Spanned<RawLevels>,
    walk: RawWalk,
    #[serde(default)]
    caches: Vec<Spanned<RawCache>>,
    nested: Option<RawNested>,
    costs: Spanned<Costs>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLevels {
    l1: Vec<Spanned<RawTlb>>,
    #[serde(default)]
    l2: Vec<Spanned<RawTlb>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTlb {
    pages: Vec<Size>,
    entries: Spanned<u64>,
    ways: Option<Spanned<u64>>,
    #[serde(default)]
    index: Index,
    #[serde(default)]
    replacement: Replacement,
    cycles: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawArray {
    entries: Spanned<u64>,
    ways: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawWalk {
    walkers: Spanned<u64>,
    pde: Option<RawArray>,
    pdpte: Option<RawArray>,
    pml4e: Option<RawArray>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCache {
    size: Bytes,
    cycles: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct RawNested {
    host_page: Size,
    levels: Spanned<u64>,
}

impl RawNested {
    fn nested(self) -> Result<Nested, Fault> {
        let levels = ranged("nested.levels", &self.levels, 1, READS as u64 - 1)? as u8;
        Ok(Nested { host_page: self.host_page, levels })
    }
}

/// The most entries an array may have: four times what any processor has.
const MAX_ENTRIES: u64 = 1 << 14;

impl RawArray {
    fn array(self, key: &str) -> Result<Array, Fault> {
        let entries = ranged(&format!("{key}.entries"), &self.entries, 1, MAX_ENTRIES)?;
        let Some(raw) = self.ways else {
            return Ok(Array { entries: entries as u16, ways: entries as u16 });
        };
        let ways = ranged(&format!("{key}.ways"), &raw, 1, entries)?;
        if !entries.is_multiple_of(ways) {
            let why = format!("`{key}.ways = {ways}` does not divide {entries} entries");
            return Err((raw.span().start, why));
        }
        Ok(Array { entries: entries as u16, ways: ways as u16 })
    }
}

impl RawTlb {
    fn tlb(self, key: &str) -> Result<Tlb, Fault> {
        let at = self.entries.span().start;
        let array = RawArray { entries: self.entries, ways: self.ways }.array(key)?;
        let (sets, ways) = (array.sets(), array.ways);
        if self.index == Index::Xor && !sets.is_power_of_two() {
            let why = format!("[[{key}]]: index \"xor\" needs a power of two sets, not {sets}");
            return Err((at, why));
        }
        if self.replacement == Replacement::TreePlru && !(ways.is_power_of_two() && ways <= 64) {
            let needs = "needs 1, 2, 4 to 64 ways";
            let why = format!("[[{key}]]: replacement \"tree-plru\" {needs}, not {ways}");
            return Err((at, why));
        }
        let Self { index, replacement, .. } = self;
        let cycles = self.cycles.map_or(Ok(0), |raw| ranged("cycles", &raw, 0, 10_000))? as u16;
        let mut holds = [false; SIZES];
        self.pages.iter().for_each(|page| holds[*page as usize] = true);
        Ok(Tlb { array, holds, index, replacement, cycles })
    }
}

/// A size as people write it, `"4K"`, or a number of bytes.
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a size such as \"4K\", or a number of bytes")]
        enum Written {
            Number(u64),
            Text(String),
        }
        match Written::deserialize(from)? {
            Written::Number(bytes) => Ok(Self(bytes)),
            Written::Text(text) => match text.parse::<ByteSize>() {
                Ok(size) => Ok(Self(size.bytes())),
                Err(error) => Err(de::Error::custom(error)),
            },
        }
    }
}
