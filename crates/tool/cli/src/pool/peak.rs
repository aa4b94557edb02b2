//! The largest need of processes over several reads of their memory, and a program that is watched for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use experiment::watch::{AT_PEAK, NEAR_PEAK};
use host::pool::Status;
use host::{Root, process};
use launch::{Pages, Recipe, Start, Streams, Word};
use operations::{facts, signals};
use services::{
    Application, Demand, Identity, Image, Need, OwnFigure, Process, SpaceError, largest_backed,
};
use units::{ByteSize, PageSize, Pid};

use crate::background::{self, Descendants};
use crate::exit::{self, Failure};

/// The largest need that was seen, and the memory at that time.
pub struct Peak {
    sizes: Vec<PageSize>,
    limit: u64,
    /// This process: a child equals it until the child executes the program.
    own: Option<Image>,
    needs: BTreeMap<PageSize, Need>,
    /// The demand of the largest read.
    pub demand: Demand,
    /// The memory of the largest read; empty: none was read.
    pub images: Vec<Image>,
    identities: BTreeMap<(Pid, u64), Identity>,
    /// Resident bytes of each process: maximum over the reads, and the peak by the kernel.
    resident: BTreeMap<(Pid, u64), (u64, u64)>,
    /// Processes that could not be read, with reasons.
    pub unknown: Vec<String>,
}

impl Peak {
    /// Creates a peak without processes.
    ///
    /// # Errors
    /// The kernel has no pool.
    pub fn new(status: &Status) -> Result<Self, Failure> {
        let root = Root::real();
        let sizes: Vec<PageSize> = status.pools.sizes.keys().copied().collect();
        if sizes.is_empty() {
            return Err(Failure::cannot("this kernel has no pool of any page size"));
        }
        let own = Process::read(&root, sys::param::own_pid()).ok().flatten();
        Ok(Self {
            sizes,
            limit: largest_backed(&root),
            own: own.and_then(|own| Image::read(&root, &own).ok()),
            needs: BTreeMap::new(),
            demand: Demand::default(),
            images: Vec::new(),
            identities: BTreeMap::new(),
            resident: BTreeMap::new(),
            unknown: Vec::new(),
        })
    }

    /// Reads the processes, and keeps the larger need. Calls `progress` with the number of processes already read.
    pub fn read(&mut self, root: &Root, processes: &[Process], progress: &mut dyn FnMut(u64)) {
        let mut images = Vec::new();
        for (done, one) in processes.iter().enumerate() {
            progress(done as u64);
            let mut image = match Image::read(root, one) {
                Ok(image) if self.own.as_ref().is_some_and(|own| image.is_copy_of(own)) => continue,
                Ok(image) => image,
                Err(SpaceError::Ended) => continue,
                Err(error) => {
                    let name = report::format::name(&one.name, 20);
                    let why = format!("pid {} ({name}): {error}", one.pid);
                    if !self.unknown.contains(&why) {
                        self.unknown.push(why);
                    }
                    continue;
                }
            };
            let key = (one.pid, one.start_ticks);
            if let Some(identity) = Identity::read(root, one) {
                if identity.application == Application::Redis {
                    image.drop_private();
                }
                // The command line of an earlier read may be that of the program that executed this one; redis
                // overwrites its own by one word.
                let is_fuller = one.command.len() > 1 || !self.identities.contains_key(&key);
                if is_fuller {
                    self.identities.insert(key, identity);
                }
            }
            images.push(image);
            if let Ok(memory) = process::status(root, one.pid) {
                let bytes = |size: Option<ByteSize>| size.map_or(0, ByteSize::bytes);
                let most = self.resident.entry(key).or_default();
                *most = (most.0.max(bytes(memory.rss)), most.1.max(bytes(memory.peak_rss)));
            }
        }
        if images.is_empty() {
            return;
        }
        let demand = Demand::new(&images, self.limit);
        let least = self.least();
        for size in &self.sizes {
            let need = demand.need(*size, least);
            let most = self.needs.entry(*size).or_default();
            if need.pages() >= most.pages() {
                *most = need;
            }
        }
        // Many processes say more of a server than the few bytes that its start-up mapped for a moment.
        let extent =
            |demand: &Demand| (demand.need(least, least).pages(), demand.processes, demand.bytes());
        if self.images.is_empty() || extent(&demand) >= extent(&self.demand) {
            (self.demand, self.images) = (demand, images);
        }
    }

