//! `hugeedit`: marks the segments of a program that libhugetlbfs, or our replacement for it, loads onto superpages.
//!
//! The file is changed in place: hard links, owner and permissions stay. Everything is checked before the file is
//! opened for writing. Only one bit in each of a few words is written, so that the file is a valid program at any
//! moment, even if the machine crashes between two writes.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use host::Root;

use operations::elf::{self, Segment, Table};

use super::getopt::{self, Opt, Takes};
use super::stop::Stop;
use super::voice::Voice;
use crate::exit::{self, Failure};

pub const HELP: &str = "\
hugeedit [options] FILE: show, or set, which segments of a program are to have superpages
options:
 --text                     Mark the program's code
 --data                     Mark the program's data and bss
 --bss                      Mark bss that is a segment of its own
 --disable                  Mark nothing
 --help, -h                 Print this
Without --text, --data, --bss or --disable nothing is changed.
";

#[derive(Clone, Copy, PartialEq)]
enum Name {
    Help,
    Disable,
    Text,
    Data,
    Bss,
}

const OPTIONS: &[Opt<Name>] = &[
    Opt::both("help", 'h', Takes::Nothing, Name::Help),
    Opt::long("disable", Takes::Nothing, Name::Disable),
    Opt::long("text", Takes::Nothing, Name::Text),
    Opt::long("data", Takes::Nothing, Name::Data),
    Opt::long("bss", Takes::Nothing, Name::Bss),
];

/// The segments to mark; all others are unmarked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    text: bool,
    data: bool,
    bss: bool,
}

pub fn run(_: &Root, _: &mut Voice, words: Vec<OsString>) -> Result<(), Stop> {
    let read = getopt::read(OPTIONS, words)?;
    let has = |name| read.options.iter().any(|(option, _)| *option == name);
    if has(Name::Help) {
        return Err(Stop::Help);
    }
    let marks = Marks { text: has(Name::Text), data: has(Name::Data), bss: has(Name::Bss) };
    let wanted = has(Name::Disable) || marks != Marks::default();
    if has(Name::Disable) && marks != Marks::default() {
        let why = "--disable is not compatible with --text or --data, nor with --bss";
        return Err(Failure::usage(why).into());
    }
    let [file] = read.rest.as_slice() else {
        return Err(Stop::Words(Failure::usage("name one program file")));
    };
    let path = Path::new(file);
    let segments = if wanted { edit(path, marks)? } else { look(path)?.1 };
    let lines: String = segments.iter().map(|segment| format!("{segment}\n")).collect();
    Ok(exit::print(&lines)?)
}

/// Returns whether a program's text and data are marked. A file that is not a program has no marks.
pub fn marks(path: &Path) -> (bool, bool) {
    let segments = look(path).map(|(_, segments, _)| segments).unwrap_or_default();
    let marked = |kind: fn(&Segment) -> bool| segments.iter().any(|s| kind(s) && s.is_marked());
    (marked(Segment::is_text), marked(Segment::is_data))
}

fn look(path: &Path) -> Result<(Table, Vec<Segment>, Vec<u8>), Failure> {
    // Reject other file types first: opening a pipe would block until its other end opens.
    let metadata = path.metadata().map_err(|error| refused("look at", path, error))?;
    if !metadata.is_file() {
        let path = path.display();
        return Err(Failure::usage(format!("{path} is not a file; give a program file")));
    }
    let file = File::open(path).map_err(|error| refused("open", path, error))?;
    let (table, bytes) = read_table(&file, path)?;
    Ok((table, table.segments(&bytes), bytes))
}

fn edit(path: &Path, marks: Marks) -> Result<Vec<Segment>, Failure> {
    let (table, segments, bytes) = look(path)?;
    if marks.bss && !segments.iter().any(Segment::is_bss) {
        let why =
            "its bss is no segment of its own: link it with -Wl,--hugetlbfs-link=B, or use --data";
        return Err(Failure::usage(format!("{}: {why}", path.display())));
    }
    let mut edited = bytes.clone();
    for segment in &segments {
        let marked = marks.text && segment.is_text()
            || marks.data && segment.is_data()
            || marks.bss && segment.is_bss();
        table.mark(&mut edited, segment, marked);
    }
    if edited == bytes {
        return Ok(segments);
    }
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.map_err(|error| refused("write", path, error))?;
    // The file may have been replaced since it was read: compare.
    if read_table(&file, path)? != (table, bytes) {
        let path = path.display();
        return Err(Failure::usage(format!("{path} is being changed by somebody else; try again")));
    }
    file.write_all_at(&edited, table.offset).map_err(|error| refused("write", path, error))?;
    file.sync_data().map_err(|error| refused("write", path, error))?;
    let (read_back, bytes) = read_table(&file, path)?;
    if bytes != edited {
        let path = path.display();
        return Err(Failure::usage(format!("{path} does not read back as it was written")));
    }
    Ok(read_back.segments(&bytes))
}

fn read_table(file: &File, path: &Path) -> Result<(Table, Vec<u8>), Failure> {
    let io = |error| refused("read", path, error);
    let length = file.metadata().map_err(io)?.len();
    let mut start = vec![0; elf::HEADER.min(length as usize)];
    file.read_exact_at(&mut start, 0).map_err(io)?;
    let table = Table::read(&start, length)
        .map_err(|why| Failure::usage(format!("{}: {why}", path.display())))?;
    let mut bytes = vec![0; table.bytes()];
    file.read_exact_at(&mut bytes, table.offset).map_err(io)?;
    Ok((table, bytes))
}

fn refused(doing: &str, path: &Path, error: io::Error) -> Failure {
    let line = |remedy: &str| format!("cannot {doing} {}: {error}{remedy}", path.display());
    match error.kind() {
        io::ErrorKind::ExecutableFileBusy => Failure::cannot(line("; it is running: end it first")),
        io::ErrorKind::PermissionDenied => {
            Failure::cannot(line("; run as the file's owner or root"))
        }
        io::ErrorKind::ReadOnlyFilesystem => Failure::cannot(line("; copy it elsewhere first")),
        _ => Failure::usage(line("")),
    }
}
