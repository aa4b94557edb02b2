//! Limits filled memory that programs do not use. It consists of zeroed pages of superpages, which a program did not
//! request and which cannot be taken back. See docs/decisions/live.md#10.

use std::collections::VecDeque;

use host::{MemInfo, cgroup, waste};
use units::Pid;

use crate::extent::{BYTES, PAGES, SCALE};
use crate::make;
use crate::turn::Executor;

/// Filled memory is at most 1/SHARE_OF_MEMORY of the programs' memory, within the next two bounds.
const SHARE_OF_MEMORY: u64 = 10;
/// Minimum of this limit, in bytes.
const LEAST: u64 = 16 << 20;
/// Maximum of this limit, in bytes.
const MOST: u64 = 64 << 20;
/// Filled memory is at most 1/SHARE_OF_AVAILABLE of the machine's available memory, so that filling triggers no OOM
/// killer.
const SHARE_OF_AVAILABLE: u64 = 10;
/// Filled memory is at most 1/SHARE_OF_GROUP of the control group's remaining memory, for the same reason.
const SHARE_OF_GROUP: u64 = 64;
/// Bytes left in the control group, in addition to the bytes that a call needs for its copy.
const LEFT_IN_GROUP: u64 = 4 * BYTES;
/// Ticks for which it is cached that a control group has no limit.
const CACHE_TICKS: u64 = 20_000;
/// Ticks for which the size of programs is cached.
const HELD_BELIEVED: u64 = 5_000;
/// Ticks of back-off after an unused superpage was found; doubled each time.
const MIN_REST: u64 = 5_000;
/// Maximum ticks of that back-off.
const MAX_REST: u64 = 100_000;
/// Number of base pages sampled to see whether a superpage is used.
const SAMPLES: u64 = 16;
/// Ticks after which a superpage is sampled to credit saved faults, and ticks until the second sample if most of it was
/// unused.
const CLAIM_AFTER: [u64; 2] = [2_000, 50_000];
/// If fewer superpages than this may be made ahead, this many are sampled again.
const READ_AGAIN: u64 = 8;
/// Number of superpages sampled at a time.
const CLAIMS: usize = 4;

/// Why a superpage is not filled.
const HELD: &str = "as much memory as allowed fills superpages, and is not used";

/// Filled base pages that no sample has found used.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// Filled superpages; the one sampled last is at the end.
    superpages: VecDeque<(Pid, u64, u64)>,
    pages: u64,
    /// Maximum number of filled pages where no control group limits them, and the tick until which it is cached.
    most: (u64, u64),
    /// Populated pages of the programs when `most` was computed.
    held: u64,
    /// A process whose control group has no limit, and until when that is cached (ticks).
    unlimited: Option<(Pid, u64)>,
    look_at: u64,
    failures: u8,
    /// Superpages that may have saved faults, oldest first.
    claims: VecDeque<Claim>,
}

/// A superpage filled with `pages`. `used` of them were found used by the last sample, or are credited.
#[derive(Debug, Clone, Copy)]
struct Claim {
    pid: Pid,
    start: u64,
    pages: u64,
    used: u64,
    reads: usize,
    due: u64,
}

impl Filled {
    /// Returns whether filling waits for the next sample.
    pub(crate) fn is_exhausted(&self, now: u64) -> bool {
        now < self.look_at
    }

    /// Returns when the next superpage is sampled for credit, in ticks.
    pub(crate) fn next_claim(&self) -> Option<u64> {
        self.claims.front().map(|claim| claim.due)
    }

    fn claim_later(&mut self, claim: Claim) {
        let at = self.claims.partition_point(|other| other.due <= claim.due);
        self.claims.insert(at, claim);
    }

    fn add(&mut self, pid: Pid, start: u64, pages: u64) {
        if pages > 0 {
            self.superpages.push_back((pid, start, pages));
            self.pages += pages;
        }
    }
}

