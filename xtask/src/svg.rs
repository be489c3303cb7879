//! What pictures share (SVG 1.1): text that is escaped, and whose width is known without a font.

use std::fmt::{self, Write};

/// Text is so high, and a character of a font whose characters are all of one width so wide.
pub const FONT: f64 = 11.0;
/// See [`FONT`].
pub const CHARACTER: f64 = FONT * 0.62;

/// The width of a text in [`FONT`].
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

/// Text with its end cut off so that it fits into `room`.
pub fn shortened(text: &str, room: f64) -> String {
    if text_width(text) <= room {
        return text.to_owned();
    }
    let kept = (room / CHARACTER) as usize;
    text.chars().take(kept.saturating_sub(1)).chain(['…']).collect()
}

/// Text as XML has it. What XML cannot say is left out.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '<' => formatter.write_str("&lt;"),
            '>' => formatter.write_str("&gt;"),
            '&' => formatter.write_str("&amp;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => formatter.write_char(' '),
            _ => formatter.write_char(character),
        })
    }
}

/// How the tests of pictures look at them.
#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use roxmltree::{Document, Node};

    use super::*;

    /// The elements of a class.
    pub fn of_class<'a>(
        document: &'a Document<'a>,
        class: &'a str,
    ) -> impl Iterator<Item = Node<'a, 'a>> {
        document.descendants().filter(move |node| node.attribute("class") == Some(class))
    }

    /// An attribute that is a number.
    pub fn number(node: Node<'_, '_>, name: &str) -> f64 {
        node.attribute(name).unwrap().parse().unwrap()
    }

    /// Left, right, top and bottom of every text.
    pub fn boxes(document: &Document<'_>) -> Vec<(f64, f64, f64, f64, String)> {
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts
            .map(|node| {
                let (x, y) = (number(node, "x"), number(node, "y"));
                let scale =
                    node.attribute("font-size").map_or(1.0, |_| number(node, "font-size") / FONT);
                let text = node.text().unwrap_or_default();
                let width = text_width(text) * scale;
                let left = if node.attribute("text-anchor") == Some("end") { x - width } else { x };
                let (top, bottom) = (y - FONT * scale * 0.8, y + FONT * scale * 0.2);
                (left, left + width, top, bottom, text.to_owned())
            })
            .collect()
    }

    /// Texts that lie over each other or reach out of a picture of this width.
    pub fn collisions(document: &Document<'_>, picture_width: f64) -> Vec<String> {
        let boxes = boxes(document);
        let mut found = Vec::new();
        for (index, one) in boxes.iter().enumerate() {
            if one.0 < 0.0 || one.1 > picture_width {
                found.push(format!("`{}` reaches out of the picture", one.4));
            }
            for other in &boxes[index + 1..] {
                if one.0 < other.1 && other.0 < one.1 && one.2 < other.3 && other.2 < one.3 {
                    found.push(format!("`{}` lies over `{}`", one.4, other.4));
                }
            }
        }
        found
    }

    proptest! {
        #[test]
        fn any_text_can_be_written(text in any::<String>()) {
            let xml = format!("<a>{}</a>", Escaped(&text));
            let document = Document::parse(&xml).unwrap();
            let expected: String = text.chars().map(|character| match character {
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => ' ',
                other => other,
            }).collect();
            prop_assert_eq!(document.root_element().text().unwrap_or_default(), expected);
        }
    }
}
