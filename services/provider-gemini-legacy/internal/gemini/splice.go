package gemini

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// position is the place of a part in a request.
type position struct{ content, part int }

// exact is what a request must contain exactly: the SDK has no types for it.
type exact struct {
	parts   map[position][]byte // JSON objects
	schemas []json.RawMessage   // of the declared functions, by their index; nil: none
	answer  json.RawMessage     // the schema of the answer; nil: none
}

// splice returns the SDK's request with the exact parts in their positions. All other parts
// stay as the SDK wrote them.
func (e exact) splice(body []byte) ([]byte, error) {
	var request map[string]json.RawMessage
	if err := json.Unmarshal(body, &request); err != nil {
		return nil, err
	}
	contents, err := e.contents(request["contents"])
	if err != nil {
		return nil, err
	}
	tools, err := e.declare(request["tools"])
	if err != nil {
		return nil, err
	}
	if request["generationConfig"], err = e.configure(request["generationConfig"]); err != nil {
		return nil, err
	}
	delete(request, "contents")
	delete(request, "tools")
	rest, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	// json.Marshal would change the space and the escapes of the parts.
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"contents":%s,`, contents)
	if tools != nil {
		fmt.Fprintf(&out, `"tools":%s,`, tools)
	}
	out.Write(rest[1:]) // the SDK always names the model, so it is not empty
	return out.Bytes(), nil
}

// contents writes the entries of the conversation.
func (e exact) contents(raw json.RawMessage) ([]byte, error) {
	var all []struct {
		Role  string            `json:"role"`
		Parts []json.RawMessage `json:"parts"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	placed := 0
	var out bytes.Buffer
	for i, c := range all {
		fmt.Fprintf(&out, `%c{"role":%q,"parts":`, opening(i), c.Role)
		for k, p := range c.Parts {
			if exact, has := e.parts[position{i, k}]; has {
				p, placed = exact, placed+1
			}
			fmt.Fprintf(&out, "%c%s", opening(k), p)
		}
		out.WriteString("]}")
	}
	if placed != len(e.parts) {
		return nil, errors.New("the conversation has another shape than was given")
	}
	out.WriteString("]")
	return out.Bytes(), nil
}

// opening is what comes before an element of an array.
func opening(i int) rune {
	if i == 0 {
		return '['
	}
	return ','
}

// declare adds the schemas to the tools; nil if there are none.
func (e exact) declare(raw json.RawMessage) ([]byte, error) {
	if len(e.schemas) == 0 {
		return nil, nil
	}
	var tools []struct {
		Functions []map[string]json.RawMessage `json:"functionDeclarations"`
	}
	if err := json.Unmarshal(raw, &tools); err != nil {
		return nil, err
	}
	if len(tools) != 1 || len(tools[0].Functions) != len(e.schemas) {
		return nil, errors.New("there are other tools than were given")
	}
	for i, schema := range e.schemas {
		if len(schema) > 0 {
			tools[0].Functions[i]["parametersJsonSchema"] = schema
		}
	}
	return json.Marshal(tools)
}

// configure adds the schema of the answer to the settings.
func (e exact) configure(raw json.RawMessage) (json.RawMessage, error) {
	if len(e.answer) == 0 {
		return raw, nil
	}
	var settings map[string]json.RawMessage
	if err := json.Unmarshal(raw, &settings); err != nil {
		return nil, err
	}
	settings["responseJsonSchema"] = e.answer
	return json.Marshal(settings)
}
