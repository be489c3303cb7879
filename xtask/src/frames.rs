//! How much stack each function takes at once, read from the machine code.
//!
//! This target emits no stack probes: a function whose frame is larger than the gap below a stack moves the stack pointer
//! past the guard without touching it. [`check`] fails for such a function, and for code that moves the stack pointer by an
//! amount that cannot be told, outside the few pieces of assembly that are named to it.
//!
//! Only what moves `sp` matters, so this decodes no more: every instruction of RV64IMAC that can write `sp`, and those that
//! make the constants with which a large frame is taken. What writes `sp` in any other way, an unknown instruction
//! included, counts as a move that cannot be told. The code is read in a straight line and every move down is added up:
//! compiled functions move `sp` down in their prologue and nowhere else. (Assembly that did it in a loop would be counted
//! for one turn.)

use std::ops::Range;
use std::path::{Path, PathBuf};

use ::symbols::Kind;
use object::LittleEndian as LE;
use object::elf::SHF_EXECINSTR;
use object::read::elf::{ElfFile64, ElfSymbol64, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol, SectionIndex};

use crate::symbols::{self, definitions};

const SP: u8 = 2;
const FRAME_POINTER: u8 = 8;

/// Why the frames are not known to be small enough.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image could not be read.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The image could not be understood.
    #[error(transparent)]
    Image(#[from] symbols::Error),
    /// Functions with frames over the limit, the largest first.
    #[error("frames larger than {limit} bytes, the gap below a stack:{}", list(frames, |it| format!("{} bytes", it.bytes)))]
    Large {
        /// The largest frame allowed, in bytes.
        limit: u64,
        /// Who exceeds it.
        frames: Vec<Frame>,
    },
    /// Functions that move `sp` by an amount that cannot be told, at the addresses in [`Frame::untold`].
    #[error("the stack pointer moves by an unknown amount:{}", list(frames, |it| format!("at {:#x?}", it.untold)))]
    Untold {
        /// Who does it.
        frames: Vec<Frame>,
    },
    /// A name in the list of assembly that no longer needs to be there: no such code, or it does not set `sp`.
    #[error("{0} is listed as assembly that sets the stack pointer, and does not")]
    Listed(String),
    /// Not an instruction: its length is reserved.
    #[error("{address:#x}, in {function}, is no instruction: {parcel:#06x}")]
    Instruction {
        /// Where.
        address: u64,
        /// In which function.
        function: String,
        /// The first 16 bits.
        parcel: u16,
    },
}

fn list(frames: &[Frame], what: impl Fn(&Frame) -> String) -> String {
    frames.iter().map(|frame| format!("\n  {}: {}", frame.function, what(frame))).collect()
}

/// What one function does to the stack pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its readable name.
    pub function: String,
    /// Its first instruction's address.
    pub address: u64,
    /// The most it takes at once, in bytes; what a realignment may take included.
    pub bytes: u64,
    /// Addresses of instructions that set `sp` to something that cannot be told.
    pub untold: Vec<u64>,
}

/// Checks every function of an image; gives their frames, the largest first.
///
/// `limit` is the largest frame allowed, in bytes. `assembly` names the functions that may set `sp` from a register: the
/// entry, the switch, the trap vector and such, each checked to need it.
///
/// # Errors
/// See [`Error`].
pub fn check(elf: &Path, limit: u64, assembly: &[&str]) -> Result<Vec<Frame>, Error> {
    let image = std::fs::read(elf).map_err(|error| Error::File { path: elf.to_owned(), error })?;
    let frames = frames(&image)?;
    let listed = |frame: &Frame| assembly.contains(&frame.function.as_str());
    let select = |wanted: &dyn Fn(&Frame) -> bool| {
        frames.iter().filter(|it| wanted(it)).cloned().collect::<Vec<_>>()
    };

    let untold = select(&|frame| !frame.untold.is_empty() && !listed(frame));
    if !untold.is_empty() {
        return Err(Error::Untold { frames: untold });
    }
    let large = select(&|frame| frame.bytes > limit);
    if !large.is_empty() {
        return Err(Error::Large { limit, frames: large });
    }
    let needed =
        |name: &str| frames.iter().any(|frame| frame.function == name && !frame.untold.is_empty());
    match assembly.iter().find(|name| !needed(name)) {
        Some(name) => Err(Error::Listed((*name).to_owned())),
        None => Ok(frames),
    }
}

