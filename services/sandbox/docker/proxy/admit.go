package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/versions"

	"skandha.dev/services/sandbox/docker/form"
)

const (
	maxBody  = 1 << 20          // bytes
	bodies   = 16               // at a time
	bodyTime = 10 * time.Second // for a body to arrive
)

// call is a request that a route admits. What goes to the engine is made from its fields.
type call struct {
	route
	w       http.ResponseWriter
	r       *http.Request // for its context alone
	version string        // such as "/v1.51"; empty without
	path    string
	name    string // of the container, image or volume
	args    url.Values
	content []byte
	free    func() // its memory is no longer used
}

// problem is an answer other than the engine's.
type problem struct {
	status  int
	message string
}

func (p *problem) Error() string { return p.message }

// refuse is the answer to a request that breaks a rule.
func refuse(format string, args ...any) error {
	return &problem{http.StatusForbidden, "the engine proxy refuses this: " + fmt.Sprintf(format, args...)}
}

var split = regexp.MustCompile(`^(/v(1\.[0-9]{2}))?(/.*)$`)

// admit finds the route of a request, and checks everything that does not depend on the engine. The body is
// read last.
func (p *Proxy) admit(w http.ResponseWriter, r *http.Request) (*call, error) {
	if r.Proto != "HTTP/1.1" {
		return nil, refuse("protocol %.20q, want HTTP/1.1", r.Proto)
	}
	// Not r.URL, which is decoded and may have another host.
	target, query, _ := strings.Cut(r.RequestURI, "?")
	c := &call{w: w, r: r, free: func() {}}
	if err := p.find(c, r.Method, target); err != nil {
		return nil, err
	}
	var err error
	if c.args, err = c.check(query); err != nil {
		return nil, err
	}
	if err := c.checkHeaders(r); err != nil {
		return nil, err
	}
	if !c.body {
		return c, nil
	}
	select { // a body takes memory while it is checked
	case p.bodies <- struct{}{}:
		c.free = sync.OnceFunc(func() { <-p.bodies })
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	c.content, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		c.free()
		return nil, refuse("the body cannot be read: %v", err)
	}
	_ = control.SetReadDeadline(time.Time{})
	return c, nil
}

// find finds the route.
func (p *Proxy) find(c *call, method, target string) error {
	parts := split.FindStringSubmatch(target)
	if parts == nil {
		return refuse("path %.200q", target)
	}
	c.version, c.path = parts[1], parts[3]
	for _, rt := range p.routes {
		m := rt.path.FindStringSubmatch(c.path)
		if m == nil || rt.method != method {
			continue
		}
		if v := parts[2]; rt.bare != (v == "") || !rt.bare && (versions.LessThan(v, form.OldestAPI) ||
			versions.GreaterThan(v, api.DefaultVersion)) {
			return refuse("API version %q, want %s to %s", v, form.OldestAPI, api.DefaultVersion)
		}
		if len(m) > 1 {
			c.name = m[1]
		}
		c.route = rt
		return nil
	}
	return refuse("no rule allows %.20s %.200q", method, target)
}

// check checks the query, and returns its parameters.
func (c *call) check(query string) (url.Values, error) {
	got, err := url.ParseQuery(query)
	if err != nil {
		return nil, refuse("the query: %.200v", err)
	}
	args := url.Values{}
	for _, want := range c.query {
		values := got[want.key]
		delete(got, want.key)
		if len(values) == 0 && want.optional {
			continue
		}
		if len(values) != 1 || !want.want.MatchString(values[0]) {
			return nil, refuse("parameter %s is %.200q, want one that matches %.300s", want.key, values, want.want)
		}
		args.Set(want.key, values[0])
	}
	for key := range got {
		return nil, refuse("parameter %.100q", key)
	}
	return args, nil
}

// checkHeaders checks how a body is sent and the connection is used. No header reaches the engine.
func (c *call) checkHeaders(r *http.Request) error {
	switch {
	case len(r.TransferEncoding) > 0 || len(r.Trailer) > 0 || r.ContentLength < 0:
		return refuse("a body in chunks; send a Content-Length")
	case r.Header.Get("Expect") != "":
		return refuse("header Expect")
	case !c.body && r.ContentLength != 0:
		return refuse("a body of %d bytes, want none", r.ContentLength)
	case c.body && r.ContentLength == 0:
		return refuse("no body")
	case c.body && r.ContentLength > maxBody:
		return refuse("a body of %d bytes, want at most %d", r.ContentLength, maxBody)
	case c.body && r.Header.Get("Content-Type") != "application/json":
		return refuse("Content-Type %.100q, want application/json", r.Header.Get("Content-Type"))
	}
	return c.checkUpgrade(r)
}

func (c *call) checkUpgrade(r *http.Request) error {
	upgrade, connection := r.Header.Values("Upgrade"), r.Header.Values("Connection")
	if c.upgrade {
		if len(upgrade) != 1 || upgrade[0] != "tcp" || len(connection) != 1 || connection[0] != "Upgrade" {
			return refuse("want the headers Connection: Upgrade and Upgrade: tcp, once")
		}
		return nil
	}
	if len(upgrade) > 0 || strings.Contains(strings.ToLower(strings.Join(connection, ",")), "upgrade") {
		return refuse("an upgrade of the connection")
	}
	return nil
}

// asProblem returns the answer to a request that ended with an error.
func asProblem(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return &problem{http.StatusInternalServerError, err.Error()}
}
