//! `pagesize`: prints page sizes in bytes, one per line.

use std::ffi::OsString;

use host::{HugetlbPools, Root};

use super::getopt::{self, Opt, Takes};
use super::stop::Stop;
use super::voice::Voice;
use crate::exit::{self, Failure};

pub const HELP: &str = "\
pagesize [options]: print this machine's page sizes in bytes
options:
 --help, -h                 Print this
 --all, -a                  Print every page size, the base page size first
 --huge-only, -H            Print the sizes of the hugetlb pools only
";

#[derive(Clone, Copy, PartialEq)]
enum Name {
    Help,
    All,
    HugeOnly,
}

const OPTIONS: &[Opt<Name>] = &[
    Opt::both("help", 'h', Takes::Nothing, Name::Help),
    Opt::both("all", 'a', Takes::Nothing, Name::All),
    Opt::both("huge-only", 'H', Takes::Nothing, Name::HugeOnly),
];

/// Which sizes to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Base,
    All,
    HugeOnly,
}

pub fn run(root: &Root, _: &mut Voice, words: Vec<OsString>) -> Result<(), Stop> {
    let read = getopt::read(OPTIONS, words)?;
    let mut which = Which::Base;
    for (name, _) in read.options {
        which = match name {
            Name::Help => return Err(Stop::Help),
            Name::HugeOnly => Which::HugeOnly,
            // --huge-only takes precedence, in any order.
            Name::All if which == Which::HugeOnly => which,
            Name::All => Which::All,
        };
    }
    if let Some(word) = read.rest.first() {
        return Err(Stop::Words(Failure::usage(format!("{word:?} is not an option"))));
    }
    Ok(exit::print(&list(root, which))?)
}

fn list(root: &Root, which: Which) -> String {
    let base = root.page_size();
    let huge = HugetlbPools::read_sizes(root).into_keys();
    let mut sizes: Vec<u64> = match which {
        Which::Base => vec![base.bytes()],
        Which::All => [base].into_iter().chain(huge).map(|size| size.bytes()).collect(),
        Which::HugeOnly => huge.map(|size| size.bytes()).collect(),
    };
    sizes.sort_unstable();
    sizes.iter().map(|size| format!("{size}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::PageSize;

    #[test]
    fn prints_the_sizes_of_other_machines() {
        for (machine, base, all, huge) in [
            ("zen4-6.18", 4096, "4096\n2097152\n1073741824\n", "2097152\n1073741824\n"),
            (
                "arm64-64k",
                65536,
                "65536\n2097152\n536870912\n17179869184\n",
                "2097152\n536870912\n17179869184\n",
            ),
        ] {
            let root = super::super::tests::fixture(machine);
            let root = root.with_page_size(PageSize::new(base).unwrap());
            assert_eq!(list(&root, Which::Base), format!("{base}\n"));
            assert_eq!(list(&root, Which::All), all, "{machine}");
            assert_eq!(list(&root, Which::HugeOnly), huge, "{machine}");
        }
    }

    #[test]
    fn a_kernel_without_hugetlb_has_its_base_pages() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path()).with_page_size(PageSize::new(16384).unwrap());
        assert_eq!(list(&root, Which::All), "16384\n");
        assert_eq!(list(&root, Which::HugeOnly), "");
    }
}
