//! Tests of sections at a reactor with a time of its own: how many turns others wait.

use super::*;
use crate::tree::{TreeCondition, TreeGuard, TreeOp};

type TestReactor = Reactor<EmbeddedEndpoint, TestTime>;

const BUDGET_NS: u64 = 100_000_000;
/// Time to a far record and back.
const FAR_NS: u64 = 2_000;
/// Turns within which others are served once a section has ended.
const TURNS_MAX: usize = 2;

/// A reactor with lanes to three handles.
struct Bench {
    reactor: TestReactor,
    time: TestTime,
    handles: Vec<LaneClient>,
}

impl Bench {
    fn new() -> Self {
        let (handles, servers): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| lane(64 << 10, 1 << 20, None))
            .map(|(client, server)| (client, Some(server)))
            .unzip();
        let time = TestTime::default();
        let servers = [None].into_iter().chain(servers).collect();
        let mut reactor = with_lanes(time.clone(), servers, (64, FAR_NS));
        let client = reactor.replies().add_client().unwrap();
        load(&mut reactor, &time, client);
        Self {
            reactor,
            time,
            handles,
        }
    }

    /// Sends a request of a handle, from 1 on. `client` is under a section, if it is not 0.
    fn send(&mut self, handle: usize, client: u16, token: u64, parts: &RequestParts<'_>) {
        let hash = self.reactor.hasher.hash(parts.key).index;
        let origin = Origin::new(client, RequestFlags::NONE);
        let lane = &mut self.handles[handle - 1];
        let queue = match client {
            0 => &mut lane.requests,
            _ => &mut lane.sections,
        };
        assert!(queue.push(hash, token, origin, parts));
        queue.publish();
        let number = u8::try_from(handle).unwrap();
        self.reactor.command_port.wakeup.ring(number);
    }

    fn get(&mut self, handle: usize, client: u16, number: u64) {
        let key = key(number);
        let parts = RequestParts::plain(&Operation::Get { key: &key }).unwrap();
        self.send(handle, client, number, &parts);
    }

    /// Sends an operation on the map `map`.
    fn tree(&mut self, handle: usize, client: u16, op: TreeOp<'_>) {
        let (key, guard) = (b"map", TreeGuard::default());
        let mut scratch = Vec::new();
        let parts = RequestParts::of(&Operation::Tree { key, op, guard }, &mut scratch);
        self.send(handle, client, 3_000_000, &parts);
    }

    fn enter(&mut self, handle: usize, client: u16) {
        let second = (client + 1).to_le_bytes();
        let parts = section_parts(OperationKind::SectionEnter, &second);
        self.send(handle, client, 1_000_000, &parts);
    }

    fn leave(&mut self, handle: usize, client: u16) {
        let parts = section_parts(OperationKind::SectionLeave, &[]);
        self.send(handle, client, 2_000_000, &parts);
    }

    /// The answers that a handle has.
    fn answers(&mut self, handle: usize) -> Vec<(u64, String)> {
        let mut answers = Vec::new();
        let lane = &mut self.handles[handle - 1];
        lane.answers.refresh();
        lane.answers.receive(|_, token, answer| {
            let text = match answer {
                Answer::Value { value, .. } => format!("{}", value[0]),
                Answer::Failed(Error::SectionLost { .. }) => "lost".into(),
                Answer::Failed(Error::SectionRefused { waiting, .. }) => {
                    format!("{waiting} refused")
                }
                answer => format!("{answer:?}"),
            };
            answers.push((token, text));
        });
        answers
    }

    /// Takes turns until a handle has answers; how many turns, and the answers.
    fn turns_until(&mut self, handle: usize) -> (usize, Vec<(u64, String)>) {
        for turns in 1..100 {
            self.reactor.turn_alone();
            let answers = self.answers(handle);
            if !answers.is_empty() {
                return (turns, answers);
            }
        }
        panic!("no answer for handle {handle}");
    }

    fn pass(&mut self, ns: u64) {
        self.time.0.set(self.time.0.get() + ns);
    }

    /// Has a client hold the section.
    fn hold(&mut self, handle: usize, client: u16) {
        self.enter(handle, client);
        let (turns, answers) = self.turns_until(handle);
        assert!(turns <= TURNS_MAX, "{turns} turns");
        assert_eq!(answers, [(1_000_000, "Stored { version: 0 }".into())]);
    }
}

