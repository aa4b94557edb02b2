//! `superpage lab table`: simulates one or several published tables again.

use std::ops::ControlFlow;
use std::sync::Mutex;

use lab::tables::{
    self, Agreement, Entry, Pair, Pairs, Role, Spread, Step, TABLE_SCHEMA, Table, geometric,
};
use report::csv;
use report::sig3::{percent, ratio};
use serde::Serialize;
use serde_json::json;

use crate::documents::{Going, Printed};
use cli::exit::{self, Done, Failure};
use operations::json::to_json as to_text;
use operations::reporter::Progress;

/// Rerun published tables and say how well they agree.
///
/// Simulations that several tables share run once. The longest begin first, one per CPU, with 0.2 to 0.3 GB of memory
/// each. Exits with 1 if a pair that the paper separates by more than 5 %, including checks, is in the other order.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Tables, `all` of them, or `list`.
    #[arg(value_name = "NAME", default_value = "list")]
    names: Vec<String>,

    /// Print JSON: one document, also for several tables.
    #[arg(long)]
    json: bool,

    /// Print CSV: a line for each cell, published and simulated.
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Do not print progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Schema of the document of several tables.
const SEVERAL_SCHEMA: &str = "superpage.lab.several-tables/1";

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    #[serde(flatten)]
    table: Table,
    agreement: Agreement,
}

/// Several tables, each in the form in which it is printed alone.
#[derive(Serialize)]
struct Several {
    schema: &'static str,
    tables: Vec<Document>,
}

impl Document {
    fn new(table: Table) -> Self {
        let agreement = table.agreement();
        Self { schema: TABLE_SCHEMA, table, agreement }
    }
}

pub fn run(args: Args) -> Result<Done, Failure> {
    match &args.names[..] {
        [name] if name == "list" && args.csv => Err(Failure::usage(
            "--csv is of figures; name tables, or all: superpage lab table all --csv",
        )),
        [name] if name == "list" => list(args.json),
        [name] if name == "all" => rerun(&tables::list().collect::<Vec<_>>(), true, &args),
        names => rerun(&named(names)?, names.len() > 1, &args),
    }
}

