//! The CPU's performance monitoring unit according to sysfs: its type for `perf_event_open(2)`, and the bit fields of
//! its format terms.

use std::collections::BTreeMap;

use crate::{ReadError, Root, root};

/// Directory of the kernel's event sources (`Documentation/ABI/testing/ sysfs-bus-event_source-devices-format`).
const DEVICES: &str = "/sys/bus/event_source/devices";

/// A CPU core PMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pmu {
    /// `cpu`; `cpu_core` on hybrid processors; `armv8_pmuv3_0`.
    pub name: String,
    /// Its `type` for `perf_event_open(2)`.
    pub kind: u32,
    /// Number of counters, if known; not every kernel has `caps/num_counters`.
    pub counters: Option<u32>,
    formats: BTreeMap<String, Format>,
}

/// The bits of a term. The lowest bits of the value come first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Format {
    /// 0 for `config`, 1 for `config1`, 2 for `config2`.
    word: usize,
    bits: Vec<(u32, u32)>,
}

/// A term whose value does not fit the PMU's format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pmu} has no place for {term}={value:#x}; its format directory does not name it so wide")]
pub struct NoSuchTerm {
    /// The PMU's name.
    pub pmu: String,
    /// The term.
    pub term: String,
    /// The value.
    pub value: u64,
}

impl Pmu {
    /// Reads the PMU of the CPU cores (of the faster cores if there are two kinds). `None` if the kernel found no PMU,
    /// as in most virtual machines.
    pub fn read(root: &Root) -> Result<Option<Self>, ReadError> {
        let names = match root.list(DEVICES) {
            Err(error) if error.is_gone() => return Ok(None),
            names => names?,
        };
        let fixed = ["cpu", "cpu_core"].into_iter().find(|core| names.iter().any(|n| n == core));
        let arm = names.iter().find(|name| name.starts_with("armv")).map(String::as_str);
        fixed.or(arm).map(|name| Self::named(root, name)).transpose()
    }

    fn named(root: &Root, name: &str) -> Result<Self, ReadError> {
        let dir = format!("{DEVICES}/{name}");
        let kind_path = format!("{dir}/type");
        let kind = root::number(root, &kind_path)?;
        let kind = u32::try_from(kind).map_err(|_| {
            ReadError::malformed(&root.path(&kind_path), 1, &kind.to_string(), "a 32-bit number")
        })?;
        let counters = root::number(root, &format!("{dir}/caps/num_counters"));
        let counters = counters.ok().and_then(|count| count.try_into().ok());
        let mut formats = BTreeMap::new();
        for term in root.list(&format!("{dir}/format")).unwrap_or_default() {
            let path = format!("{dir}/format/{term}");
            let line = root::word(root, &path)?;
            let format = parse_format(&line).ok_or_else(|| {
                ReadError::malformed(&root.path(&path), 1, &line, "`config:0-7,32-35`")
            })?;
            formats.insert(term, format);
        }
        Ok(Self { name: name.to_string(), kind, counters, formats })
    }

    /// Encodes the terms into the words `config`, `config1` and `config2`. Skips terms of value 0.
    pub fn encode(&self, terms: &[(&str, u64)]) -> Result<[u64; 3], NoSuchTerm> {
        let mut words = [0; 3];
        for (term, value) in terms.iter().filter(|(_, value)| *value != 0) {
            let format = self.formats.get(*term);
            let placed = format.and_then(|format| Some((format.word, format.encode(*value)?)));
            let missing =
                || NoSuchTerm { pmu: self.name.clone(), term: term.to_string(), value: *value };
            let (word, bits) = placed.ok_or_else(missing)?;
            words[word] |= bits;
        }
        Ok(words)
    }
}

impl Format {
    /// Encodes the value's bits; `None` if the field is too narrow.
    fn encode(&self, mut value: u64) -> Option<u64> {
        let mut placed = 0;
        for (first, last) in &self.bits {
            let width = last - first + 1;
            let mask = u64::MAX >> (64 - width);
            placed |= (value & mask) << first;
            value = value.checked_shr(width).unwrap_or(0);
        }
        (value == 0).then_some(placed)
    }
}

