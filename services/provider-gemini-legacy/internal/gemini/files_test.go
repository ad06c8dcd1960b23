package gemini_test

import (
	"encoding/json"
	"strings"
	"testing"

	"skandha.dev/pkg/provider"
)

// Pictures and documents that the models can read are sent; of others, what they are. Files
// of results come after all results, which must be together.
func TestFilesAreSent(t *testing.T) {
	file := func(name, kind, data string) provider.File {
		return provider.File{Ref: "main/s/" + name, Name: name, MediaType: kind, Bytes: 99, Data: []byte(data)}
	}
	a, m := serve(t, answers("STOP", first, second), answers("STOP", `{"text":"done"}`))
	resp := mustAsk(t, m, user("go"))
	asked := user("look")
	asked.Files = []provider.File{
		file("a.png", "image/png", "\x89PNG"), file("b.zip", "application/zip", "PK"), file("c.pdf", "application/pdf", ""),
	}
	talk := append([]provider.Message{asked}, turn(t, resp, "2", "x")...)
	talk[2].Files = []provider.File{file("plot.jpg", "image/jpeg; q=1", "JPEG")}
	mustAsk(t, m, talk...)

	var got []string
	for _, i := range []int{0, 2} {
		for _, raw := range a.last().Contents[i].Parts {
			got = append(got, describe(t, raw))
		}
	}
	want := []string{
		"look", "[file a.png, image/png, 99 bytes]", "image/png:\x89PNG",
		"[file b.zip, application/zip, 99 bytes; its content is not shown]",
		"[file c.pdf, application/pdf, 99 bytes; its content is not shown]",
		"result fc-1", "result fc-2",
		"[file plot.jpg, image/jpeg; q=1, 99 bytes, of the tool math:evaluate]", "image/jpeg:JPEG",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("sent\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A message may be a file alone.
func TestAFileAlone(t *testing.T) {
	a, m := serve(t, answers("STOP", `{"text":"nice"}`))
	mustAsk(t, m, provider.Message{
		Role: provider.RoleUser, Files: []provider.File{{Ref: "r", MediaType: "image/png", Data: []byte("x")}},
	})
	if parts := a.last().Contents[0].Parts; len(parts) != 2 {
		t.Errorf("the parts are %s", parts)
	}
}

// describe is a part in words.
func describe(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	var p struct {
		Text       string
		InlineData struct {
			MimeType string
			Data     []byte
		}
		FunctionResponse struct{ ID string }
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	switch {
	case len(p.InlineData.Data) > 0:
		return p.InlineData.MimeType + ":" + string(p.InlineData.Data)
	case p.FunctionResponse.ID != "":
		return "result " + p.FunctionResponse.ID
	}
	return p.Text
}
