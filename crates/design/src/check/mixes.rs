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
        |d| form(d, Form::Pool) && !trigger(d, Trigger::Mmap),
    ),
    rule(
        &[TRIGGER, FORM],
        "what is set aside when memory is mapped comes from a pool: needs form = \"pool\"",
        |d| trigger(d, Trigger::Mmap) && !form(d, Form::Pool),
    ),
    rule(
        &[FORM, TRIGGER],
        "a reservation is made for a fault: needs trigger = \"first-fault\"",
        |d| form(d, Form::Reservation) && !trigger(d, Trigger::FirstFault),
    ),
    // What the trigger asks of the mapping.
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"never\" nothing is mapped large: needs when = \"never\"",
        |d| trigger(d, Trigger::Never) && d.rules.mapping.when != MapWhen::Never,
    ),
    rule(
        &[WHEN, TRIGGER],
        "with trigger = \"scan\" no fault maps a superpage: needs when = \"never\"",
        |d| trigger(d, Trigger::Scan) && d.rules.mapping.when != MapWhen::Never,
    ),
    rule(&[TRIGGER, SCAN], "needs a [mapping.scan] that makes superpages", |d| {
        trigger(d, Trigger::Scan) && d.rules.mapping.scan.is_none()
    }),
    rule(
        &[SCAN, TRIGGER],
        "makes superpages: needs trigger = \"scan\", or \"first-fault\" with the scan behind it",
        |d| {
            d.rules.mapping.scan.is_some()
                && (trigger(d, Trigger::Never) || trigger(d, Trigger::Mmap))
        },
    ),
    // What the form asks of preparation and mapping.
    rule(
        &[GRAIN, FORM, TRIGGER],
        "a superpage mapped at the fault is prepared whole: needs grain = \"superpage\"",
        |d| whole_at_fault(d) && d.rules.preparation.grain == Grain::Page,
    ),
    rule(
        &[WHEN, FORM, TRIGGER],
        "a superpage prepared whole is mapped with it: needs when = \"with-preparation\" \
         (\"prepared\" goes with form = \"reservation\")",
        |d| whole_at_fault(d) && d.rules.mapping.when != MapWhen::WithPreparation,
    ),
    rule(
        &[WHEN, FORM],
        "a reservation is mapped in place once it is prepared: needs when = \"prepared\", or \"never\"",
        |d| form(d, Form::Reservation) && d.rules.mapping.when == MapWhen::WithPreparation,
    ),
    rule(
        &[GRAIN, TRIGGER],
        "base pages are prepared singly: trigger = \"never\" needs grain = \"page\"",
        |d| trigger(d, Trigger::Never) && d.rules.preparation.grain == Grain::Superpage,
    ),
    rule(
        &[GRAIN, TRIGGER],
        "a scan prepares what it makes whole: trigger = \"scan\" needs grain = \"superpage\"",
        |d| trigger(d, Trigger::Scan) && d.rules.preparation.grain == Grain::Page,
    ),
    rule(
        &[WHEN, SIZES],
        "maps a superpage in place: needs 2M among its sizes (32M with base pages of 16K, 512M of 64K)",
        |d| d.rules.mapping.when == MapWhen::Prepared && lacks_superpage(d),
    ),
    rule(&[FILL_AT, SIZES], FILLS, |d| d.rules.preparation.fill_at.is_some() && lacks_superpage(d)),
    rule(&[BACKGROUND, SIZES], FILLS, |d| {
        d.rules.preparation.background.is_some() && lacks_superpage(d)
    }),
    rule(
        &["preparation.zeroing", FORM, TRIGGER, SIZES],
        "is about more than a base page at once, which nothing here zeroes: leave it out",
        |d| d.rules.preparation.stores != ZeroStores::Temporal && !zeroes_many(d),
    ),
    rule(
        &[BULK, FORM, TRIGGER, SIZES],
        "is about more than a base page at once, which nothing here zeroes: leave it out",
        |d| {
            d.rules.preparation.bulk > BASE
                && !zeroes_many(d)
                && d.rules.preparation.prezero.is_none()
        },
    ),
    rule(&[FILL_AT, FORM], "fills a reservation: needs form = \"reservation\"", |d| {
        d.rules.preparation.fill_at.is_some() && !form(d, Form::Reservation)
    }),
    rule(&[FILL_AT, GRAIN], "fills what was prepared page by page: needs grain = \"page\"", |d| {
        d.rules.preparation.fill_at.is_some() && d.rules.preparation.grain == Grain::Superpage
    }),
    rule(&[BACKGROUND, FORM], "fills reservations: needs form = \"reservation\"", |d| {
        d.rules.preparation.background.is_some() && !form(d, Form::Reservation)
    }),
    rule(
        &[BACKGROUND, GRAIN],
        "fills what was prepared page by page: needs grain = \"page\"",
        |d| {
            d.rules.preparation.background.is_some()
                && d.rules.preparation.grain == Grain::Superpage
        },
    ),
    rule(
        &[BACKGROUND_AT, FILL_AT],
        "must be less than fill-at, or faults leave it nothing to fill",
        |d| fill(d, |fill| d.rules.preparation.fill_at.is_some_and(|at| fill.at >= at)),
    ),
    rule(
        &["mapping.clean-pages", WHEN],
        "is about mapping in place: \"relaxed\" needs when = \"prepared\"",
        |d| {
            d.rules.mapping.clean_pages == CleanPages::Relaxed
                && d.rules.mapping.when != MapWhen::Prepared
        },
    ),
    rule(
        &["unmapping.on", FORM],
        "freeing a part of a superpage splits it, but for a pool's: needs \"partial-free\"",
        |d| !d.rules.unmapping.partial_free && !form(d, Form::Pool),
    ),
    rule(&["unmapping.on", FORM], "superpages of a pool are never split: needs on = []", |d| {
        let Unmapping { partial_free, partial_protect, .. } = d.rules.unmapping;
        partial_free != partial_protect && form(d, Form::Pool)
    }),
    rule(
        &["unmapping.clean-write", WHEN],
        "there are clean superpages only with when = \"prepared\"",
        |d| d.rules.unmapping.clean_write_demotes && d.rules.mapping.when != MapWhen::Prepared,
    ),
    // What the rest of allocation asks of the form.
    rule(
        &["allocation.growth", FORM],
        "only a reservation may reach past the mapping: needs form = \"reservation\"",
        |d| d.rules.allocation.growth != Growth::Within && !form(d, Form::Reservation),
    ),
    rule(
        &["allocation.shortage", FORM],
        "only reservations can be preempted: needs form = \"reservation\"",
        |d| d.rules.allocation.shortage == Shortage::Preempt && !form(d, Form::Reservation),
    ),
    rule(&["allocation.shortage", FORM], "only a pool can refuse: needs form = \"pool\"", |d| {
        d.rules.allocation.shortage == Shortage::Refuse && !form(d, Form::Pool)
    }),
    rule(
        &["allocation.break-reservations", FORM],
        "there are none to break: needs form = \"reservation\"",
        |d| d.rules.allocation.break_reservations && !form(d, Form::Reservation),
    ),
    rule(
        &["allocation.zero-page", FORM, TRIGGER],
        "is mapped by a first read: needs trigger = \"first-fault\" and form = \"superpage\"",
        |d| {
            d.rules.allocation.zero_page
                && !(trigger(d, Trigger::FirstFault) && form(d, Form::Superpage))
        },
    ),
    rule(
        &[SIZES, TRIGGER],
        "with trigger = \"never\" no superpage is made, so sizes have no effect: leave them out",
        |d| trigger(d, Trigger::Never) && d.rules.allocation.sizes != [ByteSize::mib(2)],
    ),
    rule(&["allocation.eligible", FORM], "a pool backs every mapping: leave it out", |d| {
        d.rules.allocation.eligible != Eligible::Always && form(d, Form::Pool)
    }),
    rule(&[EFFORT, SIZES], IS_LARGE, |d| d.rules.allocation.effort != Effort::None && no_effort(d)),
    rule(&[ADVISED, SIZES], IS_LARGE, |d| {
        d.rules.allocation.effort_advised != Effort::None && no_effort(d)
    }),
    rule(&[SIZES, FORM], "a pool has one size", |d| {
        form(d, Form::Pool) && d.rules.allocation.sizes.len() > 1
    }),
    rule(
        &[SIZES, TRIGGER],
        "without a condition a scan makes superpages of one size: more need trigger = \"first-fault\", or \
         mapping.scan.when",
        |d| {
            trigger(d, Trigger::Scan)
                && d.rules.allocation.sizes.len() > 1
                && scan(d, |scan| scan.when.is_none())
        },
    ),
    rule(
        &[SCAN, SIZES],
        "without a condition a scan makes superpages of the page table: needs 2M among its sizes (32M with base \
         pages of 16K, 512M of 64K)",
        |d| scan(d, |scan| scan.when.is_none()) && form(d, Form::Superpage) && lacks_superpage(d),
    ),
    rule(
        &[EFFORT, "allocation.eligible"],
        "is for mappings that were not advised, which have no superpages with eligible = \"advised\": use \
         effort-advised",
        |d| {
            d.rules.allocation.effort != Effort::None
                && d.rules.allocation.eligible == Eligible::Advised
        },
    ),
    rule(
        &[EFFORT, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |d| d.rules.allocation.effort != Effort::None && !trigger(d, Trigger::FirstFault),
    ),
    rule(
        &[ADVISED, TRIGGER],
        "is a fault's: needs trigger = \"first-fault\"; a scan has an effort of its own",
        |d| d.rules.allocation.effort_advised != Effort::None && !trigger(d, Trigger::FirstFault),
    ),
];

/// No size is one that an effort is made for.
fn no_effort(d: &Design) -> bool {
    only_small(d) || form(d, Form::Reservation) && lacks_superpage(d)
}
