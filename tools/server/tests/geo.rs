//! Places of a whole server: how they are stored, and searches. Replies to random commands are
//! those of Redis 7.0.15, where that is installed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use self::support::compared::{arguments, compare, pick};
use self::support::words::{WRONG_TYPE, expect};
use self::support::{Random, Served, on_servers};

#[test]
fn places_are_added_found_and_stored() {
    on_servers(|server| {
        let mut client = server.word_client();
        expect(
            &mut client,
            &[
                (
                    "geoadd g 13.361389 38.115556 palermo 15.087269 37.502669 catania",
                    "2",
                ),
                ("geoadd g nx 1 1 palermo", "0"),
                ("geoadd g ch 13.361389 38.115557 palermo", "0"),
                ("zscore g palermo", "\"3479099956230698\""),
                ("geodist g palermo catania", "\"166274.1516\""),
                ("geodist g palermo catania km", "\"166.2742\""),
                ("geodist g palermo none", "nil"),
                ("geohash g palermo none", "[\"sqc8b49rny0\", nil]"),
                (
                    "geopos g none catania",
                    "[nil, [\"15.08726745843887329\", \"37.50266842333162032\"]]",
                ),
                ("georadius g 15 37 200 km asc", "[\"catania\", \"palermo\"]"),
                (
                    "georadius g 15 37 200 km withdist withhash desc",
                    "[[\"palermo\", \"190.4424\", 3479099956230698], [\"catania\", \"56.4413\", 3479447370796909]]",
                ),
                (
                    "geosearch g frommember catania byradius 100 mi",
                    "[\"catania\"]",
                ),
                (
                    "geosearch g fromlonlat 15 37 bybox 400 400 km count 1",
                    "[\"catania\"]",
                ),
                (
                    "geosearchstore t g fromlonlat 15 37 byradius 200 km storedist",
                    "2",
                ),
                ("zrange t 0 -1", "[\"catania\", \"palermo\"]"),
                ("geosearchstore t g fromlonlat 0 0 byradius 1 m", "0"),
                ("exists t", "0"),
                ("georadiusbymember g palermo 1 m store t", "1"),
                ("geosearch none frommember x byradius 1 m", "[]"),
                (
                    "geosearch g frommember x byradius 1 m",
                    "(error) ERR could not decode requested zset member",
                ),
                (
                    "geoadd g 200 1 x",
                    "(error) ERR invalid longitude,latitude pair 200.000000,1.000000",
                ),
                ("set s x", "OK"),
                ("geoadd s 1 1 x", WRONG_TYPE),
                ("geosearch s bad bad bad bad bad", WRONG_TYPE),
                ("geohash s", WRONG_TYPE),
            ],
        );
    });
}

#[test]
fn few_of_many_places_are_read() {
    let served = Served::roomy(1);
    let mut client = served.client();
    for number in 0..20_000 {
        let longitude = f64::from(number % 200) * 1.7 - 170.0;
        let latitude = f64::from(number / 200) * 1.6 - 80.0;
        client.send(&[
            "geoadd",
            "many",
            &longitude.to_string(),
            &latitude.to_string(),
            &number.to_string(),
        ]);
    }
    for _ in 0..20_000 {
        client.read().unwrap();
    }
    assert_eq!(client.say("CONFIG RESETSTAT"), "+OK");
    let found = client.say("georadius many 0 0 200 km");
    assert!(found.len() < 100, "{found}");
    let mut other = served.client();
    for _ in 0..3 {
        assert_eq!(other.say("PING"), "+PONG");
    }
    let steps = served.figures().longest_turn_steps;
    assert!(steps < 4_000, "{steps} steps: all places were looked at");
    let all = client.ask(&["georadius", "many", "0", "0", "30000", "km", "asc"]);
    assert_eq!(all.elements().len(), 20_000);
}

const KEYS: &[&str] = &["g1", "g2", "g2", "r1", "text", "none"];
const UNITS: &[&str] = &["m", "km", "km", "KM", "ft", "mi", "yd"];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "x",
    "1e400",
    "nan",
    "inf",
    "180",
    "-180",
    "85.05112878",
    "90",
    "0.0001",
    "1e3",
    "",
    "-0",
];

fn coordinate(random: &mut Random, most: f64) -> String {
    if random.below(40) == 0 {
        return pick(random, NUMBERS).to_owned();
    }
    let number = f64::from(u32::try_from(random.below(2_000_001)).unwrap()) - 1_000_000.0;
    (number * most / 1_000_000.0).to_string()
}

fn size(random: &mut Random) -> String {
    match random.below(30) {
        0 => pick(random, NUMBERS).to_owned(),
        1 => "0".to_owned(),
        _ => {
            let most = [10, 300, 3_000, 20_000][random.below(4)];
            format!("{}.{}", random.below(most), random.below(100))
        }
    }
}

