//! The means by which a program gets its pages: environment variables, a `prctl`, the preloaded library.

use abi::environment;
use units::PageSize;

use super::{Facts, Plan, Promise, ThpRequest};
use crate::note::LargerThp;
use crate::{
    Advice, Because, Children, Fallback, Kind, LaunchError, Memory, Note, Pages, Program, Recipe,
    Rest, Runtime, tunables,
};

/// Variables that several parts of a plan set.
pub(super) const LD_PRELOAD: &str = "LD_PRELOAD";
pub(super) const GLIBC_TUNABLES: &str = "GLIBC_TUNABLES";

impl Plan {
    pub(super) fn ask_for_base_pages(&mut self, recipe: &Recipe, facts: &Facts) {
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::BasePages;
        // Nothing needs to be undone, unless the inherited environment makes glibc request hugetlb pages, which the
        // prctl does not prevent.
        let inherited = facts.glibc_tunables.as_deref().unwrap_or("");
        if recipe.variable(GLIBC_TUNABLES).is_none()
            && tunables::value(inherited, "glibc.malloc.hugetlb").is_some()
        {
            let settings = [("glibc.malloc.hugetlb", "0")];
            self.set_malloc(recipe, facts, &settings, "malloc uses base pages");
        }
    }

    /// Requests base pages, of which a process outside makes superpages later. The kernel must make none by itself.
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

    /// Requests base pages in superpage files, where the library puts the memory. A process outside makes superpages of
    /// them later.
    pub(super) fn lie_in_files(
        &mut self,
        recipe: &Recipe,
        wrapped: Option<&Program>,
        facts: &Facts,
    ) -> Result<String, LaunchError> {
        if !facts.thp_only_advised {
            return Err(LaunchError::InPlaceAlways);
        }
        // Memory outside the files stays on base pages until superpages are made of it.
        let pages = "hugetlb:2M".to_string();
        let library = self.ask_the_library(pages, recipe, wrapped, facts)?;
        self.set(
            environment::FALLBACK,
            Fallback::Base.name(),
            "what cannot lie in a file stays ordinary",
        );
        (self.thp, self.promise, self.in_place) = (ThpRequest::OnlyAdvised, Promise::Nothing, true);
        self.notes.push(Note::MappedAsShared);
        Ok(library)
    }

    pub(super) fn note_fragmented(&mut self, advice: Advice, facts: &Facts) {
        let rest = match (advice, facts.thp_sizes.as_slice(), &self.supply) {
            (Advice::All, _, _) => Rest::Compacted,
            (Advice::Contiguous, [], None) => Rest::Base,
            (Advice::Contiguous, on, None) => Rest::Smaller(on.to_vec()),
            (Advice::Contiguous, _, Some(off)) => Rest::Supplied(off.clone()),
        };
        self.notes.push(Note::Fragmented { rest });
    }

    /// Returns whether so few superpages were free that the program may get smaller ones, which cannot be read back.
    fn may_get_smaller(&self) -> bool {
        let is_smaller = |note: &Note| {
            matches!(note, Note::Fragmented { rest: Rest::Smaller(_) | Rest::Supplied(_) })
        };
        self.notes.iter().any(is_smaller)
    }

    /// Returns the kinds of memory for which libsuperpage.so requests superpages, if their pages can be read back.
    pub fn asked_of_library(&self) -> Option<&str> {
        let asks = matches!(self.pages, Pages::Thp | Pages::Hugetlb(_)) && !self.may_get_smaller();
        let mut variables = self.environment.iter();
        let memory = variables.find(|change| change.variable == environment::MEMORY)?;
        asks.then_some(memory.value.as_str())
    }

