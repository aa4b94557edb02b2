//! Giving pages back: unmapping, discarding, truncating.

use super::mapping::Backing;
use super::{Frames, HugetlbPool, MappingId, ObjectId};

impl HugetlbPool {
    /// Unmaps `from..to` of a mapping, and takes back what was promised to it and not used
    /// (`hugetlb_vm_op_close`). A mapping with nothing left is gone; an object's pages stay until it is.
    pub fn unmap(&mut self, mapping: MappingId, from: u32, to: u32, frames: &mut impl Frames) {
        let found = self.mappings.get_mut(&mapping).expect("a live mapping");
        let parts: Vec<(u32, u32)> = found.live.within(from, to).collect();
        found.live.del(from, to);
        let gone = found.live.is_empty();
        match &mut found.kind {
            Backing::Private(private) => {
                let mut unused = 0;
                for (from, to) in parts {
                    for slot in &mut private.pages[from as usize..to as usize] {
                        let number = std::mem::take(slot);
                        if number != 0
                            && let Some(page) = self.pages.drop_user(number)
                        {
                            self.store.give(page, false, frames);
                        }
                    }
                    let used = private.used.as_ref().map_or(to - from, |used| used.count(from, to));
                    unused += to - from - used;
                }
                self.store.unreserve(unused.into(), frames);
            }
            &mut Backing::Shared { object, .. } => {
                if gone {
                    self.objects.get_mut(&object).expect("it is mapped").mappings -= 1;
                    self.evict(object, frames);
                }
            }
        }
        if gone {
            self.mappings.remove(&mapping);
        }
    }

    /// Unmaps all of a mapping: its process ends.
    pub fn unmap_all(&mut self, mapping: MappingId, frames: &mut impl Frames) {
        let length = self.mappings[&mapping].length;
        self.unmap(mapping, 0, length, frames);
    }

    /// Empties `from..to` of a mapping that stays (MADV_DONTNEED). The owner's promise for a page is
    /// renewed with the page, unless there is surplus (`__unmap_hugepage_range`, mm/hugetlb.c, Linux 6.7 and later).
    ///
    /// The kernel also marks it unused in the map for a page that a child still has, and counts it as
    /// promised only when the child lets go. If the owner unmaps in between, it takes back what was not
    /// counted: HugePages_Rsvd read 2^64 - 1 on Linux 6.18 (measured: three pages mapped, one touched,
    /// fork, munmap by the parent). Here the promise is renewed only with the page. Shared objects keep
    /// their pages.
    pub fn discard(&mut self, mapping: MappingId, from: u32, to: u32, frames: &mut impl Frames) {
        let found = self.mappings.get_mut(&mapping).expect("a live mapping");
        let Backing::Private(private) = &mut found.kind else { return };
        for index in found.live.within(from, to).flat_map(|(from, to)| from..to) {
            let number = std::mem::take(&mut private.pages[index as usize]);
            if number == 0 {
                continue;
            }
            let Some(page) = self.pages.drop_user(number) else { continue };
            let restored = private.used.as_mut().filter(|_| self.store.surplus() == 0);
            let restore = restored.is_some_and(|used| used.del(index, index + 1) > 0);
            self.store.give(page, restore, frames);
        }
    }

    /// Makes an object `length` pages long: what lies past it is freed, used or promised
    /// (`remove_inode_hugepages`, `hugetlb_unreserve_pages`).
    pub fn truncate(&mut self, object: ObjectId, length: u32, frames: &mut impl Frames) {
        self.punch(object, length, u32::MAX, frames);
        let object = self.objects.get_mut(&object).expect("an object that was made");
        object.length = length;
        let promised = object.reserved.del(length, u32::MAX);
        self.store.unreserve(promised.into(), frames);
    }

    /// Frees the pages in `from..to` of an object (FALLOC_FL_PUNCH_HOLE). A later fault there has no
    /// promise; where there was no page, a promise stays.
    pub fn punch(&mut self, object: ObjectId, from: u32, to: u32, frames: &mut impl Frames) {
        let object = self.objects.get_mut(&object).expect("an object that was made");
        let gone: Vec<u32> = object.pages.range(from..to).map(|(&index, _)| index).collect();
        for index in gone {
            let number = object.pages.remove(&index).expect("listed");
            let page = self.pages.drop_user(number).expect("an object is a page's only user");
            object.reserved.del(index, index + 1);
            self.store.give(page, false, frames);
        }
    }

    /// Takes away an object's name and descriptors: it goes when it is mapped no more.
    pub fn close(&mut self, object: ObjectId, frames: &mut impl Frames) {
        self.objects.get_mut(&object).expect("an object that was made").open = false;
        self.evict(object, frames);
    }

    fn evict(&mut self, object: ObjectId, frames: &mut impl Frames) {
        let found = &self.objects[&object];
        if !found.open && found.mappings == 0 {
            self.truncate(object, 0, frames);
            self.objects.remove(&object);
        }
    }
}
