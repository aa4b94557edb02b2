//! Resource usage of every process on the machine, reported when the process exits: taskstats over
//! generic netlink (Documentation/accounting/taskstats.rst, include/uapi/linux/taskstats.h).
//!
//! # Safety
//! Pointers passed are to live locals or slices of the stated length; the descriptor is owned.
//! See docs/decisions/watch.md#2.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use units::{ByteSize, Pid};

use crate::SysError;

/// From linux/genetlink.h: `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_ID` and `_NAME`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// `TASKSTATS_CMD_GET`, its attributes, and the attributes of the kernel's messages.
const GET: u8 = 1;
const REGISTER: u16 = 3;
const DEREGISTER: u16 = 4;
const ATTR_PID: u16 = 4;
const STATS: u16 = 3;
/// Offsets in `struct taskstats`: `ac_exitcode` (encoded as for wait(2); 0 for a thread that is not the thread-group
/// leader), `ac_pid`, `ac_ppid`, `hiwater_rss` (KiB), and since version 12 `ac_tgid`.
const EXIT_OFFSET: usize = 4;
const PID_OFFSET: usize = 128;
const PARENT_OFFSET: usize = 132;
const HIGH_WATER_OFFSET: usize = 200;
const PROCESS_OFFSET: usize = 368;
const VERSION_WITH_PROCESS: u16 = 12;
/// Receive buffer of the socket, in bytes: about 3,000 messages.
const BUFFER: i32 = 4 << 20;

/// A thread that has exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The thread's process.
    pub process: Pid,
    /// The parent of the process at the time of the exit.
    pub parent: Pid,
    /// Peak RSS in bytes since the last exec or fork, without hugetlb pages.
    pub high_water: ByteSize,
    /// The signal that killed the process, if one did.
    pub signal: Option<i32>,
}

/// A listener for exits on some CPUs. The kernel sends one message per exit, which costs the exiting thread 2 to 3 us.
#[derive(Debug)]
pub struct Exits {
    socket: OwnedFd,
    family: u16,
    cpus: String,
}

impl Exits {
    /// Listens on `cpus` (`0-3`). `EPERM`: no CAP_NET_ADMIN, or outside the initial user namespace. `ENOENT`: no
    /// CONFIG_TASKSTATS, or outside the initial network namespace.
    pub fn listen(cpus: &str) -> Result<Self, SysError> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: no pointers; the new descriptor has no other owner.
        let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_GENERIC) };
        if socket < 0 {
            return Err(SysError::last("socket(AF_NETLINK)", "taskstats"));
        }
        // SAFETY: as above.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let size = std::mem::size_of::<i32>() as libc::socklen_t;
        // SAFETY: `bytes` is an int of that size. If the kernel refuses, the default buffer size stays.
        unsafe {
            let bytes = BUFFER;
            let buffer = (&raw const bytes).cast();
            let option = libc::SO_RCVBUFFORCE;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, buffer, size);
        }
        let mut exits = Self { socket, family: CONTROL, cpus: format!("{cpus}\0") };
        exits.send(GET_FAMILY, FAMILY_NAME, b"TASKSTATS\0")?;
        let family = exits.answer()?.and_then(|answer| family_of(&answer));
        let no_family = || SysError::new("sendto", "taskstats", rustix::io::Errno::NOENT);
        exits.answer()?; // the acknowledgement
        exits.family = family.ok_or_else(no_family)?;
        exits.send(GET, REGISTER, exits.cpus.as_bytes())?;
        exits.answer()?;
        Ok(exits)
    }

    /// Returns the threads that exited since the last call. Does not block. `ENOBUFS`: the receive buffer overflowed.
    pub fn ended(&self) -> Result<Vec<Ended>, SysError> {
        let mut ended = Vec::new();
        while let Some(bytes) = self.receive(libc::MSG_DONTWAIT)? {
            ended.extend(messages(&bytes).filter_map(|(kind, body)| {
                (kind == self.family).then(|| ended_of(body)).flatten()
            }));
        }
        Ok(ended)
    }

    fn send(&self, command: u8, attribute: u16, value: &[u8]) -> Result<(), SysError> {
        let padded = value.len().next_multiple_of(4);
        let mut message = Vec::with_capacity(24 + padded);
        message.extend(((24 + padded) as u32).to_ne_bytes());
        message.extend(self.family.to_ne_bytes());
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]); // sequence and port
        message.extend([command, 1, 0, 0]);
        message.extend(((4 + value.len()) as u16).to_ne_bytes());
        message.extend(attribute.to_ne_bytes());
        message.extend(value);
        message.resize(24 + padded, 0);
        let (at, length) = (message.as_ptr().cast(), message.len());
        // SAFETY: the message outlives the call.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), at, length, 0) };
        if sent < 0 { Err(SysError::last("send", "taskstats")) } else { Ok(()) }
    }

    /// Receives the kernel's reply. Returns `None` for an acknowledgement. An NLMSG_ERROR with an errno becomes an
    /// error.
    fn answer(&self) -> Result<Option<Vec<u8>>, SysError> {
        let bytes = self.receive(0)?.unwrap_or_default();
        let first = messages(&bytes).next();
        match first.filter(|(kind, _)| i32::from(*kind) == libc::NLMSG_ERROR) {
            None => Ok(Some(bytes)),
            Some((_, body)) => match u32_at(body, 0).map_or(0, |errno| -(errno as i32)) {
                0 => Ok(None),
                errno => {
                    let source = std::io::Error::from_raw_os_error(errno);
                    Err(SysError::new("sendto", "taskstats", source))
                }
            },
        }
    }

    fn receive(&self, flags: i32) -> Result<Option<Vec<u8>>, SysError> {
        let mut bytes = vec![0u8; 8192];
        let (at, length) = (bytes.as_mut_ptr().cast(), bytes.len());
        // SAFETY: the kernel writes at most `length` bytes of a live vector.
        let read = unsafe { libc::recv(self.socket.as_raw_fd(), at, length, flags) };
        if read >= 0 {
            bytes.truncate(read as usize);
            return Ok(Some(bytes));
        }
        let error = SysError::last("recv", "taskstats");
        if error.errno() == libc::EAGAIN { Ok(None) } else { Err(error) }
    }
}

