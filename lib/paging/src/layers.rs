//! Memory of which some frames have other rights, or none.
//!
//! [`stretches`] gives each frame the rights of the last [`Layer`] that has it, in pieces as long as can be.

use frames::{FrameNumber, FrameRange};

use crate::entry::Rights;

/// Frames that are to be mapped with some rights, or not to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layer {
    /// The frames.
    pub frames: FrameRange,
    /// What may be done with them; `None`: they are left out.
    pub rights: Option<Rights>,
}

/// What is to be mapped when later layers lie over earlier ones: stretches that touch have different rights, so each is as
/// long as can be, and mapped in one piece it needs the fewest tables.
///
/// Looks through the layers twice for each edge: meant for tens of them.
pub fn stretches(layers: &[Layer]) -> impl Iterator<Item = (FrameRange, Rights)> {
    let rights_at = |frame: FrameNumber| {
        layers
            .iter()
            .rev()
            .find(|layer| layer.frames.contains(frame))
            .and_then(|layer| layer.rights)
    };
    // The rights are the same from one edge to the next.
    let edge_after = move |frame: FrameNumber| {
        let edges = layers.iter().flat_map(|layer| [layer.frames.start, layer.frames.end]);
        edges.filter(|&edge| edge > frame).min()
    };
    let mut next = Some(FrameNumber(0));
    core::iter::from_fn(move || {
        loop {
            let start = next?;
            let rights = rights_at(start);
            next = edge_after(start);
            while let Some(edge) = next
                && rights_at(edge) == rights
            {
                next = edge_after(edge);
            }
            // Where nothing ends there are no rights: no layer reaches beyond the last edge.
            if let (Some(rights), Some(end)) = (rights, next) {
                return Some((FrameRange { start, end }, rights));
            }
        }
    })
}
