//! Lines of a text, with their numbers, and how their fields are read.

use std::io::{BufRead, Read};

use super::Input;
use crate::{Place, TraceError};

/// The longest line that is believed.
const MAX_LINE: u64 = 4096;

/// Reads lines.
pub struct Lines<'a> {
    pub input: &'a mut Input,
    line: Vec<u8>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// The lines of an input.
    pub fn new(input: &'a mut Input) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    /// Reads the next line; `false` at the end.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        self.number += 1;
        let place = Place::Line(self.number);
        let reader = self.input.reader();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut self.line);
        let read = read.map_err(|error| self.input.unreadable(place, &error))?;
        if read as u64 == MAX_LINE && self.line.last() != Some(&b'\n') {
            let what = format!("longer than {MAX_LINE} bytes");
            return Err(self.input.wrong(place, what, "is this a text?"));
        }
        Ok(read > 0)
    }

    /// The line, without blanks around it.
    pub fn line(&self) -> &[u8] {
        self.line.trim_ascii()
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// That it is wrong.
    pub fn wrong(&self, what: &str, remedy: &'static str) -> TraceError {
        let shown: String = String::from_utf8_lossy(self.line()).chars().take(60).collect();
        let shown = shown.escape_debug().collect::<String>();
        self.input.wrong(self.place(), format!("`{shown}` is {what}"), remedy)
    }
}

/// A hexadecimal number without a prefix.
pub fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        Some(value << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

/// A decimal number.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let digit = char::from(digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(digit.into())
    })
}
