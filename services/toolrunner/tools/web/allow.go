package web

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AllowList is the list of hosts that may be reached. The zero value allows none.
type AllowList struct{ rules []rule }

type rule struct {
	host   string // "example.com"; of a suffix rule ".example.com"
	suffix bool
	port   string // "": the scheme's own
}

// ParseAllow reads patterns: a host name or address ("api.example.com"), or all
// names below one ("*.example.com", which is not example.com itself), each with
// an optional ":port". Without one, only the scheme's own port (80 or 443) is
// allowed.
func ParseAllow(patterns []string) (AllowList, error) {
	var l AllowList
	var errs []error
	for _, p := range patterns {
		r, err := parseRule(strings.TrimSpace(p))
		if err != nil {
			errs = append(errs, fmt.Errorf("http_allow: %q: %w", p, err))
			continue
		}
		l.rules = append(l.rules, r)
	}
	return l, errors.Join(errs...)
}

func parseRule(p string) (rule, error) {
	host, port := p, ""
	if h, pt, err := net.SplitHostPort(p); err == nil {
		if n, err := strconv.Atoi(pt); err != nil || n < 1 || n > 65535 {
			return rule{}, fmt.Errorf("port %q is not one of 1 to 65535", pt)
		}
		host, port = h, pt
	}
	host, suffix := strings.CutPrefix(host, "*.")
	host, err := normalHost(strings.Trim(host, "[]"))
	if err != nil {
		return rule{}, err
	}
	if suffix {
		if !strings.Contains(host, ".") || net.ParseIP(host) != nil {
			return rule{}, errors.New("a suffix needs a domain of two labels or more, such as *.example.com")
		}
		host = "." + host
	}
	return rule{host, suffix, port}, nil
}

// normalHost returns a host name in the canonical form used for comparison.
func normalHost(h string) (string, error) {
	h = strings.TrimSuffix(strings.ToLower(h), ".")
	if ip := net.ParseIP(h); ip != nil {
		return ip.String(), nil
	}
	if h == "" || len(h) > 253 {
		return "", errors.New("want a host name, such as api.example.com")
	}
	for _, label := range strings.Split(h, ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return "", fmt.Errorf("%q is not a host name; write international names in their xn-- form", h)
		}
	}
	return h, nil
}

// Empty reports whether no host is allowed.
func (l AllowList) Empty() bool { return len(l.rules) == 0 }

// check returns why a URL may not be requested; nil if it may.
func (l AllowList) check(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the scheme is %q, want http or https", u.Scheme)
	}
	if u.User != nil {
		return errors.New("the URL contains a user name or password; use a header")
	}
	if u.Opaque != "" {
		return errors.New("the URL has no host")
	}
	host, err := normalHost(u.Hostname())
	if err != nil {
		return err
	}
	port, own := u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port == "" {
		port = own
	}
	if slices.ContainsFunc(l.rules, func(r rule) bool { return r.fits(host, port, own) }) {
		return nil
	}
	return fmt.Errorf("host %q with port %s is not allowed; the operator of this tool runner can allow it (http_allow)",
		host, port)
}

func (r rule) fits(host, port, own string) bool {
	if r.port != port && (r.port != "" || port != own) {
		return false
	}
	if r.suffix {
		return strings.HasSuffix(host, r.host)
	}
	return host == r.host
}
