//! A pointer that leaves its process: as text, or in any serde format.
//!
//! It names nodes by their incarnations and extents by their numbers, and carries a grant for each
//! run of extents: a proof by the key of the exporter's session, which the node checks.
//!
//! A holder of the pointer can access the memory that it names, so treat it as a secret of that
//! worth.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use farcore_rdma::control::Grant;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::{PoolError, Result};
use crate::plain::Plain;

/// The longest text of an exported pointer, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// What importing it gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Access {
    /// A share that can be read.
    Read,
    /// A share that can be read and written.
    Write,
    /// The memory itself, with the right to free it: the first that imports it is its owner.
    Take,
}

/// Bytes of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) incarnation: u32,
    pub(crate) grant: Grant,
    /// From the start of the granted extents.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What an exported pointer says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Parts {
    pub(crate) mark: u64,
    pub(crate) count: u64,
    pub(crate) access: Access,
    pub(crate) generation: u32,
    /// The reference word.
    pub(crate) word: Place,
    pub(crate) places: Vec<Place>,
}

impl Parts {
    fn encode(&self) -> Vec<u8> {
        // Serialization into a vector cannot fail for these types.
        postcard::to_stdvec(self).unwrap_or_default()
    }

    fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.encode())
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let malformed = |reason: &str| PoolError::Malformed {
            reason: reason.to_owned(),
        };
        if bytes.len() > TEXT_BYTES_MAX {
            return Err(malformed("it is longer than 1 MiB"));
        }
        match postcard::take_from_bytes(bytes) {
            Ok((parts, [])) => Ok(parts),
            Ok(_) => Err(malformed("bytes follow it")),
            Err(_) => Err(malformed("it is cut short or damaged")),
        }
    }

    fn read(text: &str) -> Result<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim());
        let bytes = bytes.map_err(|error| PoolError::Malformed {
            reason: error.to_string(),
        })?;
        Self::decode(&bytes)
    }
}

/// A pointer that another process can import: see
/// [`RemotePool::import`](crate::RemotePool::import).
pub struct Exported<T> {
    pub(crate) parts: Parts,
    points_to: PhantomData<fn() -> T>,
}

impl<T> Clone for Exported<T> {
    fn clone(&self) -> Self {
        Self {
            parts: self.parts.clone(),
            points_to: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Exported<T> {
    /// Without the proofs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exported")
            .field("count", &self.parts.count)
            .field("access", &self.parts.access)
            .finish_non_exhaustive()
    }
}

impl<T: Plain> Exported<T> {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            parts,
            points_to: PhantomData,
        }
    }

    /// The number of values.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.parts.count
    }

    /// True if it points to no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.count == 0
    }

    /// What importing it gives.
    #[must_use]
    pub fn access(&self) -> Access {
        self.parts.access
    }

    fn checked(parts: Parts) -> Result<Self> {
        if parts.mark == T::MARK {
            return Ok(Self::new(parts));
        }
        Err(PoolError::WrongType {
            expected: format!("{} ({:016x})", std::any::type_name::<T>(), T::MARK),
            found: format!("a type with the mark {:016x}", parts.mark),
        })
    }

    /// Decodes the bytes of [`Exported::to_bytes`].
    ///
    /// # Errors
    /// [`PoolError::Malformed`], or [`PoolError::WrongType`] if it points to another type.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::checked(Parts::decode(bytes)?)
    }

    /// The pointer as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.parts.encode()
    }
}

/// Types that are known at run time only, as those of a program in C are.
impl Exported<u8> {
    /// The text of a pointer to values of `value_bytes` bytes each, whose type has a
    /// [mark](Plain::MARK).
    ///
    /// # Errors
    /// [`PoolError::WrongType`] if the bytes are no array of such values.
    pub fn to_text_as(&self, mark: u64, value_bytes: u64) -> Result<String> {
        let bytes = self.parts.count;
        if value_bytes == 0 || !bytes.is_multiple_of(value_bytes) {
            return Err(PoolError::WrongType {
                expected: format!("values of {value_bytes} bytes"),
                found: format!("{bytes} bytes"),
            });
        }
        let parts = Parts {
            mark,
            count: bytes / value_bytes,
            ..self.parts.clone()
        };
        Ok(parts.text())
    }

    /// Reads the text of a pointer to such values, as one to their bytes.
    ///
    /// # Errors
    /// [`PoolError::Malformed`], or [`PoolError::WrongType`] if it points to another type.
    pub fn from_text_as(text: &str, mark: u64, value_bytes: u64) -> Result<Self> {
        let mut parts = Parts::read(text)?;
        if parts.mark != mark {
            return Err(PoolError::WrongType {
                expected: format!("a type with the mark {mark:016x}"),
                found: format!("one with the mark {:016x}", parts.mark),
            });
        }
        let bytes = parts.count.checked_mul(value_bytes);
        parts.count = bytes.ok_or_else(|| PoolError::Malformed {
            reason: "it names more values than bytes".to_owned(),
        })?;
        parts.mark = u8::MARK;
        Ok(Self::new(parts))
    }
}

/// The bytes in the alphabet of URLs.
impl<T: Plain> fmt::Display for Exported<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.text())
    }
}

impl<T: Plain> FromStr for Exported<T> {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self> {
        Self::checked(Parts::read(text)?)
    }
}

impl<T: Plain> Serialize for Exported<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.parts.serialize(serializer)
    }
}

impl<'de, T: Plain> Deserialize<'de> for Exported<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::checked(Parts::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use farcore_rdma::OwnerId;
    use farcore_rdma::control::Chunk;

    use super::*;

    #[test]
    fn any_bytes_are_an_exported_pointer_or_refused() {
        let place = |first| Place {
            incarnation: 7,
            grant: Grant {
                session: OwnerId::new(9).expect("not 0"),
                chunk: Chunk { first, count: 2 },
                may_write: true,
                proof: [3; 32],
            },
            offset: 64,
            bytes: 8,
        };
        let parts = Parts {
            mark: u64::MARK,
            count: 1,
            access: Access::Write,
            generation: 5,
            word: place(1),
            places: vec![place(1), place(70)],
        };
        farcore_fuzz::Target::new("exported pointer")
            .seed(Exported::<u64>::new(parts).to_bytes())
            .run(|bytes| {
                if let Ok(exported) = Exported::<u64>::from_bytes(bytes) {
                    let again = Exported::<u64>::from_bytes(&exported.to_bytes());
                    assert_eq!(again.map(|again| again.parts), Ok(exported.parts));
                }
            });
    }
}
