//! What the types refuse, what an entry means, which fence is owed, and what is said when something is refused.

mod common;

use std::convert::Infallible;

use common::{
    Bits, GIGAPAGE, MEGAPAGE, Machine, NoFrame, PAGE, SPACE, address, cases_divided_by, take_apart,
};
use paging::{
    AddressSpace, Entry, Error, Fence, FrameNumber, Harts, NotPages, Owed, Pages, Rights,
    VirtualAddress,
};
use proptest::prelude::*;

const UPPER: usize = 0xffff_ffc0_0000_0000;

fn pages(position: usize, count: usize) -> Pages {
    Pages::new(address(position), count * PAGE).unwrap()
}

fn close(space: &mut AddressSpace<&Machine>, owed: Owed) {
    let settled = owed.settle(|_, _| Ok::<(), Infallible>(())).unwrap();
    space.close(settled, |_| ());
}

fn demand(owed: Owed) -> (Fence, Harts) {
    owed.settle(|fence, harts| Err((fence, harts))).unwrap_err().1
}

#[test]
fn only_canonical_addresses_are_virtual() {
    for canonical in [0, 1, 0x3f_ffff_ffff, UPPER, usize::MAX] {
        assert_eq!(VirtualAddress::new(canonical).map(VirtualAddress::value), Some(canonical));
    }
    for other in [0x40_0000_0000, UPPER - 1, 1 << 63, 0x7fff_ffff_ffff_ffff, UPPER & !(1 << 45)] {
        assert_eq!(VirtualAddress::new(other), None, "{other:#x}");
    }
    assert_eq!(address(SPACE - 1).checked_add(1), None);
    assert_eq!(address(SPACE / 2 - 1).checked_add(1), None);
    assert_eq!(address(0).checked_add(PAGE), Some(address(PAGE)));
}

#[test]
fn pages_are_whole_and_of_one_half() {
    let upper = address(SPACE / 2);
    for (start, size) in [
        (upper, 0),
        (upper, PAGE + 1),
        (upper, PAGE / 2),
        (address(SPACE / 2 + 8), PAGE),
        (upper, SPACE / 2 + PAGE),
        (address(SPACE - PAGE), 2 * PAGE),
        (address(SPACE / 2 - PAGE), 2 * PAGE),
        (address(PAGE), 0_usize.wrapping_sub(2 * PAGE)),
        (address(PAGE), 0_usize.wrapping_sub(PAGE)),
    ] {
        assert_eq!(Pages::new(start, size), Err(NotPages(start, size)));
    }
    let all = Pages::new(upper, SPACE / 2).unwrap();
    assert_eq!((all.start(), all.size(), all.count()), (upper, SPACE / 2, SPACE / 2 / PAGE));
    assert!(Pages::new(address(0), SPACE / 2).is_ok());
    let last = Pages::new(address(SPACE - 2 * PAGE), 2 * PAGE).unwrap();
    let addresses: Vec<_> = last.addresses().map(VirtualAddress::value).collect();
    assert_eq!(addresses, [0_usize.wrapping_sub(2 * PAGE), 0_usize.wrapping_sub(PAGE)]);
}

proptest! {
    #![proptest_config(cases_divided_by(1))]

    #[test]
    fn entries_mean_what_harts_read(low in 0..1024_usize, frame in any::<u64>(), shift in 10..64_u32) {
        let bits = (frame as usize) << shift | low;
        let entry = Entry::decode(bits);
        prop_assert_eq!(entry.encode(), bits);
        match (entry, take_apart(bits, 1)) {
            (Entry::Table { frame, live: true }, found) => prop_assert_eq!(found, Bits::Pointer(frame.0)),
            (Entry::Leaf { frame, rights, live: true }, found) => {
                let (write, execute) = (rights == Rights::ReadWrite, rights == Rights::ReadExecute);
                // Whether a large leaf is aligned is not said by the entry alone.
                let expected = Bits::Leaf { frame: frame.0, write, execute };
                prop_assert_eq!(take_apart(bits, 0), expected);
                prop_assert!(found == expected || !frame.0.is_multiple_of(512));
            }
            (Entry::Malformed(_), found) => {
                // Harts may see more in it than is ever written: a page of the user's, global or software bits.
                prop_assert!(found == Bits::Invalid || low & 0b11_0011_0000 != 0 || low & 0b1110 != 0);
                prop_assert!(bits != 0);
            }
            (Entry::Empty | Entry::Table { .. } | Entry::Leaf { .. }, found) => {
                prop_assert_eq!(found, Bits::Invalid);
            }
        }
    }
}

