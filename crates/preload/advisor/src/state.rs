//! The state of one process, as words: an executor may keep them in atomics, shared with signal handlers, other
//! threads and forks.
//! See docs/decisions/live.md#2.

/// The state kept between events. Amounts are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Bytes requested so far.
    pub requested: u64,
    /// Bytes advised so far.
    pub advised: u64,
    /// Bytes requested since free blocks were last read.
    pub since: u64,
    /// Bytes that may still be advised without reading free blocks.
    pub left: u64,
    /// Bytes that may still be advised for smaller superpages without reading free blocks.
    pub left_smaller: u64,
    /// Whether the last decision found too little memory.
    pub is_short: bool,
    /// Pause of probes.
    pub trials: Pause,
    /// `requested` at the last probe.
    pub tried_at: u64,
    /// Verdict of the last probe; `None`: there was none.
    pub verdict: Option<bool>,
    /// Pause of advice.
    pub losses: Pause,
    /// Value of `advised` at which the machine's counters are read next.
    pub look_at: u64,
    /// Bytes advised between that read and the following one.
    pub look_after: u64,
    /// Whether the counters were read before.
    pub has_looked: bool,
    /// The counters at the last read: direct compactions, fallbacks, and the process's faults.
    pub seen: [u64; 3],
    /// Number of requests so far that a kept mapping could have served.
    pub requests: u64,
}

/// A back-off, measured in requested bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Value of [`State::requested`] at which the pause ends.
    pub until: u64,
    /// Length of the next pause.
    pub length: u64,
}

/// Length of the pause after a successful probe, and after the first failed one, in bytes requested.
const NEXT_TRIAL: u64 = 256 << 20;
/// Maximum length of a pause, in bytes requested.
const MAX_PAUSE: u64 = 64 << 30;
/// Bytes advised before the first read of the machine's counters, so that small programs never read them. This is also
/// the initial interval between reads, which doubles after each read without losses.
pub(super) const FIRST_LOOK: u64 = 64 << 20;
/// Bytes requested before the first probe.
const FIRST_TRIAL: u64 = 64 << 20;

impl Pause {
    const fn new(until: u64) -> Self {
        Self { until, length: NEXT_TRIAL }
    }

    pub(super) fn is_over(&self, requested: u64) -> bool {
        // A saturated sum never ends the pause.
        requested >= self.until && self.until < u64::MAX
    }

    /// After success: starts a short pause.
    pub(super) fn reset(&mut self, requested: u64) {
        self.shorten();
        self.until = requested.saturating_add(NEXT_TRIAL);
    }

    /// After success: makes the next pause short; starts none.
    pub(super) fn shorten(&mut self) {
        self.length = NEXT_TRIAL;
    }

    /// After failure: starts a pause, twice as long each time. Returns the length of this pause.
    pub(super) fn grow(&mut self, requested: u64) -> u64 {
        let length = self.length;
        self.until = requested.saturating_add(length);
        self.length = length.saturating_mul(2).min(MAX_PAUSE);
        length
    }
}

impl State {
    /// Number of words.
    pub const WORDS: usize = 19;

    /// The state of a new process.
    pub const NEW: Self = Self {
        requested: 0,
        advised: 0,
        // The first decision reads free blocks.
        since: u64::MAX / 2,
        left: 0,
        left_smaller: 0,
        is_short: false,
        trials: Pause::new(FIRST_TRIAL),
        tried_at: 0,
        verdict: None,
        losses: Pause::new(0),
        look_at: FIRST_LOOK,
        look_after: FIRST_LOOK,
        has_looked: false,
        seen: [0; 3],
        requests: 0,
    };

    /// The state as words.
    pub const fn to_words(&self) -> [u64; Self::WORDS] {
        let verdict = match self.verdict {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        [
            self.requested,
            self.advised,
            self.since,
            self.left,
            self.is_short as u64,
            self.trials.until,
            self.trials.length,
            self.tried_at,
            verdict,
            self.losses.until,
            self.losses.length,
            self.look_at,
            self.look_after,
            self.has_looked as u64,
            self.seen[0],
            self.seen[1],
            self.seen[2],
            self.requests,
            self.left_smaller,
        ]
    }

    /// The inverse of [`Self::to_words`]. A mixture of words of two states is also a valid state.
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self {
            requested: words[0],
            advised: words[1],
            since: words[2],
            left: words[3],
            is_short: words[4] != 0,
            trials: Pause { until: words[5], length: words[6] },
            tried_at: words[7],
            verdict: match words[8] {
                0 => None,
                word => Some(word == 2),
            },
            losses: Pause { until: words[9], length: words[10] },
            look_at: words[11],
            look_after: words[12],
            has_looked: words[13] != 0,
            seen: [words[14], words[15], words[16]],
            requests: words[17],
            left_smaller: words[18],
        }
    }
}
