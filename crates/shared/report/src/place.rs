//! Layout of pictures: lines, rows and labels that do not overlap. Text widths are approximate, because fonts cannot be
//! queried.

use crate::format;

/// Approximate width of text in a sans-serif font of this size. The assumed 0.58 of the size per letter is above the
/// average, so text is usually narrower than estimated.
pub fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.58
}

/// Truncates a text in the middle to fit into `space`.
pub fn clipped(text: &str, space: f64, size: f64) -> String {
    format::name(text, (space / (size * 0.58)) as usize)
}

/// Breaks a text into lines that fit into `space`; truncates words that are longer.
pub fn wrapped(text: &str, space: f64, size: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = clipped(word, space, size);
        match lines.last_mut() {
            Some(line) if width(line, size) + width(&word, size) + size < space => {
                *line += &format!(" {word}");
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Returns positions close to the wanted ones and in the same order, at least `apart` from each other and within
/// `space`.
pub fn spread(wanted: &[f64], apart: f64, space: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|a, b| wanted[*a].total_cmp(&wanted[*b]));
    let mut places = vec![0.0; wanted.len()];
    let mut least = f64::NEG_INFINITY;
    for index in &order {
        places[*index] = wanted[*index].max(least);
        least = places[*index] + apart;
    }
    let mut most = space;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(most);
        most = places[*index] - apart;
    }
    places
}

/// Lays out items in rows from left to right. Returns the left end and row of each item, and the
/// number of rows.
pub fn flow(widths: &[f64], space: f64) -> (Vec<(f64, usize)>, usize) {
    let (mut x, mut row) = (0.0, 0);
    let mut places = Vec::new();
    for width in widths {
        if x > 0.0 && x + width > space {
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
    fn long_titles_are_whole_in_lines_that_fit() {
        let title = "gups:size=8G,operations=1000000 on e3-1245v6 with 32 GiB · fragmentation frag-50 · seed 1";
        for space in [912.0, 352.0, 120.0] {
            let lines = wrapped(title, space, 16.0);
            assert!(lines.iter().all(|line| width(line, 16.0) <= space), "{lines:?}");
            assert!(space < 300.0 || lines.join(" ") == title, "{lines:?}");
        }
        assert!(wrapped("", 100.0, 12.0).is_empty());
    }

    #[test]
    fn places_that_coincide_are_spread_in_order() {
        assert_eq!(spread(&[50.0, 10.0, 50.0], 14.0, 120.0), [50.0, 10.0, 64.0]);
        assert_eq!(spread(&[119.0, 120.0, 120.0], 14.0, 120.0), [92.0, 106.0, 120.0]);
        assert!(spread(&[], 14.0, 120.0).is_empty());
    }

    #[test]
    fn items_flow_into_rows_and_never_past_the_end() {
        let (places, rows) = flow(&[40.0, 40.0, 40.0, 200.0, 10.0], 100.0);
        assert_eq!(places, [(0.0, 0), (40.0, 0), (0.0, 1), (0.0, 2), (0.0, 3)]);
        assert_eq!(rows, 4);
        assert_eq!(flow(&[], 100.0), (vec![], 0));
        assert!(width(&clipped(&"x".repeat(500), 200.0, 12.0), 12.0) <= 200.0);
    }
}
