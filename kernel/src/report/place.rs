//! What lies at an address, in words.
//!
//! [`Place`] is an address whose text says it. It looks where it can without waiting: two locks are tried, and done without.

use core::fmt;

use crate::hart::{self, Part, StackKind};
use crate::image::Section;
use crate::stack::GAP_BYTES;
use crate::thread::{self, ThreadRef};
use crate::{frame, heap, platform, symbols, vm};

/// Addresses below this are taken for a null pointer and an offset.
const NEAR_NULL: usize = 64 * 1024;

/// An address. As text, what lies there.
pub struct Place(pub usize);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.0;
        if address < NEAR_NULL {
            return f.write_str("near null");
        }
        if is_freed_memory(address) {
            return f.write_str("the pattern of freed memory");
        }
        if let Some((hart, kind, part)) = hart::stack_at(address) {
            let kind = match kind {
                StackKind::Entry => "stack",
                StackKind::Emergency => "emergency stack",
            };
            let part = match part {
                Part::Stack => "in",
                Part::Guard => "in the gap below",
            };
            return write!(f, "{part} the {kind} of CPU {}", hart.cpu());
        }
        if let Some((thread, part)) = thread_stack_at(address) {
            let part = match part {
                Part::Stack => "in",
                Part::Guard => "in the gap below",
            };
            return write!(f, "{part} the stack of {}", *thread);
        }
        if let Some(section) = Section::of(address) {
            write!(f, "in {}", section.name())?;
            return match symbols::exact(address) {
                Some(symbol) => write!(f, ", {symbol}"),
                None => Ok(()),
            };
        }
        let Some(mapping) = vm::lookup(address) else { return f.write_str("not mapped") };
        if vm::is_direct(address) {
            write!(f, "in memory, ")?;
            memory(address, f)
        } else if let Some(device) = platform::device_at(mapping.physical(address)) {
            write!(f, "in the registers of {device}")
        } else {
            write!(f, "mapped {}", mapping.rights)
        }
    }
}

/// The thread in or below whose stack an address lies.
fn thread_stack_at(address: usize) -> Option<(ThreadRef, Part)> {
    let mut found = None;
    thread::for_each(|thread| {
        let stack = thread.stack();
        if stack.contains(&address) {
            found = Some((thread, Part::Stack));
        } else if (stack.start.saturating_sub(GAP_BYTES)..stack.start).contains(&address) {
            found = Some((thread, Part::Guard));
        }
    });
    found
}

/// Whether a pointer was read from memory that is free, give or take the offset of a field.
fn is_freed_memory(address: usize) -> bool {
    let patterns = [frame::FREE_PATTERN, u64::from_ne_bytes([heap::FREE_PATTERN; 8])];
    let near = |pattern: u64| address.wrapping_sub(pattern as usize) < vm::PAGE;
    cfg!(feature = "checked") && patterns.into_iter().any(near)
}

/// What the allocators have at an address of the direct map.
fn memory(address: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if let Some(block) = heap::try_find(address) {
        let state = if block.in_use { "in use" } else { "free" };
        return write!(
            f,
            "a block of the heap, {} bytes from {:#x}, {state}",
            block.size, block.start
        );
    }
    let frame = frames::FrameNumber::containing(vm::physical_of_direct(address));
    match frame::state(frame) {
        Some(frames::State::InUse) => f.write_str("a frame in use"),
        Some(frames::State::Free) => f.write_str("a free frame"),
        Some(frames::State::Reserved) => f.write_str("reserved"),
        None => f.write_str("no frame of the allocator"),
    }
}