/// The frames of all code in an image, the largest first; code that no symbol names is called after its address. Data
/// among the code is passed over where the assembler marked it.
///
/// # Errors
/// [`Error::Image`] and [`Error::Instruction`].
pub fn frames(image: &[u8]) -> Result<Vec<Frame>, Error> {
    let elf = ElfFile64::<LE>::parse(image).map_err(symbols::Error::from)?;
    let mut functions = definitions(&elf)?;
    functions.retain(|symbol| symbol.kind == Kind::Code);
    let mut frames = Vec::new();
    for section in elf.sections() {
        if !section.elf_section_header().sh_flags(LE).contains(SHF_EXECINSTR) {
            continue;
        }
        let code = section.data().map_err(symbols::Error::from)?;
        let (start, end) = (section.address(), section.address() + code.len() as u64);
        let data = data_in(&elf, section.index(), end);
        let mut read = |name: String, from: u64, to: u64| -> Result<(), Error> {
            let mut reader = Reader::new(name, from);
            let mut at = from;
            // The end serves as a last, empty range of data.
            for data in data.iter().filter(|data| data.end > from).chain([&(to..to)]) {
                let stop = data.start.clamp(at, to);
                reader.read(at, &code[(at - start) as usize..(stop - start) as usize])?;
                at = data.end.clamp(at, to);
            }
            frames.push(reader.frame);
            Ok(())
        };
        let mut at = start;
        for symbol in functions.iter().filter(|symbol| (start..end).contains(&symbol.address)) {
            if at < symbol.address {
                read(format!("code at {at:#x}"), at, symbol.address)?;
            }
            at = end.min(symbol.address + symbol.size);
            read(symbol.name.clone(), symbol.address, at)?;
        }
        if at < end {
            read(format!("code at {at:#x}"), at, end)?;
        }
    }
    frames.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.address.cmp(&b.address)));
    Ok(frames)
}

/// The ranges of a section, up to `end`, that the assembler marked as data: each from a symbol `$d` to the next `$x`.
fn data_in(elf: &ElfFile64<LE>, section: SectionIndex, end: u64) -> Vec<Range<u64>> {
    let of_section = |symbol: &ElfSymbol64<LE>| symbol.section_index() == Some(section);
    let mut marks: Vec<(u64, bool)> = Vec::new();
    for symbol in elf.symbols().filter(of_section) {
        match symbol.name_bytes() {
            Ok(name) if name.starts_with(b"$d") => marks.push((symbol.address(), true)),
            Ok(name) if name.starts_with(b"$x") => marks.push((symbol.address(), false)),
            _ => {}
        }
    }
    // Of two marks in one place, the code counts.
    marks.sort_by_key(|&(address, is_data)| (address, !is_data));
    let ends = marks.iter().skip(1).map(|(address, _)| *address).chain([end]);
    let ranges = marks.iter().zip(ends).filter(|((start, is_data), end)| *is_data && start < end);
    ranges.map(|((start, _), end)| *start..end).collect()
}

/// What `code`, the whole of a function at `address`, does to the stack pointer.
///
/// # Errors
/// [`Error::Instruction`].
pub fn frame(function: String, address: u64, code: &[u8]) -> Result<Frame, Error> {
    let mut reader = Reader::new(function, address);
    reader.read(address, code)?;
    Ok(reader.frame)
}

