//! A leaderboard: an ordered map of score and player, and one of each player's score.
//!
//! `cargo run -p farcore --example leaderboard`

use farcore::{Config, Engine, Error, Handle, TreeStored};

/// Greater scores come first, and players of one score in the order of their names.
fn place_of(score: u64, player: &str) -> Vec<u8> {
    [&(u64::MAX - score).to_be_bytes()[..], player.as_bytes()].concat()
}

fn score_of(place: &[u8]) -> (u64, &str) {
    let (score, player) = place.split_first_chunk().expect("a score comes first");
    let player = std::str::from_utf8(player).expect("a name is text");
    (u64::MAX - u64::from_be_bytes(*score), player)
}

fn set_score(handle: &mut Handle, player: &str, score: u64) -> Result<(), Error> {
    let new = score.to_be_bytes();
    let before = handle
        .tree(b"scores")
        .insert(player.as_bytes(), &new)
        .wait()?;
    let mut board = handle.tree(b"board");
    if let TreeStored::Replaced(old) = before {
        let old = u64::from_be_bytes(old.try_into().expect("a score has 8 bytes"));
        board.remove(&place_of(old, player)).wait()?;
    }
    let stored = board.insert(&place_of(score, player), b"").wait()?;
    assert_eq!(stored, TreeStored::Added);
    Ok(())
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
    for number in 0..20_000u64 {
        let score = number.wrapping_mul(2_654_435_761) % 100_000;
        set_score(&mut handle, &format!("player-{number:05}"), score)?;
    }
    set_score(&mut handle, "player-00042", 1_000_000)?;

    let mut board = handle.tree(b"board");
    let length = board.len().wait()?;
    assert_eq!(length.elements, 20_000);
    println!("{} players, {} bytes", length.elements, length.bytes);

    let best = board.range_by_rank(0, 3, false, 3).wait()?;
    for (rank, (place, _)) in best.iter().enumerate() {
        let (score, player) = score_of(place);
        println!("{}. {player} {score}", rank + 1);
    }
    assert_eq!(
        best.first().map(|(place, _)| score_of(place)),
        Some((1_000_000, "player-00042"))
    );

    // Where a player stands, and who is next to him.
    let place = place_of(42u64.wrapping_mul(2_654_435_761) % 100_000, "player-00042");
    assert_eq!(board.rank(&place).wait()?, None, "the old score is gone");
    let place = place_of(1_000_000, "player-00042");
    let rank = board.rank(&place).wait()?.expect("he has a score");
    let around = board.range_by_rank(rank, rank + 2, false, 2).wait()?;
    assert_eq!(around.iter().count(), 2);

    // The last ones leave.
    let left = board.pop_last(10).wait()?;
    assert_eq!(left.iter().count(), 10);
    assert_eq!(board.len().wait()?.elements, 19_990);
    Ok(())
}
