//! How figures reach people: numbers in `words` (`three`: those of a model), `markup` that is escaped by construction, `scale` and
//! `axis` for charts, `frame` for pictures of them. `measure` and `lab` draw with it; the command writes tables in its words.
//!
//! Pure and total: the same values give the same bytes, and no value is too odd to be drawn.
#![forbid(unsafe_code)]

pub mod axis;
pub mod frame;
pub mod markup;
pub mod scale;
pub mod three;
pub mod words;
