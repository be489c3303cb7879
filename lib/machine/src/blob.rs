//! The flattened device tree as bytes: header, reservation map, nodes and properties (devicetree specification 0.4,
//! chapter 5).
//!
//! [`Tree::new`] reads the whole structure block once and checks that every token, name and length lies inside it, that
//! nodes close, and that properties come before child nodes. What it accepts, the walks below read without a way to
//! fail. A walk needs no stack: a tree is a list of nodes in document order, each with its depth.
//!
//! Names are bytes here, of any length and any characters: one that the specification forbids costs nobody the boot.

use core::num::NonZero;

use crate::report::Error;

/// Bytes of a blob's header, all that [`blob_size`] needs to see.
pub const HEADER_SIZE: usize = 40;

/// The largest blob that is read, in bytes. Trees of real machines have up to a few hundred KiB; a larger size in a
/// header is taken for damage.
pub const MAXIMUM_BLOB_SIZE: usize = 2 << 20;

/// Nodes at this depth (the root's is 0) and deeper are not looked into. Machines use about 8.
pub(crate) const MAXIMUM_DEPTH: usize = 64;

const MAGIC: u32 = 0xd00d_feed;

/// The version of the format that is read here. A blob may be newer and say that it is compatible.
const VERSION: u32 = 17;

/// The size in bytes that a header claims for its whole blob, once it is known to be a header.
///
/// For whoever has an address and no length: it bounds what may be made a slice.
///
/// # Errors
///
/// [`Error::Magic`], [`Error::Version`], or [`Error::TotalSize`] for a size below [`HEADER_SIZE`] or above
/// [`MAXIMUM_BLOB_SIZE`].
pub fn blob_size(header: &[u8; HEADER_SIZE]) -> Result<usize, Error<'static>> {
    let (magic, version, compatible) = (field(header, 0), field(header, 20), field(header, 24));
    if magic != MAGIC {
        return Err(Error::Magic { found: magic });
    }
    if version < VERSION || compatible > VERSION {
        return Err(Error::Version {
            version,
            compatible,
        });
    }
    match field(header, 4) as usize {
        size @ HEADER_SIZE..=MAXIMUM_BLOB_SIZE => Ok(size),
        size => Err(Error::TotalSize { size }),
    }
}

/// The header's field at `offset`; all of them are 32 bits.
fn field(header: &[u8; HEADER_SIZE], offset: usize) -> u32 {
    u32_at(header, offset).expect("fields lie in the header")
}

/// The big-endian number at `offset`, if all of it is inside.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// The blocks of a blob.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    /// 16 bytes an entry, without the terminator.
    reservation_map: &'a [u8],
    structure: &'a [u8],
    /// Names, each with a zero after it.
    strings: &'a [u8],
    /// How many nodes are so deep that no walk shows them.
    pub(crate) too_deep: usize,
}

