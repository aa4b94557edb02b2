//! `/proc/self/mounts`: the hugetlbfs mounts this process sees.
//!
//! Lines have any length (overlayfs names all its layers), sources may hold slashes or be empty,
//! and blanks, tabs, newlines, `#` and backslashes in names are written in octal (`\040`).

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use crate::{ReadError, Root, text};

/// One hugetlbfs mount. `None`: the kernel does not print the option, because it has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is.
    pub point: PathBuf,
    /// What was mounted: a word without meaning for hugetlbfs.
    pub source: String,
    /// The pool its pages come from.
    pub page_size: Option<PageSize>,
    /// The most it may take.
    pub size: Option<ByteSize>,
    /// What is reserved for it from the start.
    pub min_size: Option<ByteSize>,
    /// The most files it may hold.
    pub inodes: Option<u64>,
    /// Its root's owner; `None`: 0.
    pub uid: Option<u32>,
    /// Its root's group; `None`: 0.
    pub gid: Option<u32>,
    /// Its root's permissions; `None`: 0755.
    pub mode: Option<u32>,
    /// Mounted read-only.
    pub read_only: bool,
    /// Every option as printed.
    pub options: String,
}

/// Reads the hugetlbfs mounts, in the order in which they were made.
pub fn mounts(root: &Root) -> Result<Vec<Mount>, ReadError> {
    let path = "/proc/self/mounts";
    parse(&root.read(path)?, &root.path(path))
}

/// Reads the text of `/proc/self/mounts`; `path` is named in errors.
pub fn parse(text: &str, path: &Path) -> Result<Vec<Mount>, ReadError> {
    let mut mounts = Vec::new();
    for (line, bad) in text::numbered(text, path) {
        // Single blanks: a source may be the empty word.
        let words: Vec<&str> = line.split(' ').collect();
        let [source, point, kind, options, ..] = words.as_slice() else {
            return Err(bad("`source point type options 0 0`"));
        };
        if *kind != "hugetlbfs" {
            continue;
        }
        let mut mount = Mount {
            point: PathBuf::from(unescape(point)),
            source: unescape(source),
            options: (*options).to_string(),
            ..Mount::default()
        };
        for option in options.split(',') {
            mount.set(option).ok_or_else(|| bad("hugetlbfs options such as pagesize=2M"))?;
        }
        mounts.push(mount);
    }
    Ok(mounts)
}

impl Mount {
    fn set(&mut self, option: &str) -> Option<()> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let bytes = || value.parse::<ByteSize>().ok();
        match key {
            "pagesize" => self.page_size = Some(PageSize::new(bytes()?.bytes()).ok()?),
            "size" => self.size = Some(bytes()?),
            "min_size" => self.min_size = Some(bytes()?),
            "nr_inodes" => self.inodes = Some(value.parse().ok()?),
            "uid" => self.uid = Some(value.parse().ok()?),
            "gid" => self.gid = Some(value.parse().ok()?),
            "mode" => self.mode = Some(u32::from_str_radix(value, 8).ok()?),
            "ro" => self.read_only = true,
            _ => {}
        }
        Some(())
    }
}

/// `\040` and its like as the bytes they stand for; anything else stays as it is.
fn unescape(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| u8::from_str_radix(digits, 8).ok())?
        });
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<Mount> {
        parse(text, Path::new("/proc/self/mounts")).unwrap()
    }

    #[test]
    fn reads_what_kernels_print() {
        let long = format!("overlay / overlay rw,lowerdir={} 0 0\n", "/layer/".repeat(20_000));
        let text = long
            + " /empty tmpfs rw 0 0\n\
               none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
               dev/with/slash /mnt/a\\040b\\134c hugetlbfs \
               rw,uid=3,gid=4,mode=1770,nr_inodes=10,pagesize=1024M,size=3221225472,min_size=0 0 0\n\
               none /ro hugetlbfs ro,new_option=x 0 0\n";
        let found = read(&text);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].page_size, PageSize::new(2 << 20).ok());
        assert_eq!((found[0].size, found[0].mode), (None, None));
        let second = &found[1];
        assert_eq!(second.point, Path::new("/mnt/a b\\c"));
        assert_eq!(second.source, "dev/with/slash");
        assert_eq!((second.uid, second.gid, second.mode), (Some(3), Some(4), Some(0o1770)));
        assert_eq!(second.size, Some(ByteSize::gib(3)));
        assert_eq!((second.min_size, second.inodes), (Some(ByteSize(0)), Some(10)));
        assert!(found[2].read_only && found[2].page_size.is_none());
    }

    #[test]
    fn a_malformed_line_is_named() {
        let error = parse("a b c\n", Path::new("m")).unwrap_err().to_string();
        assert!(error.contains("m:1"), "{error}");
        let bad = "none /x hugetlbfs pagesize=banana 0 0";
        let error = parse(bad, Path::new("m")).unwrap_err().to_string();
        assert!(error.contains("banana"), "{error}");
    }

    #[test]
    fn only_octal_is_unescaped() {
        for (word, plain) in
            [("\\040", " "), ("\\9", "\\9"), ("\\", "\\"), ("\\777", "\\777"), ("\\+12", "\\+12")]
        {
            assert_eq!(unescape(word), plain);
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "(.{0,40}( hugetlbfs [a-z=,0-9]{0,30})?\n){0,5}") {
            let _ = parse(&text, Path::new("m"));
        }
    }
}
