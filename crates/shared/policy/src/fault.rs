//! Page faults: allocation, preparation and mapping (events 1 to 3), as far as they happen in a
//! fault.

use crate::action::{Compaction, DaemonAction, FaultAction, How, Wait, WatchAction};
use crate::ahead::Prefault as Ahead;
use crate::daemon::Daemon;
use crate::event::Result;
use crate::facts::{Backing, Mapping, Page, Reservation, Superpage};
use crate::rules::{
    CleanPages, CleanWrite, Effort, Eligible, Form, Grain, Growth, MapWhen, Prefault, Reclaim,
    Release, Rules, ScanOrder, Shortage, Trigger,
};
use crate::scan::{Pages, Promotion, Refused, SoftFault};
use crate::{Action, Attempt, Facts, Orders, Policy, Reads, Scale, orders, scan};

/// The rules in the form that faults need.
#[derive(Debug, Clone)]
pub(crate) struct AtFault {
    /// All sizes of the design.
    pub sizes: Orders,
    /// Whether a first fault requests a whole superpage.
    superpage: bool,
    /// Orders below a superpage that a fault may map.
    pub smaller: Orders,
    /// Orders above a superpage that a fault may map.
    pub larger: Orders,
    /// Orders of reservations.
    pub reserved: Orders,
    /// A region with at least this many populated pages becomes a candidate at once.
    crossing: u16,
    pub reads: Reads,
    /// Whether every fault outside superpages gets one base page, without further checks.
    one_page: bool,
    /// A fault in a superpage's reservation maps only its page, without further checks, while the reservation has fewer
    /// populated pages than this.
    one_reserved: Option<u32>,
    /// A reservation with at least this many populated pages is prepared whole.
    fill_at: Option<u16>,
}

/// State of a sequence of faults (Lameter's prefault).
#[derive(Debug, Clone)]
pub(crate) struct Sequence(Ahead);

impl Sequence {
    pub(crate) fn new(rules: &Rules) -> Self {
        let order = match rules.preparation.prefault {
            Prefault::Doubling(order) => order.into(),
            Prefault::None | Prefault::Resident(_) => 0,
        };
        Self(Ahead::new(order))
    }
}

impl AtFault {
    pub(crate) fn new(rules: &Rules, scale: &Scale) -> Self {
        let (allocation, preparation) = (&rules.allocation, &rules.preparation);
        let orders: Orders = allocation.sizes.iter().map(|&size| scale.order(size)).collect();
        let (large, reserves) = (scale.superpage, allocation.form == Form::Reservation);
        let is_whole = allocation.form == Form::Superpage;
        let at_fault = allocation.trigger == Trigger::FirstFault && is_whole;
        let smaller = if at_fault { orders.below(large) } else { Orders::NONE };
        let superpage = at_fault
            && preparation.grain == Grain::Superpage
            && rules.mapping.when == MapWhen::WithPreparation;
        let larger = if superpage { orders.above(large) } else { Orders::NONE };
        let scan = rules.mapping.scan.as_ref();
        let crossing = scan.filter(|scan| scan.order == ScanOrder::Crossing);
        let in_place = rules.mapping.when == MapWhen::Prepared;
        let one_reserved =
            reserves && allocation.shortage != Shortage::Preempt && !allocation.zero_page;
        let whole = 1u32 << large;
        let is_prepared_whole = reserves && preparation.grain == Grain::Superpage;
        let fill_at = preparation.fill_at.or(is_prepared_whole.then_some(1));
        let reads = [
            Reads::ABSENT.when(!smaller.is_empty() || !larger.is_empty()),
            Reads::UNRESERVED.when(reserves),
            Reads::FULL.when(in_place),
            Reads::DIRTY.when(in_place && rules.mapping.clean_pages == CleanPages::Uniform),
            Reads::COVERAGE.when(rules.mapping.sampling().is_some()),
            Reads::ZEROS.when(rules.deallocation.bloat.is_some()),
            Reads::WRITTEN.when(in_place),
            Reads::UNACCESSED.when(in_place && rules.mapping.needs_accessed),
            orders::reads(rules),
        ];
        Self {
            superpage: superpage && orders.has(large),
            reads: reads.into_iter().fold(Reads::default(), Reads::and),
            crossing: crossing.map_or(u16::MAX, |scan| scan.least_present.max(1)),
            one_page: !reserves
                && smaller.is_empty()
                && larger.is_empty()
                && !matches!(preparation.prefault, Prefault::Doubling(_)),
            one_reserved: one_reserved.then(|| fill_at.map_or(whole, |at| whole.min(at.into()))),
            fill_at,
            sizes: orders,
            smaller,
            larger,
            reserved: if reserves { orders } else { Orders::NONE },
        }
    }
}

