//! `Scale`: maps values to positions on an axis, and chooses round ticks. Any finite values, including equal values and
//! huge ranges, give positions between 0 and 1.

/// Shape of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal factors.
    Log,
}

/// The range and shape of an axis.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The value at position 0.
    pub low: f64,
    /// The value at position 1.
    pub high: f64,
    /// Its shape.
    pub shape: Shape,
}

/// Above this ratio of maximum to minimum an axis is logarithmic, because a linear axis would hide small values.
const LOG_RATIO: f64 = 30.0;
/// A linear axis starts at zero if the part below the minimum takes at most this share of the axis.
const MAX_ZERO_SHARE: f64 = 0.4;

impl Scale {
    /// A scale for dots, where differences between values matter. `None` if no value is finite.
    pub fn from_values(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        // Clamped so that sums and differences of the ends stay finite.
        let (low, high) = ends(values).map(|(low, high)| (low.max(-1e300), high.min(1e300)))?;
        let (low, high) = (low.min(1e300), high.max(-1e300));
        if low > 0.0 && high / low > LOG_RATIO {
            return Some(Self::from_ratios(low, high));
        }
        // Add a margin at both ends, so that equal values get an axis too.
        let room = ((high - low) * 0.06).max(high.abs().max(low.abs()) * 0.005).max(1e-12);
        let near_zero = low >= 0.0 && low <= MAX_ZERO_SHARE * high;
        let low = if near_zero { 0.0 } else { low - room };
        Some(Self { low, high: high + room, shape: Shape::Linear })
    }

    /// A scale for amounts drawn as areas, from zero.
    pub fn from_zero(high: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        Self { low: 0.0, high: high * 1.04, shape: Shape::Linear }
    }

    /// A logarithmic scale with margins at both ends. Both values must be positive.
    pub fn from_ratios(low: f64, high: f64) -> Self {
        let room = ((high.ln() - low.ln()) * 0.06).max(0.002);
        // Stay far from the limits of floats, so that every tick can be computed.
        let end = |log: f64| log.clamp(-690.0, 690.0).exp();
        Self { low: end(low.ln() - room), high: end(high.ln() + room), shape: Shape::Log }
    }

    /// Position of a value, between 0 and 1; clamped.
    pub fn place(&self, value: f64) -> f64 {
        let place = match self.shape {
            Shape::Linear => (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0),
            Shape::Log if value <= 0.0 => 0.0,
            Shape::Log => (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()),
        };
        if place.is_nan() { 0.5 } else { place.clamp(0.0, 1.0) }
    }

    /// Position of a value in percent, for SVG.
    pub fn percent(&self, value: f64) -> String {
        percent(self.place(value))
    }

    /// Whether a value lies within the range.
    pub fn holds(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns about `wanted` round values to label, ascending.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let ticks = match self.shape {
            Shape::Log if self.high / self.low > 10.0 => self.log_ticks(wanted),
            // Over less than a factor of ten, linear ticks are more readable.
            _ => self.linear_ticks(wanted),
        };
        let inside = |tick: &f64| tick.is_finite() && self.holds(*tick);
        ticks.into_iter().filter(inside).collect()
    }

    fn linear_ticks(&self, wanted: usize) -> Vec<f64> {
        let rough = self.high / wanted as f64 - self.low / wanted as f64;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| *step >= rough * 0.999).unwrap_or(rough);
        if !step.is_normal() {
            return vec![self.low, self.high];
        }
        let first = (self.low / step).ceil();
        (0..=2 * wanted).map(|index| (first + index as f64) * step).collect()
    }

    fn log_ticks(&self, wanted: usize) -> Vec<f64> {
        let decades = self.high.log10() - self.low.log10();
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let every = ((decades / wanted as f64).ceil() as i32).max(1);
        let within: &[f64] = match decades * 3.0 {
            ticks if ticks <= wanted as f64 => &[1.0, 2.0, 5.0],
            ticks if ticks <= 2.0 * wanted as f64 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let powers = (first..=last).filter(|power| power.rem_euclid(every) == 0);
        powers.flat_map(|power| within.iter().map(move |m| m * 10f64.powi(power))).collect()
    }
}

/// The minimum and maximum of the finite values.
pub fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|value| value.is_finite()).fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((value.min(low), value.max(high))),
    })
}

/// Formats a share in percent for SVG: short, and equal on every machine.
pub fn percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{}%", crate::format::trimmed(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let scale = Scale { low: 0.93, high: 1.87, shape: Shape::Log };
        assert_eq!(scale.ticks(5).len(), 5);
        let scale = Scale { low: 0.001, high: 1000.0, shape: Shape::Log };
        assert_eq!(scale.ticks(6).len(), 7);
        let same = Scale::from_values([2.0, 2.0].into_iter()).unwrap();
        assert!((0.4..0.6).contains(&same.place(2.0)) && !same.ticks(5).is_empty());
        assert!(Scale::from_values([].into_iter()).is_none());
        assert!(Scale::from_values([f64::NAN].into_iter()).is_none());
    }

    proptest! {
        #[test]
        fn places_and_ticks_of_anything_are_on_the_axis(
            values in proptest::collection::vec(proptest::num::f64::ANY, 1..8), wanted in 2usize..12,
        ) {
            if let Some(scale) = Scale::from_values(values.iter().copied()) {
                for value in values {
                    prop_assert!((0.0..=1.0).contains(&scale.place(value)));
                }
                let ticks = scale.ticks(wanted);
                prop_assert!(ticks.len() <= 3 * wanted + 4, "{scale:?} {ticks:?}");
                prop_assert!(ticks.iter().all(|tick| tick.is_finite()));
            }
        }
    }
}
