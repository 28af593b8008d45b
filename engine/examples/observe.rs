//! Watches an engine: statistics, a report over a socket, OpenMetrics over HTTP, and a trace of the
//! requests.
//!
//! `cargo run -p farcore --features http --example observe`

use std::error::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use farcore::statistics::{Exposition, HttpServer, StatisticsSocket, read_report};
use farcore::{Config, Engine, Recorder, Reporter};

const KEYS: u64 = 1_000;

/// Stores and reads every key; the handle's requests go to the trace.
fn work(engine: &Engine, recorder: &Recorder) -> Result<(), farcore::Error> {
    let mut handle = engine.handle()?;
    handle.record(recorder);
    for number in 0..KEYS {
        let key = format!("key-{number}");
        handle.put(key.as_bytes(), &number.to_le_bytes()).wait()?;
    }
    for number in 0..KEYS {
        let key = format!("key-{number}");
        let value = handle.get(key.as_bytes()).wait()?.expect("just stored");
        assert_eq!(&*value, number.to_le_bytes());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("farcore-observe-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: KEYS,
        prefault: false,
        ..Config::default()
    })?;
    let reporter = Arc::new(engine.reporter());
    // Both serve until they are dropped, each by a thread of its own.
    let socket = StatisticsSocket::bind(folder.join("engine.sock"), Arc::clone(&reporter) as _)?;
    let exposition = Arc::new(Exposition::new(Arc::clone(&reporter) as _));
    let server = HttpServer::bind(([127, 0, 0, 1], 0).into(), exposition)?;

    // A trace in the CSV format of Twitter's caches: `farcore-bench trace` replays it.
    let trace = folder.join("trace.csv");
    let recorder = Recorder::start(File::create(&trace)?)?;
    let before = reporter.report();
    work(&engine, &recorder)?;
    let recording = recorder.finish()?;
    assert_eq!(recording.recorded + recording.dropped, 2 * KEYS);
    let lines = std::fs::read_to_string(&trace)?.lines().count();
    assert_eq!(lines as u64, recording.recorded);

    // Totals of all shards.
    let stats = engine.stats();
    assert_eq!((stats.total.puts, stats.total.gets), (KEYS, KEYS));
    assert_eq!(stats.total.lost_keys, 0); // watch this one where memory nodes may fail
    println!(
        "{} of {} bytes far",
        stats.far_used_bytes, stats.far_total_bytes
    );

    // Figures by core, with latencies and hot keys, and what changed since.
    let report = reporter.report().since(&before);
    println!("median of a call: {} ns", report.handles.quantile(0.5));
    // From another process: `farcore top PATH`, or
    assert_eq!(read_report(socket.path())?.total().puts, KEYS);

    // Prometheus reads this.
    let mut stream = TcpStream::connect(server.address())?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    assert!(
        text.contains("farcore_lost_keys") && text.trim_end().ends_with("# EOF"),
        "{text}"
    );
    drop((server, socket));
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
