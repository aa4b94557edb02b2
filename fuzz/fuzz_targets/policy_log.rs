//! Lines of a policy log (`SUPERPAGE_POLICY_LOG`). A line that was read must be written the same.
#![no_main]

use advisor::{Begin, Record};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(begin) = text.parse::<Begin>() {
        assert_eq!(begin.to_string().parse(), Ok(begin));
    }
    if let Ok(record) = text.parse::<Record>() {
        assert_eq!(record.to_string().parse(), Ok(record));
    }
});
