//! Text of a fixed capacity, and numbers in text, without allocating.

use std::ffi::CStr;
use std::fmt;

/// Up to `N` - 1 bytes and a zero byte. Longer text is cut off.
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Formats a text, e.g. `Text::<64>::from_args(format_args!("{size}"))`.
    pub fn from_args(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::new();
        // Never fails: text that does not fit is cut off.
        let _ = fmt::write(&mut text, arguments);
        text
    }

    /// Concatenates the pieces; `None` if they do not fit.
    pub fn join(pieces: &[&[u8]]) -> Option<Self> {
        let mut text = Self::new();
        pieces.iter().for_each(|piece| text.push(piece));
        (!text.is_full()).then_some(text)
    }

    pub fn push(&mut self, bytes: &[u8]) {
        let room = (N - 1).saturating_sub(self.len);
        let taken = bytes.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&bytes[..taken]);
        self.len += taken;
    }

    pub fn clear(&mut self) {
        self.bytes[..self.len].fill(0);
        self.len = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether the text is full, so that something may have been cut off.
    pub fn is_full(&self) -> bool {
        self.len == N - 1
    }

    /// The text as a C string, up to its first zero byte.
    pub fn c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// Pointer to the text, which a zero byte ends.
    pub fn as_c(&self) -> *const libc::c_char {
        self.bytes.as_ptr().cast()
    }

    pub fn as_mut_c(&mut self) -> *mut libc::c_char {
        self.bytes.as_mut_ptr().cast()
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// Displays bytes as UTF-8; invalid sequences become `?`.
pub struct LossyUtf8<'a>(pub &'a [u8]);

impl fmt::Display for LossyUtf8<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

/// Parses the number at the beginning of a text; returns it and the rest. `None`: no digit, or more than 64 bits.
pub fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    digits(text, 10)
}

/// As [`number`], in hexadecimal.
pub fn hexadecimal(text: &[u8]) -> Option<(u64, &[u8])> {
    digits(text, 16)
}

fn digits(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let count = text.iter().take_while(|byte| (**byte as char).is_digit(radix)).count();
    let (digits, rest) = text.split_at(count);
    (count > 0).then_some(())?;
    let value = digits.iter().try_fold(0u64, |sum, digit| {
        let digit = (*digit as char).to_digit(radix)?;
        sum.checked_mul(radix.into())?.checked_add(digit.into())
    })?;
    Some((value, rest))
}

/// Parses all of `text` as a decimal number; `None` if anything follows it.
pub fn decimal(text: &[u8]) -> Option<usize> {
    number(text).filter(|(_, rest)| rest.is_empty())?.0.try_into().ok()
}

/// The first decimal number in `text`.
pub fn first_number(text: &[u8]) -> Option<usize> {
    let from = text.iter().position(u8::is_ascii_digit)?;
    number(&text[from..])?.0.try_into().ok()
}

/// Whether `text` contains one of the words.
pub fn has_any(text: &[u8], words: &[&[u8]]) -> bool {
    words.iter().any(|word| text.windows(word.len()).any(|part| part == *word))
}

/// The text after the first `key`.
pub fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(key.len()).position(|window| window == key)?;
    Some(&text[at + key.len()..])
}

/// Parses a page size as users write it: `2M`, `2048k`, `0x200000`, `1GB`. It must be a power of two.
pub fn page_size(text: &[u8]) -> Option<usize> {
    let text = text.trim_ascii();
    let (value, unit) = match text {
        [b'0', b'x' | b'X', digits @ ..] => hexadecimal(digits)?,
        _ => number(text)?,
    };
    let shift = match unit {
        [] => 0,
        [first, rest @ ..] => {
            let shift = match first.to_ascii_lowercase() {
                b'k' => 10,
                b'm' => 20,
                b'g' => 30,
                _ => return None,
            };
            if !matches!(rest, [] | [b'B' | b'b'] | [b'i', b'B']) {
                return None;
            }
            shift
        }
    };
    let size = value.checked_mul(1 << shift)?;
    let size = usize::try_from(size).ok()?;
    size.is_power_of_two().then_some(size)
}
