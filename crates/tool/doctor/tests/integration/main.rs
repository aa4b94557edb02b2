//! Checks on machines in temporary directories: each finding, its near miss, its remedy; and machines that are well.

mod checks;
mod machine;
mod well;
