// Echo-provider is a plugin that offers a language model. It repeats the last message.
//
//	SKANDHA_NATS=… go run skandha.dev/pkg/plugin/examples/echo-provider
package main

import (
	"context"

	"skandha.dev/pkg/plugin"
	"skandha.dev/pkg/provider"
)

func main() {
	plugin.Main(plugin.Manifest{Name: "echo", Version: "1.0.0"}, plugin.Handlers{
		plugin.Provider(provider.Info{Name: "echo", Model: "parrot-1", Note: "repeats the last message"}, echo),
	})
}

func echo(_ context.Context, call provider.Call) (provider.Response, error) {
	messages, err := call.Request.Conversation()
	if err != nil {
		return provider.Response{}, &provider.Error{Code: provider.ErrBadRequest, Message: err.Error()}
	}
	if len(messages) == 0 {
		return provider.Response{}, &provider.Error{Code: provider.ErrBadRequest, Message: "there is nothing to repeat"}
	}
	said := messages[len(messages)-1].Text
	return provider.Response{
		TextContent: "You said: " + said, StopReason: provider.StopEnd, Model: "parrot-1",
		Usage: provider.Usage{InputTokens: int64(len(said)), OutputTokens: int64(len(said))},
	}, nil
}
