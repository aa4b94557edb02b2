//! What `hugectl` is asked for: its options, read into a [`Request`].

use std::ffi::OsString;

use units::{ByteSize, PageSize};

use crate::exit::Failure;
use crate::legacy::getopt::{self, Opt, Takes};
use crate::legacy::voice::Voice;

pub const HELP: &str = "\
hugectl [options] program [arguments]: run a program with parts of its memory on superpages
options:
 --text[=<size>]            The program's code
 --data[=<size>]            The program's data and bss
 --bss[=<size>]             The same as --data
 --heap[=<size>]            malloc, on pages of the hugetlb pool
 --thp                      malloc, on transparent superpages
 --shm[=<size>]             Shared memory: System V, MAP_SHARED
 --disable[=<list>]         Not the text, data of the list; without one, neither
 --share-text               Share text on superpages between processes (programs
                            linked with libhugetlbfs only)
 --no-reserve               Do not reserve (programs linked with libhugetlbfs only)
 --no-preload               Preload nothing: the program is linked with
                            libhugetlbfs or libsuperpage
 --force-preload            Preload even where it may not be heeded
 --library-path <path>      The library is below this directory
 --library-use-path         The library is where the loader looks
 --dry-run                  Print the environment that would be set; run nothing
 --verbose [<level>], -v    Say more, or as much as the level (0 to 99)
 -q                         Say less
 --help, -h                 Print this
Sizes are those of the hugetlb pools: 2M, 1G. Without one, the default pool's.
";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Name {
    Help,
    Verbose,
    Quiet,
    NoPreload,
    NoReserve,
    ForcePreload,
    DryRun,
    LibraryPath,
    LibraryUsePath,
    ShareText,
    Disable,
    Text,
    Data,
    Bss,
    Heap,
    Shm,
    Thp,
}

const OPTIONS: &[Opt<Name>] = &[
    Opt::both("help", 'h', Takes::Nothing, Name::Help),
    Opt::both("verbose", 'v', Takes::PerhapsLevel, Name::Verbose),
    Opt::both("quiet", 'q', Takes::Nothing, Name::Quiet),
    Opt::long("no-preload", Takes::Nothing, Name::NoPreload),
    Opt::long("no-reserve", Takes::Nothing, Name::NoReserve),
    Opt::long("force-preload", Takes::Nothing, Name::ForcePreload),
    Opt::long("dry-run", Takes::Nothing, Name::DryRun),
    Opt::long("library-path", Takes::Value, Name::LibraryPath),
    Opt::long("library-use-path", Takes::Nothing, Name::LibraryUsePath),
    Opt::long("share-text", Takes::Nothing, Name::ShareText),
    Opt::long("disable", Takes::Perhaps, Name::Disable),
    Opt::long("text", Takes::Perhaps, Name::Text),
    Opt::long("data", Takes::Perhaps, Name::Data),
    Opt::long("bss", Takes::Perhaps, Name::Bss),
    Opt::long("heap", Takes::Perhaps, Name::Heap),
    Opt::long("shm", Takes::Perhaps, Name::Shm),
    Opt::long("thp", Takes::Nothing, Name::Thp),
];

/// One part of memory that is to have pages of the hugetlb pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Of the default size.
    Default,
    /// Of this size, as it was written and what it means.
    Of(String, PageSize),
}

/// Whether a library is preloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preload {
    /// Where it is needed.
    #[default]
    Needed,
    /// Never.
    No,
    /// Also where it may not be heeded.
    Force,
}

/// Where the library is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Library {
    /// With this command.
    #[default]
    Own,
    /// Below this directory.
    Below(String),
    /// Where the loader looks.
    OnPath,
}

/// Everything asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub text: Option<Wish>,
    /// Data and bss: one mapping.
    pub data: Option<Wish>,
    pub heap: Option<Wish>,
    pub shm: Option<Wish>,
    /// malloc on transparent superpages.
    pub thp: bool,
    /// `--disable`: no text, whatever else says so.
    pub no_text: bool,
    /// `--disable`: no data.
    pub no_data: bool,
    pub preload: Preload,
    pub no_reserve: bool,
    pub share_text: bool,
    pub library: Library,
    pub dry_run: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Reads the words; `None` if only help was asked for.
