//! Boot configuration. Gigantic pages can be allocated reliably only while memory is unused, and a reboot resets every
//! setting. This module generates text and edits no files.

use std::collections::BTreeMap;
use std::path::Path;

use units::{NodeId, PageSize};

use super::spec::exact;

/// A pool to make at boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootPool {
    /// The page size.
    pub size: PageSize,
    /// Number of pages, for the whole machine or for each node.
    pub pages: BootPages,
}

/// Number of pages, and the nodes that hold them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootPages {
    /// This many pages, spread evenly.
    Anywhere(u64),
    /// This many pages on each node (Linux 5.16: `hugepages=0:1,1:2`).
    OnNodes(BTreeMap<NodeId, u64>),
}

/// Sizes of huge pages that machines of this program's architecture can have; empty if not known.
pub fn sizes_of_architecture() -> Vec<PageSize> {
    // Documentation/admin-guide/mm/hugetlbpage.rst, arch/arm64/mm/hugetlbpage.c (base pages of 4, 16 and 64 KiB).
    let bytes: &[u64] = match std::env::consts::ARCH {
        "x86_64" => &[2 << 20, 1 << 30],
        "aarch64" => &[64 << 10, 2 << 20, 32 << 20, 512 << 20, 1 << 30, 16 << 30],
        _ => &[],
    };
    bytes.iter().filter_map(|bytes| PageSize::new(*bytes).ok()).collect()
}

/// Most bytes of a pool: physical addresses have at most 52 bits (x86-64, and arm64 with LPA).
pub const MAX_BYTES: u64 = 1 << 52;

impl BootPool {
    /// Whether a machine could have this much memory.
    pub fn is_possible(&self) -> bool {
        self.total().checked_mul(self.size.bytes()).is_some_and(|bytes| bytes <= MAX_BYTES)
    }

    /// Words for the kernel command line: `hugepagesz=1G hugepages=2`.
    pub fn kernel_words(&self) -> String {
        let pages = match &self.pages {
            BootPages::Anywhere(pages) => pages.to_string(),
            BootPages::OnNodes(nodes) => {
                let nodes = nodes.iter().map(|(node, pages)| format!("{node}:{pages}"));
                nodes.collect::<Vec<_>>().join(",")
            }
        };
        format!("hugepagesz={} hugepages={pages}", exact(self.size.bytes()))
    }

    /// Number of pages on all nodes together.
    pub fn total(&self) -> u64 {
        match &self.pages {
            BootPages::Anywhere(pages) => *pages,
            BootPages::OnNodes(nodes) => {
                nodes.values().fold(0, |sum: u64, pages| sum.saturating_add(*pages))
            }
        }
    }
}

/// Returns words for the kernel command line. Every `hugepages=` applies to the `hugepagesz=`
/// before it.
pub fn command_line(pools: &[BootPool], default: Option<PageSize>) -> String {
    let default = default.map(|size| format!("default_hugepagesz={}", exact(size.bytes())));
    let pools = pools.iter().map(BootPool::kernel_words);
    default.into_iter().chain(pools).collect::<Vec<_>>().join(" ")
}

/// What a unit of systemd applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied<'a> {
    /// A file, by `superpage pool ensure`.
    File(&'a Path),
    /// These pools, by `superpage pool set`.
    Pools(&'a [BootPool]),
}

/// A systemd unit that applies a file or sizes pools before programs start. It fails if a pool gets only a part.
pub fn systemd_unit(command: &Path, applied: &Applied<'_>) -> String {
    let word = |path: &Path| {
        let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", text.replace('%', "%%").replace('$', "$$"))
    };
    let own = word(command);
    let (files, lines) = match applied {
        Applied::File(file) => (
            format!("{} ", word(file)),
            vec![format!("ExecStart={own} pool ensure {}\n", word(file))],
        ),
        Applied::Pools(pools) => (String::new(), set_lines(&own, pools)),
    };
    format!(
        "[Unit]\n\
         Description=superpage pools\n\
         Documentation=man:superpage-pool(1)\n\
         DefaultDependencies=no\n\
         # As early as possible: memory fragments with every program that runs.\n\
         RequiresMountsFor={files}/var/lib/superpage\n\
         After=systemd-sysctl.service local-fs.target\n\
         Before=sysinit.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         {}\n\
         [Install]\n\
         WantedBy=sysinit.target\n",
        lines.concat(),
    )
}

/// `ExecStart=` lines: one for the pools of the whole machine, and one for each node.
fn set_lines(own: &str, pools: &[BootPool]) -> Vec<String> {
    let mut nodes: BTreeMap<Option<NodeId>, Vec<String>> = BTreeMap::new();
    for pool in pools {
        let spec = |pages: u64| format!("{}:{pages}", exact(pool.size.bytes()));
        match &pool.pages {
            BootPages::Anywhere(pages) => nodes.entry(None).or_default().push(spec(*pages)),
            BootPages::OnNodes(of) => {
                for (node, pages) in of {
                    nodes.entry(Some(*node)).or_default().push(spec(*pages));
                }
            }
        }
    }
    let line = |(node, specs): (Option<NodeId>, Vec<String>)| {
        let node = node.map_or(String::new(), |node| format!(" --node {node}"));
        format!("ExecStart={own} pool set {}{node}\n", specs.join(" "))
    };
    nodes.into_iter().map(line).collect()
}

/// Lines for `/etc/sysctl.d`, and the pools that no sysctl can size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// The lines. For each pool of `missing` a comment has the words for the kernel command line.
    pub text: String,
    /// Pools of other sizes than the default one, and pools by node.
    pub missing: Vec<BootPool>,
}

