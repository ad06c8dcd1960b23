// Package hosts checks the host names that a server is reached by, and the origins of
// its pages. A page in a browser whose name resolves to this machine
// (DNS rebinding) still sends its own name, and is recognized by it.
package hosts

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Set is the names that a server is reached by: those of the loopback interface and
// the ones it was made of.
type Set struct{ known []string }

// Of returns a set; see [Check] for the form of a name.
func Of(names []string) Set {
	s := Set{known: make([]string, len(names))}
	for i, n := range names {
		s.known[i] = strings.ToLower(n)
	}
	return s
}

// Has reports whether a Host header, with a port or without, is one of the names.
func (s Set) Has(header string) bool {
	name, _, ok := Split(header)
	return ok && (Loopback(name) || slices.Contains(s.known, name))
}

// Split returns the name in a Host header, in lower case and without brackets, and its
// port, "" if it has none. It is strict: anything but name, name:port, [IPv6]
// or [IPv6]:port is not ok.
func Split(header string) (name, port string, ok bool) {
	if rest, found := strings.CutPrefix(header, "["); found {
		var after string
		if name, after, found = strings.Cut(rest, "]"); !found || !strings.Contains(name, ":") || net.ParseIP(name) == nil {
			return "", "", false
		}
		if port, found = strings.CutPrefix(after, ":"); !found && after != "" {
			return "", "", false
		} else if !found {
			return strings.ToLower(name), "", true
		}
	} else {
		var found bool
		if name, port, found = strings.Cut(header, ":"); !found {
			return strings.ToLower(name), "", name != ""
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || name == "" {
		return "", "", false
	}
	return strings.ToLower(name), port, true
}

// Loopback reports whether a name without port means only this machine.
func Loopback(name string) bool {
	ip := net.ParseIP(name)
	return strings.EqualFold(name, "localhost") || ip != nil && ip.IsLoopback()
}

// ListensOnLoopback reports whether an address to listen on, host:port, is reachable
// only from this machine.
func ListensOnLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && Loopback(host)
}

// Check returns what is wrong with a configured name.
func Check(name string) error {
	got, port, ok := Split(name)
	if net.ParseIP(name) != nil { // IPv6 is written without brackets here
		got, port, ok = strings.ToLower(name), "", true
	}
	if !ok || port != "" || got != strings.ToLower(name) || strings.ContainsAny(name, "/*, @") {
		return fmt.Errorf("%q: want a name without scheme, port and *, such as agent.example.org", name)
	}
	return nil
}

// CheckOrigin returns what is wrong with a configured origin.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != origin || strings.Contains(origin, "*") ||
		strings.ToLower(origin) != origin {
		return fmt.Errorf("%q: want scheme://host[:port] as browsers send it, such as https://app.example.org", origin)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q: want http or https", origin)
	}
	if _, _, ok := Split(u.Host); !ok {
		return fmt.Errorf("%q: the host is not one", origin)
	}
	return nil
}

// CheckListen returns what is wrong with an address to listen on.
func CheckListen(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return errors.New(strconv.Quote(addr) + ": want host:port, such as 127.0.0.1:8090")
	}
	return nil
}
