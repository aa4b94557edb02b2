//! Names that completions offer: designs, machines and workloads, where a file may be given instead.
//!
//! clap's flags take any text there; only completions are made from flags that take these names.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;

/// The command with the names as values.
pub fn offered(command: Command) -> Command {
    // Its machines are others.
    let is_faults = command.get_name() == "faults";
    let with_names = |arg: Arg| match names(&arg) {
        Some((kind, _)) if is_faults && kind == "MACHINE" => arg,
        Some((_, names)) => arg.value_parser(PossibleValuesParser::new(names)),
        None => arg,
    };
    command.mut_args(with_names).mut_subcommands(offered)
}

/// The script, in which names are not all that may be given: bash falls back to files by itself.
pub fn or_files(shell: Shell, script: String) -> String {
    let lists = [designs(), machines(), workloads()];
    lists.iter().fold(script, |script, names| match shell {
        Shell::Zsh => {
            let names = names.join(" ");
            script.replace(&format!(":({names})"), &format!(":{{compadd {names};_files}}"))
        }
        Shell::Fish => {
            let first = format!("-a \"{}\\t", names[0]);
            script.replace(&format!("-r -f {first}"), &format!("-r -F {first}"))
        }
        _ => script,
    })
}

fn designs() -> Vec<&'static str> {
    design::designs::list().iter().map(|preset| preset.name).collect()
}

fn machines() -> Vec<&'static str> {
    machine::names().chain([tlb_probe::THIS]).collect()
}

fn workloads() -> Vec<&'static str> {
    workload_streams::catalog().map(|entry| entry.name).collect()
}

/// What the argument names, by how the help calls it.
fn names(arg: &Arg) -> Option<(&str, Vec<&'static str>)> {
    let values = arg.get_value_names().unwrap_or_default();
    let kind = values.first().map_or(arg.get_id().as_str(), |name| name.as_str());
    let names = match kind {
        "DESIGN" | "a" | "b" => designs(),
        "MACHINE" => machines(),
        "WORKLOAD" => workloads(),
        _ => return None,
    };
    Some((kind, names))
}
