//! The kernel's own address space, and memory in layers: mapped exactly, with as few tables as can be.

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;

use common::{Found, GIGAPAGE, MEGAPAGE, Machine, PAGE, SPACE, address, cases_divided_by};
use paging::{AddressSpace, FrameNumber, FrameRange, Layer, Pages, Rights, stretches};
use proptest::prelude::*;

const DIRECT_MAP: usize = SPACE / 2;
const DEVICES: usize = SPACE / 2 + 128 * GIGAPAGE;
const STACKS: usize = SPACE - 64 * GIGAPAGE;
const IMAGE: usize = SPACE - 2 * GIGAPAGE + MEGAPAGE;

fn frames(bytes: std::ops::Range<usize>) -> FrameRange {
    FrameRange::touching(bytes)
}

fn map(space: &mut AddressSpace<&Machine>, position: usize, frames: FrameRange, rights: Rights) {
    let size = (frames.end.0 - frames.start.0) * PAGE;
    let pages = Pages::new(address(position), size).unwrap();
    let owed = space.map(pages, frames.start, rights).unwrap();
    let settled = owed.settle(|_, _| Ok::<(), Infallible>(())).unwrap();
    space.close(settled, |_| ());
}

/// Whether the table could be a leaf in its parent, or be left out.
fn is_needless(machine: &Machine, table: usize, span: usize) -> bool {
    let first = machine.peek(table, 0);
    let aligned = (first >> 10 << 12).is_multiple_of(512 * span);
    (0..512).all(|index| machine.peek(table, index) == 0)
        || aligned
            && first & 0b1110 != 0
            && (0..512).all(|i| machine.peek(table, i) == first + ((i * span / PAGE) << 10))
}

fn assert_few_tables(machine: &Machine, space: &AddressSpace<&Machine>) {
    let mut tables = 1;
    let pointers = |table: usize| {
        (0..512).map(move |index| machine.peek(table, index)).filter(|bits| bits & 0xf == 1)
    };
    for middle in pointers(space.root().0).map(|bits| bits >> 10) {
        tables += 1;
        assert!(!is_needless(machine, middle, MEGAPAGE));
        for lowest in pointers(middle).map(|bits| bits >> 10) {
            tables += 1;
            assert!(!is_needless(machine, lowest, PAGE));
        }
    }
    assert_eq!(tables, space.table_pages());
}

/// A machine as QEMU's virt has it, with the kernel at 2 MiB.
fn kernel(machine: &Machine, memory: usize) -> AddressSpace<&Machine> {
    let mut space = AddressSpace::new(machine).unwrap();
    let ram = 0x8000_0000;
    let (text, rodata, data, symbols, end) =
        (0x8020_0000, 0x8022_1000, 0x8022_f000, 0x8028_a000, 0x8029_c000);
    let image_to_physical = |position: usize| position - IMAGE + text;
    let sections = [
        (text..rodata, Rights::ReadExecute),
        (rodata..data, Rights::Read),
        (data..symbols, Rights::ReadWrite),
        (symbols..end, Rights::Read),
    ];
    // Below every boot stack a frame that is nowhere mapped.
    let guards: Vec<usize> = (0..16).map(|stack| data + 0x8000 + stack * 5 * PAGE).collect();

    let mut layers =
        vec![Layer { frames: frames(ram..ram + memory), rights: Some(Rights::ReadWrite) }];
    layers.push(Layer { frames: frames(ram..ram + 0x6_0000), rights: None });
    for (section, rights) in &sections {
        // Executable at one address is enough.
        let rights = if *rights == Rights::ReadWrite { Rights::ReadWrite } else { Rights::Read };
        layers.push(Layer { frames: frames(section.clone()), rights: Some(rights) });
    }
    let tree = ram + memory - 0x20_0000;
    layers.push(Layer { frames: frames(tree..tree + 0x2000), rights: Some(Rights::Read) });
    for &guard in &guards {
        layers.push(Layer { frames: frames(guard..guard + PAGE), rights: None });
    }
    for (frames, rights) in stretches(&layers) {
        map(&mut space, DIRECT_MAP + frames.start.address(), frames, rights);
    }

    let mut layers: Vec<Layer> = sections
        .iter()
        .map(|(section, rights)| Layer { frames: frames(section.clone()), rights: Some(*rights) })
        .collect();
    layers.extend(
        guards.iter().map(|&guard| Layer { frames: frames(guard..guard + PAGE), rights: None }),
    );
    for (frames, rights) in stretches(&layers) {
        map(&mut space, IMAGE + frames.start.address() - image_to_physical(IMAGE), frames, rights);
    }

    // The interrupt controller in large leaves, small devices side by side.
    map(&mut space, DEVICES + MEGAPAGE, frames(0xc00_0000..0xc60_0000), Rights::ReadWrite);
    map(&mut space, DEVICES, frames(0x1000_0000..0x1000_0100), Rights::ReadWrite);
    map(&mut space, DEVICES + PAGE, frames(0x10_0000..0x10_1000), Rights::ReadWrite);

    // Some stacks of 16 KiB, 64 KiB apart, in any frames.
    for slot in 0..20 {
        for page in 0..4 {
            let frame = FrameNumber(0x8100_0000 / PAGE + slot * 8 + page * 2);
            let one = FrameRange { start: frame, end: FrameNumber(frame.0 + 1) };
            map(&mut space, STACKS + slot * 20 * PAGE + (16 + page) * PAGE, one, Rights::ReadWrite);
        }
    }
    space
}

