package guard

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestAllowList(t *testing.T) {
	l, err := Parse("http_allow", []string{
		"api.example.com", "*.Example.org.", "other.net:8443", "*.svc.test:8080", "2001:db8::1", "[2606:4700::1]:444",
	})
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]bool{
		"https://api.example.com/x":           true,
		"http://API.example.com./x":           true,
		"https://api.example.com:443/":        true,
		"https://api.example.com:80/":         false,
		"https://api.example.com:8443/":       false,
		"https://example.com/":                false,
		"https://evil-api.example.com/":       false,
		"https://api.example.com.evil.com/":   false,
		"https://a.example.org/":              true,
		"https://a.b.example.org/":            true,
		"https://example.org/":                false,
		"https://evilexample.org/":            false,
		"https://other.net:8443/":             true,
		"https://other.net/":                  false,
		"http://a.svc.test:8080/":             true,
		"http://[2001:db8::1]/":               true,
		"http://[2001:DB8:0::1]/":             true,
		"https://[2606:4700::1]:444/":         true,
		"ftp://api.example.com/":              false,
		"file:///etc/passwd":                  false,
		"https:api.example.com":               false,
		"https://user:pw@api.example.com/":    false,
		"https://api.example.com@evil.com/":   false,
		"https://evil.com#@api.example.com/":  false,
		"https://evil.com\\@api.example.com/": false,
		"https://ex%61mple.org/":              false,
		"https:///path":                       false,
		"https://ａpi.example.com/":            false,
	} {
		u, err := url.Parse(raw)
		if got := err == nil && l.Check(u) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v (%v)", raw, got, want, err)
		}
	}
	if !(AllowList{}).Empty() || l.Empty() {
		t.Error("Empty is wrong")
	}
	u, _ := url.Parse("https://example.com/")
	if (AllowList{}).Check(u) == nil {
		t.Error("the empty list allows something")
	}
}

func TestAllowListRefusesWhatItCannotKeep(t *testing.T) {
	for _, p := range []string{
		"", "*", "*.com", "*.*.example.com", "a b", "example.com:0", "example.com:99999", "https://example.com",
		"exämple.com", "*.127.0.0.1", "a..b",
	} {
		if _, err := Parse("http_allow", []string{p}); err == nil || !strings.Contains(err.Error(), "http_allow") {
			t.Errorf("%q: got %v", p, err)
		}
	}
}

func TestOnlyPublicAddressesAreConnectedTo(t *testing.T) {
	for addr, want := range map[string]bool{
		"93.184.216.34": true, "1.1.1.1": true, "2606:4700:4700::1111": true,
		"127.0.0.1": false, "127.8.8.8": false, "0.0.0.0": false, "10.1.2.3": false, "172.16.0.1": false,
		"172.31.255.255": false,
		"192.168.1.1":    false, "169.254.169.254": false, "100.100.100.200": false, "168.63.129.16": false,
		"192.0.0.192": false,
		"224.0.0.1":   false, "255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false, "203.0.113.9": false,
		"::1": false, "::": false, "fe80::1": false, "fc00::1": false, "fd00:ec2::254": false, "ff02::1": false,
		"fec0::1":          false,
		"::ffff:127.0.0.1": false, "::ffff:93.184.216.34": false, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001:0:1::1": false, "2001:db8::1": false,
	} {
		if got := public(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: public %v, want %v", addr, got, want)
		}
	}
	for address, want := range map[string]bool{
		"1.1.1.1:80": true, "127.0.0.1:80": false, "[::ffff:10.0.0.1]:80": false, "[fe80::1%eth0]:80": false,
		"localhost:80": false,
	} {
		network := "tcp4"
		if strings.HasPrefix(address, "[") {
			network = "tcp6"
		}
		if got := Public(network, address, nil) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v", address, got, want)
		}
	}
	if Public("udp4", "1.1.1.1:80", nil) == nil {
		t.Error("udp is allowed")
	}
}

func TestEveryHostOnItsOwnPort(t *testing.T) {
	l, err := ParseAny("web_fetch", []string{"*", "other.net:8443"})
	if err != nil || l.Empty() {
		t.Fatalf("got %+v, %v", l, err)
	}
	for raw, want := range map[string]bool{
		"https://anything.example/": true, "http://anything.example/": true, "https://other.net:8443/": true,
		"https://anything.example:8443/": false, "ftp://anything.example/": false, "https://u:p@anything.example/": false,
		"https://bad host/": false,
	} {
		u, err := url.Parse(raw)
		if got := err == nil && l.Check(u) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v", raw, got, want)
		}
	}
	if _, err := ParseAny("web_fetch", []string{"*", "*.com"}); err == nil || !strings.Contains(err.Error(), "web_fetch") {
		t.Errorf("got %v", err)
	}
}

// Only a host that is named may be of the local network, and never where clouds serve credentials.
func TestLocalHosts(t *testing.T) {
	locals, err := Parse("web_fetch_local", []string{"wiki.lan:8080", "*.svc.lan", "10.1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]bool{
		"wiki.lan:8080": true, "WIKI.lan.:8080": true, "wiki.lan:80": false, "a.svc.lan:443": true, "a.svc.lan:80": true,
		"a.svc.lan:22": false, "svc.lan:80": false, "10.1.2.3:80": true, "10.1.2.4:80": false, "x": false,
	} {
		if got := locals.dials(address); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "10.0.0.1:80": true, "192.168.0.1:80": true, "100.100.1.1:80": true, "1.1.1.1:80": true,
		"169.254.169.254:80": false, "0.0.0.0:80": false, "224.0.0.1:80": false, "168.63.129.16:80": false,
	} {
		if got := local("tcp4", address, nil) == nil; got != want {
			t.Errorf("%s: allowed %v, want %v", address, got, want)
		}
	}
}

func TestTheSettingIsNamedInErrors(t *testing.T) {
	l, _ := Parse("web_fetch", nil)
	u, _ := url.Parse("https://a.example/")
	if err := l.Check(u); err == nil || !strings.Contains(err.Error(), "(web_fetch)") {
		t.Errorf("got %v", err)
	}
}

func TestDialKeepsOutOfTheLocalNetwork(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	locals, err := Parse("web_fetch_local", []string{"localhost:" + port})
	if err != nil {
		t.Fatal(err)
	}
	dial := Dial(locals)
	c, err := dial(t.Context(), "tcp", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if _, err := dial(t.Context(), "tcp", "127.0.0.1:"+port); err == nil || !strings.Contains(err.Error(), "is not public") {
		t.Errorf("got %v", err)
	}
}
