//! Predictions for made-up machines on which the right answer is known.

use superpage_prediction::{
    Curve, Demand, Faults, Native, Pair, Prices, Sequential, Watch, predict,
};
use trace::{Access, Backing, Block, Event, Page, Pages, Process};

/// Returns prices where data cost nothing and a TLB miss costs `ns` from 2^11 entries on, for both kinds of pages.
fn pair(ns: f64) -> Pair {
    let mean = |from: usize, k: usize| {
        (7..=k).fold(0.0, |mean, k| (mean + if k > from { ns } else { 0.0 }) / 2.0)
    };
    let curve =
        |from: usize| Curve { first: 6, ns: (6..22).map(|k| 1.0 + mean(from, k)).collect() };
    Pair { base: curve(11), superpage: curve(20) }
}

fn prices() -> Prices {
    let none = Sequential { base: 0.0, superpage: 0.0 };
    Prices {
        dependent: pair(100.0),
        reads: pair(20.0),
        writes: pair(20.0),
        sequential_reads: none,
        sequential_writes: none,
        faults: Faults { base: 1000.0, superpage: 100_000.0 },
    }
}

const REGIONS: u32 = 16;
const USES: u32 = 400_000;

/// Uniformly random reads of 16 regions, after each page was touched once.
fn uniform() -> Demand {
    let mut block = Block::default();
    let pages = Pages { first: Page(0), count: REGIONS * 512 };
    block.event(Event::Spawn(Process(0)));
    block.event(Event::Map { pages, address: 0, backing: Backing::Anonymous });
    block.accesses.extend((0..REGIONS * 512).map(|page| Access::write(Page(page))));
    let mut state = 1u64;
    for _ in 0..USES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        block.accesses.push(Access::read(Page((state >> 33) as u32 % (REGIONS * 512))));
    }
    let mut watch = Watch::default();
    watch.follow(&block);
    watch.finish().remove(0).1
}

/// Returns the seconds of translation if each use waits `ns`, with prices as in [`pair`]: of 2^13 pages, distances up
/// to 2^11 cost nothing, so three quarters of the uses pay.
fn translating(ns: f64) -> f64 {
    f64::from(USES) * 0.75 * ns * 1e-9
}

fn native(user_seconds: f64, system_seconds: f64) -> Native {
    Native { user_seconds, system_seconds, instructions: Some(0.0), mhz: 1000.0 }
}

fn close(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 0.03, "{a} is not {b}");
}

#[test]
fn a_chase_is_known_by_its_time() {
    let seconds = translating(100.0);
    let told = predict(&uniform(), &prices(), &native(seconds, 0.0));
    close(told.dependence, 1.0);
    close(told.translating.mid, 1.0);
    close(told.saved.mid, 1.0);
}

#[test]
fn so_are_independent_accesses() {
    let told = predict(&uniform(), &prices(), &native(translating(20.0), 0.0));
    assert!(told.dependence < 0.03, "{told:?}");
    close(told.saved.mid, 1.0);
}

#[test]
fn and_what_lies_between() {
    let told = predict(&uniform(), &prices(), &native(translating(60.0), 0.0));
    close(told.dependence, 0.5);
    assert!(
        told.translating.low <= told.translating.mid
            && told.translating.mid <= told.translating.high
    );
    close(told.translating.low, 20.0 / 60.0);
}

#[test]
fn work_that_is_no_access_is_not_translation() {
    // The run takes twice the chase's time. Half of that is instructions, 2.5 per cycle of one nanosecond.
    let seconds = translating(100.0);
    let run = Native { instructions: Some(seconds * 2.5e9), ..native(2.0 * seconds, 0.0) };
    let told = predict(&uniform(), &prices(), &run);
    close(told.dependence, 1.0);
    close(told.translating.mid, 0.5);
}

/// The same prices, and data cost 30 ns from 2^6 pages on.
fn with_data(pair: Pair) -> Pair {
    let far = |curve: Curve| {
        let ns = (0..).zip(curve.ns).map(|(i, ns)| ns + 30.0 * (1.0 - 0.5f64.powi(i)));
        Curve { ns: ns.collect(), ..curve }
    };
    Pair { base: far(pair.base), superpage: far(pair.superpage) }
}

#[test]
fn lines_beyond_the_first_cost_data_and_no_translation() {
    let all_data = 30.0 * f64::from(USES) * 1e-9;
    let prices = Prices { dependent: with_data(pair(100.0)), ..prices() };
    let mut demand = uniform();
    demand.lines_per_use = 3.0;
    let seconds = translating(100.0) + 3.0 * all_data;
    let told = predict(&demand, &prices, &native(seconds, 0.0));
    close(told.explained.1, seconds);
    close(told.translating.mid, translating(100.0) / seconds);
}