    /// The smallest page size of a pool.
    pub fn least(&self) -> PageSize {
        self.sizes.iter().copied().min().unwrap_or_else(sys::param::page_size)
    }

    /// The largest need of pages of a size.
    pub fn need(&self, size: PageSize) -> Need {
        self.needs.get(&size).copied().unwrap_or_default()
    }

    /// The figures that the applications among the processes report themselves.
    pub fn figures(&self, root: &Root, default: Option<PageSize>) -> Vec<OwnFigure> {
        let is_server = |identity: &&Identity| {
            let is_parent = |other: &Identity| {
                other.process.pid == identity.process.parent
                    && other.application == identity.application
            };
            // A child of PostgreSQL looks like the server until it changes its title.
            !self.identities.values().any(is_parent)
        };
        let servers = self.identities.values().filter(is_server);
        servers.map(|identity| identity.figure(root, &self.images, default)).collect()
    }

    /// Smallest share of its peak that a process had at a read, among the processes whose peak was a page of a pool
    /// larger.
    fn seen_share(&self) -> f64 {
        let page = self.least().bytes();
        let partly =
            self.resident.values().filter(|(seen, most)| most.saturating_sub(*seen) >= page);
        partly.map(|(seen, most)| *seen as f64 / *most as f64).fold(1.0, f64::min)
    }
}

/// Runs the program to its end and reads its memory often: its speed does not matter here.
pub fn watch(command: &[Word], mut peak: Peak) -> Result<Peak, Failure> {
    let relay = signals::Relay::new()?;
    let plan =
        launch::resolve(&Recipe::new(Pages::Base), command, &facts::search_path(), &facts::read())?;
    let stderr = || -> Result<File, Failure> {
        let copy = std::io::stderr().as_fd().try_clone_to_owned();
        copy.map(File::from).map_err(|error| Failure::usage(format!("standard error: {error}")))
    };
    let start = Start {
        streams: Streams::Into { stdout: stderr()?, stderr: stderr()? },
        die_with_parent: true,
        ..Start::default()
    };
    let descendants = Descendants::new().map_err(Failure::cannot)?;
    let pid = launch::start(&plan, start)?;
    let relaying = relay.to(pid);
    let tree = descendants.clone();
    let (stop, stopped) = channel::<()>();
    let reader = std::thread::spawn(move || {
        read_until(&stopped, &tree, &mut peak);
        peak
    });
    let ended = descendants.until_exit(pid);
    let _ = stop.send(());
    let read = reader.join();
    relaying.stop();
    ended.map_err(Failure::cannot)?;
    let (status, _) = sys::wait::reap(pid).map_err(Failure::cannot)?;
    let peak = read.map_err(|_| Failure::cannot("reading its memory failed"))?;
    let background = background::words(&descendants.left(pid), "give --pid");
    if status.code() != Some(0) {
        let how = signals::how_it_ended(status);
        exit::say(&format!("the program ended by {how}; its memory until then is counted"));
        if let Some(background) = background {
            exit::say(&background);
        }
    } else if let Some(background) = background {
        // Its memory was read until the first process ended, which is not what it needs.
        return Err(Failure::usage(background));
    }
    let share = peak.seen_share();
    if !peak.images.is_empty() && share < NEAR_PEAK {
        return Err(Failure::cannot(format!(
            "its memory was read only when a process had {} of its peak; a program that keeps its memory for a second \
             is planned for",
            report::format::percent(share)
        )));
    }
    if share < AT_PEAK {
        exit::say(&format!(
            "its memory was read when a process had {} of its peak",
            report::format::percent(share)
        ));
    }
    Ok(peak)
}

fn read_until(stopped: &Receiver<()>, tree: &Descendants, peak: &mut Peak) {
    /// Shortest and longest pause between two reads.
    const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));
    let root = Root::real();
    let began = Instant::now();
    loop {
        let read_began = Instant::now();
        let process = |pid| Process::read(&root, pid).ok().flatten();
        let processes: Vec<Process> = tree.members().into_iter().filter_map(process).collect();
        peak.read(&root, &processes, &mut |_| {});
        // Pauses grow with the age of the program; it runs four fifths of the time.
        let pause = (began.elapsed() / 50).clamp(PAUSES.0, PAUSES.1).max(read_began.elapsed() * 4);
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
