//! Searches of places: `GEOSEARCH`, `GEORADIUS` and their relatives. A search reads the ranges of
//! scores of a few boxes of the map, of one version of the set, and keeps the members that lie in
//! its shape, in memory that the client is charged for.
//!
//! - I1: a result that is stored is made of the set as it is when it is.

use std::cmp::Ordering;
use std::collections::HashMap;

use farcore::{Core, Error, TreeLength, TreeScoreBound, TreeScoreRange};

use super::arguments::{integer, is_option};
use super::geo::{STEPS_A_TEXT, places, point, unit, write_point};
use super::sorted_trees::store_all;
use super::sorting::sort;
use super::trees::{Step, finish, length_of, size_of_page};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::geo::area::score_ranges;
use crate::types::geo::hash::point_of;
use crate::types::geo::point::{Point, distance_text};
use crate::types::geo::shape::{Shape, Size};
use crate::types::kind::Kind;
use crate::types::sorted::reply::whole;
use crate::types::sorted::score::parsed_score;
use crate::waits::key_queues::Awaited;
use crate::words::stored_key;

type Result = std::result::Result<Flow, Refusal>;
type Done<T> = std::result::Result<T, TaskFailure>;

const NO_MEMBER: &str = "ERR could not decode requested zset member";
/// Bytes that a member takes beside its own: where it is kept, where it is allocated, and twice
/// while it is sorted.
const BESIDE_MEMBER: usize = size_of::<Found>() + 16 + 2 * size_of::<Ranked>();
/// Members that are written before the client must have taken some.
const WRITTEN_AT_ONCE: usize = 64;
/// Changes by others after which a search whose result is stored holds the sections meanwhile.
const FREE_ATTEMPTS: usize = 2;

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// `GEORADIUS`, around a place.
    Radius {
        stores: bool,
    },
    /// `GEORADIUSBYMEMBER`.
    RadiusOfMember {
        stores: bool,
    },
    Search,
    SearchAndStore,
}

impl Form {
    /// The place of the key that is searched.
    fn source(self) -> usize {
        if self == Self::SearchAndStore { 2 } else { 1 }
    }

    /// The place of the first option.
    fn options(self) -> usize {
        match self {
            Self::Radius { .. } => 6,
            Self::RadiusOfMember { .. } => 5,
            Self::Search => 2,
            Self::SearchAndStore => 3,
        }
    }

    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchAndStore)
    }

    fn may_store(self) -> bool {
        matches!(
            self,
            Self::Radius { stores: true } | Self::RadiusOfMember { stores: true }
        )
    }
}

/// In which order members come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Nearest,
    Farthest,
}

/// What is replied beside members.
#[derive(Clone, Copy, Default, Debug)]
struct Beside {
    distance: bool,
    hash: bool,
    point: bool,
}

/// What a command wants.
#[derive(Debug)]
struct Wanted {
    shape: Shape,
    order: Option<Order>,
    /// The most members; 0 is any number.
    count: u64,
    /// Any members will do.
    is_any: bool,
    beside: Beside,
    target: Option<Vec<u8>>,
    stores_distance: bool,
}

/// Reads what a command wants, in the order in which Redis does: what it refuses first is what the
/// client reads.
struct Parser<'a> {
    arguments: &'a [Vec<u8>],
    form: Form,
    /// The set exists.
    exists: bool,
    /// Places of its members that arguments name.
    known: &'a HashMap<&'a [u8], Option<Point>>,
}

