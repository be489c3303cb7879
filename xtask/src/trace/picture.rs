//! A timeline as a picture (SVG 1.1): a lane for each hart, one for each thread, and a legend.
//!
//! In a hart's lane the thread stands in the upper half; below it interrupts, sleep and waits for locks; above it marks for what
//! takes no time. It needs no script, no style sheet and no font but the viewer's own. A label that does not fit is left out: who
//! points at a slice reads it all the same.

use std::fmt::{self, Write};

use super::perfetto::mark_name;
use super::timeline::{How, Moment, Slice, Timeline, What};
use crate::svg::{CHARACTER, Escaped, FONT, shortened, text_width};

const WIDTH: f64 = 1_400.0;
/// Where time begins and ends.
const LEFT: f64 = 150.0;
const RIGHT: f64 = WIDTH - 20.0;
/// Where the lanes begin: above them stand the title and the axis.
const TOP: f64 = 78.0;
/// A hart's lane: marks, threads, and what goes on within them.
const MARKS: f64 = 12.0;
const UPPER: f64 = 16.0;
const LOWER: f64 = 12.0;
const HART_LANE: f64 = MARKS + UPPER + LOWER + 14.0;
const THREAD_LANE: f64 = 18.0;
/// The least that can be seen.
const THINNEST: f64 = 0.8;
/// Room for a label of the axis.
const AXIS_LABEL: f64 = 90.0;
/// More arrows than these hide what they are about.
const MOST_ARROWS: usize = 150;
/// Lanes for threads: with more the picture would have no end.
const MOST_THREADS: usize = 64;

/// Light enough for dark text, and no two in a row alike. Threads beyond these begin again.
const COLOURS: [&str; 12] = [
    "#9ecae1", "#fdbf6f", "#b2df8a", "#cab2d6", "#fb9a99", "#8dd3c7", "#e6d690", "#c7b299",
    "#a6bddb", "#f4b6d2", "#c2e699", "#d9d9d9",
];
const IDLE: &str = "#eeeeee";
const INTERRUPT: &str = "#4a5568";
const SLEEP: &str = "#dfe3e8";
const READY: &str = "#fff3bf";

/// Draws a timeline. `lock_name` knows the locks.
pub fn draw(
    timeline: &Timeline,
    title: &str,
    subtitle: &str,
    lock_name: impl Fn(u64) -> String,
) -> String {
    let mut picture = Picture { timeline, out: String::new() };
    // Writing into a string does not fail.
    let _ = picture.draw(title, subtitle, &lock_name);
    picture.out
}

struct Picture<'a> {
    timeline: &'a Timeline,
    out: String,
}

