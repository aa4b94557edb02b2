//! Lines that make a mount come back after a reboot. Text only; nobody's files are edited.

use super::plan::MountPlan;

/// A line for `/etc/fstab`.
pub fn fstab_line(plan: &MountPlan) -> String {
    let point: String = plan.point.to_string_lossy().chars().map(fstab_char).collect();
    format!("none {point} hugetlbfs nosuid,nodev,{} 0 0\n", plan.options())
}

/// A systemd mount unit: its file's name, which systemd derives from the place, and its text.
pub fn systemd_mount(plan: &MountPlan) -> (String, String) {
    let name = format!("{}.mount", escape(&plan.point.to_string_lossy()));
    // `%` begins a specifier in unit files.
    let point = plan.point.to_string_lossy().replace('%', "%%");
    let text = format!(
        "[Unit]\nDescription=hugetlbfs, pages of {}\nDefaultDependencies=no\n\
         After=systemd-modules-load.service\nBefore=local-fs.target\n\n\
         [Mount]\nWhat=none\nWhere={point}\nType=hugetlbfs\nOptions=nosuid,nodev,{}\n\n\
         [Install]\nWantedBy=local-fs.target\n",
        plan.page_size,
        plan.options()
    );
    (name, text)
}

fn fstab_char(c: char) -> String {
    match c {
        ' ' | '\t' | '\n' | '\\' | '#' => format!("\\{:03o}", c as u32),
        c => c.to_string(),
    }
}

/// A path as systemd names units after it (systemd-escape --path): `/` is `-`, and whatever is not
/// a letter, digit, `_`, `.` or `:` is `\x2d`.
pub fn escape(path: &str) -> String {
    let mut name = String::new();
    for (index, byte) in path.trim_matches('/').bytes().enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if index == 0 => name += "\\x2e",
            b if b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':') => {
                name.push(char::from(b));
            }
            b => name += &format!("\\x{b:02x}"),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Limits, Owner, plan};
    use super::*;
    use crate::Root;
    use units::{ByteSize, PageSize};

    fn planned(owner: Owner, size: u64, limit: Option<ByteSize>) -> Result<MountPlan, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        std::fs::write(dir.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\nann:x:7:8::/:\n")
            .unwrap();
        std::fs::write(dir.path().join("etc/group"), "dba:x:54:ann\n").unwrap();
        let limits = Limits { size: limit, inodes: None };
        plan(&Root::at(dir.path()), &owner, PageSize::new(size).unwrap(), limits)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn places_modes_and_limits() {
        for (owner, point, options) in [
            (Owner::Root, "pagesize-2MB", "uid=0,gid=0,mode=0770"),
            (Owner::Everybody, "global/pagesize-2MB", "uid=0,gid=0,mode=1777"),
            (Owner::User("ann".into()), "user/ann/pagesize-2MB", "uid=7,gid=0,mode=0700"),
            (Owner::Group("dba".into()), "group/dba/pagesize-2MB", "uid=0,gid=54,mode=0070"),
            (Owner::User("12".into()), "user/12/pagesize-2MB", "uid=12,gid=0,mode=0700"),
        ] {
            let plan = planned(owner, 2 << 20, Some(ByteSize(5 << 20))).unwrap();
            assert_eq!(plan.point.to_str().unwrap(), format!("/var/lib/hugetlbfs/{point}"));
            assert_eq!(plan.options(), format!("pagesize=2M,size=4194304,{options}"));
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let error = planned(Owner::Everybody, 1 << 30, Some(ByteSize::mib(4))).unwrap_err();
        assert!(error.contains("at least 1G"), "{error}");
        let error = planned(Owner::User("bob".into()), 2 << 20, None).unwrap_err();
        assert!(error.contains("unknown user `bob` (not in /etc/passwd)"), "{error}");
        assert!(planned(Owner::User("../../etc".into()), 2 << 20, None).is_err());
        assert!(planned(Owner::Group(String::new()), 2 << 20, None).is_err());
    }

    #[test]
    fn a_mount_that_is_there_is_recognised_by_what_the_kernel_prints() {
        use super::super::{MountOutcome, parse};
        let plan = planned(Owner::Everybody, 1 << 30, Some(ByteSize::gib(3))).unwrap();
        let table = |options: &str| {
            let line = format!("none {} hugetlbfs rw,{options} 0 0\n", plan.point.display());
            parse(&line, std::path::Path::new("m")).unwrap()
        };
        assert_eq!(plan.check(&[]).unwrap(), MountOutcome::New);
        let same = table("mode=1777,pagesize=1024M,size=3221225472");
        assert_eq!(plan.check(&same).unwrap(), MountOutcome::AlreadyThere);
        let error = plan.check(&table("mode=1777,pagesize=1024M")).unwrap_err().to_string();
        assert!(error.contains("its size is no limit instead of 3 GiB"), "{error}");
    }

    #[test]
    fn lines_that_make_it_stay() {
        let plan = planned(Owner::Everybody, 2 << 20, None).unwrap();
        assert_eq!(
            fstab_line(&plan),
            "none /var/lib/hugetlbfs/global/pagesize-2MB hugetlbfs \
             nosuid,nodev,pagesize=2M,uid=0,gid=0,mode=1777 0 0\n"
        );
        let (name, text) = systemd_mount(&plan);
        assert_eq!(name, "var-lib-hugetlbfs-global-pagesize\\x2d2MB.mount");
        assert!(text.contains("Where=/var/lib/hugetlbfs/global/pagesize-2MB\n"));
    }
}
