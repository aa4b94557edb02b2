//! Outputs of a comparison (table, JSON, CSV, HTML), and the verdicts that exit with 1.

use std::path::{Path, PathBuf};

use experiment::analysis::Analysis;
use experiment::document::Document;
use experiment::running::document::Document as Running;
use experiment::series::Series;
use experiment::verdict::Verdict;

use super::table;
use crate::exit::{self, Failure};
use crate::files;

/// Output flags of `compare`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Outputs {
    /// Output format.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,

    /// Same as --format json: everything, with raw samples.
    #[arg(long, conflicts_with = "format")]
    json: bool,

    /// Write the result to FILE; - is standard output. A FILE named *.json gets JSON.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Also write an HTML report: one self-contained file with every sample.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// With --vary: also write a chart of the ratios at each value.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long)]
    force: bool,

    /// Do not print progress.
    #[arg(long, short)]
    pub quiet: bool,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A table.
    Human,
    /// Everything, with raw samples.
    Json,
    /// One line per run.
    Csv,
}

/// A verdict that makes the exit code 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailIf {
    /// An arm is slower than the reference.
    Slower,
    /// An arm is not proven faster.
    NotFaster,
    /// The runs could not decide an arm's verdict.
    Undecided,
    /// An arm did not get the pages it asked for, or its pages are unknown.
    NoEffect,
}

impl FailIf {
    /// Returns whether `verdict` is one that this flag names.
    pub fn matches(self, verdict: &Verdict) -> bool {
        match self {
            Self::Slower => matches!(verdict, Verdict::Slower(_)),
            Self::NotFaster => !matches!(verdict, Verdict::Faster(_)),
            Self::Undecided => matches!(verdict, Verdict::Undecided { .. }),
            // `NoData` includes arms whose pages are unknown.
            Self::NoEffect => {
                matches!(verdict, Verdict::DidNotTakeEffect { .. } | Verdict::NoData { .. })
            }
        }
    }
}

impl Outputs {
    /// Fails early if an output file exists or cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        let output = self.output.as_deref().filter(|path| !files::is_stdout(path));
        let html = self.html.as_deref().map(|path| ("--html", path));
        let svg = self.svg.as_deref().map(|path| ("--svg", path));
        let output = output.map(|path| ("--output", path));
        let outputs: Vec<_> = [output, html, svg].into_iter().flatten().collect();
        files::check_distinct(&outputs, self.force)?;
        let printed = self.output.as_deref().is_none_or(files::is_stdout);
        if printed && self.html.as_deref().is_some_and(files::is_stdout) {
            return Err(Failure::usage(
                "--html -: the table goes to standard output too; write it to a file with -o",
            ));
        }
        Ok(())
    }

    /// Rejects `--svg` for a single comparison.
    pub fn refuse_svg(&self) -> Result<(), Failure> {
        match self.svg {
            Some(_) => Err(Failure::usage("--svg draws a series; give --vary, or use --html")),
            None => Ok(()),
        }
    }

    /// Rejects `--format csv` for a series.
    pub fn refuse_csv(&self) -> Result<(), Failure> {
        match self.format {
            Format::Csv => Err(Failure::usage("--format csv is of one comparison; use --json")),
            Format::Human | Format::Json => Ok(()),
        }
    }

    fn format(&self) -> Format {
        match self.format {
            Format::Human if files::is_json(self.json, self.output.as_deref()) => Format::Json,
            format => format,
        }
    }

    /// Writes the result to its file or to standard output. A file is named, and with JSON the command that prints its
    /// table.
    fn deliver(&self, text: &str) -> Result<(), Failure> {
        files::deliver(self.output.as_deref(), self.force, text)?;
        let Some(file) = self.output.as_deref() else { return Ok(()) };
        let name = file.display().to_string();
        let command = report::format::command(["superpage", "compare", "--from", &name]);
        let table = match self.format() {
            Format::Json => format!("; the table: {command}"),
            Format::Human | Format::Csv => String::new(),
        };
        self.say_written(file, &table);
        Ok(())
    }

    /// Writes a further file, and names it.
    fn write_file(&self, path: &Path, contents: String) -> Result<(), Failure> {
        files::write(path, self.force, contents)?;
        self.say_written(path, "");
        Ok(())
    }

    fn say_written(&self, path: &Path, more: &str) {
        if !self.quiet && !files::is_stdout(path) {
            exit::say(&format!("written: {}{more}", path.display()));
        }
    }

    /// Writes a series to every requested output; `text` is its table.
    pub fn write_series(&self, series: &Series, text: &str) -> Result<(), Failure> {
        let html =
            self.html.as_ref().map_or(Ok(()), |path| self.write_file(path, series.to_html()));
        let svg = self.svg.as_ref().map_or(Ok(()), |path| match series.to_svg() {
            Some(picture) => self.write_file(path, picture),
            None => Err(Failure::usage("--svg: no arm has a ratio; nothing to draw")),
        });
        let text = match self.format() {
            Format::Human => text.to_string(),
            Format::Json => exit::to_json(series)?,
            Format::Csv => return self.refuse_csv(),
        };
        self.deliver(&text).and(html).and(svg)
    }

    /// Writes a comparison on a running service to every requested output; `text` is its table.
    pub fn write_running(
        &self,
        document: &Running,
        analysis: &experiment::running::analysis::Analysis,
        text: &str,
    ) -> Result<(), Failure> {
        let html = self.html.as_ref().map_or(Ok(()), |path| {
            self.write_file(path, experiment::running::html::page(document, analysis))
        });
        let text = match self.format() {
            Format::Human => text.to_string(),
            Format::Json => document.to_json(),
            Format::Csv => document.to_csv(),
        };
        self.deliver(&text).and(html)
    }

    /// Writes the comparison to every requested output.
    pub fn write(&self, document: &Document, analysis: &Analysis) -> Result<(), Failure> {
        // Write all outputs, then return the first error: one bad file must not discard minutes of runs.
        let html = match &self.html {
            Some(path) => self.write_file(path, experiment::html::page(document, analysis)),
            None => Ok(()),
        };
        let text = match self.format() {
            Format::Human => table::text(document, analysis),
            Format::Json => document.to_json(),
            Format::Csv => experiment::csv::samples(document),
        };
        self.deliver(&text).and(html)
    }
}

/// A document that `--from` accepts.
pub enum Saved {
    /// One comparison.
    Comparison(Box<Document>),
    /// A series of `--vary`.
    Series(Series),
    /// A comparison on a running service.
    Running(Box<Running>),
}

/// Reads the document of `--from`.
pub fn read(path: &Path) -> Result<Saved, Failure> {
    const MAX_BYTES: u64 = 256 << 20;
    let text = files::text(path, MAX_BYTES, "a file that `compare --json` wrote")?;
    let name = path.display().to_string();
    let saved = match () {
        () if Series::is_one(&text) => Series::parse(&text, &name).map(Saved::Series),
        () if Running::is_one(&text) => {
            Running::parse(&text, &name).map(|one| Saved::Running(Box::new(one)))
        }
        () => Document::parse(&text, &name).map(|one| Saved::Comparison(Box::new(one))),
    };
    saved.map_err(Failure::usage)
}
