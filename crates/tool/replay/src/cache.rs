//! Which lines the program's last-level cache keeps from one window to the next, although few windows touch them.
//!
//! Windows are samples, so how often they touch a region's lines tells how soon the program touches a line again. An LRU
//! cache keeps it if fewer other lines than the cache has are touched meanwhile (H. Che, Y. Tung, Z. Wang, "Hierarchical
//! Web Caching Systems", IEEE JSAC 20(7), 2002). See docs/decisions/prediction.md#11.

/// What windows touch of a superpage region.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Touched {
    /// Lines, counted once in each window that touches them.
    pub touches: f64,
    /// Different lines.
    pub lines: f64,
}

/// Steps of each bisection.
const STEPS: usize = 100;
/// The longest time that is looked for, in multiples of all windows' time.
const MAX_TIME: f64 = 1e12;

/// Returns the probability, by region, that a line is still in the cache when it is touched again. `lines_of_region`:
/// lines that a region has; `cache`: lines that the cache has.
pub(crate) fn kept(regions: &[Touched], lines_of_region: f64, cache: f64) -> Vec<f64> {
    let used: Vec<f64> = regions.iter().map(|it| population(*it, lines_of_region)).collect();
    // By region: the share of its used lines that the program touches in `time`.
    let touched = |time: f64| {
        let regions = regions.iter().zip(&used);
        regions.map(move |(it, lines)| 1.0 - (-it.touches * time / lines).exp())
    };
    let all = |time| touched(time).zip(&used).map(|(share, lines)| share * lines).sum::<f64>();
    touched(bisected(0.0, MAX_TIME, |time| all(time) < cache)).collect()
}

/// Estimates the number of lines of a region that the program uses, at most `most`: that from which draws with replacement
/// would hit as many different lines.
fn population(touched: Touched, most: f64) -> f64 {
    let Touched { touches, lines } = touched;
    let different = |population: f64| population * (1.0 - (-touches / population).exp());
    bisected(lines.clamp(1.0, most), most, |population| different(population) < lines)
}

/// Returns where `is_below` ends.
fn bisected(mut low: f64, mut high: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: f64 = 32768.0;

    fn region(touches: f64, lines: f64) -> Touched {
        Touched { touches, lines }
    }

    #[test]
    fn a_small_table_stays_beside_a_stream_and_a_large_one_does_not() {
        // 4 regions that are read at random, 400 that a stream passes, half as often.
        let mut regions = vec![region(25_000.0, 17_500.0); 4];
        regions.extend(vec![region(125.0, 125.0); 400]);
        let cache = 8.0 * LINES;
        let found = kept(&regions, LINES, cache);
        assert!(found[0] > 0.85 && found[4] < 0.02, "{} {}", found[0], found[4]);
        // Of 1 GiB read at random, the cache keeps its share.
        let found = kept(&vec![region(200.0, 199.5); 512], LINES, cache);
        assert!((found[0] - 8.0 / 512.0).abs() < 0.002, "{}", found[0]);
        assert_eq!(kept(&regions, LINES, 1e9), vec![1.0; 404]);
        assert_eq!(kept(&[], LINES, cache), Vec::<f64>::new());
    }

    #[test]
    fn the_population_is_found_from_repeats() {
        // 1000 draws from 500 lines hit 500 * (1 - e^-2) of them.
        let found = population(region(1000.0, 432.33), LINES);
        assert!((found - 500.0).abs() < 1.0, "{found}");
        assert_eq!(population(region(1000.0, 1000.0), LINES).round(), LINES);
        // All lines of the region, each by many windows.
        assert_eq!(population(region(1e6, LINES), LINES), LINES);
    }
}
