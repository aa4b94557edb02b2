//! The library's constructor. In this order, it reads the settings, joins the run's counters, prepares for forks, moves
//! the program's segments and stack, and makes glibc's malloc reliable where it stays in use.
//!
//! The library is linked `initfirst` (build.rs), so this runs before any other constructor can
//! allocate or map anything.
//!
//! # Safety
//! The constructor runs before libc's own, so it uses only what `__libc_early_init` (2.32) initializes: thread-local
//! storage, the tunables and malloc, but not `environ`.

use crate::settings::{self, Children, Pages};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = end;

extern "C" fn start() {
    crate::stack::find();
    // The code below calls functions that a sanitizer may interpose.
    if crate::instrumentation::has_to_stay_out() {
        settings::turn_off();
        return;
    }
    crate::message::begin();
    let settings = settings::get();
    crate::executor::begin();
    if settings.pages == Pages::None {
        crate::segments::legacy::provide();
        return;
    }
    crate::counters::open();
    crate::looks::begin();
    crate::order::provide();
    crate::segments::provide(settings);
    crate::segments::legacy::provide();
    crate::stack::provide(settings);
    if settings.is_thp() && !settings.memory.heap {
        crate::glibc::make_reliable();
    }
    if settings.children == Children::None {
        crate::environment::leave();
    }
}

/// Runs at exit. A process that ends by a signal or `_exit` writes no report, but its sums are in the run's counters.
extern "C" fn end() {
    crate::looks::ends();
    crate::contiguity::finish();
    crate::counters::report();
}
