//! `FreeBlocks`: what /proc/buddyinfo and /proc/pagetypeinfo say, as a target. Total parsers: they read
//! any text and name the line that is wrong.

use serde::{Deserialize, Serialize};

use crate::memory::Mobility;

use super::FragmentError;

/// Orders that are kept; larger blocks count as several of the largest.
pub const ORDERS: usize = 11;
/// Orders that a kernel may print at most (MAX_ORDER of 64 KB pages on Arm is 13).
const MAX_ORDERS: usize = 32;
/// Blocks of an order at most: more is no machine.
const MAX_BLOCKS: u64 = 1 << 40;

/// What a machine says of its free memory, as it said it: from it everything else can be made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeLists {
    /// The text of /proc/buddyinfo.
    pub buddyinfo: String,
    /// The text of /proc/pagetypeinfo, if it could be read (that takes root).
    pub pagetypeinfo: Option<String>,
    /// Frames of the machine, if known.
    pub frames: Option<u64>,
}

/// Free blocks by mobility and order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FreeBlocks {
    /// Free blocks by [`Mobility`], in the order of [`Mobility::ALL`], and order.
    pub free: [[u64; ORDERS]; 3],
    /// Pageblocks by mobility, if the kernel said.
    pub pageblocks: Option<[u64; 3]>,
    /// Frames of the machine, if known.
    pub frames: Option<u64>,
}

const BUDDYINFO: &str = "/proc/buddyinfo";
const PAGETYPEINFO: &str = "/proc/pagetypeinfo";

impl FreeBlocks {
    /// From the texts of the two files. With pagetypeinfo the free blocks are known by mobility;
    /// without, all count as movable.
    ///
    /// # Errors
    /// [`FragmentError`]: a line that cannot be read, with its number, or no free memory at all.
    pub fn parse(
        buddyinfo: &str,
        pagetypeinfo: Option<&str>,
        frames: Option<u64>,
    ) -> Result<Self, FragmentError> {
        let mut all = [0; ORDERS];
        let mut zones = 0;
        for line in lines(BUDDYINFO, buddyinfo) {
            let (zone, rest) = line.zone()?;
            if zone.is_empty() {
                return Err(line.error("no name of a zone"));
            }
            line.add(&mut all, rest)?;
            zones += 1;
        }
        if zones == 0 {
            return Err(FragmentError::Empty { file: BUDDYINFO });
        }
        let mut target = Self { free: [[0; ORDERS]; 3], pageblocks: None, frames };
        target.free[0] = all;
        if let Some(text) = pagetypeinfo {
            target.add_types(text)?;
        }
        Ok(target)
    }

    /// Free frames.
    pub fn frames_free(&self) -> u64 {
        let order = |(order, count): (usize, &u64)| count << order;
        self.free.iter().flat_map(|orders| orders.iter().enumerate().map(order)).sum()
    }

    /// The same shares of a machine with `frames` frames, if this one's are known.
    pub fn scaled(&self, frames: u64) -> Self {
        let Some(own) = self.frames.filter(|&own| own > 0) else { return self.clone() };
        let scale = |count: u64| {
            let scaled =
                (u128::from(count) * u128::from(frames) + u128::from(own / 2)) / u128::from(own);
            scaled as u64
        };
        Self {
            free: self.free.map(|orders| orders.map(scale)),
            pageblocks: self.pageblocks.map(|counts| counts.map(scale)),
            frames: Some(frames),
        }
    }

