//! The flattened device tree as bytes: header, reservation map, nodes and properties (devicetree
//! specification 0.4, chapter 5).
//!
//! [`Tree::new`] reads the whole structure block once and checks that every token, name and value
//! lies inside it and stands where it may. What it accepts, the walks below read without a way to
//! fail. A walk needs no stack: a tree is a list of nodes in document order, each with its depth.
//!
//! Names are bytes here, of any length and any characters: one that the specification forbids
//! costs nobody the boot.

use core::num::NonZero;
use core::ops::RangeInclusive;

use crate::Error;

/// Bytes of a blob's header, all that [`blob_size`] needs to see.
pub const HEADER_SIZE: usize = 40;

/// The largest blob that is read, in bytes. Trees of real machines have up to a few hundred KiB; a
/// larger size in a header is taken for damage.
pub const MAXIMUM_BLOB_SIZE: usize = 2 << 20;

/// Nodes at this depth (the root's is 0) and deeper are not looked into. Machines use about 8.
pub(crate) const MAXIMUM_DEPTH: usize = 64;

const MAGIC: usize = 0xd00d_feed;

/// The size in bytes that a header claims for its whole blob, once it is known to be a header.
///
/// For whoever has an address and no length: it bounds what may be made a slice.
///
/// # Errors
///
/// [`Error::Malformed`] for another magic number, a version that does not include 17, and a size
/// below [`HEADER_SIZE`] or above [`MAXIMUM_BLOB_SIZE`].
pub fn blob_size(header: &[u8; HEADER_SIZE]) -> Result<usize, Error<'static>> {
    let field = |offset, allowed: RangeInclusive<usize>, problem| {
        let found = u32_at(header, offset).unwrap_or(0) as usize;
        let error = Error::malformed(offset, found, problem);
        Some(found).filter(|found| allowed.contains(found)).ok_or(error)
    };
    field(0, MAGIC..=MAGIC, "is not the magic number 0xd00dfeed")?;
    field(20, 17..=usize::MAX, "is a version below 17")?;
    field(24, 0..=17, "is an oldest compatible version above 17")?;
    let sizes = HEADER_SIZE..=MAXIMUM_BLOB_SIZE;
    field(4, sizes, "is no total size from 40 bytes to 2 MiB")
}

/// The big-endian number at `offset`, if all of it is inside.
fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(number(*bytes.get(offset..)?.first_chunk()?))
}

/// The blocks of a blob.
#[derive(Clone, Copy)]
pub(crate) struct Tree<'a> {
    structure: Tokens<'a>,
    /// Names, each with a zero after it.
    strings: &'a [u8],
    /// 16 bytes an entry, without the terminator.
    reservation_map: &'a [u8],
}

