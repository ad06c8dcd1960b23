package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"skandha.dev/pkg/bus"
	"skandha.dev/pkg/provider"
	"skandha.dev/pkg/tool"
	"skandha.dev/services/internal/result"
	"skandha.dev/services/internal/secret"
	"skandha.dev/services/internal/text"
	"skandha.dev/services/toolrunner/tools"
)

// The limits of a result's parts.
const (
	maxFiles = 16 // that are kept and shown
	maxLinks = 100
)

// answer is the data of a result.
type answer struct {
	Text       string          `json:"text,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Files      []kept          `json:"files,omitempty"`
	Links      []pointer       `json:"links,omitempty"`
	Notes      []string        `json:"notes,omitempty"` // what was left out
}

// kept is a file of a result, stored as an artifact.
type kept struct {
	Name      string `json:"name"`
	MediaType string `json:"media_type"`
	Bytes     int    `json:"bytes"`
	Ref       string `json:"ref,omitempty"`
	URI       string `json:"uri,omitempty"`
	Error     string `json:"error,omitempty"`
}

// pointer is a resource that a result mentions.
type pointer struct {
	URI         string `json:"uri"`
	Name        string `json:"name,omitempty"`
	Description string `json:"description,omitempty"`
}

// gathering collects the parts of a result.
type gathering struct {
	ctx    context.Context //nolint:containedctx // of the call that gathers
	call   tools.Call
	known  secret.Known
	texts  []string
	answer answer
	show   []provider.File
}

// content makes the result of a call of what the server answered.
func (l *link) content(ctx context.Context, c tools.Call, res *sdk.CallToolResult) tool.Result {
	if res == nil {
		return tool.Failure(tool.CodeFailed, fmt.Sprintf("the MCP server %s answered without a result; the tool may have run", l.name))
	}
	g := gathering{ctx: ctx, call: c, known: l.secrets()}
	for _, part := range res.Content {
		g.add(part)
	}
	if res.StructuredContent != nil {
		b, err := json.Marshal(res.StructuredContent)
		if err != nil {
			g.note("the structured content cannot be read: %v", err)
		}
		g.answer.Structured = b
	}
	out := g.done()
	if !res.IsError {
		return out
	}
	words := g.answer.Text
	if words == "" {
		words = string(g.answer.Structured)
	}
	if words == "" {
		words = "it gave no reason"
	}
	failed := tool.Failure(tool.CodeFailed, text.Cut(words, result.MaxMessage))
	failed.Files = out.Files
	return failed
}

// add adds one part.
func (g *gathering) add(part sdk.Content) {
	switch p := part.(type) {
	case *sdk.TextContent:
		g.texts = append(g.texts, p.Text)
	case *sdk.ImageContent:
		g.keep("image", "", p.MIMEType, p.Data)
	case *sdk.AudioContent:
		g.keep("audio", "", p.MIMEType, p.Data)
	case *sdk.ResourceLink:
		g.mention(pointer{p.URI, p.Name, p.Description})
	case *sdk.EmbeddedResource:
		if p.Resource == nil {
			g.note("a resource has no content")
			return
		}
		g.resource(p.Resource)
	default:
		g.note("a part of the kind %T is not for clients", part)
	}
}

// resource adds the content of a resource.
func (g *gathering) resource(r *sdk.ResourceContents) {
	if r.Blob != nil {
		g.keep("file", r.URI, r.MIMEType, r.Blob)
		return
	}
	g.texts = append(g.texts, r.Text)
}

func (g *gathering) mention(p pointer) {
	if len(g.answer.Links) == maxLinks {
		g.note("more than %d links; the others are left out", maxLinks)
		return
	}
	g.answer.Links = append(g.answer.Links,
		pointer{text.Cut(p.URI, maxHint), text.Cut(plain(p.Name), maxHint), text.Cut(plain(p.Description), maxHint)})
}

// keep stores a file. Its name is ours: a server's could lead elsewhere.
func (g *gathering) keep(kind, uri, media string, content []byte) {
	n := len(g.answer.Files) + 1
	if n > maxFiles {
		g.note("more than %d files; the others are left out", maxFiles)
		return
	}
	media, extension := mediaType(media)
	if utf8.Valid(content) {
		content = []byte(g.known.Hide(string(content)))
	}
	f := kept{Name: fmt.Sprintf("%d-%s%s", n, kind, extension), MediaType: media, Bytes: len(content), URI: text.Cut(uri, maxHint)}
	f.Ref = g.call.Prefix() + f.Name
	switch err := g.call.Store.PutArtifact(context.WithoutCancel(g.ctx), f.Ref, content); {
	case errors.Is(err, bus.ErrTooLarge):
		f.Ref, f.Error = "", err.Error()
	case err != nil:
		f.Ref, f.Error = "", "it could not be stored: "+err.Error()
	case result.ShownAs(content[:min(len(content), result.Sniffed)]) != "":
		if shown, err := result.Shown(g.call.Prefix(), f.Name, content); err == nil {
			g.show = append(g.show, shown)
		}
	}
	g.answer.Files = append(g.answer.Files, f)
}

// mediaType returns a type that is one, and an extension for it.
func mediaType(said string) (media, extension string) {
	media, _, err := mime.ParseMediaType(said)
	kind, _, _ := strings.Cut(media, "/")
	if err != nil || len(media) > maxNameShown || !slices.Contains(kinds, kind) {
		return "application/octet-stream", ".bin"
	}
	return media, cmp.Or(extensions[media], ".bin")
}

var (
	kinds      = []string{"application", "audio", "font", "image", "model", "text", "video"}
	extensions = map[string]string{
		"application/json": ".json", "application/pdf": ".pdf", "application/zip": ".zip", "audio/mpeg": ".mp3", "audio/wav": ".wav",
		"image/gif": ".gif", "image/jpeg": ".jpg", "image/png": ".png", "image/svg+xml": ".svg", "image/webp": ".webp",
		"text/csv": ".csv", "text/html": ".html", "text/markdown": ".md", "text/plain": ".txt", "video/mp4": ".mp4",
	}
)

func (g *gathering) note(format string, args ...any) {
	if words := fmt.Sprintf(format, args...); len(g.answer.Notes) < maxAsked {
		g.answer.Notes = append(g.answer.Notes, words)
	}
}

// done returns the result. A text that only repeats the structured content is left out, as servers
// add it for clients that do not know any other.
func (g *gathering) done() tool.Result {
	g.answer.Text = strings.ToValidUTF8(strings.Join(g.texts, "\n"), "\uFFFD")
	if same(g.answer.Text, g.answer.Structured) {
		g.answer.Text = ""
	}
	r := tool.OK(g.answer)
	r.Files = g.show
	return r
}

func same(words string, structured json.RawMessage) bool {
	if len(structured) == 0 || !json.Valid([]byte(words)) {
		return false
	}
	var a, b any
	if json.Unmarshal([]byte(words), &a) != nil || json.Unmarshal(structured, &b) != nil {
		return false
	}
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}
