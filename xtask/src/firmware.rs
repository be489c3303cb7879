//! The firmware's banner, folded into a line: [`Fold`] holds back what comes before the kernel's first line.
//!
//! Nothing is lost: a boot that ends, or takes long, before that line shows all that was said.

/// How the kernel's first line begins.
const KERNEL: &[u8] = b"16-os ";
/// How the line of the banner begins in which OpenSBI says what it is.
const NAME: &str = "OpenSBI ";

/// Output on its way to the user.
#[derive(Debug)]
pub struct Fold {
    /// What is held back; nothing from the kernel's first line on.
    held: Option<Vec<u8>>,
}

impl Fold {
    /// Holds the banner back, or lets everything pass.
    pub fn new(folds: bool) -> Fold {
        Fold { held: folds.then(Vec::new) }
    }

    /// The next piece of output, and what of it to show now.
    pub fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let Some(held) = &mut self.held else { return piece.to_vec() };
        held.extend_from_slice(piece);
        match kernel_begins(held) {
            None => Vec::new(),
            Some(place) => {
                let kernel = held.split_off(place);
                let banner = std::mem::take(held);
                self.held = None;
                [folded(&banner).into_bytes(), kernel].concat()
            }
        }
    }

    /// Gives up waiting for the kernel: gives what was held back, and lets everything pass from now on.
    pub fn open(&mut self) -> Vec<u8> {
        self.held.take().unwrap_or_default()
    }
}

/// Where the kernel's first line begins.
fn kernel_begins(output: &[u8]) -> Option<usize> {
    let places = output.windows(KERNEL.len()).enumerate();
    let mut lines = places.filter(|(place, _)| *place == 0 || output[place - 1] == b'\n');
    lines.find(|(_, beginning)| *beginning == KERNEL).map(|(place, _)| place)
}

/// The line that stands for a banner.
fn folded(banner: &[u8]) -> String {
    let text = String::from_utf8_lossy(banner);
    let count = text.trim().lines().count();
    let name = text.lines().map(str::trim).find(|line| line.starts_with(NAME));
    match (count, name) {
        (0, _) => String::new(),
        (_, Some(name)) => format!("{name} (--firmware shows its {count} lines)\n"),
        (_, None) => format!("firmware (--firmware shows its {count} lines)\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANNER: &str = "\r\nOpenSBI v1.5.1\r\n  __  16-os \r\nBoot HART ID : 0\r\n\r\n";
    const KERNEL: &str = "16-os 0.1.0 (checked)\nmachine virt\n16-os again\n";

    /// What is shown of an output that comes in pieces of so many bytes, and then ends.
    fn shown(output: &str, bytes: usize) -> String {
        let mut fold = Fold::new(true);
        let mut all: Vec<u8> =
            output.as_bytes().chunks(bytes).flat_map(|piece| fold.pass(piece)).collect();
        all.extend(fold.open());
        String::from_utf8(all).expect("it is what was put in")
    }

    #[test]
    fn the_banner_becomes_a_line_however_it_comes() {
        let expected = format!("OpenSBI v1.5.1 (--firmware shows its 3 lines)\n{KERNEL}");
        for bytes in 1..=100 {
            assert_eq!(shown(&format!("{BANNER}{KERNEL}"), bytes), expected, "{bytes} at a time");
        }
    }

    #[test]
    fn a_boot_that_ends_before_the_kernel_speaks_shows_everything() {
        for bytes in [1, 7, 1000] {
            assert_eq!(shown(BANNER, bytes), BANNER);
        }
    }

    #[test]
    fn what_follows_the_kernel_s_first_line_passes_byte_by_byte() {
        let mut fold = Fold::new(true);
        fold.pass(KERNEL.as_bytes());
        for byte in b"\x1b[2Jx" {
            assert_eq!(fold.pass(&[*byte]), [*byte]);
        }
    }

    #[test]
    fn who_waited_too_long_or_asked_for_it_sees_the_banner() {
        let mut fold = Fold::new(true);
        assert!(fold.pass(BANNER.as_bytes()).is_empty());
        assert_eq!(fold.open(), BANNER.as_bytes());
        assert_eq!(fold.pass(KERNEL.as_bytes()), KERNEL.as_bytes());
        let mut all = Fold::new(false);
        assert_eq!(all.pass(BANNER.as_bytes()), BANNER.as_bytes());
    }

    #[test]
    fn other_firmware_has_a_line_and_none_has_none() {
        assert_eq!(shown(KERNEL, 9), KERNEL);
        let other = "RustSBI\nready\n";
        let expected = format!("firmware (--firmware shows its 2 lines)\n{KERNEL}");
        assert_eq!(shown(&format!("{other}{KERNEL}"), 9), expected);
    }
}