impl<'a> Tree<'a> {
    /// Checks a blob. Bytes after the size that its header gives are not looked at. Also tells how
    /// many nodes are so deep that no walk shows them.
    pub(crate) fn new(blob: &'a [u8]) -> Result<(Self, usize), Error<'a>> {
        let cut_short = |size| Error::malformed(4, size, "is more bytes than there are");
        let header = blob.first_chunk().ok_or(cut_short(HEADER_SIZE))?;
        let size = blob_size(header)?;
        let blob = blob.get(..size).ok_or(cut_short(size))?;
        let field = |offset| u32_at(header, offset).unwrap_or(0) as usize;
        let outside = |offset| Error::malformed(offset, field(offset), "leads outside the blob");
        let block = |start, size| {
            let rest = blob.get(field(start)..).ok_or(outside(start))?;
            rest.get(..field(size)).ok_or(outside(size))
        };

        let structure = block(8, 36)?;
        let strings = block(12, 32)?;
        let last = strings.iter().rposition(|&byte| byte == 0);
        let map = blob.get(field(16)..).unwrap_or_default();
        let entries = map.chunks_exact(16).position(|entry| entry == [0; 16]);
        let tree = Tree {
            structure: Tokens(structure.as_chunks().0),
            strings: &strings[..last.map_or(0, |last| last + 1)],
            reservation_map: &map[..16 * entries.ok_or(outside(16))?],
        };
        Ok((tree, tree.check(field(8))?))
    }

    /// Reads every token once, and counts the nodes that are too deep. `start` is where the
    /// structure block begins in the blob.
    fn check(self, start: usize) -> Result<usize, Error<'a>> {
        let mut tokens = self.structure;
        let (mut depth, mut too_deep) = (0_usize, 0);
        let (mut is_first, mut takes_properties) = (true, false);
        loop {
            let before = tokens;
            let malformed = |problem| {
                let offset = start + 4 * (self.structure.0.len() - before.0.len());
                let found = before.0.first().map_or(0, |cell| number(*cell)) as usize;
                Error::malformed(offset, found, problem)
            };
            let unreadable = || malformed("is no token that ends in its block");
            let token = tokens.read().ok_or_else(unreadable)?;
            let may_stand_here = match token {
                Token::Begin(_) => depth > 0 || is_first,
                Token::Property(name, _) => takes_properties && name < self.strings.len(),
                Token::End => depth > 0,
                Token::Finish => depth == 0 && !is_first,
            };
            match token {
                _ if !may_stand_here => return Err(malformed("is a token out of place")),
                Token::Begin(_) => {
                    too_deep += usize::from(depth >= MAXIMUM_DEPTH);
                    depth += 1;
                }
                Token::Property(..) => {}
                Token::End => depth -= 1,
                Token::Finish => return Ok(too_deep),
            }
            is_first = false;
            takes_properties = matches!(token, Token::Begin(_) | Token::Property(..));
        }
    }

    /// The header's memory reservations: start and size in bytes.
    pub(crate) fn reservation_map(self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        pairs(self.reservation_map, [2, 2])
    }

    /// Every node, in document order; the first is the root.
    pub(crate) fn nodes(self) -> Nodes<'a> {
        let (tokens, strings) = (self.structure, self.strings);
        Nodes { tokens, strings, depth: 0 }
    }

    pub(crate) fn root(self) -> Node<'a> {
        self.nodes().next().expect("a checked tree has a root node")
    }

    /// Follows a path such as `/soc/serial@10000000`; a name without its unit address finds the
    /// first of them.
    pub(crate) fn find(self, path: &str) -> Option<Node<'a>> {
        let mut names = path.strip_prefix('/')?.split('/').filter(|name| !name.is_empty());
        names
            .try_fold(self.root(), |node, name| node.children().find(|child| child.is_called(name)))
    }
}

enum Token<'a> {
    Begin(&'a [u8]),
    End,
    /// Where the name is among the strings, and the value.
    Property(usize, &'a [u8]),
    Finish,
}

/// The structure block from some token on, in cells.
#[derive(Clone, Copy)]
struct Tokens<'a>(&'a [[u8; 4]]);

impl<'a> Tokens<'a> {
    /// Takes the first token; `None` where it is malformed.
    // Inlined, or a third of all instructions go into handing tokens over.
    #[inline(always)]
    fn read(&mut self) -> Option<Token<'a>> {
        let (mut kind, mut rest) = self.0.split_first()?;
        while number(*kind) == 4 {
            (kind, rest) = rest.split_first()?;
        }
        let (token, rest) = match (number(*kind), rest) {
            (1, _) => {
                let name = rest.as_flattened();
                let length = name.iter().position(|&byte| byte == 0)?;
                (Token::Begin(&name[..length]), &rest[length / 4 + 1..])
            }
            (2, _) => (Token::End, rest),
            (3, [length, name, rest @ ..]) => {
                let length = number(*length) as usize;
                let (value, rest) = rest.split_at_checked(length.div_ceil(4))?;
                let value = &value.as_flattened()[..length];
                (Token::Property(number(*name) as usize, value), rest)
            }
            (9, _) => (Token::Finish, rest),
            _ => return None,
        };
        self.0 = rest;
        Some(token)
    }
}

