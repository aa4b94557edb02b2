//! Recipes: a user's request, as one word or a short line.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use units::{ByteSize, PageSize};

use crate::{Advice, Ahead, Children, Fallback, LaunchError, Memory};

/// The pages that a program should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Pages {
    /// Pages as without superpage: the system's settings decide.
    System,
    /// The machine's best superpages: the pool's if it has free pages, else transparent ones.
    Auto,
    /// Base pages only.
    Base,
    /// Transparent superpages wherever they fit.
    Thp,
    /// Transparent superpages of this size (mTHP); larger ones only if they cannot be excluded.
    ThpOf(PageSize),
    /// Pages of the hugetlb pool, of the default size or of this one.
    Hugetlb(Option<PageSize>),
    /// Base pages that superpage collapses while the program runs, according to a design.
    Collapsed,
}

/// How superpages are made of a design's reservations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Executor {
    /// The reservation's pages are copied into a superpage (MADV_COLLAPSE).
    #[default]
    Collapse,
    /// The reservation's pages are in a superpage frame from the beginning, which is then mapped as a superpage.
    InPlace,
    /// The reservation's pages are pages of the hugetlb pool from the beginning.
    Pool,
}

impl Executor {
    /// Returns whether this is the default.
    pub fn is_usual(&self) -> bool {
        *self == Self::Collapse
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Collapse => "collapse",
            Self::InPlace => "in-place",
            Self::Pool => "pool",
        })
    }
}

impl FromStr for Executor {
    type Err = ParseRecipeError;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [Self::Collapse, Self::InPlace, Self::Pool];
        let unknown = || ParseRecipeError::UnknownExecutor(word.to_string());
        all.into_iter().find(|one| one.to_string() == word).ok_or_else(unknown)
    }
}

/// The configuration of a launch, without the program: an arm of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// Name in tables and plots.
    pub name: String,
    /// The requested pages.
    pub pages: Pages,
    /// The memory that libsuperpage.so backs. If empty, glibc's own means back malloc, and advice backs the program's
    /// own mappings where the library reaches them; with fallback=error, heap and mappings are backed.
    #[serde(default, skip_serializing_if = "Memory::is_empty")]
    pub memory: Memory,
    /// What a request gets if the pool is exhausted.
    #[serde(default)]
    pub fallback: Fallback,
    /// How much memory the library advises for transparent superpages.
    #[serde(default, skip_serializing_if = "is_contiguous")]
    pub advice: Advice,
    /// The memory that forked children get.
    #[serde(default)]
    pub children: Children,
    /// Memory that libsuperpage.so prepares before the program touches it.
    #[serde(default, skip_serializing_if = "Ahead::is_empty")]
    pub ahead: Ahead,
    /// The design that the recipe follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    /// How superpages are made of the design's reservations.
    #[serde(default, skip_serializing_if = "Executor::is_usual")]
    pub executor: Executor,
    /// Whether the program runs although criteria of the design cannot be applied; the name says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
    /// Libraries to preload, before libsuperpage.so and the inherited ones.
    pub preload: Vec<String>,
    /// Environment variables to set.
    pub environment: Vec<(String, String)>,
    /// A command that takes the program as its arguments: `taskset -c 1`.
    pub wrapper: Vec<String>,
}

/// Why a recipe could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseRecipeError {
    /// The text is not one of the page modes.
    #[error(
        "invalid pages `{0}`: expected base, thp, thp:SIZE, hugetlb, hugetlb:SIZE, auto or system"
    )]
    UnknownPages(String),
    /// The text is neither pages nor the name of an arm.
    #[error(
        "invalid arm `{0}`: expected base, thp, thp:SIZE, hugetlb, hugetlb:SIZE, auto, superpage, system, {names}, or \
         'NAME: WORDS'", names = crate::named::NAMED.map(|(name, _)| name).join(", ")
    )]
    UnknownArm(String),
    /// The text is not a kind of memory.
    #[error(
        "invalid memory `{0}`: expected any of heap, mmap, shm, text, text=copy, data, stack=SIZE, files=MIN"
    )]
    UnknownMemory(String),
    /// The text is not a minimum length of file mappings.
    #[error("invalid files `{0}`: expected e.g. 64M, copy or copy:64M")]
    UnknownFiles(String),
    /// The text is not an executor.
    #[error("invalid executor `{0}`: expected collapse, in-place or pool")]
    UnknownExecutor(String),
    /// The text is neither yes nor no.
    #[error("invalid approximate `{0}`: expected yes or no")]
    UnknownApproximate(String),
    /// The text is not a fallback, or not a treatment of children.
    #[error(transparent)]
    NotAChoice(#[from] abi::environment::UnknownWord),
    /// The text is not an amount of memory.
    #[error("invalid amount of memory to prepare `{0}`: expected e.g. 256M")]
    UnknownSize(String),
    /// A word that is neither a setting nor a variable.
    #[error(
        "arm `{arm}`: unexpected `{word}`; expected after the name and a colon: pages=KIND, \
         memory=LIST, fallback=KIND, children=KIND, prezero=SIZE, prefault=SIZE, design=DESIGN, \
         executor=KIND, approximate=yes, preload=LIBRARY, VARIABLE=VALUE (a variable in lower case: -- env name=value), and last `-- WRAPPER ARGS`"
    )]
    UnknownWord {
        /// The arm's name.
        arm: String,
        /// The word.
        word: String,
    },
    /// A quote is not closed.
    #[error("arm `{0}`: unclosed quote")]
    Quotes(String),
    /// Nothing precedes the colon.
    #[error("arm `{0}` has no name; expected NAME or NAME: WORDS")]
    NoName(String),
}

