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

/// Returns words for the kernel command line. Every `hugepages=` applies to the `hugepagesz=`
/// before it.
pub fn command_line(pools: &[BootPool], default: Option<PageSize>) -> String {
    let default = default.map(|size| format!("default_hugepagesz={}", exact(size.bytes())));
    let pools = pools.iter().map(|pool| {
        let pages = match &pool.pages {
            BootPages::Anywhere(pages) => pages.to_string(),
            BootPages::OnNodes(nodes) => {
                let nodes = nodes.iter().map(|(node, pages)| format!("{node}:{pages}"));
                nodes.collect::<Vec<_>>().join(",")
            }
        };
        format!("hugepagesz={} hugepages={pages}", exact(pool.size.bytes()))
    });
    default.into_iter().chain(pools).collect::<Vec<_>>().join(" ")
}

/// A systemd unit that applies `file` before programs start.
pub fn systemd_unit(command: &Path, file: &Path) -> String {
    let word = |path: &Path| {
        let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{}\"", text.replace('%', "%%").replace('$', "$$"))
    };
    format!(
        "[Unit]\n\
         Description=superpage pools\n\
         Documentation=man:superpage-pool(1)\n\
         DefaultDependencies=no\n\
         # As early as the file can be read: memory fragments with every program that runs.\n\
         RequiresMountsFor={file} /var/lib/superpage\n\
         After=systemd-sysctl.service local-fs.target\n\
         Before=sysinit.target\n\n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         ExecStart={command} pool ensure {file}\n\n\
         [Install]\n\
         WantedBy=sysinit.target\n",
        command = word(command),
        file = word(file),
    )
}

/// Lines for `/etc/sysctl.d`. Only the pool of the default size has a sysctl; for others use [`tmpfiles`],
/// [`command_line`] or [`systemd_unit`].
pub fn sysctl(default_pages: Option<u64>, settings: &[(&str, u64)]) -> String {
    let pages = default_pages.map(|pages| format!("vm.nr_hugepages = {pages}\n"));
    let settings = settings.iter().map(|(name, value)| format!("{name} = {value}\n"));
    pages.into_iter().chain(settings).collect()
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
        let unit = systemd_unit(Path::new("/usr/bin/superpage"), Path::new("/etc/a b%$.toml"));
        assert!(
            unit.contains("ExecStart=\"/usr/bin/superpage\" pool ensure \"/etc/a b%%$$.toml\"")
        );
        assert!(unit.contains("Type=oneshot") && unit.contains("Before=sysinit.target"));
    }

    #[test]
    fn sysctl_lines() {
        let text = sysctl(Some(512), &[("vm.hugetlb_shm_group", 54)]);
        assert_eq!(text, "vm.nr_hugepages = 512\nvm.hugetlb_shm_group = 54\n");
    }
}
