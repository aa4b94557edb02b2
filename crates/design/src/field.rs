//! How one value is read from TOML and written: words, numbers, sizes, times, lists.

use std::time::Duration;

use toml_keys::{DeValue, quoted, wrong};
use units::ByteSize;

use crate::*;
use policy::rules::defaults::{DOUBLING, INACTIVE, RESIDENT};

/// The type of a key's value.
pub(crate) trait Field: Sized {
    /// The value, or what would be allowed.
    fn read(value: &DeValue<'_>) -> Result<Self, String>;
    /// The value, which `read` reads back.
    fn write(&self) -> Value;
}

/// Enums are words. Payloads are keys of their own: a word alone brings the default payload.
macro_rules! words {
    ($($type:ident { $($pattern:pat => $word:literal = $value:expr,)+ })+) => {$(
        impl Field for $type {
            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                toml_keys::word(value, &[$(($word, $value)),+])
            }
            fn write(&self) -> Value {
                let word = match self { $($pattern => $word),+ };
                Value::Text(word.to_string())
            }
        }
    )+};
}

words! {
    Trigger {
        Self::Never => "never" = Self::Never,
        Self::Mmap => "mmap" = Self::Mmap,
        Self::FirstFault => "first-fault" = Self::FirstFault,
        Self::Scan => "scan" = Self::Scan,
    }
    Form {
        Self::Superpage => "superpage" = Self::Superpage,
        Self::Reservation => "reservation" = Self::Reservation,
        Self::Pool => "pool" = Self::Pool,
    }
    Eligible {
        Self::Always => "always" = Self::Always,
        Self::Advised => "advised" = Self::Advised,
    }
    Effort {
        Self::None => "none" = Self::None,
        Self::Wake => "wake" = Self::Wake,
        Self::Direct => "direct" = Self::Direct,
        Self::DirectRetry => "direct-retry" = Self::DirectRetry,
        Self::Direct43 => "direct-4.3" = Self::Direct43,
    }
    Growth {
        Self::Within => "within" = Self::Within,
        Self::PastEnd => "past-end" = Self::PastEnd,
    }
    Shortage {
        Self::BasePage => "base-page" = Self::BasePage,
        Self::Preempt => "preempt" = Self::Preempt,
        Self::Refuse => "refuse" = Self::Refuse,
    }
    Grain {
        Self::Page => "page" = Self::Page,
        Self::Superpage => "superpage" = Self::Superpage,
    }
    ZeroStores {
        Self::Temporal => "temporal" = Self::Temporal,
        Self::NonTemporal => "non-temporal" = Self::NonTemporal,
    }
    Prefault {
        Self::None => "none" = Self::None,
        Self::Resident(_) => "resident" = RESIDENT,
        Self::Doubling(_) => "doubling" = DOUBLING,
    }
    MapWhen {
        Self::Never => "never" = Self::Never,
        Self::WithPreparation => "with-preparation" = Self::WithPreparation,
        Self::Prepared => "prepared" = Self::Prepared,
    }
    CleanPages {
        Self::Uniform => "uniform" = Self::Uniform,
        Self::Relaxed => "relaxed" = Self::Relaxed,
    }
    ScanOrder {
        Self::Address => "address" = Self::Address,
        Self::Crossing => "crossing" = Self::Crossing,
        Self::Coverage => "coverage" = Self::Coverage,
        Self::Misses => "misses" = Self::Misses,
        Self::Overhead => "overhead" = Self::Overhead,
    }
    Release {
        Self::AtOnce => "at-once" = Self::AtOnce,
        Self::UnderPressure => "under-pressure" = Self::UnderPressure,
        Self::WhenEmpty => "when-empty" = Self::WhenEmpty,
        Self::Inactive { .. } => "inactive" = INACTIVE,
        Self::ToPool => "to-pool" = Self::ToPool,
    }
    Reclaim {
        Self::None => "none" = Self::None,
        Self::Compaction => "compaction" = Self::Compaction,
        Self::Lumpy => "lumpy" = Self::Lumpy,
    }
    Locking {
        Self::PageTable => "page-table" = Self::PageTable,
        Self::SplitPageTable => "split-page-table" = Self::SplitPageTable,
        Self::AtomicEntries => "atomic-entries" = Self::AtomicEntries,
        Self::PerVma => "per-vma" = Self::PerVma,
    }
    ResidentCount {
        Self::Locked => "locked" = Self::Locked,
        Self::Atomic => "atomic" = Self::Atomic,
        Self::Split => "split" = Self::Split,
    }
}

