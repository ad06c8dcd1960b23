// Index is a storage plugin that keeps the index of what agents remember. Core uses it with
// SKANDHA_MEMORY_STORE=plugin://index. It keeps all records in memory, and in the file
// INDEX_FILE if that is set. Without a file, core fills it again after each start.
//
//	SKANDHA_NATS=… INDEX_FILE=index.jsonl go run skandha.dev/pkg/plugin/examples/index
package main

import (
	"context"
	"os"

	"skandha.dev/pkg/plugin"
)

func main() {
	x := &index{records: map[name]plugin.Record{}}
	plugin.Main(plugin.Manifest{
		Name: "index", Version: "1.0.0", Description: "Keeps the index of memories.",
	}, plugin.Handlers{
		plugin.Load(func(context.Context) error { return x.open(os.Getenv("INDEX_FILE")) }),
		plugin.StorageBackend{Index: x},
	})
}
