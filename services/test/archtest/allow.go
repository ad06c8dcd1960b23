package archtest

// Module and package paths that the rules speak of.
const (
	root     = "skandha.dev"
	sdk      = root + "/pkg"
	services = root + "/services"
	internal = services + "/internal"
	command  = services + "/skandha"
	bench    = services + "/bench"
	others   = root + "/deploy/bench/peers"
	support  = services + "/test"
	bridge   = services + "/uibridge"
	compat   = bridge + "/compat"
	legacy   = root + "/provider-gemini-legacy"
	pages    = services + "/toolrunner/tools/web/page"
	pdf      = services + "/toolrunner/tools/web/pdftext"
)

// What the rules go by.
var (
	// contract is what core has in common with plugins and executors: types, no doing.
	contract = []string{
		sdk + "/event", sdk + "/subject", sdk + "/hook", sdk + "/tool", sdk + "/provider", sdk + "/guide", sdk + "/memory",
		sdk + "/strictjson", internal + "/executor",
	}

	// pure decides from its arguments alone, and so does all it imports.
	pure = []string{services + "/core/decide", services + "/core/planner", services + "/core/planner/match"}

	// computing are libraries that do no more than compute.
	computing = []string{"github.com/kljensen/snowball/english", "golang.org/x/text/unicode/norm"}

	// impure are the packages of the standard library that reach the world.
	impure = []string{
		"crypto/rand", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
		"os/signal", "plugin", "runtime", "syscall", "unsafe",
	}

	// clock is what package time offers beside arithmetic.
	clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

	// sdkImports is what pkg may import directly.
	sdkImports = []string{
		"github.com/nats-io/nats.go",
		"github.com/nats-io/nkeys", // of the NATS client: what its credentials files are read with
		"github.com/nats-io/nuid",  // the client's own id generator; it is there anyway
		"go.opentelemetry.io/otel",
	}

	// sdkRequires is all that a plugin author gets with pkg.
	sdkRequires = append([]string{
		// of the OTel API
		"github.com/cespare/xxhash/v2",
		"github.com/klauspost/compress", "golang.org/x/crypto", "golang.org/x/sys", // of nats.go
	}, sdkImports...)

	// owned says which packages alone import a library, and so speak to what is
	// behind it.
	owned = map[string][]string{
		"charm.land/bubbles":                           {command},
		"charm.land/bubbletea":                         {command},
		"charm.land/lipgloss":                          {command},
		"codeberg.org/readeck/go-readability":          {pages},
		"github.com/anthropics":                        {services + "/provider/anthropic"},
		"github.com/chromedp":                          {support + "/webtest"},
		"github.com/coreos/go-oidc":                    {services + "/uibridge/access"},
		"github.com/docker/docker":                     {services + "/sandbox/docker"},
		"github.com/eclipse/paho.mqtt.golang":          {internal + "/mqttclient"},
		"github.com/gogs/chardet":                      {pages},
		"github.com/google/generative-ai-go":           {legacy},
		"github.com/go-jose/go-jose":                   {support + "/oidctest"},
		"github.com/go-webauthn/webauthn":              {services + "/uibridge/passkey"},
		"github.com/JohannesKaufmann/html-to-markdown": {pages},
		"github.com/klauspost/compress":                {internal + "/workspace", internal + "/archive"},
		"github.com/klippa-app/go-pdfium":              {pdf},
		"github.com/microcosm-cc/bluemonday":           {services + "/uibridge/markdown"},
		"github.com/modelcontextprotocol/go-sdk":       {services + "/toolrunner/mcp", compat + "/mcp"},
		"github.com/nats-io/nats-server/v2":            {internal + "/natsserver"},
		"github.com/openai/openai-go":                  {services + "/provider/openai"},
		"github.com/redis/go-redis":                    {internal + "/store/redisconn", internal + "/store/redis", internal + "/memory/redis"},
		"github.com/robfig/cron":                       {internal + "/clock"},
		"github.com/tetratelabs/wazero":                {pdf},
		"google.golang.org/genai":                      {services + "/provider/gemini", others}, // adk-go's types
		"github.com/yuin/goldmark":                     {services + "/uibridge/markdown"},
		"mellium.im/sasl":                              {services + "/listener/xmpp"},
		"modernc.org/sqlite":                           {internal + "/store/sqlitefile"},
	}

	// guests are modules of plugins in this tree. They join as any other plugin does.
	guests = []string{legacy}

	// families are directories whose sub-packages are implementations, chosen by
	// mains. Named are the sub-packages that are none.
	families = map[string]map[string]string{
		internal + "/memory": {},
		internal + "/store": {
			"redisconn":  "connections to Redis, for any store",
			"sqlitefile": "files of derived data, for any store",
		},
		services + "/listener": {
			"chat":     "what gateways to chat networks share",
			"cmd":      "the main",
			"contract": "the interface that they implement",
			"emitter":  "what they are given",
			"capture":  "records for what sees and hears",
			"feed":     "takes readings through rules, for any sensor",
			"mapping":  "the rules of sensors",
			"web":      "the server of those that are reached by HTTP",
		},
		services + "/provider": {
			"adapter": "the interface that they implement",
			"cmd":     "the main",
			"httpapi": "what adapters of HTTP APIs have in common",
			"retry":   "what adapters have in common",
			"tail":    "the end of a conversation, for models that are programs",
		},
		services + "/sandbox": {
			"agent":    "PID 1 of a sandbox, and its protocol",
			"cmd":      "the main",
			"deps":     "package sets, for any driver",
			"driver":   "the interface that they implement",
			"pool":     "warm sandboxes, for any driver",
			"snapshot": "copies of workspaces, for any driver",
			"tools":    "the tools of the sandbox",
		},
	}

	// compatUses is what the compatibility APIs may import of the bridge.
	compatUses = []string{bridge + "/contract", bridge + "/eventstream", bridge + "/request", bridge + "/rpc/jsonrpc"}

	// choosers pick an implementation from configuration, for mains.
	choosers = map[string]string{
		internal + "/memory/open":       "opens the store of memories that a URL names",
		internal + "/store/open":        "opens the store that a URL names",
		services + "/sandbox/selection": "picks the driver that the host offers",
	}

	// badNames say nothing about what is inside.
	badNames = []string{"base", "common", "helper", "helpers", "misc", "models", "shared", "util", "utils"}

	// longFiles have more lines than maxLines, by their path.
	longFiles = map[string]string{
		"services/test/bustest/caller_test.go": "one list of what may happen to a request, a few lines each",
	}

	// exits are packages that end the process though they are not called main.
	exits = map[string]string{
		internal + "/process": "the main of every service",
		sdk + "/plugin":       "Main is the main of every plugin",
	}

	// naps are packages whose tests sleep.
	naps = map[string]string{
		support + "/e2e/storm":   "the same",
		support + "/e2e/outside": "the same",
		support + "/e2e":         "how long a fault lasts is what the test gives, not what it waits for",
	}

	// skips are tests that skip without asking the variable themselves, as path:function.
	skips = map[string]string{
		"services/test/e2e/cancel_test.go:TestNoProviderComesBack": "skipped in short runs; one that " +
			"requires everything is long",
		"services/test/e2e/kill9_test.go:TestKill9Redis": "skipped in short runs; one that requires everything is long",
		"services/test/sandboxtest/docker_test.go:TestDocker": "the probe of socket buffers, where runc does not bound " +
			"them and the driver reports it",
	}
)
