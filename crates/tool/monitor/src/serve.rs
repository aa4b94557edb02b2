//! A server of one page: `/metrics`, over HTTP/1.1, on a TCP address or a Unix socket.
//!
//! A separate thread answers each connection once and closes it. A request has a limit of size and of time, and
//! so has the answer; the number of connections is limited. So a slow client delays neither samples nor other clients
//! for long. httparse parses requests.
//!
//! See docs/decisions/watching.md#2.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Maximum bytes of a request.
const MAX_REQUEST: usize = 8 << 10;
/// Maximum number of header fields of a request.
const MAX_FIELDS: usize = 64;
/// Maximum number of connections at a time.
const MAX_CONNECTIONS: usize = 16;
/// Maximum time of a connection.
const LIMIT: Duration = Duration::from_secs(10);

/// Media type of OpenMetrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address and a port; port 0 lets the kernel choose.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether only programs of this machine reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(_) => Err("expected an absolute path after `unix:`".to_string()),
            None => text.parse().map(Self::Tcp).map_err(|_| {
                "expected an IP address and a port, such as 127.0.0.1:9917, or unix:/PATH"
                    .to_string()
            }),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another program listens there.
    #[error("{0}: another program listens there; choose another with --listen")]
    InUse(Address),
    /// The path of a socket is that of another file.
    #[error("{0}: a file that is no socket is there; choose another path with --listen")]
    NoSocket(Address),
    /// Another error.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Io {
        /// The address.
        address: Address,
        /// The kernel's error.
        source: io::Error,
    },
}

/// An open address that is not served yet.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// With device and inode of the file, which is removed at the end.
    Unix(UnixListener, (u64, u64)),
}

impl Listener {
    /// Opens an address. A socket that a killed program left behind is replaced.
    ///
    /// # Errors
    /// Another program listens there, or the address is not this machine's.
    pub fn bind(address: &Address) -> Result<Self, ListenError> {
        let failed = |source: io::Error| match source.kind() {
            ErrorKind::AddrInUse => ListenError::InUse(address.clone()),
            _ => ListenError::Io { address: address.clone(), source },
        };
        let (address, socket) = match address {
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(failed)?;
                let real = listener.local_addr().map_err(failed)?;
                (Address::Tcp(real), Socket::Tcp(listener))
            }
            Address::Unix(path) => {
                remove_left(address, path)?;
                let listener = UnixListener::bind(path).map_err(failed)?;
                let file = std::fs::symlink_metadata(path).map_err(failed)?;
                (address.clone(), Socket::Unix(listener, (file.dev(), file.ino())))
            }
        };
        Ok(Self { address, socket })
    }

    /// The address, with the port that the kernel chose.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Answers requests for ever, with what `page` returns at that moment; `None`: there is no page yet.
    pub fn serve(&self, page: Arc<dyn Fn() -> Option<String> + Send + Sync>) {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            let stream: io::Result<Box<dyn Stream>> = match &self.socket {
                Socket::Tcp(listener) => {
                    listener.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>)
                }
                Socket::Unix(listener, _) => {
                    listener.accept().map(|(stream, _)| Box::new(stream) as Box<dyn Stream>)
                }
            };
            let Ok(stream) = stream else {
                // Out of descriptors, for example: do not spin.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if open.fetch_add(1, Ordering::SeqCst) >= MAX_CONNECTIONS {
                open.fetch_sub(1, Ordering::SeqCst);
                continue; // closes the connection
            }
            let (ended, page) = (Arc::clone(&open), Arc::clone(&page));
            let answer = move || {
                let _ = Connection::new(stream).answer(&*page);
                ended.fetch_sub(1, Ordering::SeqCst);
            };
            if std::thread::Builder::new().stack_size(256 << 10).spawn(answer).is_err() {
                open.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    /// Removes the file of a Unix socket, if it is still this one.
    pub fn remove(&self) {
        if let (Address::Unix(path), Socket::Unix(_, id)) = (&self.address, &self.socket)
            && std::fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == *id)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a socket on which no program listens.
fn remove_left(address: &Address, path: &Path) -> Result<(), ListenError> {
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(ListenError::NoSocket(address.clone()));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|source| ListenError::Io { address: address.clone(), source }),
        _ => Err(ListenError::InUse(address.clone())),
    }
}

/// A connection with time limits.
trait Stream: Read + Write + Send {
    fn limit(&self, time: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }
}

/// What the answer to a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Page,
    Head,
    BadRequest,
    NotFound,
    BadMethod,
    TooLarge,
    TooSlow,
}

struct Connection {
    stream: Box<dyn Stream>,
    end: Instant,
}

impl Connection {
    fn new(stream: Box<dyn Stream>) -> Self {
        Self { stream, end: Instant::now() + LIMIT }
    }