#[test]
fn no_entry_is_writable_and_executable() {
    for low in 0..1024 {
        let (valid, write, execute) = (low & 1 != 0, low & 4 != 0, low & 8 != 0);
        if valid && write && execute {
            assert_eq!(Entry::decode(low), Entry::Malformed(low));
        }
    }
    let leaf = |rights| Entry::Leaf { frame: FrameNumber(0x80200), rights, live: true }.encode();
    assert_eq!(leaf(Rights::Read), 0x2008_0000 | 0b0100_0011);
    assert_eq!(leaf(Rights::ReadWrite), 0x2008_0000 | 0b1100_0111);
    assert_eq!(leaf(Rights::ReadExecute), 0x2008_0000 | 0b0100_1011);
}

#[test]
fn reserved_bits_are_malformed() {
    let leaf = Entry::Leaf { frame: FrameNumber(1), rights: Rights::Read, live: true }.encode();
    for bit in [4, 5, 7, 8, 9, 54, 60, 61, 62, 63] {
        assert_eq!(Entry::decode(leaf | 1 << bit), Entry::Malformed(leaf | 1 << bit), "bit {bit}");
    }
    let pointer = Entry::Table { frame: FrameNumber(1), live: true }.encode();
    for bit in [4, 5, 6, 7, 8, 9, 54, 60, 61, 62, 63] {
        assert_eq!(Entry::decode(pointer | 1 << bit), Entry::Malformed(pointer | 1 << bit));
    }
}

#[test]
fn a_refusal_names_the_address_and_what_is_there() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    let owed =
        space.map(pages(SPACE / 2 + MEGAPAGE, 512), FrameNumber(0x80200), Rights::ReadExecute);
    close(&mut space, owed.unwrap());

    let below = pages(SPACE / 2 + MEGAPAGE - PAGE, 2);
    let refused = space.map(below, FrameNumber(7), Rights::Read).unwrap_err();
    let Error::Occupied(step) = refused else { panic!("{refused:?}") };
    let leaf = Entry::Leaf { frame: FrameNumber(0x80200), rights: Rights::ReadExecute, live: true };
    assert_eq!((step.address, step.level, step.entry), (address(SPACE / 2 + MEGAPAGE), 1, leaf));
    assert_eq!(
        refused.to_string(),
        "at 0xffffffc000200000 there is already a page R-X at 0x80200000"
    );

    let hole = Error::<NoFrame>::Hole(address(SPACE / 2 + MEGAPAGE - PAGE));
    assert_eq!(space.unmap(below).unwrap_err(), hole);
    assert_eq!(space.protect(below, Rights::Read).unwrap_err(), hole);
    assert_eq!(hole.to_string(), "nothing is mapped at 0xffffffc0001ff000");

    let highest = FrameNumber((1 << 44) - 1);
    let there = pages(SPACE / 2, 2);
    let refused = space.map(there, highest, Rights::Read).unwrap_err();
    assert_eq!(refused, Error::TooHigh(highest, 2));
    let overflows = FrameNumber(usize::MAX);
    let refused = space.map(there, overflows, Rights::Read).unwrap_err();
    assert_eq!(refused, Error::TooHigh(overflows, 2));
    assert!(space.map(pages(SPACE / 2, 1), highest, Rights::Read).is_ok());

    machine.set_budget(Some(0));
    let refused = space.map(pages(0, 1), FrameNumber(0), Rights::Read).unwrap_err();
    assert_eq!(refused, Error::NoTable(NoFrame));
    assert_eq!(refused.to_string(), "no memory for a page table: no frame is free");
    assert_eq!(AddressSpace::new(&machine).err(), Some(NoFrame));
}