fn unit(random: &mut Random) -> &'static str {
    let odd = random.below(30) == 0;
    pick(random, if odd { UNITS } else { &UNITS[..6] })
}

fn member(random: &mut Random) -> String {
    format!("m{}", random.below(150))
}

fn options(random: &mut Random, stores: bool) -> String {
    let mut line = String::new();
    // What is equally far may be in another order where some are left out.
    match random.below(4) {
        0 => line += &format!(" count {}", 1 + random.below(20)),
        1 if !stores => line += &format!(" count {} any", 1 + random.below(20)),
        _ => {}
    }
    if random.below(3) == 0 {
        line += pick(random, &[" asc", " desc", " ASC"]);
    }
    let with_any = [" withdist", " withcoord", " withhash"];
    for _ in 0..random.below(4) {
        if random.below(if stores { 20 } else { 2 }) == 0 {
            line += pick(random, &with_any);
        }
    }
    if random.below(40) == 0 {
        line += pick(
            random,
            &[
                " any",
                " count 0",
                " count x",
                " count",
                " bad",
                " storedist",
                " store",
                " frommember m1",
            ],
        );
    }
    line
}

fn shape(random: &mut Random) -> String {
    let centre = match random.below(3) {
        0 => format!(" frommember {}", member(random)),
        _ => format!(
            " fromlonlat {} {}",
            coordinate(random, 180.0),
            coordinate(random, 85.0)
        ),
    };
    let size = match random.below(2) {
        0 => format!(" byradius {} {}", size(random), unit(random)),
        _ => format!(" bybox {} {} {}", size(random), size(random), unit(random)),
    };
    match random.below(25) {
        0 => centre,
        1 => size,
        2 => format!("{centre}{size}{centre}"),
        3 => format!("{size}{centre} byradius 1 m"),
        _ => format!("{centre}{size}"),
    }
}

/// A search whose result is stored.
fn stored(random: &mut Random, key: &str) -> String {
    match random.below(3) {
        0 => format!(
            "geosearchstore r1 {key}{}{}",
            shape(random),
            options(random, true)
        ),
        1 => format!(
            "georadius {key} {} {} {} {}{} {} r1",
            coordinate(random, 180.0),
            coordinate(random, 85.0),
            size(random),
            unit(random),
            options(random, true),
            pick(random, &["store", "storedist"])
        ),
        _ => format!(
            "geosearchstore r1 {key}{}{} storedist",
            shape(random),
            options(random, true)
        ),
    }
}

fn draw(random: &mut Random, number: usize) -> Vec<Vec<u8>> {
    if number % 3_000 == 2_999 {
        return arguments(pick(random, &["del g1", "del g2"]));
    }
    let key = pick(random, KEYS);
    let line = match random.below(14) {
        0..=3 => {
            let options = pick(
                random,
                &["", "", "", " nx", " xx", " ch", " xx ch", " nx xx"],
            );
            let mut line = format!("geoadd {}{options}", pick(random, &KEYS[..3]));
            for _ in 0..=random.below(3) {
                let (longitude, latitude) = (coordinate(random, 180.0), coordinate(random, 85.05));
                line += &format!(" {longitude} {latitude} {}", member(random));
            }
            line
        }
        4 => format!(
            "geodist {key} {} {} {}",
            member(random),
            member(random),
            unit(random)
        ),
        5 => format!(
            "{} {key} {} {}",
            pick(random, &["geohash", "geopos"]),
            member(random),
            member(random)
        ),
        6 | 7 => format!(
            "{} {key} {} {} {} {}{}",
            pick(random, &["georadius", "georadius_ro"]),
            coordinate(random, 180.0),
            coordinate(random, 85.0),
            size(random),
            unit(random),
            options(random, false)
        ),
        8 | 9 => format!(
            "{} {key} {} {} {}{}",
            pick(random, &["georadiusbymember", "georadiusbymember_ro"]),
            member(random),
            size(random),
            unit(random),
            options(random, false)
        ),
        10 | 11 => format!("geosearch {key}{}{}", shape(random), options(random, false)),
        12 => stored(random, key),
        _ => match random.below(8) {
            0 => format!(
                "zadd g1 {} odd",
                pick(random, &["-1", "1e18", "inf", "-inf", "0.5", "7"])
            ),
            1 => "zrem g1 odd".to_owned(),
            2 => "geopos g1 odd".to_owned(),
            3 => "geohash g1 odd".to_owned(),
            _ => "zrange r1 0 -1 withscores".to_owned(),
        },
    };
    arguments(&line)
}

#[test]
fn replies_to_random_commands_are_those_of_redis() {
    compare(&["set text words"], draw);
}
