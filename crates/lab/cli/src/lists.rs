//! `superpage lab machines` and `superpage lab workloads`: list machines and workloads.

use machine::Machine;
use serde_json::json;
use units::ByteSize;
use workload_streams::{Entry, Given, Parameter, Setup, catalog};

use super::what;
use cli::exit::{self, Done, Failure};
use cli::table;
use operations::this_machine;

/// List the machines, or show one.
#[derive(Debug, clap::Args)]
pub struct MachinesArgs {
    /// Print this machine's file, with the sources of its numbers.
    #[arg(value_name = "MACHINE")]
    name: Option<String>,

    /// Print JSON.
    #[arg(long, conflicts_with = "name")]
    json: bool,
}

/// List the workloads, or show one with its options and their defaults.
///
/// A specification is a name and options: gups:size=8G,operations=1M. Sizes and counts take K, M and G
/// for 2^10, 2^20 and 2^30.
#[derive(Debug, clap::Args)]
pub struct WorkloadsArgs {
    /// Only this workload.
    #[arg(value_name = "WORKLOAD")]
    name: Option<String>,

    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn machines(args: MachinesArgs) -> Result<Done, Failure> {
    if let Some(name) = &args.name {
        exit::print(&what::machine(name)?.content)?;
        return Ok(Done::Fine);
    }
    let mut all: Vec<Machine> = Vec::new();
    for name in machine::names() {
        all.push(machine::preset(name).map_err(Failure::usage)?);
    }
    // Add the machine saved by `superpage tlb --save`, if any. A damaged file is reported when it is used.
    if let Ok((path, text)) = this_machine::read()
        && let Ok(machine) = Machine::from_toml(&text, &path)
    {
        all.push(machine);
    }
    let text = if args.json {
        let machines: Vec<_> = all
            .iter()
            .map(|machine| {
                json!({ "name": machine.name, "summary": machine.summary, "mhz": machine.mhz,
                        "base_page_bytes": machine.kernel_page.bytes(),
                        "translated_page_bytes": machine.base_page.bytes(),
                        "superpage_bytes": machine.superpages() })
            })
            .collect();
        exit::json_text("superpage.lab.machines/1", json!({ "machines": machines }))?
    } else {
        let row = |machine: &Machine| {
            let mhz = machine.mhz.to_string();
            let sizes = machine.superpages().into_iter().map(|size| ByteSize(size).to_string());
            let superpages = sizes.collect::<Vec<_>>().join(", ");
            let base_page = machine.kernel_page.to_string();
            vec![machine.name.clone(), mhz, base_page, superpages, machine.summary.clone()]
        };
        table(
            &["machine", "MHz", "pages", "superpages", ""],
            all.iter().map(row).collect(),
            &[0, 3, 4],
        )
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}

pub fn workloads(args: WorkloadsArgs) -> Result<Done, Failure> {
    let one = match &args.name {
        None => None,
        Some(name) => {
            let setup = name.parse::<Setup>();
            Some(setup.map_err(|error| what::unknown_workload(name, error))?.entry())
        }
    };
    let chosen = || catalog().filter(|entry| one.is_none_or(|one| one.name == entry.name));
    let text = if args.json {
        let workloads: Vec<_> = chosen().map(document).collect();
        exit::json_text("superpage.lab.workloads/1", json!({ "workloads": workloads }))?
    } else if let Some(entry) = one {
        details(entry)
    } else {
        let row = |one: &Entry| {
            let options: Vec<String> = one.parameters().iter().map(short).collect();
            vec![one.name.to_string(), options.join(","), one.summary.to_string()]
        };
        table(&["workload", "options", ""], chosen().map(row).collect(), &[0, 1, 2])
    };
    exit::print(&text)?;
    Ok(Done::Fine)
}

/// Formats `size=8GiB`, as it can be typed; only the name if the default follows from other options.
fn short(parameter: &Parameter) -> String {
    match parameter.default {
        Given::Follows(_) => parameter.name.to_string(),
        given => format!("{}={}", parameter.name, value(parameter.unit, given).replace(' ', "")),
    }
}

fn value(unit: &str, given: Given) -> String {
    match given {
        Given::Number(number) if unit == "bytes" => ByteSize(number).to_string(),
        Given::Number(number) => counted(number),
        Given::Word(word) | Given::Follows(word) => word.to_string(),
    }
}

/// Formats `4G` for 2^32, as a count can be typed; other numbers with all digits.
fn counted(number: u64) -> String {
    let units = [(1 << 30, 'G'), (1 << 20, 'M')];
    let unit = units.iter().find(|(scale, _)| number > 0 && number.is_multiple_of(*scale));
    unit.map_or(number.to_string(), |(scale, unit)| format!("{}{unit}", number / scale))
}

fn details(entry: &Entry) -> String {
    let row = |one: &Parameter| {
        let default = value(one.unit, one.default);
        vec![one.name.to_string(), default, one.unit.to_string(), one.about.to_string()]
    };
    let parameters = entry.parameters();
    let rows = table(
        &["option", "default", "unit", ""],
        parameters.iter().map(row).collect(),
        &[0, 1, 2, 3],
    );
    let typed = |one: &Parameter| match one.default {
        Given::Number(number) if one.unit == "bytes" => {
            Some(format!("{}={}", one.name, ByteSize(number).to_exact()))
        }
        Given::Number(number) => Some(format!("{}={}", one.name, counted(number))),
        Given::Word(_) | Given::Follows(_) => None,
    };
    let example: Vec<String> = parameters.iter().filter_map(typed).take(2).collect();
    format!(
        "{}: {}\n\n{rows}\nas in: --workload {}:{}\n",
        entry.name,
        entry.summary,
        entry.name,
        example.join(",")
    )
}

fn document(entry: &Entry) -> serde_json::Value {
    let parameter = |one: &Parameter| {
        let (number, word, follows) = match one.default {
            Given::Number(number) => (Some(number), None, None),
            Given::Word(word) => (None, Some(word), None),
            Given::Follows(from) => (None, None, Some(from)),
        };
        let default = number.map_or(json!(word), |number| json!(number));
        json!({ "name": one.name, "unit": one.unit, "about": one.about, "default": default,
                "default_follows": follows })
    };
    let parameters: Vec<_> = entry.parameters().iter().map(parameter).collect();
    json!({ "name": entry.name, "summary": entry.summary, "options": entry.options,
            "parameters": parameters })
}
