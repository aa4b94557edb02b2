//! `superpage design check`: validate design files.

use design::{Design, DesignError};
use report::format::counted;
use serde_json::json;

use crate::exit::{self, Done, Failure};

/// Check design files.
///
/// Prints every error with its line, key and the allowed values; exits with 2 if there are any. Warns of keys that have
/// no effect beside the others.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The files.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

const MAX_TOLD: usize = 50;

pub fn run(args: Args) -> Result<Done, Failure> {
    let mut documents = Vec::new();
    let mut wrong = Vec::new();
    let mut bad = 0;
    for file in &args.files {
        let each = |p: &design::Problem| json!({ "line": p.line, "key": p.key, "what": p.what });
        let mut warnings = Vec::new();
        let (name, problems) = match operations::design::text(file)
            .map(|text| (Design::from_toml(file, &text), text))
        {
            Ok((Ok(design), text)) => {
                warnings = design.warnings(&text);
                (Some(design.name), vec![])
            }
            Ok((Err(DesignError::File { problems, .. }), _)) => {
                wrong.extend(problems.iter().map(|problem| problem.in_file(file)));
                (None, problems.iter().map(each).collect())
            }
            Ok((Err(other), _)) => return Err(other.into()),
            Err(unread) => {
                wrong.push(unread.to_string());
                (None, vec![json!({ "line": null, "key": "", "what": unread.to_string() })])
            }
        };
        bad += usize::from(name.is_none());
        if let Some(name) = name.as_ref().filter(|_| !args.json) {
            let with = match warnings.len() {
                0 => String::new(),
                count => format!(", {}", counted(count, "warning", "warnings")),
            };
            exit::print(&format!("{file}: ok{with}: {name}\n"))?;
        }
        if !args.json {
            warnings
                .iter()
                .for_each(|warning| exit::say(&format!("warning: {}", warning.in_file(file))));
        }
        let warnings: Vec<_> = warnings.iter().map(each).collect();
        documents.push(
            json!({ "file": file, "name": name, "problems": problems, "warnings": warnings }),
        );
    }
    if args.json {
        exit::print_json("superpage.design-check/1", json!({ "files": documents }))?;
        if bad > 0 {
            return Err(Failure::usage(format!("invalid designs: {bad} of {}", args.files.len())));
        }
    }
    let more = wrong.len().saturating_sub(MAX_TOLD);
    if more > 0 {
        wrong.truncate(MAX_TOLD);
        wrong.push(format!("{more} more problems; --json has all of them"));
    }
    // The last line is printed as the command's own error.
    let Some(last) = wrong.pop() else { return Ok(Done::Fine) };
    wrong.iter().for_each(|line| exit::say(line));
    Err(Failure::usage(last))
}
