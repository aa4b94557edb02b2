//! What is resident under `base`, against sets: a page written has a frame, a page of the program's own that was
//! only read maps zeros, a page of a file brings those around, and nothing else is there.

use std::collections::BTreeMap;

use super::*;
use trace::{Advice, Backing, Page};

#[derive(Default)]
struct Model {
    running: u32,
    /// Pages of each process: whether they have a frame.
    pages: BTreeMap<u32, BTreeMap<u32, bool>>,
    mapped: BTreeMap<u32, BTreeMap<u32, Mapped>>,
}

/// What a page is mapped to, and which mapping it was when it was made.
type Mapped = (Backing, u32);

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
        self.mapped.get(&self.running).and_then(|own| own.get(&page)).expect("well-formed").0
    }

    fn touch(&mut self, page: u32, framed: bool) {
        let mapped = &self.mapped[&self.running];
        let own = self.pages.entry(self.running).or_default();
        let is_read = !own.contains_key(&page);
        *own.entry(page).or_default() |= framed;
        if is_read && matches!(mapped[&page].0, Backing::File { cached: false, .. }) {
            let start = page & !15;
            let same = |at: &u32| mapped.get(at) == Some(&mapped[&page]);
            let before = (start..page).rev().take_while(same);
            for beside in before.chain((page..start + 16).take_while(same)) {
                own.insert(beside, true);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Spawn(process) | Event::Run(process) => self.running = process.0,
            Event::Map { pages, backing, .. } => {
                let own = self.mapped.entry(self.running).or_default();
                let all = (pages.first.0..).take(pages.count as usize);
                own.extend(all.map(|at| (at, (*backing, pages.first.0))));
            }
            Event::Grow { pages } => {
                let own = self.mapped.entry(self.running).or_default();
                let new = (pages.first.0..).take(pages.count as usize);
                own.extend(new.map(|at| (at, (Backing::Heap, 0))));
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
                    // What is mapped stays, zeros too: see the note at the system's populate.
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
            prop_assert_eq!(spaces.resident(), expected);
        }
    }
}
