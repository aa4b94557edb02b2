//! Compares parts of the simulated kernel with slow reference models, and its hugetlb pool with this kernel's.

mod hugetlb;
mod pool_model;
mod reservation;
