//! From the firmware's jump to Rust: the entry of the boot hart and of every other hart.
//!
//! The firmware enters with the hart id in a0, the physical address of the device tree in a1, interrupts and MMU
//! off (SBI 9.1, and what OpenSBI does for the first hart). Nothing else about the state of a hart is trusted: each
//! sets its own. The first page table already gives every section its rights, and already is the higher half: there
//! is no identity map. The instruction after the write of `satp` faults, because its physical address means nothing
//! any more, and `stvec` is where it continues.
//!
//! Runs PC-relative: whatever physical address the image was loaded at is the one it uses.
//!
//! Owns the lottery's word and what each hart does before Rust: [`other_hart_entry`] with a [`StartRecord`] for the others (invariants BOOT-1,
//! BOOT-2); [`last_words`], which need no stack; [`park`], where harts end.

use core::arch::naked_asm;
use core::cell::UnsafeCell;

use crate::hart::{self, HARTS, Hart, StackKind};
use crate::stack::STACK_BYTES;
use crate::vm::{self, PAGE};

/// What one hart needs to enter: physical addresses of nothing, all of it virtual or ready for a CSR. Read with the
/// MMU off, by the entry of that hart.
#[repr(C)]
pub struct StartRecord {
    satp: usize,
    /// Virtual minus physical address of the image.
    image_offset: usize,
    stack_top: usize,
    hart: usize,
}

impl StartRecord {
    /// Of a hart that is not started.
    pub const EMPTY: StartRecord = StartRecord { satp: 0, image_offset: 0, stack_top: 0, hart: 0 };

    /// What `hart` needs to enter on its own stack.
    pub fn new(hart: &'static Hart) -> StartRecord {
        StartRecord {
            satp: riscv::register::satp::read().bits(),
            image_offset: vm::image_offset(),
            stack_top: hart.stack(StackKind::Entry).end,
            hart: core::ptr::from_ref(hart).addr(),
        }
    }
}

/// The physical address at which the firmware starts another hart, with a [`StartRecord`]'s physical address as the
/// opaque value.
pub fn other_hart_entry() -> usize {
    vm::physical_of_image(enter_other_hart as *const () as usize)
}

/// `sstatus` bits that the entry clears: SIE (1), SPIE (5), VS (9, 10), FS (13, 14), XS (15, 16), SUM (18), MXR (19).
const STATUS_CLEAR: usize = 1 << 1 | 1 << 5 | 3 << 9 | 3 << 13 | 3 << 15 | 1 << 18 | 1 << 19;

/// A leaf of the first page table: valid, accessed, and dirty where writable (privileged spec 4.4.1).
const READ_EXECUTE: usize = 0b0100_1011;
const READ_ONLY: usize = 0b0100_0011;
const READ_WRITE: usize = 0b1100_0111;

/// Byte offsets of root entries.
const KERNEL_ROOT_OFFSET: usize = vm::KERNEL_ROOT_INDEX * 8;
const DIRECT_MAP_ROOT_OFFSET: usize = vm::DIRECT_MAP_ROOT_INDEX * 8;

/// The word of the boot lottery. It lies in `.data`: the winner clears `.bss`, and a word there would be won twice.
#[unsafe(link_section = ".data.boot_lottery")]
static LOTTERY: BootWord = BootWord(UnsafeCell::new(0));

#[repr(transparent)]
struct BootWord(UnsafeCell<u32>);

// SAFETY: only the entry touches it, with an atomic swap (invariant BOOT-1).
unsafe impl Sync for BootWord {}

/// What every hart does first: its whole entry state, trusting none of the firmware's (system.md calls for it; OpenSBI
/// leaves FS on and scounteren open).
macro_rules! set_entry_state {
    () => {
        "
        csrw    sie, zero               # no interrupt is enabled
        csrw    satp, zero              # no translation
        li      t0, {status_clear}
        csrc    sstatus, t0             # interrupts, FP and vectors off; SUM = MXR = 0
        csrw    scounteren, zero
        csrw    sscratch, zero
        lla     t0, {early_trap}
        csrw    stvec, t0
        mv      s0, zero                # every backtrace ends at a zero frame pointer
        mv      ra, zero
        "
    };
}

/// Turns paging on and goes on at the virtual address of label 9: t0 = `satp`, t1 = virtual minus physical address.
macro_rules! enter_higher_half {
    () => {
        "
        lla     t2, 9f
        add     t2, t2, t1
        csrw    stvec, t2
        sfence.vma                      # the tables' stores come before their first walk
        csrw    satp, t0
        j       {early_trap_hang}       # never reached: the fetch faults, and goes to stvec
        .balign 4                       # stvec needs it
    9:  sfence.vma                      # what was cached under bare translation is gone
        lla     t0, {trap_vector}
        csrw    stvec, t0
        "
    };
}