/// Splits a line into words as a shell does, but without variables and patterns; `None` for an unclosed quote.
pub fn split_words(line: &str) -> Option<Vec<String>> {
    shlex::split(line)
}

impl Recipe {
    /// Creates a recipe that only chooses pages, and is named after them.
    pub fn new(pages: Pages) -> Self {
        Self {
            name: pages.to_string(),
            pages,
            memory: Memory::default(),
            fallback: Fallback::default(),
            advice: Advice::default(),
            children: Children::default(),
            ahead: Ahead::default(),
            design: None,
            executor: Executor::default(),
            approximate: false,
            preload: Vec::new(),
            environment: Vec::new(),
            wrapper: Vec::new(),
        }
    }

    /// Creates the default recipe: heap and mappings on the best available superpages.
    pub fn superpage() -> Self {
        let memory = Memory::USUAL;
        Self { name: "superpage".to_string(), memory, ..Self::new(Pages::Auto) }
    }

    /// Returns whether the recipe makes a JVM or PostgreSQL request the pool's pages itself. For such an arm the pool
    /// must be raised: a pool that was not resized has no page for it (HotSpot: "UseLargePages disabled, no large pages
    /// configured").
    /// See docs/decisions/launch.md#3.
    pub fn asks_itself_for_pool(&self) -> bool {
        if self.wrapper.iter().any(|word| word.contains("huge_pages=on")) {
            return true;
        }
        // HotSpot and its launcher read these variables.
        ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"].iter().any(|name| {
            let options = self.variable(name).unwrap_or_default();
            let mut switched = options.split_whitespace().rev();
            switched.find(|word| word.ends_with("UseLargePages")) == Some("-XX:+UseLargePages")
        })
    }

    /// Checks that the fallback is possible with the recipe's pages.
    ///
    /// # Errors
    /// [`LaunchError::NothingToRefuse`]: fallback=error with superpages whose requests are never refused.
    pub fn check_fallback(&self) -> Result<(), LaunchError> {
        let can_refuse = matches!(self.pages, Pages::Hugetlb(_) | Pages::ThpOf(_) | Pages::Auto);
        match self.fallback {
            Fallback::Error if !can_refuse => Err(LaunchError::NothingToRefuse(self.pages)),
            _ => Ok(()),
        }
    }

    /// Returns the recipe for fallback=error, whose pool pages come from libsuperpage.so; glibc's tunable would leave
    /// on base pages what the pool cannot serve. `None` if another fallback or no pool was requested.
    pub(crate) fn strict(&self) -> Option<Self> {
        let is_pool = matches!(self.pages, Pages::Hugetlb(_) | Pages::Auto);
        (self.fallback == Fallback::Error && is_pool).then(|| Self {
            pages: if self.pages == Pages::Auto { Pages::Hugetlb(None) } else { self.pages },
            memory: if self.memory.is_empty() { Memory::USUAL } else { self.memory },
            ..self.clone()
        })
    }

    /// Returns the value that the recipe gives a variable: the last of several.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let mut set = self.environment.iter().rev();
        set.find(|(variable, _)| variable == name).map(|(_, value)| value.as_str())
    }
}

impl FromStr for Recipe {
    type Err = ParseRecipeError;

