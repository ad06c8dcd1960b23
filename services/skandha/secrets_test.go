package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"skandha.dev/services/internal/trust"
	"skandha.dev/services/test/natstest"
	"skandha.dev/services/uibridge"
)

// deployment are canaries in place of the secrets of a deployment: none may be published,
// stored, logged or shown.
var deployment = map[string]string{
	"openai": "cnryOpenai7f3a91", "anthropic": "cnryAnthropic52bd0e", "gemini": "cnryGemini9e14c6",
	"ollama": "cnryOllama0d7725", "proxy": "cnryProxy64ab38", "redis": "cnryRedis83c5f1",
	"chroma": "cnryChroma2b960d", "owner": "cnryOwner1122334455667788990011223344",
	"dashboard": "cnryDashboard99887766554433221100aabbcc", "webhook": "cnryWebhook5566778899001122",
}

// content are canaries that a user types and a file contains. The log of the bus is there to
// keep them; logs of processes and metrics are not.
var content = map[string]string{"typed": "cnryTyped6b0f2d", "file": "cnryFile35e8a4"}

// allowed is where secrets of the bus, by the beginning of their names, are kept or printed on purpose.
var allowed = map[string][]string{"key ": {"file keys.json"}, "token ": {"file run.json", "output env"}}

// evidence is everything that a system has left, by place.
type evidence struct {
	mu     sync.Mutex
	places map[string][]byte
}

func (e *evidence) add(place string, parts ...[]byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range parts {
		e.places[place] = append(append(e.places[place], '\n'), p...)
	}
}

// forms are how a secret may be written: itself, in hexadecimal, and in Base64 at any offset.
func forms(secret string) []string {
	out := []string{secret, hex.EncodeToString([]byte(secret))}
	for skip := range 3 {
		// The characters that also depend on the neighbours are left out.
		text := base64.RawStdEncoding.EncodeToString([]byte("xxx"[:skip] + secret))
		out = append(out, text[(skip*8+5)/6:len(text)-1])
	}
	return out
}

// in returns the places that contain a secret in any form.
func (e *evidence) in(secret string) (places []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, place := range slices.Sorted(maps.Keys(e.places)) {
		if at(e.places[place], secret) >= 0 {
			places = append(places, place)
		}
	}
	return places
}

// around returns the text around a secret in a place.
func (e *evidence) around(place, secret string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	text := e.places[place]
	i := at(text, secret)
	return fmt.Sprintf("…%q…", text[max(0, i-150):min(len(text), i+100)])
}

// at returns where a text contains a secret in any form, -1 if it does not.
func at(text []byte, secret string) int {
	for _, f := range forms(secret) {
		if i := bytes.Index(text, []byte(f)); i >= 0 {
			return i
		}
	}
	return -1
}

// deployed is a system that runs as a process with canaries in its environment.
type deployed struct {
	t    *testing.T
	data string
	env  []string
	all  *evidence
	bus  map[string]string // the secrets of the bus: its keys, and the token of each run
	keys *trust.Authority
	cmd  *exec.Cmd
	log  string
	page string
	http string
}

