//! The presets are good designs, and the files at the root are these.

use superpage_design::{Design, designs};

#[test]
fn every_preset_is_a_good_design_of_its_name() {
    for preset in designs::list() {
        let design = preset.design().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(design.name, preset.name);
        assert!(!design.summary.is_empty(), "{}", preset.name);
        assert_eq!(Design::from_toml("again", &design.to_toml()), Ok(design));
    }
}

#[test]
fn every_file_is_a_preset() {
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../designs")).unwrap();
    let mut names: Vec<String> = files
        .map(|file| file.unwrap().path().file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    let mut known: Vec<&str> = designs::list().iter().map(|preset| preset.name).collect();
    known.sort();
    assert_eq!(names, known);
}
