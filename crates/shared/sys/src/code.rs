//! Memory for generated code: writable or executable, never both (W^X).

use rustix::mm::MprotectFlags;

use crate::SysError;
use crate::mem::Mapping;

/// A W^X mapping for code, initially writable. [`Code::writable`] and [`Code::executable`] change the protection if
/// needed.
#[derive(Debug)]
pub struct Code {
    memory: Mapping,
    is_executable: bool,
}

impl Code {
    /// Wraps a mapping that is readable and writable.
    pub fn new(memory: Mapping) -> Self {
        Self { memory, is_executable: false }
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.memory.len()
    }

    /// Makes the memory writable (not executable), and returns it.
    ///
    /// # Errors
    /// `mprotect(2)` fails. `ENOMEM`: too many mappings.
    pub fn writable(&mut self) -> Result<&mut Mapping, SysError> {
        if self.is_executable {
            self.memory.protect(MprotectFlags::READ | MprotectFlags::WRITE)?;
            self.is_executable = false;
        }
        Ok(&mut self.memory)
    }

    /// Makes the memory executable (not writable), and returns it. The memory stays read-only until [`Code::writable`]
    /// is called.
    ///
    /// # Errors
    /// `mprotect(2)` fails. `EACCES`: this process may not execute memory that it wrote (SELinux's `execmem`, a memfd
    /// under `vm.memfd_noexec`). `ENOMEM`: too many mappings.
    pub fn executable(&mut self) -> Result<&Mapping, SysError> {
        if !self.is_executable {
            self.memory.protect(MprotectFlags::READ | MprotectFlags::EXEC)?;
            self.is_executable = true;
        }
        Ok(&self.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Backing;

    #[test]
    fn what_was_written_stays_through_both_states() {
        let mut code = Code::new(Mapping::anonymous(4096, Backing::Pages).unwrap());
        code.writable().unwrap().bytes_mut()[5] = 7;
        assert_eq!(code.executable().unwrap().bytes()[5], 7);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        // The kernel may merge adjacent VMAs with equal permissions, so look for the VMA that
        // contains the address.
        let holds = |line: &&str| {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
            let (from, to) = range.expect("a range");
            (number(from)..number(to)).contains(&code.memory.address())
        };
        let line = maps.lines().find(holds).expect("the code's mapping");
        assert!(line.contains(" r-xp "), "{line}");
        code.writable().unwrap().bytes_mut()[5] = 8;
        assert_eq!(code.executable().unwrap().bytes()[5], 8);
    }
}