// start runs the system until it is up.
func (d *deployed) start(args ...string) {
	d.t.Helper()
	d.http = fmt.Sprintf("127.0.0.1:%d", natstest.FreePort(d.t))
	d.cmd = d.command(append([]string{
		"up", "--log", "debug", "--ready-line", "--no-sandbox", "--ui", "127.0.0.1:0", "--http", d.http,
	}, args...)...)
	log, err := os.OpenFile(d.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	d.cmd.Stderr = log
	out, err := d.cmd.StdoutPipe()
	if err == nil {
		err = d.cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var printed strings.Builder
	for lines.Scan() && lines.Text() != "READY" {
		fmt.Fprintln(&printed, lines.Text())
	}
	if lines.Text() != "READY" {
		text, _ := os.ReadFile(d.log)
		d.t.Fatalf("it does not come up: %s%s", printed.String(), text)
	}
	d.page = strings.TrimSuffix(field(printed.String(), "\n  page "), "/")
	d.all.add("output up", []byte(printed.String()))
	d.tap()
}

// command is a command on the system's data, with the canaries in its environment.
func (d *deployed) command(args ...string) *exec.Cmd {
	cmd := command(d.t, append(args, "--data", d.data)...)
	cmd.Env = append(cmd.Env, d.env...)
	return cmd
}

// says runs a command, and keeps what it prints.
func (d *deployed) says(args ...string) {
	d.t.Helper()
	out, err := d.command(args...).CombinedOutput()
	if len(out) == 0 {
		d.t.Errorf("skandha %q prints nothing: %v", args, err)
	}
	d.all.add("output "+args[0], out)
}

// connect opens a connection to the system's bus.
func (d *deployed) connect() *nats.Conn {
	d.t.Helper()
	var run struct{ URL, Token string }
	b, err := os.ReadFile(filepath.Join(d.data, "run.json"))
	if err == nil {
		d.all.add("file run.json", b)
		err = json.Unmarshal(b, &run)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.bus["token "+run.Token[len(run.Token)-8:]] = run.Token
	whole, err := d.keys.Whole("test")
	if err != nil {
		d.t.Fatal(err)
	}
	nc, err := nats.Connect(run.URL, nats.UserJWT(whole.JWT, whole.Sign))
	if err != nil {
		d.t.Fatal(err)
	}
	return nc
}

// makeKeys makes the keys of the bus before the system does.
func (d *deployed) makeKeys() {
	d.t.Helper()
	file := filepath.Join(d.data, trust.KeysFile)
	var err error
	if d.keys, err = trust.Open(file); err != nil {
		d.t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		d.t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		d.t.Fatal(err)
	}
	d.bus = map[string]string{}
	for name, key := range keys {
		if seed, ok := key.(string); ok {
			d.bus["key "+name] = seed
		}
	}
	for service, seed := range keys["services"].(map[string]any) {
		d.bus["key of "+service] = seed.(string)
	}
}

// tap keeps every message on the bus from now on, with its headers, which carry the traces.
func (d *deployed) tap() {
	d.t.Helper()
	nc := d.connect()
	d.t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(">", func(m *nats.Msg) {
		d.all.add("bus", []byte(m.Subject), m.Data)
		for k, v := range m.Header {
			d.all.add("header "+strings.ToLower(k), []byte(strings.Join(v, " ")))
		}
	}); err != nil {
		d.t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		d.t.Fatal(err)
	}
}

// streams reads every message of every stream, and so of every bucket.
func (d *deployed) streams() {
	d.t.Helper()
	nc := d.connect()
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		d.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), natstest.Patience)
	defer cancel()
	list := js.ListStreams(ctx)
	for info := range list.Info() {
		s, err := js.Stream(ctx, info.Config.Name)
		if err != nil {
			d.t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if err != nil {
				continue // it was removed
			}
			d.all.add("stream "+info.Config.Name, []byte(m.Subject), m.Data, fmt.Append(nil, m.Header))
		}
	}
	if err := list.Err(); err != nil {
		d.t.Fatal(err)
	}
}

// apis asks the page's APIs for all that they show, and for the metrics.
func (d *deployed) apis() {
	d.t.Helper()
	session := `{"agent":"main","session":"s1"}`
	for method, params := range map[string]string{
		"listSessions": `{}`, "getSession": session, "listTools": `{}`, "listProviders": `{}`, "listPlugins": `{}`,
		"listListeners": `{}`, "listOutbox": `{}`, "getHooks": `{}`, "getStatus": `{}`, "listTurns": session, "getTimeline": session,
		"listMemories":   `{"agent":"main"}`,
		"searchMemories": `{"agent":"main","text":"diary"}`, "no such method": `{}`,
	} {
		d.get("api "+method, http.MethodPost, d.page+"/v1/rpc/"+strings.ReplaceAll(method, " ", "_"), params)
	}
	d.get("api models", http.MethodGet, d.page+"/v1/models", "")
	d.get("metrics", http.MethodGet, "http://"+d.http+"/metrics", "")
	d.get("api ready", http.MethodGet, "http://"+d.http+"/readyz", "")
}

func (d *deployed) get(place, method, address, body string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+deployment["owner"])
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	d.all.add(place, b, fmt.Append(nil, resp.Header))
}

