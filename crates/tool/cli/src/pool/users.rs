//! `superpage pool users`: lists the users of the pools' pages.

use host::Root;
use host::pool::users::{Stale, Users};
use serde_json::json;
use units::ByteSize;

use super::show;
use crate::exit::{self, Done, Failure};

/// Show which processes and files use pages of the pools.
///
/// A file on hugetlbfs keeps its pages until it is removed; files that no process uses are marked
/// stale. Only root can inspect processes of other users.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<Done, Failure> {
    super::status()?;
    let users = Users::read(&Root::real());
    if args.json {
        super::print_json("superpage.pool-users/1", json!(users))?;
    } else {
        exit::print(&text(&users))?;
    }
    Ok(Done::Fine)
}

fn text(users: &Users) -> String {
    let mut text = String::new();
    let rows: Vec<Vec<String>> = users
        .processes
        .iter()
        .flat_map(|one| {
            one.sizes.iter().map(|(size, share)| {
                vec![
                    one.pid.to_string(),
                    report::format::name(&one.name, 24),
                    size.to_string(),
                    share.mapped.to_string(),
                    share.private.to_string(),
                    share.shared.to_string(),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        text += "no process that could be inspected uses pages of a pool\n";
    } else {
        let header = ["pid", "program", "pages", "mapped", "private", "shared"];
        text += &show::table(&header, rows, &[1]);
    }
    let files: Vec<Vec<String>> = users
        .files
        .iter()
        .map(|file| {
            let size = file.page_size.map_or("unknown".to_string(), |size| size.to_string());
            let stale = match file.stale {
                Stale::InUse => "in use",
                Stale::Stale => "stale: unused",
                Stale::Unknown => "unknown",
            };
            let path = report::format::clipped(&file.path.display().to_string(), 80);
            vec![path, size, show_bytes(file.size), show_bytes(file.allocated), stale.to_string()]
        })
        .collect();
    if !files.is_empty() {
        let header = ["file", "pages", "size", "holds", "state"];
        text.push('\n');
        text += &show::table(&header, files, &[0, 4]);
    }
    for unknown in &users.unknown {
        text += &format!("unknown: {unknown}\n");
    }
    text
}

fn show_bytes(bytes: ByteSize) -> String {
    bytes.to_string()
}
