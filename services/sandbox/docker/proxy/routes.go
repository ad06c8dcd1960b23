package proxy

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/docker/docker/api/types/filters"

	"skandha.dev/services/sandbox/docker/form"
)

// route is one kind of request that passes. Its expressions match whole strings.
type route struct {
	method  string
	path    *regexp.Regexp // after the version; its group is the name
	bare    bool           // without a version
	query   []param
	body    bool // JSON; else there is none
	upgrade bool // to a raw stream
	serve   func(*Proxy, *call) error
}

// param is a parameter that the query must have exactly once.
type param struct {
	key      string
	want     *regexp.Regexp
	optional bool
}

func whole(expression string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + expression + `)$`) }

func fixed(key, value string) param { return param{key: key, want: whole(regexp.QuoteMeta(value))} }

func filter(args filters.Args) string {
	text, err := filters.ToJSON(args)
	if err != nil {
		panic(err) // impossible: it consists of strings
	}
	return text
}

// routes returns what the driver asks of an engine.
func routes(cfg Config) []route {
	const (
		container = `/containers/([a-f0-9]{64})`
		volume    = `/volumes/([a-z0-9-]+)`
	)
	owned := fixed("filters", filter(form.Owned(cfg.Owner)))
	name := param{key: "name", want: whole(`[a-z0-9-]{1,128}`)}
	since := param{key: "since", want: whole(`[0-9]{1,12}\.[0-9]{9}`)}
	const boot = "BOOT" // no owner has capital letters
	followed := param{key: "filters", want: whole(strings.Replace(
		regexp.QuoteMeta(filter(form.Events(cfg.Owner, boot))), boot, "[a-z2-7]{26}", 1))}
	forced := fixed("force", "1")
	maybeForced := forced
	maybeForced.optional = true
	return []route{
		{method: http.MethodHead, path: whole("/_ping"), bare: true, serve: (*Proxy).pass},
		{method: http.MethodGet, path: whole("/_ping"), bare: true, serve: (*Proxy).pass},
		{method: http.MethodGet, path: whole("/info"), serve: (*Proxy).info},
		{method: http.MethodGet, path: whole("/images/(" + regexp.QuoteMeta(cfg.Image) + ")/json"), serve: (*Proxy).image},
		{
			method: http.MethodGet, path: whole("/events"), query: []param{since, followed}, serve: (*Proxy).events,
		},
		{
			method: http.MethodGet, path: whole("/containers/json"), query: []param{fixed("all", "1"), owned},
			serve: (*Proxy).pass,
		},
		{
			method: http.MethodPost, path: whole("/containers/create"), query: []param{name}, body: true,
			serve: (*Proxy).createContainer,
		},
		{
			method: http.MethodPost, path: whole(container + "/attach"), upgrade: true,
			query: []param{fixed("stream", "1"), fixed("stdin", "1"), fixed("stdout", "1")}, serve: (*Proxy).attach,
		},
		{method: http.MethodPost, path: whole(container + "/start"), serve: (*Proxy).onContainer},
		{
			method: http.MethodDelete, path: whole(container), query: []param{forced, fixed("v", "1")},
			serve: (*Proxy).onContainer,
		},
		{method: http.MethodGet, path: whole("/volumes"), query: []param{owned}, serve: (*Proxy).pass},
		{method: http.MethodPost, path: whole("/volumes/create"), body: true, serve: (*Proxy).createVolume},
		{method: http.MethodGet, path: whole(volume), serve: (*Proxy).onVolume},
		{method: http.MethodDelete, path: whole(volume), query: []param{maybeForced}, serve: (*Proxy).onVolume},
	}
}
