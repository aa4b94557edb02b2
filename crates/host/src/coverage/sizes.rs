//! `Coverage`: bytes by mapping size and kind, their sums and ratios.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use super::kind::MappingKind;
use crate::process::SmapsEntry;

/// Resident bytes by the size of the page table entry that maps them, and by kind. "Base" also
/// holds smaller large folios (mTHP): they are mapped by base-sized entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Anonymous, mapped by base-sized entries.
    pub anon_base: ByteSize,
    /// Anonymous, mapped by a PMD.
    pub anon_thp: ByteSize,
    /// Shared memory, mapped by base-sized entries.
    pub shmem_base: ByteSize,
    /// Shared memory, mapped by a PMD.
    pub shmem_pmd: ByteSize,
    /// Page cache, mapped by base-sized entries.
    pub file_base: ByteSize,
    /// Page cache, mapped by a PMD.
    pub file_pmd: ByteSize,
    /// hugetlb pages that one process maps, by page size.
    pub hugetlb_private: BTreeMap<PageSize, ByteSize>,
    /// hugetlb pages that several processes map, by page size.
    pub hugetlb_shared: BTreeMap<PageSize, ByteSize>,
    /// Bytes swapped out.
    pub swapped: ByteSize,
    /// Resident bytes that superpages could map: private anonymous memory in mappings that hold
    /// at least one whole aligned superpage, and all hugetlb.
    pub eligible: ByteSize,
    /// Of these, mapped by superpages.
    pub eligible_huge: ByteSize,
}

impl Coverage {
    /// One smaps entry; `superpage` is what counts as one superpage.
    pub(super) fn from_entry(
        entry: &SmapsEntry,
        kind: MappingKind,
        superpage: Option<PageSize>,
    ) -> Self {
        let mut coverage = Self { swapped: entry.swap, ..Self::default() };
        let (anon, anon_thp) = (entry.anonymous, entry.anon_huge);
        coverage.anon_thp = anon_thp;
        coverage.anon_base = less(anon, anon_thp);
        let rest = less(entry.rss, anon);
        coverage.shmem_pmd = entry.shmem_pmd;
        coverage.file_pmd = entry.file_pmd;
        let base = less(less(rest, entry.shmem_pmd), entry.file_pmd);
        let slot = match kind {
            MappingKind::Shmem => &mut coverage.shmem_base,
            _ => &mut coverage.file_base,
        };
        *slot = base;
        if let Some(size) = entry.kernel_page_size {
            add_sized(&mut coverage.hugetlb_private, size, entry.private_hugetlb);
            add_sized(&mut coverage.hugetlb_shared, size, entry.shared_hugetlb);
        }
        let roomy = superpage.is_some_and(|size| entry.mapping.holds_aligned(size));
        let hugetlb = coverage.hugetlb();
        // What is huge was eligible, whatever the mapping looks like now.
        let eligible = if roomy && kind.is_anonymous() { anon } else { anon_thp };
        coverage.eligible = plus(eligible, hugetlb);
        coverage.eligible_huge = plus(anon_thp, hugetlb);
        coverage
    }

    /// All hugetlb bytes.
    pub fn hugetlb(&self) -> ByteSize {
        let sizes = self.hugetlb_private.values().chain(self.hugetlb_shared.values());
        sizes.copied().fold(ByteSize(0), plus)
    }

    /// Bytes mapped by superpages, of every kind.
    pub fn superpage_bytes(&self) -> ByteSize {
        [self.anon_thp, self.shmem_pmd, self.file_pmd].into_iter().fold(self.hugetlb(), plus)
    }

    /// All resident bytes, hugetlb included.
    pub fn resident(&self) -> ByteSize {
        let base = [self.anon_base, self.shmem_base, self.file_base];
        base.into_iter().fold(self.superpage_bytes(), plus)
    }

    /// The share of resident bytes that superpages map; `None` when nothing is resident.
    pub fn ratio(&self) -> Option<f64> {
        share(self.superpage_bytes(), self.resident())
    }

    /// The share of eligible bytes that superpages map; `None` when nothing is eligible.
    pub fn anon_ratio(&self) -> Option<f64> {
        share(self.eligible_huge, self.eligible)
    }
}

impl AddAssign for Coverage {
    fn add_assign(&mut self, other: Self) {
        for (mine, more) in [
            (&mut self.anon_base, other.anon_base),
            (&mut self.anon_thp, other.anon_thp),
            (&mut self.shmem_base, other.shmem_base),
            (&mut self.shmem_pmd, other.shmem_pmd),
            (&mut self.file_base, other.file_base),
            (&mut self.file_pmd, other.file_pmd),
            (&mut self.swapped, other.swapped),
            (&mut self.eligible, other.eligible),
            (&mut self.eligible_huge, other.eligible_huge),
        ] {
            *mine = plus(*mine, more);
        }
        for (mine, more) in [
            (&mut self.hugetlb_private, other.hugetlb_private),
            (&mut self.hugetlb_shared, other.hugetlb_shared),
        ] {
            more.into_iter().for_each(|(size, bytes)| add_sized(mine, size, bytes));
        }
    }
}

impl Add for Coverage {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sum for Coverage {
    fn sum<I: Iterator<Item = Self>>(coverages: I) -> Self {
        coverages.fold(Self::default(), Add::add)
    }
}

fn add_sized(sizes: &mut BTreeMap<PageSize, ByteSize>, size: PageSize, bytes: ByteSize) {
    if bytes.bytes() > 0 {
        let mine = sizes.entry(size).or_default();
        *mine = plus(*mine, bytes);
    }
}

fn plus(a: ByteSize, b: ByteSize) -> ByteSize {
    ByteSize(a.bytes().saturating_add(b.bytes()))
}

fn less(a: ByteSize, b: ByteSize) -> ByteSize {
    ByteSize(a.bytes().saturating_sub(b.bytes()))
}

fn share(part: ByteSize, whole: ByteSize) -> Option<f64> {
    (whole.bytes() > 0).then(|| part.bytes() as f64 / whole.bytes() as f64)
}
