//! `Prices`: measured costs of accesses on a machine, and the part of them that is translation.

use serde::{Deserialize, Serialize};

use crate::{OCTAVES, PriceError};

/// Number of octaves between a region's base pages and its superpage.
const REGION: usize = 9;

/// Nanoseconds of a random access by footprint. Element `i` is for uniformly random accesses to `2^(first + i)` base
/// pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Binary logarithm of the first footprint, in base pages.
    pub first: usize,
    /// Nanoseconds per access.
    pub ns: Vec<f64>,
}

/// Costs of one kind of access on both kinds of pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// On base pages.
    pub base: Curve,
    /// On superpages.
    pub superpage: Curve,
}

/// Nanoseconds of sequential use per base page, with all its lines read or written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sequential {
    /// On base pages.
    pub base: f64,
    /// On superpages.
    pub superpage: f64,
}

/// Nanoseconds of the first touch of anonymous memory, including its freeing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Per base page.
    pub base: f64,
    /// Per superpage.
    pub superpage: f64,
}

/// A machine's prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prices {
    /// Prices of dependent loads (pointer chase).
    pub dependent: Pair,
    /// Prices of independent loads, as many at once as the core can.
    pub reads: Pair,
    /// Prices of independent accesses that read and write each word.
    pub writes: Pair,
    /// Prices of sequential reads.
    pub sequential_reads: Sequential,
    /// Prices of sequential writes.
    pub sequential_writes: Sequential,
    /// Prices of first touches.
    pub faults: Faults,
}

/// Nanoseconds of a use by octave of the reuse distance.
#[derive(Debug, Clone, PartialEq)]
pub struct ByDistance {
    /// Cost of the data: an access whose translation is in the TLB.
    pub data: Vec<f64>,
    /// Additional cost of translation at this distance in TLB entries.
    pub translation: Vec<f64>,
}

impl Prices {
    /// Checks that every curve is usable.
    pub fn check(&self) -> Result<(), PriceError> {
        for (name, pair) in
            [("dependent", &self.dependent), ("reads", &self.reads), ("writes", &self.writes)]
        {
            pair.check(name)?;
        }
        Ok(())
    }
}

impl Pair {
    fn check(&self, curve: &'static str) -> Result<(), PriceError> {
        let wrong = |what| Err(PriceError::Curve { curve, what });
        for one in [&self.base, &self.superpage] {
            if one.ns.len() < 2 || one.first + one.ns.len() > OCTAVES {
                return wrong("has too few points, or points beyond memory");
            }
            if one.ns.iter().any(|ns| !ns.is_finite() || *ns < 0.0) {
                return wrong("holds an invalid time");
            }
        }
        if (self.base.first, self.base.ns.len()) != (self.superpage.first, self.superpage.ns.len())
        {
            return wrong("has other footprints on superpages than on base pages");
        }
        Ok(())
    }

    /// Splits the prices into data and translation.
    ///
    /// Translation at a distance of N entries has two parts. One is the cost of base pages minus that of superpages at
    /// N pages. The other is the translation cost of superpages at N pages, which is that of N / 512 entries (as many
    /// superpages hold N pages). A superpage's walk reads one table less, which is ignored.
    pub fn by_distance(&self) -> ByDistance {
        let (base, superpage) = (self.base.by_distance(), self.superpage.by_distance());
        let last = self.base.last();
        let mut translation = vec![0.0; OCTAVES];
        let own =
            |translation: &[f64], k: usize| k.checked_sub(REGION).map_or(0.0, |k| translation[k]);
        for k in 0..=last {
            translation[k] = base[k] - superpage[k] + own(&translation, k);
        }
        rising(&mut translation[..=last]);
        for k in last + 1..OCTAVES {
            let more = own(&translation, k) - own(&translation, last);
            translation[k] = translation[last] + more.max(0.0);
        }
        let data = base.iter().zip(&translation).map(|(all, part)| (all - part).max(0.0)).collect();
        ByDistance { data, translation }
    }
}

impl Curve {
    /// Returns the binary logarithm of the last footprint, in base pages.
    fn last(&self) -> usize {
        self.first + self.ns.len() - 1
    }