    /// Chooses the best pages of this machine. Pool pages are reserved, so they cannot fail later, and somebody filled
    /// a pool with free pages in order to use it. A pool that may only grow was not filled on purpose: see
    /// docs/decisions/launch.md#4.
    pub(super) fn choose(&mut self, facts: &Facts) -> Result<Pages, LaunchError> {
        let pool = facts.pools.first();
        let (pages, because) = match (pool, facts.thp_sizes.first()) {
            (Some(pool), _) if pool.unused() > 0 => {
                (Pages::Hugetlb(None), Because::FreePool { pages: pool.unused(), size: pool.size })
            }
            _ if facts.has_thp() => (Pages::Thp, Because::NoFreePool),
            (_, Some(size)) => (Pages::ThpOf(*size), Because::LargestOn),
            (Some(pool), None) if pool.available() > 0 => (
                Pages::Hugetlb(None),
                Because::PoolMayGrow { pages: pool.available(), size: pool.size },
            ),
            _ => return Err(LaunchError::NoSuperpages),
        };
        self.notes.push(Note::Chose { pages, because });
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

    /// Checks a THP size. The machine's settings decide which sizes are used: the kernel prefers the largest enabled
    /// size.
    pub(super) fn check_thp_of(
        &mut self,
        size: PageSize,
        fallback: Fallback,
        facts: &Facts,
    ) -> Result<(), LaunchError> {
        if !facts.thp_sizes.contains(&size) {
            return Err(LaunchError::ThpSizeOff(size));
        }
        let with_largest = facts.thp_mode.as_deref().is_some_and(|mode| mode != "never");
        let larger: Vec<PageSize> =
            facts.thp_sizes.iter().copied().filter(|other| *other > size).collect();
        if !with_largest && larger.is_empty() {
            return Ok(());
        }
        let note = LargerThp { size, with_largest, larger };
        if fallback == Fallback::Error {
            return Err(LaunchError::LargerThp(note));
        }
        self.notes.push(Note::LargerThp(note));
        Ok(())
    }

    /// Makes libsuperpage.so back the requested memory. Returns the library's path.
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
        // Most memory is on superpages only if both are backed.
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
        if self.pages == Pages::Thp && recipe.advice == Advice::All {
            let what = "all memory is advised, as the design compacts at each fault";
            self.set(environment::ADVICE, recipe.advice.name(), what);
        }
        let children = recipe.children.name();
        self.set(environment::CHILDREN, children, "how its children are treated");
        self.stack = recipe.memory.stack;
        self.note_the_price(recipe);
        if !self.is_preloadable(wrapped) {
            self.notes.push(Note::NotPreloadable);
        }
        Ok(path)
    }

    /// Sets how much memory is prepared ahead. Only memory that the program maps through the library, on transparent
    /// superpages of the largest size, can be prepared.
    pub(super) fn prepare_ahead(&mut self, recipe: &Recipe) {
        if recipe.ahead.is_empty() {
            return;
        }
        if self.pages != Pages::Thp || !recipe.memory.mmap {
            let memory = match recipe.memory.is_empty() {
                true => "none named".to_string(),
                false => recipe.memory.variable(),
            };
            self.notes.push(Note::NothingAhead { pages: self.pages, memory });
            return;
        }
        if recipe.memory.heap {
            self.notes.push(Note::MallocNotAhead);
        }
        for (variable, value, what) in recipe.ahead.settings() {
            self.set(variable, value, what);
        }
        self.notes.push(Note::AheadCounts);
    }

    fn note_the_price(&mut self, recipe: &Recipe) {
        // Children still share shared memory and files.
        let Memory { shm, files, .. } = recipe.memory;
        let has_private = recipe.memory != Memory { shm, files, ..Memory::default() };
        let hugetlb = matches!(self.pages, Pages::Hugetlb(_)) && has_private;
        if hugetlb && recipe.children == Children::Same {
            self.notes.push(Note::ForkSharesPool);
        } else if hugetlb {
            self.notes.push(Note::ForkCopiesPool);
        }
    }

