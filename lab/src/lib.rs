//! The laboratory: a superpage design carried out on a simulated machine.
#![forbid(unsafe_code)]
