//! The diagnosis of a boot that does not end: where every hart is, found out from outside through QEMU's monitor.
//!
//! A kernel that hangs cannot report on itself. [`diagnose`] stops it, reads each hart's registers and follows its
//! frame pointers through its memory, and names the functions with the symbol table that the image carries.

use std::fmt::{self, Write as _};
use std::io::{self, Read, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use object::{Object, ObjectSection};
use symbols::{Location, Table};

/// How long the monitor may take for one answer. A hang of QEMU itself must not become one of ours.
const PATIENCE: Duration = Duration::from_secs(3);

/// How many frames of one hart are followed: more is a loop in the chain or a recursion whose depth is plain by then.
const MOST_FRAMES: usize = 48;

/// What the monitor writes when it waits for a command.
const PROMPT: &[u8] = b"(qemu) ";

/// Says where every hart of a running QEMU is: a backtrace each, and all registers.
///
/// `monitor` is the socket of its monitor (`-monitor unix:PATH,server=on,wait=off`), `elf` the image it runs. The guest
/// is stopped and stays so. What cannot be found out is said in the text instead.
pub fn diagnose(monitor: &Path, elf: &Path) -> String {
    let symbols = Symbols::read(elf);
    let table = symbols.as_ref().map_err(Clone::clone).and_then(Symbols::table);
    let mut text = String::new();
    if let Err(why) = &table {
        text += &format!("no names for addresses: {why}\n");
    }
    let result = Monitor::connect(monitor)
        .and_then(|mut monitor| harts(&mut monitor, table.as_ref().ok(), &mut text));
    if let Err(error) = result {
        text += &format!("no more could be found out: QEMU's monitor: {error}\n");
    }
    text
}

/// Adds to `text` what the monitor says of each hart.
fn harts(monitor: &mut Monitor, table: Option<&Table>, text: &mut String) -> io::Result<()> {
    monitor.ask("stop")?;
    let answer = monitor.ask("info registers -a")?;
    let harts = parse_registers(&answer);
    if harts.is_empty() {
        return Err(io::Error::other(format!("no registers in `{answer}`")));
    }
    for hart in &harts {
        monitor.ask(&format!("cpu {}", hart.cpu))?;
        let mut failure = None;
        let (frames, end) =
            walk(hart, |address| match monitor.ask(&format!("x /2gx {address:#x}")) {
                Ok(answer) => parse_memory(&answer),
                Err(error) => {
                    failure = Some(error);
                    None
                }
            });
        if let Some(error) = failure {
            return Err(error);
        }
        describe(hart, &frames, &end, table, text);
    }
    for hart in &harts {
        *text += &format!("registers of CPU {}:\n{}\n", hart.cpu, hart.text);
    }
    Ok(())
}

/// One hart as QEMU's `info registers -a` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Hart {
    /// QEMU's number for it.
    cpu: u32,
    pc: u64,
    ra: u64,
    s0: u64,
    /// All of its registers but the floating-point ones, which no kernel thread uses.
    text: String,
}

fn parse_registers(answer: &str) -> Vec<Hart> {
    answer
        .split("CPU#")
        .skip(1)
        .filter_map(|section| {
            let (cpu, registers) = section.split_once('\n')?;
            let words: Vec<&str> = registers.split_whitespace().collect();
            let value = |name: &str| {
                let at = words.iter().position(|word| *word == name)?;
                u64::from_str_radix(words.get(at + 1)?, 16).ok()
            };
            let integer_lines = registers
                .lines()
                .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('f'));
            Some(Hart {
                cpu: cpu.trim().parse().ok()?,
                pc: value("pc")?,
                ra: value("x1/ra")?,
                s0: value("x8/s0")?,
                text: integer_lines.collect::<Vec<_>>().join("\n"),
            })
        })
        .collect()
}

/// Reads the two words of an answer `ADDRESS: 0xWORD 0xWORD`; `None` when the guest has nothing there.
fn parse_memory(answer: &str) -> Option<[u64; 2]> {
    let (_, words) = answer.split_once(": ")?;
    let mut words = words.split_whitespace().map(|word| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    Some([words.next()??, words.next()??])
}

/// Why a chain of frame pointers was followed no further.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The frame pointer is zero, as the entry sets it.
    Zero,
    /// The frame pointer is no address a frame can have.
    Misaligned(u64),
    /// Below the frame pointer is nothing that this hart can read.
    Unreadable(u64),
    /// There are more than [`MOST_FRAMES`].
    TooMany,
}

impl fmt::Display for End {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero => write!(formatter, "end: the frame pointer is zero"),
            Self::Misaligned(pointer) => {
                write!(formatter, "broken: {pointer:#x} is no frame pointer")
            }
            Self::Unreadable(pointer) => {
                write!(formatter, "broken: nothing to read below the frame pointer {pointer:#x}")
            }
            Self::TooMany => write!(formatter, "cut off after {MOST_FRAMES} frames"),
        }
    }
}

