//! Daemons at work: what fell due is done, in the order of its times.
//! See docs/decisions/lab-model.md#6.

use policy::{Action, Daemon as Task, Event, Wait};

use super::System;
use super::daemons::Pass;
use super::scan::Visited;
use crate::touched::TouchedView;

impl System {
    /// Lets all daemons that are due do their work. The engine calls this often; it costs two comparisons.
    #[inline]
    pub(crate) fn tick(&mut self, touched: TouchedView<'_>) {
        let now = self.clock.now();
        if self.daemons.is_any_due(now) {
            self.work(now, touched);
        }
    }

    /// All work that fell due until `now`.
    #[cold]
    fn work(&mut self, now: u64, touched: TouchedView<'_>) {
        while let Some(mut piece) = self.daemons.begin_piece(now, &self.clock) {
            let next = self.perform(piece.task, &mut piece.pass, touched);
            self.daemons.end_piece(piece, &self.clock, next);
        }
    }

    /// Does a piece of a daemon's work: what the policy says, until it says that this is enough.
    fn perform(&mut self, task: Task, pass: &mut Pass, touched: TouchedView<'_>) -> Wait {
        let mut piece = Visited::default();
        let mut event = Event::Tick(task);
        loop {
            let facts = self.facts_of_daemon(task, pass, &piece);
            let action = self.policy.on(event, &facts);
            let (result, cost) = match action {
                Action::Wait(wait) => return wait,
                _ if matches!(task, Task::Scan | Task::Sample) => self.scan(action, pass),
                _ if task == Task::Split => (self.watch(action), 0),
                _ => (self.keep_memory(action, pass, &mut piece, touched), 0),
            };
            event = Event::Outcome { action, result, cost };
        }
    }
}
