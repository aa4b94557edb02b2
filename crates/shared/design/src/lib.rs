//! A superpage design as a value. A superpage has five events in its life, and a design says when, where and at what
//! granularity each happens (Zhu, Cox, Rixner 2020).
//!
//! A design's file has a table for each event: physical **allocation**, physical **preparation**, **mapping**,
//! **unmapping** and physical **deallocation**. Two more tables describe shared mechanisms (`memory`, `fault`).
//! `policy::rules` declares the keys. [`Design::from_toml`] reads a design from TOML. A design makes no decisions:
//! `policy` defines its behaviour, which [`Design::explain`] describes in words. This crate does no I/O, reads no clock
//! and calls no kernel. See docs/decisions/policy.md#1.
#![forbid(unsafe_code)]

mod check;
mod condition;
pub mod designs;
mod error;
mod explain;
mod field;
mod read;
mod reference;
mod schema;
#[cfg(test)]
mod tests;
mod value;
mod write;

pub use crate::designs::{Difference, diff};
pub use error::{DesignError, Problem, nearest};
pub use explain::Explained;
pub use policy::rules::*;
pub use reference::{KeyHelp, KeyKind, reference};
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
    /// Makes a design in code. [`Design::check`] tells whether it is valid.
    pub fn new(name: impl Into<String>, summary: impl Into<String>, rules: Rules) -> Self {
        Self { name: name.into(), summary: summary.into(), rules }
    }

    /// The policy that executes this design.
    pub fn policy(&self, scale: policy::Scale) -> policy::Policy {
        policy::Policy::new(&self.rules, scale)
    }

    /// Parses a design. Errors name `file`. Missing keys have the value of [`Design::default`].
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

    /// Returns every key of the design with its table prefix (`mapping.scan.every`), in the order
    /// of [`Design::to_toml`].
    pub fn keys(&self) -> Vec<(String, Value)> {
        write::pairs(self)
    }

    /// Whether a condition of the design uses a profile of the program, and the design has none.
    pub fn wants_profile(&self) -> bool {
        self.rules.profile.is_none() && check::reads_profile(&self.rules)
    }

    /// Adds a profile; no effect if no condition uses one. `text` has the keys of a design's `[profile]`; errors name
    /// `file`.
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

    /// Returns the line number of a key in a design's text. If the key is missing: the line of its table, or the first
    /// line.
    pub fn line_of(text: &str, key: &str) -> usize {
        toml_keys::line_of(text, key)
    }

    /// Returns the errors of a design made in code. The rules are those for files; the errors have
    /// no line numbers.
    pub fn check(&self) -> Vec<Problem> {
        check::problems(self)
    }

    /// Returns warnings: keys that are allowed, but make no difference beside the other keys, or an effect that is hardly
    /// meant. Lines are those of `text`, the design's file.
    pub fn warnings(&self, text: &str) -> Vec<Problem> {
        let line = |key: &str| Some(toml_keys::line_of(text, key));
        let mut all = check::warnings(self);
        all.iter_mut().for_each(|problem| problem.line = line(&problem.key));
        all.sort();
        all
    }
}
