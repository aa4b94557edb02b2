//! The order of blocks, and when they end: as found, warm-ups, then ABBA rounds until the stopping rule is met.
//!
//! A block whose coverage is out of its arm's bounds at either end is no evidence about that arm. It ends its round, the
//! round is dropped, and the next one begins; its blocks stay in the result.
//! See docs/decisions/running-services.md#1 and docs/decisions/running-services.md#2.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Clock, Coverage, Meter, Pages, Switch, SwitchError, Switched};
use crate::procedure::precision;
use crate::schedule::{Schedule, Slot};
use crate::stats::random::{Random, Stream};
use crate::stats::stopping::{self, End, Looks, Next, Progress, Rule, Time};
use crate::stats::{self, Better};
use crate::verdict::Margin;

/// Blocks on the memory as it was found, for each warm-up block of an arm. They cannot be interleaved with others: what
/// was split is not scattered again.
const AS_FOUND_PER_WARM_UP: u32 = 4;
/// Number of dropped rounds that is never too many.
const FEW_DROPPED: u32 = 2;

/// One arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Name of the arm; unique in the document.
    pub name: String,
    /// State of the memory.
    pub pages: Pages,
    /// Whether this is the reference a second time, to measure the noise floor.
    pub is_noise_floor: bool,
}

/// Stopping rule, limits and seed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Seed of the order of blocks.
    pub seed: u64,
    /// Blocks of each arm before the measured ones. Four times as many are made of the memory as it was found.
    pub warm_ups: u32,
    /// The stopping rule; a run is a block.
    pub rule: Rule,
    /// Time limit in seconds, from the first block to the last switch back. One round is always made.
    #[serde(deserialize_with = "units::elapsed")]
    pub max_seconds: f64,
    /// Mean duration of a block in seconds, without the metric's own. The blocks of a round have 0.5 to 1.5 times this, so
    /// that no load is periodic with the rounds.
    #[serde(deserialize_with = "units::seconds")]
    pub block_seconds: f64,
    /// Seconds between a switch and the block.
    #[serde(deserialize_with = "units::seconds")]
    pub settle_seconds: f64,
    /// Bounds of the coverage.
    pub bounds: Bounds,
}

/// Shares of eligible memory on superpages that are evidence about an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Maximum on base pages.
    #[serde(deserialize_with = "units::share")]
    pub base_at_most: f64,
    /// Minimum on superpages.
    #[serde(deserialize_with = "units::share")]
    pub superpages_at_least: f64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { base_at_most: 0.05, superpages_at_least: 0.9 }
    }
}

impl Bounds {
    /// Returns whether a share on superpages is within the bounds of a state.
    pub fn allow(&self, pages: Pages, share: f64) -> bool {
        match pages {
            Pages::Base => share <= self.base_at_most,
            Pages::Superpages => share >= self.superpages_at_least,
        }
    }
}

/// Purpose of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// The memory as it was found, before the first switch. Not counted.
    AsFound,
    /// The first blocks of an arm. Not counted.
    WarmUp,
    /// Counted.
    Measured,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Index of the arm; `null` for the memory as it was found.
    #[serde(deserialize_with = "units::count")]
    pub arm: Option<u32>,
    /// Purpose of the block.
    pub purpose: Purpose,
    /// Index of its round, from 0; of the repetition, for blocks that are not counted.
    pub round: u32,
    /// Position in the round, from 0.
    pub slot: u32,
    /// The switch before it; `null` for the memory as it was found.
    pub switched: Option<Switched>,
    /// Start of the block, in seconds since the start of the comparison.
    #[serde(deserialize_with = "units::seconds")]
    pub began_seconds: f64,
    /// Duration in seconds.
    #[serde(deserialize_with = "units::seconds")]
    pub seconds: f64,
    /// The metric's figure; `null` if there is none.
    #[serde(deserialize_with = "units::figure_of_merit")]
    pub value: Option<f64>,
    /// Why there is no figure.
    pub unknown: Option<String>,
    /// Coverage at the start.
    pub before: Coverage,
    /// Coverage at the end; `null` if the block was given up at its start.
    pub after: Option<Coverage>,
}

/// Why a block is no evidence about its arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// The coverage at the start was out of bounds; the share on superpages.
    Before(f64),
    /// The coverage at the end was out of bounds; the share on superpages.
    After(f64),
    /// No memory can be on superpages.
    NothingEligible,
    /// The metric has no figure.
    NoValue,
}

