//! Lines of code by module, as a reader of the kernel meets them.
//!
//! The rule: a line counts if a token of the language stands on it: neither a blank line nor one of comments, doc comments
//! included. Within a text over several lines, such as assembly, every line counts that is not blank. Files of assembly and
//! linker scripts count in the same way. Nothing is counted twice and nothing is formatted first: the sources are as
//! `rustfmt` leaves them with its default settings, which the house test sees to.
//!
//! Apart stands what an image without tests, benchmarks and monitor does not hold ([`LEFT_OUT`]), and what lies in a
//! folder of tests. A `cfg` decides it, on the item or on the module that it is in; so the modules are followed from each
//! crate's root, and a file that no module names is an error.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Meta, Token};

/// Names in a `cfg`, and features of the kernel, that are off in what counts: code for tests, benchmarks, the monitor.
pub const LEFT_OUT: [&str; 6] = ["test", "loom", "shuttle", "selftest", "bench", "monitor"];

/// Why lines could not be counted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder could not be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is no Rust.
    #[error("{}:{line}: no token of Rust starts here", path.display())]
    Syntax {
        /// Which one.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
    },
    /// A module's file is not where it has to be.
    #[error("{}: there is no file of its module `{module}`", path.display())]
    NoModule {
        /// The file that declares it.
        path: PathBuf,
        /// What it is called.
        module: String,
    },
    /// A file that no module names, and so nobody compiles.
    #[error("{}: no module names this file", .0.display())]
    Unreached(PathBuf),
}

/// What one file, one module or the whole has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// Lines that count.
    pub code: usize,
    /// Lines of code that stand apart: tests, benchmarks, the monitor.
    pub apart: usize,
    /// `unsafe` blocks, in lines that count.
    pub unsafe_blocks: usize,
    /// `unsafe impl`, in lines that count.
    pub unsafe_impls: usize,
    /// Places where the `checked` feature decides, in lines that count.
    pub checked_sites: usize,
}

impl std::ops::AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.code += other.code;
        self.apart += other.apart;
        self.unsafe_blocks += other.unsafe_blocks;
        self.unsafe_impls += other.unsafe_impls;
        self.checked_sites += other.checked_sites;
    }
}

/// The lines of the kernel and of its library crates, by module (`kernel::trap`) and by crate (`symbols`); `xtask` last.
///
/// `workspace` is the folder that holds `kernel/`, `lib/` and `xtask/`.
///
/// # Errors
/// See [`Error`].
pub fn by_module(workspace: &Path) -> Result<BTreeMap<String, Count>, Error> {
    let mut modules = BTreeMap::new();
    add_crate(&mut modules, &workspace.join("kernel"), "kernel", true)?;
    for folder in entries(&workspace.join("lib"))? {
        if folder.join("Cargo.toml").is_file() {
            add_crate(&mut modules, &folder, &stem(&folder), false)?;
        }
    }
    Ok(modules)
}

/// Lines of the host's side, tests included: not part of what a reader of the kernel has to read.
///
/// # Errors
/// See [`Error`].
pub fn of_host(workspace: &Path) -> Result<usize, Error> {
    let mut lines = 0;
    for path in files_under(&workspace.join("xtask"))? {
        if extension(&path) == "rs" {
            let (count, _) = in_rust(&path)?;
            lines += count.code + count.apart;
        }
    }
    Ok(lines)
}

/// Adds a crate's files: each to its module if `split`, else all to the crate.
fn add_crate(
    modules: &mut BTreeMap<String, Count>,
    folder: &Path,
    name: &str,
    split: bool,
) -> Result<(), Error> {
    let source = folder.join("src");
    let root =
        ["main.rs", "lib.rs"].map(|root| source.join(root)).into_iter().find(|it| it.is_file());
    let root =
        root.ok_or_else(|| Error::NoModule { path: folder.to_owned(), module: name.to_owned() })?;
    let mut reached = BTreeMap::new();
    follow(&root, &source, true, &mut reached)?;

    for path in files_under(folder)? {
        let count = match extension(&path) {
            "rs" if path.starts_with(&source) => match reached.get(&path) {
                Some(count) => *count,
                None => return Err(Error::Unreached(path)),
            },
            "rs" => {
                let (count, _) = in_rust(&path)?;
                // The build script is the crate's own; whatever else lies outside `src` tests or measures it.
                if path.parent() == Some(folder) { count } else { all_apart(count) }
            }
            "S" | "s" => Count { code: in_assembly(&read(&path)?), ..Count::default() },
            "ld" => Count { code: in_linker_script(&read(&path)?), ..Count::default() },
            _ => continue,
        };
        let inside = path.strip_prefix(&source).ok().filter(|_| split);
        let module = inside.and_then(|it| it.iter().next()).map(|it| stem(Path::new(it)));
        let module = match module {
            Some(module) if module != "main" && module != "lib" => format!("{name}::{module}"),
            _ => name.to_owned(),
        };
        *modules.entry(module).or_default() += count;
    }
    Ok(())
}

