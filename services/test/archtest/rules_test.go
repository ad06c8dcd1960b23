package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// tree is the smallest repository that keeps every rule.
func tree() map[string]string {
	files := map[string]string{
		"pkg/go.mod": "module skandha.dev/pkg\n\nrequire github.com/nats-io/nats.go v1.0.0\n",
		"pkg/bus/bus.go": src("bus", "github.com/nats-io/nats.go", "time") +
			"var _ = time.Now\n",
		"services/go.mod": "module skandha.dev/services\n\nrequire (\n\tgithub.com/redis/go-redis/v9 v9.0.0\n)\n",
		"services/core/core.go": src("core", "skandha.dev/pkg/bus",
			"skandha.dev/services/core/decide", "skandha.dev/services/internal/store"),
		"services/core/cmd/skandha-core/main.go": src("main", "os", "skandha.dev/services/core",
			"skandha.dev/services/internal/store/open") + "func main() { os.Exit(1) }\n",
		"services/core/decide/decide.go": src("decide", "time", "skandha.dev/pkg/event",
			"skandha.dev/services/core/planner") + "var _ time.Duration\n",
		"services/core/decide/decide_test.go":  src("decide", "time") + "var _ = time.Now\n",
		"services/core/planner/planner.go":     src("planner"),
		"services/core/planner/match/match.go": src("match"),
		"services/uibridge/mux.go":             src("uibridge", "skandha.dev/services/uibridge/compat"),
		"services/uibridge/compat/doc.go":      src("compat", "skandha.dev/services/uibridge/contract"),
		"services/internal/store/store.go":     src("store"),
		"services/internal/store/open/open.go": src("open", "skandha.dev/services/internal/store/redis"),
		"services/internal/store/redis/redis.go": src("redis", "github.com/redis/go-redis/v9",
			"skandha.dev/services/internal/store"),
		"services/test/storetest/test.go":               src("storetest", "skandha.dev/services/internal/store/redis"),
		"services/internal/store/redis/testdata/bad.go": "package bad bad",
		"services/provider-gemini-legacy/go.mod":        "module skandha.dev/provider-gemini-legacy\n",
		"services/provider-gemini-legacy/main.go":       src("main", "skandha.dev/pkg/bus"),
		"services/skandha/main.go": src("main", "skandha.dev/services/core",
			"skandha.dev/services/internal/store/redis"),
	}
	for _, p := range append(slices.Clone(compatUses), contract...) {
		name := p[strings.LastIndex(p, "/")+1:]
		files[strings.TrimPrefix(p, root+"/")+"/"+name+".go"] = src(name, "encoding/json")
	}
	return files
}

// src is a documented Go file with these imports.
func src(name string, imports ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// Package %s is for a test.\npackage %s\n\nimport (\n", name, name)
	for _, imp := range imports {
		fmt.Fprintf(&b, "\t%q\n", imp)
	}
	b.WriteString(")\n\n")
	return b.String()
}

