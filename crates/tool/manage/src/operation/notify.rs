//! Messages to the service manager: sd_notify(3), without libsystemd.
//!
//! A message is a datagram of lines `NAME=value` to the socket that `NOTIFY_SOCKET` names. The environment is read by
//! the caller.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use units::Pid;

/// Longest time that a message waits for space in the service manager's queue.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maximum length of a status in bytes.
const MAX_STATUS: usize = 500;

/// The service manager's socket, if this process is a service of type `notify`.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
}

/// A message that could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// `NOTIFY_SOCKET` names no socket of this machine.
    #[error("NOTIFY_SOCKET is {0:?}: must be a path, or @ and a name")]
    Address(String),
    /// The socket cannot be reached.
    #[error("cannot reach the service manager at NOTIFY_SOCKET {address:?}: {source}")]
    Connect {
        /// Value of `NOTIFY_SOCKET`.
        address: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The service manager took no message.
    #[error("cannot tell the service manager {message:?}: {source}")]
    Send {
        /// The message.
        message: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Notifier {
    /// Connects to the socket in `NOTIFY_SOCKET`. Without a value nothing is ever sent.
    ///
    /// # Errors
    /// The value names no socket, or the socket cannot be reached.
    pub fn new(address: Option<&OsStr>) -> Result<Self, NotifyError> {
        let Some(address) = address.filter(|address| !address.is_empty()) else {
            return Ok(Self { socket: None });
        };
        let shown = || address.to_string_lossy().into_owned();
        let to = match address.as_bytes() {
            [b'/', ..] => SocketAddr::from_pathname(address),
            [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name),
            _ => return Err(NotifyError::Address(shown())),
        };
        let connect = |to: SocketAddr| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&to)?;
            socket.set_write_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let socket = to
            .and_then(connect)
            .map_err(|source| NotifyError::Connect { address: shown(), source })?;
        Ok(Self { socket: Some(socket) })
    }

    /// Whether there is a service manager to tell.
    pub fn is_told(&self) -> bool {
        self.socket.is_some()
    }

    /// The manager works, for the first time or again after a reload.
    ///
    /// # Errors
    /// The message was not taken within a second.
    pub fn ready(&self, status: &str) -> Result<(), NotifyError> {
        self.send(&format!("READY=1\n{}", status_line(status)))
    }

    /// What the manager does, in one line for `systemctl status`. Further lines are joined to the first.
    ///
    /// # Errors
    /// The message was not taken within a second.
    pub fn status(&self, status: &str) -> Result<(), NotifyError> {
        self.send(&status_line(status))
    }

    /// The configuration is read again; [`Notifier::ready`] ends the reload, with the new configuration or the old.
    ///
    /// # Errors
    /// The message was not taken within a second.
    pub fn reloading(&self) -> Result<(), NotifyError> {
        let now = sys::param::monotonic_time().as_micros();
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={now}"))
    }

    /// The manager ends.
    ///
    /// # Errors
    /// The message was not taken within a second.
    pub fn stopping(&self) -> Result<(), NotifyError> {
        self.send("STOPPING=1")
    }

    /// The manager is alive.
    ///
    /// # Errors
    /// The message was not taken within a second.
    pub fn alive(&self) -> Result<(), NotifyError> {
        self.send("WATCHDOG=1")
    }

    fn send(&self, message: &str) -> Result<(), NotifyError> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let sent = socket.send(message.as_bytes());
        sent.map(drop).map_err(|source| NotifyError::Send { message: message.to_string(), source })
    }
}

/// A status as a line: a line feed would begin another assignment.
fn status_line(status: &str) -> String {
    let mut line: String =
        status.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let mut end = line.len().min(MAX_STATUS);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    line.truncate(end);
    format!("STATUS={line}")
}

/// The service manager's watchdog: it ends a service that is silent for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watchdog {
    /// Time between two messages [`Notifier::alive`]: half of what the service manager waits for.
    pub every: Duration,
}

/// A watchdog's variable that is no number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}: must be a whole number above 0")]
pub struct WatchdogError {
    /// The variable's name.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
}