/// Lines for `/etc/sysctl.d`. Only the pool of the default size has a sysctl (`vm.nr_hugepages`), and none has a sysctl
/// for a node: `vm.nr_hugepages_mempolicy` goes by the memory policy of the process that writes it.
pub fn sysctl(pools: &[BootPool], default: Option<PageSize>) -> Sysctl {
    let is_covered = |pool: &BootPool| {
        matches!(pool.pages, BootPages::Anywhere(_)) && Some(pool.size) == default
    };
    let (covered, missing): (Vec<_>, Vec<_>) = pools.iter().cloned().partition(is_covered);
    let mut text: String =
        covered.iter().map(|pool| format!("vm.nr_hugepages = {}\n", pool.total())).collect();
    for pool in &missing {
        text += &format!(
            "# {} pages{}: no sysctl; on the kernel command line: {}\n",
            pool.size,
            if matches!(pool.pages, BootPages::OnNodes(_)) { " by node" } else { "" },
            pool.kernel_words()
        );
    }
    Sysctl { text, missing }
}

/// Lines for `/etc/tmpfiles.d` that write the size of each pool to its sysfs file.
pub fn tmpfiles(pools: &[BootPool]) -> String {
    let line = |path: String, pages: u64| format!("w {path}/nr_hugepages - - - - {pages}\n");
    let lines = pools.iter().flat_map(|pool| {
        let size = crate::root::dir_of_size(pool.size);
        match &pool.pages {
            BootPages::Anywhere(pages) => {
                vec![line(format!("{}/{size}", crate::hugetlb::DIR), *pages)]
            }
            BootPages::OnNodes(nodes) => {
                let dir = |node| format!("{}/node{node}/hugepages/{size}", crate::hugetlb::NODES);
                nodes.iter().map(|(node, pages)| line(dir(node), *pages)).collect()
            }
        }
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(bytes: u64, pages: BootPages) -> BootPool {
        BootPool { size: PageSize::new(bytes).unwrap(), pages }
    }

    #[test]
    fn command_lines() {
        let nodes = BTreeMap::from([(NodeId(0), 1), (NodeId(1), 2)]);
        let pools =
            [pool(1 << 30, BootPages::OnNodes(nodes)), pool(2 << 20, BootPages::Anywhere(512))];
        let default = PageSize::new(1 << 30).ok();
        assert_eq!(
            command_line(&pools, default),
            "default_hugepagesz=1G hugepagesz=1G hugepages=0:1,1:2 hugepagesz=2M hugepages=512"
        );
        assert_eq!(command_line(&[], None), "");
        let lines = tmpfiles(&pools);
        assert!(lines.contains("node1/hugepages/hugepages-1048576kB/nr_hugepages - - - - 2\n"));
        assert!(lines.ends_with("mm/hugepages/hugepages-2048kB/nr_hugepages - - - - 512\n"));
    }

    #[test]
    fn units_quote_what_systemd_would_expand() {
        let file = Applied::File(Path::new("/etc/a b%$.toml"));
        let unit = systemd_unit(Path::new("/usr/bin/superpage"), &file);
        assert!(
            unit.contains("ExecStart=\"/usr/bin/superpage\" pool ensure \"/etc/a b%%$$.toml\"")
        );
        assert!(unit.contains("Type=oneshot") && unit.contains("Before=sysinit.target"));
    }

    #[test]
    fn a_unit_sets_the_pools_that_are_named_each_node_by_a_command() {
        let nodes = BTreeMap::from([(NodeId(0), 1), (NodeId(1), 2)]);
        let pools = [
            pool(2 << 20, BootPages::Anywhere(512)),
            pool(1 << 30, BootPages::OnNodes(nodes)),
            pool(64 << 10, BootPages::Anywhere(7)),
        ];
        let unit = systemd_unit(Path::new("/bin/superpage"), &Applied::Pools(&pools));
        let lines: Vec<&str> = unit.lines().filter(|line| line.starts_with("ExecStart")).collect();
        assert_eq!(
            lines,
            [
                "ExecStart=\"/bin/superpage\" pool set 2M:512 64K:7",
                "ExecStart=\"/bin/superpage\" pool set 1G:1 --node 0",
                "ExecStart=\"/bin/superpage\" pool set 1G:2 --node 1",
            ]
        );
        assert!(unit.contains("RequiresMountsFor=/var/lib/superpage\n"), "{unit}");
    }

    #[test]
    fn sysctl_sizes_the_default_pool_and_tells_what_the_others_need() {
        let default = PageSize::new(2 << 20).ok();
        let nodes = BTreeMap::from([(NodeId(0), 1), (NodeId(1), 2)]);
        let pools =
            [pool(2 << 20, BootPages::Anywhere(512)), pool(1 << 30, BootPages::Anywhere(4))];
        let lines = sysctl(&pools, default);
        assert_eq!(lines.missing, pools[1..]);
        assert_eq!(
            lines.text,
            "vm.nr_hugepages = 512\n# 1 GiB pages: no sysctl; on the kernel command line: hugepagesz=1G hugepages=4\n"
        );
        let lines = sysctl(&[pool(2 << 20, BootPages::OnNodes(nodes))], default);
        assert_eq!(
            lines.text,
            "# 2 MiB pages by node: no sysctl; on the kernel command line: hugepagesz=2M hugepages=0:1,1:2\n"
        );
        // A pool is the default's only if the default is known.
        assert_eq!(sysctl(&pools, None).missing, pools);
    }
}
