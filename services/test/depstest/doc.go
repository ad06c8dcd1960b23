// Package depstest has a package index for tests: a real one (PEP 503 pages, PEP 691 JSON,
// hashes, files without ranges). It serves wheels and source distributions that are made in
// Go, both well-behaved and hostile, and it can be slow or broken.
//
//	index := depstest.New(t, depstest.Wheel{Name: "greet", Version: "1.0", Files: map[string]string{"greet.py": "X = 1"}})
//	url := index.Listen("127.0.0.1:0")
//
// It is not for production.
package depstest