/// A function, as far as it was read.
struct Reader {
    frame: Frame,
    registers: [Value; 32],
}

impl Reader {
    fn new(function: String, address: u64) -> Reader {
        let frame = Frame { function, address, bytes: 0, untold: Vec::new() };
        Reader { frame, registers: [Value::Unknown; 32] }
    }

    /// Reads on with `code`, which lies at `address`.
    fn read(&mut self, address: u64, code: &[u8]) -> Result<(), Error> {
        let mut rest = code;
        while let Some(parcel) = rest.first_chunk::<2>() {
            let at = address + (code.len() - rest.len()) as u64;
            let parcel = u16::from_le_bytes(*parcel);
            let effect = match (parcel & 0b11, rest.first_chunk::<4>()) {
                (0b11, Some(word)) if parcel & 0b11100 != 0b11100 => {
                    rest = &rest[4..];
                    decode(u32::from_le_bytes(*word))
                }
                (0b11, _) => {
                    let function = self.frame.function.clone();
                    return Err(Error::Instruction { address: at, function, parcel });
                }
                _ => {
                    rest = &rest[2..];
                    decode_compressed(parcel)
                }
            };
            self.apply(effect, at);
        }
        Ok(())
    }

    fn apply(&mut self, effect: Effect, at: u64) {
        let bytes = self.frame.bytes;
        match effect {
            Effect::Nothing => {}
            Effect::Leave => {
                let kept = self.registers[usize::from(FRAME_POINTER)];
                self.registers = [Value::Unknown; 32];
                if let Value::Frame(_) = kept {
                    self.registers[usize::from(FRAME_POINTER)] = kept;
                }
            }
            Effect::Write(SP, source) => match taken(source, &self.registers, bytes) {
                Some(taken) => self.frame.bytes = bytes.max(taken),
                None => self.frame.untold.push(at),
            },
            Effect::Write(register, source) => {
                let register = usize::from(register);
                self.registers[register] = value(register, source, &self.registers, bytes);
            }
        }
    }
}

/// What is known of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Unknown,
    Constant(i64),
    /// The stack pointer as it was when the function had taken this many bytes.
    Frame(u64),
    /// The stack pointer without its low bits, so many of them.
    Shifted(u32),
}

/// Where a register's new value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Constant(i64),
    /// A register and a number.
    Add(u8, i64),
    /// The same in 32 bits, with the sign extended.
    AddWord(u8, i64),
    Sum(u8, u8),
    Difference(u8, u8),
    And(u8, i64),
    ShiftLeft(u8, u32),
    ShiftRight(u8, u32),
    Memory,
    Other,
}

/// What an instruction does, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Nothing,
    /// A jump, a call or a branch: what follows may be reached from elsewhere, so no constant is relied on beyond it.
    Leave,
    Write(u8, Source),
}

/// Bytes that a function has taken once `sp` is set from `source`, where `before` is the most it had taken so far.
fn taken(source: Source, registers: &[Value; 32], before: u64) -> Option<u64> {
    let constant = |register: u8| match registers[usize::from(register)] {
        Value::Constant(constant) => Some(constant),
        _ if register == 0 => Some(0),
        _ => None,
    };
    let (from, up) = match source {
        Source::Add(from, up) => (from, up),
        Source::Sum(SP, other) | Source::Sum(other, SP) => (SP, constant(other)?),
        Source::Sum(from, other) => (from, constant(other)?),
        Source::Difference(from, other) => (from, constant(other)?.checked_neg()?),
        // Rounded down to a multiple of a power of two.
        Source::And(SP, mask) if mask < 0 && mask.unsigned_abs().is_power_of_two() => {
            return before.checked_add(mask.unsigned_abs() - 1);
        }
        Source::ShiftLeft(from, bits) if registers[usize::from(from)] == Value::Shifted(bits) => {
            return before.checked_add((1 << bits) - 1);
        }
        _ => return None,
    };
    let base = match registers[usize::from(from)] {
        _ if from == SP => before,
        Value::Frame(base) => base,
        _ => return None,
    };
    base.checked_add(up.min(0).unsigned_abs())
}

