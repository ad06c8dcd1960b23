package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"skandha.dev/services/toolrunner/tools/web/guard"
	"skandha.dev/services/toolrunner/tools/web/pdftext"
	"skandha.dev/services/toolrunner/tools/web/source"
)

const (
	maxRedirects = 10
	maxHeader    = 64 << 10 // of a response, in bytes
	converters   = 2        // pages that are converted at a time
)

// accept is what a server should prefer to answer with.
const accept = "text/html,application/xhtml+xml,text/markdown,text/plain,application/json,application/pdf;q=0.9,*/*;q=0.1"

type fetcher struct {
	limits
	cfg  Config
	http *http.Client
	busy chan struct{} // one for each page that is being converted

	readPDF func(ctx context.Context, pdf []byte) (pdftext.Document, error)
}

func newFetcher(c Config, l limits) *fetcher {
	if c.Dial == nil {
		c.Dial = guard.Dial(c.Locals)
	}
	f := &fetcher{limits: l, cfg: c, busy: make(chan struct{}, converters), readPDF: pdftext.Read}
	f.http = &http.Client{
		CheckRedirect: f.follow,
		Transport: &http.Transport{
			Proxy:       nil, // a proxy could connect to forbidden addresses
			DialContext: c.Dial, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: maxHeader, DisableKeepAlives: true,
		},
	}
	return f
}

// body is what a server answered.
type body struct {
	url     *url.URL // that answered, after redirects
	media   string   // the media type, lower-case; empty if it is not said
	charset string   // the header, for its charset
	data    []byte
	cut     bool // there was more
}

func (f *fetcher) fetch(ctx context.Context, u *url.URL, whole bool) (document, error) {
	b, err := f.get(ctx, u)
	if err != nil {
		return document{}, err
	}
	return f.converted(ctx, b, whole)
}

// check returns why a URL may not be read.
func (f *fetcher) check(u *url.URL) error { return guard.Check(u, f.cfg.Hosts, f.cfg.Locals) }

// follow follows a redirect that stays on the host. Policy has not judged any other.
func (f *fetcher) follow(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("it redirects more than %d times", maxRedirects)
	}
	if !sameHost(via[0].URL, req.URL) {
		return http.ErrUseLastResponse
	}
	req.Header.Del("Referer")
	return f.check(req.URL)
}

// sameHost reports whether b is on the host of a: with the same port and scheme, or the same
// host with https, with or without "www.".
func sameHost(a, b *url.URL) bool {
	name := func(u *url.URL) string { return strings.TrimPrefix(strings.ToLower(u.Hostname()), "www.") }
	if name(a) != name(b) {
		return false
	}
	upgrade := a.Scheme == "http" && b.Scheme == "https" && a.Port() == "" && b.Port() == ""
	return upgrade || a.Scheme == b.Scheme && a.Port() == b.Port()
}

func (f *fetcher) get(ctx context.Context, u *url.URL) (body, error) {
	if err := f.check(u); err != nil {
		return body{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, f.read)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return body{}, fmt.Errorf("building the request: %w", err)
	}
	req.Header.Set("User-Agent", "skandha-toolrunner")
	req.Header.Set("Accept", accept)
	resp, err := f.http.Do(req)
	if err != nil {
		return body{}, f.explained(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := unusable(resp); err != nil {
		return body{}, err
	}
	return f.readBody(resp)
}

// explained says what a failed connection means.
func (f *fetcher) explained(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL
		err = u.Err
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the server did not answer within %v", f.read)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return errors.New("the connection ended before the page did; try again")
	}
	return err
}

// unusable returns why a response has no page.
func unusable(resp *http.Response) error {
	to, err := resp.Location()
	switch code := resp.StatusCode; {
	case code/100 == 3 && err == nil:
		return fmt.Errorf("it redirects to another host, which is not followed; request it in another call: %s",
			source.Line(to.Redacted(), 1000))
	case code == http.StatusNoContent, code == http.StatusResetContent:
		return fmt.Errorf("the server answered %d, without a page", code)
	case code/100 != 2:
		after := ""
		if v := resp.Header.Get("Retry-After"); v != "" {
			after = "; it may answer after " + source.Line(v, 40)
		}
		return fmt.Errorf("the server answered with status %d %s%s", code, http.StatusText(code), after)
	}
	if e := resp.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fmt.Errorf("the server sent the encoding %s, which was not asked for", source.Line(e, 40))
	}
	return nil
}

func (f *fetcher) readBody(resp *http.Response) (body, error) {
	b := body{url: resp.Request.URL, charset: resp.Header.Get("Content-Type")}
	media, _, err := mime.ParseMediaType(b.charset)
	if err != nil { // a parameter is wrong, or there is none
		media, _, _ = strings.Cut(b.charset, ";")
	}
	b.media = strings.ToLower(strings.TrimSpace(media))
	head, err := io.ReadAll(io.LimitReader(resp.Body, sniffed))
	if err != nil {
		return body{}, f.explained(err)
	}
	b.media = actual(b.media, head)
	limit := f.text
	if kindOf(b.media) == kindPDF {
		limit = f.pdf
	}
	if kindOf(b.media) == kindBinary {
		return body{}, binary(b.media, resp.ContentLength)
	}
	b.data, err = io.ReadAll(io.LimitReader(io.MultiReader(bytes.NewReader(head), resp.Body), limit+1))
	if err != nil {
		return body{}, f.explained(err)
	}
	if b.cut = int64(len(b.data)) > limit; b.cut {
		b.data = b.data[:limit]
	}
	if b.cut && kindOf(b.media) == kindPDF {
		return body{}, fmt.Errorf("the PDF is larger than %d bytes", limit)
	}
	return b, nil
}

func binary(media string, size int64) error {
	what := "web:fetch reads HTML, text, JSON and PDF"
	if size >= 0 {
		return fmt.Errorf("the page is %s (%d bytes), which is not text; %s", source.Line(media, 80), size, what)
	}
	return fmt.Errorf("the page is %s, which is not text; %s", source.Line(media, 80), what)
}
