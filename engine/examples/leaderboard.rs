//! A leaderboard: a scored map, whose members are players.
//!
//! `cargo run -p farcore --example leaderboard`

use farcore::{
    Config, Engine, Error, Handle, TreeScore, TreeScoreMade, TreeScoreRange, TreeScoreRule,
};

/// All players, in the order of their scores.
const ALL: TreeScoreRange<'static> = TreeScoreRange::Ranks { first: 0, last: -1 };

/// Gives a player a score, or adds it to the one before; returns the score then.
fn score(handle: &mut Handle, player: &str, points: f64, adds: bool) -> Result<f64, Error> {
    let change = TreeScore {
        member: player.as_bytes(),
        score: Some(points),
        value: b"",
    };
    let rule = TreeScoreRule {
        adds,
        ..TreeScoreRule::default()
    };
    let scored = handle.tree(b"board").score(&[change], rule).wait()?;
    match scored.last {
        TreeScoreMade::Score(score) => Ok(score),
        TreeScoreMade::Unmet | TreeScoreMade::NoNumber => unreachable!("any number is taken"),
    }
}

fn main() -> Result<(), Error> {
    let engine = Engine::open(Config {
        cores: Config::default().cores.into_iter().take(1).collect(),
        local_bytes: 32 << 20,
        far_bytes: 64 << 20,
        keys_expected: 10_000,
        prefault: false,
        ..Config::default()
    })?;
    let mut handle = engine.handle()?;
    for number in 0..20_000u32 {
        let points = f64::from(number.wrapping_mul(2_654_435_761) % 100_000);
        score(&mut handle, &format!("player-{number:05}"), points, false)?;
    }
    score(&mut handle, "player-00042", 1_000_000.0, false)?;
    let best = score(&mut handle, "player-00042", 5.0, true)?;

    let mut board = handle.tree(b"board");
    let length = board.len().wait()?;
    assert_eq!(length.elements, 20_000);
    println!("{} players, {} bytes", length.elements, length.bytes);

    let first = board.score_range(ALL, true, 0, 3).wait()?;
    for (rank, (player, score, _)) in first.scored().enumerate() {
        let player = std::str::from_utf8(player).expect("a name is text");
        println!("{}. {player} {score}", rank + 1);
    }
    let (player, score, _) = first.scored().next().expect("there are players");
    assert_eq!((player, score), (&b"player-00042"[..], best));

    // Where a player stands, and who is next to him.
    let place = board.score_rank(b"player-00042", true).wait()?;
    let place = place.expect("he has a score");
    assert_eq!((place.rank, place.score), (0, best));
    let around = board.score_range(ALL, true, place.rank, 2).wait()?;
    assert_eq!(around.scored().count(), 2);

    // Those with the least scores leave.
    let left = board.pop_first(10).wait()?;
    assert_eq!(left.scored().count(), 10);
    assert_eq!(board.len().wait()?.elements, 19_990);
    Ok(())
}
