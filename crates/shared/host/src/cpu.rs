//! The CPU, read from `/proc/cpuinfo` and sysfs, so that fixtures of any machine work.

use std::path::Path;

use serde::{Deserialize, Serialize};
use units::ByteSize;

use crate::root::Reasons;
use crate::{ReadError, Root, root, tlb};

/// Properties of the CPUs. All logical CPUs are assumed to be like the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// `AMD EPYC 9R14`, or implementer and part number on Arm, where cpuinfo has no model name.
    pub model: Option<String>,
    /// `AuthenticAMD`, `GenuineIntel`, or Arm's implementer code such as `0x41`.
    pub vendor: Option<String>,
    /// cpuinfo's `cpu family` on x86. Family and model select the table of PMU events.
    #[serde(default)]
    pub family: Option<u32>,
    /// cpuinfo's `model` on x86, `CPU part` on Arm.
    #[serde(default)]
    pub number: Option<u32>,
    /// Number of logical CPUs online.
    pub online: Option<u32>,
    /// Nominal speed in MHz: cpufreq's base frequency, CPPC's nominal frequency, or the speed after `@` in the model
    /// name.
    pub nominal_mhz: Option<u32>,
    /// cpuinfo's `cpu MHz` of the first CPU: its current speed; in a guest, the TSC frequency.
    pub reported_mhz: Option<u32>,
    /// Whether this is a virtual machine.
    pub hypervisor: Hypervisor,
    /// `TLB size`: entries of the second-level TLB for base pages. Only AMD prints it.
    pub tlb_entries: Option<u32>,
    /// Line size of the first-level cache, in bytes.
    #[serde(default)]
    pub cache_line_bytes: Option<u64>,
}

/// Whether the kernel runs under a hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "name", rename_all = "kebab-case")]
pub enum Hypervisor {
    /// The `flags` line exists and lacks `hypervisor`.
    Absent,
    /// There is a hypervisor. Has its name, if known.
    Present(Option<String>),
    /// Unknown: Arm has no such flag.
    Unknown,
}

impl Cpu {
    pub(crate) fn read(root: &Root, reasons: &mut Reasons) -> Option<Self> {
        let path = "/proc/cpuinfo";
        let parsed = root.read(path).and_then(|text| parse(&text, &root.path(path)));
        let mut cpu = reasons.ask(path, parsed)?;
        let online = "/sys/devices/system/cpu/online";
        if let Ok(list) = root::word(root, online) {
            // The kernel's list is authoritative; cpuinfo's blocks are the fallback.
            let count = cpu_list_len(&list)
                .ok_or_else(|| ReadError::malformed(&root.path(online), 1, &list, "a CPU list"));
            cpu.online = reasons.ask(online, count).or(cpu.online);
        }
        cpu.nominal_mhz = nominal_mhz(root).or(cpu.nominal_mhz);
        if cpu.nominal_mhz.is_none() {
            reasons.note("cpu.nominal_mhz", "neither cpufreq, CPPC nor the model's name tells it");
        }
        cpu.cache_line_bytes = Self::cache_line(root);
        if let Hypervisor::Present(name) = &mut cpu.hypervisor {
            *name = tlb::hypervisor_name(root)
                .or_else(|| root::word(root, "/sys/hypervisor/type").ok());
        }
        Some(cpu)
    }

    /// Returns the size of the first CPU's largest cache, from sysfs.
    pub fn last_level_cache(root: &Root) -> Option<ByteSize> {
        let size = |index: u32| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
            let kib: u64 = root::word(root, &path).ok()?.strip_suffix('K')?.parse().ok()?;
            Some(ByteSize(kib << 10))
        };
        (0..8).map_while(size).max()
    }

    /// Returns the line size of the first CPU's first cache in bytes, from sysfs.
    pub fn cache_line(root: &Root) -> Option<u64> {
        let path = "/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size";
        let line = root::number(root, path).ok();
        line.filter(|line| line.is_power_of_two() && (16..=1024).contains(line))
    }
}

fn nominal_mhz(root: &Root) -> Option<u32> {
    let cpu0 = "/sys/devices/system/cpu/cpu0";
    let base = root::number(root, &format!("{cpu0}/cpufreq/base_frequency")).map(|khz| khz / 1000);
    let mhz = base.or_else(|_| root::number(root, &format!("{cpu0}/acpi_cppc/nominal_freq")));
    mhz.ok().filter(|mhz| *mhz > 0).and_then(|mhz| u32::try_from(mhz).ok())
}

/// Reads the text of `/proc/cpuinfo`; errors name `path`. Fields from sysfs are `None`.
pub fn parse(text: &str, path: &Path) -> Result<Cpu, ReadError> {
    let mut cpu = Cpu {
        model: None,
        vendor: None,
        family: None,
        number: None,
        online: None,
        nominal_mhz: None,
        reported_mhz: None,
        hypervisor: Hypervisor::Unknown,
        tlb_entries: None,
        cache_line_bytes: None,
    };
    for (line, bad) in root::numbered(text, path) {
        if line.trim().is_empty() {
            continue;
        }
        let (key, value) = line.split_once(':').ok_or_else(|| bad("`key : value`"))?;
        let value = value.trim();
        match key.trim() {
            "processor" => cpu.online = Some(cpu.online.unwrap_or(0).saturating_add(1)),
            "model name" if cpu.model.is_none() => {
                cpu.nominal_mhz = mhz_in_name(value);
                cpu.model = Some(value.to_string());
            }
            "vendor_id" | "CPU implementer" => cpu.vendor = Some(value.to_string()),
            "cpu family" => cpu.family = value.parse().ok(),
            "model" => cpu.number = value.parse().ok(),
            "CPU part" => {
                let part = value.strip_prefix("0x").unwrap_or(value);
                cpu.number = u32::from_str_radix(part, 16).ok();
            }
            "cpu MHz" if cpu.reported_mhz.is_none() => {
                let mhz: f64 = value.parse().map_err(|_| bad("a number of MHz"))?;
                cpu.reported_mhz = Some(mhz.round() as u32);
            }
            "flags" => {
                let guest = value.split_ascii_whitespace().any(|flag| flag == "hypervisor");
                cpu.hypervisor = if guest { Hypervisor::Present(None) } else { Hypervisor::Absent };
            }
            "TLB size" => {
                let entries = value.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
                cpu.tlb_entries = Some(entries.ok_or_else(|| bad("`TLB size : N 4K pages`"))?);
            }
            _ => {}
        }
    }
    if let (None, Some(vendor), Some(part)) = (&cpu.model, &cpu.vendor, cpu.number) {
        cpu.model = Some(format!("Arm implementer {vendor} part {part:#x}"));
    }
    Ok(cpu)
}

/// Parses the speed in `Intel(R) Xeon(R) CPU @ 2.60GHz`, in MHz.
fn mhz_in_name(name: &str) -> Option<u32> {
    let (_, speed) = name.rsplit_once('@')?;
    let ghz: f64 = speed.trim().strip_suffix("GHz")?.trim().parse().ok()?;
    (ghz > 0.0 && ghz < 1000.0).then(|| (ghz * 1000.0).round() as u32)
}

/// Number of CPUs in `0-3,8,10-11`.
fn cpu_list_len(list: &str) -> Option<u32> {
    list.split(',').try_fold(0u32, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}
