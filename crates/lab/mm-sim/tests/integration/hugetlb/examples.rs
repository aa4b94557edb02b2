//! Examples of the kernel's document, step by step.

use superpage_mm_sim::hugetlb::{Counts, Fault, HugetlbPool, Kind, Place, Request, Why};

use super::Blocks;

fn counts(total: u64, free: u64, reserved: u64, surplus: u64) -> Counts {
    Counts { total, free, reserved, surplus }
}

fn private(pages: u32) -> Request {
    Request { kind: Kind::Private, pages, reserve: true, place: Place::ANY }
}

fn pool(pages: u64, overcommit: u64) -> (HugetlbPool, Blocks) {
    let (mut pool, mut memory) = (HugetlbPool::new(1, overcommit), Blocks::new(1, 16));
    assert_eq!(pool.resize(pages, None, &mut memory), pages);
    (pool, memory)
}

#[test]
fn mapping_reserves_and_touching_consumes() {
    let (mut pool, mut memory) = pool(4, 0);
    let mapping = pool.map(private(3), &mut memory).unwrap();
    assert_eq!(pool.counts(), counts(4, 4, 3, 0));
    assert_eq!(pool.map(private(2), &mut memory).unwrap_err().short_by, 1);
    let fault = pool.fault(mapping, 1, false, Place::ANY, &mut memory);
    assert!(matches!(fault, Fault::Fresh { reserved: true, .. }));
    assert_eq!(pool.counts(), counts(4, 3, 2, 0));
    pool.unmap(mapping, 0, 2, &mut memory);
    assert_eq!(pool.counts(), counts(4, 4, 1, 0));
    pool.unmap_all(mapping, &mut memory);
    assert_eq!(pool.counts(), counts(4, 4, 0, 0));
}

#[test]
fn surplus_comes_with_the_promise_and_goes_with_the_last_use() {
    let (mut pool, mut memory) = pool(1, 2);
    let mapping = pool.map(private(3), &mut memory).unwrap();
    assert_eq!(pool.counts(), counts(3, 3, 3, 2));
    pool.fault(mapping, 0, true, Place::ANY, &mut memory);
    pool.unmap_all(mapping, &mut memory);
    assert_eq!(pool.counts(), counts(1, 1, 0, 0));
}

#[test]
fn an_owner_that_cannot_copy_robs_its_children() {
    let (mut pool, mut memory) = pool(2, 0);
    let parent = pool.map(private(2), &mut memory).unwrap();
    for index in 0..2 {
        pool.fault(parent, index, true, Place::ANY, &mut memory);
    }
    let child = pool.fork(parent);
    let page = pool.page(parent, 0).unwrap();
    // The child owns no reservation, so its write cannot be served.
    let fault = pool.fault(child, 1, true, Place::ANY, &mut memory);
    assert_eq!(fault, Fault::Killed(Why::PoolEmpty));
    let fault = pool.fault(parent, 0, true, Place::ANY, &mut memory);
    assert_eq!(fault, Fault::Robbed { frame: page, children: vec![child] });
    assert_eq!(pool.fault(child, 0, false, Place::ANY, &mut memory), Fault::Killed(Why::Robbed));
    // The child may read the pages that it still maps.
    assert!(matches!(pool.fault(child, 1, false, Place::ANY, &mut memory), Fault::Present(_)));
    pool.unmap_all(child, &mut memory);
    pool.unmap_all(parent, &mut memory);
    assert_eq!(pool.counts(), counts(2, 2, 0, 0));
}

#[test]
fn a_shared_object_is_reserved_once() {
    let (mut pool, mut memory) = pool(6, 0);
    let object = pool.create_object();
    let shared = |start, pages| Request { kind: Kind::Shared { object, start }, ..private(pages) };
    let first = pool.map(shared(0, 4), &mut memory).unwrap();
    let second = pool.map(shared(2, 4), &mut memory).unwrap();
    assert_eq!(pool.counts(), counts(6, 6, 6, 0));
    pool.fault(first, 2, true, Place::ANY, &mut memory);
    let fault = pool.fault(second, 0, true, Place::ANY, &mut memory);
    assert_eq!(fault, Fault::Present(pool.page(first, 2).unwrap()));
    assert_eq!(pool.counts(), counts(6, 5, 5, 0));
    pool.unmap_all(first, &mut memory);
    pool.unmap_all(second, &mut memory);
    assert_eq!(pool.counts(), counts(6, 5, 5, 0), "it has a name");
    pool.truncate(object, 3, &mut memory);
    assert_eq!(pool.counts(), counts(6, 5, 2, 0));
    pool.close(object, &mut memory);
    assert_eq!(pool.counts(), counts(6, 6, 0, 0));
}

#[test]
fn a_bound_fault_can_fail_though_a_page_is_promised() {
    let mut memory = Blocks::new(2, 4);
    let mut pool = HugetlbPool::new(2, 0);
    pool.resize(4, None, &mut memory);
    assert_eq!((pool.node_counts(0).total, pool.node_counts(1).total), (2, 2));
    let bound = Place { near: 1, allowed: 0b10 };
    let mapping = pool.map(private(2), &mut memory).unwrap();
    let other = pool.map(private(2), &mut memory).unwrap();
    pool.fault(mapping, 0, true, bound, &mut memory);
    pool.fault(mapping, 1, true, bound, &mut memory);
    let fault = pool.fault(other, 0, true, bound, &mut memory);
    assert_eq!(fault, Fault::Killed(Why::NodesEmpty));
    let refused = pool.map(Request { place: bound, ..private(1) }, &mut memory).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "1 superpages too few in the pool for a mapping; make the pool or its overcommit limit larger"
    );
}

#[test]
fn shrinking_leaves_what_is_in_use_as_surplus() {
    let (mut pool, mut memory) = pool(5, 0);
    let mapping = pool.map(private(3), &mut memory).unwrap();
    pool.fault(mapping, 0, true, Place::ANY, &mut memory);
    assert_eq!(pool.resize(0, None, &mut memory), 0);
    assert_eq!(pool.counts(), counts(3, 2, 2, 3));
    assert_eq!(pool.resize(2, None, &mut memory), 2);
    assert_eq!(pool.counts(), counts(3, 2, 2, 1));
    pool.unmap_all(mapping, &mut memory);
    assert_eq!(pool.counts(), counts(2, 2, 0, 0));
}
