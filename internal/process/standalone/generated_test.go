package standalone_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"fairlead/internal/frontend/traefik"
	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/acme"
	"fairlead/internal/gateway/status"
	model "fairlead/internal/model/gateway"
	"fairlead/internal/process/standalone"
)

// mostMemory is what one configuration may allocate, garbage included.
const mostMemory = 64 << 20

// TestGeneratedConfigurations decodes, checks, builds, shows and explains configurations with hostile values of all
// keys
// that the decoder knows: as labels, as files and as flags. None may panic, also where the panic would be recovered.
// FAIRLEAD_CONFIGURATIONS is how many, and FAIRLEAD_SEED the first one.
func TestGeneratedConfigurations(t *testing.T) {
	count, first := setting("FAIRLEAD_CONFIGURATIONS", 3000), setting("FAIRLEAD_SEED", 0)
	var log strings.Builder
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil))) // it has the stacks of panics that were recovered
	x := newExaminer(t)
	largest := 0
	for seed := first; seed < first+count && !t.Failed(); seed++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text := x.examine(uint64(seed))
		runtime.ReadMemStats(&after)
		size := int(after.TotalAlloc - before.TotalAlloc)
		if largest = max(largest, size); size > mostMemory {
			t.Errorf("seed %d took %d MB:\n%.2000s", seed, size>>20, text)
		}
	}
	if strings.Contains(log.String(), "internal error") {
		t.Errorf("a panic was recovered: %s", log.String())
	}
	t.Logf("%d configurations, at most %d kB", count, largest>>10)
}

func setting(name string, byDefault int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return byDefault
}

// examiner puts generated configurations to use.
type examiner struct {
	*testing.T
	generator
	dir    string
	static model.Static
}

func newExaminer(t *testing.T) *examiner {
	dir := t.TempDir()
	x := &examiner{T: t, dir: dir, static: model.Static{Default: []string{"web"}, Metrics: &model.Metrics{},
		EntryPoints: []model.EntryPoint{{Name: "web", Address: ":80"}, {Name: "dns", Address: ":53/udp"}},
		Resolvers:   map[string]*model.Resolver{"a": {TLSChallenge: true, Storage: filepath.Join(dir, "acme.json")}}}}
	x.generator = newGenerator()
	return x
}

// examine puts the configuration of a seed to use, and returns it.
func (x *examiner) examine(seed uint64) (text string) {
	x.random = rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if v := recover(); v != nil {
			x.Errorf("seed %d: %v:\n%s\n%s", seed, v, text, debug.Stack())
		}
	}()
	var shown string
	if seed%10 == 9 {
		flags := x.flags()
		text = strings.Join(flags, "\n")
		settings, notes, err := static.Read(flags, nil)
		shown = fmt.Sprint(notes, err)
		if err == nil && len(settings.EntryPoints) > 0 {
			shown += x.use(settings, model.Config{}, nil)
		}
	} else {
		pairs := append(x.pairs(), x.systematic(int(seed/2)))
		text = fmt.Sprint(pairs)
		sources, problems := x.sources(seed, pairs)
		config, known := standalone.Together(sources)
		shown = fmt.Sprint(problems) + x.use(x.static, config, known)
	}
	if strings.Contains(shown, "internal error at ") {
		x.Errorf("seed %d: %s\n%s", seed, text, shown)
	}
	return text
}

// sources decodes the pairs as labels of two containers, or as a file.
func (x *examiner) sources(seed uint64, pairs []tree.Pair) (map[string]standalone.Source, []traefik.Problem) {
	if seed%2 == 0 {
		var all []*traefik.Container
		for i := range 2 {
			c := &traefik.Container{ID: strconv.Itoa(i), Name: fmt.Sprintf("c%d", i), Labels: map[string]string{},
				Running:      true,
				ExposedPorts: []traefik.Port{{Number: 80, Protocol: "tcp"}},
				Networks:     map[string][]netip.Addr{"web": {netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}}}
			for _, p := range pairs {
				c.Labels["traefik."+p.Key] = p.Value
			}
			all, pairs = append(all, c), pairs[len(pairs)/2:]
		}
		config, problems := traefik.NewDocker(traefik.DockerOptions{}).Config(all)
		return map[string]standalone.Source{"docker": {Config: config, Problems: problems}}, problems
	}
	path := filepath.Join(x.dir, "a.yml")
	text := nested(pairs)
	if seed%4 == 1 {
		path, text = filepath.Join(x.dir, "a.toml"), tables(pairs)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		x.Fatal(err)
	}
	checked, err := standalone.Check([]string{path}, "https://a.test/a?b=c", "GET")
	config, problems := traefik.Files([]string{path})
	problems = append(problems, traefik.Problem{Text: fmt.Sprint(checked, err)})
	return map[string]standalone.Source{"file": {Config: config, Problems: problems[:len(problems)-1]}}, problems
}

// use builds the gateway with certificates, and shows and explains it.
func (x *examiner) use(settings model.Static, config model.Config, known []status.Status) string {
	settings.AccessLog = nil
	for _, r := range settings.Resolvers {
		r.Storage = filepath.Join(x.dir, "acme.json")
	}
	missing := acme.Check(&config, settings)
	acme.New(acme.Options{Static: settings, Log: slog.New(slog.DiscardHandler)}).Complete(&config)
	g, err := gateway.Checking(settings, &config, known)
	if err != nil {
		return err.Error()
	}
	text, err := json.Marshal(g.Objects())
	shown := fmt.Sprint(missing, g.Status(), string(text), err)
	for _, url := range []string{"http://a.test/a", "https://a.test/%2e?x=y", "http://[::1]/",
		"https://xn--bcher-kva.test/"} {
		answer, err := g.Explain("", "GET", url)
		shown += fmt.Sprint(answer, err)
	}
	return shown
}

// nested returns the pairs as YAML.
func nested(pairs []tree.Pair) string {
	root := map[string]any{}
	for _, p := range pairs {
		at := root
		names := strings.Split(strings.ReplaceAll(p.Key, "[", ".["), ".")
		for _, name := range names[:len(names)-1] {
			below, ok := at[name].(map[string]any)
			if !ok {
				below = map[string]any{}
				at[name] = below
			}
			at = below
		}
		at[names[len(names)-1]] = p.Value
	}
	text, _ := json.Marshal(root) // texts and maps of them
	return string(text)
}

// tables returns the pairs as TOML.
func tables(pairs []tree.Pair) string {
	var b strings.Builder
	for _, p := range pairs {
		for i, name := range strings.Split(strings.ReplaceAll(p.Key, "[", ".["), ".") {
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(strconv.Quote(name))
		}
		fmt.Fprintf(&b, " = %q\n", p.Value)
	}
	return b.String()
}
