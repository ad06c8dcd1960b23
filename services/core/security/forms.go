package security

import (
	"net/netip"
	"path"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// unescapes is how many levels of escapes in a value are resolved.
const unescapes = 3

// forms returns the ways in which a value may be read, in lower case: unchanged, and
// without escapes, user names, default ports or any port, other spellings of a host, dots
// and detours. It serves rules that deny or ask, where a superfluous form only costs a
// question.
func forms(v string) []string {
	v = strings.ToLower(strings.TrimSpace(v))
	out := readings(nil, v)
	for range unescapes {
		u := strings.ToLower(unescape(v))
		if u == v {
			break
		}
		v = u
		out = readings(out, v)
	}
	if n, err := strconv.ParseFloat(v, 64); err == nil {
		out = append(out, strconv.FormatFloat(n, 'f', -1, 64)) // 1e2 is 100
	}
	return out
}

// readings adds v, and what it may mean as a URL or a path.
func readings(out []string, v string) []string {
	out = append(out, v)
	v = strings.Map(visible, v)
	slashed := strings.ReplaceAll(v, `\`, "/")
	out = append(out, slashed)
	scheme, rest, ok := strings.Cut(slashed, ":")
	if !ok || scheme != "http" && scheme != "https" {
		p := path.Clean(slashed)
		return append(out, p, strings.TrimLeft(p, "/"))
	}
	out = urls(out, scheme, rest)
	if slashed != v { // some programs read the backslash as part of the user name
		out = urls(out, scheme, v[len(scheme)+1:])
	}
	return out
}

// urls adds what a URL may mean: each form of its host with each form of its path.
func urls(out []string, scheme, rest string) []string {
	rest = strings.TrimLeft(rest, "/")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, below := rest[:end], rest[end:]
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name, port := splitPort(authority)
	name = hostName(name)
	hosts := []string{name} // a rule without a port matches any port
	if port != "" && port != defaultPorts[scheme] {
		hosts = append(hosts, name+":"+port)
	}
	for _, host := range hosts {
		base := scheme + "://" + host
		out = append(out, base+path.Clean("/"+below), base+"/"+strings.TrimPrefix(below, "/"))
	}
	return out
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func splitPort(authority string) (name, port string) {
	at := strings.LastIndexByte(authority, ':')
	if at < 0 || strings.HasSuffix(authority, "]") {
		return authority, ""
	}
	return authority[:at], authority[at+1:]
}

// lookup maps a name as browsers and HTTP clients do before they look it up: full-width
// letters and dots become plain ones, invisible characters are dropped.
var lookup = idna.New(idna.MapForLookup(), idna.StrictDomainName(false))

// hostName returns the canonical form of a host: an address with its numbers
// normalized, or a name as it is looked up.
func hostName(name string) string {
	if mapped, err := lookup.ToASCII(name); err == nil {
		name = mapped
	}
	name = strings.TrimRight(name, ".")
	bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if ip, err := netip.ParseAddr(bare); err == nil {
		ip = ip.Unmap().WithZone("")
		if ip.Is6() {
			return "[" + ip.String() + "]"
		}
		return ip.String()
	}
	if ip, ok := numbers(name); ok {
		return ip.String()
	}
	return name
}

// numbers reads an IPv4 address as inet_aton does: 127.1, 0x7f.0.0.1, 2130706433.
func numbers(name string) (netip.Addr, bool) {
	parts := strings.Split(name, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var sum uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(part, 0, bits)
		if err != nil {
			return netip.Addr{}, false
		}
		sum = sum<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}), true
}

// inOneForm writes the host of a URL pattern like forms, unless it has wildcards. The
// brackets of an IPv6 address are not a character class.
func inOneForm(p string) string {
	scheme, rest, ok := strings.Cut(p, "://")
	if !ok {
		return p
	}
	host, below, slash := strings.Cut(rest, "/")
	name, port := splitPort(host)
	if !ipv6(name) && wild(name) {
		return p
	}
	name = strings.NewReplacer("[", `\[`, "]", `\]`).Replace(hostName(name))
	if port != "" && port != defaultPorts[scheme] {
		name += ":" + port
	}
	if slash {
		below = "/" + below
	}
	return scheme + "://" + name + below
}

func ipv6(name string) bool {
	inner, opened := strings.CutPrefix(name, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	ip, err := netip.ParseAddr(inner)
	return opened && closed && err == nil && ip.Is6()
}

// unescape resolves the escapes of a URL, and keeps what is not a valid escape.
func unescape(v string) string {
	if !strings.Contains(v, "%") {
		return v
	}
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if n, err := strconv.ParseUint(v[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(n))
				i += 2
				continue
			}
		}
		out = append(out, v[i])
	}
	return string(out)
}

// visible drops characters that some programs skip when they read a path or a URL.
func visible(r rune) rune {
	if r < ' ' || r == 0x7f {
		return -1
	}
	return r
}