/// Counts a module's file and, by way of its `mod` lines, the files below it.
fn follow(
    path: &Path,
    folder: &Path,
    counts: bool,
    reached: &mut BTreeMap<PathBuf, Count>,
) -> Result<(), Error> {
    let (count, submodules) = in_rust(path)?;
    reached.insert(path.to_owned(), if counts { count } else { all_apart(count) });
    for Submodule { name, counts: of_its_own } in submodules {
        let candidates = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        match candidates.iter().find(|it| it.is_file()) {
            Some(file) => follow(file, &folder.join(&name), counts && of_its_own, reached)?,
            None => {
                return Err(Error::NoModule { path: path.to_owned(), module: name });
            }
        }
    }
    Ok(())
}

fn all_apart(count: Count) -> Count {
    Count { apart: count.code + count.apart, ..Count::default() }
}

/// A `mod` line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submodule {
    /// The module's name.
    pub name: String,
    /// Whether it is compiled without tests, benchmarks and monitor.
    pub counts: bool,
}

/// Counts a file of Rust, and gives the modules that it declares.
///
/// # Errors
/// When it cannot be read or split into tokens.
pub fn in_rust(path: &Path) -> Result<(Count, Vec<Submodule>), Error> {
    in_source(&read(path)?).map_err(|line| Error::Syntax { path: path.to_owned(), line })
}

/// The same for a text. The error is the line that holds no token.
fn in_source(source: &str) -> Result<(Count, Vec<Submodule>), usize> {
    let tokens =
        source.parse().map_err(|error: proc_macro2::LexError| error.span().start().line)?;
    let lines: Vec<&str> = source.lines().collect();
    let marks = vec![Mark::None; lines.len()];
    let mut file = File { lines, marks, count: Count::default(), modules: Vec::new() };
    file.visit(tokens, true);
    file.count.code = file.marks.iter().filter(|mark| **mark == Mark::Code).count();
    file.count.apart = file.marks.iter().filter(|mark| **mark == Mark::Apart).count();
    Ok((file.count, file.modules))
}

/// What stands on a line; of several, the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    None,
    Apart,
    Code,
}

struct File<'a> {
    lines: Vec<&'a str>,
    marks: Vec<Mark>,
    count: Count,
    modules: Vec<Submodule>,
}

impl File<'_> {
    fn visit(&mut self, tokens: TokenStream, counts: bool) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut counts = counts;
        let mut at = 0;
        while at < tokens.len() {
            let attribute = Attribute::at(&tokens[at..]);
            match attribute {
                Some(attribute) if self.is_doc_comment(&tokens[at]) => {
                    at += attribute.tokens;
                    continue;
                }
                Some(attribute) if counts && attribute.leaves_out() => {
                    if attribute.is_inner {
                        counts = false;
                    } else if let Some(length) = length_of_item(&tokens[at..]) {
                        self.visit(
                            tokens[at + attribute.tokens..at + length].iter().cloned().collect(),
                            false,
                        );
                        self.mark(tokens[at].span(), attribute.group.span(), false);
                        at += length;
                        continue;
                    }
                }
                _ => {}
            }
            self.visit_token(&tokens[at..], counts);
            at += 1;
        }
    }

    fn visit_token(&mut self, tokens: &[TokenTree], counts: bool) {
        match tokens {
            [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(end), ..]
                if *word == "mod" && end.as_char() == ';' =>
            {
                self.modules.push(Submodule { name: name.to_string(), counts });
            }
            [TokenTree::Ident(word), TokenTree::Group(body), ..]
                if counts && *word == "unsafe" && body.delimiter() == Delimiter::Brace =>
            {
                self.count.unsafe_blocks += 1;
            }
            [TokenTree::Ident(word), TokenTree::Ident(next), ..]
                if counts && *word == "unsafe" && *next == "impl" =>
            {
                self.count.unsafe_impls += 1;
            }
            [TokenTree::Ident(word), TokenTree::Punct(equals), TokenTree::Literal(name), ..]
                if counts
                    && *word == "feature"
                    && equals.as_char() == '='
                    && name.to_string() == "\"checked\"" =>
            {
                self.count.checked_sites += 1;
            }
            _ => {}
        }
        match &tokens[0] {
            TokenTree::Group(group) => {
                self.mark(group.span_open(), group.span_open(), counts);
                self.visit(group.stream(), counts);
                self.mark(group.span_close(), group.span_close(), counts);
            }
            token => self.mark(token.span(), token.span(), counts),
        }
    }

    /// The lines from the start of `first` to the end of `last` have code on them, but for blank ones within a text.
    fn mark(&mut self, first: Span, last: Span, counts: bool) {
        let mark = if counts { Mark::Code } else { Mark::Apart };
        for line in first.start().line - 1..last.end().line {
            if !self.lines[line].trim().is_empty() {
                self.marks[line] = self.marks[line].max(mark);
            }
        }
    }

    /// A doc comment arrives as an attribute; its place in the source says what it was.
    fn is_doc_comment(&self, token: &TokenTree) -> bool {
        let start = token.span().start();
        let text: String = self.lines[start.line - 1].chars().skip(start.column).take(2).collect();
        text == "//" || text == "/*"
    }
}

