//! What is remembered of one process, as words: an executor may keep them in atomics, where a signal handler, another
//! thread or a fork finds them.
//! See docs/decisions/live.md#2.

/// What is remembered from one event to the next. Amounts are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Request for so far.
    pub requested: u64,
    /// Bytes advised so far.
    pub advised: u64,
    /// Request for since free blocks were last read.
    pub since: u64,
    /// What may still be advised without reading them.
    pub left: u64,
    /// What may still be advised for smaller superpages without reading them.
    pub left_smaller: u64,
    /// There was too little last time.
    pub is_short: bool,
    /// Until when nothing is tried.
    pub trials: Pause,
    /// `requested` at the last trial.
    pub tried_at: u64,
    /// How the last trial ended; `None`: there was none.
    pub verdict: Option<bool>,
    /// Until when nothing is advised.
    pub losses: Pause,
    /// `advised` at which the machine's counters are looked at next.
    pub look_at: u64,
    /// How far away the look after that is.
    pub look_after: u64,
    /// They were looked at before.
    pub has_looked: bool,
    /// What they were: direct compactions, fallbacks, and the process's faults.
    pub seen: [u64; 3],
    /// Requests so far that could have been served by a mapping that was kept.
    pub requests: u64,
}

/// Until when something is left alone, measured in bytes that are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// [`State::requested`] at its end.
    pub until: u64,
    /// How long the next one is.
    pub length: u64,
}

/// After a trial that went well, and at first after one that did not.
const NEXT_TRIAL: u64 = 256 << 20;
/// The longest pause.
const MAX_PAUSE: u64 = 64 << 30;
/// Advised in all before the machine's counters are looked at: it costs a small program nothing.
/// And before they are looked at again, unless that went well: then twice as much each time.
pub(super) const FIRST_LOOK: u64 = 64 << 20;
/// Request for in all before something is tried.
const FIRST_TRIAL: u64 = 64 << 20;

impl Pause {
    const fn new(until: u64) -> Self {
        Self { until, length: NEXT_TRIAL }
    }

    pub(super) fn is_over(&self, requested: u64) -> bool {
        // Sums that can grow no further: it never is.
        requested >= self.until && self.until < u64::MAX
    }

    /// It went well: the next pause is a short one.
    pub(super) fn reset(&mut self, requested: u64) {
        self.shorten();
        self.until = requested.saturating_add(NEXT_TRIAL);
    }

    /// The same, and nothing is left alone.
    pub(super) fn shorten(&mut self) {
        self.length = NEXT_TRIAL;
    }

    /// It did not: twice as long each time. Returns how long this one is.
    pub(super) fn grow(&mut self, requested: u64) -> u64 {
        let length = self.length;
        self.until = requested.saturating_add(length);
        self.length = length.saturating_mul(2).min(MAX_PAUSE);
        length
    }
}

impl State {
    /// How many words it is.
    pub const WORDS: usize = 19;

    /// That of a process of which nothing is known yet.
    pub const NEW: Self = Self {
        requested: 0,
        advised: 0,
        // Free blocks are read first of all.
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

    /// As words.
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

    /// What [`Self::to_words`] wrote. Words of two states give a state, too.
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
