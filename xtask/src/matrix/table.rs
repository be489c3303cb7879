//! The table of machines.

use super::Expected::{Refusal, Suite};
use super::{Cell, Edit, Tools, edits};

// What a test may say for itself when it is skipped: the kernel's own words.
const UART: &str = "the UART does not interrupt";
const LOOP: &str = "the UART cannot loop back what it sends";
const EXIT: &str = "the machine has no exit device";
const FULL: &str = "there is no memory";

/// What all others differ from: two harts, all that there is.
const VIRT: Cell = Cell {
    name: "virt",
    about: "the machine that everything else here differs from",
    machine: "virt",
    cpu: None,
    harts: 2,
    up: 2,
    memory: "128M",
    words: "",
    extra: &[],
    tools: Tools::Own,
    edit: None,
    ends_itself: true,
    expected: Suite(&[]),
    quick: false,
};

/// A word that the kernel does not know, of 1,500 letters.
const LONG: &str = match std::str::from_utf8(&[b'x'; 1500]) {
    Ok(text) => text,
    Err(_) => unreachable!(),
};

/// A machine with so many harts.
const fn harts(name: &'static str, count: u32) -> Cell {
    Cell { name, about: "a number of harts", harts: count, up: count, ..VIRT }
}

/// A machine with so much memory.
const fn memory(name: &'static str, memory: &'static str) -> Cell {
    Cell { name, about: "an amount of memory", memory, ..VIRT }
}

/// A machine with such a hart.
const fn cpu(name: &'static str, about: &'static str, cpu: &'static str) -> Cell {
    Cell { name, about, cpu: Some(cpu), ..VIRT }
}

/// A tree that was changed; the machine is as good as before.
const fn tree(name: &'static str, about: &'static str, edit: Edit) -> Cell {
    Cell { name, about, edit: Some(edit), ..VIRT }
}

/// A tree that the kernel refuses, with this in its sentence.
const fn refused(name: &'static str, about: &'static str, edit: Edit, why: &'static str) -> Cell {
    Cell { expected: Refusal(why), ..tree(name, about, edit) }
}

/// The edit of a name.
macro_rules! edit {
    ($name:ident) => {
        Edit(stringify!($name), edits::$name)
    };
}