impl Executor {
    /// Returns the extents of `starts` (ascending) that the limits allow now, with their numbers of missing pages. The
    /// other extents are wanted again when they grow, or tried again later.
    pub(crate) fn affordable(&mut self, pid: Pid, starts: &[u64]) -> Vec<(u64, u64)> {
        let now = self.now();
        let left = self.left_in_group(pid, now);
        let needed = LEFT_IN_GROUP + 2 * BYTES * starts.len() as u64;
        let is_short = left.is_some_and(|left| left < needed);
        let (mut affordable, mut more) = (Vec::new(), 0);
        for &start in starts {
            let Some(process) = self.processes.get_mut(&pid) else { break };
            let Some(&extent) = process.extents.get(&start) else { continue };
            // A fork may have shared the pages since the policy was asked; a superpage would copy them all.
            let is_shared = extent.is_reserved && process.is_shared(start);
            if is_short || is_shared {
                let errno = if is_shared { make::SHARED } else { make::SHORT };
                self.tally.failed(&extent, Some(errno));
                if let Some(extent) = process.extents.get_mut(&start) {
                    make::failed(extent, Some(errno), false, now);
                }
                continue;
            }
            let missing = u64::from(PAGES - extent.populated);
            let may = missing == 0 || self.may_fill(more + missing, left, now);
            if may {
                more += missing;
                affordable.push((start, missing));
            } else if let Some(process) = self.processes.get_mut(&pid)
                && let Some(extent) = process.extents.get_mut(&start)
            {
                (extent.is_wanted, extent.is_held) = (false, true);
                self.tally.last_failure = Some(HELD);
            }
        }
        affordable
    }

    /// Records filled superpages. A superpage made ahead counts as used until it is sampled.
    pub(crate) fn note_filled(&mut self, pid: Pid, asked: &[(u64, u64)]) {
        let now = self.now();
        let mut expected = 0;
        let Some(process) = self.processes.get(&pid) else { return };
        for &(start, missing) in asked {
            if missing > 0 && process.extents.get(&start).is_some_and(|extent| extent.is_huge) {
                self.filled.add(pid, start, missing);
                let is_ahead = missing == u64::from(PAGES);
                let (used, reads) = if is_ahead { (missing, 1) } else { (0, 0) };
                expected += used;
                let due = now + CLAIM_AFTER[reads];
                self.filled.claim_later(Claim { pid, start, pages: missing, used, reads, due });
            }
        }
        self.budget.saved(expected);
    }

    /// Samples filled superpages. Each page used since then saved a fault. See docs/decisions/live.md#12.
    pub(crate) fn claim(&mut self, now: u64) {
        for _ in 0..CLAIMS {
            let claim = self.filled.claims.front().copied().filter(|claim| claim.due <= now);
            let Some(claim) = claim else { return };
            self.filled.claims.pop_front();
            let Claim { pid, start, pages, used, reads, .. } = claim;
            let Some(unused) = self.unused_of(pid, start, pages) else { continue };
            let known = pages - unused;
            self.budget.saved(known.saturating_sub(used));
            self.budget.not_saved(used.saturating_sub(known));
            let again = CLAIM_AFTER.get(reads + 1).filter(|_| unused > pages / 4);
            if let Some(later) = again {
                let used = used.max(known);
                self.filled.claim_later(Claim {
                    used,
                    reads: reads + 1,
                    due: now + later,
                    ..claim
                });
            }
        }
    }

    /// Returns the bytes left in the process's control group; `None`: no limit.
    fn left_in_group(&mut self, pid: Pid, now: u64) -> Option<u64> {
        if self.filled.unlimited.is_some_and(|(other, until)| other == pid && now < until) {
            return None;
        }
        let left = cgroup::memory_available_of(&self.root, pid).map(|left| left.bytes());
        if left.is_none() {
            self.filled.unlimited = Some((pid, now + CACHE_TICKS));
        }
        left
    }