/// Which faults on adjacent pages of a region with base pages get one base page each and cause nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// Unknown: decide each fault separately.
    None,
    /// All faults. Any free page serves them.
    Base,
    /// Faults in a superpage's reservation, while the reservation has fewer populated pages than
    /// `below`.
    Reserved {
        /// Number of populated pages. Decide the fault that would reach it separately.
        below: u32,
    },
}

impl Policy {
    /// Predicts faults on untouched anonymous memory, for executors that map many pages at once.
    #[inline]
    pub fn plain(&self, write: bool, mapping: &Mapping) -> Plain {
        if !write && self.rules.allocation.zero_page {
            return Plain::None;
        }
        match self.at_fault {
            AtFault { one_page: true, .. } => Plain::Base,
            AtFault { one_reserved: Some(below), .. } if self.is_eligible(mapping) => {
                Plain::Reserved { below }
            }
            _ => Plain::None,
        }
    }

    /// Whether a mapping may have superpages, by the design and the program's advice.
    #[inline]
    pub fn is_eligible(&self, mapping: &Mapping) -> bool {
        let allocation = &self.rules.allocation;
        mapping.advised.unwrap_or(allocation.eligible == Eligible::Always)
            && (mapping.backing.is_anonymous() || allocation.form == Form::Reservation)
    }

    /// Decides a fault. Uses all facts except [`Facts::machine`].
    pub fn fault(&mut self, write: bool, facts: &Facts) -> FaultAction {
        if let Some(superpage) = facts.region.superpage {
            return self.under_superpage(write, superpage, &facts.mapping);
        }
        match facts.page {
            Page::Resident { cow: true, shared } | Page::Mapped { cow: true, shared } if write => {
                if shared {
                    FaultAction::CopyPage
                } else {
                    FaultAction::Reuse
                }
            }
            Page::Resident { .. } => self.resident(write, facts),
            Page::Mapped { .. } if write => FaultAction::MakeWritable,
            Page::Mapped { .. } => FaultAction::Nothing,
            Page::Pooled => FaultAction::MapPooled,
            Page::InObject => FaultAction::MapInObject,
            Page::Untouched => self.untouched(write, facts),
            Page::Swapped => self.reserved(facts),
        }
    }

    fn under_superpage(&self, write: bool, superpage: Superpage, mapping: &Mapping) -> FaultAction {
        match superpage {
            _ if !write => FaultAction::Nothing,
            Superpage { pooled: true, .. } => FaultAction::MapPooled,
            Superpage { zeros: true, order, .. } => self.fresh(self.size(order), mapping),
            Superpage { cow: true, shared: true, .. } => FaultAction::DemoteAndCopy,
            Superpage { cow: true, .. } => FaultAction::Reuse,
            _ if self.rules.unmapping.clean_write == CleanWrite::Demote => FaultAction::Demote,
            _ => FaultAction::MakeWritable,
        }
    }

    /// Decides the first touch of a page.
    fn untouched(&mut self, write: bool, facts: &Facts) -> FaultAction {
        let large = self.wants_superpage(facts).then_some(self.scale.superpage);
        let order = self.larger(self.at_fault.larger, facts).or(large);
        if !write && self.rules.allocation.zero_page && facts.mapping.backing.is_anonymous() {
            return FaultAction::MapZeros { order: order.unwrap_or(0) };
        }
        match order {
            Some(order) => self.fresh(order, &facts.mapping),
            None => self.reserved(facts),
        }
    }

    /// Whether a first fault should get a whole superpage.
    fn wants_superpage(&self, facts: &Facts) -> bool {
        self.at_fault.superpage
            && facts.region.populated == 0
            && facts.region.inside
            && !facts.region.has_table
            && self.is_eligible(&facts.mapping)
            && self.worth_it(self.scale.superpage, facts)
    }

    fn fresh(&self, order: u8, mapping: &Mapping) -> FaultAction {
        FaultAction::MakeSuperpage { order, effort: self.effort(mapping) }
    }

    fn effort(&self, mapping: &Mapping) -> Effort {
        let allocation = &self.rules.allocation;
        match mapping.advised {
            Some(true) => allocation.effort_advised,
            _ => allocation.effort,
        }
    }

