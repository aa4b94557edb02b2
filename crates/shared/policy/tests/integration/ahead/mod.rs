//! What is prepared before it is needed.

mod prefault;
mod refill;