    fn answer(mut self, page: &dyn Fn() -> Option<String>) -> io::Result<()> {
        let answer = self.request()?;
        let text = match answer {
            Answer::Page | Answer::Head => page(),
            _ => None,
        };
        let (status, kind, body) = match (answer, text) {
            (Answer::Page | Answer::Head, Some(text)) => ("200 OK", OPEN_METRICS, text),
            (Answer::Page | Answer::Head, None) => {
                ("503 Service Unavailable", TEXT, "no sample yet\n".to_string())
            }
            (Answer::BadRequest, _) => ("400 Bad Request", TEXT, "not HTTP/1\n".to_string()),
            (Answer::NotFound, _) => {
                ("404 Not Found", TEXT, "metrics are at /metrics\n".to_string())
            }
            (Answer::BadMethod, _) => {
                ("405 Method Not Allowed\r\nAllow: GET, HEAD", TEXT, "GET only\n".to_string())
            }
            (Answer::TooLarge, _) => (
                "431 Request Header Fields Too Large",
                TEXT,
                format!("a request has at most {MAX_REQUEST} bytes\n"),
            ),
            (Answer::TooSlow, _) => ("408 Request Timeout", TEXT, "too slow\n".to_string()),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        self.write(head.as_bytes())?;
        if answer != Answer::Head {
            self.write(body.as_bytes())?;
        }
        Ok(())
    }

    /// Reads a request.
    fn request(&mut self) -> io::Result<Answer> {
        let mut request = Vec::new();
        loop {
            let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
            let mut parsed = httparse::Request::new(&mut fields);
            match parsed.parse(&request) {
                Ok(httparse::Status::Complete(_)) => {
                    let path = parsed.path.unwrap_or_default();
                    let path = path.split_once('?').map_or(path, |(path, _)| path);
                    return Ok(match (parsed.method, path) {
                        (Some("GET"), "/metrics") => Answer::Page,
                        (Some("HEAD"), "/metrics") => Answer::Head,
                        (Some("GET" | "HEAD"), _) => Answer::NotFound,
                        _ => Answer::BadMethod,
                    });
                }
                Ok(httparse::Status::Partial) => {}
                Err(httparse::Error::TooManyHeaders) => return Ok(Answer::TooLarge),
                Err(_) => return Ok(Answer::BadRequest),
            }
            if request.len() >= MAX_REQUEST {
                return Ok(Answer::TooLarge);
            }
            let Some(left) = self.left() else { return Ok(Answer::TooSlow) };
            self.stream.limit(left)?;
            let mut part = [0; 1024];
            let length = part.len().min(MAX_REQUEST - request.len());
            match self.stream.read(&mut part[..length]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => request.extend_from_slice(&part[..count]),
                Err(error) if is_timeout(&error) => return Ok(Answer::TooSlow),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes everything before the connection's end.
    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        // Too slow a request is answered all the same.
        self.end = self.end.max(Instant::now() + Duration::from_secs(1));
        while !bytes.is_empty() {
            let Some(left) = self.left() else { return Err(ErrorKind::TimedOut.into()) };
            self.stream.limit(left)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Time until the connection's end.
    fn left(&self) -> Option<Duration> {
        self.end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves `page` on a free port, until the test program ends.
    fn server(page: &'static str) -> SocketAddr {
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap()).unwrap();
        let Address::Tcp(address) = listener.address().clone() else { unreachable!() };
        std::thread::spawn(move || listener.serve(Arc::new(move || Some(page.to_string()))));
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        // A server that closes with unread bytes resets the connection.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn one_page_is_served_and_every_other_request_is_told_why_not() {
        let address = server("a 1\n# EOF\n");
        let page = ask(address, b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
        assert!(page.contains("Content-Type: application/openmetrics-text; version=1.0.0"));
        assert!(page.ends_with("\r\n\r\na 1\n# EOF\n"), "{page}");
        let head = ask(address, b"HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let long = [b"GET /metrics HTTP/1.1\r\nA: ".to_vec(), vec![b'x'; MAX_REQUEST]].concat();
        for (request, status) in [
            (&b"GET /metrics?a=b HTTP/1.1\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metrics/x HTTP/1.0\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x02\x00", "400"),
            (b"GET\r\n\r\n", "400"),
            (&long, "431"),
        ] {
            let answer = ask(address, request);
            let expected = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&expected), "{}: {answer}", request.escape_ascii());
        }
    }

    #[test]
    fn clients_that_send_nothing_stall_no_other_client() {
        let address = server("x\n");
        let silent: Vec<_> =
            (0..MAX_CONNECTIONS - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("x\n"));
        // With all places taken a client is turned away at once, and served when a place is free.
        // The place of the client above is free a moment after its answer, so more than one more may be let in.
        let mut more = Vec::new();
        let turned_away = (0..MAX_CONNECTIONS).any(|_| {
            let mut client = TcpStream::connect(address).unwrap();
            client.set_read_timeout(Some(LIMIT / 10)).unwrap();
            let read = client.read(&mut [0]);
            more.push(client);
            !read.is_err_and(|error| is_timeout(&error))
        });
        assert!(turned_away);
        drop((silent, more));
        let served = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            ask(address, b"GET /metrics HTTP/1.1\r\n\r\n").ends_with("x\n")
        });
        assert!(served);
    }

    #[test]
    fn an_address_in_use_is_refused_and_a_socket_that_was_left_is_replaced() {
        let address = Address::Tcp(server(""));
        let refused = Listener::bind(&address).unwrap_err();
        assert!(matches!(refused, ListenError::InUse(_)), "{refused}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let address: Address = format!("unix:{}", path.display()).parse().unwrap();
        let first = Listener::bind(&address).unwrap();
        assert!(matches!(Listener::bind(&address).unwrap_err(), ListenError::InUse(_)));
        drop(first);
        assert!(!path.exists());
        // What a killed program leaves.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::bind(&address).unwrap();
        let served = path.clone();
        std::thread::spawn(move || second.serve(Arc::new(|| None)));
        let mut stream = UnixStream::connect(served).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        // Another file is never removed.
        let file = dir.path().join("f");
        std::fs::write(&file, "precious").unwrap();
        let address = Address::Unix(file.clone());
        assert!(matches!(Listener::bind(&address).unwrap_err(), ListenError::NoSocket(_)));
        assert_eq!(std::fs::read_to_string(file).unwrap(), "precious");
    }

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, is_local) in [
            ("127.0.0.1:9917", true),
            ("[::1]:9917", true),
            ("0.0.0.0:9917", false),
            ("unix:/run/a.sock", true),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.to_string().as_str(), address.is_local()), (text, is_local));
        }
        for text in ["", "9917", "localhost", "127.0.0.1", "unix:a.sock", "1.2.3.4:99999"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
