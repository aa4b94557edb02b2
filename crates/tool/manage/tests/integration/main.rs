//! The manager as it is packaged.

mod kubernetes;
mod unit;
