package contract

import (
	"encoding/json"
	"reflect"

	"skandha.dev/pkg/plugin"
)

// consistentStorage are the rules between fields of the requests to storage plugins.
func consistentStorage() map[reflect.Type]func(*filler, any) {
	return map[reflect.Type]func(*filler, any){
		reflect.TypeFor[plugin.StorageRequest](): func(_ *filler, p any) {
			r := p.(*plugin.StorageRequest)
			n := plugin.StorageRequest{Verb: r.Verb, Agent: r.Agent, Collection: r.Collection}
			switch r.Verb {
			case plugin.Search:
				n.Query, n.Limit = "tea", r.Limit
			case plugin.Put:
				n.Key, n.Value, n.Text = "k", json.RawMessage(`null`), r.Text
			default:
				n.Key = "k"
			}
			*r = n
		},
		reflect.TypeFor[plugin.Record](): func(_ *filler, p any) {
			r := p.(*plugin.Record)
			if r.Version, r.Model, r.Vector = "1", "m", []float32{0.5}; r.Order == "" {
				r.Model, r.Vector = "", nil // a removal
			}
		},
		reflect.TypeFor[plugin.IndexRequest](): func(f *filler, p any) {
			q := p.(*plugin.IndexRequest)
			n := plugin.IndexRequest{Verb: q.Verb, Collection: q.Collection}
			switch q.Verb {
			case plugin.Write, plugin.Read:
				n.Records = f.value("storage/index_reply").(plugin.IndexReply).Records
				n.Records = append(n.Records, plugin.Record{Agent: "demo", Key: "k", Version: "1"})
			case plugin.List:
				n.Agent, n.Kinds, n.After, n.Limit = "demo", q.Kinds, q.After, 1
			case plugin.Pending:
				n.Without, n.After, n.Limit = "m", q.After, 1
			case plugin.Rank:
				if n.Agent, n.Kinds, n.Limit, n.Words, n.Without = "demo", q.Kinds, 1, q.Words, q.Without; n.Words == "" {
					n.Model, n.Vector = "m", []float32{1, 0}
				}
			case plugin.Wipe:
			}
			*q = n
		},
		reflect.TypeFor[plugin.Storage](): func(_ *filler, p any) {
			if s := p.(*plugin.Storage); len(s.Verbs) == 0 {
				s.Index = true
			}
		},
	}
}
