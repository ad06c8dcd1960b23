package proxy_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"skandha.dev/services/sandbox/docker/form"
	"skandha.dev/services/sandbox/docker/proxy"
	"skandha.dev/services/sandbox/driver"
)

func filtersOf(t *testing.T, args filters.Args) string {
	t.Helper()
	text, err := filters.ToJSON(args)
	if err != nil {
		t.Fatal(err)
	}
	return url.QueryEscape(text)
}

func lease(t *testing.T) (target, body string) {
	t.Helper()
	c := form.Lease(1_000_000_000)
	text, err := json.Marshal(engineForm.Create(origin, c))
	if err != nil {
		t.Fatal(err)
	}
	return version + "/containers/create?name=" + origin.ContainerName(c), string(text)
}

var upgrade = []string{"Connection: Upgrade", "Upgrade: tcp", "Content-Type: text/plain", "Content-Length: 0"}

// What the driver sends passes. The tests of the driver send it to a real engine.
func TestWhatTheDriverAsksPasses(t *testing.T) {
	r := newRig(t)
	target, body := lease(t)
	volume, err := json.Marshal(origin.DataVolume(ourData, set))
	if err != nil {
		t.Fatal(err)
	}
	ours := filtersOf(t, form.Owned(form.DefaultOwner))
	for text, want := range map[string]int{
		plain("HEAD", "/_ping"):                                                 http.StatusOK,
		plain("GET", "/_ping"):                                                  http.StatusOK,
		plain("GET", version+"/info"):                                           http.StatusOK,
		plain("GET", version+"/images/"+form.DefaultImage+"/json"):              http.StatusOK,
		plain("GET", version+"/containers/json?all=1&filters="+ours):            http.StatusOK,
		plain("GET", version+"/volumes?filters="+ours):                          http.StatusOK,
		plain("GET", version+"/volumes/"+ourData):                               http.StatusOK,
		plain("GET", version+"/volumes/skandha-set-"+set):                       http.StatusNotFound,
		posted(target, body):                                                    http.StatusCreated,
		posted(version+"/volumes/create", string(volume)):                       http.StatusCreated,
		plain("POST", version+"/containers/"+mine+"/start"):                     http.StatusNoContent,
		plain("DELETE", version+"/containers/"+mine+"?force=1&v=1"):             http.StatusNoContent,
		plain("DELETE", version+"/containers/"+created+"?v=1&force=1"):          http.StatusNoContent,
		plain("DELETE", version+"/containers/"+set+"?force=1&v=1"):              http.StatusNotFound,
		plain("DELETE", version+"/volumes/"+ourData):                            http.StatusNoContent,
		plain("DELETE", version+"/volumes/"+ourData+"?force=1"):                 http.StatusNoContent,
		plain("GET", "/healthz"):                                                http.StatusOK,
		plain("GET", "/readyz"):                                                 http.StatusOK,
		plain("GET", "/metrics"):                                                http.StatusOK,
		plain("GET", "/v1.51/info"):                                             http.StatusOK,
		plain("GET", version+"/info", "X-Registry-Auth: secret", "Accept: */*"): http.StatusOK,
	} {
		if status, body := r.send(t, text); status != want {
			t.Errorf("%.150q is answered %d %s, want %d", text, status, body, want)
		}
	}
}

// The client changes requests for some versions of the API. The engine of the driver's tests has only one.
func TestEveryVersionOfTheAPIPasses(t *testing.T) {
	r := newRig(t)
	_, want := lease(t)
	for minor, version := 40, ""; version != api.DefaultVersion; {
		minor++
		version = "1." + strconv.Itoa(minor)
		cli, err := client.NewClientWithOpts(client.WithHost("unix://"+r.proxy), client.WithVersion(version))
		if err != nil {
			t.Fatal(err)
		}
		c := form.Lease(1_000_000_000)
		body := engineForm.Create(origin, c)
		_, err = cli.ContainerCreate(t.Context(), body.Config, body.HostConfig, nil, nil, origin.ContainerName(c))
		if err != nil || r.body != want {
			t.Errorf("version %s: %v, %s", version, err, r.body)
		}
		r.body = ""
		_ = cli.Close()
	}
}

