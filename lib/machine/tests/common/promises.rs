//! What must hold of any machine that is found in any blob. The fuzz target checks the same.

use machine::{
    MAXIMUM_BANKS, MAXIMUM_HARTS, MAXIMUM_PLICS, MAXIMUM_WARNINGS, Machine, PHYSICAL_END,
};

/// Reads everything there is to read of a machine, and panics where a promise is broken.
pub fn check_promises(machine: &Machine) {
    assert!(!machine.banks.is_empty() && machine.banks.len() <= MAXIMUM_BANKS);
    assert!(machine.banks.windows(2).all(|two| two[0].range.end() <= two[1].range.start()));
    assert!(machine.harts.len() <= MAXIMUM_HARTS);
    assert!(machine.harts.iter().any(|hart| hart.enabled));
    assert!(machine.harts.windows(2).all(|two| two[0].id < two[1].id));
    assert!(machine.plics.len() <= MAXIMUM_PLICS && machine.warnings.len() <= MAXIMUM_WARNINGS);
    for hart in &machine.harts {
        assert!(hart.zero_block.is_none_or(|bytes| bytes.is_power_of_two()));
        if let Some(context) = hart.context {
            let plic = &machine.plics[usize::from(context.plic)];
            let registers = 0x20_0000 + 0x1000 * (u64::from(context.number) + 1);
            assert!(registers <= plic.registers.size());
        }
        machine.isa(hart.id);
    }
    if let Some(uart) = &machine.uart {
        assert!(uart.register_shift <= 4 && [1, 4].contains(&uart.access_width));
        assert!(uart.registers.size() >= 7 << uart.register_shift);
        if let Some(interrupt) = uart.interrupt {
            let sources = machine.plics[usize::from(interrupt.plic)].sources;
            assert!((1..=sources).contains(&interrupt.number) && sources <= 1023);
        }
    }
    assert!(machine.exit_device.is_none_or(|registers| registers.size() >= 4));
    assert!(machine.reservations().all(|found| found.range.end() <= PHYSICAL_END));
    machine.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
    assert!(!machine.to_string().is_empty());
}
