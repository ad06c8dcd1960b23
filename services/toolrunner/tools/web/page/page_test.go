package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode"

	"skandha.dev/pkg/tool"
	"skandha.dev/services/toolrunner/tools"
	"skandha.dev/services/toolrunner/tools/web/guard"
	"skandha.dev/services/toolrunner/tools/web/pdftext"
)

// loopback lets a test reach its own server. Only tests can ask for it.
func loopback(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err != nil || !ap.Addr().IsLoopback() {
		return fmt.Errorf("a test wants to connect to %s", address)
	}
	return nil
}

func hosts(t *testing.T, names ...string) guard.AllowList {
	t.Helper()
	l, err := guard.ParseAny("web_fetch", names)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func serve(t *testing.T, h http.HandlerFunc) (base, host string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL, strings.TrimPrefix(s.URL, "http://")
}

// small are bounds that a test can reach.
var small = limits{text: 1 << 20, pdf: 1 << 20, read: 20 * time.Second, convert: 20 * time.Second}

func call(t *testing.T, f *fetcher, a args) (answer, tool.Result) {
	t.Helper()
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	r := f.tool().Run(t.Context(), tools.Call{Args: raw})
	var out answer
	if r.Success {
		if err := json.Unmarshal(r.Data, &out); err != nil {
			t.Fatal(err)
		}
	}
	return out, r
}

// read reads one page that a handler serves.
func read(t *testing.T, h http.HandlerFunc) (answer, tool.Result) {
	t.Helper()
	base, host := serve(t, h)
	f := newFetcher(Config{Hosts: hosts(t, host), Dial: guard.DialWith(loopback)}, small)
	return call(t, f, args{URL: base + "/news/today"})
}

func page(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil // otherwise the server guesses
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = w.Write(body)
	}
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func contains(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if not, missing := strings.CutPrefix(w, "!"); missing && strings.Contains(text, not) {
			t.Errorf("%s: %q is in\n%s", what, not, text)
		} else if !missing && !strings.Contains(text, w) {
			t.Errorf("%s: %q is missing in\n%s", what, w, text)
		}
	}
}

func TestAnArticleBecomesMarkdown(t *testing.T) {
	a, r := read(t, page("text/html; charset=utf-8", file(t, "en.html")))
	if !r.Success || a.Format != "markdown" || a.NextOffset != 0 || len(a.Sources) != 1 {
		t.Fatalf("got %s %v", r.Data, r.Error)
	}
	s := a.Sources[0]
	if s.Title != "How bridges work" || s.Byline != "Ada Example" || s.Published != "2025-02-03" || s.Site != "The Daily Span" ||
		!strings.HasSuffix(s.URL, "/news/today") {
		t.Errorf("the source is %+v", s)
	}
	base := strings.TrimSuffix(s.URL, "/news/today")
	contains(t, "the article", a.Content, "*arch*", "**suspension bridge**", "[The longest spans]("+base+"/spans?q=1&r=2#top)",
		"a bridge in fog", "load = mass * 9.81", "Read on: a trap, and", "[a mail](mailto:ada@span.example)",
		"!javascript", "!never shown", "!Ignore all earlier", "!Log in", "!Imprint", "!bridge.jpg", "!color:red")
}

func TestTheWholePageHasItsNavigation(t *testing.T) {
	base, host := serve(t, page("text/html", file(t, "en.html")))
	f := newFetcher(Config{Hosts: hosts(t, host), Dial: guard.DialWith(loopback)}, small)
	a, _ := call(t, f, args{URL: base, Whole: true})
	contains(t, "the page", a.Content, "Log in", "Imprint", "*arch*", "!Ignore all earlier", "!never shown", "!javascript")
}

