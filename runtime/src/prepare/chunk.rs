//! One superpage of the area, and its life.
//!
//!     Empty --claimed--> Filling --populated, MADV_FREE--> Ready --asked for--> Given
//!       ^                   \--asked for--> Given             (what is Filling is given as well:
//!       |                                                      populating changes no contents)
//!       |    Given --unmapped, stock not full--> Dirty --claimed--> Zeroing --zeroed, MADV_FREE--> Ready
//!       |    Given --protected, moved, advised, unmapped in part--> Broken: never used again
//!       \--- Given --unmapped--, Ready, Dirty --given back--
//!
//! Only `Given` is anybody's to write but for the thread, which writes in `Zeroing`.

/// What a superpage of the area is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Address space only.
    Empty = 0,
    /// Mapped, and being populated.
    Filling,
    /// Populated and zero, unless the kernel took it back; then only zero.
    Ready,
    /// The program's, or the heap's.
    Given,
    /// Given back, contents and all.
    Dirty,
    /// Being zeroed by the thread.
    Zeroing,
    /// Changed by the program in ways that leave it no ordinary memory of ours.
    Broken,
}

/// One superpage's row in the table; all zero is an empty one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Chunk {
    /// What it is doing.
    pub state: State,
    /// Whether a child gets fresh pages in its place (`MADV_WIPEONFORK`).
    pub is_wiped: bool,
    /// Whether the thread populated it after it was given.
    pub is_prefaulted: bool,
    /// Whether it is the last of what somebody asked for, who asked for fewer base pages than it has:
    /// this many fewer.
    pub unasked: u16,
}

impl Chunk {
    /// Whether it can be part of what is handed out, as it is or mapped anew.
    pub fn is_free(&self) -> bool {
        matches!(self.state, State::Empty | State::Filling | State::Ready)
    }

    /// Whether its memory is held for nobody in particular.
    pub fn is_stock(&self) -> bool {
        matches!(self.state, State::Filling | State::Ready | State::Dirty | State::Zeroing)
    }
}
