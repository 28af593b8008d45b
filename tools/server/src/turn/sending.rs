//! How the replies of a core's connections are sent.
//!
//! - I1: what a connection holds is settled after each receive and each send.

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, send, sendmsg};

use crate::conn::connection::{Connection, share_of};
use crate::conn::sockets::{Interest, SEND_FLAGS};
use crate::limits::SPARE_BYTES_MAX;
use crate::serving::Serving;

/// Output from which it is sent though more is to come.
const OUTPUT_BYTES_EAGER: usize = 16 << 10;
/// Turns for which output waits for replies that are under way.
const HELD_TURNS_MAX: u8 = 3;
/// Empty buffers that a core keeps for the next reply.
const SPARE_BUFFERS: usize = 64;
/// Bytes of a reply that shows, once it is taken, that its client reads.
const LONG_REPLY_BYTES: usize = 64 << 10;

impl Connection {
    /// True if no request waits behind another one.
    fn requests_at_most_one(&self) -> bool {
        let under_way = self.pending.len().max(usize::from(self.is_blocked));
        under_way + usize::from(self.parsed < self.input.len()) <= 1
    }

    /// Notes that the client has taken all that was written for it.
    fn end_reply(&mut self) {
        if self.is_blocked {
            // More of the reply may come.
            return;
        }
        if self.taken_bytes >= LONG_REPLY_BYTES {
            self.account.note_read();
        }
        self.taken_bytes = 0;
    }

    /// Sends output; returns how many bytes, and by how many calls. Of an encrypted one at most
    /// `sealed_max` are sealed at once.
    fn transmit(&mut self, sealed_max: usize) -> Result<(usize, u64), Errno> {
        if self.tls.is_some() {
            return self.transmit_sealed(sealed_max);
        }
        let sent = if self.output.is_one_piece() {
            send(&self.socket, self.output.next(), SEND_FLAGS)?
        } else {
            let socket = &self.socket;
            self.output.pieces(|pieces| {
                let mut control = SendAncillaryBuffer::default();
                sendmsg(socket, pieces, &mut control, SEND_FLAGS)
            })?
        };
        self.output.sent(sent);
        Ok((sent, 1))
    }
}

