//! The `superpage-lab` command.
#![forbid(unsafe_code)]

/// The heap is on superpages, because simulated page tables and frames are accessed at random.
#[global_allocator]
static HEAP: sys::heap::Heap = sys::heap::Heap::new();

fn main() -> std::process::ExitCode {
    HEAP.advise();
    superpage_lab_cli::main()
}
