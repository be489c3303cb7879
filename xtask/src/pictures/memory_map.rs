//! The memory map as a picture: what the monitor's `map` says of the live page table.
//!
//! On top lies the address space, its upper half to scale. Ranges that are near each other are a column; in it they stand by address, the
//! lowest on top, as high as the logarithm of their size, with what is not mapped between them.

use std::fmt::{self, Write};

use crate::svg::{CHARACTER, Escaped, FONT, shortened, text_width};

/// A column, with the addresses on its left.
const COLUMN: f64 = 340.0;
const ADDRESSES: f64 = 18.0 * CHARACTER + 8.0;
const BAR: f64 = COLUMN - ADDRESSES - 16.0;
const MARGIN: f64 = 20.0;
/// The picture has room for so many columns, or more if there are more.
const COLUMNS: usize = 4;

/// The address space, on top.
const SPACE_TOP: f64 = 88.0;
const SPACE_BOTTOM: f64 = SPACE_TOP + 26.0;
/// The lower half is not to scale.
const LOWER_HALF: f64 = 190.0;
const NOT_CANONICAL: f64 = 130.0;
/// Sv39: bits 63 to 39 are equal to bit 38.
const HALF_BYTES: u64 = 1 << 38;
const UPPER_START: u64 = HALF_BYTES.wrapping_neg();

/// Where the columns begin.
const COLUMNS_TOP: f64 = SPACE_BOTTOM + 46.0;
const ROWS_TOP: f64 = COLUMNS_TOP + 40.0;
/// A range of one page, one with two lines of text, and a gap.
const LOWEST: f64 = 19.0;
const TWO_LINES: f64 = 33.0;
const DOUBLING: f64 = 2.4;
const GAP: f64 = 17.0;
const PAGE: u64 = 4096;

/// What is further away belongs to another column.
const FAR: u64 = 1 << 30;

/// Rights as the kernel writes them, in words, and as a colour.
const RIGHTS: [(&str, &str, &str); 3] = [
    ("R-X", "read and execute", "#fbd38d"),
    ("R--", "read", "#bee3f8"),
    ("RW-", "read and write", "#c6f6d5"),
];
/// Of rights that nothing should have.
const OTHER_RIGHTS: &str = "#fc8181";

/// Addresses that are mapped with the same rights for the same purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// `R-X`, `R--` or `RW-`.
    pub rights: String,
    /// What lies there, in the kernel's words.
    pub what: String,
}

impl Range {
    /// Reads a line of `map`: `0x...0000..0x...0fff RW-        4 KiB  the UART`.
    fn parse(line: &str) -> Option<Range> {
        let (addresses, rest) = line.split_once(' ')?;
        let (first, last) = addresses.split_once("..")?;
        let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let (rights, rest) = rest.split_once(' ')?;
        let (size, what) = rest.split_once(" KiB  ")?;
        let (first, last) = (address(first)?, address(last)?);
        let bytes = size.trim().parse::<u64>().ok()?.checked_mul(1024)?;
        (last.checked_sub(first)? == bytes.checked_sub(1)?).then(|| Range {
            first,
            last,
            rights: rights.to_owned(),
            what: what.to_owned(),
        })
    }

    fn bytes(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    fn colour(&self) -> &'static str {
        RIGHTS.iter().find(|it| it.0 == self.rights).map_or(OTHER_RIGHTS, |it| it.2)
    }

    /// Its rights and size.
    fn figures(&self) -> String {
        format!("{} {}", self.rights, Size(self.bytes()))
    }

    fn height(&self) -> f64 {
        let doublings = (self.bytes() as f64 / PAGE as f64).max(1.0).log2();
        let one_line = text_width(&self.what) + text_width(&self.figures()) + 4.0 * CHARACTER;
        let least = if one_line <= BAR { LOWEST } else { TWO_LINES };
        (LOWEST + DOUBLING * doublings).max(least)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { first, last, rights, what } = self;
        write!(f, "{first:#018x}..{last:#018x} {rights} {}, {what}", Size(self.bytes()))
    }
}

