//! Searches of places: `GEOSEARCH`, `GEORADIUS` and their relatives. A search reads the ranges of
//! scores of a few boxes of the map, of one version of the set, and keeps the members that lie in
//! its shape, in memory that the client is charged for.
//!
//! - I1: a result that is stored is made of the set as it is when it is.

use std::cmp::Ordering;
use std::collections::HashMap;

use farcore::{Core, Error, TreeLength, TreeScoreBound, TreeScoreRange};

use super::arguments::is_option;
use super::geo::{STEPS_A_TEXT, places, write_point};
use super::geo_options::{Beside, Form, Order, Parser, Wanted};
use super::sorted_trees::store_all;
use super::sorting::sort;
use super::trees::{Step, finish, length_of, size_of_page};
use super::{Call, Flow, Refusal};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::geo::area::score_ranges;
use crate::types::geo::hash::point_of;
use crate::types::geo::point::{Point, distance_text};
use crate::types::kind::Kind;
use crate::types::sorted::reply::whole;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;
type Done<T> = std::result::Result<T, TaskFailure>;

/// Bytes that a member takes beside its own: where it is kept, where it is allocated, and twice
/// while it is sorted.
const BESIDE_MEMBER: usize = size_of::<Found>() + 16 + 2 * size_of::<Ranked>();
/// Members that are written before the client must have taken some.
const WRITTEN_AT_ONCE: usize = 64;
/// Changes by others after which a search whose result is stored holds the sections meanwhile.
const FREE_ATTEMPTS: usize = 2;

/// A member that lies in the shape.
#[derive(Clone, Debug)]
struct Found {
    member: Vec<u8>,
    point: Point,
    /// In metres.
    distance: f64,
    score: f64,
}

/// A member in the order of distances.
#[derive(Clone, Copy, Debug)]
struct Ranked {
    distance: f64,
    place: u32,
    is_farthest_first: bool,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = self.distance.total_cmp(&other.distance);
        let order = if self.is_farthest_first {
            order.reverse()
        } else {
            order
        };
        order.then_with(|| self.place.cmp(&other.place))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// Members of a search, in their order, and the memory that they take.
struct Members {
    found: Vec<Found>,
    _held: Charge,
}

/// A command as it was sent.
struct Search {
    arguments: Vec<Vec<u8>>,
    form: Form,
}

/// What a command has come to: what it wants, the version of the set, and its members; none of a
/// set that does not exist.
type Searched = (Wanted, u64, Option<Members>);

impl Search {
    fn key(&self) -> &[u8] {
        &self.arguments[self.form.source()]
    }

    /// The members that the arguments name.
    fn named(&self) -> Vec<Vec<u8>> {
        match self.form {
            Form::Radius { .. } => return Vec::new(),
            Form::RadiusOfMember { .. } => return vec![self.arguments[2].clone()],
            Form::Search | Form::SearchAndStore => {}
        }
        let options = &self.arguments[self.form.options().min(self.arguments.len())..];
        let pairs = options.windows(2);
        let pairs = pairs.filter(|pair| is_option(&pair[0], "frommember"));
        pairs.map(|pair| pair[1].clone()).collect()
    }

    /// Reads what the command wants and searches, in one attempt or in several.
    async fn run(&self, (core, output): Step<'_>) -> Done<Searched> {
        let mut attempts = Attempts::default();
        loop {
            match self.try_run((&mut *core, output)).await {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(core, output, &[self.key()]).await;
                }
                searched => return searched,
            }
        }
    }

    async fn try_run(&self, (core, output): Step<'_>) -> Done<Searched> {
        let length = length_of(core, Kind::SortedSet, self.key()).await?;
        let exists = length.version > 0;
        let named = if exists { self.named() } else { Vec::new() };
        let mut known = HashMap::new();
        if !named.is_empty() {
            let (version, found) = places((&mut *core, output), self.key(), &named).await?;
            if version != length.version {
                return Err(Error::CollectionVersion { current: version }.into());
            }
            known.extend(named.iter().map(Vec::as_slice).zip(found));
        }
        let parser = Parser {
            arguments: &self.arguments,
            form: self.form,
            exists,
            known: &known,
        };
        let wanted = parser.parse();
        let wanted = wanted.map_err(|refusal| TaskFailure::Refused(refusal.0))?;
        if !exists {
            output.notify(EventClasses::MISSED, "keymiss", self.key());
            return Ok((wanted, 0, None));
        }
        let found = self.find((&mut *core, output), &wanted, &length).await?;
        Ok((wanted, length.version, Some(found)))
    }

    /// The members that are wanted, in their order.
    async fn find(
        &self,
        (core, output): Step<'_>,
        wanted: &Wanted,
        length: &TreeLength,
    ) -> Done<Members> {
        let limit = match wanted.is_any {
            true => usize::try_from(wanted.count).unwrap_or(usize::MAX),
            false => usize::MAX,
        };
        let (mut found, mut held) = (Vec::new(), output.hold(0));
        let mut bytes = 0;
        for (from, end) in score_ranges(&wanted.shape) {
            let range = TreeScoreRange::Scores {
                from: TreeScoreBound::Included(from),
                to: TreeScoreBound::Excluded(end),
            };
            let mut skip = 0;
            while found.len() < limit {
                let tree = core.tree(self.key()).tagged(Kind::SortedSet.tag());
                let mut tree = tree.at_version(length.version);
                let page = tree.score_range(range, false, skip, u32::MAX).await?;
                let (count, read) = size_of_page(&page);
                skip += count as u64;
                for (member, score) in whole(page.scored()) {
                    let point = point_of(score);
                    let Some(distance) = wanted.shape.distance(point) else {
                        continue;
                    };
                    if found.len() == limit {
                        break;
                    }
                    bytes += member.len() + BESIDE_MEMBER;
                    found.push(Found {
                        member: member.to_vec(),
                        point,
                        distance,
                        score,
                    });
                }
                if bytes > held.bytes() {
                    held.grow_to(bytes + bytes / 4)?;
                }
                // A distance takes some functions of angles.
                output.end_read(core, (4 * count, read)).await?;
                if count == 0 || !page.has_more() {
                    break;
                }
            }
        }
        let found = ordered(core, found, wanted).await;
        Ok(Members { found, _held: held })
    }
}

