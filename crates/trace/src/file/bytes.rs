//! Integers in byte strings: little-endian, and variable-length (LEB128). Reading never fails by a
//! panic: every read says `None` at the end.

/// A byte string being read.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }
    /// One byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// A variable-length integer: seven bits a byte, the lowest first; `None` also if it needs more
    /// than 64 bits.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    /// A variable-length integer that fits in 32 bits.
    pub fn varint32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }
    /// A text: its length in bytes (two bytes), then UTF-8.
    pub fn text(&mut self) -> Option<String> {
        let length = self.u16()?;
        String::from_utf8(self.take(length.into())?.to_vec()).ok()
    }
}

/// Adds a variable-length integer.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Adds a text, cut at `most` bytes (at a character).
pub fn put_text(out: &mut Vec<u8>, text: &str, most: usize) {
    let cut = (0..=most.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    let text = &text[..cut.unwrap_or(0)];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bytes, put_varint};

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0u32..64) {
            let mut out = Vec::new();
            put_varint(&mut out, value >> shift);
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.varint(), Some(value >> shift));
            prop_assert!(bytes.0.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let mut reader = Bytes(&bytes);
            while reader.varint().is_some() {}
            let mut reader = Bytes(&bytes);
            while reader.text().is_some() {}
        }
    }
}