// The engine gets what the proxy writes: the same values, and nothing else that the client sent.
func TestTheEngineGetsWhatTheProxyWrites(t *testing.T) {
	r := newRig(t)
	target, body := lease(t)
	spaced := strings.ReplaceAll(body, `"HostConfig":{`, "\"HostConfig\" : \n {")
	if status, text := r.send(t, posted(target, spaced, "X-Registry-Auth: secret")); status != http.StatusCreated {
		t.Fatalf("it is answered %d %s", status, text)
	}
	if r.body != body || !slices.Equal(r.did(), []string{"POST " + target}) {
		t.Errorf("the engine got %q: %s", r.did(), r.body)
	}
}

func TestTheHostIsNotDescribed(t *testing.T) {
	r := newRig(t)
	status, body, header := r.dial(t).send(plain("GET", version+"/info"))
	if status != http.StatusOK || strings.Contains(body, "secret") || header.Get("X-Engine") != "" {
		t.Errorf("the description is %v %s", header, body)
	}
}

// Every line is refused, and the engine is asked to do nothing.
func TestOtherRequestsAreRefused(t *testing.T) {
	r := newRig(t)
	target, body := lease(t)
	ours, all := filtersOf(t, form.Owned(form.DefaultOwner)), filtersOf(t, form.Owned("other"))
	followed := filtersOf(t, form.Events(form.DefaultOwner, origin.Boot))
	privileged := strings.Replace(body, `"HostConfig":{`, `"HostConfig":{"privileged":true,`, 1)
	chunked := "POST " + target +
		" HTTP/1.1\r\nHost: api\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
	attacks := []string{
		// requests that the driver does not make
		plain("POST", version+"/containers/"+mine+"/exec"), posted(version+"/containers/"+mine+"/exec", `{"Cmd":["sh"]}`),
		posted(version+"/exec/"+mine+"/start", `{}`), plain("POST", version+"/containers/"+mine+"/kill"),
		plain("GET", version+"/containers/"+mine+"/json"), plain("GET", version+"/containers/"+mine+"/logs?stdout=1"),
		plain("GET", version+"/containers/"+mine+"/archive?path=/"),
		plain("PUT", version+"/containers/"+mine+"/archive?path=/"),
		plain("POST", version+"/containers/"+mine+"/rename?name=x"), plain("POST", version+"/containers/"+mine+"/update"),
		plain("POST", version+"/commit?container="+mine), plain("POST", version+"/build"),
		plain("POST", version+"/build?remote=x"),
		plain("POST", version+"/images/create?fromImage=alpine"), plain("GET", version+"/images/json"),
		plain("DELETE", version+"/images/"+form.DefaultImage), plain("POST", version+"/images/load"),
		plain("GET", version+"/images/other/json"), plain("GET", version+"/images/"+form.DefaultImage+"/history"),
		plain("POST", version+"/networks/create"), plain("POST", version+"/networks/bridge/connect"),
		plain("GET", version+"/networks"), plain("POST", version+"/session"), plain("POST", version+"/grpc"),
		plain("POST", version+"/swarm/init"), plain("POST", version+"/plugins/pull?remote=x"),
		plain("GET", version+"/system/df"),
		plain("POST", version+"/containers/prune"), plain("POST", version+"/volumes/prune"), plain("GET", version+"/version"),
		plain("POST", version+"/auth"), plain("GET", version+"/libpod/info"),
		plain("POST", version+"/libpod/containers/create"),
		plain("OPTIONS", "*"), plain("OPTIONS", version+"/info"), plain("TRACE", version+"/info"),
		plain("get", version+"/info"),
		plain("PRI", "*"), plain("CONNECT", "engine:80"), plain("POST", version+"/info"), plain("GET", version+"/_ping"),
		// what belongs to others
		plain("POST", version+"/containers/"+theirs+"/start"), plain("DELETE", version+"/containers/"+theirs+"?force=1&v=1"),
		plain("POST", version+"/containers/"+theirs+"/attach?stream=1&stdin=1&stdout=1", upgrade...),
		plain("POST", version+"/containers/"+named+"/start"), plain("DELETE", version+"/containers/"+named+"?force=1&v=1"),
		plain("GET", version+"/volumes/"+theirData), plain("DELETE", version+"/volumes/"+theirData),
		plain("GET", version+"/volumes/postgres"), plain("DELETE", version+"/volumes/postgres?force=1"),
		// names and prefixes of ids, which the engine would resolve
		plain("POST", version+"/containers/nats/start"), plain("POST", version+"/containers/"+mine[:12]+"/start"),
		plain("POST", version+"/containers/"+strings.ToUpper(mine)+"/start"),
		// other spellings of paths
		plain("GET", version+"//info"), plain("GET", "/"+version+"/info"), plain("GET", version+"/./info"),
		plain("GET", version+"/volumes/../info"), plain("GET", version+"/info/"), plain("GET", version+"/%69nfo"),
		plain("POST", version+"/containers/"+mine+"%2fstart"),
		plain("POST", version+"/containers/"+mine+"/../"+theirs+"/start"),
		plain("POST", version+"/containers/"+mine+"/start;x"), plain("POST", version+"/containers/"+mine+"/start#x"),
		plain("POST", version+"/containers/"+mine+"/start/"), plain("POST", version+"/containers/"+mine+"%00/start"),
		plain("GET", "http://engine"+version+"/info"), plain("GET", "//engine"+version+"/info"),
		plain("GET", version+"\\info"),
		plain("GET", version+"/images/"+strings.Replace(form.DefaultImage, "/", "%2f", 1)+"/json"),
		// versions
		plain("GET", "/info"), plain("GET", "/v1.24/info"), plain("GET", "/v1.40/info"), plain("GET", "/v1.99/info"),
		plain("GET", "/v2.41/info"), plain("GET", "/v1.41.1/info"), plain("GET", "/V1.41/info"), plain("GET", "/v1.041/info"),
		plain("GET", "/v1.41/v1.41/info"),
		// queries
		plain("GET", version+"/containers/json"), plain("GET", version+"/containers/json?all=1"),
		plain("GET", version+"/containers/json?all=1&filters="+all),
		plain("GET", version+"/containers/json?all=1&filters={}"),
		plain("GET", version+"/containers/json?all=1&filters="+ours+"&filters="+all),
		plain("GET", version+"/containers/json?all=1&all=1&filters="+ours), plain("GET", version+"/volumes"),
		plain("GET", version+"/containers/json?all=1&filters="+ours+"&Filters="+all),
		plain("GET", version+"/containers/json?all=1&filters="+ours+"&limit=1"),
		plain("GET", version+"/containers/json?all=1;filters="+ours), plain("GET", version+"/volumes?filters="+all),
		plain("GET", version+"/events"), plain("GET", version+"/events?since=0.000000000&filters="+all),
		plain("GET", version+"/events?since=-1&filters="+followed), plain("GET", version+"/events?filters="+followed),
		plain("DELETE", version+"/containers/"+mine), plain("DELETE", version+"/containers/"+mine+"?force=1&v=1&link=1"),
		plain("DELETE", version+"/containers/"+mine+"?force=1&force=1&v=1"),
		plain("DELETE", version+"/volumes/"+ourData+"?force=2"),
		plain("POST", version+"/containers/"+mine+"/start?checkpoint=x"), plain("GET", version+"/info?x"),
		posted(strings.Replace(target, "name=", "platform=x&name=", 1), body), posted(target+"&name=x", body),
		posted(version+"/containers/create", body), posted(target+"x", body), plain("GET", version+"/info?%zz=1"),
		// upgrades
		plain("GET", version+"/info", "Connection: Upgrade", "Upgrade: tcp"), plain("GET", version+"/info", "Upgrade: h2c"),
		posted(target, body, "Connection: Upgrade", "Upgrade: tcp"),
		plain("GET", "/_ping", "Connection: keep-alive, UPGRADE"),
		plain("POST", version+"/containers/"+mine+"/attach?stream=1&stdin=1&stdout=1"),
		plain("POST", version+"/containers/"+mine+"/attach?stream=1&stdin=1&stdout=1", "Connection: Upgrade", "Upgrade: h2c"),
		plain("POST", version+"/containers/"+mine+"/attach?stream=1&stdin=1&stdout=1&logs=1", upgrade...),
		plain("GET", version+"/containers/"+mine+"/attach/ws?stream=1", upgrade...),
		// bodies
		chunked + "\r\n0\r\n\r\n", chunked + "Content-Length: 3\r\n\r\n0\r\n\r\n",
		plain("GET", version+"/info", "Content-Length: 5") + "hello",
		plain("POST", version+"/containers/"+mine+"/start", "Content-Type: application/json", "Content-Length: 2") + "{}",
		posted(target, body, "Expect: 100-continue"), posted(target, privileged), posted(target, ""),
		strings.Replace(posted(target, body), "application/json", "application/x-www-form-urlencoded", 1),
		posted(version+"/volumes/create", `{"Name":"x","DriverOpts":{"device":"/","o":"bind","type":"none"}}`),
		strings.Replace(posted(target, body), "HTTP/1.1", "HTTP/1.0", 1),
		plain("POST", target, "Content-Type: application/json", "Content-Length: 1000000000"),
	}
	for _, text := range attacks {
		status, answer := r.send(t, text)
		var docker struct{ Message string }
		if err := json.Unmarshal([]byte(answer), &docker); status != http.StatusForbidden || err != nil ||
			!strings.HasPrefix(docker.Message, "the engine proxy refuses this: ") {
			t.Errorf("%.200q is answered %d %s", text, status, answer)
		}
	}
	if did := r.did(); len(did) > 0 {
		t.Errorf("the engine was asked for %q", did)
	}
}

