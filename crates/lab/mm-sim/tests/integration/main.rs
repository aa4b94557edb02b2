//! Parts of the simulated kernel against slow, obvious twins.

mod hugetlb;
mod reservation;
