//! Memory of several processes together, with each page counted once. Uses PAGEMAP_SCAN.
//!
//! smaps reads the struct page of every base page: 20 ms for 1 GiB, under the mmap lock. PAGEMAP_SCAN reads only the
//! page tables: 1.4 ms for 1 GiB, and it holds the lock for 64 MiB at a time. Page tables do not show which other
//! processes map a page:
//!
//! - Pages of one object (a file, shared memory) are counted once by their offset in the object, whatever process maps
//!   them. An offset that one process maps in base pages is not read again in another.
//! - Private memory stays shared after a fork until a process writes to it. In each 64 MiB of addresses, a sample of
//!   pages estimates the share that only this process maps. The remaining pages lie at the same addresses in all
//!   processes that share them, so the largest amount of any process is counted. If the sample shows that a process
//!   shares a piece completely, the piece is not read again in another process with the same result.

use std::collections::{BTreeMap, BTreeSet};

use sys::pagemap::{Categories, PageRegion, Pagemap};
use units::{ByteSize, PageSize, Pid};

use super::{Classifier, Coverage, MappingKind, zero_page};
use crate::process::{Mapping, Maps, Sharing};
use crate::{ReadError, Root};

/// Size of the address pieces in which private memory is sampled.
const CHUNK: u64 = 64 << 20;
/// Number of sampled pages of each kind in a full piece. The error for a share of one half is then at most 25
/// percentage points in one piece, and 3 in 4 GiB. Smaller amounts get one sample per 1 MiB, at least `MIN_SAMPLES`.
const MAX_SAMPLES: u64 = 16;
const SAMPLE_BYTES: u64 = 1 << 20;
const MIN_SAMPLES: u64 = 4;
/// If the known ranges of an object leave more gaps than this in a mapping, the mapping is read
/// whole.
const MAX_GAPS: usize = 64;

/// Counts the memory of processes, each page once.
#[derive(Debug)]
pub struct Census {
    root: Root,
    classifier: Classifier,
}

/// Result of [`Census::count`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    /// Each page counted once.
    pub coverage: Coverage,
    /// Number of bytes in the page tables read that base-sized entries map. This number determines the cost of another
    /// count.
    pub base_bytes: u64,
    /// Why a process was not counted; `None` if all were. A process that ended is no reason.
    pub missing: Option<String>,
}

/// An object whose pages several processes may map.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    /// The process whose private copies these are, if any.
    owner: Option<Pid>,
    is_shmem: bool,
    /// Page size, if the object belongs to a hugetlb pool.
    hugetlb: Option<PageSize>,
    device: (u32, u32),
    inode: u64,
}

/// Bytes of private memory.
#[derive(Clone, Copy, Default)]
struct Private {
    base: u64,
    thp: u64,
    eligible: u64,
}

#[derive(Default)]
struct Tally {
    /// Ranges of each object, each with a flag that tells whether superpages map it.
    objects: BTreeMap<Object, Vec<(u64, u64, bool)>>,
    /// For each piece of addresses, the largest amount of shared memory that one process has there.
    shared: BTreeMap<u64, Private>,
    /// Ranges of private memory, each within a piece, that a process shares completely.
    forked: BTreeSet<(u64, u64)>,
    private: Private,
    swapped: u64,
    base_bytes: u64,
}

impl Census {
    /// Makes a census of processes in the mount namespace of `pid`. `None` if the kernel has no PAGEMAP_SCAN (before
    /// Linux 6.7) or counts the huge zero page as memory, or if `root` is a fixture.
    pub fn new(root: &Root, pid: Pid) -> Option<Self> {
        let own = Pagemap::open(sys::param::own_pid()).ok().filter(|_| root.is_real())?;
        own.scan(0, root.page_size().bytes(), Categories::PRESENT, &mut Vec::new()).ok()?;
        if !zero_page::is_flagged(root) {
            return None;
        }
        Some(Self { root: root.clone(), classifier: Classifier::new(root, pid).ok()? })
    }

    /// Counts the memory of `pids`.
    pub fn count(&self, pids: &[Pid]) -> Counted {
        let (mut tally, mut missing) = (Tally::default(), None);
        for pid in pids {
            match self.add(&mut tally, *pid, pids.len() > 1) {
                Err(error) if !error.is_gone() => missing = Some(error.to_string()),
                _ => {}
            }
        }
        Counted { coverage: tally.coverage(), base_bytes: tally.base_bytes, missing }
    }

