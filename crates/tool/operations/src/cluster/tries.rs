//! Decides which parts to resubmit and which to give up. Pure.

use std::collections::BTreeMap;

pub(super) struct Tries {
    parts: BTreeMap<u32, Try>,
    retries: u32,
    /// Name of one piece of a part.
    piece: &'static str,
    submitted: u64,
}

struct Try {
    /// Number of pieces without a result after the last attempt, or at the beginning.
    left: usize,
    /// Number of consecutive attempts without a new result.
    without_progress: u32,
    given_up: Option<String>,
}

impl Tries {
    /// Creates the state before any attempt; `left` gives each part's number of pieces without a result.
    pub fn new(left: Vec<(u32, usize)>, retries: u32, piece: &'static str) -> Self {
        let one = |(part, left)| (part, Try { left, without_progress: 0, given_up: None });
        Self { parts: left.into_iter().map(one).collect(), retries, piece, submitted: 0 }
    }

    /// Returns the parts that are neither complete nor given up.
    pub fn left(&self) -> impl Iterator<Item = u32> {
        let left = |one: &Try| one.left > 0 && one.given_up.is_none();
        self.parts.iter().filter(move |(_, one)| left(one)).map(|(part, _)| *part)
    }

    /// Returns the number of submissions of all parts.
    pub fn submitted(&self) -> u64 {
        self.submitted
    }

    pub fn count_submitted(&mut self, parts: usize) {
        self.submitted += parts as u64;
    }

    /// Records an attempt that ended with `left` pieces without a result; `why` gives the reason.
    pub fn ended(&mut self, part: u32, left: usize, why: impl FnOnce() -> String) {
        let Some(one) = self.parts.get_mut(&part) else { return };
        one.without_progress = if left < one.left { 0 } else { one.without_progress + 1 };
        one.left = left;
        if left > 0 && one.without_progress > self.retries {
            let (times, piece) = (one.without_progress, self.piece);
            one.given_up =
                Some(format!("ended {times} times without a further {piece}: {}", why()));
        }
    }

    /// Returns the number of consecutive attempts of a part without a new result.
    pub fn without_progress(&self, part: u32) -> u32 {
        self.parts.get(&part).map_or(0, |one| one.without_progress)
    }

    pub fn given_up(&self) -> impl Iterator<Item = (u32, &String)> {
        self.parts.iter().filter_map(|(part, one)| Some((*part, one.given_up.as_ref()?)))
    }
}