impl<'a> Tree<'a> {
    /// Checks a blob. Bytes after the size that its header gives are not looked at.
    pub(crate) fn new(blob: &'a [u8]) -> Result<Self, Error<'a>> {
        let length = blob.len();
        let header = blob.first_chunk().ok_or(Error::Short { length })?;
        let size = blob_size(header)?;
        let blob = blob.get(..size).ok_or(Error::CutShort { size, length })?;

        // Where a block begins and, where the header gives it, its size.
        let block = |name, offset: usize, size: Option<usize>| {
            let start = field(header, offset) as usize;
            let outside = Error::Block { name, start };
            let rest = blob.get(start..).ok_or(outside)?;
            match size {
                Some(size) => rest.get(..field(header, size) as usize).ok_or(outside),
                None => Ok(rest),
            }
        };
        let structure = block("structure", 8, Some(36))?;
        let strings = block("strings", 12, Some(32))?;
        let map = block("memory reservation", 16, None)?;
        let entries = map
            .chunks_exact(16)
            .position(|entry| entry == [0; 16])
            .ok_or(Error::ReservationMap)?;
        let strings = &strings[..strings
            .iter()
            .rposition(|&byte| byte == 0)
            .map_or(0, |last| last + 1)];
        let mut tree = Tree {
            reservation_map: &map[..entries * 16],
            structure,
            strings,
            too_deep: 0,
        };
        tree.too_deep = tree.check()?;
        Ok(tree)
    }

    /// Reads every token once, and counts the nodes that are too deep.
    fn check(self) -> Result<usize, Error<'a>> {
        let mut tokens = Tokens {
            tree: self,
            offset: 0,
        };
        let mut too_deep = 0;
        let mut depth = 0_usize;
        let mut has_root = false;
        let mut may_have_properties = false;
        loop {
            let offset = tokens.offset;
            let malformed = |problem| Error::Structure { offset, problem };
            match tokens.read().map_err(malformed)? {
                Token::Begin(_) if depth == 0 && has_root => {
                    return Err(malformed("there is a second root node"));
                }
                Token::Begin(_) => {
                    too_deep += usize::from(depth >= MAXIMUM_DEPTH);
                    depth += 1;
                    has_root = true;
                    may_have_properties = true;
                }
                Token::Property(name, _) if name >= self.strings.len() => {
                    return Err(malformed("a property has no name"));
                }
                Token::Property(..) if may_have_properties => {}
                Token::Property(..) => {
                    return Err(malformed("a property is not at the start of a node"));
                }
                Token::End => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or(malformed("a node ends that did not begin"))?;
                    may_have_properties = false;
                }
                Token::Finish if depth > 0 => return Err(malformed("the tree ends inside a node")),
                Token::Finish if !has_root => return Err(malformed("there is no root node")),
                Token::Finish => return Ok(too_deep),
            }
        }
    }

    /// The header's memory reservations: start and size in bytes.
    pub(crate) fn reservation_map(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let number = |bytes: &[u8]| cells(bytes).expect("8 bytes are a number of 64 bits");
        self.reservation_map
            .chunks_exact(16)
            .map(move |entry| (number(&entry[..8]), number(&entry[8..])))
    }

    /// Every node, in document order; the first is the root.
    pub(crate) fn nodes(self) -> Nodes<'a> {
        Nodes {
            tokens: Tokens {
                tree: self,
                offset: 0,
            },
            depth: 0,
            floor: 0,
        }
    }

    pub(crate) fn root(self) -> Node<'a> {
        self.nodes().next().expect("a checked tree has a root node")
    }

    /// Follows a path of whole names, `/soc/serial@10000000`; a name without its unit address finds the first of them.
    pub(crate) fn find(self, path: &str) -> Option<Node<'a>> {
        let mut names = path
            .strip_prefix('/')?
            .split('/')
            .filter(|name| !name.is_empty());
        names.try_fold(self.root(), |node, name| node.child(name))
    }
}

enum Token<'a> {
    Begin(&'a [u8]),
    End,
    /// Offset of the name among the strings, and the value.
    Property(usize, &'a [u8]),
    Finish,
}

/// Reads the structure block token by token.
#[derive(Clone, Copy)]
struct Tokens<'a> {
    tree: Tree<'a>,
    offset: usize,
}

impl<'a> Tokens<'a> {
    /// The token at the offset, after which the offset is at the next one. An error says what is wrong with it.
    fn read(&mut self) -> Result<Token<'a>, &'static str> {
        loop {
            match self.number()? {
                1 => {
                    let rest = self.tree.structure.get(self.offset..).unwrap_or_default();
                    let length = rest
                        .iter()
                        .position(|&byte| byte == 0)
                        .ok_or("a node's name does not end")?;
                    self.skip(length + 1);
                    return Ok(Token::Begin(&rest[..length]));
                }
                2 => return Ok(Token::End),
                3 => {
                    let (length, name) = (self.number()? as usize, self.number()? as usize);
                    let rest = self.tree.structure.get(self.offset..).unwrap_or_default();
                    let value = rest
                        .get(..length)
                        .ok_or("a property's value does not end")?;
                    self.skip(length);
                    return Ok(Token::Property(name, value));
                }
                4 => {}
                9 => return Ok(Token::Finish),
                _ => return Err("this is no token"),
            }
        }
    }

    fn number(&mut self) -> Result<u32, &'static str> {
        let number =
            u32_at(self.tree.structure, self.offset).ok_or("the structure block is cut short")?;
        self.offset += 4;
        Ok(number)
    }

    /// Passes so many bytes, and what fills up the last cell. May lead past the end, which the next read then sees.
    fn skip(&mut self, bytes: usize) {
        self.offset += bytes.next_multiple_of(4);
    }
}