/// Where the firmware jumps. The lowest address of the image.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.entry")]
extern "C" fn _start() -> ! {
    naked_asm!(
        #[cfg(feature = "bench")]
        "
        # The benchmarks' first look at the clock: s11 = instructions so far, or 0 where the counter traps.
        lla     t0, 7f
        csrw    stvec, t0
        li      s11, 0
        rdinstret s11
        .balign 4                       # stvec needs it
    7:
        ",
        set_entry_state!(),
        "
        # One hart wins; firmware without HSM sends them all.
        lla     t0, {lottery}
        li      t1, 1
        amoswap.w.aqrl t1, t1, (t0)
        bnez    t1, {park}

        # Clear .bss: its ends are multiples of 64.
        lla     t0, __bss_start
        lla     t1, __bss_end
    1:  .irp    offset, 0, 8, 16, 24, 32, 40, 48, 56
        sd      zero, \\offset(t0)
        .endr
        addi    t0, t0, 64
        bltu    t0, t1, 1b

        # The image's pages, section by section, into the two lowest tables. t6 = link, s1 = entry, s2 = end of tables.
        lla     s3, {tables}
        li      t0, 2 * {page}
        add     s1, s3, t0
        add     s2, s1, t0
        lla     a2, __text_start
        lla     a3, __rodata_start
        li      a4, {read_execute}
        jal     t6, 2f
        lla     a3, __data_start
        li      a4, {read_only}
        jal     t6, 2f
        lla     a3, __symbols_start
        li      a4, {read_write}
        jal     t6, 2f
        ld      a3, 8(a2)               # the symbol table's size, from its header
        add     a3, a3, a2
        li      a4, {read_only}
        jal     t6, 2f
        j       3f

        # Maps pages from a2 to a3 with the bits a4, at the entry s1.
    2:  bgeu    a2, a3, 1f
        bgeu    s1, s2, 1f
        srli    t0, a2, 12
        slli    t0, t0, 10
        or      t0, t0, a4
        sd      t0, (s1)
        addi    s1, s1, 8
        li      t0, {page}
        add     a2, a2, t0
        j       2b
    1:  jr      t6

        # The middle table points to the two lowest, the root to the middle one.
    3:  li      t0, {page}
        add     s1, s3, t0              # s1 = middle table
        add     t1, s1, t0              # t1 = first lowest table
        srli    t2, t1, 2
        ori     t2, t2, 1
        sd      t2, {image_middle_offset}(s1)
        add     t1, t1, t0
        srli    t2, t1, 2
        ori     t2, t2, 1
        sd      t2, {image_middle_offset} + 8(s1)
        srli    t2, s1, 2
        ori     t2, t2, 1
        li      t0, {kernel_root_offset}
        add     t0, t0, s3
        sd      t2, (t0)

        # The device tree, to be read in the direct map: its 2 MiB, and the next in case it reaches over.
        srli    t0, a1, 30
        li      t1, {direct_map_gibs}
        bgeu    t0, t1, 4f
        mv      s1, s2                  # behind the image's tables: the middle table of this GiB
        slli    t0, t0, 3
        add     t0, t0, s3
        li      t1, {direct_map_root_offset}
        add     t0, t0, t1
        srli    t2, s1, 2
        ori     t2, t2, 1
        sd      t2, (t0)
        srli    t0, a1, 21
        andi    t1, t0, 511
        slli    t2, t0, 19
        ori     t2, t2, {read_only}
        slli    t3, t1, 3
        add     t3, t3, s1
        sd      t2, (t3)
        li      t0, 511
        beq     t1, t0, 4f
        li      t0, 1 << 19
        add     t2, t2, t0
        sd      t2, 8(t3)

    4:  lla     a2, __text_start        # third argument: where the image was loaded
        lla     t1, 8f
        ld      t1, (t1)
        sub     t1, t1, a2
        srli    t0, s3, 12
        li      t2, {satp_sv39}
        or      t0, t0, t2
        ",
        enter_higher_half!(),
        #[cfg(feature = "bench")]
        "
        lla     t0, instructions_at_entry
        sd      s11, (t0)
        ",
        "
        lla     tp, {harts}             # the boot hart is CPU 0
        lla     sp, {stacks}
        li      t0, {stack_top_offset}
        add     sp, sp, t0
        tail    {boot_hart_main}
        .pushsection .rodata
        .balign 8
    8:  .dword  __text_start            # as it was linked
        .popsection
        ",
        status_clear = const STATUS_CLEAR,
        early_trap = sym early_trap,
        early_trap_hang = sym park,
        lottery = sym LOTTERY,
        park = sym park,
        tables = sym vm::BOOT_TABLES,
        page = const PAGE,
        read_execute = const READ_EXECUTE,
        read_only = const READ_ONLY,
        read_write = const READ_WRITE,
        image_middle_offset = const vm::KERNEL_MIDDLE_INDEX * 8,
        kernel_root_offset = const KERNEL_ROOT_OFFSET,
        direct_map_root_offset = const DIRECT_MAP_ROOT_OFFSET,
        direct_map_gibs = const vm::DIRECT_MAP_BYTES >> 30,
        satp_sv39 = const vm::SATP_SV39,
        trap_vector = sym crate::trap::trap_vector,
        harts = sym HARTS,
        stacks = sym hart::BOOT_STACKS,
        stack_top_offset = const hart::STACK_TOP_OFFSET,
        boot_hart_main = sym boot_hart_main,
    )
}

