//! Seeds as people write them: `1-10,20`.

/// Why seeds could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid seeds `{0}`: expected numbers and ranges, e.g. 1-10,20")]
pub struct SeedsError(String);

/// Most seeds of one range: a slip of the keyboard must not ask for all of memory.
const MAX_RANGE: u64 = 1 << 20;

/// Reads numbers and ranges, in order, each seed once.
///
/// # Errors
/// [`SeedsError`]: it is no such list, or has a range of more than 2^20 seeds.
pub fn seeds(text: &str) -> Result<Vec<u64>, SeedsError> {
    let bad = || SeedsError(text.to_string());
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    let mut seeds = Vec::new();
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if last < first || last - first >= MAX_RANGE {
            return Err(bad());
        }
        seeds.extend(first..=last);
    }
    seeds.sort_unstable();
    seeds.dedup();
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_ranges() {
        assert_eq!(seeds("1-3, 7,2").unwrap(), [1, 2, 3, 7]);
        assert_eq!(seeds("18446744073709551615").unwrap(), [u64::MAX]);
        for bad in ["", "1-", "3-1", "x", "1,,2", "0-18446744073709551615", "-1"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