    /// Parses `thp`, or `NAME: pages=auto memory=heap preload=/lib/x.so VARIABLE=VALUE -- taskset -c 1`. Words are
    /// split as in a shell. Without `pages=` the system's settings decide.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((name, rest)) =
            text.split_once(':').filter(|(name, _)| !["hugetlb", "thp"].contains(name))
        else {
            if text.trim() == "superpage" {
                return Ok(Self::superpage());
            }
            if let Some(words) = crate::named::words(text.trim()) {
                return format!("{}: {words}", text.trim()).parse();
            }
            let pages = text.parse().map_err(|_| ParseRecipeError::UnknownArm(text.to_string()));
            return pages.map(Self::new);
        };
        let name = name.trim().to_string();
        if name.is_empty() {
            return Err(ParseRecipeError::NoName(text.to_string()));
        }
        let mut recipe = Self { name: name.clone(), ..Self::new(Pages::System) };
        let words = split_words(rest).ok_or_else(|| ParseRecipeError::Quotes(name.clone()))?;
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--" {
                recipe.wrapper = words.collect();
                break;
            }
            match word.split_once('=') {
                Some(("pages", kind)) => recipe.pages = kind.parse()?,
                Some(("memory", list)) => recipe.memory = list.parse()?,
                Some(("fallback", kind)) => recipe.fallback = kind.parse()?,
                Some(("children", kind)) => recipe.children = kind.parse()?,
                Some(("prezero", size)) => recipe.ahead.prezero = Some(ahead(size)?),
                Some(("prefault", size)) => recipe.ahead.prefault = Some(ahead(size)?),
                Some(("design", design)) => recipe.design = Some(design.to_string()),
                Some(("executor", kind)) => recipe.executor = kind.parse()?,
                Some(("approximate", "yes")) => recipe.approximate = true,
                Some(("approximate", "no")) => recipe.approximate = false,
                Some(("approximate", other)) => {
                    return Err(ParseRecipeError::UnknownApproximate(other.to_string()));
                }
                Some(("preload", library)) => recipe.preload.push(library.to_string()),
                Some((variable, value)) if is_variable(variable) => {
                    recipe.environment.push((variable.to_string(), value.to_string()));
                }
                _ => return Err(ParseRecipeError::UnknownWord { arm: name, word }),
            }
        }
        Ok(recipe)
    }
}

fn is_contiguous(advice: &Advice) -> bool {
    *advice == Advice::Contiguous
}

const SETTINGS: [&str; 10] = [
    "pages",
    "memory",
    "fallback",
    "children",
    "prezero",
    "prefault",
    "design",
    "executor",
    "approximate",
    "preload",
];

fn ahead(size: &str) -> Result<ByteSize, ParseRecipeError> {
    size.parse().map_err(|_| ParseRecipeError::UnknownSize(size.to_string()))
}

/// Returns whether `name` can be a variable. Rejects lower case, because a misspelt setting would be taken for a
/// variable, and the arm would be measured without the setting.
fn is_variable(name: &str) -> bool {
    let settings = SETTINGS.iter().any(|setting| setting.eq_ignore_ascii_case(name));
    let has = |is: fn(&u8) -> bool| name.as_bytes().iter().any(is);
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
    if !has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) || settings && is_mixed {
        return false;
    }
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl FromStr for Pages {
    type Err = ParseRecipeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || ParseRecipeError::UnknownPages(text.to_string());
        match text.trim() {
            "system" => Ok(Self::System),
            "auto" => Ok(Self::Auto),
            "base" => Ok(Self::Base),
            "thp" => Ok(Self::Thp),
            "hugetlb" => Ok(Self::Hugetlb(None)),
            "collapsed" => Ok(Self::Collapsed),
            other => {
                let (kind, size) = other.split_once(':').ok_or_else(unknown)?;
                let size: ByteSize = size.parse().map_err(|_| unknown())?;
                let size = PageSize::new(size.bytes()).map_err(|_| unknown())?;
                match kind {
                    "hugetlb" => Ok(Self::Hugetlb(Some(size))),
                    "thp" => Ok(Self::ThpOf(size)),
                    _ => Err(unknown()),
                }
            }
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("system"),
            Self::Auto => f.write_str("auto"),
            Self::Base => f.write_str("base"),
            Self::Thp => f.write_str("thp"),
            Self::ThpOf(size) => write!(f, "thp:{}", spec(*size)),
            Self::Collapsed => f.write_str("collapsed"),
            Self::Hugetlb(None) => f.write_str("hugetlb"),
            Self::Hugetlb(Some(size)) => write!(f, "hugetlb:{}", spec(*size)),
        }
    }
}

/// Formats a size in common notation: 64K, 2M, 1G.
pub fn spec(size: PageSize) -> String {
    let unit = (size.bytes().trailing_zeros() / 10).min(3);
    format!("{}{}", size.bytes() >> (10 * unit), ["", "K", "M", "G"][unit as usize])
}

impl From<Pages> for String {
    fn from(pages: Pages) -> Self {
        pages.to_string()
    }
}

