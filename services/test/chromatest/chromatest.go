// Package chromatest starts a private Chroma server for a test: the one of the npm package
// chromadb.
package chromatest

import (
	"embed"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"skandha.dev/services/test/foreigntest"
	"skandha.dev/services/test/natstest"
)

// Server is a Chroma server.
type Server struct {
	URL string // http://host:port

	tb      testing.TB
	program string
	args    []string
	process *foreigntest.Process
}

// node names the packages of the server, and their versions.
//
//go:embed node/package.json node/package-lock.json
var node embed.FS

// Start runs a server on a free loopback port until the test ends, with its data in a
// directory of the test. Without Node and npm, the test is skipped, or fails if the
// environment says SKANDHA_REQUIRE=all.
func Start(tb testing.TB) *Server {
	tb.Helper()
	program := foreigntest.Need(tb, "node")
	dir := tb.TempDir()
	if err := os.CopyFS(dir, node); err != nil {
		tb.Fatal(err)
	}
	modules := foreigntest.Modules(tb, filepath.Join(dir, "node"), "install")
	port := natstest.FreePort(tb)
	s := &Server{
		URL: fmt.Sprintf("http://127.0.0.1:%d", port), tb: tb, program: program,
		args: []string{
			filepath.Join(modules, "chromadb", "dist", "cli.mjs"), "run", "--path", tb.TempDir(),
			"--host", "127.0.0.1", "--port", fmt.Sprint(port),
		},
	}
	s.Run()
	return s
}

// Run starts the server again, after Kill.
func (s *Server) Run() {
	s.tb.Helper()
	s.process = foreigntest.Spawn(s.tb, s.tb.TempDir(), nil, s.program, s.args...)
	natstest.Eventually(s.tb, "Chroma answers", func() bool {
		req, err := http.NewRequestWithContext(s.tb.Context(), http.MethodGet, s.URL+"/api/v2/heartbeat", nil)
		if err != nil {
			return false
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close() // only the status counts
		return res.StatusCode == http.StatusOK
	})
}

// Kill ends the server by SIGKILL.
func (s *Server) Kill() { s.process.Kill() }
