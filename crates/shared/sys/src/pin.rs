//! Unmovable pages: a pipe holds a reference to each page (`vmsplice(2)`), so compaction and collapse skip the page.
//! Locked pages (`mlock(2)`) can still be migrated. No privilege is needed.
//!
//! # Safety
//! A page in a pipe stays allocated until the pipe is closed, even if its mapping is unmapped; no process reads these
//! pipes, so only the page's owner sees later writes.

use std::ops::Range;
use std::os::fd::OwnedFd;

use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use crate::SysError;
use crate::mem::Mapping;

/// Default maximum number of pages in an unprivileged pipe (`/proc/sys/fs/pipe-max-size`, in pages of 4 KiB).
const PIPE_PAGES: usize = 256;

/// Pages that cannot be migrated while this value lives.
#[derive(Debug, Default)]
pub struct PinnedPages {
    /// Write ends of the pipes. A pipe keeps its contents while one end is open.
    pipes: Vec<OwnedFd>,
    /// Read end of the last pipe, because vmsplice fails without a reader.
    reader: Option<OwnedFd>,
    /// Number of free slots in the last pipe.
    left: usize,
}

impl PinnedPages {
    /// Pins the pages of `range`, in bytes from the start of `mapping`; `range` must be page-aligned and its pages
    /// present.
    ///
    /// `ssize_t vmsplice(int fd, const struct iovec *iov, size_t nr_segs, unsigned int flags)`. `EMFILE`: too many open
    /// pipes (with the usual limit of descriptors, 512 pipes of 256 pages). Without CAP_SYS_RESOURCE a user's 65th and
    /// later pipes hold only 2 pages each (`/proc/sys/fs/pipe-user-pages-soft`).
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
        // If the kernel refuses this size, the pipe keeps its default size.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_PAGES * page);
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
        let count = PIPE_PAGES * 2 + 1;
        let mut mapping = Mapping::anonymous(count * page, Backing::Pages).unwrap();
        mapping.advise(Advice::NoHugePage).unwrap();
        mapping.bytes_mut().fill(7);
        let mut pinned = PinnedPages::default();
        pinned.pin(&mut mapping, 0..count * page).unwrap();
        assert!(pinned.pipes.len() >= 3, "{pinned:?}");
        // A later write is visible to the owner, and discarded pages read as zeroes.
        mapping.bytes_mut()[0] = 8;
        mapping.advise(Advice::DontNeed).unwrap();
        assert_eq!((mapping.bytes()[0], mapping.bytes()[page]), (0, 0));
    }
}