impl<'a> Parser<'a> {
    fn argument(&self, place: usize) -> &'a [u8] {
        self.arguments.get(place).map_or(&[], Vec::as_slice)
    }

    /// The place of a member; that of a set that does not exist is of no use.
    fn member(&self, place: usize) -> std::result::Result<Point, Refusal> {
        if !self.exists {
            return Ok(Point::default());
        }
        let known = self.known.get(self.argument(place)).copied().flatten();
        known.ok_or_else(|| NO_MEMBER.into())
    }

    fn circle(&self, place: usize) -> std::result::Result<(Size, f64), Refusal> {
        let radius = parsed_score(self.argument(place)).ok_or("ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        Ok((Size::Circle { radius }, unit(self.argument(place + 1))?))
    }

    fn rectangle(&self, place: usize) -> std::result::Result<(Size, f64), Refusal> {
        let width = parsed_score(self.argument(place)).ok_or("ERR need numeric width")?;
        let height = parsed_score(self.argument(place + 1)).ok_or("ERR need numeric height")?;
        if height < 0.0 || width < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        let unit = unit(self.argument(place + 2))?;
        Ok((Size::Box { width, height }, unit))
    }

    fn parse(&self) -> std::result::Result<Wanted, Refusal> {
        let form = self.form;
        let (mut centre, mut size) = (None, None);
        let (mut is_of_member, mut is_of_place) = (false, false);
        match form {
            Form::Radius { .. } => {
                centre = Some(point(self.argument(2), self.argument(3))?);
                size = Some(self.circle(4)?);
            }
            Form::RadiusOfMember { .. } if self.exists => {
                centre = Some(self.member(2)?);
                size = Some(self.circle(3)?);
            }
            _ => {}
        }
        let mut wanted = Wanted {
            shape: Shape {
                centre: Point::default(),
                size: Size::Circle { radius: 0.0 },
                unit_m: 1.0,
            },
            order: None,
            count: 0,
            is_any: false,
            beside: Beside::default(),
            target: (form == Form::SearchAndStore).then(|| self.argument(1).to_vec()),
            stores_distance: false,
        };
        let mut place = form.options();
        while place < self.arguments.len() {
            let option = self.argument(place);
            let left = self.arguments.len() - place - 1;
            let is = |name| is_option(option, name);
            let is_circle = matches!(size, Some((Size::Circle { .. }, _)));
            let is_box = matches!(size, Some((Size::Box { .. }, _)));
            match () {
                () if is("withdist") => wanted.beside.distance = true,
                () if is("withhash") => wanted.beside.hash = true,
                () if is("withcoord") => wanted.beside.point = true,
                () if is("any") => wanted.is_any = true,
                () if is("asc") => wanted.order = Some(Order::Nearest),
                () if is("desc") => wanted.order = Some(Order::Farthest),
                () if is("count") && left >= 1 => {
                    let count = integer(self.argument(place + 1))?;
                    let count = u64::try_from(count).ok().filter(|count| *count > 0);
                    wanted.count = count.ok_or("ERR COUNT must be > 0")?;
                    place += 1;
                }
                () if (is("store") || is("storedist")) && left >= 1 && form.may_store() => {
                    wanted.target = Some(self.argument(place + 1).to_vec());
                    wanted.stores_distance = is("storedist");
                    place += 1;
                }
                () if is("storedist") && form == Form::SearchAndStore => {
                    wanted.stores_distance = true;
                }
                () if is("frommember") && left >= 1 && form.is_search() && !is_of_place => {
                    centre = Some(self.member(place + 1)?);
                    is_of_member = true;
                    place += 1;
                }
                () if is("fromlonlat") && left >= 2 && form.is_search() && !is_of_member => {
                    centre = Some(point(self.argument(place + 1), self.argument(place + 2))?);
                    is_of_place = true;
                    place += 2;
                }
                () if is("byradius") && left >= 2 && form.is_search() && !is_box => {
                    size = Some(self.circle(place + 1)?);
                    place += 2;
                }
                () if is("bybox") && left >= 3 && form.is_search() && !is_circle => {
                    size = Some(self.rectangle(place + 1)?);
                    place += 3;
                }
                () => return Err(SYNTAX.into()),
            }
            place += 1;
        }
        self.check(&mut wanted, centre, size).map(|()| wanted)
    }

    /// Refuses options that do not fit each other, and completes what is wanted.
    fn check(
        &self,
        wanted: &mut Wanted,
        centre: Option<Point>,
        size: Option<(Size, f64)>,
    ) -> std::result::Result<(), Refusal> {
        let name = String::from_utf8_lossy(self.argument(0));
        let beside = wanted.beside;
        if wanted.target.is_some() && (beside.distance || beside.hash || beside.point) {
            let what = match self.form {
                Form::SearchAndStore => "GEOSEARCHSTORE",
                _ => "STORE option in GEORADIUS",
            };
            return Err(Refusal(format!(
                "ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if self.form.is_search() && centre.is_none() {
            return Err(Refusal(format!(
                "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {name}"
            )));
        }
        if self.form.is_search() && size.is_none() {
            return Err(Refusal(format!(
                "ERR exactly one of BYRADIUS and BYBOX can be specified for {name}"
            )));
        }
        if wanted.is_any && wanted.count == 0 {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        if wanted.count > 0 && wanted.order.is_none() && !wanted.is_any {
            wanted.order = Some(Order::Nearest);
        }
        if let (Some(centre), Some((size, unit_m))) = (centre, size) {
            wanted.shape = Shape {
                centre,
                size,
                unit_m,
            };
        }
        Ok(())
    }
}

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
        stored_key(&self.arguments[self.form.source()])
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
    let target = stored_key(wanted.target.as_deref().unwrap_or_default());
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
        let keys = [search.key(), stored_key(target)];
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
                        let target = stored_key(target);
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
