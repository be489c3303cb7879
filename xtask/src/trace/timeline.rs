//! The [`Timeline`]: what a log's events say of each hart and each thread, as spans of time.
//!
//! On a hart, spans nest and do not overlap: a thread's, and within it interrupts, sleep and waits for locks. A ring holds only the
//! last events, so what began before the first of them is guessed from what ended: a thread that a hart switches from ran there
//! from the hart's first event on. What has not ended lasts until the last event of all.

use std::collections::{BTreeMap, BTreeSet};

use super::log::{Interrupt, Kind, Log};

/// What the names of the threads that run where there is nothing to do begin with.
const IDLE_NAME: &str = "idle";

/// What harts and threads did. Times are in nanoseconds since the first event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The time of the last event.
    pub end: u64,
    /// The harts that recorded something, by CPU number.
    pub harts: Vec<HartTrack>,
    /// The threads that ran, without those that run where there is nothing to do, by id.
    pub threads: Vec<ThreadTrack>,
    /// The threads' names by their ids, of all that are mentioned.
    pub names: BTreeMap<u32, String>,
    /// From a wakeup to the run that it led to.
    pub flows: Vec<Flow>,
}

/// What a hart did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HartTrack {
    /// Its CPU number.
    pub cpu: u32,
    /// Each before those that nest in it.
    pub slices: Vec<Slice>,
    /// What takes no time.
    pub marks: Vec<Mark>,
}

/// A span of time on a hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// From when on.
    pub from: u64,
    /// Until when; perhaps the same tick of the clock.
    pub to: u64,
    /// What went on.
    pub what: What,
}

/// What goes on for some time on a hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread runs.
    Thread(u32),
    /// An interrupt is handled.
    Interrupt(Interrupt),
    /// The hart sleeps.
    Sleep,
    /// It waits for the lock at this address.
    LockWait(u64),
}

/// A moment on a hart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When.
    pub at: u64,
    /// What.
    pub what: Moment,
}

/// What happens in a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// A thread is woken.
    Wake {
        /// Which.
        thread: u32,
        /// Where it ran last, or is to begin.
        cpu: u32,
    },
    /// A thread is taken from another hart's queue.
    Steal {
        /// Which.
        thread: u32,
        /// From where.
        from_cpu: u32,
    },
    /// A thread is made.
    Spawn(u32),
    /// A thread ends.
    Exit(u32),
    /// What somebody looked for.
    Point(u32),
}

/// What became of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTrack {
    /// Its id.
    pub id: u32,
    /// One after the other.
    pub states: Vec<State>,
}

/// A span of time of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// From when on.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// How it fares.
    pub how: How,
}

/// How a thread fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It runs on this CPU.
    Runs(u32),
    /// It could run.
    Ready,
    /// It waits to be woken.
    Blocked,
    /// It does not run, and what comes next is not known.
    Away,
}

/// A wakeup, and the run that it led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Of which thread.
    pub thread: u32,
    /// On which CPU it was woken.
    pub from_cpu: u32,
    /// When.
    pub from: u64,
    /// On which CPU it ran.
    pub to_cpu: u32,
    /// From when on.
    pub to: u64,
}

