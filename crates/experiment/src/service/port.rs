//! Ports that nobody uses: a fresh one for each run.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// Below the ports that the kernel gives to clients (from 32768, ip(7)): a client that connects just then gets none of
/// these.
const FIRST: u32 = 20_000;
const COUNT: u32 = 10_000;

static NEXT: AtomicU32 = AtomicU32::new(u32::MAX);

/// One that can be listened on, on every address; none comes twice while there are others.
pub(super) fn free() -> std::io::Result<u16> {
    let began = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |now| now.subsec_nanos());
    let _ = NEXT.compare_exchange(u32::MAX, began % COUNT, Ordering::SeqCst, Ordering::SeqCst);
    let mut last = std::io::Error::other("no port tried");
    for _ in 0..COUNT {
        let port = (FIRST + NEXT.fetch_add(1, Ordering::SeqCst) % COUNT) as u16;
        // Who listens on one address alone is seen by the others not.
        let addresses = [Ipv4Addr::UNSPECIFIED, Ipv4Addr::LOCALHOST];
        match addresses
            .into_iter()
            .try_for_each(|address| TcpListener::bind((address, port)).map(drop))
        {
            Ok(()) if !accepts(port) => return Ok(port),
            Ok(()) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether somebody accepts connections there, on this machine.
pub(super) fn accepts(port: u16) -> bool {
    let connects =
        |address: SocketAddr| TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
    connects((Ipv4Addr::LOCALHOST, port).into()) || connects((Ipv6Addr::LOCALHOST, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_fresh() {
        let (first, second) = (free().unwrap(), free().unwrap());
        assert_ne!(first, second);
        assert!(!accepts(first));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(accepts(first));
        drop(listener);
    }
}
