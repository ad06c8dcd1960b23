package archtest

// Module and package paths that the rules speak of.
const (
	sdk      = "skandha.dev/pkg"
	services = "skandha.dev/services"
	internal = services + "/internal"
	command  = services + "/skandha"
)

// The tables below are the exceptions and the lists that the rules go by.
var (
	// contract is what a plugin and the core have in common: types, no doing.
	contract = []string{
		sdk + "/event", sdk + "/subject", sdk + "/hook", sdk + "/tool", sdk + "/provider", sdk + "/guide", sdk + "/executor",
	}

	// pure decides from its arguments alone, and so does all it imports.
	pure = []string{services + "/core/decide", services + "/core/planner"}

	// impure is how a package of the standard library reaches the world.
	impure = []string{
		"crypto/rand", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
		"os/signal", "plugin", "runtime", "sync", "sync/atomic", "syscall", "unsafe",
	}

	// clock is what package time offers beside arithmetic.
	clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

	// sdkImports is what pkg may import directly.
	sdkImports = []string{
		"github.com/nats-io/nats.go",
		"github.com/nats-io/nuid", // the client's own id generator; it is there anyway
		"github.com/synadia-io/orbit.go/jetstreamext",
		"go.opentelemetry.io/otel",
	}

	// sdkRequires is all that a plugin author gets with pkg.
	sdkRequires = append([]string{
		"github.com/cespare/xxhash/v2", "github.com/go-logr/logr", "github.com/go-logr/stdr", "go.opentelemetry.io/auto/sdk", // of the OTel API
		"github.com/klauspost/compress", "github.com/nats-io/nkeys", "golang.org/x/crypto", "golang.org/x/sys", // of nats.go
		"github.com/synadia-io/orbit.go/natsext", // of jetstreamext
	}, sdkImports...)

	// owned says which package alone speaks to a library, or to a system through it.
	owned = map[string]string{
		"github.com/alecthomas/kong":                   services + "/...", // command lines; never pkg
		"github.com/anthropics/anthropic-sdk-go":       services + "/provider/anthropic",
		"github.com/docker/docker":                     services + "/sandbox/docker",
		"github.com/moby/moby":                         services + "/sandbox/docker",
		"github.com/nats-io/nats-server/v2":            internal + "/natsserver",
		"github.com/openai/openai-go/v3":               services + "/provider/openai",
		"github.com/redis/go-redis/v9":                 internal + "/store/redis",
		"google.golang.org/genai":                      services + "/provider/gemini",
		"modernc.org/sqlite":                           internal + "/store/sqlite",
		"github.com/modelcontextprotocol/go-sdk":       services + "/toolrunner/mcp",
		"github.com/santhosh-tekuri/jsonschema/v6":     internal + "/toolschema",
		"github.com/failsafe-go/failsafe-go":           services + "/provider/retry",
		"github.com/google/generative-ai-go":           services + "/provider-gemini-legacy",
		"github.com/synadia-io/orbit.go/jetstreamext":  sdk + "/bus",
		"github.com/prometheus/client_golang":          internal + "/httpd",
	}

	// families are directories whose sub-packages are implementations, chosen by
	// mains. Named are the sub-packages that are none.
	families = map[string]map[string]string{
		internal + "/store": {
			"storetest": "the conformance suite",
			"redistest": "a Redis for tests",
		},
		services + "/provider": {
			"cmd":          "the main",
			"providertest": "the conformance suite",
			"retry":        "what adapters have in common",
		},
		services + "/sandbox": {
			"cmd":         "the main",
			"sandboxtest": "the conformance suite",
		},
	}

	// choosers pick an implementation from configuration, for mains.
	choosers = map[string]string{
		internal + "/store/open":           "opens the store that a URL names",
		services + "/provider/selection":   "picks the adapters that the environment has keys for",
		services + "/sandbox/selection":    "picks the driver that the host offers",
	}

	// adapterImports are implementations that another package builds on.
	adapterImports = map[[2]string]string{}

	// badNames say nothing about what is inside.
	badNames = []string{"base", "common", "helper", "helpers", "misc", "models", "shared", "util", "utils"}

	// longFiles have more lines than [maxLines].
	longFiles = map[string]string{}

	// exits end the process outside package main.
	exits = map[string]string{
		internal + "/natstest": "a test binary that has become a server",
	}

	// skips are tests that may not run even under SKANDHA_REQUIRE=all.
	skips = map[string]string{}
)
