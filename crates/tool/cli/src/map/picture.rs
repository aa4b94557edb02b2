//! Heat map of a process's memory, as SVG or on a page. One cell is a block of a superpage's size, or several. Pure.

use report::frame::{self, text};
use report::legend::{self, Sign};
use report::markup::{Element, el};
use report::{format, place, tables};
use services::Pages;
use services::map::ProcessMap;
use services::why::Machine;
use units::ByteSize;

use super::table::{self, Row};
use super::words;

const STYLE: &str = include_str!("picture.css");
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
/// Side of a cell and the distance from one to the next, in pixels.
const SIDE: f64 = 10.0;
const PITCH: f64 = 12.0;
/// Most cells of a picture: some 50 lines.
const MOST: u64 = 4000;
/// Mappings drawn; the rest is counted.
const STRIPS: usize = 40;
/// Mappings drawn if none holds a superpage.
const SMALL_STRIPS: usize = 8;

/// A cell's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Colour {
    /// No memory.
    Empty,
    /// Base pages, resident in less than half of the cell.
    Sparse,
    /// Base pages.
    Base,
    /// Some on superpages.
    Mixed,
    /// All on superpages.
    Huge,
}

impl Colour {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Huge, "on superpages"),
        (Self::Mixed, "partly on superpages"),
        (Self::Base, "base pages"),
        (Self::Sparse, "base pages, less than half resident"),
        (Self::Empty, "nothing resident"),
    ];

    fn of(pages: &Pages, capacity: u64) -> Self {
        match (u64::from(pages.base), u64::from(pages.huge)) {
            (0, 0) => Self::Empty,
            (0, _) => Self::Huge,
            (base, 0) if base * 2 < capacity => Self::Sparse,
            (_, 0) => Self::Base,
            _ => Self::Mixed,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Empty => "cell empty",
            Self::Sparse => "cell sparse",
            Self::Base => "cell base",
            Self::Mixed => "cell mixed",
            Self::Huge => "cell huge",
        }
    }
}

/// Part of a mapping: as many blocks as a cell has, or a gap without memory.
struct Cell {
    start: u64,
    bytes: u64,
    pages: Pages,
    colour: Colour,
}

/// The picture as an SVG file.
pub fn svg(map: &ProcessMap) -> String {
    frame::file(draw(map))
}

/// The picture on a page, with the mappings and the reasons as tables.
pub fn page(map: &ProcessMap, machine: &Machine) -> String {
    let title = format!("superpage map: {}", format::name(&map.process.name, 20));
    let reasons = map.reasons.iter().map(|share| {
        vec![
            words::reason(share.reason),
            share.resident.to_string(),
            share.swapped.to_string(),
            share.empty.to_string(),
            words::remedy(share.reason).unwrap_or_default(),
        ]
    });
    let head = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mappings = table::rows(map).into_iter().take(200).map(|row| {
        vec![
            format::name(&row.label(), 80),
            words::kind(row.kind).to_string(),
            row.count.to_string(),
            ByteSize(row.size).to_string(),
            row.pages.present.to_string(),
            table::on_superpages(&row.pages),
            row.pages.swapped.to_string(),
            row.why(),
        ]
    });
    let thp = format!("THP {}; command: ", words::mode(machine.anonymous));
    let command = format::name(&map.process.command_line(), 400);
    let body = el("body")
        .add(el("h1").text(&title))
        .add(el("p").class("small").text(thp).add(el("code").text(command)))
        .add(frame::figure("Memory by address", el("div").class("scroll").add(draw(map))))
        .add(tables::table(
            "Memory by what decides",
            false,
            head(&["memory", "resident", "swap", "without memory", "what decides"]),
            reasons.collect(),
        ))
        .add(tables::table(
            "Mappings",
            false,
            head(&[
                "mapping",
                "kind",
                "count",
                "size",
                "resident",
                "superpages",
                "swap",
                "why not",
            ]),
            mappings.collect(),
        ));
    frame::page(title, &[frame::PAGE], body)
}