// stop ends the system in an orderly way, and reads what is left on the disk.
func (d *deployed) stop() {
	d.t.Helper()
	d.streams()
	d.apis()
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("it ended with %v", err)
	}
	log, err := os.ReadFile(d.log)
	if err != nil {
		d.t.Fatal(err)
	}
	d.all.add("log", log)
	if err := filepath.WalkDir(d.data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(d.data, path)
		d.all.add("file "+name, b)
		return err
	}); err != nil {
		d.t.Fatal(err)
	}
}

// config is a configuration with secrets.
const config = `
agents:
  main: {guide: {memory_policy: vector-db}, provider: [openai, anthropic, gemini], limits: {rounds: 6}}
  brief: {guide: {memory_policy: summary}, provider: [openai], limits: {window_turns: 4, window_tokens: 1000}}
policy: [{effect: allow}]
ui: {tokens: [{name: dashboard, token: %q, rights: [see]}]}
listeners:
  http: {listen: "127.0.0.1:%d"}
  webhook: {hook: {session: hook, secrets: ["env:CANARY_WEBHOOK"]}}
`

// The secrets of a deployment never reach an event, a message, a memory, a trace, a log, a
// metric or what a command or an API shows, whatever the APIs that know them answer. What
// users type is stored, and is not logged.
func TestSecretsAreKept(t *testing.T) {
	v, dir := newVendors(t), t.TempDir()
	d := &deployed{t: t, data: filepath.Join(dir, "data"), log: filepath.Join(dir, "up.log")}
	d.all = &evidence{places: map[string][]byte{}}
	d.makeKeys()
	conf, workspace := filepath.Join(dir, "skandha.yaml"), filepath.Join(dir, "workspace")
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		conf:                                  fmt.Sprintf(config, deployment["dashboard"], natstest.FreePort(t)),
		filepath.Join(workspace, "diary.txt"): "the diary says " + content["file"],
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.env = append(v.env(),
		"SKANDHA_PROVIDER=openai,anthropic,gemini", "OPENAI_API_KEY="+deployment["openai"],
		"ANTHROPIC_API_KEY="+deployment["anthropic"], "GEMINI_API_KEY="+deployment["gemini"],
		"OLLAMA_API_KEY="+deployment["ollama"],
		uibridge.TokenVar+"="+deployment["owner"],
		"CANARY_WEBHOOK=whsec_"+base64.StdEncoding.EncodeToString([]byte(deployment["webhook"])),
		"SKANDHA_WORKSPACE="+workspace, "SKANDHA_CONFIG="+conf, "SKANDHA_SYNC=relaxed",
	)
	ask := func(text string) { d.says("ask", "-y", "-s", "s1", text) }
	var looks sync.WaitGroup
	d.start()
	ask("remember my diary: " + content["typed"])
	ask(`call file_system:read_file {"path":"diary.txt"}`)
	ask(`call file_system:read_file {"path":"../skandha.yaml"}`)
	d.says("memory", "add", "The diary is private, "+content["typed"])
	for i := range 4 {
		d.says("ask", "-a", "brief", "-s", "long",
			fmt.Sprintf("%d %s", i, strings.Repeat("tell me about the diary ", 60)))
	}
	v.fail("", always, echoes["a message"])
	ask("every API refuses this")
	for _, way := range slices.Sorted(maps.Keys(echoes)) {
		v.fail("openai.test", 1, echoes[way])
		ask("asked again, or of the next API, after " + way)
	}
	v.fail("", always, echoes["types and codes"])
	ask("every API refuses this, too")
	v.fail("", 0, nil)
	for _, line := range []string{
		"status", "providers", "doctor", "memory list", "memory search diary", "sessions show s1", "sessions tail s1",
		"env",
	} {
		looks.Go(func() { d.says(strings.Fields(line)...) })
	}
	looks.Wait()
	d.stop()

	// The stores are away, and refuse the secrets.
	v.fail("chroma.test", always, echoes["a message"])
	d.env = append(d.env, "SKANDHA_STORE=redis://user:"+deployment["redis"]+"@127.0.0.1:1/0",
		"SKANDHA_MEMORY_STORE=chroma+http://:"+deployment["chroma"]+"@chroma.test")
	d.start()
	ask("hello again")
	for _, line := range []string{"status", "memory list", "sessions", "sessions tail s1", "env"} {
		looks.Go(func() { d.says(strings.Fields(line)...) })
	}
	looks.Wait()
	d.stop()
	d.judge(v)
}