/// An attribute at the start of some tokens.
struct Attribute<'a> {
    is_inner: bool,
    /// How many tokens it has.
    tokens: usize,
    group: &'a Group,
}

impl<'a> Attribute<'a> {
    fn at(tokens: &'a [TokenTree]) -> Option<Attribute<'a>> {
        let is = |token: &TokenTree, character| matches!(token, TokenTree::Punct(it) if it.as_char() == character);
        let (is_inner, group) = match tokens {
            [hash, TokenTree::Group(group), ..] if is(hash, '#') => (false, group),
            [hash, bang, TokenTree::Group(group), ..] if is(hash, '#') && is(bang, '!') => {
                (true, group)
            }
            _ => return None,
        };
        let bracket = group.delimiter() == Delimiter::Bracket;
        bracket.then_some(Attribute { is_inner, tokens: if is_inner { 3 } else { 2 }, group })
    }

    /// Whether it is a `cfg` that is false without tests, benchmarks and monitor, whatever else is set.
    fn leaves_out(&self) -> bool {
        match syn::parse2::<Meta>(self.group.stream()) {
            Ok(Meta::List(list)) if list.path.is_ident("cfg") => {
                list.parse_args::<Meta>().is_ok_and(|predicate| holds(&predicate) == Some(false))
            }
            _ => false,
        }
    }
}

/// What a `cfg` predicate is without tests, benchmarks and monitor; None where other settings decide.
fn holds(predicate: &Meta) -> Option<bool> {
    match predicate {
        Meta::Path(path) => LEFT_OUT.iter().any(|name| path.is_ident(name)).then_some(false),
        Meta::NameValue(pair) if pair.path.is_ident("feature") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(feature), .. }) => {
                LEFT_OUT.contains(&feature.value().as_str()).then_some(false)
            }
            _ => None,
        },
        Meta::NameValue(_) => None,
        Meta::List(list) => {
            let parts =
                list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
            let parts: Vec<Option<bool>> = parts.iter().map(holds).collect();
            // `all` is false, and `any` true, as soon as one part is.
            let decided_by_one = |value| {
                let by_one = parts.contains(&Some(value)).then_some(value);
                by_one.or_else(|| parts.iter().all(|it| *it == Some(!value)).then_some(!value))
            };
            match list.path.get_ident()?.to_string().as_str() {
                "all" => decided_by_one(false),
                "any" => decided_by_one(true),
                "not" => parts.first().copied().flatten().map(|it| !it),
                _ => None,
            }
        }
    }
}

