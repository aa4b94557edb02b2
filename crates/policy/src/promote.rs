//! When FreeBSD maps a superpage in place: pure functions, the truth tables of its `pmap_promote_pde` and
//! `vm_fault_soft_fast`.

use crate::Population;
use crate::rules::CleanPages;

/// The base mappings under a virtual superpage, as `pmap_promote_pde` finds them.
#[derive(Debug, Clone, Copy)]
pub struct Pages<'a> {
    /// The reservation is fully populated.
    pub full: bool,
    /// All 512 entries of the page-table page are valid. In a full reservation they are contiguous.
    pub mapped: bool,
    /// All entries have the same protection, wiring, cache mode and so on.
    pub uniform: bool,
    /// All entries have their accessed bit, or it does not matter.
    pub accessed: bool,
    /// The mapping permits writes.
    pub writable: bool,
    /// Which pages were written through these entries.
    pub dirty: &'a Population,
}

/// A soft fault on a resident page of a superpage's worth of resident pages, as
/// `vm_fault_soft_fast` finds it.
#[derive(Debug, Clone, Copy)]
pub struct SoftFault<'a> {
    /// The reservation is fully populated.
    pub full: bool,
    /// All pages have their contents.
    pub valid: bool,
    /// The mapping holds the whole virtual superpage.
    pub inside: bool,
    /// Virtual and physical address have the same offset in a superpage.
    pub congruent: bool,
    /// The mapping is wired.
    pub wired: bool,
    /// The mapping permits writes.
    pub writable: bool,
    /// A page is busy.
    pub busy: bool,
    /// Which pages are dirty, whoever wrote them.
    pub dirty: &'a Population,
    /// The page that faulted.
    pub slot: u16,
    /// The object is anonymous and copies from no other.
    pub anonymous: bool,
}

/// The superpage mapping that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promotion {
    /// Writable, and dirty from the start: FreeBSD has no writable clean superpage.
    ReadWrite,
    /// Read-only; if the mapping permits writes, the first one demotes it.
    ReadOnly,
    /// None.
    None(Refused),
}

/// Why no superpage is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The reservation has clear pages.
    NotFull,
    /// Not all base pages are mapped.
    NotMapped,
    /// The entries' attributes differ.
    NotUniform,
    /// A page that was mapped beside a fault was not used since.
    NotAccessed,
    /// Some pages are dirty, some clean. The clean ones are write-protected now, and the next write to
    /// each tries again.
    MixedDirty,
    /// A page has no contents yet.
    NotValid,
    /// The virtual superpage reaches past the mapping.
    NotInside,
    /// Virtual and physical address differ in their offset.
    NotCongruent,
    /// The mapping is wired.
    Wired,
    /// A page is busy.
    Busy,
    /// A page beside the one that faulted is clean.
    NotDirty,
}

/// In-place promotion after a base page was mapped (`pmap_promote_pde`).
///
/// Writable clean entries are write-protected first, so the writable state of all entries must agree
/// after that: all dirty, or all clean. Quicksilver's relaxed rule changes [`direct`], not this.
pub fn promotion(pages: &Pages) -> Promotion {
    let clean = pages.dirty == &[0; 8];
    let dirty = pages.dirty == &[!0; 8];
    match pages {
        Pages { full: false, .. } => Promotion::None(Refused::NotFull),
        Pages { mapped: false, .. } => Promotion::None(Refused::NotMapped),
        Pages { uniform: false, .. } => Promotion::None(Refused::NotUniform),
        Pages { accessed: false, .. } => Promotion::None(Refused::NotAccessed),
        // An entry that may not be written carries no dirty bit.
        Pages { writable: false, .. } => Promotion::ReadOnly,
        _ if dirty => Promotion::ReadWrite,
        _ if clean => Promotion::ReadOnly,
        _ => Promotion::None(Refused::MixedDirty),
    }
}

/// A superpage mapped at once by a soft fault, without its base pages being mapped before
/// (`vm_fault_soft_fast`, `vm_page_ps_test`).
///
/// Under [`CleanPages::Relaxed`] clean pages of anonymous objects do not hinder (Quicksilver's released
/// code, `vm.relax`; its slides say the rule is for file-backed memory, which the code is not).
pub fn direct(fault: &SoftFault, clean_pages: CleanPages) -> Promotion {
    let mut dirty = *fault.dirty;
    dirty[usize::from(fault.slot / 64)] |= 1 << (fault.slot % 64);
    let relaxed = clean_pages == CleanPages::Relaxed && fault.anonymous;
    match fault {
        SoftFault { full: false, .. } => Promotion::None(Refused::NotFull),
        SoftFault { inside: false, .. } => Promotion::None(Refused::NotInside),
        SoftFault { congruent: false, .. } => Promotion::None(Refused::NotCongruent),
        SoftFault { wired: true, .. } => Promotion::None(Refused::Wired),
        SoftFault { valid: false, .. } => Promotion::None(Refused::NotValid),
        SoftFault { writable: false, .. } => Promotion::ReadOnly,
        SoftFault { busy: true, .. } => Promotion::None(Refused::Busy),
        _ if relaxed || dirty == [!0; 8] => Promotion::ReadWrite,
        _ => Promotion::None(Refused::NotDirty),
    }
}
