//! Compares parts of the simulated kernel with slow reference models, and its hugetlb pool with this kernel's. Memory at a
//! program's start.

mod hugetlb;
mod pool_model;
mod reservation;
mod start;