#[test]
fn the_kernel_needs_at_most_14_tables() {
    for memory in [128 << 20, 16 << 30] {
        let machine = Machine::new();
        let space = kernel(&machine, memory);
        println!("{} MiB: {} tables", memory >> 20, space.table_pages());
        assert!(space.table_pages() <= 14);
        assert_few_tables(&machine, &space);
    }
}

#[test]
fn no_frame_is_writable_at_one_address_and_not_at_another() {
    let machine = Machine::new();
    let space = kernel(&machine, 128 << 20);
    let mut rights: BTreeMap<usize, Rights> = BTreeMap::new();
    let mut aliases = 0;
    for mapping in space.view().mappings() {
        for frame in mapping.frame.0..mapping.frame.0 + mapping.pages.count() {
            if let Some(other) = rights.insert(frame, mapping.rights) {
                aliases += 1;
                let writable = |rights| rights == Rights::ReadWrite;
                assert_eq!(writable(other), writable(mapping.rights), "frame {frame:#x}");
            }
        }
    }
    assert!(aliases > 100, "the image and the stacks are in the direct map too");
}

/// Frames in a small memory, by numbers that meet often.
fn layer() -> impl Strategy<Value = Layer> {
    let edge = || prop::sample::select(vec![0, 1, 3, 64, 511, 512, 513, 1024, 1500, 2048]);
    let rights = prop_oneof![
        1 => Just(None),
        1 => Just(Some(Rights::Read)),
        2 => Just(Some(Rights::ReadWrite)),
    ];
    (edge(), edge(), rights).prop_map(|(start, end, rights)| {
        let frames = FrameRange { start: FrameNumber(start), end: FrameNumber(end) };
        Layer { frames, rights }
    })
}

proptest! {
    #![proptest_config(cases_divided_by(1))]

    #[test]
    fn later_layers_lie_over_earlier_ones(layers in prop::collection::vec(layer(), 0..8)) {
        let mut painted = [None; 2100];
        for layer in &layers {
            // Some ranges are empty, end before start.
            if let Some(frames) = painted.get_mut(layer.frames.start.0..layer.frames.end.0) {
                frames.fill(layer.rights);
            }
        }
        let machine = Machine::new();
        let mut space = AddressSpace::new(&machine).unwrap();
        let mut before: Option<(FrameRange, Rights)> = None;
        for (frames, rights) in stretches(&layers) {
            prop_assert!(frames.start < frames.end);
            if let Some((earlier, other)) = before.replace((frames, rights)) {
                prop_assert!(earlier.end < frames.start || earlier.end == frames.start && rights != other);
            }
            map(&mut space, DIRECT_MAP + frames.start.address(), frames, rights);
        }
        for (frame, &rights) in painted.iter().enumerate() {
            let found = machine.translate(space.root(), DIRECT_MAP + frame * PAGE);
            let expected = rights.map_or(Found::Fault, |rights| {
                Found::Page { frame, write: rights == Rights::ReadWrite, execute: false }
            });
            prop_assert_eq!(found, expected, "frame {}", frame);
        }
        assert_few_tables(&machine, &space);
    }
}
