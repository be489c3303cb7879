//! How long interrupts were masked.

use super::{Outcome, ensure, ensure_eq, self_test};
use crate::interrupts::{self, Site, Stretch, Stretches};
use crate::sbi;
use crate::trap::Cause;
use core::panic::Location;

/// A site in the caller's line.
#[track_caller]
fn here() -> Site {
    Site::Line(Location::caller())
}

self_test!(claim 65, the_longest_stretch_is_kept_with_what_began_it);
fn the_longest_stretch_is_kept_with_what_began_it() -> Outcome {
    let stretches = Stretches::new();
    let (short, long) = (here(), Site::Trap(Cause { code: 1 << 63 | 5, value: 0 }));
    ensure_eq!(stretches.longest(), None);
    for (begin, end, site) in [(100, 110, short), (200, 250, long), (300, 349, short)] {
        stretches.begin(begin, site);
        ensure_eq!(stretches.current(), Some((begin, site)));
        stretches.end(end);
        ensure_eq!(stretches.current(), None);
    }
    ensure_eq!(stretches.longest(), Some(Stretch { instructions: 50, site: long }));
    // The end of none.
    stretches.end(1000);
    ensure_eq!(stretches.longest(), Some(Stretch { instructions: 50, site: long }));
    stretches.forget();
    ensure_eq!(stretches.longest(), None);
    Ok(())
}

self_test!(claim 65, the_firmware_s_instructions_are_left_out_of_a_stretch);
fn the_firmware_s_instructions_are_left_out_of_a_stretch() -> Outcome {
    let stretches = Stretches::new();
    stretches.leave_out(300);
    ensure_eq!(stretches.current(), None);
    let site = here();
    stretches.begin(1000, site);
    stretches.leave_out(300);
    stretches.end(1310);
    ensure_eq!(stretches.longest(), Some(Stretch { instructions: 10, site }));
    Ok(())
}

self_test!(claim 65, a_stretch_lasts_from_the_first_mask_to_the_last_restored);
fn a_stretch_lasts_from_the_first_mask_to_the_last_restored() -> Outcome {
    let were_on = interrupts::are_enabled();
    interrupts::enable();
    let open = interrupts::stretches_here().current();
    let (first, line) = (interrupts::mask(), line!());
    let second = interrupts::mask();
    let began = interrupts::stretches_here().current();
    drop(first);
    let still = interrupts::stretches_here().current();
    // Longer than what the calls around take: the beginning must move by as much.
    let firmware = sbi::has_debug_console();
    let moved = interrupts::stretches_here().current();
    drop(second);
    let closed = interrupts::stretches_here().current();
    if !were_on {
        interrupts::disable();
    }
    if !interrupts::MEASURES {
        ensure_eq!(began, None);
        return Ok(());
    }
    if interrupts::longest_off().is_none() {
        return Err(super::Ended::Skipped("the hart has no counter"));
    }
    ensure_eq!(open, None);
    let Some((at, Site::Line(site))) = began else {
        ensure!(false, "two guards began {began:x?}");
        return Ok(());
    };
    ensure_eq!((site.file(), site.line()), (file!(), line));
    ensure_eq!(still, began);
    ensure!(
        moved.is_some_and(|(moved, _)| moved > at),
        "a call of the firmware ({firmware}) is counted: the stretch began at {at}, then at {moved:?}"
    );
    ensure_eq!(closed, None);
    Ok(())
}
