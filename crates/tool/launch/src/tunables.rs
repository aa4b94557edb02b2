//! Reads and merges `GLIBC_TUNABLES`, which several parts of a plan set (glibc manual, "Tunables").
//! See docs/decisions/heap.md#8.

/// Merges `settings` into `existing`; a setting replaces an older value of the same name.
pub fn merge(existing: Option<&str>, settings: &[(&str, String)]) -> String {
    let kept =
        existing.unwrap_or("").split(':').filter(|entry| !entry.is_empty()).filter(|entry| {
            let name = entry.split('=').next().unwrap_or(entry);
            settings.iter().all(|(set, _)| *set != name)
        });
    let set = settings.iter().map(|(name, value)| format!("{name}={value}"));
    kept.map(str::to_string).chain(set).collect::<Vec<_>>().join(":")
}

/// Returns the value of the tunable `name` in `list`; the last entry counts.
pub fn value<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let entries = list.split(':').filter_map(|entry| entry.split_once('='));
    entries.filter(|(set, _)| *set == name).map(|(_, value)| value).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_its_own_and_keeps_the_rest() {
        let set = [("glibc.malloc.hugetlb", "1".to_string())];
        assert_eq!(merge(None, &set), "glibc.malloc.hugetlb=1");
        assert_eq!(merge(Some(""), &set), "glibc.malloc.hugetlb=1");
        assert_eq!(
            merge(Some("glibc.malloc.hugetlb=2:glibc.malloc.arena_max=4"), &set),
            "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=1"
        );
    }

    #[test]
    fn finds_whole_names_only() {
        let list = "glibc.malloc.hugetlb=1::x:glibc.malloc.hugetlb=2";
        assert_eq!(value(list, "glibc.malloc.hugetlb"), Some("2"));
        assert_eq!(value(list, "glibc.malloc.huge"), None);
        assert_eq!(value(list, "x"), None);
        assert_eq!(value("", ""), None);
    }
}
