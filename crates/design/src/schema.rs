//! Every key of a design file, once: its table, its name, its field. Reading ([`crate::read`]) and
//! writing ([`crate::write`]) are two walks over this list, so they cannot differ.
//!
//! In each table plain keys come before sub-tables, as TOML wants them written.

use std::time::Duration;

use crate::field::{CleanWrite, Field, SplitOn};
use crate::*;
use policy::rules::defaults::PERIODIC;
use policy::{Condition, Rule};

/// A walk over the keys.
pub(crate) trait Keys: Sized {
    /// A key that has a default.
    fn key<T: Field>(&mut self, name: &'static str, value: &mut T);
    /// A key that may be absent.
    fn option<T: Field>(&mut self, name: &'static str, value: &mut Option<T>);
    /// A condition that may be absent.
    fn condition(&mut self, name: &'static str, rule: Rule, value: &mut Option<Condition>);
    /// Keys that go with another value of a key before them, as its words say.
    fn only_with(&mut self, names: &[&'static str], other: &'static str);
    /// A table whose keys have defaults.
    fn table(&mut self, name: &'static str, keys: impl FnOnce(&mut Self));
    /// A table that may be absent; `fresh` is what it holds if it is there and empty.
    fn optional_table<T>(
        &mut self,
        name: &'static str,
        value: &mut Option<T>,
        fresh: T,
        keys: impl FnOnce(&mut Self, &mut T),
    );
}

pub(crate) fn design<K: Keys>(keys: &mut K, design: &mut Design) {
    keys.key("name", &mut design.name);
    keys.key("summary", &mut design.summary);
    keys.table("allocation", |keys| allocation(keys, &mut design.rules.allocation));
    keys.table("preparation", |keys| preparation(keys, &mut design.rules.preparation));
    keys.table("mapping", |keys| mapping(keys, &mut design.rules.mapping));
    keys.table("unmapping", |keys| unmapping(keys, &mut design.rules.unmapping));
    keys.table("deallocation", |keys| deallocation(keys, &mut design.rules.deallocation));
    keys.table("memory", |keys| memory(keys, &mut design.rules.memory));
    keys.table("fault", |keys| {
        keys.key("locking", &mut design.rules.fault.locking);
        keys.key("rss", &mut design.rules.fault.resident);
    });
    let fresh = Estimate::default();
    keys.optional_table("estimate", &mut design.rules.estimate, fresh, |keys, estimate| {
        keys.key("miss-cycles", &mut estimate.miss_cycles);
        keys.key("prepare-cycles", &mut estimate.prepare_cycles);
        keys.key("shortage-cycles", &mut estimate.shortage_cycles);
    });
    let fresh = Profile::default();
    keys.optional_table("profile", &mut design.rules.profile, fresh, profile);
}

/// The keys of a profile, which may be a file of its own.
pub(crate) fn profile<K: Keys>(keys: &mut K, profile: &mut Profile) {
    keys.key("spans", &mut profile.spans);
}

fn allocation<K: Keys>(keys: &mut K, allocation: &mut Allocation) {
    keys.key("trigger", &mut allocation.trigger);
    keys.condition("when", Rule::Fault, &mut allocation.when);
    keys.key("form", &mut allocation.form);
    keys.key("sizes", &mut allocation.sizes);
    keys.key("eligible", &mut allocation.eligible);
    keys.key("effort", &mut allocation.effort);
    keys.key("effort-advised", &mut allocation.effort_advised);
    keys.key("growth", &mut allocation.growth);
    keys.key("shortage", &mut allocation.shortage);
    keys.key("zero-page", &mut allocation.zero_page);
    keys.key("break-reservations", &mut allocation.break_reservations);
}

fn preparation<K: Keys>(keys: &mut K, preparation: &mut Preparation) {
    keys.key("grain", &mut preparation.grain);
    keys.option("fill-at", &mut preparation.fill_at);
    keys.key("zeroing", &mut preparation.stores);
    keys.key("bulk", &mut preparation.bulk);
    let fresh = BackgroundFill::default();
    keys.optional_table("background", &mut preparation.background, fresh, |keys, fill| {
        keys.key("at", &mut fill.at);
        keys.key("every", &mut fill.every);
        keys.key("budget-pages", &mut fill.budget_pages);
    });
    let fresh = Prezero::default();
    keys.optional_table("prezero", &mut preparation.prezero, fresh, |keys, prezero| {
        keys.key("order", &mut prezero.order);
        keys.key("blocks", &mut prezero.blocks);
        keys.key("every", &mut prezero.every);
        keys.key("start-permille", &mut prezero.start_permille);
        keys.key("stop-permille", &mut prezero.stop_permille);
        keys.key("zeroing", &mut prezero.stores);
    });
    keys.table("prefault", |keys| {
        keys.key("kind", &mut preparation.prefault);
        match &mut preparation.prefault {
            Prefault::Resident(pages) => keys.key("pages", pages),
            _ => keys.only_with(&["pages"], "kind = \"resident\""),
        }
        match &mut preparation.prefault {
            Prefault::Doubling(order) => keys.key("order", order),
            _ => keys.only_with(&["order"], "kind = \"doubling\""),
        }
    });
}

fn mapping<K: Keys>(keys: &mut K, mapping: &mut Mapping) {
    keys.key("when", &mut mapping.when);
    keys.key("clean-pages", &mut mapping.clean_pages);
    keys.optional_table("scan", &mut mapping.scan, Scan::default(), |keys, scan| {
        keys.key("every", &mut scan.every);
        keys.key("regions", &mut scan.regions);
        keys.key("after-failure", &mut scan.after_failure);
        keys.key("least-present", &mut scan.least_present);
        keys.key("most-swapped", &mut scan.most_swapped);
        keys.key("referenced", &mut scan.referenced);
        keys.key("order", &mut scan.order);
        keys.condition("when", Rule::Scan, &mut scan.when);
        keys.key("effort", &mut scan.effort);
        keys.key("exclusive", &mut scan.exclusive);
        keys.key("cpu-percent", &mut scan.cpu_percent);
        let fresh = Sampling::default();
        keys.optional_table("sampling", &mut scan.sampling, fresh, |keys, sampling| {
            keys.key("every", &mut sampling.every);
            keys.key("window", &mut sampling.window);
            keys.key("newest-percent", &mut sampling.newest_percent);
        });
    });
}

fn unmapping<K: Keys>(keys: &mut K, unmapping: &mut Unmapping) {
    let mut on = SplitOn { free: unmapping.partial_free, protect: unmapping.partial_protect };
    keys.key("on", &mut on);
    (unmapping.partial_free, unmapping.partial_protect) = (on.free, on.protect);
    let mut clean_write = CleanWrite { demotes: unmapping.clean_write_demotes };
    keys.key("clean-write", &mut clean_write);
    unmapping.clean_write_demotes = clean_write.demotes;
    keys.condition("when", Rule::Split, &mut unmapping.when);
    keys.optional_table("scan", &mut unmapping.scan, Watch::default(), |keys, scan| {
        keys.key("every", &mut scan.every);
        keys.key("window", &mut scan.window);
        keys.key("superpages", &mut scan.superpages);
        keys.key("below-percent", &mut scan.below_percent);
    });
}

fn deallocation<K: Keys>(keys: &mut K, deallocation: &mut Deallocation) {
    keys.key("when", &mut deallocation.release);
    match &mut deallocation.release {
        Release::Inactive { after, every, budget_pages } => {
            keys.key("after", after);
            keys.key("every", every);
            keys.key("budget-pages", budget_pages);
        }
        _ => keys.only_with(&["after", "every", "budget-pages"], "when = \"inactive\""),
    }
    let fresh = BloatRecovery::default();
    keys.optional_table("bloat", &mut deallocation.bloat, fresh, |keys, bloat| {
        keys.key("every", &mut bloat.every);
        keys.key("below-percent", &mut bloat.below_percent);
        keys.key("until-percent", &mut bloat.until_percent);
        keys.key("more-zero-than", &mut bloat.more_zero_than);
    });
}

fn memory<K: Keys>(keys: &mut K, memory: &mut Memory) {
    keys.key("grouping", &mut memory.grouping);
    keys.key("reclaim", &mut memory.reclaim);
    keys.key("background-compaction", &mut memory.background_compaction);
    keys.key("proactiveness", &mut memory.proactiveness);
    keys.key("defer-shift", &mut memory.defer_shift);
    keys.key("contended-permille", &mut memory.contended_permille);
    keys.key("contended-pages", &mut memory.contended_pages);
    keys.option("pool-pages", &mut memory.pool_pages);
    keys.key("ideal", &mut memory.ideal);
    let periodic = &mut memory.periodic_compaction;
    type Periodic = (u32, Duration);
    let each = |keys: &mut K, (blocks, every): &mut Periodic| {
        keys.key("blocks", blocks);
        keys.key("every", every);
    };
    keys.optional_table("periodic-compaction", periodic, PERIODIC, each);
}
