//! A manager as a service: what it tells the service manager, and the lock that makes it the only one.

mod lock;
mod notify;

pub use lock::{LOCK, LockError, NoManager, OnlyManager, check_unmanaged};
pub use notify::{Notifier, NotifyError, Watchdog, WatchdogError};