func load(t *testing.T, files map[string]string) *Repo {
	t.Helper()
	fs := fstest.MapFS{}
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	repo, err := Load(fs)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// broken is what each rule finds, by its name.
func broken(r *Repo) map[string][]string {
	out := map[string][]string{}
	for _, rule := range Rules() {
		if found := rule.Check(r); len(found) > 0 {
			out[rule.Name] = found
		}
	}
	return out
}

// withTables sets the exceptions for one test.
func withTables(t *testing.T, long, skip map[string]string) {
	t.Helper()
	oldLong, oldSkips, oldExits, oldNaps := longFiles, skips, exits, naps
	longFiles, skips, exits, naps = long, skip, nil, nil
	t.Cleanup(func() { longFiles, skips, exits, naps = oldLong, oldSkips, oldExits, oldNaps })

	// Of the other tables, what the small tree has.
	oldOwned, oldFamilies, oldChoosers, oldImports, oldRequires := owned, families, choosers, sdkImports, sdkRequires
	owned = map[string][]string{"github.com/redis/go-redis": {internal + "/store/redis"}}
	families = map[string]map[string]string{internal + "/store": {}}
	choosers = map[string]string{internal + "/store/open": "opens the store that a URL names"}
	sdkImports = []string{"github.com/nats-io/nats.go"}
	sdkRequires = sdkImports
	oldComputing := computing
	computing = nil
	t.Cleanup(func() {
		computing = oldComputing
		owned, families, choosers, sdkImports, sdkRequires = oldOwned, oldFamilies, oldChoosers, oldImports, oldRequires
	})
}

func TestGoodTreeBreaksNothing(t *testing.T) {
	withTables(t, nil, nil)
	if found := broken(load(t, tree())); len(found) > 0 {
		t.Errorf("got %v, want no breach", found)
	}
}

// Each change to the good tree breaks exactly one rule.
func TestBreachesAreFound(t *testing.T) {
	withTables(t, nil, nil)
	long := strings.Repeat("//\n", maxLines)
	for _, c := range []struct {
		about, file, text string
		rule              string
		says              string
	}{
		{
			"a plugin that uses more than the SDK", "services/provider-gemini-legacy/a_test.go",
			src("main", "skandha.dev/services/internal/store"),
			"plugins in separate modules use the SDK alone", "internal/store",
		},
		{
			"a service that imports a plugin", "services/core/more.go", src("core", "skandha.dev/provider-gemini-legacy/model"),
			"plugins in separate modules use the SDK alone", "as a process",
		},
		{
			"a contract package that talks", "pkg/event/more.go", src("event", "github.com/nats-io/nats.go"),
			"the contract packages import the standard library and each other", "nats.go",
		},
		{
			"a contract package with the process's world", "pkg/guide/more.go", src("guide", "os"),
			"the contract packages import the standard library and each other", "imports os",
		},
		{
			"a compatibility API that goes round the contract", "services/uibridge/compat/more.go",
			src("compat", "skandha.dev/services/uibridge/backend"),
			"compatibility APIs are clients of the bridge's contract", "uibridge/backend",
		},
		{
			"a bridge that leans on a compatibility API", "services/uibridge/contract/more.go",
			src("contract", "skandha.dev/services/uibridge/compat"),
			"compatibility APIs are clients of the bridge's contract", "uibridge/compat",
		},
		{
			"a heavy requirement", "pkg/go.mod", "module skandha.dev/pkg\nrequire github.com/nats-io/nats-server/v2 v2.0.0\n",
			"pkg is light", "nats-server",
		},
		{
			"a heavy import in a test", "pkg/bus/bus_test.go", src("bus", "github.com/stretchr/testify"), "pkg is light",
			"testify",
		},
		{
			"a clock in decide", "services/core/decide/more.go", src("decide", "time") + "var now = time.Now\n",
			"decide and planner reach no bus, no clock and no chance", "time.Now",
		},
		{
			"a clock under another name", "services/core/planner/more.go",
			"package planner\nimport clock \"time\"\nvar since = clock.Since\n",
			"decide and planner reach no bus, no clock and no chance", "time.Since",
		},
		{
			"a clock by dot", "services/core/planner/more.go", "package planner\nimport . \"time\"\nvar now = Now\n",
			"decide and planner reach no bus, no clock and no chance", "by dot",
		},
		{
			"a clock in what decide imports", "pkg/event/more.go", "package event\nimport \"time\"\nvar t = time.NewTimer\n",
			"decide and planner reach no bus, no clock and no chance", "NewTimer",
		},
		{
			"chance in decide", "services/core/decide/more.go", src("decide", "math/rand/v2"),
			"decide and planner reach no bus, no clock and no chance", "math/rand/v2",
		},
		{
			"a bus behind a package of ours", "services/core/planner/more.go", src("planner", "skandha.dev/pkg/bus"),
			"decide and planner reach no bus, no clock and no chance", "nats.go",
		},
		{
			"a library used beside its owner", "services/core/more.go", src("core", "github.com/redis/go-redis/v9"),
			"one package owns a library", "services/internal/store/redis",
		},
		{
			"a driver in a service", "services/core/more.go", src("core", "skandha.dev/services/internal/store/redis"),
			"drivers and adapters are imported by mains and tests", "let the main choose",
		},
		{
			"a chooser in a service", "services/core/more.go", src("core", "skandha.dev/services/internal/store/open"),
			"drivers and adapters are imported by mains and tests", "let the main choose",
		},
		{
			"a service in a service", "services/toolrunner/tool.go", src("toolrunner", "skandha.dev/services/core"),
			"services do not import each other", "skandha.dev/services/core",
		},
		{
			"a service in internal", "services/internal/store/more.go", src("store", "skandha.dev/services/core/decide"),
			"services do not import each other", "skandha.dev/services/core/decide",
		},
		{
			"the command in a service", "services/core/more.go", src("core", "skandha.dev/services/skandha/system"),
			"services do not import each other", "skandha",
		},
		{
			"a rig in a service", "services/core/more.go", src("core", "skandha.dev/services/test/storetest"),
			"the product imports nothing of the tests", "services/test/storetest",
		},
		{
			"an empty name", "services/internal/utils/x.go", src("utils"), "packages have names that say something",
			"internal/utils",
		},
		{
			"an empty name of a directory", "services/internal/common/x.go", src("text"),
			"packages have names that say something", "internal/common",
		},
		{"no comment", "services/internal/quiet/x.go", "package quiet\n", "packages have a comment", "internal/quiet"},
		{"a long file", "services/core/more.go", src("core") + long, "files are chapters", "services/core/more.go"},
		{
			"a long main", "services/core/cmd/skandha-core/more.go", src("main") + strings.Repeat("//\n", maxMainLines),
			"mains of services are wiring", "skandha-core",
		},
		{
			"an exit outside main", "services/core/more.go", src("core", "os") + "func end() { os.Exit(1) }\n",
			"only main exits", "os.Exit",
		},
		{
			"a skip that nothing forbids", "services/core/core_test.go",
			src("core", "testing") + "func TestX(t *testing.T) { t.Skip(\"no\") }\n",
			"a test that skips fails when everything is required", "TestX",
		},
		{
			"a sleep in a test", "services/core/core_test.go", src("core", "time") + "var nap = time.Sleep\n",
			"tests do not sleep", "time.Sleep",
		},
	} {
		t.Run(c.about, func(t *testing.T) {
			files := tree()
			files[c.file] = c.text
			found := broken(load(t, files))
			if names := slices.Sorted(maps.Keys(found)); !slices.Contains(names, c.rule) {
				t.Fatalf("broken rules are %q, want %q among them", names, c.rule)
			}
			if all := strings.Join(found[c.rule], "\n"); !strings.Contains(all, c.says) {
				t.Errorf("the breach is %q, want %q in it", all, c.says)
			}
		})
	}
}

// What looks like a breach and is none.
func TestAllowedIsAllowed(t *testing.T) {
	withTables(t, map[string]string{"services/core/long.go": "one table"}, nil)
	for about, file := range map[string][2]string{
		"a driver in a test": {
			"services/core/core_test.go", src("core", "skandha.dev/services/internal/store/redis"),
		},
		"a sleep on synthetic time": {
			"services/core/core_test.go", src("core", "testing/synctest", "time") + "var nap = time.Sleep\n",
		},
		"a skip that the variable forbids": {
			"services/core/core_test.go",
			src("core", "os", "testing") +
				"func TestX(t *testing.T) { if os.Getenv(\"SKANDHA_REQUIRE\") != \"all\" { t.Skip() } }\n",
		},
		"a fuzz input that is skipped": {
			"services/core/core_test.go",
			src("core", "testing") + "func FuzzX(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) { t.Skip() }) }\n",
		},
		"generated code of any length": {
			"services/core/gen.go", "// Code generated by x. DO NOT EDIT.\n" + src("core") + strings.Repeat("//\n", maxLines),
		},
		"a method called Now": {"services/core/decide/more.go", src("decide") + "var n = x.Now\n"},
	} {
		t.Run(about, func(t *testing.T) {
			files := tree()
			files["services/core/long.go"] = src("core") + strings.Repeat("//\n", maxLines)
			files[file[0]] = file[1]
			if found := broken(load(t, files)); len(found) > 0 {
				t.Errorf("got %v, want no breach", found)
			}
		})
	}
}

// An exception that nothing needs, or that has no reason, is a breach.
func TestExceptionsAreKeptShort(t *testing.T) {
	files := tree()
	files["services/core/long.go"] = src("core") + strings.Repeat("//\n", maxLines)
	withTables(t,
		map[string]string{"services/core/long.go": " ", "services/core/core.go": "was long once"},
		map[string]string{"services/core/core_test.go:TestX": "skipped once"})
	got := exceptionsAreNeeded(load(t, files))
	want := []string{
		`archtest/allow.go: longFiles["services/core/core.go"] is needed no more; remove it`,
		`archtest/allow.go: longFiles["services/core/long.go"] has no reason`,
		`archtest/allow.go: skips["services/core/core_test.go:TestX"] is needed no more; remove it`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A line of a table about what is gone is a breach.
func TestTablesNameWhatExists(t *testing.T) {
	withTables(t, nil, nil)
	owned["github.com/robfig/cron"] = []string{services + "/core"}
	families[internal+"/store"]["gone"] = "was here"
	families[services+"/listener"] = map[string]string{}
	choosers[services+"/gone"] = "chose"
	sdkImports = append(sdkImports, "example.com/imported")
	sdkRequires = append(sdkRequires, "example.com/required")
	computing = []string{"example.com/computing"}
	got := strings.Join(tablesAreCurrent(load(t, tree())), "\n")
	for _, want := range []string{
		`owned["github.com/robfig/cron"]`, `families["skandha.dev/services/internal/store/gone"]`,
		`families["skandha.dev/services/listener"]`, `choosers["skandha.dev/services/gone"]`,
		`sdkImports["example.com/imported"]`, `sdkRequires["example.com/required"]`,
		`computing["example.com/computing"]`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no breach for %s in:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 7 {
		t.Errorf("%d breaches, want 7:\n%s", n, got)
	}
}

// A package that a rule is about and that is gone would make the rule vacuous.
func TestMissingPackageIsABreach(t *testing.T) {
	withTables(t, nil, nil)
	files := tree()
	delete(files, "services/core/planner/planner.go")
	delete(files, "pkg/guide/guide.go")
	delete(files, "services/uibridge/compat/doc.go")
	found := broken(load(t, files))
	for _, rule := range []string{
		"the contract packages import the standard library and each other",
		"decide and planner reach no bus, no clock and no chance",
		"compatibility APIs are clients of the bridge's contract",
	} {
		if len(found[rule]) == 0 || !strings.Contains(found[rule][0], "is not there") {
			t.Errorf("%s: got %q, want the missing package first", rule, found[rule])
		}
	}
}

// vanishing is a tree in which what is below gone was there for a moment.
type vanishing struct{ fs.FS }

func (v vanishing) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, "pkg/gone/") || name == "pkg/gone.go" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return v.FS.Open(name)
}

func TestWhatGoesWhileTheTreeIsReadIsNoPartOfIt(t *testing.T) {
	files := fstest.MapFS{"pkg/gone.go": {}, "pkg/gone/x/x.go": {}}
	for name, text := range tree() {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	withTables(t, nil, nil)
	repo, err := Load(vanishing{files})
	if err != nil {
		t.Fatal(err)
	}
	if found := broken(repo); len(found) > 0 {
		t.Errorf("got %v, want no breach", found)
	}
}

func TestLoadRefusesAnEmptyTree(t *testing.T) {
	if _, err := Load(fstest.MapFS{"main.go": &fstest.MapFile{Data: []byte("package main\n")}}); err == nil {
		t.Error("got no error for a tree without a module")
	}
}

func TestMaySkip(t *testing.T) {
	withTables(t, nil, map[string]string{"services/internal/store/store_test.go:TestX": "a reason"})
	for _, c := range []struct {
		pkg, test string
		want      bool
	}{
		{"skandha.dev/services/internal/store", "TestX", true},
		{"skandha.dev/services/internal/store", "TestX/part", true},
		{"skandha.dev/services/internal/store", "TestXY", false},
		{"skandha.dev/services/internal", "TestX", false},
	} {
		if got := MaySkip(c.pkg, c.test); got != c.want {
			t.Errorf("MaySkip(%q, %q) is %t, want %t", c.pkg, c.test, got, c.want)
		}
	}
}
