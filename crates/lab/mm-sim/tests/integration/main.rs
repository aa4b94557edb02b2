//! Parts of the simulated kernel against slow, obvious twins; its hugetlb pool against this kernel.

mod hugetlb;
mod pool_model;
mod reservation;
