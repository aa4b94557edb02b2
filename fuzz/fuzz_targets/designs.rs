//! Designs and profiles (TOML). A file that was read is written and read again: the result must be the same.
#![no_main]

use design::Design;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(design) = Design::from_toml("x.toml", text) {
        assert_eq!(Design::from_toml("x.toml", &design.to_toml()).unwrap(), design);
    }
    let _ = Design::default().profiled("x.toml", text);
});