/// A number of bytes, in KiB.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = (self.0 / 1024).to_string();
        for (place, digit) in digits.char_indices() {
            let comma = place > 0 && (digits.len() - place).is_multiple_of(3);
            write!(f, "{}{digit}", if comma { "," } else { "" })?;
        }
        f.write_str(" KiB")
    }
}

/// Why there is nothing to draw.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nobody asked for the map, or nobody answered.
    #[error("the monitor's `map` said nothing")]
    Nothing,
    /// A line of it is no range, or overlaps the one before.
    #[error("the monitor's `map` says `{0}`, which is no range behind the one before")]
    Malformed(String),
}

/// Reads the answer to `map` in what the console said, the lowest range first.
///
/// # Errors
/// See [`Error`].
pub fn read(output: &str) -> Result<Vec<Range>, Error> {
    let mut ranges = Vec::<Range>::new();
    let lines = output.lines().map(str::trim_end).skip_while(|line| !line.ends_with("> map"));
    for line in lines.skip(1).take_while(|line| !line.starts_with('>')) {
        // The question at the end of a screen was there, and was taken away.
        let line = line.rsplit("\u{1b}[K").next().unwrap_or(line);
        let behind = |range: &Range| ranges.last().is_none_or(|before| before.last < range.first);
        let range = Range::parse(line).filter(behind);
        ranges.push(range.ok_or_else(|| Error::Malformed(line.to_owned()))?);
    }
    if ranges.is_empty() { Err(Error::Nothing) } else { Ok(ranges) }
}

/// Draws what is mapped on a `machine`, which is said in words.
pub fn draw(ranges: &[Range], machine: &str) -> String {
    let columns: Vec<&[Range]> =
        ranges.chunk_by(|one, next| next.first - one.last <= FAR).collect();
    let width = 2.0 * MARGIN + COLUMN * columns.len().max(COLUMNS) as f64;
    let mut picture = Picture { width, out: String::new() };
    // Writing into a string does not fail.
    let _ = picture.draw(ranges, &columns, machine);
    picture.out
}

struct Picture {
    width: f64,
    out: String,
}

