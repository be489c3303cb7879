//! The kinds of crash, each with what its report must say.

use core::alloc::Layout;
use core::arch::{asm, naked_asm};
use core::fmt::{self, Write};
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use arrayvec::ArrayString;

use super::{Place, crash_kind};
use crate::console::{self, print, println};
use crate::exit;
use crate::hart::{self, CpuNumber, StackKind};
use crate::stop::How;
#[cfg(feature = "checked")]
use crate::sync::SpinLock;
use crate::{frame, image, interrupts, thread, timer, vm};
#[cfg(feature = "checked")]
use crate::{heap, probe};

crash_kind!(claim 9, harts 1, "quick", panic, "panic: the answer is 42", "kinds::panic,crash::crash_here");
fn panic() {
    panic!("the answer is {}", black_box(42));
}

/// An address in the upper half that nothing ever maps: just below the image.
fn unmapped() -> usize {
    image::start() - 4096
}

crash_kind!(claim 102, harts 1, "fixed", unsentpanic, "panic: with a text on its way out", "kinds::unsentpanic,crash::crash_here");
fn unsentpanic() {
    // Less than there is room for, and more than the UART takes at once: with interrupts off it stays in the ring.
    let mut text = ArrayString::<1_100>::new();
    for number in 0..100 {
        // There is room.
        let _ = writeln!(text, "unsent {number:03}");
    }
    let _masked = interrupts::mask();
    print!("{text}");
    panic!("with a text on its way out");
}

crash_kind!(claim 96, harts 1, "fixed", flood, "panic: after more than a pipe holds", "kinds::flood,crash::crash_here");
fn flood() {
    // Polled, as from a handler: who may sleep would wait for room, for as long as it takes.
    let masked = interrupts::mask();
    for number in 0..1_000 {
        println!("{number:>79}");
    }
    drop(masked);
    panic!("after more than a pipe holds");
}

crash_kind!(claim 9, harts 1, "-", pagefault, "read of 0xffffffff801ff000, not mapped", "kinds::pagefault,crash::crash_here");
fn pagefault() {
    // SAFETY: none: this is a deliberate fault, and the report comes instead of a value.
    black_box(unsafe {
        core::ptr::read_volatile(core::ptr::without_provenance::<u64>(unmapped()))
    });
}

crash_kind!(claim 46, harts 1, "-", nullpointer, "write to 0x10, near null", "kinds::nullpointer,crash::crash_here");
fn nullpointer() {
    let pointer = core::ptr::without_provenance_mut::<u64>(black_box(16));
    // SAFETY: none: this is a deliberate fault.
    unsafe { core::ptr::write_volatile(pointer, 1) };
}

crash_kind!(claim 5, harts 1, "-", textwrite, "write to 0xffffffff80200000, in kernel text", "kinds::textwrite,crash::crash_here");
fn textwrite() {
    let pointer = core::ptr::without_provenance_mut::<u8>(black_box(image::start()));
    // SAFETY: none: this is a deliberate fault.
    unsafe { core::ptr::write_volatile(pointer, 0) };
}

crash_kind!(claim 5, harts 1, "-", execdata, "in kernel data", "kinds::execdata,crash::crash_here");
fn execdata() {
    /// `ret`, twice: compressed.
    static CODE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0x8082_8082);
    // SAFETY: none: this is a deliberate fault.
    let function = unsafe { core::mem::transmute::<*mut u32, fn()>(CODE.as_ptr()) };
    black_box(function)();
    black_box(());
}

crash_kind!(claim 21, harts 1, "-", illegal, "illegal instruction", "kinds::illegal,crash::crash_here");
fn illegal() {
    // SAFETY: none: this is a deliberate fault. `unimp` is illegal by definition.
    unsafe { core::arch::asm!("unimp") };
}

crash_kind!(claim 9, harts 1, "-", breakpoint, "breakpoint", "kinds::breakpoint,crash::crash_here");
fn breakpoint() {
    // SAFETY: none: this is a deliberate fault. No mark stands behind it, so nothing goes on there; it lies where one could.
    unsafe {
        core::arch::asm!(".option push", ".option norvc", ".balign 4", "ebreak", ".option pop")
    };
}