/// The nodes of a tree, or those below one node, in document order.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    tokens: Tokens<'a>,
    /// How many nodes are open.
    depth: usize,
    /// The walk is over when no more than so many are.
    floor: usize,
}

impl<'a> Iterator for Nodes<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        loop {
            match self.tokens.read().ok()? {
                Token::Begin(name) => {
                    let depth = self.depth;
                    self.depth += 1;
                    if depth < MAXIMUM_DEPTH {
                        return Some(Node {
                            properties: self.tokens,
                            name,
                            depth,
                        });
                    }
                }
                Token::End if self.depth == self.floor + 1 => return None,
                Token::End => self.depth -= 1,
                Token::Property(..) => {}
                Token::Finish => return None,
            }
        }
    }
}

/// A node. Properties are looked up by reading over those before them: nodes have few.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    /// At the first token after the name.
    properties: Tokens<'a>,
    name: &'a [u8],
    pub(crate) depth: usize,
}

impl<'a> Node<'a> {
    /// The name with its unit address, for people.
    pub(crate) fn name(&self) -> &'a str {
        match str::from_utf8(self.name) {
            Ok("") => "/",
            Ok(name) => name,
            Err(_) => "(a name that is not text)",
        }
    }

    /// Whether the name is this one, or is this one without its unit address.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || (rest[0] == b'@' && !name.contains('@')))
    }

    /// Whether two are the same node of one tree.
    pub(crate) fn is(&self, other: &Node) -> bool {
        self.properties.offset == other.properties.offset
    }

    /// All nodes below this one, in document order.
    pub(crate) fn descendants(&self) -> Nodes<'a> {
        Nodes {
            tokens: self.properties,
            depth: self.depth + 1,
            floor: self.depth,
        }
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let depth = self.depth + 1;
        self.descendants().filter(move |node| node.depth == depth)
    }

    pub(crate) fn child(&self, name: &str) -> Option<Node<'a>> {
        self.children().find(|child| child.is_called(name))
    }

    /// The value of a property.
    pub(crate) fn property(&self, name: &str) -> Option<&'a [u8]> {
        let mut tokens = self.properties;
        while let Ok(Token::Property(start, value)) = tokens.read() {
            let rest = tokens.tree.strings[start..].strip_prefix(name.as_bytes());
            if rest.is_some_and(|rest| rest.first() == Some(&0)) {
                return Some(value);
            }
        }
        None
    }

    /// The value as a number of one or more cells.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        cells(self.property(name)?)
    }

    /// The value as text, up to its first zero.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        texts(self.property(name)?).next()
    }

    /// The first string of `compatible` for which there is an answer: the most specific one comes first.
    pub(crate) fn compatible<T>(&self, answer: impl Fn(&str) -> Option<T>) -> Option<T> {
        texts(self.property("compatible")?).find_map(answer)
    }

    /// Whether `status` allows the node to be used (specification, 2.3.4).
    pub(crate) fn is_enabled(&self) -> bool {
        matches!(self.text("status"), None | Some("okay" | "ok"))
    }

    /// The pairs of address and size in `reg`, without those that do not fit 64 bits.
    pub(crate) fn reg(&self, cells: Cells) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let value = self.property("reg").unwrap_or_default();
        let pairs = entries(value, [cells.address, cells.size]);
        pairs.filter_map(|[address, size]| Some((address?, size?)))
    }

    /// The number by which other nodes refer to this one.
    pub(crate) fn phandle(&self) -> Option<NonZero<u32>> {
        phandle(
            self.number("phandle")
                .or_else(|| self.number("linux,phandle")),
        )
    }

    /// How many cells the `reg` and `ranges` of this node's children use (2.3.5, with its defaults).
    pub(crate) fn child_cells(&self) -> Cells {
        let count = |name| self.property(name).and_then(|value| u32_at(value, 0));
        Cells {
            address: count("#address-cells").unwrap_or(2) as usize,
            size: count("#size-cells").unwrap_or(1) as usize,
        }
    }
}

/// The node that a walk is at, with those above it.
pub(crate) struct Lineage<'a> {
    tree: Tree<'a>,
    /// Where the properties of the node at each depth begin.
    offsets: [u32; MAXIMUM_DEPTH],
    depth: usize,
}

