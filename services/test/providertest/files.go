package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"

	contract "skandha.dev/pkg/provider"
	"skandha.dev/services/provider/adapter"
	"skandha.dev/services/test/scripted"
)

// Picture returns a PNG picture of one pixel.
func Picture(t testing.TB, name string, c color.Color) contract.File {
	t.Helper()
	pixel := image.NewRGBA(image.Rect(0, 0, 1, 1))
	pixel.Set(0, 0, c)
	var b bytes.Buffer
	if err := png.Encode(&b, pixel); err != nil {
		t.Fatal(err)
	}
	return file(name, "image/png", b.String())
}

func file(name, mediaType, data string) contract.File {
	return contract.File{
		Ref: "a/s/" + name, Name: name, MediaType: mediaType, Bytes: int64(len(data)), Data: []byte(data),
	}
}

func wantAll(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("the model saw %q, want %q in it", text, p)
		}
	}
}

func showsFiles(t *testing.T, a adapter.Adapter) {
	m := user("describe the files")
	red := Picture(t, "red.png", color.RGBA{R: 255, A: 255})
	pdf := file("paper.pdf", "application/pdf", "%PDF-1.7\nü <&>")
	m.Files = []contract.File{red, pdf, file("notes.txt", "text/plain; charset=utf-8", "hello from a file")}
	resp, _ := ask(t, a, m)
	wantAll(t, resp.TextContent, scripted.Saw(red), scripted.Saw(pdf), "notes.txt", "hello from a file")

	// Cameras and plugins are wrong about the type of a picture. APIs refuse such a request.
	named := red
	named.MediaType = "image/jpeg"
	resp, _ = ask(t, a, contract.Message{Role: contract.RoleUser, Text: m.Text, Files: []contract.File{named}})
	wantAll(t, resp.TextContent, scripted.Saw(red))

	// The files stay in the conversation.
	talk := []contract.Message{m, {Role: contract.RoleAssistant, Text: resp.TextContent}, user("thanks")}
	if resp, _ := ask(t, a, talk...); resp.TextContent != "echo: thanks" {
		t.Errorf("the next turn's answer is %+v", resp)
	}
}

func namesFiles(t *testing.T, a adapter.Adapter) {
	m := user("describe the files")
	gone := Picture(t, "gone\n.png", color.Black)
	gone.Data = nil
	m.Files = []contract.File{
		gone, file("things.zip", "application/zip", "PK"), file("no.png", "image/png", "text"),
		file("latin.txt", "text/plain", "\xe4"), file("odd", "no type", "x"),
	}
	resp, _ := ask(t, a, m)
	wantAll(t, resp.TextContent, "gone .png", "missing", "things.zip", "does not accept", "no.png", "not such a picture",
		"latin.txt", "not UTF-8", "odd")
	if strings.Contains(resp.TextContent, "image/png, 0 bytes") {
		t.Errorf("the model got a file without content: %s", resp.TextContent)
	}
}

func showsResultFiles(t *testing.T, a adapter.Adapter) {
	talk := []contract.Message{user(`call2 math:evaluate {"expression":"1"} ; time:now {}`)}
	resp, _ := ask(t, a, talk...)
	red, blue := Picture(t, "red.png", color.RGBA{R: 255, A: 255}), Picture(t, "blue.png", color.RGBA{B: 255, A: 255})
	gone := contract.File{Ref: "a/s/gone.png", MediaType: "image/png", Bytes: 7}
	talk = append(talk, turn(resp,
		contract.Message{Text: `{"x":1}`, Files: []contract.File{red, file("log.txt", "text/plain", "a line of the log")}},
		contract.Message{Text: `"noon"`, Files: []contract.File{blue, gone}})...)
	last, _ := ask(t, a, talk...)
	first, second, ok := strings.Cut(last.TextContent, "time:now: ")
	if !ok || !last.IsFinal {
		t.Fatalf("answer is %+v", last)
	}
	wantAll(t, first, `math:evaluate: {"x":1}`, scripted.Saw(red), "a line of the log")
	wantAll(t, second, `"noon"`, scripted.Saw(blue), "gone.png")
	if strings.Contains(first, scripted.Saw(blue)) || strings.Contains(second, scripted.Saw(red)) {
		t.Errorf("a file belongs to the wrong result: %s", last.TextContent)
	}

	// The turn goes on, and so does the conversation.
	talk = append(talk, contract.Message{Role: contract.RoleAssistant, Text: last.TextContent}, user("thanks"))
	if again, _ := ask(t, a, talk...); again.TextContent != "echo: thanks" {
		t.Errorf("the next turn's answer is %+v", again)
	}
}

// Schemas of an answer: one that an API may enforce, and one with keywords that some do not know.
var schemas = []string{
	`{"type":"object","properties":{"z":{"type":"number","maximum":1.50},"a":{"enum":["x","y"]}},` +
		`"required":["z","a"],"additionalProperties":false}`,
	`{"type":"object","properties":{"list":{"type":"array","items":{"type":"string"},"uniqueItems":true}}}`,
}

func asksBySchema(t *testing.T, a adapter.Adapter) { schemaArrives(t, a, nil) }

func asksBySchemaBesideTools(t *testing.T, a adapter.Adapter) { schemaArrives(t, a, Offered) }

func schemaArrives(t *testing.T, a adapter.Adapter, tools []contract.ToolSpec) {
	for _, schema := range schemas {
		req := question(t, user("answer in json"))
		req.Tools, req.Schema = tools, json.RawMessage(schema)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		resp, err := a.Generate(ctx, req, func(string, string) {})
		cancel()
		if err != nil || resp.TextContent != schema {
			t.Errorf("the model was asked for %q, %v; want %s", resp.TextContent, err, schema)
		}
	}
	if resp, _ := ask(t, a, user("answer in json")); resp.TextContent != "no schema" {
		t.Errorf("without a schema, the model was asked for %s", resp.TextContent)
	}
}
