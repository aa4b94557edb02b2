//! Launches a program with its pages: recipe -> plan -> running child.
//!
//! A *recipe* is a user's request (`thp`, or a preloaded allocator, or a wrapper). A *plan* is the recipe applied to
//! one program on one machine: environment, prctl, argv, promises and unreachable parts. Plans are resolved from facts
//! only; `start` executes them. All launchers, such as `run` and `compare`, share this path, so they cannot differ.
//! See docs/decisions/crates.md#1.
#![forbid(unsafe_code)]

mod error;
mod instrumentation;
mod memory;
mod named;
mod note;
mod plan;
mod program;
mod recipe;
mod resolve;
mod start;
mod tunables;
mod word;

pub use error::LaunchError;
pub use instrumentation::Instrumentation;
pub use memory::{Advice, Ahead, Children, Fallback, Files, Memory, Text};
pub use named::{NAMED, package_of};
pub use note::{Because, Note, Notes, Rest};
pub use plan::{EnvironmentChange, Facts, Plan, Pool, Promise, ThpRequest};
pub use program::{Kind, Program, Runtime};
pub use recipe::{Executor, Pages, ParseRecipeError, Recipe, split_words};
pub use resolve::resolve;
pub use start::{Start, Streams, start, start_guarded};
pub use word::Word;