#[test]
fn what_is_unmapped_is_not_used_again_before_its_fence() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    let owed = space.map(pages(0, 3), FrameNumber(5), Rights::ReadWrite).unwrap();
    close(&mut space, owed);
    let owed = space.unmap(pages(PAGE, 1)).unwrap();

    let refused = space.map(pages(PAGE, 1), FrameNumber(9), Rights::Read).unwrap_err();
    let Error::Occupied(step) = refused else { panic!("{refused:?}") };
    let retired = Entry::Leaf { frame: FrameNumber(6), rights: Rights::ReadWrite, live: false };
    assert_eq!(step.entry, retired);
    assert_eq!(step.mapping(), None);
    assert_eq!(step.entry.to_string(), "retired page RW- at 0x6000");
    assert_eq!(space.unmap(pages(PAGE, 1)).unwrap_err(), Error::Hole(address(PAGE)));

    // A fence that fails leaves everything as it is, and can be tried again.
    let (owed, error) = owed.settle(|_, _| Err("the firmware fails")).unwrap_err();
    assert_eq!(error, "the firmware fails");
    assert!(space.map(pages(PAGE, 1), FrameNumber(9), Rights::Read).is_err());
    let mut given = Vec::new();
    let settled = owed.settle(|_, _| Ok::<(), ()>(())).unwrap();
    space.close(settled, |mapping| given.push((mapping.pages, mapping.frame, mapping.rights)));
    assert_eq!(given, [(pages(PAGE, 1), FrameNumber(6), Rights::ReadWrite)]);
    assert!(space.map(pages(PAGE, 1), FrameNumber(9), Rights::Read).is_ok());
}

#[test]
fn several_changes_are_settled_by_one_fence_of_everything() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    let owed = space.map(pages(0, 4), FrameNumber(5), Rights::ReadWrite).unwrap();
    close(&mut space, owed);
    let owed = [0, 2].map(|page| space.unmap(pages(page * PAGE, 1)).unwrap());
    let mut here = Vec::new();
    owed.iter().for_each(|owed| owed.settle_here(|fence| here.push(fence)));
    assert_eq!(here, [Fence::Pages(pages(0, 1)), Fence::Pages(pages(2 * PAGE, 1))]);
    assert!(space.map(pages(0, 1), FrameNumber(9), Rights::Read).is_err(), "the debt stays");

    let mut fences = Vec::new();
    let settled = Owed::settle_all(owed, |fence, harts| {
        fences.push((fence, harts));
        Ok::<(), ()>(())
    });
    let mut given = Vec::new();
    for settled in settled.unwrap() {
        space.close(settled, |mapping| given.push(mapping.frame));
    }
    assert_eq!(fences, [(Fence::Everything, Harts::All)]);
    assert_eq!(given, [FrameNumber(5), FrameNumber(7)]);
    assert!(space.map(pages(0, 1), FrameNumber(9), Rights::Read).is_ok());
}

