//! pools.toml, what `superpage pool ensure` reads.
#![no_main]

use std::path::Path;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = host::pool::ensure::parse(text, Path::new("pools.toml"));
});
