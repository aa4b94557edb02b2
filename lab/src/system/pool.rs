//! The explicit pool (hugetlb): superpages set aside when memory is mapped, so that faults cannot fail.

use design::{Design, Form};
use trace::{Page, Pages};

use super::allocate::LARGE_ORDER;
use super::{Stop, System};
use crate::memory::{Frame, Owner};

/// The pool of a system.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    on: bool,
}

impl Pool {
    pub(crate) fn new(design: &Design) -> Self {
        Self { on: design.allocation.form == Form::Pool }
    }
}

impl System {
    /// A mapping is made: `Some` if the pool is to back it.
    pub(crate) fn pool_map(&mut self, pages: Pages) -> Result<Option<u32>, Stop> {
        let _ = pages;
        if !self.pool.on {
            return Ok(None);
        }
        Ok(Some(0))
    }

    pub(crate) fn pool_grow(&mut self, _: u32, _: u32, _: u32) -> Result<(), Stop> {
        Ok(())
    }

    pub(crate) fn pool_unmap(&mut self, _: u32, _: u32, _: u32) {}

    /// A fault on a page that the pool backs.
    pub(crate) fn pool_page(&mut self, region: u32, _: u32) -> Result<(), Stop> {
        let Some(got) = self.free_superpage() else { return Err(Stop::OutOfMemory) };
        self.memory.set_owner(got.frame, Owner::Page(Page(region << 9)));
        self.map_superpage(region, got.frame, true);
        Ok(())
    }

    pub(crate) fn pool_release(&mut self, _: u32, base: Frame) {
        self.memory.free(base, LARGE_ORDER);
    }
}