crash_kind!(claim 3, harts 1, "-", float, "illegal instruction", "kinds::float,crash::crash_here");
fn float() {
    // SAFETY: none: this is a deliberate fault. FS is off, so the instruction traps.
    unsafe {
        core::arch::asm!(".option push", ".option arch, +d", "fmv.d.x f0, zero", ".option pop")
    };
}

crash_kind!(claim 8, harts 1, "fixed", Place::EntryOf(CpuNumber(0)), bootstack, "stack overflow in the stack of CPU 0", "kinds::overflow,kinds::bootstack,kernel_main");
fn bootstack() {
    black_box(overflow(black_box(1)));
}

crash_kind!(claim 8, harts 2, "fixed", Place::EntryOf(CpuNumber(1)), hartstack, "stack overflow in the stack of CPU 1", "kinds::overflow,kinds::hartstack,hart::other_hart_main");
fn hartstack() {
    black_box(overflow(black_box(2)));
}

crash_kind!(claim 8, harts 1, "-", threadstack, "stack overflow in the stack of thread", "kinds::overflow,kinds::threadstack,crash::crash_here");
fn threadstack() {
    black_box(overflow(black_box(3)));
}

/// Recurses until the stack is full. Its callers begin at different depths, or the compiler would make them one function.
#[inline(never)]
fn overflow(depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    black_box(overflow(black_box(depth + 1))) + 1
}

crash_kind!(claim 8, harts 1, "fixed", Place::EntryOf(CpuNumber(0)), bootframe, "stack overflow in the stack of CPU 0", "kinds::overflow_by_large_frames,kinds::bootframe,kernel_main");
fn bootframe() {
    black_box(overflow_by_large_frames(black_box(1)));
}

/// Recurses with a frame almost as large as the build allows.
#[inline(never)]
fn overflow_by_large_frames(depth: usize) -> usize {
    let mut frame = [MaybeUninit::<usize>::uninit(); 480];
    black_box(&mut frame);
    if depth == 0 {
        return 0;
    }
    black_box(overflow_by_large_frames(black_box(depth + 1))) + 1
}

crash_kind!(claim 8, harts 2, "fixed", Place::EntryOf(CpuNumber(1)), hartframe, "stack overflow in the stack of CPU 1", "kinds::large_frame,kinds::hartframe,hart::other_hart_main");
fn hartframe() {
    large_frame();
    black_box(2);
}

crash_kind!(claim 8, harts 1, "-", threadframe, "stack overflow in the stack of thread", "kinds::large_frame,kinds::threadframe,crash::crash_here");
fn threadframe() {
    large_frame();
    black_box(3);
}

/// Has a frame of 60 KiB, which no compiled function here may have, and touches only its low end.
#[unsafe(naked)]
extern "C" fn large_frame() {
    naked_asm!(
        "mv t2, sp",
        "li t0, 60 * 1024",
        "sub t1, sp, t0",
        "mv sp, t1",
        "sd zero, (sp)",
        "mv sp, t2",
        "ret"
    )
}

crash_kind!(claim 8, harts 1, "cut", emergencystack, "in the gap below the emergency stack", "kinds::overflow");
fn emergencystack() {
    let masked = interrupts::mask();
    let emergency = masked.hart().stack(StackKind::Emergency);
    masked.hart().settle_on_emergency_stack(emergency.end);
    // SAFETY: none: this is a deliberate fault. Nothing comes back.
    unsafe {
        asm!("mv sp, {top}", "mv a0, sp", "call {overflow}", top = in(reg) emergency.end, overflow = sym overflow_from, options(noreturn))
    }
}

extern "C" fn overflow_from(depth: usize) {
    black_box(overflow(depth));
}