    fn add(&self, tally: &mut Tally, pid: Pid, shares: bool) -> Result<(), ReadError> {
        let pagemap = Pagemap::open(pid)?;
        let (mut regions, mut pieces) = (Vec::new(), BTreeMap::<u64, Piece>::new());
        let mut scanned = Vec::new();
        for mapping in Maps::open(&self.root, pid)? {
            let mapping = mapping?;
            let kind = MappingKind::from_mapping(&mapping, &self.classifier.mounts);
            let wanted = Categories::PRESENT | Categories::SWAPPED;
            // In a file's private mapping, copied pages must be distinguished from the file's.
            let also = match kind {
                MappingKind::Special => continue,
                MappingKind::File => Categories::FILE,
                _ => Categories::default(),
            };
            regions.clear();
            let parts = match shares {
                true => self.unknown_parts(tally, &pagemap, &mapping, kind)?,
                false => vec![(mapping.start, mapping.end)],
            };
            for (start, end) in &parts {
                pagemap.scan_with(*start, *end, wanted, also, &mut regions)?;
            }
            if shares && kind.is_anonymous() {
                scanned.extend(parts.into_iter().flat_map(|(from, to)| in_pieces(from, to)));
            }
            let superpage = self.classifier.superpage;
            let is_eligible =
                kind.is_anonymous() && superpage.is_some_and(|size| mapping.holds_aligned(size));
            for region in &regions {
                let categories = region.categories;
                if categories.contains(Categories::PFNZERO) {
                    continue;
                }
                let bytes = region.end - region.start;
                if !categories.contains(Categories::PRESENT) {
                    tally.swapped += bytes;
                    continue;
                }
                let is_huge = categories.contains(Categories::HUGE);
                tally.base_bytes += if is_huge { 0 } else { bytes };
                let is_of_object = match kind {
                    MappingKind::Shmem | MappingKind::Hugetlb => true,
                    MappingKind::File => categories.contains(Categories::FILE),
                    _ => false,
                };
                if is_of_object {
                    let object = self.object(&mapping, kind);
                    let at = mapping.offset + (region.start - mapping.start);
                    // A page of a hugetlb pool may be a copy-on-write copy of one process, at the same offset.
                    let is_private = mapping.sharing == Sharing::Private;
                    let private_size = object.hugetlb.filter(|_| shares && is_private);
                    let size = private_size.map_or(bytes, PageSize::bytes);
                    for from in (0..bytes).step_by(size as usize) {
                        let is_copy = private_size.is_some()
                            && pagemap.is_exclusive(region.start + from)? == Some(true);
                        let object = Object { owner: is_copy.then_some(pid), ..object };
                        let range = (at + from, at + bytes.min(from + size), is_huge);
                        tally.objects.entry(object).or_default().push(range);
                    }
                } else if shares {
                    add_to_pieces(&mut pieces, region, is_huge, is_eligible);
                } else {
                    tally.private += Private::of(bytes, is_huge, is_eligible);
                }
            }
        }
        for (place, piece) in pieces {
            let (exclusive, shared) = split(&piece, |at| Ok(pagemap.is_exclusive(at)?))?;
            tally.private += exclusive;
            if exclusive.resident() == 0 {
                let here = scanned.iter().filter(|(from, _)| from / CHUNK == place);
                tally.forked.extend(here.copied());
            }
            let most = tally.shared.entry(place).or_default();
            if shared.resident() > most.resident() {
                *most = shared;
            }
        }
        Ok(())
    }

    /// Returns the parts of a mapping that must be read; other processes' ranges are known already.
    fn unknown_parts(
        &self,
        tally: &mut Tally,
        pagemap: &Pagemap,
        mapping: &Mapping,
        kind: MappingKind,
    ) -> Result<Vec<(u64, u64)>, ReadError> {
        let (start, end) = (mapping.start, mapping.end);
        if kind.is_anonymous() {
            let mut parts = Vec::new();
            for (from, to) in in_pieces(start, end) {
                if !tally.forked.contains(&(from, to)) || !shares_all(pagemap, from, to)? {
                    parts.push((from, to));
                }
            }
            return Ok(parts);
        }
        let known = match mapping.sharing {
            Sharing::Shared => tally.objects.get_mut(&self.object(mapping, kind)),
            // The pages may be copy-on-write copies.
            Sharing::Private => None,
        };
        let gaps = known.map(|known| gaps(known, mapping.offset, mapping.offset + mapping.len()));
        Ok(match gaps {
            Some(gaps) if gaps.len() <= MAX_GAPS => {
                let address = |at: u64| start + (at - mapping.offset);
                gaps.into_iter().map(|(from, to)| (address(from), address(to))).collect()
            }
            _ => vec![(start, end)],
        })
    }

