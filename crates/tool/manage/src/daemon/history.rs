//! Figures of the manager over time, in bounded memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::ByteSize;

/// Most points. At this number every second one is left out, and points are twice as far apart from then on.
const MOST: usize = 720;

/// The managed processes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the start.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// Resident bytes that can be on superpages.
    pub eligible: ByteSize,
    /// Those that superpages map.
    pub on_superpages: ByteSize,
    /// Zeroed bytes added since the start, less those given back.
    pub added: ByteSize,
    /// CPU time of the manager since the start.
    #[serde(deserialize_with = "units::seconds")]
    pub cpu_seconds: f64,
}

/// Points, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    points: Vec<Point>,
    apart: Duration,
}

impl History {
    /// No points yet; they will be at least this far apart.
    pub fn new(apart: Duration) -> Self {
        Self { points: Vec::new(), apart }
    }

    /// Adds a point, unless the last one is too near.
    pub fn add(&mut self, point: Point) {
        let apart = self.apart.as_secs_f64();
        if self.points.last().is_some_and(|last| point.seconds < last.seconds + apart) {
            return;
        }
        self.points.push(point);
        if self.points.len() >= MOST {
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.apart *= 2;
        }
    }

    /// The points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_fits_and_points_are_evenly_apart() {
        let mut history = History::new(Duration::from_secs(10));
        for second in 0..86_400 {
            let none = ByteSize(0);
            history.add(Point {
                seconds: f64::from(second),
                eligible: none,
                on_superpages: none,
                added: none,
                cpu_seconds: 0.0,
            });
        }
        let points = history.points();
        assert!((MOST / 2..MOST).contains(&points.len()), "{}", points.len());
        let apart = points.windows(2).map(|two| two[1].seconds - two[0].seconds);
        assert!(apart.clone().all(|apart| apart == 160.0), "{:?}", apart.collect::<Vec<_>>());
        assert_eq!(points[0].seconds, 0.0);
    }
}
