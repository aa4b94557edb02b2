//! Measures how fast traces are read: `cargo run --release -p superpage-trace --example speed -- FILE...`
//!
//! Each file is read five times into one block. The best time counts, because other programs may disturb the others.

use std::path::Path;
use std::time::Instant;

use superpage_trace::{Block, Reader, Source, TraceError};

fn main() -> Result<(), TraceError> {
    for path in std::env::args().skip(1) {
        let path = Path::new(&path);
        let mut best = f64::INFINITY;
        let mut block = Block::default();
        for _ in 0..5 {
            let mut reader = Reader::open(path)?;
            let began = Instant::now();
            while reader.next(&mut block)? {
                std::hint::black_box(&block);
            }
            best = best.min(began.elapsed().as_secs_f64());
        }
        let reader = Reader::open(path)?;
        let info = reader.info();
        let (records, accesses) = (info.totals.records as f64, info.totals.accesses as f64);
        println!(
            "{}: {records} records, {:.2} accesses each, {:.4} B/access; {:.0} M records/s, {:.2} G accesses/s",
            path.display(),
            accesses / records,
            info.length as f64 / accesses,
            records / best / 1e6,
            accesses / best / 1e9
        );
    }
    Ok(())
}
