//! Adds temporary swap while a pool grows, so that the kernel can swap out memory of programs.
//!
//! Growing compacts memory by itself and needs no swap. The swap is for machines whose memory is full of programs'
//! pages.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::options::{Request, Swap};
use super::pools::Step;
use super::{Completion, Context};
use crate::exit::Failure;

const DIR: &str = "/var/lib/hugetlbfs/swap/temp";

/// A plan for temporary swap.
#[derive(Debug)]
pub struct Swapping {
    /// Length of the swap file in bytes; `None`: existing RAM disks.
    length: Option<u64>,
    places: Vec<PathBuf>,
    /// Keep the swap afterwards.
    persist: bool,
}

/// Active temporary swap; removed on drop unless `persist` is set.
#[derive(Debug)]
pub struct Added<'a> {
    context: &'a Context<'a>,
    swapping: Swapping,
    /// Number of swap areas in use.
    on: usize,
}

/// Plans the temporary swap for a request; `None` if no step grows a pool.
pub fn plan(
    context: &Context,
    request: &Request,
    steps: &[Step],
) -> Result<Option<Swapping>, Failure> {
    let (Some(swap), Some(step)) = (request.swap, steps.iter().find(|step| step.grows())) else {
        return Ok(None);
    };
    let persist = request.persist;
    match swap {
        Swap::File(pages) => {
            let length = pages.checked_mul(step.size.bytes()).ok_or_else(|| {
                Failure::usage(format!("--add-temp-swap={pages} is more than any disk has"))
            })?;
            let file = Path::new(DIR).join(format!("swapfile-{}", std::process::id()));
            Ok(Some(Swapping { length: Some(length), places: vec![file], persist }))
        }
        Swap::RamDisks => {
            let places = ram_disks(context, step.size.bytes())?;
            Ok(Some(Swapping { length: None, places, persist }))
        }
    }
}

/// Returns as many RAM disks as needed to hold more than one page.
fn ram_disks(context: &Context, page: u64) -> Result<Vec<PathBuf>, Failure> {
    let mut places = Vec::new();
    let mut bytes = 0u64;
    while bytes <= page {
        let number = places.len();
        // `size` is in units of 512 bytes, regardless of the disk's sector size (Documentation/ABI, stat of block
        // devices).
        let sectors = context.root.read(&format!("/sys/block/ram{number}/size")).ok();
        let device = PathBuf::from(format!("/dev/ram{number}"));
        let sectors = sectors.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0);
        if sectors == 0 || !context.root.path(&device.display().to_string()).exists() {
            let remedy = format!("modprobe brd rd_nr=1 rd_size={}", page / 1024 + 1024);
            return Err(Failure::cannot(format!(
                "--add-ramdisk-swap: there is no {}; make a RAM disk with: {remedy} (as root)",
                device.display()
            )));
        }
        bytes = bytes.saturating_add(sectors.saturating_mul(512));
        places.push(device);
    }
    Ok(places)
}

impl Swapping {
    /// Formats the shell commands before the pool grows.
    pub fn commands_before(&self) -> String {
        let one = |place: &PathBuf| {
            let place = place.display();
            let file = self.length.map_or(String::new(), |length| {
                let count = length / 1024;
                format!("mkdir -p {DIR}\ndd bs=1024 count={count} if=/dev/zero of={place}\n")
            });
            format!("{file}mkswap {place}\nswapon {place}\n")
        };
        self.places.iter().map(one).collect()
    }

    /// Formats the shell commands after the pool has grown.
    pub fn commands_after(&self) -> String {
        let one = |place: &PathBuf| {
            let place = place.display();
            let remove = self.length.map_or(String::new(), |_| format!("rm -f {place}\n"));
            format!("swapoff {place}\n{remove}")
        };
        if self.persist { String::new() } else { self.places.iter().map(one).collect() }
    }

    /// Creates and enables the swap; on failure, removes everything created.
    pub fn begin<'a>(self, context: &'a Context<'a>) -> Result<Added<'a>, Failure> {
        let mut added = Added { context, swapping: self, on: 0 };
        if let Some(length) = added.swapping.length {
            let file = &added.swapping.places[0];
            zeroes(file, length).map_err(|error| {
                let _ = fs::remove_file(file);
                Failure::cannot(format!("swap file {}: {error}", file.display()))
            })?;
        }
        for index in 0..added.swapping.places.len() {
            let place = &added.swapping.places[index];
            let made = command("mkswap", place).and_then(|_| command("swapon", place));
            if let Err(why) = made {
                if added.swapping.length.is_some() {
                    let _ = fs::remove_file(place);
                }
                return Err(why);
            }
            added.on = index + 1;
        }
        Ok(added)
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        if self.swapping.persist && self.on == self.swapping.places.len() {
            return;
        }
        for place in &self.swapping.places[..self.on] {
            if let Err(failure) = command("swapoff", place) {
                self.context.voice.warn(failure.to_string());
                continue;
            }
            if self.swapping.length.is_some()
                && let Err(error) = fs::remove_file(place)
            {
                self.context.voice.warn(format!("{}: {error}", place.display()));
            }
        }
    }
}

/// Creates a file of zeros without holes, readable only by its owner, because swap holds memory of all users.
fn zeroes(path: &Path, length: u64) -> io::Result<()> {
    fs::create_dir_all(DIR)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let block = vec![0; 1 << 20];
    let mut left = length;
    while left > 0 {
        let now = left.min(block.len() as u64);
        file.write_all(&block[..now as usize])?;
        left -= now;
    }
    file.sync_all()
}

fn command(name: &str, place: &Path) -> Result<Completion, Failure> {
    let line = format!("{name} {}", place.display());
    let output = Command::new(name).arg(place).output();
    let output = output.map_err(|error| Failure::cannot(format!("{line}: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_string();
        return Err(Failure::cannot(format!("{line} failed: {why}")));
    }
    Ok(Completion::Full)
}
