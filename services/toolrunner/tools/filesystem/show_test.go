package filesystem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
	"skandha.dev/services/internal/result"
)

// shelf keeps artifacts in memory; with an error it keeps none.
type shelf struct {
	kept map[string]string
	err  error
}

func (s *shelf) PutArtifact(_ context.Context, name string, data []byte) error {
	if s.err == nil {
		s.kept = map[string]string{name: string(data)}
	}
	return s.err
}

// What a picture is, its content says: its name, the offset and the limit do not matter.
func TestPicturesAreShown(t *testing.T) {
	f := newFixture(t)
	const png = "\x89PNG\r\n\x1a\n\x00\xff"
	f.put("out/plot.txt", png)
	r := f.call("read_file", map[string]any{"path": "./out/plot.txt", "offset": 3, "limit": 2})
	want := provider.File{Ref: "a/s/c/n/out/plot.txt", Name: "plot.txt", MediaType: "image/png", Bytes: int64(len(png))}
	if !r.Success || len(r.Files) != 1 || !reflect.DeepEqual(r.Files[0], want) || f.shelf.kept[want.Ref] != png {
		t.Fatalf("got %+v, stored %q", r, f.shelf.kept)
	}
	if got := string(r.Data); got != `{"path":"./out/plot.txt","size":10,"media_type":"image/png",`+
		`"ref":"a/s/c/n/out/plot.txt","note":"the file is shown with this result"}` {
		t.Errorf("the data is %s", got)
	}
	f.put("fake.png", "only text")
	if c := f.read(map[string]any{"path": "fake.png"}); c.Content != "only text" {
		t.Errorf("a text is %+v", c)
	}
	f.put("large.png", png)
	f.put("a\nb", png)
	if err := os.Truncate(filepath.Join(f.dir, "large.png"), result.MaxShown+1); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"large.png": `"large.png" (image/png) has 10485761 bytes; at most 10485760 can be shown: make it smaller`,
		"a\nb":      "control characters",
	} {
		if r := f.call("read_file", map[string]any{"path": name}); r.Success || len(r.Files) > 0 ||
			!strings.Contains(r.Error.Message, want) {
			t.Errorf("%q: got %+v", name, r)
		}
	}
	f.shelf.err = errors.New("no room")
	if r := f.call("read_file", map[string]any{"path": "out/plot.txt"}); r.Success || len(r.Files) > 0 ||
		r.Error.Message != `storing "out/plot.txt", to show it: no room; try again` {
		t.Errorf("without room: got %+v", r)
	}
}
