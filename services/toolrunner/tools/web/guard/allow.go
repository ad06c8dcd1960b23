package guard

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
type AllowList struct {
	setting string // that lists them, for errors
	rules   []rule
	any     bool
}

type rule struct {
	host   string // "example.com"; of a suffix rule ".example.com"
	suffix bool
	port   string // "": the scheme's own
}

// Any is the pattern of [ParseAny] for every host.
const Any = "*"

// Parse reads the patterns of a setting: a host name or address ("api.example.com"), or all
// names below one ("*.example.com", which is not example.com itself), each with
// an optional ":port". Without one, only the scheme's own port (80 or 443) is
// allowed.
func Parse(setting string, patterns []string) (AllowList, error) {
	l := AllowList{setting: setting}
	var errs []error
	for _, p := range patterns {
		r, err := parseRule(strings.TrimSpace(p))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", setting, p, err))
			continue
		}
		l.rules = append(l.rules, r)
	}
	return l, errors.Join(errs...)
}

// ParseAny is Parse, and also reads [Any], which allows every host on the scheme's own port.
func ParseAny(setting string, patterns []string) (AllowList, error) {
	names := slices.DeleteFunc(slices.Clone(patterns), func(p string) bool { return strings.TrimSpace(p) == Any })
	l, err := Parse(setting, names)
	l.any = len(names) < len(patterns)
	return l, err
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
func (l AllowList) Empty() bool { return len(l.rules) == 0 && !l.any }

// Check returns why a URL may not be requested; nil if it may.
func (l AllowList) Check(u *url.URL) error {
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
	if l.any && port == own || slices.ContainsFunc(l.rules, func(r rule) bool { return r.fits(host, port, own) }) {
		return nil
	}
	return fmt.Errorf("host %q with port %s is not allowed; the operator of this tool runner can allow it (%s)",
		host, port, l.setting)
}

// Check returns why a URL may not be requested: neither list has its host.
func Check(u *url.URL, hosts, locals AllowList) error {
	err := hosts.Check(u)
	if err != nil && locals.Check(u) == nil {
		return nil
	}
	return err
}

// dials reports whether the list names the host of a connection.
func (l AllowList) dials(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host, err = normalHost(host); err != nil {
		return false
	}
	return slices.ContainsFunc(l.rules, func(r rule) bool {
		return r.fits(host, port, "80") || r.fits(host, port, "443")
	})
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
