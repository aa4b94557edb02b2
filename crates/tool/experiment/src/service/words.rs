//! Formats the text that is printed next to a service's figures. Pure.

use crate::document::Document;
use crate::stats::Better;

/// Returns the lines below the command: how the service is loaded, and what is measured; empty for programs.
pub fn head(document: &Document) -> Vec<String> {
    let Some(service) = &document.service else { return Vec::new() };
    let figures = document.metrics().map(|metric| {
        let better = match metric.better {
            Better::Higher => "higher",
            Better::Lower => "lower",
        };
        format!(", {} ({better} is better)", metric.name)
    });
    let figures: String = figures.collect();
    let place = match (&service.cpus, document.machine.cpu.as_ref().and_then(|cpu| cpu.online)) {
        (Some(cpus), _) => cpus.to_string(),
        (None, Some(count)) => format!("service and load share {count} CPUs, unpinned"),
        (None, None) => "service and load share the CPUs, unpinned".to_string(),
    };
    let mut lines = vec![format!("load: {}", service.load.trim().replace('\n', "; "))];
    lines.push(format!(
        "of the service: user, system, faults, peak, superpages, from its start to its end; of the load: time{figures}; \
         {place}"
    ));
    lines
}

/// Returns notes on readiness and on killed services.
pub fn notes(document: &Document) -> Vec<String> {
    let Some(service) = &document.service else { return Vec::new() };
    let how = service.readiness();
    let mut notes: Vec<String> = how
        .map(|how| format!("no --ready: the service was taken to be ready {how}"))
        .into_iter()
        .collect();
    let phases = document.samples.iter().filter_map(|sample| sample.service);
    let killed = phases.clone().filter(|phases| phases.was_killed).count();
    if killed > 0 {
        let asked = if service.stop.is_some() { "--stop" } else { "SIGTERM" };
        notes.push(format!(
            "in {killed} of {} runs the service did not stop within {} s of {asked} and was killed",
            phases.count(),
            service.stop_seconds
        ));
    }
    notes
}