impl Block {
    /// Returns why the block is no evidence about `arm`, if it is none.
    pub fn fault(&self, arm: &Arm, bounds: &Bounds) -> Option<Fault> {
        let outside = |coverage: &Coverage, fault: fn(f64) -> Fault| match coverage.share() {
            None => Some(Fault::NothingEligible),
            Some(share) => (!bounds.allow(arm.pages, share)).then(|| fault(share)),
        };
        let before = outside(&self.before, Fault::Before);
        let after = || self.after.as_ref().and_then(|after| outside(after, Fault::After));
        before.or_else(after).or_else(|| self.value.is_none().then_some(Fault::NoValue))
    }
}

/// Why the blocks ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
pub enum Stopped {
    /// Every ratio is known precisely enough.
    RuleMet,
    /// Every verdict is decided, after at least a minute.
    Decided,
    /// The maximum number of blocks was made.
    MaxBlocks,
    /// The time limit was reached.
    MaxTime,
    /// The user stopped the comparison.
    Interrupted,
    /// A process of the service ended.
    Ended {
        /// The process, as text.
        process: String,
    },
    /// A process of the service executed another program. There is no verdict: blocks may be of either program.
    Executed {
        /// The process, as text.
        process: String,
    },
    /// Most rounds had a block that is no evidence.
    Dropped,
}

impl Stopped {
    /// Classifies the reason by its effect on the error rate.
    pub fn end(&self) -> End {
        match self {
            Self::Decided => End::Decided,
            Self::RuleMet => End::Enough,
            Self::MaxBlocks
            | Self::MaxTime
            | Self::Interrupted
            | Self::Ended { .. }
            | Self::Executed { .. }
            | Self::Dropped => End::Other,
        }
    }
}

/// Progress of a comparison.
#[derive(Debug)]
pub enum Event<'a> {
    /// A block begins, after a switch. The number is the seconds since the start.
    Begins(Purpose, Option<&'a Arm>, f64),
    /// A block ended.
    Ended(&'a Block),
    /// A round ended.
    Round(&'a Progress),
    /// The time limit is too short for a verdict. Told after the warm-ups, from whose durations it is known.
    Short {
        /// Estimated seconds of one round, which is always made, with what is before and after it.
        one_round: f64,
        /// The same of two, which give an interval.
        two_rounds: f64,
    },
}

/// All blocks, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    /// The blocks.
    pub blocks: Vec<Block>,
    /// Why they ended.
    pub stopped: Stopped,
    /// Interim looks at the verdicts.
    pub looks: Looks,
    /// Seconds from the first block to the last.
    pub elapsed_seconds: f64,
}

/// A service whose memory is restored when this value is dropped, also by a panic.
pub struct Session<'a> {
    switch: &'a mut dyn Switch,
    is_switched: bool,
}

/// How the memory was left.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The state of the memory.
    pub state: LeftAs,
    /// The last switch; `null` if the memory could not be switched.
    pub switched: Option<Switched>,
    /// Why the memory could not be switched.
    pub reason: Option<String>,
}

/// A state in which the memory was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeftAs {
    /// As it was found, as far as possible.
    Found,
    /// On superpages.
    Superpages,
    /// As the last block had it.
    LastBlock,
}

impl<'a> Session<'a> {
    /// Begins with the memory as it is.
    pub fn new(switch: &'a mut dyn Switch) -> Self {
        Self { switch, is_switched: false }
    }

    /// Makes all blocks. The memory stays as the last block left it.
    ///
    /// # Errors
    /// The memory cannot be switched or read.
    pub fn run(
        &mut self,
        meter: &mut dyn Meter,
        clock: &mut dyn Clock,
        arms: &[Arm],
        settings: &Settings,
        (better, margin): (Better, &Margin),
        observe: &mut dyn FnMut(Event),
    ) -> Result<Ran, SwitchError> {
        let began = clock.now();
        let mut running = Running {
            session: self,
            meter,
            clock,
            arms,
            settings,
            better,
            margin,
            began,
            block_seconds: settings.block_seconds,
            blocks: Vec::new(),
            looks: Looks::default(),
        };
        let stopped = match running.all(observe) {
            Ok(stopped) => stopped,
            Err(Halt::Interrupted) => Stopped::Interrupted,
            Err(Halt::Switch(SwitchError::Ended(process))) => Stopped::Ended { process },
            Err(Halt::Switch(SwitchError::Executed(process))) => Stopped::Executed { process },
            Err(Halt::Switch(error)) => return Err(error),
        };
        let Running { blocks, looks, .. } = running;
        let elapsed_seconds = clock.now().saturating_sub(began).as_secs_f64();
        Ok(Ran { blocks, stopped, looks, elapsed_seconds })
    }

