package page

import (
	"bytes"
	"compress/gzip"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools/web/guard"
)

// raw serves exactly these bytes to every request, and then closes the connection, or only its
// writing half.
func raw(t *testing.T, half bool, response string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = c.Read(make([]byte, 4096))
				_, _ = c.Write([]byte(response))
				if half {
					_ = c.(*net.TCPConn).CloseWrite()
					_, _ = c.Read(make([]byte, 1)) // until the client closes
				}
				_ = c.Close()
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func fetcherFor(t *testing.T, l limits, bases ...string) *fetcher {
	t.Helper()
	var names []string
	for _, b := range bases {
		names = append(names, strings.TrimPrefix(b, "http://"))
	}
	return newFetcher(Config{Hosts: hosts(t, names...), Dial: guard.DialWith(loopback)}, l)
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"

func TestBrokenConnectionsAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		half           bool
		response, want string
	}{
		"a length that is too long": {false, head + "Content-Length: 1000\r\n\r\n<p>half", "ended before the page did"},
		"the same, half-closed":     {true, head + "Content-Length: 1000\r\n\r\n<p>half", "ended before the page did"},
		"a chunk that is cut":       {false, head + "Transfer-Encoding: chunked\r\n\r\nff\r\n<p>half", "ended before the page did"},
		"no last chunk":             {true, head + "Transfer-Encoding: chunked\r\n\r\n3\r\n<p>\r\n", "ended before the page did"},
		"a bad chunk":               {false, head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk"},
		"two lengths":               {false, head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "Content-Length"},
		"nothing":                   {false, "", "ended before the page did"},
		"no HTTP":                   {false, "SSH-2.0-OpenSSH_9.2p1\r\n", "malformed"},
		"endless headers":           {false, "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader), "exceeded"},
		"damaged gzip":              {false, head + "Content-Encoding: gzip\r\n\r\nthis is not gzip", "gzip"},
		"an encoding not asked for": {false, head + "Content-Encoding: br\r\n\r\nx", "encoding br, which was not asked for"},
		"no page":                   {false, "HTTP/1.1 204 No Content\r\n\r\n", "204, without a page"},
		"not found":                 {false, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404 Not Found"},
		"too many requests":         {false, "HTTP/1.1 429 X\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", "429 Too Many Requests; it may answer after 60"},
		"a redirect to nowhere":     {false, "HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "302"},
	} {
		t.Run(name, func(t *testing.T) {
			base := raw(t, c.half, c.response)
			_, r := call(t, fetcherFor(t, small, base), args{URL: base})
			if r.Success || r.Error.Code != tool.CodeFailed || !strings.Contains(r.Error.Message, c.want) {
				t.Errorf("got %s %+v, want %q", r.Data, r.Error, c.want)
			}
		})
	}
}

// A length that is too short is the length.
func TestALengthThatIsTooShort(t *testing.T) {
	base := raw(t, false, head+"Content-Length: 6\r\n\r\n<p>abcdef")
	if a, r := call(t, fetcherFor(t, small, base), args{URL: base}); a.Content != "abc" {
		t.Fatalf("got %s %+v", r.Data, r.Error)
	}
}

// What never ends is read up to the bound, and the rest not at all.
func TestWhatNeverEndsIsCut(t *testing.T) {
	var written atomic.Int64
	ended := make(chan struct{})
	base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		defer close(ended)
		w.Header().Set("Content-Type", "text/html")
		for line := []byte("<p>some words that never end</p>\n"); ; {
			n, err := w.Write(bytes.Repeat(line, 1000))
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	a, r := call(t, fetcherFor(t, small, base), args{URL: base})
	if !r.Success || !strings.Contains(a.Note, "the rest was not read") || a.NextOffset == 0 {
		t.Fatalf("got %.200s %+v", r.Data, r.Error)
	}
	<-ended
	if n := written.Load(); n > small.text+64<<20 { // the buffers of the sockets
		t.Errorf("the server has sent %d bytes", n)
	}
}

func TestAGzipBombIsCut(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 20 {
		_, _ = z.Write(bytes.Repeat([]byte("<p>boom "), 1<<17)) // 1 MiB
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(b.Bytes())
	})
	if a, r := call(t, fetcherFor(t, small, base), args{URL: base}); !r.Success || !strings.Contains(a.Note, "the rest was not read") {
		t.Fatalf("got %.200s %+v", r.Data, r.Error)
	}
}

func TestASlowServerIsGivenUp(t *testing.T) {
	fast := small
	fast.read = 50 * time.Millisecond
	gone := make(chan struct{}, 2)
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = w.Write([]byte("<p>a"))
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
		gone <- struct{}{}
	})
	for _, path := range []string{"/header", "/body"} {
		_, r := call(t, fetcherFor(t, fast, base), args{URL: base + path})
		if r.Success || !strings.Contains(r.Error.Message, "did not answer within 50ms") {
			t.Errorf("%s: got %+v", path, r.Error)
		}
		<-gone
	}
}

// Policy has judged a call to this host, so a redirect to another one takes another call.
func TestRedirects(t *testing.T) {
	var reached atomic.Int32
	other, _ := serve(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	base, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "there", http.StatusFound)
		case "/there":
			_, _ = w.Write([]byte("<p>arrived"))
		case "/other":
			http.Redirect(w, r, other+"/x?data=1", http.StatusFound)
		case "/metadata":
			http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		}
	})
	f := fetcherFor(t, small, base, other)
	if a, r := call(t, f, args{URL: base + "/here"}); a.Content != "arrived" || a.Sources[0].URL != base+"/there" {
		t.Errorf("got %s %+v", r.Data, r.Error)
	}
	for path, want := range map[string]string{
		"/other": other + "/x?data=1", "/metadata": "http://169.254.169.254/latest", "/file": "file:///etc/passwd",
		"/loop": "redirects more than 10 times",
	} {
		if _, r := call(t, f, args{URL: base + path}); r.Success || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: got %s %+v", path, r.Data, r.Error)
		}
	}
	if reached.Load() != 0 {
		t.Error("another host was reached")
	}
}

