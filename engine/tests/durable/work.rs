//! Random work on an engine: everything that changes what it holds.

use farcore::{Expiry, Handle, PutOptions, Transaction, TreeChange, TreeScore, TreeScoreRule};

use crate::contents::{LIST_TAG, SCORED_TAG};

/// A source of numbers, from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A place in something of this length.
    fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    fn bytes(&mut self, max: u64) -> Vec<u8> {
        let length = self.below(max);
        let byte = u8::try_from(self.below(256)).unwrap_or(0);
        (0..length)
            .map(|at| byte.wrapping_add(at.to_le_bytes()[0]))
            .collect()
    }
}

/// Does some random steps.
pub(crate) fn steps(handle: &mut Handle, random: &mut Random, count: usize) {
    for _ in 0..count {
        step(handle, random);
    }
}

fn step(handle: &mut Handle, random: &mut Random) {
    let number = random.below(400);
    match random.below(100) {
        0..25 => {
            let value = random.bytes(300);
            let key = format!("value{number}");
            handle
                .put(key.as_bytes(), &value)
                .wait()
                .expect("there is room");
        }
        25..30 => {
            let key = format!("value{number}");
            handle
                .delete(key.as_bytes())
                .wait()
                .expect("it can be deleted");
        }
        30..35 => {
            let key = format!("value{number}");
            let hour = 3_600_000 + random.below(1000);
            let options = PutOptions {
                expiry: Expiry::In(hour),
                ..PutOptions::default()
            };
            let value = random.bytes(100);
            let _ = handle
                .put_with(key.as_bytes(), &value, options)
                .wait()
                .expect("there is room");
        }
        35..37 => expire(handle, random, number),
        37..40 => {
            let key = format!("value{number}");
            let tail = random.bytes(40);
            handle
                .append(key.as_bytes(), &tail)
                .wait()
                .expect("there is room");
        }
        40..60 => map(handle, random),
        60..75 => list(handle, random),
        75..92 => scored(handle, random),
        _ => others(handle, random, number),
    }
}

fn expire(handle: &mut Handle, random: &mut Random, number: u64) {
    let key = format!(
        "{}{}",
        ["value", "map", "list", "scored"][random.place(4)],
        number % 40
    );
    let outcome = match random.below(2) {
        0 => handle.persist(key.as_bytes()).wait().map(drop),
        _ => {
            let expiry = Expiry::In(7_200_000);
            let condition = farcore::ExpiryCondition::default();
            handle
                .expire(key.as_bytes(), expiry, condition)
                .wait()
                .map(drop)
        }
    };
    outcome.expect("it can be set");
}

/// Long values, whole collections, and several keys at once.
fn others(handle: &mut Handle, random: &mut Random, number: u64) {
    match random.below(4) {
        0 => {
            let key = format!("long{}", number % 4);
            let value = vec![number.to_le_bytes()[0]; 200_000 + random.place(400_000)];
            handle
                .put_long(key.as_bytes(), &value)
                .expect("there is room");
        }
        1 => {
            let name = ["long", "map", "list", "scored"][random.place(4)];
            let key = format!("{name}{}", number % 12);
            handle
                .delete(key.as_bytes())
                .wait()
                .expect("it can be deleted");
        }
        _ => {
            let tag = random.below(20);
            let keys: Vec<_> = (0..3).map(|at| format!("{{tag{tag}}}{at}")).collect();
            let values: Vec<_> = (0..3).map(|_| random.bytes(60)).collect();
            let transaction = Transaction::new()
                .put(keys[0].as_bytes(), &values[0])
                .delete(keys[1].as_bytes())
                .put(keys[2].as_bytes(), &values[2]);
            let _ = handle
                .transaction(&transaction)
                .wait()
                .expect("there is room");
        }
    }
}

fn map(handle: &mut Handle, random: &mut Random) {
    let key = format!("map{}", random.below(4));
    let mut tree = handle.tree(key.as_bytes());
    let element = format!("element{}", random.below(4000));
    match random.below(10) {
        0..5 => {
            let value = random.bytes(60);
            let _ = tree
                .insert(element.as_bytes(), &value)
                .wait()
                .expect("there is room");
        }
        5 => {
            // One that lies apart.
            let value = random.bytes(5000);
            let _ = tree
                .insert(element.as_bytes(), &value)
                .wait()
                .expect("there is room");
        }
        6..8 => {
            let names: Vec<_> = (0..100)
                .map(|_| format!("element{}", random.below(4000)))
                .collect();
            let changes: Vec<_> = names
                .iter()
                .map(|name| TreeChange {
                    key: name.as_bytes(),
                    value: (!name.ends_with('7')).then_some(&b"many at once"[..]),
                })
                .collect();
            let _ = tree.update(&changes).wait().expect("there is room");
        }
        8 => drop(
            tree.remove(element.as_bytes())
                .wait()
                .expect("it can be removed"),
        ),
        _ => {
            let from = random.below(2000);
            let _ = tree
                .remove_by_rank(from, from + 80)
                .wait()
                .expect("they can be removed");
        }
    }
}

fn list(handle: &mut Handle, random: &mut Random) {
    let key = format!("list{}", random.below(6));
    let mut tree = handle.tree(key.as_bytes()).tagged(LIST_TAG);
    let value = random.bytes(90);
    match random.below(10) {
        0..3 => drop(
            tree.push_last(&[&value, b"another"])
                .wait()
                .expect("there is room"),
        ),
        3..5 => {
            let many = vec![&value[..]; 200];
            tree.push_first(&many).wait().expect("there is room");
        }
        5 => drop(
            tree.insert_at(random.below(50), &value)
                .wait()
                .expect("there is room"),
        ),
        6 => drop(tree.set_at(-1, &value).wait().expect("there is room")),
        7 => drop(tree.pop_first(30).wait().expect("they can be removed")),
        8 => drop(tree.pop_last(30).wait().expect("they can be removed")),
        _ => drop(tree.rotate(true).wait().expect("it can be moved")),
    }
}

fn scored(handle: &mut Handle, random: &mut Random) {
    let key = format!("scored{}", random.below(3));
    let mut tree = handle.tree(key.as_bytes()).tagged(SCORED_TAG);
    let count = [1, 1, 1, 100][random.place(4)];
    let members: Vec<_> = (0..count)
        .map(|_| {
            let score = (random.below(8) > 0).then(|| random.below(1000) as f64 / 7.0);
            (format!("member{}", random.below(3000)), score)
        })
        .collect();
    let changes: Vec<_> = members
        .iter()
        .map(|(member, score)| TreeScore {
            member: member.as_bytes(),
            score: *score,
            value: b"",
        })
        .collect();
    let _ = tree
        .score(&changes, TreeScoreRule::default())
        .wait()
        .expect("there is room");
}
