//! `Machine`: the costs of faults on a machine, read from TOML. Unknown keys and invalid values are errors with file,
//! line and key. The built-in machines are `machines/faults/*.toml` in the workspace.

use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use toml_keys::{FileError, Problem};
use units::ByteSize;

use super::scrub::MAX_BLOCK_ORDER;
use super::{Engine, FaultsError, Kernel, Scrub};

/// A machine's properties that affect faults.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    /// Name on the command line.
    pub name: String,
    /// Summary of one line.
    pub summary: String,
    /// Number of CPUs measured. Results for more CPUs are predictions.
    #[serde(deserialize_with = "within::<_, 1, 512>")]
    pub cpus: u32,
    /// Maximum number of CPUs of such a machine.
    #[serde(deserialize_with = "within::<_, 1, 512>")]
    pub largest: u32,
    /// Number of CPUs per node.
    #[serde(deserialize_with = "within::<_, 1, 512>")]
    pub cpus_per_node: u32,
    /// Placement of threads when there are fewer threads than CPUs.
    pub placement: Placement,
    /// Whether threads may fault before all have been started.
    pub starting: Starting,
    /// Base page size.
    #[serde(deserialize_with = "page")]
    pub base_page: ByteSize,
    /// Superpage size of `--patches superpage`.
    #[serde(deserialize_with = "page")]
    pub superpage: ByteSize,
    /// Entries of a page-table page. Prefault does not cross its end.
    #[serde(deserialize_with = "within::<_, 16, 65536>")]
    pub table_entries: u32,
    /// Memory of a node available to programs.
    #[serde(deserialize_with = "size")]
    pub node_memory: ByteSize,
    /// Memory bandwidth of a node, in bytes per second.
    #[serde(deserialize_with = "size")]
    pub node_bandwidth: ByteSize,
    /// Pages that a CPU's own free list takes from the node's at once, under the node's lock.
    #[serde(deserialize_with = "within::<_, 1, 1024>")]
    pub list_pages: u32,
    /// The measured kernel, without patches.
    #[serde(deserialize_with = "kernel")]
    pub kernel: Kernel,
    /// The rule for zeroing free memory, with `--patches prezero`.
    pub scrub: Scrub,
    /// The block transfer engine, for `--zeroing bte`.
    #[serde(default)]
    pub engine: Option<Engine>,
    /// Costs of operations.
    pub costs: Costs,
    /// The constants that were fitted to rows with several threads.
    #[serde(default)]
    pub fits: Vec<Constant>,
    /// Published rows to which contention constants were fitted, in addition to the rows with one thread.
    #[serde(default)]
    pub fitted: Vec<Fitted>,
}

/// A value that may be fitted to published rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Constant {
    /// [`Costs::thread`].
    Thread,
    /// [`Costs::transfer`], and a third of it as [`Costs::transfer_near`].
    Transfer,
    /// [`Costs::crowding`].
    Crowding,
    /// [`Machine::node_bandwidth`].
    NodeBandwidth,
    /// [`Machine::node_memory`].
    NodeMemory,
    /// [`Costs::page`].
    Page,
    /// [`Costs::zero`], also as [`Costs::zero_bulk`].
    Zero,
    /// [`Costs::zero_remote`].
    ZeroRemote,
    /// [`Costs::remote`].
    Remote,
}

/// Published rows used for fitting.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fitted {
    /// The patches, as on the command line.
    pub patches: String,
    /// The numbers of threads.
    pub threads: Vec<u32>,
}

/// Placement of threads when there are fewer threads than CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// To the node with the fewest threads.
    Spread,
    /// To the first node with an idle CPU.
    Packed,
}

/// Nanoseconds in the file, picoseconds in memory.
type Time = u64;

/// Whether threads may fault before all have been started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Starting {
    /// Threads wait until all have been started.
    Together,
    /// All threads wait on the first CPU, which runs them one by one. The other CPUs pull one thread each, one after
    /// the other.
    Pulled,
}