impl Picture<'_> {
    fn draw(
        &mut self,
        title: &str,
        subtitle: &str,
        lock_name: &dyn Fn(u64) -> String,
    ) -> fmt::Result {
        let timeline = self.timeline;
        let threads = &timeline.threads[..timeline.threads.len().min(MOST_THREADS)];
        let harts_end = TOP + HART_LANE * timeline.harts.len() as f64;
        let lanes_end = harts_end + THREAD_LANE * threads.len() as f64;
        let (legend, height) = self.legend(lanes_end + 24.0);
        writeln!(
            self.out,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0}" viewBox="0 0 {WIDTH} {height:.0}" font-family="monospace" font-size="{FONT}" fill="#1a202c">
<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path fill="#fff5f5" d="M0 0h5v5h-5z"/><path stroke="#c53030" stroke-width="2.4" d="M0 0v5"/></pattern></defs>
<path fill="#ffffff" d="M0 0h{WIDTH}v{height:.0}h-{WIDTH}z"/>"##
        )?;
        self.text(12.0, 20.0, title, WIDTH - 24.0)?;
        self.text(12.0, 38.0, subtitle, WIDTH - 24.0)?;
        self.axis(lanes_end)?;
        for (index, hart) in timeline.harts.iter().enumerate() {
            let top = TOP + HART_LANE * index as f64;
            self.text(12.0, top + MARKS + UPPER, &format!("CPU {}", hart.cpu), LEFT - 20.0)?;
            for slice in &hart.slices {
                self.slice(top + MARKS, slice, lock_name)?;
            }
            for mark in &hart.marks {
                self.mark(top, mark.at, mark.what)?;
            }
        }
        for (index, thread) in threads.iter().enumerate() {
            let top = harts_end + THREAD_LANE * index as f64;
            let name = timeline.name(thread.id);
            self.text(12.0, top + FONT, &shortened(&name, LEFT - 20.0), LEFT - 20.0)?;
            for state in &thread.states {
                let (fill, words) = match state.how {
                    How::Runs(cpu) => (self.colour(thread.id), format!("runs on CPU {cpu}")),
                    How::Ready => (READY, "ready".to_owned()),
                    How::Blocked => ("none", "blocked".to_owned()),
                    How::Away => ("none", "does not run".to_owned()),
                };
                let (from, to) = (state.from, state.to);
                let what = format!("{name} {words}");
                self.rectangle("state", (top, THREAD_LANE - 5.0), from, to, fill, &what)?;
            }
        }
        self.arrows()?;
        self.out.push_str(&legend);
        writeln!(self.out, "</svg>")
    }

    /// Where a time is.
    fn x(&self, at: u64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at as f64 / self.timeline.end.max(1) as f64)
    }

    /// Text that begins at x, if it fits into `room`.
    fn text(&mut self, x: f64, y: f64, text: &str, room: f64) -> fmt::Result {
        if text_width(text) > room {
            return Ok(());
        }
        writeln!(self.out, r#"<text x="{x:.2}" y="{y:.2}">{}</text>"#, Escaped(text))
    }

    /// The axis: a line and a number at round times, as many as have room.
    fn axis(&mut self, bottom: f64) -> fmt::Result {
        let end = self.timeline.end;
        let (unit, name) = unit(end);
        self.text(12.0, 62.0, &format!("time in {name}"), LEFT - 24.0)?;
        let most = ((RIGHT - LEFT) / AXIS_LABEL) as u64;
        let step = round_step(end, most);
        let mut at = 0;
        while at <= end {
            let x = self.x(at);
            writeln!(
                self.out,
                r##"<path stroke="#cbd5e0" stroke-width="0.7" d="M{x:.2} 68V{bottom:.2}"/>"##
            )?;
            let label = format!("{}", at as f64 / unit as f64);
            // The last one ends where the picture does.
            let begin = (x - text_width(&label) / 2.0).min(WIDTH - 2.0 - text_width(&label));
            self.text(begin, 62.0, &label, AXIS_LABEL - CHARACTER)?;
            at += step;
        }
        Ok(())
    }

    fn slice(&mut self, top: f64, slice: &Slice, lock_name: &dyn Fn(u64) -> String) -> fmt::Result {
        let (place, fill, name) = match slice.what {
            What::Thread(id) => ((top, UPPER + LOWER), self.colour(id), self.timeline.name(id)),
            What::Interrupt(which) => ((top + UPPER, LOWER), INTERRUPT, which.name().to_owned()),
            What::Sleep => ((top + UPPER, LOWER), SLEEP, "asleep".to_owned()),
            What::LockWait(lock) => {
                ((top + UPPER, LOWER), "url(#hatch)", format!("waits for {}", lock_name(lock)))
            }
        };
        self.rectangle("slice", place, slice.from, slice.to, fill, &name)?;
        // Only threads have a place for text that nothing else covers.
        if matches!(slice.what, What::Thread(_)) {
            let (from, to) = (self.x(slice.from), self.x(slice.to));
            self.text(from + 3.0, top + FONT, &name, to - from - 6.0)?;
        }
        Ok(())
    }

    fn rectangle(
        &mut self,
        class: &str,
        (top, height): (f64, f64),
        from: u64,
        to: u64,
        fill: &str,
        what: &str,
    ) -> fmt::Result {
        let x = self.x(from);
        let width = (self.x(to) - x).max(THINNEST);
        // An edge would cover what is thin.
        let edge = if width > 3.0 { "#718096" } else { "none" };
        writeln!(
            self.out,
            r##"<rect class="{class}" x="{x:.2}" y="{top:.2}" width="{width:.2}" height="{height:.2}" fill="{fill}" stroke="{edge}" stroke-width="0.3"><title>{}, {} from {} on</title></rect>"##,
            Escaped(what),
            Duration(to - from),
            Duration(from),
        )
    }

    fn mark(&mut self, top: f64, at: u64, what: Moment) -> fmt::Result {
        let x = self.x(at);
        let name = mark_name(what, self.timeline);
        let fill = match what {
            Moment::Wake { thread, .. } | Moment::Steal { thread, .. } => self.colour(thread),
            Moment::Spawn(thread) | Moment::Exit(thread) => self.colour(thread),
            Moment::Point(_) => "#1a202c",
        };
        writeln!(
            self.out,
            r##"<path class="mark" transform="translate({x:.2} {top:.2})" d="{}" fill="{fill}" stroke="#2d3748" stroke-width="0.6"><title>{}, at {}</title></path>"##,
            shape(what),
            Escaped(&name),
            Duration(at),
        )
    }

    /// From wakeups to the runs that they led to, where there are few enough to be followed.
    fn arrows(&mut self) -> fmt::Result {
        let timeline = self.timeline;
        if timeline.flows.len() > MOST_ARROWS {
            return Ok(());
        }
        for flow in &timeline.flows {
            let lane = |cpu| timeline.harts.iter().position(|hart| hart.cpu == cpu).unwrap_or(0);
            let top = |cpu| TOP + HART_LANE * lane(cpu) as f64 + MARKS;
            let (x, y) = (self.x(flow.from), top(flow.from_cpu));
            let (to_x, to_y) = (self.x(flow.to), top(flow.to_cpu));
            writeln!(
                self.out,
                r##"<path class="flow" fill="none" stroke="#2b6cb0" stroke-width="0.6" stroke-opacity="0.5" d="M{x:.2} {y:.2}L{to_x:.2} {to_y:.2}"/>"##
            )?;
        }
        Ok(())
    }

    fn colour(&self, thread: u32) -> &'static str {
        let place = self.timeline.threads.iter().position(|track| track.id == thread);
        // What has no lane of its own runs where there is nothing to do.
        place.map_or(IDLE, |place| COLOURS[place % COLOURS.len()])
    }

    /// The legend, which begins at `top`, and the height of the picture that it ends.
    fn legend(&self, top: f64) -> (String, f64) {
        let (width, height) = (16.0, 11.0);
        let swatch = |fill: &str| {
            format!(
                r##"<path fill="{fill}" stroke="#718096" stroke-width="0.5" d="M0 0h{width}v{height}h-{width}z"/>"##
            )
        };
        let mut items = vec![
            (swatch(INTERRUPT), "interrupt".to_owned()),
            (swatch(SLEEP), "asleep".to_owned()),
            (swatch("url(#hatch)"), "waits for a lock".to_owned()),
        ];
        let moments = [
            (Moment::Wake { thread: 0, cpu: 0 }, "wakeup"),
            (Moment::Steal { thread: 0, from_cpu: 0 }, "stolen thread"),
            (Moment::Spawn(0), "new thread"),
            (Moment::Exit(0), "thread ends"),
            (Moment::Point(0), "point"),
        ];
        items.extend(moments.map(|(moment, name)| {
            let shape = shape(moment);
            let shape = format!(
                r##"<path fill="#ffffff" stroke="#2d3748" stroke-width="0.6" transform="translate(8 1)" d="{shape}"/>"##
            );
            (shape, name.to_owned())
        }));
        if !self.timeline.flows.is_empty() && self.timeline.flows.len() <= MOST_ARROWS {
            let line = r##"<path stroke="#2b6cb0" stroke-opacity="0.7" d="M0 2l16 8"/>"##;
            items.push((line.to_owned(), "from a wakeup to its run".to_owned()));
        }
        if !self.timeline.threads.is_empty() {
            items.push((swatch(READY), "ready".to_owned()));
            items.push((swatch("#ffffff"), "blocked, or not known to run".to_owned()));
        }
        let idles = |id: &u32| !self.timeline.threads.iter().any(|track| track.id == *id);
        let runs = |id: &u32| {
            let mut slices = self.timeline.harts.iter().flat_map(|hart| &hart.slices);
            slices.any(|slice| slice.what == What::Thread(*id))
        };
        if self.timeline.names.keys().any(|id| idles(id) && runs(id)) {
            items.push((swatch(IDLE), "idle thread".to_owned()));
        }
        for thread in &self.timeline.threads {
            let name = shortened(&self.timeline.name(thread.id), 300.0);
            items.push((swatch(self.colour(thread.id)), name));
        }
        let (mut x, mut y, mut out) = (12.0, top, String::new());
        for (picture, name) in items {
            let step = width + 6.0 + text_width(&name) + 18.0;
            if x + step > WIDTH {
                (x, y) = (12.0, y + 18.0);
            }
            out += &format!("<g transform=\"translate({x:.2} {y:.2})\">{picture}</g>\n");
            out += &format!(
                "<text x=\"{:.2}\" y=\"{:.2}\">{}</text>\n",
                x + width + 6.0,
                y + 9.5,
                Escaped(&name)
            );
            x += step;
        }
        (out, y + 30.0)
    }
}

