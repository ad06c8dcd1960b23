//go:build !linux

package enginetest

import (
	"context"
	"errors"
)

// daemon does not run here: dockerd requires Linux.
type daemon struct{}

func start(context.Context, []string) (*Engine, error) {
	return nil, errors.New("a private Docker engine requires Linux; start an engine, and the tests will use it")
}

func (*daemon) end() error   { return nil }
func (*daemon) stop() error  { return nil }
func (*daemon) tail() string { return "" }