    /// Returns the library to preload; its place is between the recipe's libraries and the inherited ones.
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
            Some(path) if path.contains([':', ' ']) => self.notes.push(Note::LibraryPath { path }),
            Some(path) => {
                let why = "libsuperpage.so backs malloc's memory and the program's own mappings";
                self.set(environment::PAGES, "thp", why);
                return Ok(Some(path));
            }
            None => self.notes.push(Note::LibraryMissing),
        }
        self.advise_malloc(recipe, facts);
        Ok(None)
    }

    /// Makes glibc's malloc advise the heap from its first byte on, which the library cannot. glibc advises memory
    /// whether or not the program touches it. See docs/decisions/heap.md#8.
    pub(super) fn advise_malloc(&mut self, recipe: &Recipe, facts: &Facts) {
        let settings = [("glibc.malloc.hugetlb", "1")];
        self.set_malloc(recipe, facts, &settings, "malloc advises its memory MADV_HUGEPAGE");
    }

    /// Returns whether preloading libsuperpage.so has an effect. Under another loader it does harm: musl does not start
    /// a program whose preload needs missing libraries.
    pub(super) fn is_preloadable(&self, wrapped: Option<&Program>) -> bool {
        let target = wrapped.unwrap_or(&self.program);
        // A static wrapper passes the variable on; a privileged wrapper's loader removes it.
        !matches!(self.program.kind, Kind::OtherLoader(_) | Kind::Privileged)
            && matches!(target.kind, Kind::Glibc | Kind::Script(_) | Kind::Unknown)
    }

    /// Checks the pool's page size. An exhausted pool suffices only for a program that may fall back.
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
            self.notes.push(Note::PoolEmpty { size: pool.size, fallback });
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
        // Disable THP: an arm with two kinds of superpages is not conclusive.
        self.thp = ThpRequest::Disabled;
        self.promise = Promise::Superpages;
        let value = size.map_or("2".to_string(), |size| size.bytes().to_string());
        // Use one arena. glibc maps the arenas of further threads with MAP_NORESERVE, and their faults raise SIGBUS
        // when the pool is exhausted; the main arena is reserved at mmap.
        let settings = [("glibc.malloc.hugetlb", value.as_str()), ("glibc.malloc.arena_max", "1")];
        let why = format!("malloc maps {pool} pages of the hugetlb pool, reserved at mmap");
        self.set_malloc(recipe, facts, &settings, &why);
        self.notes.push(Note::MallocAlone);
        self.notes.push(Note::ForkSharesHeap);
        Ok(())
    }

    /// Checks that a request beyond the pool can fail in this program: libsuperpage.so must be loaded, and back its
    /// memory.
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
        // A static glibc reads the tunables that ask for transparent superpages; only the library does not reach it.
        let is_by_library = self.notes.contains(&Note::NotPreloadable) || self.pages != Pages::Thp;
        for program in [Some(&self.program), wrapped].into_iter().flatten() {
            let is_reached = match program.runtime {
                Some(Runtime::Go) => false,
                Some(Runtime::StaticGlibc) => !is_by_library,
                None => program.kind.unreached().is_none(),
            };
            if !is_reached {
                let path = program.path.display().to_string();
                let (program, runtime) = (program.kind.clone(), program.runtime);
                self.notes.push(Note::NotReached { path, program, runtime });
            }
        }
    }

    /// Adds a note if only glibc's malloc requests superpages, but the program uses another allocator.
    pub(super) fn note_allocator(&mut self, recipe: &Recipe, wrapped: Option<&Program>) {
        let is_malloc_alone = match (self.pages, recipe.memory.is_empty()) {
            (Pages::Hugetlb(_), true) => true,
            (Pages::System | Pages::Base, _) => false,
            _ => recipe.memory.heap && !recipe.memory.mmap,
        };
        let Program { path, allocator, .. } = wrapped.unwrap_or(&self.program);
        if let Some(library) = allocator.as_ref().filter(|_| is_malloc_alone) {
            let (path, library) = (path.display().to_string(), library.clone());
            self.notes.push(Note::OwnAllocator { path, library });
        }
    }

    /// Sets glibc tunables. A tunable that the recipe sets stays; an inherited value is replaced.
    fn set_malloc(&mut self, recipe: &Recipe, facts: &Facts, wanted: &[(&str, &str)], why: &str) {
        let own = recipe.variable(GLIBC_TUNABLES);
        let mut settings: Vec<(&str, String)> = Vec::new();
        for (name, value) in wanted {
            match own.and_then(|list| tunables::value(list, name)) {
                None => settings.push((name, value.to_string())),
                Some(set) if set == *value => {}
                Some(set) => self.notes.push(Note::RecipeStands {
                    name: name.to_string(),
                    set: set.to_string(),
                    wanted: value.to_string(),
                }),
            }
        }
        let existing = own.or(facts.glibc_tunables.as_deref());
        self.set(GLIBC_TUNABLES, tunables::merge(existing, &settings), why);
    }
}
