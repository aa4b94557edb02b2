//! The error of an invalid machine file gives the place and the allowed values; the reader panics on no text.

use proptest::prelude::*;
use superpage_machine::{Footprint, Machine, Size, names, preset_text};
use tlb_sim::{Naive, Translate};

/// Replaces the first `from` by `to`; returns the error, and the changed line.
fn error(from: &str, to: &str) -> (String, usize) {
    let text = preset_text("e3-1245v6").unwrap();
    let line = text[..text.find(from).expect(from)].lines().count() + 1;
    let error = Machine::from_toml(&text.replacen(from, to, 1), "my.toml").unwrap_err();
    (error.to_string(), line)
}

#[test]
fn errors_say_where_and_what_is_allowed() {
    // Number of lines by which the error's line is above the change; 99 matches any line.
    for (from, to, above, parts) in [
        ("mhz = 3700", "mhz = 0", 0, &["mhz", "from 1 to 20000"][..]),
        ("mhz = 3700", "mhx = 3700", 0, &["mhx", "mhz"]),
        ("mhz = 3700", "mhz = \"fast\"", 0, &["mhz", "must be a whole number"]),
        ("base-page = \"4K\"", "base-page = \"5K\"", 0, &["power of two"]),
        ("base-page = \"4K\"", "base-page = true", 0, &["a size such as"]),
        (
            "pcid = true",
            "pcid = true\nkernel-page = \"2K\"",
            99,
            &["kernel-page", "4 KiB to 1 MiB"],
        ),
        ("pcid = true", "pcid = true\nkernel-page = \"2M\"", 99, &["kernel-page", "to 1M"]),
        ("ways = 4", "ways = 5", 0, &["does not divide 64"]),
        ("ways = 4", "ways = 0", 0, &["from 1 to 64"]),
        ("pages = [\"base\"]", "pages = [\"small\"]", 0, &["small", "base", "huge"]),
        ("pages = [\"base\"]", "pages = []", 1, &["is empty", "\"base\", \"cont\""]),
        ("pages = [\"large\"]", "pages = [\"base\"]", 1, &["held by an array above"]),
        ("pages = [\"huge\"]", "pages = [\"cont\"]", 99, &["[[tlb.l2]] holds \"huge\""]),
        ("index = \"xor\"", "index = \"random\"", 0, &["random", "modulo", "xor"]),
        ("ways = 12", "ways = 96\nreplacement = \"tree-plru\"", 99, &["tree-plru", "2, 4 to 64"]),
        ("entries = 1536", "entries = 1524", 99, &["xor", "power of two", "127"]),
        ("size = \"256K\"", "size = \"16K\"", 99, &["from the smallest to the largest"]),
        ("fault-base = ", "fault-base = -", 99, &["costs.fault-base: -", "from 0 to 1000000000"]),
        ("fault-base = ", "#", 99, &["costs.fault-base: is missing"]),
        ("[walk]", "[wlak]", 99, &["wlak"]),
        (
            "walkers = 2",
            "walkers = 2\nhashed = { entry = 8, memory-part = 9 }",
            99,
            &["walk.hashed.group"],
        ),
        (
            "walkers = 2",
            "walkers = 2\nhashed = { group = 64, entry = 24, memory-part = 9 }",
            99,
            &["whole entries of 24"],
        ),
        (
            "walkers = 2",
            "walkers = 2\nlinear.handler-cycles = 1\nhashed = { group = 64, entry = 8, memory-part = 9 }",
            99,
            &["not both"],
        ),
        (
            "[walk]",
            "[independent]\ncycles = 9\nwalk = 1.5\n[walk]",
            99,
            &["independent.walk: 1.5", "from 0 to 1"],
        ),
        (
            "[walk]",
            "[[far]]\nsize = \"64M\"\nwalk = 9\nindependent = { cycles = 9, walk = 1 }\n[[far]]\nsize = \"32M\"\n\
             walk = 9\nindependent = { cycles = 9, walk = 1 }\n[walk]",
            99,
            &["go from the smallest to the largest `size`"],
        ),
        ("[walk]", "[independent]\nwalk = 1\n[walk]", 99, &["independent.cycles: is missing"]),
        ("mhz = 3700", "superpages = [\"1G\", \"2M\"]\nmhz = 3700", 99, &["ascending"]),
    ] {
        let (error, line) = error(from, to);
        if above != 99 {
            assert!(error.starts_with(&format!("my.toml:{}:", line - above)), "{to}: {error}");
        }
        for part in parts {
            assert!(error.contains(part), "{to}: {error:?} lacks {part:?}");
        }
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(\\[{1,2}[a-z.]{1,6}\\]{1,2}\n|[a-z]{1,8} = .{0,9}\n)*") {
        let _ = Machine::from_toml(&text, "fuzz.toml");
    }

    #[test]
    fn no_change_to_a_file_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        length in 0usize..12,
        insert in "[-0-9a-z\"\\[\\]=.\n{},]{0,6}",
    ) {
        let name = *which.get(&names().collect::<Vec<_>>());
        let bytes = preset_text(name).unwrap().as_bytes();
        let at = at.index(bytes.len());
        let rest = &bytes[(at + length).min(bytes.len())..];
        let changed = [&bytes[..at], insert.as_bytes(), rest].concat();
        let text = String::from_utf8_lossy(&changed);
        if let Ok(machine) = Machine::from_toml(&text, "fuzz.toml") {
            // A machine that was read can be used.
            let mut naive = Naive::new(&machine);
            for page in 0..100 {
                naive.look_up(page * 513, Size::ALL[page as usize % 4]);
            }
            let footprint = Footprint::new(1 << 20, 1 << 12, 32 << 30);
            prop_assert!(machine.walk_cycles(&naive.tally(), footprint) >= 0.0);
        }
    }
}
