//! Properties of designs that no file could hold: they are made field by field, and fields are private.

mod generate;
mod properties;
