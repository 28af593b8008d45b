//! What searches of places want: their options, in the order in which Redis reads them.

use std::collections::HashMap;

use super::arguments::{integer, is_option};
use super::geo::{point, unit};
use super::{Refusal, SYNTAX};
use crate::types::geo::point::Point;
use crate::types::geo::shape::{Shape, Size};
use crate::types::sorted::score::parsed_score;

const NO_MEMBER: &str = "ERR could not decode requested zset member";

/// Which command it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
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
    pub(super) fn source(self) -> usize {
        if self == Self::SearchAndStore { 2 } else { 1 }
    }

    /// The place of the first option.
    pub(super) fn options(self) -> usize {
        match self {
            Self::Radius { .. } => 6,
            Self::RadiusOfMember { .. } => 5,
            Self::Search => 2,
            Self::SearchAndStore => 3,
        }
    }

    pub(super) fn is_search(self) -> bool {
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
pub(super) enum Order {
    Nearest,
    Farthest,
}

/// What is replied beside members.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Beside {
    pub(super) distance: bool,
    pub(super) hash: bool,
    pub(super) point: bool,
}

/// What a command wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) shape: Shape,
    pub(super) order: Option<Order>,
    /// The most members; 0 is any number.
    pub(super) count: u64,
    /// Any members will do.
    pub(super) is_any: bool,
    pub(super) beside: Beside,
    pub(super) target: Option<Vec<u8>>,
    pub(super) stores_distance: bool,
}

impl Wanted {
    /// All members, stored under a key or replied.
    fn new(target: Option<Vec<u8>>) -> Self {
        Self {
            shape: Shape {
                centre: Point::default(),
                size: Size::Circle { radius: 0.0 },
                unit_m: 1.0,
            },
            order: None,
            count: 0,
            is_any: false,
            beside: Beside::default(),
            target,
            stores_distance: false,
        }
    }

    /// Takes an option of one word; false if it is another.
    fn take(&mut self, option: &[u8]) -> bool {
        let is = |name| is_option(option, name);
        match () {
            () if is("withdist") => self.beside.distance = true,
            () if is("withhash") => self.beside.hash = true,
            () if is("withcoord") => self.beside.point = true,
            () if is("any") => self.is_any = true,
            () if is("asc") => self.order = Some(Order::Nearest),
            () if is("desc") => self.order = Some(Order::Farthest),
            () => return false,
        }
        true
    }
}

/// Reads what a command wants, in the order in which Redis does: what it refuses first is what the
/// client reads.
pub(super) struct Parser<'a> {
    pub(super) arguments: &'a [Vec<u8>],
    pub(super) form: Form,
    /// The set exists.
    pub(super) exists: bool,
    /// Places of its members that arguments name.
    pub(super) known: &'a HashMap<&'a [u8], Option<Point>>,
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

    pub(super) fn parse(&self) -> std::result::Result<Wanted, Refusal> {
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
        let target = form == Form::SearchAndStore;
        let mut wanted = Wanted::new(target.then(|| self.argument(1).to_vec()));
        let mut place = form.options();
        while place < self.arguments.len() {
            let option = self.argument(place);
            let left = self.arguments.len() - place - 1;
            let is = |name| is_option(option, name);
            let is_circle = matches!(size, Some((Size::Circle { .. }, _)));
            let is_box = matches!(size, Some((Size::Box { .. }, _)));
            match () {
                () if wanted.take(option) => {}
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
