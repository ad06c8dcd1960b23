package depstest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// File is a file of a project in an index.
type File struct {
	Project        string // normalised name
	Name           string // such as "greet-1.0-py3-none-any.whl"
	Data           []byte
	RequiresPython string
	SHA256         string // as the index states it; empty: the true one
}

// Source creates a file for an index with the base URL.
type Source interface {
	File(base string) File
}

// File returns f.
func (f File) File(string) File { return f }

// Wheel is a built distribution.
type Wheel struct {
	Name, Version  string
	Tag            string            // default "py3-none-any"
	Files          map[string]string // by path below site-packages
	Entries        []Entry           // written verbatim, after Files
	Requires       []string          // Requires-Dist
	RequiresPython string
}

// Entry is an entry of a wheel's archive, for those that no tool would write.
type Entry struct {
	Name string
	Data string
	Mode fs.FileMode // default a plain file, 0644
	Fill int64       // zero bytes after Data
}

// File builds the wheel. "{index}" in Files and Requires becomes the base URL.
func (w Wheel) File(base string) File {
	tag := w.Tag
	if tag == "" {
		tag = "py3-none-any"
	}
	stem := strings.ReplaceAll(w.Name, "-", "_") + "-" + w.Version
	info := stem + ".dist-info/"
	entries := []Entry{}
	for _, name := range slices.Sorted(maps.Keys(w.Files)) {
		entries = append(entries, Entry{Name: name, Data: strings.ReplaceAll(w.Files[name], "{index}", base)})
	}
	entries = append(entries, w.Entries...)
	entries = append(entries,
		Entry{Name: info + "METADATA", Data: w.metadata(base)},
		Entry{
			Name: info + "WHEEL", Data: "Wheel-Version: 1.0\nGenerator: depstest\nRoot-Is-Purelib: true\nTag: " + tag + "\n",
		})
	entries = append(entries, Entry{Name: info + "RECORD", Data: record(entries, info)})
	return File{
		Project: normal(w.Name), Name: stem + "-" + tag + ".whl", Data: zipped(entries), RequiresPython: w.RequiresPython,
	}
}

func (w Wheel) metadata(base string) string {
	s := "Metadata-Version: 2.1\nName: " + w.Name + "\nVersion: " + w.Version + "\n"
	if w.RequiresPython != "" {
		s += "Requires-Python: " + w.RequiresPython + "\n"
	}
	for _, r := range w.Requires {
		s += "Requires-Dist: " + strings.ReplaceAll(r, "{index}", base) + "\n"
	}
	return s
}

func record(entries []Entry, info string) string {
	var b strings.Builder
	for _, e := range entries {
		sum := sha256.Sum256([]byte(e.Data))
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", e.Name, base64.RawURLEncoding.EncodeToString(sum[:]), len(e.Data))
	}
	return b.String() + info + "RECORD,,\n"
}

// zipped writes to memory, where writing cannot fail.
func zipped(entries []Entry) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.Name, Method: zip.Deflate}
		h.SetMode(0o644)
		if e.Mode != 0 {
			h.SetMode(e.Mode)
		}
		w, err := z.CreateHeader(h)
		if err != nil {
			panic(err)
		}
		_, _ = io.Copy(w, io.MultiReader(strings.NewReader(e.Data), io.LimitReader(zeros{}, e.Fill)))
	}
	_ = z.Close()
	return b.Bytes()
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// SDist is a source distribution whose setup.py notifies the index when it runs, by a
// request that [Index.Marks] lists.
type SDist struct{ Name, Version string }

// File builds the archive.
func (s SDist) File(base string) File {
	stem := s.Name + "-" + s.Version
	setup := "import urllib.request\nurllib.request.urlopen('" + base + "/marks/" + s.Name + "')\n" +
		"from setuptools import setup\nsetup(name='" + s.Name + "', version='" + s.Version + "')\n"
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	t := tar.NewWriter(gz)
	for name, data := range map[string]string{
		"PKG-INFO": "Metadata-Version: 2.1\nName: " + s.Name + "\nVersion: " + s.Version + "\n",
		"setup.py": setup,
	} {
		_ = t.WriteHeader(&tar.Header{Name: stem + "/" + name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
		_, _ = io.WriteString(t, data)
	}
	_ = t.Close()
	_ = gz.Close()
	return File{Project: normal(s.Name), Name: stem + ".tar.gz", Data: b.Bytes()}
}

var runs = regexp.MustCompile(`[-_.]+`)

func normal(name string) string { return strings.ToLower(runs.ReplaceAllString(name, "-")) }
