//! Named arms: the superpage support of runtimes and allocators themselves.
//!
//! Each arm uses a runtime's own switch, which makes the program, its malloc or its virtual machine request superpages
//! from the kernel. Whether it requested and got any is read back from the memory of the runs: [`Recipe::asks_itself`].
//! See docs/decisions/evaluate.md#1.

use crate::Recipe;

/// Names of the arms, and the text of their recipes.
pub const NAMED: [(&str, &str); 8] = [
    // malloc advises its heaps and mappings, since glibc 2.35 (malloc(3)).
    ("glibc-tunable", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
    // CPython's own malloc has arenas of 1 MiB, which hold no superpage (3.11); PYTHONMALLOC disables it.
    ("python-hugepages", "PYTHONMALLOC=malloc GLIBC_TUNABLES=glibc.malloc.hugetlb=1"),
    ("jvm-thp", "JAVA_TOOL_OPTIONS=-XX:+UseTransparentHugePages"),
    ("jvm-large-pages", "JAVA_TOOL_OPTIONS=-XX:+UseLargePages"),
    ("jemalloc-thp", "preload=libjemalloc.so.2 MALLOC_CONF=thp:always,metadata_thp:auto"),
    // MIMALLOC_LARGE_OS_PAGES is for 2.0, MIMALLOC_ALLOW_LARGE_OS_PAGES for 2.1 and later.
    (
        "mimalloc",
        "preload=libmimalloc.so.2 MIMALLOC_LARGE_OS_PAGES=1 MIMALLOC_ALLOW_LARGE_OS_PAGES=1",
    ),
    // gperftools' malloc requests no superpages, but hands out memory in contiguous runs.
    ("tcmalloc", "preload=libtcmalloc_minimal.so.4"),
    // `on` instead of `try`: a server that gets no huge pages reports an error and does not start.
    ("postgres-huge_pages", "-- sh -c 'exec \"$@\" -c huge_pages=on' sh"),
];

/// The preloaded libraries of named arms, and their Debian packages.
const PACKAGES: [(&str, &str); 3] = [
    ("libjemalloc.so.2", "libjemalloc2"),
    ("libmimalloc.so.2", "libmimalloc2.0"),
    ("libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
];

/// Returns the Debian package of a library that a named arm preloads.
pub fn package_of(library: &str) -> Option<&'static str> {
    PACKAGES.iter().find(|(name, _)| *name == library).map(|(_, package)| *package)
}

pub(crate) fn words(name: &str) -> Option<&'static str> {
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, words)| *words)
}

/// Switches that make a program request superpages itself.
const SWITCHES: [(&str, &str); 8] = [
    ("GLIBC_TUNABLES", "glibc.malloc.hugetlb="),
    ("JAVA_TOOL_OPTIONS", "UseTransparentHugePages"),
    ("JAVA_TOOL_OPTIONS", "UseLargePages"),
    ("JDK_JAVA_OPTIONS", "UseTransparentHugePages"),
    ("JDK_JAVA_OPTIONS", "UseLargePages"),
    ("MALLOC_CONF", "thp:always"),
    ("MIMALLOC_LARGE_OS_PAGES", "1"),
    ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1"),
];

impl Recipe {
    /// Returns the switch that makes the program request superpages itself, if the recipe sets one.
    pub fn asks_itself(&self) -> Option<String> {
        let of = |(name, part): &(&str, &str)| {
            let value = self.variable(name)?;
            let is_off = value.contains("-XX:-Use") || value.contains("hugetlb=0");
            (value.contains(part) && !is_off).then(|| format!("{name}={value}"))
        };
        let huge_pages = |word: &String| word.contains("huge_pages=on");
        let postgres = || self.wrapper.iter().any(huge_pages).then(|| "huge_pages=on".to_string());
        SWITCHES.iter().find_map(of).or_else(postgres)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_a_recipe_that_leaves_pages_to_the_system() {
        for (name, _) in NAMED {
            let recipe: Recipe = name.parse().unwrap();
            assert_eq!((recipe.name.as_str(), recipe.pages), (name, crate::Pages::System));
            assert_eq!(
                recipe.asks_itself().is_none(),
                name == "tcmalloc",
                "{name}: no line in SWITCHES"
            );
            for library in &recipe.preload {
                assert!(package_of(library).is_some(), "{library}: no line in PACKAGES");
            }
        }
    }

    #[test]
    fn a_switch_that_is_turned_off_asks_for_nothing() {
        for text in ["x: GLIBC_TUNABLES=glibc.malloc.hugetlb=0", "x: A=1", "base", "thp"] {
            assert_eq!(text.parse::<Recipe>().unwrap().asks_itself(), None, "{text}");
        }
        let own: Recipe = "x: JDK_JAVA_OPTIONS='-Xmx1g -XX:+UseLargePages'".parse().unwrap();
        assert_eq!(own.asks_itself().unwrap(), "JDK_JAVA_OPTIONS=-Xmx1g -XX:+UseLargePages");
    }
}
