package webtest_test

import (
	"encoding/json"
	"testing"

	"skandha.dev/services/test/webtest"
)

// paints writes a picture of 48 by 32 with what Python brings along, and a table.
const paints = `import struct, zlib, pathlib

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

rows = b"".join(b"\0" + bytes(c for x in range(48) for c in (15 + 4 * x, 107 + 3 * y, 160)) for y in range(32))
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
(out / "dusk.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 48, 32, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
(out / "rows.csv").write_text("row,green\n0,107\n")
print("painted", len(rows), "bytes")
`

// What the model had run is read as code, what it printed as text, and what it painted is
// seen.
func TestCodeAndPicturesFromTheSandboxAreShown(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Sandbox: true})
	p := r.SignedIn(t, "paint")
	args, err := json.Marshal(map[string]string{"code": paints})
	if err != nil {
		t.Fatal(err)
	}
	p.Say("call python:execute " + string(args))
	p.Wait(finished + ` === 1 && one(".call[data-status=done]")`)
	p.Click(".call-line")
	p.Wait(`text(".call-result").includes("painted 4640 bytes") && text(".call-body").includes("def chunk(kind, data):")`)
	p.Wait(`(one(".artifact-picture img").scrollIntoView({block: "center"}), one(".artifact-picture img").complete && one(".artifact-picture img").naturalWidth === 48)`)
	p.Wait(`all(".artifact").some((e) => e.innerText.includes("rows.csv") && e.querySelector("a[download]"))`)
	p.Shot("picture")
	// A link saves the file itself; without the page's key the bridge does not answer it.
	webtest.Get[bool](p,
		`(URL.createObjectURL = ((make) => (b) => { b.text().then((t) => { window.saved = t; }); return make(b); })(URL.createObjectURL), true)`)
	p.Click(".artifact a[download='rows.csv']")
	p.Wait(`window.saved === "row,green\n0,107\n"`)
	p.Size(360, 740)
	p.Wait(`document.documentElement.scrollWidth <= 360`)
	p.Shot("picture-narrow")
}

// A program that fails is no success, and the page says how it ended.
func TestAFailedProgramSaysItsExitCode(t *testing.T) {
	r := webtest.Start(t, webtest.Options{Sandbox: true})
	p := r.SignedIn(t, "fails")
	p.Say(`call python:execute {"code": "1/0"}`)
	p.Wait(`text(".call[data-status=failed] .call-status") === "exit 1"`)
	p.Click(".call-line")
	p.Wait(`text(".call-error").includes("ZeroDivisionError: division by zero (exit 1)")`)
}