impl Picture {
    fn draw(&mut self, ranges: &[Range], columns: &[&[Range]], machine: &str) -> fmt::Result {
        let columns_end = columns.iter().map(|column| rows_end(column)).fold(ROWS_TOP, f64::max);
        let (width, height) = (self.width, columns_end + 58.0);
        writeln!(
            self.out,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0}" viewBox="0 0 {width} {height:.0}" font-family="monospace" font-size="{FONT}" fill="#1a202c">
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path fill="#ffffff" d="M0 0h6v6h-6z"/><path stroke="#e2e8f0" stroke-width="2.4" d="M0 0v6"/></pattern></defs>
<path fill="#ffffff" d="M0 0h{width}v{height:.0}h-{width}z"/>
<text x="{MARGIN}" y="28" font-size="16" font-weight="bold">16-os: what the live page table maps</text>"##
        )?;
        let mapped = ranges.iter().map(Range::bytes).sum();
        let subtitle = format!(
            "{machine}: {} ranges, {} in all. A range's height goes with the logarithm of its size.",
            ranges.len(),
            Size(mapped)
        );
        self.text(MARGIN, 48.0, &subtitle)?;
        self.space(ranges, columns)?;
        for (index, column) in columns.iter().enumerate() {
            self.column(MARGIN + COLUMN * index as f64, column)?;
        }
        self.legend(ranges, columns_end + 38.0)?;
        writeln!(self.out, "</svg>")
    }

    fn text(&mut self, x: f64, y: f64, text: &str) -> fmt::Result {
        writeln!(self.out, r#"<text x="{x:.1}" y="{y:.1}">{}</text>"#, Escaped(text))
    }

    /// Text that ends at x.
    fn text_before(&mut self, x: f64, y: f64, text: &str) -> fmt::Result {
        let text = Escaped(text);
        writeln!(self.out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="end">{text}</text>"#)
    }

    fn rectangle(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        fill: &str,
        title: &str,
    ) -> fmt::Result {
        writeln!(
            self.out,
            r##"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}" stroke="#718096" stroke-width="0.6"><title>{}</title></rect>"##,
            Escaped(title)
        )
    }

    /// Where an address is in the picture of the whole space.
    fn x(&self, address: u64) -> f64 {
        let share = |offset: u64| offset as f64 / HALF_BYTES as f64;
        let upper = MARGIN + LOWER_HALF + NOT_CANONICAL;
        match address.checked_sub(UPPER_START) {
            Some(offset) => upper + (self.width - MARGIN - upper) * share(offset),
            None => MARGIN + LOWER_HALF * share(address.min(HALF_BYTES)),
        }
    }

    /// The whole address space, and from each column's place in it a way down to the column.
    fn space(&mut self, ranges: &[Range], columns: &[&[Range]]) -> fmt::Result {
        let height = SPACE_BOTTOM - SPACE_TOP;
        for (index, column) in columns.iter().enumerate() {
            let (from, to) = self.place(column);
            let left = MARGIN + COLUMN * index as f64;
            let right = left + ADDRESSES + BAR;
            writeln!(
                self.out,
                r##"<path fill="#f1f5f9" d="M{from:.1} {SPACE_BOTTOM}L{left:.1} {COLUMNS_TOP}H{right:.1}L{to:.1} {SPACE_BOTTOM}z"/>"##
            )?;
        }
        for (first, last, name) in
            [(0, HALF_BYTES - 1, "the lower half"), (UPPER_START, u64::MAX, "the upper half")]
        {
            let (left, right) = (self.x(first), self.x(last));
            self.rectangle("half", (left, SPACE_TOP), (right - left, height), "url(#hatch)", name)?;
            if name == "the lower half" {
                // The addresses in between have no room.
                self.text(left, SPACE_TOP - 6.0, &format!("{name}, to {last:#x}"))?;
                if !ranges.iter().any(|range| range.first <= last) {
                    self.text(left + 8.0, SPACE_TOP + 17.0, "nothing is mapped")?;
                }
                self.text(right + 18.0, SPACE_TOP + 17.0, "not canonical")?;
            } else {
                self.text(left, SPACE_TOP - 6.0, &format!("{name}, from {first:#x}"))?;
                self.text_before(right, SPACE_TOP - 6.0, &format!("{last:#x}"))?;
            }
        }
        for column in columns {
            let (from, to) = self.place(column);
            self.rectangle(
                "place",
                (from, SPACE_TOP),
                (to - from, height),
                "#2d3748",
                title(column),
            )?;
        }
        Ok(())
    }

    /// Where a column is in the whole space, wide enough to be seen.
    fn place(&self, column: &[Range]) -> (f64, f64) {
        let (first, last) = (column[0].first, column[column.len() - 1].last);
        let (from, to) = (self.x(first), self.x(last));
        let to = to.max(from + 4.0).min(self.width - MARGIN);
        (from.min(to - 4.0), to)
    }

    fn column(&mut self, left: f64, column: &[Range]) -> fmt::Result {
        let name = title(column);
        let heading = COLUMNS_TOP + 15.0;
        writeln!(
            self.out,
            r#"<text x="{left:.1}" y="{heading:.1}" font-size="13" font-weight="bold">{name}</text>"#
        )?;
        let mapped = column.iter().map(Range::bytes).sum();
        let ranges = if column.len() == 1 { "range" } else { "ranges" };
        let figures = format!("{} {ranges}, {}", column.len(), Size(mapped));
        self.text_before(left + ADDRESSES + BAR, heading, &figures)?;
        let bar = left + ADDRESSES;
        let mut top = ROWS_TOP;
        let mut expected = column[0].first;
        for range in column {
            if expected < range.first {
                let size = Size(range.first - expected).to_string();
                let words = format!("{size} not mapped");
                self.text(left, top + FONT, &format!("{expected:#018x}"))?;
                self.rectangle("gap", (bar, top), (BAR, GAP), "url(#hatch)", &words)?;
                self.text(bar + CHARACTER, top + 12.0, &words)?;
                top += GAP;
            }
            let height = range.height();
            self.text(left, top + FONT, &format!("{:#018x}", range.first))?;
            self.rectangle("range", (bar, top), (BAR, height), range.colour(), &range.to_string())?;
            let what = shortened(&range.what, BAR - 2.0 * CHARACTER);
            self.text(bar + CHARACTER, top + 13.0, &what)?;
            let one_line = text_width(&what) + text_width(&range.figures()) + 4.0 * CHARACTER;
            let line = if one_line <= BAR { top + 13.0 } else { top + 27.0 };
            self.text_before(bar + BAR - CHARACTER, line, &range.figures())?;
            top += height;
            expected = range.last.saturating_add(1);
        }
        let last = column[column.len() - 1].last;
        self.text(left, top + FONT, &format!("{last:#018x}"))
    }

    fn legend(&mut self, ranges: &[Range], y: f64) -> fmt::Result {
        let mut items: Vec<(&str, String)> = RIGHTS
            .iter()
            .map(|(rights, words, colour)| (*colour, format!("{rights} {words}")))
            .collect();
        if ranges.iter().any(|range| range.colour() == OTHER_RIGHTS) {
            items.push((OTHER_RIGHTS, "rights that nothing should have".to_owned()));
        }
        let gap = "not mapped: guards, and what is not the kernel's";
        items.push(("url(#hatch)", gap.to_owned()));
        let mut x = MARGIN;
        for (colour, words) in items {
            self.rectangle("legend", (x, y - 10.0), (18.0, 13.0), colour, &words)?;
            self.text(x + 25.0, y, &words)?;
            x += 25.0 + text_width(&words) + 24.0;
        }
        Ok(())
    }
}

/// Where the last row of a column ends.
fn rows_end(column: &[Range]) -> f64 {
    let gaps = column.windows(2).filter(|pair| pair[0].last + 1 < pair[1].first).count();
    ROWS_TOP + GAP * gaps as f64 + column.iter().map(Range::height).sum::<f64>()
}

/// What a column is about, by the kernel's words for its ranges.
fn title(column: &[Range]) -> &str {
    let what = &*column[0].what;
    match what {
        "memory" => "direct map of memory",
        "a stack" => "stacks",
        _ if what.starts_with("kernel") => "the kernel's image",
        _ if column.len() > 1 => "devices",
        _ => what,
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::svg::tests::{boxes, collisions, number, of_class};

    /// A map with everything: several screens, guards, a range at the very end, one in the lower half.
    const OUTPUT: &str = "\
16-os 0.1.0 (checked)
> map\r
0x0000000000001000..0x0000000000001fff RWX        4 KiB  nothing of the kernel's
0xffffffc080060000..0xffffffc0801fffff RW-     1664 KiB  memory
0xffffffc080200000..0xffffffc0802b0fff R--      708 KiB  memory
0xffffffc0802b2000..0xffffffc087ffffff RW-   128312 KiB  memory
-- more --\r\u{1b}[K0xffffffe000000000..0xffffffe000000fff RW-        4 KiB  the exit device
0xffffffe000200000..0xffffffe000403fff RW-     2064 KiB  the interrupt controller
0xfffffff00001c000..0xfffffff00001ffff RW-       16 KiB  a stack
0xffffffff80200000..0xffffffff80296fff R-X      604 KiB  kernel text
0xffffffff80297000..0xffffffffffffffff R--  2094500 KiB  kernel constants
> \r
> power off\r
verdict: pass
";

    fn ranges() -> Vec<Range> {
        read(OUTPUT).unwrap()
    }

    #[test]
    fn a_map_is_read_as_the_monitor_says_it() {
        let ranges = ranges();
        assert_eq!(ranges.len(), 9);
        let said = OUTPUT.lines().filter_map(|line| line.rsplit("\u{1b}[K").next());
        let said: Vec<Range> = said.filter_map(Range::parse).collect();
        assert_eq!(ranges, said);
        assert_eq!(
            ranges[4].to_string(),
            "0xffffffe000000000..0xffffffe000000fff RW- 4 KiB, the exit device"
        );
        assert_eq!((ranges[8].bytes(), ranges[8].last), (2_094_500 * 1024, u64::MAX));
    }

    #[test]
    fn what_is_no_map_is_an_error() {
        assert_eq!(read("> heap\r\n"), Err(Error::Nothing));
        assert_eq!(read("> map\r\n> \r\n"), Err(Error::Nothing));
        let one = "0x0000000000001000..0x0000000000001fff RW-        4 KiB  it";
        for line in [
            "no such command",
            &one.replace("4 KiB", "8 KiB"),
            &one.replace("1fff", "1ffff"),
            &one.replace("..", " "),
            // Before the one before.
            one,
        ] {
            let output = format!("> map\r\n{one}\r\n{line}\r\n> ");
            assert_eq!(read(&output), Err(Error::Malformed(line.to_owned())), "{line}");
        }
    }

    #[test]
    fn every_range_is_drawn_with_its_address_rights_size_and_use() {
        let text = draw(&ranges(), "a machine");
        let document = Document::parse(&text).unwrap();
        let drawn: Vec<String> = of_class(&document, "range")
            .filter_map(|range| Some(range.first_element_child()?.text()?.to_owned()))
            .collect();
        let expected: Vec<String> = ranges().iter().map(ToString::to_string).collect();
        assert_eq!(drawn, expected);
        let texts: Vec<String> = boxes(&document).into_iter().map(|text| text.4).collect();
        for range in ranges() {
            for part in [format!("{:#018x}", range.first), range.figures(), range.what.clone()] {
                assert!(texts.contains(&part), "{part} is not there: {texts:#?}");
            }
        }
        assert!(texts.contains(&"rights that nothing should have".to_owned()), "{texts:#?}");
        assert!(!texts.contains(&"nothing is mapped".to_owned()), "{texts:#?}");
        // One guard page, and the hole between two devices.
        let gaps: Vec<_> = of_class(&document, "gap")
            .filter_map(|gap| gap.first_element_child()?.text())
            .collect();
        assert_eq!(gaps, ["4 KiB not mapped", "2,044 KiB not mapped"]);
    }

    #[test]
    fn ranges_stand_below_each_other_and_a_larger_one_is_higher() {
        let text = draw(&ranges(), "a machine");
        let document = Document::parse(&text).unwrap();
        let memory: Vec<_> = of_class(&document, "range").skip(1).take(3).collect();
        let (top, height) = (
            |index: usize| number(memory[index], "y"),
            |index: usize| number(memory[index], "height"),
        );
        assert!((top(0) + height(0) - top(1)).abs() < 0.2);
        assert!((top(1) + height(1) + GAP - top(2)).abs() < 0.2);
        assert!(height(2) > height(0) && height(0) > height(1));
    }

    #[test]
    fn no_text_lies_over_another_or_reaches_out_of_the_picture() {
        for count in 1..=ranges().len() {
            let text = draw(&ranges()[..count], "QEMU's virt, 2 harts, 128M");
            let document = Document::parse(&text).unwrap();
            let width = number(document.root_element(), "width");
            assert_eq!(collisions(&document, width), Vec::<String>::new());
        }
    }
}
