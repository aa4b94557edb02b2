//! What each preset must do at each event, by its sources.

mod bloat;
mod bounds;
mod common;
mod dsl;
mod khugepaged;
mod linux;
mod mutation;
mod presets;
mod reservations;
mod scans;