fn value(number: u64) -> (u64, String) {
    (number, first_byte(number).to_string())
}

/// The newest values are near.
const NEAR: [u64; 3] = [VALUES - 1, VALUES - 2, VALUES - 3];

#[test]
fn others_wait_while_a_client_holds_the_section_and_go_on_once_it_has_left() {
    let mut bench = Bench::new();
    let own = bench.reactor.replies().add_client().unwrap();
    bench.hold(1, 10);
    for handle in [1, 2] {
        bench.get(handle, 0, NEAR[0]);
    }
    let own_key = key(NEAR[2]);
    let parts = RequestParts::plain(&Operation::Get { key: &own_key }).unwrap();
    assert!(bench.reactor.submit(own, 7, &parts));
    for client in [10, 11, 10] {
        bench.get(1, client, NEAR[1]);
        assert_eq!(bench.turns_until(1), (1, vec![value(NEAR[1])]));
    }
    for _ in 0..50 {
        assert_eq!(bench.reactor.poll_for(own, &mut |_, _| {}), 0);
        assert_eq!(bench.answers(2), []);
        assert_eq!(bench.answers(1), [], "its plain request waits as well");
    }
    assert!(!bench.reactor.is_quiet(), "others wait");
    bench.leave(1, 10);
    let (turns, answers) = bench.turns_until(2);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers, [value(NEAR[0])]);
    let mut left = bench.answers(1);
    left.sort();
    let is_held = (2_000_000, "Deleted".into());
    assert_eq!(left, [value(NEAR[0]), is_held]);
    let mut seen = 0;
    for _ in 0..TURNS_MAX {
        seen += bench.reactor.poll_for(own, &mut |_, _| {});
    }
    assert_eq!(seen, 1);
    assert!(!bench.reactor.sections.is_active());
}

#[test]
fn clients_get_the_section_in_their_order_and_plain_requests_come_between() {
    let mut bench = Bench::new();
    bench.hold(1, 10);
    // Two of one lane, and one of another between them.
    for (handle, client) in [(2, 20), (3, 20), (2, 30)] {
        bench.enter(handle, client);
        bench.reactor.turn_alone();
    }
    for ((handle, client), next) in [((1, 10), 2), ((2, 20), 3), ((3, 20), 2)] {
        // It keeps one request in its lane all the time.
        bench.get(1, 0, NEAR[0]);
        bench.leave(handle, client);
        let mut turns = 0;
        let mut plain = 0;
        let mut given = Vec::new();
        while given.is_empty() {
            turns += 1;
            assert!(turns <= 2 * TURNS_MAX, "{turns} turns");
            bench.reactor.turn_alone();
            let of_plain =
                |answers: &[(u64, String)]| answers.iter().filter(|it| it.0 == NEAR[0]).count();
            plain += of_plain(&bench.answers(1));
            given = bench.answers(next);
            given.retain(|answer| answer.0 == 1_000_000);
        }
        assert_eq!(given.len(), 1);
        assert_eq!(plain, 1, "a plain request comes between two sections");
    }
    assert!(bench.reactor.sections.is_holder(2, 30));
}

#[test]
fn a_holder_that_does_nothing_loses_the_section_and_learns_of_it() {
    let mut bench = Bench::new();
    bench.hold(1, 10);
    bench.get(2, 0, NEAR[0]);
    bench.enter(3, 10);
    bench.pass(BUDGET_NS);
    bench.reactor.turn_alone();
    assert_eq!(bench.answers(2), []);
    bench.pass(1);
    let (turns, answers) = bench.turns_until(2);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers, [value(NEAR[0])]);
    let (turns, answers) = bench.turns_until(3);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers.len(), 1, "the next client has it");
    bench.get(1, 10, NEAR[1]);
    bench.leave(1, 10);
    let lost = [(NEAR[1], "lost".into()), (2_000_000, "Absent".into())];
    assert_eq!(bench.turns_until(1), (1, lost.into()));
    let counters = &bench.reactor.metrics.counters;
    let counted = (counters.sections.get(), counters.sections_lost.get());
    assert_eq!(counted, (2, 1));
    assert!(counters.section_ns.get() > BUDGET_NS);
}

