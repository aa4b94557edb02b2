//! Whether DAMON could tell which memory is hot.
//!
//! DAMON's sysfs directory holds one set of kdamonds for the whole machine. So it is used by nobody else only if that set
//! is empty, and it can watch a process only if it offers the operations `vaddr`. Nothing here is written.

use host::{ReadError, Root};
use serde::Serialize;

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// What DAMON can do here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum Damon {
    /// This kernel has no DAMON sysfs interface.
    Absent,
    /// Somebody uses it; it holds this many kdamonds.
    InUse {
        /// Number of kdamonds.
        kdamonds: u64,
        /// Operations that the first one offers.
        operations: Vec<String>,
    },
    /// It is unused. Whether it can watch processes shows only when a kdamond is created, which would be a write.
    Free,
    /// It cannot be read.
    Unknown {
        /// Why.
        why: String,
    },
}

impl Damon {
    /// Reads DAMON's state.
    pub fn probe(root: &Root) -> Self {
        match Self::read(root) {
            Ok(state) => state,
            Err(error) if error.is_gone() => Self::Absent,
            Err(error) => Self::Unknown { why: error.to_string() },
        }
    }

    fn read(root: &Root) -> Result<Self, ReadError> {
        let text = root.read(&format!("{KDAMONDS}/nr_kdamonds"))?;
        let Ok(kdamonds) = text.trim().parse() else {
            return Ok(Self::Unknown { why: format!("nr_kdamonds is {:?}", text.trim()) });
        };
        if kdamonds == 0 {
            return Ok(Self::Free);
        }
        let path = format!("{KDAMONDS}/0/contexts/0/avail_operations");
        let operations = match root.read(&path) {
            Ok(text) => text.split_ascii_whitespace().map(str::to_string).collect(),
            // A kdamond without a context offers nothing yet.
            Err(error) if error.is_gone() => Vec::new(),
            Err(error) => return Err(error),
        };
        Ok(Self::InUse { kdamonds, operations })
    }

    /// Whether DAMON here is known not to watch processes: a kdamond exists, and `vaddr` is not among its operations.
    pub fn lacks_processes(&self) -> bool {
        let Self::InUse { operations, .. } = self else { return false };
        !operations.is_empty() && !operations.iter().any(|one| one == "vaddr")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(files: &[(&str, &str)]) -> Damon {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(KDAMONDS.trim_start_matches('/')).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Damon::probe(&Root::at(dir.path()))
    }

    #[test]
    fn damon_is_absent_free_or_in_use() {
        assert_eq!(probe(&[]), Damon::Absent);
        assert_eq!(probe(&[("nr_kdamonds", "0\n")]), Damon::Free);
        let operations = "0/contexts/0/avail_operations";
        let used = probe(&[("nr_kdamonds", "1\n"), (operations, "paddr\n")]);
        assert_eq!(used, Damon::InUse { kdamonds: 1, operations: vec!["paddr".into()] });
        assert!(used.lacks_processes());
        let able = probe(&[("nr_kdamonds", "2\n"), (operations, "vaddr\nfvaddr\npaddr\n")]);
        assert!(matches!(able, Damon::InUse { kdamonds: 2, .. }) && !able.lacks_processes());
        let empty = probe(&[("nr_kdamonds", "1\n")]);
        assert!(!empty.lacks_processes(), "{empty:?}");
        assert!(matches!(probe(&[("nr_kdamonds", "many\n")]), Damon::Unknown { .. }));
    }
}