/// How many tokens the item has that starts here, its attributes included: an item, a statement, a field, a variant, an arm
/// or an element. None where it is none of them, within a macro perhaps.
fn length_of_item(tokens: &[TokenTree]) -> Option<usize> {
    fn then_rest<T>(
        parse: impl FnOnce(ParseStream) -> syn::Result<T>,
    ) -> impl FnOnce(ParseStream) -> syn::Result<usize> {
        |input| {
            parse(input)?;
            input.parse::<Option<Token![,]>>()?;
            Ok(input.parse::<TokenStream>()?.into_iter().count())
        }
    }
    let all: TokenStream = tokens.iter().cloned().collect();
    let rest = then_rest(|it| it.parse::<syn::Stmt>()).parse2(all.clone());
    let rest = rest.or_else(|_| then_rest(|it| it.parse::<syn::ImplItem>()).parse2(all.clone()));
    let rest = rest.or_else(|_| then_rest(syn::Field::parse_named).parse2(all.clone()));
    let rest = rest.or_else(|_| then_rest(|it| it.parse::<syn::Arm>()).parse2(all.clone()));
    let rest = rest.or_else(|_| then_rest(|it| it.parse::<syn::FieldValue>()).parse2(all.clone()));
    let rest = rest.or_else(|_| then_rest(|it| it.parse::<syn::Variant>()).parse2(all.clone()));
    let rest = rest.or_else(|_| then_rest(|it| it.parse::<syn::Expr>()).parse2(all));
    rest.ok().map(|rest| tokens.len() - rest)
}

/// Lines of a file of assembly that hold more than a comment.
fn in_assembly(source: &str) -> usize {
    let code = |line: &&str| {
        !line.trim().is_empty() && !["#", "//"].iter().any(|it| line.trim().starts_with(it))
    };
    without_block_comments(source).lines().filter(code).count()
}

/// Lines of a linker script that hold more than a comment.
fn in_linker_script(source: &str) -> usize {
    without_block_comments(source).lines().filter(|line| !line.trim().is_empty()).count()
}

fn without_block_comments(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        let (comment, after) = comment.split_once("*/").unwrap_or((comment, ""));
        code.extend(comment.matches('\n'));
        rest = after;
    }
    code + rest
}

fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|error| Error::File { path: path.to_owned(), error })
}

/// What lies in a folder, by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let list = || -> std::io::Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)?
            .map(|entry| entry.map(|it| it.path()))
            .collect::<Result<_, _>>()?;
        paths.sort();
        Ok(paths)
    };
    list().map_err(|error| Error::File { path: folder.to_owned(), error })
}

