//! The symbol table through its public interface: what is written is found again, and no bytes make the reader panic.

use proptest::prelude::*;
use symbols::build::{self, Definition, NAME_LIMIT};
use symbols::{Error, HEADER, Kind, MAGIC, Table};

const BASE: u64 = 0xffff_ffff_8020_0000;

fn code(name: &str, address: u64, size: u64) -> Definition {
    Definition { name: name.into(), address, size, kind: Kind::Code }
}

fn data(name: &str, address: u64, size: u64) -> Definition {
    Definition { kind: Kind::Data, ..code(name, address, size) }
}

/// Two functions that touch, a gap, another, and a static far above.
fn example() -> Vec<Definition> {
    vec![
        data("kernel::STACKS", BASE + 0x9000, 0x4000),
        code("_start", BASE, 0x40),
        code("kernel::main", BASE + 0x40, 0x20),
        code("kernel::frame::free", BASE + 0x80, 0x10),
    ]
}

fn exact(table: &Table, address: u64) -> Option<String> {
    table.exact(address).map(|location| location.to_string())
}

#[test]
fn an_address_is_found_in_its_symbol_from_the_first_byte_to_the_last() {
    let bytes = build::table(&example()).unwrap();
    let table = Table::new(&bytes).unwrap();
    assert_eq!(exact(&table, BASE).as_deref(), Some("_start+0x0"));
    assert_eq!(exact(&table, BASE + 0x3f).as_deref(), Some("_start+0x3f"));
    assert_eq!(exact(&table, BASE + 0x40).as_deref(), Some("kernel::main+0x0"));
    assert_eq!(exact(&table, BASE + 0x9123).as_deref(), Some("kernel::STACKS+0x123"));
    assert_eq!(table.exact(BASE + 0x9123).unwrap().symbol.kind, Kind::Data);
    assert_eq!(table.exact(BASE + 0x85).unwrap().symbol.kind, Kind::Code);
}

#[test]
fn an_address_outside_every_symbol_is_not_put_down_to_the_one_before() {
    let bytes = build::table(&example()).unwrap();
    let table = Table::new(&bytes).unwrap();
    for address in [
        0,
        1,
        BASE - 1,
        BASE + 0x60,
        BASE + 0x7f,
        BASE + 0x90,
        BASE + 0x8fff,
        BASE + 0xd000,
        u64::MAX,
    ] {
        assert_eq!(exact(&table, address), None, "{address:#x}");
    }
}

#[test]
fn a_return_address_belongs_to_the_function_of_the_call() {
    let bytes = build::table(&example()).unwrap();
    let table = Table::new(&bytes).unwrap();
    let site = |address| table.return_site(address).map(|location| location.to_string());
    // A call that never returns as the last instruction: its return address is another function's first.
    assert_eq!(site(BASE + 0x40).as_deref(), Some("_start+0x40"));
    assert_eq!(site(BASE + 0x60).as_deref(), Some("kernel::main+0x20"));
    assert_eq!(site(BASE + 0x44).as_deref(), Some("kernel::main+0x4"));
    assert_eq!(site(BASE), None);
    assert_eq!(site(0), None);
}

#[test]
fn symbols_are_found_by_name_and_by_prefix() {
    let bytes = build::table(&example()).unwrap();
    let table = Table::new(&bytes).unwrap();
    let names = |prefix| table.by_prefix(prefix).map(|symbol| symbol.name).collect::<Vec<_>>();
    assert_eq!(table.by_name("kernel::main").unwrap().address, BASE + 0x40);
    assert_eq!(table.by_name("kernel::mai"), None);
    assert_eq!(names("kernel::"), ["kernel::main", "kernel::frame::free", "kernel::STACKS"]);
    assert_eq!(names("kernel::f"), ["kernel::frame::free"]);
    assert!(names("nothing").is_empty());
}

#[test]
fn the_same_symbols_give_the_same_bytes_in_any_order() {
    let mut symbols = example();
    let bytes = build::table(&symbols).unwrap();
    symbols.reverse();
    assert_eq!(build::table(&symbols).unwrap(), bytes);
}

#[test]
fn equal_names_are_stored_once() {
    let size = |names: [&str; 2]| {
        build::table(&[code(names[0], BASE, 4), code(names[1], BASE + 4, 4)]).unwrap().len()
    };
    assert_eq!(size(["core::fmt::write", "core::fmt::writ_"]) - size(["core::fmt::write"; 2]), 16);
}

#[test]
fn a_table_that_was_never_inserted_is_an_error_of_its_own() {
    assert_eq!(Table::new(&build::placeholder()).unwrap_err(), Error::NotInserted);
}

#[test]
fn the_reader_says_what_is_wrong_with_bytes() {
    let bytes = build::table(&example()).unwrap();
    let with = |at: usize, value: u64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        Table::new(&bytes).map(|_| ()).unwrap_err()
    };
    let given = bytes.len();
    let cut = |given: usize| Table::new(&bytes[..given]).map(|_| ()).unwrap_err();
    assert_eq!(cut(15), Error::Size { said: HEADER as u64, given: 15 });
    for shorter in [16, 31, 32, given - 1] {
        assert_eq!(cut(shorter), Error::Size { said: given as u64, given: shorter });
    }
    assert_eq!(with(0, u64::from_le_bytes(*b"16OSsyms")), Error::Magic(*b"16OSsyms"));
    for said in [0, 15, 17, 31, given as u64 + 1, u64::MAX] {
        assert_eq!(with(8, said), Error::Size { said, given });
    }
    for count in [20, u64::MAX / 12 + 1, u64::MAX] {
        assert_eq!(with(24, count), Error::Count(count));
    }
}

