package inspect

import (
	"mime"
	"strings"
	"testing"

	"skandha.dev/pkg/subject"
)

// Names are untrusted: whatever they contain, the header is one header with one file name,
// and no browser interprets it as a path.
func TestAFileNameInAHeader(t *testing.T) {
	for name, want := range map[string]string{
		"t1-p1-c0/x/plot.png":              "plot.png",
		"a b.txt":                          "a b.txt",
		"ünï.csv":                          "ünï.csv",
		"日本語.txt":                          "日本語.txt",
		"x/../../etc/passwd":               "passwd",
		`c:\windows\evil.exe`:              "evil.exe",
		"a\"; filename=\"b.html":           "a__ filename=_b.html",
		"a\r\nSet-Cookie: x=y":             "a__Set-Cookie_ x=y",
		"invoice\u202egnp.exe":             "invoice_gnp.exe",
		"zero\u200bwidth":                  "zero_width",
		"100%.txt":                         "100_.txt",
		".htaccess":                        "htaccess",
		"..":                               "artifact",
		"":                                 "artifact",
		"dir/":                             "artifact",
		"\x00\x1b[31m":                     "__[31m",
		strings.Repeat("é", 200) + ".html": strings.Repeat("é", 75) + "…",
	} {
		h := "attachment; " + filename(name)
		if strings.ContainsFunc(h, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q: the header is not plain: %q", name, h)
		}
		kind, params, err := mime.ParseMediaType(h)
		if err != nil || kind != "attachment" || len(params) != 1 && params["filename*"] != "" {
			t.Errorf("%q: %q cannot be read: %s %v, %v", name, h, kind, params, err)
		}
		if params["filename"] != want {
			t.Errorf("%q: %q, want %q", name, params["filename"], want)
		}
	}
}

func TestOnlyPicturesAreShown(t *testing.T) {
	for _, c := range []struct {
		name, data, kind string
		shown            bool
	}{
		{"PNG", "\x89PNG\r\n\x1a\n...", "image/png", true},
		{"JPEG", "\xff\xd8\xff\xe0...", "image/jpeg", true},
		{"GIF", "GIF89a...", "image/gif", true},
		{"WebP", "RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp", true},
		{
			"SVG", `<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`,
			"application/octet-stream", false,
		},
		{"bare SVG", `<svg onload=alert(1)>`, "application/octet-stream", false},
		{"HTML", "<!doctype html><script>alert(1)</script>", "application/octet-stream", false},
		{"HTML that hides", "\n\n  <!-- --><html>", "application/octet-stream", false},
		{"PDF", "%PDF-1.7", "application/octet-stream", false},
		{"text", "hello", "application/octet-stream", false},
		{"BMP", "BM....", "application/octet-stream", false},
		{"nothing", "", "application/octet-stream", false},
	} {
		if kind, shown := picture([]byte(c.data)); kind != c.kind || shown != c.shown {
			t.Errorf("%s: %s, %t", c.name, kind, shown)
		}
	}
}

func TestAnArtifactsAddress(t *testing.T) {
	ref := subject.Ref{Agent: "a", Session: "s"}
	const base = "/v1/agents/a/sessions/s/artifacts/"
	for name, want := range map[string]string{
		"t1/x/plot 1.png": base + "t1/x/plot%201.png",
		"a?b#c%d":         base + "a%3Fb%23c%25d",
		"ü":               base + "%C3%BC",
		"../../b/s/x":     base + "?name=..%2F..%2Fb%2Fs%2Fx",
		"a//b":            base + "?name=a%2F%2Fb",
		"/":               base + "?name=%2F",
		"":                base + "?name=",
	} {
		if got := ArtifactURL(ref, name); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}
