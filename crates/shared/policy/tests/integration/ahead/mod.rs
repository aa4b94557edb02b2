//! Rules about preparing pages ahead.

mod prefault;
mod refill;
