//! Small charts beside each other as a picture (SVG 1.1): one for each number, from zero up, with what it was from left to right.
//!
//! It needs no script, no style sheet and no font but the viewer's own. Of the numbers those are written that are not the same as
//! the one before and have room; who points at a dot reads it all the same.

use std::fmt::{self, Write};

use super::results::Tenths;
use crate::svg::{CHARACTER, Escaped, FONT, text_width};

const WIDTH: f64 = 290.0;
const HEIGHT: f64 = 104.0;
const TOP: f64 = 58.0;
const MARGIN: f64 = 16.0;
/// Within a chart: where its line begins and ends, and where zero and its highest value stand.
const LEFT: f64 = 22.0;
const RIGHT: f64 = WIDTH - 34.0;
const ZERO: f64 = HEIGHT - 26.0;
const HIGHEST: f64 = 32.0;

/// One chart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// What is shown.
    pub title: String,
    /// What each value is of, from left to right.
    pub labels: Vec<String>,
    /// The values; nothing where there is none yet. As many as labels.
    pub values: Vec<Option<Tenths>>,
    /// A line across.
    pub goal: Option<u64>,
}

/// Draws charts in rows of `columns`, each row from left to right. A chart without labels is a gap.
pub fn draw(title: &str, subtitle: &str, columns: usize, charts: &[Chart]) -> String {
    let width = MARGIN * 2.0 + WIDTH * columns as f64;
    let rows = charts.len().div_ceil(columns);
    let height = TOP + HEIGHT * rows as f64 + MARGIN;
    let mut out = String::new();
    // Writing into a string does not fail.
    let _ = write_head(&mut out, (width, height), title, subtitle);
    for (number, chart) in charts.iter().enumerate() {
        let (row, column) = (number / columns, number % columns);
        let (left, top) = (MARGIN + WIDTH * column as f64, TOP + HEIGHT * row as f64);
        let _ = Placed { chart, left, top }.draw(&mut out);
    }
    out.push_str("</svg>\n");
    out
}

fn write_head(out: &mut String, size: (f64, f64), title: &str, subtitle: &str) -> fmt::Result {
    let (width, height) = size;
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="monospace" font-size="{FONT}" fill="#1a202c">
<path fill="#ffffff" d="M0 0h{width}v{height}h-{width}z"/>"##
    )?;
    let (title, subtitle) = (Escaped(title), Escaped(subtitle));
    writeln!(out, r#"<text x="{MARGIN}" y="22" font-size="15">{title}</text>"#)?;
    writeln!(out, r##"<text x="{MARGIN}" y="40" fill="#4a5568">{subtitle}</text>"##)
}

/// A chart, and where it is.
struct Placed<'a> {
    chart: &'a Chart,
    left: f64,
    top: f64,
}

