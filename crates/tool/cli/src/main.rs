//! The `superpage` command.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    superpage_cli::main()
}
