// Command skandha-provider-gemini-legacy is a plugin that offers the provider gemini-legacy:
// Gemini, through an SDK that Google has ended.
package main

import (
	"context"
	_ "embed" // of the help
	"fmt"
	"os"

	"skandha.dev/pkg/plugin"
	"skandha.dev/provider-gemini-legacy/internal/gemini"
)

//go:embed help.txt
var help string

func main() {
	if len(os.Args) > 1 {
		if arg := os.Args[1]; arg != "--help" && arg != "-h" {
			fail(2, "unexpected argument %q; it is configured by environment variables, see --help", arg)
		}
		fmt.Print(help)
		return
	}
	model, err := gemini.New(gemini.FromEnv(os.Getenv))
	if err != nil {
		fail(1, "%v", err)
	}
	plugin.Main(plugin.Manifest{
		Name: gemini.Name, Version: "1.0.0", Description: "Gemini through github.com/google/generative-ai-go",
	}, plugin.Handlers{
		plugin.Provider(model.Info(), model.Generate),
		plugin.Unload(func(context.Context) error { return model.Close() }),
	})
}

func fail(status int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "skandha-provider-gemini-legacy: "+format+"\n", args...)
	os.Exit(status)
}