    /// Leaves the memory as it was found, or on superpages if `keeps`. If they cannot be kept, as it was found.
    pub fn leave(mut self, keeps: bool) -> Left {
        if keeps && let Ok(switched) = self.switch.switch(Pages::Superpages) {
            self.is_switched = false;
            return Left { state: LeftAs::Superpages, switched: Some(switched), reason: None };
        }
        self.is_switched = false;
        match self.switch.restore() {
            Ok(switched) => Left { state: LeftAs::Found, switched: Some(switched), reason: None },
            Err(error) => {
                Left { state: LeftAs::LastBlock, switched: None, reason: Some(error.to_string()) }
            }
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if self.is_switched {
            // An error has nowhere to go from here.
            let _ = self.switch.restore();
        }
    }
}

/// Why no further block was made.
enum Halt {
    Interrupted,
    Switch(SwitchError),
}

impl From<SwitchError> for Halt {
    fn from(error: SwitchError) -> Self {
        Self::Switch(error)
    }
}

struct Running<'s, 'a, 'b> {
    session: &'s mut Session<'a>,
    meter: &'b mut dyn Meter,
    clock: &'b mut dyn Clock,
    arms: &'b [Arm],
    settings: &'b Settings,
    better: Better,
    margin: &'b Margin,
    began: Duration,
    /// Length of the blocks of this round.
    block_seconds: f64,
    blocks: Vec<Block>,
    looks: Looks,
}

