//! Builds flattened device trees, well-formed ones and others.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod promises;

/// A node to be: its name, properties and children, in order.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: Vec<u8>,
    pub properties: Vec<(String, Vec<u8>)>,
    pub children: Vec<Node>,
}

/// A node of this name with nothing in it.
pub fn node(name: impl AsRef<[u8]>) -> Node {
    Node { name: name.as_ref().to_vec(), ..Node::default() }
}

/// The root of a machine that boots, with one hart, and one bank of 128 MiB at 2 GiB.
pub fn small_machine() -> Node {
    root().child(memory(0x8000_0000, 0x800_0000)).child(cpus().child(cpu(0)))
}

/// A root whose children have two cells for an address and two for a size.
pub fn root() -> Node {
    node("").cells("#address-cells", &[2]).cells("#size-cells", &[2])
}

pub fn memory(start: u64, size: u64) -> Node {
    node(format!("memory@{start:x}")).text("device_type", "memory").numbers("reg", &[start, size])
}

pub fn cpus() -> Node {
    node("cpus")
        .cells("#address-cells", &[1])
        .cells("#size-cells", &[0])
        .cells("timebase-frequency", &[10_000_000])
}

/// A hart whose own interrupt controller has the phandle 100 + id.
pub fn cpu(id: u32) -> Node {
    let controller = node("interrupt-controller")
        .flag("interrupt-controller")
        .cells("#interrupt-cells", &[1])
        .cells("phandle", &[100 + id]);
    node(format!("cpu@{id:x}"))
        .text("device_type", "cpu")
        .cells("reg", &[id])
        .text("status", "okay")
        .text("riscv,isa", "rv64imac")
        .text("mmu-type", "riscv,sv39")
        .child(controller)
}

/// A bus on which addresses are the CPU's own.
pub fn soc() -> Node {
    node("soc")
        .cells("#address-cells", &[2])
        .cells("#size-cells", &[2])
        .text("compatible", "simple-bus")
        .flag("ranges")
}

/// A PLIC with the phandle 1 and 95 sources, and these pairs of phandle and cause as contexts.
pub fn plic(contexts: &[u32]) -> Node {
    node("plic@c000000")
        .text("compatible", "riscv,plic0")
        .numbers("reg", &[0xc00_0000, 0x60_0000])
        .cells("interrupts-extended", contexts)
        .cells("riscv,ndev", &[95])
        .cells("phandle", &[1])
}

/// A 16550 with interrupt 10 of the PLIC.
pub fn uart(address: u64) -> Node {
    node(format!("serial@{address:x}"))
        .text("compatible", "ns16550a")
        .numbers("reg", &[address, 0x100])
        .cells("interrupts", &[10])
        .cells("interrupt-parent", &[1])
}

impl Node {
    pub fn with(mut self, name: &str, value: impl Into<Vec<u8>>) -> Node {
        self.properties.push((name.into(), value.into()));
        self
    }

    pub fn flag(self, name: &str) -> Node {
        self.with(name, [])
    }

    pub fn text(self, name: &str, text: &str) -> Node {
        self.with(name, format!("{text}\0"))
    }

    pub fn cells(self, name: &str, cells: &[u32]) -> Node {
        self.with(name, cells.iter().flat_map(|cell| cell.to_be_bytes()).collect::<Vec<u8>>())
    }

    /// Two cells for each number.
    pub fn numbers(self, name: &str, numbers: &[u64]) -> Node {
        self.with(name, numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())
    }

    pub fn child(mut self, child: Node) -> Node {
        self.children.push(child);
        self
    }

    /// The node at this path of names, to be changed.
    pub fn at(&mut self, path: &[&str]) -> &mut Node {
        path.iter().fold(self, |node, name| {
            let mut children = node.children.iter_mut();
            children.find(|child| child.name == name.as_bytes()).expect("the path exists")
        })
    }

    /// Takes a property away and gives another, or none.
    pub fn replace(&mut self, name: &str, value: Option<Vec<u8>>) {
        self.properties.retain(|(other, _)| other != name);
        self.properties.extend(value.map(|value| (name.into(), value)));
    }

    /// The blob with this node as its root.
    pub fn blob(&self) -> Vec<u8> {
        self.blob_with(&[])
    }

    /// The same with a memory reservation map.
    pub fn blob_with(&self, reservations: &[(u64, u64)]) -> Vec<u8> {
        let (mut structure, mut strings) = (vec![], vec![]);
        self.flatten(&mut structure, &mut strings);
        structure.extend(9_u32.to_be_bytes());
        blob_of(reservations, &structure, &strings)
    }

    fn flatten(&self, structure: &mut Vec<u8>, strings: &mut Vec<u8>) {
        let align = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(4), 0);
        structure.extend(1_u32.to_be_bytes());
        structure.extend(&self.name);
        structure.push(0);
        align(structure);
        for (name, value) in &self.properties {
            let name = format!("{name}\0");
            let found = strings.windows(name.len()).position(|other| other == name.as_bytes());
            let start = found.unwrap_or_else(|| {
                strings.extend(name.as_bytes());
                strings.len() - name.len()
            });
            // Tokens that say nothing may be anywhere.
            for number in [4, 3, value.len() as u32, start as u32] {
                structure.extend(number.to_be_bytes());
            }
            structure.extend(value);
            align(structure);
        }
        for child in &self.children {
            child.flatten(structure, strings);
        }
        structure.extend(2_u32.to_be_bytes());
    }
}

/// A blob of these blocks.
pub fn blob_of(reservations: &[(u64, u64)], structure: &[u8], strings: &[u8]) -> Vec<u8> {
    let map = reservations.iter().chain([&(0, 0)]);
    let map: Vec<u8> =
        map.flat_map(|(start, size)| [start, size]).flat_map(|n| n.to_be_bytes()).collect();
    let structure_start = 40 + map.len();
    let strings_start = structure_start + structure.len();
    let total = strings_start + strings.len();
    let header = [
        0xd00d_feed,
        total,
        structure_start,
        strings_start,
        40,
        17,
        16,
        0,
        strings.len(),
        structure.len(),
    ];
    let header = header.iter().flat_map(|&field| (field as u32).to_be_bytes());
    header.chain(map).chain(structure.iter().copied()).chain(strings.iter().copied()).collect()
}