fn draw(map: &ProcessMap) -> Element {
    let superpage = map.superpage.bytes();
    let blocks: usize = map.extents.iter().map(|extent| extent.blocks.len()).sum();
    let per_cell = (blocks as u64).div_ceil(MOST).max(1).next_power_of_two();
    let cell_bytes = superpage.saturating_mul(per_cell);
    let title = table::summary(map);
    let mut parts = Vec::new();
    let mut y = 30.0;
    for line in place::wrapped(&title, WIDTH - 2.0 * MARGIN, 16.0) {
        parts.push(text(MARGIN, y, "title", line));
        y += 22.0;
    }
    let unit = match per_cell {
        1 => format!("one cell is {}", ByteSize(cell_bytes)),
        _ => format!("one cell is {} ({per_cell} superpages)", ByteSize(cell_bytes)),
    };
    parts.push(text(
        MARGIN,
        y,
        "note",
        format!("{unit}; a stretch without memory is one grey cell"),
    ));
    y += 12.0;
    let signs: Vec<(Sign, String)> = Colour::ALL
        .iter()
        .map(|(colour, name)| (Sign::Block(colour.class().to_string()), (*name).to_string()))
        .collect();
    let (drawn, height) = legend::draw(&signs, (MARGIN, y), WIDTH - 2.0 * MARGIN);
    parts.extend(drawn);
    y += height + 14.0;
    let mut rows = table::rows(map);
    rows.retain(|row| row.pages.present.bytes() > 0);
    // Mappings that hold no aligned superpage are many and small.
    let holds = |row: &Row| {
        row.extents.iter().any(|index| map.extents[*index].mapping.holds_aligned(map.superpage))
    };
    let (large, small): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(holds);
    let (drawn, most) = if large.is_empty() { (&small, SMALL_STRIPS) } else { (&large, STRIPS) };
    for row in drawn.iter().take(most) {
        let (strip, height) = strip(map, row, cell_bytes, y);
        parts.extend(strip);
        y += height;
    }
    let rest = drawn.iter().skip(most).chain(small.iter().filter(|_| !large.is_empty()));
    let rest: Vec<u64> = rest.map(|row| row.pages.present.bytes()).collect();
    if !rest.is_empty() {
        let more = format!(
            "not drawn: {} more mappings with {} resident",
            rest.len(),
            ByteSize(rest.iter().sum())
        );
        parts.push(text(MARGIN, y + 10.0, "note", more));
        y += 20.0;
    }
    if large.is_empty() && small.is_empty() {
        parts.push(text(MARGIN, y + 10.0, "note", "nothing is resident"));
        y += 20.0;
    }
    frame::picture(WIDTH, y + MARGIN, &title, STYLE, parts)
}

/// The cells of a row of mappings below its name; returns their height too.
fn strip(map: &ProcessMap, row: &Row, cell_bytes: u64, top: f64) -> (Vec<Element>, f64) {
    let share = table::on_superpages(&row.pages);
    let why = match row.why().as_str() {
        "-" => String::new(),
        why => format!("; {why}"),
    };
    let heading = format!(
        "{} · {} resident, {share} on superpages{why}",
        format::name(&row.label(), 60),
        row.pages.present
    );
    // Bold letters are wider.
    let heading = place::clipped(&heading, (WIDTH - 2.0 * MARGIN) * 0.9, 13.0);
    let mut parts = vec![text(MARGIN, top + 12.0, "heading", heading)];
    let columns = ((WIDTH - 2.0 * MARGIN) / PITCH) as usize;
    let cells: Vec<Cell> =
        row.extents.iter().flat_map(|index| cells(map, *index, cell_bytes)).collect();
    for (index, cell) in cells.iter().enumerate() {
        let (x, y) = ((index % columns) as f64, (index / columns) as f64);
        let base = map.base.bytes();
        let about = format!(
            "{:#x}, {}: {} resident, {} on superpages, {} in swap",
            cell.start,
            ByteSize(cell.bytes),
            ByteSize(u64::from(cell.pages.resident()) * base),
            ByteSize(u64::from(cell.pages.huge) * base),
            ByteSize(u64::from(cell.pages.swapped) * base),
        );
        let block = el("rect")
            .with("x", MARGIN + x * PITCH)
            .with("y", top + 20.0 + y * PITCH)
            .with("width", SIDE)
            .with("height", SIDE)
            .class(cell.colour.class())
            .add(el("title").text(about));
        parts.push(block);
    }
    let lines = cells.len().div_ceil(columns) as f64;
    (parts, 20.0 + lines * PITCH + 12.0)
}