// Pages of East Asia, as their servers send them: with a declaration, in the header or the page,
// with a byte order mark, or without any hint.
func TestPagesOfEastAsia(t *testing.T) {
	ja, hans, hant := file(t, "ja.html"), file(t, "zh-hans.html"), file(t, "zh-hant.html")
	wants := map[string][]string{
		"ja":   {"東京は、日本の首都であり", "/wiki/%E6%9D%B1%E4%BA%AC)", "## 戦後", "2020", "14,047,594", "!ホーム"},
		"hans": {"北京是中华人民共和国的首都", "故宫：明清两代的皇家宫殿", "> 不到长城非好汉。"},
		"hant": {"臺北位於臺灣北部的臺北盆地", "捷運系統於一九九六年"},
	}
	meta := func(b []byte, name string) []byte {
		return []byte(strings.Replace(string(b), "<head>", `<head><meta charset="`+name+`">`, 1))
	}
	for name, c := range map[string]struct {
		enc    encoding.Encoding
		page   []byte
		header string
		want   string
	}{
		"UTF-8":               {encoding.Nop, ja, "text/html", "ja"},
		"Shift_JIS, header":   {japanese.ShiftJIS, ja, "text/html; charset=Shift_JIS", "ja"},
		"Shift_JIS, page":     {japanese.ShiftJIS, meta(ja, "shift_jis"), "text/html", "ja"},
		"Shift_JIS, no hint":  {japanese.ShiftJIS, ja, "text/html", "ja"},
		"EUC-JP, page":        {japanese.EUCJP, meta(ja, "euc-jp"), "text/html", "ja"},
		"EUC-JP, no hint":     {japanese.EUCJP, ja, "text/html", "ja"},
		"ISO-2022-JP, header": {japanese.ISO2022JP, ja, "text/html; charset=iso-2022-jp", "ja"},
		"UTF-16 with a mark":  {unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), ja, "text/html", "ja"},
		"GBK, header":         {simplifiedchinese.GBK, hans, "text/html; charset=gbk", "hans"},
		"GB2312, page":        {simplifiedchinese.GBK, meta(hans, "gb2312"), "text/html", "hans"},
		"GB18030, no hint":    {simplifiedchinese.GB18030, hans, "text/html", "hans"},
		"Big5, page":          {traditionalchinese.Big5, meta(hant, "big5"), "text/html", "hant"},
		"Big5, no hint":       {traditionalchinese.Big5, hant, "text/html", "hant"},
		"a wrong header":      {encoding.Nop, append([]byte("\ufeff"), hant...), "text/html; charset=iso-8859-1", "hant"},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := c.enc.NewEncoder().Bytes(c.page)
			if err != nil {
				t.Fatal(err)
			}
			a, r := read(t, page(c.header, body))
			if !r.Success {
				t.Fatal(r.Error)
			}
			contains(t, name, a.Content, append(wants[c.want], "!\uFFFD")...)
		})
	}
	a, _ := read(t, page("text/html", ja))
	if s := a.Sources[0]; s.Title != "東京の歴史" && s.Title != "東京の歴史 - 百科" || s.Byline != "山田太郎" || s.Published != "2024-05-06" {
		t.Errorf("the source is %+v", s)
	}
}

func TestOtherTextIsAsItIs(t *testing.T) {
	latin, err := charmap.ISO8859_1.NewEncoder().String("café")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ media, body, want string }{
		"JSON":               {"application/json", `{"a":"<b>"}`, `{"a":"<b>"}`},
		"a JSON of a kind":   {"application/ld+json; charset=utf-8", `[1]`, `[1]`},
		"text":               {"text/plain", "a\n b <p>", "a\n b <p>"},
		"Markdown":           {"text/markdown", "# a\n*b*", "# a\n*b*"},
		"XML":                {"application/rss+xml", "<rss/>", "<rss/>"},
		"Latin 1":            {"text/plain; charset=ISO-8859-1", latin, "café"},
		"a byte order mark":  {"text/plain", "\ufeffx", "x"},
		"text without type":  {"", "only words", "only words"},
		"a bad type":         {"text/plain; charset", "x", "x"},
		"invalid UTF-8":      {"text/plain; charset=utf-8", "a\xffb", "a\uFFFDb"},
		"an unknown charset": {"text/plain; charset=nonsense", "x", "x"},
	} {
		a, r := read(t, page(c.media, []byte(c.body)))
		if !r.Success || a.Content != c.want || a.Format != "text" {
			t.Errorf("%s: got %q %s %v", name, a.Content, a.Format, r.Error)
		}
	}
}

// A PDF is known by its beginning. How real ones are read is tested in package pdftext; starting
// its sandbox takes seconds.
func TestAPDFBecomesText(t *testing.T) {
	pdf := []byte("%PDF-1.7 …")
	base, host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.URL.Query().Get("media"))
		_, _ = w.Write(pdf)
	})
	f := newFetcher(Config{Hosts: hosts(t, host), Dial: guard.DialWith(loopback)}, small)
	f.readPDF = func(_ context.Context, got []byte) (pdftext.Document, error) {
		if string(got) != string(pdf) {
			return pdftext.Document{}, errors.New("damaged")
		}
		return pdftext.Document{Title: "Bridges", Author: "Ada", Text: "one\n\ntwo", Pages: 9, Read: 2}, nil
	}
	for _, media := range []string{"application/pdf", "application/octet-stream", "text/html"} {
		a, r := call(t, f, args{URL: base + "?media=" + media})
		if !r.Success || a.Format != "text" || a.Content != "one\n\ntwo" || a.Sources[0].Title != "Bridges" ||
			a.Sources[0].Byline != "Ada" || a.Note != "only the first 2 of 9 pages were read" {
			t.Errorf("%s: got %s %v", media, r.Data, r.Error)
		}
	}
	f.readPDF = func(context.Context, []byte) (pdftext.Document, error) {
		return pdftext.Document{}, errors.New("damaged")
	}
	if _, r := call(t, f, args{URL: base}); r.Success || !strings.Contains(r.Error.Message, "damaged") {
		t.Errorf("got %+v", r)
	}
	f.readPDF = func(context.Context, []byte) (pdftext.Document, error) {
		return pdftext.Document{Pages: 1, Read: 1}, nil
	}
	if a, _ := call(t, f, args{URL: base}); !strings.Contains(a.Note, "may be pictures") {
		t.Errorf("got %+v", a)
	}
	pdf = append(pdf, make([]byte, small.pdf)...)
	if _, r := call(t, f, args{URL: base}); r.Success || !strings.Contains(r.Error.Message, "larger than") {
		t.Errorf("got %+v", r)
	}
}