/// Follows the frame pointers of `hart`: the return addresses, innermost first, and why there are no more.
///
/// The calling convention's frame record lies just below the address in s0: the caller's s0 at -16, the return address
/// at -8. `read` gives the two doublewords at an address.
fn walk(hart: &Hart, mut read: impl FnMut(u64) -> Option<[u64; 2]>) -> (Vec<u64>, End) {
    let mut returns = Vec::new();
    let mut pointer = hart.s0;
    while returns.len() < MOST_FRAMES {
        if pointer == 0 {
            return (returns, End::Zero);
        }
        if !pointer.is_multiple_of(8) || pointer < 16 {
            return (returns, End::Misaligned(pointer));
        }
        let Some([caller, return_address]) = read(pointer - 16) else {
            return (returns, End::Unreadable(pointer));
        };
        if return_address != 0 {
            returns.push(return_address);
        }
        if caller == pointer {
            return (returns, End::Misaligned(caller));
        }
        pointer = caller;
    }
    (returns, End::TooMany)
}

/// Adds a hart's backtrace to `text`.
fn describe(hart: &Hart, returns: &[u64], end: &End, table: Option<&Table>, text: &mut String) {
    let exact = |address| name(table.and_then(|table| table.exact(address)));
    let returning = |address| name(table.and_then(|table| table.return_site(address)));
    let mut line = |arguments: fmt::Arguments<'_>| {
        text.write_fmt(arguments).expect("a String takes everything");
        text.push('\n');
    };
    line(format_args!("CPU {} is at", hart.cpu));
    line(format_args!("  pc {:#018x} {}", hart.pc, exact(hart.pc)));
    // A function that has not yet stored its frame, or no longer has it, is not in the chain: its caller is in ra.
    line(format_args!("  ra {:#018x} {}", hart.ra, returning(hart.ra)));
    for (index, &address) in returns.iter().enumerate() {
        line(format_args!("  {index:2} {address:#018x} {}", returning(address)));
    }
    line(format_args!("     {end}"));
}

fn name(location: Option<Location<'_>>) -> String {
    location.map_or_else(|| "(not in the image)".to_owned(), |location| location.to_string())
}

/// The bytes of the symbol table that an image carries.
struct Symbols(Vec<u8>);

impl Symbols {
    fn read(elf: &Path) -> Result<Self, String> {
        let data = std::fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let file = object::File::parse(&*data).map_err(|error| error.to_string())?;
        let section =
            file.section_by_name(".symbols").ok_or("the image has no section .symbols")?;
        let bytes = section.data().map_err(|error| error.to_string())?;
        Ok(Self(bytes.to_vec()))
    }

    fn table(&self) -> Result<Table<'_>, String> {
        Table::new(&self.0).map_err(|error| format!("the symbol table: {error}"))
    }
}

/// A connection to QEMU's monitor for people, the one that can read memory through a hart's own page tables.
struct Monitor(UnixStream);

