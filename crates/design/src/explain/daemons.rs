//! What daemons do in a pass, until when, and with what.

use policy::{Action, Daemon, Event, Facts, Policy, Result as Ended, Wait};

use super::facts::{With, beside, busy, large};
use super::{Explained, Explainer, PAGES, SCALE};

/// A daemon that does more than this in a pass has no budget.
const ENDLESS: usize = 1 << 20;

impl Explainer<'_> {
    pub(super) fn daemons(&self) -> Vec<Explained> {
        let all: Vec<_> = self.policy().daemons().collect();
        all.into_iter().map(|(daemon, period)| self.daemon(daemon, period)).collect()
    }

    /// A pass of a daemon that always finds something to do; of one that samples, both halves.
    fn daemon(&self, daemon: Daemon, period: u64) -> Explained {
        let mut policy = self.policy();
        let mut actions: Vec<String> = self.limits(daemon).into_iter().collect();
        actions.extend(pass(&mut policy, daemon));
        if daemon == Daemon::Sample {
            actions.extend(pass(&mut policy, daemon));
        }
        actions.extend(self.candidate(daemon));
        let event = format!("{}, every {}", name(daemon), SCALE.display(period));
        Explained { part: "daemons", event, actions, alternatives: false }
    }

    /// From when on a daemon works, and until when.
    fn limits(&self, daemon: Daemon) -> Option<String> {
        match daemon {
            Daemon::Prezero => {
                let at = |permille| busy().with(|facts| facts.machine.zeroed_permille = permille);
                let (start, stop) = self.range(daemon, 1000, at);
                Some(format!("from less than {start} to {stop} per mille of free memory zeroed:"))
            }
            Daemon::Recover => {
                let at = |percent| {
                    busy().with(|facts| (facts.machine.free, facts.machine.pages) = (percent, 100))
                };
                let (start, stop) = self.range(daemon, 100, at);
                Some(format!("from less than {start} to {stop} % of memory free:"))
            }
            _ => None,
        }
    }

    /// The least at which it does not begin, and the least at which it ends.
    fn range(&self, daemon: Daemon, most: u64, at: impl Fn(u64) -> Facts) -> (u64, u64) {
        let rests = |action| matches!(action, Action::Wait(_));
        let begins = |amount| self.policy().on(Event::Tick(daemon), &at(amount));
        let goes_on = |amount| {
            let mut policy = self.policy();
            let action = policy.on(Event::Tick(daemon), &at(0));
            policy.on(Event::Outcome { action, result: DONE, cost: 0 }, &at(amount))
        };
        let start = (0..=most).find(|&amount| rests(begins(amount)));
        let stop = (0..=most).find(|&amount| rests(goes_on(amount)));
        (start.unwrap_or(most), stop.unwrap_or(most))
    }

    /// What becomes of a candidate of the daemon, and what it must have.
    fn candidate(&self, daemon: Daemon) -> Option<String> {
        match daemon {
            Daemon::Scan => [None, Some(true)].into_iter().find_map(|advised| {
                let facts = |pages| beside(pages).with(|facts| facts.mapping.advised = advised);
                let is = |action| action == Action::Inspect;
                let least = self.first_at(is, |pages| (Event::Candidate, facts(pages)))?;
                let made = self.ask(Event::Inspected { requested: false }, &facts(least));
                let what = if advised.is_some() { "of an advised one" } else { "of one" };
                let swapped = |pages| facts(least).with(|facts| facts.region.swapped = pages);
                let inspected = |pages| (Event::Inspected { requested: false }, swapped(pages));
                let but = self.first_at(|action| action == Action::Nothing, inspected);
                let but = but.map(|most| format!("; {}: nothing", pages(most, " swapped out")));
                let made = made.display(&SCALE);
                Some(format!("{what} with {}: {made}{}", pages(least, ""), but.unwrap_or_default()))
            }),
            Daemon::Recover => {
                let mut policy = self.policy();
                policy.on(Event::Tick(daemon), &busy());
                let with = |zeros| large().with(|facts| facts.region.zeros = zeros);
                let mut is = |zeros| policy.on(Event::Inspected { requested: false }, &with(zeros));
                let least = (0..=PAGES).find(|&zeros| is(zeros) == Action::Recover)?;
                let made = Action::Recover.display(&SCALE);
                Some(format!("of one with {}: {made}", pages(least, " of zeros")))
            }
            _ => None,
        }
    }
}

/// What a daemon does until it rests, if each time there is something to do.
fn pass(policy: &mut Policy, daemon: Daemon) -> Vec<String> {
    let facts = busy();
    let mut action = policy.on(Event::Tick(daemon), &facts);
    let (mut actions, mut total) = (Vec::<(Action, usize)>::new(), 0);
    while !matches!(action, Action::Wait(_)) && total < ENDLESS {
        match actions.last_mut() {
            Some((last, times)) if *last == action => *times += 1,
            _ => actions.push((action, 1)),
        }
        total += 1;
        action = policy.on(Event::Outcome { action, result: DONE, cost: 0 }, &facts);
    }
    let last = actions.len().saturating_sub(1);
    let is_endless = |at| at == last && total == ENDLESS;
    let words = |(at, &each)| repeated(daemon, each, is_endless(at));
    let mut words: Vec<String> = actions.iter().enumerate().map(words).collect();
    if total < ENDLESS && action != Action::Wait(Wait::Period) {
        words.push(action.display(&SCALE).to_string());
    }
    words
}

/// An action that a daemon does so many times in a pass.
fn repeated(daemon: Daemon, (action, times): (Action, usize), is_endless: bool) -> String {
    let words = action.display(&SCALE);
    match (daemon, times) {
        (_, 1) => words.to_string(),
        _ if is_endless => format!("{words}, as long as there is one"),
        // What they do is counted in pages.
        (Daemon::Evacuate | Daemon::Fill, _) => format!("{words}, up to {times} pages in a pass"),
        _ => format!("{words}, up to {times} times in a pass"),
    }
}

fn pages(least: u16, of: &str) -> String {
    let plural = if least == 1 { "" } else { "s" };
    format!("{least} page{plural}{of} or more")
}

const DONE: Ended = Ended::Done { pages: 1 };

fn name(daemon: Daemon) -> &'static str {
    match daemon {
        Daemon::Evacuate => "evacuation",
        Daemon::Fill => "preparation",
        Daemon::Prezero => "zeroing ahead",
        Daemon::Sample => "sampling",
        Daemon::Scan => "scan",
        Daemon::Compact => "compaction",
        Daemon::Recover => "recovery of zeros",
        Daemon::Reclaim => "reclaim",
        Daemon::Split => "splitting",
    }
}
