//! Messages of DNS: a question for the SRV records (RFC 2782) of a name, and what answers it.

use simple_dns::rdata::RData;
use simple_dns::{
    CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, ResourceRecord, TYPE,
    header_buffer,
};

/// Records of an answer, at most: 64 nodes with some addresses each. It bounds the memory that a
/// short answer takes, whose names may refer to one another.
const RECORDS_MAX: usize = 512;
/// Names that stand for another one in turn, at most.
const ALIASES_MAX: usize = 8;

/// Where a service is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Target {
    /// In small letters; as the record has it, so it may be no host's name.
    pub(super) host: String,
    pub(super) port: u16,
}

/// What a message is to one who has asked.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// The service is there; nowhere if there is no such name, or it has no such record.
    Targets(Vec<Target>),
    /// It is whole only over TCP.
    Truncated,
    /// The resolver has no answer.
    Failed(String),
    /// It answers another question, or is no message.
    Foreign,
}

/// A question for the SRV records of a name, under a number that only the resolver is to know.
///
/// # Errors
/// It is no name.
pub(super) fn question(number: u16, name: &str) -> Result<Vec<u8>, String> {
    let failed = |error: simple_dns::SimpleDnsError| format!("{name}: {error}");
    let mut packet = Packet::new_query(number);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(
        Name::new(name).map_err(failed)?,
        TYPE::SRV.into(),
        CLASS::IN.into(),
        false,
    ));
    packet.build_bytes_vec().map_err(failed)
}

/// The records of all parts of a message, as its header has them.
fn records(message: &[u8]) -> Option<usize> {
    let counts = [
        header_buffer::questions(message),
        header_buffer::answers(message),
        header_buffer::name_servers(message),
        header_buffer::additional_records(message),
    ];
    counts
        .into_iter()
        .map(|count| count.ok().map(usize::from))
        .sum()
}

/// Reads what came as an answer to the question of a number for a name.
pub(super) fn decode(message: &[u8], number: u16, name: &str) -> Reply {
    let has = |flag| header_buffer::has_flags(message, flag) == Ok(true);
    if header_buffer::id(message) != Ok(number) || !has(PacketFlag::RESPONSE) {
        return Reply::Foreign;
    }
    let Some(count) = records(message) else {
        return Reply::Foreign;
    };
    // What is cut need not be readable. Over TCP it is not cut.
    if has(PacketFlag::TRUNCATION) {
        return Reply::Truncated;
    }
    if count > RECORDS_MAX {
        return Reply::Failed(format!("it has {count} records: at most {RECORDS_MAX}"));
    }
    let (Ok(packet), Ok(name)) = (Packet::parse(message), Name::new(name)) else {
        return Reply::Foreign;
    };
    let [asked] = &packet.questions[..] else {
        return Reply::Foreign;
    };
    let is_ours = asked.qname == name
        && asked.qtype == QTYPE::TYPE(TYPE::SRV)
        && asked.qclass == QCLASS::CLASS(CLASS::IN);
    if !is_ours {
        return Reply::Foreign;
    }
    match packet.rcode() {
        RCODE::NoError => Reply::Targets(targets(&packet.answers, &name)),
        RCODE::NameError => Reply::Targets(Vec::new()),
        code => Reply::Failed(format!("it answers {code:?}")),
    }
}