impl Drop for Exits {
    fn drop(&mut self) {
        // Without DEREGISTER the kernel removes a closed listener only when it next reports an
        // exit.
        let _ = self.send(GET, DEREGISTER, self.cpus.as_bytes());
    }
}

/// Iterates over the netlink messages of a datagram: type, and payload after the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let (kind, body) = (u16_at(bytes, 4)?, bytes.get(16..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

/// Iterates over netlink attributes: type and value.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let (kind, value) = (u16_at(bytes, 2)?, bytes.get(4..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn value(bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

fn family_of(answer: &[u8]) -> Option<u16> {
    let (_, body) = messages(answer).next()?;
    u16_at(value(body.get(4..)?, FAMILY_ID)?, 0)
}

fn ended_of(body: &[u8]) -> Option<Ended> {
    let stats = value(value(body.get(4..)?, ATTR_PID)?, STATS)?;
    let process = match u16_at(stats, 0)? >= VERSION_WITH_PROCESS {
        true => u32_at(stats, PROCESS_OFFSET)?,
        false => u32_at(stats, PID_OFFSET)?,
    };
    let kib = stats.get(HIGH_WATER_OFFSET..HIGH_WATER_OFFSET + 8)?.try_into().ok()?;
    Some(Ended {
        process: Pid(process as i32),
        parent: Pid(u32_at(stats, PARENT_OFFSET)? as i32),
        high_water: ByteSize(u64::from_ne_bytes(kib).saturating_mul(1024)),
        signal: Some((u32_at(stats, EXIT_OFFSET)? & 0x7f) as i32).filter(|signal| *signal != 0),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((4 + value.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn of_pid(version: u16) -> Vec<u8> {
        let mut stats = vec![0; 416];
        stats[..2].copy_from_slice(&version.to_ne_bytes());
        // Exit code: SIGBUS with a core dump.
        let exit = (EXIT_OFFSET, 0x87);
        let ids = [
            (PID_OFFSET, 71u32),
            (PARENT_OFFSET, 7),
            (HIGH_WATER_OFFSET, 300),
            (PROCESS_OFFSET, 70),
            exit,
        ];
        for (at, value) in ids {
            stats[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let parts = [attribute(1, &71u32.to_ne_bytes()), attribute(STATS, &stats)].concat();
        [vec![2, 1, 0, 0], attribute(ATTR_PID, &parts)].concat()
    }

    #[test]
    fn an_end_is_read_and_what_is_cut_off_is_not() {
        let process = |version| ended_of(&of_pid(version)).unwrap();
        let (parent, high_water, signal) = (Pid(7), ByteSize::kib(300), Some(libc::SIGBUS));
        assert_eq!(process(13), Ended { process: Pid(70), parent, high_water, signal });
        assert_eq!(process(11), Ended { process: Pid(71), parent, high_water, signal });
        let body = of_pid(13);
        for length in 0..body.len() {
            assert_eq!(ended_of(&body[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_child_that_ends_is_told() {
        let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let exits = match Exits::listen(cpus.trim()) {
            Ok(exits) => exits,
            Err(error) => {
                let refused = [libc::EPERM, libc::EACCES, libc::ENOENT];
                let unknown = [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::EOPNOTSUPP];
                let errno = error.errno();
                assert!(refused.contains(&errno) || unknown.contains(&errno), "{error}");
                return testkit::skipped!("ends cannot be listened to: {error}");
            }
        };
        let end_of = |script: &str| {
            let mut child = std::process::Command::new("sh").args(["-c", script]).spawn().unwrap();
            child.wait().unwrap();
            // During a parallel build the receive buffer may overflow.
            let ended = match exits.ended() {
                Err(error) if error.errno() == libc::ENOBUFS => return None,
                ended => ended.unwrap(),
            };
            let ours = ended.into_iter().find(|it| it.process == Pid(child.id() as i32));
            Some(ours.expect("our own child"))
        };
        let (Some(ended), Some(killed)) = (end_of("exit 3"), end_of("kill -BUS $$")) else {
            return testkit::skipped!("more processes end than can be listened to");
        };
        let own = Pid(std::process::id() as i32);
        assert!(ended.parent == own && ended.high_water > ByteSize(0), "{ended:?}");
        assert_eq!((ended.signal, killed.signal), (None, Some(libc::SIGBUS)));
    }
}
