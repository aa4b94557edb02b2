//! `superpage --help`: the commands, grouped by task.

use clap::Command;

/// Headings of `--help`, each with its commands.
const GROUPS: [(&str, &[&str]); 9] = [
    ("Compare and run", &["compare", "evaluate", "run", "workload"]),
    ("See", &["map", "top", "exporter", "advise", "doctor"]),
    ("Keep", &["manage"]),
    ("Pools and settings", &["pool", "restore"]),
    ("Designs", &["design", "lab"]),
    ("TLB and costs", &["measure", "tlb", "bench", "verify-cost"]),
    ("Traces", &["record", "trace"]),
    ("libhugetlbfs commands", &["hugeadm", "hugectl", "hugeedit", "pagesize"]),
    ("Other", &["completions", "man", "help"]),
];

/// Lists the subcommands of `command` by group in its help.
pub fn grouped(command: Command) -> Command {
    let about = |name: &str| match name {
        // clap adds its `help` subcommand only during parsing.
        "help" => Some("Print help for a command".to_string()),
        name => Some(command.find_subcommand(name)?.get_about()?.to_string()),
    };
    let mut list = String::new();
    for (heading, names) in GROUPS {
        let line = |name: &&str| Some(format!("  {name:<12} {}\n", about(name)?));
        let lines: String = names.iter().filter_map(line).collect();
        list += &format!("{heading}:\n{lines}\n");
    }
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_fits_in_a_line() {
        let command = crate::Cli::command();
        let help = grouped(command.clone()).render_help().to_string();
        for one in command.get_subcommands() {
            let name = one.get_name();
            let lines = help.lines().filter(|line| line.split_whitespace().next() == Some(name));
            assert_eq!(lines.count(), 1, "{name}: {help}");
        }
        for line in help.lines() {
            assert!(line.len() <= 100, "{line}");
        }
    }
}
