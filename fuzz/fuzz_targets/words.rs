//! Words of the command line: sizes, pools, recipes, kinds of memory and pages. A value that was read
//! is printed and read again: the result must be the same.
#![no_main]

use host::pool::{Change, PoolName, Spec};
use launch::{Children, Fallback, Memory, Pages, Recipe};
use units::ByteSize;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<ByteSize>() {
        let _ = size.to_string().parse::<ByteSize>();
    }
    if let Ok(pages) = text.parse::<Pages>() {
        assert_eq!(pages.to_string().parse::<Pages>().unwrap(), pages);
    }
    if let Ok(memory) = text.parse::<Memory>() {
        assert_eq!(memory.to_string().parse::<Memory>().unwrap(), memory);
    }
    let _ = text.parse::<Recipe>();
    let _ = text.parse::<Fallback>();
    let _ = text.parse::<Children>();
    let _ = text.parse::<Spec>();
    let _ = text.parse::<PoolName>();
    let _ = text.parse::<Change>();
    let _ = text.parse::<host::pool::mounts::Owner>();
    if let Ok(series) = experiment::running::metric::Series::parse(text) {
        let _ = series.find(text);
    }
    let _ = text.parse::<workload::Workload>();
    let _ = text.parse::<workload::Graph>();
});
