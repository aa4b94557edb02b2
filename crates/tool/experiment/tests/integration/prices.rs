//! Prices of this machine can be measured on the requested pages, and used. Their values are not tested.

use std::path::Path;

use superpage_experiment::prices::{PricesError, Samples};
use units::ByteSize;

#[test]
#[ignore = "nightly: prices are timed"]
fn prices_are_measured_and_can_be_used() {
    let size = Path::new("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size");
    let size = std::fs::read_to_string(size).ok().and_then(|text| text.trim().parse().ok());
    let size: Option<u64> = size;
    testkit::require!(size.is_some(), "no transparent superpages");
    testkit::lock_machine!(shared);
    let superpage = size.and_then(|bytes| units::PageSize::new(bytes).ok());
    let mut steps = Vec::new();
    let mut samples = Samples::new(ByteSize(1), superpage).unwrap();
    let visited = samples.visit(|done, of| {
        steps.push((done, of));
        true
    });
    let prices = match visited {
        Ok(()) => samples.prices(),
        Err(PricesError::NotGot { .. }) => {
            testkit::skipped!("no superpages to be had just now");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(prices.check(), Ok(()));
    assert!(prices.faults.base > 0.0 && prices.faults.superpage > 0.0, "{prices:?}");
    assert!(steps.iter().all(|(done, of)| done < of) && steps.is_sorted(), "{steps:?}");
    let stopped = samples.visit(|done, _| done < 2);
    let is_short = matches!(stopped, Err(PricesError::NotGot { .. }));
    testkit::require!(!is_short, "no superpages to be had a second time");
    assert!(matches!(stopped, Err(PricesError::Interrupted)), "{stopped:?}");
}

#[test]
fn without_superpages_there_are_none() {
    let none = Samples::new(ByteSize(1), None).err();
    assert!(matches!(none, Some(PricesError::NoSuperpages)), "{none:?}");
}
