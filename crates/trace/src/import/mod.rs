//! Traces of other tools, turned into `.spt`.
//!
//! Foreign traces know addresses and nothing of mappings, and mappings are only known when the last access
//! is. So an import goes twice over the accesses: first the parser's, with regions numbered as they are
//! touched, into a scratch file; then, with mappings inferred (`layout`), from there into the trace.
//! That way the input may be a pipe, and memory holds 24 bytes per touched region and no more.

mod champsim;
mod collect;
mod input;
mod lackey;
mod layout;
mod lines;
mod raw;
mod text;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::file::Output;
use crate::{
    BLOCK, Block, Event, Filter, Header, Mappings, Page, Process, Reader, Region, Source, Totals,
    TraceError, Writer,
};

use collect::Collector;
pub use input::Input;

/// A foreign format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// ChampSim's records of 64 bytes, one per instruction.
    ChampSim,
    /// The text of `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// Addresses as 64-bit little-endian integers.
    Raw,
    /// An address per line.
    Text,
}

impl Format {
    /// What it is called on the command line and in headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChampSim => "champsim",
            Self::Lackey => "lackey",
            Self::Raw => "raw",
            Self::Text => "text",
        }
    }
}

/// How to import.
#[derive(Debug, Clone)]
pub struct Import {
    /// The input's format.
    pub format: Format,
    /// Which accesses to leave out.
    pub filter: Filter,
    /// Untouched bytes that end a mapping.
    pub gap: u64,
    /// Bytes of a base page.
    pub base_page: u32,
    /// Instruction fetches too, as reads (ChampSim, lackey).
    pub instructions: bool,
    /// Raw: the bit of an address that says "writes".
    pub write_bit: Option<u8>,
    /// What the trace is of.
    pub workload: String,
    /// Replace a file that is there.
    pub replace: bool,
    /// A directory for the scratch file, which has no name and about the trace's size.
    pub scratch: PathBuf,
}

impl Import {
    /// The usual: 4 KiB pages, runs merged, data accesses only. Mappings end at 4 MiB that nobody
    /// touches: an inferred value; Linux leaves more than that between a program's heap, libraries and
    /// stack, and an allocator's neighbouring areas lie closer.
    pub fn new(format: Format, workload: &str) -> Self {
        Self {
            format,
            filter: Filter::SamePage,
            gap: 4 << 20,
            base_page: 4096,
            instructions: false,
            write_bit: None,
            workload: workload.to_string(),
            replace: false,
            scratch: PathBuf::from("."),
        }
    }

    fn header(&self) -> Header {
        let creator = format!(
            "superpage {} trace import --from {}{}",
            env!("CARGO_PKG_VERSION"),
            self.format.name(),
            if self.instructions { " --instructions" } else { "" }
        );
        Header {
            base_page: self.base_page,
            filter: self.filter,
            mappings: Mappings::Inferred { gap: self.gap },
            creator,
            workload: self.workload.clone(),
        }
    }
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Accesses that were read (first pass), or written (second).
    pub accesses: u64,
    /// Whether all were read and the trace is being written.
    pub writing: bool,
}

/// What an import made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// What the trace holds.
    pub totals: Totals,
    /// The mappings that were inferred.
    pub mappings: usize,
    /// Regions that were touched.
    pub touched: usize,
}

/// Imports `input` to `output`. `watch` is told how far it is now and then, and may stop it.
///
/// # Errors
/// [`TraceError`]: a line or record of the input that cannot be understood, with its place; an output that exists or
/// cannot be written; [`TraceError::Stopped`] if `watch` stopped it.
pub fn import(
    import: &Import,
    mut input: Input,
    output: &Path,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Imported, TraceError> {
    // First, so that an output that cannot be written is known before minutes of reading.
    let writer = Writer::create(output, &import.header(), import.replace)?;
    let scratch = TraceError::io(&import.scratch, "no scratch file can be made there");
    let file = tempfile::tempfile_in(&import.scratch).map_err(scratch)?;
    let again = file.try_clone().map_err(scratch)?;
    let filter = if import.filter == Filter::None { Filter::None } else { Filter::SamePage };
    let header = Header { filter, ..import.header() };
    let first = Writer::to(Output::through(file, &import.scratch), &header)?;

    let path = input.path.clone();
    let mut collector = Collector::new(first, import.base_page, path.clone(), watch);
    match import.format {
        Format::ChampSim => champsim::parse(&mut input, import.instructions, &mut collector)?,
        Format::Lackey => lackey::parse(&mut input, import.instructions, &mut collector)?,
        Format::Raw => raw::parse(&mut input, import.write_bit, &mut collector)?,
        Format::Text => text::parse(&mut input, &mut collector)?,
    }
    let (touched, watch) = collector.finish()?;
    let layout = layout::infer(&touched, import.gap / u64::from(import.base_page));
    let Some(layout) = layout else {
        let what = "its mappings span more than 2^22 regions of 512 pages; are these addresses? \
                    A smaller --gap makes more and shorter mappings"
            .to_string();
        return Err(TraceError::TooLarge { path, what });
    };
    let reader = Reader::new(again, &import.scratch)?;
    let totals = rewrite(reader, &layout, writer, output, watch)?;
    Ok(Imported { totals, mappings: layout.mappings.len(), touched: touched.len() })
}

/// The second pass: the same accesses under the layout's numbers, after the mappings.
fn rewrite(
    mut reader: Reader,
    layout: &layout::Layout,
    mut writer: Writer,
    output: &Path,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Totals, TraceError> {
    let mut block = Block::default();
    block.event(Event::Spawn(Process(0)));
    for some in layout.mappings.chunks(BLOCK) {
        some.iter().for_each(|mapping| block.event(mapping.clone()));
        writer.push(&block)?;
        block.clear();
    }
    while reader.next(&mut block)? {
        for access in &mut block.accesses {
            let page = access.page();
            let region = Region(layout.numbers[page.region().0 as usize]);
            access.0 = access.0 & crate::Access::WRITE | Page::new(region, page.slot()).0;
        }
        writer.push(&block)?;
        let accesses = writer.totals().accesses;
        if watch(Progress { accesses, writing: true }).is_break() {
            return Err(TraceError::Stopped { path: output.to_path_buf() });
        }
    }
    writer.finish()
}
