//! What libsuperpage.so and the `superpage` command must agree on: the layout of the counters file, and the environment
//! variables with their values.
#![forbid(unsafe_code)]

/// Defines an enum whose variants have words that both sides write and read.
macro_rules! words {
    ($(#[$meta:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $type {
            $($(#[$doc])* $variant),*
        }

        impl $type {
            /// All variants, in order.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// The word of the variant.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),*
                }
            }

            /// The variant with this word.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }
        }
    };
}

mod counters;
pub mod environment;
pub mod looks;

pub use counters::*;
