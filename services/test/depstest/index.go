package depstest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Index serves projects on <URL>/simple/. It ends with the test.
type Index struct {
	t       testing.TB
	sources []Source
	ended   chan struct{}

	mu       sync.Mutex
	files    map[string]File // by name
	faults   map[string]http.HandlerFunc
	requests []string
	marks    []string
}

// New returns an index of the files; it does not serve yet.
func New(t testing.TB, sources ...Source) *Index {
	return &Index{
		t: t, sources: sources, ended: make(chan struct{}), files: map[string]File{}, faults: map[string]http.HandlerFunc{},
	}
}

// Listen serves on the address, such as "127.0.0.1:0", and returns the URL for
// deps.Config.Index.
func (x *Index) Listen(address string) string {
	x.t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		x.t.Fatal(err)
	}
	return x.Serve(l)
}

// Serve serves on a listener, which may be one of another network namespace, and
// returns the URL for deps.Config.Index.
func (x *Index) Serve(l net.Listener) string {
	base := "http://" + l.Addr().String()
	x.mu.Lock()
	for _, s := range x.sources {
		f := s.File(base)
		x.files[f.Name] = f
	}
	x.mu.Unlock()
	server := &http.Server{Handler: x, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	x.t.Cleanup(func() {
		close(x.ended)
		_ = server.Close()
		<-served
	})
	return base + "/simple"
}

// Fault sets a handler for a path, such as "/simple/greet/" or
// "/files/greet-1.0-py3-none-any.whl"; nil removes it.
func (x *Index) Fault(path string, answer http.HandlerFunc) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if answer == nil {
		delete(x.faults, path)
		return
	}
	x.faults[path] = answer
}

// Status answers only with a status.
func Status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// Hang begins an answer and then stalls until the client or the index ends.
func (x *Index) Hang(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-r.Context().Done():
	case <-x.ended:
	}
}

// Requests returns the requested paths, in order.
func (x *Index) Requests() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.requests)
}

// Marks returns the names reported by code that should not have run.
func (x *Index) Marks() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.marks)
}

// ServeHTTP implements http.Handler.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	x.requests = append(x.requests, r.URL.Path)
	fault := x.faults[r.URL.Path]
	name, marked := strings.CutPrefix(r.URL.Path, "/marks/")
	if marked {
		x.marks = append(x.marks, name)
	}
	x.mu.Unlock()
	switch {
	case marked:
	case fault != nil:
		fault(w, r)
	case strings.HasPrefix(r.URL.Path, "/simple/"):
		x.project(w, r, strings.Trim(strings.TrimPrefix(r.URL.Path, "/simple/"), "/"))
	default:
		x.file(w, r, strings.TrimPrefix(r.URL.Path, "/files/"))
	}
}

func (x *Index) file(w http.ResponseWriter, r *http.Request, name string) {
	x.mu.Lock()
	f, ok := x.files[name]
	x.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = w.Write(f.Data)
}

const jsonType = "application/vnd.pypi.simple.v1+json"

func (x *Index) project(w http.ResponseWriter, r *http.Request, project string) {
	files := x.filesOf(project)
	if len(files) == 0 {
		http.NotFound(w, r)
		return
	}
	if strings.Contains(r.Header.Get("Accept"), jsonType) {
		w.Header().Set("Content-Type", jsonType)
		_ = json.NewEncoder(w).Encode(page(project, files))
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<!DOCTYPE html><html><body>\n")
	for _, f := range files {
		python := ""
		if f.RequiresPython != "" {
			python = fmt.Sprintf(` data-requires-python="%s"`, html.EscapeString(f.RequiresPython))
		}
		fmt.Fprintf(w, "<a href=\"/files/%s#sha256=%s\"%s>%[1]s</a><br>\n", html.EscapeString(f.Name), f.sum(), python)
	}
	fmt.Fprint(w, "</body></html>\n")
}

func (x *Index) filesOf(project string) (files []File) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.files {
		if f.Project == project {
			files = append(files, f)
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files
}

func page(project string, files []File) any {
	type link struct {
		Filename       string            `json:"filename"`
		URL            string            `json:"url"`
		Hashes         map[string]string `json:"hashes"`
		RequiresPython string            `json:"requires-python,omitempty"`
	}
	links := make([]link, len(files))
	for i, f := range files {
		links[i] = link{f.Name, "/files/" + f.Name, map[string]string{"sha256": f.sum()}, f.RequiresPython}
	}
	return map[string]any{"meta": map[string]string{"api-version": "1.0"}, "name": project, "files": links}
}

func (f File) sum() string {
	if f.SHA256 != "" {
		return f.SHA256
	}
	sum := sha256.Sum256(f.Data)
	return hex.EncodeToString(sum[:])
}
