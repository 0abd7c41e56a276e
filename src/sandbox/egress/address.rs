//! What an address is for: the special-purpose registries of IPv4 and IPv6 (RFC 6890 and its
//! successors), and the addresses where clouds hand out credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address is for, as far as it decides whether it may be dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of the open network.
    Public,
    Loopback,
    /// RFC 1918, unique local.
    Private,
    /// Between a carrier and its customers (RFC 6598).
    Carrier,
    LinkLocal,
    /// Where clouds answer with credentials of the machine.
    Metadata,
    Multicast,
    Unspecified,
    /// Of version 6 with one of version 4 inside: mapped, compatible, NAT64, 6to4, Teredo.
    Embedded,
    /// For documentation, benchmarks, future use; broadcast.
    Reserved,
}

const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// What an address is for.
pub fn kind(address: IpAddr) -> Kind {
    if METADATA.contains(&address) {
        return Kind::Metadata;
    }
    match address {
        IpAddr::V4(address) => four(address),
        IpAddr::V6(address) => six(address),
    }
}

fn four(address: Ipv4Addr) -> Kind {
    match address.octets() {
        [0, 0, 0, 0] => Kind::Unspecified,
        [127, ..] => Kind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Kind::Private,
        [100, 64..=127, ..] => Kind::Carrier,
        [169, 254, ..] => Kind::LinkLocal,
        [224..=239, ..] => Kind::Multicast,
        [0, ..] | [240..=255, ..] => Kind::Reserved,
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Kind::Reserved,
        [198, 18 | 19, ..] | [192, 88, 99, _] => Kind::Reserved,
        _ => Kind::Public,
    }
}

fn six(address: Ipv6Addr) -> Kind {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Kind::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => Kind::Loopback,
        // ::/96 compatible, ::ffff:0:0/96 mapped, ::ffff:0:0:0/96 translated.
        [0, 0, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0, 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Kind::Embedded
        }
        // NAT64, 6to4, Teredo.
        [0x64, 0xff9b, ..] | [0x2002, ..] | [0x2001, 0, ..] => Kind::Embedded,
        [0xfc00..=0xfdff, ..] => Kind::Private,
        [0xfe80..=0xfebf, ..] => Kind::LinkLocal,
        // Site-local: given up, and still private where somebody uses it.
        [0xfec0..=0xfeff, ..] => Kind::Private,
        [0xff00..=0xffff, ..] => Kind::Multicast,
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Kind::Reserved,
        // ORCHID, benchmarks and the like.
        [0x2001, 1..=0x1ff, ..] | [0x5f00, ..] | [0x100, 0, 0, 0, ..] => Kind::Reserved,
        // What was never given out, or locally translated.
        [0x2000..=0x3fff, ..] => Kind::Public,
        _ => Kind::Reserved,
    }
}

impl Kind {
    /// Whether a connection may go there: a name only to what is public, or private where the
    /// operator said so; an address that the operator wrote down also to its own link.
    pub(super) fn open(self, private: bool, written: bool) -> bool {
        match self {
            Kind::Public => true,
            Kind::Loopback | Kind::Private | Kind::Carrier => private || written,
            Kind::LinkLocal | Kind::Metadata => written,
            Kind::Multicast | Kind::Unspecified | Kind::Embedded | Kind::Reserved => false,
        }
    }