    fn object(&self, mapping: &Mapping, kind: MappingKind) -> Object {
        let size =
            self.classifier.mounts.hugetlb(mapping.device).flatten().or(self.classifier.superpage);
        Object {
            owner: None,
            is_shmem: kind == MappingKind::Shmem,
            hugetlb: size.filter(|_| kind == MappingKind::Hugetlb),
            device: (mapping.device.major, mapping.device.minor),
            inode: mapping.inode,
        }
    }
}

/// Private memory of one process in one piece of its addresses: the part in base pages and the part in superpages. Each
/// part is sampled separately, because a few base pages among many superpages would be sampled only by chance.
type Piece = [Part; 2];

#[derive(Default)]
struct Part {
    holds: Private,
    ranges: Vec<(u64, u64)>,
}

fn add_to_pieces(
    pieces: &mut BTreeMap<u64, Piece>,
    region: &PageRegion,
    is_huge: bool,
    is_eligible: bool,
) {
    for (from, to) in in_pieces(region.start, region.end) {
        let part = &mut pieces.entry(from / CHUNK).or_default()[usize::from(is_huge)];
        part.holds += Private::of(to - from, is_huge, is_eligible);
        part.ranges.push((from, to));
    }
}

/// Splits an address range at the borders of pieces.
fn in_pieces(start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    let places = start / CHUNK..end.div_ceil(CHUNK);
    places.map(move |place| (start.max(place * CHUNK), end.min((place + 1) * CHUNK)))
}

/// Number of pages sampled for this many bytes.
fn sample_count(bytes: u64) -> u64 {
    (bytes / SAMPLE_BYTES).clamp(MIN_SAMPLES, MAX_SAMPLES)
}