#[test]
fn data_that_must_have_been_nearer_leaves_translation_as_it_is() {
    // A TLB miss costs 20 ns. The run took less time than misses and data together.
    let all_data = 30.0 * f64::from(USES) * 1e-9;
    let prices = Prices { reads: with_data(pair(20.0)), ..prices() };
    let seconds = translating(20.0) + all_data / 2.0;
    let told = predict(&uniform(), &prices, &native(seconds, 0.0));
    assert!((told.dependence, told.explained.0 > 1.2 * seconds) == (0.0, true), "{told:?}");
    close(told.translating.mid, translating(20.0) / seconds);
    // Data and translation are scaled down by the same factor, as if both had been priced on worse frames than the
    // program's.
    close(told.translating.low, translating(20.0) / told.explained.0);
}

#[test]
fn walks_may_go_on_beside_instructions() {
    // Independent accesses, and instructions that take the same time at 2.5 per cycle of one nanosecond.
    let seconds = translating(20.0);
    let of = |instructions: f64, user: f64| {
        let run = Native { instructions: Some(instructions * 2.5e9), ..native(user, 0.0) };
        predict(&uniform(), &prices(), &run)
    };
    let told = of(seconds, 2.0 * seconds);
    close(told.saved.mid, 0.5);
    assert!(told.saved.low < 0.01, "{told:?}");
    // If the run takes half of that time, at least half of the walks are waited for.
    close(of(seconds / 2.0, 2.0 * seconds).saved.low, 0.25);
}

#[test]
fn an_estimate_is_no_better_known_than_its_prices_and_runs() {
    let seconds = translating(20.0);
    let told = |ns: f64, user: f64| {
        let prices = Prices { reads: pair(ns), writes: pair(ns), dependent: pair(ns), ..prices() };
        predict(&uniform(), &prices, &native(user, 0.0))
    };
    // With one price for both extremes and no instructions the interval has no width.
    let one = told(20.0, 2.0 * seconds);
    assert_eq!(one.saved.low, one.saved.high);
    for other in [told(18.0, 2.0 * seconds), told(20.0, 2.1 * seconds), told(22.0, 2.0 * seconds)] {
        let wide = one.clone().widened([other.clone()]);
        assert!(wide.saved.low < wide.saved.high, "{wide:?}");
        assert_eq!(wide.saved.mid, one.saved.mid);
        let of_other = [other.saved.low, other.saved.high];
        assert!(of_other.iter().all(|it| (wide.saved.low..=wide.saved.high).contains(it)));
    }
}

/// Two passes in order over the same regions, with all lines of each page. The second pass uses every page again.
fn in_order() -> Demand {
    let mut block = Block::default();
    let pages = Pages { first: Page(0), count: REGIONS * 512 };
    block.event(Event::Spawn(Process(0)));
    block.event(Event::Map { pages, address: 0, backing: Backing::Anonymous });
    for _ in 0..2 {
        block.accesses.extend((0..REGIONS * 512).map(|page| Access::read(Page(page))));
    }
    block.counts = vec![64; block.accesses.len()];
    let mut watch = Watch::default();
    watch.follow(&block);
    watch.finish().remove(0).1
}

#[test]
fn what_comes_in_order_is_hidden_by_work_that_takes_as_long() {
    let prices =
        Prices { sequential_reads: Sequential { base: 300.0, superpage: 200.0 }, ..prices() };
    // All pages count except for the first, which has no neighbour before it.
    let pages = f64::from(REGIONS) * 512.0;
    let (base, superpage) = (pages * 300e-9, pages * 200e-9);
    let told = predict(&in_order(), &prices, &native(base, 0.0));
    close(told.saved.mid, 1.0 / 3.0);
    // 2.5 instructions per cycle of one nanosecond.
    let of = |seconds: f64| Native { instructions: Some(seconds * 2.5e9), ..native(base, 0.0) };
    close(predict(&in_order(), &prices, &of(superpage)).saved.mid, 1.0 / 3.0);
    close(predict(&in_order(), &prices, &of((superpage + base) / 2.0)).saved.mid, 1.0 / 6.0);
    assert!(predict(&in_order(), &prices, &of(base)).saved.mid < 1e-3);
}

#[test]
fn first_touches_are_saved_too_but_never_more_than_the_kernel_took() {
    let (touched, regions) = (f64::from(REGIONS) * 512.0, f64::from(REGIONS));
    let (base, superpage) = (touched * 1e-6, regions * 1e-4);
    let seconds = translating(20.0);
    let told = predict(&uniform(), &prices(), &native(seconds, base));
    close(told.base.faults, base);
    close(told.superpage.faults, superpage);
    close(told.saved.mid, (seconds + base - superpage) / (seconds + base));
    let told = predict(&uniform(), &prices(), &native(seconds, base / 4.0));
    close(told.base.faults, base / 4.0);
}

#[test]
fn nothing_asked_nothing_saved() {
    let told = predict(&Demand::default(), &prices(), &native(1.0, 0.5));
    assert_eq!((told.translating.high, told.saved.high), (0.0, 0.0));
    assert_eq!(told.base.rest, 1.5);
}