/// Costs of operations, in picoseconds (nanoseconds in the file).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Costs {
    /// User: the first access to a page, without its fault.
    #[serde(deserialize_with = "time")]
    pub touch: Time,
    /// User: each further cache line of the page.
    #[serde(deserialize_with = "time")]
    pub line: Time,
    /// Fixed part of a fault: trap, look-up of the mapping, return.
    #[serde(deserialize_with = "time")]
    pub entry: Time,
    /// Per page of a fault, outside of locks: allocation, accounting.
    #[serde(deserialize_with = "time")]
    pub page: Time,
    /// Per page of a fault: filling the entry, under the page-table lock if the kernel takes one.
    #[serde(deserialize_with = "time")]
    pub fill: Time,
    /// Zeroing a base page of the CPU's own node.
    #[serde(deserialize_with = "time")]
    pub zero: Time,
    /// Zeroing a base page as part of a larger block, in one call.
    #[serde(deserialize_with = "time")]
    pub zero_bulk: Time,
    /// Additional time to zero a page of another node.
    #[serde(deserialize_with = "time")]
    pub zero_remote: Time,
    /// Additional time for a page of another node that needs no zeroing.
    #[serde(deserialize_with = "time")]
    pub remote: Time,
    /// Taking a page from a node's free list, under its lock.
    #[serde(deserialize_with = "time")]
    pub list_page: Time,
    /// Unmapping and freeing a page. One thread unmaps all pages after all threads have ended.
    #[serde(deserialize_with = "time")]
    pub unmap: Time,
    /// Contention: starting and ending a thread. Threads are started one after another. With `Pulled`, the interval
    /// between two pulled threads.
    #[serde(deserialize_with = "time")]
    pub thread: Time,
    /// Contention: transfer of a modified cache line from another node.
    #[serde(deserialize_with = "time")]
    pub transfer: Time,
    /// Contention: transfer of a modified cache line from another CPU of the node.
    #[serde(deserialize_with = "time")]
    pub transfer_near: Time,
    /// Contention: additional time that each request keeps a line busy, per node that waits for the line.
    #[serde(deserialize_with = "time")]
    pub crowding: Time,
}

impl Machine {
    /// Reads a machine from TOML; `file` is its name in errors.
    ///
    /// # Errors
    /// [`FaultsError::File`] with the line of each problem.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, FaultsError> {
        let machine: Self = toml_keys::deserialize(file, text)?;
        let problem = |what: &str| Problem { line: Some(1), key: String::new(), what: what.into() };
        FileError::check(file, machine.strange().map(problem).collect())?;
        Ok(machine)
    }

    /// Returns the contradictions between the values.
    fn strange(&self) -> impl Iterator<Item = &'static str> {
        let costs = &self.costs;
        let checks = [
            (self.cpus > self.largest, "`largest` is less than `cpus`"),
            (self.superpage <= self.base_page, "`superpage` is no larger than `base-page`"),
            (self.node_memory < self.superpage, "`node-memory` is less than a superpage"),
            (self.node_bandwidth.0 < 1 << 20, "`node-bandwidth` is less than 1M a second"),
            (costs.transfer_near > costs.transfer, "`transfer-near` costs more than `transfer`"),
            (costs.entry == 0, "`entry` is 0: a fault takes time"),
            (
                self.scrub.start_permille > self.scrub.stop_permille
                    || self.scrub.stop_permille > 1000,
                "[scrub]: start-permille is at most stop-permille, and that at most 1000",
            ),
            (self.scrub.order > MAX_BLOCK_ORDER, "[scrub]: an order is 0 to 10"),
            (self.scrub.stop_order > self.scrub.order, "[scrub]: stop-order is at most order"),
            (
                self.engine.is_some_and(|it| it.bandwidth.0 < 1 << 20 || it.least > it.most),
                "[engine]: bandwidth is 1M or more, and least at most most",
            ),
        ];
        checks.into_iter().filter(|(is_strange, _)| *is_strange).map(|(_, why)| why)
    }

    /// Returns a constant: picoseconds, bytes, or bytes per second.
    pub fn constant(&self, constant: Constant) -> u64 {
        let costs = &self.costs;
        match constant {
            Constant::Thread => costs.thread,
            Constant::Transfer => costs.transfer,
            Constant::Crowding => costs.crowding,
            Constant::NodeBandwidth => self.node_bandwidth.0,
            Constant::NodeMemory => self.node_memory.0,
            Constant::Page => costs.page,
            Constant::Zero => costs.zero,
            Constant::ZeroRemote => costs.zero_remote,
            Constant::Remote => costs.remote,
        }
    }

    /// Sets a constant, in the unit of [`Self::constant`].
    pub fn set_constant(&mut self, constant: Constant, value: u64) {
        let costs = &mut self.costs;
        match constant {
            Constant::Thread => costs.thread = value,
            Constant::Transfer => (costs.transfer, costs.transfer_near) = (value, value / 3),
            Constant::Crowding => costs.crowding = value,
            Constant::NodeBandwidth => self.node_bandwidth = ByteSize(value),
            Constant::NodeMemory => self.node_memory = ByteSize(value),
            Constant::Page => costs.page = value,
            Constant::Zero => (costs.zero, costs.zero_bulk) = (value, value),
            Constant::ZeroRemote => costs.zero_remote = value,
            Constant::Remote => costs.remote = value,
        }
    }

    /// Returns the maximum number of threads.
    pub fn most_threads(&self) -> u32 {
        self.largest.min(super::MAX_THREADS)
    }
}