fn named(names: &[String]) -> Result<Vec<&'static Entry>, Failure> {
    let mut entries: Vec<&Entry> = Vec::new();
    for name in names {
        let Some(entry) = tables::find(name) else { return Err(unknown(name)) };
        if entries.iter().any(|one| one.name == entry.name) {
            return Err(Failure::usage(format!("the table `{name}` is given twice; name it once")));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn unknown(name: &str) -> Failure {
    if matches!(name, "all" | "list") {
        return Failure::usage(format!(
            "`{name}` is no table; give it alone, or tables without it"
        ));
    }
    let names = || tables::list().map(|entry| entry.name);
    let near = design::nearest(name, names());
    let near = near.map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
    let known: Vec<&str> = names().collect();
    Failure::usage(format!("no table `{name}`; there are: {}{near}", known.join(", ")))
}

/// Runs tables. Prints each as soon as it and all tables before it are complete; JSON is printed at the end.
fn rerun(entries: &[&Entry], are_several: bool, args: &Args) -> Result<Done, Failure> {
    let progress = Mutex::new(Progress::new(args.quiet, "tables"));
    let mut step = |step: Step<'_>| {
        let mut progress = progress.lock().expect("nothing in it panics");
        progress.tell(step.done, Some(step.of), || format!("{}, {}", step.row, step.fragmentation));
    };
    let (mut documents, mut printed) = (Vec::new(), Ok(true));
    let mut whole = |table: Table| {
        let document = Document::new(table);
        if !args.json {
            let is_first = documents.is_empty();
            let text = match (args.csv, is_first) {
                (true, true) => CSV.to_string() + &lines(&document.table),
                (true, false) => lines(&document.table),
                (false, true) => text(&document.table, &document.agreement),
                (false, false) => format!("\n{}", text(&document.table, &document.agreement)),
            };
            let progress = progress.lock().expect("nothing in it panics");
            progress.aside(|| printed = exit::print_some(&text));
        }
        documents.push(document);
        if matches!(printed, Ok(true)) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let ran = tables::run(entries, &mut step, &mut whole, lab::TO_THE_END);
    progress.into_inner().expect("nothing in it panics").clear();
    ran.map_err(Failure::usage)?;
    printed?;
    let is_off = |agreement: &Agreement| {
        let checks = agreement.checks.iter().flat_map(|checks| checks.order.not_shown());
        agreement.order.not_shown().chain(checks).count() > 0
    };
    let is_wrong = documents.iter().any(|one| is_off(&one.agreement));
    if args.json {
        exit::print(&document(documents, are_several)?)?;
    }
    Ok(if is_wrong { Done::Negative } else { Done::Fine })
}

fn document(mut documents: Vec<Document>, are_several: bool) -> Result<String, Failure> {
    match documents.pop() {
        Some(one) if !are_several => to_text(&one),
        last => {
            documents.extend(last);
            to_text(&Several { schema: SEVERAL_SCHEMA, tables: documents })
        }
    }
}

/// Runs tables. Prints nothing.
pub fn printed(args: &Args, going: Going) -> Result<Printed, Failure> {
    let mut documents = Vec::new();
    let mut whole = |table: Table| {
        documents.push(Document::new(table));
        ControlFlow::Continue(())
    };
    let entries = named(&args.names)?;
    tables::run(&entries, &mut |_| (), &mut whole, going).map_err(Failure::usage)?;
    let texts: Vec<_> = documents.iter().map(|one| text(&one.table, &one.agreement)).collect();
    let json = document(documents, entries.len() > 1)?;
    Ok(Printed { json, text: texts.join("\n"), figures: Vec::new() })
}

/// Formats the JSON list of all tables.
pub fn list_json() -> Result<String, Failure> {
    let all: Vec<_> = tables::list()
        .map(|one| json!({ "name": one.name, "source": one.source, "summary": one.summary }))
        .collect();
    exit::json_text("superpage.lab.tables/1", json!({ "tables": all }))
}

fn list(json: bool) -> Result<Done, Failure> {
    let text = if json {
        list_json()?
    } else {
        let row = |one: &tables::Entry| {
            vec![one.name.to_string(), one.source.to_string(), one.summary.to_string()]
        };
        cli::table(&["table", "source", ""], tables::list().map(row).collect(), &[0, 1, 2])
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}

const CSV: &str = "table,row,column,role,published,simulated\n";

fn lines(table: &Table) -> String {
    let line = |row: &str, column: &str, cell: &tables::Cell| {
        let role = match cell.role {
            Role::Fitted => "fitted",
            Role::HeldOut => "held-out",
            Role::Check => "check",
            Role::Base => "base",
        };
        csv::line([&table.name, row, column, role], [cell.published, cell.simulated])
    };
    let of_row = |row: &tables::Row| -> String {
        let cells = table.columns.iter().zip(&row.cells);
        cells.map(|(column, cell)| line(&row.name, column, cell)).collect()
    };
    table.rows.iter().map(of_row).collect()
}

/// Formats published and simulated values side by side, with `f` for fitted ones; below them, their agreement.
fn text(table: &Table, agreement: &Agreement) -> String {
    let mut header = vec![""];
    header.extend(table.columns.iter().map(String::as_str));
    let cell = |cell: &tables::Cell| {
        let figure = |value: Option<f64>| value.map_or("-".to_string(), ratio);
        let mark = match cell.role {
            Role::Fitted => " f",
            Role::Check => " c",
            Role::HeldOut | Role::Base => "",
        };
        format!("{} / {}{mark}", figure(cell.published), figure(cell.simulated))
    };
    let row = |row: &tables::Row| {
        [row.name.clone()].into_iter().chain(row.cells.iter().map(cell)).collect()
    };
    let mut text = format!("{}: {} ({})\n", table.name, table.figure, table.source);
    text += "published / simulated; f: a parameter was fitted to the published figure; c: a check, nothing is fitted to it\n";
    text += &format!("left out: {}\n\n", table.left_out);
    text += &cli::table(&header, table.rows.iter().map(row).collect(), &[0]);
    let order = &agreement.order;
    text += &format!(
        "\norder: {} of {} pairs that the paper separates by more than 5 % are in its order, at least half as far apart\n",
        order.right(),
        order.pairs
    );
    text += &not_shown(order);
    if let Some(checks) = &agreement.checks {
        let order = &checks.order;
        text += &format!("checks: {} of {} such pairs\n", order.right(), order.pairs);
        text += &not_shown(order);
    }
    text += &spreads(&agreement.spreads);
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
    let of_checks = agreement.checks.as_ref().and_then(|checks| checks.typical_error);
    for (what, error) in [
        ("all cells but checks", agreement.typical_error),
        ("held-out cells", agreement.held_out_error),
        ("checks", of_checks),
    ] {
        if let Some(error) = error {
            text += &format!("a cell is off by {} in the geometric mean, {what}\n", percent(error));
        }
    }
    text
}

/// Formats pairs whose order the simulation does not show, one per line.
fn not_shown(order: &Pairs) -> String {
    let line = |pair: &Pair| {
        format!(
            "  {}: {} over {} is {} published, {} simulated\n",
            pair.row,
            pair.higher,
            pair.lower,
            ratio(pair.published),
            ratio(pair.simulated)
        )
    };
    order.not_shown().map(line).collect()
}

/// Formats the mean spread of the rows, and each row whose simulated spread is less than half or more than twice the
/// published one.
fn spreads(spreads: &[Spread]) -> String {
    let mean = |of: fn(&Spread) -> f64| geometric(spreads.iter().map(of));
    let (Some(published), Some(simulated)) = (mean(|row| row.published), mean(|row| row.simulated))
    else {
        return String::new();
    };
    let mut text = format!(
        "spread of a row, highest over lowest: {} published, {} simulated, in the geometric mean\n",
        ratio(published),
        ratio(simulated)
    );
    for row in spreads.iter().filter(|row| row.is_off()) {
        text += &format!(
            "  {}: {} published, {} simulated\n",
            row.row,
            ratio(row.published),
            ratio(row.simulated)
        );
    }
    text
}