impl Running<'_, '_, '_> {
    fn all(&mut self, observe: &mut dyn FnMut(Event)) -> Result<Stopped, Halt> {
        let (arms, settings) = (self.arms, self.settings);
        for round in 0..AS_FOUND_PER_WARM_UP * settings.warm_ups {
            self.block(None, Purpose::AsFound, (round, 0), observe)?;
        }
        for round in 0..settings.warm_ups {
            for (slot, arm) in arms.iter().enumerate() {
                self.block(Some(arm), Purpose::WarmUp, (round, slot as u32), observe)?;
            }
        }
        let rule = &settings.rule;
        let from = self.clock.now();
        let before = from.saturating_sub(self.began).as_secs_f64();
        let mut schedule = Schedule::new(arms.len() as u32, settings.seed);
        let length = schedule.block_len();
        // Seconds of a round beside those of its blocks. In the order ABBA each arm is switched to about once.
        let switches: f64 = self.switches().sum();
        let mut beside = length as f64 * settings.settle_seconds
            + switches / f64::from(settings.warm_ups.max(1));
        if settings.warm_ups > 0 {
            let round = beside + length as f64 * settings.block_seconds;
            let one_round = before + round + self.longest_switch();
            let two_rounds = one_round + round;
            if two_rounds > settings.max_seconds {
                observe(Event::Short { one_round, two_rounds });
            }
        }
        let mut random = Random::new(settings.seed, Stream::Padding);
        let mut block_seconds = || {
            let share = f64::from(random.below(1 << 16)) / f64::from(1 << 16);
            settings.block_seconds * (0.5 + share)
        };
        let (mut begun, mut dropped, mut next_seconds) = (0, 0, block_seconds());
        loop {
            let slots: Vec<Slot> = schedule.by_ref().take(length).collect();
            let round_began = self.clock.now();
            self.block_seconds = next_seconds;
            next_seconds = block_seconds();
            let mut is_whole = true;
            for slot in slots {
                let arm = &arms[slot.arm as usize];
                let at = (slot.block, slot.slot);
                if !self.block(Some(arm), Purpose::Measured, at, observe)? {
                    is_whole = false;
                    break;
                }
            }
            begun += 1;
            dropped += u32::from(!is_whole);
            if dropped > FEW_DROPPED && 2 * dropped > begun {
                return Ok(Stopped::Dropped);
            }
            let now = self.clock.now();
            let round = now.saturating_sub(round_began).as_secs_f64();
            beside = beside.max(round - length as f64 * self.block_seconds);
            // The length of the next round's blocks is drawn, so its time is computed here.
            let ahead = beside + length as f64 * next_seconds + self.longest_switch();
            let fits = now.saturating_sub(self.began).as_secs_f64() + ahead < settings.max_seconds;
            let elapsed = now.saturating_sub(from);
            let time = Time { elapsed, limit: None, patience: None };
            let progress = self.progress(End::Enough);
            observe(Event::Round(&progress));
            let next = stopping::next(&progress, begun, rule, time);
            if next != Next::Enough && self.looks.is_due(begun, rule, time) {
                self.looks.record(begun);
                if self.progress(End::Decided).decided {
                    return Ok(Stopped::Decided);
                }
            }
            match next {
                Next::Block if fits => {}
                Next::Enough => return Ok(Stopped::RuleMet),
                Next::MaxRuns => return Ok(Stopped::MaxBlocks),
                Next::Block | Next::MaxTime => return Ok(Stopped::MaxTime),
            }
        }
    }

    /// Makes one block; the memory as it was found has no arm. Returns whether it is evidence about its arm.
    fn block(
        &mut self,
        arm: Option<&Arm>,
        purpose: Purpose,
        (round, slot): (u32, u32),
        observe: &mut dyn FnMut(Event),
    ) -> Result<bool, Halt> {
        let settings = self.settings;
        if self.clock.is_interrupted() {
            return Err(Halt::Interrupted);
        }
        let switched = match arm {
            None => None,
            Some(arm) => {
                self.session.is_switched = true;
                let switched = self.session.switch.switch(arm.pages)?;
                self.wait(settings.settle_seconds)?;
                Some(switched)
            }
        };
        let before = self.session.switch.coverage()?;
        let began = self.clock.now();
        let began_seconds = began.saturating_sub(self.began).as_secs_f64();
        observe(Event::Begins(purpose, arm, began_seconds));
        let index = arm.and_then(|arm| self.arms.iter().position(|one| one == arm));
        let mut block = Block {
            arm: index.map(|index| index as u32),
            purpose,
            round,
            slot,
            switched,
            began_seconds,
            seconds: 0.0,
            value: None,
            unknown: None,
            before,
            after: None,
        };
        let is_given_up = arm.is_some_and(|arm| {
            !matches!(block.fault(arm, &settings.bounds), None | Some(Fault::NoValue))
        });
        if !is_given_up {
            let measured = self.meter.begin().and_then(|()| {
                let is_done = self.clock.wait(Duration::from_secs_f64(self.block_seconds));
                is_done.then(|| self.meter.end()).transpose()
            });
            block.seconds = self.clock.now().saturating_sub(began).as_secs_f64();
            match measured {
                Ok(None) => return Err(Halt::Interrupted),
                Ok(Some(value)) if (f64::MIN_POSITIVE..=units::MAX_FIGURE).contains(&value) => {
                    block.value = Some(value);
                }
                Ok(Some(value)) => {
                    block.unknown = Some(format!("{value} is not a positive number"));
                }
                // What was interrupted is no fault of the metric.
                Err(_) if self.clock.is_interrupted() => return Err(Halt::Interrupted),
                Err(error) => block.unknown = Some(error.to_string()),
            }
            block.after = Some(self.session.switch.coverage()?);
        }
        observe(Event::Ended(&block));
        let is_evidence = arm.is_none_or(|arm| block.fault(arm, &settings.bounds).is_none());
        self.blocks.push(block);
        Ok(is_evidence)
    }

    fn wait(&mut self, seconds: f64) -> Result<(), Halt> {
        match self.clock.wait(Duration::from_secs_f64(seconds)) {
            true => Ok(()),
            false => Err(Halt::Interrupted),
        }
    }

    /// Returns the seconds of each switch so far.
    fn switches(&self) -> impl Iterator<Item = f64> {
        self.blocks.iter().filter_map(|block| Some(block.switched.as_ref()?.seconds))
    }

    /// Returns the longest of them; the memory is switched once more after the last block.
    fn longest_switch(&self) -> f64 {
        self.switches().fold(0.0, f64::max)
    }

    fn progress(&self, end: End) -> Progress {
        let Settings { seed, rule, bounds, .. } = self.settings;
        let level = self.looks.level(rule.confidence, end);
        let estimate = stats::Settings { confidence: rule.confidence, level, seed: *seed };
        let values = values(&self.blocks, self.arms, bounds);
        let arms = self.arms.len() as u32;
        precision(&[(values, self.better)], arms, rule, &estimate, self.margin)
    }
}

/// Returns the figures of the measured blocks that are evidence about their arms.
pub fn values(blocks: &[Block], arms: &[Arm], bounds: &Bounds) -> Vec<stats::Sample> {
    let measured = blocks.iter().filter(|block| block.purpose == Purpose::Measured);
    let evidence = measured.filter_map(|block| {
        let index = block.arm?;
        if block.fault(arms.get(index as usize)?, bounds).is_some() {
            return None;
        }
        let at = Slot { block: block.round, slot: block.slot, arm: index };
        Some(stats::Sample { at, value: block.value? })
    });
    evidence.collect()
}

#[cfg(test)]
mod tests;