    /// Returns the next action after a fault's action found no memory.
    pub fn no_memory(&mut self, action: FaultAction, facts: &Facts) -> FaultAction {
        match action {
            FaultAction::MakeSuperpage { order, .. } => self.no_fresh(order, facts),
            FaultAction::Reserve { order, .. } => self.not_reserved(order, facts),
            _ => self.base(Orders::NONE, facts),
        }
    }

    /// Memory has no free superpage of this size: tries the next smaller size, finally base pages.
    fn no_fresh(&mut self, order: u8, facts: &Facts) -> FaultAction {
        if order > self.scale.superpage {
            if let Some(order) = self.larger(self.at_fault.larger.below(order), facts) {
                return self.fresh(order, &facts.mapping);
            }
            if self.wants_superpage(facts) {
                return self.fresh(self.scale.superpage, &facts.mapping);
            }
        }
        self.base(facts.region.absent.below(order), facts)
    }

    /// Decides the first touch of a page that a reservation may hold.
    fn reserved(&mut self, facts: &Facts) -> FaultAction {
        if self.at_fault.reserved.is_empty() || !self.is_eligible(&facts.mapping) {
            return self.base(facts.region.absent, facts);
        }
        match facts.region.reservation {
            Some(reservation) => self.in_reservation(reservation, facts),
            None => self.reserve(self.at_fault.reserved, facts),
        }
    }

    fn in_reservation(&mut self, reservation: Reservation, facts: &Facts) -> FaultAction {
        if reservation.is_taken {
            return self.base(Orders::NONE, facts);
        }
        // The pages of a fully resident file lie in physical superpages, and a read maps a
        // superpage at once (FreeBSD: vm_fault_soft_fast).
        let is_file = facts.mapping.backing == Backing::File { cached: true };
        let is_first = reservation.populated == 0 && !facts.region.has_table;
        if is_file
            && is_first
            && facts.region.inside
            && reservation.order == self.scale.superpage
            && self.rules.mapping.when == MapWhen::Prepared
        {
            return FaultAction::MapFile;
        }
        FaultAction::MapReserved { around: self.around() }
    }

    /// Reserves the largest of these sizes that fits.
    fn reserve(&mut self, orders: Orders, facts: &Facts) -> FaultAction {
        let allocation = &self.rules.allocation;
        let region = &facts.region;
        let is_anonymous = facts.mapping.backing.is_anonymous();
        let fits = match allocation.growth {
            Growth::PastEnd if is_anonymous => region.begins,
            _ => region.begins.and(region.ends),
        };
        let Some(order) = orders.and(fits).and(region.unreserved).largest() else {
            return self.base(Orders::NONE, facts);
        };
        let is_large = order == self.scale.superpage;
        FaultAction::Reserve {
            order,
            effort: if is_large { self.effort(&facts.mapping) } else { Effort::None },
            preempt: allocation.shortage == Shortage::Preempt,
        }
    }

    /// Memory is too short for a reservation of this size: tries smaller sizes.
    fn not_reserved(&mut self, order: u8, facts: &Facts) -> FaultAction {
        self.reserve(self.at_fault.reserved.below(order), facts)
    }

    /// Maps the largest size below a superpage whose aligned pages are all absent (mTHP), or else base pages.
    fn base(&mut self, absent: Orders, facts: &Facts) -> FaultAction {
        let smaller = self.at_fault.smaller;
        if !smaller.is_empty() && self.is_eligible(&facts.mapping) {
            let region = &facts.region;
            let fits = smaller.and(absent).and(region.begins).and(region.ends);
            if let Some(order) = fits.iter().rev().find(|&order| self.worth_it(order, facts)) {
                return FaultAction::MakeSuperpage { order, effort: Effort::None };
            }
        }
        let pages = match self.rules.preparation.prefault {
            Prefault::Doubling(_) => self.sequence.0.at(facts.place.0, facts.place.1) as u32,
            Prefault::None | Prefault::Resident(_) => 1,
        };
        FaultAction::MapBase { pages }
    }

    /// Number of resident pages to map read-only on each side (FreeBSD: vm_fault_prefault).
    fn around(&self) -> u8 {
        match self.rules.preparation.prefault {
            Prefault::Resident(side) => side,
            Prefault::None | Prefault::Doubling(_) => 0,
        }
    }

