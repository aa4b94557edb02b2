//! Declaration of rules: each key of a design file is one line, with its type, its default, its name, and its limits.
//! The reader and the writer of files both visit these lines ([`Keys`]).

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use units::ByteSize;

use crate::Condition;
use crate::rules::Span;

/// A visitor of keys.
pub trait Keys {
    /// The meaning of the key or table that is visited next.
    fn about(&mut self, _meaning: &'static str) {}
    /// Visits a key of the current table.
    fn key(&mut self, name: &'static str, limit: Option<Limit>, value: Slot<'_>);
    /// Declares keys that are valid only if an earlier key has another value; `other` describes
    /// that value.
    fn only_with(&mut self, names: &[&'static str], other: &'static str);
    /// Begins a table. `is_there` tells whether the value has the table now. Returns whether the value should have the
    /// table afterwards.
    fn enter(&mut self, name: &'static str, is_there: bool) -> bool;
    /// Ends the table. Called even if the table does not exist.
    fn leave(&mut self);
}

/// A reference to a key's value; the variant is its notation in files.
pub enum Slot<'a> {
    /// A quoted text.
    Text(&'a mut String),
    /// One of several words.
    Word(&'a mut dyn Choice),
    /// A list of one, both or neither of two words.
    Words(&'static [&'static str; 2], [&'a mut bool; 2]),
    /// True or false.
    Flag(&'a mut bool),
    /// A whole number.
    Number(&'a mut dyn Number),
    /// Bytes.
    Size(&'a mut ByteSize),
    /// A list of sizes.
    Sizes(&'a mut Vec<ByteSize>),
    /// A time.
    Time(&'a mut Duration),
    /// A condition; `None`: always true.
    Condition(&'a mut Option<Condition>),
    /// A profile.
    Spans(&'a mut Vec<Span>),
}

impl Slot<'_> {
    /// The number that a [`Limit`] restricts; for times, nanoseconds.
    pub fn amount(&self) -> Option<u64> {
        match self {
            Self::Number(number) => number.get(),
            Self::Time(time) => Some(time.as_nanos().try_into().unwrap_or(u64::MAX)),
            _ => None,
        }
    }
}

/// The range of a number or a time, inclusive; times in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// The range in words.
    pub says: &'static str,
}

/// An enum whose variants have words in files. A variant's payload has its own keys; choosing a
/// word sets the default payload.
pub trait Choice {
    /// All words.
    fn words(&self) -> &'static [&'static str];
    /// The meaning of each word, in the order of [`Choice::words`].
    fn meanings(&self) -> &'static [&'static str];
    /// The current word.
    fn word(&self) -> &'static str;
    /// Sets `word` if it is one of the words; returns whether it is.
    fn choose(&mut self, word: &str) -> bool;
}

/// A whole number that may be absent.
pub trait Number {
    /// The number.
    fn get(&self) -> Option<u64>;
    /// The largest number of the type.
    fn max(&self) -> u64;
    /// Sets the number, which must be at most [`Number::max`].
    fn set(&mut self, number: u64);
}

/// A type that a field of rules can have.
pub(crate) trait Key {
    fn visit(&mut self, name: &'static str, limit: Option<Limit>, keys: &mut dyn Keys);
}

/// A table of keys.
pub trait Table {
    /// Visits the keys in the order of the file.
    fn keys(&mut self, keys: &mut dyn Keys);
}

/// A table that always exists; its keys have defaults.
impl<T: Table> Key for T {
    fn visit(&mut self, name: &'static str, _: Option<Limit>, keys: &mut dyn Keys) {
        if keys.enter(name, true) {
            self.keys(keys);
        }
        keys.leave();
    }
}

/// A table that may be absent. An empty table has the default of every key.
impl<T: Table + Default> Key for Option<T> {
    fn visit(&mut self, name: &'static str, _: Option<Limit>, keys: &mut dyn Keys) {
        if keys.enter(name, self.is_some()) {
            self.get_or_insert_default().keys(keys);
        }
        keys.leave();
    }
}

macro_rules! slots {
    ($($slot:ident $type:ty,)+) => {$(
        impl Key for $type {
            fn visit(&mut self, name: &'static str, limit: Option<Limit>, keys: &mut dyn Keys) {
                keys.key(name, limit, Slot::$slot(self));
            }
        }
    )+};
}

slots! {
    Flag bool, Number u8, Number u16, Number u32, Number u64, Number Option<u16>, Number Option<u64>, Size ByteSize,
    Sizes Vec<ByteSize>, Time Duration, Condition Option<Condition>, Spans Vec<Span>,
}

macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl Number for $type {
            fn get(&self) -> Option<u64> {
                Some((*self).into())
            }
            fn max(&self) -> u64 {
                <$type>::MAX.into()
            }
            fn set(&mut self, number: u64) {
                *self = number as $type;
            }
        }
    )+};
}

numbers! { u8 u16 u32 u64 }

impl<T: Number + Default> Number for Option<T> {
    fn get(&self) -> Option<u64> {
        self.as_ref()?.get()
    }
    fn max(&self) -> u64 {
        T::default().max()
    }
    fn set(&mut self, number: u64) {
        self.get_or_insert_default().set(number);
    }
}

pub(crate) const fn limit(min: u64, max: u64, says: &'static str) -> Option<Limit> {
    Some(Limit { min, max, says })
}

const DAY: u64 = 24 * 60 * 60 * 1_000_000_000;
pub(crate) const PERIOD: Option<Limit> = limit(1, DAY, "must be more than 0s, at most 24h");
/// Limits of a time that may be zero.
pub(crate) const WAIT: Option<Limit> = limit(0, DAY, "must be at most 24h");
/// Limits of the number of items that a daemon processes at a time.
pub(crate) const ONE_OR_MORE: Option<Limit> = limit(1, u64::MAX, "must be 1 or more");
/// Limits of a percentage.
pub(crate) const PER_CENT: Option<Limit> = limit(1, 100, "must be 1 to 100");
/// Limits of a number of cycles.
pub(crate) const CYCLES: Option<Limit> = limit(0, 1 << 40, "must be at most 2^40");

/// Declares tables. Each key is `field: type = default, "name"`, with optional limits. Its comment is its text in the
/// reference of designs (docs/guide/design-keys.md), so it is written for users.
macro_rules! rules {
    ($($(#[$meta:meta])* pub struct $table:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr, $name:literal $(, $limit:expr)?;)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $table {
            $($(#[doc = $doc])* pub $field: $type,)+
        }

        impl Default for $table {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }

        impl $crate::rules::table::Table for $table {
            fn keys(&mut self, keys: &mut dyn $crate::rules::table::Keys) {
                use $crate::rules::table::Key as _;
                $(
                    keys.about(concat!($($doc),*));
                    self.$field.visit($name, None $(.or($limit))?, keys);
                )+
            }
        }
    )+};
}

/// Declares the words of an enum whose variants may have payloads. The comments are the words' texts in the reference of
/// designs.
macro_rules! choice {
    ($type:ident { $($(#[doc = $doc:literal])* $pattern:pat => $word:literal = $value:expr,)+ }) => {
        impl $crate::rules::table::Choice for $type {
            fn words(&self) -> &'static [&'static str] {
                &[$($word),+]
            }
            fn meanings(&self) -> &'static [&'static str] {
                &[$(concat!($($doc),*)),+]
            }
            fn word(&self) -> &'static str {
                match self { $($pattern => $word),+ }
            }
            fn choose(&mut self, word: &str) -> bool {
                match word {
                    $($word => *self = $value,)+
                    _ => return false,
                }
                true
            }
        }
    };
}

/// Declares enums whose variants are words without payloads.
macro_rules! words {
    ($($(#[$meta:meta])* pub enum $type:ident {
        $($(#[doc = $doc:literal])* $variant:ident = $word:literal,)+
    })+) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type {
            $($(#[doc = $doc])* $variant,)+
        }

        $crate::rules::table::choice! {
            $type { $($(#[doc = $doc])* Self::$variant => $word = Self::$variant,)+ }
        }

        impl $crate::rules::table::Key for $type {
            fn visit(
                &mut self,
                name: &'static str,
                limit: Option<$crate::rules::table::Limit>,
                keys: &mut dyn $crate::rules::table::Keys,
            ) {
                keys.key(name, limit, $crate::rules::table::Slot::Word(self));
            }
        }
    )+};
}

pub(crate) use {choice, rules, words};