    /// Distributes what buddyinfo says by what pagetypeinfo says. Its counts replace buddyinfo's: both
    /// are read at about the same time, and this file stops counting at 100000 (`>100000`).
    fn add_types(&mut self, text: &str) -> Result<(), FragmentError> {
        let all = self.free[0];
        let mut free = [[0; ORDERS]; 3];
        let mut columns = Vec::new();
        let mut pageblocks = [0; 3];
        let mut found = false;
        for line in lines(PAGETYPEINFO, text) {
            if let Some(names) = line.text.strip_prefix("Number of blocks type") {
                columns = names.split_whitespace().map(mobility).collect();
            } else if line.text.starts_with("Node") && line.text.contains(", type") {
                let (_, rest) = line.zone()?;
                let rest = rest.trim_start_matches(',').trim_start();
                let rest =
                    rest.strip_prefix("type").ok_or_else(|| line.error("no type"))?.trim_start();
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                found = true;
                let mut ignored = [0; ORDERS];
                let orders = match mobility(&rest[..end]) {
                    Some(mobility) => &mut free[mobility as usize],
                    None => &mut ignored,
                };
                line.add(orders, &rest[end..])?;
            } else if line.text.starts_with("Node") && !columns.is_empty() {
                let (_, rest) = line.zone()?;
                for (number, mobility) in rest.split_whitespace().zip(&columns) {
                    let number = line.number(number)?;
                    if let Some(mobility) = mobility {
                        pageblocks[*mobility as usize] += number;
                    }
                }
            }
        }
        if !found {
            return Err(FragmentError::Empty { file: PAGETYPEINFO });
        }
        // Where counting stopped early, what is missing goes to the movable ones.
        for order in 0..ORDERS {
            let typed = free.iter().map(|orders| orders[order]).sum::<u64>();
            free[0][order] += all[order].saturating_sub(typed);
        }
        self.free = free;
        self.pageblocks = (pageblocks != [0; 3]).then_some(pageblocks);
        Ok(())
    }
}

/// The mobility of a name of the kernel's; `None` for those that nobody allocates from (Isolate).
fn mobility(name: &str) -> Option<Mobility> {
    match name {
        "Movable" | "CMA" => Some(Mobility::Movable),
        "Reclaimable" => Some(Mobility::Reclaimable),
        "Unmovable" | "HighAtomic" | "Reserve" => Some(Mobility::Unmovable),
        _ => None,
    }
}

/// A line that has something on it.
struct Line<'a> {
    file: &'static str,
    number: usize,
    text: &'a str,
}

fn lines<'a>(file: &'static str, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let lines =
        text.lines().zip(1..).map(move |(text, number)| Line { file, number, text: text.trim() });
    lines.filter(|line| !line.text.is_empty())
}

impl<'a> Line<'a> {
    fn error(&self, why: &'static str) -> FragmentError {
        let text = self.text.chars().take(120).collect();
        FragmentError::Line { file: self.file, line: self.number, text, why }
    }

    /// The zone's name and what follows, of `Node 0, zone Normal ...`.
    fn zone(&self) -> Result<(&'a str, &'a str), FragmentError> {
        let rest = self.text.strip_prefix("Node").ok_or_else(|| self.error("no `Node`"))?;
        let (node, rest) =
            rest.split_once(',').ok_or_else(|| self.error("no `,` after the node"))?;
        node.trim().parse::<u32>().map_err(|_| self.error("no number of a node"))?;
        let rest = rest.trim_start().strip_prefix("zone").ok_or_else(|| self.error("no `zone`"))?;
        let rest = rest.trim_start();
        let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
        Ok((&rest[..end], &rest[end..]))
    }

    fn number(&self, text: &str) -> Result<u64, FragmentError> {
        let digits = text.strip_prefix('>').unwrap_or(text);
        let number = digits.parse::<u64>().map_err(|_| self.error("not a number"))?;
        if number > MAX_BLOCKS {
            return Err(self.error("more blocks than any machine has"));
        }
        Ok(number)
    }

    /// Adds the counts of orders.
    fn add(&self, orders: &mut [u64; ORDERS], text: &str) -> Result<(), FragmentError> {
        let mut seen = 0;
        for (order, number) in text.split_whitespace().enumerate() {
            if order >= MAX_ORDERS {
                return Err(self.error("more orders than any kernel has"));
            }
            let count = self.number(number)?;
            let kept = order.min(ORDERS - 1);
            orders[kept] = orders[kept].saturating_add(count << (order - kept).min(20));
            seen += 1;
        }
        if seen == 0 {
            return Err(self.error("no counts"));
        }
        Ok(())
    }
}
