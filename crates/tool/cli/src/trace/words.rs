//! Formats the output of the trace subcommands as text and JSON. Pure.

use serde_json::{Value, json};
use trace::{Backing, Event, Filter, Mappings, Pages, SLOTS};
use units::ByteSize;

/// Formats a filter and says for which TLBs it is exact.
pub fn filter(filter: Filter) -> String {
    match filter {
        Filter::None => "none: every access is a record".to_string(),
        Filter::SamePage => "same-page: exact for every TLB".to_string(),
        Filter::SetMru(sets) => format!(
            "set-mru:{},{}: exact for LRU TLBs whose sets are multiples of {} (base pages) and {} \
             (superpages)",
            sets.base, sets.superpage, sets.base, sets.superpage
        ),
    }
}

/// Formats a filter as JSON.
pub fn filter_json(filter: Filter) -> Value {
    match filter {
        Filter::None => json!({ "level": "none", "base_sets": null, "superpage_sets": null }),
        Filter::SamePage => {
            json!({ "level": "same-page", "base_sets": null, "superpage_sets": null })
        }
        Filter::SetMru(sets) => json!({
            "level": "set-mru", "base_sets": sets.base, "superpage_sets": sets.superpage,
        }),
    }
}

/// Says how the mappings were obtained.
pub fn mappings(mappings: Mappings) -> String {
    match mappings {
        Mappings::Recorded => "recorded".to_string(),
        Mappings::Inferred { gap } => {
            format!("inferred from touched pages; a gap of {} ends one", ByteSize(gap))
        }
    }
}

/// Formats an event as one line.
pub fn event(event: &Event) -> String {
    match event {
        Event::Spawn(process) => format!("spawn {}", process.0),
        Event::Run(process) => format!("run {}", process.0),
        Event::Map { pages, address, backing } => {
            format!("map {} at page {address:#x} {}", span(*pages), kind(*backing))
        }
        Event::Grow { pages } => format!("grow {}", span(*pages)),
        Event::Unmap(pages) => format!("unmap {}", span(*pages)),
        Event::Advise(pages, advice) => {
            format!("advise {} {}", span(*pages), format!("{advice:?}").to_lowercase())
        }
        Event::Protect(pages, read_only) => {
            format!(
                "protect {} {}",
                span(*pages),
                if *read_only { "read-only" } else { "writable" }
            )
        }
        Event::Fork { child, offset } => format!("fork {} +{}:0", child.0, offset / SLOTS),
        Event::Exit(process) => format!("exit {}", process.0),
        Event::Pace(pace) => format!(
            "pace work={}/1024 exposed={}/1000 weight={} threads={}",
            pace.work, pace.exposed_permille, pace.weight, pace.threads
        ),
        Event::Wait(microseconds) => format!("wait {microseconds} us"),
        Event::Phase(name) => format!("phase {name:?}"),
        Event::RequestBegin => "request begin".to_string(),
        Event::RequestEnd => "request end".to_string(),
    }
}

/// Formats `3:17 +200`: the first page as region and slot, and the number of pages.
fn span(pages: Pages) -> String {
    format!("{}:{} +{}", pages.first.region().0, pages.first.slot(), pages.count)
}

fn kind(backing: Backing) -> String {
    match backing {
        Backing::Anonymous => "anonymous".to_string(),
        Backing::Heap => "heap".to_string(),
        Backing::Shared(object) => format!("shared {object}"),
        Backing::File { file, cached: true } => format!("file {file}, cached"),
        Backing::File { file, cached: false } => format!("file {file}"),
    }
}
