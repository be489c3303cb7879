//! Where schedules were explored: at which places threads came to a point, and how often they gave up their hart there. So a blind spot
//! can be seen.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::backtrace::Step;
use crate::console::println;
use crate::symbols::Named;

/// A place in the code with a point, by the address to which its call returns, and what happened there.
struct Place {
    address: AtomicUsize,
    visits: AtomicUsize,
    taken: AtomicUsize,
}

/// Places that there is room for; more are counted together.
const PLACES: usize = if super::EXPLORES { 512 } else { 2 };

static VISITED: [Place; PLACES] = [const {
    Place { address: AtomicUsize::new(0), visits: AtomicUsize::new(0), taken: AtomicUsize::new(0) }
}; PLACES];

/// Whether visits are counted: it takes time.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Counts from now on, at each place, how often a thread came there and how often it gave up its hart.
pub fn count() {
    COUNTS.store(true, Ordering::Relaxed);
}

/// Counts a visit of the place to which a point's call returns, if visits are counted.
pub fn visit(address: usize, gives_up: bool) {
    if !COUNTS.load(Ordering::Relaxed) {
        return;
    }
    // From where the address points to on, the first place that has it, or that nobody has.
    let first = address / 2 % PLACES;
    let free_or_this = |place: &&Place| {
        let taken =
            place.address.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
        taken.is_ok() || taken == Err(address)
    };
    let mut places = VISITED[first..].iter().chain(&VISITED[..first]);
    if let Some(place) = places.find(free_or_this) {
        place.visits.fetch_add(1, Ordering::Relaxed);
        place.taken.fetch_add(usize::from(gives_up), Ordering::Relaxed);
    }
}

/// Prints what was counted: a line a place.
pub fn print() {
    for place in VISITED.iter().filter(|place| place.address.load(Ordering::Relaxed) != 0) {
        println!(
            "place {} {} {}",
            place.visits.load(Ordering::Relaxed),
            place.taken.load(Ordering::Relaxed),
            Named(Step::ReturnTo(place.address.load(Ordering::Relaxed)))
        );
    }
}
