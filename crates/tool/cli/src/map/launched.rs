//! A program that is started, mapped and waited for.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use host::{Root, process};
use launch::{Pages, Recipe, Start, Word};
use operations::{facts, signals};
use services::{Process, Selected};
use units::Pid;

use super::{Args, Found};
use crate::background::{self, Descendants, Left};
use crate::exit::{self, Done, Failure};

/// Interval between looks at the program's state.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Starts a program as it is, maps it, and ends as it ends.
pub fn run(command: &[Word], args: &Args) -> Result<Done, Failure> {
    let relay = signals::Relay::new().map_err(Failure::in_launcher)?;
    let recipe = Recipe::new(Pages::System);
    let plan = launch::resolve(&recipe, command, &facts::search_path(), &facts::read())
        .map_err(|error| Failure::of_launcher(&error))?;
    let ours = |error: sys::SysError| Failure::cannot(error).in_launcher();
    let descendants = Descendants::new().map_err(ours)?;
    let pid =
        launch::start(&plan, Start::default()).map_err(|error| Failure::of_launcher(&error))?;
    let relaying = relay.to(pid);
    let root = Root::real();
    let reached = wait(&root, pid, args.after);
    let found = match reached {
        Reached::End => Ok(None),
        Reached::Time | Reached::Stop => map(&root, pid, args).map(Some),
    };
    if matches!(reached, Reached::Stop) {
        // It stopped itself for the map.
        let _ = sys::signal::send(pid, libc::SIGCONT);
    }
    let is_mapped = !matches!(found, Ok(None));
    let delivered = found.and_then(|found| found.map_or(Ok(()), |it| it.deliver(args, true)));
    let ended = descendants.until_exit(pid);
    relaying.stop();
    ended.map_err(ours)?;
    let (status, _) = sys::wait::reap(pid).map_err(ours)?;
    if let Err(why) = delivered {
        exit::say(&why.to_string());
    }
    if !is_mapped {
        exit::say(&unmapped(status, &descendants.left(pid), args.after));
    }
    Ok(status.into())
}

/// Formats why the program was not mapped: it ended before.
fn unmapped(status: ExitStatus, left: &[Left], after: Duration) -> String {
    if let Some(background) = background::words(left, "map it with superpage map") {
        return background;
    }
    let after = report::format::seconds(after.as_secs_f64());
    let how = match status.success() {
        true => String::new(),
        false => format!(" by {}", signals::how_it_ended(status)),
    };
    format!(
        "the program ended within {after}{how}; give a shorter --after, or send it SIGSTOP when its memory is to be mapped"
    )
}

enum Reached {
    Time,
    Stop,
    End,
}

/// Waits until the time is over, or the program stops or ends.
fn wait(root: &Root, pid: Pid, after: Duration) -> Reached {
    let began = Instant::now();
    loop {
        match process::stat(root, pid) {
            Ok(stat) if stat.is_dead() => return Reached::End,
            Err(_) => return Reached::End,
            Ok(stat) if stat.state == 'T' => return Reached::Stop,
            Ok(_) if began.elapsed() >= after => return Reached::Time,
            Ok(_) => {}
        }
        std::thread::sleep(POLL_INTERVAL.min(after.saturating_sub(began.elapsed())));
    }
}

fn map(root: &Root, pid: Pid, args: &Args) -> Result<Found, Failure> {
    let mut selected = Selected::default();
    for one in process::tree(root, pid) {
        match Process::read(root, one) {
            Ok(process) => selected.processes.extend(process),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Found::of(root, &selected, args)
}
