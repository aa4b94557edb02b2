//! `superpage lab` starts the separate program `superpage-lab`, found next to this one or along PATH.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::iter::once;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use operations::programs::{LABORATORY as PROGRAM, find};

use crate::exit::{self, Done, Failure};

/// One-line help of `superpage lab`.
pub const ABOUT: &str = "Try superpage designs on a simulated machine";
/// Long help of `superpage lab`.
pub const LONG_ABOUT: &str = "\
Try superpage designs on a simulated machine.

The same experiment gives the same report, bit by bit, on any computer. A machine that is too small for the workload \
is an outcome in the report, not an error.";

const PACKAGE: &str = "superpage-lab-cli";

/// Arguments of `superpage lab`.
#[derive(Debug, clap::Args)]
#[command(about = ABOUT, long_about = LONG_ABOUT, disable_help_flag = true)]
pub struct Args {
    /// See `superpage lab --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Args {
    /// Translates `superpage help lab …` to the arguments of `superpage-lab`.
    pub(crate) fn of_help(words: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut words = words.skip(1);
        let is_help = words.next()? == "help" && words.next()? == "lab";
        is_help.then(|| Self { arguments: once("help".into()).chain(words).collect() })
    }
}

/// Executes `superpage-lab` in place of this process.
///
/// # Errors
/// `superpage-lab` is not found or cannot be started.
pub fn run(args: Args) -> Result<Done, Failure> {
    let own = sys::param::own_executable();
    if let Some(checkout) = own.as_deref().and_then(Checkout::of_cargo_run) {
        checkout.build()?;
    }
    match find(PROGRAM, own.as_deref()) {
        Some(program) => Err(exec(&program, args.arguments)),
        None => Err(Failure::cannot(format!(
            "{PROGRAM}: neither beside {} nor along PATH; put it there (cargo build --release -p {PACKAGE})",
            own.unwrap_or_else(|| PathBuf::from("superpage")).display()
        ))),
    }
}

/// Executes `superpage-lab` with arguments that apply to both programs; if it is not installed, prints a note.
pub fn run_for_both(arguments: Vec<OsString>) -> Result<(), Failure> {
    match find(PROGRAM, sys::param::own_executable().as_deref()) {
        Some(program) => Err(exec(&program, arguments)),
        None => {
            exit::say(&format!("without those of `superpage lab`: {PROGRAM} is not installed"));
            Ok(())
        }
    }
}

/// Executes `program` in place of this process. Returns only if exec fails.
fn exec(program: &Path, arguments: Vec<OsString>) -> Failure {
    let error = Command::new(program).args(arguments).exec();
    let why = format!("{}: {error}; install it anew", program.display());
    if error.kind() == ErrorKind::NotFound { Failure::cannot(why) } else { Failure::usage(why) }
}

/// A source checkout whose `superpage` was started by `cargo run`, which does not build `superpage-lab`.
struct Checkout {
    cargo: OsString,
    manifest: PathBuf,
    target: PathBuf,
    profile: String,
}

impl Checkout {
    fn of_cargo_run(own: &Path) -> Option<Self> {
        let cargo = std::env::var_os("CARGO")?;
        let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        let manifest = package.join("../../lab/cli/Cargo.toml");
        let built = own.parent()?;
        let profile = match built.file_name()?.to_str()? {
            "debug" => "dev",
            name => name,
        };
        manifest.is_file().then_some(Self {
            cargo,
            manifest,
            target: built.parent()?.to_path_buf(),
            profile: profile.to_string(),
        })
    }

    fn build(&self) -> Result<(), Failure> {
        exit::say(&format!("building {PROGRAM} (cargo build -p {PACKAGE})"));
        let mut cargo = Command::new(&self.cargo);
        cargo.args(["build", "--quiet", "--profile", &self.profile, "--manifest-path"]);
        cargo.arg(&self.manifest).arg("--target-dir").arg(&self.target);
        match cargo.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::usage(format!("{PROGRAM} was not built: cargo: {status}"))),
            Err(error) => Err(Failure::usage(format!("{PROGRAM} was not built: cargo: {error}"))),
        }
    }
}
