//! Where the bytes of an image are: its sections, and its machine code by module.

use std::collections::BTreeMap;

use ::symbols::Kind;
use object::LittleEndian as LE;
use object::elf::{SHF_ALLOC, SHF_EXECINSTR};
use object::read::elf::{ElfFile64, SectionHeader};
use object::{Object, ObjectSection};

use crate::symbols::{self, definitions};

/// Code that no path names: what the compiler calls by fixed names, and assembly.
const COMPILER: &str = "compiler_builtins";
/// Labels of assembly and functions without mangled names.
pub const UNMANGLED: &str = "kernel, names unmangled";
/// Bytes between functions.
pub const PADDING: &str = "between functions";

/// The bytes of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Loaded sections by rising address, with their size in memory.
    pub sections: Vec<(String, u64)>,
    /// Machine code, from the first function to the end of the last; without what fills up the last page.
    pub code: u64,
    /// The same by module: `kernel::trap`, `symbols`, `core`, ...
    pub modules: BTreeMap<String, u64>,
}

/// Measures an image. `is_module` tells the kernel's modules from what else can follow `kernel::` in a path.
///
/// # Errors
/// When it is no ELF file with symbols.
pub fn measure(image: &[u8], is_module: impl Fn(&str) -> bool) -> Result<Bytes, symbols::Error> {
    let elf = ElfFile64::<LE>::parse(image)?;
    let mut bytes = Bytes::default();
    let mut text = Vec::new();
    for section in elf.sections() {
        let flags = section.elf_section_header().sh_flags(LE);
        if flags.contains(SHF_ALLOC) && section.size() > 0 {
            bytes.sections.push((section.name()?.to_owned(), section.size()));
        }
        if flags.contains(SHF_EXECINSTR) {
            text.push(section.address()..section.address() + section.size());
        }
    }
    let definitions = definitions(&elf)?;
    for section in text {
        let mut end = section.start;
        for function in
            definitions.iter().filter(|it| it.kind == Kind::Code && section.contains(&it.address))
        {
            *bytes.modules.entry(PADDING.to_owned()).or_default() += function.address - end;
            *bytes.modules.entry(module_of(&function.name, &is_module)).or_default() +=
                function.size;
            end = function.address + function.size;
        }
        bytes.code += end - section.start;
    }
    Ok(bytes)
}

/// The module that the first path in a function's name leads to. What a generic function of `core` was made for does not
/// change that it is `core`'s.
fn module_of(name: &str, is_module: impl Fn(&str) -> bool) -> String {
    let is_word = |it: char| it.is_alphanumeric() || it == '_';
    let Some((before, after)) = name.split_once("::") else {
        let of_compiler = name.starts_with("__")
            || ["memcpy", "memmove", "memset", "memcmp", "bcmp"].contains(&name);
        return if of_compiler { COMPILER } else { UNMANGLED }.to_owned();
    };
    let root = before.rsplit(|it| !is_word(it)).next().unwrap_or(before);
    match root {
        "kernel" => {
            let module = after.split(|it| !is_word(it)).next().unwrap_or(after);
            let module = format!("kernel::{module}");
            if is_module(&module) { module } else { root.to_owned() }
        }
        // Methods of built-in types, such as `<char>::len_utf8`.
        "" => "core".to_owned(),
        // The compiler's own names for the panic handler and for the allocator's entries, which the kernel provides.
        "__rustc" => "kernel".to_owned(),
        _ => root.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_module_of_the_first_path_in_its_name() {
        for (name, module) in [
            ("kernel::trap::handle", "kernel::trap"),
            ("<kernel::trap::Frame as core::fmt::Debug>::fmt", "kernel::trap"),
            ("<&mut kernel::trap::Frame as core::fmt::Debug>::fmt", "kernel::trap"),
            ("kernel::kernel_main", "kernel"),
            ("core::ptr::drop_in_place<Frame>", "core"),
            ("<u8 as core::fmt::Display>::fmt", "core"),
            ("<char>::len_utf8", "core"),
            ("symbols::Table::new", "symbols"),
            ("__rustc::rust_begin_unwind", "kernel"),
            ("__udivti3", COMPILER),
            ("memcpy", COMPILER),
            ("trap_vector", UNMANGLED),
        ] {
            assert_eq!(module_of(name, |it| it == "kernel::trap"), module, "{name}");
        }
    }
}
