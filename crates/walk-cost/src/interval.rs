//! A share of a program's time, known between two bounds. Made by every method, read by all.

use serde::{Deserialize, Serialize};

/// A share of time: at least `low`, at most `high`, most likely `mid`. Always
/// `0 <= low <= mid <= high <= 1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Bounds", into = "Bounds")]
pub struct Interval {
    low: f64,
    mid: f64,
    high: f64,
}

/// The three numbers as they stand in documents, unchecked.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Bounds {
    low: f64,
    mid: f64,
    high: f64,
}

impl Interval {
    /// `None` unless the numbers are shares in this order; NaN is no share.
    pub fn new(low: f64, mid: f64, high: f64) -> Option<Self> {
        let ordered = 0.0 <= low && low <= mid && mid <= high && high <= 1.0;
        ordered.then_some(Self { low, mid, high })
    }

    /// A share that is known exactly. `None` unless it is one.
    pub fn exactly(share: f64) -> Option<Self> {
        Self::new(share, share, share)
    }

    /// At least this.
    pub fn low(self) -> f64 {
        self.low
    }

    /// Most likely this.
    pub fn mid(self) -> f64 {
        self.mid
    }

    /// At most this.
    pub fn high(self) -> f64 {
        self.high
    }

    /// Both shares of one time together: at least the larger (they may overlap wholly), at most
    /// the sum (not at all), most likely the sum; never more than the whole.
    pub fn and(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            mid: (self.mid + other.mid).min(1.0),
            high: (self.high + other.high).min(1.0),
        }
    }

    /// Each bound times its own factor; factors are shares in ascending order.
    pub fn scaled(self, factors: Self) -> Self {
        Self {
            low: self.low * factors.low,
            mid: self.mid * factors.mid,
            high: self.high * factors.high,
        }
    }
}

impl From<Interval> for Bounds {
    fn from(Interval { low, mid, high }: Interval) -> Self {
        Self { low, mid, high }
    }
}

impl TryFrom<Bounds> for Interval {
    type Error = String;

    fn try_from(Bounds { low, mid, high }: Bounds) -> Result<Self, String> {
        let why = || format!("{low}, {mid}, {high}: not shares of time in ascending order");
        Self::new(low, mid, high).ok_or_else(why)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval() -> impl Strategy<Value = Interval> {
        [0.0..=1.0f64, 0.0..=1.0, 0.0..=1.0].prop_map(|mut bounds| {
            bounds.sort_by(f64::total_cmp);
            Interval::new(bounds[0], bounds[1], bounds[2]).unwrap()
        })
    }

    proptest! {
        #[test]
        fn every_operation_keeps_the_order(a in interval(), b in interval()) {
            for made in [a.and(b), a.scaled(b)] {
                prop_assert!(Interval::new(made.low, made.mid, made.high).is_some(), "{made:?}");
            }
        }

        #[test]
        fn two_shares_together_are_no_less_than_either(a in interval(), b in interval()) {
            let both = a.and(b);
            prop_assert!(both.low >= a.low.max(b.low));
            prop_assert!(both.mid >= a.mid.max(b.mid));
            prop_assert!(both.high >= a.high.max(b.high));
            prop_assert_eq!(both, b.and(a));
        }

        #[test]
        fn documents_bring_back_the_same(a in interval()) {
            let text = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<Interval>(&text).unwrap(), a);
        }
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for (low, mid, high) in
            [(0.2, 0.1, 0.3), (0.0, 0.0, 1.1), (-0.1, 0.0, 0.0), (f64::NAN, 0.5, 0.6)]
        {
            assert_eq!(Interval::new(low, mid, high), None);
        }
        let wrong = r#"{"low":0.5,"mid":0.4,"high":0.6}"#;
        assert!(serde_json::from_str::<Interval>(wrong).is_err());
    }
}
