//! Expected actions of each preset at each event, with their sources.

mod bloat;
mod bounds;
mod cbmm;
mod common;
mod dsl;
mod effects;
mod elastic;
mod expressions;
mod facts;
mod hugescope;
mod khugepaged;
mod linux;
mod mutation;
mod presets;
mod reservations;
mod scans;
mod successors;
mod trident;
