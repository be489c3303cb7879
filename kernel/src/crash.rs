//! Deliberate crashes, each with what its report must say. `crash=KIND` on the command line runs one.

use core::alloc::Layout;
use core::hint::black_box;

use crate::console::println;
use crate::exit::{self, Failure};
use crate::hart::{self, CpuNumber};
use crate::{console, image};
#[cfg(feature = "checked")]
use crate::{frame, probe, vm};

/// A way to crash, registered where it is written.
pub struct Kind {
    name: &'static str,
    crash: fn(),
}

/// Registers a crash kind: `crash_kind!(claim N, harts N, "flags", name, function, "what the verdict says", "frames of the backtrace")`.
/// The host reads the same line from the image's `.manifest` and checks the report against it.
macro_rules! crash_kind {
    (claim $claim:literal, harts $harts:literal, $flags:literal, $name:ident, $sentence:literal, $frames:literal) => {
        const _: () = {
            #[used]
            #[unsafe(link_section = ".crash_kinds")]
            static KIND: $crate::crash::Kind =
                $crate::crash::Kind { name: stringify!($name), crash: $name };
            $crate::crash::manifest_line!(
                "crash\t",
                stringify!($name),
                "\t",
                $claim,
                "\t",
                $harts,
                "\t",
                $flags,
                "\t",
                file!(),
                ":",
                line!(),
                "\t",
                $sentence,
                "\t",
                $frames,
                "\n"
            );
        };
    };
}

/// Adds a line to the image's `.manifest`, which only the host reads.
macro_rules! manifest_line {
    ($($part:expr),* $(,)?) => {
        const TEXT: &str = concat!($($part),*);
        #[used]
        #[unsafe(link_section = ".manifest")]
        static LINE: [u8; TEXT.len()] = *TEXT.as_bytes().first_chunk().expect("the array is as long as the text");
    };
}

pub(crate) use manifest_line;

fn kinds() -> &'static [Kind] {
    image::gathered!(Kind, __crash_kinds_start, __crash_kinds_end)
}

/// Crashes in the way called `name`; where there is none, refuses and lists them.
pub fn run(name: &str) -> ! {
    match kinds().iter().find(|kind| kind.name == name) {
        Some(kind) => {
            (kind.crash)();
            exit::fail(Failure::Test, format_args!("crash={name} did not crash"))
        }
        None => exit::fail(
            Failure::Refused,
            format_args!("crash={name} is no kind of crash; there are {Names}"),
        ),
    }
}

struct Names;

impl core::fmt::Display for Names {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (index, kind) in kinds().iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            f.write_str(kind.name)?;
        }
        Ok(())
    }
}

crash_kind!(claim 9, harts 1, "quick", panic, "panic: the answer is 42", "crash::panic,job::run,kernel_main");
fn panic() {
    panic!("the answer is {}", black_box(42));
}

/// An address in the upper half that nothing ever maps: just below the image.
fn unmapped() -> usize {
    image::start() - 4096
}

crash_kind!(claim 9, harts 1, "-", pagefault, "read of 0xffffffff801ff000, not mapped", "crash::pagefault,job::run");
fn pagefault() {
    // SAFETY: none: this is a deliberate fault, and the report comes instead of a value.
    black_box(unsafe {
        core::ptr::read_volatile(core::ptr::without_provenance::<u64>(unmapped()))
    });
}

crash_kind!(claim 9, harts 1, "-", nullpointer, "write to 0x10, near null", "crash::nullpointer,job::run");
fn nullpointer() {
    let pointer = core::ptr::without_provenance_mut::<u64>(black_box(16));
    // SAFETY: none: this is a deliberate fault.
    unsafe { core::ptr::write_volatile(pointer, 1) };
}

crash_kind!(claim 5, harts 1, "-", textwrite, "in kernel text", "crash::textwrite,job::run");
fn textwrite() {
    let pointer = core::ptr::without_provenance_mut::<u8>(black_box(image::start()));
    // SAFETY: none: this is a deliberate fault.
    unsafe { core::ptr::write_volatile(pointer, 0) };
}

crash_kind!(claim 5, harts 1, "-", execdata, "in kernel data", "crash::execdata,job::run");
fn execdata() {
    /// `ret`, twice: compressed.
    static CODE: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0x8082_8082);
    // SAFETY: none: this is a deliberate fault.
    let function = unsafe { core::mem::transmute::<*mut u32, fn()>(CODE.as_ptr()) };
    black_box(function)();
    black_box(());
}

crash_kind!(claim 21, harts 1, "-", illegal, "illegal instruction", "crash::illegal,job::run");
fn illegal() {
    // SAFETY: none: this is a deliberate fault. `unimp` is illegal by definition.
    unsafe { core::arch::asm!("unimp") };
}

crash_kind!(claim 3, harts 1, "-", float, "illegal instruction", "crash::float,job::run");
fn float() {
    // SAFETY: none: this is a deliberate fault. FS is off, so the instruction traps.
    unsafe {
        core::arch::asm!(".option push", ".option arch, +d", "fmv.d.x f0, zero", ".option pop")
    };
}

crash_kind!(claim 8, harts 1, "-", bootstack, "stack overflow", "crash::overflow,crash::bootstack,job::run");
fn bootstack() {
    black_box(overflow(black_box(1)));
}

crash_kind!(claim 8, harts 2, "-", hartstack, "stack overflow", "crash::overflow,hartstack::overflow_there,hart::other_hart_main");
fn hartstack() {
    fn overflow_there(_: usize) {
        black_box(overflow(black_box(1)));
    }
    let error = hart::call(CpuNumber(1), overflow_there, 0);
    exit::fail(Failure::Test, format_args!("the overflow on CPU 1 came back: {error:?}"))
}

/// Recurses until the stack is full.
#[inline(never)]
fn overflow(depth: usize) -> usize {
    if depth == 0 {
        return 0;
    }
    black_box(overflow(black_box(depth + 1))) + 1
}

crash_kind!(claim 9, harts 1, "-", lockedpanic, "panic: with the console locked", "crash::lockedpanic,job::run");
fn lockedpanic() {
    let _line = console::LINE.lock();
    panic!("with the console locked");
}

crash_kind!(claim 10, harts 1, "-", doublefault, "a fault in the report of a crash", "-");
fn doublefault() {
    struct Faulty;
    impl core::fmt::Display for Faulty {
        fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            pagefault();
            Ok(())
        }
    }
    panic!("{Faulty}");
}

crash_kind!(claim 40, harts 1, "-", doublefree, "is free already", "crash::doublefree,job::run");
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
crash_kind!(claim 27, harts 1, "-", useafterfree, "was written after it was freed", "crash::useafterfree,job::run");
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

crash_kind!(claim 11, harts 1, "hang", hang, "this boot never ends", "crash::hang,job::run");
fn hang() {
    println!("this boot never ends");
    while black_box(true) {
        core::hint::spin_loop();
    }
}