#[test]
fn a_section_begins_once_all_requests_that_were_parked_have_ended() {
    let mut bench = Bench::new();
    bench.get(2, 0, 0);
    bench.reactor.turn_alone();
    assert!(!bench.reactor.shard.is_drained(), "the value is far");
    bench.enter(1, 10);
    // This one comes later, and waits.
    for _ in 0..20 {
        bench.get(3, 0, NEAR[0]);
        bench.reactor.turn_alone();
        assert_eq!((bench.answers(1), bench.answers(3)), (vec![], vec![]));
    }
    bench.pass(FAR_NS);
    let (_, answers) = bench.turns_until(1);
    assert_eq!(answers[0].0, 1_000_000);
    assert_eq!(bench.answers(2), [value(0)], "it was answered before");
    assert_eq!(bench.answers(3), []);
    // What it reads from far memory itself is parked, and answered at its lane.
    bench.get(1, 11, 1);
    bench.reactor.turn_alone();
    assert!(!bench.reactor.shard.is_drained());
    // It dies: what it has sent is carried out before others go on.
    bench.leave(1, 10);
    for _ in 0..2 {
        bench.reactor.turn_alone();
        assert_eq!((bench.answers(1), bench.answers(3)), (vec![], vec![]));
    }
    bench.pass(FAR_NS);
    let (turns, answers) = bench.turns_until(3);
    assert!(turns <= TURNS_MAX + 1, "{turns} turns");
    assert_eq!(answers, vec![value(NEAR[0]); 20]);
    assert_eq!(bench.answers(1), [value(1), (2_000_000, "Deleted".into())]);
}

/// Others would wait for as long as the node is silent.
#[test]
fn a_holder_that_has_left_loses_the_section_if_what_it_has_sent_does_not_end() {
    let mut bench = Bench::new();
    bench.hold(1, 10);
    bench.get(1, 10, 0);
    bench.leave(1, 10);
    bench.get(2, 0, NEAR[0]);
    bench.reactor.turn_alone();
    assert!(!bench.reactor.shard.is_drained(), "the value is far");
    // Far memory would answer now; the shard does not look before it has decided.
    bench.pass(BUDGET_NS + 1);
    bench
        .reactor
        .serve_sections(None, NO_CLIENT, &mut |_, _| {});
    bench.reactor.replies.publish();
    assert_eq!(
        bench.answers(1),
        [(2_000_000, "Absent".into())],
        "it is lost"
    );
    assert!(!bench.reactor.shard.is_drained() && !bench.reactor.sections.is_closed());
    let (turns, answers) = bench.turns_until(2);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers, [value(NEAR[0])]);
    assert_eq!(bench.turns_until(1).1, [value(0)], "it is carried out yet");
    assert_eq!(bench.reactor.metrics.counters.sections_lost.get(), 1);
}

#[test]
fn a_shard_whose_far_memory_is_silent_refuses_sections_and_goes_on() {
    let mut bench = Bench::new();
    bench.get(2, 0, 0);
    bench.reactor.turn_alone();
    bench.enter(1, 10);
    bench.enter(3, 10);
    bench.get(3, 0, NEAR[0]);
    bench.reactor.turn_alone();
    // Far memory would answer now; the shard does not look before it has decided.
    bench.pass(BUDGET_NS + 1);
    bench
        .reactor
        .serve_sections(None, NO_CLIENT, &mut |_, _| {});
    bench.reactor.replies.publish();
    assert_eq!(bench.answers(1), [(1_000_000, "2 refused".into())]);
    assert_eq!(bench.answers(3), [(1_000_000, "2 refused".into())]);
    let (turns, answers) = bench.turns_until(3);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers, [value(NEAR[0])]);
    assert_eq!(bench.reactor.metrics.counters.sections_refused.get(), 2);
    // A client that waits no more.
    bench.leave(1, 10);
    assert_eq!(bench.turns_until(1).1, [(2_000_000, "Absent".into())]);
    // Clients that try again at once do not close the shard before the next budget.
    bench.get(2, 0, 1);
    bench.reactor.turn_alone();
    bench.enter(1, 10);
    for _ in 0..20 {
        bench.get(3, 0, NEAR[0]);
        let (turns, answers) = bench.turns_until(3);
        assert!(turns <= TURNS_MAX, "{turns} turns");
        assert_eq!(answers, [value(NEAR[0])]);
    }
}