crash_kind!(claim 8, harts 1, "-", wildstack, "wild stack pointer: sp 0x1000, near null", "kinds::set_wild_stack_pointer,kinds::wildstack,crash::crash_here");
fn wildstack() {
    set_wild_stack_pointer();
    black_box(());
}

#[unsafe(naked)]
extern "C" fn set_wild_stack_pointer() {
    naked_asm!("li sp, 0x1000", "sd zero, (sp)", "ret")
}

crash_kind!(claim 44, harts 1, "-", jumptozero, "execution of 0x0, near null", "kinds::jumptozero,crash::crash_here");
fn jumptozero() {
    // SAFETY: none: this is a deliberate fault.
    unsafe { asm!("jalr ra, (zero)", clobber_abi("C")) };
}

crash_kind!(claim 44, harts 1, "-", wildreturn, "execution of 0x123456788, not mapped", "crash::crash_here");
fn wildreturn() {
    return_to_nowhere();
    black_box(());
}

#[unsafe(naked)]
extern "C" fn return_to_nowhere() {
    naked_asm!("li ra, 0x123456788", "ret")
}

crash_kind!(claim 44, harts 1, "fixed", handlerfault, "read of 0xffffffff7f", "kernel::,trap_vector,crash::crash_here");
fn handlerfault() {
    // A sleeper in memory that is gone when the timer's handler looks at it.
    let page = vm::pages(vm::STACKS.end - vm::PAGE, vm::PAGE);
    let frame = frame::allocate_zeroed().expect("there is memory");
    vm::map(page, frame, vm::Rights::ReadWrite).expect("nothing is mapped there");
    timer::damage_sleepers(page.start().value());
    vm::unmap(page, |_| ()).expect("it was just mapped");
    while black_box(true) {
        core::hint::spin_loop();
    }
}

crash_kind!(claim 46, harts 1, "-", manylines, "panic: one two  three", "kinds::manylines,crash::crash_here");
fn manylines() {
    panic!("one\ntwo\r\nthree");
}

crash_kind!(claim 45, harts 2, "fixed", deafhart, "panic: CPU 1 does not answer", "kinds::deafhart,crash::crash_here");
fn deafhart() {
    static DEAF: AtomicBool = AtomicBool::new(false);
    /// Spins with interrupts off.
    fn be_deaf() {
        interrupts::disable();
        DEAF.store(true, Ordering::Relaxed);
        while black_box(true) {
            core::hint::spin_loop();
        }
    }
    let deaf = thread::spawn_on(CpuNumber(1), "deaf", be_deaf);
    while !DEAF.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    core::mem::forget(deaf);
    panic!("CPU 1 does not answer");
}

crash_kind!(claim 21, harts 2, "fixed", latepass, "panic: CPU 0 is about to pass", "thread::enlist,thread::thread_main");
fn latepass() {
    /// As text, what gives CPU 0 the time to pass: its report has begun.
    struct Report;
    static BEGUN: AtomicBool = AtomicBool::new(false);
    impl fmt::Display for Report {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            BEGUN.store(true, Ordering::Relaxed);
            while hart::HARTS[0].stop.get().how != How::AtItsOwnEnd {
                core::hint::spin_loop();
            }
            f.write_str("CPU 0 is about to pass")
        }
    }
    // Does not look whether it should stop: the report lists it as not answering.
    interrupts::disable();
    let reporting = thread::spawn_on(CpuNumber(1), "reporter", || -> () { panic!("{Report}") });
    while !BEGUN.load(Ordering::Relaxed) {
        core::hint::spin_loop();
    }
    core::mem::forget(reporting);
    exit::pass(format_args!(""))
}

crash_kind!(claim 9, harts 1, "fixed", lockedpanic, "panic: with the console locked", "kinds::lockedpanic,crash::crash_here");
fn lockedpanic() {
    let _line = console::LINE.lock();
    panic!("with the console locked");
}

