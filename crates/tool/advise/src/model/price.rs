//! The price of a use of a page, from the time between its uses.

use prediction::{ByDistance, Prices};

use super::working_set::WorkingSet;
use crate::code::{Access, Kind};
use crate::memory::On;

/// Quantiles of the time between two uses over which a price is averaged.
const QUANTILES: usize = 8;
/// Kinds of accesses with prices of their own: dependent loads, other loads, writes.
pub const KINDS: usize = 3;

/// A machine's prices of accesses by reuse distance, for each kind of access.
pub struct Table {
    /// Nanoseconds of an access at the smallest footprint.
    pub floor: [f64; KINDS],
    /// Nanoseconds beyond `floor`.
    pub prices: [ByDistance; KINDS],
}

/// Nanoseconds of a use of a page.
pub struct Price {
    /// Of the use.
    pub whole: f64,
    /// Of its translation now.
    pub base: f64,
    /// Of its translation on superpages.
    pub superpage: f64,
}

impl Table {
    /// Splits prices into data and translation.
    pub fn new(prices: &Prices) -> Self {
        let pairs = [&prices.dependent, &prices.reads, &prices.writes];
        Self {
            floor: pairs.map(|pair| pair.base.ns[0].min(pair.superpage.ns[0])),
            prices: pairs.map(prediction::Pair::by_distance),
        }
    }

    /// The mean price of a use of a page that is used `rate` times a nanosecond, in a block that is used `block_rate`
    /// times; `lines` is the share of the page's cache lines in use.
    pub fn price(
        &self,
        kind: usize,
        rate: f64,
        block_rate: f64,
        lines: f64,
        on: On,
        working: &WorkingSet,
    ) -> Price {
        let prices = &self.prices[kind];
        let mut price = Price { whole: self.floor[kind], base: 0.0, superpage: 0.0 };
        for quantile in 0..QUANTILES {
            let at = (quantile as f64 + 0.5) / QUANTILES as f64;
            let times = -(1.0 - at).ln();
            let share = 1.0 / QUANTILES as f64;
            let (page_time, block_time) = (times / rate, times / block_rate);
            let distance = working.now(page_time);
            // A page with few lines in use has them used more often than a page all of whose lines are.
            let line_distance = working.now(page_time * lines);
            price.whole += share * at_distance(&prices.data, line_distance);
            let translation = match on {
                On::Superpage => at_distance(&prices.translation, working.now(block_time)),
                _ => at_distance(&prices.translation, distance),
            };
            price.base += share * translation;
            price.superpage += share
                * match on {
                    On::Base { .. } => {
                        let then = working.then(block_time);
                        at_distance(&prices.translation, then).min(translation)
                    }
                    On::Superpage => translation,
                    On::Stays => {
                        let then = working.then(page_time);
                        at_distance(&prices.translation, then).min(translation)
                    }
                };
        }
        price.whole += price.base;
        price
    }
}

/// The index of an access's prices.
pub fn kind_of(access: &Access) -> usize {
    match access.kind {
        Kind::Load if access.is_dependent => 0,
        Kind::Load => 1,
        Kind::Update | Kind::Store => 2,
    }
}

/// The price at a distance, between those of the octaves' middles.
fn at_distance(prices: &[f64], distance: f64) -> f64 {
    // The octave k of prices is that of distances from 2^(k-1) to 2^k.
    let at = (distance.max(1.0).log2() + 0.5).clamp(0.0, (prices.len() - 1) as f64);
    let below = (at as usize).min(prices.len() - 2);
    let part = at - below as f64;
    prices[below] * (1.0 - part) + prices[below + 1] * part
}