/// What splits a superpage mapping, as a list: `on = ["partial-free", "partial-protect"]`.
pub(crate) struct SplitOn {
    pub free: bool,
    pub protect: bool,
}

const SPLIT_ON: [&str; 2] = ["partial-free", "partial-protect"];

impl Field for SplitOn {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let allowed = || format!("a list of {}", SPLIT_ON.map(quoted).join(" and "));
        let list = value.as_array().ok_or_else(|| wrong(value, &allowed()))?;
        let mut on = Self { free: false, protect: false };
        for each in list.iter().map(|each| each.get_ref()) {
            match each.as_str() {
                Some("partial-free") => on.free = true,
                Some("partial-protect") => on.protect = true,
                Some(other) => return Err(format!("{}: must be {}", quoted(other), allowed())),
                None => return Err(format!("must be {}", allowed())),
            }
        }
        Ok(on)
    }
    fn write(&self) -> Value {
        let on = [self.free, self.protect];
        let words = SPLIT_ON.iter().zip(on).filter(|(_, on)| *on);
        Value::List(words.map(|(word, _)| Value::Text(word.to_string())).collect())
    }
}

/// What a write to a clean superpage does.
#[derive(Clone)]
pub(crate) struct CleanWrite {
    pub demotes: bool,
}

words! {
    CleanWrite {
        Self { demotes: false } => "keep" = Self { demotes: false },
        Self { demotes: true } => "demote" = Self { demotes: true },
    }
}

/// Types that every TOML file has, and how a design writes them; what makes sense is said by [`crate::check`].
macro_rules! plain {
    ($($type:ty => $write:expr,)+) => {$(
        impl Field for $type {
            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                toml_keys::Field::read(value)
            }
            fn write(&self) -> Value {
                let write: fn(&$type) -> Value = $write;
                write(self)
            }
        }
    )+};
}

plain! {
    u8 => |number| Value::Number((*number).into()),
    u16 => |number| Value::Number((*number).into()),
    u32 => |number| Value::Number((*number).into()),
    // One that TOML cannot write as an integer (2^63 and up) is refused by a rule.
    u64 => |number| Value::Number(*number),
    bool => |flag| Value::Flag(*flag),
    String => |text| Value::Text(text.clone()),
    ByteSize => |size| Value::Size(*size),
    Duration => |time| Value::Time(*time),
}

impl Field for Vec<ByteSize> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        toml_keys::list(value, "a list of sizes: [\"2M\"]")
    }
    fn write(&self) -> Value {
        Value::List(self.iter().map(Field::write).collect())
    }
}

const SPAN: &str =
    "spans of the program's memory with their misses, by address: [\"0 512M 40000\"]";

impl Field for Vec<Span> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let list = value.as_array().ok_or_else(|| wrong(value, SPAN))?;
        let span = |each: &str| {
            let [from, to, misses] = each.split_whitespace().collect::<Vec<_>>()[..] else {
                return None;
            };
            let (from, to) = (from.parse().ok()?, to.parse().ok()?);
            Some(Span { from, to, misses: misses.parse().ok()? })
        };
        list.iter()
            .map(|each| {
                let text = each.get_ref().as_str();
                text.and_then(span).ok_or_else(|| {
                    let text = text.map_or(String::new(), |text| format!("{}: ", quoted(text)));
                    format!("{text}must be {SPAN}")
                })
            })
            .collect()
    }
    fn write(&self) -> Value {
        let text = |Span { from, to, misses }: &Span| {
            Value::Text(format!("{} {} {misses}", from.bytes(), to.bytes()))
        };
        Value::List(self.iter().map(text).collect())
    }
}
