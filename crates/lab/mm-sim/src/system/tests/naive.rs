//! Compares residency under `base` with sets: a written page has a frame, an anonymous page that was only read maps
//! zeros, a file page brings in its neighbours, and nothing else is resident.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use trace::{Advice, Backing, Page};

#[derive(Default)]
struct Model {
    running: u32,
    /// Pages of each process, and whether they have a frame.
    pages: BTreeMap<u32, BTreeMap<u32, bool>>,
    mapped: BTreeMap<u32, BTreeMap<u32, Backing>>,
    /// Aligned groups of 16 pages of which one was ever read from a file.
    read: BTreeSet<u32>,
}

impl Model {
    fn follow(&mut self, event: Option<&Event>, accesses: &[Access], zero_page: bool) {
        if let Some(event) = event {
            self.event(event);
        }
        for access in accesses {
            let page = access.page().0;
            let own = matches!(self.backing(page), Backing::Anonymous | Backing::Heap);
            self.touch(page, access.writes() || !own || !zero_page);
        }
    }

    fn backing(&self, page: u32) -> Backing {
        *self.mapped.get(&self.running).and_then(|own| own.get(&page)).expect("well-formed")
    }

    fn touch(&mut self, page: u32, framed: bool) {
        let is_read = matches!(self.backing(page), Backing::File { cached: false, .. });
        if is_read {
            self.read.insert(page >> 4);
        }
        let own = self.pages.entry(self.running).or_default();
        *own.entry(page).or_default() |= framed;
    }

    /// Returns file pages that may have been read along with a touched page: those around it in its mapping, which
    /// advice and protection split.
    fn beside(&self) -> impl Iterator<Item = u32> {
        let files = self.mapped.iter().flat_map(|(process, own)| {
            let touched = self.pages.get(process);
            let of_file =
                own.iter().filter(|(_, it)| matches!(it, Backing::File { cached: false, .. }));
            of_file
                .map(|(page, _)| *page)
                .filter(move |page| touched.is_none_or(|touched| !touched.contains_key(page)))
        });
        files.filter(|page| self.read.contains(&(page >> 4)))
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Spawn(process) | Event::Run(process) => self.running = process.0,
            Event::Map { pages, backing, .. } => {
                let own = self.mapped.entry(self.running).or_default();
                let all = (pages.first.0..).take(pages.count as usize);
                own.extend(all.map(|at| (at, *backing)));
            }
            Event::Grow { pages } => {
                let own = self.mapped.entry(self.running).or_default();
                let new = (pages.first.0..).take(pages.count as usize);
                own.extend(new.map(|at| (at, Backing::Heap)));
            }
            Event::Unmap(pages) | Event::Advise(pages, Advice::DontNeed | Advice::Free) => {
                let gone = pages.first.0..pages.first.0 + pages.count;
                self.pages.entry(self.running).or_default().retain(|page, _| !gone.contains(page));
                if matches!(event, Event::Unmap(_)) {
                    let own = self.mapped.entry(self.running).or_default();
                    own.retain(|page, _| !gone.contains(page));
                }
            }
            Event::Advise(pages, Advice::Populate) => {
                for page in pages.first.0..pages.first.0 + pages.count {
                    // Mapped pages stay, including zeros: see the comment in the system's populate.
                    self.touch(page, true);
                }
            }
            Event::Fork { child, offset } => {
                let pages = self.pages.get(&self.running).cloned().unwrap_or_default();
                let framed = pages.into_iter().filter(|(_, framed)| *framed);
                self.pages.insert(child.0, framed.map(|(at, it)| (at + offset, it)).collect());
                let mapped = self.mapped.get(&self.running).cloned().unwrap_or_default();
                let mapped = mapped.into_iter().map(|(at, it)| (at + offset, it)).collect();
                self.mapped.insert(child.0, mapped);
                self.read.extend(self.read.clone().into_iter().map(|at| at + (offset >> 4)));
            }
            Event::Exit(process) => {
                self.pages.remove(&process.0);
                self.mapped.remove(&process.0);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn base_has_the_pages_that_were_touched(ops in ops(80)) {
        let design = design::designs::find("base").expect("a preset");
        let memory = ByteSize::mib(256);
        let conditions = Conditions { machine: "e3-1245v6", memory, fragmentation: "none", swap: ByteSize(0), layout: Layout::default() };
        let mut run = Run::new(&design, &conditions);
        let mut program = Program::new(0, 0);
        let mut model = Model::default();
        for op in &ops {
            let Some((event, accesses)) = program.next(op) else { continue };
            if matches!(event, Some(Event::Advise(_, Advice::Collapse))) {
                continue;
            }
            if run.step(event.clone(), &accesses).is_err() {
                break;
            }
            model.follow(event.as_ref(), &accesses, false);
            let spaces = &run.engine.system.spaces;
            let mut expected = 0;
            for (&page, &framed) in model.pages.values().flatten() {
                let page = Page(page);
                let entry = spaces.entry(page);
                prop_assert!(spaces.is_present(page));
                prop_assert_eq!(entry.frame().is_some(), framed, "{:?}", page);
                expected += u64::from(framed);
            }
            expected += model.beside().filter(|&page| spaces.is_present(Page(page))).count() as u64;
            prop_assert_eq!(spaces.resident(), expected);
        }
    }
}