// Requests that two parsers may read differently do not reach the handler, or end the connection.
func TestNothingIsSmuggled(t *testing.T) {
	r := newRig(t)
	hidden := plain("POST", version+"/containers/"+mine+"/start")
	for _, text := range []string{
		plain("GET", version+"/info", "Content-Length: 5", "Content-Length: 6") + "hello",
		plain("GET", version+"/info", "Content-Length: +5") + "hello",
		plain("GET", version+"/info", "Content-Length: -5"), plain("GET", version+"/info", "Content-Length: 5, 5") + "hello",
		plain("POST", version+"/info", "Transfer-Encoding: xchunked", "Content-Length: 3") + "abc",
		plain("POST", version+"/info", "Transfer-Encoding: chunked", "Transfer-Encoding: identity") + "0\r\n\r\n",
		plain("POST", version+"/info", "Transfer-Encoding: identity"),
		plain("GET", version+"/info", "Host: other"),
		plain("GET", version+"/info", "Transfer-Encoding : chunked"), plain("GET", version+"/info", " folded: yes"),
		plain("GET", version+"/info", "X: "+strings.Repeat("x", 64<<10)), plain("GET", "/"+strings.Repeat("x", 64<<10)),
		strings.Repeat("x", 64<<10) + "\r\n\r\n", "GET " + version + "/info HTTP/9.9\r\n\r\n",
		"GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
		plain("GET", version+"/info", "Content-Length: 5", "Transfer-Encoding: chunked") + "0\r\n\r\n",
	} {
		c := r.dial(t)
		status, answer, _ := c.send(text + hidden)
		if status < 400 {
			t.Errorf("%.200q is answered %d %s", text, status, answer)
		}
		if rest, err := c.r.Peek(1); err == nil {
			t.Errorf("%.200q: the connection goes on with %q", text, rest)
		}
	}
	if did := r.did(); len(did) > 0 {
		t.Errorf("the engine was asked for %q", did)
	}
}

