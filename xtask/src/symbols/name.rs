//! Names for people: demangled, without hashes, and short enough for a line of a backtrace.

/// The longest name in bytes; what is longer loses its middle.
pub const LIMIT: usize = 80;
/// The longest list of generic arguments in bytes; what is longer becomes `_`.
const ARGUMENTS: usize = 24;
const ELLIPSIS: &str = "...";

/// A linker's symbol as a person reads it: the same for both of rustc's manglings, but that the older one knows generic
/// arguments by the names of their parameters, if at all.
///
/// Paths keep their crate, as does the trait of an implementation: `<kernel::frame::Frame as core::fmt::Display>::fmt`.
/// Generic arguments lose their paths (`SpinLock<Frames>`), and are `_` where that is still long. Over [`LIMIT`] bytes the
/// middle gives way to `...`, so that the crate and the function's own name stay.
pub fn readable(symbol: &str) -> String {
    // LLVM's tables for a `match` carry the mangled name of the function that they belong to.
    let (prefix, symbol) = match symbol.strip_prefix("switch.table.") {
        Some(function) => ("switch.table.", function),
        None => ("", symbol),
    };
    cut(format!("{prefix}{}", shortened(&format!("{:#}", rustc_demangle::demangle(symbol)))))
}

fn shortened(path: &str) -> String {
    let mut rest = path;
    let mut short = String::new();
    while let Some(next) = rest.chars().next() {
        if rest.starts_with("->") {
            short.push_str("->");
            rest = &rest[2..];
            continue;
        }
        let end = match next {
            '<' => closing(rest, '<', '>'),
            '{' => closing(rest, '{', '}'),
            _ => None,
        };
        let Some(end) = end else {
            short.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        let inside = &rest[1..end];
        rest = &rest[end + 1..];
        if next == '{' {
            // `{{closure}}` and `{closure#3}` are the same: which closure it is, the offset tells.
            let inside = inside.trim_matches(['{', '}']);
            let kind = inside.split(['#', ':']).next().unwrap_or(inside);
            short.push_str(&format!("{{{kind}}}"));
        } else if inside.starts_with("impl ")
            || !short.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c))
        {
            // The self type of an implementation. An inherent one is no more than a path.
            let inside = shortened(inside);
            let trait_or_other = inside.contains(" as ")
                || !inside.starts_with(|c: char| c.is_alphabetic() || c == '_');
            let plain = !trait_or_other
                && !inside.starts_with("impl ")
                && rest.starts_with("::")
                && inside.contains("::");
            short.push_str(&if plain { inside } else { format!("<{inside}>") });
        } else {
            while short.ends_with(':') {
                short.pop();
            }
            short.push_str(&format!("<{}>", arguments(inside)));
        }
    }
    short
}

/// Generic arguments without paths.
fn arguments(list: &str) -> String {
    let short = shortened(list);
    let mut last = String::new();
    let mut word = 0;
    let mut characters = short.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ':' && characters.next_if_eq(&':').is_some() {
            last.truncate(word);
        } else {
            last.push(character);
            if !(character.is_alphanumeric() || character == '_') {
                word = last.len();
            }
        }
    }
    if last.len() > ARGUMENTS { "_".into() } else { last }
}

/// Where the bracket that `text` starts with is closed.
fn closing(text: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, character) in text.char_indices() {
        if character == open {
            depth += 1;
        } else if character == close && before != '-' {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
        before = character;
    }
    None
}

/// `name` in at most [`LIMIT`] bytes.
fn cut(name: String) -> String {
    if name.len() <= LIMIT {
        return name;
    }
    let own = name.rfind("::").map_or(0, |at| name.len() - at);
    let tail = name.ceil_char_boundary(name.len() - own.clamp(LIMIT / 4, LIMIT / 2));
    let head = name.floor_char_boundary(LIMIT - ELLIPSIS.len() - (name.len() - tail));
    format!("{}{ELLIPSIS}{}", &name[..head], &name[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_and_generic_arguments_lose_theirs() {
        for (long, short) in [
            ("kernel::frame::free", "kernel::frame::free"),
            (
                "<kernel::frame::Frame as core::fmt::Display>::fmt",
                "<kernel::frame::Frame as core::fmt::Display>::fmt",
            ),
            ("<kernel::Lock<kernel::frame::Frames>>::lock", "kernel::Lock<Frames>::lock"),
            (
                "<kernel::Lock<kernel::frame::Frames> as core::ops::Drop>::drop",
                "<kernel::Lock<Frames> as core::ops::Drop>::drop",
            ),
            (
                "core::ptr::drop_in_place<alloc::vec::Vec<kernel::thread::Thread>>",
                "core::ptr::drop_in_place<Vec<Thread>>",
            ),
            (
                "core::ptr::drop_in_place::<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place<Vec<u8>>",
            ),
            ("a::f<core::option::Option<a::VeryLongName<u8>>,b::Other>", "a::f<_>"),
            ("core::str::<impl str>::trim", "core::str::<impl str>::trim"),
            (
                "core::num::imp::<impl core::fmt::Display for u32>::fmt",
                "core::num::imp::<impl core::fmt::Display for u32>::fmt",
            ),
            ("<[u8] as core::fmt::Debug>::fmt", "<[u8] as core::fmt::Debug>::fmt"),
            ("<&mut W as core::fmt::Write>::write_str", "<&mut W as core::fmt::Write>::write_str"),
            ("<fn(u8) -> a::B<c::D> as e::F>::g", "<fn(u8) -> a::B<D> as e::F>::g"),
            ("a::call<fn(u8) -> b::C>", "a::call<fn(u8) -> C>"),
            ("kernel::main::{{closure}}", "kernel::main::{closure}"),
            ("kernel::main::{closure#2}::{closure#0}", "kernel::main::{closure}::{closure}"),
            (
                "<F as core::ops::FnOnce<()>>::call_once::{shim:vtable#0}",
                "<F as core::ops::FnOnce<()>>::call_once::{shim}",
            ),
            ("trap_vector", "trap_vector"),
            ("a < b", "a < b"),
            ("", ""),
        ] {
            assert_eq!(shortened(long), short);
        }
    }

    #[test]
    fn both_manglings_give_one_name() {
        assert_eq!(readable("_ZN6kernel5frame4free17h0123456789abcdefE"), "kernel::frame::free");
        assert_eq!(readable("_RNvNtCs1234_6kernel5frame4free"), "kernel::frame::free");
        assert_eq!(
            readable("_ZN6kernel5frame4free17h0123456789abcdefE.llvm.123456"),
            "kernel::frame::free"
        );
        assert_eq!(
            readable("switch.table._RNvNtCs1234_6kernel5frame4free"),
            "switch.table.kernel::frame::free"
        );
        assert_eq!(readable("memcpy"), "memcpy");
    }

    #[test]
    fn a_long_name_keeps_its_crate_and_its_last_word() {
        let long = format!("kernel::{}::allocate", "module::".repeat(20));
        let short = cut(long);
        assert_eq!(short.len(), LIMIT);
        assert!(
            short.starts_with("kernel::module::") && short.ends_with("...::module::::allocate"),
            "{short}"
        );
        let short = cut("é".repeat(100));
        assert!(short.len() <= LIMIT && short.contains(ELLIPSIS), "{short}");
        assert_eq!(cut("n".repeat(LIMIT)).len(), LIMIT);
    }
}
