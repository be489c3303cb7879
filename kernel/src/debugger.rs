//! What a debugger must know to find threads: where their fields lie. The image has line tables and no types.
//!
//! Owns [`LAYOUT`], a table that names itself. The compiler fills it in, `xtask/gdb/threads.py` reads it from the image; nothing in the
//! kernel does.

use crate::{hart, sched, switch, thread, timer};

/// A number with its name: bytes from the beginning of something to a part of it, or from one to the next.
#[repr(C)]
pub struct Fact {
    name: &'static str,
    bytes: usize,
}

impl Fact {
    /// So many bytes are called so.
    pub const fn new(name: &'static str, bytes: usize) -> Fact {
        Fact { name, bytes }
    }
}

#[used]
static LAYOUT: &[&[Fact]] =
    &[hart::LAYOUT, sched::LAYOUT, timer::LAYOUT, thread::LAYOUT, switch::LAYOUT];
