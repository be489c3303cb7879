//! A timeline as the Perfetto viewer reads it, and other viewers of the Trace Event Format.
//!
//! One process is the kernel. It has a track for each hart, with slices for the running thread and in them for interrupts, sleep and
//! waits for locks; and a track for each thread with its states. An arrow leads from each wakeup to the run that it brought about.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::timeline::{Flow, How, Moment, Slice, State, Timeline, What};

/// The kernel's process id. No track has this number: it would count as the process's main one.
const PROCESS: u32 = 1;
/// The track of CPU 0; those of the others follow.
const FIRST_HART: u32 = 10;
/// The track of thread 0; behind those of all harts.
const FIRST_THREAD: u64 = 1_000;

/// The whole file.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct File {
    trace_events: Vec<Event>,
    display_time_unit: &'static str,
    other_data: BTreeMap<&'static str, String>,
}

/// One event of the format. Times are in microseconds.
#[derive(Debug, Serialize)]
struct Event {
    name: String,
    #[serde(rename = "cat")]
    category: &'static str,
    #[serde(rename = "ph")]
    phase: &'static str,
    #[serde(rename = "ts")]
    time: f64,
    #[serde(rename = "dur", skip_serializing_if = "Option::is_none")]
    duration: Option<f64>,
    #[serde(rename = "pid")]
    process: u32,
    #[serde(rename = "tid")]
    track: u64,
    /// Which flow it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    /// `e`: the flow ends at the slice around it.
    #[serde(rename = "bp", skip_serializing_if = "Option::is_none")]
    binding: Option<&'static str>,
    /// `t`: a moment of its track.
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    #[serde(rename = "args", skip_serializing_if = "Map::is_empty")]
    arguments: Map<String, Value>,
}

impl Event {
    fn new(
        phase: &'static str,
        category: &'static str,
        name: String,
        track: u64,
        at: u64,
    ) -> Event {
        Event {
            name,
            category,
            phase,
            time: microseconds(at),
            duration: None,
            process: PROCESS,
            track,
            id: None,
            binding: None,
            scope: None,
            arguments: Map::new(),
        }
    }

