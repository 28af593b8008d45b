//! Commands of places, which are members of sorted sets with geohashes as their scores.

use farcore::{Core, Error, Operation, TreeGuard, TreeOp, TreeValues, TreeView};

use super::sorted_sets::add_places;
use super::sorted_trees::REQUEST_BYTES_MAX;
use super::trees::{Step, ask, finish};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::geo::hash::{LATITUDE_MAX, LONGITUDE_MAX, point_of, score_of, text_of};
use crate::types::geo::point::{Point, coordinate_text, distance, distance_text};
use crate::types::kind::Kind;
use crate::types::sorted::member::stored_member;
use crate::types::sorted::score::{NO_SCORE, parsed_score};

type Result = std::result::Result<Flow, Refusal>;

/// Places that are written before the client must have taken some.
const WRITTEN_AT_ONCE: usize = 64;
/// Steps that the text of a place counts as.
pub(super) const STEPS_A_TEXT: usize = 8;

/// The place that two arguments are.
pub(super) fn point(longitude: &[u8], latitude: &[u8]) -> std::result::Result<Point, Refusal> {
    let longitude = parsed_score(longitude).ok_or(NO_SCORE)?;
    let latitude = parsed_score(latitude).ok_or(NO_SCORE)?;
    if longitude.abs() > LONGITUDE_MAX || latitude.abs() > LATITUDE_MAX {
        return Err(Refusal(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        )));
    }
    Ok(Point {
        longitude,
        latitude,
    })
}

/// Metres of a unit.
pub(super) fn unit(argument: &[u8]) -> std::result::Result<f64, Refusal> {
    match argument.to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err("ERR unsupported unit provided. please use M, KM, FT, MI".into()),
    }
}

/// Writes a place.
pub(super) fn write_point(writer: &mut Writer<'_>, point: Point) {
    writer.array(2);
    for coordinate in [point.longitude, point.latitude] {
        let text = coordinate_text(coordinate);
        match writer.protocol() {
            Protocol::Resp3 => {
                writer.raw(b",");
                writer.raw(text.as_bytes());
                writer.raw(b"\r\n");
            }
            Protocol::Resp2 => writer.bulk(text.as_bytes()),
        }
    }
}

pub(super) fn geoadd(call: &mut Call<'_>) -> Result {
    add_places(call, |call, place| {
        point(call.argument(place), call.argument(place + 1)).map(score_of)
    })
}

/// What was read of a sorted set: its version, 0 if there is none, and the places of members.
pub(super) type Places = (u64, Vec<Option<Point>>);

/// The places of members, all of one version of the set.
pub(super) async fn places(
    (core, output): Step<'_>,
    key: &[u8],
    members: &[Vec<u8>],
) -> std::result::Result<Places, TaskFailure> {
    let mut attempts = Attempts::default();
    loop {
        match try_places((&mut *core, output), key, members).await {
            Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
            }
            places => return places,
        }
    }
}

async fn try_places(
    (core, output): Step<'_>,
    key: &[u8],
    members: &[Vec<u8>],
) -> std::result::Result<Places, TaskFailure> {
    let stored: Vec<_> = members.iter().map(|member| stored_member(member)).collect();
    let stored: Vec<&[u8]> = stored.iter().map(|member| &member[..]).collect();
    let (mut found, mut version) = (Vec::with_capacity(members.len()), None);
    while found.len() < stored.len() {
        let mut bytes = 0;
        let left = &stored[found.len()..];
        let fits = left.iter().take_while(|member| {
            let is_first = bytes == 0;
            bytes += member.len() + 1;
            is_first || bytes <= REQUEST_BYTES_MAX
        });
        let some = &left[..fits.count().max(1)];
        let op = TreeOp::ScoreOf {
            members: TreeValues::Slices(some),
        };
        let guard = TreeGuard {
            tag: Kind::SortedSet.tag(),
            version,
        };
        let before = found.len();
        let now = ask(core, Operation::Tree { key, op, guard }, |answer| {
            let view = TreeView::of(answer);
            found.extend(view.score_values().map(|score| score.map(point_of)));
            view.version()
        });
        let now = now.await?;
        if now == 0 {
            output.notify(EventClasses::MISSED, "keymiss", key);
            return Ok((0, vec![None; members.len()]));
        }
        if found.len() == before {
            return Err(Error::CollectionVersion { current: now }.into());
        }
        version = Some(now);
        output.end_read(core, (found.len() - before, bytes)).await?;
    }
    Ok((version.unwrap_or(0), found))
}

/// Replies what `write` makes of the places of the members from an argument on.
fn reply_places(
    call: &mut Call<'_>,
    write: impl Fn(&mut Writer<'_>, Option<Point>) + 'static,
) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let key = call.key().to_vec();
    let members = 2..call.count();
    let members: Vec<_> = members.map(|place| call.argument(place).to_vec()).collect();
    let held = members.len() * 2 * size_of::<Point>();
    call.task_holding(held, move |mut core, output, protocol| async move {
        let found = match members.is_empty() {
            // As Redis, which looks at the key though nothing is wanted of it.
            true => {
                let length = super::trees::length_of(&mut core, Kind::SortedSet, &key);
                length.await.map(|_| Vec::new()).map_err(TaskFailure::from)
            }
            false => {
                let found = places((&mut core, &output), &key, &members).await;
                found.map(|(_, found)| found)
            }
        };
        output.leave(&mut core);
        let found = match found {
            Ok(found) => found,
            Err(failure) => {
                failure.write(&output, protocol);
                return core;
            }
        };
        output.write(|bytes| Writer::new(bytes, protocol).array(found.len()));
        for some in found.chunks(WRITTEN_AT_ONCE) {
            output.room(&core).await;
            // The text of a place takes a while.
            steps::count(STEPS_A_TEXT * some.len());
            steps::end_slice(&core).await;
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                some.iter().for_each(|point| write(&mut writer, *point));
            });
        }
        core
    })
}

pub(super) fn geohash(call: &mut Call<'_>) -> Result {
    Ok(reply_places(call, |writer, point| match point {
        Some(point) => writer.bulk(text_of(point).as_bytes()),
        None => writer.null(),
    }))
}

pub(super) fn geopos(call: &mut Call<'_>) -> Result {
    Ok(reply_places(call, |writer, point| match point {
        Some(point) => write_point(writer, point),
        None => writer.null_array(),
    }))
}

pub(super) fn geodist(call: &mut Call<'_>) -> Result {
    let unit_m = match call.count() {
        4 => 1.0,
        5 => unit(call.argument(4))?,
        _ => return Err(SYNTAX.into()),
    };
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    let members = [2, 3].map(|place| call.argument(place).to_vec());
    Ok(
        call.task(move |mut core: Core, output, protocol| async move {
            let found = places((&mut core, &output), &key, &members).await;
            output.leave(&mut core);
            finish(&output, protocol, found, |writer, (_, found)| {
                match found[..] {
                    [Some(one), Some(other)] => {
                        let text = distance_text(distance(one, other) / unit_m);
                        writer.bulk(text.as_bytes());
                    }
                    _ => writer.null(),
                }
            });
            core
        }),
    )
}