    /// As in "a private address".
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Public => "a public address",
            Kind::Loopback => "a loopback address",
            Kind::Private => "a private address",
            Kind::Carrier => "an address of a carrier's own network",
            Kind::LinkLocal => "a link-local address",
            Kind::Metadata => "an address where a cloud hands out credentials",
            Kind::Multicast => "a multicast address",
            Kind::Unspecified => "the unspecified address",
            Kind::Embedded => "an IPv6 address that stands for an IPv4 one",
            Kind::Reserved => "a reserved address",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_range_at_both_ends() {
        for (text, wanted) in [
            ("0.0.0.0", Kind::Unspecified),
            ("0.1.2.3", Kind::Reserved),
            ("9.255.255.255", Kind::Public),
            ("10.0.0.0", Kind::Private),
            ("10.255.255.255", Kind::Private),
            ("11.0.0.0", Kind::Public),
            ("100.63.255.255", Kind::Public),
            ("100.64.0.0", Kind::Carrier),
            ("100.127.255.255", Kind::Carrier),
            ("100.100.100.200", Kind::Metadata),
            ("100.128.0.0", Kind::Public),
            ("127.0.0.1", Kind::Loopback),
            ("127.255.255.255", Kind::Loopback),
            ("169.254.0.1", Kind::LinkLocal),
            ("169.254.169.254", Kind::Metadata),
            ("172.15.255.255", Kind::Public),
            ("172.16.0.0", Kind::Private),
            ("172.31.255.255", Kind::Private),
            ("172.32.0.0", Kind::Public),
            ("192.168.0.1", Kind::Private),
            ("192.0.2.1", Kind::Reserved),
            ("198.18.0.1", Kind::Reserved),
            ("198.19.255.255", Kind::Reserved),
            ("198.20.0.0", Kind::Public),
            ("203.0.113.9", Kind::Reserved),
            ("224.0.0.1", Kind::Multicast),
            ("239.255.255.255", Kind::Multicast),
            ("240.0.0.1", Kind::Reserved),
            ("255.255.255.255", Kind::Reserved),
            ("168.63.129.16", Kind::Metadata),
            ("93.184.215.14", Kind::Public),
            ("::", Kind::Unspecified),
            ("::1", Kind::Loopback),
            ("::2", Kind::Embedded),
            ("::127.0.0.1", Kind::Embedded),
            ("::ffff:127.0.0.1", Kind::Embedded),
            ("::ffff:8.8.8.8", Kind::Embedded),
            ("::ffff:0:8.8.8.8", Kind::Embedded),
            ("64:ff9b::a00:1", Kind::Embedded),
            ("64:ff9b:1::1", Kind::Embedded),
            ("2002:7f00:1::", Kind::Embedded),
            ("2001:0:1::", Kind::Embedded),
            ("2001:db8::1", Kind::Reserved),
            ("2001:4860:4860::8888", Kind::Public),
            ("2606:4700::1", Kind::Public),
            ("fc00::1", Kind::Private),
            ("fdff::1", Kind::Private),
            ("fd00:ec2::254", Kind::Metadata),
            ("fe80::1", Kind::LinkLocal),
            ("febf::1", Kind::LinkLocal),
            ("fec0::1", Kind::Private),
            ("ff02::1", Kind::Multicast),
            ("4000::1", Kind::Reserved),
        ] {
            assert_eq!(kind(text.parse().unwrap()), wanted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_address_of_version_4_hides_in_one_of_version_6(bits: u32) {
            let four = Ipv4Addr::from(bits);
            let low = u128::from(bits);
            for prefix in ["::", "::ffff:0:0", "64:ff9b::", "::ffff:0:0:0"] {
                let base: Ipv6Addr = prefix.parse().unwrap();
                let hidden = Ipv6Addr::from(u128::from(base) | low);
                prop_assert!(kind(hidden.into()) != Kind::Public, "{four} as {hidden}");
                prop_assert!(bits < 2 || !kind(hidden.into()).open(true, true), "{four} as {hidden}");
            }
            let six_to_four = Ipv6Addr::from((0x2002u128 << 112) | (low << 80));
            prop_assert_eq!(kind(six_to_four.into()), Kind::Embedded);
        }

        #[test]
        fn what_the_standard_library_calls_special_is_never_public(bits: u32) {
            let a = Ipv4Addr::from(bits);
            let special = a.is_private() || a.is_loopback() || a.is_link_local() || a.is_multicast()
                || a.is_broadcast() || a.is_documentation() || a.is_unspecified();
            prop_assert!(!special || kind(a.into()) != Kind::Public, "{a}");
        }
    }
}