    fn slice(category: &'static str, name: String, track: u64, from: u64, to: u64) -> Event {
        let duration = Some(microseconds(to - from));
        Event { duration, ..Event::new("X", category, name, track, from) }
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Event {
        self.arguments.insert(name.to_owned(), value.into());
        self
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1_000.0
}

fn hart_track(cpu: u32) -> u64 {
    u64::from(FIRST_HART) + u64::from(cpu)
}

fn thread_track(id: u32) -> u64 {
    FIRST_THREAD + u64::from(id)
}

/// Writes a timeline down. `lock_name` knows the locks; `about` is shown as the file's own data.
pub fn file(
    timeline: &Timeline,
    lock_name: impl Fn(u64) -> String,
    about: BTreeMap<&'static str, String>,
) -> File {
    let mut events = Vec::new();
    for hart in &timeline.harts {
        let track = hart_track(hart.cpu);
        events.extend(hart.slices.iter().map(|slice| of_slice(slice, track, timeline, &lock_name)));
        events.extend(hart.marks.iter().map(|mark| {
            let event = Event::new("i", "event", mark_name(mark.what, timeline), track, mark.at);
            let event = Event { scope: Some("t"), ..event };
            match mark.what {
                Moment::Wake { cpu, .. } => event.with("ran last on CPU", cpu),
                Moment::Steal { from_cpu, .. } => event.with("from CPU", from_cpu),
                Moment::Spawn(_) | Moment::Exit(_) | Moment::Point(_) => event,
            }
        }));
    }
    for thread in &timeline.threads {
        events.extend(thread.states.iter().map(|state| of_state(state, thread_track(thread.id))));
    }
    for (id, flow) in timeline.flows.iter().enumerate() {
        events.extend(of_flow(id, flow));
    }
    // The format asks for no order. Readers do where slices begin together: the outer one is first.
    let duration = |event: &Event| event.duration.unwrap_or(0.0);
    events.sort_by(|one, other| {
        one.time.total_cmp(&other.time).then(duration(other).total_cmp(&duration(one)))
    });
    let names = names(timeline);
    File {
        trace_events: names.into_iter().chain(events).collect(),
        display_time_unit: "ns",
        other_data: about,
    }
}

/// The names of the process and the tracks, and the tracks' order.
fn names(timeline: &Timeline) -> Vec<Event> {
    let harts =
        timeline.harts.iter().map(|hart| (hart_track(hart.cpu), format!("CPU {}", hart.cpu)));
    let threads =
        timeline.threads.iter().map(|thread| (thread_track(thread.id), timeline.name(thread.id)));
    let metadata = |what: &str, track| Event::new("M", "__metadata", what.to_owned(), track, 0);
    let process = metadata("process_name", PROCESS.into()).with("name", "16-os");
    let tracks = harts.chain(threads).flat_map(|(track, name)| {
        [
            metadata("thread_name", track).with("name", name),
            metadata("thread_sort_index", track).with("sort_index", track),
        ]
    });
    [process].into_iter().chain(tracks).collect()
}

fn of_slice(
    slice: &Slice,
    track: u64,
    timeline: &Timeline,
    lock_name: impl Fn(u64) -> String,
) -> Event {
    let (category, name) = match slice.what {
        What::Thread(id) => ("thread", timeline.name(id)),
        What::Interrupt(which) => ("interrupt", which.name().to_owned()),
        What::Sleep => ("sleep", "asleep".to_owned()),
        What::LockWait(lock) => ("lock", format!("waits for {}", lock_name(lock))),
    };
    let event = Event::slice(category, name, track, slice.from, slice.to);
    match slice.what {
        What::Thread(id) => event.with("thread", id),
        What::LockWait(lock) => event.with("lock", format!("{lock:#x}")),
        What::Interrupt(_) | What::Sleep => event,
    }
}

fn of_state(state: &State, track: u64) -> Event {
    let name = match state.how {
        How::Runs(cpu) => format!("runs on CPU {cpu}"),
        How::Ready => "ready".to_owned(),
        How::Blocked => "blocked".to_owned(),
        How::Away => "does not run".to_owned(),
    };
    Event::slice("state", name, track, state.from, state.to)
}

fn of_flow(id: usize, flow: &Flow) -> [Event; 2] {
    let end = |phase, cpu, at| {
        let event = Event::new(phase, "wake", "wakeup".to_owned(), hart_track(cpu), at);
        Event { id: Some(id), ..event }.with("thread", flow.thread)
    };
    let arrival = Event { binding: Some("e"), ..end("f", flow.to_cpu, flow.to) };
    let latency = json!(microseconds(flow.to - flow.from));
    [end("s", flow.from_cpu, flow.from), arrival.with("microseconds until it ran", latency)]
}

/// A moment in words.
pub fn mark_name(moment: Moment, timeline: &Timeline) -> String {
    match moment {
        Moment::Wake { thread, .. } => format!("wakes {}", timeline.name(thread)),
        Moment::Steal { thread, .. } => format!("steals {}", timeline.name(thread)),
        Moment::Spawn(thread) => format!("makes {}", timeline.name(thread)),
        Moment::Exit(thread) => format!("{} ends", timeline.name(thread)),
        Moment::Point(point) => format!("point {point}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::log::Log;
    use super::super::timeline::tests::{any_log, eventful};
    use super::*;

    fn written(log: &Log) -> Value {
        let about = BTreeMap::from([("kernel", "16-os".to_owned())]);
        let file = file(&Timeline::new(log), |lock| format!("lock {lock:x}"), about);
        serde_json::from_str(&serde_json::to_string(&file).unwrap()).unwrap()
    }

    fn events(file: &Value) -> &[Value] {
        file["traceEvents"].as_array().unwrap()
    }

    /// What the format asks of each event by its phase, and of the whole.
    fn complaints(file: &Value) -> Vec<String> {
        let mut complaints = Vec::new();
        if file["displayTimeUnit"] != "ns" && file["displayTimeUnit"] != "ms" {
            complaints.push("displayTimeUnit is neither ns nor ms".to_owned());
        }
        let mut before = 0.0;
        let mut flows = BTreeMap::<u64, Vec<&Value>>::new();
        for event in events(file) {
            let mut complain = |what: &str| complaints.push(format!("{what}: {event}"));
            if !event["name"].is_string() || !event["cat"].is_string() {
                complain("no name or category");
            }
            if !event["pid"].is_u64() || !event["tid"].is_u64() {
                complain("no track");
            }
            let time = event["ts"].as_f64().unwrap_or(-1.0);
            if time < before {
                complain("the time falls");
            }
            let phase = event["ph"].as_str().unwrap_or_default();
            if phase != "M" {
                before = time;
            }
            match phase {
                "X" if event["dur"].as_f64().is_none_or(|duration| duration < 0.0) => {
                    complain("no duration");
                }
                "i" if event["s"] != "t" => complain("no scope"),
                "s" | "f" => match event["id"].as_u64() {
                    Some(id) => flows.entry(id).or_default().push(event),
                    None => complain("no id"),
                },
                "M" if event["args"].as_object().is_none_or(Map::is_empty) => {
                    complain("says nothing")
                }
                "X" | "i" | "M" => {}
                _ => complain("unknown phase"),
            }
            if phase == "f" && event["bp"] != "e" {
                complain("no binding point");
            }
        }
        for (id, ends) in flows {
            let phases: Vec<&Value> = ends.iter().map(|end| &end["ph"]).collect();
            if phases != ["s", "f"]
                || ends[0]["cat"] != ends[1]["cat"]
                || ends[0]["name"] != ends[1]["name"]
            {
                complaints.push(format!("flow {id} has not both ends, in order: {ends:?}"));
            }
            for end in ends {
                let around = |slice: &&Value| {
                    let [at, from, duration] = [&end["ts"], &slice["ts"], &slice["dur"]]
                        .map(|value| value.as_f64().unwrap_or(f64::NAN));
                    slice["ph"] == "X"
                        && slice["tid"] == end["tid"]
                        && from <= at
                        && at <= from + duration + 1e-6
                };
                if !events(file).iter().any(|slice| around(&slice)) {
                    complaints.push(format!("no slice around {end}"));
                }
            }
        }
        complaints
    }

    #[test]
    fn the_file_is_as_the_format_asks() {
        assert_eq!(complaints(&written(&eventful())), Vec::<String>::new());
    }

    #[test]
    fn a_broken_file_is_complained_about() {
        let good = written(&eventful());
        let is = |phase: &'static str| move |event: &Value| event["ph"] == phase;
        for (phase, field) in [
            ("X", "dur"),
            ("X", "name"),
            ("X", "tid"),
            ("s", "id"),
            ("f", "bp"),
            ("i", "s"),
            ("M", "args"),
            ("f", "ph"),
        ] {
            let mut broken = good.clone();
            let list = broken["traceEvents"].as_array_mut().unwrap();
            let event = list.iter_mut().find(|event| is(phase)(event)).unwrap();
            event.as_object_mut().unwrap().remove(field);
            assert!(!complaints(&broken).is_empty(), "{phase} without {field}");
        }
        let mut broken = good;
        broken["traceEvents"].as_array_mut().unwrap().reverse();
        assert!(!complaints(&broken).is_empty());
    }

    #[test]
    fn tracks_have_names_and_an_order() {
        let file = written(&eventful());
        let named = |what: &str| -> Vec<(u64, Value)> {
            let events = events(&file).iter().filter(|event| event["name"] == what);
            events.map(|event| (event["tid"].as_u64().unwrap(), event["args"].clone())).collect()
        };
        assert_eq!(
            named("thread_name"),
            [
                (10, json!({"name": "CPU 0"})),
                (11, json!({"name": "CPU 1"})),
                (1_001, json!({"name": "main"})),
                (1_002, json!({"name": "a <worker> & co"})),
            ]
        );
        assert_eq!(named("thread_sort_index").len(), 4);
        assert_eq!(named("process_name"), [(1, json!({"name": "16-os"}))]);
    }

    #[test]
    fn slices_marks_and_states_are_all_there() {
        let timeline = Timeline::new(&eventful());
        let file = written(&eventful());
        let count = |phase: &str, category: &str| {
            let is = |event: &&Value| {
                event["ph"] == phase && (category.is_empty() || event["cat"] == category)
            };
            events(&file).iter().filter(is).count()
        };
        let slices: usize = timeline.harts.iter().map(|hart| hart.slices.len()).sum();
        let states: usize = timeline.threads.iter().map(|thread| thread.states.len()).sum();
        assert_eq!(count("X", ""), slices + states);
        assert_eq!(count("X", "state"), states);
        assert_eq!(count("i", ""), 6);
        let lock = events(&file).iter().find(|event| event["cat"] == "lock").unwrap();
        assert_eq!(lock["name"], "waits for lock 1000");
        assert_eq!((&lock["ts"], &lock["dur"]), (&json!(0.03), &json!(0.015)));
    }

    proptest! {
        #[test]
        fn any_log_gives_a_file_as_the_format_asks(log in any_log()) {
            prop_assert_eq!(complaints(&written(&log)), Vec::<String>::new());
        }
    }
}
