package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// newExecs starts a container and gives a function that runs the code in it as the
// engine's API does: create an exec, start it, read what it prints.
func newExecs(ctx context.Context, cli, image string) (run func(context.Context) error, end func(), err error) {
	out, err := exec.CommandContext(ctx, cli, "run", "--detach", "--rm", "--network", "none", image, "sleep",
		"600").Output()
	if err != nil {
		return nil, nil, fmt.Errorf("docker run %s: %w", image, err)
	}
	id := strings.TrimSpace(string(out))
	end = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = exec.CommandContext(ctx, cli, "rm", "--force", id).Run() // --rm removes it later, too
	}
	api, err := newEngine()
	if err != nil {
		end()
		return nil, nil, err
	}
	return func(ctx context.Context) error {
		var made struct {
			ID string `json:"Id"` //nolint:tagliatelle // the engine's
		}
		create := map[string]any{"AttachStdout": true, "Cmd": []string{"python3", "-c", printOne}}
		body, err := api.post(ctx, "/containers/"+id+"/exec", create)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, &made); err != nil {
			return fmt.Errorf("creating an exec: %w", err)
		}
		printed, err := api.post(ctx, "/exec/"+made.ID+"/start", map[string]any{"Detach": false, "Tty": false})
		if err == nil && !bytes.HasSuffix(bytes.TrimSpace(printed), []byte("1")) {
			err = fmt.Errorf("an exec printed %q", printed)
		}
		return err
	}, end, nil
}

// dockerAPI speaks the engine's HTTP API.
type dockerAPI struct {
	http.Client

	base string
}

func newEngine() (*dockerAPI, error) {
	host := os.Getenv("DOCKER_HOST")
	if host == "" {
		host = "unix:///var/run/docker.sock"
	}
	network, addr, ok := strings.Cut(host, "://")
	if !ok || network != "unix" && network != "tcp" {
		return nil, fmt.Errorf("DOCKER_HOST is %q, want unix:// or tcp://", host)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, addr)
	}
	return &dockerAPI{Client: http.Client{Transport: &http.Transport{DialContext: dial}}, base: "http://engine"}, nil
}

func (e *dockerAPI) post(ctx context.Context, path string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := e.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking the engine: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("the engine answered %s: %s", res.Status, bytes.TrimSpace(out))
	}
	return out, err
}