/// What is known of `register` once it is set from `source`.
fn value(register: usize, source: Source, registers: &[Value; 32], taken: u64) -> Value {
    let of = |register: u8| {
        if register == 0 { Value::Constant(0) } else { registers[usize::from(register)] }
    };
    match source {
        Source::Constant(constant) => Value::Constant(constant),
        Source::Add(SP, up) if up >= 0 => Value::Frame(taken.saturating_sub(up.unsigned_abs())),
        Source::Add(from, up) => match of(from) {
            Value::Constant(constant) => Value::Constant(constant.wrapping_add(up)),
            _ => Value::Unknown,
        },
        Source::AddWord(from, up) => match of(from) {
            Value::Constant(constant) => {
                Value::Constant(i64::from(constant.wrapping_add(up) as i32))
            }
            _ => Value::Unknown,
        },
        Source::ShiftRight(SP, bits) => Value::Shifted(bits),
        Source::ShiftLeft(from, bits) => match of(from) {
            Value::Constant(constant) => Value::Constant(constant << bits),
            _ => Value::Unknown,
        },
        Source::ShiftRight(from, bits) => match of(from) {
            Value::Constant(constant) => Value::Constant((constant as u64 >> bits) as i64),
            _ => Value::Unknown,
        },
        // The caller's frame pointer comes back from the stack in each of a function's exits; the code behind one of
        // them has its own still.
        Source::Memory if register == usize::from(FRAME_POINTER) => registers[register],
        _ => Value::Unknown,
    }
}

/// An instruction of 32 bits.
fn decode(word: u32) -> Effect {
    let field = |low: u32| (word >> low & 0b11111) as u8;
    let (to, left, right) = (field(7), field(15), field(20));
    let immediate = i64::from(word as i32 >> 20);
    let shift = word >> 20 & 0b11_1111;
    let upper_six_clear = word >> 26 == 0;
    let source = match (word & 0x7f, word >> 12 & 0b111) {
        (0x37, _) => Source::Constant(i64::from(word as i32 & !0xfff)),
        (0x13, 0) => Source::Add(left, immediate),
        (0x13, 7) => Source::And(left, immediate),
        (0x13, 1) if upper_six_clear => Source::ShiftLeft(left, shift),
        (0x13, 5) if upper_six_clear => Source::ShiftRight(left, shift),
        (0x1b, 0) => Source::AddWord(left, immediate),
        (0x33, 0) if word >> 25 == 0 => Source::Sum(left, right),
        (0x33, 0) if word >> 25 == 0b010_0000 => Source::Difference(left, right),
        (0x03, _) => Source::Memory,
        // Branches; jumps, which link to another register than sp.
        (0x63, _) => return Effect::Leave,
        (0x6f | 0x67, _) if to != SP => return Effect::Leave,
        // Stores and fences have no destination; floating-point loads and fused operations have another kind.
        (0x23 | 0x0f | 0x27 | 0x07 | 0x43 | 0x47 | 0x4b | 0x4f, _) => return Effect::Nothing,
        _ => Source::Other,
    };
    Effect::Write(to, source)
}