/// Parses `config:0-7,32-35` or `config1:3`.
fn parse_format(line: &str) -> Option<Format> {
    let (word, bits) = line.split_once(':')?;
    let word = ["config", "config1", "config2"].iter().position(|name| *name == word)?;
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last && last < 64).then_some((first, last))
    };
    let bits = bits.split(',').map(range).collect::<Option<_>>()?;
    Some(Format { word, bits })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn root_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    /// Formats as printed by Linux 6.1 on a Skylake and on a Zen 3 (kernel source, x86/events).
    const INTEL: [(&str, &str); 5] = [
        ("sys/bus/event_source/devices/cpu/type", "4\n"),
        ("sys/bus/event_source/devices/cpu/format/event", "config:0-7\n"),
        ("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n"),
        ("sys/bus/event_source/devices/cpu/format/cmask", "config:24-31\n"),
        ("sys/bus/event_source/devices/cpu/format/ldlat", "config1:0-15\n"),
    ];
    const AMD: [(&str, &str); 3] = [
        ("sys/bus/event_source/devices/cpu/type", "4\n"),
        ("sys/bus/event_source/devices/cpu/format/event", "config:0-7,32-35\n"),
        ("sys/bus/event_source/devices/cpu/format/umask", "config:8-15\n"),
    ];

    #[test]
    fn terms_go_where_the_format_says() {
        let (_dir, root) = root_with(&INTEL);
        let pmu = Pmu::read(&root).unwrap().unwrap();
        assert_eq!((pmu.name.as_str(), pmu.kind, pmu.counters), ("cpu", 4, None));
        let terms = [("event", 0x08), ("umask", 0x10), ("cmask", 1), ("ldlat", 3)];
        assert_eq!(pmu.encode(&terms).unwrap(), [0x0100_1008, 3, 0]);
        let (_dir, root) = root_with(&AMD);
        let pmu = Pmu::read(&root).unwrap().unwrap();
        let split = pmu.encode(&[("event", 0x1d2), ("umask", 0xff), ("cmask", 0)]).unwrap();
        assert_eq!(split, [0x1_0000_ffd2, 0, 0]);
        for terms in [[("cmask", 1)], [("event", 0x1000)]] {
            assert!(pmu.encode(&terms).is_err(), "{terms:?}");
        }
    }

    #[test]
    fn no_pmu_is_no_error_and_software_events_are_none() {
        let (_dir, root) = root_with(&[]);
        assert_eq!(Pmu::read(&root).unwrap(), None);
        let (_dir, root) = root_with(&[("sys/bus/event_source/devices/software/type", "1\n")]);
        assert_eq!(Pmu::read(&root).unwrap(), None);
    }

    #[test]
    fn a_format_of_another_kind_is_an_error_with_its_file() {
        let mut files = INTEL.to_vec();
        files.push(("sys/bus/event_source/devices/cpu/format/odd", "config:7-0\n"));
        let (_dir, root) = root_with(&files);
        let error = Pmu::read(&root).unwrap_err().to_string();
        assert!(error.contains("format/odd"), "{error}");
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_a_format_or_none(line in ".{0,40}", value in proptest::num::u64::ANY) {
            if let Some(format) = parse_format(&line) {
                let _ = format.encode(value);
            }
        }

        #[test]
        fn what_is_placed_can_be_taken_back(first in 0u32..32, width in 1u32..32, value: u64) {
            let format = Format { word: 0, bits: vec![(first, first + width - 1)] };
            let fits = value >> width == 0;
            proptest::prop_assert_eq!(format.encode(value).is_some(), fits);
            if let Some(placed) = format.encode(value) {
                proptest::prop_assert_eq!(placed >> first, value);
            }
        }
    }
}