impl Placed<'_> {
    fn draw(&self, out: &mut String) -> fmt::Result {
        if self.chart.labels.is_empty() {
            return Ok(());
        }
        let (left, right) = (self.left + LEFT, self.left + RIGHT);
        let (top, zero) = (self.top + FONT, self.top + ZERO);
        let title = self.title();
        writeln!(out, r#"<text x="{left}" y="{top}" font-weight="bold">{title}</text>"#)?;
        writeln!(out, r##"<path stroke="#a0aec0" d="M{left} {zero}H{right}"/>"##)?;
        if let Some(goal) = self.chart.goal {
            let y = self.y(Tenths(goal * 10));
            writeln!(
                out,
                r##"<path class="goal" stroke="#2f855a" stroke-dasharray="4 3" d="M{left} {y:.1}H{right}"/>"##
            )?;
        }
        let points: Vec<_> = (0..self.chart.values.len())
            .filter_map(|place| self.chart.values[place].map(|value| (place, value)))
            .collect();
        let path = points.iter().enumerate().map(|(number, &(place, value))| {
            let step = if number == 0 { 'M' } else { 'L' };
            format!("{step}{:.1} {:.1}", self.x(place), self.y(value))
        });
        let path: String = path.collect();
        writeln!(out, r##"<path fill="none" stroke="#2b6cb0" stroke-width="1.5" d="{path}"/>"##)?;
        for &(place, value) in &points {
            let (x, y) = (self.x(place), self.y(value));
            writeln!(
                out,
                r##"<circle cx="{x:.1}" cy="{y:.1}" r="2.4" fill="#2b6cb0"><title>{}: {value}</title></circle>"##,
                Escaped(&self.chart.labels[place])
            )?;
        }
        self.write_values(out, &points)?;
        self.write_labels(out)
    }

    fn title(&self) -> String {
        let goal = self.chart.goal.map(|goal| format!(", goal {}", crate::size::spaced(goal)));
        Escaped(&self.chart.title).to_string() + &goal.unwrap_or_default()
    }

    /// The values that differ from the one before, where there is room: the last always, then from the left.
    fn write_values(&self, out: &mut String, points: &[(usize, Tenths)]) -> fmt::Result {
        let Some((&(last, value), others)) = points.split_last() else { return Ok(()) };
        let end = self.write_text(out, last, self.y(value) - 6.0, &value.to_string())?;
        let mut room = f64::MIN;
        let mut before = None;
        for &(place, value) in others {
            let text = value.to_string();
            let (from, to) = self.span(place, &text);
            if before != Some(value) && from > room && to < end - CHARACTER {
                self.write_text(out, place, self.y(value) - 6.0, &text)?;
                room = to + CHARACTER;
                before = Some(value);
            }
        }
        Ok(())
    }

    /// The labels below, where there is room.
    fn write_labels(&self, out: &mut String) -> fmt::Result {
        let last = self.chart.labels.len() - 1;
        let end = self.write_text(out, last, self.top + ZERO + 14.0, &self.chart.labels[last])?;
        let mut room = f64::MIN;
        for (place, label) in self.chart.labels[..last].iter().enumerate() {
            let (from, to) = self.span(place, label);
            if from > room && to < end - CHARACTER {
                self.write_text(out, place, self.top + ZERO + 14.0, label)?;
                room = to + CHARACTER;
            }
        }
        Ok(())
    }

    /// Writes text over or under a place, and says where it begins.
    fn write_text(
        &self,
        out: &mut String,
        place: usize,
        y: f64,
        text: &str,
    ) -> Result<f64, fmt::Error> {
        let (from, _) = self.span(place, text);
        writeln!(out, r#"<text x="{from:.1}" y="{y:.1}">{}</text>"#, Escaped(text))?;
        Ok(from)
    }

    /// From where to where text goes that stands in the middle of a place, or as near as the chart has room.
    fn span(&self, place: usize, text: &str) -> (f64, f64) {
        let width = text_width(text);
        let highest = (WIDTH - CHARACTER - width).max(0.0);
        let from = self.left + (self.x(place) - self.left - width / 2.0).clamp(0.0, highest);
        (from, from + width)
    }

    fn x(&self, place: usize) -> f64 {
        let steps = self.chart.labels.len().saturating_sub(1).max(1);
        self.left + LEFT + (RIGHT - LEFT) * place as f64 / steps as f64
    }

    fn y(&self, value: Tenths) -> f64 {
        let values = self.chart.values.iter().flatten().map(|value| value.0);
        let most = values.chain(self.chart.goal.map(|goal| goal * 10)).max().unwrap_or(0).max(1);
        self.top + ZERO - (ZERO - HIGHEST) * value.0 as f64 / most as f64
    }
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;
    use crate::svg::tests::collisions;

    fn chart(values: &[u64]) -> Chart {
        Chart {
            title: "yield <&>".to_owned(),
            labels: (0..values.len()).map(|place| format!("label {place}")).collect(),
            values: values.iter().map(|value| Some(Tenths(*value))).collect(),
            goal: Some(110),
        }
    }

    fn texts(picture: &str) -> Vec<String> {
        let document = Document::parse(picture).unwrap();
        let texts = document.descendants().filter(|node| node.has_tag_name("text"));
        texts.map(|node| node.text().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn a_dot_stands_for_each_value_as_high_as_it_is() {
        let picture = draw("a title", "", 1, &[chart(&[0, 550, 1_100])]);
        let document = Document::parse(&picture).unwrap();
        let dots = document.descendants().filter(|node| node.has_tag_name("circle"));
        let heights: Vec<f64> =
            dots.map(|dot| dot.attribute("cy").unwrap().parse().unwrap()).collect();
        assert_eq!(heights, [ZERO, (ZERO + HIGHEST) / 2.0, HIGHEST].map(|height| TOP + height));
    }

    #[test]
    fn a_value_is_written_where_it_changes_and_at_the_end() {
        let written = texts(&draw("a title", "", 1, &[chart(&[1_070, 1_070, 1_070, 1_070])]));
        assert_eq!(written.iter().filter(|text| *text == "107").count(), 2, "{written:?}");
        assert!(written.contains(&"yield <&>, goal 110".to_owned()), "{written:?}");
    }

    #[test]
    fn no_text_lies_over_another() {
        let wide = chart(&[1, 123_456_780, 2, 99_999_990, 3, 55_555_550, 4]);
        let charts = [wide.clone(), chart(&[10; 30]), chart(&[5]), wide];
        let picture = draw("a title", "a subtitle", 2, &charts);
        let document = Document::parse(&picture).unwrap();
        assert_eq!(collisions(&document, MARGIN * 2.0 + WIDTH * 2.0), Vec::<String>::new());
    }

    #[test]
    fn what_was_not_measured_yet_has_no_dot_and_a_gap_has_nothing() {
        let mut late = chart(&[10, 20, 30]);
        late.values[0] = None;
        let picture = draw("a title", "", 2, &[Chart::default(), late]);
        let document = Document::parse(&picture).unwrap();
        let dots = document.descendants().filter(|node| node.has_tag_name("circle"));
        assert_eq!(dots.count(), 2);
        assert_eq!(texts(&picture).iter().filter(|text| text.starts_with("yield")).count(), 1);
    }
}