// A service that is taken over cannot fill the host with containers and volumes.
func TestThereIsAnEndToContainers(t *testing.T) {
	r := newRig(t, func(c *proxy.Config) { c.Containers = 2 })
	target, body := lease(t)
	if status, text := r.send(t, posted(target, body)); status != http.StatusCreated { // the engine says it has one
		t.Errorf("the second container is answered %d %s", status, text)
	}
	two := newRig(t, func(c *proxy.Config) { c.Containers, c.Volumes = 2, 2 })
	two.crowd = 2
	if status, text := two.send(t, posted(target, body)); status != http.StatusForbidden ||
		!strings.Contains(text, "at most 2") {
		t.Errorf("the third container is answered %d %s", status, text)
	}
	volume, err := json.Marshal(origin.DataVolume(ourData, set))
	if err != nil {
		t.Fatal(err)
	}
	if status, text := two.send(t, posted(version+"/volumes/create", string(volume))); status != http.StatusForbidden {
		t.Errorf("the third volume is answered %d %s", status, text)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, c := range map[string]proxy.Config{
		"engine":        {Engine: "tcp://127.0.0.1:2375"},
		"image":         {Image: "a/../b"},
		"owner":         {Owner: "A b"},
		"containers":    {Containers: 1},
		"limits.memory": {Limits: driver.Limits{Memory: 1}},
	} {
		if _, err := proxy.New(c); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
