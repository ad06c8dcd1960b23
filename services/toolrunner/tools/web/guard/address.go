package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// v6Public is the part of IPv6 that is allocated to the public.
var v6Public = netip.MustParsePrefix("2000::/3")

// closed are the addresses that are reserved, private or map to other addresses
// (IANA special-purpose registries), and well-known metadata services.
var closed = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32", // Azure's host
	"2001::/23",        // Teredo, benchmarking, ORCHID
	"2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20",
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// public reports whether an address belongs to the open internet. Of IPv6 that
// excludes whatever embeds an IPv4 address: mapped, NAT64, 6to4, Teredo.
func public(a netip.Addr) bool {
	if a.Zone() != "" || a.Is6() && !v6Public.Contains(a) {
		return false
	}
	return !slices.ContainsFunc(closed, func(p netip.Prefix) bool { return p.Contains(a) })
}

// private reports whether an address is of this machine or of a local network, which an
// operator may name a host of. Link-local addresses, at which clouds serve credentials, are not.
func private(a netip.Addr) bool {
	return a.Zone() == "" && (a.IsLoopback() || a.IsPrivate() || shared.Contains(a))
}

// shared is the address space of carriers, which overlay networks also use.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Public is the Control of a net.Dialer that connects only to public addresses. It checks the
// actual address of a connection, after DNS.
func Public(network, address string, _ syscall.RawConn) error {
	return control(network, address, public)
}

func local(network, address string, _ syscall.RawConn) error {
	return control(network, address, func(a netip.Addr) bool { return public(a) || private(a) })
}

func control(network, address string, allowed func(netip.Addr) bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("connecting to %s %s is not allowed", network, address)
	}
	if !allowed(ap.Addr()) {
		return fmt.Errorf("address %s is not public", ap.Addr())
	}
	return nil
}
