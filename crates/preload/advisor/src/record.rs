//! The decision log, as lines of text: first the initial state, then for each decision the event, the facts and the
//! action. Lines are written without allocation. The replay parses them.
//!
//! ```text
//! begin 4711 seq=0 pages=1 state=0,0,9223372036854775807,...
//! on 4711 seq=0 mapped superpage=2097152 base_page=4096 length=268435456 kind=1 compacts=1 -> read:free
//! on 4711 seq=1 outcome read:free done:0 0 superpage=2097152 ... contiguous=8589934592 -> advise:268435456:9:1
//! ```
//!
//! `seq` numbers the states of a process; decisions that leave the state unchanged do not increment it. Facts that
//! are 0 or unknown are omitted.

use core::fmt::{self, Display, Formatter};
use core::str::FromStr;

use crate::{Action, Outcome};
use crate::{Advisor, Event, Facts, Fallback, Kind, Pages, Request, Source, State, Use};

/// A process starts, or continues as a copy of its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Process ID.
    pub pid: u64,
    /// Number of the state.
    pub seq: u64,
    /// The request and the state.
    pub policy: Advisor,
}

/// A decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Process ID.
    pub pid: u64,
    /// Number of the state that decided.
    pub seq: u64,
    /// The state, if it has no number: another thread was changing it at that moment.
    pub state: Option<State>,
    /// The event.
    pub event: Event,
    /// The facts.
    pub facts: Facts,
    /// The action.
    pub action: Action,
}

/// A line that is truncated or not part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unread;

/// A value that a line writes as a number; `None`: the line omits the value.
trait Word: Sized {
    fn word(self) -> Option<u64>;
    fn from_word(word: u64) -> Option<Self>;
}

impl Word for u64 {
    fn word(self) -> Option<u64> {
        (self != 0).then_some(self)
    }
    fn from_word(word: u64) -> Option<Self> {
        Some(word)
    }
}

impl Word for Option<u64> {
    fn word(self) -> Option<u64> {
        self
    }
    fn from_word(word: u64) -> Option<Self> {
        Some(Some(word))
    }
}

impl Word for bool {
    fn word(self) -> Option<u64> {
        self.then_some(1)
    }
    fn from_word(word: u64) -> Option<Self> {
        (word <= 1).then_some(word == 1)
    }
}

/// Encodes a value as its index in this list.
macro_rules! words {
    ($($type:ty: $($value:expr),*;)*) => { $(impl Word for $type {
        fn word(self) -> Option<u64> {
            let all = [$($value),*];
            all.iter().position(|it| *it == self).map(|at| at as u64).filter(|at| *at > 0)
        }
        fn from_word(word: u64) -> Option<Self> {
            [$($value),*].get(usize::try_from(word).ok()?).copied()
        }
    })* };
}
words! {
    Kind: Kind::Whole, Kind::Mapping, Kind::Heap, Kind::Stack, Kind::Region, Kind::Joined, Kind::Copy, Kind::Segment,
        Kind::Bss, Kind::File;
    Use: Use::Fresh, Use::Reserved, Use::Old, Use::Unmapped;
    Pages: Pages::Base, Pages::Superpage, Pages::Smaller, Pages::Pool;
    Fallback: Fallback::Base, Fallback::Refuse, Fallback::Advise;
}

/// Writes and parses fields as `name=number`.
macro_rules! fields {
    ($type:ty: $($field:ident),* $(,)?) => {
        impl $type {
            fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
                $(if let Some(word) = self.$field.word() {
                    write!(f, concat!(" ", stringify!($field), "={}"), word)?;
                })*
                Ok(())
            }

            fn set(&mut self, name: &str, word: u64) -> Option<()> {
                match name {
                    $(stringify!($field) => self.$field = Word::from_word(word)?,)*
                    _ => return None,
                }
                Some(())
            }
        }
    };
}
fields! { Request: pages, prezero, prefault }
fields! {
    Facts: superpage, base_page, is_sealed, length, offset, kind, used, fallback, old, advised, is_filled, is_off,
    has_file, may_copy, compacts, has_larger,
    total, contiguous, free, outstanding, reclaimable, smaller, contiguous_smaller, has_supply, obtained, stalls, fallbacks, faults, resident, headroom, is_unlimited,
    is_whole, prepared, kept, has_fitting, born,
}

