//! Rules between trigger, form, preparation and mapping.

use super::predicates::*;
use super::{Rule, table};
use crate::*;
use units::ByteSize;

const FILLS: &str = "fills reservations of superpages: needs 2M or more among its sizes";
const IS_LARGE: &str =
    "is for superpages; smaller sizes are taken if they are free: needs 2M or more among its sizes";

pub(super) const RULES: &[Rule] = table! { |r|
    // Trigger and form: which of the twelve pairs are valid.
    [FORM, TRIGGER] "a pool is reserved from when memory is mapped: needs trigger = \"mmap\""
        => form(r, Form::Pool) && !trigger(r, Trigger::Mmap);
    [TRIGGER, FORM] "what is set aside when memory is mapped comes from a pool: needs form = \"pool\""
        => trigger(r, Trigger::Mmap) && !form(r, Form::Pool);
    [FORM, TRIGGER] "a reservation is made for a fault: needs trigger = \"first-fault\""
        => form(r, Form::Reservation) && !trigger(r, Trigger::FirstFault);
    // Requirements of the trigger on the mapping.
    [WHEN, TRIGGER] "with trigger = \"never\" nothing is mapped large: needs when = \"never\""
        => trigger(r, Trigger::Never) && r.mapping.when != MapWhen::Never;
    [WHEN, TRIGGER] "with trigger = \"scan\" no fault maps a superpage: needs when = \"never\""
        => trigger(r, Trigger::Scan) && r.mapping.when != MapWhen::Never;
    [TRIGGER, SCAN] "needs a [mapping.scan] that makes superpages"
        => trigger(r, Trigger::Scan) && r.mapping.scan.is_none();
    [SCAN, TRIGGER] "makes superpages: needs trigger = \"scan\", or \"first-fault\" with the scan behind it"
        => r.mapping.scan.is_some() && (trigger(r, Trigger::Never) || trigger(r, Trigger::Mmap));
    // Requirements of the form on preparation and mapping.
    [GRAIN, FORM, TRIGGER] "a superpage mapped at the fault is prepared whole: needs grain = \"superpage\""
        => whole_at_fault(r) && r.preparation.grain == Grain::Page;
    [WHEN, FORM, TRIGGER]
        "a superpage prepared whole is mapped with it: needs when = \"with-preparation\" (\"prepared\" goes with \
         form = \"reservation\")"
        => whole_at_fault(r) && r.mapping.when != MapWhen::WithPreparation;
    [WHEN, FORM] "a reservation is mapped in place once it is prepared: needs when = \"prepared\", or \"never\""
        => form(r, Form::Reservation) && r.mapping.when == MapWhen::WithPreparation;
    [GRAIN, TRIGGER] "base pages are prepared singly: trigger = \"never\" needs grain = \"page\""
        => trigger(r, Trigger::Never) && r.preparation.grain == Grain::Superpage;
    [GRAIN, TRIGGER] "a scan prepares what it makes whole: trigger = \"scan\" needs grain = \"superpage\""
        => trigger(r, Trigger::Scan) && r.preparation.grain == Grain::Page;
    [WHEN, SIZES] "maps a superpage in place: needs 2M or more among its sizes (smaller ones take when = \"never\")"
        => r.mapping.when == MapWhen::Prepared && only_small(r);
    [FILL_AT, SIZES] FILLS
        => r.preparation.fill_at.is_some() && only_small(r);
    [BACKGROUND, SIZES] FILLS
        => r.preparation.background.is_some() && only_small(r);
    ["preparation.zeroing", FORM, TRIGGER, SIZES]
        "is about more than a base page at once, which nothing here zeroes: leave it out"
        => r.preparation.stores != ZeroStores::Temporal && !zeroes_many(r);
    [BULK, FORM, TRIGGER, SIZES] "is about more than a base page at once, which nothing here zeroes: leave it out"
        => r.preparation.bulk > BASE && !zeroes_many(r) && r.preparation.prezero.is_none();
    [FILL_AT, FORM] "fills a reservation: needs form = \"reservation\""
        => r.preparation.fill_at.is_some() && !form(r, Form::Reservation);
    [FILL_AT, GRAIN] "fills reservations that are prepared page by page: needs grain = \"page\""
        => r.preparation.fill_at.is_some() && r.preparation.grain == Grain::Superpage;
    [BACKGROUND, FORM] "fills reservations: needs form = \"reservation\""
        => r.preparation.background.is_some() && !form(r, Form::Reservation);
    [BACKGROUND, GRAIN] "fills reservations that are prepared page by page: needs grain = \"page\""
        => r.preparation.background.is_some() && r.preparation.grain == Grain::Superpage;
    [BACKGROUND_AT, FILL_AT] "must be less than fill-at, or faults leave it nothing to fill"
        => fill(r, |fill| r.preparation.fill_at.is_some_and(|at| fill.at >= at));
    ["mapping.clean-pages", WHEN] "is about mapping in place: \"relaxed\" needs when = \"prepared\""
        => r.mapping.clean_pages == CleanPages::Relaxed && r.mapping.when != MapWhen::Prepared;
    ["mapping.needs-accessed", WHEN] "is about mapping in place: needs when = \"prepared\""
        => r.mapping.needs_accessed && r.mapping.when != MapWhen::Prepared;
    ["unmapping.on", FORM] "freeing a part of a superpage splits it, except in a pool: needs \"partial-free\""
        => !r.unmapping.on.free && !form(r, Form::Pool);
    ["unmapping.on", FORM] "superpages of a pool are never split: needs on = []"
        => r.unmapping.on.free != r.unmapping.on.protect && form(r, Form::Pool);
    ["unmapping.clean-write", WHEN] "there are clean superpages only with when = \"prepared\""
        => r.unmapping.clean_write == CleanWrite::Demote && r.mapping.when != MapWhen::Prepared;
    // Requirements of other allocation keys on the form.
    ["allocation.growth", FORM] "only a reservation may reach past the mapping: needs form = \"reservation\""
        => r.allocation.growth != Growth::Within && !form(r, Form::Reservation);
    ["allocation.shortage", FORM] "only reservations can be preempted: needs form = \"reservation\""
        => r.allocation.shortage == Shortage::Preempt && !form(r, Form::Reservation);
    ["allocation.shortage", FORM] "only a pool can refuse: needs form = \"pool\""
        => r.allocation.shortage == Shortage::Refuse && !form(r, Form::Pool);
    ["allocation.break-reservations", FORM] "there are none to break: needs form = \"reservation\""
        => r.allocation.break_reservations && !form(r, Form::Reservation);
    ["allocation.zero-page", FORM, TRIGGER]
        "is mapped by a first read: needs trigger = \"first-fault\" and form = \"superpage\""
        => r.allocation.zero_page && !(trigger(r, Trigger::FirstFault) && form(r, Form::Superpage));
    [SIZES, TRIGGER] "with trigger = \"never\" no superpage is made, so sizes have no effect: leave them out"
        => trigger(r, Trigger::Never) && r.allocation.sizes != [ByteSize::mib(2)];
    ["allocation.eligible", FORM] "a pool backs every mapping: leave it out"
        => r.allocation.eligible != Eligible::Always && form(r, Form::Pool);
    [EFFORT, SIZES] IS_LARGE
        => r.allocation.effort != Effort::None && only_small(r);
    [ADVISED, SIZES] IS_LARGE
        => r.allocation.effort_advised != Effort::None && only_small(r);
    [SIZES, FORM] "a pool has one size"
        => form(r, Form::Pool) && r.allocation.sizes.len() > 1;
    [SIZES, TRIGGER]
        "without a condition a scan makes superpages of one size: more need trigger = \"first-fault\", or \
         mapping.scan.when"
        => trigger(r, Trigger::Scan) && r.allocation.sizes.len() > 1 && scan(r, |scan| scan.when.is_none());
    [SCAN, SIZES]
        "without a condition a scan makes superpages of the page table, and larger ones: needs 2M or more among its \
         sizes"
        => scan(r, |scan| scan.when.is_none()) && form(r, Form::Superpage) && only_small(r);
    [EFFORT, "allocation.eligible"]
        "is for mappings that were not advised, which have no superpages with eligible = \"advised\": use \
         effort-advised"
        => r.allocation.effort != Effort::None && r.allocation.eligible == Eligible::Advised;
    [EFFORT, TRIGGER] "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own"
        => r.allocation.effort != Effort::None && !trigger(r, Trigger::FirstFault);
    [ADVISED, TRIGGER] "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own"
        => r.allocation.effort_advised != Effort::None && !trigger(r, Trigger::FirstFault);
};