impl Timeline {
    /// Makes spans of events.
    pub fn new(log: &Log) -> Timeline {
        let first = log.events.iter().map(|event| event.time).min().unwrap_or(0);
        let nanoseconds = |ticks: u64| {
            let exact = u128::from(ticks - first) * 1_000_000_000 / u128::from(log.timebase.max(1));
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        let mut harts = BTreeMap::<u32, Hart>::new();
        for event in &log.events {
            let at = nanoseconds(event.time);
            harts.entry(event.cpu).or_insert_with(|| Hart::new(at)).see(at, event.kind);
        }
        let end = harts.values().map(|hart| hart.last).max().unwrap_or(0);
        let idle_threads: BTreeSet<u32> =
            harts.values().flat_map(|hart| hart.idle_threads.iter().copied()).collect();
        // One may not have come to sleep: then its name says what it is.
        let is_idle = |id: &u32| {
            idle_threads.contains(id)
                || log.threads.get(id).is_some_and(|name| name.starts_with(IDLE_NAME))
        };
        // A hart's events may have been printed before those of another on which its thread ran next.
        let entries: Vec<(u32, u32, u64)> = harts
            .iter()
            .flat_map(|(&cpu, hart)| hart.entries.iter().map(move |&(id, at)| (cpu, id, at)))
            // Those without work may all be called by one number.
            .filter(|(_, id, _)| !is_idle(id))
            .collect();
        let harts: Vec<HartTrack> = harts
            .into_iter()
            .map(|(cpu, hart)| {
                let runs_elsewhere = |&&(other, id, at): &&(u32, u32, u64)| {
                    other != cpu && Some(id) == hart.current() && at >= hart.last
                };
                let leaves = entries.iter().filter(runs_elsewhere).map(|&(.., at)| at).min();
                hart.finish(cpu, leaves.unwrap_or(end))
            })
            .collect();
        let runs = runs(&harts);
        let threads = runs
            .iter()
            .filter(|(id, _)| !is_idle(id))
            .map(|(&id, runs)| ThreadTrack { id, states: states(id, runs, &harts, end) })
            .collect();
        let names = runs.keys().chain(log.threads.keys()).map(|&id| (id, name(id, log)));
        Timeline { end, names: names.collect(), flows: flows(&runs, &harts), threads, harts }
    }

    /// A thread's name.
    pub fn name(&self, thread: u32) -> String {
        self.names.get(&thread).cloned().unwrap_or_else(|| format!("thread {thread}"))
    }
}

/// What a thread is called: with its number if others are called the same.
fn name(id: u32, log: &Log) -> String {
    let Some(name) = log.threads.get(&id).filter(|name| !name.is_empty()) else {
        return format!("thread {id}");
    };
    match log.threads.values().filter(|other| *other == name).count() {
        1 => name.clone(),
        _ => format!("{name} ({id})"),
    }
}

/// A hart whose events are being read.
struct Hart {
    first: u64,
    last: u64,
    slices: Vec<Slice>,
    marks: Vec<Mark>,
    /// Indices of the slices that have not ended, each within the one before.
    open: Vec<usize>,
    /// Which threads began to run, and when.
    entries: Vec<(u32, u64)>,
    idle_threads: Vec<u32>,
}

impl Hart {
    fn new(first: u64) -> Hart {
        let (slices, marks, open) = (Vec::new(), Vec::new(), Vec::new());
        Hart {
            first,
            last: first,
            slices,
            marks,
            open,
            entries: Vec::new(),
            idle_threads: Vec::new(),
        }
    }

    /// The thread that runs, if that is known.
    fn current(&self) -> Option<u32> {
        match self.slices[*self.open.first()?].what {
            What::Thread(id) => Some(id),
            _ => None,
        }
    }

    fn see(&mut self, at: u64, kind: Kind) {
        self.last = at;
        // Whatever a hart does, it does not sleep any more.
        self.close_top(at, |what| what == What::Sleep);
        let mut mark = |what| self.marks.push(Mark { at, what });
        match kind {
            Kind::Wake { thread, cpu } => mark(Moment::Wake { thread, cpu }),
            Kind::Steal { thread, from_cpu } => mark(Moment::Steal { thread, from_cpu }),
            Kind::Spawn { thread, .. } => mark(Moment::Spawn(thread)),
            Kind::Exit { thread, .. } => mark(Moment::Exit(thread)),
            Kind::Point(point) => mark(Moment::Point(point)),
            Kind::Switch { from, to } => self.switch(at, from, to),
            // Handlers run with interrupts masked: what seems to go on within one has lost its end.
            Kind::Interrupt(which) => self.replace(at, What::Interrupt(which)),
            Kind::InterruptEnd => {
                let is_interrupt =
                    |&index: &usize| matches!(self.slices[index].what, What::Interrupt(_));
                if let Some(depth) = self.open.iter().rposition(is_interrupt) {
                    self.close_to(at, depth);
                }
            }
            Kind::Idle => {
                self.replace(at, What::Sleep);
                let current = self.current();
                self.idle_threads.extend(current);
            }
            Kind::LockWait(lock) => {
                self.close_top(at, |what| matches!(what, What::LockWait(_)));
                self.open(at, What::LockWait(lock));
            }
            Kind::LockTaken(lock) => self.close_top(at, |what| what == What::LockWait(lock)),
        }
    }