impl Watchdog {
    /// Reads the values of `WATCHDOG_USEC` and `WATCHDOG_PID`; `None`: no watchdog is meant for this process.
    ///
    /// # Errors
    /// A value is no number.
    pub fn new(
        micros: Option<&OsStr>,
        pid: Option<&OsStr>,
        own: Pid,
    ) -> Result<Option<Self>, WatchdogError> {
        let number = |variable, value: &OsStr| {
            let text = value.to_string_lossy();
            let number = text.parse().ok().filter(|number: &u64| *number > 0);
            number.ok_or_else(|| WatchdogError { variable, value: text.into_owned() })
        };
        let Some(micros) = micros else { return Ok(None) };
        let pid = pid.map(|pid| number("WATCHDOG_PID", pid)).transpose()?;
        if pid.is_some_and(|pid| i32::try_from(pid) != Ok(own.0)) {
            return Ok(None);
        }
        let micros = number("WATCHDOG_USEC", micros)?;
        Ok(Some(Self { every: Duration::from_micros(micros.div_ceil(2)) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// Sends every message to a socket, and checks what arrives.
    fn tells(address: &OsStr, socket: &UnixDatagram) {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let notifier = Notifier::new(Some(address)).unwrap();
        assert!(notifier.is_told());
        notifier.ready("observing 3 processes").unwrap();
        assert_eq!(received(socket), "READY=1\nSTATUS=observing 3 processes");
        notifier.status("a\nREADY=0\r\0b").unwrap();
        assert_eq!(received(socket), "STATUS=a READY=0  b");
        notifier.status(&"é".repeat(1000)).unwrap();
        assert_eq!(received(socket), format!("STATUS={}", "é".repeat(MAX_STATUS / 2)));
        let before = sys::param::monotonic_time().as_micros();
        notifier.reloading().unwrap();
        let text = received(socket);
        let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a reload");
        let after = sys::param::monotonic_time().as_micros();
        assert!((before..=after).contains(&micros.parse().unwrap()), "{text}");
        notifier.alive().unwrap();
        assert_eq!(received(socket), "WATCHDOG=1");
        notifier.stopping().unwrap();
        assert_eq!(received(socket), "STOPPING=1");
    }

    #[test]
    fn messages_arrive_at_a_socket_with_a_path_and_at_one_with_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        tells(path.as_os_str(), &socket);
        let name = format!("superpage-test-{}", sys::param::own_pid());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        tells(OsStr::new(&format!("@{name}")), &UnixDatagram::bind_addr(&address).unwrap());
    }

    #[test]
    fn without_a_service_manager_nothing_is_sent_and_one_that_is_not_there_is_an_error() {
        for address in [None, Some(OsStr::new(""))] {
            let notifier = Notifier::new(address).unwrap();
            assert!(!notifier.is_told());
            notifier.ready("x").unwrap();
        }
        for address in ["relative", "@", "vsock:2:1"] {
            let error = Notifier::new(Some(OsStr::new(address))).unwrap_err();
            assert!(matches!(&error, NotifyError::Address(shown) if shown == address), "{error}");
        }
        let long = "/x".repeat(100);
        for address in ["/nonexistent/notify", &long] {
            let error = Notifier::new(Some(OsStr::new(address))).unwrap_err();
            assert!(matches!(error, NotifyError::Connect { .. }), "{error}");
        }
    }

    #[test]
    fn a_service_manager_that_reads_nothing_does_not_hold_the_manager_up_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let _socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Notifier::new(Some(path.as_os_str())).unwrap();
        // The queue of a socket holds net.unix.max_dgram_qlen messages, or what its buffers hold.
        let full = (0..100_000).find_map(|_| notifier.alive().err());
        assert!(matches!(full, Some(NotifyError::Send { .. })), "{full:?}");
    }

    #[test]
    fn a_watchdog_is_fed_twice_as_often_as_asked() {
        let (own, usec) = (Pid(7), Some(OsStr::new("30000000")));
        let watchdog = |usec, pid: Option<&str>| Watchdog::new(usec, pid.map(OsStr::new), own);
        let every = Duration::from_secs(15);
        for pid in [None, Some("7")] {
            assert_eq!(watchdog(usec, pid), Ok(Some(Watchdog { every })));
        }
        assert_eq!(watchdog(None, Some("7")), Ok(None));
        // Another process's.
        assert_eq!(watchdog(usec, Some("8")), Ok(None));
        assert_eq!(watchdog(usec, Some("4294967303")), Ok(None));
        for bad in ["", "0", "-1", "x"] {
            let error = watchdog(Some(OsStr::new(bad)), None).unwrap_err();
            assert_eq!((error.variable, error.value.as_str()), ("WATCHDOG_USEC", bad));
            assert_eq!(watchdog(usec, Some(bad)).unwrap_err().variable, "WATCHDOG_PID");
        }
    }
}
