package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// Policy is the page's Content-Security-Policy. In addition to the policy of all
// responses of the bridge, it allows text to become HTML only through the Trusted Type
// of html.js.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types skandha"

//go:embed static
var embedded embed.FS

const (
	index  = "index.html"
	assets = "/assets/"

	forEver = "public, max-age=31536000, immutable"
	askEach = "no-cache" // cached, but revalidated each time
)

// types maps extensions to media types. A file with another extension fails the start.
var types = map[string]string{
	".css":  "text/css; charset=utf-8",
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".png":  "image/png",
	".svg":  "image/svg+xml",
}

type file struct {
	body []byte
	kind string // media type
	etag string
}

// page holds the files to serve: index.html, and the assets by name.
type page struct {
	version string // of all assets together
	index   file
	assets  map[string]file
}

// Handler serves / and /assets/. It answers 404 to other paths, and 405 to methods
// other than GET and HEAD.
func Handler() http.Handler {
	static, err := fs.Sub(embedded, "static")
	if err != nil {
		panic(err) // the directory is embedded
	}
	p, err := load(static)
	if err != nil {
		panic(fmt.Sprintf("web: %v", err)) // tests load the embedded files
	}
	return p
}

// load reads the page. All assets share one version in their path, because modules
// import each other by relative paths.
func load(static fs.FS) (*page, error) {
	p := &page{assets: map[string]file{}}
	all := sha256.New()
	err := fs.WalkDir(static, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind := types[path.Ext(name)]
		if kind == "" {
			return fmt.Errorf("static/%s: unknown media type for %q; add it to types", name, path.Ext(name))
		}
		body, err := fs.ReadFile(static, name)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(all, "%s %d\n", name, len(body)) // writing to a hash does not fail
		_, _ = all.Write(body)
		p.assets[name] = newFile(body, kind)
		return nil
	})
	if err != nil {
		return nil, err
	}
	p.version = hex.EncodeToString(all.Sum(nil))[:16]
	source, ok := p.assets[index]
	if !ok {
		return nil, fmt.Errorf("static/%s is missing", index)
	}
	delete(p.assets, index)
	t, err := template.New(index).Parse(string(source.body))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct{ Version string }{p.version}); err != nil {
		return nil, err
	}
	p.index = newFile(b.Bytes(), source.kind)
	return p, nil
}

func newFile(body []byte, kind string) file {
	sum := sha256.Sum256(body)
	return file{body: body, kind: kind, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// ServeHTTP implements [http.Handler].
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/" {
		w.Header().Set("Content-Security-Policy", Policy)
		p.index.serve(w, r, askEach)
		return
	}
	name, ok := strings.CutPrefix(r.URL.Path, assets)
	if !ok {
		http.NotFound(w, r)
		return
	}
	cache := askEach
	if rest, ok := strings.CutPrefix(name, p.version+"/"); ok {
		name, cache = rest, forEver
	}
	f, ok := p.assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	f.serve(w, r, cache)
}

func (f file) serve(w http.ResponseWriter, r *http.Request, cache string) {
	h := w.Header()
	h.Set("Cache-Control", cache)
	h.Set("ETag", f.etag)
	h.Set("X-Content-Type-Options", "nosniff")
	for known := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
		if known = strings.TrimPrefix(strings.TrimSpace(known), "W/"); known == f.etag || known == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(f.body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(f.body) // a failed write means that the client has left
	}
}