#[test]
fn pages_are_fenced_one_by_one_where_only_leaves_changed() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    // Tables are linked: everything, everywhere.
    let owed = space.map(pages(0, 1), FrameNumber(5), Rights::ReadWrite).unwrap();
    // Until that is done every fence must be as large; but an entry that becomes valid concerns this hart alone.
    let debt = space.map(pages(PAGE, 1), FrameNumber(6), Rights::Read).unwrap();
    assert_eq!(demand(debt), (Fence::Everything, Harts::This));
    close(&mut space, owed);
    // From then on leaves alone are changed.
    let debt = space.map(pages(2 * PAGE, 64), FrameNumber(7), Rights::Read).unwrap();
    assert_eq!(demand(debt), (Fence::Pages(pages(2 * PAGE, 64)), Harts::This));
    let debt = space.protect(pages(0, 2), Rights::Read).unwrap();
    assert_eq!(demand(debt), (Fence::Pages(pages(0, 2)), Harts::All));
    let debt = space.unmap(pages(PAGE, 3)).unwrap();
    assert_eq!(demand(debt), (Fence::Pages(pages(PAGE, 3)), Harts::All));
    // Many pages: everything, and still only here.
    let debt = space.map(pages(100 * PAGE, 65), FrameNumber(700), Rights::Read).unwrap();
    assert_eq!(demand(debt), (Fence::Everything, Harts::This));
    // One large leaf needs no table.
    let debt = space.map(pages(MEGAPAGE, 512), FrameNumber(512), Rights::Read).unwrap();
    assert_eq!(demand(debt), (Fence::Everything, Harts::This));
    // A table takes a leaf's place; a table is unlinked.
    let debt = space.protect(pages(MEGAPAGE + PAGE, 1), Rights::ReadExecute).unwrap();
    assert_eq!(demand(debt), (Fence::Everything, Harts::All));
    let mut other = AddressSpace::new(&machine).unwrap();
    let owed = other.map(pages(0, 1), FrameNumber(5), Rights::Read).unwrap();
    close(&mut other, owed);
    assert_eq!(other.table_pages(), 3);
    let owed = other.unmap(pages(0, 1)).unwrap();
    assert_eq!(other.table_pages(), 3, "tables are kept until the fence is done");
    let (owed, demand) = owed.settle(|fence, harts| Err((fence, harts))).unwrap_err();
    assert_eq!(demand, (Fence::Everything, Harts::All));
    close(&mut other, owed);
    assert_eq!(other.table_pages(), 1);
}

#[test]
fn a_walk_shows_each_level() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    let start = SPACE - GIGAPAGE;
    let owed = space.map(pages(start, 3), FrameNumber(5), Rights::ReadWrite).unwrap();
    close(&mut space, owed);
    let steps: Vec<_> = space.view().walk(address(start + 2 * PAGE)).collect();
    let levels: Vec<_> = steps.iter().map(|step| (step.level, step.index)).collect();
    assert_eq!(levels, [(2, 511), (1, 0), (0, 2)]);
    assert_eq!(steps[0].table, space.root());
    assert_eq!(steps[0].entry, Entry::Table { frame: steps[1].table, live: true });
    assert_eq!(steps[1].entry, Entry::Table { frame: steps[2].table, live: true });
    let mapping = steps[2].mapping().unwrap();
    assert_eq!((mapping.pages, mapping.frame), (pages(start + 2 * PAGE, 1), FrameNumber(7)));
    assert_eq!(space.view().walk(address(0)).count(), 1);
    assert_eq!(space.view().lookup(address(0)).entry, Entry::Empty);
    assert_eq!(Entry::Empty.to_string(), "nothing");
    assert_eq!(steps[2].entry.to_string(), "page RW- at 0x7000");
}

#[test]
fn only_what_goes_on_in_pages_frames_and_rights_is_joined() {
    let machine = Machine::new();
    let mut space = AddressSpace::new(&machine).unwrap();
    let last = SPACE / 2 - PAGE;
    for (position, frame, rights) in [
        (0, 5, Rights::Read),
        // Goes on.
        (PAGE, 6, Rights::Read),
        // Other frames.
        (2 * PAGE, 9, Rights::Read),
        // The next frame, after a gap.
        (4 * PAGE, 10, Rights::Read),
        // Other rights.
        (5 * PAGE, 11, Rights::ReadWrite),
        // The next frame, in the other half.
        (last, 20, Rights::ReadExecute),
        (last + PAGE, 21, Rights::ReadExecute),
    ] {
        let owed = space.map(pages(position, 1), FrameNumber(frame), rights).unwrap();
        close(&mut space, owed);
    }
    let mappings = space.view().mappings();
    let mappings: Vec<_> = mappings.map(|m| (m.pages, m.frame.0, m.rights)).collect();
    let expected = [
        (pages(0, 2), 5, Rights::Read),
        (pages(2 * PAGE, 1), 9, Rights::Read),
        (pages(4 * PAGE, 1), 10, Rights::Read),
        (pages(5 * PAGE, 1), 11, Rights::ReadWrite),
        (pages(last, 1), 20, Rights::ReadExecute),
        (pages(last + PAGE, 1), 21, Rights::ReadExecute),
    ];
    assert_eq!(mappings, expected);
}