    fn resident(&self, write: bool, facts: &Facts) -> FaultAction {
        match self.prepared(write, facts) {
            Some(writable) => FaultAction::MapInPlace { writable },
            None => FaultAction::MapResident { around: self.around() },
        }
    }

    /// After a page of a reservation was prepared, decides whether to prepare the rest at once (Quicksilver's
    /// synchronous preparation).
    pub(crate) fn populated(&self, facts: &Facts) -> Action {
        let (Some(at), Some(reservation)) = (self.at_fault.fill_at, facts.region.reservation)
        else {
            return Action::Nothing;
        };
        let Mapping { backing, forked, was_swapped, .. } = facts.mapping;
        let fills = reservation.order == self.scale.superpage
            && reservation.populated < 1 << reservation.order
            && reservation.populated >= at.into()
            && !reservation.is_bad
            && backing.is_anonymous()
            // Only objects of type OBJT_DEFAULT without a backing object (Quicksilver, vm_fault.c: vm_fault_hold).
            && !forked
            && !was_swapped
            // An object shorter than the extent cannot fill the extent, but a heap may still grow.
            && (backing == Backing::Heap || facts.region.inside);
        if fills { Action::Populate } else { Action::Nothing }
    }

    /// After all pages of a reservation were prepared, decides whether to map a superpage although its base pages were
    /// never mapped.
    pub(crate) fn mapped_at_once(&self, write: bool, facts: &Facts) -> Action {
        self.prepared(write, facts).map_or(Action::Nothing, |writable| self.in_place(writable))
    }

    /// For [`Self::mapped_at_once`], returns whether the superpage is writable; `None`: do not map
    /// a superpage.
    fn prepared(&self, write: bool, facts: &Facts) -> Option<bool> {
        let region = &facts.region;
        let is_full = region.reservation.is_some_and(|reservation| reservation.is_full);
        if self.rules.mapping.when != MapWhen::Prepared || !is_full {
            return None;
        }
        let backing = facts.mapping.backing;
        let found = scan::direct(
            &SoftFault {
                full: true,
                valid: true,
                inside: region.inside,
                congruent: true,
                wired: false,
                writable: facts.mapping.writable && !matches!(backing, Backing::File { .. }),
                busy: false,
                dirty: &region.dirty,
                slot: (facts.place.0 & 511) as u16,
                anonymous: backing.is_anonymous() && !facts.mapping.forked,
            },
            self.rules.mapping.clean_pages,
        );
        match found {
            Promotion::ReadWrite => Some(true),
            Promotion::ReadOnly if !write => Some(false),
            _ => None,
        }
    }

    /// After a page was mapped, decides whether to map all pages of its region as one superpage.
    pub(crate) fn mapped(&self, facts: &Facts) -> Action {
        let region = &facts.region;
        let is_full = region.reservation.is_some_and(|reservation| reservation.is_full);
        if self.rules.mapping.when != MapWhen::Prepared
            || region.superpage.is_some()
            || !is_full
            || !region.is_mapped
        {
            return Action::Nothing;
        }
        let is_file = matches!(facts.mapping.backing, Backing::File { .. });
        match scan::promotion(&Pages {
            full: true,
            mapped: true,
            uniform: !region.has_cow,
            accessed: !self.rules.mapping.needs_accessed || !region.has_unaccessed,
            writable: facts.mapping.writable && !is_file,
            dirty: &region.dirty,
        }) {
            Promotion::ReadWrite => self.in_place(true),
            Promotion::ReadOnly => self.in_place(false),
            Promotion::None(Refused::MixedDirty) => Action::WriteProtect,
            Promotion::None(_) => Action::Nothing,
        }
    }

    fn in_place(&self, writable: bool) -> Action {
        let how = How::InPlace { writable };
        Action::MakeSuperpage { order: self.scale.superpage, how, effort: Effort::None }
    }

    /// Whether this growth of a region crosses a threshold. Executors need not report other growth
    /// ([`crate::Event::Grew`]).
    #[inline]
    pub fn is_crossed(&self, before: u16, after: u16) -> bool {
        (before..after).contains(&(self.at_fault.crossing - 1))
    }

    /// After memory was populated, decides whether its region becomes a candidate of the scan at once. Excludes a heap
    /// that does not cover the whole region yet, and reservations, which have superpages already.
    #[inline]
    pub(crate) fn grew(&self, before: u16, after: u16, facts: &Facts) -> Action {
        let region = &facts.region;
        let is_new = region.inside && region.reservation.is_none();
        if is_new && self.is_crossed(before, after) { Action::List } else { Action::Nothing }
    }
}

