//! What rules mean: the tables of the presets, FreeBSD's promotion, conditions, programs that run.

mod ahead;
mod expressions;
mod live;
mod promotion;
mod surface;
mod tables;