/// A cell's number. By shifts, which take half the instructions of `from_be_bytes` on a hart
/// without Zbb.
fn number(cell: [u8; 4]) -> u32 {
    cell.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The nodes from some place in a tree on, in document order.
#[derive(Clone, Copy)]
pub(crate) struct Nodes<'a> {
    tokens: Tokens<'a>,
    strings: &'a [u8],
    /// How many nodes are open.
    depth: usize,
}

impl<'a> Iterator for Nodes<'a> {
    type Item = Node<'a>;

    fn next(&mut self) -> Option<Node<'a>> {
        loop {
            match self.tokens.read()? {
                Token::Begin(name) => {
                    let (properties, strings, depth) = (self.tokens, self.strings, self.depth);
                    self.depth += 1;
                    if depth < MAXIMUM_DEPTH {
                        return Some(Node { properties, strings, name, depth });
                    }
                }
                Token::End => self.depth -= 1,
                Token::Property(..) => {}
                Token::Finish => return None,
            }
        }
    }
}

/// A node. A property is looked up by reading over those before it: nodes have few.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    /// From the first token after the name on.
    properties: Tokens<'a>,
    strings: &'a [u8],
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

    /// Whether the name is this one, or this one with a unit address.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || (rest[0] == b'@' && !name.contains('@')))
    }

    /// Whether two are the same node of one tree.
    pub(crate) fn is(&self, other: &Node) -> bool {
        self.properties.0.len() == other.properties.0.len()
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let (tokens, strings, depth) = (self.properties, self.strings, self.depth + 1);
        let below = Nodes { tokens, strings, depth };
        let below = below.take_while(move |node| node.depth >= depth);
        below.filter(move |node| node.depth == depth)
    }

    /// The value of a property.
    pub(crate) fn property(&self, name: &str) -> Option<&'a [u8]> {
        let mut tokens = self.properties;
        while let Some(Token::Property(start, value)) = tokens.read() {
            let end = start + name.len();
            // The zero is looked at first: it rules out most names without reading them.
            if self.strings.get(end) == Some(&0) && self.strings[start..end] == *name.as_bytes() {
                return Some(value);
            }
        }
        None
    }

    /// The value as a number of any whole cells.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        cells(self.property(name)?)
    }

    /// The value as text, up to its first zero.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        str::from_utf8(texts(self.property(name)?).next()?).ok()
    }

    /// Whether `status` allows the node to be used (2.3.4).
    pub(crate) fn is_enabled(&self) -> bool {
        matches!(self.text("status"), None | Some("okay" | "ok"))
    }

    /// The value as a number from 1 up to 32 bits.
    pub(crate) fn nonzero(&self, name: &str) -> Option<NonZero<u32>> {
        NonZero::new(self.number(name)?.try_into().ok()?)
    }

    /// The number by which other nodes refer to this one.
    pub(crate) fn phandle(&self) -> Option<NonZero<u32>> {
        let old = || self.nonzero("linux,phandle");
        self.nonzero("phandle").or_else(old)
    }

    /// The widths in `reg` and `ranges` of this node's children (2.3.5, with its defaults).
    pub(crate) fn child_cells(&self) -> Cells {
        let count = |name| u32_at(self.property(name)?, 0);
        let address = count("#address-cells").unwrap_or(2);
        let size = count("#size-cells").unwrap_or(1);
        [address as usize, size as usize]
    }

    /// The pairs of address and size in `reg`, without those that do not fit 64 bits.
    pub(crate) fn reg(&self, cells: Cells) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        pairs(self.property("reg").unwrap_or_default(), cells)
    }
}

/// The node that a walk is at, and those above it.
pub(crate) struct Place<'a> {
    pub(crate) node: Node<'a>,
    tree: Tree<'a>,
    /// How many cells of the structure block come after the name of the node at each depth.
    rests: [u32; MAXIMUM_DEPTH],
}

impl<'a> Place<'a> {
    /// At the root.
    pub(crate) fn new(tree: Tree<'a>) -> Self {
        Place { node: tree.root(), tree, rests: [0; MAXIMUM_DEPTH] }
    }

