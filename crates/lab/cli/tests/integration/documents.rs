//! Documents of earlier versions are read back. The files are as version 0.1.0 wrote them, and are never regenerated.

use super::fine;

fn old(name: &str) -> String {
    format!("{}/tests/documents/0.1.0/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn documents_of_the_last_version_are_read() {
    let (run, compare, validate) =
        (old("lab.run-1.json"), old("lab.compare-1.json"), old("validate-1.json"));
    for (words, says) in [
        (&["compare", "--from", &run][..], "gups:size=8M,operations=1K on e3-1245v6"),
        (&["compare", "--from", &compare], "gups:size=8M,operations=1K on e3-1245v6"),
        (&["explain", &run, &run], "took the same time"),
        (&["validate", "--from", &validate], "gups:size=64MiB"),
    ] {
        let text = fine(words);
        assert!(text.contains(says), "{words:?}: {text}");
    }
}

#[test]
fn a_sweep_of_the_last_version_goes_on() {
    let place = tempfile::tempdir().unwrap();
    std::fs::copy(old("plan.json"), place.path().join("plan.json")).unwrap();
    let directory = place.path().display().to_string();
    fine(&["sweep", "run", "-q", &directory]);
    assert!(fine(&["sweep", "status", &directory]).contains("0/1        2     2     0"));
}
