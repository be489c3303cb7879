//! The symbol table goes into an image, and the proof that nothing else moved notices whatever else does.
//!
//! The images are made here, as small as the linker script's output can be: a section of code, one of statics, a header
//! for the table. The real kernel's table is checked by every build, through the same proof.

use std::path::Path;

use object::build::elf::{Builder, SectionData};
use object::elf::*;
use object::{Endianness, LittleEndian, read::elf::ElfFile64};
use symbols::build::placeholder;
use symbols::{Kind, Table};
use xtask::frames::frames;
use xtask::symbols::{Error, definitions, insert, inserted, prove};

const TEXT: u64 = 0xffff_ffff_8020_0000;
const DATA: u64 = TEXT + 0x1000;
const SYMBOLS: u64 = TEXT + 0x5000;
const VIRTUAL_TO_PHYSICAL: u64 = 0xffff_ffff_0000_0000;

/// A symbol of the linked image: name, section (or none: an absolute one), binding, type, address, size.
type Linked = (&'static str, &'static str, SymbolBind, SymbolType, u64, u64);

fn function(name: &'static str, offset: u64, size: u64) -> Linked {
    (name, ".text", STB_LOCAL, STT_FUNC, TEXT + offset, size)
}

fn label(name: &'static str, bind: SymbolBind, offset: u64) -> Linked {
    (name, ".text", bind, STT_NOTYPE, TEXT + offset, 0)
}

fn object(name: &'static str, offset: u64, size: u64) -> Linked {
    (name, ".bss", STB_LOCAL, STT_OBJECT, DATA + offset, size)
}

/// What a real image has: functions of Rust, an entry without a size, a static, and much that nobody looks for.
fn usual() -> Vec<Linked> {
    vec![
        label("__text_start", STB_GLOBAL, 0),
        label("_start", STB_GLOBAL, 0),
        label("$xrv64imac", STB_LOCAL, 0),
        label("__text_end", STB_GLOBAL, 0x200),
        function("_RNvCs1234_6kernel4main", 0x20, 0x40),
        function("_ZN6kernel5frame4free17h0123456789abcdefE", 0x80, 0x10),
        object("_RNvCs1234_6kernel6STACKS", 0, 0x4000),
        ("__symbols_start", ".symbols", STB_GLOBAL, STT_NOTYPE, SYMBOLS, 0),
        ("PAGE", "", STB_GLOBAL, STT_NOTYPE, 4096, 0),
    ]
}