// Event 1, allocation: actions when no memory is free.

/// State of a superpage allocation that compacts and reclaims (`__alloc_pages_slowpath` of a costly order). A fault of
/// Linux 5.4 and later makes two (`alloc_pages_mpol`): the first on its own node, asynchronously. Executors return it
/// unchanged. See docs/decisions/lab-model.md#22.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direct {
    /// Mode of the second compaction attempt.
    pub second: Compaction,
    /// Whether to give up if compaction could not be tried.
    pub gives_up: bool,
    /// Whether the second compaction attempt has begun.
    pub is_second: bool,
    /// Mode of the second compaction attempt of the allocation that follows if this one fails.
    pub then: Option<Compaction>,
}

/// Minimum number of pages reclaimed together (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;

impl Policy {
    /// When no base page is free: releases memory that the design holds back, then reclaims pages.
    pub(crate) fn no_page(&self, wanted: u64) -> Action {
        match self.breaks_reservations() {
            true => Action::BreakReservation { wanted },
            false => Action::ReleaseHeld { wanted },
        }
    }

    /// Returns the next action after `tried` freed nothing.
    pub(crate) fn still_no_page(&self, tried: Action) -> Action {
        match tried {
            Action::BreakReservation { wanted } => Action::ReleaseHeld { wanted },
            Action::ReleaseHeld { wanted } => self.reclaim(wanted.max(CLUSTER), None),
            _ => Action::GiveUp,
        }
    }

    /// Whether reservations are broken when memory runs out.
    pub fn breaks_reservations(&self) -> bool {
        self.rules.allocation.break_reservations
    }

    fn reclaim(&self, pages: u64, direct: Option<Direct>) -> Action {
        Action::Reclaim { pages, lumpy: self.is_lumpy(pages), direct }
    }

    /// Whether a reclaim of this many pages takes them from one aligned block.
    pub(crate) fn is_lumpy(&self, pages: u64) -> bool {
        self.rules.memory.reclaim == Reclaim::Lumpy && pages >= 1 << self.scale.superpage
    }

    /// Returns the first action when no superpage is free.
    pub(crate) fn no_superpage(&self, effort: Effort, is_copy: bool) -> Action {
        use Compaction::{Async, SyncLight};
        let (second, gives_up, then) = match (effort, is_copy) {
            (Effort::None, _) => return Action::GiveUp,
            (Effort::Wake, _) => return Action::Wake,
            (Effort::Direct, false) => (Async, true, Some(Async)),
            (Effort::Direct, true) => (Async, true, None),
            (Effort::DirectRetry, false) => (Async, true, Some(SyncLight)),
            (Effort::DirectRetry, true) => (SyncLight, false, None),
            // Linux 4.3: the second compaction is asynchronous for a fault, and SYNC_LIGHT for khugepaged.
            (Effort::Direct43, false) => (Async, true, None),
            (Effort::Direct43, true) => (SyncLight, true, None),
        };
        self.begin(Direct { second, gives_up, is_second: false, then })
    }

    fn begin(&self, direct: Direct) -> Action {
        match self.compacts() {
            true => Action::Compact { mode: Compaction::Async, direct: Some(direct) },
            false => self.reclaim_for(direct),
        }
    }

    /// Returns the next action if compaction made no superpage free.
    pub(crate) fn after_compaction(&self, direct: Direct, result: Result) -> Action {
        let has_given_up = direct.gives_up && result == Result::Unavailable;
        if !direct.is_second && !has_given_up {
            return self.reclaim_for(direct);
        }
        direct.then.map_or(Action::GiveUp, |second| {
            let gives_up = second == Compaction::Async;
            self.begin(Direct { second, gives_up, is_second: false, then: None })
        })
    }

    /// Returns the next action if reclaim made no superpage free.
    pub(crate) fn after_reclaim(&self, direct: Direct) -> Action {
        if !self.compacts() {
            return Action::GiveUp;
        }
        let again = Direct { is_second: true, ..direct };
        Action::Compact { mode: direct.second, direct: Some(again) }
    }

