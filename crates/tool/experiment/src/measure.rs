//! The quantity of a verdict: wall time, CPU time, or a metric that the program prints.

use std::fmt;

use serde::{Serialize, Serializer};

/// The quantity of a verdict. Documents store [`Measure::name`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Wall time; for a service, the wall time of its load.
    Wall,
    /// CPU time of all processes, in user mode and in the kernel.
    Cpu,
    /// The metric of this name. No metric is named `wall`.
    Metric(String),
}

impl Measure {
    /// Returns `wall`, `CPU time`, or the metric's name.
    pub fn name(&self) -> &str {
        match self {
            Self::Wall => "wall",
            Self::Cpu => "CPU time",
            Self::Metric(name) => name,
        }
    }

    /// Returns the column heading of a table; a service's time is its load's.
    pub fn column(&self, has_service: bool) -> &str {
        if *self == Self::Wall && has_service { "load" } else { self.name() }
    }

    /// Returns the name in headings of a page.
    pub fn heading(&self) -> &str {
        if *self == Self::Wall { "wall time" } else { self.name() }
    }

    /// Returns the percentile of a metric named after one: 99.9 for `p99.9`.
    pub fn percentile(&self) -> Option<f64> {
        match self {
            Self::Wall | Self::Cpu => None,
            Self::Metric(name) => name.strip_prefix('p')?.split(' ').next()?.parse().ok(),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Measure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_from_names() {
        let percentile = |name: &str| Measure::Metric(name.to_string()).percentile();
        assert_eq!(percentile("p99"), Some(99.0));
        assert_eq!(percentile("p99 latency"), Some(99.0));
        assert_eq!(percentile("p99.9"), Some(99.9));
        assert_eq!(
            (percentile("p99x"), percentile("updates"), percentile("p")),
            (None, None, None)
        );
        assert_eq!(Measure::Wall.percentile(), None);
    }
}
