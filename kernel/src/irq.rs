//! Interrupts from devices: which hart takes which source, what is done about it, and how often it came.
//!
//! Each source goes to one hart at a time. Which context of the controller is a hart's own, the device tree says. A machine without a
//! controller goes on without these interrupts.
//!
//! Owns the controller and the table of handlers, under one lock: [`register`], [`route`], [`handle`]. A source is completed where it is enabled
//! by then, once for each time that it was claimed.

use core::num::NonZero;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use arrayvec::ArrayVec;
use machine::{Machine, PhysicalRange};
use riscv::register::sie;
use spin::Once;

use crate::console::println;
use crate::hart::{self, CpuNumber, Hart, MAX_CPUS};
use crate::plic::{self, Plic};
use crate::sync::SpinLock;
use crate::trace::{self, Which};
use crate::{platform, vm};

/// Sources that there can be (PLIC specification, "Interrupt Identifiers"): 1 to 1023, and none.
const SOURCES: usize = 1024;
/// Handlers that there is room for.
const ROOM: usize = 8;

static CONTROLLER: Once<Controller> = Once::new();
static ROUTES: SpinLock<ArrayVec<Route, ROOM>> =
    SpinLock::new("interrupt routes", ArrayVec::new_const());

/// Each hart's context in the controller, by CPU number, as the tree says it; [`NO_CONTEXT`] where it takes no interrupts of devices.
static CONTEXTS: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(NO_CONTEXT) }; MAX_CPUS];
/// Not a context's number: those have 16 bits.
const NO_CONTEXT: u32 = u32::MAX;

/// How often each source came.
static COUNTS: [AtomicU32; SOURCES] = [const { AtomicU32::new(0) }; SOURCES];
/// How many each hart took, by CPU number.
static TAKEN: [AtomicUsize; MAX_CPUS] = [const { AtomicUsize::new(0) }; MAX_CPUS];

/// The controller that is driven.
struct Controller {
    /// Its place among the machine's.
    index: u8,
    registers: PhysicalRange,
    sources: u16,
    plic: Plic,
}

/// A source that somebody handles.
struct Route {
    source: u16,
    cpu: CpuNumber,
    handler: fn(),
}

/// Why a source does not interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// The machine has no controller that can be driven.
    NoController,
    /// The controller has no such source.
    NoSuchSource(u16),
    /// Nobody has registered a handler for it.
    NoHandler(u16),
    /// It has a handler already.
    Taken(u16),
    /// There are handlers for as many sources as there is room for.
    Full,
    /// The tree gives this hart no context in the controller.
    NoContext(CpuNumber),
}

/// Maps the controller, and lets no source interrupt anybody. Called once, before harts call [`start_here`].
pub fn start(machine: &Machine<'_>) {
    let wanted = machine.uart.and_then(|uart| uart.interrupt).map_or(0, |interrupt| interrupt.plic);
    let Some(described) = machine.plics.get(usize::from(wanted)) else {
        return println!("no interrupts from devices: the tree has no controller that is driven");
    };
    let contexts =
        || machine.harts.iter().filter_map(|hart| hart.context).filter(|own| own.plic == wanted);
    let highest = contexts().map(|context| context.number).max();
    let Some(registers) = highest.and_then(|highest| Plic::needed(described.registers, highest))
    else {
        return println!("no interrupts from devices: no hart has a context in {}", described.name);
    };
    let base = match vm::map_device(registers) {
        Ok(base) => base,
        Err(error) => {
            return println!("no interrupts from devices: {registers} cannot be mapped: {error:?}");
        }
    };
    if !platform::is_there(base, registers, "the interrupt controller") {
        return println!("no interrupts from devices");
    }
    let plic = Plic::new(base);
    for source in 1..=described.sources {
        plic.set_priority(source, plic::NEVER);
    }
    for context in contexts() {
        plic.disable_all(described.sources, context.number);
    }
    let sources = described.sources;
    CONTROLLER.call_once(|| Controller { index: wanted, registers, sources, plic });
}

/// Lets this hart take interrupts from devices, if the tree gives it a context. Interrupts are off.
pub fn start_here() {
    let this = hart::of_this_cpu();
    let (Some(controller), Some(machine)) = (CONTROLLER.get(), platform::machine()) else { return };
    let described = machine.harts.iter().find(|hart| hart.id == this.id());
    let context = described.and_then(|hart| hart.context);
    let Some(context) = context.filter(|context| context.plic == controller.index) else { return };
    CONTEXTS[this.cpu().0].store(context.number.into(), Ordering::Relaxed);
    controller.plic.set_threshold(context.number, 0);
    // SAFETY: a handler can run on this hart's stack (invariant TRAP-1).
    unsafe { sie::set_sext() };
}

/// The context of a hart that takes interrupts of devices.
pub fn context(cpu: CpuNumber) -> Option<u16> {
    u16::try_from(CONTEXTS[cpu.0].load(Ordering::Relaxed)).ok()
}