    /// When the pool lacks a superpage: compacts memory, then reclaims pages.
    pub(crate) fn no_pool_page(&self, tried: Attempt) -> Action {
        let reclaims = self.rules.memory.reclaim != Reclaim::None;
        match (tried, self.rules.allocation.shortage) {
            (Attempt::Nothing, _) => Action::Compact { mode: Compaction::Sync, direct: None },
            (Attempt::Compaction, _) if reclaims => self.reclaim(1 << self.scale.superpage, None),
            (_, Shortage::Refuse) => Action::Refuse,
            (_, Shortage::BasePage | Shortage::Preempt) => Action::GiveUp,
        }
    }

    fn reclaim_for(&self, direct: Direct) -> Action {
        self.reclaim(1 << self.scale.superpage, Some(direct))
    }

    fn compacts(&self) -> bool {
        self.rules.memory.reclaim == Reclaim::Compaction
    }
}

// Event 4: the mapping of a superpage is destroyed; its frames are released or held.

impl Policy {
    /// Decides the effect of unmapping pages of a superpage. Unmapping part of a pool page is refused, so the page
    /// stays.
    pub(crate) fn unmapped(&self, whole: bool, facts: &Facts) -> Action {
        match facts.region.superpage {
            None => Action::Nothing,
            Some(_) if whole => Action::Release,
            Some(_) if facts.region.is_pooled => Action::Keep,
            Some(_) => Action::Demote,
        }
    }

    /// Decides the effect of changing the protection of pages of a superpage. For part of a pool
    /// page the change is refused.
    pub(crate) fn protected(&self, whole: bool, facts: &Facts) -> Action {
        let is_split = facts.region.superpage.is_some() && !facts.region.is_pooled && !whole;
        if is_split && self.rules.unmapping.on.protect { Action::Demote } else { Action::Keep }
    }

    /// Decides the effect of a second mapping of a superpage's pages. Every mapping of a shared object uses base pages.
    pub(crate) fn shared(&self, whole: bool, private: bool, facts: &Facts) -> Action {
        match facts.region.superpage {
            None => Action::Keep,
            Some(_) if facts.region.is_pooled || whole && private => Action::Keep,
            Some(_) => Action::Demote,
        }
    }

    /// Decides whether to hold or release the unmapped frames of a split superpage.
    pub(crate) fn demoted(&self, reserved: bool) -> Action {
        let holds = self.rules.deallocation.release == Release::UnderPressure;
        if holds && !reserved { Action::Hold } else { Action::Release }
    }
}

// Event 4 in the background: a daemon splits superpages with uneven accesses (HugeScope, FHPM).
//
// A pass watches some superpages for a while: it maps them by base pages, in place, so that each base page has an
// accessed bit. Then it splits each superpage for good, or maps it as one again.

impl Policy {
    /// Begins a pass, or continues it when its window is over.
    pub(crate) fn split_begins(&mut self, facts: &Facts) -> DaemonAction {
        let Some(scan) = self.rules.unmapping.scan else { return DaemonAction::Wait(Wait::Period) };
        let is_short = scan.below_percent >= 100
            || facts.machine.free * 100 < u64::from(scan.below_percent) * facts.machine.pages;
        match self.passes[Daemon::Split as usize].has_begun {
            true => DaemonAction::Watch(WatchAction::Visit),
            false if is_short => DaemonAction::Watch(WatchAction::Begin { most: scan.superpages }),
            false => DaemonAction::Wait(Wait::Period),
        }
    }

    /// Returns the next action after superpages were put under watch, or after one of them was
    /// visited.
    pub(crate) fn split_goes_on(
        &self,
        action: WatchAction,
        result: Result,
        facts: &Facts,
    ) -> DaemonAction {
        let window = self.rules.unmapping.scan.map(|scan| self.scale.ticks_of(scan.window));
        match (action, result) {
            (_, Result::Nothing) => DaemonAction::Wait(Wait::Period),
            (WatchAction::Begin { .. }, _) => DaemonAction::Wait(Wait::Pause(window.unwrap_or(0))),
            _ if facts.machine.is_piece_done => DaemonAction::Wait(Wait::More),
            _ => DaemonAction::Watch(WatchAction::Visit),
        }
    }

    /// Decides whether to split a watched superpage.
    pub(crate) fn watched(&self, facts: &Facts) -> Action {
        let order = self.scale.superpage;
        match &self.rules.unmapping.when {
            Some(when) if self.holds(Some(when), order, facts) => Action::Demote,
            _ => Action::MakeSuperpage {
                order,
                how: How::InPlace { writable: true },
                effort: Effort::None,
            },
        }
    }
}
