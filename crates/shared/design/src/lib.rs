//! A superpage design as a value: when, at what granularity and where each of the five events in a superpage's life
//! happens (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping** and physical **deallocation** are tables of its
//! file, and so are shared mechanisms (`memory`, `fault`); their keys are declared in `policy::rules`. A design is read from TOML ([`Design::from_toml`]) and
//! makes no decisions: `policy` defines its behaviour, which [`Design::explain`] describes in words. No I/O, no clock,
//! no kernel. See docs/decisions/policy.md#1.
#![forbid(unsafe_code)]

mod check;
mod condition;
pub mod designs;
mod error;
mod explain;
mod field;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use crate::designs::{Difference, diff};
pub use error::{DesignError, Problem, nearest};
pub use explain::Explained;
pub use policy::rules::*;
pub use value::Value;

/// A superpage design.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Design {
    /// Name on the command line.
    pub name: String,
    /// One-line summary.
    pub summary: String,
    /// Its rules; [`policy::Policy`] defines their behaviour.
    rules: Rules,
}

impl Design {
    /// Makes a design in code. It need not be valid: see [`Design::check`].
    pub fn new(name: impl Into<String>, summary: impl Into<String>, rules: Rules) -> Self {
        Self { name: name.into(), summary: summary.into(), rules }
    }

    /// The policy that executes this design.
    pub fn policy(&self, scale: policy::Scale) -> policy::Policy {
        policy::Policy::new(&self.rules, scale)
    }

    /// Parses a design. `file` is the name for errors. Missing keys have the value of [`Design::default`].
    ///
    /// ```
    /// use superpage_design::Design;
    ///
    /// let text = "name = \"greedy\"\nallocation.effort = \"direct\"";
    /// let design = Design::from_toml("greedy.toml", text)?;
    /// assert_eq!(design.name, "greedy");
    /// let error = Design::from_toml("typo.toml", "name = \"x\"\nallocation.efort = 1").unwrap_err();
    /// assert!(error.to_string().starts_with("typo.toml:2: allocation.efort"));
    /// # Ok::<(), superpage_design::DesignError>(())
    /// ```
    ///
    /// # Errors
    /// [`DesignError::File`] has all errors, each with its line: syntax, unknown keys, types, numbers out of range,
    /// contradicting rules.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, DesignError> {
        read::design(file, text)
    }

    /// Writes every key, in the order of the five events. [`Design::from_toml`] parses the text back to the same
    /// design.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// Every key of the design with its table prefix (`mapping.scan.every`), in the same order.
    pub fn keys(&self) -> Vec<(String, Value)> {
        write::pairs(self)
    }

    /// Whether its conditions use a profile of the program that it lacks.
    pub fn wants_profile(&self) -> bool {
        self.rules.profile.is_none() && check::reads_profile(&self.rules)
    }

    /// Adds a profile; no effect if no condition uses one. `file` is the name of the text for errors; the text has the
    /// keys of a design's `[profile]`.
    ///
    /// # Errors
    /// [`DesignError::File`], as for a design.
    pub fn profiled(mut self, file: &str, text: &str) -> Result<Self, DesignError> {
        let profile = read::profile(file, text)?;
        if check::reads_profile(&self.rules) {
            self.rules.profile = Some(profile);
        }
        Ok(self)
    }

    /// Sets the page size of a pool; no effect if the design has no pool.
    #[must_use]
    pub fn with_pool_of(mut self, size: units::ByteSize) -> Self {
        if self.rules.allocation.form == policy::rules::Form::Pool {
            self.rules.allocation.sizes = vec![size];
        }
        self
    }

    /// The line of a key in a design's text; if it is missing, the line of its table, or the first line.
    pub fn line_of(text: &str, key: &str) -> usize {
        toml_keys::line_of(text, key)
    }

    /// The errors of a design made in code, by the same rules as for files, without lines.
    pub fn check(&self) -> Vec<Problem> {
        check::problems(self)
    }
}
