//! `--explain`: prints the machine's state, with advice about problems. Unlike libhugetlbfs, it recommends a larger
//! shmmax only if shmmax is too small, and never recommends swap for resizing pools.

use host::pool::mounts;
use host::pool::{self, RelatedSettings};
use host::{MemInfo, Root};

use super::lists;
use super::settings::{group_name, pool_bytes};
use super::{Completion, Context, list_mounts, refused};
use crate::exit::{self, Failure};

pub fn explain(context: &Context) -> Result<Completion, Failure> {
    let root = context.root;
    let memory = MemInfo::read(root).map_err(|error| refused(error.into()))?;
    let total = memory.total.map_or("unknown".to_string(), |b| (b.bytes() >> 20).to_string());
    exit::print(&format!("Total System Memory: {total} MB\n\n"))?;
    list_mounts(context)?;
    let mounts = mounts::mounts(root).map_err(|error| refused(error.into()))?;
    exit::print(&format!(
        "\nHuge page pools:\n{}\nHuge page sizes with configured pools:\n{}{}",
        lists::pools(root),
        lists::usable_sizes(root, &mounts),
        advice(root)
    ))?;
    if let Some(line) = membership(root) {
        context.voice.warn(line);
    }
    Ok(Completion::Full)
}

fn advice(root: &Root) -> String {
    let around = RelatedSettings::read(root);
    let mut text = String::new();
    if let (Some(now), Some(advised)) = (around.min_free_kbytes, around.recommended_min_free_kbytes)
        && now < advised
    {
        text += &format!(
            "\nThe /proc/sys/vm/min_free_kbytes of {now} is small: pages that cannot be moved then \
             spread\nover memory, and pools grow less easily. Recommended is {advised}; this sets \
             it:\n  hugeadm --set-recommended-min_free_kbytes\n"
        );
    }
    let pools = pool_bytes(root);
    if let Some(now) = around.shmmax
        && now < pools
    {
        text += &format!(
            "\nThe /proc/sys/kernel/shmmax of {now} bytes is less than the pools may hold. This \
             raises it:\n  hugeadm --set-recommended-shmmax\nTo make it stay, add this line to \
             /etc/sysctl.conf:\n  kernel.shmmax = {pools}\n"
        );
    }
    if let Some(gid) = around.shm_group.filter(|gid| *gid != 0) {
        text += &format!(
            "\nTo make your hugetlb_shm_group settings persistent, add the following line to \
             /etc/sysctl.conf:\n  vm.hugetlb_shm_group = {gid}\n"
        );
    }
    if let Ok(status) = pool::Status::read(root) {
        let gigantic = status.gigantic.iter().filter(|(_, is)| **is == Some(true));
        for (size, _) in gigantic {
            text += &format!(
                "\nThe kernel never makes pages of {size} on demand; reserve them at boot: \
                 superpage pool boot\n"
            );
        }
    }
    text
}

/// Returns why this process cannot use hugetlb shared memory; `None` if it can.
fn membership(root: &Root) -> Option<String> {
    let gid = RelatedSettings::read(root).shm_group?;
    let Some(name) = group_name(root, gid) else {
        return Some(format!(
            "Group ID {gid} in hugetlb_shm_group doesn't appear to be a valid group!"
        ));
    };
    let status = root.read("/proc/self/status").ok()?;
    let ids = |key: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap_or("").split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect()
    };
    let is_root = ids("Uid:").get(1) == Some(&0);
    let is_member = ids("Groups:").contains(&gid) || ids("Gid:").get(1) == Some(&gid);
    (!is_root && !is_member)
        .then(|| format!("this user is not a member of the hugetlb_shm_group {name} (gid: {gid})!"))
}
