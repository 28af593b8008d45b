//! What a core does about each message of other cores and of the thread that accepts.

use crate::cores::message::{Message, Question, Redirected};
use crate::events::tracking::Due;
use crate::memory_trims::Trim;
use crate::serving::Serving;

/// Messages of other cores that are received in a turn, at most, so that clients are served too.
const MESSAGES_A_TURN: usize = 64;

impl Serving {
    /// Receives `count` messages of other cores, which were there before sockets were served: a
    /// client's `UNSUBSCRIBE` that was sent before another client's `PUBLISH` happens before it.
    pub(super) fn receive_messages(&mut self, count: usize) -> bool {
        for _ in 0..count.min(MESSAGES_A_TURN) {
            let Some(message) = self.shared.cores[self.place].receive() else {
                break;
            };
            self.take_message(message);
        }
        count > 0
    }

    /// Does what a message says.
    pub(crate) fn take_message(&mut self, message: Message) {
        match message {
            Message::Connection(arrival) => self.meet(arrival),
            Message::Peer(arrival) => {
                if let Some(native) = &mut self.native {
                    native.accept(arrival);
                }
            }
            Message::Trim { keep_bytes } => {
                self.trim.get_or_insert(Trim::Wanted(Some(keep_bytes)));
            }
            Message::EndOverdueNative => {
                if let Some(native) = &mut self.native {
                    native.look_after();
                }
            }
            Message::EndLate => self.end_late(),
            Message::EndSilent { start } => self.end_silent(start),
            Message::EndWaits { start } => self.end_waits(start),
            Message::Drain(of, answer) => self.begin_drain(of, answer),
            Message::EndMovedWaits { start } => self.end_moved_waits(start),
            Message::Publish(message, answers) => self.deliver_message(message, answers),
            Message::DeliverKeyEvents => self.receive_key_events(),
            Message::EndSlowestSubscriber => {
                self.end_slowest_subscriber();
            }
            Message::ShowCommands(lines) => self.take_lines(&lines),
            Message::Wake {
                waiter,
                awaited,
                key,
                place,
                served,
            } => self.wake((waiter, awaited), (&key, place), served),
            Message::KeepScript(script) => {
                self.scripts.own(&script);
                self.note_scripts();
            }
            Message::Changed(changes) => self.tracking.due.push_back(Due::Keys(changes, 0)),
            Message::ForgetTracked => self.tracking.due.push_back(Due::All),
            Message::Redirected(pushed) => {
                let Redirected {
                    client,
                    body,
                    core,
                    from,
                } = *pushed;
                self.redirect(client, &body, (core, from));
            }
            Message::RedirectionBroken { from, client } => self.break_redirection(from, client),
            Message::Question(question) => self.answer(question),
        }
    }

    /// Answers a question of a command.
    fn answer(&mut self, question: Question) {
        match question {
            Question::Failures(answers) => answers.put(self.failures.clone()),
            Question::ResetFigures(answers) => {
                self.failures.clear();
                self.counters().longest_turn_steps.set(0);
                answers.put(());
            }
            Question::StartPurge(answers) => {
                self.trim = Some(Trim::Wanted(None));
                answers.put(());
            }
            Question::IsTrimming(answers) => answers.put(self.trim.is_some()),
            Question::SlowCommands {
                before,
                count,
                answers,
            } => answers.put((self.place, self.slow.page(before, count))),
            Question::SlowCount(answers) => answers.put(self.slow.len()),
            Question::ClearSlow(answers) => {
                self.slow.clear();
                answers.put(());
            }
            Question::TopicNames {
                topic,
                before,
                pattern,
                answers,
            } => {
                let subscriptions = &self.subscriptions;
                let page = subscriptions.page(topic, before.as_deref(), pattern.as_deref());
                answers.put((self.place, page));
            }
            Question::SubscriberCounts {
                topic,
                names,
                places,
                answers,
            } => answers.put(self.subscriptions.counts(topic, names.some(places))),
            Question::DescribeClients {
                start,
                filter,
                answers,
            } => answers.put(self.describe_clients(start, &filter)),
            Question::KillClients {
                start,
                filter,
                answers,
            } => answers.put(self.kill_clients(start, &filter)),
            Question::FindScript(sha, answers) => {
                answers.put(self.scripts.find(&sha).cloned());
            }
            Question::HaveScripts { wanted, answers } => {
                let has = |sha: &String| self.scripts.find(sha).is_some();
                answers.put(wanted.iter().map(has).collect());
            }
            Question::ForgetScripts(answers) => {
                self.scripts.forget();
                self.note_scripts();
                answers.put(());
            }
            Question::KillScripts(answers) => answers.put(self.kill_scripts()),
            Question::UnblockClient {
                start,
                client,
                end,
                answers,
            } => answers.put(self.unblock_client(start, client, end)),
            Question::MoveWaits { start, answers } => answers.put(self.move_waits(start)),
            question => self.answer_of_users(question),
        }
    }

    /// Answers a question about users, or about clients that cache keys.
    fn answer_of_users(&mut self, question: Question) {
        match question {
            Question::RenewUsers(answers) => {
                self.users.renew(&self.shared.users);
                answers.put(());
            }
            Question::Denials(count, answers) => answers.put(self.denials.newest(count)),
            Question::FindTarget(client, answers) => answers.put(self.find_target(client)),
            Question::ClearDenials(answers) => {
                self.denials.clear();
                answers.put(());
            }
            other => debug_assert!(false, "it is answered elsewhere: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_turn_receives_some_messages_and_none_that_came_within_it() {
        on_first_core(1, |bench| async move {
            let (mut serving, port) = (bench.serving(0), &bench.shared.cores[0]);
            let all = 3 * MESSAGES_A_TURN;
            (0..all).for_each(|_| port.send(Message::EndOverdueNative));
            assert!(serving.receive_messages(port.message_count()));
            assert_eq!(port.message_count(), all - MESSAGES_A_TURN);
            // As if others had come since they were counted.
            assert!(serving.receive_messages(5));
            assert_eq!(port.message_count(), all - MESSAGES_A_TURN - 5);
            assert!(!serving.receive_messages(0));
        });
    }
}