/// All machines.
pub const CELLS: &[Cell] = &[
    // Harts.
    harts("harts_1", 1),
    harts("harts_2", 2),
    harts("harts_3", 3),
    harts("harts_4", 4),
    harts("harts_5", 5),
    harts("harts_6", 6),
    harts("harts_7", 7),
    harts("harts_8", 8),
    Cell {
        quick: true,
        ..tree("boot_hart_1", "a boot hart that is not the first", edit!(boot_hart_is_1))
    },
    Cell {
        up: 1,
        ..tree("hart_0_disabled", "a hart that the tree switches off", edit!(hart_0_disabled))
    },
    // Memory.
    Cell { quick: true, ..memory("memory_32m", "32M") },
    memory("memory_64m", "64M"),
    memory("memory_1g", "1G"),
    Cell { about: "a tree above 2 GiB", ..memory("memory_2g", "2G") },
    Cell { about: "memory above 4 GiB", ..memory("memory_4g", "4G") },
    memory("memory_8g", "8G"),
    memory("memory_16g", "16G"),
    Cell { expected: Suite(&[FULL]), ..memory("memory_8m", "8M") },
    Cell {
        memory: "32M",
        expected: Suite(&[FULL]),
        quick: true,
        ..tree(
            "least_memory",
            "as little memory as the kernel says that it needs",
            edit!(just_enough),
        )
    },
    Cell {
        memory: "32M",
        expected: Refusal("KiB of memory are free, and the kernel needs "),
        ..tree(
            "too_little_in_all",
            "memory enough to begin with, and less than the kernel needs",
            edit!(too_little),
        )
    },
    Cell {
        name: "too_little_memory",
        about: "less memory than the kernel needs",
        memory: "6M",
        expected: Refusal("KiB of memory are free, and the kernel needs "),
        quick: true,
        ..VIRT
    },
    Cell {
        name: "numa",
        about: "two banks that belong to different NUMA nodes, each with a controller of its own",
        harts: 4,
        up: 4,
        memory: "256M",
        extra: &[
            "-object",
            "memory-backend-ram,id=m0,size=128M",
            "-object",
            "memory-backend-ram,id=m1,size=128M",
            "-numa",
            "node,memdev=m0,cpus=0-1",
            "-numa",
            "node,memdev=m1,cpus=2-3",
        ],
        quick: true,
        ..VIRT
    },
    // CPUs.
    cpu("cpu_rv64", "the CPU that QEMU has by default", "rv64"),
    cpu("cpu_rva22s64", "a profile without Sstc, whose pages' A and D are software's", "rva22s64"),
    cpu("cpu_rva23s64", "a profile with Sstc", "rva23s64"),
    cpu("cpu_sifive_u54", "a hart of 2018", "sifive-u54"),
    cpu("cpu_max", "everything that QEMU has", "max"),
    Cell { quick: true, ..cpu("sstc_off", "ticks by the firmware", "rv64,sstc=off") },
    Cell {
        quick: true,
        ..cpu("svade", "a hart that never sets A and D", "rv64,svadu=off,svade=on")
    },
    cpu("svadu_off", "a hart that sets A and D, and says nothing of it", "rv64,svadu=off"),
    cpu("zicboz_off", "memory cleared by stores", "rv64,zicboz=off"),
    cpu("sv39", "no larger page tables", "rv64,sv48=off,sv57=off"),
    Cell { quick: true, ..cpu("no_floating_point", "no F and no D", "rv64,f=off,d=off,zfa=off") },
    // Devices and firmware.
    Cell {
        name: "aclint",
        about: "software interrupts by another device",
        machine: "virt,aclint=on",
        ..VIRT
    },
    Cell {
        name: "aplic",
        about: "a controller that the kernel has no driver for",
        machine: "virt,aia=aplic",
        expected: Suite(&[UART]),
        ..VIRT
    },
    Cell {
        name: "imsic",
        about: "interrupts by messages, which the kernel has no driver for",
        machine: "virt,aia=aplic-imsic",
        expected: Suite(&[UART]),
        ..VIRT
    },
    Cell {
        extra: &["-semihosting-config", "enable=on,target=native", "-serial", "null"],
        ends_itself: false,
        expected: Suite(&[UART, EXIT]),
        quick: true,
        ..tree(
            "bare",
            "no UART and no exit device: the firmware's console is the host's",
            edit!(bare),
        )
    },
    Cell {
        ends_itself: false,
        expected: Suite(&[EXIT]),
        ..tree("no_exit_device", "nothing that ends QEMU", edit!(without_exit_device))
    },
    Cell {
        name: "initrd",
        about: "an initial RAM disk, and a long command line",
        extra: &["-initrd", super::IMAGE],
        words: LONG,
        ..VIRT
    },
    Cell {
        name: "oldest_firmware",
        about: "OpenSBI 1.1: no debug console",
        tools: Tools::OldestFirmware,
        ..VIRT
    },
    Cell { name: "oldest", about: "QEMU 7.2 with OpenSBI 1.1", tools: Tools::Oldest, ..VIRT },
    // Other boards.
    Cell {
        name: "sifive_u",
        about: "a UART of its own, hart ids from 1, a hart without paging, no exit device",
        machine: "sifive_u",
        harts: 5,
        up: 4,
        ends_itself: false,
        expected: Suite(&[LOOP, EXIT]),
        quick: true,
        ..VIRT
    },
    Cell {
        name: "sifive_u_oldest",
        about: "the same under QEMU 7.2 with OpenSBI 1.1",
        machine: "sifive_u",
        harts: 5,
        up: 4,
        tools: Tools::Oldest,
        ends_itself: false,
        expected: Suite(&[LOOP, EXIT]),
        ..VIRT
    },
    Cell {
        name: "spike",
        about: "no UART, no interrupt controller, no exit device",
        machine: "spike",
        // Its tree offers Sstc and its harts have none; OpenSBI 1.5 believes the tree and dies of the first call of `set_timer`.
        cpu: Some("rv64,sstc=off"),
        ends_itself: false,
        expected: Suite(&[UART, EXIT]),
        ..VIRT
    },
    // Bad trees that the firmware lets pass, and the machine boots.
    tree("untidy_banks", "banks that overlap and begin within a page", edit!(untidy_banks)),
    Cell { quick: true, ..tree("hundreds_of_banks", "402 banks", edit!(hundreds_of_banks)) },
    tree(
        "reservations_over_the_kernel",
        "the kernel's own image is reserved",
        edit!(reservations_over_the_kernel),
    ),
    Cell {
        expected: Suite(&[UART]),
        ..tree(
            "interrupt_out_of_range",
            "the UART's interrupt is one that its controller does not have",
            edit!(interrupt_out_of_range),
        )
    },
    tree("one_cell", "addresses and sizes of one cell", edit!(one_cell)),
    tree("deep", "a hundred nodes in each other", edit!(deep)),
    Cell { quick: true, ..tree("large", "a tree of a MiB", edit!(large)) },
    Cell {
        expected: Suite(&[UART]),
        quick: true,
        ..tree("absent_uart", "a UART that is not there", edit!(absent_uart))
    },
    Cell {
        expected: Suite(&[UART]),
        ..tree(
            "uart_is_something_else",
            "a UART where something else answers",
            edit!(uart_is_something_else),
        )
    },
    Cell {
        expected: Suite(&[UART]),
        ..tree(
            "uart_reads_as_ones",
            "a UART on a bus with nothing on it",
            edit!(uart_reads_as_ones),
        )
    },
    Cell { ..tree("uart_in_memory", "a UART in the middle of memory", edit!(uart_in_memory)) },
    Cell {
        ends_itself: false,
        expected: Suite(&[EXIT]),
        ..tree("absent_exit_device", "an exit device that is not there", edit!(absent_exit_device))
    },
    // Bad trees that are refused.
    refused(
        "three_cells",
        "addresses and sizes of three cells: the firmware writes its own reservations as if they had two",
        edit!(three_cells),
        "a reservation in the device tree cannot be read: mmode_resv",
    ),
    refused(
        "kernel_not_to_be_mapped",
        "the kernel's own image must not be mapped",
        edit!(kernel_not_to_be_mapped),
        "must not be mapped, and the kernel or the device tree lies there",
    ),
    Cell {
        quick: true,
        ..refused(
            "no_memory",
            "no memory node",
            edit!(no_memory),
            "no usable memory in the device tree",
        )
    },
    refused(
        "timebase_zero",
        "time stands still",
        edit!(timebase_zero),
        "no timebase-frequency above 0",
    ),
];
