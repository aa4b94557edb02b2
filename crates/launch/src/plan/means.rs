//! The means by which a program gets its pages: variables of its environment, a `prctl`, the library to preload.

use abi::environment;
use units::PageSize;

use super::{Facts, Plan, Pool, Promise, ThpRequest};
use crate::{Children, Fallback, Kind, LaunchError, Memory, Pages, Program, Recipe, tunables};

/// What begins a note that says that a program will not get what was asked for.
pub(super) const UNREACHED: &str = "memory the program maps itself is not reached";
pub(super) const NOTHING_AHEAD: &str = "nothing is prepared ahead";
pub(super) const MALLOC_AHEAD: &str = "malloc's memory is not prepared ahead";
pub(super) const OWN_ALLOCATOR: &str = "only glibc's malloc gets superpages";
pub(super) const FRAGMENTED: &str = "free memory is fragmented";
const ON_BASE_PAGES: &str = "what does not fit on superpages stays on base pages";
pub(super) const LARGER_THP: &str = "larger transparent superpages are enabled";

/// The variables that several parties write.
pub(super) const LD_PRELOAD: &str = "LD_PRELOAD";
pub(super) const GLIBC_TUNABLES: &str = "GLIBC_TUNABLES";

fn list(sizes: &[PageSize]) -> String {
    sizes.iter().map(PageSize::to_string).collect::<Vec<_>>().join(", ")
}

impl Plan {
    /// `memory=` says what is backed, not by what: alone it asks for nothing.
    pub(super) fn note_no_pages(&mut self, pages: Pages) {
        let why = match pages {
            Pages::Base => "with pages=base",
            _ => "without pages=",
        };
        self.notes.push(format!(
            "memory= {why} asks for no superpages, and libsuperpage.so is not used; add e.g. pages=thp"
        ));
    }

    pub(super) fn ask_for_base_pages(&mut self, recipe: &Recipe, facts: &Facts) {
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::BasePages;
        // Nothing to undo unless somebody's environment already asks glibc for hugetlb pages,
        // which the prctl does not stop.
        let inherited = facts.glibc_tunables.as_deref().unwrap_or("");
        if recipe.variable(GLIBC_TUNABLES).is_none()
            && tunables::value(inherited, "glibc.malloc.hugetlb").is_some()
        {
            let settings = [("glibc.malloc.hugetlb", "0")];
            self.set_malloc(recipe, facts, &settings, "malloc uses base pages");
        }
    }

    /// Base pages, until superpages are made of them from outside: the kernel must make none by itself.
    pub(super) fn await_superpages(
        &mut self,
        recipe: &Recipe,
        facts: &Facts,
    ) -> Result<(), LaunchError> {
        if recipe.design.is_none() {
            return Err(LaunchError::NoDesign);
        }
        self.ask_for_base_pages(recipe, facts);
        self.promise = Promise::Nothing;
        let is_on = facts.thp_mode.as_deref().ok_or(LaunchError::NoThp)? == "always";
        self.thp = match facts.thp_only_advised {
            true => ThpRequest::OnlyAdvised,
            false if is_on => return Err(LaunchError::ThpAlways),
            false => ThpRequest::System,
        };
        Ok(())
    }