impl Serving {
    /// Sends what is due. True if anything was sent.
    pub(crate) fn send_all(&mut self) -> bool {
        let mut dirty = std::mem::take(&mut self.dirty);
        let mut is_busy = false;
        for number in dirty.drain(..) {
            let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take)
            else {
                continue;
            };
            connection.is_dirty = false;
            if !connection.is_gone {
                is_busy |= self.send_one(number, &mut connection);
            }
            let may_end = connection.is_closing
                && connection.waiting_bytes() == 0
                && connection.pending.is_empty()
                && !connection.is_blocked;
            connection.is_gone |= may_end;
            self.account(&mut connection);
            self.put_back(number, connection);
        }
        // What became dirty meanwhile comes first.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
        self.keep_to_memory();
        is_busy
    }

    fn send_one(&mut self, number: usize, connection: &mut Connection) -> bool {
        if connection.script.is_some() {
            // What is there are replies to the script.
            if !connection.is_blocked {
                self.list(number, connection);
            }
            return false;
        }
        let is_waiting = !connection.pending.is_empty() || connection.is_executing();
        let is_early = is_waiting
            && connection.waiting_bytes() < OUTPUT_BYTES_EAGER
            && connection.held_turns < HELD_TURNS_MAX;
        if connection.waiting_bytes() > 0 && is_early {
            connection.held_turns += 1;
            self.note_dirty(number, connection);
            return false;
        }
        connection.held_turns = 0;
        let mut has_sent = false;
        if connection.waiting_bytes() > 0 {
            let sealed_max = share_of(self.memory.server().free());
            match connection.transmit(sealed_max) {
                Ok((count, calls)) => {
                    let counters = &self.shared.counters[self.place];
                    counters.sends.add(calls);
                    counters.sent_bytes.add(count as u64);
                    connection.taken_bytes = connection.taken_bytes.saturating_add(count);
                    // One whose client never takes all of it would grow without end.
                    connection.output.compact();
                    connection.unread_since_ms = self.now_ms;
                    has_sent = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => {
                    if connection.unread_since_ms == 0 {
                        connection.unread_since_ms = self.now_ms;
                    }
                }
                Err(_) => {
                    connection.is_gone = true;
                    return true;
                }
            }
        }
        if connection.waiting_bytes() == 0 {
            connection.output.clear();
            connection.unread_since_ms = 0;
            if !is_waiting {
                connection.end_reply();
                self.release_buffers(connection);
            }
        }
        self.watch(number, connection);
        if connection.may_go_on() || connection.may_execute(false) {
            self.list(number, connection);
        }
        has_sent
    }

    /// Takes the buffers of a connection that needs none now.
    fn release_buffers(&mut self, connection: &mut Connection) {
        let output = connection.output.take_buffer();
        if output.capacity() > 0
            && output.capacity() <= SPARE_BYTES_MAX
            && self.spare_buffers.len() < SPARE_BUFFERS
        {
            self.spare_buffers.push(output);
        }
        connection.release_buffers();
    }

    /// True if more than half of the memory for clients is taken.
    pub(crate) fn is_short(&self) -> bool {
        let memory = self.memory.server();
        memory.taken() > memory.limit() / 2
    }

    /// Gives a connection its share, and an empty buffer for its replies.
    #[inline]
    pub(crate) fn lend_buffer(&mut self, connection: &mut Connection) {
        connection.share_bytes = share_of(self.memory.server().free());
        if connection.output.has_no_buffer()
            && connection.stay.is_none()
            && let Some(buffer) = self.spare_buffers.pop()
        {
            connection.output.lend(buffer);
        }
    }

    /// Watches a socket for what the connection can do.
    pub(crate) fn watch(&self, number: usize, connection: &mut Connection) {
        if connection.is_orphan {
            return;
        }
        let is_kept = !connection.is_handed_over && !self.shared.is_stopping();
        let input = is_kept && connection.waits_for_input();
        let wanted = Interest {
            input,
            room: connection.waiting_bytes() > 0,
            // One that waits for keys behind enough input shows only so that its client is gone.
            // Else an element would be taken for it.
            // The same is true of one that another thread serves.
            end: !input && (connection.parked.is_some() || connection.is_handed_over),
        };
        if connection.interest != wanted {
            let is_paused = connection.interest.input && !wanted.input;
            if is_paused && !connection.is_closing {
                self.counters().pauses.add(1);
            }
            connection.interest = wanted;
            self.sockets
                .change(&connection.socket, number as u64, wanted);
        }
    }

    /// Watches a socket no more for what comes: the server stops.
    #[cold]
    pub(crate) fn ignore_input(&self, number: usize, connection: &mut Connection) {
        let wanted = Interest {
            input: false,
            ..connection.interest
        };
        if connection.interest != wanted {
            connection.interest = wanted;
            self.sockets
                .change(&connection.socket, number as u64, wanted);
        }
    }

    /// Settles what a connection's buffers take. One that is removed has the subscriptions that
    /// have not ended yet: until then others get no memory for theirs.
    pub(crate) fn account(&mut self, connection: &mut Connection) {
        let bytes = if connection.is_removed {
            connection.subscription_bytes()
        } else {
            connection.buffer_bytes()
        };
        let is_patient = connection.requests_at_most_one();
        connection.account.note_patience(is_patient);
        let before = &mut connection.settled_bytes;
        connection.account.settle(before, bytes);
        if let Some(stay) = &mut connection.stay {
            self.account_unauthenticated(stay, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::by_hand::on_first_core;

    #[test]
    fn few_empty_buffers_for_replies_are_kept() {
        on_first_core(1, |bench| async move {
            let mut serving = bench.serving(0);
            let clients: Vec<_> = (0..90).map(|_| bench.connect(&mut serving)).collect();
            for &(_, number) in &clients {
                let mut connection = serving.connections[number].take().expect("it is served");
                // A longer one is not kept.
                let bytes = if number == 0 { 100_000 } else { 10 };
                connection.reply(|writer| writer.bulk(&vec![b'r'; bytes]));
                serving.note_dirty(number, &mut connection);
                serving.connections[number] = Some(connection);
            }
            assert!(serving.send_all());
            let kept = &serving.spare_buffers;
            assert_eq!(kept.len(), 64);
            assert!(kept.iter().all(|buffer| buffer.capacity() <= 16 << 10));
        });
    }
}
