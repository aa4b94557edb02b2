//! manage.toml, what `superpage manage` reads.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = manage::config::Config::from_toml(Path::new("manage.toml"), text);
});