/// Where SBI HSM starts every other hart: a0 = hart id, a1 = physical address of its [`StartRecord`].
#[unsafe(naked)]
extern "C" fn enter_other_hart() -> ! {
    naked_asm!(
        set_entry_state!(),
        "
        ld      t0, {satp}(a1)
        ld      t1, {image_offset}(a1)
        ld      sp, {stack_top}(a1)
        ld      tp, {hart}(a1)
        ",
        enter_higher_half!(),
        "tail    {other_hart_main}",
        status_clear = const STATUS_CLEAR,
        early_trap = sym early_trap,
        early_trap_hang = sym park,
        satp = const core::mem::offset_of!(StartRecord, satp),
        image_offset = const core::mem::offset_of!(StartRecord, image_offset),
        stack_top = const core::mem::offset_of!(StartRecord, stack_top),
        hart = const core::mem::offset_of!(StartRecord, hart),
        trap_vector = sym crate::trap::trap_vector,
        other_hart_main = sym hart::other_hart_main,
    )
}

/// The first Rust of the boot hart.
extern "C" fn boot_hart_main(hart_id: usize, device_tree: usize, loaded_at: usize) -> ! {
    vm::set_image_base(loaded_at);
    hart::settle_boot_hart(hart_id);
    crate::kernel_main(device_tree)
}

/// A trap before paging is on: nothing can be reported from here but that it happened.
#[unsafe(naked)]
#[unsafe(link_section = ".text.early_trap")]
extern "C" fn early_trap() -> ! {
    naked_asm!(
        ".balign 4
        lla     s1, 1f
        j       {last_words}
        .pushsection .rodata
    1:  .asciz  \"\\nverdict: crash: a trap before paging was on\\n\"
        .popsection",
        last_words = sym last_words,
    )
}

/// The end of everything: prints the text at s1 a byte a time and leaves as a crash. Uses no stack, no lock and no memory but
/// the text and the exit register's address, so that it works where nothing else does.
#[unsafe(naked)]
pub extern "C" fn last_words() -> ! {
    naked_asm!(
        "
    1:  lbu     a0, (s1)
        beqz    a0, 3f
        li      a7, 0x4442434e          # debug console, write a byte (SBI 12.3)
        li      a6, 2
        ecall
        beqz    a0, 2f
        lbu     a0, (s1)
        li      a7, 1                   # or the legacy call (SBI 5.2)
        ecall
    2:  addi    s1, s1, 1
        j       1b
    3:  lla     t0, {exit_register}
        ld      t0, (t0)
        beqz    t0, 4f
        li      t1, {crash_value}
        sw      t1, (t0)
        j       {park}                  # the device acts later: no second request may follow (system.md section 10)
    4:  li      a7, 0x53525354          # system reset (SBI 10.1): shut down,
        li      a6, 0
        li      a0, 0
        li      a1, 1                   # because of a system failure
        ecall
        j       {park}
        ",
        exit_register = sym crate::exit::REGISTER,
        crash_value = const crate::exit::Failure::Crash.device_value(),
        park = sym park,
    )
}

/// [`last_words`] from Rust.
pub fn say_last_words(text: &'static core::ffi::CStr) -> ! {
    // SAFETY: nothing comes after; the text ends in a zero, as `last_words` needs.
    unsafe {
        core::arch::asm!("mv s1, {text}", "j {last_words}", text = in(reg) text.as_ptr(), last_words = sym last_words, options(noreturn))
    }
}

/// Where a hart without a task stays for good: interrupts off.
#[unsafe(naked)]
pub extern "C" fn park() -> ! {
    naked_asm!("1: wfi", "j 1b")
}

const _: () = assert!(
    STACK_BYTES.is_power_of_two(),
    "the trap vector checks the stack pointer with one shift"
);
