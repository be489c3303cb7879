//! What the boot loader chose: `/chosen` (devicetree specification 3.6).

use crate::blob::Node;
use crate::{Machine, PhysicalRange, Problem};

/// What `/chosen` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chosen<'a> {
    /// The kernel's command line, or empty.
    pub bootargs: &'a str,
    /// The path of the console's device, with an alias replaced by what it stands for; or empty.
    pub stdout_path: &'a str,
    /// What follows the path and a colon, such as `115200n8`; or empty.
    pub stdout_options: &'a str,
    /// The initial RAM disk. It is memory in use, though seldom reserved.
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
            None => self.warn(
                chosen,
                "bootargs",
                Problem::Unknown,
                "the command line is taken to be empty",
            ),
        }

        let end = chosen.number("linux,initrd-end");
        if let (Some(start), Some(end)) = (chosen.number("linux,initrd-start"), end) {
            self.chosen.initrd = PhysicalRange::between(start, end);
            if self.chosen.initrd.is_none() {
                self.warn(
                    chosen,
                    "linux,initrd-end",
                    Problem::Value(end),
                    "there is taken to be no initrd",
                );
            }
        }

        let stdout = chosen
            .text("stdout-path")
            .or_else(|| chosen.text("linux,stdout-path"))?;
        let (name, options) = stdout.split_once(':').unwrap_or((stdout, ""));
        let alias = || aliases?.text(name);
        let path = if name.starts_with('/') {
            name
        } else {
            alias().unwrap_or(name)
        };
        (self.chosen.stdout_path, self.chosen.stdout_options) = (path, options);
        let node = self.tree.find(path);
        if node.is_none() {
            self.warn(
                chosen,
                "stdout-path",
                Problem::Unknown,
                "the first UART is taken, if there is one",
            );
        }
        node
    }
}
