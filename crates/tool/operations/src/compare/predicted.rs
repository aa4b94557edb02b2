//! Predicts the effect for a comparison from the program's accesses, recorded before the runs, and from the reference
//! arm's times.

use experiment::analysis::analyse;
use experiment::document::{Document, Predicted};

use super::Request;
use crate::Failure;
use crate::predict::{self, Pricing, Subject, SubjectDemand};

/// Input of the prediction that is collected before and between the runs.
pub struct Predicting {
    subject: Subject,
    asked: SubjectDemand,
    pricing: Pricing,
    /// Seconds of a built-in workload's timed phase on base pages.
    timed: Option<f64>,
}

impl Predicting {
    /// Collects the accesses and measures prices. For a workload, also measures the seconds of its timed phase, which a
    /// comparison reports only as a rate.
    pub fn new(request: &Request) -> Result<Self, Failure> {
        let quiet = request.quiet;
        let subject = match request.workload {
            Some(workload) => {
                Subject::Workload(workload, request.workload_args.settings(workload)?)
            }
            None => Subject::Program(request.command.clone()),
        };
        let asked = subject.demand(quiet)?;
        let pricing = Pricing::begin(&asked, quiet)?;
        let timed = match request.workload {
            Some(_) => Some(predict::timed_on_base_pages(&subject, quiet)?),
            None => None,
        };
        Ok(Self { subject, asked, pricing, timed })
    }

    /// Measures prices again; call it between runs.
    pub fn between(&mut self) {
        self.pricing.between();
    }

    /// Predicts from the times of the reference arm.
    pub fn predict(self, document: &Document) -> Result<Predicted, Failure> {
        let of_metric = self.timed.is_some();
        let runs = match of_metric {
            true => Vec::new(),
            false => predict::base_runs(&document.samples, false),
        };
        let median = match self.timed {
            Some(seconds) => (seconds, 0.0),
            None => {
                let reference = &analyse(document).arms[0];
                let times = reference.user_seconds.zip(reference.system_seconds);
                times.filter(|(user, system)| user + system > 0.0).ok_or_else(|| {
                    Failure::usage(format!(
                        "{}: too little CPU time to predict anything; give it more work",
                        self.subject.name()
                    ))
                })?
            }
        };
        let prices = self.pricing.finish()?;
        let prediction = predict::predict(&self.asked, &prices, median, &runs);
        let SubjectDemand { source, notes, .. } = self.asked;
        Ok(Predicted { prediction, of_metric, source, notes })
    }
}
