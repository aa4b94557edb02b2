//! Machines (TOML): shapes of TLBs and costs.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| {
    let _ = machine::Machine::from_toml(text, "x.toml");
});