/// Reads the table `[kernel]`.
fn kernel<'de, D: Deserializer<'de>>(from: D) -> Result<Kernel, D::Error> {
    Kernel::deserialize(from).map(Kernel::counted)
}

fn within<'de, D: Deserializer<'de>, const LOW: u32, const HIGH: u32>(
    from: D,
) -> Result<u32, D::Error> {
    let value = u64::deserialize(from)?;
    let found = u32::try_from(value).ok().filter(|value| (LOW..=HIGH).contains(value));
    found.ok_or_else(|| D::Error::custom(format!("{value} is not within {LOW} to {HIGH}")))
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

fn page<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    let page = size(from)?;
    let is_page = page.0.is_power_of_two() && (1 << 12..=1 << 34).contains(&page.0);
    is_page.then_some(page).ok_or_else(|| {
        D::Error::custom(format!("{page} is no page: a power of two from 4K to 16G"))
    })
}

/// Reads nanoseconds, at most a second.
fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Time, D::Error> {
    let nanoseconds = f64::deserialize(from)?;
    if !(0.0..=1e9).contains(&nanoseconds) {
        return Err(D::Error::custom(format!("{nanoseconds} is not within 0 to 1e9 nanoseconds")));
    }
    Ok((nanoseconds * 1000.0).round() as Time)
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../machines/faults/", $name, ".toml")))),*]
    };
}

const PRESETS: &[(&str, &str)] = presets!["altix-128", "altix-512", "altix-8", "i386-up", "modern"];

/// Names of the built-in machines.
pub fn names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// Returns the TOML text of a built-in machine.
///
/// # Errors
/// [`FaultsError::UnknownMachine`], with the known names.
pub fn preset_text(name: &str) -> Result<&'static str, FaultsError> {
    let found = PRESETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text).ok_or_else(|| FaultsError::UnknownMachine {
        name: name.to_string(),
        known: names().collect::<Vec<_>>().join(", "),
    })
}

/// Returns a built-in machine.
///
/// # Errors
/// [`FaultsError::UnknownMachine`], with the known names.
pub fn preset(name: &str) -> Result<Machine, FaultsError> {
    Machine::from_toml(preset_text(name)?, &format!("{name}.toml"))
}
