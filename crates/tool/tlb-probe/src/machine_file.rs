//! Writes a machine file from measurements: text for `machines/this.toml`, with the source of each number. Values that
//! the calibration does not measure (the kernel's costs, data caches) come from the preset of the same cores, or else
//! from the preset with the same vendor and the most similar second level.

use std::fmt::Write;

use machine::{Array, Machine, Nested, SIZES, Size, Tlb, preset_of, preset_text};
use units::ByteSize;

use crate::backing::Verdict;
use crate::document::{Accesses, Calibration, LevelReport, SizeReport, cycles};

/// Name of this machine in its own file.
pub const THIS: &str = "this";

impl Calibration {
    /// Formats the machine for `Machine::from_toml`.
    pub fn to_machine(&self) -> String {
        let (name, text, nearest) = self.nearest();
        let mut out = String::new();
        let mut line = |words: String| {
            let _ = writeln!(out, "{words}");
        };
        let model = self.processor.model.as_deref().unwrap_or("unknown processor");
        let model: String =
            model.chars().filter(|c| !c.is_control() && *c != '"' && *c != '\\').collect();
        line(format!("# This machine, by `superpage tlb`: {model}."));
        line("# Labels: (measured) by latency alone · (assumed) as in the preset".to_string());
        line(format!("# `{name}`, the nearest of those that are built in."));
        line(format!("name = \"{THIS}\""));
        line(format!("summary = \"this machine: {model}\""));
        let mhz = (self.clock.core_mhz.round() as u32).clamp(1, 20_000);
        line(format!("mhz = {mhz}   # (measured) by dependent additions"));
        let base = self.base_page.bytes() >> 10;
        line(format!("base-page = \"{base}K\"   # the kernel's"));
        line(format!("levels = {}   # (assumed)", nearest.levels));
        line(format!("pcid = {}   # (assumed)", nearest.pcid));
        let (memory, source) = match &self.accesses {
            Some(far) => (self.cycles(far.dependent.superpage_ns), "(measured) on superpages"),
            None => (
                f64::from(nearest.memory_cycles) * f64::from(mhz) / f64::from(nearest.mhz),
                "(assumed) its nanoseconds at this clock",
            ),
        };
        let memory = (memory.round() as u32).clamp(1, 60_000);
        line(format!("memory-cycles = {memory}   # {source}"));
        if let Some(window) = self.window(name) {
            line(format!(
                "window = {window}   # (assumed) instructions in flight: the reorder buffer"
            ));
        }
        for (key, level, index) in [("l1", &nearest.l1, 0), ("l2", &nearest.l2, 1)] {
            for tlb in level {
                for words in self.array(key, tlb, index) {
                    line(words);
                }
            }
        }
        line("\n[walk]".to_string());
        line(format!("walkers = {}   # (assumed)", nearest.walkers));
        let caches = nearest.walk_caches;
        for (key, reads, assumed) in
            [("pde", 2, caches.pde), ("pdpte", 3, caches.pdpte), ("pml4e", 4, caches.pml4e)]
        {
            let step = self.walk_steps.iter().find(|step| step.reads == reads);
            match (step.and_then(|step| step.entries), assumed) {
                (Some(entries), _) => line(format!(
                    "{key} = {{ entries = {} }}   # (measured)",
                    entries.clamp(1, 1 << 14)
                )),
                (None, Some(Array { entries, ways })) => {
                    line(format!("{key} = {{ entries = {entries}, ways = {ways} }}   # (assumed)"))
                }
                (None, None) => {}
            }
        }
        if let Some((nested, source)) = self.nested() {
            line("\n[nested]".to_string());
            line(format!("host-page = \"{}\"   # {source}", nested.host_page.name()));
            line(format!("levels = {}   # (assumed)", nested.levels));
        }
        for words in self.far() {
            line(words);
        }
        // Append the rest of the preset unchanged, with its comments on sources.
        line(format!("\n# (assumed) all that follows is from `{name}`, with that file's sources."));
        let rest = &text[text.find("[[caches]]").unwrap_or(text.len())..];
        out + rest
    }