/// An image as the linker leaves it, with these symbols, after `change`.
fn linked_with(symbols: &[Linked], change: impl FnOnce(&mut Builder)) -> Vec<u8> {
    let mut builder = Builder::new(Endianness::Little, true);
    builder.header.e_type = ET_EXEC;
    builder.header.e_machine = EM_RISCV;
    builder.header.e_phoff = 64;
    builder.header.e_entry = TEXT;
    let code = SectionData::Data(vec![0x13; 0x200].into());
    let table = SectionData::Data(placeholder().to_vec().into());
    for (name, sh_type, flags, address, offset, data, rights) in [
        (".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, TEXT, 0x1000, code, PF_R | PF_X),
        (
            ".bss",
            SHT_NOBITS,
            SHF_ALLOC | SHF_WRITE,
            DATA,
            0x2000,
            SectionData::UninitializedData(0x4000),
            PF_R | PF_W,
        ),
        (".symbols", SHT_PROGBITS, SHF_ALLOC, SYMBOLS, 0x2000, table, PF_R),
    ] {
        let section = builder.sections.add();
        section.name = name.into();
        section.sh_type = sh_type;
        section.sh_flags = flags;
        section.sh_addr = address;
        section.sh_offset = offset;
        section.sh_addralign = 16;
        section.data = data;
        let id = section.id();
        builder.set_section_sizes();
        let section = builder.sections.get_mut(id);
        let segment = builder.segments.add();
        segment.p_type = PT_LOAD;
        segment.p_flags = rights;
        segment.p_offset = offset;
        segment.p_vaddr = address;
        segment.p_paddr = address - VIRTUAL_TO_PHYSICAL;
        segment.p_align = 0x1000;
        segment.p_memsz = section.sh_size;
        segment.p_filesz = if sh_type == SHT_NOBITS { 0 } else { section.sh_size };
    }
    for (name, data) in [
        (".symtab", SectionData::Symbol),
        (".strtab", SectionData::String),
        (".shstrtab", SectionData::SectionString),
    ] {
        let section = builder.sections.add();
        section.name = name.into();
        section.sh_type = if name == ".symtab" { SHT_SYMTAB } else { SHT_STRTAB };
        section.sh_addralign = 8;
        section.data = data;
    }
    for &(name, section, bind, kind, address, size) in symbols {
        let section = builder
            .sections
            .iter()
            .find(|it| it.name.as_slice() == section.as_bytes())
            .map(|it| it.id());
        let symbol = builder.symbols.add();
        symbol.name = name.into();
        symbol.section = section;
        symbol.st_shndx = if section.is_none() { SHN_ABS } else { SHN_UNDEF };
        symbol.set_st_info(bind, kind);
        symbol.st_value = address;
        symbol.st_size = size;
    }
    change(&mut builder);
    let mut image = Vec::new();
    builder.write(&mut image).unwrap();
    image
}

fn linked(symbols: &[Linked]) -> Vec<u8> {
    linked_with(symbols, |_| ())
}

fn segment_of<'a, 'd>(
    builder: &'a mut Builder<'d>,
    address: u64,
) -> &'a mut object::build::elf::Segment<'d> {
    builder.segments.iter_mut().find(|it| it.p_vaddr == address).unwrap()
}

/// The table in an image, as the kernel finds it: through the last segment.
fn table_of(image: &[u8]) -> &[u8] {
    let elf = ElfFile64::<LittleEndian>::parse(image).unwrap();
    let headers = elf.elf_program_headers();
    let header = headers.iter().find(|it| it.p_vaddr.get(LittleEndian) == SYMBOLS).unwrap();
    let start = header.p_offset.get(LittleEndian) as usize;
    &image[start..][..header.p_filesz.get(LittleEndian) as usize]
}

fn names(image: &[u8]) -> Vec<(String, u64, u64)> {
    let elf = ElfFile64::<LittleEndian>::parse(image).unwrap();
    definitions(&elf).unwrap().into_iter().map(|it| (it.name, it.address - TEXT, it.size)).collect()
}

#[test]
fn the_table_in_the_image_names_its_functions_and_statics() {
    let (image, report) = inserted(&linked(&usual())).unwrap();
    let table = Table::new(table_of(&image)).unwrap();
    let exact = |address| table.exact(address).map(|it| it.to_string());
    assert_eq!(exact(TEXT + 4).as_deref(), Some("_start+0x4"));
    assert_eq!(exact(TEXT + 0x24).as_deref(), Some("kernel::main+0x4"));
    assert_eq!(exact(TEXT + 0x60), None);
    assert_eq!(exact(TEXT + 0x80).as_deref(), Some("kernel::frame::free+0x0"));
    assert_eq!(exact(DATA + 0x3fff).as_deref(), Some("kernel::STACKS+0x3fff"));
    assert_eq!(table.exact(DATA).unwrap().symbol.kind, Kind::Data);
    assert_eq!(exact(SYMBOLS), None);
    assert_eq!(
        report.to_string(),
        format!("3 functions and 1 statics in {} bytes at {SYMBOLS:#x}", report.bytes)
    );
}

#[test]
fn the_same_image_gives_the_same_bytes_and_a_finished_one_itself() {
    let before = linked(&usual());
    let (once, _) = inserted(&before).unwrap();
    assert_eq!(inserted(&before).unwrap().0, once);
    assert_eq!(inserted(&once).unwrap().0, once);
}

#[test]
fn any_changed_bit_of_the_result_fails_the_proof() {
    let before = linked(&usual());
    let (after, _) = inserted(&before).unwrap();
    prove(&before, &after).unwrap();
    for at in 0..after.len() {
        let mut changed = after.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(prove(&before, &changed).is_err(), "byte {at:#x}");
    }
    for cut in [after.len() - 1, before.len(), 100] {
        assert!(prove(&before, &after[..cut]).is_err(), "cut to {cut:#x}");
    }
    assert!(prove(&before, &[&after[..], &[0]].concat()).is_err(), "one byte more");
}

#[test]
fn of_several_symbols_for_the_same_bytes_one_is_shown() {
    let alias = ("alias", ".text", STB_GLOBAL, STT_FUNC, TEXT + 0x10, 0x20);
    let image = linked(&[
        function("__alias", 0x10, 0x20),
        function("part", 0x10, 0x8),
        alias,
        function("inner", 0x18, 0x8),
        label("inner_label", STB_GLOBAL, 0x20),
        function("after", 0x30, 0x10),
    ]);
    let shown = [("alias", 0x10, 0x20), ("after", 0x30, 0x10)]
        .map(|(name, at, size)| (name.into(), at, size));
    assert_eq!(names(&image), shown);
}

#[test]
fn a_label_without_a_size_reaches_to_the_next_symbol_or_the_end_of_its_section() {
    let image = linked(&[
        label("first", STB_GLOBAL, 0),
        label("local", STB_LOCAL, 4),
        label("second", STB_GLOBAL, 8),
        function("function", 0x10, 8),
        label("third", STB_GLOBAL, 0x18),
        label("__linker", STB_GLOBAL, 0x20),
        label("at_the_end", STB_GLOBAL, 0x200),
    ]);
    let shown = [("first", 0, 8), ("second", 8, 8), ("function", 0x10, 8), ("third", 0x18, 0x1e8)];
    assert_eq!(names(&image), shown.map(|(name, at, size)| (name.into(), at, size)));
}

#[test]
fn a_function_that_another_reaches_into_is_an_error_that_names_it() {
    let image = linked(&[function("one", 0, 0x10), function("two", 8, 0x10)]);
    let error = inserted(&image).unwrap_err().to_string();
    assert!(
        error.ends_with("two at 0xffffffff80200008, 16 bytes: the symbol before reaches into it"),
        "{error}"
    );
}

/// What `inserted` says of an image that is not as agreed.
fn refused(change: impl FnOnce(&mut Builder)) -> String {
    inserted(&linked_with(&usual(), change)).expect_err("accepted").to_string()
}

fn section_data(builder: &mut Builder, bytes: &[u8]) {
    let section = builder.sections.iter_mut().find(|it| it.name.as_slice() == b".symbols").unwrap();
    section.data = SectionData::Data(bytes.to_vec().into());
    let segment = segment_of(builder, SYMBOLS);
    (segment.p_filesz, segment.p_memsz) = (bytes.len() as u64, bytes.len() as u64);
}

#[test]
fn an_image_that_the_linker_script_did_not_prepare_is_refused() {
    let rename = |it: &mut Builder| {
        it.sections.iter_mut().find(|it| it.name.as_slice() == b".symbols").unwrap().name =
            ".other".into();
    };
    assert!(refused(rename).ends_with("there is no section .symbols"));
    assert!(
        refused(|it| segment_of(it, SYMBOLS).p_type = PT_NOTE)
            .ends_with("no segment starts with .symbols")
    );
    assert!(
        refused(|it| segment_of(it, SYMBOLS).p_memsz = 0x2000).contains("holds something else too")
    );
    assert!(
        refused(|it| section_data(it, b"16OSSYMX\x10\0\0\0\0\0\0\0"))
            .ends_with("section .symbols: it starts with 16OSSYMX")
    );
    assert!(
        refused(|it| section_data(it, b"16OSSYMS\x20\0\0\0\0\0\0\0"))
            .ends_with("32 bytes announced, 16 given")
    );
    assert!(
        refused(|it| section_data(it, b"16OSSYMS\x10\0\0\0\0\0\0\0more"))
            .contains(".symbols has 20 bytes, not 16")
    );
    assert!(refused(|it| section_data(it, b"16OS")).ends_with("16 bytes announced, 4 given"));
    let stripped = inserted(&linked(&[])).unwrap_err().to_string();
    assert!(stripped.contains("was it stripped?"), "{stripped}");
    assert!(matches!(inserted(b"no image"), Err(Error::Elf(_))));
}

#[test]
fn whatever_the_table_would_overwrite_is_refused_by_name() {
    assert!(
        refused(|it| segment_of(it, SYMBOLS).p_flags = PF_R | PF_W).contains("not only to be read")
    );
    assert!(
        refused(|it| segment_of(it, DATA).p_memsz = 0x4001)
            .contains("segment 1 reaches behind the table's start")
    );
    assert!(
        refused(|it| segment_of(it, DATA).p_paddr += 0x2000)
            .contains("segment 1 reaches behind the table's start")
    );
    let grow = |it: &mut Builder| {
        let bss = it.sections.iter_mut().find(|it| it.name.as_slice() == b".bss").unwrap();
        bss.data = SectionData::UninitializedData(0x4001);
    };
    assert!(refused(grow).contains("section .bss reaches to 0xffffffff80205001"));

    let mut symbols = usual();
    symbols.push(("__image_end", ".symbols", STB_GLOBAL, STT_NOTYPE, SYMBOLS + 16, 0));
    let behind = inserted(&linked(&symbols)).unwrap_err().to_string();
    assert!(behind.contains("__image_end lies behind the table's start"), "{behind}");
}

#[test]
fn the_output_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("kernel"), folder.path().join("kernel.elf"));
    std::fs::write(&input, linked(&usual())).unwrap();
    insert(&input, &output).unwrap();
    let finished = std::fs::read(&output).unwrap();
    assert_eq!(finished, inserted(&linked(&usual())).unwrap().0);

    std::fs::write(&input, linked(&[])).unwrap();
    insert(&input, &output).unwrap_err();
    assert_eq!(std::fs::read(&output).unwrap(), finished);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|it| it.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["kernel", "kernel.elf"], "nothing else is left behind");

    let missing = insert(Path::new("/nonexistent/kernel"), &output).unwrap_err().to_string();
    assert!(missing.starts_with("/nonexistent/kernel: "), "{missing}");
}