    /// Follows the walk to its next node.
    pub(crate) fn enter(&mut self, node: Node<'a>) {
        self.node = node;
        self.rests[node.depth] = node.properties.0.len() as u32;
    }

    /// The node at this depth; without its name, which nobody needs.
    fn at(&self, depth: usize) -> Node<'a> {
        let Tree { structure: Tokens(cells), strings, .. } = self.tree;
        let properties = Tokens(&cells[cells.len() - self.rests[depth] as usize..]);
        Node { properties, strings, name: &[], depth }
    }

    /// A property of the node or else of the nearest above that has it.
    pub(crate) fn nearest(&self, property: &str) -> Option<u64> {
        let mut depths = (0..=self.node.depth).rev();
        depths.find_map(|depth| self.at(depth).number(property))
    }

    /// Whether the node and all above it may be used.
    pub(crate) fn is_enabled(&self) -> bool {
        (0..=self.node.depth).all(|depth| self.at(depth).is_enabled())
    }

    /// The widths in the node's `reg`.
    pub(crate) fn parent_cells(&self) -> Cells {
        self.at(self.node.depth.saturating_sub(1)).child_cells()
    }

    /// Where the CPU sees what the node's parent sees at `start`, through the `ranges` of each bus
    /// above (2.3.8): an empty one changes nothing, a missing one lets nothing through.
    pub(crate) fn translate(&self, start: u64, size: u64) -> Option<u64> {
        (1..self.node.depth).rev().try_fold(start, |start, depth| {
            let bus = self.at(depth);
            let ranges = bus.property("ranges")?;
            if ranges.is_empty() {
                return Some(start);
            }
            let (below, above) = (bus.child_cells(), self.at(depth - 1).child_cells());
            let widths = [below[0], above[0], below[1]];
            entries(ranges, widths).find_map(|[from, to, length]| {
                let offset = start.checked_sub(from?)?;
                let fits = offset.checked_add(size)? <= length?;
                to?.checked_add(offset).filter(|_| fits)
            })
        })
    }
}

/// Widths of an address and a size, in cells of 32 bits.
pub(crate) type Cells = [usize; 2];

/// The whole entries of a list, each as wide as its fields together, in cells. A field that does
/// not fit 64 bits is `None`.
pub(crate) fn entries<const N: usize>(
    list: &[u8],
    widths: [usize; N],
) -> impl Iterator<Item = [Option<u64>; N]> {
    let entries = list.chunks_exact(entry_size(widths));
    entries.map(move |mut entry| widths.map(|width| cells(entry.split_off(..width * 4)?)))
}

/// Bytes of such an entry. One without width has no whole entries in any list.
pub(crate) fn entry_size<const N: usize>(widths: [usize; N]) -> usize {
    match widths.iter().sum::<usize>() {
        0 => usize::MAX,
        sum => sum * 4,
    }
}

/// The pairs of address and size in a list, without those that do not fit 64 bits.
fn pairs(list: &[u8], cells: Cells) -> impl Iterator<Item = (u64, u64)> {
    entries(list, cells).filter_map(|[address, size]| Some((address?, size?)))
}

/// The number in whole cells, if it fits 64 bits. None at all is 0.
fn cells(value: &[u8]) -> Option<u64> {
    let (high, low) = value.split_at(value.len().saturating_sub(8));
    let fits = value.len().is_multiple_of(4) && high.iter().all(|&byte| byte == 0);
    let append = |number, &byte| number << 8 | u64::from(byte);
    fits.then(|| low.iter().fold(0, append))
}

/// Whether the cell refers to the node whose phandle is given.
pub(crate) fn refers(cell: Option<u64>, phandle: Option<NonZero<u32>>) -> bool {
    cell.is_some() && cell == phandle.map(|phandle| phandle.get().into())
}

/// The strings of a value, as bytes.
pub(crate) fn texts(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.strip_suffix(&[0]).unwrap_or(value).split(|&byte| byte == 0)
}