    /// Returns the size of the reorder buffer, as the vendors publish it. `preset`: the nearest preset.
    fn window(&self, preset: &str) -> Option<u16> {
        const ZEN_5: u32 = 26;
        if preset.starts_with("zen") && self.processor.family == Some(ZEN_5) {
            return Some(448);
        }
        Some(match preset {
            "haswell" | "zen1" => 192,
            "skylake" | "cascade-lake" | "zen2" => 224,
            "zen3" => 256,
            "zen4" => 320,
            "ice-lake" => 352,
            "golden-cove" => 512,
            _ => return None,
        })
    }

    /// Formats the measured costs of random accesses.
    fn far(&self) -> Vec<String> {
        let lines = |far: &Accesses| {
            let walk = self.cycles(far.dependent.base_ns - far.dependent.superpage_ns).max(0.0);
            let added = self.cycles(far.independent.base_ns - far.independent.superpage_ns);
            // Without a cost of walks there is none to wait for.
            let part = if walk > 0.0 { (added / walk).clamp(0.0, 1.0) } else { 0.0 };
            let cycles = self.cycles(far.independent.superpage_ns).clamp(1.0, 60_000.0);
            [
                format!("\n[[far]]   # (measured) random accesses over {}", ByteSize(far.bytes)),
                format!("size = \"{}\"", ByteSize(far.bytes).to_exact()),
                format!(
                    "walk = {:.1}   # what base pages add to a dependent load",
                    walk.min(60_000.0)
                ),
                format!(
                    "independent = {{ cycles = {cycles:.1}, walk = {part:.3} }}   # on superpages, and the part of \
                     `walk` that base pages add"
                ),
            ]
        };
        self.nearer_accesses.iter().chain(&self.accesses).flat_map(lines).collect()
    }

    /// Converts nanoseconds to core cycles.
    fn cycles(&self, nanoseconds: f64) -> f64 {
        cycles(nanoseconds, self.clock.core_mhz)
    }

    /// Finds the preset of the same cores by family and model; for an unknown CPU, the preset that matches vendor and
    /// second level best.
    fn nearest(&self) -> (&'static str, &'static str, Machine) {
        let vendor = self.processor.vendor.as_deref().unwrap_or("");
        let said = |array: &&host::TlbArray| {
            array.level == 2 && array.page_sizes.contains(&self.base_page)
        };
        let said = self.processor.arrays.iter().filter(said).map(|array| u64::from(array.entries));
        let measured = self.base().and_then(|base| base.levels.get(1)?.entries);
        let second = said.max().or(measured).unwrap_or(0);
        let (family, number) = (self.processor.family, self.processor.number);
        let by_size = match (vendor, second) {
            ("AuthenticAMD" | "HygonGenuine", 0..1800) => "zen1",
            ("AuthenticAMD" | "HygonGenuine", 1800..2500) => "zen3",
            ("AuthenticAMD" | "HygonGenuine", _) => "zen4",
            ("GenuineIntel", 1..1280) => "haswell",
            ("GenuineIntel", 1800..) => "ice-lake",
            ("GenuineIntel", _) => "cascade-lake",
            (vendor, 1600..) if vendor.starts_with("0x") => "neoverse-v1",
            (vendor, _) if vendor.starts_with("0x") => "neoverse-n1",
            _ => "skylake",
        };
        let name = preset_of(vendor, family, number).unwrap_or(by_size);
        let text = preset_text(name).expect("a preset of ours");
        let machine = Machine::from_toml(text, name).expect("the built-in machines are right");
        (name, text, machine)
    }