const SOURCES: [(&str, Source); 6] = [
    ("losses", Source::Losses),
    ("free", Source::Free),
    ("spare", Source::Spare),
    ("resident", Source::Resident),
    ("headroom", Source::Headroom),
    ("whole", Source::Whole),
];
const EVENTS: [(&str, Event); 13] = [
    ("mapped", Event::Mapped),
    ("loaded", Event::Loaded),
    ("grew", Event::Grew),
    ("moves", Event::Moves),
    ("no-pool-page", Event::NoPoolPage),
    ("ready", Event::Ready),
    ("wanted", Event::Wanted),
    ("passed-by", Event::PassedBy),
    ("unmapped", Event::Unmapped),
    ("claimed", Event::Claimed),
    ("pressure", Event::Pressure),
    ("shown", Event::Shown),
    ("ended", Event::Ended),
];
const ACTIONS: [(&str, Action); 7] = [
    ("nothing", Action::Nothing),
    ("keep", Action::Keep),
    ("release", Action::Release),
    ("join", Action::Join),
    ("hand-out", Action::HandOut),
    ("refuse", Action::Refuse),
    ("give-up", Action::GiveUp),
];
const RESULTS: [(&str, Outcome); 4] = [
    ("nothing", Outcome::Nothing),
    ("unfit", Outcome::Unfit),
    ("no-memory", Outcome::NoMemory),
    ("unavailable", Outcome::Unavailable),
];

fn named<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(it, _)| *it == name).map(|(_, value)| *value)
}

fn name_of<T: PartialEq>(list: &[(&'static str, T)], value: T) -> &'static str {
    list.iter().find(|(_, it)| *it == value).map_or("?", |(name, _)| name)
}

struct Written<T>(T);

impl Display for Written<Action> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Action::Advise { bytes, order, promised } => {
                write!(f, "advise:{bytes}:{order}:{}", u8::from(promised))
            }
            Action::AdviseSmaller { from, order, promised } => {
                write!(f, "advise-smaller:{from}:{order}:{}", u8::from(promised))
            }
            Action::Unadvise { from, order, promised } => {
                write!(f, "unadvise:{from}:{order}:{}", u8::from(promised))
            }
            Action::Inherit { promised } => write!(f, "inherit:{}", u8::from(promised)),
            Action::Probe { count, limit } => write!(f, "probe:{count}:{limit}"),
            Action::Obtain { count } => write!(f, "obtain:{count}"),
            Action::Collapse { order } => {
                write!(f, "collapse:{order}")
            }
            Action::Copy { order } => write!(f, "copy:{order}"),
            Action::Populate { most } => write!(f, "populate:{most}"),
            Action::Read(source) => write!(f, "read:{}", name_of(&SOURCES, source)),
            Action::Wait { bytes } => write!(f, "wait:{bytes}"),
            action => f.write_str(name_of(&ACTIONS, action)),
        }
    }
}

impl Display for Written<Event> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Event::Outcome { action, result, cost } = self.0 else {
            return f.write_str(name_of(&EVENTS, self.0));
        };
        write!(f, "outcome {} ", Written(action))?;
        match result {
            Outcome::Done { pages } => write!(f, "done:{pages}")?,
            result => f.write_str(name_of(&RESULTS, result))?,
        }
        write!(f, " {cost}")
    }
}

impl Display for Written<State> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(" state=")?;
        for (at, word) in self.0.to_words().iter().enumerate() {
            write!(f, "{}{word}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl Display for Begin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "begin {} seq={}", self.pid, self.seq)?;
        self.policy.request.write(f)?;
        write!(f, "{}", Written(self.policy.state))
    }
}

impl Display for Record {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "on {} seq={} {}", self.pid, self.seq, Written(self.event))?;
        self.facts.write(f)?;
        if let Some(state) = self.state {
            write!(f, "{}", Written(state))?;
        }
        write!(f, " -> {}", Written(self.action))
    }
}