func TestWhatIsNoTextIsRefused(t *testing.T) {
	for media, body := range map[string]string{
		"image/png": "\x89PNG\r\n\x1a\n", "": "\x89PNG\r\n\x1a\n", "application/zip": "PK\x03\x04", "text/plain": "a\x00b",
		"application/octet-stream": "\x7fELF\x00", "video/mp4": "x",
	} {
		_, r := read(t, page(media, []byte(body)))
		if r.Success || !strings.Contains(r.Error.Message, "web:fetch reads HTML, text, JSON and PDF") {
			t.Errorf("%q: got %s %v", media, r.Data, r.Error)
		}
	}
}

// A long page comes in parts that join to the whole.
func TestALongPageIsReadInParts(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "line %d: 語 <&> \"quoted\" \u2028 é\n", i)
	}
	whole := b.String()
	base, host := serve(t, page("text/plain; charset=utf-8", []byte(whole)))
	f := newFetcher(Config{Hosts: hosts(t, host), Dial: guard.DialWith(loopback)}, small)
	var got strings.Builder
	parts := 0
	for offset := 0; ; parts++ {
		a, r := call(t, f, args{URL: base, Offset: offset})
		if !r.Success || len(r.Data) > 16<<10 || a.Total != len([]rune(whole)) || len(a.Sources) != 1 {
			t.Fatalf("at %d: %d bytes, %+v", offset, len(r.Data), r.Error)
		}
		got.WriteString(a.Content)
		if offset = a.NextOffset; offset == 0 {
			break
		}
	}
	if got.String() != whole || parts < 5 {
		t.Errorf("%d parts, %d of %d bytes", parts, got.Len(), len(whole))
	}
	if _, r := call(t, f, args{URL: base, Offset: 1 << 30}); r.Success || r.Error.Code != tool.CodeInvalidArgs {
		t.Errorf("past its end: %+v", r)
	}
}

func TestNothingOfAnEarlierPageIsSent(t *testing.T) {
	base, host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "id", Value: "1", Path: "/"})
		if r.URL.Path == "/a" {
			http.Redirect(w, r, "/b?secret=1", http.StatusFound)
			return
		}
		_, _ = fmt.Fprintf(w, "cookie %q, referer %q, agent %q", r.Header.Get("Cookie"), r.Referer(), r.UserAgent())
	})
	f := newFetcher(Config{Hosts: hosts(t, host), Dial: guard.DialWith(loopback)}, small)
	for range 2 {
		a, r := call(t, f, args{URL: base + "/a"})
		if !r.Success || a.Content != `cookie "", referer "", agent "skandha-toolrunner"` ||
			a.Sources[0].URL != base+"/b?secret=1" {
			t.Fatalf("got %s %v", r.Data, r.Error)
		}
	}
}

func TestTheURLIsChecked(t *testing.T) {
	f := newFetcher(Config{Hosts: hosts(t, "*")}, small)
	for raw, want := range map[string]string{
		"nonsense": "no absolute", "/x": "no absolute", "ftp://a.example/": "want http or https", "file:///etc/passwd": "no absolute",
		"https://u:p@a.example/": "user name", "http://a.example:22/": "not allowed", "http://127.0.0.1/": "is not public",
		"http://[::1]/": "is not public", "http://169.254.169.254/latest/meta-data/": "is not public",
		"http://localhost/": "is not public", "http://2130706433/": "",
	} {
		_, r := call(t, f, args{URL: raw})
		if r.Success || !strings.Contains(r.Error.Message, want) {
			t.Errorf("%s: got %+v", raw, r.Error)
		}
	}
	if u, err := parse("https://例え.jp:8443/ö#top"); err != nil || u.String() != "https://xn--r8jz45g.jp:8443/%C3%B6" {
		t.Errorf("got %v %v", u, err)
	}
}

func TestTheSpecAsksAPerson(t *testing.T) {
	s := Tool(Config{}).Spec
	if !s.Idempotent || s.Risk != tool.RiskMedium || len(s.Permissions) != 1 || s.Permissions[0] != "network.fetch" {
		t.Fatalf("got %+v", s)
	}
}