    /// Returns whether `more` pages may be filled. If not, first samples superpages, which may turn out to be used.
    fn may_fill(&mut self, more: u64, left: Option<u64>, now: u64) -> bool {
        loop {
            let in_group = left.map_or(u64::MAX, |left| left / SHARE_OF_GROUP / SCALE.base_page);
            if self.filled.pages + more <= self.most_filled(now).min(in_group) {
                return true;
            }
            if self.filled.is_exhausted(now) {
                return false;
            }
            if self.oldest_is_used() {
                self.filled.failures = 0;
            } else {
                let rest = (MIN_REST << self.filled.failures.min(16)).min(MAX_REST);
                self.filled.look_at = now + rest;
                self.filled.failures = self.filled.failures.saturating_add(1);
                return false;
            }
        }
    }

    /// Returns the maximum number of superpages to make ahead: a tenth of the programs' memory, less filled pages that
    /// no sample has found used. If little is left, samples some of these again.
    pub(crate) fn most_ahead(&mut self, now: u64) -> usize {
        let most = self.most_filled(now).min(self.filled.held / SHARE_OF_MEMORY);
        let pages = u64::from(PAGES);
        for _ in 0..READ_AGAIN {
            if most.saturating_sub(self.filled.pages) >= READ_AGAIN * pages {
                break;
            }
            self.oldest_is_used();
        }
        (most.saturating_sub(self.filled.pages) / pages) as usize
    }

    fn most_filled(&mut self, now: u64) -> u64 {
        if now >= self.filled.most.1 {
            let extents = self.processes.values().flat_map(|process| process.extents.values());
            let held: u64 = extents.map(|extent| u64::from(extent.populated)).sum();
            self.filled.held = held;
            let memory = held * SCALE.base_page / SHARE_OF_MEMORY;
            let machine = MemInfo::read(&self.root).ok().and_then(|machine| machine.available);
            let machine = machine.map_or(0, |available| available.bytes() / SHARE_OF_AVAILABLE);
            let most = memory.clamp(LEAST, MOST).min(machine);
            self.filled.most = (most / SCALE.base_page, now + HELD_BELIEVED);
        }
        self.filled.most.0
    }

    /// Samples the superpage that was sampled longest ago. Returns whether another quarter of it is used, or it is
    /// gone.
    fn oldest_is_used(&mut self) -> bool {
        let Some((pid, start, pages)) = self.filled.superpages.pop_front() else { return false };
        self.filled.pages -= pages;
        let Some(unused) = self.unused_of(pid, start, pages) else { return true };
        self.filled.add(pid, start, unused);
        unused <= pages * 3 / 4
    }

    /// Returns, by a sample, how many of the `pages` that filled the superpage are unused; `None`: it is no longer a
    /// superpage.
    fn unused_of(&self, pid: Pid, start: u64, pages: u64) -> Option<u64> {
        let sampled = waste::scattered(start, BYTES, PAGES.into(), SAMPLES);
        Some(match self.zeros_of(pid, start, sampled)? {
            (0, _) => pages,
            (read, zero) => pages.min(u64::from(PAGES) * u64::from(zero) / u64::from(read)),
        })
    }

    /// Reads these base pages of a superpage. Returns the number of pages read, and the number of all-zero pages among
    /// them. `None`: it is no longer a superpage, and reading memory that the program discarded would fault it in.
    pub(crate) fn zeros_of(
        &self,
        pid: Pid,
        start: u64,
        pages: impl Iterator<Item = u64>,
    ) -> Option<(u32, u32)> {
        let process = self.processes.get(&pid)?;
        let found = process.read_back(start, start + BYTES);
        if !process.extents.contains_key(&start) || found.get(&start) != Some(&true) {
            return None;
        }
        let addresses: Vec<u64> = pages.map(|page| start + page * SCALE.base_page).collect();
        Some(waste::zero_pages(pid, &addresses, SCALE.base_page))
    }
}
