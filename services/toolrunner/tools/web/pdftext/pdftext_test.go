package pdftext

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The documents were made by programs of Debian; see testdata/README.md.
func TestDocumentsOfRealPrograms(t *testing.T) {
	for name, want := range map[string][]string{
		"chromium.pdf":  {"Quarterly report", "12\u00a0% to € 4.2 million", "the “efficient” migration", "Second page: naïve café."},
		"cjk.pdf":       {"東京は日本の首都です。", "北京是中国的首都。", "臺北是臺灣的城市。"},
		"objects.pdf":   {"東京は日本の首都です。"},
		"gs.pdf":        {"Plain words of groff, and an em—dash."},
		"groff.pdf":     {"Plain words of groff, and an em—dash."},
		"encrypted.pdf": {"Plain words of groff, and an em—dash."},
	} {
		d, err := Read(t.Context(), file(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(d.Text, w) {
				t.Errorf("%s: %q is missing in %q", name, w, d.Text)
			}
		}
		if d.Read != d.Pages || strings.ContainsAny(d.Text, "\r\x00\x02") {
			t.Errorf("%s: %d of %d pages, %q", name, d.Read, d.Pages, d.Text)
		}
	}
}

func TestTitleAndPages(t *testing.T) {
	d, err := Read(t.Context(), file(t, "chromium.pdf"))
	if err != nil || d.Title != "Quarterly report — 四半期報告" || d.Pages != 2 {
		t.Fatalf("got %+v, %v", d, err)
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		pdf  []byte
		want string
	}{
		"password": {file(t, "locked.pdf"), "protected by a password"},
		"no PDF":   {[]byte("<html>"), "no PDF"},
		"empty":    {nil, "no PDF"},
		"cut":      {file(t, "chromium.pdf")[:600], "damaged"},
	} {
		if _, err := Read(t.Context(), c.pdf); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// written returns a PDF of the objects, the first of which is the catalog.
func written(objects ...string) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	at := make([]int, len(objects))
	for i, o := range objects {
		at[i] = b.Len()
		fmt.Fprintf(&b, "%d 0 obj\n%s\nendobj\n", i+1, o)
	}
	xref := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", len(objects)+1)
	for _, n := range at {
		fmt.Fprintf(&b, "%010d 00000 n \n", n)
	}
	fmt.Fprintf(&b, "trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n", len(objects)+1, xref)
	return b.Bytes()
}

func stream(s string) string { return fmt.Sprintf("<</Length %d>>stream\n%s\nendstream", len(s), s) }

// bomb returns a stream that unpacks to n bytes.
func bomb(t *testing.T, n int) string {
	t.Helper()
	var b bytes.Buffer
	w, err := zlib.NewWriterLevel(&b, zlib.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 1<<20); n > 0; n -= len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream", b.Len(), b.String())
}

const (
	catalog = "<</Type/Catalog/Pages 2 0 R>>"
	font    = "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"
	page    = "<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>/XObject<</X 6 0 R>>>>>>"
)

// A font of East Asia need not say which characters its codes are: its encoding does, here that
// of Windows in Japan.
func TestPredefinedEncodingsOfEastAsia(t *testing.T) {
	pdf := written(catalog, "<</Type/Pages/Count 1/Kids[3 0 R]>>", page, stream("BT /F 9 Tf <938c8b9e> Tj ET"),
		"<</Type/Font/Subtype/Type0/BaseFont/HeiseiMin-W3/Encoding/90ms-RKSJ-H/DescendantFonts[6 0 R]>>",
		"<</Type/Font/Subtype/CIDFontType0/BaseFont/HeiseiMin-W3/CIDSystemInfo<</Registry(Adobe)/Ordering(Japan1)/Supplement 2>>>>")
	if d, err := Read(t.Context(), pdf); err != nil || d.Text != "東京" {
		t.Fatalf("got %q, %v", d.Text, err)
	}
}

// What a document says of itself need not be true, and what it does need not end.
func TestHostileDocumentsAreBounded(t *testing.T) {
	text := stream("BT /F 1 Tf (word) Tj ET")
	for name, c := range map[string]struct {
		pdf  []byte
		want string // in the text; empty: anything, also an error
	}{
		"a billion pages": {written(catalog, "<</Type/Pages/Count 1000000000/Kids[3 0 R]>>", page, text, font, text), "word"},
		"pages in a circle": {
			written(catalog, "<</Type/Pages/Count 5/Kids[2 0 R 2 0 R 3 0 R]>>", page, text, font, text), "",
		},
		"a form that contains itself": {
			written(catalog, "<</Type/Pages/Count 1/Kids[3 0 R]>>", page, stream("/X Do"), font,
				"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 6 0 R>>>>/Length 11>>stream\n/X Do /X Do\nendstream"),
			"",
		},
		"deep arrays":          {written(catalog, strings.Repeat("[", 1<<20), page, text, font, text), ""},
		"an unfinished stream": {[]byte("%PDF-1.7\n1 0 obj\n<</Length 99999999999>>stream\n"), ""},
		"a bomb": {
			written(catalog, "<</Type/Pages/Count 1/Kids[3 0 R]>>", page, bomb(t, 300<<20), font, text), "",
		},
		"text without end": {
			written(catalog, "<</Type/Pages/Count 1/Kids[3 0 R]>>", page,
				stream("BT /F 1 Tf "+strings.Repeat("0 1 Td (wwwwwwwwwwwwwwww) Tj ", 200_000)+"ET"), font, text),
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Read(t.Context(), c.pdf)
			t.Logf("%d of %d pages, %d bytes, %v", d.Read, d.Pages, len(d.Text), err)
			if c.want != "" && (err != nil || d.Text != c.want) {
				t.Errorf("got %q, %v", d.Text, err)
			}
			if d.Read > maxPages || len(d.Text) > 2*maxText {
				t.Errorf("read %d pages, %d bytes", d.Read, len(d.Text))
			}
		})
	}
	if d, err := Read(t.Context(), file(t, "gs.pdf")); err != nil || d.Text == "" {
		t.Fatalf("afterwards a sound document is %+v, %v", d, err)
	}
}

func TestItEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Read(ctx, file(t, "gs.pdf")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}