impl Monitor {
    fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut monitor = Self(stream);
        monitor.answer()?;
        Ok(monitor)
    }

    /// Gives a command; the answer is without the echo of the command and without the next prompt.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.0.write_all(format!("{command}\n").as_bytes())?;
        let answer = self.answer()?;
        let (_echo, answer) = answer.split_once('\n').unwrap_or_default();
        Ok(answer.replace('\r', ""))
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !answer.ends_with(PROMPT) {
            match self.0.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => answer.extend_from_slice(&piece[..length]),
            }
        }
        answer.truncate(answer.len() - PROMPT.len());
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::net::UnixListener;

    use super::*;

    const REGISTERS: &str = "\nCPU#0\n V      =   0\n pc       ffffffff80201000\n mhartid  0000000000000000\n \
         x0/zero  0000000000000000 x1/ra    ffffffff80202004 x2/sp    ffffffc000003fe0 x3/gp    0000000000000000\n \
         x8/s0    ffffffc000004000 x9/s1    0000000000000001\n fcsr     0000000000000000\n \
         f0/ft0   ffffffff00000000\n\nCPU#1\n pc       000000008000ed8a\n x1/ra    0000000000000000\n \
         x8/s0    0000000000000000\n";

    fn hart(s0: u64) -> Hart {
        Hart { cpu: 0, pc: 0, ra: 0, s0, text: String::new() }
    }

    #[test]
    fn every_harts_pc_ra_and_frame_pointer_are_read() {
        let harts = parse_registers(REGISTERS);
        assert_eq!(harts.len(), 2);
        assert_eq!((harts[0].cpu, harts[1].cpu), (0, 1));
        assert_eq!(harts[0].pc, 0xffff_ffff_8020_1000);
        assert_eq!(harts[0].ra, 0xffff_ffff_8020_2004);
        assert_eq!(harts[0].s0, 0xffff_ffc0_0000_4000);
        assert_eq!(harts[1].pc, 0x8000_ed8a);
    }

    #[test]
    fn floating_point_registers_are_left_out() {
        let harts = parse_registers(REGISTERS);
        assert!(harts[0].text.contains("mhartid"));
        assert!(!harts[0].text.contains("ft0") && !harts[0].text.contains("fcsr"));
    }

    #[test]
    fn memory_is_read_word_by_word_and_none_where_there_is_none() {
        assert_eq!(
            parse_memory("0000000080201150: 0x0000000000000007 0xffffffff80200000\n"),
            Some([7, 0xffff_ffff_8020_0000])
        );
        assert_eq!(parse_memory("000000000000ffff: Cannot access memory\n"), None);
        assert_eq!(parse_memory(""), None);
    }

    #[test]
    fn the_chain_is_followed_to_a_zero_frame_pointer() {
        let memory = HashMap::from([(0xff0, [0x2000, 0xa]), (0x1ff0, [0, 0xb])]);
        let (returns, end) = walk(&hart(0x1000), |address| memory.get(&address).copied());
        assert_eq!((returns, end), (vec![0xa, 0xb], End::Zero));
    }

    #[test]
    fn a_zero_return_address_names_nobody() {
        let (returns, end) = walk(&hart(0x1000), |_| Some([0, 0]));
        assert_eq!((returns, end), (vec![], End::Zero));
    }

    #[test]
    fn a_broken_chain_ends_where_it_breaks() {
        let unreadable = walk(&hart(0x1000), |_| None);
        assert_eq!(unreadable, (vec![], End::Unreadable(0x1000)));
        let misaligned = walk(&hart(0x1000), |_| Some([0x1235, 0xa]));
        assert_eq!(misaligned, (vec![0xa], End::Misaligned(0x1235)));
        let low = walk(&hart(8), |_| Some([0, 0xa]));
        assert_eq!(low, (vec![], End::Misaligned(8)));
    }

    #[test]
    fn a_chain_in_a_circle_comes_to_an_end() {
        let itself = walk(&hart(0x1000), |_| Some([0x1000, 0xa]));
        assert_eq!(itself, (vec![0xa], End::Misaligned(0x1000)));
        let pair = walk(&hart(0x1000), |address| {
            Some([if address == 0xff0 { 0x2000 } else { 0x1000 }, 0xa])
        });
        assert_eq!(pair, (vec![0xa; MOST_FRAMES], End::TooMany));
    }

    /// A monitor that answers as QEMU does: with an echo full of cursor movements, carriage returns and a prompt.
    fn stand_in(socket: &Path) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut commands = Vec::new();
            stream.write_all(b"QEMU monitor\r\n(qemu) ").unwrap();
            let mut bytes = [0; 256];
            while let Ok(length @ 1..) = stream.read(&mut bytes) {
                let command = String::from_utf8_lossy(&bytes[..length]).trim().to_owned();
                let answer = match &*command {
                    "info registers -a" => REGISTERS.replace('\n', "\r\n"),
                    command if command.starts_with("x /2gx") => {
                        "x: 0x0000000000000000 0xffffffff80203000\r\n".to_owned()
                    }
                    _ => String::new(),
                };
                let echo = "i\x1b[K\x1b[D\x1b[K\r\n";
                stream.write_all(format!("{echo}{answer}(qemu) ").as_bytes()).unwrap();
                commands.push(command);
            }
            commands
        })
    }

    #[test]
    fn a_diagnosis_shows_each_hart_and_the_registers() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("monitor");
        let monitor = stand_in(&socket);
        let text = diagnose(&socket, &directory.path().join("no-image"));
        let commands = monitor.join().unwrap();
        assert_eq!(commands[..2], ["stop", "info registers -a"]);
        assert!(commands.contains(&"x /2gx 0xffffffc000003ff0".to_owned()), "{commands:?}");
        assert!(text.starts_with("no names for addresses: "), "{text}");
        assert!(text.contains("CPU 0 is at\n  pc 0xffffffff80201000"), "{text}");
        assert!(text.contains("   0 0xffffffff80203000"), "{text}");
        assert!(text.contains("CPU 1 is at\n  pc 0x000000008000ed8a"), "{text}");
        assert!(text.contains("registers of CPU 1:"), "{text}");
    }

    #[test]
    fn a_monitor_that_is_not_there_is_said_and_no_panic() {
        let directory = tempfile::tempdir().unwrap();
        let text = diagnose(&directory.path().join("none"), &directory.path().join("none"));
        assert!(text.contains("no more could be found out"), "{text}");
    }
}
