//! Messages of the server.

use farcore_protocol::{
    Flags, HEADER_BYTES, Header, Kind, Status, TRANSFER_SLOT_BYTES, TRANSFER_SLOT_BYTES_MAX,
};
use farcore_rdma::{LocalSlice, RemoteKey, RemoteSlice, Work};

use super::{Purpose, Session, SessionError};
use crate::command::Reply;
use crate::figures::Counters;
use crate::flights::Stage;

impl Session {
    /// Takes a message.
    pub(super) fn receive(
        &mut self,
        number: u16,
        bytes: usize,
        immediate: Option<u32>,
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let mut message = std::mem::take(&mut self.message);
        let taken = match immediate {
            Some(word) => self.landed(word, bytes, &mut message),
            None => {
                self.messages.read(number, bytes, &mut message);
                Ok(())
            }
        };
        self.post_receive(number, counters)?;
        taken?;
        let header = Header::decode(&message)?;
        self.credits.received(header.credits)?;
        self.credits.posted();
        let done = match header.kind {
            Kind::Noop if !header.is_answer => Ok(()),
            _ if !header.is_answer => Err(SessionError::Violation("a message that is no answer")),
            _ => self.answer(&header, &message, immediate.is_some(), counters),
        };
        self.message = message;
        done
    }

    /// Copies a message out of the landing buffer that it was written to.
    fn landed(
        &mut self,
        word: u32,
        bytes: usize,
        message: &mut Vec<u8>,
    ) -> Result<(), SessionError> {
        let number = u16::try_from(word).ok();
        let buffer = number.and_then(|number| self.landings.get(number));
        let buffer = buffer.ok_or(SessionError::Violation("an unknown landing buffer"))?;
        message.clear();
        self.landings.read_to(buffer, (0, bytes), message);
        Ok(())
    }

    fn answer(
        &mut self,
        header: &Header,
        message: &[u8],
        landed: bool,
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let id = header.id;
        let Some(flight) = self.flights.get(id) else {
            return Err(SessionError::Violation("an answer to no request"));
        };
        if header.kind != flight.kind || flight.stage != Stage::Sent {
            return Err(SessionError::Violation("an answer of another kind"));
        }
        if header.flags.has(Flags::LENT) {
            let least = TRANSFER_SLOT_BYTES_MAX - HEADER_BYTES;
            if header.value_bytes as usize > least || message.len() != HEADER_BYTES {
                return Err(SessionError::Violation("a lent value that is too long"));
            }
            flight.stage = Stage::Reading;
            flight.answer = Some(*header);
            self.waiting_reads.push_back(id);
            return self.start_reads(counters);
        }
        let (_, value) = header.body(message)?;
        counters.landings.add(u64::from(landed));
        if header.flags.has(Flags::MORE) {
            return self.took_part(id);
        }
        if header.kind == Kind::Get {
            return self.found(id, header, value);
        }
        let reply = Reply {
            header: *header,
            value: value.to_vec(),
        };
        if header.kind == Kind::Grow {
            self.flights.remove(id);
            return self.grown(&reply);
        }
        self.finish(id, reply);
        Ok(())
    }

    /// The server has taken a part of a value.
    fn took_part(&mut self, id: u32) -> Result<(), SessionError> {
        let Some(flight) = self.flights.get(id) else {
            return Ok(());
        };
        let Some(upload) = flight.uploads.pop_front() else {
            return Err(SessionError::Violation("an answer to no part"));
        };
        self.uploads.free(upload);
        Ok(())
    }

    /// A get has found a value, or a part of it.
    fn found(&mut self, id: u32, header: &Header, value: &[u8]) -> Result<(), SessionError> {
        let is_found = header.status == Status::Ok;
        let Some(command) = self.flights.get(id).and_then(|one| one.command.as_mut()) else {
            self.drop_flight(id);
            return Ok(());
        };
        if is_found {
            if command.found.is_empty() {
                command.total = header.argument.max(value.len() as u64);
                command.header.version = header.version;
            }
            command.found.extend_from_slice(value);
            if (command.found.len() as u64) < command.total {
                if value.is_empty() {
                    return Err(SessionError::Violation("a part of a value without bytes"));
                }
                self.again(id);
                return Ok(());
            }
        } else if command.header.version != 0 {
            // It was replaced or removed while its parts came: from the begin.
            command.found.clear();
            command.header.version = 0;
            self.again(id);
            return Ok(());
        }
        let reply = Reply {
            header: *header,
            value: if is_found { Vec::new() } else { value.to_vec() },
        };
        self.finish(id, reply);
        Ok(())
    }

    /// Has the command of a request sent again, for the rest.
    fn again(&mut self, id: u32) {
        if let Some(flight) = self.flights.remove(id) {
            self.release(&flight);
            self.more.extend(flight.command);
        }
    }

    fn drop_flight(&mut self, id: u32) {
        if let Some(flight) = self.flights.remove(id) {
            self.release(&flight);
        }
    }

    /// Reads lent values, as far as there are buffers.
    pub(super) fn start_reads(&mut self, counters: &Counters) -> Result<(), SessionError> {
        while let Some(&id) = self.waiting_reads.front() {
            let answer = self.flights.get(id).and_then(|flight| flight.answer);
            let Some(answer) = answer else {
                self.waiting_reads.pop_front();
                continue;
            };
            let bytes = answer.value_bytes as usize;
            if bytes > self.reads.longest() {
                let (count, bytes) = if bytes <= TRANSFER_SLOT_BYTES {
                    (8, TRANSFER_SLOT_BYTES)
                } else {
                    (4, TRANSFER_SLOT_BYTES_MAX)
                };
                self.reads.add(&mut self.endpoint, (count, bytes), false)?;
            }
            let Some((number, buffer)) = self.reads.take(bytes) else {
                return Ok(());
            };
            self.waiting_reads.pop_front();
            let local: LocalSlice = self.reads.local(buffer, bytes);
            let remote = RemoteSlice {
                key: RemoteKey(answer.memory_key),
                offset: answer.offset,
            };
            let place = usize::from(number);
            if self.reading.len() <= place {
                self.reading.resize(place + 1, None);
            }
            self.reading[place] = Some(id);
            counters.reads.add(1);
            self.post(
                Purpose::Read(number),
                Work::Read { local, remote },
                counters,
            )?;
        }
        Ok(())
    }

    /// A lent value was read: its slot goes back.
    pub(super) fn was_read(
        &mut self,
        number: u16,
        counters: &Counters,
    ) -> Result<(), SessionError> {
        let id = self
            .reading
            .get_mut(usize::from(number))
            .and_then(Option::take);
        let buffer = self.reads.get(number);
        let (Some(id), Some(buffer)) = (id, buffer) else {
            return Err(SessionError::Violation("a READ of no value"));
        };
        let Some(answer) = self.flights.get(id).and_then(|flight| flight.answer.take()) else {
            return Err(SessionError::Violation("a READ of no request"));
        };
        self.done.push(answer.slot);
        let mut value = std::mem::take(&mut self.value);
        value.clear();
        let bytes = answer.value_bytes as usize;
        self.reads.read_to(buffer, (0, bytes), &mut value);
        self.reads.free(number);
        let header = Header {
            flags: Flags::NONE,
            ..answer
        };
        let done = if header.kind == Kind::Get {
            self.found(id, &header, &value)
        } else {
            self.finish(
                id,
                Reply {
                    header,
                    value: value.clone(),
                },
            );
            Ok(())
        };
        self.value = value;
        done?;
        self.start_reads(counters)
    }
}
