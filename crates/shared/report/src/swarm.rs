//! Layout of dots in a row without overlap.

/// Returns vertical offsets, as small as possible, that keep dots from overlapping. They are computed for the narrowest
/// page, so they fit every wider page.
pub fn swarm(places: &[f64]) -> Vec<f64> {
    const WIDTH: f64 = 320.0;
    const SPACING: f64 = 9.5;
    const STEP: f64 = 3.25;
    const MAX_STEPS: usize = 16;
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by(|a, b| places[*a].total_cmp(&places[*b]).then(a.cmp(b)));
    let mut heights = vec![0.0; places.len()];
    for (position, &index) in order.iter().enumerate() {
        let free = |height: f64| {
            order[..position].iter().rev().all(|&other| {
                let across = (places[index] - places[other]) * WIDTH;
                across * across + (height - heights[other]).powi(2) >= SPACING * SPACING
            })
        };
        let candidates = (0..=2 * MAX_STEPS).map(|step| {
            let away = step.div_ceil(2) as f64 * STEP;
            if step % 2 == 1 { -away } else { away }
        });
        // If the dots do not fit in the row, they overlap; dots are translucent.
        let crowded = ((position % (2 * MAX_STEPS + 1)) as f64 - MAX_STEPS as f64) * STEP;
        heights[index] = candidates.into_iter().find(|height| free(*height)).unwrap_or(crowded);
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swarm_keeps_dots_apart_until_the_row_is_full() {
        let heights = swarm(&[0.5; 9]);
        let mut sorted = heights.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] >= 9.5), "{heights:?}");
        assert_eq!(swarm(&[0.1, 0.5, 0.9]), [0.0; 3]);
        assert!(swarm(&[0.5; 500]).iter().all(|height| height.abs() <= 52.0));
    }
}
