//! The read of a structured record whose reply is too long to be made with its answer.
//!
//! The record is read again once there is memory for it and its reply, and the reply is sent as the
//! client takes it.

use farcore::{Answer, Core};

use crate::long::copy::{ValueUse, hold_value, send_chunks};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::types::replies::{ReplyKind, error_text, write_answer};
use crate::types::search::Search;

/// What is replied of a record.
#[derive(Debug)]
pub(crate) enum RecordReply {
    Kind(ReplyKind),
    Search(Search),
}

impl RecordReply {
    /// Bytes of the reply, at most.
    fn bytes_max(&self, answer: &Answer<'_>) -> usize {
        let record = answer.value().len();
        match self {
            // Each element takes two bytes of the record at least, and six of a reply beside its
            // own and the digits of its length, which are fewer than a tenth of it and one.
            Self::Kind(_) => 5 * record,
            Self::Search(search) => search.bytes_max(answer),
        }
    }

    fn write(&self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        match self {
            Self::Kind(kind) => write_answer(*kind, answer, writer),
            Self::Search(search) => search.write(answer, writer),
        }
    }
}

/// A record to read.
#[derive(Debug)]
pub(crate) struct RecordRead {
    pub(crate) key: Vec<u8>,
    pub(crate) reply: RecordReply,
}

impl RecordRead {
    /// Reads the record and writes the reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        let mut held = match hold_value(core, output, &self.key, ValueUse::Read).await {
            Ok(held) => held,
            Err(shortage) => return output.refuse(protocol, &shortage),
        };
        // To read it and to make the reply takes long.
        if output.is_gone() {
            return;
        }
        let mut reply = Vec::new();
        let result = core.get_structured(&self.key).await;
        let answer = match &result {
            Ok(Some(value)) => Answer::Value {
                version: value.version(),
                value,
            },
            Ok(None) => Answer::Absent,
            Err(error) => {
                return output.write(|bytes| {
                    Writer::new(bytes, protocol).error(&error_text(error));
                });
            }
        };
        // It is walked for the length of the reply, and to write it.
        steps::count_walked(2 * answer.value().len());
        let bytes = self.reply.bytes_max(&answer);
        if let Err(shortage) = held.grow_to(held.bytes() + bytes) {
            return output.refuse(protocol, &shortage);
        }
        self.reply
            .write(&answer, &mut Writer::new(&mut reply, protocol));
        steps::count_copied(reply.len());
        held.shrink_to(reply.capacity());
        send_chunks(core, output, &reply).await;
    }
}