#[test]
fn bytes_behind_the_table_are_not_its_own() {
    let mut bytes = build::table(&example()).unwrap();
    bytes.extend([0xff; 100]);
    assert_eq!(Table::new(&bytes).unwrap().symbols().count(), 4);
}

#[test]
fn the_writer_refuses_what_the_format_cannot_hold() {
    let refused = |symbols: &[Definition]| {
        let error = build::table(symbols).unwrap_err();
        assert!(symbols.contains(&error.symbol));
        error.to_string()
    };
    let (a, b) = (code("a", BASE, 8), code("b", BASE + 7, 1));
    assert_eq!(
        refused(&[b, a.clone()]),
        "b at 0xffffffff80200007, 1 bytes: the symbol before reaches into it"
    );
    assert!(refused(&[a.clone(), a]).ends_with("the symbol before reaches into it"));
    let far = code("far", 0x1_0000_0010, 1);
    assert!(
        refused(&[code("a", 0x10, 1), far.clone()])
            .ends_with("4 GiB or more behind the first symbol")
    );
    assert!(build::table(&[code("a", 0x11, 1), far]).is_ok());
    assert!(refused(&[code("empty", BASE, 0)]).ends_with("no size, or 2 GiB or more"));
    assert!(refused(&[code("large", 0x10, 1 << 31)]).ends_with("no size, or 2 GiB or more"));
    assert!(build::table(&[code("large", 0x10, (1 << 31) - 1)]).is_ok());
    assert!(refused(&[code("last", u64::MAX - 2, 3)]).ends_with("its end is no address"));
    assert!(build::table(&[code("last", u64::MAX - 3, 3)]).is_ok());
    assert!(
        refused(&[code(&"n".repeat(NAME_LIMIT + 1), BASE, 1)])
            .ends_with("its name has over 255 bytes")
    );
    assert!(build::table(&[code(&"n".repeat(NAME_LIMIT), BASE, 1)]).is_ok());
    let many: Vec<Definition> =
        (0..70_000).map(|i| code(&format!("{i:0255}"), BASE + i, 1)).collect();
    assert!(refused(&many).ends_with("over 16 MiB of names before its own"));
}

#[test]
fn a_table_of_nothing_finds_nothing() {
    let bytes = build::table(&[]).unwrap();
    let table = Table::new(&bytes).unwrap();
    assert_eq!(table.symbols().count(), 0);
    assert_eq!(exact(&table, 0), None);
}

/// Symbols in a row from [`BASE`] on, each after a gap that may be nothing.
fn any_symbols() -> impl Strategy<Value = Vec<Definition>> {
    let one = (0..100_u64, 1..5_000_u64, "[a-z<>:é]{0,40}", any::<bool>());
    prop::collection::vec(one, 0..60).prop_map(|symbols| {
        let mut end = BASE;
        let place = |(gap, size, name, is_data): (u64, u64, String, bool)| {
            let address = end + gap;
            end = address + size;
            Definition { name, address, size, kind: if is_data { Kind::Data } else { Kind::Code } }
        };
        symbols.into_iter().map(place).collect()
    })
}

/// Everything a table offers, at addresses that matter; what it gives must hold together.
fn use_all_of(table: &Table, addresses: &[u64]) {
    let starts: Vec<u64> = table.symbols().map(|symbol| symbol.address).collect();
    for address in
        starts.iter().chain(addresses).flat_map(|it| [it.wrapping_sub(1), *it, it.wrapping_add(1)])
    {
        if let Some(location) = table.exact(address) {
            assert!(location.offset < location.symbol.size);
            assert_eq!(location.symbol.address + location.offset, address);
            assert!(!location.to_string().is_empty());
        }
        if let Some(location) = table.return_site(address) {
            assert!((1..=location.symbol.size).contains(&location.offset));
            assert_eq!(location.symbol.address + location.offset, address);
        }
    }
    assert_eq!(table.by_prefix("").count(), starts.len());
    let _ = table.by_name("");
}

proptest! {
    #[test]
    fn every_symbol_is_found_at_every_address_of_its_range_and_nowhere_else(symbols in any_symbols(), probes: [u16; 32]) {
        let bytes = build::table(&symbols).unwrap();
        let table = Table::new(&bytes).unwrap();
        prop_assert_eq!(table.symbols().count(), symbols.len());
        let edges = symbols.iter().flat_map(|it| [it.address - 1, it.address, it.address + it.size - 1, it.address + it.size]);
        for address in edges.chain(probes.map(|probe| BASE + u64::from(probe))) {
            let truth = symbols.iter().find(|it| (it.address..it.address + it.size).contains(&address));
            let found = table.exact(address).map(|it| (it.symbol.name, it.symbol.size, it.symbol.kind, it.offset));
            prop_assert_eq!(found, truth.map(|it| (it.name.as_str(), it.size, it.kind, address - it.address)));
        }
    }

    #[test]
    fn a_corrupted_table_never_panics(
        symbols in any_symbols(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        keep in any::<prop::sample::Index>(),
        addresses: [u64; 4],
    ) {
        let mut bytes = build::table(&symbols).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for bytes in [&bytes[..], &bytes[..keep.index(bytes.len())]] {
            if let Ok(table) = Table::new(bytes) {
                use_all_of(&table, &addresses);
            }
        }
    }

    #[test]
    fn no_bytes_behind_a_sound_header_make_the_reader_panic(body: Vec<u8>, count in 0..20_u64, addresses: [u64; 4]) {
        let size = 32 + body.len() as u64;
        let mut bytes = MAGIC.to_vec();
        for number in [size, addresses[0], count] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(body);
        if let Ok(table) = Table::new(&bytes) {
            use_all_of(&table, &addresses);
        }
    }
}
