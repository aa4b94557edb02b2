//! `superpage lab table`: published tables, rerun.

use drawing::three::{percent, ratio};
use lab::tables::{self, Agreement, Role, TABLE_SCHEMA, Table};
use serde::Serialize;
use serde_json::json;

use super::outputs::json as to_text;
use super::progress::Progress;
use crate::exit::{self, Done, Failure};
use crate::pool::show;

/// Rerun a published table and say how well it agrees.
///
/// Exit code 1: the order of a pair that the paper separates by more than 5 % came out otherwise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The table, or `list`.
    #[arg(value_name = "NAME", default_value = "list")]
    name: String,

    /// Print JSON.
    #[arg(long)]
    json: bool,

    /// No progress on standard error.
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'a str,
    #[serde(flatten)]
    table: &'a Table,
    agreement: &'a Agreement,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    if args.name == "list" {
        return list(args.json);
    }
    let Some(entry) = tables::find(&args.name) else {
        let names = || tables::list().iter().map(|entry| entry.name);
        let near = design::nearest(&args.name, names());
        let near = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
        let known: Vec<&str> = names().collect();
        let known = if known.is_empty() { "none yet".to_string() } else { known.join(", ") };
        return Err(Failure::usage(format!("no table `{}`; there are: {known}{near}", args.name)));
    };
    let mut progress = Progress::new(args.quiet, entry.name);
    let mut done = 0;
    let table = entry.run(&mut |what| {
        progress.tell(done, None, || format!("{}: {what}", entry.name));
        done += 1;
    });
    progress.clear();
    let table = table?;
    let agreement = table.agreement();
    let text = match args.json {
        true => to_text(&Document { schema: TABLE_SCHEMA, table: &table, agreement: &agreement })?,
        false => text(&table, &agreement),
    };
    exit::print(&text)?;
    Ok(if agreement.wrong.is_empty() { Done::Fine } else { Done::Negative })
}

fn list(json: bool) -> Result<Done, Failure> {
    let text = if json {
        let all: Vec<_> = tables::list()
            .iter()
            .map(|one| json!({ "name": one.name, "source": one.source, "summary": one.summary }))
            .collect();
        to_text(&json!({ "schema": "superpage.lab.tables/1", "tables": all }))?
    } else {
        let row = |one: &tables::Entry| {
            vec![one.name.to_string(), one.source.to_string(), one.summary.to_string()]
        };
        show::table(&["table", "source", ""], tables::list().iter().map(row).collect(), &[0, 1, 2])
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}

/// Published and simulated side by side, `f` for fitted; then how well they agree.
fn text(table: &Table, agreement: &Agreement) -> String {
    let mut header = vec![""];
    header.extend(table.columns.iter().map(String::as_str));
    let cell = |cell: &tables::Cell| {
        let figure = |value: Option<f64>| value.map_or("-".to_string(), ratio);
        let mark = if cell.role == Role::Fitted { " f" } else { "" };
        format!("{} / {}{mark}", figure(cell.published), figure(cell.simulated))
    };
    let row = |row: &tables::Row| {
        [row.name.clone()].into_iter().chain(row.cells.iter().map(cell)).collect()
    };
    let mut text = format!("{}: {} ({})\n", table.name, table.figure, table.source);
    text += "published / simulated; f: a parameter was fitted to the published figure\n\n";
    text += &show::table(&header, table.rows.iter().map(row).collect(), &[0]);
    let right = agreement.pairs - agreement.wrong.len();
    text += &format!(
        "\norder: {right} of {} pairs that the paper separates by more than 5 % are in its order\n",
        agreement.pairs
    );
    for pair in &agreement.wrong {
        text += &format!(
            "  {}: {} over {} is {} published, {} simulated\n",
            pair.row,
            pair.higher,
            pair.lower,
            ratio(pair.published),
            ratio(pair.simulated)
        );
    }
    for mean in &agreement.means {
        text += &format!(
            "geometric mean, {}: {} published, {} simulated, {}{} off\n",
            mean.column,
            ratio(mean.published),
            ratio(mean.simulated),
            if mean.error > 0.0 { "+" } else { "" },
            percent(mean.error)
        );
    }
    for (what, error) in
        [("all cells", agreement.typical_error), ("held-out cells", agreement.held_out_error)]
    {
        if let Some(error) = error {
            text += &format!("a cell is off by {} in the geometric mean, {what}\n", percent(error));
        }
    }
    text
}
