//! Traces of other tools: lackey, ChampSim, raw addresses, text; packed or not. The first byte says
//! which. The result of an import must be a trace that can be read.
#![no_main]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use trace::import::{Format, Import, Input, import};
use trace::{Block, Reader, Source};

fn room() -> &'static PathBuf {
    static ROOM: OnceLock<PathBuf> = OnceLock::new();
    ROOM.get_or_init(|| tempfile::tempdir().unwrap().keep())
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((which, rest)) = data.split_first() else { return };
    let format = match which % 4 {
        0 => Format::ChampSim,
        1 => Format::Lackey,
        2 => Format::Raw,
        _ => Format::Text,
    };
    let name = ["x", "x.gz", "x.xz", "x.zst"][usize::from(which >> 2) % 4];
    let mut how = Import::new(format, "x");
    how.instructions = which & 0x10 != 0;
    how.write_bit = (which & 0x20 != 0).then_some(63);
    how.replace = true;
    how.scratch = room().clone();
    let packed = Box::new(std::io::Cursor::new(rest.to_vec()));
    let Ok(input) = Input::new(packed, Path::new(name), format) else { return };
    let output = room().join("x.spt");
    // Packed zeroes unpack a thousandfold; what is read of one input is bounded.
    let mut watch = |progress: trace::import::Progress| {
        if progress.accesses > 1 << 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    if import(&how, input, &output, &mut watch).is_err() {
        return;
    }
    let mut reader = Reader::open(&output).expect("what is written can be read");
    let mut block = Block::default();
    while reader.next(&mut block).expect("what is written can be read") {}
});
