// Package depstest is a package index for tests: a real one (PEP 503 pages, PEP 691
// JSON, hashes, range-less files) that serves wheels and source distributions made
// in Go, well-behaved and hostile ones, and that can be slow or broken.
//
//	index := depstest.New(t, depstest.Wheel{Name: "greet", Version: "1.0", Files: map[string]string{"greet.py": "X = 1"}})
//	url := index.Listen("127.0.0.1:0")
//
// Nothing here is for production.
package depstest