/// An instruction of 16 bits.
fn decode_compressed(parcel: u16) -> Effect {
    let bits = |high: u32, low: u32| i64::from(parcel >> low) & ((1 << (high - low + 1)) - 1);
    let bit = |at: u32| bits(at, at);
    let to = bits(11, 7) as u8;
    let right = bits(6, 2) as u8;
    // The registers that three bits can name, from x8 on.
    let (low, high) = (8 + bits(4, 2) as u8, 8 + bits(9, 7) as u8);
    let immediate = bits(6, 2) - (bit(12) << 5);
    match (parcel & 0b11, parcel >> 13) {
        // All zeros is the instruction that is never one.
        (0, 0) if parcel == 0 => Effect::Nothing,
        (0, 0) => {
            let up = bits(12, 11) << 4 | bits(10, 7) << 6 | bit(6) << 2 | bit(5) << 3;
            Effect::Write(low, Source::Add(SP, up))
        }
        (0, 2 | 3) => Effect::Write(low, Source::Memory),
        (0, 4) => Effect::Write(low, Source::Other),
        (0, _) => Effect::Nothing,
        (1, 0) => Effect::Write(to, Source::Add(to, immediate)),
        (1, 1) => Effect::Write(to, Source::AddWord(to, immediate)),
        (1, 2) => Effect::Write(to, Source::Constant(immediate)),
        (1, 3) if to == SP => {
            let up = bit(6) << 4 | bit(2) << 5 | bit(5) << 6 | bits(4, 3) << 7;
            Effect::Write(SP, Source::Add(SP, up - (bit(12) << 9)))
        }
        (1, 3) => Effect::Write(to, Source::Constant(immediate << 12)),
        (1, 4) if bits(11, 10) == 0 => {
            Effect::Write(high, Source::ShiftRight(high, (bit(12) << 5 | bits(6, 2)) as u32))
        }
        (1, 4) => Effect::Write(high, Source::Other),
        (1, _) => Effect::Leave,
        (2, 0) => Effect::Write(to, Source::ShiftLeft(to, (bit(12) << 5 | bits(6, 2)) as u32)),
        (2, 2 | 3) => Effect::Write(to, Source::Memory),
        (2, 4) if right == 0 => Effect::Leave,
        (2, 4) if bit(12) == 0 => Effect::Write(to, Source::Add(right, 0)),
        (2, 4) => Effect::Write(to, Source::Sum(to, right)),
        _ => Effect::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frame of a function of these instructions, of 16 or 32 bits each.
    fn of(code: &[u32]) -> Frame {
        let bytes: Vec<u8> = code
            .iter()
            .flat_map(|word| word.to_le_bytes().into_iter().take(if word & 3 == 3 { 4 } else { 2 }))
            .collect();
        frame("function".into(), 0x1000, &bytes).unwrap()
    }

    #[test]
    fn a_frame_counts_once_however_many_exits_give_it_back() {
        let frame = of(&[
            0x1101, // addi sp, sp, -32
            0xec06, // sd ra, 24(sp)
            0xe822, // sd s0, 16(sp)
            0x1000, // addi s0, sp, 32
            0xc509, // beqz a0, over the return
            0x60e2, // ld ra, 24(sp)
            0x6442, // ld s0, 16(sp)
            0x6105, // addi sp, sp, 32
            0x8082, // ret
            0x60e2, // ld ra, 24(sp)
            0x6105, // addi sp, sp, 32
            0x8082, // ret
        ]);
        assert_eq!((frame.bytes, frame.untold), (32, vec![]));
    }

    #[test]
    fn a_large_frame_is_taken_through_a_register() {
        let subtracted = of(&[
            0x8101_0113, // addi sp, sp, -2032
            0x7f01_0413, // addi s0, sp, 2032
            0x0000_6515, // lui a0, 5
            0xe205_051b, // addiw a0, a0, -480
            0x40a1_0133, // sub sp, sp, a0
            0x8082,      // ret
        ]);
        assert_eq!((subtracted.bytes, subtracted.untold), (2_032 + 20_000, vec![]));
        let added = of(&[
            0x1141, // addi sp, sp, -16
            0x72ed, // lui t0, -5
            0x02c1, // addi t0, t0, 16
            0x9116, // add sp, sp, t0
            0x8082, // ret
        ]);
        assert_eq!((added.bytes, added.untold), (16 + 5 * 4_096 - 16, vec![]));
        let shifted = of(&[
            0x7141,      // addi sp, sp, -496
            0x1b80,      // addi s0, sp, 496
            0x46b5,      // li a3, 13
            0x06a6,      // slli a3, a3, 9
            0x40d1_0133, // sub sp, sp, a3
            0x82a5,      // srli a3, a3, 9
            0x40d1_0133, // sub sp, sp, a3
            0x4535,      // li a0, 13
            0x0526,      // slli a0, a0, 9
            0x912a,      // add sp, sp, a0
            0x8082,      // ret
        ]);
        assert_eq!((shifted.bytes, shifted.untold), (496 + 6_656 + 13, vec![]));
    }

    #[test]
    fn a_realigned_frame_counts_what_the_alignment_may_take() {
        let frame = of(&[
            0x7141,      // addi sp, sp, -496
            0xf3a2,      // sd s0, 480(sp)
            0x1b80,      // addi s0, sp, 496
            0xf001_7113, // andi sp, sp, -256
            0xc511,      // beqz a0, over the return
            0xe104_0113, // addi sp, s0, -496
            0x741e,      // ld s0, 480(sp)
            0x617d,      // addi sp, sp, 496
            0x8082,      // ret
            0xe104_0113, // addi sp, s0, -496
            0x741e,      // ld s0, 480(sp)
            0x617d,      // addi sp, sp, 496
            0x8082,      // ret
        ]);
        assert_eq!((frame.bytes, frame.untold), (496 + 255, vec![]));
        let to_a_page = of(&[
            0x7139,      // addi sp, sp, -64
            0x00c1_5513, // srli a0, sp, 12
            0x00c5_1113, // slli sp, a0, 12
        ]);
        assert_eq!((to_a_page.bytes, to_a_page.untold), (64 + 4_095, vec![]));
        let shifted_elsewhere = of(&[
            0x00c1_5513, // srli a0, sp, 12
            0x00b5_1113, // slli sp, a0, 11
        ]);
        assert_eq!(shifted_elsewhere.untold, [0x1004]);
    }

    #[test]
    fn a_move_by_an_unknown_amount_is_noticed() {
        for code in [
            0x40a1_0133_u32, // sub sp, sp, a0
            0x00a1_0133,     // add sp, sp, a0
            0x1401_1173,     // csrrw sp, sscratch, sp
            0x0085_3103,     // ld sp, 8(a0)
            0x0000_0117,     // auipc sp, 0
            0x812e,          // mv sp, a1
            0x9116,          // add sp, sp, t0
            0x6112,          // ld sp, 256(sp)
            0xe104_0113,     // addi sp, s0, -496, without a frame in s0
            0x0000_010b,     // an instruction of a custom extension that may write sp
        ] {
            assert_eq!(of(&[0x0001, code]).untold, [0x1002], "{code:#x}");
        }
    }

    #[test]
    fn no_value_is_believed_beyond_a_call() {
        let constant = of(&[
            0x4000_0513, // li a0, 1024
            0x0200_00ef, // jal ra, ...
            0x40a1_0133, // sub sp, sp, a0
        ]);
        assert_eq!(constant.untold, [0x1008]);
        let place = of(&[
            0x0804,      // addi s1, sp, 16
            0x0200_00ef, // jal ra, ...
            0x8126,      // mv sp, s1
        ]);
        assert_eq!(place.untold, [0x1006]);
    }

    #[test]
    fn what_is_no_instruction_is_an_error() {
        let error =
            frame("function".into(), 0x1000, &[0x01, 0x00, 0x1f, 0x00, 0, 0, 0, 0]).unwrap_err();
        assert!(
            matches!(error, Error::Instruction { address: 0x1002, parcel: 0x1f, .. }),
            "{error}"
        );
        let cut = frame("function".into(), 0x1000, &[0x13, 0x01]).unwrap_err();
        assert!(matches!(cut, Error::Instruction { address: 0x1000, parcel: 0x113, .. }), "{cut}");
    }
}