/// Every file in a folder and below, by name; not what cargo builds there.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in entries(folder)? {
        if path.is_dir() && stem(&path) != "target" {
            files.extend(files_under(&path)?);
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn extension(path: &Path) -> &str {
    path.extension().and_then(|it| it.to_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(source: &str) -> (usize, usize) {
        let (count, _) = in_source(source).unwrap();
        (count.code, count.apart)
    }

    #[test]
    fn a_line_counts_if_a_token_stands_on_it() {
        assert_eq!(count("//! Doc.\n\n/// Doc.\nfn f() { // why\n    /* a\n    b */\n}\n"), (2, 0));
        assert_eq!(count("/** a\n b */\nfn f() {}\n"), (1, 0));
        assert_eq!(count("#[inline]\nfn f() {}\n"), (2, 0));
        assert_eq!(count("const A: &str = \"\n  nop\n\n  ret\n\";\n"), (4, 0));
        assert_eq!(count("// only\n"), (0, 0));
        assert_eq!(count(""), (0, 0));
    }

    #[test]
    fn what_is_only_compiled_for_tests_stands_apart() {
        assert_eq!(
            count("fn f() {}\n#[cfg(test)]\nmod tests {\n    // why\n    fn g() {}\n}\n"),
            (1, 4)
        );
        assert_eq!(
            count("#[cfg(feature = \"selftest\")]\n#[inline]\nfn f() {\n}\nfn g() {}\n"),
            (1, 4)
        );
        assert_eq!(
            count("fn f() {\n    #[cfg(feature = \"bench\")]\n    g(1,\n      2);\n    h();\n}\n"),
            (3, 3)
        );
        assert_eq!(
            count(
                "impl A {\n    #[cfg(test)]\n    fn f(&self) -> B<C, D> {\n    }\n    fn g() {}\n}\n"
            ),
            (3, 3)
        );
        assert_eq!(count("struct A {\n    #[cfg(test)]\n    a: B<C, D>,\n    b: u8,\n}\n"), (3, 2));
        assert_eq!(count("enum A {\n    #[cfg(test)]\n    B,\n    C,\n}\n"), (3, 2));
        assert_eq!(
            count(
                "fn f() {\n    match a {\n        #[cfg(test)]\n        B => 1,\n        _ => 2,\n    }\n}\n"
            ),
            (5, 2)
        );
        assert_eq!(count("#![cfg(test)]\nfn f() {}\n"), (0, 2));
        assert_eq!(count("#[cfg(test)]\nuse a::{b,\n c};\nfn f() {}\n"), (1, 3));
    }

    #[test]
    fn a_cfg_that_the_image_may_set_counts() {
        for counts in [
            "feature = \"checked\"",
            "not(test)",
            "not(feature = \"bench\")",
            "any(test, feature = \"checked\")",
            "not(all(test, unix))",
            "debug_assertions",
            "target_arch = \"riscv64\"",
        ] {
            assert_eq!(count(&format!("#[cfg({counts})]\nfn f() {{}}\n")), (2, 0), "{counts}");
        }
        for apart in
            ["loom", "all(test, unix)", "any(test, feature = \"monitor\")", "not(not(test))"]
        {
            assert_eq!(count(&format!("#[cfg({apart})]\nfn f() {{}}\n")), (0, 2), "{apart}");
        }
    }

    #[test]
    fn unsafe_code_and_checked_sites_are_counted_where_the_image_has_them() {
        let (count, _) = in_source(
            "unsafe impl Sync for A {}\n\
             unsafe fn f() { unsafe { g() } }\n\
             fn h() { if cfg!(feature = \"checked\") { m!(unsafe { g() }) } }\n\
             #[cfg(test)]\nfn t() { unsafe { g() } }\n",
        )
        .unwrap();
        assert_eq!((count.unsafe_blocks, count.unsafe_impls, count.checked_sites), (2, 1, 1));
    }

    #[test]
    fn assembly_and_linker_scripts_count_without_their_comments() {
        assert_eq!(in_assembly("# a\n// b\n/* c\n d */ nop\n\nret # e\n"), 2);
        assert_eq!(in_linker_script("/* a */\nSECTIONS\n{\n}\n/* b\n*/\n"), 3);
    }

    #[test]
    fn what_is_no_rust_is_an_error_with_its_line() {
        assert_eq!(in_source("fn f() {\n}\n)\n").unwrap_err(), 3);
    }

    /// A workspace in a temporary folder, of these files.
    fn workspace(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn modules_are_followed_from_the_root_of_their_crate() {
        let folder = workspace(&[
            (
                "kernel/src/main.rs",
                "mod trap;\n#[cfg(feature = \"selftest\")]\nmod selftest;\nmod sync;\n",
            ),
            ("kernel/src/trap.rs", "fn f() {}\n"),
            ("kernel/src/selftest/mod.rs", "mod trap;\nfn f() {}\n"),
            ("kernel/src/selftest/trap.rs", "fn f() {}\n"),
            ("kernel/src/sync/mod.rs", "mod spin;\n"),
            ("kernel/src/sync/spin.rs", "fn f() {}\nfn g() {}\n"),
            ("kernel/kernel.ld", "A = 1;\n"),
            ("kernel/build.rs", "fn main() {}\n"),
            ("lib/a/Cargo.toml", ""),
            ("lib/a/src/lib.rs", "mod b;\n#[cfg(test)]\nmod tests;\n"),
            ("lib/a/src/b.rs", "fn f() {}\n"),
            ("lib/a/src/tests.rs", "fn f() {}\n"),
            ("lib/a/tests/all.rs", "fn f() {}\n"),
            ("lib/README.md", ""),
        ]);
        let counts: Vec<_> = by_module(folder.path()).unwrap().into_iter().collect();
        let counts: Vec<_> =
            counts.iter().map(|(name, count)| (name.as_str(), count.code, count.apart)).collect();
        let expected = [
            ("a", 2, 4),
            ("kernel", 4, 2),
            ("kernel::selftest", 0, 3),
            ("kernel::sync", 3, 0),
            ("kernel::trap", 1, 0),
        ];
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_file_that_is_not_part_of_its_crate_is_an_error() {
        let root = ("kernel/src/main.rs", "mod trap;\n");
        let lib = ("lib/README.md", "");
        let missing = by_module(workspace(&[root, lib]).path()).unwrap_err();
        assert!(
            matches!(&missing, Error::NoModule { module, .. } if module == "trap"),
            "{missing}"
        );
        let files = [root, lib, ("kernel/src/trap.rs", ""), ("kernel/src/forgotten.rs", "")];
        let unreached = by_module(workspace(&files).path()).unwrap_err();
        assert!(
            matches!(&unreached, Error::Unreached(path) if path.ends_with("forgotten.rs")),
            "{unreached}"
        );
    }
}
