//! The conditions of a design, as they are written: what the other parts say is what is done where they hold.

use super::Explained;
use crate::{Design, condition};

impl Design {
    /// The same without the conditions of faults and scans, for asking what is done where they hold.
    pub(super) fn unconditional(&self) -> Self {
        let mut design = self.clone();
        design.rules.allocation.when = None;
        if let Some(scan) = &mut design.rules.mapping.scan {
            scan.when = None;
        }
        design
    }

    pub(super) fn conditions(&self) -> Vec<Explained> {
        let scan = self.rules.mapping.scan.as_ref();
        let each = [
            (
                "a first fault maps a page of a size",
                self.rules.allocation.when.as_ref(),
                "else the next smaller one",
            ),
            (
                "the scan makes a page of a size",
                scan.and_then(|scan| scan.when.as_ref()),
                "else smaller ones of its parts",
            ),
            (
                "a superpage that was watched is split",
                self.rules.unmapping.when.as_ref(),
                "else mapped as one again",
            ),
        ];
        let told = |(event, when, otherwise): (&str, Option<&policy::Condition>, &str)| {
            let only = format!("only where {}", condition::text(when?));
            let actions = vec![only, otherwise.to_string()];
            Some(Explained {
                part: "conditions",
                event: event.to_string(),
                actions,
                alternatives: false,
            })
        };
        each.into_iter().filter_map(told).collect()
    }
}