    fn switch(&mut self, at: u64, from: u32, to: u32) {
        if self.current().is_none() {
            self.close_to(at, 0);
            let before = Slice { from: self.first, to: at, what: What::Thread(from) };
            // Around all there is: the first thread of a hart is known only when it leaves.
            self.slices.insert(0, before);
            self.entries.push((from, self.first));
            // It slept before anybody knew its name.
            if self.slices.iter().any(|slice| slice.what == What::Sleep) {
                self.idle_threads.push(from);
            }
        }
        self.close_to(at, 0);
        self.open(at, What::Thread(to));
        self.entries.push((to, at));
    }

    fn open(&mut self, at: u64, what: What) {
        self.open.push(self.slices.len());
        self.slices.push(Slice { from: at, to: at, what });
    }

    /// Opens a slice right within the thread's.
    fn replace(&mut self, at: u64, what: What) {
        self.close_to(at, usize::from(self.current().is_some()));
        self.open(at, what);
    }

    /// Ends the innermost slice if it is such a one.
    fn close_top(&mut self, at: u64, is: impl Fn(What) -> bool) {
        if self.open.last().is_some_and(|&index| is(self.slices[index].what)) {
            self.close_to(at, self.open.len() - 1);
        }
    }

    /// Ends every slice but the outermost `depth`.
    fn close_to(&mut self, at: u64, depth: usize) {
        for index in self.open.drain(depth..) {
            self.slices[index].to = at;
        }
    }