/// The cells of one mapping in the order of addresses. Address space without memory, as long as a cell or longer, is one
/// empty cell.
fn cells(map: &ProcessMap, index: usize, cell_bytes: u64) -> Vec<Cell> {
    let extent = &map.extents[index];
    let (first, end) = (extent.mapping.start, extent.mapping.end);
    let within = |start: u64, to: u64| (start.max(first), to.min(end));
    let mut cells: Vec<Cell> = Vec::new();
    let mut at = first - first % cell_bytes;
    let gap = |from: u64, to: u64| {
        let (start, to) = within(from, to);
        Cell { start, bytes: to - start, pages: Pages::default(), colour: Colour::Empty }
    };
    for block in &extent.blocks {
        let start = block.start - block.start % cell_bytes;
        if start >= at {
            if start > at {
                cells.push(gap(at, start));
            }
            at = start.saturating_add(cell_bytes);
            let (start, to) = within(start, at);
            let (pages, colour) = (Pages::default(), Colour::Empty);
            cells.push(Cell { start, bytes: to - start, pages, colour });
        }
        if let Some(cell) = cells.last_mut() {
            let sum = &mut cell.pages;
            let more = &block.pages;
            for (sum, more) in [
                (&mut sum.base, more.base),
                (&mut sum.huge, more.huge),
                (&mut sum.zero, more.zero),
                (&mut sum.swapped, more.swapped),
            ] {
                *sum = sum.saturating_add(more);
            }
            cell.colour = Colour::of(&cell.pages, cell.bytes / map.base.bytes());
        }
    }
    if at < end && !cells.is_empty() {
        cells.push(gap(at, end));
    }
    cells
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn pages(base: u32, huge: u32) -> Pages {
        Pages { base, huge, zero: 0, swapped: 0 }
    }

    /// A process with one anonymous mapping of this many superpages, of which every second one is on base pages.
    pub fn large(blocks: u64) -> ProcessMap {
        use host::coverage::{MappingKind, Scanned};
        use services::map::ExplainedExtent;
        use services::smaps::SmapsState;
        let superpage = units::PageSize::new(2 << 20).unwrap();
        let start = 0x7f00_0000_0000;
        let mapping = format!("{start:x}-{:x} rw-p 0 00:00 0", start + (blocks << 21));
        let block = |index: u64| services::Block {
            start: start + (index << 21),
            pages: if index.is_multiple_of(2) { pages(0, 512) } else { pages(512, 0) },
        };
        let pages = Scanned {
            present: ByteSize(blocks << 21),
            huge: ByteSize(blocks.div_ceil(2) << 21),
            ..Scanned::default()
        };
        let extent = ExplainedExtent {
            mapping: host::process::parse::maps_line(&mapping).unwrap(),
            kind: MappingKind::Anonymous,
            pages,
            attributes: None,
            reasons: Vec::new(),
            blocks: (0..blocks).map(block).collect(),
        };
        ProcessMap {
            process: services::Process {
                pid: units::Pid(7),
                start_ticks: 0,
                parent: units::Pid(1),
                name: "a<b>\u{1b}".into(),
                command: Vec::new(),
                user: None,
                cgroup: None,
                unit: None,
            },
            superpage,
            base: units::PageSize::new(4096).unwrap(),
            counted: host::process::Resident::default(),
            program: services::why::Program::default(),
            pages,
            reasons: Vec::new(),
            extents: vec![extent],
            smaps: SmapsState::NotRead { estimated: 0.0 },
            waste: None,
            folios: None,
            scan_seconds: 0.0,
            longest_hold_seconds: 0.0,
        }
    }

    #[test]
    fn a_picture_has_few_cells_at_any_size() {
        // One superpage, 4 GiB, 200 GiB, 16 TiB.
        for (blocks, cells) in [(1, 1), (2048, 2048), (102_400, 3200), (8 << 20, 2048)] {
            let picture = svg(&large(blocks));
            assert_eq!(picture.matches("<title>0x").count(), cells, "{blocks}");
            assert!(!picture.contains("<b>") && !picture.contains('\u{1b}'));
        }
        assert!(svg(&large(1)).contains("one cell is 2 MiB;"));
        assert!(svg(&large(102_400)).contains("one cell is 64 MiB (32 superpages)"));
        let page = page(&large(3), &Machine::default());
        assert!(page.contains("a&lt;b&gt;"), "names are escaped");
    }

    #[test]
    fn a_colour_says_how_much_is_on_superpages() {
        assert_eq!(Colour::of(&pages(0, 0), 512), Colour::Empty);
        assert_eq!(Colour::of(&pages(255, 0), 512), Colour::Sparse);
        assert_eq!(Colour::of(&pages(256, 0), 512), Colour::Base);
        assert_eq!(Colour::of(&pages(1, 511), 512), Colour::Mixed);
        assert_eq!(Colour::of(&pages(0, 512), 512), Colour::Huge);
    }
}
