//! Population maps: a bit per base page of a superpage.

/// Which of up to 512 pages are populated; bit `slot & 63` of word `slot >> 6`.
pub type Population = [u64; 8];

/// Whether `slot` is populated.
#[inline]
pub(super) const fn is_set(map: &Population, slot: u16) -> bool {
    map[(slot >> 6) as usize] >> (slot & 63) & 1 != 0
}

/// The parts of a run, a mask for each word it touches.
fn masks(start: u16, pages: u16) -> impl Iterator<Item = (usize, u64)> {
    let end = u32::from(start) + u32::from(pages);
    let words = if pages == 0 { 0..0 } else { usize::from(start >> 6)..end.div_ceil(64) as usize };
    words.map(move |word| {
        let first = u32::from(start).saturating_sub(word as u32 * 64);
        let past = (end - word as u32 * 64).min(64);
        (word, (!0 << first) & (!0 >> (64 - past)))
    })
}

/// Sets the bits of a run.
pub(crate) fn set_run(map: &mut Population, start: u16, pages: u16) {
    masks(start, pages).for_each(|(word, mask)| map[word] |= mask);
}

/// Clears the bits of a run.
pub(super) fn clear_run(map: &mut Population, start: u16, pages: u16) {
    masks(start, pages).for_each(|(word, mask)| map[word] &= !mask);
}

/// How many bits of a run are set.
pub(super) fn count_in(map: &Population, start: u16, pages: u16) -> u16 {
    masks(start, pages).map(|(word, mask)| (map[word] & mask).count_ones() as u16).sum()
}

/// The first slot from `from` on whose bit is `set`, or `capacity`.
pub(super) fn next(map: &Population, from: u16, capacity: u16, set: bool) -> u16 {
    let mut slot = from;
    while slot < capacity {
        let word = map[usize::from(slot >> 6)];
        let word = (if set { word } else { !word }) >> (slot & 63);
        if word != 0 {
            return (slot + word.trailing_zeros() as u16).min(capacity);
        }
        slot = (slot | 63) + 1;
    }
    capacity
}

/// The runs of clear pages among the first `capacity`, ascending: where each starts, how long it is.
pub fn clear_runs(map: &Population, capacity: u16) -> impl Iterator<Item = (u16, u16)> + '_ {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = next(map, from, capacity, false);
        let end = next(map, start, capacity, true);
        from = end;
        (start < capacity).then_some((start, end - start))
    })
}

/// Whether an aligned extent of 2^`order` pages, out of 2^`of`, is clear. `order` < `of`.
pub(super) fn has_clear(map: &Population, order: u8, of: u8) -> bool {
    if order >= 6 {
        let words = 1 << (of - 6);
        return map[..words].chunks(1 << (order - 6)).any(|chunk| chunk.iter().all(|&w| w == 0));
    }
    let (words, valid) = if of >= 6 { (1 << (of - 6), !0) } else { (1, (1 << (1 << of)) - 1) };
    // Bits at multiples of 2^order: all ones divided by an extent's ones.
    let starts = !0 / (!0 >> (64 - (1 << order)));
    map[..words].iter().any(|word| {
        let mut clear: u64 = !word & valid;
        (0..order).for_each(|step| clear &= clear >> (1 << step));
        clear & starts != 0
    })
}