pub fn read(voice: &mut Voice, words: Vec<OsString>) -> Result<Option<Request>, Failure> {
    let read = getopt::read(OPTIONS, words)?;
    let mut request = Request { command: read.rest, ..Request::default() };
    let mut bss = None;
    for (name, value) in read.options {
        match name {
            Name::Help => return Ok(None),
            Name::Verbose => voice.raise(value.as_deref())?,
            Name::Quiet => voice.lower(),
            Name::NoPreload => request.preload = Preload::No,
            Name::ForcePreload => request.preload = Preload::Force,
            Name::NoReserve => request.no_reserve = true,
            Name::DryRun => request.dry_run = true,
            Name::LibraryPath => request.library = Library::Below(value.unwrap_or_default()),
            Name::LibraryUsePath => request.library = Library::OnPath,
            Name::ShareText => request.share_text = true,
            Name::Disable => disable(&mut request, value.as_deref())?,
            Name::Text => request.text = Some(wish("text", value)?),
            Name::Data => request.data = Some(wish("data", value)?),
            Name::Bss => bss = Some(wish("bss", value)?),
            Name::Heap => request.heap = Some(wish("heap", value)?),
            Name::Shm => request.shm = Some(wish("shm", value)?),
            Name::Thp => request.thp = true,
        }
    }
    if let (Some(data), Some(other)) = (&request.data, &bss)
        && data != other
    {
        voice.warn(format!("data and bss remapped together in {}", data.size_in_words()));
    }
    request.data = request.data.or(bss);
    if request.thp && request.heap.is_some() {
        voice.warn("--thp goes before --heap: malloc gets transparent superpages");
        request.heap = None;
    }
    let masked =
        request.no_text && request.text.is_some() || request.no_data && request.data.is_some();
    if masked {
        voice.warn("--disable masks requested remap");
    }
    request.text = request.text.filter(|_| !request.no_text);
    request.data = request.data.filter(|_| !request.no_data);
    Ok(Some(request))
}

fn wish(part: &str, size: Option<String>) -> Result<Wish, Failure> {
    let Some(text) = size else { return Ok(Wish::Default) };
    let bytes = text.parse::<ByteSize>().ok().map(ByteSize::bytes);
    match bytes.and_then(|bytes| PageSize::new(bytes).ok()) {
        Some(size) => Ok(Wish::Of(text, size)),
        None => Err(Failure::usage(format!(
            "--{part}={text}: `{text}` is no page size; write a size such as 2M or 1G"
        ))),
    }
}

fn disable(request: &mut Request, list: Option<&str>) -> Result<(), Failure> {
    for word in list.unwrap_or("text,data").split(',') {
        match word {
            "text" => request.no_text = true,
            "data" | "bss" => request.no_data = true,
            _ => {
                return Err(Failure::usage(format!(
                    "--disable={}: `{word}` cannot be disabled; write text, data or both",
                    list.unwrap_or_default()
                )));
            }
        }
    }
    Ok(())
}

impl Wish {
    /// The pool's page size; `None`: the default pool's.
    pub fn size(&self) -> Option<PageSize> {
        match self {
            Self::Default => None,
            Self::Of(_, size) => Some(*size),
        }
    }

    /// As it was written, if it was.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Default => None,
            Self::Of(text, _) => Some(text),
        }
    }

    fn size_in_words(&self) -> &str {
        self.text().unwrap_or("the default hugepage size")
    }
}

impl Request {
    /// Every wish for pages of the pool.
    pub fn wishes(&self) -> impl Iterator<Item = &Wish> {
        [&self.text, &self.data, &self.heap, &self.shm].into_iter().flatten()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The request of a line, which must be one.
    pub fn request(line: &str) -> Request {
        read_line(line).unwrap().unwrap()
    }

    fn read_line(line: &str) -> Result<Option<Request>, Failure> {
        let words = line.split_whitespace().map(OsString::from).collect();
        read(&mut Voice::new("hugectl"), words)
    }

    #[test]
    fn options_become_wishes() {
        let size = PageSize::new(1 << 30).unwrap();
        let asked = request("--text --bss=1G --heap=1024M --shm -v 3 --no-res prog --heap");
        assert_eq!(asked.text, Some(Wish::Default));
        assert_eq!(asked.data.as_ref().and_then(Wish::size), Some(size));
        assert_eq!(asked.heap, Some(Wish::Of("1024M".to_string(), size)));
        assert!(asked.no_reserve && !asked.dry_run);
        assert_eq!(asked.command, ["prog", "--heap"]);
        assert_eq!(request("--data=2M --bss=1G").data.unwrap().text(), Some("2M"));
        assert_eq!(request("--heap --thp").heap, None);
    }

    #[test]
    fn what_is_disabled_is_not_asked_for() {
        let asked = request("--text --data --disable");
        assert_eq!((asked.text, asked.data), (None, None));
        let asked = request("--text --data --disable=bss");
        assert_eq!((asked.text, asked.data), (Some(Wish::Default), None));
    }

    #[test]
    fn junk_is_refused() {
        for (line, part) in [
            ("--heap=banana", "`banana` is no page size"),
            ("--heap=3M", "`3M` is no page size"),
            ("--text=", "`` is no page size"),
            ("--heap=10Q", "`10Q`"),
            ("--disable=heap", "write text, data or both"),
            ("--verbose=100", "0-99"),
            ("--library-path", "requires an argument"),
        ] {
            let why = read_line(line).unwrap_err().to_string();
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
