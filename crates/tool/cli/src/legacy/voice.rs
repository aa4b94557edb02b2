//! Prints a command's messages on standard error, prefixed with its name and filtered by verbosity.

use std::fmt::Display;
use std::io::Write;

use crate::exit::Failure;

/// A command's name and verbosity: 0 prints nothing, 1 errors, 2 warnings too, 3 and 4 more.
#[derive(Debug)]
pub struct Voice {
    name: &'static str,
    level: u8,
}

const ERRORS: u8 = 1;
/// Verbosity at which warnings are printed; the default.
pub const WARNINGS: u8 = 2;
const INFORMATION: u8 = 3;
/// The verbosity that HUGETLB_DEBUG sets.
const EVERYTHING: u8 = 4;
/// The maximum verbosity.
pub const HIGHEST: u8 = 99;

impl Voice {
    /// Reads the verbosity from the environment (`HUGETLB_VERBOSE`, `HUGETLB_DEBUG`); default 2.
    pub fn new(name: &'static str) -> Self {
        let mut voice = Self { name, level: WARNINGS };
        if let Ok(text) = std::env::var("HUGETLB_VERBOSE") {
            match text.parse() {
                Ok(level) if level <= HIGHEST => voice.level = level,
                _ => voice.warn(format!("HUGETLB_VERBOSE is `{text}`, not a level from 0 to 99")),
            }
        }
        if std::env::var_os("HUGETLB_DEBUG").is_some() {
            voice.level = EVERYTHING;
        }
        voice
    }

    /// Returns the current verbosity, 0 to 99.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Applies `-v` (one more) or `--verbose LEVEL`.
    pub fn raise(&mut self, level: Option<&str>) -> Result<(), Failure> {
        self.level = match level {
            None if self.level == HIGHEST => {
                self.warn("verbosity limited to 99");
                HIGHEST
            }
            None => self.level + 1,
            Some(text) => match text.parse() {
                Ok(level) if level <= HIGHEST => level,
                _ => {
                    return Err(Failure::usage(format!("{text}: verbosity out of range 0-99")));
                }
            },
        };
        Ok(())
    }

    /// Applies `-q`: one less.
    pub fn lower(&mut self) {
        if self.level == 0 {
            self.warn("verbosity must be at least 0");
        }
        self.level = self.level.saturating_sub(1);
    }

    /// Prints an error: a request failed.
    pub fn error(&self, what: impl Display) {
        self.say(ERRORS, "ERROR", what);
    }

    /// Prints a warning: a request had another effect than expected.
    pub fn warn(&self, what: impl Display) {
        self.say(WARNINGS, "WARNING", what);
    }

    /// Prints information.
    pub fn inform(&self, what: impl Display) {
        self.say(INFORMATION, "INFO", what);
    }

    fn say(&self, level: u8, prefix: &str, what: impl Display) {
        if self.level < level {
            return;
        }
        // hugeadm alone prints no blank after the colon, and scripts match its lines.
        let blank = if self.name == "hugeadm" { "" } else { " " };
        let _ = writeln!(
            anstream::stderr(),
            "{}:{blank}{prefix}: {}",
            self.name,
            report::markup::visible(&what.to_string())
        );
    }
}
