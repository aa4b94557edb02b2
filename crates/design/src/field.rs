//! How one value is read from TOML and written: words, numbers, sizes, times, lists.

use std::time::Duration;

use toml::de::DeValue;
use units::ByteSize;

use crate::error::nearest;
use crate::value::{TIMES, quoted};
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
                const WORDS: &[&str] = &[$($word),+];
                let Some(word) = value.as_str() else { return Err(wrong(value, &format!("a text in quotes: {}", one_of(WORDS)))) };
                $(if word == $word { return Ok($value); })+
                let near = nearest(word, WORDS.iter().copied());
                let near = near.map_or(String::new(), |near| format!(" (\"{near}\"?)"));
                Err(format!("{}{near}: must be {}", quoted(word), one_of(WORDS)))
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
pub(crate) struct CleanWrite {
    pub demotes: bool,
}

words! {
    CleanWrite {
        Self { demotes: false } => "keep" = Self { demotes: false },
        Self { demotes: true } => "demote" = Self { demotes: true },
    }
}

/// Numbers: what the type holds; what makes sense is said by [`crate::check`].
macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl Field for $type {
            fn read(value: &DeValue<'_>) -> Result<Self, String> {
                let most = <$type>::MAX.min(i64::MAX as u64 as $type);
                let allowed = format!("a whole number from 0 to {most}");
                let number = value.as_integer().ok_or_else(|| wrong(value, &allowed))?;
                let read = <$type>::from_str_radix(number.as_str(), number.radix()).ok();
                read.filter(|read| *read <= most)
                    .ok_or_else(|| format!("{number} is out of range: must be {allowed}"))
            }
            fn write(&self) -> Value {
                Value::Number((*self).into())
            }
        }
    )+};
}

// A u64 that TOML cannot write as an integer (2^63 and up) is refused by a rule.
numbers! { u8 u16 u32 u64 }

impl Field for bool {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_bool().ok_or_else(|| wrong(value, "true or false"))
    }
    fn write(&self) -> Value {
        Value::Flag(*self)
    }
}

impl Field for String {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        value.as_str().map(str::to_string).ok_or_else(|| wrong(value, "a text in quotes"))
    }
    fn write(&self) -> Value {
        Value::Text(self.clone())
    }
}

const SIZE: &str = "a size like \"64K\" or \"2M\"";

impl Field for ByteSize {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let text = value.as_str().ok_or_else(|| wrong(value, SIZE))?;
        text.parse().map_err(|error: units::ParseSizeError| error.to_string())
    }
    fn write(&self) -> Value {
        Value::Size(*self)
    }
}

impl Field for Vec<ByteSize> {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        let list = value.as_array().ok_or_else(|| wrong(value, "a list of sizes: [\"2M\"]"))?;
        list.iter().map(|each| ByteSize::read(each.get_ref())).collect()
    }
    fn write(&self) -> Value {
        Value::List(self.iter().map(Field::write).collect())
    }
}

impl Field for Duration {
    fn read(value: &DeValue<'_>) -> Result<Self, String> {
        const TIME: &str =
            "a time: a whole number and ns, us, ms, s, min or h, like \"10s\" or \"500ms\"";
        let text = value.as_str().ok_or_else(|| wrong(value, TIME))?;
        let bad = || format!("{} is not {TIME}", quoted(text));
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let (_, nanos) = TIMES.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
        if number.is_empty() {
            return Err(bad());
        }
        let number: Option<u64> = number.parse().ok();
        let nanos = number.and_then(|number| number.checked_mul(*nanos));
        let long = || format!("{} is too long: at most 584 years", quoted(text));
        nanos.map(Duration::from_nanos).ok_or_else(long)
    }
    fn write(&self) -> Value {
        Value::Time(*self)
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

fn wrong(value: &DeValue<'_>, allowed: &str) -> String {
    format!("is {} {}: must be {allowed}", article(value.type_str()), value.type_str())
}

fn article(noun: &str) -> &'static str {
    if noun.starts_with(['a', 'i']) { "an" } else { "a" }
}

fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}