impl<'a> Lineage<'a> {
    /// Before a walk's first node.
    pub(crate) fn new(tree: Tree<'a>) -> Self {
        Lineage {
            tree,
            offsets: [0; MAXIMUM_DEPTH],
            depth: 0,
        }
    }

    /// Follows the walk to its next node.
    pub(crate) fn enter(&mut self, node: &Node<'a>) {
        self.depth = node.depth;
        self.offsets[node.depth] = node.properties.offset as u32;
    }

    /// The node at this depth; without its name, which nobody needs.
    fn at(&self, depth: usize) -> Node<'a> {
        let properties = Tokens {
            tree: self.tree,
            offset: self.offsets[depth] as usize,
        };
        Node {
            properties,
            name: &[],
            depth,
        }
    }

    /// The first answer that the node or one above it has, the nearest first.
    pub(crate) fn nearest<T>(&self, answer: impl Fn(Node<'a>) -> Option<T>) -> Option<T> {
        (0..=self.depth)
            .rev()
            .find_map(|depth| answer(self.at(depth)))
    }

    /// Whether the node and all above it may be used.
    pub(crate) fn is_enabled(&self) -> bool {
        (0..=self.depth).all(|depth| self.at(depth).is_enabled())
    }

    /// The widths in the node's `reg`.
    pub(crate) fn parent_cells(&self) -> Cells {
        self.at(self.depth.saturating_sub(1)).child_cells()
    }

    /// Where the CPU sees what the node's parent sees at `start`, through the `ranges` of each bus above (2.3.8): an
    /// empty one changes nothing, a missing one lets nothing through. The root is no bus.
    pub(crate) fn translate(&self, start: u64, size: u64) -> Option<u64> {
        (1..self.depth).rev().try_fold(start, |start, depth| {
            let bus = self.at(depth);
            let ranges = bus.property("ranges")?;
            if ranges.is_empty() {
                return Some(start);
            }
            let (below, above) = (bus.child_cells(), self.at(depth - 1).child_cells());
            entries(ranges, [below.address, above.address, below.size]).find_map(
                |[from, to, length]| {
                    let offset = start.checked_sub(from?)?;
                    let fits = offset.checked_add(size)? <= length?;
                    to?.checked_add(offset).filter(|_| fits)
                },
            )
        })
    }
}

/// Widths of an address and a size, in cells of 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Cells {
    pub(crate) address: usize,
    pub(crate) size: usize,
}

/// The whole entries of a value that is a list of them, each as wide as the given fields together, in cells. A field
/// that does not fit 64 bits is `None`.
pub(crate) fn entries<const N: usize>(
    value: &[u8],
    widths: [usize; N],
) -> impl Iterator<Item = [Option<u64>; N]> {
    let size = entry_size(widths);
    value.chunks_exact(size).map(move |mut entry| {
        widths.map(|width| {
            let (field, rest) = entry.split_at(width * 4);
            entry = rest;
            cells(field)
        })
    })
}

/// Bytes of such an entry. One of no width has no whole entries in any value.
pub(crate) fn entry_size<const N: usize>(widths: [usize; N]) -> usize {
    match widths.iter().sum::<usize>() {
        0 => usize::MAX,
        sum => sum * 4,
    }
}

/// The number in a value of whole cells, if it fits 64 bits. None at all is 0.
pub(crate) fn cells(value: &[u8]) -> Option<u64> {
    if !value.len().is_multiple_of(4) {
        return None;
    }
    let (high, low) = value.split_at(value.len().saturating_sub(8));
    let number = low
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte));
    high.iter().all(|&byte| byte == 0).then_some(number)
}

/// The reference to a node that a cell holds, if it can be one.
pub(crate) fn phandle(cell: Option<u64>) -> Option<NonZero<u32>> {
    NonZero::new(u32::try_from(cell?).ok()?)
}

/// The strings of a value, without those that are not text.
pub(crate) fn texts(value: &[u8]) -> impl Iterator<Item = &str> {
    let value = value.strip_suffix(&[0]).unwrap_or(value);
    value
        .split(|&byte| byte == 0)
        .filter_map(|text| str::from_utf8(text).ok())
}