/// The targets of the records of a name, or of what it stands for; sorted, each once.
fn targets(records: &[ResourceRecord<'_>], name: &Name<'_>) -> Vec<Target> {
    let of = |owner: &Name<'_>| {
        let owner = owner.clone().into_owned();
        let records = records.iter();
        records.filter(move |record| record.class == CLASS::IN && record.name == owner)
    };
    let mut owner = name.clone().into_owned();
    for _ in 0..ALIASES_MAX {
        let alias = of(&owner).find_map(|record| match &record.rdata {
            RData::CNAME(alias) => Some(alias.0.clone().into_owned()),
            _ => None,
        });
        match alias {
            Some(alias) => owner = alias,
            None => break,
        }
    }
    let target = |record: &ResourceRecord<'_>| match &record.rdata {
        // The root: the service is decidedly not there.
        RData::SRV(found) if found.target.get_labels().is_empty() => None,
        RData::SRV(found) => Some(Target {
            host: found.target.to_string().to_ascii_lowercase(),
            port: found.port,
        }),
        _ => None,
    };
    let mut found: Vec<_> = of(&owner).filter_map(target).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use simple_dns::rdata::{A, CNAME, SRV};

    use super::*;

    const NAME: &str = "_farcore._tcp.example.com";

    fn record<'a>(owner: &'a str, data: RData<'a>) -> ResourceRecord<'a> {
        ResourceRecord::new(Name::new(owner).unwrap(), CLASS::IN, 5, data)
    }

    fn srv<'a>(owner: &'a str, target: &'a str, port: u16) -> ResourceRecord<'a> {
        let target = Name::new(target).unwrap();
        let data = RData::SRV(SRV {
            priority: 1,
            weight: 2,
            port,
            target,
        });
        record(owner, data)
    }

    fn alias<'a>(owner: &'a str, of: &'a str) -> ResourceRecord<'a> {
        record(owner, RData::CNAME(CNAME(Name::new(of).unwrap())))
    }

    /// An answer to the question 7, changed.
    fn answer(change: impl FnOnce(&mut Packet<'_>)) -> Vec<u8> {
        let question = question(7, NAME).unwrap();
        let mut packet = Packet::parse(&question).unwrap().into_reply();
        packet.answers.push(srv(NAME, "Mem-1.example.com", 7400));
        change(&mut packet);
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn shown(reply: Reply) -> String {
        match reply {
            Reply::Targets(targets) => targets
                .iter()
                .map(|target| format!("{}:{}", target.host, target.port))
                .collect::<Vec<_>>()
                .join(" "),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn targets_are_sorted_and_those_of_other_names_left_out() {
        let message = answer(|packet| {
            packet
                .answers
                .push(srv("_FARCORE._tcp.example.com", "a.example.com", 1));
            packet.answers.push(srv(NAME, "mem-1.example.com", 7400));
            packet
                .answers
                .push(srv("_other._tcp.example.com", "b.example.com", 1));
            packet
                .answers
                .push(record(NAME, RData::A(A { address: 1 })));
            packet.answers.push(srv(NAME, ".", 1));
            packet
                .additional_records
                .push(srv(NAME, "c.example.com", 1));
        });
        let reply = decode(&message, 7, NAME);
        assert_eq!(shown(reply), "a.example.com:1 mem-1.example.com:7400");
    }

    #[test]
    fn aliases_are_followed_but_not_in_circles() {
        let message = answer(|packet| {
            packet.answers = vec![alias(NAME, "x.a"), srv("y.a", "n", 5), alias("x.a", "y.a")];
        });
        assert_eq!(shown(decode(&message, 7, NAME)), "n:5");
        let message = answer(|packet| {
            packet.answers = vec![alias(NAME, "x.a"), alias("x.a", NAME)];
        });
        assert_eq!(decode(&message, 7, NAME), Reply::Targets(Vec::new()));
    }

    #[test]
    fn answers_to_other_questions_are_foreign() {
        let right = answer(|_| ());
        assert_eq!(shown(decode(&right, 7, NAME)), "mem-1.example.com:7400");
        assert_eq!(decode(&right, 8, NAME), Reply::Foreign);
        assert_eq!(
            decode(&right, 7, "_farcore._tcp.example.org"),
            Reply::Foreign
        );
        assert_eq!(decode(&question(7, NAME).unwrap(), 7, NAME), Reply::Foreign);
        assert_eq!(decode(b"", 7, NAME), Reply::Foreign);
        assert_eq!(decode(&right[..right.len() - 1], 7, NAME), Reply::Foreign);
        let changes: [fn(&mut Packet<'_>); 4] = [
            |packet| packet.questions.clear(),
            |packet| packet.questions.push(packet.questions[0].clone()),
            |packet| packet.questions[0].qtype = TYPE::A.into(),
            |packet| packet.questions[0].qclass = CLASS::CH.into(),
        ];
        for change in changes {
            assert_eq!(decode(&answer(change), 7, NAME), Reply::Foreign);
        }
    }

    #[test]
    fn failures_cuts_and_absent_names_are_told_apart() {
        let refused = answer(|packet| *packet.rcode_mut() = RCODE::Refused);
        assert_eq!(
            decode(&refused, 7, NAME),
            Reply::Failed("it answers Refused".to_owned())
        );
        let absent = answer(|packet| *packet.rcode_mut() = RCODE::NameError);
        assert_eq!(decode(&absent, 7, NAME), Reply::Targets(Vec::new()));
        let mut cut = answer(|packet| packet.set_flags(PacketFlag::TRUNCATION));
        assert_eq!(decode(&cut, 7, NAME), Reply::Truncated);
        cut.truncate(20);
        assert_eq!(decode(&cut, 7, NAME), Reply::Truncated);
        // A header that promises more than it has takes no memory.
        let mut many = answer(|_| ());
        many[6..8].copy_from_slice(&u16::MAX.to_be_bytes());
        let reply = decode(&many, 7, NAME);
        assert!(
            matches!(&reply, Reply::Failed(text) if text.contains("at most 512")),
            "{reply:?}"
        );
    }

    #[test]
    fn any_message_is_read_or_foreign() {
        farcore_fuzz::Target::new("dns message")
            .seed(answer(|_| ()))
            .seed(answer(|packet| {
                packet.answers.push(alias(NAME, "x.a"));
                packet.answers.push(srv("x.a", ".", 1));
                packet
                    .additional_records
                    .push(record("x.a", RData::A(A { address: 1 })));
            }))
            .seed(answer(|packet| packet.set_flags(PacketFlag::TRUNCATION)))
            // Names that refer to one another: 128 labels for each record of 12 bytes.
            .memory(4 << 20, 1024)
            .run(|bytes| {
                let (Reply::Targets(found), Ok(number)) =
                    (decode(bytes, 7, NAME), header_buffer::id(bytes))
                else {
                    return;
                };
                assert_eq!(number, 7);
                assert!(found.is_sorted() && found.len() <= RECORDS_MAX);
                assert!(found.iter().all(|one| !one.host.is_empty()));
            });
    }
}
