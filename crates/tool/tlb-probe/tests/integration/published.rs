//! Published costs of misses (Gorman, "Huge pages" part 4 and 5, LWN 2010; docs/sources/policies.md 2.1) come with
//! cycles and nanoseconds. The tests repeat the conversion by the clock. The PPC970's 563 cycles are published without
//! nanoseconds, so there is nothing to convert; `walk-cost` tests what follows from them (17.84 % of STREAM's time).

use superpage_tlb_probe::{cycles, nanoseconds};

#[test]
fn core_duo() {
    // T2600: 19 cycles are 8.80 ns, so its clock is 2.16 GHz (inferred).
    assert_eq!(format!("{:.2}", nanoseconds(19.0, 2160.0)), "8.80");
    assert_eq!(cycles(8.80, 2160.0).round(), 19.0);
}

#[test]
fn athlon_64_two_levels() {
    // 3000+ (assumed: 2.0 GHz, with socket 939): 19 cycles are 9.57 ns and 37 are 18.17 ns. Both are rounded; clocks
    // from 2009 to 2037 MHz give both values. The nominal clock gives 36 cycles for the second.
    for mhz in 2010..=2036 {
        let mhz = f64::from(mhz);
        assert_eq!((cycles(9.57, mhz).round(), cycles(18.17, mhz).round()), (19.0, 37.0), "{mhz}");
    }
    assert_eq!(cycles(18.17, 2000.0).round(), 36.0);
}