/// Where the controller is, as far as it is mapped.
pub fn registers() -> Option<PhysicalRange> {
    CONTROLLER.get().map(|controller| controller.registers)
}

/// Has `handler` called for every interrupt of `source`, on CPU 0, with interrupts off: it must not sleep.
///
/// # Errors
/// What keeps the source from interrupting; nothing has changed then.
pub fn register(source: u16, handler: fn()) -> Result<(), Error> {
    let controller = CONTROLLER.get().ok_or(Error::NoController)?;
    if !(1..=controller.sources).contains(&source) {
        return Err(Error::NoSuchSource(source));
    }
    let cpu = CpuNumber(0);
    let context = context(cpu).ok_or(Error::NoContext(cpu))?;
    let mut routes = ROUTES.lock();
    if routes.iter().any(|route| route.source == source) {
        return Err(Error::Taken(source));
    }
    routes.try_push(Route { source, cpu, handler }).map_err(|_| Error::Full)?;
    controller.plic.set_priority(source, plic::LOWEST);
    controller.plic.set_enabled(source, context, true);
    Ok(())
}

/// Has `source` interrupt `cpu` alone from now on. An interrupt that another hart is handling is completed all the same.
///
/// # Errors
/// What keeps it from that; nothing has changed then.
pub fn route(source: u16, cpu: CpuNumber) -> Result<(), Error> {
    let controller = CONTROLLER.get().ok_or(Error::NoController)?;
    let to = context(cpu).ok_or(Error::NoContext(cpu))?;
    let mut routes = ROUTES.lock();
    let route = routes.iter_mut().find(|route| route.source == source);
    let route = route.ok_or(Error::NoHandler(source))?;
    let from = context(route.cpu).ok_or(Error::NoContext(route.cpu))?;
    controller.plic.set_enabled(source, from, false);
    controller.plic.set_enabled(source, to, true);
    route.cpu = cpu;
    Ok(())
}

/// The controller's sources; none without one.
pub fn sources() -> impl Iterator<Item = u16> {
    1..=CONTROLLER.get().map_or(0, |controller| controller.sources)
}

/// How often `source` has interrupted.
pub fn count(source: u16) -> u32 {
    COUNTS.get(usize::from(source)).map_or(0, |count| count.load(Ordering::Relaxed))
}

/// How many interrupts of devices a hart has taken.
pub fn taken(cpu: CpuNumber) -> usize {
    TAKEN[cpu.0].load(Ordering::Relaxed)
}

/// Takes a supervisor external interrupt on this hart: the most urgent source. What else is pending interrupts again at once; so interrupts
/// are never off for longer than one takes. There may be nothing: another hart was first.
#[inline(never)]
pub fn handle(hart: &Hart) {
    let _taken = trace::interrupt(Which::External);
    let (Some(controller), Some(context)) = (CONTROLLER.get(), context(hart.cpu())) else {
        return;
    };
    if let Some(source) = controller.plic.claim(context) {
        COUNTS[usize::from(source.get()) % SOURCES].fetch_add(1, Ordering::Relaxed);
        TAKEN[hart.cpu().0].fetch_add(1, Ordering::Relaxed);
        let handler = find(&ROUTES.lock(), source).map(|route| route.handler);
        if let Some(handler) = handler {
            handler();
        }
        {
            // It may have been routed to another hart meanwhile, and a completion counts only where the source is enabled: until it
            // is written, nobody may route it on.
            let routes = ROUTES.lock();
            let taker = find(&routes, source).and_then(|route| self::context(route.cpu));
            controller.plic.complete(taker.unwrap_or(context), source);
        }
        if handler.is_none() {
            refuse(controller, context, source);
        }
    }
}

/// Where a source goes.
fn find(routes: &[Route], source: NonZero<u16>) -> Option<&Route> {
    routes.iter().find(|route| route.source == source.get())
}

/// Switches off a source that nobody handles: it would come again at once, for ever.
#[cold]
fn refuse(controller: &Controller, context: u16, source: NonZero<u16>) {
    {
        let _routes = ROUTES.lock();
        controller.plic.set_enabled(source.get(), context, false);
    }
    println!("interrupt source {source} is switched off: it has no handler");
}

/// For tests: what only this file may do otherwise.
#[cfg(feature = "selftest")]
pub mod probing {
    use super::{CONTROLLER, ROUTES, context};
    use crate::hart::CpuNumber;

    /// Claims on a hart where nothing need be pending; whether something was.
    pub fn claim(cpu: CpuNumber) -> Option<u16> {
        let claimed = CONTROLLER.get()?.plic.claim(context(cpu)?)?;
        Some(claimed.get())
    }

    /// Takes the handler of a source away without switching the source off.
    pub fn forget(source: u16) -> Option<fn()> {
        let mut routes = ROUTES.lock();
        let place = routes.iter().position(|route| route.source == source)?;
        Some(routes.remove(place).handler)
    }
}
