//! Converts socket addresses to and from the kernel's structs.

#![allow(unsafe_code)] // reads and writes the kernel's structs

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket address as a kernel struct.
pub(super) struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    pub(super) fn new(address: SocketAddr) -> Self {
        // SAFETY: plain numbers, for which zero is a valid value.
        let mut raw: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let place = (&raw mut raw).cast::<u8>();
        match address {
            SocketAddr::V4(four) => {
                let set = libc::sockaddr_in {
                    sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
                    sin_port: four.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*four.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is long and aligned enough for every kind of address.
                unsafe { place.cast::<libc::sockaddr_in>().write(set) };
            }
            SocketAddr::V6(six) => {
                let set = libc::sockaddr_in6 {
                    sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or(0),
                    sin6_port: six.port().to_be(),
                    sin6_flowinfo: six.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: six.ip().octets(),
                    },
                    sin6_scope_id: six.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(set) };
            }
        }
        Self(raw)
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Reads an address.
///
/// # Safety
/// A complete address is there, in the kernel's form.
pub(super) unsafe fn address_at(place: *const libc::sockaddr_storage) -> SocketAddr {
    // SAFETY: by this function's contract; the family says which kind it is.
    unsafe {
        match i32::from((*place.cast::<libc::sockaddr>()).sa_family) {
            libc::AF_INET6 => {
                let six = *place.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
                SocketAddr::new(IpAddr::V6(ip), u16::from_be(six.sin6_port))
            }
            _ => {
                let four = *place.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
                SocketAddr::new(IpAddr::V4(ip), u16::from_be(four.sin_port))
            }
        }
    }
}
