//! Pages that the kernel cannot move: a pipe holds a reference to each (`vmsplice(2)`), for which compaction and
//! collapse leave a page where it is. Pages that are locked (`mlock(2)`) are moved all the same. No privilege is needed.
//!
//! # Safety
//! A page in a pipe stays allocated until the pipe is gone, whatever becomes of the mapping it was in; nobody reads
//! these pipes, so what is written to the page afterwards is seen by its owner alone.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use crate::SysError;
use crate::mem::Mapping;

/// As many pages as a pipe may hold without privilege, by default (`/proc/sys/fs/pipe-max-size`, in pages of 4 KiB).
const SLOTS: usize = 256;

/// Pages that stay where they are for as long as this lives.
#[derive(Debug, Default)]
pub struct PinnedPages {
    /// Ends for writing: a pipe with one open end keeps what it holds.
    pipes: Vec<OwnedFd>,
    /// Without a reader the last pipe takes no more.
    reader: Option<OwnedFd>,
    /// How many pages the last pipe still takes.
    left: usize,
}

impl PinnedPages {
    /// Pins the pages of `range`, in bytes from the start of `mapping`; they must be in memory already, and whole.
    ///
    /// `ssize_t vmsplice(int fd, const struct iovec *iov, size_t nr_segs, unsigned int flags)`. `EMFILE`: 512 pipes of
    /// 256 pages are open already, with the usual limit of descriptors; without CAP_SYS_RESOURCE the 65th pipe and
    /// later ones of a user hold 2 pages each (`/proc/sys/fs/pipe-user-pages-soft`).
    pub fn pin(&mut self, mapping: &mut Mapping, range: Range<usize>) -> Result<(), SysError> {
        let page = crate::param::page_size().bytes() as usize;
        for at in range.step_by(page) {
            if self.left == 0 {
                self.open()?;
            }
            let start = mapping.bytes_mut()[at..at + page].as_mut_ptr();
            let failed = |errno| SysError::new("vmsplice", format!("{at} in {mapping:?}"), errno);
            let pipe = self.pipes.last().expect("opened above");
            // SAFETY: one live page; see the module.
            let spliced = unsafe {
                let one = IoSliceRaw::from_slice(std::slice::from_raw_parts(start, page));
                rustix::pipe::vmsplice(pipe, &[one], SpliceFlags::NONBLOCK)
            };
            if spliced.map_err(failed)? != page {
                return Err(failed(rustix::io::Errno::AGAIN));
            }
            self.left -= 1;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), SysError> {
        let page = crate::param::page_size().bytes() as usize;
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) = rustix::pipe::pipe_with(flags)
            .map_err(|errno| SysError::new("pipe2", "pages to pin", errno))?;
        // What it may not have it goes without: a pipe has its size in any case.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, SLOTS * page);
        let size = rustix::pipe::fcntl_getpipe_size(&writer)
            .map_err(|errno| SysError::new("fcntl(F_GETPIPE_SZ)", "pages to pin", errno))?;
        self.left = size / page;
        self.reader = Some(reader);
        self.pipes.push(writer);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::{Advice, Backing};

    #[test]
    fn pages_stay_until_the_pipes_are_gone() {
        let page = crate::param::page_size().bytes() as usize;
        let count = SLOTS * 2 + 1;
        let mut mapping = Mapping::anonymous(count * page, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        mapping.bytes_mut().fill(7);
        let mut pinned = PinnedPages::default();
        pinned.pin(&mut mapping, 0..count * page).unwrap();
        assert!(pinned.pipes.len() >= 3, "{pinned:?}");
        // What is written later is the owner's, and what is discarded comes back as zeroes.
        mapping.bytes_mut()[0] = 8;
        mapping.advise(Advice::DontNeed).unwrap();
        assert_eq!((mapping.bytes()[0], mapping.bytes()[page]), (0, 0));
    }
}
