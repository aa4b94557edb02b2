//! The `superpage-lab` command.
#![forbid(unsafe_code)]

/// Simulated page tables and frames are accessed at random, so the heap is on superpages.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

fn main() -> std::process::ExitCode {
    HEAP.advise();
    superpage_lab_cli::main()
}
