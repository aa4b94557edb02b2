//! Where things lie in the picture, and how much room words take.

use drawing::words;

/// The picture's width.
pub(super) const WIDTH: f64 = 960.0;
/// What is left free at its sides.
pub(super) const MARGIN: f64 = 24.0;

/// About how wide text is, in a sans-serif font of this size: 0.58 of it per letter is more than the
/// mean of such fonts, so that text rather ends early than late.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

/// As much of a text as fits: what is missing is missing in the middle.
pub(super) fn clipped(text: &str, room: f64, size: f64) -> String {
    words::name(text, (room / (size * 0.58)) as usize)
}

/// Places for items in rows from left to right: the left end and row of each, and how many rows.
pub(super) fn flow(widths: &[f64], room: f64) -> (Vec<(f64, usize)>, usize) {
    let (mut x, mut row) = (0.0, 0);
    let mut places = Vec::new();
    for width in widths {
        if x > 0.0 && x + width > room {
            (x, row) = (0.0, row + 1);
        }
        places.push((x, row));
        x += width;
    }
    (places, if widths.is_empty() { 0 } else { row + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_flow_into_rows_and_never_past_the_end() {
        let (places, rows) = flow(&[40.0, 40.0, 40.0, 200.0, 10.0], 100.0);
        assert_eq!(places, [(0.0, 0), (40.0, 0), (0.0, 1), (0.0, 2), (0.0, 3)]);
        assert_eq!(rows, 4);
        assert_eq!(flow(&[], 100.0), (vec![], 0));
        assert!(width(&clipped(&"x".repeat(500), 200.0, 12.0), 12.0) <= 200.0);
    }
}