#[test]
fn data_among_the_code_has_no_frame_and_code_behind_it_has() {
    let mut text = vec![0; 0x200];
    text[0x20..0x22].copy_from_slice(&0x1141_u16.to_le_bytes()); // addi sp, sp, -16
    text[0x24..0x28].fill(0xff); // no instruction
    text[0x28..0x2a].copy_from_slice(&0x1101_u16.to_le_bytes()); // addi sp, sp, -32
    text[0x100..0x102].copy_from_slice(&0x1141_u16.to_le_bytes()); // the same, in no function
    let image = |marks: &[Linked]| {
        let symbols = [marks, &[function("mixed", 0x20, 0x10)]].concat();
        linked_with(&symbols, |it| {
            let section = it.sections.iter_mut().find(|it| it.name.as_slice() == b".text").unwrap();
            section.data = SectionData::Data(text.clone().into());
        })
    };
    let marked = [("$d", STB_LOCAL, 0x24), ("$x", STB_LOCAL, 0x28)]
        .map(|(name, bind, at)| label(name, bind, at));
    let frames = frames(&image(&marked)).unwrap();
    let frames: Vec<_> =
        frames.iter().map(|it| (it.function.as_str(), it.address - TEXT, it.bytes)).collect();
    assert_eq!(
        frames,
        [
            ("mixed", 0x20, 48),
            ("code at 0xffffffff80200030", 0x30, 16),
            ("code at 0xffffffff80200000", 0, 0)
        ]
    );
    let error = xtask::frames::frames(&image(&[])).unwrap_err().to_string();
    assert!(error.starts_with("0xffffffff80200024, in mixed, is no instruction"), "{error}");
}