impl TryFrom<String> for Pages {
    type Error = ParseRecipeError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_is_a_kind_of_pages() {
        let two_mib = PageSize::new(2 << 20).unwrap();
        for (text, pages) in [
            ("base", Pages::Base),
            ("thp", Pages::Thp),
            ("system", Pages::System),
            ("hugetlb", Pages::Hugetlb(None)),
            ("hugetlb:2M", Pages::Hugetlb(Some(two_mib))),
            ("thp:64K", Pages::ThpOf(PageSize::new(64 << 10).unwrap())),
            ("auto", Pages::Auto),
        ] {
            let recipe: Recipe = text.parse().unwrap();
            assert_eq!(recipe.pages, pages, "{text}");
            assert_eq!(recipe.pages.to_string().parse(), Ok(pages));
        }
    }

    #[test]
    fn a_line_holds_preloads_variables_and_a_wrapper() {
        let text = "mi: preload=/usr/lib/mi.so MIMALLOC_VERBOSE='1 2' pages=thp -- taskset -c 1";
        let recipe: Recipe = text.parse().unwrap();
        assert_eq!(recipe.name, "mi");
        assert_eq!(recipe.pages, Pages::Thp);
        assert_eq!(recipe.preload, ["/usr/lib/mi.so"]);
        assert_eq!(recipe.environment, [("MIMALLOC_VERBOSE".into(), "1 2".into())]);
        assert_eq!(recipe.wrapper, ["taskset", "-c", "1"]);
        let text = "x: pages=hugetlb memory=heap,shm fallback=error children=same";
        let recipe: Recipe = text.parse().unwrap();
        assert_eq!(recipe.memory.variable(), "heap,shm");
        assert_eq!((recipe.fallback, recipe.children), (Fallback::Error, Children::Same));
        assert_eq!("superpage".parse(), Ok(Recipe::superpage()));
        let text = "x: pages=thp memory=heap,mmap prezero=256M prefault=64M";
        let recipe: Recipe = text.parse().unwrap();
        assert_eq!(recipe.ahead.prezero, Some(ByteSize::mib(256)));
        assert_eq!(recipe.ahead.prefault, Some(ByteSize::mib(64)));
        let variables: Vec<_> = recipe.ahead.settings().map(|it| (it.0, it.1)).collect();
        assert_eq!(variables[0].1, "268435456");
        assert_eq!(variables[1], ("SUPERPAGE_PREFAULT", "67108864".to_string()));
        for (word, is_approximate) in [("yes", true), ("no", false)] {
            let text = format!("x: design=cbmm approximate={word}");
            assert_eq!(text.parse::<Recipe>().unwrap().approximate, is_approximate);
        }
        let written = serde_json::to_string(&recipe).unwrap();
        assert_eq!(serde_json::from_str::<Recipe>(&written).unwrap(), recipe);
        let without = serde_json::to_string(&Recipe::superpage()).unwrap();
        assert!(!without.contains("ahead"), "recipes without are written as ever: {without}");
    }

    #[test]
    fn a_jvm_that_is_asked_for_large_pages_needs_a_pool() {
        for (text, asks) in [
            ("jvm: JAVA_TOOL_OPTIONS='-Xmx1g -XX:+UseLargePages'", true),
            ("jvm: pages=system JDK_JAVA_OPTIONS=-XX:+UseLargePages", true),
            ("jvm: JAVA_TOOL_OPTIONS='-XX:+UseLargePages -XX:-UseLargePages'", false),
            ("jvm: JAVA_TOOL_OPTIONS=-XX:+UseTransparentHugePages", false),
            ("jvm: OTHER=-XX:+UseLargePages", false),
            ("base", false),
        ] {
            assert_eq!(text.parse::<Recipe>().unwrap().asks_itself_for_pool(), asks, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, part) in [
            ("huge", "invalid arm `huge`: expected base"),
            ("huge", "jvm-thp"),
            ("x: approximate", "approximate=yes"),
            ("x: design=cbmm approximate=maybe", "expected yes or no"),
            ("x: pages=superpage", "auto or system"),
            ("hugetlb:3M", "hugetlb:3M"),
            ("x: pages=big", "`big`"),
            ("x: memory=all", "invalid memory `all`"),
            ("x: fallback=no", "invalid fallback `no`"),
            ("x: children=x", "invalid children `x`"),
            ("x: prezero=much", "to prepare `much`"),
            ("x: prefault=", "to prepare ``"),
            ("x: design=freebsd executor=copy", "invalid executor `copy`"),
            ("x: fast", "unexpected `fast`"),
            ("x: 1A=2", "`1A=2`"),
            ("x: page=thp", "unexpected `page=thp`"),
            ("x: preload_=/lib/x.so", "`preload_=/lib/x.so`"),
            ("x: Pages=thp", "`Pages=thp`"),
            ("x: http_proxy=y", "-- env name=value"),
            ("x: A='1", "quote"),
            (": pages=thp", "no name"),
        ] {
            let error = text.parse::<Recipe>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
