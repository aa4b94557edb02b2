//! A superpage design as a value: when each of the five events in a superpage's life happens, at
//! what grain, in which place (Zhu, Cox, Rixner 2020).
//!
//! Physical **allocation**, physical **preparation**, **mapping**, **unmapping**, physical
//! **deallocation**: one module each, and one for what surrounds them (`memory`, `fault`). A design
//! is read from TOML ([`Design::from_toml`]) and decides nothing by itself: what it means is `policy`'s, which
//! [`Design::explain`] tells in words. No I/O, no clock, no kernel.
//! See docs/decisions/policy.md#1.
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
    /// Its name, as on the command line.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// What it says; what that means is [`policy::Policy`]'s.
    rules: Rules,
}

impl Design {
    /// A design made in code. It may be one that no file could hold: see [`Design::check`].
    pub fn new(name: impl Into<String>, summary: impl Into<String>, rules: Rules) -> Self {
        Self { name: name.into(), summary: summary.into(), rules }
    }

    /// What it means.
    pub fn policy(&self, scale: policy::Scale) -> policy::Policy {
        policy::Policy::new(&self.rules, scale)
    }

    /// Reads a design. `file` is what errors call the text. Keys that are left out have the value of
    /// [`Design::default`].
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
    /// [`DesignError::File`] has everything that is wrong, each with its line: syntax, unknown keys, types, numbers
    /// out of range, rules that exclude each other.
    pub fn from_toml(file: &str, text: &str) -> Result<Self, DesignError> {
        read::design(file, text)
    }

    /// Writes every key, in the order of the five events. [`Design::from_toml`] gives back the same design.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// Every key that it has, with its tables before it (`mapping.scan.every`), in the same order.
    pub fn keys(&self) -> Vec<(String, Value)> {
        write::pairs(self)
    }

    /// Whether its conditions name what a profile of the program says, and it has none.
    pub fn wants_profile(&self) -> bool {
        self.rules.profile.is_none() && check::reads_profile(&self.rules)
    }

    /// The same with a profile; as it is, if no condition names what one says. `file` is what errors call the text,
    /// which is what a design has in `[profile]`.
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

    /// The same with pages of this size, if it has a pool; as it is otherwise.
    #[must_use]
    pub fn with_pool_of(mut self, size: units::ByteSize) -> Self {
        if self.rules.allocation.form == policy::rules::Form::Pool {
            self.rules.allocation.sizes = vec![size];
        }
        self
    }

    /// The line of a key in a design's text; where it is missing, that of its table, or the first.
    pub fn line_of(text: &str, key: &str) -> usize {
        toml_keys::line_of(text, key)
    }

    /// What is wrong with it, for designs made in code: the same rules as for files, without lines.
    pub fn check(&self) -> Vec<Problem> {
        check::problems(self)
    }
}