#[test]
fn a_borrower_serves_a_section_of_its_lane_and_leaves_others_to_the_core() {
    let mut bench = Bench::new();
    bench.enter(1, 10);
    assert_eq!(bench.reactor.serve_lent(1), LoanOutcome::All);
    assert_eq!(bench.answers(1).len(), 1);
    bench.get(1, 10, NEAR[0]);
    assert_eq!(bench.reactor.serve_lent(1), LoanOutcome::All);
    assert_eq!(bench.answers(1), [value(NEAR[0])]);
    bench.get(2, 0, NEAR[0]);
    assert_eq!(bench.reactor.serve_lent(2), LoanOutcome::Part);
    assert_eq!(bench.answers(2), []);
    bench.leave(1, 10);
    assert_eq!(bench.reactor.serve_lent(1), LoanOutcome::All);
    assert_eq!(bench.answers(1).len(), 1);
    // The core serves those who wait before another section begins.
    bench.enter(1, 10);
    assert_eq!(bench.reactor.serve_lent(1), LoanOutcome::Part);
    assert_eq!(bench.answers(1), []);
    let (turns, answers) = bench.turns_until(2);
    assert!(turns <= TURNS_MAX, "{turns} turns");
    assert_eq!(answers, [value(NEAR[0])]);
    assert_eq!(bench.turns_until(1).1.len(), 1);
}

#[test]
fn a_closing_shard_gives_no_section() {
    let mut bench = Bench::new();
    bench.hold(1, 10);
    bench.enter(2, 10);
    bench.reactor.turn_alone();
    bench.reactor.close();
    bench.enter(3, 10);
    let closed = [(1_000_000, "Failed(Closed)".into())];
    assert_eq!(bench.turns_until(2).1, closed);
    assert_eq!(bench.turns_until(3).1, closed);
    bench.get(1, 10, NEAR[0]);
    assert_eq!(
        bench.turns_until(1).1,
        [value(NEAR[0])],
        "the holder goes on"
    );
}

/// Clients that wait have little of the room of their lane's answers, which its holder needs.
#[test]
fn a_holder_is_served_however_many_clients_of_its_lane_wait() {
    const CLIENTS: u16 = 3_000;
    let mut bench = Bench::new();
    bench.hold(1, 10);
    let mut refused = 0;
    for number in 0..CLIENTS {
        bench.enter(1, 100 + 2 * number);
        bench.reactor.turn_alone();
        for (token, text) in bench.answers(1) {
            assert!(token == 1_000_000 && text.ends_with(" refused"), "{text}");
            refused += 1;
        }
    }
    assert!(refused > 0 && refused < CLIENTS, "{refused}");
    assert_eq!(
        bench.reactor.metrics.counters.sections_refused.get(),
        u64::from(refused)
    );
    for _ in 0..20 {
        bench.get(1, 10, NEAR[1]);
        assert_eq!(bench.turns_until(1), (1, vec![value(NEAR[1])]));
    }
    bench.leave(1, 10);
    let (turns, _) = bench.turns_until(1);
    assert!(turns <= TURNS_MAX, "{turns} turns");
}

/// It takes several reads one after the other, and more room than a lane has for nodes. Each time
/// that the shard is open, one of them can begin.
#[test]
fn a_long_far_element_is_read_though_sections_follow_each_other() {
    let mut bench = Bench::new();
    let own = bench.reactor.replies().add_client().unwrap();
    let value = [5; 20_000];
    let op = TreeOp::Insert {
        key: b"element",
        value: &value,
        condition: TreeCondition::Always,
    };
    bench.tree(2, 0, op);
    assert_eq!(bench.turns_until(2).1, [(3_000_000, "0".into())]);
    load(&mut bench.reactor, &bench.time, own);
    let get = TreeOp::Get { key: b"element" };
    bench.enter(1, 10);
    bench.tree(2, 0, get);
    let mut handles = [1, 3];
    for sections in 0..100 {
        let [holder, next] = handles;
        let mut given = Vec::new();
        while given.is_empty() {
            bench.reactor.turn_alone();
            bench.pass(FAR_NS);
            given = bench.answers(holder);
            given.retain(|answer| answer.0 == 1_000_000);
        }
        // Another waits all the time.
        bench.enter(next, 10);
        bench.reactor.turn_alone();
        bench.leave(holder, 10);
        handles.reverse();
        if let [(3_000_000, first)] = &bench.answers(2)[..] {
            assert_eq!((first, sections > 2), (&"5".to_string(), true));
            return;
        }
    }
    panic!("it is never answered");
}