    /// The same, where the library puts memory into files of superpages.
    pub(super) fn lie_in_files(
        &mut self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<String, LaunchError> {
        if !facts.thp_only_advised {
            return Err(LaunchError::InPlaceAlways);
        }
        // What does not lie there stays on base pages, until superpages are made of them.
        let pages = "hugetlb:2M".to_string();
        let library = self.ask_the_library(pages, recipe, wrapped, facts)?;
        self.set(
            environment::FALLBACK,
            Fallback::Base.name(),
            "what cannot lie in a file stays ordinary",
        );
        (self.thp, self.promise, self.in_place) = (ThpRequest::OnlyAdvised, Promise::Nothing, true);
        self.notes.push(
            "its large private mappings are files of superpages, mapped as shared: a fork makes them ordinary memory first"
                .to_string(),
        );
        Ok(library)
    }

    pub(super) fn note_fragmented(&mut self, facts: &Facts) {
        let rest = match (facts.thp_sizes.as_slice(), &self.supply) {
            ([], None) => format!(
                "{ON_BASE_PAGES} (as root, superpage makes superpages free and turns smaller sizes of THP on)"
            ),
            (on, None) => format!("what does not fit on superpages gets THP of {}", list(on)),
            (_, Some(off)) if off.is_empty() => {
                "superpages are made free when it asks for them".to_string()
            }
            (_, Some(off)) => format!(
                "superpages are made free when it asks for them; where that is not enough, THP of {} are turned \
                 on where advised, until it ends",
                list(off)
            ),
        };
        self.notes.push(format!("{FRAGMENTED}: {rest}"));
    }

    /// Whether superpages of the largest size were so scarce that it may get smaller ones instead, which nobody can read back.
    fn may_get_smaller(&self) -> bool {
        let mut notes = self.notes.iter();
        notes.any(|note| note.starts_with(FRAGMENTED) && !note.contains(ON_BASE_PAGES))
    }

    /// What libsuperpage.so asks for superpages of, if they can be read back: the kinds of memory that were named.
    pub fn asked_of_library(&self) -> Option<&str> {
        let asks = matches!(self.pages, Pages::Thp | Pages::Hugetlb(_)) && !self.may_get_smaller();
        let mut variables = self.environment.iter();
        let memory = variables.find(|change| change.variable == environment::MEMORY)?;
        asks.then_some(memory.value.as_str())
    }

    /// The best this machine has: the pool's pages are reserved, so they cannot fail later, and a
    /// pool with free pages was made to be used. One that may only grow was not: see docs/decisions/launch.md#4.
    pub(super) fn choose(&mut self, facts: &Facts) -> Result<Pages, LaunchError> {
        let pool = facts.pools.first();
        let (pages, why) = match (pool, facts.thp_sizes.first()) {
            (Some(Pool { size, .. }), _) if pool.is_some_and(|pool| pool.unused() > 0) => {
                let pages = pool.map_or(0, Pool::unused);
                (
                    Pages::Hugetlb(None),
                    format!("hugetlb: its pool has {pages} free pages of {size}"),
                )
            }
            _ if facts.has_thp() => (Pages::Thp, "thp: no hugetlb pool has free pages".to_string()),
            (_, Some(size)) => {
                (Pages::ThpOf(*size), format!("thp:{size}: the largest enabled transparent size"))
            }
            (Some(pool), None) if pool.available() > 0 => {
                let (size, pages) = (pool.size, pool.available());
                (
                    Pages::Hugetlb(None),
                    format!("hugetlb: its pool of {size} may grow by {pages} pages"),
                )
            }
            _ => return Err(LaunchError::NoSuperpages),
        };
        self.notes.push(format!("auto chose {why}"));
        Ok(pages)
    }

    pub(super) fn check_thp(&self, facts: &Facts) -> Result<(), LaunchError> {
        match facts.thp_mode.as_deref() {
            None => Err(LaunchError::NoThp),
            Some("never") => {
                let path = "/sys/kernel/mm/transparent_hugepage/enabled";
                Err(LaunchError::ThpOff(path.to_string()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Which sizes come is the machine's to say: of those that are on the kernel prefers the largest.
    pub(super) fn check_thp_of(
        &mut self,
        size: PageSize,
        fallback: Fallback,
        facts: &Facts,
    ) -> Result<(), LaunchError> {
        if !facts.thp_sizes.contains(&size) {
            return Err(LaunchError::ThpSizeOff(size));
        }
        let is_largest_on = facts.thp_mode.as_deref().is_some_and(|mode| mode != "never");
        let largest = is_largest_on.then(|| "the largest size".to_string());
        let larger = facts.thp_sizes.iter().filter(|other| **other > size).map(PageSize::to_string);
        let larger: Vec<String> = largest.into_iter().chain(larger).collect();
        if larger.is_empty() {
            return Ok(());
        }
        let larger = larger.join(", ");
        if fallback == Fallback::Error {
            return Err(LaunchError::LargerThp(size, larger));
        }
        self.notes.push(format!(
            "{LARGER_THP} too ({larger}): libsuperpage.so keeps the largest out of new \
             memory, but khugepaged may make some later, and sizes between come first; to use \
             {size} alone, disable them in \
             /sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled"
        ));
        Ok(())
    }

    /// The library's means, for the memory that was asked for.
    pub(super) fn ask_the_library(
        &mut self,
        pages: String,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<String, LaunchError> {
        let path = facts.runtime.as_ref().ok_or(LaunchError::NoLibrary)?.display().to_string();
        if path.contains([':', ' ']) {
            return Err(LaunchError::LibraryPath(path));
        }
        self.thp = match (self.pages, recipe.fallback) {
            (Pages::Hugetlb(_), Fallback::Base | Fallback::Error) => ThpRequest::Disabled,
            _ => ThpRequest::System,
        };
        // Most memory is on superpages only if both of these are.
        if recipe.memory.heap && recipe.memory.mmap {
            self.promise = Promise::Superpages;
        }
        let memory = if recipe.memory.is_empty() { Memory::USUAL } else { recipe.memory };
        let memory = memory.variable();
        self.set(
            environment::PAGES,
            pages,
            "libsuperpage.so backs the program's memory with these",
        );
        self.set(environment::MEMORY, memory, "which of its memory");
        if matches!(self.pages, Pages::Hugetlb(_)) {
            let word = recipe.fallback.name();
            self.set(
                environment::FALLBACK,
                word,
                "what is used when the pool cannot serve a request",
            );
        }
        let children = recipe.children.name();
        self.set(environment::CHILDREN, children, "how its children are treated");
        self.stack = recipe.memory.stack;
        self.note_the_price(recipe);
        if !self.is_preloadable(wrapped) {
            self.notes.push(
                "libsuperpage.so cannot be preloaded into it: none of what was requested applies"
                    .to_string(),
            );
        }
        Ok(path)
    }

    /// Only what the program maps through the library, on transparent superpages of the largest size, can be
    /// ready before it is asked for.
    pub(super) fn prepare_ahead(&mut self, recipe: &Recipe) {
        if recipe.ahead.is_empty() {
            return;
        }
        if self.pages != Pages::Thp || !recipe.memory.mmap {
            self.notes.push(format!(
                "{NOTHING_AHEAD}: that takes pages=thp and memory=mmap (here: pages={}, memory={})",
                self.pages,
                if recipe.memory.is_empty() {
                    "none named".to_string()
                } else {
                    recipe.memory.variable()
                }
            ));
            return;
        }
        if recipe.memory.heap {
            self.notes.push(format!(
                "{MALLOC_AHEAD}: libc maps and unmaps it itself; the program's own mappings are, and \
                 those of allocators other than libc's"
            ));
        }
        for (variable, value, what) in recipe.ahead.settings() {
            self.set(variable, value, what);
        }
        self.notes.push(
            "what is prepared counts as the program's memory (RSS) until it is asked for; the \
             report says how much it was"
                .to_string(),
        );
    }

    fn note_the_price(&mut self, recipe: &Recipe) {
        // Shared memory and files are shared with children as ever.
        let Memory { shm, files, .. } = recipe.memory;
        let has_private = recipe.memory != Memory { shm, files, ..Memory::default() };
        let hugetlb = matches!(self.pages, Pages::Hugetlb(_)) && has_private;
        if hugetlb && recipe.children == Children::Same {
            self.notes.push(
                "a forked child shares the superpages: when it or its parent writes, the pool must \
                 have a free page, or the kernel kills it (SIGBUS)"
                    .to_string(),
            );
        } else if hugetlb {
            self.notes.push(
                "a fork copies the program's private hugetlb memory to ordinary memory for the child \
                 before it returns"
                    .to_string(),
            );
        }
    }

    /// The library to preload is returned: it goes between the recipe's and those there already.
    pub(super) fn ask_for_thp(
        &mut self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<Option<String>, LaunchError> {
        self.check_thp(facts)?;
        self.thp = ThpRequest::System;
        self.promise = Promise::Superpages;
        if !self.is_preloadable(wrapped) {
            self.advise_malloc(recipe, facts);
            return Ok(None);
        }
        match facts.runtime.as_ref().map(|path| path.display().to_string()) {
            Some(path) if path.contains([':', ' ']) => self.notes.push(format!(
                "{UNREACHED}: LD_PRELOAD cannot hold a path with a space or colon ({path}); move \
                 libsuperpage.so"
            )),
            Some(path) => {
                let why = "libsuperpage.so backs malloc's memory and the program's own mappings";
                self.set(environment::PAGES, "thp", why);
                return Ok(Some(path));
            }
            None => self.notes.push(format!(
                "libsuperpage.so is not beside superpage nor in ../lib (cargo build --release makes it; \
                 put it there): {UNREACHED}, and malloc is not reached reliably on glibc 2.36"
            )),
        }
        self.advise_malloc(recipe, facts);
        Ok(None)
    }

    /// glibc's malloc advises the heap from its first byte on, where the library cannot. It does not look whether a program touches
    /// it. See docs/decisions/heap.md#8.
    pub(super) fn advise_malloc(&mut self, recipe: &Recipe, facts: &Facts) {
        let settings = [("glibc.malloc.hugetlb", "1")];
        self.set_malloc(recipe, facts, &settings, "malloc advises its memory MADV_HUGEPAGE");
    }

    /// Whether libsuperpage.so can be preloaded to any effect. Under another loader it is worse than
    /// useless: musl does not start a program whose preload needs libraries it does not have.
    pub(super) fn is_preloadable(&self, wrapped: Option<&Program>) -> bool {
        let target = wrapped.unwrap_or(&self.program);
        // A static wrapper hands the variable on; a privileged one has it taken away by its loader.
        !matches!(self.program.kind, Kind::OtherLoader(_) | Kind::Privileged)
            && matches!(target.kind, Kind::Glibc | Kind::Script(_) | Kind::Unknown)
    }

    /// The pool's page size. One with nothing to give will do only for a program that may fall back.
    pub(super) fn check_pool(
        &mut self,
        size: Option<PageSize>,
        fallback: Fallback,
        facts: &Facts,
    ) -> Result<PageSize, LaunchError> {
        let pool = match size {
            None => facts.pools.first(),
            Some(size) => facts.pools.iter().find(|pool| pool.size == size),
        };
        let Some(pool) = pool else {
            let sizes: Vec<String> = facts.pools.iter().map(|pool| pool.size.to_string()).collect();
            let have = if sizes.is_empty() { "none".to_string() } else { sizes.join(", ") };
            let wanted = size.unwrap_or(PageSize::new(2 << 20).expect("a power of two"));
            return Err(LaunchError::NoSuchPool(wanted, have));
        };
        if pool.available() == 0 && fallback == Fallback::Error {
            return Err(LaunchError::PoolEmpty {
                size: pool.size,
                total: pool.total,
                free: pool.free,
                reserved: pool.reserved,
                overcommit: pool.overcommit_left,
                is_gigantic: pool.is_gigantic,
            });
        }
        if pool.available() == 0 {
            self.notes.push(format!(
                "the hugetlb pool of {} pages has no free pages: everything falls back to {}",
                pool.size,
                fallback.name()
            ));
        }
        Ok(pool.size)
    }

    pub(super) fn ask_for_hugetlb(
        &mut self,
        size: Option<PageSize>,
        recipe: &Recipe,
        facts: &Facts,
    ) -> Result<(), LaunchError> {
        let pool = self.check_pool(size, Fallback::Error, facts)?;
        // Beside the pool's pages no THP: an arm is one kind of superpage, or it says nothing.
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::Superpages;
        let value = size.map_or("2".to_string(), |size| size.bytes().to_string());
        // One arena: glibc maps the arenas of further threads with MAP_NORESERVE, whose faults
        // are killed by SIGBUS when the pool runs short; the main arena is reserved at mmap.
        let settings = [("glibc.malloc.hugetlb", value.as_str()), ("glibc.malloc.arena_max", "1")];
        let why = format!("malloc maps {pool} pages of the hugetlb pool, reserved at mmap");
        self.set_malloc(recipe, facts, &settings, &why);
        self.notes.push(
            "memory the program maps itself, not through malloc, stays on base pages; all threads \
             share one malloc arena"
                .to_string(),
        );
        self.notes.push(
            "a forked child that writes the heap needs further free pages of the pool, and the \
             kernel kills it (SIGBUS) when there are none"
                .to_string(),
        );
        Ok(())
    }

    /// Whether what the pool cannot serve is an error in this program: libsuperpage.so must be in it, and back its memory.
    pub(super) fn check_strict(
        &self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
    ) -> Result<(), LaunchError> {
        let target = wrapped.unwrap_or(&self.program);
        let not_reached = |program: &Program, why: &str| {
            Err(LaunchError::NotReached(program.path.clone(), why.to_string()))
        };
        if !self.is_preloadable(wrapped) {
            let program =
                if self.program.kind.unreached().is_some() { &self.program } else { target };
            let why = program.kind.unreached().unwrap_or_default();
            return not_reached(program, &why);
        }
        match &target.allocator {
            Some(library) if recipe.memory.heap && !recipe.memory.mmap => {
                not_reached(target, &format!("it brings its allocator, {library}; add --mmap"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note_reach(&mut self, wrapped: Option<&Program>) {
        for program in [Some(&self.program), wrapped].into_iter().flatten() {
            if let Some(why) = program.kind.unreached() {
                let path = program.path.display();
                self.notes.push(format!(
                    "neither malloc's tunables nor a preload can be counted on to reach {path}: {why}"
                ));
            }
        }
    }

    /// Where nothing but glibc's malloc is asked for superpages, and the program uses another.
    pub(super) fn note_allocator(&mut self, recipe: &Recipe, wrapped: Option<&Program>) {
        let is_malloc_alone = match (self.pages, recipe.memory.is_empty()) {
            (Pages::Hugetlb(_), true) => true,
            (Pages::System | Pages::Base, _) => false,
            _ => recipe.memory.heap && !recipe.memory.mmap,
        };
        let Program { path, allocator, .. } = wrapped.unwrap_or(&self.program);
        if let Some(library) = allocator.as_ref().filter(|_| is_malloc_alone) {
            let path = path.display();
            self.notes.push(format!(
                "{OWN_ALLOCATOR}, and {path} has an allocator of its own ({library})"
            ));
        }
    }

    /// What the recipe itself says of a tunable stays; what is merely inherited gives way.
    fn set_malloc(&mut self, recipe: &Recipe, facts: &Facts, wanted: &[(&str, &str)], why: &str) {
        let own = recipe.variable(GLIBC_TUNABLES);
        let mut settings: Vec<(&str, String)> = Vec::new();
        for (name, value) in wanted {
            match own.and_then(|list| tunables::value(list, name)) {
                None => settings.push((name, value.to_string())),
                Some(set) if set == *value => {}
                Some(set) => self
                    .notes
                    .push(format!("the recipe's {name}={set} stands in place of {name}={value}")),
            }
        }
        let existing = own.or(facts.glibc_tunables.as_deref());
        self.set(GLIBC_TUNABLES, tunables::merge(existing, &settings), why);
    }
}