    fn finish(mut self, cpu: u32, end: u64) -> HartTrack {
        self.close_to(end, 0);
        HartTrack { cpu, slices: self.slices, marks: self.marks }
    }
}

/// When a thread ran, and where.
#[derive(Clone, Copy)]
struct Run {
    from: u64,
    to: u64,
    cpu: u32,
}

/// The runs of each thread, one after the other.
fn runs(harts: &[HartTrack]) -> BTreeMap<u32, Vec<Run>> {
    let mut runs = BTreeMap::<u32, Vec<Run>>::new();
    for hart in harts {
        for &Slice { from, to, what } in &hart.slices {
            if let What::Thread(id) = what {
                runs.entry(id).or_default().push(Run { from, to, cpu: hart.cpu });
            }
        }
    }
    for runs in runs.values_mut() {
        runs.sort_by_key(|run| (run.from, run.to));
        let mut end = 0;
        // A thread runs on one hart at a time. Where harts seem to say otherwise, the one where it ran first is believed.
        runs.retain_mut(|run| {
            run.from = run.from.max(end);
            end = end.max(run.to);
            run.from <= run.to
        });
    }
    runs
}

/// When a thread was woken, in order: the hart and the time of each.
fn wakeups(harts: &[HartTrack], id: u32) -> Vec<(u64, u32)> {
    let mut wakeups: Vec<(u64, u32)> = harts
        .iter()
        .flat_map(|hart| hart.marks.iter().map(move |mark| (mark, hart.cpu)))
        .filter(|(mark, _)| matches!(mark.what, Moment::Wake { thread, .. } if thread == id))
        .map(|(mark, cpu)| (mark.at, cpu))
        .collect();
    wakeups.sort_unstable();
    wakeups
}

/// Whatever is known of a thread: its runs, and what lies between.
fn states(id: u32, runs: &[Run], harts: &[HartTrack], end: u64) -> Vec<State> {
    let marks = || harts.iter().flat_map(|hart| &hart.marks);
    let has_ended = marks().any(|mark| mark.what == Moment::Exit(id));
    let made = marks().find(|mark| mark.what == Moment::Spawn(id)).map(|mark| mark.at);
    let wakeups = wakeups(harts, id);
    let woken = |from: u64, to: u64| {
        wakeups.iter().map(|&(at, _)| at).find(|&at| (from..=to).contains(&at))
    };
    let mut states = Vec::new();
    let mut add = |from, to, how| {
        if from < to {
            states.push(State { from, to, how });
        }
    };
    let begin = runs.first().map_or(0, |run| run.from);
    if let Some(ready) = made.or_else(|| woken(0, begin)) {
        add(ready, begin, How::Ready);
    }
    for (index, run) in runs.iter().enumerate() {
        add(run.from, run.to, How::Runs(run.cpu));
        let next = runs.get(index + 1).map(|next| next.from);
        let until = next.unwrap_or(end);
        match woken(run.to, until) {
            Some(at) => {
                add(run.to, at, How::Blocked);
                add(at, until, How::Ready);
            }
            // Nobody had to wake it: it gave way, or was woken before it had left.
            None if next.is_some() => add(run.to, until, How::Ready),
            None if !has_ended => add(run.to, until, How::Away),
            None => {}
        }
    }
    states
}

/// The run that each wakeup led to. Both ends lie in slices of their harts.
fn flows(runs: &BTreeMap<u32, Vec<Run>>, harts: &[HartTrack]) -> Vec<Flow> {
    let mut flows = Vec::new();
    for (&thread, runs) in runs {
        let mut runs = runs.iter().peekable();
        for (from, from_cpu) in wakeups(harts, thread) {
            while runs.next_if(|run| run.from < from).is_some() {}
            let Some(run) = runs.peek() else { break };
            let hart = harts.iter().find(|hart| hart.cpu == from_cpu);
            let encloses = |slice: &Slice| slice.from <= from && from <= slice.to;
            if hart.is_some_and(|hart| hart.slices.iter().any(encloses)) {
                flows.push(Flow { thread, from_cpu, from, to_cpu: run.cpu, to: run.from });
                runs.next();
            }
        }
    }
    flows.sort_by_key(|flow| flow.from);
    flows
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::super::log::{Event, Text};
    use super::*;

    pub fn log(events: &[(u32, u64, Kind)]) -> Log {
        let event = |&(cpu, time, kind): &(u32, u64, Kind)| Event { cpu, time, kind };
        Log {
            timebase: 1_000_000_000,
            harts: 2,
            dropped: 0,
            threads: BTreeMap::from([(1, "main".to_owned()), (2, "a <worker> & co".to_owned())]),
            events: events.iter().map(event).collect(),
        }
    }

    /// Two harts, three threads, and something of each kind.
    pub fn eventful() -> Log {
        log(&[
            (0, 100, Kind::Spawn { thread: 2, name: Text(0) }),
            (0, 110, Kind::Wake { thread: 2, cpu: 1 }),
            (0, 120, Kind::LockWait(0x1000)),
            (0, 135, Kind::LockTaken(0x1000)),
            (0, 140, Kind::Interrupt(Interrupt::Timer)),
            (0, 150, Kind::InterruptEnd),
            (0, 160, Kind::Switch { from: 1, to: 9 }),
            (0, 165, Kind::Idle),
            (0, 190, Kind::Interrupt(Interrupt::External)),
            (0, 192, Kind::Wake { thread: 1, cpu: 0 }),
            (0, 195, Kind::InterruptEnd),
            (0, 200, Kind::Switch { from: 9, to: 1 }),
            (0, 210, Kind::Point(5)),
            (1, 90, Kind::Idle),
            (1, 115, Kind::Interrupt(Interrupt::Ipi)),
            (1, 118, Kind::InterruptEnd),
            (1, 119, Kind::Steal { thread: 2, from_cpu: 0 }),
            (1, 120, Kind::Switch { from: 8, to: 2 }),
            (1, 180, Kind::Exit { thread: 2, name: Text(0) }),
            (1, 181, Kind::Switch { from: 2, to: 8 }),
            (1, 182, Kind::Idle),
        ])
    }

    fn slices(timeline: &Timeline, cpu: usize) -> Vec<(u64, u64, What)> {
        let hart = &timeline.harts[cpu];
        hart.slices.iter().map(|slice| (slice.from, slice.to, slice.what)).collect()
    }

    #[test]
    fn events_become_slices() {
        let timeline = Timeline::new(&eventful());
        assert_eq!(timeline.end, 120, "nanoseconds from 90 to 210");
        assert_eq!(
            slices(&timeline, 0),
            [
                (10, 70, What::Thread(1)),
                (30, 45, What::LockWait(0x1000)),
                (50, 60, What::Interrupt(Interrupt::Timer)),
                (70, 110, What::Thread(9)),
                (75, 100, What::Sleep),
                (100, 105, What::Interrupt(Interrupt::External)),
                (110, 120, What::Thread(1)),
            ]
        );
        assert_eq!(
            slices(&timeline, 1),
            [
                (0, 30, What::Thread(8)),
                (0, 25, What::Sleep),
                (25, 28, What::Interrupt(Interrupt::Ipi)),
                (30, 91, What::Thread(2)),
                (91, 120, What::Thread(8)),
                (92, 120, What::Sleep),
            ]
        );
    }

    #[test]
    fn threads_run_wait_and_are_ready() {
        let timeline = Timeline::new(&eventful());
        let ids: Vec<u32> = timeline.threads.iter().map(|thread| thread.id).collect();
        assert_eq!(ids, [1, 2], "8 and 9 are what runs when there is nothing to do");
        let state = |from, to, how| State { from, to, how };
        assert_eq!(
            timeline.threads[0].states,
            [
                state(10, 70, How::Runs(0)),
                state(70, 102, How::Blocked),
                state(102, 110, How::Ready),
                state(110, 120, How::Runs(0)),
            ]
        );
        assert_eq!(
            timeline.threads[1].states,
            [state(10, 30, How::Ready), state(30, 91, How::Runs(1))]
        );
        assert_eq!(timeline.name(2), "a <worker> & co");
        assert_eq!(timeline.name(9), "thread 9");
        let mut log = eventful();
        log.threads.insert(9, "main".to_owned());
        let timeline = Timeline::new(&log);
        assert_eq!([1, 9].map(|id| timeline.name(id)), ["main (1)", "main (9)"]);
    }

    #[test]
    fn a_wakeup_leads_to_the_next_run() {
        let flow = |thread, from_cpu, from, to_cpu, to| Flow { thread, from_cpu, from, to_cpu, to };
        assert_eq!(
            Timeline::new(&eventful()).flows,
            [flow(2, 0, 20, 1, 30), flow(1, 0, 102, 0, 110)]
        );
    }

    #[test]
    fn a_thread_that_gave_way_is_ready() {
        let timeline = Timeline::new(&log(&[
            (0, 0, Kind::Switch { from: 1, to: 2 }),
            (0, 10, Kind::Switch { from: 2, to: 1 }),
            (0, 30, Kind::Switch { from: 1, to: 2 }),
        ]));
        let how: Vec<How> = timeline.threads[1].states.iter().map(|state| state.how).collect();
        assert_eq!(how, [How::Runs(0), How::Ready]);
    }

    #[test]
    fn what_runs_at_the_end_of_a_hart_ends_where_it_runs_next() {
        // CPU 0 was printed before thread 1 went on to CPU 1.
        let timeline = Timeline::new(&log(&[
            (0, 0, Kind::Switch { from: 9, to: 1 }),
            (0, 5, Kind::Point(0)),
            (1, 0, Kind::Point(0)),
            (1, 50, Kind::Switch { from: 8, to: 1 }),
            (1, 60, Kind::Point(0)),
        ]));
        assert_eq!(timeline.harts[0].slices[1], Slice { from: 0, to: 50, what: What::Thread(1) });
    }

    #[test]
    fn an_end_without_a_beginning_is_passed_over() {
        let timeline = Timeline::new(&log(&[
            (0, 0, Kind::InterruptEnd),
            (0, 1, Kind::LockTaken(5)),
            (0, 2, Kind::Interrupt(Interrupt::Ipi)),
            (0, 3, Kind::Interrupt(Interrupt::Timer)),
        ]));
        assert_eq!(
            slices(&timeline, 0),
            [(2, 3, What::Interrupt(Interrupt::Ipi)), (3, 3, What::Interrupt(Interrupt::Timer))]
        );
    }

    #[test]
    fn an_idle_thread_is_known_by_its_sleep_or_its_name() {
        let mut log = log(&[
            (0, 0, Kind::Switch { from: 1, to: 7 }),
            (0, 1, Kind::Switch { from: 7, to: 6 }),
            (0, 2, Kind::Idle),
        ]);
        let ids = |log: &Log| -> Vec<u32> {
            Timeline::new(log).threads.iter().map(|thread| thread.id).collect()
        };
        assert_eq!(ids(&log), [1, 7]);
        log.threads.insert(7, "idle of CPU 0".to_owned());
        assert_eq!(ids(&log), [1]);
    }

    #[test]
    fn nothing_gives_an_empty_timeline() {
        assert_eq!(Timeline::new(&Log::default()), Timeline::default());
    }

    fn kind() -> impl Strategy<Value = Kind> {
        let id = || 0..4_u32;
        prop_oneof![
            (id(), id()).prop_map(|(from, to)| Kind::Switch { from, to }),
            (id(), id()).prop_map(|(thread, cpu)| Kind::Wake { thread, cpu }),
            Just(Kind::Interrupt(Interrupt::Ipi)),
            Just(Kind::InterruptEnd),
            (id(), id()).prop_map(|(thread, from_cpu)| Kind::Steal { thread, from_cpu }),
            Just(Kind::Idle),
            (0..3_u64).prop_map(Kind::LockWait),
            (0..3_u64).prop_map(Kind::LockTaken),
            id().prop_map(|thread| Kind::Spawn { thread, name: Text(0) }),
            id().prop_map(|thread| Kind::Exit { thread, name: Text(0) }),
        ]
    }

    /// Any log whose times do not fall.
    pub fn any_log() -> impl Strategy<Value = Log> {
        let event = (0..3_u32, 0..4_u64, kind());
        proptest::collection::vec(event, 0..80).prop_map(|events| {
            let mut times = [100; 3];
            let events = events.into_iter().map(|(cpu, later, kind)| {
                times[cpu as usize] += later;
                (cpu, times[cpu as usize], kind)
            });
            log(&events.collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn slices_nest_and_states_follow_each_other(log in any_log()) {
            let timeline = Timeline::new(&log);
            for hart in &timeline.harts {
                let mut around: Vec<Slice> = Vec::new();
                let mut before = 0;
                for slice in &hart.slices {
                    prop_assert!(before <= slice.from && slice.from <= slice.to && slice.to <= timeline.end, "{slice:?}");
                    before = slice.from;
                    while around.last().is_some_and(|outer| outer.to <= slice.from && outer.to < slice.to) {
                        around.pop();
                    }
                    if let Some(outer) = around.last() {
                        prop_assert!(slice.to <= outer.to, "{slice:?} reaches out of {outer:?}");
                    }
                    around.push(*slice);
                }
                for pair in hart.marks.windows(2) {
                    prop_assert!(pair[0].at <= pair[1].at);
                }
            }
            for thread in &timeline.threads {
                for pair in thread.states.windows(2) {
                    prop_assert!(pair[0].from < pair[0].to && pair[0].to <= pair[1].from, "{pair:?}");
                }
            }
        }

        #[test]
        fn every_flow_ends_where_the_thread_begins_to_run(log in any_log()) {
            let timeline = Timeline::new(&log);
            for flow in &timeline.flows {
                prop_assert!(flow.from <= flow.to);
                let track = |cpu| timeline.harts.iter().find(|hart| hart.cpu == cpu).unwrap();
                let woken = |mark: &Mark| mark.at == flow.from
                    && matches!(mark.what, Moment::Wake { thread, .. } if thread == flow.thread);
                prop_assert!(track(flow.from_cpu).marks.iter().any(woken));
                let runs = |slice: &Slice| slice.what == What::Thread(flow.thread)
                    && slice.from <= flow.to && flow.to <= slice.to;
                prop_assert!(track(flow.to_cpu).slices.iter().any(runs));
            }
        }
    }
}