/// Whether all sampled pages of a range are resident, and shared with other processes.
fn shares_all(pagemap: &Pagemap, from: u64, to: u64) -> Result<bool, ReadError> {
    let step = ((to - from) / sample_count(to - from)).max(1);
    for at in (from + step / 2..to).step_by(step as usize) {
        if pagemap.is_exclusive(at)? != Some(false) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Splits a piece into memory that only one process maps, and shared memory.
fn split(
    piece: &Piece,
    mut is_exclusive: impl FnMut(u64) -> Result<Option<bool>, ReadError>,
) -> Result<(Private, Private), ReadError> {
    let (mut exclusive, mut shared) = (Private::default(), Private::default());
    for part in piece {
        let share = part.exclusive_share(&mut is_exclusive)?;
        exclusive += part.holds.times(share);
        shared += part.holds.times(1.0 - share);
    }
    Ok((exclusive, shared))
}

impl Part {
    /// Share of a piece that no other process maps, estimated from pages at equal distances.
    fn exclusive_share(
        &self,
        mut is_exclusive: impl FnMut(u64) -> Result<Option<bool>, ReadError>,
    ) -> Result<f64, ReadError> {
        let bytes = self.holds.resident();
        if bytes == 0 {
            return Ok(0.0);
        }
        let step = (bytes / sample_count(bytes)).max(1);
        let (mut asked, mut exclusive, mut passed, mut next) = (0u32, 0u32, 0, step / 2);
        for (from, to) in &self.ranges {
            while next < passed + (to - from) {
                if let Some(is_own) = is_exclusive(from + (next - passed))? {
                    asked += 1;
                    exclusive += u32::from(is_own);
                }
                next += step;
            }
            passed += to - from;
        }
        Ok(if asked == 0 { 1.0 } else { f64::from(exclusive) / f64::from(asked) })
    }
}

impl Private {
    fn of(bytes: u64, is_huge: bool, is_eligible: bool) -> Self {
        Self {
            base: if is_huge { 0 } else { bytes },
            thp: if is_huge { bytes } else { 0 },
            // Memory in a superpage counts as eligible even if the mapping has changed since.
            eligible: if is_huge || is_eligible { bytes } else { 0 },
        }
    }

    fn resident(self) -> u64 {
        self.base + self.thp
    }

    fn times(self, share: f64) -> Self {
        let part = |bytes: u64| (bytes as f64 * share).round() as u64;
        Self { base: part(self.base), thp: part(self.thp), eligible: part(self.eligible) }
    }
}

impl std::ops::AddAssign for Private {
    fn add_assign(&mut self, other: Self) {
        self.base += other.base;
        self.thp += other.thp;
        self.eligible += other.eligible;
    }
}

impl Tally {
    fn coverage(&mut self) -> Coverage {
        let mut private = self.private;
        self.shared.values().for_each(|shared| private += *shared);
        let mut coverage = Coverage {
            anon_base: ByteSize(private.base),
            anon_thp: ByteSize(private.thp),
            swapped: ByteSize(self.swapped),
            eligible: ByteSize(private.eligible),
            eligible_huge: ByteSize(private.thp),
            ..Coverage::default()
        };
        for (object, ranges) in &mut self.objects {
            let all = ByteSize(covered(ranges));
            ranges.retain(|(.., is_huge)| *is_huge);
            let huge = ByteSize(covered(ranges));
            let base = ByteSize(all.bytes() - huge.bytes());
            let part = match (object.hugetlb, object.is_shmem) {
                (Some(size), _) => Coverage {
                    hugetlb_private: [(size, all)].into(),
                    eligible: all,
                    eligible_huge: all,
                    ..Coverage::default()
                },
                (None, true) => {
                    Coverage { shmem_pmd: huge, shmem_base: base, ..Coverage::default() }
                }
                (None, false) => {
                    Coverage { file_pmd: huge, file_base: base, ..Coverage::default() }
                }
            };
            coverage += part;
        }
        coverage
    }
}

/// Number of bytes that an object's ranges cover, without double counting. Sorts the ranges.
fn covered(ranges: &mut [(u64, u64, bool)]) -> u64 {
    ranges.sort_unstable();
    let (mut sum, mut reached) = (0, 0);
    for (from, to, _) in ranges.iter() {
        sum += to.saturating_sub(reached.max(*from));
        reached = reached.max(*to);
    }
    sum
}

/// Returns the parts of `start..end` outside all ranges of an object. Sorts the ranges.
fn gaps(ranges: &mut [(u64, u64, bool)], start: u64, end: u64) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let (mut gaps, mut reached) = (Vec::new(), start);
    for (from, to, _) in ranges.iter() {
        if *from > reached && reached < end {
            gaps.push((reached, end.min(*from)));
        }
        reached = reached.max(*to);
    }
    if reached < end {
        gaps.push((reached, end));
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_no_range_covers() {
        let mut known = [(20, 30, false), (0, 10, true), (5, 12, false)];
        assert_eq!(gaps(&mut known, 0, 40), [(12, 20), (30, 40)]);
        assert_eq!(gaps(&mut known, 8, 15), [(12, 15)]);
        assert_eq!(gaps(&mut known, 22, 29), []);
        assert_eq!(gaps(&mut known, 20, 30), []);
        assert_eq!(gaps(&mut known, 50, 60), [(50, 60)]);
        assert_eq!(gaps(&mut [], 1, 2), [(1, 2)]);
    }

    #[test]
    fn pieces_end_at_whole_multiples() {
        let cut: Vec<_> = in_pieces(CHUNK - 1, 2 * CHUNK + 1).collect();
        let pieces = [(CHUNK - 1, CHUNK), (CHUNK, 2 * CHUNK), (2 * CHUNK, 2 * CHUNK + 1)];
        assert_eq!(cut, pieces);
        assert_eq!(in_pieces(5, 7).collect::<Vec<_>>(), [(5, 7)]);
    }

    #[test]
    fn a_few_shared_base_pages_beside_superpages_are_counted_as_shared() {
        const MIB: u64 = 1 << 20;
        let mut pieces = BTreeMap::new();
        let mut add = |start, bytes, is_huge| {
            let categories = Categories::PRESENT;
            let region = PageRegion { start, end: start + bytes, categories };
            add_to_pieces(&mut pieces, &region, is_huge, true);
        };
        add(0, 56 * MIB, true);
        // Without a separate sample of each kind, equal distances over the whole piece could miss all these base pages.
        for at in [57, 59, 61, 63] {
            add(at * MIB, MIB / 2, false);
        }
        let (exclusive, shared) = split(&pieces[&0], |at| Ok(Some(at < 56 * MIB))).unwrap();
        assert_eq!((exclusive.thp, exclusive.base), (56 * MIB, 0));
        assert_eq!((shared.thp, shared.base), (0, 2 * MIB));
    }

    #[test]
    fn what_overlaps_is_counted_once() {
        assert_eq!(covered(&mut []), 0);
        assert_eq!(covered(&mut [(8, 12, true), (0, 4, false), (2, 6, true), (3, 5, false)]), 10);
        assert_eq!(covered(&mut [(0, 4, false), (0, 4, true), (4, 5, true)]), 5);
    }

    #[test]
    fn what_several_processes_share_is_counted_once() {
        let mut tally = Tally::default();
        let object =
            || Object { owner: None, is_shmem: true, hugetlb: None, device: (0, 1), inode: 7 };
        for _ in 0..3 {
            tally.objects.entry(object()).or_default().push((0, 4096, false));
        }
        tally.private = Private::of(100, true, true);
        tally.shared.insert(0, Private::of(10, false, true));
        let coverage = tally.coverage();
        assert_eq!(coverage.resident(), ByteSize(4096 + 110));
        assert_eq!((coverage.eligible, coverage.eligible_huge), (ByteSize(110), ByteSize(100)));
    }
}
