package planner

import (
	"encoding/json"
	"errors"
	"strings"

	"skandha.dev/pkg/strictjson"
	"skandha.dev/pkg/tool"
)

// FindName is the tool with which a model looks for tools that it is not shown. Core itself
// answers it, and shows the model what was found from then on.
const FindName = "tools:find"

// FindSpec describes tools:find to a model.
func FindSpec() tool.Spec {
	return tool.Spec{
		Name: FindName,
		Description: "Finds tools by what they do. You are not shown all tools that exist: if none of yours fits, " +
			"describe what you need. From the next step on you can call the tools that this finds.",
		Args: json.RawMessage(`{"type":"object","required":["query"],"additionalProperties":false,"properties":{
"query":{"type":"string","minLength":1,"description":"What the tool should do, in a few words."}}}`),
		Idempotent:   true,
		ScenarioTags: []string{"information_retrieval"},
	}
}

// ParseFind reads the arguments of tools:find.
func ParseFind(args json.RawMessage) (query string, err error) {
	var a struct {
		Query string `json:"query"`
	}
	if err := strictjson.Decode(args, &a); err != nil {
		return "", errors.New(strictjson.Explain(err))
	}
	if a.Query = strings.TrimSpace(a.Query); a.Query == "" {
		return "", errors.New("query is empty: say what the tool should do")
	}
	return a.Query, nil
}

// Own returns the description of a tool that core itself runs.
func Own(name string) (tool.Spec, bool) {
	switch name {
	case ExecuteName:
		return ExecuteSpec(), true
	case FindName:
		return FindSpec(), true
	}
	return tool.Spec{}, false
}
