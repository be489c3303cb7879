//! What was found in the device tree.

use super::{Outcome, ensure, self_test};
use crate::{image, platform, symbols, vm};

self_test!(claim 19, quick, the_image_lies_in_memory_that_the_tree_describes);
fn the_image_lies_in_memory_that_the_tree_describes() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    let start = vm::physical_of_image(image::start()) as u64;
    ensure!(
        machine.banks.iter().any(|bank| bank.range.contains(start)),
        "no bank holds {start:#x}"
    );
    Ok(())
}

self_test!(claim 19, the_command_line_comes_from_the_tree);
fn the_command_line_comes_from_the_tree() -> Outcome {
    let machine = platform::machine().expect("tests run after the machine was discovered");
    ensure!(machine.chosen.bootargs.contains("test"), "bootargs are '{}'", machine.chosen.bootargs);
    Ok(())
}

self_test!(claim 20, quick, functions_are_found_by_address);
fn functions_are_found_by_address() -> Outcome {
    let function = functions_are_found_by_address as *const () as usize;
    let found = symbols::exact(function + 2);
    ensure!(
        found.is_some_and(
            |at| at.offset == 2 && at.symbol.name.ends_with("functions_are_found_by_address")
        ),
        "{function:#x}+2 is called {:?}",
        found.map(|at| at.symbol.name)
    );
    Ok(())
}

self_test!(claim 20, a_return_address_is_looked_up_one_byte_before);
fn a_return_address_is_looked_up_one_byte_before() -> Outcome {
    let function =
        symbols::exact(a_return_address_is_looked_up_one_byte_before as *const () as usize);
    let Some(function) = function else {
        return Err(super::Ended::Skipped("the image has no symbols"));
    };
    let end = (function.symbol.address + function.symbol.size) as usize;
    let returned = symbols::return_site(end).map(|at| at.symbol.name);
    ensure!(
        returned == Some(function.symbol.name),
        "a return to {end:#x} is attributed to {returned:?}"
    );
    let at = symbols::exact(end).map(|at| at.symbol.name);
    ensure!(
        at != Some(function.symbol.name),
        "the instruction at {end:#x} is attributed to the function before it"
    );
    Ok(())
}