    /// Returns the measured or assumed host page size, with its source.
    fn nested(&self) -> Option<(Nested, &'static str)> {
        let nested = |host_page| Nested { host_page, levels: 4 };
        match self.backing.as_ref().map(|backing| backing.verdict) {
            Some(Verdict::Fractured) => {
                Some((nested(Size::Base), "(measured) superpages are fractured"))
            }
            Some(Verdict::Mixed) => Some(match self.backing.as_ref() {
                Some(backing) if 2 * backing.fractured <= backing.looked_at => {
                    (nested(Size::Large), "(measured) most superpages reach the TLB, not all")
                }
                _ => (nested(Size::Base), "(measured) most superpages are fractured, not all"),
            }),
            Some(Verdict::Reaches) if self.processor.guest == Some(true) => {
                Some((nested(Size::Large), "(measured) superpages reach the TLB"))
            }
            _ if self.processor.guest == Some(true) => {
                Some((nested(Size::Large), "(assumed) could not be told"))
            }
            _ => None,
        }
    }

    /// Returns the measured level for pages of this size; `None` for superpages if they are
    /// fractured.
    fn measured(&self, size: Size, index: usize) -> Option<&LevelReport> {
        let whole = self.backing.as_ref().is_none_or(|found| found.verdict == Verdict::Reaches);
        if size != Size::Base && !whole {
            return None;
        }
        let of =
            |report: &&SizeReport| report.page.bytes() == self.base_page.bytes() << size.shift();
        let levels = &self.sizes.iter().find(of)?.levels;
        // The model has two levels. Of more, the last is the second: it decides what is walked for.
        if index == 1 { levels.iter().skip(1).next_back() } else { levels.get(index) }
    }

    /// Formats one TLB array. Unmeasured properties are the preset's.
    fn array(&self, key: &str, tlb: &Tlb, index: usize) -> Vec<String> {
        let sizes: Vec<Size> =
            (0..SIZES).map(|s| Size::ALL[s]).filter(|s| tlb.holds[*s as usize]).collect();
        let level = sizes.iter().find_map(|size| self.measured(*size, index));
        let base = self.base();
        if index == 1
            && level.is_none()
            && base.is_some_and(|base| base.miss.is_some() && base.levels.len() == 1)
            && tlb.holds[Size::Base as usize]
        {
            // The measurement found no second level.
            return Vec::new();
        }
        let pages: Vec<String> = sizes.iter().map(|size| format!("\"{}\"", size.name())).collect();
        let mut lines = vec![format!("\n[[tlb.{key}]]"), format!("pages = [{}]", pages.join(", "))];
        let found = level.and_then(|level| Some((level.entries?, level.ways)));
        let (entries, ways, source) = match found {
            Some((entries, Some(ways))) if entries % ways == 0 => {
                (entries, ways, "(measured)".to_string())
            }
            Some((entries, _)) => {
                // Keep the preset's number of sets, and take the nearest number of ways.
                let sets = u64::from(tlb.array.sets());
                let ways = ((entries as f64 / sets as f64).round() as u64).max(1);
                (sets * ways, ways, format!("(measured) {entries}, in {sets} sets (assumed)"))
            }
            None => (tlb.array.entries.into(), tlb.array.ways.into(), "(assumed)".to_string()),
        };
        lines.push(format!("entries = {entries}   # {source}"));
        lines.push(format!("ways = {ways}"));
        let sets = entries / ways;
        if tlb.index == machine::Index::Xor && sets.is_power_of_two() {
            lines.push("index = \"xor\"   # (assumed)".to_string());
        }
        if index == 1 {
            let hit = level.and_then(|level| level.hit.as_ref()).map(|hit| hit.cycles);
            let (cycles, source) = match hit {
                Some(cycles) => (cycles.round().clamp(0.0, 10_000.0) as u16, "(measured)"),
                None => (tlb.cycles, "(assumed)"),
            };
            lines.push(format!("cycles = {cycles}   # {source} beyond a hit of the first level"));
        }
        lines
    }
}
