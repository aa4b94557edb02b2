//! Samples of running processes and of the machine: memory, superpages, faults and stalls.
#![forbid(unsafe_code)]