// account is the account that stores.
func (d *deployed) account() string {
	server, err := d.keys.Server()
	if err != nil {
		d.t.Fatal(err)
	}
	return server.Account
}

// always is more requests than a test makes.
const always = 1 << 30

// judge looks for every canary in everything. That it finds what is there is shown by what
// users type, and by the secrets of the bus where those are kept.
func (d *deployed) judge(v *vendors) {
	d.t.Helper()
	secrets := maps.Clone(deployment)
	maps.Copy(secrets, d.bus)
	for name, secret := range secrets {
		var kept []string
		for of, places := range allowed {
			if strings.HasPrefix(name, of) {
				kept = places
			}
		}
		places := d.all.in(secret)
		if bad := without(places, kept); len(bad) > 0 {
			d.t.Errorf("the secret %s is in %q: %s", name, bad, d.all.around(bad[0], secret))
		}
		if missing := without(kept, places); len(missing) > 0 {
			d.t.Errorf("the secret %s was not found in %q, where it is", name, missing)
		}
	}
	for _, name := range []string{"openai", "anthropic", "gemini", "ollama", "proxy", "chroma"} {
		if !v.came(name) {
			d.t.Errorf("no request carried the secret %s: it was not in use", name)
		}
	}
	kept := []string{
		"bus", "stream SESSIONS", "stream KV_memories", "file nats/jetstream/" + d.account() + "/streams/SESSIONS/msgs/1.blk",
		"file memory.db",
		"api listMemories", "output memory", "output sessions",
	}
	for name, secret := range content {
		places := d.all.in(secret)
		if missing := without(kept, places); len(missing) > 0 {
			d.t.Errorf("what is %s was not found in %q, where it is", name, missing)
		}
		for _, never := range []string{"log", "metrics", "header traceparent", "header baggage"} {
			if slices.Contains(places, never) {
				d.t.Errorf("what is %s is in %s: %s", name, never, d.all.around(never, secret))
			}
		}
	}
	for place, mark := range map[string]string{ // each was filled
		"log": "level=DEBUG", "metrics": "skandha_", "header traceparent": "00-", "stream SESSIONS": "summarized",
		"output providers": "openai", "output status": "main", "output doctor": "provider",
		"output ask": "answered 401",
	} {
		if !bytes.Contains(d.all.places[place], []byte(mark)) {
			d.t.Errorf("%s has no %q: the test saw nothing of it", place, mark)
		}
	}
}

// without returns the texts that are not among the others.
func without(texts, others []string) []string {
	return slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return slices.Contains(others, s) })
}

// Every form of a secret is found, wherever it begins.
func TestACanaryIsFoundInEveryForm(t *testing.T) {
	const secret = "cnryForm20c9"
	for _, written := range []string{
		"x" + secret + "y", hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("u:" + secret)),
		base64.StdEncoding.EncodeToString([]byte("usr:" + secret + "z")),
		base64.URLEncoding.EncodeToString([]byte("user1:" + secret)),
	} {
		e := &evidence{places: map[string][]byte{"here": []byte(written), "there": []byte("cnryForm20c8")}}
		if got := e.in(secret); len(got) != 1 || got[0] != "here" {
			t.Errorf("%s is found in %q", written, got)
		}
	}
}
