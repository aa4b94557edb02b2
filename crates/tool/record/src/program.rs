//! Determines the file that QEMU runs for a program: the program's file, or a script's interpreter. Refuses unsupported
//! programs before anything is started.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::RecordError;

/// A file that QEMU can run, and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The file.
    pub file: PathBuf,
    /// The program's arguments, starting with its name.
    pub arguments: Vec<OsString>,
}

/// Maximum depth of scripts whose interpreters are scripts, as in Linux (BINPRM_MAX_RECURSION,
/// fs/exec.c).
const DEPTH: usize = 4;

impl Program {
    /// Resolves `path`, an executable file; `arguments` start with the program's name.
    pub fn from_path(path: &Path, arguments: Vec<OsString>) -> Result<Self, RecordError> {
        let (mut file, mut arguments) = (path.to_path_buf(), arguments);
        for _ in 0..=DEPTH {
            let start = beginning(&file)?;
            let Some(line) = start.strip_prefix(b"#!") else {
                check(&file, &start)?;
                return Ok(Self { file, arguments });
            };
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or(line).trim_ascii();
            let blank = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
            let (interpreter, option) = (&line[..blank], line[blank..].trim_ascii());
            let word = |bytes: &[u8]| OsStr::from_bytes(bytes).to_os_string();
            let mut words = vec![word(interpreter)];
            words.extend((!option.is_empty()).then(|| word(option)));
            words.push(file.clone().into());
            words.extend(arguments.into_iter().skip(1));
            (file, arguments) = (PathBuf::from(word(interpreter)), words);
        }
        Err(RecordError::Foreign {
            path: path.to_path_buf(),
            what: "a script whose interpreter is a script, and so on".to_string(),
            remedy: "name the program at the end of them",
        })
    }
}

fn beginning(path: &Path) -> Result<Vec<u8>, RecordError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(256).read_to_end(&mut start));
    read.map_err(|error| RecordError::io(path, "cannot be read, so QEMU cannot run it", error))?;
    Ok(start)
}

/// Checks that the file is an x86-64 ELF file (System V ABI: class, data, machine).
fn check(path: &Path, start: &[u8]) -> Result<(), RecordError> {
    let foreign = |what: &str, remedy| {
        Err(RecordError::Foreign { path: path.to_path_buf(), what: what.to_string(), remedy })
    };
    let Some(elf) = start.strip_prefix(b"\x7fELF") else {
        return foreign("neither an ELF program nor a script", "name the program that runs it");
    };
    let machine = elf.get(14..16).map(|two| u16::from_le_bytes([two[0], two[1]]));
    match (elf.first(), elf.get(1), machine) {
        (Some(2), Some(1), Some(62)) => Ok(()),
        (Some(1), Some(1), Some(3)) => foreign("a 32-bit x86 program", "build it for x86-64"),
        (Some(1 | 2), Some(1), Some(number)) => {
            let name = match number {
                40 => "32-bit Arm",
                183 => "64-bit Arm",
                243 => "RISC-V",
                _ => "another architecture",
            };
            foreign(&format!("a program for {name}"), "build it for x86-64")
        }
        _ => foreign("an ELF file of another kind, or a damaged one", "build it for x86-64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn scripts_are_run_by_their_interpreters() {
        let room = tempfile::tempdir().unwrap();
        let script = room.path().join("script");
        std::fs::write(&script, "#! /bin/sh  -e x\necho\n").unwrap();
        let program = Program::from_path(&script, words(&["script", "a", "b"])).unwrap();
        assert_eq!(program.file, Path::new("/bin/sh"));
        let path = script.to_str().unwrap();
        assert_eq!(program.arguments, words(&["/bin/sh", "-e x", path, "a", "b"]));
        std::fs::write(&script, format!("#!{path}\n")).unwrap();
        let error = Program::from_path(&script, words(&["script"])).unwrap_err();
        assert!(error.to_string().contains("interpreter"), "{error}");
    }

    #[test]
    fn what_qemu_cannot_run_is_named() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("program");
        let elf = |class: u8, data: u8, machine: u16| {
            let mut file = b"\x7fELF".to_vec();
            file.extend([class, data]);
            file.extend([0; 12]);
            file.extend(machine.to_le_bytes());
            file
        };
        let cases = [
            (elf(1, 1, 3), "32-bit x86"),
            (elf(2, 1, 183), "64-bit Arm"),
            (elf(2, 2, 62), "another kind"),
            (b"\x7fELF".to_vec(), "another kind"),
            (b"hello".to_vec(), "neither an ELF"),
            (Vec::new(), "neither an ELF"),
        ];
        for (file, what) in cases {
            std::fs::write(&path, file).unwrap();
            let error = Program::from_path(&path, words(&["program"])).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("; "), "{error}");
        }
    }
}
