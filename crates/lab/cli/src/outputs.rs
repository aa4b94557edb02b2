//! Writes outputs: a table or JSON to standard output or a file, and a chart.

use std::path::PathBuf;

use lab::Report;

use cli::exit::{self, Failure};
use cli::files;

/// Output flags.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Output")]
pub struct Outputs {
    /// Print JSON: everything, including the time line.
    #[arg(long)]
    pub json: bool,

    /// Write the output to a file instead of standard output (-); as JSON if it is named *.json.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Draw the time line and the ledger into a file: .svg, or a page: .html.
    #[arg(long, value_name = "FILE", value_parser = picture)]
    pub plot: Option<PathBuf>,

    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,

    /// Do not print progress.
    #[arg(long, short)]
    pub quiet: bool,
}

fn picture(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg" | "html") => Ok(path),
        _ => Err("a picture ends in .svg, a page in .html".to_string()),
    }
}

impl Outputs {
    /// Whether the output is JSON.
    pub fn is_json(&self) -> bool {
        files::is_json(self.json, self.output.as_deref())
    }

    /// Fails early if an output file exists or cannot be written.
    pub fn check(&self) -> Result<(), Failure> {
        files::check_outputs(self.output.as_deref(), "--plot", self.plot.as_deref(), self.force)
    }

    /// Writes the text, and the chart that `draw` returns: as an HTML page if its argument is true, else as SVG.
    pub fn deliver(&self, text: &str, draw: impl Fn(bool) -> String) -> Result<(), Failure> {
        let is_page = |path: &PathBuf| path.extension().is_some_and(|found| found == "html");
        let drawn = self
            .plot
            .as_ref()
            .map_or(Ok(()), |path| files::write(path, self.force, draw(is_page(path))));
        files::deliver(self.output.as_deref(), self.force, text).and(drawn)
    }

    /// Writes all requested outputs.
    pub fn write(&self, text: &str, reports: &[Report]) -> Result<(), Failure> {
        let to = self.output.as_deref();
        let written = self.deliver(text, |is_page| match is_page {
            true => lab::plot::page(reports),
            false => lab::plot::svg(reports),
        });
        // A printed table already says how its runs ended. If the output is a document or a file, print how they ended
        // too.
        if self.json || to.is_some_and(|path| !files::is_stdout(path)) {
            let ends: Vec<String> = reports.iter().filter_map(super::words::end_of).collect();
            if !ends.is_empty() {
                exit::say(&ends.join("; "));
            }
        }
        written
    }
}
