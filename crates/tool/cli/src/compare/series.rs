//! `compare --vary`: runs a series of comparisons and prints its table.

use experiment::analysis::analyse;
use experiment::arrays;
use experiment::document::Document;
use experiment::measure::Measure;
use experiment::series::Series;
use experiment::verdict::Verdict;
use operations::compare::{Request, vary};

use super::Args;
use crate::exit::{self, Done, Failure};
use crate::pool::show::table;

/// Runs the comparisons of a series.
pub fn run(args: &Args, request: &Request) -> Result<Done, Failure> {
    let Some(varied) = &request.vary else { return Ok(Done::Fine) };
    let jobs = vary::Jobs::new(request, varied)?;
    args.outputs.check()?;
    args.outputs.refuse_csv()?;
    let varied = jobs.run()?;
    let ended = match (varied.failed, varied.signal) {
        (Some(failure), _) => Err(failure),
        (None, Some(signal)) => Ok(Done::Signal(signal)),
        (None, None) => Ok(Done::Fine),
    };
    if varied.series.points.is_empty() {
        if matches!(ended, Ok(Done::Signal(_))) {
            exit::say("interrupted before every arm had two runs: no verdict");
        }
        return ended;
    }
    args.outputs.write_series(&varied.series, &text(&varied.series))?;
    match ended? {
        Done::Fine => args.judged(varied.series.points.iter().map(|one| &one.comparison)),
        ended => Ok(ended),
    }
}

/// Writes a series to its outputs and judges `--fail-if`.
pub fn finish(args: &Args, series: &Series) -> Result<Done, Failure> {
    args.outputs.write_series(series, &text(series))?;
    args.judged(series.points.iter().map(|one| &one.comparison))
}

fn text(series: &Series) -> String {
    let Some(first) = series.points.first() else { return "no value was run\n".to_string() };
    let reference = &first.comparison.arms[0].name;
    let metrics = first.comparison.metrics().map(|one| Measure::Metric(one.name.clone()));
    let metrics: Vec<Measure> = std::iter::once(Measure::Wall).chain(metrics).collect();
    let mut header = vec![series.varied.as_str(), "arm", "runs"];
    header.extend(metrics.iter().map(Measure::name));
    let rows =
        series.points.iter().flat_map(|point| rows(&point.value, &point.comparison, &metrics));
    let mut text = super::table::head(&first.comparison);
    // `head` names only the first comparison's command and time. Print the machine and the total time instead.
    text = text.lines().nth(1).and_then(|line| line.split_once(';')).map_or(
        text.clone(),
        |(machine, _)| {
            let seconds: f64 = series.points.iter().map(|one| one.comparison.total_seconds()).sum();
            format!(
                "{machine}; {seconds:.0} s for {} values of {}\n",
                series.points.len(),
                series.varied
            )
        },
    );
    text += &format!(
        "\n{}\nratios to {reference}, with their intervals\n",
        table(&header, rows.collect(), &[0, 1])
    );
    for point in &series.points {
        let missed =
            missed(&point.comparison).into_iter().map(|(arm, why)| format!("{arm}: {why}"));
        for note in missed.chain(arrays::note(&point.comparison)) {
            text += &format!("note: {}={}: {note}\n", series.varied, point.value);
        }
    }
    if !series.missing.is_empty() {
        text += &format!("note: not run: {}\n", series.missing.join(", "));
    }
    text
}

fn rows(value: &str, document: &Document, quantities: &[Measure]) -> Vec<Vec<String>> {
    let analysis = analyse(document);
    let arms = analysis.arms.iter().skip(1);
    let row = |arm: &experiment::analysis::Summary| {
        let cell = |quantity: &Measure| {
            let mut judged = analysis.judgements.iter();
            let one = judged.find(|one| one.arm == arm.name && one.quantity == *quantity);
            one.map_or("unknown".to_string(), |one| one.verdict.cell())
        };
        let mut row = vec![value.to_string(), arm.name.clone(), arm.runs.to_string()];
        row.extend(quantities.iter().map(cell));
        row
    };
    let mut rows: Vec<Vec<String>> = arms.map(row).collect();
    rows.extend(document.left_out.iter().map(|arm| {
        let mut row = vec![value.to_string(), arm.name.clone(), "0".to_string()];
        row.resize(3 + quantities.len(), "left out".to_string());
        row
    }));
    rows
}

fn missed(document: &Document) -> Vec<(String, String)> {
    let mut missed: Vec<(String, String)> = Vec::new();
    for one in analyse(document).judgements {
        if let Verdict::DidNotTakeEffect { why } | Verdict::NoData { why } = one.verdict
            && missed.iter().all(|(arm, known)| (arm, known) != (&one.arm, &why))
        {
            missed.push((one.arm, why));
        }
    }
    missed.extend(document.left_out.iter().map(|arm| (arm.name.clone(), arm.why.clone())));
    missed
}
