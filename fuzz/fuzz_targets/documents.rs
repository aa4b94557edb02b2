//! Documents of `compare` (JSON), also of running services, analysed and drawn as `--from` does; and ledgers of runs.
#![no_main]

use experiment::document::Document;
use experiment::running::document::Document as Running;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = abi::Totals::parse(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(document) = Running::parse(text, "x.json") {
        let _ = (document.to_json(), document.to_csv());
        if document.blocks.len() <= 64 && document.arms.len() <= 4 {
            let analysis = experiment::running::analysis::analyse(&document);
            let _ = experiment::running::html::page(&document, &analysis);
        }
    }
    if let Ok(document) = Document::parse(text, "x.json") {
        let _ = document.to_json();
        let _ = experiment::csv::samples(&document);
        // Bootstraps are drawn for each pair of arms: many of them only take time.
        if document.samples.len() <= 64 && document.arms.len() <= 4 {
            let _ = experiment::html::page(&document, &experiment::analysis::analyse(&document));
        }
    }
});