func TestSameHost(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"http://a.example/", "https://a.example/x", true},
		{"https://a.example/", "https://www.A.example/", true},
		{"https://www.a.example/", "https://a.example/", true},
		{"https://a.example/", "http://a.example/", false},
		{"http://a.example:8080/", "https://a.example/", false},
		{"https://a.example/", "https://a.example:8443/", false},
		{"https://a.example/", "https://b.example/", false},
		{"https://a.example/", "https://a.example.evil.example/", false},
	} {
		a, _ := parse(c.a)
		b, _ := parse(c.b)
		if got := sameHost(a, b); got != c.want {
			t.Errorf("%s → %s: %v", c.a, c.b, got)
		}
	}
}

// An allowed name that leads to this machine is refused when the connection is made.
func TestTheGuardStandsBeforeTheConnection(t *testing.T) {
	base, host := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") })
	_, port, _ := net.SplitHostPort(host)
	f := newFetcher(Config{Hosts: hosts(t, host, "localhost:"+port)}, small)
	for _, u := range []string{base, "http://localhost:" + port} {
		if _, r := call(t, f, args{URL: u}); r.Success || !strings.Contains(r.Error.Message, "is not public") {
			t.Errorf("%s: got %+v", u, r.Error)
		}
	}
}

func TestALocalHostThatIsNamedIsRead(t *testing.T) {
	base, host := serve(t, page("text/plain", []byte("wiki")))
	f := newFetcher(Config{Locals: hosts(t, host)}, small)
	if a, r := call(t, f, args{URL: base}); a.Content != "wiki" {
		t.Fatalf("got %+v", r.Error)
	}
	if _, r := call(t, f, args{URL: "http://127.0.0.2/"}); r.Success {
		t.Fatal("another address was read")
	}
}

// Pages that would cost far more than their bytes are read in bounded time and memory.
func TestHostilePages(t *testing.T) {
	r := strings.Repeat
	for name, c := range map[string]struct{ page, want string }{
		"50 MB":                  {r("<p>some words</p>", 50<<20/17), "some words"},
		"100,000 nested":         {r("<div>", 100_000) + "the core", "the core"},
		"nested quotes":          {r("<blockquote>", 300) + r("word<br>", 7_000), "word"},
		"nested lists":           {r("<ul><li>", 200) + r("word<br>", 7_000), "word"},
		"nested tables":          {r("<table><tr><td>", 100) + r("word<br>", 5000), "word"},
		"formatting left open":   {r("<b><i>x</b>", 50_000), "x"},
		"cells that span":        {"<table>" + r("<tr>"+r("<td colspan=50 rowspan=50>x", 20), 500) + "</table>", "x"},
		"one wide cell":          {"<table><tr><td>" + r("wide ", 100_000) + r("<tr><td>y", 20_000) + "</table>", "wide"},
		"attributes":             {"<div " + r(" b=1", 300_000) + ">", ""},
		"an unfinished tag":      {"<p>word</p><a href='" + r("x", 1<<20), "word"},
		"an unfinished comment":  {"<p>word</p><!--" + r("-", 1<<20), "word"},
		"invalid UTF-8":          {"<p>a\xff\xfeb</p><p>word", "word"},
		"a script without end":   {"<p>word</p><script>" + r("x", 1<<20), "word"},
		"JSON that nests":        {`<script type="application/ld+json">` + r("[", 1<<20) + "</script><p>word", "word"},
		"a date from hell":       {`<meta property="article:published_time" content="` + r("9-", 10_000) + `"><p>word`, "word"},
		"signs that are escaped": {"<p>" + r("*_[a](b) # ", 50_000), "a"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFetcher(Config{}, bounds)
			data := []byte(c.page)
			cut := len(data) > int(bounds.text)
			u, err := parse("https://a.example/")
			if err != nil {
				t.Fatal(err)
			}
			d, err := f.converted(t.Context(), body{url: u, media: "text/html", data: data[:min(len(data), int(bounds.text))], cut: cut}, false)
			if err != nil || len(d.text) > maxText+4 || !strings.Contains(d.text, c.want) {
				t.Fatalf("got %d bytes: %.100q, %v", len(d.text), d.text, err)
			}
		})
	}
}

// A conversion that hangs keeps its place, and other calls fail.
func TestConversionsThatHangAreBounded(t *testing.T) {
	f := newFetcher(Config{}, limits{convert: time.Nanosecond})
	for range converters {
		f.busy <- struct{}{}
	}
	if _, err := f.converted(t.Context(), body{}, false); err == nil || !strings.Contains(err.Error(), "too many pages") {
		t.Fatalf("got %v", err)
	}
}

func TestAPanicOfAConverterIsAnError(t *testing.T) {
	f := newFetcher(Config{}, bounds)
	if _, err := f.converted(t.Context(), body{media: "text/html"}, false); err == nil || !strings.Contains(err.Error(), "could not be converted") {
		t.Fatalf("got %v", err) // it has no URL
	}
	if len(f.busy) != 0 {
		t.Error("its place is taken")
	}
}

func TestAServerThatIsNotThere(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	if _, r := call(t, fetcherFor(t, small, s.URL), args{URL: s.URL}); r.Success || !strings.Contains(r.Error.Message, "refused") {
		t.Fatalf("got %+v", r)
	}
}
