//! What trigger, form, preparation and mapping ask of each other.

use super::ask::*;
use super::{Rule, rule};
use crate::*;
use units::ByteSize;

const FILLS: &str = "fills reservations of superpages: needs 2M among its sizes (32M with base pages of 16K, 512M of 64K)";
const IS_LARGE: &str =
    "is for superpages; other sizes are taken if they are free: needs 2M among its sizes";

pub(super) const RULES: &[Rule] = &[
    // Trigger and form: which of the twelve pairs there are.
    rule(
        &[FORM, TRIGGER],
        "a pool is reserved from when memory is mapped: needs trigger = \"mmap\"",
        |r| form(r, Form::Pool) && !trigger(r, Trigger::Mmap),
    ),
    rule(
        &[TRIGGER, FORM],
        "what is set aside when memory is mapped comes from a pool: needs form = \"pool\"",
        |r| trigger(r, Trigger::Mmap) && !form(r, Form::Pool),
    ),
    rule(
        &[FORM, TRIGGER],
        "a reservation is made for a fault: needs trigger = \"first-fault\"",
        |r| form(r, Form::Reservation) && !trigger(r, Trigger::FirstFault),
    ),
    // What the trigger asks of the mapping.
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"never\" nothing is mapped large: needs when = \"never\"",
        |r| trigger(r, Trigger::Never) && r.mapping.when != MapWhen::Never,
    ),
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"scan\" no fault maps a superpage: needs when = \"never\"",
        |r| trigger(r, Trigger::Scan) && r.mapping.when != MapWhen::Never,
    ),
    rule(&[TRIGGER, SCAN], "needs a [mapping.scan] that makes superpages", |r| {
        trigger(r, Trigger::Scan) && r.mapping.scan.is_none()
    }),
    rule(
        &[SCAN, TRIGGER],
        "makes superpages: needs trigger = \"scan\", or \"first-fault\" with the scan behind it",
        |r| r.mapping.scan.is_some() && (trigger(r, Trigger::Never) || trigger(r, Trigger::Mmap)),
    ),
    // What the form asks of preparation and mapping.
    rule(
        &[GRAIN, FORM, TRIGGER],
        "a superpage mapped at the fault is prepared whole: needs grain = \"superpage\"",
        |r| whole_at_fault(r) && r.preparation.grain == Grain::Page,
    ),
    rule(
        &[WHEN, FORM, TRIGGER],
        "a superpage prepared whole is mapped with it: needs when = \"with-preparation\" \
         (\"prepared\" goes with form = \"reservation\")",
        |r| whole_at_fault(r) && r.mapping.when != MapWhen::WithPreparation,
    ),
    rule(
        &[WHEN, FORM],
        "a reservation is mapped in place once it is prepared: needs when = \"prepared\", or \"never\"",
        |r| form(r, Form::Reservation) && r.mapping.when == MapWhen::WithPreparation,
    ),
    rule(
        &[GRAIN, TRIGGER],
        "base pages are prepared singly: trigger = \"never\" needs grain = \"page\"",
        |r| trigger(r, Trigger::Never) && r.preparation.grain == Grain::Superpage,
    ),
    rule(
        &[GRAIN, TRIGGER],
        "a scan prepares what it makes whole: trigger = \"scan\" needs grain = \"superpage\"",
        |r| trigger(r, Trigger::Scan) && r.preparation.grain == Grain::Page,
    ),
    rule(
        &[WHEN, SIZES],
        "maps a superpage in place: needs 2M among its sizes (32M with base pages of 16K, 512M of 64K)",
        |r| r.mapping.when == MapWhen::Prepared && lacks_superpage(r),
    ),
    rule(&[FILL_AT, SIZES], FILLS, |r| r.preparation.fill_at.is_some() && lacks_superpage(r)),
    rule(&[BACKGROUND, SIZES], FILLS, |r| r.preparation.background.is_some() && lacks_superpage(r)),
    rule(
        &["preparation.zeroing", FORM, TRIGGER, SIZES],
        "is about more than a base page at once, which nothing here zeroes: leave it out",
        |r| r.preparation.stores != ZeroStores::Temporal && !zeroes_many(r),
    ),
    rule(
        &[BULK, FORM, TRIGGER, SIZES],
        "is about more than a base page at once, which nothing here zeroes: leave it out",
        |r| r.preparation.bulk > BASE && !zeroes_many(r) && r.preparation.prezero.is_none(),
    ),
    rule(&[FILL_AT, FORM], "fills a reservation: needs form = \"reservation\"", |r| {
        r.preparation.fill_at.is_some() && !form(r, Form::Reservation)
    }),
    rule(&[FILL_AT, GRAIN], "fills what was prepared page by page: needs grain = \"page\"", |r| {
        r.preparation.fill_at.is_some() && r.preparation.grain == Grain::Superpage
    }),
    rule(&[BACKGROUND, FORM], "fills reservations: needs form = \"reservation\"", |r| {
        r.preparation.background.is_some() && !form(r, Form::Reservation)
    }),
    rule(
        &[BACKGROUND, GRAIN],
        "fills what was prepared page by page: needs grain = \"page\"",
        |r| r.preparation.background.is_some() && r.preparation.grain == Grain::Superpage,
    ),
    rule(
        &[BACKGROUND_AT, FILL_AT],
        "must be less than fill-at, or faults leave it nothing to fill",
        |r| fill(r, |fill| r.preparation.fill_at.is_some_and(|at| fill.at >= at)),
    ),
    rule(
        &["mapping.clean-pages", WHEN],
        "is about mapping in place: \"relaxed\" needs when = \"prepared\"",
        |r| r.mapping.clean_pages == CleanPages::Relaxed && r.mapping.when != MapWhen::Prepared,
    ),
    rule(
        &["unmapping.on", FORM],
        "freeing a part of a superpage splits it, but for a pool's: needs \"partial-free\"",
        |r| !r.unmapping.on.free && !form(r, Form::Pool),
    ),
    rule(&["unmapping.on", FORM], "superpages of a pool are never split: needs on = []", |r| {
        let SplitOn { free, protect } = r.unmapping.on;
        free != protect && form(r, Form::Pool)
    }),
    rule(
        &["unmapping.clean-write", WHEN],
        "there are clean superpages only with when = \"prepared\"",
        |r| r.unmapping.clean_write == CleanWrite::Demote && r.mapping.when != MapWhen::Prepared,
    ),
    // What the rest of allocation asks of the form.
    rule(
        &["allocation.growth", FORM],
        "only a reservation may reach past the mapping: needs form = \"reservation\"",
        |r| r.allocation.growth != Growth::Within && !form(r, Form::Reservation),
    ),
    rule(
        &["allocation.shortage", FORM],
        "only reservations can be preempted: needs form = \"reservation\"",
        |r| r.allocation.shortage == Shortage::Preempt && !form(r, Form::Reservation),
    ),
    rule(&["allocation.shortage", FORM], "only a pool can refuse: needs form = \"pool\"", |r| {
        r.allocation.shortage == Shortage::Refuse && !form(r, Form::Pool)
    }),
    rule(
        &["allocation.break-reservations", FORM],
        "there are none to break: needs form = \"reservation\"",
        |r| r.allocation.break_reservations && !form(r, Form::Reservation),
    ),
    rule(
        &["allocation.zero-page", FORM, TRIGGER],
        "is mapped by a first read: needs trigger = \"first-fault\" and form = \"superpage\"",
        |r| {
            r.allocation.zero_page && !(trigger(r, Trigger::FirstFault) && form(r, Form::Superpage))
        },
    ),
    rule(
        &[SIZES, TRIGGER],
        "with trigger = \"never\" no superpage is made, so sizes have no effect: leave them out",
        |r| trigger(r, Trigger::Never) && r.allocation.sizes != [ByteSize::mib(2)],
    ),
    rule(&["allocation.eligible", FORM], "a pool backs every mapping: leave it out", |r| {
        r.allocation.eligible != Eligible::Always && form(r, Form::Pool)
    }),
    rule(&[EFFORT, SIZES], IS_LARGE, |r| r.allocation.effort != Effort::None && no_effort(r)),
    rule(&[ADVISED, SIZES], IS_LARGE, |r| {
        r.allocation.effort_advised != Effort::None && no_effort(r)
    }),
    rule(&[SIZES, FORM], "a pool has one size", |r| {
        form(r, Form::Pool) && r.allocation.sizes.len() > 1
    }),
    rule(
        &[SIZES, TRIGGER],
        "without a condition a scan makes superpages of one size: more need trigger = \"first-fault\", or \
         mapping.scan.when",
        |r| {
            trigger(r, Trigger::Scan)
                && r.allocation.sizes.len() > 1
                && scan(r, |scan| scan.when.is_none())
        },
    ),
    rule(
        &[SCAN, SIZES],
        "without a condition a scan makes superpages of the page table: needs 2M among its sizes (32M with base \
         pages of 16K, 512M of 64K)",
        |r| scan(r, |scan| scan.when.is_none()) && form(r, Form::Superpage) && lacks_superpage(r),
    ),
    rule(
        &[EFFORT, "allocation.eligible"],
        "is for mappings that were not advised, which have no superpages with eligible = \"advised\": use \
         effort-advised",
        |r| r.allocation.effort != Effort::None && r.allocation.eligible == Eligible::Advised,
    ),
    rule(
        &[EFFORT, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |r| r.allocation.effort != Effort::None && !trigger(r, Trigger::FirstFault),
    ),
    rule(
        &[ADVISED, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |r| r.allocation.effort_advised != Effort::None && !trigger(r, Trigger::FirstFault),
    ),
];

/// No size is one that an effort is made for.
fn no_effort(r: &Rules) -> bool {
    only_small(r) || form(r, Form::Reservation) && lacks_superpage(r)
}