/// The members that are wanted of those that were found, in their order.
async fn ordered(core: &Core, mut found: Vec<Found>, wanted: &Wanted) -> Vec<Found> {
    let count = usize::try_from(wanted.count).unwrap_or(usize::MAX);
    let count = if count == 0 { usize::MAX } else { count };
    let Some(order) = wanted.order else {
        found.truncate(count);
        return found;
    };
    let ranked = found.iter().enumerate().map(|(place, one)| Ranked {
        distance: one.distance,
        place: u32::try_from(place).unwrap_or(u32::MAX),
        is_farthest_first: order == Order::Farthest,
    });
    let ranked = sort(ranked.collect(), core).await;
    let mut all: Vec<_> = found.into_iter().map(Some).collect();
    let wanted = ranked.into_iter().take(count);
    let places = wanted.map(|one| usize::try_from(one.place).unwrap_or(usize::MAX));
    places
        .filter_map(|place| all.get_mut(place).and_then(Option::take))
        .collect()
}

/// Writes members as the client takes them.
async fn write((core, output): Step<'_>, (wanted, found): (&Wanted, &[Found]), protocol: Protocol) {
    output.write(|bytes| Writer::new(bytes, protocol).array(found.len()));
    let Beside {
        distance,
        hash,
        point,
    } = wanted.beside;
    let parts = [distance, hash, point]
        .map(usize::from)
        .iter()
        .sum::<usize>();
    for some in found.chunks(WRITTEN_AT_ONCE) {
        output.room(core).await;
        steps::count(some.len() * (1 + parts * STEPS_A_TEXT));
        steps::end_slice(core).await;
        if output.is_gone() {
            return;
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            for one in some {
                if parts > 0 {
                    writer.array(1 + parts);
                }
                writer.bulk(&one.member);
                if distance {
                    let text = distance_text(one.distance / wanted.shape.unit_m);
                    writer.bulk(text.as_bytes());
                }
                if hash {
                    writer.integer(whole_number(one.score));
                }
                if point {
                    write_point(&mut writer, one.point);
                }
            }
        });
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a geohash is whole and fits"
)]
fn whole_number(score: f64) -> i64 {
    score as i64
}

/// Searches and stores the result; returns how many members it has.
async fn store((core, output): Step<'_>, search: &Search, searched: &Searched) -> Done<usize> {
    let (wanted, _, members) = searched;
    let target = wanted.target.as_deref().unwrap_or_default();
    let name = if search.form.is_search() {
        "geosearchstore"
    } else {
        "georadiusstore"
    };
    let found = members.as_ref().map_or(&[][..], |members| &members.found);
    let scored = found.iter().map(|one| {
        let score = match wanted.stores_distance {
            true => one.distance / wanted.shape.unit_m,
            false => one.score,
        };
        (&one.member[..], score)
    });
    store_all((core, output), target, scored, name).await?;
    Ok(found.len())
}

/// Searches, and stores the result if that is wanted and the set is the same still.
async fn search_and_store((core, output): Step<'_>, search: &Search) -> Done<(Searched, usize)> {
    let mut disturbed = 0;
    loop {
        let searched = search.run((&mut *core, output)).await?;
        let Some(target) = &searched.0.target else {
            return Ok((searched, 0));
        };
        let keys = [search.key(), &target[..]];
        if disturbed < FREE_ATTEMPTS {
            // It may have been entered to read the set, and the target may be in another shard.
            output.leave(core);
        }
        output.enter(core, &keys).await?;
        let now = length_of(core, Kind::SortedSet, search.key()).await?;
        if now.version == searched.1 {
            let count = store((&mut *core, output), search, &searched).await?;
            return Ok((searched, count));
        }
        disturbed += 1;
        if disturbed < FREE_ATTEMPTS {
            output.leave(core);
        }
    }
}

fn start(call: &mut Call<'_>, form: Form) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let arguments = call.owned_arguments();
    let search = Search { arguments, form };
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let done = search_and_store((&mut core, &output), &search).await;
        output.leave(&mut core);
        match done {
            Ok(((wanted, _, members), count)) => match &wanted.target {
                None => {
                    let found = members.as_ref().map_or(&[][..], |members| &members.found);
                    write((&mut core, &output), (&wanted, found), protocol).await;
                }
                Some(target) => {
                    if count > 0 {
                        readiness.note(&core, Awaited::SortedSet, target).await;
                    }
                    finish(&output, protocol, Ok(count), |writer, count| {
                        writer.count(count);
                    });
                }
            },
            Err(failure) => failure.write(&output, protocol),
        }
        core
    })
}

pub(super) fn georadius(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::Radius { stores: true }))
}

pub(super) fn georadius_ro(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::Radius { stores: false }))
}

pub(super) fn georadiusbymember(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::RadiusOfMember { stores: true }))
}

pub(super) fn georadiusbymember_ro(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::RadiusOfMember { stores: false }))
}

pub(super) fn geosearch(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::Search))
}

pub(super) fn geosearchstore(call: &mut Call<'_>) -> Result {
    Ok(start(call, Form::SearchAndStore))
}