fn state(text: &str) -> Option<State> {
    let mut words = [0; State::WORDS];
    let mut from = text.split(',');
    for word in &mut words {
        *word = from.next()?.parse().ok()?;
    }
    from.next().is_none().then(|| State::from_words(words))
}

fn action(text: &str) -> Option<Action> {
    let mut words = text.split(':');
    let name = words.next()?;
    if let Some(action) = named(&ACTIONS, name) {
        return words.next().is_none().then_some(action);
    }
    let first = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let is = |word: u64| (word <= 1).then_some(word == 1);
    let action = match name {
        "read" => Action::Read(named(&SOURCES, first)?),
        "advise" => Action::Advise {
            bytes: first.parse().ok()?,
            order: number()?.try_into().ok()?,
            promised: is(number()?)?,
        },
        "advise-smaller" => Action::AdviseSmaller {
            from: first.parse().ok()?,
            order: number()?.try_into().ok()?,
            promised: is(number()?)?,
        },
        "unadvise" => Action::Unadvise {
            from: first.parse().ok()?,
            order: number()?.try_into().ok()?,
            promised: is(number()?)?,
        },
        "inherit" => Action::Inherit { promised: is(first.parse().ok()?)? },
        "probe" => Action::Probe { count: first.parse().ok()?, limit: number()?.try_into().ok()? },
        "obtain" => Action::Obtain { count: first.parse().ok()? },
        "collapse" => Action::Collapse { order: first.parse().ok()? },
        "copy" => Action::Copy { order: first.parse().ok()? },
        "populate" => Action::Populate { most: first.parse().ok()? },
        "wait" => Action::Wait { bytes: first.parse().ok()? },
        _ => return None,
    };
    words.next().is_none().then_some(action)
}

fn result(text: &str) -> Option<Outcome> {
    match text.strip_prefix("done:") {
        Some(pages) => Some(Outcome::Done { pages: pages.parse().ok()? }),
        None => named(&RESULTS, text),
    }
}

type Words<'a> = core::str::SplitWhitespace<'a>;

/// Parses `begin 4711 seq=0`; returns both numbers.
fn head(words: &mut Words<'_>, kind: &str) -> Option<(u64, u64)> {
    (words.next()? == kind).then_some(())?;
    let pid = words.next()?.parse().ok()?;
    Some((pid, words.next()?.strip_prefix("seq=")?.parse().ok()?))
}

fn begin(text: &str) -> Option<Begin> {
    let words = &mut text.split_whitespace();
    let (pid, seq) = head(words, "begin")?;
    let mut request = Request { pages: Pages::Base, prezero: 0, prefault: 0 };
    for word in words.by_ref() {
        match word.split_once('=')? {
            ("state", text) => {
                let policy = Advisor { request, state: state(text)? };
                return words.next().is_none().then_some(Begin { pid, seq, policy });
            }
            (name, value) => request.set(name, value.parse().ok()?)?,
        }
    }
    None
}

fn record(text: &str) -> Option<Record> {
    let words = &mut text.split_whitespace();
    let (pid, seq) = head(words, "on")?;
    let event = match words.next()? {
        "outcome" => Event::Outcome {
            action: action(words.next()?)?,
            result: result(words.next()?)?,
            cost: words.next()?.parse().ok()?,
        },
        name => named(&EVENTS, name)?,
    };
    let (mut facts, mut given) = (Facts::default(), None);
    loop {
        let word = words.next()?;
        if word == "->" {
            let action = action(words.next()?)?;
            let record = Record { pid, seq, state: given, event, facts, action };
            return words.next().is_none().then_some(record);
        }
        match word.split_once('=')? {
            ("state", text) => given = Some(state(text)?),
            (name, value) => facts.set(name, value.parse().ok()?)?,
        }
    }
}

impl FromStr for Begin {
    type Err = Unread;

    fn from_str(line: &str) -> Result<Self, Unread> {
        begin(line).ok_or(Unread)
    }
}

impl FromStr for Record {
    type Err = Unread;

    fn from_str(line: &str) -> Result<Self, Unread> {
        record(line).ok_or(Unread)
    }
}
