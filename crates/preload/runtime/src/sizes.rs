//! Sizes of superpages, from the settings and the kernel.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::files::read_file;
use crate::raw;
use crate::settings::{self, Pages};
use crate::text::{self, first_number};

/// The size of the superpages this process asks for.
pub fn superpage() -> usize {
    static SIZE: AtomicUsize = AtomicUsize::new(0);
    let known = SIZE.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let size = match settings::get().pages {
        Pages::Hugetlb(size) | Pages::Thp(size) if size != 0 => size,
        Pages::Hugetlb(_) => usual_hugetlb(),
        Pages::Thp(_) | Pages::None => pmd_size().unwrap_or(USUAL),
    };
    SIZE.store(size, Ordering::Relaxed);
    size
}

/// Size of a superpage if the kernel does not report one.
const USUAL: usize = 2 << 20;

/// The default page size of the hugetlb pool.
pub fn usual_hugetlb() -> usize {
    default_hugetlb().unwrap_or(USUAL)
}

/// `Hugepagesize:` of /proc/meminfo.
// Not inlined: its buffer would be on the stack of every call of `superpage`, also in a handler on a small alternate stack.
#[cold]
#[inline(never)]
fn default_hugetlb() -> Option<usize> {
    let mut buffer = [0; 4096];
    let text = read_file(c"/proc/meminfo", &mut buffer)?;
    let size = first_number(text::after(text, b"Hugepagesize:")?)?.checked_mul(1024)?;
    size.is_power_of_two().then_some(size)
}

/// The size of a THP: what a PMD maps.
pub fn pmd_size() -> Option<usize> {
    let mut buffer = [0; 64];
    let path = c"/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
    let size = first_number(read_file(path, &mut buffer)?)?;
    (size.is_power_of_two() && size >= raw::base_page()).then_some(size)
}
