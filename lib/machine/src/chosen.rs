//! What the boot loader chose: `/chosen` (devicetree specification 3.6).

use crate::blob::Node;
use crate::{Machine, PhysicalRange};

/// What `/chosen` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chosen<'a> {
    /// The kernel's command line, or empty.
    pub bootargs: &'a str,
    /// The path of the console's device, an alias replaced by what it stands for; or empty.
    pub stdout_path: &'a str,
    /// What follows the path and a colon, such as `115200n8`; or empty.
    pub stdout_options: &'a str,
    /// The initial RAM disk. That memory is in use, and seldom reserved.
    pub initrd: Option<PhysicalRange>,
}

impl<'a> Machine<'a> {
    /// Reads `/chosen`. Returns the node that `stdout-path` names.
    pub(crate) fn read_chosen(
        &mut self,
        chosen: &Node<'a>,
        aliases: Option<Node<'a>>,
    ) -> Option<Node<'a>> {
        match chosen.text("bootargs") {
            Some(text) => self.chosen.bootargs = text,
            None if chosen.property("bootargs").is_none() => {}
            None => self.warn(chosen, "bootargs", None, "is no text: taken as empty"),
        }

        let initrd = ["linux,initrd-start", "linux,initrd-end"].map(|name| chosen.number(name));
        if let [Some(start), Some(end)] = initrd {
            self.chosen.initrd = PhysicalRange::between(start, end);
            if self.chosen.initrd.is_none() {
                self.warn(
                    chosen,
                    "linux,initrd-end",
                    Some(end),
                    "is not after the start: no initrd",
                );
            }
        }

        let stdout = chosen.text("stdout-path").or_else(|| chosen.text("linux,stdout-path"))?;
        let (name, options) = stdout.split_once(':').unwrap_or((stdout, ""));
        let alias = aliases.filter(|_| !name.starts_with('/')).and_then(|node| node.text(name));
        self.chosen.stdout_path = alias.unwrap_or(name);
        self.chosen.stdout_options = options;
        let node = self.tree.find(self.chosen.stdout_path);
        if node.is_none() {
            self.warn(chosen, "stdout-path", None, "names no node: any UART is taken");
        }
        node
    }
}
