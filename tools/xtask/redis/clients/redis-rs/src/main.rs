//! redis-rs: HOST PORT CUT_PORT MODE

use std::error::Error;
use std::io::Read;
use std::net::TcpStream;

use redis::{Client, Commands, TypedCommands};

const COUNT: usize = 1000;
const VERSION: &str = "1.8.1";

fn check(holds: bool, what: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(what.into()) }
}

/// Has the proxy cut all connections.
fn cut(host: &str, port: u16) -> std::io::Result<()> {
    TcpStream::connect((host, port))?.read_exact(&mut [0; 4])
}

fn full(client: &Client, host: &str, cut_port: u16) -> Result<(), Box<dyn Error>> {
    let mut connection = client.get_connection()?;
    TypedCommands::set(&mut connection, "farcore:rs", "value")?;
    let value = TypedCommands::get(&mut connection, "farcore:rs")?;
    check(value.as_deref() == Some("value"), "GET")?;
    let mut pipeline = redis::pipe();
    for i in 0..COUNT {
        pipeline.set(format!("farcore:rs:{i}"), i).ignore();
        pipeline.get(format!("farcore:rs:{i}"));
    }
    let values: Vec<usize> = pipeline.query(&mut connection)?;
    check(values.into_iter().eq(0..COUNT), "the pipeline")?;
    cut(host, cut_port)?;
    let lost: redis::RedisResult<Option<usize>> = Commands::get(&mut connection, "farcore:rs:1");
    check(lost.is_err(), "a cut connection still answers")?;
    check(!redis::ConnectionLike::is_open(&connection), "a cut connection is open")?;
    let mut connection = client.get_connection()?;
    let value: usize = Commands::get(&mut connection, "farcore:rs:999")?;
    check(value == 999, "GET after the cut")
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [host, port, cut_port, mode] = &arguments[..] else {
        return Err("HOST PORT CUT_PORT MODE".into());
    };
    let client = Client::open(format!("redis://{host}:{port}"))?;
    redis::cmd("PING").exec(&mut client.get_connection()?)?;
    if mode == "full" {
        full(&client, host, cut_port.parse()?)?;
        let url = format!("redis://{host}:{port}?protocol=resp3");
        let third = Client::open(url)?;
        let value: usize = Commands::get(&mut third.get_connection()?, "farcore:rs:1")?;
        check(value == 1, "GET with RESP3")?;
    }
    println!("redis-rs {VERSION}: connect, set, get, pipeline of 2000, reopen, RESP2 and RESP3");
    Ok(())
}
