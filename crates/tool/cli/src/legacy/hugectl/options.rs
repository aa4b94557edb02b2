//! Options of `hugectl`, parsed into a [`Request`].

use std::ffi::OsString;

use units::{ByteSize, PageSize};

use crate::legacy::getopt::{self, Opt, Takes};
use crate::legacy::stop::Stop;
use crate::legacy::voice::Voice;

pub const HELP: &str = "\
hugectl [options] program [arguments]: run a program with parts of its memory on huge pages
options:
 --text[=<size>]            Back the program's code
 --data[=<size>]            Back the program's data and bss
 --bss[=<size>]             The same as --data
 --heap[=<size>]            Back malloc with pages of the hugetlb pool
 --thp                      Back malloc with transparent superpages
 --shm[=<size>]             Back shared memory: System V, MAP_SHARED
 --disable[=<list>]         Do not back text or data, or only not those of the list
 --share-text               Share text on superpages between processes (programs
                            linked with libhugetlbfs only)
 --no-reserve               Do not reserve (programs linked with libhugetlbfs only)
 --no-preload               Do not preload a library: the program is linked with
                            libhugetlbfs or libsuperpage
 --force-preload            Preload a library all the same
 --library-path <path>      Directory of the library
 --library-use-path         Search for the library on the loader's path
 --dry-run                  Print the environment that would be set; run nothing
 --verbose [<level>], -v    Print more, or set the level (0 to 99)
 -q                         Print less
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

/// Hugetlb pages requested for one kind of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagesRequest {
    /// Pages of the default size.
    Default,
    /// Pages of this size: the size as the user wrote it, and its value.
    Of(String, PageSize),
}

/// Whether to preload a library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preload {
    /// Preload if the request needs it.
    #[default]
    Needed,
    /// Never.
    No,
}

/// Where to find the library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Library {
    /// The library installed with this command.
    #[default]
    Own,
    /// The library below this directory.
    Below(String),
    /// The library that the dynamic loader finds.
    OnPath,
}

/// All parsed options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub text: Option<PagesRequest>,
    /// Data and bss, which are one mapping.
    pub data: Option<PagesRequest>,
    pub heap: Option<PagesRequest>,
    pub shm: Option<PagesRequest>,
    /// Back malloc with transparent superpages.
    pub thp: bool,
    /// `--disable`: never back text.
    pub no_text: bool,
    /// `--disable`: never back data.
    pub no_data: bool,
    pub preload: Preload,
    pub no_reserve: bool,
    pub share_text: bool,
    pub library: Library,
    pub dry_run: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// Parses the command line.
pub fn read(voice: &mut Voice, words: Vec<OsString>) -> Result<Request, Stop> {
    let read = getopt::read(OPTIONS, words)?;
    let mut request = Request { command: read.rest, ..Request::default() };
    let mut bss = None;
    for (name, value) in read.options {
        match name {
            Name::Help => return Err(Stop::Help),
            Name::Verbose => voice.raise(value.as_deref())?,
            Name::Quiet => voice.lower(),
            Name::NoPreload => request.preload = Preload::No,
            Name::ForcePreload => request.preload = Preload::Needed,
            Name::NoReserve => request.no_reserve = true,
            Name::DryRun => request.dry_run = true,
            Name::LibraryPath => request.library = Library::Below(value.unwrap_or_default()),
            Name::LibraryUsePath => request.library = Library::OnPath,
            Name::ShareText => request.share_text = true,
            Name::Disable => disable(voice, &mut request, value.as_deref()),
            Name::Text => request.text = wish(voice, "text", value),
            Name::Data => request.data = wish(voice, "data", value),
            Name::Bss => bss = wish(voice, "bss", value),
            Name::Heap => request.heap = wish(voice, "heap", value),
            Name::Shm => request.shm = wish(voice, "shm", value),
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
    Ok(request)
}

/// Parses the pages that a size requests. An invalid size requests none: the program runs on base pages, as with
/// libhugetlbfs.
fn wish(voice: &Voice, part: &str, size: Option<String>) -> Option<PagesRequest> {
    let Some(text) = size else { return Some(PagesRequest::Default) };
    let bytes = text.parse::<ByteSize>().ok().map(ByteSize::bytes);
    match bytes.and_then(|bytes| PageSize::new(bytes).ok()) {
        Some(size) => Some(PagesRequest::Of(text, size)),
        None => {
            voice.warn(format!(
                "--{part}={text}: invalid page size `{text}`: expected e.g. 2M or 1G; {part} stays \
                 on base pages"
            ));
            None
        }
    }
}

/// Disables text or data. libhugetlbfs took any unknown word for both.
fn disable(voice: &Voice, request: &mut Request, list: Option<&str>) {
    for word in list.unwrap_or("text,data").split(',') {
        let is_known = ["text", "data", "bss"].contains(&word);
        if !is_known {
            voice.warn(format!("--disable={word}: neither text nor data; both are disabled"));
        }
        request.no_text |= word == "text" || !is_known;
        request.no_data |= word != "text";
    }
}

impl PagesRequest {
    /// Returns the page size of the pool; `None`: the default pool's.
    pub fn size(&self) -> Option<PageSize> {
        match self {
            Self::Default => None,
            Self::Of(_, size) => Some(*size),
        }
    }

    /// Returns the size as given on the command line, if any.
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

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Parses a command line that must be a valid request.
    pub fn request(line: &str) -> Request {
        read_line(line).unwrap()
    }

    fn read_line(line: &str) -> Result<Request, Stop> {
        let words = line.split_whitespace().map(OsString::from).collect();
        read(&mut Voice::new("hugectl"), words)
    }

    #[test]
    fn options_become_wishes() {
        let size = PageSize::new(1 << 30).unwrap();
        let asked = request("--text --bss=1G --heap=1024M --shm -v 3 --no-res prog --heap");
        assert_eq!(asked.text, Some(PagesRequest::Default));
        assert_eq!(asked.data.as_ref().and_then(PagesRequest::size), Some(size));
        assert_eq!(asked.heap, Some(PagesRequest::Of("1024M".to_string(), size)));
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
        assert_eq!((asked.text, asked.data), (Some(PagesRequest::Default), None));
    }

    #[test]
    fn junk_asks_for_nothing() {
        for line in ["--heap=banana", "--heap=3M", "--text=", "--heap=10Q"] {
            let asked = request(line);
            assert_eq!((asked.heap, asked.text), (None, None), "{line}");
        }
        let asked = request("--disable=heap");
        assert!(asked.no_text && asked.no_data);
        for (line, part) in [("--verbose=100", "0-99"), ("--library-path", "requires an argument")]
        {
            let why = format!("{:?}", read_line(line).unwrap_err());
            assert!(why.contains(part), "{line}: {why}");
        }
    }
}
