//! Events as bytes: how far behind the last one, a tag, the fields as variable-length integers.

use super::bytes::{Bytes, put_varint};
use super::{CHUNK, PAGES};
use crate::{Advice, Backing, Event, Pace, Page, Pages, Process, SLOTS};

/// The most bytes of events in a chunk.
pub const MAX_EVENTS: usize = 1 << 20;
/// The longest name of a phase, in bytes.
const MAX_NAME: usize = 1 << 10;

/// Adds `event`, `distance` records behind the last one.
pub fn put(out: &mut Vec<u8>, distance: u32, event: &Event) {
    put_varint(out, distance.into());
    let mut put = |tag: u8, fields: &[u64]| {
        out.push(tag);
        fields.iter().for_each(|&field| put_varint(out, field));
    };
    let of = |pages: &Pages| [u64::from(pages.first.0), u64::from(pages.count)];
    match event {
        Event::Spawn(process) => put(0, &[process.0.into()]),
        Event::Run(process) => put(1, &[process.0.into()]),
        Event::Map { pages, address, backing } => {
            let [first, count] = of(pages);
            let (kind, more): (u64, u64) = match *backing {
                Backing::Anonymous => (0, 0),
                Backing::Heap => (1, 0),
                Backing::Shared(object) => (2, object.into()),
                Backing::File { file, cached } => (3 + u64::from(cached), file.into()),
            };
            put(2, &[first, count, *address, kind, more]);
        }
        Event::Grow { pages } => put(3, &of(pages)),
        Event::Unmap(pages) => put(4, &of(pages)),
        Event::Advise(pages, advice) => {
            let [first, count] = of(pages);
            put(5, &[first, count, advice_number(*advice)]);
        }
        Event::Protect(pages, read_only) => {
            let [first, count] = of(pages);
            put(6, &[first, count, u64::from(*read_only)]);
        }
        Event::Fork { child, offset } => put(7, &[child.0.into(), u64::from(*offset)]),
        Event::Exit(process) => put(8, &[process.0.into()]),
        Event::Pace(pace) => put(
            9,
            &[
                pace.work.into(),
                pace.exposed_permille.into(),
                pace.weight.into(),
                pace.threads.into(),
            ],
        ),
        Event::Wait(microseconds) => put(10, &[*microseconds]),
        Event::Phase(name) => {
            put(11, &[name.len() as u64]);
            out.extend(name.as_bytes());
        }
        Event::RequestBegin => put(12, &[]),
        Event::RequestEnd => put(13, &[]),
    }
}

const ADVICE: [Advice; 6] = [
    Advice::Huge,
    Advice::NoHuge,
    Advice::Collapse,
    Advice::Populate,
    Advice::DontNeed,
    Advice::Free,
];

fn advice_number(advice: Advice) -> u64 {
    ADVICE.iter().position(|&one| one == advice).unwrap_or_default() as u64
}

/// The next event, and how far it lies behind the last one; `None` if it makes no sense.
pub fn take(bytes: &mut Bytes<'_>) -> Option<(u32, Event)> {
    let distance = bytes.varint32().filter(|&distance| distance as usize <= CHUNK)?;
    let pages = |bytes: &mut Bytes<'_>| {
        Some(Pages { first: Page(bytes.varint32()?), count: bytes.varint32()? })
    };
    let event = match bytes.u8()? {
        0 => Event::Spawn(Process(bytes.varint32()?)),
        1 => Event::Run(Process(bytes.varint32()?)),
        2 => {
            let pages = pages(bytes)?;
            let address = bytes.varint()?;
            let kind = bytes.u8()?;
            let number = bytes.varint32()?;
            let backing = match kind {
                0 => Backing::Anonymous,
                1 => Backing::Heap,
                2 => Backing::Shared(number),
                3 | 4 => Backing::File { file: number, cached: kind == 4 },
                _ => return None,
            };
            Event::Map { pages, address, backing }
        }
        3 => Event::Grow { pages: pages(bytes)? },
        4 => Event::Unmap(pages(bytes)?),
        5 => Event::Advise(pages(bytes)?, *ADVICE.get(bytes.u8()? as usize)?),
        6 => Event::Protect(pages(bytes)?, flag(bytes)?),
        7 => Event::Fork { child: Process(bytes.varint32()?), offset: bytes.varint32()? },
        8 => Event::Exit(Process(bytes.varint32()?)),
        9 => Event::Pace(Pace {
            work: bytes.varint32()?,
            exposed_permille: bytes.varint32()?.try_into().ok()?,
            weight: bytes.varint32()?,
            threads: bytes.varint32()?.try_into().ok()?,
        }),
        10 => Event::Wait(bytes.varint()?),
        11 => {
            let length = bytes.varint32().filter(|&length| length as usize <= MAX_NAME)?;
            Event::Phase(String::from_utf8(bytes.take(length as usize)?.to_vec()).ok()?)
        }
        12 => Event::RequestBegin,
        13 => Event::RequestEnd,
        _ => return None,
    };
    check(&event).ok().map(|()| (distance, event))
}

fn flag(bytes: &mut Bytes<'_>) -> Option<bool> {
    match bytes.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Whether an event by itself can be: what a reader may rely on without looking, and therefore what
/// a writer refuses to write.
///
/// # Errors
/// What is wrong with it.
pub fn check(event: &Event) -> Result<(), String> {
    if let Some(pages) = event.pages() {
        let end = u64::from(pages.first.0) + u64::from(pages.count);
        if pages.count == 0 || end > u64::from(PAGES) {
            return Err(format!("{} pages from page {}", pages.count, pages.first.0));
        }
    }
    match event {
        Event::Map { pages, address, .. }
            if address % u64::from(SLOTS) != u64::from(pages.first.slot()) =>
        {
            Err(format!(
                "page {} of a region is mapped at page number {address:#x}, which has another place \
                 in its 512 pages",
                pages.first.slot()
            ))
        }
        Event::Map { pages, address, .. } if address.checked_add(pages.count.into()).is_none() => {
            Err(format!("a mapping at page number {address:#x} goes past the end of memory"))
        }
        Event::Fork { offset, .. } if offset % SLOTS != 0 || *offset >= PAGES => {
            Err(format!("a fork's offset of {offset} is no multiple of a region"))
        }
        Event::Pace(pace)
            if pace.weight == 0 || pace.threads == 0 || pace.exposed_permille > 1000 =>
        {
            Err(format!("a pace of {pace:?}"))
        }
        Event::Phase(name) if name.len() > MAX_NAME => {
            Err(format!("a phase's name has {} bytes, more than {MAX_NAME}", name.len()))
        }
        _ => Ok(()),
    }
}
