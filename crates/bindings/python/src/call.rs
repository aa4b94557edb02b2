//! Work away from the interpreter: its lock is released, ^C is heeded, and neither a failure nor a panic is lost.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, scope};
use std::time::Duration;

use lab_cli::documents::Going;
use operations::Failure;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(superpage, Error, PyException, "What superpage could not do, in one line.");

/// How often signals are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// What could not be done, in one line.
pub fn failed(why: impl Display) -> PyErr {
    Error::new_err(why.to_string().replace('\n', "; "))
}

/// Does `work` on a thread of its own. What a handler of signals raises meanwhile (^C: KeyboardInterrupt) makes `work` be
/// told to stop, and is raised when it has.
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
            // Dropped when the work is done, however it ends.
            let (alive, done) = channel::<()>();
            let worker = Builder::new().spawn_scoped(scope, || {
                let _alive = alive;
                work(&going)
            });
            let worker =
                worker.map_err(|error| failed(format!("a thread cannot be started: {error}")))?;
            let mut raised = None;
            while done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
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