#[cfg(feature = "checked")]
crash_kind!(claim 60, harts 1, "-", deadlock, "deadlock: took 'first' at", "kinds::deadlock,crash::crash_here");
#[cfg(feature = "checked")]
fn deadlock() {
    static FIRST: SpinLock<()> = SpinLock::new("first", ());
    static SECOND: SpinLock<()> = SpinLock::new("second", ());
    let first = FIRST.lock();
    let second = SECOND.lock();
    drop((first, second));
    // Nobody waits now; the order alone is wrong.
    let second = SECOND.lock();
    let first = FIRST.lock();
    drop((first, second));
}

#[cfg(feature = "checked")]
crash_kind!(claim 61, harts 1, "-", sleepinlock, "a thread sleeps while its hart holds 'held'", "kinds::sleepinlock,crash::crash_here");
#[cfg(feature = "checked")]
fn sleepinlock() {
    static LOCK: SpinLock<()> = SpinLock::new("held", ());
    let _held = LOCK.lock();
    timer::sleep(core::time::Duration::from_millis(1));
}

#[cfg(feature = "checked")]
crash_kind!(claim 62, harts 1, "-", relock, "by the hart that holds it", "kinds::relock,crash::crash_here");
#[cfg(feature = "checked")]
fn relock() {
    static LOCK: SpinLock<()> = SpinLock::new("relocked", ());
    let once = LOCK.lock();
    let twice = LOCK.lock();
    drop((once, twice));
}

crash_kind!(claim 10, harts 1, "-", doublefault, "a fault in the report of a crash", "-");
fn doublefault() {
    struct Faulty;
    impl fmt::Display for Faulty {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            pagefault();
            Ok(())
        }
    }
    panic!("{Faulty}");
}

crash_kind!(claim 10, harts 1, "-", triplefault, "the report of a crash failed twice", "-");
fn triplefault() {
    struct Faulty;
    impl fmt::Display for Faulty {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("{Faulty}");
        }
    }
    panic!("{Faulty}");
}

crash_kind!(claim 40, harts 1, "-", doublefree, "is free already", "kinds::doublefree,crash::crash_here");
fn doublefree() {
    let layout = Layout::new::<[u64; 8]>();
    // SAFETY: the layout has a size.
    let block = black_box(unsafe { alloc::alloc::alloc(layout) });
    // SAFETY: the block was just allocated.
    unsafe { alloc::alloc::dealloc(black_box(block), layout) };
    // SAFETY: none: this is a deliberate fault, and the heap refuses it.
    unsafe { alloc::alloc::dealloc(black_box(block), layout) };
}

#[cfg(feature = "checked")]
crash_kind!(claim 27, harts 1, "-", useafterfree, "was written after it was freed", "kinds::useafterfree,crash::crash_here");
#[cfg(feature = "checked")]
fn useafterfree() {
    let freed = frame::allocate().expect("there is memory");
    frame::free(freed).expect("it was just allocated");
    let address = vm::direct(freed.address()) + 2048;
    // SAFETY: none: this is a deliberate fault, into memory that is free.
    let written = unsafe { probe::write(address, 1) };
    assert_eq!(written, Ok(()));
    // Whoever gets the frame finds out.
    while frame::allocate().is_some() {}
}

#[cfg(feature = "checked")]
crash_kind!(claim 27, harts 1, "-", freedpointer, "the pattern of freed memory", "kinds::freedpointer,crash::crash_here");
#[cfg(feature = "checked")]
fn freedpointer() {
    let layout = Layout::new::<[usize; 8]>();
    let block = black_box(heap::allocate(layout).expect("there is memory"));
    heap::free(block, layout).expect("it was just allocated");
    let pointer = probe::read(block).expect("the heap's pages stay mapped") as usize;
    // SAFETY: none: this is a deliberate fault.
    black_box(unsafe { core::ptr::read_volatile(core::ptr::without_provenance::<u8>(pointer)) });
}

crash_kind!(claim 11, harts 1, "hang,fixed", hang, "this boot never ends", "kinds::hang,crash::crash_here");
fn hang() {
    println!("this boot never ends");
    while black_box(true) {
        core::hint::spin_loop();
    }
}
