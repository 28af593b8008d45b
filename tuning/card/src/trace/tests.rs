use super::*;
use crate::workload::{Workload, WorkloadSettings};

fn read(text: &str) -> Result<Recording, TraceError> {
    Recording::read(text.as_bytes(), TraceLimits::default())
}

fn error(lines: &str) -> String {
    read(&format!("{HEADING}\n{lines}"))
        .unwrap_err()
        .to_string()
}

#[test]
fn the_example_of_the_header_is_read() {
    let text = "farcore-card-trace 1\n# a comment\n\
        token 0407000022000100 0006000000000000\n\
        0 relaxed 04070000 02000003 03000000\n125 read 04070000\n";
    let recording = read(text).unwrap();
    // Regions come before completion queues and these before queue pairs.
    let bits: Vec<u32> = recording.handles().iter().map(|one| one.bits()).collect();
    assert_eq!(bits, [0x0200_0003, 0x0300_0000, 0x0407_0000]);
    assert!(recording.tokens()[2].is_some() && recording.tokens()[0].is_none());
    let [first, second] = recording.messages() else {
        panic!("two messages");
    };
    assert_eq!(
        (first.keys(), first.operation),
        (&[2, 0, 1][..], Operation::Relaxed)
    );
    assert_eq!((second.keys(), second.time_ns), (&[2][..], 125));
}

#[test]
fn what_is_written_is_read_back() {
    let settings = WorkloadSettings::default();
    let mut workload = Workload::drawn(&settings).unwrap();
    let messages = (0..1_000).map(|time_ns| {
        let mut message = workload.next_message().unwrap();
        message.time_ns = time_ns;
        message
    });
    let recording = Recording::of(&settings.population.tokens(), messages);
    let mut text = Vec::new();
    recording.write(&mut text).unwrap();
    assert_eq!(
        read(std::str::from_utf8(&text).unwrap()).unwrap(),
        recording
    );
    let limits = TraceLimits {
        messages: 10,
        ..TraceLimits::default()
    };
    let first = Recording::read(&text[..], limits).unwrap();
    assert_eq!(first.messages(), &recording.messages()[..10]);
    let few = TraceLimits {
        handles: 10,
        ..TraceLimits::default()
    };
    let error = Recording::read(&text[..], few).unwrap_err().to_string();
    assert!(error.contains("more than 10 handles"), "{error}");
}

#[test]
fn errors_name_the_line_and_what_is_expected() {
    for (lines, message) in [
        ("5 read", "line 2: a message has 1 to 4 handles"),
        ("5 grab 04000000", "`grab` is no operation"),
        ("5 read 4000000", "8 hexadecimal digits"),
        ("5 read 05000000", "01 to 04"),
        ("5 read +4000000", "8 hexadecimal digits"),
        ("-5 read 04000000", "nanoseconds as a whole number"),
        (
            "5 read 04000000\n4 read 04000000",
            "line 3: the time 4 is before 5",
        ),
        ("token 04 05", "16 hexadecimal digits"),
        (
            "token 0907000022000100 0006000000000000",
            "not of this kind",
        ),
        (
            "5 read 04000000 04000000 04000000 04000000 04000000",
            "this has 5",
        ),
        (&"#".repeat(300), "longer than 256 bytes"),
    ] {
        let error = error(lines);
        assert!(error.contains(message), "{lines}: {error}");
    }
    assert!(read("").is_err() && read("something else\n").is_err());
    let text = [HEADING.as_bytes(), b"\n\xff\xfe\n"].concat();
    assert!(Recording::read(&text[..], TraceLimits::default()).is_err());
}

#[test]
fn any_text_is_a_recording_or_refused() {
    let example = "# a comment\ntoken 0407000022000100 0006000000000000\n\
        0 relaxed 04070000 02000003 03000000\n125 read 04070000\n";
    farcore_fuzz::Target::new("card trace")
        .seed(format!("{HEADING}\n{example}"))
        .words(&[
            "token ",
            "read ",
            "strict ",
            "relaxed ",
            "\n",
            "#",
            "04070000",
            "0407000022000100",
        ])
        .memory(1 << 20, 256)
        .run(|text| {
            if let Ok(recording) = Recording::read(text, TraceLimits::default()) {
                let mut written = Vec::new();
                recording.write(&mut written).unwrap();
                let again = Recording::read(&written[..], TraceLimits::default());
                assert_eq!(again.unwrap(), recording);
            }
        });
}
