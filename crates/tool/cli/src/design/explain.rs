//! `superpage design explain`: prints a design's action at each event.

use design::Explained;
use serde_json::json;

use crate::exit::{self, Done, Failure};

/// Explain what a design does at each event.
///
/// The actions come from the same policy code that the laboratory and programs use, on a machine with base pages of 4
/// KiB and superpages of 2 MiB.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The design: a name from the list, or a file.
    #[arg(value_name = "DESIGN")]
    name: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    let named = super::load(&args.name)?;
    let lines = named.design.explain();
    if args.json {
        let events: Vec<_> = lines.iter().map(document).collect();
        let body = json!({ "name": named.design.name, "file": named.file, "events": events });
        exit::print_json("superpage.design-explain/1", body)?;
    } else {
        super::warn(&named);
        let title = format!("{}: {}\n", named.design.name, named.design.summary);
        exit::print(&(title + &text(&lines)))?;
    }
    Ok(Done::Fine)
}

fn document(line: &Explained) -> serde_json::Value {
    json!({
        "part": line.part,
        "event": line.event,
        "actions": line.actions,
        "alternatives": line.alternatives,
    })
}

/// Formats a block per part: each event, below it its action, and after `else` the fallback.
fn text(lines: &[Explained]) -> String {
    let mut text = String::new();
    let mut part = "";
    for line in lines {
        if line.part != part {
            part = line.part;
            text += &format!("\n{part}\n");
        }
        text += &format!("  {}\n", line.event);
        for (at, action) in line.actions.iter().enumerate() {
            let before = if at > 0 && line.alternatives { "else " } else { "" };
            text += &format!("    {before}{action}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_instead_stands_below() {
        let line = |part, alternatives| Explained {
            part,
            event: "e".into(),
            actions: vec!["a".into(), "b".into()],
            alternatives,
        };
        let lines = [line("one", true), line("one", false), line("two", false)];
        assert_eq!(
            text(&lines),
            "\none\n  e\n    a\n    else b\n  e\n    a\n    b\n\ntwo\n  e\n    a\n    b\n"
        );
    }
}
