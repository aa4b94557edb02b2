//! Mappings inferred from touched regions. Pure.

use super::collect::Touched;
use crate::{Backing, Event, Page, Pages, Region, SLOTS};

/// What an address space may have looked like.
#[derive(Debug, PartialEq)]
pub struct Layout {
    /// The mappings, in the order of their first touch.
    pub mappings: Vec<Event>,
    /// By number of first touch: the region's number in the trace. A mapping's regions are
    /// neighbours, also those that nobody touches.
    pub numbers: Vec<u32>,
}

/// One mapping per group of regions between which at most `gap` pages are untouched. It begins and ends
/// with a touched page: what lay around it is unknown. `None`: more regions than can be numbered.
pub fn infer(touched: &[Touched], gap: u64) -> Option<Layout> {
    let mut order: Vec<usize> = (0..touched.len()).collect();
    order.sort_unstable_by_key(|&number| touched[number].address);
    let page = |address: u64, slot: u16| address * u64::from(SLOTS) + u64::from(slot);
    let apart = |&left: &usize, &right: &usize| {
        let end = page(touched[left].address, touched[left].last);
        page(touched[right].address, touched[right].first) - end - 1 <= gap
    };
    let mut groups: Vec<&[usize]> = order.chunk_by(apart).collect();
    groups.sort_by_key(|group| group.iter().min().copied());

    let mut numbers = vec![0; touched.len()];
    let mut mappings = Vec::with_capacity(groups.len());
    let mut free = 0u64;
    for group in groups {
        let (first, last) = (touched[*group.first()?], touched[*group.last()?]);
        let regions = last.address - first.address + 1;
        if free.checked_add(regions)? > 1 << 22 {
            return None;
        }
        for &number in group {
            numbers[number] = (free + touched[number].address - first.address) as u32;
        }
        let begin = page(first.address, first.first);
        let pages = Pages {
            first: Page::new(Region(free as u32), first.first.into()),
            count: (page(last.address, last.last) - begin + 1) as u32,
        };
        mappings.push(Event::Map { pages, address: begin, backing: Backing::Anonymous });
        free += regions;
    }
    Some(Layout { mappings, numbers })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touched(address: u64, first: u16, last: u16) -> Touched {
        Touched { address, first, last }
    }

    fn map(region: u32, slot: u32, count: u32, address: u64) -> Event {
        let pages = Pages { first: Page::new(Region(region), slot), count };
        Event::Map { pages, address, backing: Backing::Anonymous }
    }

    #[test]
    fn groups_split_at_gaps_and_number_in_order_of_first_touch() {
        // The stack first, then a heap with a hole of one region, then something 1024 pages behind.
        let all =
            [touched(90, 500, 511), touched(12, 0, 9), touched(10, 3, 511), touched(14, 10, 10)];
        let layout = infer(&all, 1023).unwrap();
        assert_eq!(layout.numbers, [0, 3, 1, 4]);
        let expected = [
            map(0, 500, 12, 90 * 512 + 500),
            map(1, 3, 509 + 512 + 10, 10 * 512 + 3),
            map(4, 10, 1, 14 * 512 + 10),
        ];
        assert_eq!(layout.mappings, expected);
        assert_eq!(infer(&all, 1024).unwrap().mappings.len(), 2);
        assert_eq!(infer(&all, 0).unwrap().mappings.len(), 4);
        assert_eq!(infer(&all, u64::MAX >> 12).unwrap().mappings.len(), 1);
        assert_eq!(infer(&[touched(0, 0, 0), touched(1 << 43, 0, 0)], u64::MAX >> 12), None);
    }
}
