package backup_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skandha.dev/services/internal/backup"
	"skandha.dev/services/test/natstest"
)

// entries returns what is in a tar file.
func entries(t *testing.T, archive []byte) (headers []*tar.Header, bodies [][]byte) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, bodies
		}
		must(t, err)
		body, err := io.ReadAll(r)
		must(t, err)
		headers, bodies = append(headers, h), append(bodies, body)
	}
}

// rewritten returns the archive with some bodies and names changed. The manifest gets a digest that matches.
func rewritten(t *testing.T, archive []byte, change func(h *tar.Header, body []byte) []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	headers, bodies := entries(t, archive)
	for i, h := range headers {
		body := change(h, bodies[i])
		if h.Name == "manifest.json" {
			sum := sha256.Sum256(body)
			bodies[i+1] = []byte(hex.EncodeToString(sum[:]) + "\n")
		}
		h.Size = int64(len(body))
		must(t, w.WriteHeader(h))
		_, err := w.Write(body)
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

func TestArchivesThatAreRefused(t *testing.T) {
	archive := take(t, lived(t), backup.Source{Name: "workspace", Path: t.TempDir()})
	manifest := func(from, to string) []byte {
		return rewritten(t, archive, func(h *tar.Header, body []byte) []byte {
			if h.Name == "manifest.json" {
				return bytes.Replace(body, []byte(from), []byte(to), 1)
			}
			return body
		})
	}
	rename := func(from, to string) []byte {
		return rewritten(t, archive, func(h *tar.Header, body []byte) []byte {
			h.Name = strings.Replace(h.Name, from, to, 1)
			return body
		})
	}
	flipped := bytes.Clone(archive)
	flipped[bytes.Index(flipped, []byte("streams/SESSIONS/"))+600] ^= 1
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"nothing":                   {nil, "no end"},
		"something else":            {bytes.Repeat([]byte("no archive "), 200), "not an archive of skandha backup"},
		"another tar file":          {rewritten(t, archive[:0], nil), "no end"},
		"truncated":                 {archive[:len(archive)/2], "no end"},
		"truncated between entries": {archive[:len(archive)/2/512*512], "no end"},
		"without its last block":    {archive[:len(archive)-512], "missing"},
		"something appended":        {append(bytes.Clone(archive), "more"...), "4 bytes follow its end"},
		"a bit is flipped":          {flipped, "stream SESSIONS: its digest differs"},
		"another format":            {manifest(`"format": 1`, `"format": 7`), "has format 7 and was written by version v1"},
		"a manifest with more":      {manifest(`"format": 1`, `"format": 1, "run": "me"`), "unknown field"},
		"a stream of another name":  {manifest(`"name": "DEAD"`, `"name": "../x"`), `stream "../x" of the manifest`},
		"a stream in another place": {manifest(`streams/DEAD/1`, `streams/CRON/1`), `stream "DEAD" of the manifest`},
		"a mirror":                  {manifest(`"name": "DEAD",`+"\n        \"desc", `"name": "DEAD", "mirror": {"name": "x"}, "desc`), "has mirror"},
		"copies for elsewhere": {
			manifest(`"name": "DEAD",`+"\n        \"desc", `"name": "DEAD", "republish": {"src": ">", "dest": "x.>"}, "desc`), "has republish",
		},
		"a path that leads out": {rename("streams/DEAD/1/", "streams/DEAD/../../1/"), "unexpected entry"},
		"an absolute path":      {rename("streams/DEAD/1/", "/etc/"), "unexpected entry"},
		"a part is missing":     {rename("streams/DEAD/1/", "streams/DEAD/2/"), "stream DEAD is missing"},
		"an unknown entry":      {rename("directories/workspace/", "home/"), "unexpected entry"},
		"chunks out of order":   {rename("SESSIONS/1/00000001", "SESSIONS/1/00000002"), "out of order"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := backup.Open(bytes.NewReader(c.archive), int64(len(c.archive)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it is refused with %v, want %q", err, c.want)
			}
		})
	}
}

// forged returns an archive in which the directory contains one entry.
func forged(t *testing.T, archive []byte, h tar.Header) []byte {
	t.Helper()
	var inner bytes.Buffer
	w := tar.NewWriter(&inner)
	must(t, w.WriteHeader(&h))
	must(t, w.Close())
	return rewritten(t, archive, func(at *tar.Header, body []byte) []byte {
		if strings.HasPrefix(at.Name, "directories/") {
			return inner.Bytes()
		}
		if at.Name != "manifest.json" {
			return body
		}
		var m backup.Manifest
		must(t, json.Unmarshal(body, &m))
		sum := sha256.Sum256(inner.Bytes())
		m.Dirs[0].Bytes, m.Dirs[0].SHA256 = int64(inner.Len()), hex.EncodeToString(sum[:])
		body, err := json.Marshal(m)
		must(t, err)
		return body
	})
}

func TestFilesThatLeadOutOfTheDirectory(t *testing.T) {
	archive := take(t, lived(t), backup.Source{Name: "workspace", Path: t.TempDir()})
	for name, h := range map[string]tar.Header{
		"upwards":     {Typeflag: tar.TypeReg, Name: "../out", Mode: 0o600},
		"absolute":    {Typeflag: tar.TypeReg, Name: "/tmp/out", Mode: 0o600},
		"a link":      {Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc", Mode: 0o777},
		"a hard link": {Typeflag: tar.TypeLink, Name: "link", Linkname: "../../out"},
		"a device":    {Typeflag: tar.TypeChar, Name: "null", Devmajor: 1, Devminor: 3},
	} {
		t.Run(name, func(t *testing.T) {
			to, other := filepath.Join(t.TempDir(), "workspace"), empty(t)
			err := open(t, forged(t, archive, h)).Restore(natstest.Context(t), other.Bus,
				backup.RestoreConfig{Dirs: []backup.Source{{Name: "workspace", Path: to}}})
			if !errors.Is(err, backup.ErrAltered) {
				t.Errorf("it is refused with %v", err)
			}
			if left, err := os.ReadDir(to); err != nil || len(left) != 0 {
				t.Errorf("it has left %v, %v", left, err)
			}
			if there, err := backup.Streams(natstest.Context(t), other.Bus); err != nil || len(there) != 0 {
				t.Errorf("it has written %d streams, %v", len(there), err)
			}
		})
	}
}
