//! A line of the log, read back, gives the record that was written.

use proptest::prelude::*;
use superpage_advisor::{Begin, Record};

use super::*;

fn any_word() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), any::<u64>()]
}

fn states() -> impl Strategy<Value = State> {
    proptest::array::uniform19(any_word()).prop_map(State::from_words)
}

fn actions() -> impl Strategy<Value = Action> {
    let sources = [
        Source::Losses,
        Source::Free,
        Source::Spare,
        Source::Resident,
        Source::Headroom,
        Source::Whole,
    ];
    let plain = [
        Action::Nothing,
        Action::Keep,
        Action::Release,
        Action::Join,
        Action::HandOut,
        Action::Refuse,
        Action::GiveUp,
    ];
    prop_oneof![
        (any_word(), any::<u8>(), any::<bool>())
            .prop_map(|(bytes, order, promised)| Action::Advise { bytes, order, promised }),
        (any::<u64>(), any::<u8>(), any::<bool>())
            .prop_map(|(from, order, promised)| Action::AdviseSmaller { from, order, promised }),
        (any_word(), any::<u8>(), any::<bool>())
            .prop_map(|(from, order, promised)| Action::Unadvise { from, order, promised }),
        any::<bool>().prop_map(|promised| Action::Inherit { promised }),
        (any_word(), any::<u32>()).prop_map(|(count, limit)| Action::Probe { count, limit }),
        any::<u32>().prop_map(|most| Action::Populate { most }),
        any_word().prop_map(|count| Action::Obtain { count }),
        (any::<u8>(), any::<bool>()).prop_map(|(order, is_copy)| {
            if is_copy { Action::Copy { order } } else { Action::Collapse { order } }
        }),
        any_word().prop_map(|bytes| Action::Wait { bytes }),
        proptest::sample::select(sources.to_vec()).prop_map(Action::Read),
        proptest::sample::select(plain.to_vec()),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let results = prop_oneof![
        any::<u32>().prop_map(|pages| Outcome::Done { pages }),
        Just(Outcome::Nothing),
        Just(Outcome::Unfit),
        Just(Outcome::NoMemory),
        Just(Outcome::Unavailable),
    ];
    let plain = [
        Event::Mapped,
        Event::Loaded,
        Event::Grew,
        Event::Moves,
        Event::NoPoolPage,
        Event::Ready,
        Event::Wanted,
        Event::PassedBy,
        Event::Unmapped,
        Event::Claimed,
        Event::Pressure,
        Event::Shown,
        Event::Ended,
    ];
    let outcomes = (actions(), results, any::<u32>())
        .prop_map(|(action, result, cost)| Event::Outcome { action, result, cost });
    prop_oneof![outcomes, proptest::sample::select(plain.to_vec())]
}

fn facts() -> impl Strategy<Value = Facts> {
    let uses = [Use::Fresh, Use::Reserved, Use::Old, Use::Unmapped];
    let kinds = [
        Kind::Whole,
        Kind::Mapping,
        Kind::Heap,
        Kind::Stack,
        Kind::Region,
        Kind::Joined,
        Kind::Copy,
        Kind::Segment,
        Kind::Bss,
        Kind::File,
    ];
    let fallbacks = [Fallback::Base, Fallback::Refuse, Fallback::Advise];
    let words = proptest::array::uniform18(any_word());
    let unknown = proptest::array::uniform5(proptest::option::of(any_word()));
    let bits = proptest::array::uniform11(any::<bool>());
    (words, unknown, bits, 0usize..4, 0usize..9, 0usize..3).prop_map(
        move |(words, unknown, bits, used, kind, fallback)| Facts {
            superpage: words[0],
            base_page: words[1],
            is_sealed: bits[0],
            length: words[2],
            offset: words[3],
            kind: kinds[kind],
            used: uses[used],
            fallback: fallbacks[fallback],
            old: words[4],
            advised: words[5],
            is_filled: bits[1],
            is_off: bits[7],
            has_file: bits[8],
            may_copy: bits[9],
            compacts: bits[2],
            has_larger: bits[3],
            total: words[6],
            contiguous: unknown[0],
            free: words[7],
            outstanding: words[8],
            reclaimable: unknown[1],
            smaller: words[15],
            contiguous_smaller: words[16],
            has_supply: bits[10],
            obtained: unknown[4],
            stalls: words[9],
            fallbacks: words[10],
            faults: words[11],
            resident: unknown[2],
            headroom: unknown[3],
            is_unlimited: bits[4],
            is_whole: bits[5],
            prepared: words[12],
            kept: words[13],
            has_fitting: bits[6],
            born: words[14],
        },
    )
}

proptest! {
    #[test]
    fn a_state_is_its_words(state in states()) {
        prop_assert_eq!(State::from_words(state.to_words()), state);
    }

    #[test]
    fn a_decision_is_read_as_it_was_written(
        (pid, seq) in any::<(u64, u64)>(),
        state in proptest::option::of(states()),
        event in events(),
        facts in facts(),
        action in actions(),
    ) {
        let record = Record { pid, seq, state, event, facts, action };
        let line = record.to_string();
        // A line of this length fits into the runtime's buffer (`executor::log`).
        prop_assert!(line.len() < 2048);
        prop_assert!(line.parse::<Begin>().is_err());
        prop_assert_eq!(line.parse::<Record>(), Ok(record));
    }

    #[test]
    fn a_beginning_is_read_as_it_was_written(
        (pid, seq) in any::<(u64, u64)>(),
        state in states(),
        pages in 0usize..4,
        (prezero, prefault) in (any_word(), any_word()),
    ) {
        let pages = [Pages::Base, Pages::Superpage, Pages::Smaller, Pages::Pool][pages];
        let begin = Begin { pid, seq, policy: Advisor { request: Request { pages, prezero, prefault }, state } };
        prop_assert!(begin.to_string().parse::<Record>().is_err());
        prop_assert_eq!(begin.to_string().parse::<Begin>(), Ok(begin));
    }

    #[test]
    fn what_is_cut_off_is_not_understood(event in events(), facts in facts(), action in actions(), at in any::<prop::sample::Index>()) {
        let line = Record { pid: 1, seq: 2, state: None, event, facts, action }.to_string();
        let cut = &line[..at.index(line.rfind(' ').expect("words"))];
        prop_assert!(cut.parse::<Record>().is_err(), "{}", cut);
        let more = format!("{line} more");
        prop_assert!(more.parse::<Record>().is_err());
    }

    #[test]
    fn any_text_is_read_to_its_end(text in "(on|begin) [0-9]{1,3} seq=[0-9]{0,3} [a-z:=,>0-9 -]{0,80}") {
        let _ = (text.parse::<Record>(), text.parse::<Begin>());
    }
}
