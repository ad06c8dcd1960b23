package test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// A wrong value is refused, with the place or the remedy in the message.
func TestRefusedValues(t *testing.T) {
	for name, c := range map[string]struct{ values, says string }{
		"a misspelt section":      {`natz: {}`, "natz"},
		"a misspelt key":          {`core: {replica: 3}`, "replica"},
		"a misspelt nested key":   {`uibridge: {ingress: {hosts: [a]}}`, "hosts"},
		"a password":              {`redis: {password: hunter2}`, "password"},
		"text for a number":       {`core: {replicas: two}`, "/core/replicas"},
		"an even number":          {`nats: {replicas: 2}`, "/nats/replicas"},
		"no replicas":             {`core: {replicas: 0}`, "/core/replicas"},
		"an unknown level":        {`logLevel: verbose`, "/logLevel"},
		"a digest that is none":   {`core: {digest: latest}`, "/core/digest"},
		"external without a URL":  {`nats: {enabled: false}`, "nats.external.url"},
		"no view":                 {`redis: {enabled: false}`, "redis.external.url"},
		"runners on one volume":   {`toolrunner: {replicas: 2}`, "toolrunner.storage.accessMode must be ReadWriteMany"},
		"scaled on one volume":    {`toolrunner: {autoscaling: {kind: cpu}}`, "storage.accessMode must be ReadWriteMany"},
		"bridges on one volume":   {`uibridge: {replicas: 2}`, "uibridge.storage.accessMode must be ReadWriteMany"},
		"an Ingress without TLS":  {`uibridge: {ingress: {enabled: true, host: a.example.org}}`, "needs a tlsSecret"},
		"an Ingress without host": {`uibridge: {ingress: {enabled: true, tlsSecret: a}}`, "uibridge.ingress.host"},
		"more busy than slots":    {`provider: {autoscaling: {kind: keda, busy: 17}}`, "provider.autoscaling.busy"},
		"min above max":           {`provider: {autoscaling: {kind: cpu, min: 3, max: 2}}`, "min is larger than max"},
		"a sandbox":               {`sandbox: {enabled: true}`, "sandbox"},
	} {
		_, err := template(t, c.values)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// Every value has a place in the schema, and every place a value; only what is passed on as it is may
// have any keys.
func TestTheSchemaIsThatOfTheValues(t *testing.T) {
	c := load(t)
	var schema map[string]any
	if err := json.Unmarshal(c.Schema, &schema); err != nil {
		t.Fatal(err)
	}
	open := map[string]bool{
		".core.config": true, ".listener.config": true, ".uibridge.config": true,
	}
	var compare func(path string, schema map[string]any, value any)
	compare = func(path string, schema map[string]any, value any) {
		properties, _ := schema["properties"].(map[string]any)
		object, is := value.(map[string]any)
		if !is {
			return
		}
		if properties == nil {
			last := path[strings.LastIndexByte(path, '.')+1:]
			if _, typed := schema["additionalProperties"].(map[string]any); !typed && last != "affinity" && !open[path] {
				t.Errorf("%s may have any keys", path)
			}
			return
		}
		if schema["additionalProperties"] != false {
			t.Errorf("%s may have further keys", path)
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			p, is := properties[key].(map[string]any)
			if !is {
				t.Errorf("%s.%s is not in the schema", path, key)
				continue
			}
			compare(path+"."+key, p, object[key])
		}
		for key := range properties {
			if _, is := object[key]; !is && path+"."+key != ".global" { // Helm adds it
				t.Errorf("%s.%s is in the schema alone", path, key)
			}
		}
	}
	compare("", schema, c.Values)
}

// The configuration files are what the values say, and have what the chart adds.
func TestConfigurationFiles(t *testing.T) {
	for name, want := range map[string]map[string]string{
		"defaults": {"core.yaml": "agents:\n  main: {}\n", "listener.yaml": "listeners: {}\n", "ui.yaml": "ui: {}\n"},
		"ingress": {
			"listener.yaml": "listeners:\n  http:\n    hosts:\n    - hooks.example.org\n    listen: 0.0.0.0:8090\n",
			"ui.yaml":       "ui:\n  hosts:\n  - agent.internal\n",
		},
	} {
		c := render(t, variations[name])
		for file, text := range want {
			if is := c.configs["skandha-config"].Data[file]; strings.TrimSpace(is) != strings.TrimSpace(text) {
				t.Errorf("%s: %s is %q, want %q", name, file, is, text)
			}
		}
	}
}

// Browsers reach the page by the URL that the bridge knows.
func TestThePageKnowsItsURL(t *testing.T) {
	for name, want := range map[string]string{
		"defaults": "SKANDHA_UI_PORT=7070", "ingress": "SKANDHA_UI_URL=https://agent.example.org",
		"everything": "SKANDHA_UI_URL=https://a.example.org",
	} {
		var got []string
		for _, e := range render(t, variations[name]).workload("uibridge").pod.Spec.Containers[0].Env {
			if e.Name == "SKANDHA_UI_PORT" || e.Name == "SKANDHA_UI_URL" {
				got = append(got, fmt.Sprintf("%s=%s", e.Name, e.Value))
			}
		}
		if !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
