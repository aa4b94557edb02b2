//! Regions with a pool, with too small a one, and with none. Kernel and privileged tiers.

use std::path::Path;

use superpage_api::{Backing, Binding, Fallback, NodeId, PageSize, Reason, Region, Request};
use testkit::PoolsAsFound;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const SUPERPAGE: usize = 2 << 20;

fn two_mib() -> PageSize {
    PageSize::new(SUPERPAGE as u64).unwrap()
}

fn free() -> u64 {
    let number = |file: &str| -> u64 {
        std::fs::read_to_string(format!("{POOL}/{file}")).unwrap().trim().parse().unwrap()
    };
    number("free_hugepages") - number("resv_hugepages")
}

fn with_pool(pages: u64, work: impl FnOnce()) {
    testkit::require!(testkit::is_root(), "pools are root's to change");
    testkit::require!(Path::new(POOL).exists(), "no 2 MiB pages on this machine");
    testkit::lock_machine!();
    testkit::require!(testkit::pool_is_unused(), "somebody has pages of the pool");
    let found = PoolsAsFound::note();
    let total = std::fs::read_to_string(format!("{POOL}/nr_hugepages")).unwrap();
    let in_use = total.trim().parse::<u64>().unwrap() - free();
    std::fs::write(format!("{POOL}/nr_overcommit_hugepages"), "0").unwrap();
    std::fs::write(format!("{POOL}/nr_hugepages"), (pages + in_use).to_string()).unwrap();
    if free() == pages {
        work();
        // Superpages in use elsewhere may have been freed meanwhile.
        assert!(free() >= pages, "superpages leaked: {} of {pages} are free", free());
    } else {
        testkit::skipped!("this machine has no {pages} free superpages");
    }
    drop(found);
}

mod exclusive {
    use super::*;

    #[test]
    fn a_region_has_its_superpages_and_gives_them_back() {
        with_pool(4, || {
            let request = Request::new(3 * SUPERPAGE + 5).page_size(two_mib());
            let mut region = request.on_node(NodeId(0), Binding::Strict).allocate().unwrap();
            assert_eq!(region.backing(), Backing::Superpages(two_mib()));
            assert_eq!(region.len(), 3 * SUPERPAGE + 5);
            match region.coverage() {
                Ok(bytes) => assert_eq!(bytes.bytes(), region.len() as u64),
                Err(error) => testkit::skipped!("{error}"),
            }
            assert_eq!(region.node_of(region.len() - 1).unwrap(), Some(NodeId(0)));
            assert!(region.bytes().iter().all(|byte| *byte == 0));
            region.bytes_mut().fill(7);

            let refused = Request::new(SUPERPAGE).page_size(two_mib()).allocate().unwrap_err();
            assert_eq!(
                refused.reason,
                Reason::PoolTooSmall { page: two_mib(), needed: 1, free: 0 }
            );
            let expected = "no superpages for 2097152 bytes: the pool of 2M pages has 0 free, \
                            and 1 are needed";
            assert_eq!(refused.to_string().replace("2 MiB", "2M"), expected);
        });
    }

    #[test]
    fn without_superpages_the_fallback_says_why() {
        with_pool(1, || {
            for (fallback, len) in [(Fallback::Thp, 4 * SUPERPAGE), (Fallback::Base, 2 * SUPERPAGE)]
            {
                let request = Request::new(len).page_size(two_mib());
                let mut region = request.or(fallback).allocate().unwrap();
                region.bytes_mut().fill(1);
                let needed = (len / SUPERPAGE) as u64;
                let short = Reason::PoolTooSmall { page: two_mib(), needed, free: 1 };
                match region.backing() {
                    Backing::Advised(reason) => {
                        assert_eq!((reason, fallback), (short, Fallback::Thp))
                    }
                    Backing::Base(reason) => assert_eq!(reason, short),
                    Backing::Superpages(_) => panic!("from where?"),
                }
                if let (Backing::Advised(_), Ok(covered)) = (region.backing(), region.coverage()) {
                    assert!(covered.bytes() <= len as u64);
                }
            }
        });
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let absurd = PageSize::new(1 << 45).unwrap();
    let refused = Request::new(1).page_size(absurd).allocate().unwrap_err();
    assert!(matches!(refused.reason, Reason::NoPool(_) | Reason::NotSupported), "{refused}");
    let refused = Region::new(usize::MAX / 4, Fallback::Base).unwrap_err();
    assert_eq!(refused.reason, Reason::NoMemory);
    let nowhere = Request::new(1).page_size(absurd).or(Fallback::Base);
    let refused = nowhere.on_node(NodeId(900), Binding::Preferred).allocate().unwrap_err();
    assert_eq!(refused.reason, Reason::Node);
    let empty = Region::new(0, Fallback::Base).unwrap();
    assert!(empty.is_empty() && empty.bytes().is_empty());
}
