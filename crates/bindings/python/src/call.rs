//! Runs work without the interpreter lock. ^C interrupts it, and errors and panics reach the caller.

use std::ffi::CString;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use lab_cli::documents::Going;
use operations::Failure;
use operations::reporter::{Bar, Reporter};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyUserWarning};
use pyo3::prelude::*;

create_exception!(superpage, Error, PyException, "What superpage could not do, in one line.");

/// Poll interval for signals.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Creates a Python exception with the error in one line.
pub fn failed(why: impl Display) -> PyErr {
    Error::new_err(why.to_string().replace('\n', "; "))
}

/// Runs `work` on a separate thread. If a Python signal handler raises meanwhile (^C: KeyboardInterrupt), cancels
/// `work`, and raises the exception after it has ended.
pub fn apart<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(Going<'_>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let stop = AtomicBool::new(false);
    let going = || match stop.load(Ordering::Relaxed) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    py.detach(|| {
        scope(|scope| {
            // `alive` is dropped when the work ends, even by a panic; `done` then reports a disconnection.
            let (alive, done) = channel::<()>();
            let worker = Builder::new().spawn_scoped(scope, || {
                let _alive = alive;
                work(&going)
            });
            let worker =
                worker.map_err(|error| failed(format!("a thread cannot be started: {error}")))?;
            let mut raised = None;
            while done.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if raised.is_none() {
                    raised = Python::attach(|py| py.check_signals()).err();
                    stop.store(raised.is_some(), Ordering::Relaxed);
                }
            }
            match (raised, worker.join()) {
                (Some(raised), _) => Err(raised),
                (None, Ok(done)) => done.map_err(failed),
                (None, Err(_)) => {
                    Err(failed("an assertion failed, which is superpage's mistake; report it"))
                }
            }
        })
    })
}

/// Shows messages of superpage as warnings of Python.
pub struct Warnings;

impl Reporter for Warnings {
    fn say(&self, line: &str) {
        let Ok(line) = CString::new(line) else { return };
        Python::attach(|py| {
            // If a warning filter turns the warning into an exception, there is no Python caller in which to raise the
            // exception.
            let _ = PyErr::warn(py, &py.get_type::<PyUserWarning>(), &line, 1);
        });
    }

    fn progress(&self, _: &str, _: bool) -> Box<dyn Bar + Send> {
        Box::new(Silent)
    }
}

/// Shows no progress.
struct Silent;

impl Bar for Silent {
    fn tell(&mut self, _: u64, _: Option<u64>, _: &mut dyn FnMut() -> String) {}

    fn aside(&self, print: &mut dyn FnMut()) {
        print();
    }

    fn clear(&mut self) {}
}