    /// Returns the nanoseconds of a use after a distance in each octave `k`, beyond those at the smallest footprint.
    ///
    /// Uniform use of N pages has every distance below N equally often, so the mean cost is C(N) = 1/N · sum of c(d)
    /// over d < N. The cost of an octave is what doubling N added: c = (N·C(N) - N/2·C(N/2)) / (N/2).
    fn by_distance(&self) -> Vec<f64> {
        let floor = self.ns[0];
        let mut prices = vec![0.0; OCTAVES];
        let (at, last) = (|k: usize| self.ns[k - self.first] - floor, self.last());
        for (k, price) in prices.iter_mut().enumerate().take(last + 1).skip(self.first + 1) {
            *price = 2.0 * at(k) - at(k - 1);
        }
        // Exclude unmeasured octaves: copies of the last octave would lower the ones before it.
        rising(&mut prices[..=last]);
        let longest = prices[last];
        prices[last + 1..].fill(longest);
        prices
    }
}

/// Makes values ascending by isotonic regression, with minimal changes (pool adjacent violators, Ayer et al. 1955):
/// measurements are noisy, but a longer distance is never cheaper.
fn rising(values: &mut [f64]) {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for &value in values.iter() {
        let mut pool = (value, 1);
        while let Some(&(sum, count)) = pools.last()
            && sum / count as f64 > pool.0 / pool.1 as f64
        {
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let means = pools.into_iter().flat_map(|(sum, n)| std::iter::repeat_n(sum / n as f64, n));
    // Clamp after pooling, so that noise around zero averages to zero.
    for (value, mean) in values.iter_mut().zip(means) {
        *value = mean.max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_becomes_prices_by_distance() {
        // Zero up to 2^6 pages, then 100 ns for distances in each octave.
        let curve = Curve { first: 6, ns: vec![5.0, 55.0, 80.0, 92.5] };
        let prices = curve.by_distance();
        assert_eq!(&prices[..7], &[0.0; 7]);
        assert_eq!(&prices[7..12], &[100.0; 5]);
    }

    #[test]
    fn translation_is_what_superpages_save_and_what_they_still_pay() {
        // Data costs 50 beyond 2^8 pages; translation costs 20 beyond 2^10 entries.
        let step = |from: usize, cost: f64, k: usize| if k > from { cost } else { 0.0 };
        let mean = |price: &dyn Fn(usize) -> f64, k: usize| -> f64 {
            // Computes C(2^k) from c: the inverse of by_distance.
            (7..=k).fold(0.0, |mean, k| (mean + price(k)) / 2.0)
        };
        let base = |k: usize| step(8, 50.0, k) + step(10, 20.0, k);
        let superpage = |k: usize| step(8, 50.0, k) + step(19, 20.0, k);
        let curve = |price: &dyn Fn(usize) -> f64| Curve {
            first: 6,
            ns: (6..24).map(|k| 3.0 + mean(price, k)).collect(),
        };
        let split = Pair { base: curve(&base), superpage: curve(&superpage) }.by_distance();
        for k in 0..30 {
            assert!((split.translation[k] - step(10, 20.0, k)).abs() < 1e-9, "{k}: {split:?}");
            assert!((split.data[k] - step(8, 50.0, k)).abs() < 1e-9, "{k}: {split:?}");
        }
    }

    #[test]
    fn noise_at_the_end_does_not_weigh_for_what_was_not_measured() {
        // The last octave was measured at half the price of the one before it.
        let curve = Curve { first: 6, ns: vec![0.0, 0.0, 50.0, 50.0] };
        let prices = curve.by_distance();
        assert_eq!((prices[7], prices[8], prices[9], prices[31]), (0.0, 75.0, 75.0, 75.0));
    }

    #[test]
    fn noise_is_pooled() {
        let mut values = [1.0, 3.0, 2.0, 4.0, 0.0];
        rising(&mut values);
        assert_eq!(values, [1.0, 2.25, 2.25, 2.25, 2.25]);
        let mut nothing = [2.0, -3.0, 1.0, -2.0, 0.0];
        rising(&mut nothing);
        assert_eq!(nothing, [0.0; 5]);
    }

    #[test]
    fn bad_prices_are_named() {
        let good = Curve { first: 6, ns: vec![1.0, 2.0] };
        let bad = Curve { first: 6, ns: vec![1.0, f64::NAN] };
        let short = Curve { first: 6, ns: vec![1.0] };
        let pair = |base: &Curve| Pair { base: base.clone(), superpage: good.clone() };
        assert!(pair(&good).check("reads").is_ok());
        assert!(pair(&bad).check("reads").unwrap_err().to_string().contains("reads"));
        assert!(pair(&short).check("reads").is_err());
    }
}