/// The outline of a mark, from the middle of its upper edge.
fn shape(moment: Moment) -> &'static str {
    match moment {
        Moment::Wake { .. } => "M-4 1h8l-4 9z",
        Moment::Steal { .. } => "M0 1l4 4.5l-4 4.5l-4 -4.5z",
        Moment::Spawn(_) => "M-1.5 1h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
        Moment::Exit(_) => {
            "M-4 2.5l1.5 -1.5l2.5 2.5l2.5 -2.5l1.5 1.5l-2.5 2.5l2.5 2.5l-1.5 1.5l-2.5 -2.5l-2.5 2.5l-1.5 -1.5l2.5 -2.5z"
        }
        Moment::Point(_) => "M-1 1h2v9h-2z",
    }
}

/// The unit in which so many nanoseconds are best told: its size in them, and its name.
fn unit(nanoseconds: u64) -> (u64, &'static str) {
    match nanoseconds {
        0..10_000 => (1, "ns"),
        10_000..10_000_000 => (1_000, "µs"),
        10_000_000..10_000_000_000 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    }
}

/// The least of 1, 2, 5, 10, 20, ... that divides `end` into `most` parts or fewer.
fn round_step(end: u64, most: u64) -> u64 {
    let mut power = 1_u64;
    loop {
        for step in [power, power.saturating_mul(2), power.saturating_mul(5)] {
            if end / step < most || step == u64::MAX {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

/// A span of time in the unit that suits it, to three digits behind the point.
struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = unit(self.0);
        let thousandths = (self.0 as f64 / unit as f64 * 1_000.0).round() / 1_000.0;
        write!(formatter, "{thousandths} {name}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use roxmltree::Document;

    use super::super::log::{Kind, Log};
    use super::super::timeline::tests::{any_log, eventful, log};
    use super::*;
    use crate::svg::tests::{boxes, collisions, number, of_class};

    fn drawn(log: &Log) -> String {
        draw(&Timeline::new(log), "a title", "a subtitle", |lock| format!("lock {lock:x} <&>"))
    }

    fn slices(timeline: &Timeline) -> usize {
        timeline.harts.iter().map(|hart| hart.slices.len()).sum()
    }

    #[test]
    fn a_picture_has_a_rectangle_for_each_slice_and_a_mark_for_each_moment() {
        let timeline = Timeline::new(&eventful());
        let text = drawn(&eventful());
        let document = Document::parse(&text).unwrap();
        assert_eq!(of_class(&document, "slice").count(), slices(&timeline));
        assert_eq!(of_class(&document, "mark").count(), 6);
        assert_eq!(of_class(&document, "flow").count(), 2);
        let states: usize = timeline.threads.iter().map(|thread| thread.states.len()).sum();
        assert_eq!(of_class(&document, "state").count(), states);
        assert_eq!(
            document.descendants().filter(|node| node.has_tag_name("rect")).count(),
            slices(&timeline) + states
        );
    }

    #[test]
    fn slices_stand_where_their_times_are() {
        let text = drawn(&eventful());
        let document = Document::parse(&text).unwrap();
        let all: Vec<_> = of_class(&document, "slice").collect();
        // The first of CPU 0: from 10 to 70 of 120 nanoseconds.
        let nanosecond = (RIGHT - LEFT) / 120.0;
        assert!((number(all[0], "x") - (LEFT + 10.0 * nanosecond)).abs() < 0.01);
        assert!((number(all[0], "width") - 60.0 * nanosecond).abs() < 0.01);
        let title = all[1].first_element_child().and_then(|title| title.text());
        assert_eq!(title, Some("waits for lock 1000 <&>, 15 ns from 30 ns on"));
        assert_eq!(all[1].attribute("fill"), Some("url(#hatch)"));
    }

    #[test]
    fn a_label_that_does_not_fit_is_left_out() {
        let labels = |to| {
            let text = drawn(&log(&[
                (0, 0, Kind::Switch { from: 9, to: 1 }),
                (0, to, Kind::Switch { from: 1, to: 2 }),
                (0, 1_000, Kind::Point(0)),
            ]));
            let document = Document::parse(&text).unwrap();
            // In the lane, beside the thread's own lane and the legend.
            boxes(&document).iter().filter(|text| text.4 == "main").count()
        };
        assert_eq!(labels(500), 3);
        assert_eq!(labels(10), 2);
    }

    #[test]
    fn it_needs_nothing_from_outside() {
        let text = drawn(&eventful());
        let document = Document::parse(&text).unwrap();
        for node in document.descendants() {
            assert!(!["script", "style", "image", "use"].contains(&node.tag_name().name()));
            for attribute in node.attributes() {
                assert!(!attribute.name().ends_with("href"), "{attribute:?}");
                let value = attribute.value();
                assert!(!value.contains("url(") || value == "url(#hatch)", "{attribute:?}");
            }
        }
    }

    #[test]
    fn the_axis_has_round_numbers_and_a_unit() {
        assert_eq!(round_step(100, 12), 10);
        assert_eq!(round_step(130, 12), 20);
        assert_eq!(round_step(0, 12), 1);
        assert!(round_step(u64::MAX, 12) > u64::MAX / 12);
        assert_eq!(Duration(1_234_567).to_string(), "1234.567 µs");
        assert_eq!(Duration(12_345_678_901).to_string(), "12.346 s");
        let text = drawn(&log(&[(0, 0, Kind::Idle), (0, 3_000_000, Kind::Idle)]));
        let document = Document::parse(&text).unwrap();
        let texts: Vec<String> = boxes(&document).into_iter().map(|text| text.4).collect();
        assert!(texts.contains(&"time in µs".to_owned()), "{texts:?}");
        assert!(
            texts.contains(&"500".to_owned()) && texts.contains(&"3000".to_owned()),
            "{texts:?}"
        );
    }

    #[test]
    fn many_threads_with_long_names_still_fit() {
        let mut log = log(&[]);
        for id in 0..100_u32 {
            let name = format!("a thread with a name of a certain length, number {id}");
            log.threads.insert(id, name);
            let kind = Kind::Switch { from: id, to: id + 1 };
            log.events.push(super::super::log::Event {
                cpu: id % 3,
                time: u64::from(id * 7),
                kind,
            });
        }
        let text = drawn(&log);
        assert_eq!(collisions(&Document::parse(&text).unwrap(), WIDTH), Vec::<String>::new());
    }

    #[test]
    fn an_empty_log_gives_an_empty_picture() {
        Document::parse(&drawn(&Log::default())).unwrap();
    }

    proptest! {
        #[test]
        fn any_picture_is_xml_with_a_rectangle_for_each_slice_and_no_text_over_another(log in any_log()) {
            let text = drawn(&log);
            let document = Document::parse(&text).unwrap();
            prop_assert_eq!(of_class(&document, "slice").count(), slices(&Timeline::new(&log)));
            prop_assert_eq!(collisions(&document, WIDTH), Vec::<String>::new());
        }
    }
}
