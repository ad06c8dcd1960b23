//go:build !linux

package enginetest

import (
	"context"
	"errors"
)

// daemon does not run here: dockerd takes Linux.
type daemon struct{}

func start(context.Context, []string) (*Engine, error) {
	return nil, errors.New("a test's own Docker engine takes Linux; start one, and the tests use it")
}

func (*daemon) end() error   { return nil }
func (*daemon) stop() error  { return nil }
func (*daemon) tail() string { return "" }
