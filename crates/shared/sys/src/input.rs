//! Input descriptors: whether another process read from a shared one, and waiting for one that may end.

use std::fs::File;
use std::io::Seek;
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Read progress of an input: the offset of a file, or the unread bytes of a pipe and whether it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// File offset; `None` if the input is not seekable.
    position: Option<u64>,
    /// Number of unread bytes in a pipe, socket or terminal (FIONREAD).
    waiting: Option<u64>,
    /// Whether all writers have closed it (POLLHUP).
    has_ended: bool,
}

impl Input {
    /// Queries the progress, without reading data.
    pub fn of(input: impl AsFd) -> Self {
        let input = input.as_fd();
        let position =
            input.try_clone_to_owned().and_then(|input| File::from(input).stream_position());
        let mut polled = [PollFd::from_borrowed_fd(input, PollFlags::IN)];
        let is_ready = poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ready| ready > 0);
        Self {
            position: position.ok(),
            waiting: rustix::io::ioctl_fionread(input).ok(),
            has_ended: is_ready && polled[0].revents().contains(PollFlags::HUP),
        }
    }

    /// Whether data was read since `before`.
    pub fn was_read_since(&self, before: &Self) -> bool {
        let is_drained = |it: &Self| it.has_ended && it.waiting == Some(0);
        match self.position {
            Some(_) => self.position != before.position,
            None => self.waiting < before.waiting || is_drained(self) && !is_drained(before),
        }
    }
}

/// What became of an input while it was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It has data to read.
    Data,
    /// It has ended, as a terminal that was closed.
    Ended,
    /// Neither within the time, or a signal arrived.
    Nothing,
}

/// `int poll(struct pollfd *fds, nfds_t nfds, int timeout)` of one input, for at most `time`.
pub fn wait(input: impl AsFd, time: std::time::Duration) -> Waited {
    let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut polled, Some(&time)) {
        Ok(1..) => {
            let ended = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
            match polled[0].revents().intersects(ended) {
                true => Waited::Ended,
                false => Waited::Data,
            }
        }
        _ => Waited::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn waiting_tells_data_from_an_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let time = std::time::Duration::from_millis(1);
        assert_eq!(wait(&reader, time), Waited::Nothing);
        writer.write_all(b"x").unwrap();
        assert_eq!(wait(&reader, time), Waited::Data);
        drop(writer);
        // A child that another test starts meanwhile has the writer until its exec.
        let ended = || {
            std::thread::sleep(time);
            wait(&reader, time) == Waited::Ended
        };
        assert!((0..5000).any(|_| ended()));
    }

    #[test]
    fn what_is_read_of_files_and_pipes_is_seen() {
        let made = rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC);
        let mut file = File::from(made.unwrap());
        file.write_all(b"some text").unwrap();
        file.rewind().unwrap();
        let before = Input::of(&file);
        assert!(!Input::of(&file).was_read_since(&before));
        file.read_exact(&mut [0; 4]).unwrap();
        assert!(Input::of(&file).was_read_since(&before));

        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let before = Input::of(&reader);
        writer.write_all(b"some text").unwrap();
        assert!(!Input::of(&reader).was_read_since(&before));
        let before = Input::of(&reader);
        reader.read_exact(&mut [0; 4]).unwrap();
        assert!(Input::of(&reader).was_read_since(&before));
        // The reader read everything that was written while it ran, up to the end of file.
        let before = Input::of(&reader);
        writer.write_all(b"more text").unwrap();
        drop(writer);
        assert!(!Input::of(&reader).was_read_since(&before));
        reader.read_to_end(&mut Vec::new()).unwrap();
        assert!(Input::of(&reader).was_read_since(&before));
        let ended = Input::of(&reader);
        assert!(!ended.was_read_since(&ended));

        // /dev/null has no read progress.
        let null = std::fs::File::open("/dev/null").unwrap();
        let before = Input::of(&null);
        assert!(!Input::of(&null).was_read_since(&before));
    }
}
