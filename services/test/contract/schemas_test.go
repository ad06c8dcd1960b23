package contract

import (
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// root is a link to the folder at the top: the go command remembers a test's
	// result until a file changes that the test has read, and it looks at none
	// whose name lies outside of the module.
	root = "schemas"
	base = "https://skandha.dev/schemas/"
)

// node is a schema, and the document that its references are relative to.
type node struct {
	doc string // URL
	m   map[string]any
}

// contractFiles are all schemas, by path below schemas/ without ".json".
type contractFiles struct {
	docs map[string]map[string]any // by URL
	*jsonschema.Compiler
	mu sync.Mutex // a Compiler is not for concurrent use
}

var load = sync.OnceValues(func() (*contractFiles, error) {
	c := &contractFiles{docs: map[string]map[string]any{}, Compiler: jsonschema.NewCompiler()}
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(jsonschema.SchemeURLLoader{}) // nothing is fetched: every $ref resolves locally
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "examples":
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".json":
			return nil
		}
		doc, err := readJSON(filepath.Join(root, path))
		if err != nil {
			return err
		}
		id := base + path
		c.docs[id], _ = doc.(map[string]any)
		return c.AddResource(id, doc)
	})
	return c, err
})

func files(t testing.TB) *contractFiles {
	t.Helper()
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readJSON(path string) (any, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return jsonschema.UnmarshalJSON(f)
}

// names are the schemas' paths without ".json".
func (c *contractFiles) names() []string {
	var out []string
	for id := range c.docs {
		out = append(out, strings.TrimSuffix(strings.TrimPrefix(id, base), ".json"))
	}
	return out
}

// schema compiles a schema by its name; "<name>.message" is its $defs/message.
func (c *contractFiles) schema(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	loc := base + name + ".json"
	if n, ok := strings.CutSuffix(name, ".message"); ok {
		loc = base + n + ".json#/$defs/message"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.Compile(loc)
	if err != nil {
		t.Fatalf("schema %s: %v", name, err)
	}
	return s
}

// node finds a schema by its name, references followed.
func (c *contractFiles) node(t testing.TB, name string) node {
	t.Helper()
	doc := base + name + ".json"
	m, ok := c.docs[doc]
	if !ok {
		t.Fatalf("there is no schemas/%s.json", name)
	}
	return c.follow(t, node{doc, m})
}

// follow resolves references until there is none.
func (c *contractFiles) follow(t testing.TB, n node) node {
	t.Helper()
	for range 10 {
		ref, ok := n.m["$ref"].(string)
		if !ok {
			return n
		}
		n = c.lookup(t, n.doc, ref)
	}
	t.Fatalf("%s: references go in a circle", n.doc)
	return n
}

func (c *contractFiles) lookup(t testing.TB, from, ref string) node {
	t.Helper()
	b, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	u, err := b.Parse(ref)
	if err != nil {
		t.Fatalf("%s: $ref %q: %v", from, ref, err)
	}
	fragment := u.Fragment
	u.Fragment = ""
	doc, ok := c.docs[u.String()]
	if !ok {
		t.Fatalf("%s: $ref %q leads to no file", from, ref)
	}
	m, ok := pointer(doc, fragment).(map[string]any)
	if !ok {
		t.Fatalf("%s: $ref %q leads to no schema", from, ref)
	}
	return node{u.String(), m}
}

// pointer follows a JSON pointer; nil when it leads nowhere.
func pointer(v any, p string) any {
	for token := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
		if p == "" {
			return v
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch x := v.(type) {
		case map[string]any:
			v = x[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// child is the schema under a keyword such as properties, and whether there is one.
func (n node) child(keys ...string) (node, bool) {
	v := any(n.m)
	for _, k := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return node{}, false
		}
		v = m[k]
	}
	m, ok := v.(map[string]any)
	return node{n.doc, m}, ok
}

// strings reads a keyword that holds one string or a list of them.
func (n node) strings(key string) []string {
	switch v := n.m[key].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, x := range v {
			if s, ok := x.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

func (n node) int(key string) (int64, bool) {
	v, ok := n.m[key].(json.Number)
	if !ok {
		return 0, false
	}
	i, err := v.Int64()
	return i, err == nil
}

func TestEverySchemaCompilesAndNamesItself(t *testing.T) {
	c := files(t)
	if len(c.docs) < 60 {
		t.Fatalf("only %d schemas were found below %s", len(c.docs), root)
	}
	for id, doc := range c.docs {
		if doc["$id"] != id {
			t.Errorf("%s: $id is %v", id, doc["$id"])
		}
		if doc["$schema"] != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %v", id, doc["$schema"])
		}
		name := strings.TrimSuffix(strings.TrimPrefix(id, base), ".json")
		c.schema(t, name)
		if _, ok := pointer(doc, "/$defs/message").(map[string]any); ok {
			c.schema(t, name+".message")
		}
	}
}

// Every property of a schema has a description.
func TestEveryPropertyIsDescribed(t *testing.T) {
	c := files(t)
	for id, doc := range c.docs {
		walk("", doc, func(at string, m map[string]any) {
			props, _ := m["properties"].(map[string]any)
			// Conditions and messages repeat properties that are described where they are declared.
			if strings.Contains(at, "/then") || strings.Contains(at, "/else") || strings.Contains(at, "/if") ||
				strings.Contains(at, "Of/") || strings.Contains(at, "/$defs/message") ||
				strings.HasSuffix(at, "/args") { // a JSON Schema
				return
			}
			for name, p := range props {
				pm, ok := p.(map[string]any)
				if !ok {
					continue
				}
				if d, _ := pm["description"].(string); d != "" {
					continue
				}
				target := c.follow(t, node{id, pm})
				if d, _ := target.m["description"].(string); d == "" {
					t.Errorf("%s%s: property %s has no description", id, at, name)
				}
			}
		})
	}
}

// Every schema of what Skandha writes has closed objects; what strangers
// send is open, and envelopes close over their own properties.
func TestObjectsAreClosedUnlessStrangersSendThem(t *testing.T) {
	open := map[string]bool{
		"events/envelope": true, "events/ack": true, "service/core/sessions_query": true, "service/core/session_query": true,
		"service/core/past_query": true, "service/core/messages_query": true,
		"events/sense.input.v1": true, "events/sense.confirmation.v1": true, "events/sense.cancel.v1": true,
		// closed by each event's message
		"events/sense.command.v1": true, "events/sense.timer.v1": true, "events/event": true,
	}
	for id, doc := range files(t).docs {
		name := strings.TrimSuffix(strings.TrimPrefix(id, base), ".json")
		walk("", doc, func(at string, m map[string]any) {
			if _, has := m["properties"]; !has || m["type"] != "object" || strings.Contains(at, "/$defs/message") {
				return
			}
			closed := m["additionalProperties"] == false || m["unevaluatedProperties"] == false
			isArgs := strings.HasSuffix(at, "/args") // a JSON Schema
			if closed == (open[name] || isArgs) {
				t.Errorf("%s%s: closed is %t", id, at, closed)
			}
		})
	}
}

// walk visits every schema object below v.
func walk(at string, v any, visit func(at string, m map[string]any)) {
	switch x := v.(type) {
	case map[string]any:
		visit(at, x)
		for k, y := range x {
			if k != "examples" && k != "enum" && k != "const" {
				walk(at+"/"+k, y, visit)
			}
		}
	case []any:
		for i, y := range x {
			walk(at+"/"+strconv.Itoa(i), y, visit)
		}
	}
}
